//! Publications: made by the program, checked by the program, and read by a client that shares no
//! code with it.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use varve_content::image::ServedImage;
use varve_edition::{
    BlockForm, CheckedBlock, EditionHead, MACHINE_DESCRIPTION_BYTES_MAX, MachineDescription, ObjectName,
};
use varve_machine::{NbdDisk, NbdDiskOptions};

use crate::sandbox::{Sandbox, copy_folder, json_lines, noise, python};

const MIB: usize = 1 << 20;

/// A disk of text and noise with holes.
fn disk(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; 5 * MIB + 1234];
    bytes[200_000..900_000].copy_from_slice(&noise(seed, 700_000));
    let text: Vec<u8> = b"a line of a file on a disk\n".iter().copied().cycle().take(2 * MIB).collect();
    bytes[3 * MIB..5 * MIB].copy_from_slice(&text);
    let end = bytes.len();
    bytes[end - 10..].copy_from_slice(&noise(seed + 1, 10));
    bytes
}

fn publish(sandbox: &Sandbox, more: &[&str]) -> Vec<serde_json::Value> {
    sandbox.json([&["publish", "disk", "www", "--key", "publisher.key"], more].concat())
}

fn objects(folder: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder.join("objects")).unwrap();
    let mut files: Vec<_> = folders
        .flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        // Not the files of an upload that has not ended.
        .filter(|file| file.file_name().unwrap().len() == 64)
        .collect();
    files.sort();
    files
}

fn fetch(sandbox: &Sandbox, address: &str, image: &str) -> Output {
    fetch_with(sandbox, address, image, None)
}

fn fetch_with(sandbox: &Sandbox, address: &str, image: &str, content_key: Option<&str>) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rosetta/fetch_publication.py");
    let mut command = python();
    command.args([script, address, image]).arg(sandbox.path("fetched")).args(content_key);
    command.current_dir(sandbox.path("")).output().unwrap()
}

#[test]
fn a_client_of_sixty_lines_reads_every_image() {
    let script =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../rosetta/fetch_publication.py"));
    assert!(script.unwrap().lines().count() <= 60);
    if python().arg("--version").output().is_err() {
        eprintln!("skipped: the client, which needs python3");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let mut images = Vec::new();
    let mut address = String::new();
    let start = "varve profile 1\nsize = 5244114\n0 3145728 131072\n5 200704 4096\n";
    fs::write(sandbox.path("start.profile"), start).unwrap();
    for (seed, profile) in [(1, "auto"), (2, "start.profile")] {
        let taken = sandbox.snapshot_bytes("disk", &disk(seed));
        let options = ["--compression", "zlib:6", "--block-size", "64K", "--profile", profile];
        let edition = publish(&sandbox, &options).pop().unwrap();
        address = format!("www#{}", edition["key"].as_str().unwrap());
        images.push(taken["time"].as_str().unwrap().to_owned());
    }
    for (time, seed) in images.iter().zip([1, 2]) {
        let output = fetch(&sandbox, &address, &format!("disk@{time}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(fs::read(sandbox.path("fetched")).unwrap() == disk(seed), "{time}");
    }
    assert!(fetch(&sandbox, &address, "disk").status.success());
    assert!(fs::read(sandbox.path("fetched")).unwrap() == disk(2), "the newest");

    // It believes neither another key nor other bytes.
    let text = fs::read_to_string(sandbox.path("publisher.key")).unwrap();
    assert!(text.starts_with("varve publication key 1\n"));
    let other = publish_elsewhere(&sandbox);
    assert!(!fetch(&sandbox, &format!("www#{other}"), "disk").status.success());
    let mut unneeded_count = 0;
    for object in objects(&sandbox.path("www")) {
        let good = fs::read(&object).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 1;
        fs::write(&object, bad).unwrap();
        let fetched: Vec<bool> = images
            .iter()
            .map(|time| fetch(&sandbox, &address, &format!("disk@{time}")).status.success())
            .collect();
        unneeded_count += usize::from(!fetched.contains(&false));
        fs::write(&object, good).unwrap();
    }
    assert_eq!(unneeded_count, 1, "only the profile is not needed to read a disk");
}

/// The page prints a whole publication: it is one to the program and to the client.
#[test]
fn the_publication_on_the_page_is_read() {
    let page = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/internals/publication-format.md"
    ))
    .unwrap();
    let (_, section) = page.split_once("## 9. A whole publication\n").unwrap();
    let (_, head) = section.split_once("```text\n").unwrap();
    let sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("www")).unwrap();
    fs::write(sandbox.path("www/head"), head.split_once("```").unwrap().0).unwrap();
    for object in section.split("The object `").skip(1) {
        let (name, rest) = object.split_once('`').unwrap();
        let lines = rest.lines().skip(2).take_while(|line| line.starts_with("    "));
        let digits: String = lines.flat_map(str::split_whitespace).collect();
        let folder = sandbox.path("www/objects").join(&name[..2]);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), varve_block::from_hex(&digits).unwrap()).unwrap();
    }
    let key = section.split_once("`#varve1-").unwrap().1.split_once('`').unwrap().0;
    let address = format!("www#varve1-{key}");
    let run = sandbox.run(["verify", "--publication", &address]);
    assert!(run.code == Some(0) && run.text().contains("edition 3: 1 image"), "{}", run.stderr);
    sandbox.ok(["attach", &address, "--fill"]);
    if python().arg("--version").output().is_err() {
        eprintln!("skipped: the client, which needs python3");
        return;
    }
    let output = fetch(&sandbox, &address, "a disk");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("serial = 3"), "{said}");
    assert_eq!(fs::read(sandbox.path("fetched")).unwrap(), b"hello");

    // Both refuse whatever follows the signature.
    let mut longer = fs::read(sandbox.path("www/head")).unwrap();
    longer.extend(b"image = x\n");
    fs::write(sandbox.path("www/head"), longer).unwrap();
    assert!(!fetch(&sandbox, &address, "a disk").status.success());
    sandbox.fails(1, ["verify", "--publication", &address]);
}

