//! A second run reads only changed files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use varve_block::{BlockStore, BlockType};
use varve_content::folder::{StoredFiles, lookup};
use varve_content::{InodeFlags, Node};
use varve_world::Timestamp;

use super::sample::{Place, describe, make_everything};

#[test]
fn an_unchanged_folder_is_not_read() {
    let place = Place::new();
    make_everything(&place.source());
    let first = place.archive(None);
    let block_count = place.blocks.block_count();
    let second = place.archive(Some(&first.root));
    assert_eq!((second.counts.read_count, second.counts.read_bytes), (0, 0));
    assert_eq!(second.root, first.root);
    assert_eq!(place.blocks.block_count(), block_count);
    let file_names = second.counts.unchanged_count + 2;
    let is_file = |description: &&super::sample::Description| description.is_file();
    assert_eq!(file_names, describe(&place.source()).values().filter(is_file).count() as u64);
}

#[test]
fn one_changed_file_is_read() {
    let place = Place::new();
    for number in 0..100 {
        place.file(&format!("{}/{number}", number % 3), number.to_string());
    }
    let first = place.archive(None);
    place.file("1/40", "other bytes");
    place.file("1/new", "more bytes");
    fs::remove_file(place.source().join("2/50")).unwrap();
    let second = place.archive(Some(&first.root));
    assert_eq!((second.counts.read_count, second.counts.unchanged_count), (2, 98));
    place.restore(&second.root);
    assert_eq!(describe(&place.destination()), describe(&place.source()));
}

#[test]
fn a_file_of_the_same_size_and_time_is_known_by_its_inode() {
    let place = Place::new();
    let path = place.file("file", "one");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let first = place.archive(None);
    place.file("other", "two");
    fs::File::options()
        .write(true)
        .open(place.source().join("other"))
        .unwrap()
        .set_modified(modified)
        .unwrap();
    fs::rename(place.source().join("other"), &path).unwrap();
    let second = place.archive(Some(&first.root));
    assert_eq!(second.counts.read_count, 1);
    assert_ne!(second.root.content, first.root.content);
}

#[test]
fn a_file_that_changed_since_the_run_began_is_read_again() {
    let mut place = Place::new();
    let metadata = fs::metadata(place.file("file", "bytes")).unwrap();
    let changed_at = metadata.ctime() * 1_000_000_000 + metadata.ctime_nsec();
    let mut run_at = |began_at, previous: Option<&Node>| {
        place.options.began_at = Timestamp(began_at);
        place.archive(previous)
    };
    let later = changed_at + 1_000_000_000;
    let hot = run_at(changed_at, None);
    assert_eq!(run_at(later, Some(&hot.root)).counts.read_count, 1);
    let cold = run_at(later, None);
    assert_eq!(run_at(later, Some(&cold.root)).counts.read_count, 0);
}

/// An older build archived a file without its flags. The file is read once more for the flags that
/// its status shows.
#[test]
fn flags_that_an_earlier_build_left_out_are_added() {
    let mut place = Place::new();
    let path = place.file("immutable", "bytes");
    place.file("plain", "bytes");
    let lock =
        |flag| Command::new("chattr").arg(flag).arg(&path).status().is_ok_and(|status| status.success());
    if !lock("+i") {
        eprintln!("skipped as flags cannot be set here: flags_that_an_earlier_build_left_out_are_added");
        return;
    }
    place.options.adjust = |node| node.inode_flags = InodeFlags::NONE;
    let first = place.archive(None);
    place.options.adjust = |_| {};
    let second = place.archive(Some(&first.root));
    let third = place.archive(Some(&second.root));
    assert!(lock("-i"));
    assert_eq!((second.counts.read_count, second.counts.unchanged_count), (1, 1));
    assert_eq!((third.counts.read_count, third.counts.unchanged_count), (0, 2));
    let files = StoredFiles::new(&place.blocks);
    let flags = |root: &Node| lookup(&files, root, Path::new("immutable")).unwrap().inode_flags;
    assert_eq!([flags(&second.root), flags(&third.root)], [InodeFlags::IMMUTABLE; 2]);
    assert!(flags(&first.root).is_empty());
}

#[test]
fn a_previous_folder_that_cannot_be_read_is_as_if_there_were_none() {
    let place = Place::new();
    place.file("folder/file", "bytes");
    let first = place.archive(None);
    let names = place.blocks.names();
    for name in names.iter().filter(|name| name.block_type == BlockType::DIRECTORY) {
        assert!(place.blocks.lose(name));
    }
    let second = place.archive(Some(&first.root));
    assert_eq!(second.counts.read_count, 1);
    assert_eq!(second.root, first.root);
    assert!(place.blocks.has_batch(&names).unwrap().into_iter().all(|has| has), "all is stored again");
}
