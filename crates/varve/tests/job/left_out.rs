//! Swap and free blocks of disk images are archived as zeros, and the restored disk works as
//! before.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::makers;
use crate::sandbox;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::makers::pair::{PLACES, Place, Round, Sweep};
use crate::makers::{MAKERS, Maker, VOLUME_BYTES, maker};
use crate::sandbox::{Sandbox, has, noise, tool};

const MIB: u64 = 1 << 20;
/// A Linux partition and a swap partition, as in `make-days`, and a swap partition with a header
/// from `mkswap`.
const TABLE: &str = "label: dos\nstart=2048, size=49152, type=83\nstart=51200, size=8192, type=82\nstart=59392, size=8192, type=82\n";
const SIZE: u64 = 33 * MIB;

fn read(path: &Path, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    File::open(path).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Makes a disk with an ext4 file system and two swap partitions full of secrets. The file system
/// has a swap file and remains of removed files.
fn make_disk(sandbox: &Sandbox) -> std::path::PathBuf {
    let (disk, part, tree) = (sandbox.path("web.img"), sandbox.path("part"), sandbox.path("tree"));
    let run = |words: &[&str]| tool(words[0], words[1..].iter().copied());
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(
        tree.join("etc/fstab"),
        "LABEL=x / ext4 rw 0 1\n/other\\040place none swap\n/var/memory none swap sw 0 0\n",
    )
    .unwrap();
    fs::create_dir(tree.join("var")).unwrap();
    fs::write(tree.join("noise"), noise(1, 3_000_000)).unwrap();
    fs::write(tree.join("removed"), noise(2, 4_000_000)).unwrap();
    for name in ["var/memory", "swapfile", "var/swap"] {
        fs::write(tree.join(name), noise(3, 2 << 20)).unwrap();
        run(&["mkswap", "-q", tree.join(name).to_str().unwrap()]);
    }
    run(&[
        "mkfs.ext4",
        "-q",
        "-F",
        "-b",
        "4096",
        "-d",
        tree.to_str().unwrap(),
        part.to_str().unwrap(),
        "24M",
    ]);
    for command in [
        "rm removed",
        "set_inode_field var/memory mode 0100600",
        "set_inode_field var/memory uid 0",
        // Other users may read this file, so it is not a swap file, whatever it contains.
        "set_inode_field swapfile mode 0100644",
        // This file does not belong to root.
        "set_inode_field var/swap mode 0100600",
        "set_inode_field var/swap uid 1000",
    ] {
        run(&["debugfs", "-w", "-R", command, part.to_str().unwrap()]);
    }
    let table = sandbox.path("table");
    fs::write(&table, TABLE).unwrap();
    let file = File::create(&disk).unwrap();
    file.set_len(SIZE).unwrap();
    run(&["sh", "-c", &format!("sfdisk -q {} < {}", disk.display(), table.display())]);
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&fs::read(&part).unwrap(), MIB).unwrap();
    // The second partition has remains of swap without a header. The third has a swap header.
    file.write_all_at(&noise(4, 1 << 20), 26 * MIB).unwrap();
    let swap = sandbox.path("swap");
    fs::write(&swap, noise(5, 4 << 20)).unwrap();
    run(&["mkswap", "-q", swap.to_str().unwrap()]);
    file.write_all_at(&fs::read(&swap).unwrap(), 29 * MIB).unwrap();
    disk
}

fn restored(sandbox: &Sandbox, name: &str) -> std::path::PathBuf {
    let path = sandbox.path(&format!("restored {name}"));
    sandbox.ok(["restore", name, path.to_str().unwrap()]);
    path
}

fn content(sandbox: &Sandbox, disk: &Path, name: &str) -> Vec<u8> {
    let (part, out) = (sandbox.path("looked at"), sandbox.path("content"));
    fs::write(&part, read(disk, MIB, 24 * MIB)).unwrap();
    tool("e2fsck", ["-fn", part.to_str().unwrap()]);
    let _ = fs::remove_file(&out);
    tool("debugfs", ["-R", &format!("dump {name} {}", out.display()), part.to_str().unwrap()]);
    fs::read(out).unwrap()
}

