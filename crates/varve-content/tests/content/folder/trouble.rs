//! Files that change, vanish, or cannot be read: the snapshot reports them, and goes on.

use std::fs;
use std::io::Write;
use std::path::Path;

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::{Block, BlockName, BlockStore, BlockType, GetError, PutError, Score, SyncError};
use varve_content::folder::{
    ArchiveFolderError, ArchivedFolder, FolderOptions, StoredFiles, Watch, archive_folder, lookup,
};
use varve_content::{Node, NodeProblem, Problem};
use varve_world::{InlineWorkers, RealWorkers};

use super::sample::{Place, is_root, set_mode};

/// A store that calls `meddle` once, at the first block of file data, while that file is read.
struct Meddling<'a> {
    place: &'a Place,
    meddle: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

impl BlockStore for Meddling<'_> {
    fn score_bytes(&self) -> usize {
        self.place.blocks.score_bytes()
    }

    fn empty_score(&self) -> Score {
        self.place.blocks.empty_score()
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        if block.block_type == BlockType::DATA
            && let Some(meddle) = self.meddle.lock().take()
        {
            meddle();
        }
        self.place.blocks.put(block)
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.place.blocks.get(name)
    }

    fn sync(&self) -> Result<(), SyncError> {
        Ok(())
    }
}

/// Archives while `meddle` interferes, and returns the result with all problems.
fn archive_while(place: &Place, meddle: impl FnOnce() + Send) -> (ArchivedFolder, Vec<Problem>) {
    let blocks = Meddling { place, meddle: Mutex::new(Some(Box::new(meddle))) };
    let problems = Mutex::new(Vec::new());
    let watch = Watch { progress: &place.progress, report: &|problem| problems.lock().push(problem) };
    let options = FolderOptions::default();
    let archived = archive_folder(&blocks, &InlineWorkers, &place.source(), None, &options, watch).unwrap();
    (archived, problems.into_inner())
}

fn node(place: &Place, archived: &ArchivedFolder, path: &str) -> Node {
    lookup(&StoredFiles::new(&place.blocks), &archived.root, Path::new(path)).unwrap()
}

/// A content that is read in several pieces.
fn large() -> Vec<u8> {
    (0..3_000_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()).collect()
}

#[test]
fn a_file_that_grows_while_it_is_read_has_changed() {
    let place = Place::new();
    let path = place.file("large", large());
    place.file("other", "bytes");
    let (archived, problems) = archive_while(&place, || {
        fs::File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    });
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].to_string(), "large: it changed while it was read");
    let node = node(&place, &archived, "large");
    assert_eq!((node.problem, node.size), (Some(NodeProblem::Changed), 12_000_000));
    assert_eq!(archived.counts.problem_count, 1);
    let counts = place.restore(&archived.root);
    assert_eq!(counts.file_count, 2);
    assert_eq!(fs::read(place.destination().join("large")).unwrap(), large());
    assert_eq!(place.archive(Some(&archived.root)).counts.read_count, 1, "what changed is read again");
}

#[test]
fn a_file_that_shrinks_while_it_is_read_has_changed() {
    let place = Place::new();
    let path = place.file("large", large());
    let (archived, problems) = archive_while(&place, || {
        fs::File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
    });
    assert_eq!(problems.len(), 1, "{problems:?}");
    let node = node(&place, &archived, "large");
    assert_eq!((node.problem, node.size), (Some(NodeProblem::Changed), node.content.unwrap().size()));
    assert!(
        node.size < 12_000_000
            && large().starts_with(&{
                place.restore(&archived.root);
                fs::read(place.destination().join("large")).unwrap()
            })
    );
}

#[test]
fn a_file_that_vanishes_before_it_is_read_is_known_by_name() {
    let place = Place::new();
    place.file("a large", large());
    let path = place.file("vanishing", large());
    place.file("z", "bytes");
    // One worker reads the first file when the queue is full, or at the end. It has seen all files
    // by then.
    let (archived, problems) = archive_while(&place, || fs::remove_file(&path).unwrap());
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].path, Path::new("vanishing"));
    let node = node(&place, &archived, "vanishing");
    assert_eq!((node.problem, node.content), (Some(NodeProblem::Vanished), None));
    assert_eq!((archived.counts.file_count, archived.counts.problem_count), (3, 1));
    let (counts, problems) = place.restore_with_problems(&archived.root);
    assert_eq!((counts.file_count, problems.len()), (2, 1));
    assert!(!place.destination().join("vanishing").exists());
}

