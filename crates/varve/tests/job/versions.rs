//! `varve versions`, and the lines in which texts differ.

use std::fs;

use serde_json::Value;

use crate::sandbox::{Sandbox, python, sparse_image};

/// Archives the folder `home` in the evening of a day of May 2026.
fn take(sandbox: &Sandbox, day: u32) {
    let time = format!("2026-05-{day:02}T20:00:00Z");
    sandbox.ok(["snapshot", "home", "--time", &time]);
}

/// A folder with a text that is written, kept, changed, removed, and written again.
fn changing() -> Sandbox {
    let sandbox = Sandbox::encrypted();
    fs::create_dir_all(sandbox.path("home/anna")).unwrap();
    let thesis = sandbox.path("home/anna/thesis");
    let text = |middle: &str| format!("first\n{middle}\nlast\n");
    take(&sandbox, 1);
    fs::write(&thesis, text("second")).unwrap();
    take(&sandbox, 2);
    take(&sandbox, 3);
    fs::write(&thesis, text("another second \u{202e}")).unwrap();
    take(&sandbox, 4);
    fs::remove_file(&thesis).unwrap();
    take(&sandbox, 5);
    fs::write(&thesis, b"\0bytes").unwrap();
    take(&sandbox, 6);
    sandbox
}

#[test]
fn each_content_of_a_file_is_a_version() {
    let sandbox = changing();
    let versions = sandbox.json(["versions", "home:anna/thesis"]);
    let facts: Vec<_> = versions
        .iter()
        .map(|one| (one["state"].as_str().unwrap(), one["snapshots"].as_u64().unwrap(), one["size"].as_u64()))
        .collect();
    let expected =
        [("there", 2, Some(18)), ("there", 1, Some(30)), ("absent", 1, None), ("there", 1, Some(6))];
    assert_eq!(facts, expected);
    assert_eq!(versions[0]["first"], "2026-05-02T20:00:00Z");
    assert_eq!(versions[0]["last"], "2026-05-03T20:00:00Z");
    assert_eq!(versions[2]["mtime"], Value::Null);
    let ids = sandbox.ids();
    assert_eq!(
        (versions[0]["first_snapshot"].as_str(), versions[0]["last_snapshot"].as_str()),
        (Some(&*ids[1]), Some(&*ids[2]))
    );

    let shown = sandbox.ok(["versions", "home:anna/thesis"]);
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines.len(), 5, "{shown}");
    assert!(
        lines[0].starts_with("FIRST")
            && lines[1].contains("2026-05-02 20:00")
            && lines[3].contains("not there"),
        "{shown}"
    );
    // Later snapshots are left out, and so are those that a condition excludes.
    assert_eq!(sandbox.json(["versions", "home@2026-05-04:anna/thesis"]).len(), 2);
    assert_eq!(sandbox.json(["versions", "home:anna/thesis", "--since", "2026-05-04"]).len(), 3);
    // A folder has a version for each change below it.
    assert_eq!(sandbox.json(["versions", "home:anna"]).len(), 5);
    let none = sandbox.fails(1, ["versions", "home:anna/thesi"]);
    assert!(none.contains("there is no anna/thesi"), "{none}");
    let upward = sandbox.fails(1, ["versions", "home:anna/../thesis"]);
    assert!(upward.contains("`..` cannot be used in a snapshot"), "{upward}");
}

#[test]
fn the_bytes_of_a_disk_have_versions() {
    let sandbox = Sandbox::encrypted();
    let disk = sandbox.path("disk.img");
    for day in 1..=3 {
        sparse_image(&disk, 1 << 20, &[(5000, if day < 3 { b"one" } else { b"two" })]);
        let time = format!("2026-05-0{day}T20:00:00Z");
        sandbox.ok(["snapshot", "disk.img", "--as", "image", "--name", "disk", "--time", &time]);
    }
    for place in ["disk", "disk:disk.raw"] {
        let versions = sandbox.json(["versions", place]);
        let counts: Vec<_> = versions.iter().map(|one| one["snapshots"].as_u64().unwrap()).collect();
        assert_eq!(counts, [2, 1], "{place}");
        assert_eq!(versions[0]["size"], 1 << 20);
    }
}

#[test]
fn the_changed_lines_of_a_text_are_printed() {
    let sandbox = changing();
    let shown = sandbox.ok(["versions", "home:anna/thesis", "--diff"]);
    let lines: Vec<_> = shown.lines().filter(|line| line.starts_with("  ")).collect();
    // The texts before and after a gap are not compared.
    assert_eq!(lines, ["   first", "  -second", "  +another second \\u{202e}", "   last"], "{shown}");
    let ids = sandbox.ids();
    let shown = sandbox.ok(["diff", &ids[1], &ids[3], "--text"]);
    assert!(shown.contains("M anna/thesis  18 B → 30 B\n   first\n  -second\n"), "{shown}");
    let run = sandbox.run(["diff", &ids[0], &ids[1]]);
    assert_eq!(run.text(), "m anna\n+ anna/thesis  18 B\n");
    assert!(
        run.stderr.contains("1 added, 0 removed, 0 changed, 1 with other metadata only; 18 B more, 0 B less"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_file_is_found_by_the_end_of_its_path() {
    let sandbox = changing();
    let found = |pattern: &str| sandbox.ok(["find", pattern]).lines().count();
    assert_eq!(found("thesis"), 4);
    assert_eq!((found("anna/th*"), found("/anna/th*"), found("/thesis"), found("nna/thesis")), (4, 4, 0, 0));
    let long = sandbox.ok(["find", "thesis", "home", "--long"]);
    assert!(
        long.contains(" home  -rw-") && long.contains(" 6 ") && long.ends_with(" anna/thesis\n"),
        "{long}"
    );
}

/// A terminal gets colours, and nothing else does.
#[test]
fn changes_have_colours_on_a_terminal() {
    let sandbox = changing();
    let ids = sandbox.ids();
    let plain = sandbox.ok(["diff", &ids[0], &ids[1]]);
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let own = sandbox.command();
    let shown = |no_color: Option<&str>| {
        let mut command = python();
        let spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))";
        command.args(["-c", spawn]).arg(own.get_program()).args(own.get_args());
        command.args(["diff", &ids[0], &ids[1]]).current_dir(sandbox.path(""));
        command.env("TERM", "xterm").env_remove("NO_COLOR").stdin(std::process::Stdio::null());
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let coloured = shown(None);
    assert!(coloured.contains("\u{1b}[32m+\u{1b}[0m anna/thesis"), "{coloured:?}");
    assert!(!shown(Some("1")).contains("\u{1b}[3"));
}
