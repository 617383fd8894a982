//! Random file systems of every shape, with the blocks of random profiles moved together: e2fsck
//! finds nothing, and every file is equal.
//!
//! `VARVE_RELOCATIONS=1000` sets the number of file systems, `SEED=7` tries one. Any 96 consecutive
//! ones have every combination of ext2, ext3 and ext4, both block sizes, `metadata_csum`, `64bit`
//! and `flex_bg`.
#![allow(clippy::cast_possible_truncation, reason = "numbers that the test itself has made")]
#![allow(clippy::print_stderr, reason = "says which file system failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::Arc;

use crate::damage::{Draws, damage};
use crate::lvm;
use crate::sandbox::{Sandbox, missing};
use crate::walk;
use varve_image::{
    BlockOwners, Disk, ExtFileSystem, FileId, FileKind, FileSystem, ReadAt, RelocatedDisk, Relocation,
    RelocationError, RelocationOptions,
};

const SIZE: u64 = 32 << 20;
const SEEDS: u64 = 16;
/// The number of damaged copies of each file system.
const COPIES: u64 = 25;
/// The bound on the copies that are tried until one was moved and some were refused.
const COPIES_MAX: u64 = 40 * COPIES;
const OPTIONS: RelocationOptions = RelocationOptions { align_bytes: 1 << 20, volume_start: 0 };
const TOOLS: [&str; 5] = ["mke2fs", "mkfs.ext4", "debugfs", "tune2fs", "e2fsck"];

/// A shape: the kind, the block size, and features that are switched on or off.
fn shape(seed: u64) -> Vec<String> {
    let is_set =
        |bit: u64, name: &str| if seed >> bit & 1 == 1 { name.to_owned() } else { format!("^{name}") };
    let kind = ["ext4", "ext3", "ext2"][(seed % 3) as usize];
    let block_bytes = if seed & 1 == 1 { "1024" } else { "4096" };
    let mut features = vec![is_set(2, "metadata_csum"), is_set(4, "flex_bg")];
    if kind == "ext4" {
        features.push(is_set(3, "64bit"));
    }
    if features[0].starts_with('^') && seed % 5 < 2 {
        features.push("uninit_bg".into());
    }
    if seed % 11 == 5 && kind == "ext4" {
        features.push("inline_data".into());
    }
    if seed % 13 == 4 {
        features.push("sparse_super2".into());
    }
    let mut words: Vec<String> =
        ["mke2fs", "-q", "-F", "-t", kind, "-b", block_bytes, "-N", "512"].map(String::from).into();
    if block_bytes == "4096" {
        words.extend(["-g".into(), "2048".into()]);
    }
    if kind != "ext2" {
        words.extend(["-J".into(), "size=4".into()]);
    }
    words.extend(["-I".into(), if seed % 7 == 3 && seed % 11 != 5 { "128" } else { "256" }.into()]);
    words.extend(["-O".into(), features.join(",")]);
    words
}

fn content(length: usize, seed: u64) -> Vec<u8> {
    let mut draws = Draws(seed);
    (0..length.div_ceil(5)).flat_map(|_| draws.next().to_le_bytes()[..5].to_vec()).take(length).collect()
}

fn make_tree(folder: &Path, draws: &mut Draws) {
    fs::create_dir_all(folder.join("etc/deep")).unwrap();
    for number in 0..40 {
        let length = [100, 3000, 20_000, 90_000, 400_000][draws.below(5)] + draws.below(3000);
        let name = ["", "etc/", "etc/deep/"][draws.below(3)];
        fs::write(folder.join(format!("{name}file-{number}")), content(length, draws.next())).unwrap();
    }
    fs::write(folder.join("large"), content(2_500_000, draws.next())).unwrap();
    let sparse = File::create(folder.join("sparse")).unwrap();
    for _ in 0..12 {
        let place = draws.below(9_000_000) as u64;
        sparse.write_all_at(&content(7000, place), place).unwrap();
    }
    // More extents than one block of a tree holds, and pointers of three levels.
    let comb = File::create(folder.join("comb")).unwrap();
    for number in 0..400 {
        comb.write_all_at(&content(3000, number), number * 8192).unwrap();
    }
    let far = if draws.below(4) == 0 { 70_000_000 } else { 8_000_000 };
    sparse.write_all_at(&content(7000, far), far).unwrap();
    symlink("t".repeat(300), folder.join("long link")).unwrap();
    symlink("short", folder.join("short link")).unwrap();
    fs::hard_link(folder.join("large"), folder.join("etc/hard link")).unwrap();
}