/// The paper's folder: each block is a file with the name of its hash, and a table leads to them.
#[test]
fn in_files_each_block_is_a_file_named_by_its_hash() {
    const BLOCK: usize = 64 << 10;
    let sandbox = Sandbox::encrypted();
    let disk = disk(1);
    sandbox.snapshot_bytes("disk", &disk);
    let start = "varve profile 1\nsize = 5244114\n0 3145728 131072\n5 200704 4096\n";
    fs::write(sandbox.path("start.profile"), start).unwrap();
    let options = ["--compression", "none", "--block-size", "64K", "--profile", "start.profile"];
    let edition = publish(&sandbox, &options).pop().unwrap();
    let address = format!("www#{}", edition["key"].as_str().unwrap());
    let with_packs = objects(&sandbox.path("www"));
    assert!(with_packs.iter().any(|file| fs::metadata(file).unwrap().len() > BLOCK as u64 + 1), "a pack");

    // The same image of the same publication, and then the pack is no longer needed.
    let in_files = [&options[..], &["--layout", "files"]].concat();
    let lines = publish(&sandbox, &in_files);
    assert_eq!(lines[0]["published_before"], false);
    // Three blocks of text were packed. They are equal in two places, and noise is in the other.
    assert!(lines[0]["read_blocks"].as_u64().unwrap() <= 4, "{lines:?}");
    publish(&sandbox, &[&in_files[..], &["--prune", "--grace", "0h"]].concat());
    let lines = publish(&sandbox, &in_files);
    assert_eq!((&lines[0]["published_before"], &lines[1]["objects"]), (&true.into(), &0.into()));
    assert_eq!(sandbox.json(["verify", "--publication", &address])[0]["damaged"], 0);

    let (mut contents, mut tables) = (BTreeMap::new(), Vec::new());
    for file in objects(&sandbox.path("www")) {
        let (bytes, name) =
            (fs::read(&file).unwrap(), file.file_name().unwrap().to_str().unwrap().to_owned());
        assert_eq!(ObjectName::of(&bytes).to_string(), name);
        assert_eq!(bytes[0], 0, "it is stored as it is");
        if bytes[1..].starts_with(b"VARVEMAP") {
            tables.push(bytes[1..].to_vec());
        } else {
            contents.insert(name, bytes[1..].to_vec());
        }
    }
    let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    tables.sort_by_key(|table| number(table, 12));
    assert_eq!(tables.len(), 2, "one page, and the root");
    assert!(tables.iter().all(|table| number(table, 16) == 0), "no table names a pack");
    let mut shown = Vec::new();
    let mut used = BTreeSet::new();
    for entry in tables[0][24..].chunks(44) {
        let length = BLOCK.min(disk.len() - shown.len());
        if number(entry, 40) == 0 {
            shown.resize(shown.len() + length, 0);
            continue;
        }
        let name: String = entry[..32].iter().map(|byte| format!("{byte:02x}")).collect();
        shown.extend(&contents[&name]);
        used.insert(name);
    }
    assert!(shown == disk);
    let others: Vec<_> = contents.iter().filter(|(name, _)| !used.contains(*name)).collect();
    assert!(others.len() == 1 && others[0].1 == start.as_bytes(), "all other files are blocks");
    if python().arg("--version").output().is_ok() {
        assert!(fetch(&sandbox, &address, "disk").status.success());
        assert!(fs::read(sandbox.path("fetched")).unwrap() == disk);
    }

    // Without the option, the start is packed again.
    publish(&sandbox, &options);
    sandbox.snapshot_bytes("disk", &disk);
    let lines = publish(&sandbox, &options);
    assert_eq!(lines[0]["profile_blocks"], 3, "{lines:?}");
}