#[test]
fn swap_is_zeros_and_the_rest_is_as_it_was() {
    if !["mkfs.ext4", "debugfs", "e2fsck", "sfdisk", "mkswap"].into_iter().all(has) {
        eprintln!("skipped: disks with swap, which need e2fsprogs, sfdisk and mkswap");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let disk = make_disk(&sandbox);
    let said = sandbox.ok(["snapshot", disk.to_str().unwrap(), "--name", "lean"]);
    let expected = ["left out: swap of p3, ", "left out: /var/memory of p1, "];
    assert!(expected.iter().all(|line| said.contains(line)), "{said}");
    assert_eq!(said.matches("left out").count(), 2, "{said}");
    // Every later list of snapshots and volumes shows the parts that were left out.
    let listed = sandbox.ok(["snapshots", "-v"]);
    assert!(expected.iter().all(|line| listed.contains(line)), "{listed}");
    assert!(listed.contains("kept: swap of p2: it has no swap header"), "{listed}");
    let volumes = sandbox.ok(["ls", "lean"]);
    assert!(expected.iter().all(|line| volumes.contains(line)), "{volumes}");
    let swap = sandbox.ok(["ls", "lean:p3"]);
    assert!(swap.contains(expected[0]) && !swap.contains(expected[1]), "{swap}");
    let files = sandbox.run(["ls", "lean:p1"]).stderr;
    assert!(files.contains(expected[1]) && !files.contains(expected[0]), "{files}");
    let line = sandbox.json(["snapshots"]).remove(0);
    let line = if line.is_array() { line[0].clone() } else { line };
    let parts = line["left_out"].as_array().unwrap();
    let of = |volume: &str| parts.iter().find(|part| part["volume"] == volume).unwrap();
    assert_eq!((&of("p3")["what"], &of("p3")["bytes"]), (&"swap".into(), &(4 * MIB - 4096).into()));
    assert!(of("p3")["why"].is_string() && of("p3")["kept_because"].is_null(), "{line}");
    assert!(of("p2")["kept_because"].is_string() && of("p2")["bytes"] == 0, "{line}");
    let whole =
        sandbox.json(["snapshot", disk.to_str().unwrap(), "--name", "whole", "--keep-swap"]).remove(0);
    assert_eq!(whole["left_out_bytes"], 0);
    let thin = sandbox.json(["snapshot", disk.to_str().unwrap(), "--name", "thin", "--skip-free"]).remove(0);
    let page = 4096;
    assert!(thin["left_out_bytes"].as_u64().unwrap() > 4 * MIB + 2 * MIB + 4_000_000 - 16_384, "{thin}");

    assert!(
        fs::read(restored(&sandbox, "whole")).unwrap() == fs::read(&disk).unwrap(),
        "all is kept if asked"
    );
    for name in ["lean", "thin"] {
        let lean = restored(&sandbox, name);
        assert_eq!(read(&lean, 25 * MIB, 4 * MIB), read(&disk, 25 * MIB, 4 * MIB), "no header proves it");
        assert!(is_zero(&read(&lean, 29 * MIB + page, 4 * MIB - page)), "what says that it is swap");
        assert_eq!(read(&lean, 29 * MIB, page), read(&disk, 29 * MIB, page), "its header stays");
        let volumes = varve_image::Disk::open(Arc::new(File::open(&lean).unwrap()));
        assert_eq!(volumes.volume("p3").unwrap().content(), varve_image::VolumeContent::Swap);
        for file in ["noise", "swapfile", "var/swap", "etc/fstab"] {
            assert!(
                content(&sandbox, &lean, file) == fs::read(sandbox.path("tree").join(file)).unwrap(),
                "{name}: {file}"
            );
        }
        let (memory, before) =
            (content(&sandbox, &lean, "var/memory"), fs::read(sandbox.path("tree/var/memory")).unwrap());
        assert_eq!(memory[..4096], before[..4096]);
        assert!(is_zero(&memory[4096..]) && memory.len() == before.len());
        assert_eq!(read(&lean, 0, MIB), read(&disk, 0, MIB), "the table and what is beside it");
    }
    let (lean, removed) = (fs::read(sandbox.path("restored thin")).unwrap(), noise(2, 4096));
    let finds = |bytes: &[u8]| bytes.chunks_exact(1024).any(|chunk| chunk == &removed[..1024]);
    assert!(finds(&fs::read(&disk).unwrap()) && !finds(&lean), "what was removed is gone");
    sandbox.ok(["verify", "--data"]);
}

#[test]
fn nothing_is_left_out_of_a_file_system_that_waits_for_recovery() {
    if !["mkfs.ext4", "debugfs", "e2fsck", "sfdisk", "mkswap"].into_iter().all(has) {
        eprintln!("skipped: disks with swap, which need e2fsprogs, sfdisk and mkswap");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let disk = make_disk(&sandbox);
    let part = sandbox.path("part");
    tool("debugfs", ["-w", "-R", "feature needs_recovery", part.to_str().unwrap()]);
    File::options().write(true).open(&disk).unwrap().write_all_at(&fs::read(&part).unwrap(), MIB).unwrap();
    let output = sandbox.run([
        "snapshot",
        disk.to_str().unwrap(),
        "--name",
        "web",
        "--skip-free",
        "--keep-swap",
        "--json",
    ]);
    let said = output.complaints();
    assert_eq!(output.code, Some(0), "{said}");
    assert!(said.contains("kept: free blocks of p1: the free blocks are uncertain"), "{said}");
    assert!(fs::read(restored(&sandbox, "web")).unwrap() == fs::read(&disk).unwrap());
}

#[test]
fn what_is_read_only_once_is_kept_whole() {
    let sandbox = Sandbox::encrypted();
    let output = sandbox.run(["snapshot", "-", "--name", "x", "--skip-free"]);
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("give a file or a device"), "{}", output.stderr);
}

/// Returns the pairs to try. With `VARVE_PAIRS=all` these are all pairs in all places (`script/soak
/// --pairs`). Otherwise they are the contents that may be left out over an empty volume, in all
/// places, and all makers over some of these contents, in few places. Remains are made once for
/// several new contents.
fn chosen(usable: &[&'static Maker]) -> Vec<Round> {
    const NEWS_MAX: usize = 8;
    let rounds = |old: &'static Maker, news: &[&'static Maker], places: &'static [Place]| {
        let some = |news: &[&'static Maker]| Round { old, news: news.to_vec(), places };
        news.chunks(NEWS_MAX).map(some).collect::<Vec<_>>()
    };
    if std::env::var("VARVE_PAIRS").is_ok_and(|which| which == "all") {
        return usable.iter().flat_map(|old| rounds(old, usable, &PLACES)).collect();
    }
    let known = ["swap", "ext2", "ext3", "ext4", "btrfs", "xfs", "ntfs", "LVM"];
    let of_name = |name: &str| usable.iter().find(|maker| maker.name == name).copied();
    let proven: Vec<_> = known.into_iter().filter_map(of_name).collect();
    let over = |name: &str, places| of_name(name).map(|old| rounds(old, usable, places)).unwrap_or_default();
    [
        rounds(maker("nothing"), &proven, &PLACES),
        over("swap", &PLACES[..2]),
        over("ext4", &PLACES[..1]),
        over("ntfs", &PLACES[..1]),
        over("LVM", &PLACES[..1]),
    ]
    .concat()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "two workers, each with a store of its own")]
