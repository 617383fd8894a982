//! A disk of a machine that has crashed: pending changes in the journal are shown as a mount would
//! show them.
#![allow(clippy::cast_possible_truncation, reason = "numbers that the test itself has made")]

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sandbox::{Sandbox, missing};
use varve_image::{ExtFileSystem, FileId, FileKind, FileSystem};

const SIZE: u64 = 24 << 20;

fn open(path: &Path) -> ExtFileSystem {
    ExtFileSystem::open(Arc::new(File::open(path).unwrap())).unwrap()
}

/// Everything: paths, `stat` fields, contents.
fn everything(files: &ExtFileSystem, folder: FileId, path: &str, found: &mut Vec<String>) {
    let mut children = Vec::new();
    files
        .children(folder, 0, &mut |child| {
            children.push(child);
            ControlFlow::Continue(())
        })
        .unwrap();
    for child in children {
        let path = format!("{path}/{}", String::from_utf8_lossy(&child.name));
        let status = files.status(child.id).unwrap();
        let mut bytes = vec![0; status.size as usize];
        if status.kind == FileKind::File {
            assert_eq!(files.read_at(child.id, 0, &mut bytes).unwrap(), bytes.len());
        }
        found.push(format!("{path} {status:?} {bytes:?}"));
        if status.kind == FileKind::Folder {
            everything(files, child.id, &path, found);
        }
    }
}

fn all(path: &Path) -> Vec<String> {
    let (files, mut found) = (open(path), Vec::new());
    assert_eq!(files.recovery_problem(), None);
    everything(&files, files.root(), "", &mut found);
    found
}

/// Adds transactions to the journal of `before` that would turn it into `after`. They hold the
/// blocks that differ, some at a time.
fn let_wait(sandbox: &Sandbox, before: &Path, after: &Path, block_bytes: usize, journal: &str) {
    let (old, new) = (fs::read(before).unwrap(), fs::read(after).unwrap());
    let numbers = (0..old.len() / block_bytes).filter(|number| {
        let range = number * block_bytes..(number + 1) * block_bytes;
        old[range.clone()] != new[range]
    });
    let numbers: Vec<_> = numbers.collect();
    assert!(numbers.len() > 8, "{numbers:?}");
    fs::write(sandbox.path("other"), vec![0x55; block_bytes]).unwrap();
    // A block of a file that does not change is first written, and then revoked.
    let files = open(before);
    let staying = files.child(files.root(), b"staying").unwrap().unwrap().id;
    let revoked = files.runs(staying).unwrap()[0].physical.unwrap();
    let mut script = format!("jo {journal}\njw -b {revoked} other\njw -r {revoked}\n");
    for (part, numbers) in numbers.chunks(numbers.len() / 3).enumerate() {
        let content: Vec<u8> =
            numbers.iter().flat_map(|number| &new[number * block_bytes..][..block_bytes]).copied().collect();
        fs::write(sandbox.path(&format!("blocks-{part}")), content).unwrap();
        let list: Vec<_> = numbers.iter().map(ToString::to_string).collect();
        // Other bytes come first. The newer transaction replaces them.
        script += &format!("jw -b {} other\njw -b {} blocks-{part}\n", numbers[0], list.join(","));
    }
    script += "jc\n";
    sandbox.run(&["debugfs", "-w", "-f", "/dev/stdin", before.to_str().unwrap()], &script);
}

fn make(sandbox: &Sandbox, shape: &[&str]) -> (PathBuf, PathBuf) {
    let (before, after) = (sandbox.sparse("before", SIZE), sandbox.path("after"));
    let tree = sandbox.path("tree");
    let words = ["-q", "-F", "-N", "256", "-d", tree.to_str().unwrap(), before.to_str().unwrap()];
    sandbox.run(&[shape, &words].concat(), "");
    fs::copy(&before, &after).unwrap();
    // A file whose first bytes are those of a journal block.
    fs::write(sandbox.path("escaped"), [&[0xc0, 0x3b, 0x39, 0x98][..], &[7; 5000]].concat()).unwrap();
    let script = "rm old\nmkdir new\nwrite escaped new/escaped\nwrite tree/big new/big\nrm changing\nwrite tree/old changing\nset_super_value state 1\n";
    sandbox.run(&["debugfs", "-w", "-f", "/dev/stdin", after.to_str().unwrap()], script);
    (before, after)
}