#[test]
fn a_machine_without_memory_is_refused() {
    let sandbox = Sandbox::empty();
    for words in [
        ["boot", "disk", "--memory", "0"],
        ["boot", "disk", "--memory", "512"],
        ["attach", "www", "--boot", "--machine-memory=0"],
    ] {
        let stderr = sandbox.fails(2, words);
        assert!(stderr.contains("a machine needs at least 4M"), "{stderr}");
    }
}

fn publish_elsewhere(sandbox: &Sandbox) -> String {
    let edition = sandbox.json(["publish", "disk", "elsewhere", "--key", "other.key"]).pop().unwrap();
    edition["key"].as_str().unwrap().to_owned()
}

#[test]
fn an_edition_costs_what_has_changed() {
    let sandbox = Sandbox::encrypted();
    let mut bytes = disk(1);
    sandbox.snapshot_bytes("disk", &bytes);
    let dry = publish(&sandbox, &["--dry-run"]).pop().unwrap();
    assert!(!sandbox.path("www").exists() && !sandbox.path("publisher.key").exists());
    let first = publish(&sandbox, &[]).pop().unwrap();
    assert_eq!((&dry["objects"], &dry["bytes"]), (&first["objects"], &first["bytes"]));
    let mode = fs::metadata(sandbox.path("publisher.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(objects(&sandbox.path("www")).len() as u64, first["objects"].as_u64().unwrap());
    assert!(fs::read_to_string(sandbox.path("www/FORMAT.md")).unwrap().contains("VARVEMAP"));

    bytes[500_000] ^= 1;
    sandbox.snapshot_bytes("disk", &bytes);
    let lines = publish(&sandbox, &["--mirror", "https://disks.example/a/"]);
    assert_eq!((&lines[0]["read_blocks"], &lines[1]["objects"]), (&1.into(), &3.into()), "{lines:?}");
    let mirror = lines[1]["mirrors"][0].as_str().unwrap();
    assert_eq!(mirror, format!("https://disks.example/a/#{}", lines[1]["key"].as_str().unwrap()));
    let address = lines[1]["address"].as_str().unwrap().to_owned();
    let checked = sandbox.json(["verify", "--publication", &address]).remove(0);
    assert_eq!((&checked["images"], &checked["damaged"]), (&2.into(), &0.into()));

    // Only the newest image stays listed. Objects of the other one go after the grace period.
    let lines = publish(&sandbox, &["--keep", "1", "--prune"]);
    assert_eq!((&lines[1]["dropped_images"], &lines[1]["images"]), (&1.into(), &1.into()));
    assert_eq!((&lines[2]["retired_objects"], &lines[2]["removed_objects"]), (&3.into(), &0.into()));
    let before = objects(&sandbox.path("www")).len();
    let lines = publish(&sandbox, &["--keep", "1", "--prune", "--grace", "0h"]);
    assert_eq!(lines[2]["removed_objects"], 3);
    assert_eq!(objects(&sandbox.path("www")).len(), before - 3);
    assert_eq!(sandbox.json(["verify", "--publication", &address])[0]["damaged"], 0);
}

#[test]
fn damage_and_wrong_keys_are_named() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &disk(3));
    let key = publish(&sandbox, &[]).pop().unwrap()["key"].as_str().unwrap().to_owned();
    let address = format!("www/#{key}");
    let object = objects(&sandbox.path("www")).remove(0);
    let mut bytes = fs::read(&object).unwrap();
    bytes[0] ^= 0x40;
    fs::write(&object, &bytes).unwrap();
    let stderr = sandbox.fails(5, ["verify", "--publication", &address]);
    let name = object.file_name().unwrap().to_str().unwrap();
    assert!(stderr.contains(name) && stderr.contains("belongs to disk"), "{stderr}");
    fs::remove_file(&object).unwrap();
    assert!(sandbox.fails(5, ["verify", "--publication", &address]).contains(name));
    let good = objects(&sandbox.path("www"));
    for damaged in good.into_iter().step_by(3) {
        let mut bytes = fs::read(&damaged).unwrap();
        bytes[0] ^= 1;
        fs::write(&damaged, &bytes).unwrap();
    }
    // Objects of the right length are not read without --repair.
    publish(&sandbox, &[]);
    assert!(sandbox.fails(5, ["verify", "--publication", &address]).contains("publish --repair"));
    publish(&sandbox, &["--repair"]);
    let checked = sandbox.json(["verify", "--publication", &address]).remove(0);
    assert_eq!((&checked["images"], &checked["damaged"]), (&1.into(), &0.into()));

    let other = publish_elsewhere(&sandbox);
    let stderr = sandbox.fails(1, ["verify", "--publication", &format!("www#{other}")]);
    assert!(stderr.contains("signed with other keys") && stderr.contains(&key), "{stderr}");
    let stderr = sandbox.fails(2, ["verify", "--publication", "www"]);
    assert!(stderr.contains("#varve1-KEY"), "{stderr}");
    let stderr = sandbox.fails(1, ["publish", "disk", "www", "--key", "other.key"]);
    assert!(stderr.contains("signed with other keys") && stderr.contains("--key OLD --key NEW"), "{stderr}");
    let stderr = sandbox.fails(1, ["publish", "disk", "www", "--key", "third.key"]);
    assert!(stderr.contains("signed with other keys") && !sandbox.path("third.key").exists(), "{stderr}");
    let stderr = sandbox.fails(2, ["publish", "disk", "www", "--key", "other.key", "--expires", "0d"]);
    assert!(stderr.contains("at least one hour"), "{stderr}");
    let head = fs::read(sandbox.path("www/head")).unwrap();
    for (bad, says) in [(&head[1..], "is damaged"), (&head[..9], "is damaged")] {
        fs::write(sandbox.path("www/head"), bad).unwrap();
        let stderr = sandbox.fails(1, ["publish", "disk", "www", "--key", "publisher.key"]);
        assert!(stderr.contains(says) && !stderr.contains("--key OLD"), "{stderr}");
    }
    fs::write(sandbox.path("www/head"), head).unwrap();
    // Both keys once, then the new one alone.
    sandbox.ok(["-q", "publish", "disk", "www", "--key", "publisher.key", "--key", "other.key"]);
    sandbox.ok(["-q", "publish", "disk", "www", "--key", "other.key"]);
    sandbox.fails(1, ["publish", "disk", "www", "--key", "publisher.key"]);

    fs::create_dir(sandbox.path("folder")).unwrap();
    sandbox.ok(["snapshot", "folder"]);
    let stderr = sandbox.fails(2, ["publish", "folder", "www", "--key", "other.key"]);
    assert!(stderr.contains("only images of disks"), "{stderr}");
}

