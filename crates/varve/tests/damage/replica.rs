//! The replica of a store, with the real program: it is made, extended, read in place, audited,
//! tampered with, and cloned.

use crate::sandbox;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::{Run, Sandbox, copy_folder, manifest, noise, sample_folder};

/// A store with a snapshot of a folder and one of an image, and its replica.
fn replicated() -> Sandbox {
    let sandbox = Sandbox::encrypted();
    sample_folder(&sandbox.path("home"));
    sandbox.ok(["snapshot", "home", "--time", "2026-05-01T23:00:00Z"]);
    sandbox.snapshot_bytes("disk", &noise(3, 3_000_000));
    assert!(sandbox.ok(["replicate", "replica", "--segment-size", "1M"]).contains("up to date"));
    sandbox
}

/// The files of a folder, with their contents.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn segments(sandbox: &Sandbox) -> Vec<PathBuf> {
    let all = files(&sandbox.path("replica/arenas"));
    all.into_iter().map(|(path, _)| sandbox.path("replica/arenas").join(path)).collect()
}

/// Runs the program with another path as the store.
fn at(sandbox: &Sandbox, store: &str, words: &[&str]) -> Run {
    Run::new(sandbox.command_at(Path::new(store)).args(words).output().unwrap())
}

#[track_caller]
fn ok_at(sandbox: &Sandbox, store: &str, words: &[&str]) -> String {
    let run = at(sandbox, store, words);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{words:?}: {}", run.text());
    run.text()
}

#[test]
fn a_replica_grows_with_its_store() {
    let sandbox = replicated();
    let before = files(&sandbox.path("replica"));
    let again = sandbox.json(["replicate", "replica"]).remove(0);
    assert_eq!((&again["objects"], &again["uploaded_bytes"]), (&0.into(), &0.into()));
    sandbox.snapshot_bytes("disk", &noise(4, 500_000));
    let planned = sandbox.json(["replicate", "replica", "--dry-run"]).remove(0);
    assert_eq!(files(&sandbox.path("replica")), before, "a dry run changes nothing");
    let done = sandbox.json(["replicate", "replica", "--remember"]).remove(0);
    assert_eq!(done["uploaded_bytes"], planned["bytes"]);
    assert!((400_000..900_000).contains(&done["uploaded_bytes"].as_u64().unwrap()), "{done}");
    let after = files(&sandbox.path("replica"));
    assert!(before.iter().all(|file| after.contains(file)), "what was there stays as it was");
    sandbox.snapshot_bytes("disk", &noise(5, 10_000));
    assert!(sandbox.ok(["replicate"]).contains("/replica is up to date"), "it was remembered");
    assert!(fs::read_to_string(sandbox.store().join("replicas.toml")).unwrap().contains("/replica"));
    assert!(sandbox.ok(["verify"]).contains("all is well"));
}

fn without_copies(line: &str) -> String {
    let line = line.trim_end();
    line.strip_suffix("COPIES")
        .or_else(|| line.strip_suffix("  replica"))
        .unwrap_or(line)
        .trim_end()
        .to_owned()
}

#[test]
fn a_replica_is_read_where_it_is() {
    let sandbox = replicated();
    for words in [
        &["snapshots"][..],
        &["ls", "-lR", "home"],
        &["cat", "home:letter.txt"],
        &["find", "*.conf"],
        &["diff", "home", "home"],
        &["stats"],
        &["verify", "--data"],
    ] {
        // Only the list of the store itself has a column of copies, the last one.
        let own = sandbox.ok(words).lines().map(without_copies).collect::<Vec<_>>();
        let there = ok_at(&sandbox, "replica", words);
        assert_eq!(there.lines().map(str::trim_end).collect::<Vec<_>>(), own, "{words:?}");
    }
    assert!(at(&sandbox, "replica", &["cat", "disk"]).stdout == noise(3, 3_000_000));
    ok_at(&sandbox, "replica", &["restore", "home", "out"]);
    assert_eq!(manifest(&sandbox.path("out")), manifest(&sandbox.path("home")));
    let before = files(&sandbox.path("replica"));
    for words in [&["snapshot", "home"][..], &["init"], &["replicate", "elsewhere"]] {
        let refused = at(&sandbox, "replica", words);
        assert_eq!(refused.code, Some(1), "{words:?}");
        assert!(refused.stderr.contains("cannot be written"), "{}", refused.stderr);
    }
    assert_eq!(files(&sandbox.path("replica")), before);
    // The cache is a copy of bytes, so damage to it costs only time.
    for (file, bytes) in files(&sandbox.path("cache")) {
        if file.to_str().unwrap().contains("blocks/") {
            fs::write(sandbox.path("cache").join(file), &bytes[..bytes.len() / 2]).unwrap();
        }
    }
    ok_at(&sandbox, "replica", &["verify", "--data"]);
    ok_at(&sandbox, "replica", &["--cache-size", "64K", "verify", "--data"]);
}