/// Removes some files and writes others into the gaps, so that files are in many parts.
fn fragment(sandbox: &Sandbox, image: &Path, draws: &mut Draws) {
    let files = open(Arc::new(fs::read(image).unwrap()));
    let mut names = Vec::new();
    for folder in ["", "etc/"] {
        let id = match folder {
            "" => files.root(),
            _ => files.child(files.root(), b"etc").unwrap().unwrap().id,
        };
        files
            .children(id, 0, &mut |child| {
                if child.kind == FileKind::File && child.name.starts_with(b"file-") {
                    names.push(format!("{folder}{}", String::from_utf8_lossy(&child.name)));
                }
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
    }
    let removed: Vec<_> = names.iter().filter(|_| draws.below(2) == 0).collect();
    let mut script: String = removed.iter().map(|name| format!("rm {name}\n")).collect();
    for number in 0..4 {
        fs::write(sandbox.path(&format!("late-{number}")), content(600_000, draws.next())).unwrap();
        script += &format!("write late-{number} etc/late-{number}\n");
    }
    // Blocks that are only reserved, in the holes of a file.
    script += "fallocate sparse 3 60\n";
    sandbox.run(&["debugfs", "-w", "-f", "/dev/stdin", image.to_str().unwrap()], &script);
}

fn open(volume: Arc<dyn ReadAt>) -> ExtFileSystem {
    ExtFileSystem::open(volume).unwrap()
}

/// Parts of files, of metadata and of free space, in random order.
fn profile(files: &ExtFileSystem, draws: &mut Draws) -> Vec<Range<u64>> {
    let block_bytes = u64::from(files.block_bytes());
    let owners = BlockOwners::scan(files).unwrap();
    let mut reads = Vec::new();
    for owner in owners.all() {
        let mut at = owner.blocks.start;
        while at < owner.blocks.end {
            let end = owner.blocks.end.min(at + 1 + draws.below(40) as u64);
            if draws.below(3) == 0 {
                reads.push(at * block_bytes..end * block_bytes);
            }
            at = end;
        }
    }
    for _ in 0..20 {
        let start = draws.below(SIZE as usize - 50_000) as u64;
        reads.push(start..start + draws.below(50_000) as u64);
    }
    for at in (1..reads.len()).rev() {
        reads.swap(at, draws.below(at + 1));
    }
    reads
}

fn bytes_of(volume: &dyn ReadAt) -> Vec<u8> {
    let mut bytes = vec![0; volume.size() as usize];
    volume.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Every read block that may move lies in the region, and files come in the order of first access.
fn check_order(files: &ExtFileSystem, reads: &[Range<u64>], plan: &Relocation) {
    let owners = BlockOwners::scan(files).unwrap();
    let mut places = BTreeMap::new();
    let mut before = 0;
    for run in plan.moved() {
        assert!(run.to >= before && run.count > 0, "the new places ascend");
        before = run.to + run.count;
        assert!(plan.region().iter().any(|part| part.start <= run.to && before <= part.end));
        places.extend((0..run.count).map(|at| (run.from + at, run.to + at)));
    }
    let left: BTreeSet<_> = plan.left().iter().map(|left| left.file).collect();
    let files_with_blocks: BTreeSet<_> = owners.all().iter().map(|owner| owner.file).collect();
    let runs = files_with_blocks.into_iter().flat_map(|file| files.runs(file).unwrap());
    let reserved: BTreeSet<_> = runs.filter(|run| run.reserved).filter_map(|run| run.physical).collect();
    let (mut seen, mut last) = (BTreeSet::new(), 0);
    let block_bytes = u64::from(files.block_bytes());
    for read in reads {
        let blocks = read.start / block_bytes..read.end.div_ceil(block_bytes).min(files.block_count());
        for block in blocks {
            let Some(owner) = owners.of(block).filter(|owner| owner.file.0 >= 11) else { continue };
            if left.contains(&owner.file) || reserved.contains(&owner.blocks.start) {
                continue;
            }
            let place = *places.get(&block).unwrap_or_else(|| panic!("block {block} of {owner:?} stays"));
            if seen.insert(owner.file) {
                assert!(place > last, "{owner:?} is read before its predecessor");
                last = place;
            }
        }
    }
    assert!(seen.len() > 10, "{}", seen.len());
}

fn relocate(seed: u64) -> (usize, usize, usize) {
    let sandbox = Sandbox::new();
    let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9) + 1);
    make_tree(&sandbox.path("tree"), &mut draws);
    let image = sandbox.sparse("image", SIZE);
    let words = shape(seed);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let tree = sandbox.path("tree");
    sandbox.run(&[&words[..], &["-d", tree.to_str().unwrap(), image.to_str().unwrap()]].concat(), "");
    if seed & 3 != 0 {
        fragment(&sandbox, &image, &mut draws);
    }
    if words.join(" ").contains("inline_data") {
        sandbox.run(&["tune2fs", "-O", "quota", image.to_str().unwrap()], "");
    }
    sandbox.run(&["e2fsck", "-fn", image.to_str().unwrap()], "");
    let old = fs::read(&image).unwrap();
    let volume: Arc<dyn ReadAt> = Arc::new(old.clone());
    let files = open(Arc::clone(&volume));
    let reads = profile(&files, &mut draws);
    let plan = Relocation::plan(&files, &reads, OPTIONS)
        .unwrap_or_else(|error| panic!("SEED={seed} {words:?}: {error}"));
    check_order(&files, &reads, &plan);
    let shown = plan.show(&volume);
    let new = bytes_of(&*shown);
    assert!(old == bytes_of(&*volume) && old != new);
    fs::write(sandbox.path("new"), &new).unwrap();
    sandbox.run(&["e2fsck", "-fn", sandbox.path("new").to_str().unwrap()], "");
    let after = open(Arc::new(new.clone()));
    plan.verify(&files, &after).unwrap_or_else(|error| panic!("SEED={seed} {words:?}: {error}"));
    assert!(walk::walk(&files) == walk::walk(&after), "SEED={seed}");
    // The comparison finds a difference in any moved block, and in the map of a moved file.
    let run = plan.moved()[draws.below(plan.moved().len())];
    let mut broken = new;
    broken[run.to as usize * files.block_bytes() as usize] ^= 1;
    let is_last_byte = files.status(run.file).unwrap().size == run.logical * u64::from(files.block_bytes());
    assert!(is_last_byte || plan.verify(&files, &open(Arc::new(broken))).is_err(), "SEED={seed}");
    (plan.moved().len(), plan.left().len(), plan.grown_files().count())
}

#[test]
fn random_file_systems_stay_clean_and_equal() {
    if missing(&TOOLS) {
        return;
    }
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VARVE_RELOCATIONS").unwrap_or(SEEDS),
    };
    let mut total = (0, 0, 0);
    for seed in seeds.clone() {
        eprintln!("SEED={seed}");
        let (moved, left, grown) = relocate(seed);
        total = (total.0 + moved, total.1 + left, total.2 + grown);
    }
    if seeds.end - seeds.start >= SEEDS {
        assert!(total.0 > 1000 && total.1 > 0 && total.2 > 0, "{total:?}");
    }
}