#[test]
fn a_killed_publication_leaves_the_edition_before_it() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &disk(5));
    let key = publish(&sandbox, &[]).pop().unwrap()["key"].as_str().unwrap().to_owned();
    let (head, there) = (fs::read(sandbox.path("www/head")).unwrap(), objects(&sandbox.path("www")).len());
    sandbox.snapshot_bytes("disk", &noise(6, 4 * MIB));
    let mut child = sandbox
        .command()
        .args(["publish", "disk", "www", "--key", "publisher.key", "--limit-rate", "1M"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while objects(&sandbox.path("www")).len() < there + 3 {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(fs::read(sandbox.path("www/head")).unwrap() == head);
    let address = format!("www#{key}");
    let checked = sandbox.json(["verify", "--publication", &address]).remove(0);
    assert_eq!((&checked["serial"], &checked["damaged"]), (&1.into(), &0.into()));

    // The next run uploads the rest.
    let whole = publish(&sandbox, &[]).pop().unwrap();
    assert!(whole["objects"].as_u64().unwrap() < 32 + 2, "{whole}");
    let run = sandbox.run(["--json", "verify", "--publication", &address]);
    let checked = json_lines(&run.text()).remove(0);
    assert_eq!((&checked["serial"], &checked["damaged"]), (&2.into(), &0.into()));
}

/// A publication of format version 1, as `fixtures/make-golden` has made it once: an image in zlib,
/// and the next day in zstd and with packs. Later programs read it, and publish into it.
#[test]
fn the_golden_publication_is_read_and_continued() {
    let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/publication-v1"));
    let sandbox = Sandbox::encrypted();
    copy_folder(&golden.join("publication"), &sandbox.path("www"));
    fs::copy(golden.join("publisher.key"), sandbox.path("publisher.key")).unwrap();
    let expected = fs::read_to_string(golden.join("publication.expected.json")).unwrap();
    let expected: BTreeMap<String, String> = serde_json::from_str(&expected).unwrap();
    assert_eq!(expected.len(), 2);

    let key = "varve1-KiKdREgwIKBm7GARzfkS7oJIrkG6_NoJbWccaj_0Z7E";
    let address = format!("www#{key}");
    let checked = sandbox.json(["verify", "--publication", &address]).remove(0);
    assert_eq!((&checked["images"], &checked["damaged"]), (&2.into(), &0.into()), "{checked}");
    assert_eq!(checked["serial"], 2);
    for (image, digest) in &expected {
        let read = ReadByNbd::start(&sandbox, &address, image).whole();
        assert_eq!(ObjectName::of(&read).to_string(), *digest, "{image}");
        let is_zstd = image.contains("05-02");
        if !has_module(if is_zstd { "zstandard" } else { "zlib" }) {
            eprintln!("skipped: {image} by the client, which needs python3, and zstandard for zstd");
            continue;
        }
        let output = fetch(&sandbox, &address, image);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let fetched = fs::read(sandbox.path("fetched")).unwrap();
        assert_eq!(ObjectName::of(&fetched).to_string(), *digest, "{image}");
    }

    sandbox.snapshot_bytes("disk", &disk(9));
    let edition = publish(&sandbox, &["--block-size", "64K"]).pop().unwrap();
    assert_eq!((&edition["serial"], &edition["images"]), (&3.into(), &3.into()));
    assert_eq!(edition["mirrors"][0], format!("https://disks.example/golden/#{key}"));
    assert_eq!(sandbox.json(["verify", "--publication", &address])[0]["damaged"], 0);
}

/// Returns true if Python is there with this module.
fn has_module(module: &str) -> bool {
    let imported = python().args(["-c", &format!("import {module}")]).output();
    imported.is_ok_and(|output| output.status.success())
}

/// Copies a key as its owner keeps it. A checkout is open to others.
fn copy_key(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o600)).unwrap();
}