#[test]
fn an_audit_names_what_is_wrong_and_what_that_harms() {
    let sandbox = replicated();
    for words in [&["verify", "--replica", "replica"][..], &["verify", "--replica", "replica", "--data"]] {
        assert!(sandbox.ok(words).contains("all is well"));
    }
    let sampled = sandbox.json(["verify", "--replica", "replica", "--sample", "50%"]).remove(0);
    let (read, all) = (sampled["checked_clumps"].as_u64().unwrap(), sampled["clumps"].as_u64().unwrap());
    assert!(read < all && sampled["findings"] == serde_json::json!([]), "{sampled}");
    for damage in ["flip", "cut", "remove", "swap"] {
        let objects = segments(&sandbox);
        let (victim, whole) = (&objects[1], fs::read(&objects[1]).unwrap());
        let other = fs::read(&objects[0]).unwrap();
        match damage {
            "flip" => {
                fs::write(victim, [&whole[..5000], &[whole[5000] ^ 1], &whole[5001..]].concat()).unwrap()
            }
            "cut" => fs::write(victim, &whole[..whole.len() / 2]).unwrap(),
            "remove" => fs::remove_file(victim).unwrap(),
            _ => {
                fs::write(victim, &other).unwrap();
                fs::write(&objects[0], &whole).unwrap();
            }
        }
        let run = Run::new(
            sandbox.command().args(["--json", "verify", "--replica", "replica", "--data"]).output().unwrap(),
        );
        assert_eq!(run.code, Some(5), "{damage}: {}", run.stderr);
        let report = sandbox::json_lines(&run.text()).remove(0);
        let own = victim.file_name().unwrap().to_str().unwrap();
        let names: Vec<_> = report["findings"].as_array().unwrap().iter().map(|one| &one["object"]).collect();
        let is_named = names.iter().any(|name| name.as_str().is_some_and(|name| name.ends_with(own)));
        assert!(is_named || damage == "remove", "{damage}: {report}");
        assert!(!report["harm"].as_array().unwrap().is_empty() || damage == "swap", "{damage}: {report}");
        let told = sandbox.run(["verify", "--replica", "replica", "--data"]);
        assert!(told.stderr.contains("hint: `varve replicate replica`"), "{}", told.stderr);
        if damage == "remove" {
            drop(sandbox.run(["replicate", "replica", "--segment-size", "1M"]));
        } else {
            let name = |object: &PathBuf| {
                object.strip_prefix(sandbox.path("replica")).unwrap().to_str().unwrap().to_owned()
            };
            let (one, other) = (name(&objects[0]), name(victim));
            sandbox.ok(["replicate", "replica", "--replace", &one, "--replace", &other]);
        }
        assert!(sandbox.ok(["verify", "--replica", "replica", "--data"]).contains("all is well"), "{damage}");
        fs::write(victim, whole).unwrap();
    }
}

/// Asserts that a clone has every arena of its source. Only the durable mark that the last writer
/// left at the end of the source may be missing.
fn is_same_log(clone: &Path, source: &Path) {
    let (cloned, original) = (files(&clone.join("arenas")), files(&source.join("arenas")));
    assert_eq!(cloned.len(), original.len());
    for (number, (one, other)) in cloned.iter().zip(&original).enumerate() {
        let kept = if number + 1 == cloned.len() { one.1.len() } else { other.1.len() };
        assert!(
            one.0 == other.0 && other.1.len() - kept <= 256 && one.1[..] == other.1[..kept],
            "{}",
            one.0.display()
        );
    }
}

#[test]
fn nothing_is_no_clone() {
    let sandbox = replicated();
    let said = sandbox.fails(1, ["clone", sandbox.arg("store").as_str(), "clone"]);
    assert!(said.contains("is a store, not a replica"), "{said}");
    fs::remove_dir_all(sandbox.path("replica/arenas")).unwrap();
    let said = sandbox.fails(1, ["clone", "replica", "clone"]);
    assert!(said.contains("has no arenas"), "{said}");
    assert!(!sandbox.path("clone").exists());
}

