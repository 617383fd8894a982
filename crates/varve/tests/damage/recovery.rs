//! The worst days of a store, with the steps of `docs/guide/recovery.md`: the tests read the page
//! and follow its steps.

use crate::recovery_page;
use std::fs;
use std::path::{Path, PathBuf};

use crate::recovery_page::Row;
use crate::sandbox::{Run, Sandbox, copy_folder, noise, write_at};

/// Damages a store in the way that a row of the page describes.
type Harm = fn(&mut Sandbox);

/// The damage for each row of the table.
const HARMS: [(&str, Harm); 18] = [
    ("`index/`, or a file in it", |sandbox| fs::remove_dir_all(sandbox.store().join("index")).unwrap()),
    ("a clump, a page, a seal", |sandbox| {
        let bytes = |arena: &Path| fs::metadata(arena).unwrap().len();
        let arenas = sandbox.arenas();
        write_at(&arenas[0], bytes(&arenas[0]) / 2, &noise(7, 40));
        write_at(&arenas[1], bytes(&arenas[1]) - 50, &noise(8, 40));
    }),
    ("a whole sealed arena", |sandbox| fs::remove_file(&sandbox.arenas()[0]).unwrap()),
    ("the open arena, or its end", |sandbox| fs::remove_file(last_arena(sandbox)).unwrap()),
    ("the open arena and `index/`", |sandbox| {
        fs::remove_file(last_arena(sandbox)).unwrap();
        fs::remove_dir_all(sandbox.store().join("index")).unwrap();
    }),
    ("what a crash or power cut left", |sandbox| {
        let (arena, index) = (last_arena(sandbox), sandbox.store().join("index"));
        let before = fs::metadata(&arena).unwrap().len();
        copy_folder(&index, &sandbox.path("index before"));
        sandbox.snapshot_bytes("interrupted", &noise(3, 150_000));
        // The interrupted snapshot came as far as the middle of its data.
        fs::OpenOptions::new().write(true).open(&arena).unwrap().set_len(before + 100_000).unwrap();
        fs::remove_dir_all(&index).unwrap();
        copy_folder(&sandbox.path("index before"), &index);
    }),
    ("the newest catalog", |sandbox| damage_catalog(sandbox)),
    ("`config.toml`, lost", |sandbox| fs::remove_file(sandbox.store().join("config.toml")).unwrap()),
    ("`config.toml`, damaged", |sandbox| {
        fs::write(sandbox.store().join("config.toml"), noise(4, 300)).unwrap();
    }),
    ("`config.toml`, a value in it changed", |sandbox| {
        let file = sandbox.store().join("config.toml");
        let text = fs::read_to_string(&file).unwrap();
        let changed = text.replace("blake3", "sha1");
        assert_ne!(text, changed);
        fs::write(file, changed).unwrap();
    }),
    ("`FORMAT.md`", |sandbox| fs::remove_file(sandbox.store().join("FORMAT.md")).unwrap()),
    ("all of `keys/`", |sandbox| fs::remove_dir_all(sandbox.store().join("keys")).unwrap()),
    ("a file of `keys/`, damaged", |sandbox| {
        for key in fs::read_dir(sandbox.store().join("keys")).unwrap() {
            fs::write(key.unwrap().path(), "rubbish").unwrap();
        }
    }),
    ("the passphrase or key file, and no other", |sandbox| sandbox.set_key(None)),
    ("another store's folder copied over this one", |sandbox| {
        copy_folder(&stranger(sandbox, 1), sandbox.store())
    }),
    ("arenas of another store among this one's", |sandbox| {
        let other = stranger(sandbox, 2);
        fs::copy(other.join("arenas/0000000000.arena"), sandbox.store().join("arenas/0000000001.arena"))
            .unwrap();
        fs::copy(other.join("arenas/0000000001.arena"), sandbox.store().join("arenas/0000000077.arena"))
            .unwrap();
    }),
    ("a copy of this store with another history, copied over it or into it", |sandbox| {
        let copy = Sandbox::copy_of(sandbox.store(), sandbox.key());
        copy.snapshot_bytes("theirs", &noise(4, 900_000));
        sandbox.snapshot_bytes("ours", &noise(3, 2_500_000));
        sandbox.ok(["replicate", "replica"]);
        assert!(copy.arenas().len() < sandbox.arenas().len());
        copy_folder(copy.store(), sandbox.store());
        sandbox.ok(["snapshots"]);
    }),
    ("an arena that a repair has written anew, put back as it was from a backup", |sandbox| {
        let arena = sandbox.arenas().remove(0);
        let good = fs::read(&arena).unwrap();
        write_at(&arena, good.len() as u64 / 2, &noise(7, 40));
        sandbox.run(["repair", "--data"]);
        assert_ne!(fs::read(&arena).unwrap(), good);
        fs::write(&arena, good).unwrap();
    }),
];

