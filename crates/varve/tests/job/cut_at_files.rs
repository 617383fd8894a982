//! Disk images that are cut where their files begin: they share blocks with other disks and with
//! folders.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::sandbox::{Sandbox, has, noise, tool};
use crate::{qemu, rosetta};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// Makes a disk whose only partition has a folder as ext of this type, in blocks of these bytes.
fn make_disk(sandbox: &Sandbox, name: &str, folder: &Path, kind: [&str; 2]) -> PathBuf {
    let (disk, part) = (sandbox.path(name), sandbox.path("part.img"));
    drop(fs::remove_file(&part));
    File::create(&part).unwrap().set_len(40 * MIB).unwrap();
    let options = ["-q", "-F", "-t", kind[0], "-b", kind[1], "-d"];
    tool("mke2fs", options.into_iter().chain([folder.to_str().unwrap(), part.to_str().unwrap()]));
    let file = File::create(&disk).unwrap();
    file.set_len(42 * MIB).unwrap();
    let mut table = [0; 512];
    // One partition of type 83 from sector 2048 on.
    table[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x40, 1, 0]);
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    file.write_all_at(&table, 0).unwrap();
    file.write_all_at(&fs::read(part).unwrap(), MIB).unwrap();
    disk
}

/// Writes some files of some sizes below a folder.
fn write_files(folder: &Path, seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let place = folder.join(format!("below {}", seed % 3));
        fs::create_dir_all(&place).unwrap();
        let bytes = usize::try_from(seed * seed * 7919 % 90_000 + seed).unwrap();
        fs::write(place.join(format!("file {seed}")), noise(seed, bytes)).unwrap();
    }
}