#[test]
fn a_clone_is_the_whole_store() {
    let mut sandbox = replicated();
    assert!(sandbox.ok(["clone", "replica", "clone"]).contains("every record checked"));
    is_same_log(&sandbox.path("clone"), &sandbox.path("store"));
    assert!(sandbox.fails(1, ["clone", "replica", "clone"]).contains("a store already exists there"));
    fs::create_dir(sandbox.path("full")).unwrap();
    fs::write(sandbox.path("full/letter"), "mine").unwrap();
    assert!(sandbox.fails(1, ["clone", "replica", "full"]).contains("not empty"));

    // A new machine: the store is gone, and the clone replaces it.
    fs::remove_dir_all(sandbox.store()).unwrap();
    sandbox.set_store(sandbox.path("clone"));
    assert!(sandbox.ok(["verify", "--data"]).contains("all is well: 2 snapshots"));
    sandbox.ok(["restore", "home", "out"]);
    assert_eq!(manifest(&sandbox.path("out")), manifest(&sandbox.path("home")));
    sandbox.snapshot_bytes("disk", &noise(9, 100_000));
    assert!(sandbox.ok(["replicate", "replica"]).contains("up to date"));

    // Without the key, a clone is made only with `--unchecked`.
    let key = sandbox.key().unwrap().to_owned();
    sandbox.set_key(None);
    assert!(sandbox.fails(12, ["clone", "replica", "copy"]).contains("encrypted"));
    sandbox.ok(["clone", "replica", "copy", "--unchecked"]);
    sandbox.set_key(Some(key));
    sandbox.set_store(sandbox.path("copy"));
    assert!(sandbox.ok(["verify", "--data"]).contains("all is well: 3 snapshots"));
}

#[test]
fn what_is_lost_here_comes_from_the_replica() {
    let sandbox = replicated();
    sandbox.ok(["replicate", "replica", "--remember"]);
    let damage = || {
        // The catalog is in the last arena. The blocks that it leads to are damaged in many places.
        let arenas = sandbox.arenas();
        for arena in &arenas[..arenas.len() - 1] {
            let mut bytes = fs::read(arena).unwrap();
            for place in (2000..bytes.len() / 2).step_by(60_000) {
                bytes[place] ^= 1;
            }
            fs::write(arena, bytes).unwrap();
        }
    };
    damage();
    let read = sandbox.run(["cat", "disk"]);
    assert!(read.code == Some(0) && read.stdout == noise(3, 3_000_000), "{}", read.stderr);
    assert!(read.stderr.contains("were read from a replica"), "{}", read.stderr);
    assert!(read.stderr.contains("were stored again"), "{}", read.stderr);
    let restored = sandbox.run(["restore", "home", "out"]);
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    assert_eq!(manifest(&sandbox.path("out")), manifest(&sandbox.path("home")));
    sandbox.ok(["ls", "-R", "home"]);

    // Every lost block is in the store again.
    fs::rename(sandbox.path("replica"), sandbox.path("gone")).unwrap();
    let healed = sandbox.run(["cat", "disk"]);
    assert!(healed.stdout == noise(3, 3_000_000) && healed.stderr.is_empty(), "{}", healed.stderr);
    assert!(sandbox.run(["verify", "--data", "--json"]).text().contains("\"harm\":[]"), "nothing is harmed");
    damage();
    for arena in sandbox.arenas() {
        let bytes = fs::read(&arena).unwrap();
        fs::write(&arena, [&bytes[..900], &noise(9, 3000), &bytes[3900..]].concat()).unwrap();
    }
    let told = sandbox.fails(5, ["cat", "disk"]);
    assert!(told.contains("cannot be used to fetch") && told.contains("damaged"), "{told}");
    let other = Sandbox::made_with(&["--plaintext"]);
    other.ok(["replicate", &sandbox.arg("replica")]);
    let told = sandbox.fails(5, ["cat", "disk"]);
    assert!(told.contains("another store"), "{told}");
}