#[test]
fn a_file_that_turns_into_a_link_is_not_followed() {
    let place = Place::new();
    place.file("a large", large());
    let path = place.file("secret", large());
    let (archived, problems) = archive_while(&place, || {
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    });
    assert_eq!(problems.len(), 1, "{problems:?}");
    let node = node(&place, &archived, "secret");
    assert_eq!((node.problem, node.content), (Some(NodeProblem::Unreadable), None));
}

#[test]
fn a_file_that_is_replaced_is_read_as_it_is_now() {
    let place = Place::new();
    place.file("a large", large());
    let path = place.file("replaced", large());
    let (archived, problems) = archive_while(&place, || {
        fs::write(path.with_file_name("../new"), "new").unwrap();
        fs::rename(path.with_file_name("../new"), &path).unwrap();
    });
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(node(&place, &archived, "replaced").size, 3);
}

#[test]
fn what_cannot_be_read_is_reported_and_the_rest_is_archived() {
    if is_root() {
        eprintln!("skipped as root: what_cannot_be_read_is_reported_and_the_rest_is_archived");
        return;
    }
    let place = Place::new();
    let file = place.file("a/unreadable", "bytes");
    place.file("b/file", "bytes");
    place.file("c", "bytes");
    set_mode(&file, 0);
    set_mode(&place.source().join("b"), 0);
    let (archived, problems) = place.try_archive(None);
    let archived = archived.unwrap();
    set_mode(&place.source().join("b"), 0o700);
    assert_eq!((problems.len(), archived.counts.problem_count), (2, 2));
    for path in ["a/unreadable", "b"] {
        assert_eq!(node(&place, &archived, path).problem, Some(NodeProblem::Unreadable));
    }
    assert_eq!(node(&place, &archived, "c").problem, None);
}

#[test]
fn a_source_that_is_none_is_an_error() {
    let place = Place::new();
    fs::remove_dir(place.source()).unwrap();
    let (missing, _) = place.try_archive(None);
    assert!(matches!(missing, Err(ArchiveFolderError::Source { .. })), "{missing:?}");
    fs::write(place.source(), "a file").unwrap();
    let (file, _) = place.try_archive(None);
    assert!(matches!(file, Err(ArchiveFolderError::Source { .. })), "{file:?}");
}

#[test]
fn a_cancelled_run_ends_with_an_error() {
    let place = Place::new();
    place.file("a", large());
    place.file("b", large());
    let blocks = Meddling { place: &place, meddle: Mutex::new(Some(Box::new(|| place.progress.cancel()))) };
    let watch = Watch { progress: &place.progress, report: &|problem| panic!("{problem}") };
    let options = FolderOptions::default();
    let cancelled = archive_folder(&blocks, &RealWorkers::new(2), &place.source(), None, &options, watch);
    assert!(matches!(cancelled, Err(ArchiveFolderError::Cancelled)), "{cancelled:?}");
}

/// A store that accepts a number of blocks, and then no more.
struct Full<'a>(&'a Place, std::sync::atomic::AtomicI64);

impl BlockStore for Full<'_> {
    fn score_bytes(&self) -> usize {
        self.0.blocks.score_bytes()
    }

    fn empty_score(&self) -> Score {
        self.0.blocks.empty_score()
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        if self.1.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) > 0 {
            self.0.blocks.put(block)
        } else {
            Err(PutError::ReadOnly { reason: "full".to_owned() })
        }
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.0.blocks.get(name)
    }

    fn sync(&self) -> Result<(), SyncError> {
        Ok(())
    }
}

#[test]
fn a_store_that_takes_no_more_ends_the_run() {
    let place = Place::new();
    for number in 0..1000 {
        place.file(&format!("{number}"), vec![1; number * 100]);
    }
    for block_count in [0, 1, 300, 1000] {
        let blocks = Full(&place, block_count.into());
        let watch = Watch { progress: &place.progress, report: &|problem| panic!("{problem}") };
        let options = FolderOptions::default();
        let ended = archive_folder(&blocks, &RealWorkers::new(3), &place.source(), None, &options, watch);
        assert!(matches!(ended, Err(ArchiveFolderError::Store { .. })), "{block_count}: {ended:?}");
    }
}
