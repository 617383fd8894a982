//! `prune`: what `forget` does by rules, and then `gc`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use serde_json::{Value, json};

use crate::reclaiming::{MIB, arena_bytes, take};
use crate::sandbox::{Sandbox, noise};

/// Makes a store with four nights of noise, of which each fills arenas of its own.
fn four_nights() -> (Sandbox, Vec<String>) {
    let sandbox = Sandbox::encrypted();
    (1..=4).for_each(|night| take(&sandbox, night, 3 * MIB));
    let ids = sandbox.ids();
    (sandbox, ids)
}

/// Returns the verdicts among the records, and the types of the other records.
fn verdicts(records: &[Value]) -> (Vec<(String, Value)>, Vec<String>) {
    let (verdicts, others): (Vec<_>, Vec<_>) =
        records.iter().partition(|record| record["type"] == "forget_verdict");
    let verdict = |record: &&Value| (record["id"].as_str().unwrap().to_owned(), record["verdict"].clone());
    let kind = |record: &&Value| record["type"].as_str().unwrap().to_owned();
    (verdicts.iter().map(verdict).collect(), others.iter().map(kind).collect())
}

/// Returns the contents of all files below a folder.
fn contents(folder: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            files.extend(contents(&entry.path()));
        } else {
            files.insert(entry.path(), fs::read(entry.path()).unwrap());
        }
    }
    files
}

#[test]
fn without_undo_the_space_comes_back_at_once() {
    let (sandbox, ids) = four_nights();
    let rules = ["--keep-last", "2"];
    let (by_forget, _) = verdicts(&sandbox.json([&["forget", "--dry-run"], &rules[..]].concat()));
    let full = arena_bytes(&sandbox);
    let records = sandbox.json([&["prune", "--undo-days", "0"], &rules[..]].concat());
    let (by_prune, others) = verdicts(&records);
    assert_eq!(by_prune, by_forget);
    assert_eq!(by_prune.iter().filter(|(_, verdict)| verdict == "forget").count(), 2);
    assert_eq!(others, ["gc_plan", "gc_done"]);
    assert_eq!(records[4]["gone"], json!(ids[..2].iter().collect::<std::collections::BTreeSet<_>>()));
    assert!(arena_bytes(&sandbox) < full * 6 / 10, "{} of {full} bytes are left", arena_bytes(&sandbox));
    assert_eq!(sandbox.ids(), ids[2..]);
    assert!(sandbox.ok(["snapshots", "--trash", "--json"]).is_empty());
    assert_eq!(sandbox.json(["verify", "--data"])[0]["snapshots"], 2);
    assert_eq!(sandbox.run(["cat", &ids[2]]).stdout, noise(3, 3 * MIB));
    // Nothing is left to do.
    assert_eq!(verdicts(&sandbox.json([&["prune"], &rules[..]].concat())).1, ["gc_plan"]);
}

#[test]
fn with_undo_the_space_comes_back_by_a_later_run() {
    let (sandbox, ids) = four_nights();
    let full = arena_bytes(&sandbox);
    let printed = sandbox.ok(["prune", "--keep-last", "3"]);
    let order = ["will forget", "no arena is worth writing anew", "forgot 1 snapshot; `forget --undo`"];
    let places = order.map(|text| printed.find(text).unwrap_or_else(|| panic!("{text}: {printed}")));
    assert!(places.is_sorted() && printed.contains("a `prune` after that frees"), "{printed}");
    assert!(arena_bytes(&sandbox) >= full);
    sandbox.ok(["forget", "--undo", &ids[0]]);
    assert_eq!(sandbox.run(["cat", &ids[0]]).stdout, noise(1, 3 * MIB));

    // The next run frees a snapshot without undo, whichever snapshots it forgets itself.
    sandbox.ok(["forget", "--undo-days", "0", &ids[0]]);
    let freed = sandbox.json(["prune", "--keep-last", "2"]).pop().unwrap();
    assert_eq!(freed["type"], "gc_done");
    assert!(freed["freed_bytes"].as_u64().unwrap() > 2 * MIB as u64, "{freed}");
    assert_eq!(sandbox.ids(), ids[2..]);
    let trash = sandbox.json(["snapshots", "--trash"]);
    assert_eq!(trash.iter().map(|one| &one["id"]).collect::<Vec<_>>(), [&ids[1]]);
    assert_eq!(sandbox.json(["verify", "--data"])[0]["snapshots"], 3);
}