fn new_bytes(line: &Value) -> u64 {
    line["new_bytes"].as_u64().unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn disks_and_folders_share_their_files() {
    if !has("mke2fs") {
        eprintln!("skipped as there is no mke2fs: disks_and_folders_share_their_files");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let (one, other) = (sandbox.path("one"), sandbox.path("other"));
    write_files(&one, 1..120);
    fs::write(one.join("large"), noise(500, 9_500_000)).unwrap();
    // The other disk has the same files after many of its own, in a file system with blocks of its
    // own within large files.
    write_files(&other, 200..240);
    write_files(&other, 1..120);
    fs::write(other.join("large one"), noise(500, 9_500_000)).unwrap();
    let first = make_disk(&sandbox, "first.raw", &one, ["ext4", "1024"]);
    let second = make_disk(&sandbox, "second.raw", &other, ["ext2", "4096"]);
    let take = |disk: &Path, words: &[&str]| {
        sandbox.json([&["snapshot", disk.to_str().unwrap()][..], words].concat()).remove(0)
    };

    let whole = new_bytes(&take(&first, &["--cut", "files"]));
    assert!(whole > 13_000_000, "{whole}");
    let again = take(&first, &["--cut", "files"]);
    assert!(new_bytes(&again) == 0, "{again}");
    let folder = take(&one, &[]);
    assert!(new_bytes(&folder) * 50 < whole, "the folder is there already: {folder}");
    let own: u64 = (200..240_u64).map(|seed| seed * seed * 7919 % 90_000 + seed).sum();
    let shared = take(&second, &["--cut", "files"]);
    // A leaf is lost where a block of the file system lies within a file: after each 48 KiB.
    assert!(new_bytes(&shared) < own + 5_000_000, "{own}: {shared}");
    let unshared = take(&second, &["--cut", "fixed", "--name", "fixed"]);
    assert!(new_bytes(&unshared) > 2 * new_bytes(&shared), "cut at fixed places, less is shared: {unshared}");

    // Everything else works as with every image.
    assert!(sandbox.ok(["verify", "--data"]).contains("all is well"));
    for (name, disk) in [("first.raw", &first), ("second.raw", &second), ("fixed", &second)] {
        let restored = sandbox.path("restored");
        sandbox.ok(["restore", name, restored.to_str().unwrap()]);
        assert!(fs::read(&restored).unwrap() == fs::read(disk).unwrap(), "{name}");
        // Only what differs is written.
        File::options().write(true).open(&restored).unwrap().write_all_at(&[7; 5000], 3 * MIB).unwrap();
        sandbox.ok(["restore", "--overwrite=always", name, restored.to_str().unwrap()]);
        assert!(fs::read(&restored).unwrap() == fs::read(disk).unwrap(), "{name}");
        fs::remove_file(restored).unwrap();
    }
    // A stranger's reader needs the format page alone.
    if rosetta::is_ready() {
        rosetta::agree(&sandbox);
    }
    let content = sandbox.run(["cat", "second.raw:p1/large one"]);
    assert!(content.stdout == noise(500, 9_500_000));
    let changed = sandbox.ok(["diff", "second.raw", "fixed"]);
    assert!(!changed.contains("file"), "{changed}");
    let published = |name: &str| {
        sandbox.ok(["publish", name, "www", "--key", "publisher.key"]);
        let folders = fs::read_dir(sandbox.path("www/objects")).unwrap();
        folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap()).count()
    };
    let object_count = published("second.raw");
    assert!(object_count > 50, "{object_count}");
    // The same bytes give the same objects; only the index of the edition is another.
    let with_fixed = published("fixed");
    assert!(with_fixed < object_count + 10, "{object_count}, and then {with_fixed}");
    let copy = sandbox.path("copy");
    sandbox.ok(["replicate", copy.to_str().unwrap()]);
    sandbox.ok(["forget", "first.raw"]);
    sandbox.ok(["gc", "--least-dead", "0%"]);
    assert!(sandbox.ok(["verify", "--data"]).contains("all is well"));
}

#[test]
fn neither_a_stream_nor_a_folder_is_cut_at_its_files() {
    let sandbox = Sandbox::encrypted();
    for option in ["--cut=files", "--skip-free"] {
        let refused = sandbox.fails(2, ["snapshot", &sandbox.arg(""), option]);
        assert!(refused.contains("is for disks, but every source is a folder"), "{refused}");
    }
    let run = sandbox.run(["snapshot", "-", "--name", "x", "--cut", "files"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("give a file or a device"), "{}", run.stderr);
}

#[test]
fn a_disk_has_the_same_blocks_in_every_format() {
    if !["mke2fs", "qemu-img", "qemu-nbd"].into_iter().all(has) {
        eprintln!("skipped as there is no mke2fs or QEMU: a_disk_has_the_same_blocks_in_every_format");
        return;
    }
    let sandbox = Sandbox::encrypted();
    write_files(&sandbox.path("files"), 1..60);
    let raw = make_disk(&sandbox, "disk.raw", &sandbox.path("files"), ["ext4", "1024"]);
    let raw = raw.to_str().unwrap();
    sandbox.ok(["snapshot", raw, "--cut", "files"]);
    for (format, name) in [("qcow2", "disk.qcow2"), ("vmdk", "disk.vmdk")] {
        let image = sandbox.arg(name);
        qemu::tool("qemu-img", &["convert", "-f", "raw", "-O", format, raw, &image]);
        let taken = sandbox.json(["snapshot", &image, "--cut", "files"]).remove(0);
        assert_eq!(new_bytes(&taken), 0, "{taken}");
        assert!(sandbox.run(["cat", name]).stdout == fs::read(raw).unwrap(), "{format}");
    }
}

#[test]
fn the_planner_says_what_disks_would_share() {
    if !has("mke2fs") {
        eprintln!("skipped as there is no mke2fs: the_planner_says_what_disks_would_share");
        return;
    }
    let sandbox = Sandbox::empty().planner();
    let disks = [("one", 1..90_u64), ("other", 40..100)].map(|(name, seeds)| {
        write_files(&sandbox.path(name), seeds);
        make_disk(&sandbox, &format!("{name}.raw"), &sandbox.path(name), ["ext4", "1024"])
    });
    let [one, other] = disks.each_ref().map(|disk| disk.to_str().unwrap());
    let cuts = &sandbox.json(["bench", "chunks", one, other])[0]["cuts"];
    let bytes = |way: &str| cuts[way]["bytes"].as_u64().unwrap_or_else(|| panic!("{cuts}"));
    assert!(bytes("at_files") * 5 < bytes("fixed") * 4, "{cuts}");
    let shown = sandbox.ok(["bench", "chunks", one, other]);
    assert!(shown.contains("Cut where their files begin (`--cut files`), the disks have"), "{shown}");
}