fn nothing_is_lost_of_anything_that_was_made_over_something_else() {
    const WORKERS: usize = 2;
    if !["mke2fs", "dumpe2fs", "debugfs", "e2fsck", "sfdisk", "mkswap", "swaplabel", "blkid"]
        .into_iter()
        .all(has)
    {
        eprintln!("skipped: pairs of contents, which need e2fsprogs, sfdisk and util-linux");
        return;
    }
    let mut sweep = Sweep::default();
    let mut usable = Vec::new();
    for maker in MAKERS {
        match maker.missing() {
            None => usable.push(maker),
            Some(reason) => sweep.leave_out(maker, reason),
        }
    }
    let (rounds, sweep) = (Mutex::new(chosen(&usable)), Mutex::new(sweep));
    std::thread::scope(|threads| {
        for _ in 0..WORKERS {
            threads.spawn(|| {
                loop {
                    let (next, left) = {
                        let mut rounds = rounds.lock();
                        (rounds.pop(), rounds.len())
                    };
                    let Some(round) = next else { break };
                    round.run(&Sandbox::encrypted(), &sweep);
                    eprintln!("over {}; {left} rounds are left", round.old.name);
                }
            });
        }
    });
    let sweep = sweep.into_inner();
    eprintln!("{sweep}");
    // Standard error is written directly, because the capture of passed tests would hide a missing
    // maker.
    for line in sweep.skipped() {
        writeln!(std::io::stderr(), "{line}").unwrap();
    }
    assert!(sweep.faults().is_empty(), "{:#?}", sweep.faults());
    assert!(sweep.disks() > 0);
}

#[test]
fn the_superblocks_of_linux_raid_are_those_that_mdadm_reads() {
    if !has("mdadm") {
        eprintln!("skipped: superblocks of md, which need mdadm");
        return;
    }
    let sandbox = Sandbox::empty();
    for version in ["0.90", "1.0", "1.1", "1.2"] {
        let volume = sandbox.path(version);
        File::create(&volume).unwrap().set_len(VOLUME_BYTES).unwrap();
        maker(&format!("md {version}")).make(&volume, &sandbox.path("")).unwrap();
        let read = makers::output("mdadm", &["--examine", volume.to_str().unwrap()]);
        let value = |name: &str| {
            let line =
                read.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix(": "));
            line.unwrap_or_else(|| panic!("{version}: no {name} in {read}"))
        };
        assert!(value("Version").starts_with(version), "{read}");
        assert!(value("Checksum").ends_with("- correct"), "{read}");
        assert_eq!(value("Raid Level"), "raid1", "{read}");
    }
}