/// The same with encrypted images of two content keys.
#[test]
fn the_golden_encrypted_publication_is_read_and_continued() {
    let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/publication-v1"));
    let sandbox = Sandbox::encrypted();
    copy_folder(&golden.join("encrypted-publication"), &sandbox.path("www"));
    copy_key(&golden.join("encrypted-publication.publisher.key"), &sandbox.path("publisher.key"));
    for image in ["disk", "other"] {
        let name = format!("{image}.content");
        copy_key(&golden.join(&name), &sandbox.path(&name));
    }
    let expected = fs::read_to_string(golden.join("encrypted-publication.expected.json")).unwrap();
    let expected: BTreeMap<String, String> = serde_json::from_str(&expected).unwrap();
    assert_eq!(expected.len(), 3);
    let key = key_in_file(&sandbox.path("publisher.key"));
    let address = format!("www#{key}");
    let keys = ["--content-key", "disk.content", "--content-key", "other.content"];
    let verify = ["verify", "--publication", &address];
    let checked = sandbox.json([&verify[..], &keys].concat()).remove(0);
    assert_eq!((&checked["images"], &checked["damaged"]), (&3.into(), &0.into()), "{checked}");
    assert_eq!(checked["unopened_images"], serde_json::json!([]));
    for (image, digest) in &expected {
        let [own, foreign] = match image.starts_with("disk") {
            true => ["disk.content", "other.content"],
            false => ["other.content", "disk.content"],
        };
        let read = ReadByNbd::start_with(&sandbox, &address, image, &["--content-key", own]).whole();
        assert_eq!(ObjectName::of(&read).to_string(), *digest, "{image}");
        let socket = format!("unix:{}", sandbox.path("other-nbd").display());
        let attach = ["attach", &address, image, "--no-cache", "--nbd", &socket];
        let stderr = sandbox.fails(1, attach);
        assert!(
            stderr.contains("needs its content key") && stderr.contains("--content-key FILE"),
            "{stderr}"
        );
        let stderr = sandbox.fails(1, [&attach[..], &["--content-key", foreign]].concat());
        assert!(stderr.contains("with another content key"), "{stderr}");
        let is_zstd = image.contains("05-02");
        if !has_module("cryptography") || is_zstd && !has_module("zstandard") {
            eprintln!("skipped: {image} by the client, which needs cryptography, and zstandard for zstd");
            continue;
        }
        let output = fetch_with(&sandbox, &address, image, Some(own));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let fetched = fs::read(sandbox.path("fetched")).unwrap();
        assert_eq!(ObjectName::of(&fetched).to_string(), *digest, "{image}");
        for wrong in [None, Some(foreign)] {
            assert!(!fetch_with(&sandbox, &address, image, wrong).status.success(), "{image}");
        }
    }

    sandbox.snapshot_bytes("disk", &disk(9));
    let encrypt = ["--block-size", "64K", "--encrypt", "disk.content"];
    let edition = publish(&sandbox, &encrypt).pop().unwrap();
    assert_eq!((&edition["serial"], &edition["images"]), (&4.into(), &4.into()));
    let checked = sandbox.json([&verify[..], &keys].concat()).remove(0);
    assert_eq!((&checked["damaged"], &checked["images"]), (&0.into(), &4.into()));
}

