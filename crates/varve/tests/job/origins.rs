//! The origin of each snapshot, and the trust of other keys in it, with real keys and the real
//! program.
#![expect(clippy::disallowed_methods, reason = "a file that changed just now is always read again")]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::sandbox::{Run, Sandbox, noise, write_secret};

/// A store with a full key, and with these others: two write-only ones and an append-only one.
struct Shared {
    owner: Sandbox,
    web: Sandbox,
    db: Sandbox,
    laptop: Sandbox,
}

fn shared() -> Shared {
    let owner = Sandbox::encrypted();
    let other = |name: &str, role: &str| {
        write_secret(&owner.path(name), &noise(name.len() as u64 + 40, 32));
        owner.ok(["key", "add", role, "--new-key-file", name, "--label", name]);
        let mut other = Sandbox::empty();
        other.set_store(owner.store().into());
        other.set_key(Some(owner.path(name)));
        other
    };
    let (web, db) = (other("web", "--write-only"), other("data", "--write-only"));
    let laptop = other("laptop", "--append-only");
    Shared { owner, web, db, laptop }
}

/// Takes a snapshot of a folder in the sandbox of the owner, as a host, and returns its line.
#[track_caller]
fn snapshot(of: &Sandbox, host: &str, folder: &Path, words: &[&str]) -> Value {
    let mut command = of.command();
    command.env("VARVE_HOST", host).args(["--json", "snapshot"]).arg(folder).args(words);
    let run = Run::new(command.output().unwrap());
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    run.result()
}

fn folder(of: &Sandbox, name: &str) -> std::path::PathBuf {
    let folder = of.path(name);
    fs::create_dir_all(&folder).unwrap();
    for number in 0..3 {
        fs::write(folder.join(format!("f{number}")), noise(number, 2000)).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(2100));
    folder
}

/// The role of the key and its label for each snapshot, oldest first.
fn added_with(owner: &Sandbox) -> Vec<(String, String)> {
    let keys = owner.json(["key", "list"]);
    let label = |id: &Value| match keys.iter().find(|key| key["id"] == *id) {
        Some(key) => key["label"].as_str().unwrap().to_owned(),
        None => id.to_string(),
    };
    let of = |one: &Value| {
        (one["added_with"]["role"].as_str().unwrap().to_owned(), label(&one["added_with"]["key"]))
    };
    owner.json(["snapshots"]).iter().map(of).collect()
}

#[test]
fn the_key_that_added_a_snapshot_stays_known() {
    let Shared { owner, web, db, laptop } = shared();
    let home = folder(&owner, "home");
    for (day, of) in (1..).zip([&owner, &web, &db, &laptop]) {
        snapshot(of, "desk", &home, &["--time", &format!("2026-05-0{day}T20:00")]);
    }
    let expected = [("full", ""), ("write-only", "web"), ("write-only", "data"), ("append-only", "laptop")]
        .map(|(role, label)| (role.to_owned(), label.to_owned()));
    assert_eq!(added_with(&owner), expected, "before a reader has listed them");
    snapshot(&owner, "desk", &home, &["--time", "2026-05-05T20:00"]);
    assert_eq!(added_with(&owner)[..4], expected);
    let listed = owner.ok(["snapshots", "-v"]);
    assert_eq!(listed.matches("[added with write-only key ").count(), 2, "{listed}");
    // Forgotten, brought back, collected, and read without any index.
    owner.ok(["forget", "home@2026-05-02", "home@2026-05-03"]);
    owner.ok(["forget", "--undo", "home@2026-05-02", "home@2026-05-03"]);
    owner.ok(["forget", "home@2026-05-05", "--undo-days", "0"]);
    owner.ok(["gc", "--least-dead", "0%"]);
    fs::remove_dir_all(owner.store().join("index")).unwrap();
    assert_eq!(added_with(&owner), expected);
    owner.ok(["replicate", &owner.arg("replica")]);
    owner.ok(["clone", &owner.arg("replica"), &owner.arg("back")]);
    let mut clone = Sandbox::copy_of(&owner.path("back"), owner.key());
    assert_eq!(added_with(&clone), expected);
    // A key that changes its secret is another key.
    write_secret(&clone.path("next"), &noise(77, 32));
    clone.ok(["key", "change", "--new-key-file", "next"]);
    clone.set_key(Some(clone.path("next")));
    assert_eq!(added_with(&clone)[1..], expected[1..]);
    assert!(clone.json(["verify", "--data"])[0]["damage"].as_array().unwrap().is_empty());
}

