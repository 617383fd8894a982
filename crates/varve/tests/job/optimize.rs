//! `varve optimize`: the blocks of a profile lie together in the new image, which gets its name
//! last.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sandbox::{Run, Sandbox, bytes_on_disk, has, noise, tool, write_program};

const MIB: usize = 1 << 20;
const SIZE: usize = 40 * MIB;
/// The first partition begins here.
const START: usize = MIB;
const PART: usize = 32 * MIB;
/// The start reads every second file, the last one first.
const FILES: u64 = 60;
const READ_FILES: u64 = FILES / 2;

fn read_files() -> impl Iterator<Item = u64> {
    (0..READ_FILES).map(|at| FILES - 2 - 2 * at)
}

/// A disk with an ext4 file system in its first partition.
fn disk(sandbox: &Sandbox, test: &str) -> Option<Vec<u8>> {
    if !["mkfs.ext4", "sfdisk", "e2fsck"].into_iter().all(has) {
        eprintln!("skipped as mkfs.ext4, sfdisk or e2fsck is not installed: {test}");
        return None;
    }
    let (tree, part, path) = (sandbox.path("tree"), sandbox.path("part"), sandbox.path("disk.raw"));
    fs::create_dir_all(&tree).unwrap();
    for number in 0..FILES {
        fs::write(tree.join(format!("file-{number}")), noise(number, 150_000)).unwrap();
    }
    for (path, size) in [(&part, PART), (&path, SIZE)] {
        fs::File::create(path).unwrap().set_len(size as u64).unwrap();
    }
    let words = ["-q", "-F", "-b", "4096", "-d", tree.to_str().unwrap(), part.to_str().unwrap()];
    tool("mkfs.ext4", words);
    let script = sandbox.path("table");
    fs::write(&script, "label: dos\nstart=2048, size=65536, type=83\nstart=67584, size=8192, type=83\n")
        .unwrap();
    let run = format!("sfdisk -q {} < {}", path.display(), script.display());
    tool("sh", ["-c", &run]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[START..START + PART].copy_from_slice(&fs::read(&part).unwrap());
    fs::write(&path, &bytes).unwrap();
    Some(bytes)
}

/// A profile that reads the first 40 KiB of every second file, the last file first, and a place of
/// the second partition.
fn write_profile(sandbox: &Sandbox, disk: &[u8]) {
    let mut text = format!("varve profile 1\nsize = {SIZE}\n");
    for (time, number) in read_files().enumerate() {
        let head = &noise(number, 150_000)[..4096];
        let at = disk.chunks(4096).position(|block| block == head).unwrap() * 4096;
        writeln!(text, "{time} {at} {}", 40 << 10).unwrap();
    }
    writeln!(text, "90 {} 4096", 34 * MIB).unwrap();
    fs::write(sandbox.path("start.profile"), text).unwrap();
}

fn of_type<'a>(lines: &'a [Value], name: &str) -> &'a Value {
    lines.iter().find(|line| line["type"] == name).unwrap_or_else(|| panic!("{name} in {lines:?}"))
}

/// The number of files that have not got their names.
fn unnamed(sandbox: &Sandbox) -> usize {
    let files = fs::read_dir(sandbox.path("")).unwrap();
    files
        .filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().contains(".varve-partial-"))
        .count()
}

/// The command with a script in place of e2fsck.
fn with_e2fsck(sandbox: &Sandbox, script: &str, words: &[&str]) -> Command {
    let program = sandbox.path("bin/e2fsck");
    write_program(&program, &format!("#!/bin/sh\n{script}\n"));
    let mut command = sandbox.command();
    command.env("PATH", format!("{}:{}", sandbox.arg("bin"), std::env::var("PATH").unwrap()));
    command.args(words);
    command
}

fn check_clean(image: &Path, part: &Path) {
    fs::write(part, &fs::read(image).unwrap()[START..START + PART]).unwrap();
    tool("e2fsck", ["-fn", part.to_str().unwrap()]);
}

