//! Habits of people who come from other programs: a line that does not mean what they mean gets the
//! line to type, and a name means the same everywhere.

use std::fs;
use std::path::Path;

use crate::daily::{HOME, configure, daily, daily_ok, home};
use crate::sandbox::{Run, Sandbox};

fn archived() -> Sandbox {
    let sandbox = Sandbox::encrypted();
    fs::create_dir_all(sandbox.path("home/anna/Documents")).unwrap();
    fs::write(sandbox.path("home/anna/Documents/thesis.txt"), "text").unwrap();
    fs::create_dir(sandbox.path("etc")).unwrap();
    for day in 1..=3 {
        let time = format!("2026-05-{day:02}T20:00:00Z");
        sandbox.ok(["snapshot", "home", "etc", "--time", &time]);
    }
    sandbox
}

#[test]
fn a_path_that_does_not_exist_is_answered_with_the_one_that_was_meant() {
    let sandbox = archived();
    let whole = format!("home:{}/anna", sandbox.arg("home"));
    for (place, meant) in [
        ("home:home/anna", "did you mean anna?"),
        (&whole, "did you mean anna?"),
        ("home:anna/documents", "did you mean anna/Documents?"),
        ("home:anna/Documents/thesi.txt", "did you mean anna/Documents/thesis.txt?"),
    ] {
        let refused = sandbox.fails(1, ["ls", place]);
        assert!(refused.contains(meant), "{refused}");
    }
    let nothing = sandbox.fails(1, ["cat", "home:quite/another"]);
    assert!(nothing.contains("there is no quite") && !nothing.contains("did you mean"), "{nothing}");
    let restored = sandbox.fails(1, ["restore", "home:anna/documents", "out"]);
    assert!(restored.contains("did you mean anna/Documents?"), "{restored}");
    let old = sandbox.fails(1, ["ls", "home@2020-01-01"]);
    assert!(old.contains("no snapshot is that old; the oldest is of 2026-05-01 20:00:00"), "{old}");
    let short = sandbox.fails(1, ["ls", "5a"]);
    assert!(short.contains("an id needs at least 4 digits"), "{short}");
    assert!(sandbox.fails(2, ["create", "home"]).contains("`varve snapshot FOLDER`"));
    assert!(sandbox.fails(2, ["tag", "home", "--add", "nightly"]).contains("such as tag=nightly"));
}

#[test]
fn a_name_chooses_a_series() {
    let sandbox = archived();
    let verdicts = |words: &[&str]| {
        let lines = sandbox.json([words, &["--dry-run", "--trust-clock"]].concat());
        let verdicts = lines.iter().filter(|line| line["type"] == "forget_verdict");
        verdicts.map(|line| line["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for words in [
        &["forget", "home", "--keep-last", "1"][..],
        &["forget", "--name", "home", "--keep-last", "1"],
        &["prune", "home", "--keep-last", "1"],
        &["prune", "--name", "home", "--keep-last", "1"],
    ] {
        assert_eq!(verdicts(words), ["home"; 3], "{words:?}");
    }
    assert_eq!(verdicts(&["prune", "home", "etc", "--keep-last", "1"]).len(), 6);
    let unknown = sandbox.fails(1, ["prune", "hom", "--keep-last", "1", "--trust-clock"]);
    assert!(unknown.contains("similar names: home"), "{unknown}");
    let id = &sandbox.ids()[0];
    let single = sandbox.fails(2, ["forget", id, "--keep-last", "1", "--trust-clock"]);
    assert!(single.contains("is a single snapshot"), "{single}");
    assert_eq!(sandbox.json(["snapshots", "--name", "home"]).len(), 3);
    assert_eq!(sandbox.ok(["find", "thesis.txt", "--name", "etc"]), "");
    let planned = sandbox.ok(["prune", "home", "--keep-last", "1", "--dry-run", "--trust-clock"]);
    assert!(planned.contains("only these snapshots need"), "{planned}");

    sandbox.ok(["forget", "--name", "home", "--until", "2026-05-02", "--trust-clock"]);
    sandbox.ok(["forget", "etc", "--trust-clock"]);
    sandbox.ok(["forget", "--undo", "--name", "home"]);
    assert_eq!(sandbox.json(["snapshots", "--name", "home"]).len(), 3);
    assert_eq!(sandbox.json(["snapshots", "--name", "etc"]).len(), 2);
}

#[test]
fn any_job_is_done_by_name() {
    let sandbox = home("");
    let rest = format!(
        "{HOME}[replica.copy]\nof = \"main\"\nat = \"{}\"\nevery = \"day\"\n\
         [care]\nverify = {{ every = \"day\" }}\ndrill = {{ restore = \"5 files\", every = \"month\" }}\n",
        sandbox.arg("copy")
    );
    configure(&sandbox, &rest);
    assert_eq!(daily_ok(&sandbox, &["run", "home"]), "snapshot of home: done\n");
    assert_eq!(daily_ok(&sandbox, &["run", "copy"]), "replica copy: done\n");
    assert_eq!(daily_ok(&sandbox, &["run", "main"]), "verification of main: done\n");
    assert_eq!(daily_ok(&sandbox, &["run", "drill"]), "drill of home: done\n");
    assert_eq!(daily_ok(&sandbox, &["run", "verify main", "home"]).lines().count(), 2);
    let unknown = daily(&sandbox, &["run", "nope"]);
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.stderr.contains("no job is called nope: known are copy, home, main, drill, verify"),
        "{}",
        unknown.stderr
    );
    let planned = daily_ok(&sandbox, &["run", "copy", "--dry-run"]);
    assert_eq!(planned, "replica copy: would run: named by hand\n");
}

/// A store that cannot be opened is one line, with the reason, and with the number of promises that
/// depend on it.
#[test]
fn the_first_cause_is_told_once() {
    let sandbox = home("[promise]\nsnapshot-within = \"1d\"\nverified-within = \"8d\"\nroom-for = \"1d\"\n");
    daily_ok(&sandbox, &["run"]);
    fs::rename(sandbox.key().unwrap(), sandbox.path("away")).unwrap();
    let run = daily(&sandbox, &["status"]);
    assert_eq!(run.code, Some(4));
    let lines: Vec<_> = run.text().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("the store cannot be read: cannot read the key file"), "{}", lines[0]);
    assert!(lines[0].ends_with("; 3 other promises depend on it"), "{}", lines[0]);
}

#[test]
fn replicas_of_the_configuration_are_targets() {
    let sandbox = home("");
    sandbox.ok(["snapshot", "home"]);
    let run = |words: &[&str]| {
        let mut command = sandbox.command_without_store();
        Run::new(command.env("XDG_CONFIG_HOME", sandbox.path("settings")).args(words).output().unwrap())
    };
    if Path::new("/etc/varve/varve.toml").exists() {
        eprintln!("skipped, as this machine has a configuration: the replicas of a configuration");
        return;
    }
    let copy = format!("[replica.copy]\nof = \"main\"\nat = \"{}\"\n", sandbox.arg("copy"));
    configure(&sandbox, &format!("{HOME}{copy}"));
    fs::create_dir_all(sandbox.path("settings/varve")).unwrap();
    fs::rename(sandbox.path("varve.toml"), sandbox.path("settings/varve/varve.toml")).unwrap();
    let replicated = run(&["replicate"]);
    assert_eq!(replicated.code, Some(0), "{}", replicated.stderr);
    let shown = run(&["snapshots"]).text();
    assert!(shown.lines().nth(1).unwrap().trim_end().ends_with(" copy"), "{shown}");
}