#[test]
fn a_dry_run_changes_no_byte() {
    let (sandbox, ids) = four_nights();
    let before = contents(sandbox.store());
    let planned = |days: &str| {
        let records = sandbox.json(["prune", "--keep-last", "1", "--dry-run", "--undo-days", days]);
        let (verdicts, others) = verdicts(&records);
        assert_eq!(verdicts.iter().map(|(id, _)| id).collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
        // A sum of its own tells the bytes that only they need, if these are not freed at once.
        let told = if days == "0" { &["gc_plan"][..] } else { &["forget_sum", "gc_plan"] };
        assert_eq!(others, told);
        let is_planned = |record: &&Value| record["type"] != "forget_sum";
        assert!(records.iter().filter(is_planned).all(|record| record["dry_run"] == true), "{records:?}");
        records.last().unwrap().clone()
    };
    // With an undo they only go to the trash.
    let kept = planned("7");
    assert!(kept["gone"] == json!([]) && kept["freed_bytes"].as_u64().unwrap() < 100_000, "{kept}");
    let freed = planned("0");
    assert_eq!(freed["gone"].as_array().unwrap().len(), 3);
    let printed = sandbox.ok(["prune", "--keep-last", "1", "--dry-run", "--undo-days", "0"]);
    assert!(printed.contains("would forget 3 snapshots, without undo"), "{printed}");
    assert!(printed.contains("would write anew"), "{printed}");
    assert!(contents(sandbox.store()) == before, "a dry run has changed the store");

    // The plan is what a run then does.
    let records = sandbox.json(["prune", "--keep-last", "1", "--undo-days", "0"]);
    assert_eq!(records[4]["freed_bytes"], freed["freed_bytes"]);
    let (planned, done) =
        (freed["freed_bytes"].as_u64().unwrap(), records[5]["freed_bytes"].as_u64().unwrap());
    assert!(planned.abs_diff(done) < planned / 50, "{planned} bytes were planned, and {done} freed");
}

#[test]
fn it_needs_rules_and_a_full_key() {
    let (mut sandbox, ids) = four_nights();
    for words in [&["prune"][..], &["prune", "--host", "here"], &["prune", "--dry-run", "--undo-days", "0"]] {
        assert!(sandbox.fails(2, words).contains("say what to keep"), "{words:?}");
    }
    assert!(sandbox.fails(2, ["prune", "--keep-last", "1", "--latest", "1"]).contains("--latest"));
    sandbox.add_limited_keys();
    let full = sandbox.key().map(Path::to_path_buf);
    for key in ["writer", "adder"] {
        sandbox.set_key(Some(sandbox.path(key)));
        for more in [&[][..], &["--dry-run"]] {
            let refused =
                sandbox.fails(12, [&["prune", "--keep-last", "1", "--undo-days", "0"], more].concat());
            assert!(refused.contains("this key is"), "{key}: {refused}");
        }
    }
    sandbox.set_key(full);
    assert_eq!(sandbox.ids(), ids);
}

#[test]
fn nothing_is_forgotten_where_nothing_can_be_freed() {
    let sandbox = Sandbox::made_with(&["--plaintext", "--score", "sha1"]);
    (1..=2).for_each(|night| take(&sandbox, night, MIB));
    let words = ["prune", "--keep-last", "1"];
    assert!(sandbox.fails(1, words).contains("--no-foreign-roots"));
    assert_eq!(sandbox.ids().len(), 2);
    sandbox.ok([&words[..], &["--no-foreign-roots"]].concat());
    assert_eq!(sandbox.ids().len(), 1);
}

#[test]
fn held_and_leased_snapshots_stay() {
    let (sandbox, ids) = four_nights();
    sandbox.ok(["hold", &ids[0], "--label", "audit"]);
    fs::create_dir_all(sandbox.store().join("leases")).unwrap();
    let leased = sandbox.store().join("leases/here-1-0011");
    let lease = format!("varve lease 1\nhost here\nprocess 1\nstarted 1\nsnapshot {}\nend\n", ids[1]);
    fs::write(&leased, lease).unwrap();
    let reader = File::open(&leased).unwrap();
    reader.lock().unwrap();

    let full = arena_bytes(&sandbox);
    let words = ["prune", "--keep-last", "1", "--undo-days", "0"];
    let printed = sandbox.ok(words);
    assert!(printed.contains("hold audit") && printed.contains("in use by 1 reader"), "{printed}");
    assert_eq!(sandbox.ids(), [&ids[0], &ids[3]].map(String::as_str));
    assert!(arena_bytes(&sandbox) >= full, "a reader uses one of the forgotten snapshots");
    let trash = sandbox.json(["snapshots", "--trash"]);
    assert_eq!(trash.len(), 2, "{trash:?}");
    assert_eq!(sandbox.json(["verify", "--data"])[0]["snapshots"], 4);

    drop(reader);
    sandbox.ok(words);
    assert!(arena_bytes(&sandbox) < full * 7 / 10, "{} of {full} bytes are left", arena_bytes(&sandbox));
    assert_eq!(sandbox.run(["cat", &ids[0]]).stdout, noise(1, 3 * MIB), "it is held");
    assert_eq!(sandbox.json(["verify", "--data"])[0]["snapshots"], 2);
}

/// A name that no snapshot has chooses nothing, and each command says so.
#[test]
fn a_misspelled_name_among_the_conditions_is_told() {
    let sandbox = Sandbox::encrypted();
    take(&sandbox, 1, MIB);
    let name = sandbox.json(["snapshots"])[0]["name"].as_str().unwrap().to_owned();
    let misspelled = format!("{name}x");
    let said = format!("--name: no snapshot is called {misspelled:?}; similar names: {name}");
    for command in [&["prune", "--keep-last", "1"][..], &["forget", "--until", "2100-01-01"], &["snapshots"]]
    {
        let run = sandbox.run([command, &["--name", &misspelled]].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert!(run.stderr.contains(&said), "{command:?}: {}", run.stderr);
    }
    assert_eq!(sandbox.ids().len(), 1);
}
