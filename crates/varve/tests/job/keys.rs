//! The keys of a store, with the real program: several keys, changes, removals, the paper key, and
//! the permissions of each role.

use crate::sandbox;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::sandbox::{Run, Sandbox, noise};

/// Costs of key derivation that do not slow a test down.
const CHEAP: [&str; 4] = ["--memory", "8M", "--passes", "1"];

/// Runs the program with a passphrase instead of the key file, and with a new passphrase if there
/// is one.
fn with_passphrase(sandbox: &Sandbox, passphrase: &str, new: Option<&str>, words: &[&str]) -> Run {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_varve"));
    command.env_remove("VARVE_KEY_FILE").env("VARVE_PASSPHRASE", passphrase).env("TZ", "UTC");
    if let Some(new) = new {
        command.env("VARVE_NEW_PASSPHRASE", new);
    }
    command.stdin(Stdio::null()).arg("--store").arg(sandbox.store()).args(words);
    Run::new(command.output().unwrap())
}

fn keys(sandbox: &Sandbox) -> Vec<serde_json::Value> {
    sandbox.json(["key", "list"])
}

fn key_file(sandbox: &Sandbox, name: &str, seed: u64) -> String {
    sandbox::write_secret(&sandbox.path(name), &noise(seed, 32));
    sandbox.arg(name)
}

#[test]
fn a_store_has_several_keys_and_each_opens_it() {
    let sandbox = Sandbox::encrypted();
    let bytes = noise(9, 300_000);
    sandbox.snapshot_bytes("disk", &bytes);
    let arena = fs::read(&sandbox.arenas()[0]).unwrap();
    let second = key_file(&sandbox, "second", 2);
    let said = sandbox.ok(["key", "add", "--new-key-file", &second, "--label", "the other machine"]);
    assert!(said.contains("the other machine") && said.contains("full"), "{said}");
    let add = [&["key", "add", "--label", "for people"][..], &CHEAP].concat();
    let mut command = sandbox.command();
    let run = Run::new(command.args(add).env("VARVE_NEW_PASSPHRASE", "correct horse").output().unwrap());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(fs::read(&sandbox.arenas()[0]).unwrap(), arena, "what is stored is not rewritten");

    let listed = keys(&sandbox);
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().all(|key| key["role"] == "full" && key["created"].is_string()));
    let for_people = listed.iter().find(|key| key["label"] == "for people").unwrap();
    assert_eq!((&for_people["memory"], &for_people["passes"]), (&(8 << 20).into(), &1.into()));
    assert!(with_passphrase(&sandbox, "correct horse", None, &["cat", "disk"]).stdout == bytes);
    let mut other = Sandbox::copy_of(sandbox.store(), None);
    other.set_key(Some(second.into()));
    assert!(other.run(["cat", "disk"]).stdout == bytes);

    // The errors for a wrong passphrase, a duplicate key and a short key differ.
    let wrong = with_passphrase(&sandbox, "wrong horse", None, &["snapshots"]);
    assert!(wrong.stderr.contains("the passphrase does not open this store"), "{}", wrong.stderr);
    let twice = sandbox.fails(1, ["key", "add", "--new-key-file", &sandbox.arg("second")]);
    assert!(twice.contains("already"), "{twice}");
    let short = sandbox.path("short");
    fs::write(&short, b"too short").unwrap();
    assert!(
        sandbox.fails(1, ["key", "add", "--new-key-file", short.to_str().unwrap()]).contains("too short")
    );
    let none = sandbox.fails(1, ["key", "add"]);
    assert!(none.contains("VARVE_NEW_PASSPHRASE") && none.contains("--new-key-file"), "{none}");
    for bad in [["--memory", "1M"], ["--memory", "8G"], ["--passes", "0"], ["--passes", "65"]] {
        let said = sandbox.fails(2, [&["key", "add", "--new-key-file", "short"][..], &bad].concat());
        assert!(said.contains("8M to 4G"), "{said}");
    }
}

