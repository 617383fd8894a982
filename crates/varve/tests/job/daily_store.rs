//! Commands without `--store` use the store of the configuration.

use std::fs;

use crate::sandbox::{Run, Sandbox, noise, write_secret};

/// Runs the program without the options of the sandbox, and with its configuration.
fn run(sandbox: &Sandbox, words: &[&str]) -> Run {
    let mut command = sandbox.command_without_store();
    Run::new(command.env("XDG_CONFIG_HOME", sandbox.path("settings")).args(words).output().unwrap())
}

fn configure(sandbox: &Sandbox, text: &str) {
    let folder = sandbox.path("settings/varve");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("varve.toml"), text.replace("ROOM", sandbox.path("").to_str().unwrap())).unwrap();
}

const ONE: &str = "[store.main]\nat = \"ROOM/store\"\nkey-file = \"ROOM/own.key\"\n";

#[test]
fn commands_know_the_store_of_the_configuration() {
    if std::path::Path::new("/etc/varve/varve.toml").exists() {
        eprintln!("skipped, as this machine has a configuration: the store of a configuration");
        return;
    }
    let sandbox = Sandbox::empty();
    let none = run(&sandbox, &["snapshots"]);
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    for part in ["no store is given", "there is no configuration", "`varve setup`"] {
        assert!(none.stderr.contains(part), "{}", none.stderr);
    }
    write_secret(&sandbox.path("own.key"), &noise(5, 32));
    let store = sandbox.arg("store");
    let made = run(&sandbox, &["--store", &store, "--key-file", "own.key", "init"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    fs::write(sandbox.path("letter"), "dear").unwrap();

    configure(&sandbox, ONE);
    let taken = run(&sandbox, &["snapshot", "letter"]);
    assert_eq!(taken.code, Some(0), "{}", taken.stderr);
    for words in [
        &["cat", "letter"][..],
        &["-s", "main", "cat", "letter"],
        &["-s", &store, "--key-file", "own.key", "cat", "letter"],
    ] {
        let shown = run(&sandbox, words);
        assert_eq!(shown.text(), "dear", "{words:?}: {}", shown.stderr);
    }
    assert_eq!(run(&sandbox, &["verify", "--data"]).code, Some(0));
    assert_eq!(run(&sandbox, &["restore", "letter", "back"]).code, Some(0));
    assert_eq!(fs::read(sandbox.path("back")).unwrap(), b"dear");
    // A key of the command line goes before that of the configuration.
    write_secret(&sandbox.path("other.key"), &noise(6, 32));
    assert_eq!(run(&sandbox, &["--key-file", "other.key", "ls", "letter"]).code, Some(12));
    // A file or folder goes before a name, and a new store is made only where it was named.
    fs::create_dir(sandbox.path("main")).unwrap();
    assert_eq!(run(&sandbox, &["-s", "main", "snapshots"]).code, Some(10));
    assert_eq!(run(&sandbox, &["init"]).code, Some(2));
    fs::remove_dir(sandbox.path("main")).unwrap();

    configure(&sandbox, &format!("{ONE}[store.other]\nat = \"ROOM/elsewhere\"\n"));
    let several = run(&sandbox, &["snapshots"]);
    assert_eq!(several.code, Some(2), "{}", several.stderr);
    assert!(several.stderr.contains("the stores main, other"), "{}", several.stderr);
    assert_eq!(run(&sandbox, &["-s", "main", "snapshots"]).code, Some(0));
    assert_eq!(run(&sandbox, &["-s", "third", "snapshots"]).code, Some(10));

    configure(&sandbox, "[store.main]\nat = 7\n");
    let faulty = run(&sandbox, &["snapshots"]);
    assert_eq!(faulty.code, Some(2), "{}", faulty.stderr);
    assert!(faulty.stderr.contains("varve.toml"), "{}", faulty.stderr);
}