#[test]
fn the_blocks_of_a_start_lie_together() {
    let sandbox = Sandbox::encrypted();
    let Some(bytes) = disk(&sandbox, "the_blocks_of_a_start_lie_together") else { return };
    write_profile(&sandbox, &bytes);
    let (image, profile, output) =
        (sandbox.arg("disk.raw"), sandbox.arg("start.profile"), sandbox.arg("new.raw"));
    fs::set_permissions(&image, PermissionsExt::from_mode(0o600)).unwrap();

    let plan = sandbox.json(["optimize", &image, "--profile", &profile, "--plan"]);
    assert!(!sandbox.path("new.raw").exists());
    let lines = sandbox.json(["optimize", &image, "--profile", &profile, "-o", &output]);
    assert_eq!(of_type(&plan, "relocated_volume"), of_type(&lines, "relocated_volume"));
    let moved = of_type(&lines, "relocated_volume");
    assert_eq!((moved["volume"].as_str(), moved["files"].as_u64()), (Some("p1"), Some(30)));
    assert_eq!((moved["moved_bytes"].as_u64(), moved["ranges"].as_u64()), (Some((30 * 40) << 10), Some(1)));
    let refused = of_type(&lines, "refused_volume");
    assert_eq!((refused["volume"].as_str(), refused["read_bytes"].as_u64()), (Some("p2"), Some(4096)));
    let units = of_type(&lines, "relocation");
    let count = |name: &str| units[name].as_u64().unwrap();
    // 1.2 MB are ten blocks of 128 KiB, and the other partition has one more.
    assert!(count("units_before") > 30 && count("units_after") == 11, "{units}");
    assert_eq!(of_type(&lines, "relocation_checked")["e2fsck"], serde_json::json!(["p1"]));
    assert!(fs::read(sandbox.path("disk.raw")).unwrap() == bytes, "nothing is written in place");
    check_clean(&sandbox.path("new.raw"), &sandbox.path("part"));
    let mode = fs::metadata(&output).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it is as private as the old image");
    assert!(bytes_on_disk(Path::new(&output)) < 20 << 20, "zeros are holes");
    let new = fs::read(sandbox.path("new.raw")).unwrap();
    let place = |number: u64| {
        let head = &noise(number, 150_000)[..4096];
        new.chunks(4096).enumerate().filter(|(_, block)| *block == head).map(|(at, _)| at).collect::<Vec<_>>()
    };
    // The old blocks are free, and keep their bytes.
    let first = place(58)[1];
    for (at, number) in read_files().enumerate() {
        assert_eq!(place(number)[1], first + 10 * at, "file {number}");
    }
    assert_eq!(first * 4096 % MIB, 0);

    // An image that exists is not replaced.
    for name in ["new.raw", "disk.raw", "dangling"] {
        drop(std::os::unix::fs::symlink("nowhere", sandbox.path("dangling")));
        let refused = sandbox.fails(1, ["optimize", &image, "--profile", &profile, "-o", &sandbox.arg(name)]);
        assert!(refused.contains("exists: name a new file"), "{refused}");
    }
    assert!(fs::read(&output).unwrap() == new && fs::read(&image).unwrap() == bytes);
    assert_eq!(unnamed(&sandbox), 0);

    // The same, from a snapshot to a snapshot.
    sandbox.ok(["snapshot", &image, "--name", "web", "--as", "image"]);
    let lines = sandbox.json(["optimize", "web", "--profile", &profile, "--name", "web-fast"]);
    assert_eq!(of_type(&lines, "snapshot")["name"], "web-fast");
    assert_eq!(of_type(&lines, "relocation_checked")["e2fsck"], serde_json::json!(["p1"]));
    sandbox.ok(["restore", "web-fast", &sandbox.arg("restored.raw")]);
    assert!(fs::read(sandbox.path("restored.raw")).unwrap() == new);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "waits for another program")]
fn an_image_that_is_not_checked_gets_no_name() {
    let sandbox = Sandbox::encrypted();
    let Some(bytes) = disk(&sandbox, "an_image_that_is_not_checked_gets_no_name") else { return };
    write_profile(&sandbox, &bytes);
    let output = sandbox.path("new.raw");
    let to_file = ["optimize", "disk.raw", "--profile", "start.profile", "-o", "new.raw"];
    let to_store = ["optimize", "disk.raw", "--profile", "start.profile", "--name", "fast"];
    for words in [&to_file, &to_store] {
        // It sees the structure of the new file system, and has something against it.
        let script = "[ $(od -An -tx2 -j1080 -N2 /dev/stdin) = ef53 ] && echo 'Pass 1: x' && echo 'Free blocks count wrong'; exit 4";
        let run = Run::new(with_e2fsck(&sandbox, script, words).output().unwrap());
        assert_eq!(run.code, Some(1), "{}{}", run.text(), run.stderr);
        assert!(run.stderr.contains("e2fsck refuses p1: Free blocks count wrong"), "{}", run.stderr);
        // A signal while e2fsck works.
        let script = "kill -TERM $PPID; sleep 0.3; exit 0";
        let run = Run::new(with_e2fsck(&sandbox, script, words).output().unwrap());
        assert_eq!(run.code, Some(130), "{}{}", run.text(), run.stderr);
        assert!(!output.exists() && unnamed(&sandbox) == 0 && sandbox.ids().is_empty());
    }
    // It is not told secrets that open stores or targets.
    let mut command = with_e2fsck(&sandbox, "env > environment; exit 4", &to_file);
    let secrets = ["VARVE_PASSPHRASE", "VARVE_REMOTE_PASSWORD", "AWS_SECRET_ACCESS_KEY"];
    let run = Run::new(command.envs(secrets.map(|secret| (secret, "hunter2"))).output().unwrap());
    assert_eq!(run.code, Some(1), "{}{}", run.text(), run.stderr);
    let environment = fs::read_to_string(sandbox.path("environment")).unwrap();
    assert!(environment.contains("LC_ALL") && !environment.contains("hunter2"), "{environment}");
    // Another program takes the name meanwhile.
    let run = Run::new(with_e2fsck(&sandbox, "echo mine > new.raw", &to_file).output().unwrap());
    assert_eq!(run.code, Some(1), "{}{}", run.text(), run.stderr);
    assert_eq!((fs::read(&output).unwrap().as_slice(), unnamed(&sandbox)), (&b"mine\n"[..], 0));
    fs::remove_file(&output).unwrap();
    // A kill while e2fsck works: the new image is whole, and has no name.
    let script = "touch working; while kill -0 $PPID; do sleep 0.05; done";
    let mut command = with_e2fsck(&sandbox, script, &to_file);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !sandbox.path("working").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "e2fsck never runs");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!output.exists() && unnamed(&sandbox) == 1);
    // The next run does not need what is left of it.
    sandbox.ok(to_file);
    assert!(output.exists());
}