fn make_tree(sandbox: &Sandbox) {
    fs::create_dir(sandbox.path("tree")).unwrap();
    for (name, length) in [("old", 3000), ("changing", 70_000), ("staying", 10_000), ("big", 300_000)] {
        let bytes: Vec<u8> = (0..length).map(|at: u32| (at % 249) as u8 + 1).collect();
        fs::write(sandbox.path("tree").join(name), bytes).unwrap();
    }
}

#[test]
fn what_waits_in_the_journal_is_shown_as_done() {
    if missing(&["mkfs.ext4", "debugfs", "e2fsck"]) {
        return;
    }
    let shapes: [(&[&str], &str); 5] = [
        (&["mkfs.ext4", "-b", "1024", "-J", "size=4"], "-c"),
        (&["mkfs.ext4", "-b", "4096", "-J", "size=4"], "-c"),
        (&["mkfs.ext4", "-b", "1024", "-J", "size=4", "-O", "^64bit"], "-c -v 2"),
        (&["mkfs.ext4", "-b", "1024", "-J", "size=4", "-O", "^metadata_csum"], ""),
        (&["mkfs.ext3", "-b", "4096", "-J", "size=4"], ""),
    ];
    for (shape, journal) in shapes {
        let sandbox = Sandbox::new();
        make_tree(&sandbox);
        let (before, after) = make(&sandbox, shape);
        let (old, new) = (all(&before), all(&after));
        assert_ne!(old, new);
        let block_bytes = open(&before).block_bytes() as usize;
        let_wait(&sandbox, &before, &after, block_bytes, journal);
        let waiting = open(&before);
        assert!(waiting.needs_recovery() && !waiting.is_clean(), "{shape:?}");
        assert_eq!(waiting.free_places().unwrap(), None);
        assert_eq!(all(&before), new, "{shape:?}");
        // The state after e2fsck has written everything to its place.
        let bytes = fs::read(&before).unwrap();
        let told = sandbox.path("told");
        fs::write(&told, &bytes).unwrap();
        sandbox.run(&["debugfs", "-w", "-R", "journal_run", told.to_str().unwrap()], "");
        sandbox.run(&["e2fsck", "-fn", told.to_str().unwrap()], "");
        assert_eq!(all(&told), new, "{shape:?}");
        assert!(!open(&told).needs_recovery());
        assert!(fs::read(&before).unwrap() == bytes, "nothing is written");
    }
}

#[test]
fn a_torn_journal_shows_what_came_before() {
    if missing(&["mkfs.ext4", "debugfs"]) {
        return;
    }
    let sandbox = Sandbox::new();
    make_tree(&sandbox);
    let (before, after) = make(&sandbox, &["mkfs.ext4", "-b", "1024", "-J", "size=4"]);
    let old = all(&before);
    let_wait(&sandbox, &before, &after, 1024, "-c");
    let journal = open(&before).runs(FileId(8)).unwrap()[0].physical.unwrap();
    let file = File::options().read(true).write(true).open(&before).unwrap();
    let mut block = [0; 1024];
    let mut commits = 0;
    for number in 1..2000 {
        file.read_exact_at(&mut block, (journal + number) * 1024).unwrap();
        let is_commit = block[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];
        commits += u32::from(is_commit);
        if is_commit {
            block[100] ^= 1;
            file.write_all_at(&block, (journal + number) * 1024).unwrap();
        }
    }
    assert!(commits >= 8, "{commits}");
    // Without a whole commit nothing counts. This is no problem, because nothing more was promised.
    assert_eq!(all(&before), old);

    // A journal without its beginning is reported as a problem, and the data in place is shown.
    file.write_all_at(&[0; 1024], journal * 1024).unwrap();
    let files = open(&before);
    assert_eq!(files.recovery_problem(), Some("the journal is damaged: its superblock is malformed"));
    assert!(files.child(files.root(), b"old").unwrap().is_some());
    assert_eq!(files.places(files.child(files.root(), b"big").unwrap().unwrap().id).unwrap(), None);
}