/// An edition with the description of a machine, as `fixtures/make-golden` has made it once.
#[test]
fn the_golden_description_of_a_machine_is_read() {
    let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/publication-v1"));
    let key = key_in_file(&golden.join("described-publication.publisher.key"));
    let folder = golden.join("described-publication");
    let head = fs::read(folder.join("head")).unwrap();
    let opened = EditionHead::open(&head, &[key.parse().unwrap()]).unwrap();
    let part = opened.head.fields().images[0].machine.unwrap();
    let stored = fs::read(folder.join(part.name.path())).unwrap();
    let block = CheckedBlock::check(&stored, &part.name).unwrap();
    let text = block.unpack(&BlockForm::Plain, MACHINE_DESCRIPTION_BYTES_MAX).unwrap();
    assert_eq!(text, fs::read(golden.join("described-publication.expected")).unwrap());
    assert_eq!(MachineDescription::parse(&text).unwrap().to_text().as_bytes(), text);
}

fn key_in_file(file: &Path) -> String {
    key_in(&fs::read_to_string(file).unwrap().replace("public = ", "#"))
}

#[test]
fn an_encrypted_disk_needs_its_content_key_and_keeps_it() {
    let sandbox = Sandbox::encrypted();
    let mut bytes = disk(1);
    sandbox.snapshot_bytes("disk", &bytes);
    let encrypt = ["--encrypt", "disk.content"];
    let dry = publish(&sandbox, &[&encrypt[..], &["--dry-run"]].concat()).pop().unwrap();
    assert!(!sandbox.path("disk.content").exists());
    let lines = publish(&sandbox, &encrypt);
    assert_eq!((&lines[0]["cipher"], &lines[1]["objects"]), (&"aes-256-gcm".into(), &dry["objects"]));
    let mode = fs::metadata(sandbox.path("disk.content")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let address = format!("www#{}", lines[1]["key"].as_str().unwrap());
    let published: Vec<u8> =
        objects(&sandbox.path("www")).iter().flat_map(|file| fs::read(file).unwrap()).collect();
    for secret in [&b"VARVEMAP"[..], &bytes[200_000..200_064], b"a file on a disk"] {
        assert!(!published.windows(secret.len()).any(|part| part == secret));
    }
    bytes[500_000] ^= 1;
    sandbox.snapshot_bytes("disk", &bytes);
    let lines = publish(&sandbox, &encrypt);
    assert_eq!((&lines[0]["read_blocks"], &lines[1]["objects"]), (&1.into(), &3.into()), "{lines:?}");

    // Nothing is published with another key, and no key is made, unless that is meant.
    let head = fs::read(sandbox.path("www/head")).unwrap();
    let publish_with = ["publish", "disk", "www", "--key", "publisher.key"];
    let stderr = sandbox.fails(1, publish_with);
    assert!(stderr.contains("would now be published without encryption"), "{stderr}");
    assert!(stderr.contains("--change-encryption"), "{stderr}");
    let stderr = sandbox.fails(1, [&publish_with[..], &["--encrypt", "mistyped"]].concat());
    assert!(stderr.contains("mistyped does not exist") && !sandbox.path("mistyped").exists(), "{stderr}");
    sandbox.ok([
        "-q",
        "publish",
        "disk",
        "elsewhere",
        "--key",
        "publisher.key",
        "--encrypt",
        "other.content",
    ]);
    let stderr = sandbox.fails(1, [&publish_with[..], &["--encrypt", "other.content"]].concat());
    assert!(stderr.contains("encrypted with another content key"), "{stderr}");
    let good = fs::read_to_string(sandbox.path("disk.content")).unwrap();
    for (text, says) in [
        (fs::read_to_string(sandbox.path("publisher.key")).unwrap(), "it is no content key"),
        (good.replace("secret = ", "secret = AAAA"), "44 letters"),
        (String::new(), "it is no content key"),
        ("x".repeat(5000), "too long"),
    ] {
        fs::write(sandbox.path("bad.content"), text).unwrap();
        fs::set_permissions(sandbox.path("bad.content"), fs::Permissions::from_mode(0o600)).unwrap();
        let stderr = sandbox.fails(1, [&publish_with[..], &["--encrypt", "bad.content"]].concat());
        assert!(stderr.contains(says), "{stderr}");
    }
    fs::set_permissions(sandbox.path("bad.content"), fs::Permissions::from_mode(0o644)).unwrap();
    let stderr = sandbox.fails(1, [&publish_with[..], &["--encrypt", "bad.content"]].concat());
    assert!(stderr.contains("can be read by other users"), "{stderr}");
    assert!(fs::read(sandbox.path("www/head")).unwrap() == head);

    // A prune without the key removes nothing, even if another disk is published.
    sandbox.snapshot_bytes("open", &disk(4));
    let before = objects(&sandbox.path("www"));
    let open = ["publish", "open", "www", "--key", "publisher.key"];
    let prune = ["--prune", "--grace", "0h"];
    let stderr = sandbox.fails(1, [&open[..], &prune].concat());
    assert!(stderr.contains("so nothing is removed") && stderr.contains("--content-key FILE"), "{stderr}");
    assert!(before.iter().all(|object| object.exists()));
    let pruned =
        sandbox.json([&open[..], &prune, &["--content-key", "disk.content"]].concat()).pop().unwrap();
    assert_eq!(pruned["removed_objects"], 0);
    let pruned = publish(&sandbox, &[&encrypt[..], &prune, &["--keep", "1"]].concat()).pop().unwrap();
    assert_eq!(pruned["removed_objects"], 3, "{pruned}");
    let checked =
        sandbox.json(["verify", "--publication", &address, "--content-key", "disk.content"]).remove(0);
    assert_eq!((&checked["damaged"], &checked["images"]), (&0.into(), &2.into()));

    // In plain, with the explicit word; then it is readable by all.
    let stderr = sandbox.run([&publish_with[..], &["--change-encryption"]].concat()).stderr;
    let read = ReadByNbd::start(&sandbox, &address, "disk").whole();
    assert!(read == bytes, "{stderr}");
    let run = sandbox.run([&publish_with[..], &encrypt].concat());
    assert!(run.code == Some(0), "{}", run.stderr);
    for (image, expected) in [("disk", bytes), ("open", disk(4))] {
        let read = ReadByNbd::start_with(&sandbox, &address, image, &["--content-key", "disk.content"]);
        assert!(read.whole() == expected, "{image}");
    }
}

/// A running `varve attach --nbd` of one image.
struct ReadByNbd {
    child: Child,
    socket: PathBuf,
}

impl ReadByNbd {
    fn start(sandbox: &Sandbox, address: &str, image: &str) -> Self {
        Self::start_with(sandbox, address, image, &[])
    }

    fn start_with(sandbox: &Sandbox, address: &str, image: &str, more: &[&str]) -> Self {
        let socket = sandbox.path("nbd");
        drop(fs::remove_file(&socket));
        let mut command = sandbox.command();
        // The mirror that the golden head names is nobody's.
        command
            .args(["attach", address, image, "--no-cache"])
            .args(more)
            .arg("--nbd")
            .arg(format!("unix:{}", socket.display()));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().starts_with("serving at ")), "it serves the disk");
        Self { child, socket }
    }

    fn whole(self) -> Vec<u8> {
        let options = NbdDiskOptions {
            connection_count: 1,
            patience: Duration::from_secs(60),
            ..NbdDiskOptions::default()
        };
        let disk = NbdDisk::connect(&self.socket, &options).unwrap();
        let mut bytes = vec![0; usize::try_from(disk.size()).unwrap()];
        disk.read_at(0, &mut bytes).unwrap();
        bytes
    }
}

