//! Folders of ext file systems with an unreadable part: the rest is shown, and the error is
//! reported at the end.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::sandbox::{Sandbox, missing};
use varve_image::{ExtFileSystem, FileId, FileSystem, FileSystemError, ReadAt};

const BLOCK_BYTES: usize = 1024;
/// Four names of this length fit into a block. The folder has more blocks than its map and one
/// block of pointers can name.
const NAME_COUNT: usize = 1600;
const PER_BLOCK: usize = 4;

/// A disk with an unreadable range.
struct Unreadable(Vec<u8>, Range<u64>);

impl ReadAt for Unreadable {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if offset < self.1.end && self.1.start < offset + into.len() as u64 {
            return Err(io::Error::other("the disk is damaged here"));
        }
        self.0.read_at(offset, into)
    }
}

fn name(number: usize) -> String {
    format!("{number:0>220}")
}

fn disk(sandbox: &Sandbox, program: &str) -> Vec<u8> {
    let folder = sandbox.path("tree/many");
    fs::create_dir_all(&folder).unwrap();
    (0..NAME_COUNT).for_each(|number| drop(File::create(folder.join(name(number))).unwrap()));
    let image = sandbox.sparse("image", 16 << 20);
    let (tree, image_name) = (sandbox.path("tree"), image.to_str().unwrap());
    let words = [program, "-q", "-F", "-b", "1024", "-N", "2048", "-d", tree.to_str().unwrap(), image_name];
    sandbox.run(&words, "");
    fs::read(image).unwrap()
}

fn debugfs(sandbox: &Sandbox, question: &str) -> String {
    let image = sandbox.path("image");
    sandbox.run(&["debugfs", "-R", question, image.to_str().unwrap()], "")
}

fn open(disk: impl ReadAt + 'static) -> (ExtFileSystem, FileId) {
    let files = ExtFileSystem::open(Arc::new(disk)).unwrap();
    let many = files.child(files.root(), b"many").unwrap().unwrap().id;
    (files, many)
}

/// At most `count` names from child number `first` on, and the result of the listing.
fn page(
    files: &ExtFileSystem,
    folder: FileId,
    first: usize,
    count: usize,
) -> (Vec<Vec<u8>>, Result<(), FileSystemError>) {
    let mut names = Vec::new();
    let listed = files.children(folder, first as u64, &mut |child| {
        names.push(child.name);
        if names.len() < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (names, listed)
}

/// Everything except the names in `lost_count` blocks is shown, at once and in pages, and `problem`
/// is reported.
fn assert_rest_is_shown(files: &ExtFileSystem, many: FileId, lost_count: usize, problem: &str) {
    let (all, listed) = page(files, many, 0, usize::MAX);
    assert!(listed.unwrap_err().to_string().contains(problem));
    let lost = NAME_COUNT - all.iter().collect::<BTreeSet<_>>().len();
    assert!((1..=lost_count * PER_BLOCK).contains(&lost), "{lost} names of {lost_count} blocks");
    let mut paged = Vec::new();
    let end = loop {
        let (names, listed) = page(files, many, paged.len(), 70);
        let is_last = names.len() < 70;
        paged.extend(names);
        if is_last {
            break listed;
        }
        listed.unwrap();
    };
    assert!(paged == all);
    assert!(end.unwrap_err().to_string().contains(problem), "the last page tells of it too");
    let (_, listed) = page(files, many, all.len(), 70);
    assert!(listed.unwrap_err().to_string().contains(problem));
    // A look-up finds the name, or returns an error if the name may be in a lost block.
    for number in [0, NAME_COUNT / 2, NAME_COUNT - 1].map(name) {
        match files.child(many, number.as_bytes()) {
            Ok(found) => assert!(found.is_some() && all.contains(&number.into_bytes())),
            Err(error) => assert!(error.to_string().contains(problem)),
        }
    }
}

#[test]
fn a_block_of_names_that_is_damaged_hides_its_own_names() {
    if missing(&["mkfs.ext4", "debugfs"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let whole = disk(&sandbox, "mkfs.ext4");
    for number in [0, 7, 100] {
        let told = debugfs(&sandbox, &format!("bmap /many {number}"));
        let at = told.trim().parse::<usize>().unwrap() * BLOCK_BYTES;
        let mut damaged = whole.clone();
        damaged[at + 500] ^= 1;
        let (files, many) = open(damaged);
        assert_rest_is_shown(&files, many, 1, "a block of it does not match its checksum");
    }
}

#[test]
fn an_entry_that_makes_no_sense_hides_what_is_behind_it_in_its_block() {
    if missing(&["mkfs.ext2", "debugfs"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let mut damaged = disk(&sandbox, "mkfs.ext2");
    let told = debugfs(&sandbox, "bmap /many 7");
    let at = told.trim().parse::<usize>().unwrap() * BLOCK_BYTES;
    damaged[at + 4] = 3;
    let (files, many) = open(damaged);
    assert_rest_is_shown(&files, many, 1, "an entry is longer than its block");
}

#[test]
fn a_part_of_the_map_that_cannot_be_read_hides_the_blocks_that_it_names() {
    if missing(&["mkfs.ext2", "debugfs"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let whole = disk(&sandbox, "mkfs.ext2");
    let told = debugfs(&sandbox, "stat /many");
    let pointers = told.split("(IND):").nth(1).unwrap().split([',', '\n']).next().unwrap();
    let at = pointers.trim().parse::<usize>().unwrap() * BLOCK_BYTES;
    let pointer_count = BLOCK_BYTES / 4;
    // The pointers lead nowhere.
    let mut damaged = whole.clone();
    damaged[at..][..BLOCK_BYTES].fill(0xee);
    let (files, many) = open(damaged);
    assert_rest_is_shown(&files, many, pointer_count, "which does not exist");
    // The block is unreadable. The blocks of names that are read together with it are unreadable as
    // well.
    let (files, many) = open(Unreadable(whole, at as u64..(at + BLOCK_BYTES) as u64));
    assert_rest_is_shown(&files, many, pointer_count + 16, "could not be read");
}