fn last_arena(sandbox: &Sandbox) -> std::path::PathBuf {
    sandbox.arenas().pop().unwrap()
}

/// Damages the clump of the newest catalog's root, wherever it is. It is the last clump whose loss
/// is not visible from the end of the log.
fn damage_catalog(sandbox: &Sandbox) {
    let arena = last_arena(sandbox);
    let whole = fs::read(&arena).unwrap();
    for granule in (4..whole.len() / 128).rev() {
        let mut bytes = whole.clone();
        bytes[granule * 128 + 70] ^= 1;
        fs::write(&arena, bytes).unwrap();
        if sandbox.run(["snapshots"]).stderr.contains("the catalog's root cannot be read") {
            return;
        }
    }
    panic!("no byte of the last arena belongs to the catalog's root");
}

/// Another store with `arena_count` arenas and a key of its own.
fn stranger(sandbox: &Sandbox, arena_count: usize) -> std::path::PathBuf {
    let mut other = Sandbox::empty();
    fs::write(other.path("its key"), noise(99, 32)).unwrap();
    other.set_key(Some(other.path("its key")));
    other.ok(["init", "--arena-size", "1M"]);
    other.snapshot_bytes("theirs", &noise(98, arena_count * 1_600_000));
    assert!(other.arenas().len() >= arena_count);
    copy_folder(other.store(), &sandbox.path("stranger"));
    fs::copy(other.path("its key"), sandbox.path("stranger's key")).unwrap();
    sandbox.path("stranger")
}