impl Drop for ReadByNbd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PAGE: &str = include_str!("../../../../docs/guide/publishing.md");

/// Numbers, dates and keys differ from run to run.
fn without_numbers(output: &str) -> Vec<String> {
    let word = |word: &str| {
        if word.bytes().any(|byte| byte.is_ascii_digit()) { "#".into() } else { word.to_owned() }
    };
    output.lines().map(|line| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")).collect()
}

fn key_in(text: &str) -> String {
    text.split(['#', '\n']).find(|part| part.starts_with("varve1-")).unwrap().to_owned()
}

#[test]
fn the_program_prints_what_the_page_on_publishing_says() {
    let sandbox = Sandbox::empty();
    sandbox.ok(["init"]);
    let mut image = noise(7, 24 * MIB);
    for day in [1, 2] {
        fs::write(sandbox.path("web.img"), &image).unwrap();
        let time = format!("2026-11-0{day}T22:00:00Z");
        sandbox.ok(["snapshot", "web.img", "--as", "image", "--name", "web", "--time", &time]);
        image[10 * MIB..11 * MIB].copy_from_slice(&noise(8, MIB));
    }
    let blocks = PAGE.split("```").filter_map(|block| block.strip_prefix("console\n"));
    let mut session: Vec<(&str, String)> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match line.strip_prefix("$ varve ") {
            Some(command) => session.push((command.strip_prefix("-s st ").unwrap_or(command), String::new())),
            None => session.last_mut().unwrap().1 += &format!("{line}\n"),
        }
    }
    assert_eq!(session.len(), 10, "{session:?}");
    let on_page = key_in(PAGE);
    let mut own = on_page.clone();
    for (command, expected) in session {
        let run = sandbox.run(command.replace(&on_page, &own).split_whitespace());
        assert_eq!(run.code, Some(0), "{command}: {}", run.stderr);
        if run.text().contains("#varve1-") {
            own = key_in(&run.text());
        }
        assert_eq!(
            without_numbers(&(run.stderr.clone() + &run.text())),
            without_numbers(&expected),
            "{command}"
        );
    }
}
