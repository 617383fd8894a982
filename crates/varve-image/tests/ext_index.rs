//! Names in large folders of ext file systems, looked up by the index that e2fsck makes, with every kind of hash, and without it.

mod sandbox;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sandbox::{Sandbox, missing};
use varve_image::{Child, ExtFileSystem, FileId, FileSystem, ReadAt};

const MIB: u64 = 1 << 20;
/// Enough for two levels of nodes, with blocks of 1 KiB.
const NAME_COUNT: usize = 2800;

/// A disk that counts how often it is read.
struct Counted(Vec<u8>, AtomicU64);

impl ReadAt for Counted {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(offset, into)
    }
}

fn name(number: usize) -> String {
    match number % 5 {
        0 => format!("{number}"),
        1 => {
            format!("Grüße, {number} an der Zahl, in einem Namen, der länger ist als zwei Teile eines Hashs")
        }
        _ => format!("a file of some length {number}"),
    }
}

fn many(folder: &Path) {
    fs::create_dir_all(folder.join("many")).unwrap();
    for number in 0..NAME_COUNT {
        File::create(folder.join("many").join(name(number))).unwrap();
    }
}

/// A disk whose large folder has an index with these hashes.
fn disk(sandbox: &Sandbox, features: &str, algorithm: &str, are_unsigned: bool) -> Vec<u8> {
    let disk = sandbox.sparse("disk", 24 * MIB);
    let (disk_name, source) = (disk.to_str().unwrap(), sandbox.path("source"));
    let words = ["mkfs.ext4", "-q", "-F", "-b", "1024", "-I", "128", "-N", "4000", "-O", features];
    sandbox.run(&[&words[..], &["-d", source.to_str().unwrap(), disk_name]].concat(), "");
    sandbox.run(&["tune2fs", "-E", &format!("hash_alg={algorithm}"), disk_name], "");
    let flags = format!("ssv flags {}", 1 + u8::from(are_unsigned));
    sandbox.run(&["debugfs", "-w", "-R", &flags, disk_name], "");
    // It says with 1 that it has changed something.
    let checked = Command::new("e2fsck").args(["-fyD", disk_name]).output().unwrap();
    assert!(checked.status.code().is_some_and(|code| code < 4), "{checked:?}");
    fs::read(disk).unwrap()
}

fn open(disk: &[u8]) -> (Arc<Counted>, ExtFileSystem) {
    let disk = Arc::new(Counted(disk.to_vec(), AtomicU64::new(0)));
    let files = ExtFileSystem::open(Arc::clone(&disk) as Arc<dyn ReadAt>).unwrap();
    (disk, files)
}

fn listed(files: &ExtFileSystem, folder: FileId) -> BTreeMap<Vec<u8>, Child> {
    let mut found = BTreeMap::new();
    files
        .children(folder, 0, &mut |child| {
            found.insert(child.name.clone(), child);
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn folder(files: &ExtFileSystem) -> FileId {
    files.child(files.root(), b"many").unwrap().unwrap().id
}

#[test]
fn names_are_found_by_their_hashes() {
    if missing(&["mkfs.ext4", "tune2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let sandbox = Sandbox::new();
    many(&sandbox.path("source"));
    for (features, algorithm, are_unsigned) in [
        ("^has_journal", "half_md4", false),
        ("^has_journal", "half_md4", true),
        ("^has_journal,^metadata_csum", "tea", false),
        ("^has_journal,^metadata_csum", "legacy", true),
    ] {
        let what = format!("{features} {algorithm} {are_unsigned}");
        let disk = disk(&sandbox, features, algorithm, are_unsigned);
        let (_, files) = open(&disk);
        let many = folder(&files);
        let all = listed(&files, many);
        assert_eq!(all.len(), NAME_COUNT, "{what}");
        for (name, child) in &all {
            assert_eq!(files.child(many, name).unwrap().as_ref(), Some(child), "{what}");
        }
        for number in [0, 1, 2, NAME_COUNT / 2, NAME_COUNT - 1] {
            for name in [name(number), format!("not there: {}", name(number))] {
                let (disk, files) = open(&disk);
                let many = folder(&files);
                let before = disk.1.load(Ordering::Relaxed);
                let found = files.child(many, name.as_bytes()).unwrap();
                let reads = disk.1.load(Ordering::Relaxed) - before;
                assert_eq!(found.as_ref(), all.get(name.as_bytes()), "{what} {name}");
                // Without checksums all names are read before one is said to be absent.
                let is_vouched = found.is_some() || !features.contains("metadata_csum");
                assert!(
                    reads <= 5 || !is_vouched,
                    "{what} {name}: an inode, and a block on each level, not {reads} reads"
                );
            }
        }
    }
}

#[test]
fn an_index_that_is_damaged_is_not_used() {
    if missing(&["mkfs.ext4", "tune2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let sandbox = Sandbox::new();
    many(&sandbox.path("source"));
    for features in ["^has_journal", "^has_journal,^metadata_csum"] {
        let whole = disk(&sandbox, features, "half_md4", false);
        let root: usize = {
            let name = sandbox.path("disk");
            let said = sandbox.run(&["debugfs", "-R", "bmap /many 0", name.to_str().unwrap()], "");
            said.trim().parse::<usize>().unwrap() * 1024
        };
        // The kind of hashes, the levels, how many rows there are, and the first row's block.
        for at in [28, 30, 32, 34, 36] {
            let mut damaged = whole.clone();
            damaged[root + at] ^= 0x5f;
            damaged[root + at + 1] ^= 0x0e;
            let (_, files) = open(&damaged);
            let many = folder(&files);
            let all = listed(&files, many);
            assert_eq!(all.len(), NAME_COUNT, "{features} {at}");
            for number in (0..NAME_COUNT).step_by(NAME_COUNT / 20) {
                let name = name(number);
                let found = files.child(many, name.as_bytes()).unwrap();
                assert_eq!(found.as_ref(), all.get(name.as_bytes()), "{features} {at} {name}");
            }
        }
    }
}
