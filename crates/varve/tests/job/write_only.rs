//! A machine that may archive but not read, with the real program.

use crate::sandbox;
use std::fs;

use crate::sandbox::{Sandbox, manifest, noise, sample_folder};

/// Makes a store with its full key, and a second view of it with a write-only key.
fn shared() -> (Sandbox, Sandbox) {
    let owner = Sandbox::encrypted();
    fs::write(owner.path("machine"), noise(5, 32)).unwrap();
    let said = owner.ok(["key", "add", "--write-only", "--new-key-file", "machine", "--label", "web server"]);
    assert!(said.contains("write-only") && said.contains("read nothing"), "{said}");
    let mut machine = Sandbox::empty();
    machine.set_store(owner.store().into());
    machine.set_key(Some(owner.path("machine")));
    (owner, machine)
}

#[test]
fn it_archives_every_night_and_reads_nothing() {
    let (owner, machine) = shared();
    sample_folder(&machine.path("home"));
    let image = noise(6, 900_000);
    machine.ok(["snapshot", "home"]);
    assert!(machine.snapshot_bytes("disk", &image)["new_bytes"].as_u64().unwrap() >= 900_000);
    let again = machine.snapshot_bytes("disk", &image);
    assert_eq!(again["new_bytes"], 0, "deduplicated without reading");
    fs::write(machine.path("home/new"), "tonight").unwrap();
    machine.ok(["snapshot", "home"]);

    let out = machine.arg("out");
    let reads: [&[&str]; 9] = [
        &["snapshots"],
        &["ls", "home"],
        &["ls", "latest"],
        &["cat", "disk"],
        &["diff", "home", "home"],
        &["find", "*"],
        &["restore", "disk", &out],
        &["stats"],
        &["verify", "--data"],
    ];
    for words in reads {
        let refused = machine.fails(12, words);
        assert!(refused.contains("write-only: it may not read what is stored"), "{words:?}: {refused}");
        assert!(refused.contains("hint"), "{refused}");
    }
    sandbox::write_secret(&machine.path("spare"), &noise(9, 32));
    for words in
        [&["key", "export"][..], &["key", "remove", "a"], &["key", "change", "--new-key-file", "spare"]]
    {
        assert!(machine.fails(12, words).contains("may not make, change or remove keys"));
    }
    assert!(machine.ok(["verify"]).contains("this key cannot read the data"));
    assert_eq!(machine.json(["verify"])[0]["contents_checked"], false);

    assert_eq!(owner.ids().len(), 4);
    assert!(owner.run(["cat", "disk"]).stdout == image);
    let restored = owner.path("restored");
    owner.run(["restore", "home", restored.to_str().unwrap()]);
    assert_eq!(format!("{:#?}", manifest(&restored)), format!("{:#?}", manifest(&machine.path("home"))));
    owner.ok(["verify", "--data"]);
    // The owner's next snapshot adds all of them to the catalog.
    owner.snapshot_bytes("own", b"by the owner");
    machine.snapshot_bytes("disk", b"and on");
    assert_eq!(owner.ids().len(), 6);
    assert!(owner.json(["verify", "--data"])[0]["damage"].as_array().unwrap().is_empty());
}

/// An attacker with such a key must not be able to destroy anything, here or at a replica.
#[test]
fn no_key_that_only_adds_destroys_anything() {
    let (owner, mut machine) = shared();
    owner.snapshot_bytes("disk", &noise(6, 2_000_000));
    owner.ok(["replicate", &owner.arg("replica")]);
    let replica = owner.arg("replica");
    fs::write(owner.path("adder"), noise(7, 32)).unwrap();
    owner.ok(["key", "add", "--append-only", "--new-key-file", "adder"]);
    let damaged = owner.arenas().remove(0);
    let mut contents = fs::read(&damaged).unwrap();
    contents[40_000] ^= 1;
    fs::write(&damaged, contents).unwrap();
    let object = "arenas/0000000000.0/x";
    let destroying: [(&[&str], &str); 7] = [
        (&["repair"], "may not remove anything"),
        (&["repair", "--from", &replica], "may not remove anything"),
        (&["replicate", &replica, "--replace", object], "may not remove anything"),
        (&["replicate", &replica, "--drop-superseded"], "may not remove anything"),
        (&["replicate", &replica, "--delete-extra-keys"], "may not make, change or remove keys"),
        (&["key", "remove", "a"], "may not make, change or remove keys"),
        (&["key", "export"], "may not make, change or remove keys"),
    ];
    let before = files(&owner);
    for (key, role) in [("machine", "write-only"), ("adder", "append-only")] {
        machine.set_key(Some(owner.path(key)));
        for (words, reason) in destroying {
            let refused = machine.fails(12, words);
            assert!(refused.contains(&format!("{role}: it {reason}")), "{words:?}: {refused}");
        }
    }
    assert!(files(&owner) == before, "nothing was changed");
    owner.ok(["repair", "--from", &replica]);
}

/// Returns the files of the log, of the keys and of the replica.
fn files(owner: &Sandbox) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![owner.store().join("arenas"), owner.store().join("keys"), owner.path("replica")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((path.clone(), fs::read(path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn damage_is_found_by_codes_alone() {
    let (owner, machine) = shared();
    machine.snapshot_bytes("disk", &noise(6, 3_000_000));
    let arena = owner.arenas().remove(0);
    let mut contents = fs::read(&arena).unwrap();
    // Changes a byte in the body of the last page, whose row is before the footer. The bytes after
    // the body, up to the next granule, mean nothing.
    let row = contents.len() - 96 - 24;
    let granule = u32::from_le_bytes(*contents[row..].first_chunk().unwrap());
    contents[granule as usize * 128 + 100] ^= 1;
    fs::write(&arena, contents).unwrap();
    let found = machine.run(["verify"]);
    assert_eq!(found.code, Some(5), "{}", found.text());
    assert!(found.text().contains("arena 0"), "{}", found.text());
}

#[test]
fn a_store_without_encryption_has_no_such_keys() {
    let plain = Sandbox::made_with(&["--plaintext"]);
    assert!(
        plain.fails(1, ["key", "add", "--write-only", "--new-key-file", "key"]).contains("not encrypted")
    );
    assert!(plain.run(["key", "add", "--write-only", "--append-only"]).code == Some(2));
}