#[test]
fn keys_are_changed_and_removed_but_for_the_last() {
    let sandbox = Sandbox::empty();
    let made = with_passphrase(&sandbox, "first", None, &[&["init"][..], &CHEAP].concat());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let change = [&["key", "change"][..], &CHEAP].concat();
    let changed = with_passphrase(&sandbox, "first", Some("second"), &change);
    assert_eq!(changed.code, Some(0), "{}", changed.stderr);
    assert_eq!(with_passphrase(&sandbox, "first", None, &["snapshots"]).code, Some(12));
    assert_eq!(with_passphrase(&sandbox, "second", None, &["snapshots"]).code, Some(0));
    let id = keys(&sandbox)[0]["id"].as_str().unwrap().to_owned();
    let last = with_passphrase(&sandbox, "second", None, &["key", "remove", &id]);
    assert!(last.stderr.contains("last full key") && last.stderr.contains("hint"), "{}", last.stderr);

    let key = sandbox.key().unwrap().to_str().unwrap();
    let added = with_passphrase(&sandbox, "second", None, &["key", "add", "--new-key-file", key]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    assert!(sandbox.ok(["key", "remove", &id[..5]]).contains(&id));
    let gone = with_passphrase(&sandbox, "second", None, &["snapshots"]);
    assert!(gone.stderr.contains("no passphrase opens this store"), "{}", gone.stderr);

    // A damaged key is reported, and can be removed.
    fs::write(sandbox.store().join("keys/0000.toml"), "rubbish").unwrap();
    let listed = sandbox.run(["key", "list"]);
    assert_eq!(listed.code, Some(5));
    assert!(listed.stderr.contains("keys/0000.toml is damaged"), "{}", listed.stderr);
    let hidden = with_passphrase(&sandbox, "second", None, &["snapshots"]);
    assert!(hidden.stderr.contains("keys/0000.toml: this key is damaged"), "{}", hidden.stderr);
    sandbox.ok(["key", "remove", "0000"]);
    assert_eq!(keys(&sandbox).len(), 1);
    let plain = Sandbox::made_with(&["--plaintext"]);
    assert!(plain.fails(1, ["key", "list"]).contains("not encrypted"));
}

#[test]
fn a_store_without_a_key_is_not_made_where_a_key_is_given() {
    let sandbox = Sandbox::made_with(&["--plaintext"]);
    let other = sandbox.path("other");
    let init = |variable: Option<(&str, String)>| {
        sandbox.command_at(&other).args(["init", "--plaintext"]).envs(variable).output().unwrap()
    };
    let given = [
        (("VARVE_PASSPHRASE", "a word".to_owned()), "unset the variable"),
        (("VARVE_KEY_FILE", sandbox.arg("key")), "name no key file"),
    ];
    for (variable, way_out) in given {
        let refused = init(Some(variable.clone()));
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("--plaintext") && said.contains(way_out), "{variable:?}: {said}");
        assert!(!other.join("config.toml").exists(), "{variable:?}");
    }
    assert!(init(None).status.success());
}

#[test]
fn paper_brings_back_what_no_other_key_opens() {
    let mut sandbox = Sandbox::encrypted();
    let bytes = noise(9, 100_000);
    sandbox.snapshot_bytes("disk", &bytes);
    let page = sandbox.ok(["key", "export"]);
    assert!(page.contains("VARVE PAPER KEY") && page.contains('█'), "{page}");
    let svg = sandbox.ok(["key", "export", "--svg"]);
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    let lines: Vec<_> = page.lines().map(str::trim).filter(|line| line.len() == 21).collect();
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().all(|line| svg.contains(line)));

    // All keys are lost.
    fs::remove_dir_all(sandbox.store().join("keys")).unwrap();
    assert!(sandbox.fails(5, ["snapshots"]).contains("no key"));
    sandbox.set_key(None);
    let new = key_file(&sandbox, "new", 7);
    let import = |typed: &str| {
        let mut child = sandbox
            .command()
            .args(["key", "import", "--new-key-file", &new])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
        Run::new(child.wait_with_output().unwrap())
    };
    // The letter is replaced by its position, because the line's number may contain the same
    // letter.
    let other = if &lines[2][5..6] == "7" { "8" } else { "7" };
    let slip = format!("{}{other}{}", &lines[2][..5], &lines[2][6..]);
    let refused = import(&lines.join("\n").replace(lines[2], &slip));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("line 3 has a typing error"), "{}", refused.stderr);
    assert!(import(&lines[1..].join("\n")).stderr.contains("line 1 is missing"));
    let done = import(&lines.join("\n").to_lowercase());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    sandbox.set_key(Some(new.into()));
    assert!(sandbox.run(["cat", "disk"]).stdout == bytes);
    // The paper key of another store is refused.
    let other = Sandbox::encrypted();
    fs::write(other.path("typed"), lines.join("\n")).unwrap();
    let stranger = other.fails(1, ["key", "import", "typed", "--new-key-file", "typed"]);
    assert!(stranger.contains("belongs to another store"), "{stranger}");
}