#[test]
fn a_catalog_that_is_lost_here_is_read_from_the_replica() {
    let sandbox = replicated();
    sandbox.ok(["replicate", "replica", "--remember"]);
    let arena = sandbox.arenas().pop().unwrap();
    let whole = fs::read(&arena).unwrap();
    // Tries each granule until the damage hits the catalog's root.
    let hurt = (4..whole.len() / 128).rev().find_map(|granule| {
        let mut bytes = whole.clone();
        bytes[granule * 128 + 70] ^= 1;
        fs::write(&arena, bytes).unwrap();
        let listed = sandbox.run(["snapshots"]);
        listed.stderr.contains("were read from a replica").then_some(listed)
    });
    let listed = hurt.expect("the catalog is in the last arena");
    assert!(listed.code == Some(0) && listed.text().contains("disk") && listed.text().contains("home"));
    assert!(listed.stderr.contains("were stored again"), "{}", listed.stderr);
    fs::rename(sandbox.path("replica"), sandbox.path("gone")).unwrap();
    assert_eq!(sandbox.ids().len(), 2, "and now it is here again");
}

#[test]
fn what_must_not_mix_is_refused() {
    let mut sandbox = replicated();
    copy_folder(sandbox.store(), &sandbox.path("copy"));
    sandbox.snapshot_bytes("disk", &noise(6, 200_000));
    sandbox.ok(["replicate", "replica"]);
    let before = files(&sandbox.path("replica"));
    let own = sandbox.store().to_owned();

    sandbox.set_store(sandbox.path("copy"));
    let older = sandbox.fails(1, ["replicate", "replica"]);
    assert!(older.contains("the replica has more than this store"), "{older}");
    assert!(older.contains("hint: `varve clone TARGET FOLDER`"), "{older}");
    sandbox.snapshot_bytes("disk", &noise(7, 200_000));
    let other = sandbox.fails(1, ["replicate", "replica"]);
    assert!(other.contains("another history"), "{other}");

    sandbox.set_store(sandbox.path("stranger"));
    sandbox.ok(["init"]);
    assert!(sandbox.fails(1, ["replicate", "replica"]).contains("another store"));
    assert!(sandbox.fails(1, ["replicate", "home"]).contains("not empty"));
    assert!(sandbox.fails(2, ["replicate"]).contains("no target is given"));
    assert_eq!(files(&sandbox.path("replica")), before, "and nothing was changed");
    sandbox.set_store(own);
    sandbox.ok(["replicate", "replica"]);
}

#[test]
fn a_replica_that_was_put_back_is_noticed() {
    let sandbox = replicated();
    copy_folder(&sandbox.path("replica"), &sandbox.path("old"));
    sandbox.snapshot_bytes("disk", &noise(6, 200_000));
    sandbox.ok(["replicate", "replica"]);
    assert_eq!(ok_at(&sandbox, "replica", &["snapshots"]).lines().count(), 4);
    fs::remove_dir_all(sandbox.path("replica")).unwrap();
    copy_folder(&sandbox.path("old"), &sandbox.path("replica"));
    let read = at(&sandbox, "replica", &["snapshots"]);
    assert!(read.stderr.contains("put back"), "{}", read.stderr);
    assert_eq!(at(&sandbox, "replica", &["verify"]).code, Some(5));
    let audited = sandbox.run(["verify", "--replica", "replica"]);
    assert_eq!(audited.code, Some(5), "{}", audited.text());
    let noticed = sandbox.fails(5, ["replicate", "replica"]);
    assert!(noticed.contains("put back"), "{noticed}");
    sandbox.ok(["replicate", "replica"]);
    assert_eq!(ok_at(&sandbox, "replica", &["snapshots"]).lines().count(), 4);
}