#[test]
fn only_a_snapshot_of_the_same_host_and_of_a_key_that_may_read_spares_the_reading() {
    let Shared { owner, web, db, laptop } = shared();
    let docs = folder(&owner, "docs");
    let read = |of: &Sandbox, host: &str| snapshot(of, host, &docs, &[])["unchanged_files"].as_u64().unwrap();
    // An intruder knows the names, sizes and times of the files, and stores other contents.
    assert_eq!(read(&web, "desk"), 0);
    assert_eq!(read(&owner, "desk"), 0, "the owner takes nothing over from a write-only key");
    assert_eq!(read(&web, "desk"), 3, "a machine remembers its own last snapshot");
    assert_eq!(read(&owner, "desk"), 3, "the newest one that is believed counts");
    assert_eq!(read(&laptop, "desk"), 3, "a full key is believed");
    assert_eq!(read(&db, "desk"), 0);
    assert_eq!(read(&owner, "desk"), 3, "an append-only key is believed, since it can read");
    assert_eq!(read(&owner, "other"), 0, "another host is another series");
    assert_eq!(read(&owner, "other"), 3);
    assert_eq!(owner.json(["snapshots"]).iter().filter(|one| one["name"] == "docs").count(), 9);
}

/// A lesser key that claims a name can neither refuse it to its owner, nor make the owner's source
/// look as if it was emptied.
#[test]
fn a_claimed_name_stops_nobody() {
    let Shared { owner, web, .. } = shared();
    let docs = folder(&owner, "docs");
    fs::create_dir(owner.path("empty")).unwrap();
    snapshot(&web, "desk", &docs, &["--name", "docs"]);
    snapshot(&web, "desk", &docs, &["--name", "empty", "--time", "2026-05-01"]);
    snapshot(&owner, "desk", &owner.path("empty"), &[]);
    fs::create_dir(owner.path("deep")).unwrap();
    fs::rename(owner.path("docs"), owner.path("deep/docs")).unwrap();
    snapshot(&owner, "desk", &owner.path("deep/docs"), &[]);
    // Two hosts share a store without a word.
    let run = |host: &str| {
        let output =
            owner.command().env("VARVE_HOST", host).arg("snapshot").arg(owner.path("deep/docs")).output();
        Run::new(output.unwrap())
    };
    for host in ["one", "two"] {
        let run = run(host);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    }
}

fn times_of(owner: &Sandbox, key: &Value) -> Vec<String> {
    let all = owner.json(["snapshots"]);
    let own = all.iter().filter(|one| one["added_with"]["key"] == *key);
    own.map(|one| one["time"].as_str().unwrap()[8..10].to_owned()).collect()
}