/// An image of the tree with another shape.
fn image(sandbox: &Sandbox, words: &[&str]) -> Vec<u8> {
    let tree = sandbox.path("tree");
    if !tree.exists() {
        make_tree(&tree, &mut Draws(3));
    }
    let image = sandbox.sparse("image", SIZE);
    sandbox.run(&[words, &["-q", "-F", "-d", tree.to_str().unwrap(), image.to_str().unwrap()]].concat(), "");
    fs::read(image).unwrap()
}

fn refusal(bytes: Vec<u8>) -> String {
    let size = bytes.len() as u64;
    match Relocation::plan(&open(Arc::new(bytes)), std::slice::from_ref(&(0..size)), OPTIONS) {
        Ok(_) => "moved".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn file_systems_that_are_not_understood_are_refused() {
    if missing(&TOOLS) {
        return;
    }
    let sandbox = Sandbox::new();
    let plain = ["mkfs.ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"];
    for (features, expected) in [
        ("bigalloc", "it has the feature bigalloc, which is not supported here"),
        ("meta_bg,^resize_inode", "it has the feature meta_bg, which is not supported here"),
        ("mmp", "it has the feature mmp, which is not supported here"),
    ] {
        let bytes = image(&sandbox, &["mkfs.ext4", "-b", "1024", "-O", features]);
        assert_eq!(refusal(bytes), expected);
    }
    let whole = image(&sandbox, &plain);
    let changed = |at: usize, bytes: &[u8]| {
        let mut changed = whole.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        refusal(changed)
    };
    let unclean =
        "it was not unmounted, or has recorded errors: check it with e2fsck, or shut its machine down first";
    assert_eq!(changed(1024 + 0x3a, &[0, 0]), unclean);
    assert_eq!(changed(1024 + 0x3a, &[3, 0]), unclean);
    assert!(changed(1024 + 0xe8, &[13, 0]).starts_with("it has deleted files whose space is not yet freed"));
    assert!(
        changed(1024 + 0x66, &[0, 0x40]).starts_with("it has the feature 0x40000000 (read-only compatible)")
    );
    assert!(changed(1024 + 0x5e, &[0, 0x40]).starts_with("it has the feature 0x40000000 (compatible)"));
    for (at, loader) in [(2, "LILO"), (6, "LILO"), (0, "zIPL")] {
        assert!(changed(at, loader.as_bytes()).starts_with(&format!("its boot sector is {loader}")));
    }
    assert!(changed(1024 + 0x48, &[1]).starts_with("it has the feature the format of operating system 1"));
    // The bitmap marks a block of a file as free.
    let files = open(Arc::new(whole.clone()));
    let large = files.child(files.root(), b"large").unwrap().unwrap().id;
    let bitmap = u32::from_le_bytes(whole[2048..2052].try_into().unwrap()) as usize * 1024;
    let block = files.runs(large).unwrap()[0].physical.unwrap() as usize;
    assert!(block < 8192, "{block}");
    let at = bitmap + (block - 1) / 8;
    let refused = changed(at, &[whole[at] ^ 1 << ((block - 1) % 8)]);
    assert!(refused.contains("group 0 counts"), "{refused}");
    // Two files with one block.
    let pointers = image(&sandbox, &["mkfs.ext2", "-b", "1024"]);
    let files = open(Arc::new(pointers.clone()));
    let large = files.child(files.root(), b"large").unwrap().unwrap().id;
    let first = files.runs(large).unwrap()[0].physical.unwrap();
    let mut shared = pointers;
    let needle: Vec<u8> = (0..12).flat_map(|at| (first as u32 + at).to_le_bytes()).collect();
    let at = shared.windows(48).position(|window| window == needle).unwrap();
    let other = files.runs(FileId(11)).unwrap()[0].physical.unwrap() as u32;
    shared[at..at + 4].copy_from_slice(&other.to_le_bytes());
    let refused = refusal(shared);
    assert!(refused.contains(&format!("block {other} belongs to inode 11 and to inode")), "{refused}");
    // A full file system.
    let full = sandbox.sparse("image", 6 << 20);
    sandbox.run(&["mkfs.ext2", "-q", "-F", "-b", "1024", full.to_str().unwrap()], "");
    fs::write(sandbox.path("much"), content(4_000_000, 1)).unwrap();
    sandbox.run(&["debugfs", "-w", "-R", "write much much", full.to_str().unwrap()], "");
    let refused = refusal(fs::read(full).unwrap());
    assert!(refused.contains("free blocks are needed, and"), "{refused}");
}

#[test]
fn some_files_stay_where_they_are() {
    if missing(&TOOLS) {
        return;
    }
    let sandbox = Sandbox::new();
    make_tree(&sandbox.path("tree"), &mut Draws(3));
    fs::write(sandbox.path("tree/etc/ldlinux.sys"), content(50_000, 1)).unwrap();
    fs::write(sandbox.path("tree/fixed"), content(50_000, 2)).unwrap();
    let mut swap = vec![0; 65536];
    swap[1024] = 1;
    swap[1028] = 15;
    swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
    fs::write(sandbox.path("tree/swap"), &swap).unwrap();
    image(&sandbox, &["mkfs.ext4", "-b", "1024"]);
    let path = sandbox.path("image");
    let script = "set_inode_field fixed flags 0x80010\n";
    sandbox.run(&["debugfs", "-w", "-f", "/dev/stdin", path.to_str().unwrap()], script);
    let bytes = fs::read(path).unwrap();
    let size = bytes.len() as u64;
    let files = open(Arc::new(bytes));
    let plan = Relocation::plan(&files, std::slice::from_ref(&(0..size)), OPTIONS).unwrap();
    let id = |folder: &[u8], name: &[u8]| {
        let folder = match folder {
            b"" => files.root(),
            _ => files.child(files.root(), folder).unwrap().unwrap().id,
        };
        files.child(folder, name).unwrap().unwrap().id
    };
    let left: BTreeMap<FileId, &str> = plan.left().iter().map(|left| (left.file, left.reason)).collect();
    let expected = [
        (id(b"etc", b"ldlinux.sys"), "a boot loader finds it by a list of blocks"),
        (id(b"", b"fixed"), "it is immutable"),
        (id(b"", b"swap"), "it is a swap file"),
    ];
    for (file, reason) in expected {
        assert_eq!(left.get(&file), Some(&reason));
        assert!(plan.moved().iter().all(|run| run.file != file));
    }
    assert!(plan.moved().iter().all(|run| run.file.0 >= 11));
    assert!(plan.moved().iter().any(|run| run.file == id(b"", b"large")));
}

#[test]
fn damaged_file_systems_are_moved_or_refused_without_harm() {
    if missing(&TOOLS) {
        return;
    }
    let sandbox = Sandbox::new();
    let shapes: [&[&str]; 3] = [
        &["mkfs.ext2", "-b", "1024"],
        &["mkfs.ext4", "-b", "1024", "-O", "^metadata_csum", "-J", "size=1"],
        &["mkfs.ext4", "-b", "4096", "-O", "^metadata_csum,^has_journal,uninit_bg"],
    ];
    for (number, shape) in shapes.into_iter().enumerate() {
        let whole = image(&sandbox, shape);
        let files = open(Arc::new(whole.clone()));
        let mut draws = Draws(number as u64);
        let reads = profile(&files, &mut draws);
        let owners = BlockOwners::scan(&files).unwrap();
        let is_file = |file| files.status(file).unwrap().kind == FileKind::File;
        let content: BTreeSet<u64> = owners
            .all()
            .iter()
            .filter(|owner| is_file(owner.file))
            .flat_map(|owner| owner.blocks.clone())
            .collect();
        let block_bytes = files.block_bytes() as usize;
        let used: Vec<_> = (0..whole.len() / block_bytes)
            .filter(|block| !content.contains(&(*block as u64)))
            .flat_map(|block| block * block_bytes..(block + 1) * block_bytes)
            .filter(|at| whole[*at] != 0)
            .collect();
        let (mut moved, mut refused) = (0, 0);
        let is_both = |moved, refused| moved > 0 && refused > COPIES / 5;
        for number in 0..COPIES_MAX {
            if number >= COPIES && is_both(moved, refused) {
                break;
            }
            let mut bytes = whole.clone();
            damage(&mut bytes, &used, &mut draws);
            let volume: Arc<dyn ReadAt> = Arc::new(bytes);
            let Ok(files) = ExtFileSystem::open(Arc::clone(&volume)) else { continue };
            match Relocation::plan(&files, &reads, OPTIONS) {
                Ok(plan) => {
                    moved += 1;
                    let after = open(plan.show(&volume));
                    // A difference may only come from damage that was there before.
                    let same = plan.verify(&files, &after);
                    assert!(same.is_ok() || plan.verify(&files, &files).is_err(), "{same:?}");
                }
                Err(RelocationError::TooLarge { .. }) => panic!("a small file system is never too large"),
                Err(_) => refused += 1,
            }
        }
        assert!(is_both(moved, refused), "{shape:?}: {moved} moved, {refused} refused");
    }
}

/// Checks the only changed volume of a disk, as a whole, and without the contents of its files.
fn check_disk(sandbox: &Sandbox, plan: &RelocatedDisk) {
    let new = plan.shown();
    assert_eq!(plan.verify(Arc::clone(&new)), Ok(()));
    let structures = plan.structures(Arc::clone(&new)).unwrap();
    let [structure] = &structures[..] else { panic!("{} volumes", structures.len()) };
    let whole = Disk::open(new).volume(structure.name()).unwrap().read();
    let mut copy = vec![0; whole.size() as usize];
    for range in structure.ranges() {
        let part = &mut copy[range.start as usize..range.end as usize];
        structure.bytes().read_at(range.start, part).unwrap();
    }
    for (name, bytes) in [("whole", &bytes_of(&*whole)), ("structure", &copy)] {
        fs::write(sandbox.path(name), bytes).unwrap();
        sandbox.run(&["e2fsck", "-fn", sandbox.path(name).to_str().unwrap()], "");
    }
    let files = open(whole);
    let large = files.child(files.root(), b"large").unwrap().unwrap().id;
    let block_bytes = files.block_bytes() as usize;
    for run in files.runs(large).unwrap() {
        let start = run.physical.unwrap() as usize * block_bytes;
        assert!(copy[start..start + run.count as usize * block_bytes].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_partition_moves_within_its_disk() {
    if missing(&TOOLS) || missing(&["sfdisk"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let files = image(&sandbox, &["mkfs.ext4", "-b", "4096"]);
    let table = "label: gpt\nstart=2048, size=65536, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4\nstart=67584, size=8192, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4";
    let mut disk = sandbox.table(table, 40 << 20);
    disk[1 << 20..][..files.len()].copy_from_slice(&files);
    let volume = open(Arc::new(files));
    let reads: Vec<_> = profile(&volume, &mut Draws(5))
        .into_iter()
        .map(|read| read.start + (1 << 20)..read.end + (1 << 20))
        .chain([34 << 20..35 << 20, 0..4096])
        .collect();
    let old: Arc<dyn ReadAt> = Arc::new(disk.clone());
    let plan = RelocatedDisk::plan(Arc::clone(&old), &reads, 1 << 20);
    let names: Vec<_> =
        plan.volumes().iter().map(|volume| (volume.name(), volume.outcome().is_ok())).collect();
    assert_eq!(names, [("p1", true), ("p2", false)]);
    assert!(plan.volumes()[1].outcome().err().unwrap().contains("only ext2, ext3 and ext4 are moved"));
    let new = bytes_of(&*plan.shown());
    assert!(new[..1 << 20] == disk[..1 << 20] && new[33 << 20..] == disk[33 << 20..]);
    check_disk(&sandbox, &plan);
    let region = plan.volumes()[0].outcome().unwrap().region().to_vec();
    assert_eq!(region[0].start * 4096 % (1 << 20), 0, "the region begins a unit of the disk");
    assert!(plan.changed_bytes() > 1 << 20);
    let [before, after] = plan.units_read(128 << 10);
    assert!(after < before, "{before} units were read, and now {after}");
    // A disk is not touched if its boot loader finds files by lists of blocks.
    for (at, loader) in [(6, "LILO"), (0, "zIPL")] {
        let mut disk = disk.clone();
        disk[at..at + 4].copy_from_slice(loader.as_bytes());
        let refused = RelocatedDisk::plan(Arc::new(disk), &reads, 1 << 20);
        assert!(refused.volumes().iter().all(|volume| volume.outcome().err().unwrap().contains(loader)));
        assert_eq!(refused.changed_bytes(), 0);
    }
}

#[test]
fn a_logical_volume_moves_within_its_segments() {
    if missing(&TOOLS) {
        return;
    }
    const EXTENT: usize = 4 << 20;
    let sandbox = Sandbox::new();
    let files = image(&sandbox, &["mkfs.ext4", "-b", "1024"]);
    // The later part of the volume lies before the earlier one.
    let mut disk = lvm::disk_of(&[(6, 3), (0, 5)], EXTENT, 10);
    let pieces = Disk::open(Arc::new(disk.clone())).volume("my--group-root").unwrap().pieces().to_vec();
    assert_eq!(pieces.len(), 2);
    let (one, two) = files.split_at(3 * EXTENT);
    for (piece, bytes) in pieces.iter().zip([one, two]) {
        disk[piece.start as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    let on_disk = |at: u64| match at.checked_sub(one.len() as u64) {
        Some(at) => pieces[1].start + at,
        None => pieces[0].start + at,
    };
    let reads = profile(&open(Arc::new(files.clone())), &mut Draws(6)).into_iter();
    let reads: Vec<_> = reads
        .filter(|read| (read.start < one.len() as u64) == (read.end <= one.len() as u64))
        .map(|read| on_disk(read.start)..on_disk(read.start) + read.end - read.start)
        .collect();
    let plan = RelocatedDisk::plan(Arc::new(disk.clone()), &reads, 1 << 20);
    let names: Vec<_> =
        plan.volumes().iter().map(|volume| (volume.name(), volume.outcome().is_ok())).collect();
    assert_eq!(names, [("my--group-root", true)]);
    check_disk(&sandbox, &plan);
    let new = bytes_of(&*plan.shown());
    let (first, last) = (pieces[1].start as usize, pieces[0].end as usize);
    assert!(new[..first] == disk[..first] && new[last..] == disk[last..], "the group stays as it is");
    let between = pieces[1].end as usize..pieces[0].start as usize;
    assert!(!between.is_empty() && new[between.clone()] == disk[between]);
}

/// The file system itself reads quotas, and files with values of attributes.
#[test]
fn the_structure_has_the_files_that_the_file_system_reads() {
    if missing(&TOOLS) {
        return;
    }
    let sandbox = Sandbox::new();
    let features = "quota,project,ea_inode,64bit,metadata_csum";
    image(&sandbox, &["mkfs.ext4", "-b", "1024", "-O", features]);
    let path = sandbox.path("image");
    let value = format!("ea_set /large user.big {}", "v".repeat(3000));
    sandbox.run(&["debugfs", "-w", "-R", &value, path.to_str().unwrap()], "");
    // debugfs does not count the blocks of the value.
    let repair = "PATH=$PATH:/sbin:/usr/sbin; e2fsck -fy image || [ $? = 1 ]";
    sandbox.run(&["sh", "-c", repair], "");
    let disk: Arc<dyn ReadAt> = Arc::new(fs::read(path).unwrap());
    let plan = RelocatedDisk::plan(disk, std::slice::from_ref(&(0..SIZE)), 1 << 20);
    check_disk(&sandbox, &plan);
    let left = plan.volumes()[0].outcome().unwrap().left();
    assert!(left.iter().any(|left| left.reason == "it holds the value of an attribute"), "{left:?}");
}