/// The snapshots of the store, with their names and contents.
fn nights() -> [(&'static str, Vec<u8>); 2] {
    [("first", noise(1, 3_600_000)), ("second", noise(2, 300_000))]
}

/// A store of several arenas with two snapshots, its replica in `replica`, and a key on paper.
fn store() -> Sandbox {
    let sandbox = Sandbox::encrypted();
    for (name, bytes) in nights() {
        sandbox.snapshot_bytes(name, &bytes);
    }
    assert!(sandbox.arenas().len() >= 3);
    sandbox.ok(["replicate", "replica"]);
    fs::write(sandbox.path("paper"), sandbox.ok(["key", "export"])).unwrap();
    fs::write(sandbox.path("new"), noise(55, 32)).unwrap();
    sandbox
}

/// The output of the commands that inspect a store.
fn looked_at(sandbox: &Sandbox) -> String {
    let ways: [&[&str]; 3] = [&["snapshots"], &["verify", "--data"], &["replicate", "replica", "--dry-run"]];
    let runs = ways.map(|words| sandbox.run(words));
    runs.iter().map(|run| format!("{}{}", run.text(), run.stderr)).collect()
}

#[track_caller]
fn is_whole(sandbox: &Sandbox, what: &str) {
    let verified = sandbox.run(["verify", "--data"]);
    assert_eq!((verified.code, verified.stderr.as_str()), (Some(0), ""), "{what}: {}", verified.text());
    for (name, bytes) in nights() {
        let read = sandbox.run(["cat", name]);
        assert!(read.stdout == bytes && read.stderr.is_empty(), "{what}: {name}: {}", read.stderr);
    }
}

fn follow(row: &Row, harm: Harm) {
    let (mut sandbox, what) = (store(), &row.what);
    harm(&mut sandbox);
    let said = looked_at(&sandbox);
    assert!(
        row.says_nothing || !row.quotes.is_empty(),
        "{what}: the page does not say what the program says"
    );
    for quote in &row.quotes {
        assert!(said.contains(quote.as_str()), "{what}: {quote:?} is not in:\n{said}");
    }
    if row.says_nothing {
        assert!(said.contains("all is well") && !said.contains("varve: "), "{what}: {said}");
    }
    for command in &row.commands {
        let words = command.split_whitespace().skip(1).map(|word| match word {
            "COPY" => "replica",
            "PAPER" => "paper",
            "NEW" => "new",
            word => word,
        });
        let run = sandbox.run(words);
        assert_eq!(run.code, Some(0), "{what}: {command}: {}{}", run.text(), run.stderr);
        if command.contains("NEW") {
            sandbox.set_key(Some(sandbox.path("new")));
        }
    }
    is_whole(&sandbox, what);
    // The store works as before.
    sandbox.snapshot_bytes("third", b"the next night");
    let is_of_two = what.starts_with("a copy of this store");
    assert_eq!(sandbox.ids().len(), if is_of_two { 4 } else { 3 }, "{what}");
    is_whole(&sandbox, what);
}

#[test]
fn each_line_of_the_page_is_followed() {
    let mut harms = HARMS.to_vec();
    for row in recovery_page::rows_of("A part of the store is damaged") {
        let place = harms.iter().position(|(what, _)| *what == row.what);
        let place = place.unwrap_or_else(|| panic!("nobody follows the line {:?}", row.what));
        follow(&row, harms.remove(place).1);
    }
    assert!(
        harms.is_empty(),
        "the page has no line for: {:?}",
        harms.iter().map(|(what, _)| what).collect::<Vec<_>>()
    );
}

/// Damages or changes the replica of a store, and returns the objects that have to be replaced.
type Spoil = fn(&mut Sandbox) -> Vec<PathBuf>;

/// The damage for each row about the replica.
const SPOILS: [(&str, Spoil); 16] = [
    ("an object is gone", |sandbox| {
        fs::remove_file(&objects(sandbox)[0]).unwrap();
        Vec::new()
    }),
    ("an object has lost its end", |sandbox| {
        let object = objects(sandbox).remove(0);
        fs::OpenOptions::new().write(true).open(&object).unwrap().set_len(1000).unwrap();
        vec![object]
    }),
    ("a byte of an object has changed", |sandbox| {
        let object = objects(sandbox).remove(0);
        let mut bytes = fs::read(&object).unwrap();
        bytes[5000] ^= 1;
        fs::write(&object, bytes).unwrap();
        vec![object]
    }),
    ("two objects were swapped", |sandbox| {
        let objects = objects(sandbox)[..2].to_vec();
        let [one, other] = [0, 1].map(|number| fs::read(&objects[number]).unwrap());
        fs::write(&objects[0], other).unwrap();
        fs::write(&objects[1], one).unwrap();
        objects
    }),
    ("an object of another store was put in the place of one", |sandbox| {
        let object = objects(sandbox).remove(0);
        fs::copy(their_object(sandbox), &object).unwrap();
        vec![object]
    }),
    ("objects of another store were put beside them", |sandbox| {
        let theirs = their_object(sandbox);
        fs::copy(&theirs, sandbox.path("replica/arenas/0000000000.0").join(theirs.file_name().unwrap()))
            .unwrap();
        Vec::new()
    }),
    ("an object is as it was when less was in it", |sandbox| {
        let object = objects(sandbox).remove(0);
        let before = fs::metadata(&object).unwrap().len() / 2 / 128 * 128;
        fs::OpenOptions::new().write(true).open(&object).unwrap().set_len(before).unwrap();
        vec![object]
    }),
    ("its `config.toml` is damaged", |sandbox| {
        fs::write(sandbox.path("replica/config.toml"), noise(4, 300)).unwrap();
        Vec::new()
    }),
    ("a file of its `keys/` is damaged", |sandbox| {
        let key = fs::read_dir(sandbox.path("replica/keys")).unwrap().next().unwrap().unwrap().path();
        fs::write(&key, "rubbish").unwrap();
        vec![key]
    }),
    ("something else was put there", |sandbox| {
        fs::write(sandbox.path("replica/arenas/holiday.jpg"), "a beach").unwrap();
        Vec::new()
    }),
    ("a folder lies in the place of an object", |sandbox| {
        let config = sandbox.path("replica/config.toml");
        fs::remove_file(&config).unwrap();
        fs::create_dir(&config).unwrap();
        Vec::new()
    }),
    ("it was emptied", |sandbox| {
        fs::remove_dir_all(sandbox.path("replica")).unwrap();
        Vec::new()
    }),
    ("it was put back to an older state", |sandbox| {
        copy_folder(&sandbox.path("replica"), &sandbox.path("before"));
        sandbox.snapshot_bytes("third", &noise(3, 200_000));
        sandbox.ok(["replicate", "replica"]);
        fs::remove_dir_all(sandbox.path("replica")).unwrap();
        fs::rename(sandbox.path("before"), sandbox.path("replica")).unwrap();
        Vec::new()
    }),
    ("another machine, with a copy of this store that it has written to, has replicated there", |sandbox| {
        beside(sandbox, "theirs");
        sandbox.snapshot_bytes("third", &noise(3, 200_000));
        Vec::new()
    }),
    ("this store is an older copy of the one that was replicated there", |sandbox| {
        beside(sandbox, "newer");
        Vec::new()
    }),
    ("another store was replicated there", |sandbox| {
        let other = stranger(sandbox, 1);
        fs::remove_dir_all(sandbox.path("replica")).unwrap();
        let other = Sandbox::copy_of(&other, Some(&sandbox.path("stranger's key")));
        other.ok(["replicate".to_owned(), sandbox.arg("replica")]);
        Vec::new()
    }),
];

/// The objects of the log at the replica, in order.
fn objects(sandbox: &Sandbox) -> Vec<PathBuf> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        entries
    };
    inside(&sandbox.path("replica/arenas")).iter().flat_map(|arena| inside(arena)).collect()
}

