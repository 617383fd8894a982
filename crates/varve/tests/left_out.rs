//! Swap and free blocks of disk images are archived as zeros, and what comes back is a disk as good as before.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

mod makers;
mod sandbox;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use makers::{MAKERS, Maker, VOLUME_BYTES, maker};
use sandbox::{Sandbox, has, noise, tool};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// A Linux partition and swap, as `make-days` has them; and swap that was made such.
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

/// A disk with an ext4 file system that has a swap file and remains of removed files, and two swap partitions full of secrets.
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
        // Others may read this one, so it is no swap file, whatever is in it.
        "set_inode_field swapfile mode 0100644",
        // This one is not root's.
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
    // Left over in the second, from the time when it was swap; the third says that it is.
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
    // For ever, and for everybody: in the list, and beside the volumes.
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
    assert!(said.contains("free blocks of p1 is kept: which are free is not certain"), "{said}");
    assert!(fs::read(restored(&sandbox, "web")).unwrap() == fs::read(&disk).unwrap());
}

#[test]
fn what_is_read_only_once_is_kept_whole() {
    let sandbox = Sandbox::encrypted();
    let output = sandbox.run(["snapshot", "-", "--name", "x", "--skip-free"]);
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("give a file or a device"), "{}", output.stderr);
}

/// Where a volume lies: it is the disk, or the one partition of a disk with a table of this type.
const PLACES: [Option<(&str, &str)>; 6] = [
    None,
    Some(("dos", "82")),
    Some(("dos", "83")),
    Some(("gpt", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F")),
    Some(("gpt", "0FC63DAF-8483-4772-8E79-3D69D8477DE4")),
    Some(("gpt", "6A898CC3-1DD2-11B2-99A6-080020736631")),
];

/// A content that was made over another, with data of its own in the middle of it, on a disk.
struct Pair {
    name: String,
    /// What is in it now.
    new: &'static str,
    volume: PathBuf,
    disk: PathBuf,
    volume_at: u64,
}

impl Pair {
    /// Bytes of the volume that may come back as zeros: swap, by its header, and blocks that e2fsprogs calls free.
    fn droppable(&self) -> Vec<Range<u64>> {
        match self.new {
            "swap" => {
                let header = read(&self.volume, 0, 4096);
                assert_eq!((&header[4086..], &header[1024..1028]), (&b"SWAPSPACE2"[..], &[1, 0, 0, 0][..]));
                let last = u64::from(u32::from_le_bytes(header[1028..1032].try_into().unwrap()));
                std::iter::once(4096..(last + 1) * 4096).collect()
            }
            "ext2" | "ext3" => free_of_ext(&self.volume),
            "ext4" => {
                let mut found = free_of_ext(&self.volume);
                found.extend(swap_file_of_ext(&self.volume));
                found
            }
            _ => Vec::new(),
        }
    }

    /// Compares what came back, and returns how many bytes are zeros instead.
    fn check(&self, restored: &Path) -> u64 {
        const STEP: u64 = 1024;
        let (size, droppable) = (fs::metadata(&self.disk).unwrap().len(), self.droppable());
        assert_eq!(fs::metadata(restored).unwrap().len(), size, "{}", self.name);
        let mut dropped = 0;
        for at in (0..size).step_by(1 << 20) {
            let length = (size - at).min(1 << 20);
            let (one, other) = (read(&self.disk, at, length), read(restored, at, length));
            if one == other {
                continue;
            }
            for ((one, other), place) in one.chunks(1024).zip(other.chunks(1024)).zip((at..).step_by(1024)) {
                if one == other {
                    continue;
                }
                let inside = place.checked_sub(self.volume_at).unwrap();
                let is_droppable =
                    droppable.iter().any(|range| range.start <= inside && inside + STEP <= range.end);
                assert!(
                    is_zero(other) && is_droppable,
                    "{}: byte {inside} of the volume was lost",
                    self.name
                );
                dropped += STEP;
            }
        }
        dropped
    }
}

/// What `dumpe2fs` calls free, in bytes.
fn free_of_ext(volume: &Path) -> Vec<Range<u64>> {
    let text = output("dumpe2fs", &[volume.to_str().unwrap()]);
    let block: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("Block size:")?.trim().parse().ok())
        .expect("a size of blocks");
    let lists = text.lines().filter_map(|line| line.trim().strip_prefix("Free blocks: "));
    let ranges = lists.flat_map(|list| list.split(", ")).filter(|range| !range.is_empty());
    let bytes = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.trim().parse::<u64>().unwrap() * block..(last.trim().parse::<u64>().unwrap() + 1) * block
    };
    ranges.map(bytes).collect()
}