/// Two copies of a store have different histories. A command that reads the other copy's replica
/// reports this, and still knows its own replica as before.
#[test]
fn another_historys_replica_changes_nothing_that_is_remembered() {
    let mut sandbox = replicated();
    copy_folder(&sandbox.path("replica"), &sandbox.path("old"));
    copy_folder(sandbox.store(), &sandbox.path("copy"));
    let own = sandbox.store().to_owned();
    sandbox.snapshot_bytes("disk", &noise(6, 200_000));
    sandbox.ok(["replicate", "replica"]);
    sandbox.set_store(sandbox.path("copy"));
    sandbox.snapshot_bytes("theirs", &noise(7, 900_000));
    sandbox.ok(["replicate", "their replica"]);
    sandbox.set_store(own);

    // The other replica is read first, and once more after the own one.
    for _ in 0..2 {
        let audited = sandbox.run(["verify", "--replica", "their replica", "--data"]);
        assert_eq!(audited.code, Some(5), "{}", audited.text());
        assert!(audited.text().contains("holds another history of this store"), "{}", audited.text());
        assert!(!audited.text().contains("all is well") && audited.stderr.is_empty(), "{}", audited.stderr);
        assert!(ok_at(&sandbox, "replica", &["snapshots"]).contains("disk"));
        for words in [&["verify", "--replica", "replica"][..], &["verify", "--replica", "replica", "--data"]]
        {
            assert!(sandbox.ok(words).contains("all is well"));
        }
    }
    // Without a store to compare with, the program knows only the states that it has seen. Its
    // record of the first place is unchanged.
    let read = at(&sandbox, "their replica", &["snapshots"]);
    assert_eq!(read.code, Some(0), "{}", read.stderr);
    assert!(read.stderr.contains("another history") && read.text().contains("theirs"), "{}", read.stderr);
    ok_at(&sandbox, "replica", &["snapshots"]);
    assert!(sandbox.ok(["verify", "--replica", "replica"]).contains("all is well"));
    // The state that was seen at the first place is still remembered. Even the other history in the
    // same place does not hide it.
    for put_back in ["old", "their replica"] {
        fs::remove_dir_all(sandbox.path("replica")).unwrap();
        copy_folder(&sandbox.path(put_back), &sandbox.path("replica"));
        let audited = sandbox.run(["verify", "--replica", "replica"]);
        assert_eq!(audited.code, Some(5), "{put_back}: {}", audited.text());
        let read = at(&sandbox, "replica", &["snapshots"]);
        assert!(read.stderr.contains("put back"), "{put_back}: {}", read.stderr);
    }
}

/// A replica at a new place is compared with the states that were seen at other places.
#[test]
fn a_second_replica_that_is_behind_is_noticed_when_it_is_first_seen() {
    let sandbox = replicated();
    copy_folder(&sandbox.path("replica"), &sandbox.path("old"));
    sandbox.snapshot_bytes("disk", &noise(6, 200_000));
    sandbox.ok(["replicate", "replica"]);
    ok_at(&sandbox, "replica", &["snapshots"]);
    for _ in 0..2 {
        let read = at(&sandbox, "old", &["snapshots"]);
        assert!(read.stderr.contains("was not brought up to date"), "{}", read.stderr);
    }
    // A comparison with the store shows that the replica is only behind.
    assert!(sandbox.ok(["verify", "--replica", "old"]).contains("it is behind the store by"));
    sandbox.ok(["replicate", "old"]);
    ok_at(&sandbox, "old", &["snapshots"]);
}