/// All files below a folder.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_of(&path) } else { vec![path] }).collect()
}

/// An object of another store's log.
fn their_object(sandbox: &Sandbox) -> PathBuf {
    let other = stranger(sandbox, 1);
    let other = Sandbox::copy_of(&other, Some(&sandbox.path("stranger's key")));
    other.ok(["replicate".to_owned(), sandbox.arg("their replica")]);
    let arena = sandbox.path("their replica/arenas/0000000000.0");
    fs::read_dir(arena).unwrap().next().unwrap().unwrap().path()
}

/// A copy of the store takes a snapshot, and replicates to the same place.
fn beside(sandbox: &Sandbox, name: &str) {
    let copy = Sandbox::copy_of(sandbox.store(), sandbox.key());
    copy.snapshot_bytes(name, &noise(4, 200_000));
    copy.ok(["replicate".to_owned(), sandbox.arg("replica")]);
}

fn follow_there(row: &Row, spoil: Spoil) {
    let (mut sandbox, what) = (store(), &row.what);
    let replica = sandbox.path("replica");
    let whole = files_of(&replica);
    let spoiled = spoil(&mut sandbox);
    let name = |object: &PathBuf| object.strip_prefix(&replica).unwrap().to_str().unwrap().to_owned();
    let mut replaced = spoiled.iter().map(name);
    let ways: [&[&str]; 2] =
        [&["replicate", "replica", "--dry-run"], &["verify", "--replica", "replica", "--data"]];
    let runs = ways.map(|words| sandbox.run(words));
    let said: String = runs.iter().map(|run| format!("{}{}", run.text(), run.stderr)).collect();
    assert!(!row.quotes.is_empty(), "{what}: the page does not say what the program says");
    for quote in &row.quotes {
        assert!(said.contains(quote.as_str()), "{what}: {quote:?} is not in:\n{said}");
    }
    assert!(!row.commands.is_empty() || row.way.contains("by hand"), "{what}: the page has no way back");
    if row.way.contains("by hand") {
        let strange = |object: &PathBuf| !whole.contains(object);
        files_of(&replica)
            .iter()
            .filter(|object| strange(object))
            .for_each(|object| fs::remove_file(object).unwrap());
        whole.iter().filter(|object| object.is_dir()).for_each(|folder| fs::remove_dir(folder).unwrap());
    }
    let mut place = "replica";
    for command in &row.commands {
        let words: Vec<_> = command
            .split_whitespace()
            .skip(1)
            .map(|word| match word {
                "COPY" => "replica".into(),
                "ANOTHER" => "another".into(),
                "FOLDER" => "clone".into(),
                "OBJECT" | "OTHER" => replaced.next().expect("the page names no more objects than there are"),
                word => word.to_owned(),
            })
            .collect();
        let run = sandbox.run(&words);
        // A command that finds the replica emptied or put back reports this once more, and
        // completes it.
        let is_told = run.stderr.contains("is older than when this machine last saw it");
        assert_eq!(
            run.code,
            Some(if is_told { 5 } else { 0 }),
            "{what}: {command}: {}{}",
            run.text(),
            run.stderr
        );
        match words[0].as_str() {
            "clone" => sandbox.set_store(sandbox.path("clone")),
            _ if words.contains(&"another".into()) => place = "another",
            _ => {}
        }
    }
    assert!(replaced.next().is_none(), "{what}: the page leaves an object as it is");
    let audited = sandbox.ok(["verify", "--replica", place, "--data"]);
    assert!(audited.contains("all is well"), "{what}: {audited}");
    is_whole(&sandbox, what);
    // Replication works as before.
    sandbox.snapshot_bytes("fourth", b"the next night");
    sandbox.ok(["replicate", place]);
    assert!(sandbox.ok(["verify", "--replica", place, "--data"]).contains("all is well"), "{what}");
}

