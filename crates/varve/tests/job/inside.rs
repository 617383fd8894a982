//! Files inside disk images: the real program lists, finds, compares and restores them like the
//! files of a folder.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::sandbox;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use crate::sandbox::{Sandbox, bytes_on_disk, has, is_root, manifest, noise, sample_folder, tool};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const TABLE: &str = "label: gpt
start=2048, size=65536, type=linux, name=root
start=67584, size=8192, type=swap, name=swap
start=75776, size=8192, type=linux, name=secret";

fn lacks_programs() -> bool {
    let absent: Vec<_> =
        ["sfdisk", "mke2fs", "debugfs", "mkswap"].into_iter().filter(|name| !has(name)).collect();
    if !absent.is_empty() {
        eprintln!("SKIPPED: {absent:?} not installed");
    }
    !absent.is_empty()
}

/// Makes a disk with three partitions: a file system that holds `source`, swap, and unreadable
/// contents.
fn disk(sandbox: &Sandbox, source: &Path) {
    let (disk, volume) = (sandbox.arg("disk.img"), sandbox.arg("volume"));
    File::create(&disk).unwrap().set_len(48 * MIB).unwrap();
    fs::write(sandbox.path("table"), TABLE).unwrap();
    tool("sh", ["-c", &format!("sfdisk -q '{disk}' < '{}'", sandbox.arg("table"))]);
    let _ = fs::remove_file(&volume);
    tool("mke2fs", ["-q", "-F", "-t", "ext4", "-d", source.to_str().unwrap(), &volume, "32M"]);
    put_volume(sandbox);
    let swap = sandbox.arg("swap");
    fs::write(&swap, vec![0; 4 << 20]).unwrap();
    tool("sh", ["-c", &format!("chmod 600 '{swap}'; mkswap -q '{swap}' || mkswap '{swap}' >/dev/null")]);
    sandbox::write_at(Path::new(&disk), 33 * MIB, &fs::read(&swap).unwrap());
    sandbox::write_at(Path::new(&disk), 37 * MIB, b"LUKS\xba\xbe\0\x01");
}

fn put_volume(sandbox: &Sandbox) {
    let mut disk = OpenOptions::new().write(true).open(sandbox.path("disk.img")).unwrap();
    disk.seek(SeekFrom::Start(MIB)).unwrap();
    std::io::copy(&mut File::open(sandbox.path("volume")).unwrap(), &mut disk).unwrap();
}

fn night(sandbox: &Sandbox, day: u8) {
    sandbox.ok([
        "snapshot",
        "-q",
        "--name",
        "disk",
        "--time",
        &format!("2026-05-0{day}"),
        &sandbox.arg("disk.img"),
    ]);
}

/// Changes the files on the disk with `debugfs` requests.
fn change(sandbox: &Sandbox, requests: &str) {
    fs::write(sandbox.path("requests"), requests).unwrap();
    tool("debugfs", ["-w", "-f", &sandbox.arg("requests"), &sandbox.arg("volume")]);
    put_volume(sandbox);
}

/// Makes a folder with every kind of node that `mke2fs -d` can put into an image. It cannot put
/// sockets there.
fn source(sandbox: &Sandbox) -> std::path::PathBuf {
    let source = sandbox.path("source");
    sample_folder(&source);
    fs::create_dir_all(source.join("etc/deep")).unwrap();
    fs::write(source.join("etc/deep/conf"), b"the first\n").unwrap();
    fs::write(source.join("etc/other"), noise(5, 100_000)).unwrap();
    symlink("deep/conf", source.join("etc/link")).unwrap();
    source
}

/// Removes the fractions of seconds from a description, because `mke2fs` does not keep them.
fn seconds(text: &str) -> String {
    let (before, after) = text.split_once('.').unwrap();
    format!("{before}{}", &after[9..])
}