#[expect(clippy::disallowed_methods, reason = "the moment is chosen by the clock")]
fn wait(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

#[test]
fn a_folder_in_the_place_of_an_object_is_named() {
    let sandbox = replicated();
    let key = files(&sandbox.path("replica/keys")).remove(0).0;
    let segment = segments(&sandbox).remove(1);
    let segment = segment.strip_prefix(sandbox.path("replica")).unwrap().to_str().unwrap().to_owned();
    let key = format!("keys/{}", key.to_str().unwrap());
    for object in ["replica.toml", "config.toml", "FORMAT.md", &key, &segment] {
        let place = sandbox.path("replica").join(object);
        let contents = fs::read(&place).unwrap();
        fs::remove_file(&place).unwrap();
        fs::create_dir(&place).unwrap();
        let before = files(&sandbox.path("replica"));
        let told = format!("{object}: a folder is in place of this object");
        for words in [
            &["replicate", "replica"][..],
            &["replicate", "replica", "--dry-run"],
            &["replicate", "replica", "--replace", object],
        ] {
            let refused = sandbox.fails(5, words.iter().copied());
            assert!(refused.contains(&told) && refused.contains("by hand"), "{words:?}: {refused}");
        }
        assert_eq!(files(&sandbox.path("replica")), before, "{object}: nothing is put");
        let audit = sandbox.run(["verify", "--replica", "replica"]);
        assert_eq!(audit.code, Some(5), "{object}");
        assert!(audit.text().contains(&told) || audit.stderr.contains(&told), "{object}: {}", audit.stderr);
        let clone = sandbox.run(["clone", "replica", "clone"]);
        assert_eq!(clone.code, Some(5), "{object}");
        assert!(clone.stderr.contains(&told), "{object}: {}", clone.stderr);
        let is_needed = ["config.toml", &key].contains(&object);
        assert_eq!(clone.text().contains("is a store"), !is_needed, "{object}: {}", clone.stderr);
        drop(fs::remove_dir_all(sandbox.path("clone")));
        fs::remove_dir(&place).unwrap();
        assert!(sandbox.ok(["replicate", "replica"]).contains("up to date"));
        assert_eq!(fs::read(&place).unwrap(), contents, "{object}");
    }
    fs::create_dir_all(sandbox.path("new/replica.toml")).unwrap();
    assert!(sandbox.fails(5, ["replicate", "new"]).contains("replica.toml: a folder is in place of"));
    assert_eq!(files(&sandbox.path("new")), []);
    fs::write(sandbox.path("file"), "mine").unwrap();
    for words in [&["replicate", "file"][..], &["clone", "file", "clone"], &["verify", "--replica", "file"]] {
        assert!(sandbox.fails(1, words.iter().copied()).contains("not a folder"), "{words:?}");
    }
}

#[test]
fn a_second_copy_is_not_made_in_the_store_itself() {
    let sandbox = replicated();
    std::os::unix::fs::symlink(sandbox.store(), sandbox.path("link")).unwrap();
    let before = files(sandbox.store());
    for target in ["store", "store/", "store/replica/deep", "link", "link/arenas", "replica/../store"] {
        let refused = sandbox.fails(1, ["replicate", target, "--remember"]);
        assert!(refused.contains("is in the folder of the store itself"), "{target}: {refused}");
    }
    assert_eq!(files(sandbox.store()), before);
    sandbox.ok(["replicate", "store-2"]);
}

#[test]
fn what_cannot_be_put_again_is_named() {
    let sandbox = replicated();
    let segment = segments(&sandbox).remove(0);
    let segment = segment.strip_prefix(sandbox.path("replica")).unwrap().to_str().unwrap();
    let before = files(&sandbox.path("replica"));
    fs::write(sandbox.path("replica/letter"), "mine").unwrap();
    sandbox.snapshot_bytes("disk", &noise(4, 500_000));
    for (name, told) in [
        (
            "confg.toml",
            "confg.toml cannot be replaced, because the target has no such object; a similar name is config.toml",
        ),
        (&segment[..segment.len() - 3], &format!("no such object; a similar name is {segment}")),
        ("nothing-like-it", "nothing-like-it cannot be replaced, because the target has no such object"),
        ("letter", "letter cannot be replaced, because this store has no undamaged data for it"),
    ] {
        let refused =
            sandbox.fails(1, ["replicate", "replica", "--replace", "config.toml", "--replace", name]);
        assert!(refused.contains(told), "{name}: {refused}");
    }
    fs::remove_file(sandbox.path("replica/letter")).unwrap();
    assert_eq!(files(&sandbox.path("replica")), before, "nothing is put");
    // `--replace` uploads an intact object again all the same, and also one that is missing.
    let key = format!("keys/{}", files(&sandbox.path("replica/keys"))[0].0.to_str().unwrap());
    fs::remove_file(sandbox.path("replica/FORMAT.md")).unwrap();
    let done = sandbox.json(["replicate", "replica", "--replace", &key, "--replace", "FORMAT.md"]).remove(0);
    assert_eq!(done["objects"], 3);
}

/// A web server that refuses every request, and records whether the request had the password.
fn start_collector() -> (String, mpsc::Receiver<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("webdav+http://ann@{}/replica", listener.local_addr().unwrap());
    let (sender, noted) = mpsc::channel();
    #[expect(clippy::disallowed_methods, reason = "a server of the test's own")]
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            // The request is read to its end. Otherwise the answer would be lost with the unread
            // rest.
            let lines = BufReader::new(&connection).lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            // `ann:hunter2` in Base64.
            let has_password = head.iter().any(|line| line.ends_with("Basic YW5uOmh1bnRlcjI="));
            let _ = sender.send(has_password);
            let refusal = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            drop(connection.write_all(refusal.as_bytes()));
        }
    });
    (url, noted)
}

#[test]
fn a_server_that_only_the_store_names_is_sent_no_password() {
    let sandbox = replicated();
    let (url, noted) = start_collector();
    fs::write(sandbox.store().join("replicas.toml"), format!("targets = [{url:?}]\n")).unwrap();
    let run = |words: &[&str]| {
        let run =
            Run::new(sandbox.command().env("VARVE_REMOTE_PASSWORD", "hunter2").args(words).output().unwrap());
        (run.stderr, noted.try_iter().collect::<Vec<_>>())
    };
    // A read asks the remembered replicas for the lost blocks.
    sandbox.arenas().iter().for_each(|arena| sandbox::write_at(arena, 1_000_000, &noise(9, 100_000)));
    for words in [&["replicate"][..], &["cat", "disk"]] {
        let (said, passwords) = run(words);
        assert!(said.contains("is not sent to"), "{words:?}: {said}");
        assert!(!passwords.is_empty() && !passwords.contains(&true), "{words:?}: {passwords:?}, {said}");
    }
    let (said, passwords) = run(&["replicate", &url]);
    assert!(passwords.contains(&true) && !said.contains("is not sent"), "{passwords:?}, {said}");
    let (said, passwords) = run(&["replicate"]);
    assert!(passwords.contains(&true) && !said.contains("is not sent"), "once named, it is known: {said}");
}

