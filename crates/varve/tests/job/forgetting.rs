//! `hold`, `release` and `forget`, with keys of all roles.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, noise};

fn taken(sandbox: &Sandbox, name: &str, day: &str) -> String {
    fs::write(sandbox.path(name), noise(name.len() as u64, 9000)).unwrap();
    let time = format!("2020-05-{day}T12:00:00Z");
    let line = sandbox.json(["snapshot", name, "--as", "file", "--time", &time]).remove(0);
    line["id"].as_str().unwrap().to_owned()
}

/// Returns the ids of the listed snapshots.
fn ids(sandbox: &Sandbox, args: &[&str]) -> Vec<String> {
    let all = sandbox.json([&["snapshots"], args].concat());
    all.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

/// Returns the verdict on each snapshot that `forget` chooses.
fn verdicts(sandbox: &Sandbox, args: &[&str]) -> Vec<(String, Value)> {
    let all = sandbox.json([&["forget"], args].concat());
    let verdicts = all.iter().filter(|one| one["type"] == "forget_verdict");
    verdicts.map(|one| (one["id"].as_str().unwrap().to_owned(), one["verdict"].clone())).collect()
}

#[test]
fn a_forgotten_snapshot_comes_back_from_the_trash() {
    let sandbox = Sandbox::encrypted();
    let (one, two) = (taken(&sandbox, "one", "01"), taken(&sandbox, "two", "02"));
    let three = taken(&sandbox, "three", "03");
    assert!(sandbox.fails(2, ["forget"]).contains("name snapshots, or rules"), "nothing is chosen");
    assert!(sandbox.fails(2, ["forget", "--latest", "1"]).contains("--latest"));
    assert!(sandbox.fails(2, ["forget", "one", "--undo-days", "36501"]).contains("0..=36500"));
    assert!(sandbox.fails(1, ["forget", "nothing"]).contains("no snapshot is called"));
    assert_eq!(verdicts(&sandbox, &["one", "--dry-run"]), [(one.clone(), json!("forget"))]);
    assert_eq!(ids(&sandbox, &[]), [&one, &two, &three].map(String::as_str));

    let printed = sandbox.ok(["forget", "one", &two[..8]]);
    assert!(printed.contains("forgot 2 snapshots; `forget --undo` brings them back"), "{printed}");
    assert_eq!(ids(&sandbox, &[]), [three.as_str()]);
    assert_eq!(ids(&sandbox, &["--trash"]), [&one, &two].map(String::as_str));
    let key = sandbox.json(["key", "list"]).remove(0)["id"].as_str().unwrap().to_owned();
    let trash = sandbox.json(["snapshots", "--trash"]);
    assert!(
        trash.iter().all(|one| one["forgotten_by"] == *key && one["undo_until"].is_string()),
        "{trash:?}"
    );
    for args in [&["snapshots", "--trash"][..], &["forget", "--undo", "--dry-run", "one"]] {
        let printed = sandbox.ok(args);
        assert!(printed.contains(&format!("with key {key}")), "{printed}");
    }
    assert!(sandbox.fails(1, ["cat", "one"]).contains("no snapshot is called"));
    assert_eq!(sandbox.json(["verify", "--data"])[0]["snapshots"], 3, "the trash is checked too");

    assert_eq!(verdicts(&sandbox, &["--undo", "--dry-run", "one"]), [(one.clone(), json!("undo"))]);
    assert_eq!(verdicts(&sandbox, &["--undo", "--until", "2020-05-01"]), [(one.clone(), json!("undo"))]);
    assert_eq!(ids(&sandbox, &[]), [&one, &three].map(String::as_str));
    assert_eq!(sandbox.run(["cat", "one"]).stdout, noise(3, 9000));
    assert!(sandbox.fails(1, ["forget", "--undo", "one"]).contains("nothing of this name is in the trash"));
    // Alone, it brings back what the last call took, and then what the one before took.
    sandbox.ok(["forget", "three"]);
    assert_eq!(verdicts(&sandbox, &["--undo"]), [(three, json!("undo"))]);
    assert_eq!(verdicts(&sandbox, &["--undo"]), [(two, json!("undo"))]);
    assert!(sandbox.fails(1, ["forget", "--undo"]).contains("the trash is empty"));
}

#[test]
fn a_dry_run_says_what_only_the_snapshots_need() {
    let sandbox = Sandbox::encrypted();
    let shared = noise(1, 500_000);
    for (name, own) in [("one", noise(2, 200_000)), ("two", noise(3, 300_000))] {
        fs::write(sandbox.path(name), [shared.clone(), own].concat()).unwrap();
        sandbox.ok(["snapshot", name, "--as", "image"]);
    }
    let freed = |words: &[&str]| {
        let sum = sandbox.json([&["forget", "--dry-run"], words].concat()).pop().unwrap();
        assert_eq!(sum["type"], "forget_sum");
        sum["freed_bytes"].as_u64().unwrap()
    };
    let (one, two, both) = (freed(&["one"]), freed(&["two"]), freed(&["one", "two"]));
    let is_near = |bytes: u64, expected: u64| bytes.abs_diff(expected) < 40_000;
    assert!(is_near(one, 200_000) && is_near(two, 300_000) && is_near(both, 1_000_000), "{one} {two} {both}");
    // Shared bytes are freed with the last snapshot that needs them.
    sandbox.ok(["forget", "one"]);
    let two = freed(&["two"]);
    assert!(is_near(two, 800_000), "{two}");
    assert!(sandbox.ok(["forget", "two", "--dry-run"]).contains("only this snapshot needs 7"));
}

#[test]
fn rules_decide_which_snapshots_are_kept() {
    let sandbox = Sandbox::encrypted();
    let all: Vec<_> = ["01", "02", "03"].map(|day| taken(&sandbox, "one", day)).into();
    let refused = sandbox.fails(2, ["forget", &all[0], "--keep-last", "1", "--trust-clock"]);
    assert!(refused.contains("is a single snapshot"), "{refused}");
    assert!(sandbox.fails(2, ["forget", "--keep-daily", "some"]).contains("--keep-daily"));
    assert!(sandbox.fails(2, ["forget", "--keep-last", "1"]).contains("--trust-clock"), "it is long past");
    let expected = |verdicts: [&str; 3]| -> Vec<_> {
        all.iter().cloned().zip(verdicts.map(|verdict| json!(verdict))).collect()
    };
    let by_options = ["--keep-last", "2", "--trust-clock", "--dry-run"];
    assert_eq!(verdicts(&sandbox, &by_options), expected(["forget", "keep", "keep"]));
    fs::write(sandbox.path("policy"), "keep_yearly = 1\n").unwrap();
    let by_file = ["--policy", "policy", "--trust-clock"];
    let printed = sandbox.ok([&["forget", "--dry-run"], &by_file[..]].concat());
    assert!(printed.contains("would forget 2 snapshots") && printed.contains("keep_yearly = 1"), "{printed}");
    sandbox.ok(["hold", &all[0], "--label", "audit"]);
    assert_eq!(verdicts(&sandbox, &by_file), expected(["keep", "forget", "keep"]));
    assert_eq!(ids(&sandbox, &[]), [all[0].as_str(), all[2].as_str()]);
    fs::write(sandbox.path("policy"), "keep_dayly = 1\n").unwrap();
    assert!(sandbox.fails(1, [&["forget"], &by_file[..]].concat()).contains("did you mean keep_daily"));
}

#[test]
fn a_held_snapshot_is_not_forgotten() {
    let sandbox = Sandbox::encrypted();
    let (one, two) = (taken(&sandbox, "one", "01"), taken(&sandbox, "two", "02"));
    let three = taken(&sandbox, "three", "03");
    assert!(sandbox.fails(2, ["hold", "one"]).contains("--label"));
    assert!(sandbox.fails(2, ["hold", "one", "--label", ""]).contains("write 1 to 200 bytes"));
    assert!(sandbox.ok(["hold", "one", "--label", "audit"]).contains("one: [held: audit]"));
    assert!(sandbox.ok(["hold", "one", "--label", "audit"]).contains("(as before)"));
    let held = sandbox.json(["hold", "two", "--keep-until", "2200-12-31"]).remove(0);
    assert_eq!((&held["changed"], &held["holds"]), (&json!(true), &json!([])));
    assert!(held["keep_until"].is_string());
    assert!(sandbox.ok(["snapshots"]).contains("[held: audit]"));

    let refused = sandbox.fails(2, ["forget", "one", "two", "three"]);
    assert!(refused.contains("held: audit") && refused.contains("kept until 2200-12-31"), "{refused}");
    assert_eq!(ids(&sandbox, &[]).len(), 3, "none is forgotten");
    let expected = [(one.clone(), json!("keep")), (two, json!("keep")), (three, json!("forget"))];
    assert_eq!(verdicts(&sandbox, &["--until", "2020-05-03"]), expected);

    assert!(sandbox.ok(["release", "one", "--label", "audit"]).contains("one: not held"));
    sandbox.ok(["release", "two", "--keep-until"]);
    assert_eq!(verdicts(&sandbox, &["one"]), [(one, json!("forget"))]);
}

#[test]
fn only_a_full_key_forgets() {
    let mut sandbox = Sandbox::encrypted();
    let one = taken(&sandbox, "one", "01");
    sandbox.add_limited_keys();
    let full = sandbox.key().map(Path::to_path_buf);
    for key in ["writer", "adder"] {
        sandbox.set_key(Some(sandbox.path(key)));
        for words in [&["forget", "one"][..], &["release", "one", "--label", "x"]] {
            let run = sandbox.run(words);
            assert!(matches!(run.code, Some(1 | 12)), "{key}: {:?} {}", run.code, run.stderr);
        }
    }
    sandbox.ok(["hold", "one", "--label", "x"]);
    sandbox.set_key(full);
    assert!(sandbox.fails(2, ["forget", "one"]).contains("held: x"));
    sandbox.ok(["release", "one", "--label", "x"]);
    sandbox.ok(["forget", "one"]);
    assert_eq!(ids(&sandbox, &["--trash"]), [one]);
}