#[test]
fn each_line_on_the_second_home_is_followed() {
    let mut spoils = SPOILS.to_vec();
    for row in recovery_page::rows_of("The replica is damaged or changed") {
        let place = spoils.iter().position(|(what, _)| *what == row.what);
        let place = place.unwrap_or_else(|| panic!("nobody follows the line {:?}", row.what));
        follow_there(&row, spoils.remove(place).1);
    }
    let left: Vec<_> = spoils.iter().map(|(what, _)| what).collect();
    assert!(left.is_empty(), "the page has no line for: {left:?}");
}

/// A disk and a folder have a damaged place each. Everything else comes back.
#[test]
fn what_can_be_read_is_taken_out_of_a_damaged_store() {
    const TITLE: &str = "I need the data now, and it is damaged";
    let sandbox = Sandbox::made_with(&["--clump-size", "64K"]);
    let (disk, large) = (noise(1, 900_000), noise(2, 900_000));
    sandbox.snapshot_bytes("disk", &disk);
    fs::create_dir(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/large"), &large).unwrap();
    fs::write(sandbox.path("home/letter"), "text").unwrap();
    sandbox.ok(["snapshot", "home"]);
    fs::remove_dir_all(sandbox.path("home")).unwrap();
    copy_folder(sandbox.store(), &sandbox.path("copy"));
    for (arena, share) in [(0, 40), (1, 50)] {
        let arena = &sandbox.arenas()[arena];
        write_at(arena, fs::metadata(arena).unwrap().len() * share / 100, b"rotten");
    }
    let hint = sandbox.fails(5, ["restore", "disk", "refused"]);
    assert!(hint.contains("--keep-damaged"), "{hint}");
    let commands = recovery_page::commands_of(TITLE);
    let (last, first) = commands.split_last().unwrap();
    let mut said = String::new();
    for command in first {
        let run = sandbox.run(command.split_whitespace().skip(1));
        assert_eq!(run.code, Some(5), "{command}: {}{}", run.text(), run.stderr);
        said += &run.stderr;
    }
    for quote in recovery_page::quotes_of(TITLE) {
        assert!(said.contains(&quote), "{quote:?} is not in:\n{said}");
    }
    let differing = |path: &str, good: &[u8]| {
        let back = fs::read(sandbox.path(path)).unwrap();
        assert_eq!(back.len(), good.len(), "{path}");
        assert!(back.iter().zip(good).all(|(back, good)| back == good || *back == 0), "{path}");
        back.iter().zip(good).filter(|(back, good)| back != good).count()
    };
    for (path, good) in [("disk.img", &disk), ("raw.img", &disk), ("home/large", &large)] {
        assert!((1..=3 * 65536).contains(&differing(path, good)), "{path}");
    }
    for list in ["disk.img.damaged", "home.damaged"] {
        assert!(fs::read_to_string(sandbox.path(list)).unwrap().lines().count() > 1, "{list}");
    }
    sandbox.ok(["repair", "--data", "--from", "copy"]);
    assert!(sandbox.ok(last.split_whitespace().skip(1)).contains("1 kept"), "one file of two is replaced");
    assert_eq!(differing("home/large", &large), 0);
}

#[test]
fn my_disk_died() {
    let elsewhere = tempfile::tempdir().unwrap();
    recovery_page::my_disk_died(elsewhere.path().join("varve").to_str().unwrap(), &[]);
}

/// A later snapshot, or a repair without a copy, does not prevent a full recovery.
#[test]
fn a_lost_end_is_told_until_it_is_settled() {
    for repairs_first in [false, true] {
        let sandbox = store();
        fs::remove_file(last_arena(&sandbox)).unwrap();
        assert!(sandbox.run(["snapshots"]).stderr.contains("has lost the end of its log"));
        if repairs_first {
            let told = sandbox.fails(5, ["repair"]);
            assert!(told.contains("--from"), "{told}");
            let verified = sandbox.run(["verify"]);
            assert_eq!(verified.code, Some(5), "what is there counts as all, and the loss stays known");
            assert!(verified.text().contains("lost: the end of the log"), "{}", verified.text());
        } else {
            sandbox.snapshot_bytes("third", b"tonight");
            assert!(sandbox.fails(5, ["verify"]).contains("end of its log"), "the next night hides nothing");
        }
        assert!(sandbox.ok(["repair", "--from", "replica"]).contains("brought back"));
        is_whole(&sandbox, "repaired");
        assert_eq!(sandbox.ids().len(), if repairs_first { 2 } else { 3 });
    }
}

#[test]
fn after_the_end_was_lost_the_store_gets_another_replica() {
    let sandbox = store();
    fs::remove_file(last_arena(&sandbox)).unwrap();
    sandbox.ok(["repair", "--from", "replica"]);
    let refused = sandbox.fails(1, ["replicate", "replica"]);
    for quote in recovery_page::quotes_of("After the end of the log was lost") {
        assert!(refused.contains(&quote), "{quote:?} is not in: {refused}");
    }
    sandbox.ok(["replicate", "another"]);
    assert!(sandbox.ok(["verify", "--replica", "another", "--data"]).contains("all is well"));
}

#[test]
fn an_older_state_that_came_back_is_noticed() {
    let mut sandbox = store();
    copy_folder(&sandbox.store().join("arenas"), &sandbox.path("old"));
    sandbox.snapshot_bytes("third", &noise(3, 200_000));
    sandbox.ok(["replicate", "replica"]);
    fs::remove_dir_all(sandbox.store().join("arenas")).unwrap();
    copy_folder(&sandbox.path("old"), &sandbox.store().join("arenas"));
    let said = looked_at(&sandbox);
    for quote in recovery_page::quotes_of("An older state came back") {
        assert!(said.contains(&quote), "{quote:?} is not in:\n{said}");
    }
    sandbox.ok(["clone", "replica", "clone"]);
    sandbox.set_store(sandbox.path("clone"));
    is_whole(&sandbox, "the clone");
    assert_eq!(sandbox.run(["cat", "third"]).stdout, noise(3, 200_000));
}

/// A repair with the wrong copy changes nothing.
#[test]
fn settings_of_another_store_are_refused() {
    let sandbox = store();
    let config = sandbox.store().join("config.toml");
    fs::remove_file(&config).unwrap();
    let other = stranger(&sandbox, 1);
    let refused = sandbox.fails(1, ["repair", "--from", other.to_str().unwrap()]);
    assert!(refused.contains("the arenas here do not"), "{refused}");
    assert!(!config.exists());
    let nowhere = Run::new(
        sandbox.command_at(&sandbox.path("nowhere")).args(["repair", "--from", "replica"]).output().unwrap(),
    );
    assert!(
        nowhere.stderr.contains("this is not a store") && !sandbox.path("nowhere").exists(),
        "{}",
        nowhere.stderr
    );
}