#[test]
fn a_disk_that_is_mounted_for_writing_is_archived_with_a_warning() {
    if !sandbox::is_root() || !["mkfs.ext4", "mount", "umount"].into_iter().all(has) {
        eprintln!("skipped: a mounted disk, which needs root and e2fsprogs");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let (disk, at) = (sandbox.arg("disk.img"), sandbox.arg("mounted here"));
    File::create(&disk).unwrap().set_len(16 * MIB).unwrap();
    tool("mkfs.ext4", ["-q", "-F", &disk]);
    fs::create_dir(&at).unwrap();
    for (options, is_written) in [("loop", true), ("loop,ro", false)] {
        if !Command::new("mount").args(["-o", options, &disk, &at]).status().unwrap().success() {
            eprintln!("skipped: a mounted disk: nothing can be mounted from a loop device here");
            return;
        }
        let said = sandbox.run(["snapshot", &disk]).stderr;
        tool("umount", [&at]);
        let warning = format!("is mounted for writing at {at}: the snapshot mixes the states");
        assert_eq!(said.contains(&warning), is_written, "{options}: {said}");
    }
    let said = sandbox.run(["snapshot", &disk]).stderr;
    assert!(!said.contains("mounted"), "{said}");
}

#[test]
fn reading_an_image_keeps_the_time_of_its_last_access() {
    use std::os::unix::fs::MetadataExt;
    let sandbox = Sandbox::encrypted();
    let old = |name: &str| {
        let path = sandbox.path(name);
        fs::write(&path, noise(8, 1 << 20)).unwrap();
        tool("touch", ["-a", "-d", "2001-02-03 04:05:06", path.to_str().unwrap()]);
        path
    };
    let (control, image) = (old("control"), old("web.img"));
    let before = fs::metadata(&image).unwrap().atime();
    fs::read(&control).unwrap();
    if fs::metadata(&control).unwrap().atime() == before {
        eprintln!("skipped: times of access, which are not kept here at all");
        return;
    }
    for form in [&["--as", "image"][..], &["--as", "file"], &["--name", "of itself"]] {
        sandbox.ok([&["snapshot", image.to_str().unwrap()], form].concat());
        assert_eq!(fs::metadata(&image).unwrap().atime(), before, "{form:?}");
    }
}

/// Makes an ext4 file system that was in use, with changes in the fast-commit area of its journal.
fn with_fast_commits(sandbox: &Sandbox) -> PathBuf {
    let volume = sandbox.path("fast.img");
    File::create(&volume).unwrap().set_len(64 * MIB).unwrap();
    let name = volume.to_str().unwrap();
    tool("mkfs.ext4", ["-q", "-F", "-b", "4096", "-O", "fast_commit", name]);
    // A transaction in the journal, written by debugfs.
    fs::write(sandbox.path("block"), noise(3, 4096)).unwrap();
    let script = format!("jo\njw -b 9000 {}\njc\n", sandbox.arg("block"));
    fs::write(sandbox.path("script"), script).unwrap();
    tool("debugfs", ["-w", "-f", &sandbox.arg("script"), name]);
    let files = varve_image::ExtFileSystem::open(Arc::new(File::open(&volume).unwrap())).unwrap();
    assert!(files.needs_recovery() && !files.has_fast_commits());
    let runs = files.runs(varve_image::FileId(8)).unwrap();
    let journal = |block: u64| {
        let run = runs.iter().find(|run| (run.logical..run.logical + run.count).contains(&block)).unwrap();
        (run.physical.unwrap() + block - run.logical) * 4096
    };
    let head = read(&volume, journal(0), 1024);
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    let (length, fast) = (word(16), if word(0x54) == 0 { 256 } else { word(0x54) });
    // The head of a fast commit of the next transaction.
    let next = (word(24) + 1).to_le_bytes();
    let bytes = [&[9, 0, 8, 0, 0, 0, 0, 0][..], &next].concat();
    let place = journal(u64::from(length - fast));
    let file = File::options().write(true).open(&volume).unwrap();
    file.write_all_at(&bytes, place).unwrap();
    // A kernel sets this feature when it mounts the file system.
    let features = (word(40) | 0x20).to_be_bytes();
    file.write_all_at(&features, journal(0) + 40).unwrap();
    volume
}

#[test]
fn changes_that_were_committed_fast_are_a_problem() {
    if !["mkfs.ext4", "debugfs"].into_iter().all(has) {
        eprintln!("skipped: fast commits, which need e2fsprogs");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let volume = with_fast_commits(&sandbox);
    let run = sandbox.run(["snapshot", volume.to_str().unwrap(), "--json"]);
    let warnings = run.complaints();
    assert!(warnings.contains("p0 was in use, and its journal has fast commits"), "{warnings}");
    assert_eq!(run.code, Some(3));
    let line = sandbox.json(["snapshots"]).remove(0);
    assert_eq!(line["problems"], 1, "{line}");
    assert!(fs::read(restored(&sandbox, "fast.img")).unwrap() == fs::read(&volume).unwrap());
}