#[test]
fn a_signal_ends_the_waiting_for_another_try() {
    let sandbox = replicated();
    // The port was in use a moment ago, and nothing listens there now.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = sandbox.command();
    command.args(["replicate", &format!("webdav+http://127.0.0.1:{port}/replica")]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("will try again")), "it is patient");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    #[expect(clippy::disallowed_methods, reason = "how long a signal takes is measured by the clock")]
    let begun = std::time::Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(lines.any(|line| line.contains("interrupted before the next attempt")));
}

#[test]
fn it_may_be_killed_at_any_moment() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(8, 12_000_000));
    for milliseconds in [5, 15, 25, 35, 50, 70] {
        let mut command = sandbox.command();
        let mut child = command.args(["-q", "replicate", "replica", "--segment-size", "1M"]).spawn().unwrap();
        wait(milliseconds);
        // The process may have ended already.
        drop(child.kill());
        child.wait().unwrap();
        if sandbox.path("replica/config.toml").exists() {
            let run = at(&sandbox, "replica", &["snapshots"]);
            assert_eq!(run.code, Some(0), "after {milliseconds} ms: {}", run.stderr);
            // All that is found is what is not there yet.
            let run = at(&sandbox, "replica", &["verify"]);
            let awaited =
                run.text().lines().filter(|line| line.contains("its upload was interrupted")).count();
            let expected = if awaited == 0 { Some(0) } else { Some(5) };
            let has_only = run.text().contains(&format!("{awaited} place"));
            assert!(run.code == expected && (awaited == 0 || has_only), "{}{}", run.text(), run.stderr);
        }
    }
    sandbox.ok(["replicate", "replica"]);
    assert!(sandbox.ok(["verify", "--replica", "replica", "--data"]).contains("all is well"));
    for milliseconds in [5, 15, 25, 40] {
        let mut child = sandbox.command().args(["-q", "clone", "replica", "clone"]).spawn().unwrap();
        wait(milliseconds);
        drop(child.kill());
        child.wait().unwrap();
    }
    if !sandbox.path("clone/config.toml").exists() {
        sandbox.ok(["clone", "replica", "clone"]);
    }
    is_same_log(&sandbox.path("clone"), &sandbox.path("store"));
}

#[test]
fn a_slow_line_is_not_filled() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(8, 400_000));
    #[expect(clippy::disallowed_methods, reason = "a rate is measured by the clock")]
    let begun = std::time::Instant::now();
    sandbox.ok(["replicate", "replica", "--limit-rate", "200K"]);
    assert!(begun.elapsed() > Duration::from_millis(1500));
    sandbox.fails(2, ["replicate", "x", "--segment-size", "4K"]);
    sandbox.fails(10, ["clone", "nowhere", "y"]);
    let unknown = sandbox.fails(1, ["replicate", "gopher://example.com/x"]);
    assert!(unknown.contains("gopher://example.com/x"), "{unknown}");
}