/// The blocks of `/swapfile` behind its first page, as `debugfs` says.
fn swap_file_of_ext(volume: &Path) -> Vec<Range<u64>> {
    let text = output("debugfs", &["-R", "stat swapfile", volume.to_str().unwrap()]);
    let block =
        if output("dumpe2fs", &["-h", volume.to_str().unwrap()]).contains("Block size:               1024") {
            1024
        } else {
            4096
        };
    let list = text.split("EXTENTS:\n").nth(1).unwrap_or_default();
    let ranges = list.split(", ").filter_map(|extent| {
        let (logical, physical) = extent.trim().strip_prefix('(')?.split_once("):")?;
        let first: u64 = logical.split('-').next()?.parse().ok()?;
        let (from, to) = physical.split_once('-').unwrap_or((physical, physical));
        let skipped = (4096_u64 / block).saturating_sub(first);
        Some((from.parse::<u64>().ok()? + skipped) * block..(to.trim().parse::<u64>().ok()? + 1) * block)
    });
    ranges.filter(|range| !range.is_empty()).collect()
}

fn output(program: &str, words: &[&str]) -> String {
    let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(words).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn copy_sparse(from: &Path, to: &Path) {
    tool("cp", ["--sparse=always".as_ref(), from.as_os_str(), to.as_os_str()]);
}

/// Makes all pairs with one old content. Makers that fail here are named.
fn make_pairs(
    folder: &Path,
    old: &'static Maker,
    news: &[&'static Maker],
    places: &[Option<(&str, &str)>],
    skipped: &mut BTreeSet<String>,
) -> Vec<Pair> {
    let (work, base) = (folder.join("work"), folder.join("base"));
    fs::create_dir_all(&work).unwrap();
    File::create(&base).unwrap().set_len(VOLUME_BYTES).unwrap();
    let write = |path: &Path, offset: u64, bytes: &[u8]| {
        File::options().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
    };
    if old.name != "nothing" {
        for (seed, mib) in [(4, 20), (5, 60), (6, 110)] {
            write(&base, mib * MIB, &noise(seed, 1 << 20));
        }
    }
    if let Err(reason) = old.make(&base, &work) {
        skipped.insert(format!("{}: {}", old.name, reason.trim()));
        return Vec::new();
    }
    let mut pairs = Vec::new();
    for (number, new) in news.iter().enumerate() {
        let volume = folder.join(format!("volume{number}"));
        copy_sparse(&base, &volume);
        if let Err(reason) = new.make(&volume, &work) {
            skipped.insert(format!("{}: {}", new.name, reason.trim()));
            continue;
        }
        // Data, where no maker has put anything: whoever lives there now has it.
        for (seed, mib) in [(1, 10), (2, 40), (3, 100)] {
            let place = mib * MIB;
            if new.name != "nothing"
                && !new.name.starts_with("ext")
                && is_zero(&read(&volume, place, 256 << 10))
            {
                write(&volume, place, &noise(seed, 256 << 10));
            }
        }
        for (at, place) in places.iter().enumerate() {
            let (disk, volume_at) = match place {
                None => (folder.join(format!("disk{number}")), 0),
                Some(_) => (folder.join(format!("disk{number}-{at}")), MIB),
            };
            match place {
                None => copy_sparse(&volume, &disk),
                Some((label, kind)) => {
                    File::create(&disk).unwrap().set_len(VOLUME_BYTES + 2 * MIB).unwrap();
                    let sectors = VOLUME_BYTES / 512;
                    let table = format!("label: {label}\nstart=2048, size={sectors}, type={kind}\n");
                    fs::write(folder.join("table"), table).unwrap();
                    let line = format!("sfdisk -q {} < {}", disk.display(), folder.join("table").display());
                    tool("sh", ["-c", &line]);
                    let copy = [
                        format!("if={}", volume.display()),
                        format!("of={}", disk.display()),
                        "bs=1M".into(),
                        "seek=1".into(),
                        "conv=notrunc,sparse".into(),
                        "status=none".into(),
                    ];
                    tool("dd", copy);
                }
            }
            let name =
                format!("{} over {}, in {}", new.name, old.name, place.map_or("no table", |place| place.1));
            let new = if new.name == "nothing" { old.name } else { new.name };
            pairs.push(Pair { name, new, volume: volume.clone(), disk, volume_at });
        }
    }
    pairs
}

/// Archives pairs, restores each, and compares. Returns for each how many bytes were left out.
fn archive_pairs(sandbox: &Sandbox, pairs: &[Pair], more: &[&str]) -> Vec<u64> {
    let disks = pairs.iter().map(|pair| pair.disk.to_str().unwrap());
    let words = ["snapshot", "--as", "image"].into_iter().chain(more.iter().copied()).chain(disks);
    let lines: Vec<Value> = sandbox.json(words).into_iter().filter(|line| line["id"].is_string()).collect();
    assert_eq!(lines.len(), pairs.len());
    let restored = sandbox.path("restored");
    let check = |(pair, line): (&Pair, Value)| {
        sandbox.ok(["restore", line["id"].as_str().unwrap(), restored.to_str().unwrap()]);
        let dropped = pair.check(&restored);
        fs::remove_file(&restored).unwrap();
        let left_out = line["left_out_bytes"].as_u64().unwrap();
        assert!(dropped <= left_out, "{}: {line}", pair.name);
        left_out
    };
    pairs.iter().zip(lines).map(check).collect()
}

/// An old content, the new ones that are made over it, and where.
type Round = (&'static Maker, Vec<&'static Maker>, Vec<Option<(&'static str, &'static str)>>);

/// Which pairs are tried: with `VARVE_PAIRS=all` every one, else those whose remains have led astray before.
fn chosen(usable: &[&'static Maker]) -> Vec<Round> {
    if std::env::var("VARVE_PAIRS").is_ok_and(|which| which == "all") {
        let all = |old: &&'static Maker| (*old, usable.to_vec(), PLACES.to_vec());
        return usable.iter().map(all).collect();
    }
    let known = ["swap", "ext2", "ext3", "ext4"];
    let proven = usable.iter().filter(|new| known.contains(&new.name)).copied().collect();
    vec![
        (maker("nothing"), proven, PLACES.to_vec()),
        (maker("swap"), usable.to_vec(), PLACES[..2].to_vec()),
        (maker("ext4"), usable.to_vec(), PLACES[..1].to_vec()),
    ]
}

#[test]
fn nothing_is_lost_of_anything_that_was_made_over_something_else() {
    if !["mke2fs", "dumpe2fs", "debugfs", "sfdisk", "mkswap"].into_iter().all(has) {
        eprintln!("skipped: pairs of contents, which need e2fsprogs, sfdisk and mkswap");
        return;
    }
    let mut skipped = BTreeSet::new();
    let mut usable = Vec::new();
    for maker in MAKERS {
        match maker.missing() {
            None => usable.push(maker),
            Some(reason) => drop(skipped.insert(format!("{}: {reason}", maker.name))),
        }
    }
    for (old, news, places) in chosen(&usable) {
        let sandbox = Sandbox::encrypted();
        let folder = sandbox.path("pairs");
        fs::create_dir(&folder).unwrap();
        let pairs = make_pairs(&folder, old, &news, &places, &mut skipped);
        for (more, is_free) in [(&[][..], false), (&["--skip-free"][..], true)] {
            let left_out = archive_pairs(&sandbox, &pairs, more);
            for (pair, left_out) in pairs.iter().zip(left_out) {
                let agrees = |types: &[&str]| {
                    pair.name.ends_with("no table") || types.iter().any(|kind| pair.name.ends_with(kind))
                };
                let expected = match pair.new {
                    "swap" => agrees(&["82", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"]),
                    "ext4" => agrees(&["83", "0FC63DAF-8483-4772-8E79-3D69D8477DE4"]),
                    "ext2" | "ext3" => is_free && agrees(&["83", "0FC63DAF-8483-4772-8E79-3D69D8477DE4"]),
                    _ => false,
                };
                // Where nothing was before, real proof is not doubted; elsewhere remains may contradict.
                if old.name == "nothing" || !expected {
                    assert_eq!(left_out > 0, expected, "{}, {more:?}: {left_out} bytes", pair.name);
                }
            }
        }
    }
    for reason in skipped {
        eprintln!("skipped: {reason}");
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
        let warning = format!("is mounted for writing at {at}: the snapshot mixes moments");
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

/// An ext4 file system that was in use, with changes in the fast-commit area of its journal.
fn with_fast_commits(sandbox: &Sandbox) -> PathBuf {
    let volume = sandbox.path("fast.img");
    File::create(&volume).unwrap().set_len(64 * MIB).unwrap();
    let name = volume.to_str().unwrap();
    tool("mkfs.ext4", ["-q", "-F", "-b", "4096", "-O", "fast_commit", name]);
    // A transaction in the journal, as debugfs writes it.
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
    // The head of a fast commit of the transaction that comes next.
    let next = (word(24) + 1).to_le_bytes();
    let bytes = [&[9, 0, 8, 0, 0, 0, 0, 0][..], &next].concat();
    let place = journal(u64::from(length - fast));
    let file = File::options().write(true).open(&volume).unwrap();
    file.write_all_at(&bytes, place).unwrap();
    // A kernel sets this when it mounts.
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