/// Another machine adds a false night just after each true one, and the owner prunes as always.
#[test]
fn false_nights_of_another_key_push_no_true_one_out() {
    let Shared { owner, web, db, .. } = shared();
    let (docs, junk) = (folder(&owner, "docs"), folder(&owner, "junk"));
    for day in 1..=4 {
        let at = |second: u32| format!("2026-05-0{day}T20:00:0{second}");
        snapshot(&owner, "desk", &docs, &["--name", "docs", "--time", &at(0)]);
        snapshot(&web, "server", &docs, &["--name", "docs", "--time", &at(0)]);
        for host in ["desk", "server"] {
            snapshot(&db, host, &junk, &["--name", "docs", "--time", &at(1)]);
        }
    }
    let before = owner.json(["snapshots"]);
    let keys: Vec<_> = before[..2].iter().map(|one| one["added_with"]["key"].clone()).collect();
    let words = ["--keep-daily", "3", "--keep-weekly", "1", "--undo-days", "0", "--trust-clock"];
    let run = owner.run([&["prune"][..], &words].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    for key in &keys {
        assert_eq!(times_of(&owner, key), ["02", "03", "04"], "{}", run.text());
    }
    for host in ["desk", "server"] {
        let met = format!("varve: {host}:docs has snapshots of several keys in 4 periods (daily): ");
        assert_eq!(run.stderr.matches(&met).count(), 1, "{}", run.stderr);
    }
    let chosen = owner.run(["ls", "desk:docs"]).stderr;
    assert!(chosen.contains("docs is taken from desk:"), "{chosen}");
    assert!(run.stderr.contains("full keys") && !run.stderr.contains("backdated"), "{}", run.stderr);
    assert!(owner.json(["snapshots"]).iter().all(|one| one["backdated"] == json!(false)));
}

/// The intruder has the key of the machine itself.
#[test]
fn backdated_nights_push_no_true_one_out() {
    let Shared { owner, web, .. } = shared();
    let (docs, junk) = (folder(&owner, "docs"), folder(&owner, "junk"));
    let take = |of: &Sandbox, folder: &Path, time: &str| {
        snapshot(of, "server", folder, &["--name", "docs", "--time", time]);
    };
    (1..=4).for_each(|day| take(&web, &docs, &format!("2026-05-0{day}T20:00")));
    (1..=3).for_each(|day| take(&web, &junk, &format!("2026-05-0{day}T23:59:59")));
    // An import by a full key is not backdated, whatever its time is.
    take(&owner, &docs, "2026-05-05T20:00");
    take(&owner, &docs, "2026-04-01T20:00");
    let backdated = || -> Vec<String> {
        let all = owner.json(["snapshots"]);
        all.iter()
            .filter(|one| one["backdated"] == json!(true))
            .map(|one| one["source"].to_string())
            .collect()
    };
    assert!(backdated().len() == 3 && backdated().iter().all(|source| source.contains("junk")));
    assert_eq!(owner.ok(["snapshots"]).matches("[backdated]").count(), 3);
    let run = owner.run(["forget", "--keep-daily", "3", "--trust-clock"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("varve: server:docs: 3 snapshots are backdated: "), "{}", run.stderr);
    assert_eq!(run.text().matches(": backdated; keep_daily = 3").count(), 3, "{}", run.text());
    let left = owner.json(["snapshots"]);
    let of_web = left.iter().filter(|one| one["added_with"]["role"] == "write-only");
    let (false_nights, true_nights): (Vec<_>, Vec<_>) =
        of_web.partition(|one| one["backdated"] == json!(true));
    assert_eq!((false_nights.len(), true_nights.len()), (3, 3), "each by itself");
    owner.ok(["prune", "--keep-last", "1", "--undo-days", "0", "--trust-clock"]);
    assert_eq!(backdated().len(), 1);
}

/// Keys from before origins were recorded go on to work, and each claim of theirs is that of some
/// early write-only key.
#[test]
fn an_early_write_only_key_is_one_of_several() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/store-v2");
    let mut sandbox = Sandbox::copy_of(&fixture.join("write-only"), Some(&fixture.join("key")));
    let old = sandbox.json(["snapshots"]);
    let none = |one: &Value| one["added_with"]["key"].is_null();
    assert!(old.iter().all(none));
    let full = sandbox.key().map(Path::to_path_buf);
    write_secret(&sandbox.path("early"), &fs::read(fixture.join("write-key")).unwrap());
    sandbox.set_key(Some(sandbox.path("early")));
    sandbox.snapshot_bytes("new", b"of an early key");
    sandbox.set_key(full);
    let new = sandbox.json(["snapshots"]).pop().unwrap();
    assert_eq!(new["added_with"], json!({ "key": null, "role": "write-only" }));
    assert!(sandbox.ok(["snapshots", "-v"]).contains("[added with an early write-only key]"));
}