#[test]
fn an_append_only_key_manages_no_keys() {
    let mut sandbox = Sandbox::encrypted();
    let reader = key_file(&sandbox, "reader", 3);
    sandbox.ok(["key", "add", "--append-only", "--new-key-file", &reader]);
    sandbox.set_key(Some(reader.into()));
    sandbox.snapshot_bytes("disk", b"added");
    assert_eq!(sandbox.run(["cat", "disk"]).stdout, b"added");
    for words in [&["key", "export"][..], &["key", "remove", "a"], &["key", "add", "--new-key-file", "key"]] {
        let refused = sandbox.fails(12, words);
        assert!(refused.contains("append-only: it may not make, change or remove keys"), "{refused}");
    }
    sandbox.ok(["verify", "--data"]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "waits for another process")]
fn the_process_is_closed_to_others() {
    let sandbox = Sandbox::encrypted();
    // The program waits for its standard input, so that the test can inspect it.
    let mut child = sandbox
        .command()
        .args(["snapshot", "-", "--name", "waiting", "--allow-empty"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}", child.id());
    let locked = || {
        let status = fs::read_to_string(format!("{status}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap().to_owned();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    for _ in 0..200 {
        if locked() > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(locked() > 0, "the keys are in locked memory");
    let limits = fs::read_to_string(format!("{status}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// The program opens a damaged store to read it, then its replica, then the store again to heal it.
/// It asks for the passphrase once.
#[test]
fn a_passphrase_is_asked_for_once() {
    if !sandbox::has("script") {
        println!("skipped: a_passphrase_is_asked_for_once needs script(1)");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let mut added = sandbox.command();
    let added = added.env("VARVE_NEW_PASSPHRASE", "correct horse").args(["key", "add"]).args(CHEAP).output();
    assert!(added.unwrap().status.success());
    sandbox.snapshot_bytes("disk", &noise(21, 3 << 20));
    sandbox.ok(["replicate", "replica", "--remember"]);
    let arena = sandbox.arenas().remove(0);
    let middle = fs::metadata(&arena).unwrap().len() / 2;
    sandbox::write_at(&arena, middle, &noise(22, 600));

    let (varve, out) = (env!("CARGO_BIN_EXE_varve"), sandbox.arg("disk.out"));
    let line = format!("'{varve}' --store '{}' restore disk '{out}'", sandbox.store().display());
    let mut typing = std::process::Command::new("script");
    typing.args(["-qec", &line, "/dev/null"]).env("XDG_CACHE_HOME", sandbox.path("cache"));
    typing.env_remove("VARVE_KEY_FILE").env_remove("VARVE_PASSPHRASE");
    let mut running = typing.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (running.stdin.take().unwrap(), running.stdout.take().unwrap());
    let (mut text, mut asked, mut piece) = (String::new(), 0, [0; 512]);
    loop {
        let count = stdout.read(&mut piece).unwrap_or(0);
        if count == 0 {
            break;
        }
        text.push_str(&String::from_utf8_lossy(&piece[..count]));
        // The test answers every prompt. A second prompt then changes the count, and the test does
        // not hang.
        while text.matches("Passphrase: ").count() > asked {
            asked += 1;
            stdin.write_all(b"correct horse\n").unwrap();
        }
    }
    assert!(running.wait().unwrap().success(), "{text}");
    assert!(text.contains("read from a replica") && text.contains("stored again: "), "{text}");
    assert_eq!(asked, 1, "{text}");
    assert!(fs::read(&out).unwrap() == noise(21, 3 << 20));
}

/// As in ssh, a secret is refused if other users may read or write its file. The check covers only
/// regular files of this user, so it ignores a FIFO that a shell makes.
#[test]
fn secrets_that_others_may_read_are_refused() {
    let mut sandbox = Sandbox::encrypted();
    let key = sandbox.key().unwrap().to_path_buf();
    let mode =
        |path: &std::path::Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    for open in [0o644, 0o640, 0o604, 0o602, 0o660] {
        mode(&key, open);
        let refused = sandbox.fails(1, ["snapshots"]);
        assert!(refused.contains(&format!("permissions are {open:04o}")), "{open:o}: {refused}");
        let remedy = format!("`chmod 600 {}` protects it", key.display());
        assert!(refused.contains(&remedy) && refused.contains("hint: if others may have read"), "{refused}");
    }
    mode(&key, 0o400);
    sandbox.ok(["snapshots"]);
    fs::write(sandbox.path("new"), noise(31, 32)).unwrap();
    mode(&sandbox.path("new"), 0o644);
    let refused = Run::new(sandbox.command().args(["key", "add", "--new-key-file", "new"]).output().unwrap());
    assert!(refused.stderr.contains("can be read by other users"), "{}", refused.stderr);
    assert_eq!(sandbox.json(["key", "list"]).len(), 1);
    // A shell passes the key through a FIFO.
    mode(&key, 0o400);
    let line = format!("{} -s store --key-file <(cat key) snapshots", env!("CARGO_BIN_EXE_varve"));
    let shell = std::process::Command::new("bash").args(["-c", &line]).current_dir(sandbox.path("")).status();
    assert!(shell.unwrap().success());
    sandbox.set_key(None);
    sandbox::write_secret(&sandbox.path("phrase"), b"open sesame\n");
    mode(&sandbox.path("phrase"), 0o644);
    let refused = sandbox.fails(1, ["--passphrase-file", "phrase", "snapshots"]);
    assert!(refused.contains("can be read by other users"), "{refused}");
}

#[test]
fn passphrases_come_from_files_and_programs() {
    let mut sandbox = Sandbox::empty();
    sandbox.set_key(None);
    for (name, text) in [("phrase", "open sesame\n"), ("wrong", "open barley\n"), ("empty", "\n")] {
        sandbox::write_secret(&sandbox.path(name), text.as_bytes());
    }
    sandbox.ok([&["init", "--passphrase-file", "phrase"][..], &CHEAP].concat());
    let with = |variables: &[(&str, &str)], words: &[&str]| {
        Run::new(sandbox.command().envs(variables.iter().copied()).args(words).output().unwrap())
    };
    for (code, variables, words) in [
        (0, &[("VARVE_PASSPHRASE", "open sesame")][..], &[][..]),
        (0, &[("VARVE_PASSPHRASE_FILE", "phrase")], &[]),
        (0, &[("VARVE_PASSPHRASE_COMMAND", "cat phrase")], &[]),
        (0, &[], &["--passphrase-command", "sh -c 'echo open sesame'"]),
        (12, &[], &["--passphrase-file", "wrong"]),
        (12, &[], &["--passphrase-command", "printf 'open sesame '"]),
        (12, &[], &[]),
        // The command line has priority over the environment, and a file over the contents of a
        // variable.
        (
            0,
            &[("VARVE_PASSPHRASE_FILE", "wrong"), ("VARVE_KEY_FILE", "wrong")],
            &["--passphrase-file", "phrase"],
        ),
        (0, &[("VARVE_PASSPHRASE", "open barley"), ("VARVE_PASSPHRASE_FILE", "phrase")], &[]),
        (1, &[], &["--passphrase-file", "absent"]),
        (1, &[], &["--passphrase-file", "empty"]),
        (1, &[], &["--passphrase-command", "true"]),
        (1, &[], &["--passphrase-command", "sh -c 'echo open sesame; exit 3'"]),
        (1, &[], &["--passphrase-command", "no-such-program"]),
        (2, &[], &["--passphrase-command", "'cat phrase"]),
        (2, &[], &["--passphrase-file", "phrase", "--key-file", "phrase"]),
    ] {
        let run = with(variables, &[words, &["snapshots"]].concat());
        assert_eq!(run.code, Some(code), "{variables:?} {words:?}: {}", run.stderr);
        assert!(!run.stderr.contains("sesame"), "{}", run.stderr);
    }
    // The program is run once, and does not get the data to archive as its input.
    let count = "sh -c 'echo asked >> asked; cat; cat phrase'";
    let mut child = sandbox
        .command()
        .args(["--passphrase-command", count, "snapshot", "-", "--name", "disk"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&noise(32, 100_000)).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_to_string(sandbox.path("asked")).unwrap(), "asked\n");
    let archived = with(&[("VARVE_PASSPHRASE_FILE", "phrase")], &["cat", "disk"]);
    assert_eq!(archived.stdout, noise(32, 100_000));
    // A program may also print a key file, which need not be text.
    sandbox::write_secret(&sandbox.path("key"), &[&noise(5, 64)[..], b"\xff\n\n"].concat());
    let added = with(
        &[("VARVE_PASSPHRASE_FILE", "phrase")],
        &["key", "add", "--new-key-file", "key", "--label", "x"],
    );
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    for (code, variables, words) in [
        (0, &[("VARVE_PASSPHRASE", "open barley")][..], &["--key-file-command", "cat key"][..]),
        (0, &[("VARVE_KEY_FILE_COMMAND", "cat key"), ("VARVE_PASSPHRASE_FILE", "wrong")], &[]),
        (12, &[], &["--key-file-command", "head -c 66 key"]),
        (1, &[], &["--key-file-command", "true"]),
        (1, &[], &["--key-file-command", "sh -c 'cat key; exit 3'"]),
        (2, &[], &["--key-file-command", "cat key", "--passphrase-file", "phrase"]),
    ] {
        let run = with(variables, &[words, &["snapshots"]].concat());
        assert_eq!(run.code, Some(code), "{variables:?} {words:?}: {}", run.stderr);
    }
}