/// `clone` is the command of the worst day. It makes what the target has, and says if this machine
/// has seen more there.
#[test]
fn a_clone_of_an_earlier_state_is_noticed() {
    let sandbox = Sandbox::encrypted();
    let mut nights = Vec::new();
    for night in 1..=3 {
        let time = format!("2026-05-0{night}T23:00:00Z");
        sandbox.ok(["snapshot", "--time", &time, "--name", "docs", sandbox.key().unwrap().to_str().unwrap()]);
        sandbox.snapshot_bytes("disk", &noise(night, 1_500_000));
        sandbox.ok(["replicate", "replica", "--segment-size", "1M"]);
        ok_at(&sandbox, "replica", &["snapshots"]);
        let copy = format!("night {night}");
        copy_folder(&sandbox.path("replica"), &sandbox.path(&copy));
        nights.push(copy);
    }
    let clone = |target: &str, words: &[&str]| {
        drop(fs::remove_dir_all(sandbox.path("clone")));
        sandbox.run([&["clone", target, "clone"], words].concat())
    };
    let whole = clone("replica", &[]);
    assert_eq!((whole.code, whole.stderr.as_str()), (Some(0), ""));
    assert!(whole.text().contains("the newest of its 6 snapshots is disk of"), "{}", whole.text());

    let put_back = |night: &str| {
        fs::remove_dir_all(sandbox.path("replica")).unwrap();
        copy_folder(&sandbox.path(night), &sandbox.path("replica"));
    };
    put_back(&nights[0]);
    let older = clone("replica", &[]);
    assert_eq!(older.code, Some(5), "{}", older.stderr);
    assert!(older.stderr.contains("older than when this machine last saw it"), "{}", older.stderr);
    assert!(older.text().contains("the newest of its 2 snapshots"), "{}", older.text());
    let json = clone("replica", &["--json"]).result();
    assert_eq!((&json["older_than_seen"], &json["snapshots"]), (&true.into(), &2.into()));
    // A machine that has never seen the replica cannot know it, and says what there is.
    fs::rename(sandbox.path("cache"), sandbox.path("cache of another machine")).unwrap();
    let stranger = clone("replica", &[]);
    assert_eq!((stranger.code, stranger.stderr.as_str()), (Some(0), ""));
    assert!(stranger.text().contains("the newest of its 2 snapshots is disk of"), "{}", stranger.text());
    drop(fs::remove_dir_all(sandbox.path("cache")));
    fs::rename(sandbox.path("cache of another machine"), sandbox.path("cache")).unwrap();

    put_back(&nights[2]);
    let folders = fs::read_dir(sandbox.path("replica/arenas")).unwrap();
    let mut folders: Vec<_> = folders.map(|folder| folder.unwrap().path()).collect();
    folders.sort();
    folders[folders.len() - 2..].iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
    assert_eq!(clone("replica", &[]).code, Some(5), "without its last arenas");
}

/// The name of an object says where it begins and where it ends, so one that was cut is no earlier
/// state.
#[test]
fn an_object_that_was_cut_short_is_damage() {
    let sandbox = replicated();
    copy_folder(&sandbox.path("replica"), &sandbox.path("good"));
    let last = segments(&sandbox).pop().unwrap();
    let bytes = fs::metadata(&last).unwrap().len();
    let cut = |file: &Path, bytes| {
        fs::OpenOptions::new().write(true).open(file).unwrap().set_len(bytes).unwrap();
    };
    // The first record of the last object may end anywhere, so the object is cut at each granule.
    for left in (0..bytes).step_by(128).filter(|left| *left < 2048 || *left > bytes - 2048) {
        cut(&last, left);
        drop(fs::remove_dir_all(sandbox.path("clone")));
        let clone = sandbox.fails(5, ["clone", "replica", "clone"]);
        assert!(clone.contains("is not a store yet"), "{left} of {bytes}: {clone}");
        // This machine has never seen the replica.
        let mut verify = sandbox.command_at(Path::new("replica"));
        verify.env("VARVE_CACHE", sandbox.path("new-cache")).arg("verify");
        let verified = Run::new(verify.output().unwrap());
        drop(fs::remove_dir_all(sandbox.path("new-cache")));
        assert_eq!(verified.code, Some(5), "{left} of {bytes}: {}{}", verified.text(), verified.stderr);
        fs::remove_dir_all(sandbox.path("replica")).unwrap();
        copy_folder(&sandbox.path("good"), &sandbox.path("replica"));
    }
    for segment in segments(&sandbox) {
        cut(&segment, 0);
    }
    drop(fs::remove_dir_all(sandbox.path("clone")));
    let clone = sandbox.fails(5, ["clone", "replica", "clone"]);
    assert!(clone.contains("the object that begins here is cut short"), "{clone}");
    let kept = sandbox.run(["clone", "replica", "clone", "--keep-damaged"]);
    assert_eq!(kept.code, Some(5), "{}", kept.stderr);
    let read = at(&sandbox, "replica", &["snapshots"]);
    assert!(read.stderr.contains("is empty, which no object of the log is"), "{}", read.stderr);
    let verified = at(&sandbox, "replica", &["verify"]);
    assert!(verified.text().contains("it is empty, which no object of the log is"), "{}", verified.text());
    assert_eq!(sandbox.run(["verify", "--replica", "replica"]).code, Some(5));
}