#[test]
fn images_that_are_not_understood_are_refused() {
    let sandbox = Sandbox::encrypted();
    let Some(bytes) = disk(&sandbox, "images_that_are_not_understood_are_refused") else { return };
    write_profile(&sandbox, &bytes);
    let words = ["optimize", "disk.raw", "--profile", "start.profile", "-o", "new.raw"];
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = bytes.clone();
        change(&mut changed);
        fs::write(sandbox.path("disk.raw"), &changed).unwrap();
        let refused = sandbox.fails(1, words);
        assert!(!sandbox.path("new.raw").exists() && unnamed(&sandbox) == 0);
        assert!(!refused.contains("panicked"), "{refused}");
        refused
    };
    let superblock = START + 1024;
    // The state that a mount sets. The checksum is no longer right: a mounted disk is older in one
    // part than in another.
    let found = refused(&|disk| disk[superblock + 0x3a] = 0);
    assert!(found.contains("there is no new image of") && found.contains("p1: "), "{found}");
    // No file system, an impossible one, and tables with other bytes.
    let found = refused(&|disk| disk[superblock + 0x38] = 0);
    assert!(found.contains("only ext2, ext3 and ext4 are moved"), "{found}");
    for at in [0x00, 0x04, 0x18, 0x20, 0x28] {
        refused(&|disk| disk[superblock + at..superblock + at + 4].fill(0xff));
    }
    for (at, seed) in [(4096, 1), (8192, 2)] {
        refused(&|disk| disk[START + at..START + at + 4096].copy_from_slice(&noise(seed, 4096)));
    }
    refused(&|disk| disk.truncate(START + PART / 2));
    let found = refused(&|disk| disk.fill(0));
    assert!(found.contains("p0: its content is empty"), "{found}");
    // Not an image.
    fs::write(sandbox.path("disk.raw"), b"QFI\xfb\0\0\0\x03").unwrap();
    let found = sandbox.fails(1, words);
    assert!(found.contains("is in the format qcow2"), "{found}");
    sandbox.fails(1, ["optimize", "tree", "--profile", "start.profile", "-o", "new.raw"]);
    sandbox.ok(["snapshot", "tree", "--name", "folder"]);
    let found = sandbox.fails(1, ["optimize", "absent", "--profile", "start.profile", "-o", "new.raw"]);
    assert!(found.contains("absent"), "{found}");
    let found = sandbox.fails(1, ["optimize", "folder", "--profile", "start.profile", "-o", "new.raw"]);
    assert!(found.contains("is a folder"), "{found}");
    sandbox.fails(2, ["optimize", "disk.raw", "--profile", "start.profile"]);
    sandbox.fails(2, ["optimize", "disk.raw", "-o", "new.raw"]);
}

#[test]
fn a_profile_of_another_disk_does_no_harm() {
    let sandbox = Sandbox::encrypted();
    let Some(bytes) = disk(&sandbox, "a_profile_of_another_disk_does_no_harm") else { return };
    write_profile(&sandbox, &bytes);
    let words = ["optimize", "disk.raw", "--profile", "other.profile", "-o", "new.raw"];
    let other = |text: &str| fs::write(sandbox.path("other.profile"), text).unwrap();
    let found = sandbox.fails(1, words);
    assert!(found.contains("cannot read other.profile"), "{found}");
    other("varve profile 2\n");
    let found = sandbox.fails(13, words);
    assert!(found.contains("other.profile is no profile"), "{found}");
    // It reads nothing that this disk has.
    other("varve profile 1\nsize = 1099511627776\n0 549755813888 1048576\n");
    let found = sandbox.fails(1, words);
    assert!(found.contains("it may be the profile of another disk"), "{found}");
    assert!(found.contains("the profile reads none of its volumes"), "{found}");
    // Some of its reads are beyond the end, and some hit free space and metadata.
    let text = format!(
        "varve profile 1\nsize = 1099511627776\n0 {} {MIB}\n0 {START} {}\n",
        SIZE - MIB / 2,
        PART / 2
    );
    other(&text);
    let run = sandbox.run(words);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    assert!(run.stderr.contains("it may be the profile of another disk"), "{}", run.stderr);
    check_clean(&sandbox.path("new.raw"), &sandbox.path("part"));
}
