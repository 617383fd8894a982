//! Look-ups of names in large folders of ext file systems, with the index that e2fsck makes, with
//! every kind of hash, and without an index.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sandbox::{Sandbox, missing};
use varve_image::{ExtFileSystem, FileId, FileSystem, FolderChild, ReadAt};

const MIB: u64 = 1 << 20;
/// Enough for two levels of nodes, with blocks of 1 KiB.
const NAME_COUNT: usize = 2800;

/// A disk that counts its reads.
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
    // Exit code 1 means that e2fsck has changed something.
    let checked = Command::new("e2fsck").args(["-fyD", disk_name]).output().unwrap();
    assert!(checked.status.code().is_some_and(|code| code < 4), "{checked:?}");
    fs::read(disk).unwrap()
}

fn open(disk: &[u8]) -> (Arc<Counted>, ExtFileSystem) {
    let disk = Arc::new(Counted(disk.to_vec(), AtomicU64::new(0)));
    let files = ExtFileSystem::open(Arc::clone(&disk) as Arc<dyn ReadAt>).unwrap();
    (disk, files)
}

fn listed(files: &ExtFileSystem, folder: FileId) -> BTreeMap<Vec<u8>, FolderChild> {
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
                // Without checksums, all names are read before one is reported as absent.
                let is_vouched = found.is_some() || !features.contains("metadata_csum");
                assert!(
                    reads <= 5 || !is_vouched,
                    "{what} {name}: an inode, and a block on each level, not {reads} reads"
                );
            }
        }
    }
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The checksum of ext4, continued from `code`.
fn crc32c(code: u32, bytes: &[u8]) -> u32 {
    let step = |code: u32, _| if code & 1 == 0 { code >> 1 } else { code >> 1 ^ 0x82f6_3b78 };
    bytes.iter().fold(code, |code, byte| (0..8).fold(code ^ u32::from(*byte), step))
}

/// The kernel turns a folder's first block, when it is full, into the root of its index. The root
/// keeps the start of the tail that the block had as a block of names. Its new checksum is at the
/// place of the old one.
#[test]
fn a_root_that_was_a_block_of_names_is_one_no_more() {
    const BLOCK_BYTES: usize = 1024;
    if missing(&["mkfs.ext4", "tune2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let sandbox = Sandbox::new();
    many(&sandbox.path("source"));
    let mut disk = disk(&sandbox, "^has_journal", "half_md4", false);
    let image = sandbox.path("disk");
    let debugfs = |question: &str| sandbox.run(&["debugfs", "-R", question, image.to_str().unwrap()], "");
    let block = |number: u32| debugfs(&format!("bmap /many {number}")).trim().parse::<usize>().unwrap();
    let (_, files) = open(&disk);
    let inode = u32::try_from(folder(&files).0).unwrap();
    let told = debugfs("stat /many");
    let generation = told.split("Generation: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let has_own_seed = number_at(&disk, 1024 + 0x60) & 0x2000 != 0;
    let seed =
        if has_own_seed { number_at(&disk, 1024 + 0x270) } else { crc32c(!0, &disk[1024 + 0x68..][..16]) };
    let seed = crc32c(seed, &inode.to_le_bytes());
    let seed = crc32c(seed, &generation.parse::<u32>().unwrap().to_le_bytes());
    let at = block(0) * BLOCK_BYTES;
    let root = &mut disk[at..at + BLOCK_BYTES];
    assert_eq!(root[1012..1020], [0; 8], "rows that are not in use, and what the kernel does not write");
    root[1016..1020].copy_from_slice(&[12, 0, 0, 0xde]);
    let used = 32 + 8 * usize::from(u16::from_le_bytes([root[34], root[35]]));
    let code = crc32c(crc32c(crc32c(seed, &root[..used]), &root[1016..1020]), &[0; 4]);
    root[1020..].copy_from_slice(&code.to_le_bytes());
    fs::write(&image, &disk).unwrap();
    sandbox.run(&["e2fsck", "-fn", image.to_str().unwrap()], "");

    let (_, files) = open(&disk);
    let many = folder(&files);
    let all = listed(&files, many);
    assert_eq!(all.len(), NAME_COUNT);
    for (name, child) in &all {
        assert_eq!(files.child(many, name).unwrap().as_ref(), Some(child));
    }
    // A block of names whose beginning looks like an index is not a part of it.
    let leaf = (1..).map(|number| block(number) * BLOCK_BYTES).find(|at| number_at(&disk, *at) != 0).unwrap();
    disk[leaf..leaf + 6].copy_from_slice(&[0, 0, 0, 0, 0, 4]);
    let (_, files) = open(&disk);
    let problem = files.children(folder(&files), 0, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(problem.to_string().ends_with("a block of it does not match its checksum"), "{problem}");
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
        // The kind of hashes, the levels, the number of rows, and the first row's block.
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