#[test]
fn what_is_restored_from_inside_is_what_was_put_there() {
    if lacks_programs() {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let source = source(&sandbox);
    disk(&sandbox, &source);
    night(&sandbox, 1);

    sandbox.ok(["restore", "disk:p1", &sandbox.arg("out")]);
    let (mut expected, mut found) = (manifest(&source), manifest(&sandbox.path("out")));
    found.retain(|path, _| !path.starts_with("lost+found"));
    if !is_root() {
        // Without root, both sides belong to the user who restores.
        expected.remove(Path::new(""));
        found.remove(Path::new(""));
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (path, what) in &expected {
        // The root folder has the times at which the image was made.
        if path.as_os_str().is_empty() {
            continue;
        }
        assert_eq!(seconds(&found[path]), seconds(what), "{}", path.display());
    }

    sandbox.ok(["restore", "disk:p1/etc/deep/conf", &sandbox.arg("conf")]);
    assert_eq!(fs::read(sandbox.path("conf")).unwrap(), b"the first\n");
    assert_eq!(sandbox.run(["cat", "disk:p1/etc/other"]).stdout, noise(5, 100_000));
    let exists = sandbox.fails(1, ["restore", "disk:p1/etc", &sandbox.arg("out")]);
    assert!(exists.contains("exists"), "{exists}");
}

#[test]
fn holes_come_back_as_holes() {
    if lacks_programs() {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let source = sandbox.path("source");
    fs::create_dir(&source).unwrap();
    let sparse = source.join("sparse");
    File::create(&sparse).unwrap().set_len(500 * MIB).unwrap();
    sandbox::write_at(&sparse, 300 * MIB, &noise(9, 10_000));
    disk(&sandbox, &source);
    night(&sandbox, 1);
    sandbox.ok(["restore", "disk:p1/sparse", &sandbox.arg("back")]);
    let back = sandbox.path("back");
    assert_eq!(fs::metadata(&back).unwrap().len(), 500 * MIB);
    assert!(bytes_on_disk(&back) < MIB, "{}", bytes_on_disk(&back));
    tool("cmp", [&sparse, &back]);
    assert_eq!(fs::metadata(&back).unwrap().mtime(), fs::metadata(&sparse).unwrap().mtime());
}

#[test]
fn a_disk_is_listed_and_found_in() {
    if lacks_programs() {
        return;
    }
    let sandbox = Sandbox::encrypted();
    disk(&sandbox, &source(&sandbox));
    night(&sandbox, 1);

    let listed = sandbox.ok(["ls", "disk"]);
    for (name, holds, size, label) in [
        ("p1/", "ext4", "32.0 MiB", "root"),
        ("p2", "swap", "4.00 MiB", "swap"),
        ("p3", "LUKS", "4.00 MiB", "secret"),
    ] {
        let has_all = |line: &str| {
            line.starts_with(name) && [holds, size, label].iter().all(|part| line.contains(part))
        };
        assert!(listed.lines().any(has_all), "{name}: {listed}");
    }
    assert!(listed.lines().any(|line| line.starts_with("disk.raw") && line.contains("48.0 MiB")), "{listed}");
    let volumes = sandbox.json(["ls", "disk"]);
    let of = |key: &str| volumes.iter().map(|volume| volume[key].clone()).collect::<Vec<Value>>();
    assert_eq!(of("path"), ["p1", "p2", "p3", "disk.raw"]);
    assert_eq!(of("holds")[..3], ["ext4", "swap", "LUKS"]);
    assert_eq!(of("files")[..3], [true, false, false]);

    let etc = sandbox.ok(["ls", "disk:p1/etc"]);
    assert_eq!(etc.lines().collect::<Vec<_>>(), ["deep/", "link", "other"]);
    let long = sandbox.ok(["ls", "-l", "disk@2026-05-01:/p1/etc/link"]);
    assert!(long.starts_with("lrwxrwxrwx") && long.trim_end().ends_with("link -> deep/conf"), "{long}");
    let all = sandbox.ok(["ls", "-R", "disk"]);
    assert!(
        all.lines().any(|line| line == "p1/etc/deep/conf") && all.lines().any(|line| line == "p2  (swap)"),
        "{all}"
    );

    let found = sandbox.ok(["find", "conf"]);
    assert!(found.trim_end().ends_with("disk  p1/etc/deep/conf") && found.lines().count() == 1, "{found}");
    assert_eq!(sandbox.json(["find", "p1/etc/*", "disk"]).len(), 3);
    assert_eq!(sandbox.json(["find", "*", "disk:p1/etc/deep"])[1]["path"], "p1/etc/deep/conf");

    let absent = sandbox.fails(1, ["cat", "disk:p1/etc/nothing"]);
    assert!(absent.contains("there is no p1/etc/nothing"), "{absent}");
    assert!(sandbox.fails(1, ["ls", "disk:p9"]).contains("there is no p9"));
    assert!(sandbox.fails(1, ["cat", "disk:p1/etc"]).contains("only a file"));
}

#[test]
fn what_cannot_be_read_is_its_bytes() {
    if lacks_programs() {
        return;
    }
    let sandbox = Sandbox::encrypted();
    disk(&sandbox, &source(&sandbox));
    night(&sandbox, 1);
    let disk = fs::read(sandbox.path("disk.img")).unwrap();
    let bytes = |from: u64, length: u64| {
        &disk[usize::try_from(from * MIB).unwrap()..][..usize::try_from(length * MIB).unwrap()]
    };
    for (path, expected) in [
        ("disk", &disk[..]),
        ("disk:disk.raw", &disk[..]),
        ("disk:p1.raw", bytes(1, 32)),
        ("disk:p2", bytes(33, 4)),
        ("disk:p3", bytes(37, 4)),
    ] {
        assert!(sandbox.run(["cat", path]).stdout == expected, "{path}");
        sandbox.ok(["restore", "--overwrite", "always", path, &sandbox.arg("back")]);
        assert!(fs::read(sandbox.path("back")).unwrap() == expected, "{path}");
    }
}

#[test]
fn two_nights_are_compared_by_file() {
    if lacks_programs() {
        return;
    }
    let sandbox = Sandbox::encrypted();
    disk(&sandbox, &source(&sandbox));
    night(&sandbox, 1);
    night(&sandbox, 2);
    fs::write(sandbox.path("new"), b"the other\n").unwrap();
    let new = sandbox.arg("new");
    // The test compares contents only: debugfs sets the other fields of the inode in its own way.
    change(
        &sandbox,
        &format!("rm /etc/other\nrm /etc/deep/conf\nwrite {new} /etc/deep/conf\nwrite {new} /etc/added\n"),
    );
    night(&sandbox, 3);

    assert_eq!(sandbox.ok(["diff", "disk@2026-05-01", "disk@2026-05-02"]), "");
    let changed = sandbox.ok(["diff", "disk@2026-05-02", "disk@2026-05-03"]);
    let lines: Vec<_> = changed.lines().filter(|line| !line.starts_with("m ")).collect();
    assert_eq!(
        lines,
        ["+ p1/etc/added  10 B", "M p1/etc/deep/conf  10 B", "- p1/etc/other  97.7 KiB"],
        "{changed}"
    );
    let within = sandbox.ok(["diff", "disk@2026-05-02:p1/etc", "disk@2026-05-03:p1/etc"]);
    assert!(within.contains("M deep/conf") && within.contains("+ added"), "{within}");
    let json = sandbox.json(["diff", "disk@2026-05-02", "disk@2026-05-03"]);
    assert!(json.iter().any(|change| change["path"] == "p1/etc/added" && change["change"] == "added"));
    let raw = sandbox.ok(["diff", "disk@2026-05-02:p1.raw", "disk@2026-05-03:p1.raw"]);
    assert!(raw.starts_with("bytes ") && raw.contains(" of 32.0 MiB differ"), "{raw}");
    let mixed = sandbox.fails(1, ["diff", "disk:p2", "disk:p1/etc"]);
    assert!(mixed.contains("cannot be compared"), "{mixed}");

    // A byte is changed without the file system's knowledge. The comparison finds it, although the
    // file's times are unchanged.
    let place = {
        let disk = fs::read(sandbox.path("disk.img")).unwrap();
        disk.windows(10).position(|window| window == b"the other\n").unwrap()
    };
    sandbox::write_at(&sandbox.path("disk.img"), place as u64, b"The other\n");
    night(&sandbox, 4);
    let sneaked = sandbox.ok(["diff", "disk@2026-05-03", "disk@2026-05-04"]);
    assert_eq!(sneaked.lines().count(), 1, "{sneaked}");
    assert!(sneaked.starts_with("M p1/etc/"), "{sneaked}");
}

/// Returns the answer of `debugfs` to a request about the volume.
fn ask(sandbox: &Sandbox, request: &str) -> String {
    let mut command = std::process::Command::new("debugfs");
    let said = command.args(["-R", request]).arg(sandbox.path("volume")).output().unwrap();
    String::from_utf8(said.stdout).unwrap()
}

/// Returns the decimal or hexadecimal number after a word.
fn number_after(text: &str, word: &str) -> u64 {
    let rest = text.split_once(word).unwrap_or_else(|| panic!("{word} in {text}")).1.trim_start();
    let digits: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
    match digits.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).unwrap(),
        None => digits.parse().unwrap(),
    }
}

#[test]
fn what_is_damaged_is_named_and_the_rest_goes_on() {
    if lacks_programs() {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let source = source(&sandbox);
    fs::write(source.join("etc/zone"), b"after all that is damaged\n").unwrap();
    disk(&sandbox, &source);
    night(&sandbox, 1);

    let block_bytes = number_after(&ask(&sandbox, "stats"), "Block size:");
    let inode = ask(&sandbox, "imap /etc/other");
    let inode_at = number_after(&inode, "located at block") * block_bytes + number_after(&inode, "offset");
    let folder_at = ask(&sandbox, "bmap /etc/deep 0").trim().parse::<u64>().unwrap() * block_bytes;
    let disk = sandbox.path("disk.img");
    // The inode gets an impossible type, and an entry of the folder gets a length beyond its block.
    sandbox::write_at(&disk, MIB + inode_at, &[0xff, 0xff]);
    sandbox::write_at(&disk, MIB + folder_at + 4, &[0x07, 0xff]);
    night(&sandbox, 2);

    let names_both = |words: &[&str]| {
        let run = sandbox.run(words);
        assert_eq!(run.code, Some(3), "{words:?}: {}", run.stderr);
        for (path, what) in [("other: ", "the inode"), ("deep: ", "the folder of inode")] {
            let is_it = |line: &str| line.contains(path) && line.contains(what);
            assert!(run.stderr.lines().any(is_it), "{words:?}: {path}: {}", run.stderr);
        }
        String::from_utf8(run.stdout).unwrap()
    };
    let listed = names_both(&["ls", "-R", "disk:p1"]);
    assert!(listed.lines().any(|line| line == "etc/zone"), "{listed}");
    let listed = names_both(&["ls", "-R", "disk"]);
    assert!(listed.lines().any(|line| line == "p1/etc/zone"), "{listed}");
    let found = names_both(&["find", "z*", "disk"]);
    assert!(found.contains("p1/etc/zone"), "{found}");
    let removed = names_both(&["diff", "disk@2026-05-01", "disk"]);
    assert!(!removed.contains("zone"), "{removed}");
    names_both(&["restore", "disk:p1", &sandbox.arg("out")]);
    assert_eq!(fs::read(sandbox.path("out/etc/zone")).unwrap(), b"after all that is damaged\n");
    assert!(!sandbox.path("out/etc/other").exists());

    let direct = sandbox.fails(1, ["cat", "disk:p1/etc/other"]);
    assert!(direct.contains("inode"), "{direct}");
    let beside = sandbox.run(["ls", "disk:p1/etc"]);
    assert_eq!(beside.code, Some(3), "{}", beside.stderr);
    assert!(
        beside.stderr.contains("other: the inode") && !beside.stderr.contains("deep"),
        "{}",
        beside.stderr
    );
}

#[test]
fn what_no_volume_shows_is_named_in_a_listing_of_all() {
    if lacks_programs() {
        return;
    }
    let sandbox = Sandbox::encrypted();
    disk(&sandbox, &source(&sandbox));
    // The superblock and its copies become invalid, but keep the magic number of ext4.
    let mut volume = fs::read(sandbox.path("volume")).unwrap();
    let magic: Vec<_> = volume
        .windows(2)
        .enumerate()
        .filter(|(at, two)| at % 1024 == 56 && *two == [0x53, 0xef])
        .map(|(at, _)| at)
        .collect();
    for at in magic {
        volume[at + 32..at + 34].fill(0xff);
    }
    fs::write(sandbox.path("volume"), volume).unwrap();
    put_volume(&sandbox);
    night(&sandbox, 1);
    let run = sandbox.run(["ls", "-R", "disk"]);
    let listed = String::from_utf8(run.stdout).unwrap();
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["p1  (ext4)", "p2  (swap)", "p3  (LUKS)"]);
    assert_eq!(run.code, Some(3), "there were files in p1");
    assert!(run.stderr.contains("p1: ") && run.stderr.contains("shown as raw bytes"), "{}", run.stderr);
    let json = sandbox.run(["ls", "-R", "--json", "disk:disk.raw"]);
    assert_eq!(json.code, Some(0));

    File::create(sandbox.path("disk.img")).unwrap().set_len(MIB).unwrap();
    night(&sandbox, 2);
    assert_eq!(sandbox.ok(["ls", "-R", "disk"]), "p0  (empty)\n");
    assert_eq!(sandbox.json(["ls", "-R", "disk"])[0]["holds"], "empty");
}
