//! Restoring into place, or not at all.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use varve_archive::{
    ContentKey, Files, Node, Nodes, Progress, ReadContentError, ReadFolderError, RestoreCounts,
    RestoreFolderError, RestoreImageError, RestoreOptions, StoredFiles, Trouble, Watch, lookup,
    restore_folder,
};
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, GetError, PutError, Score, SyncError};
use varve_world::{InlineWorkers, RealWorkers, Workers};

use super::sample::{Place, acl, describe, set_xattr};

fn restore(place: &Place, destination: &Path, overwrite: bool) -> Result<(), RestoreFolderError> {
    let root = place.archive(None).root;
    let watch = Watch { progress: &place.progress, report: &|problem| panic!("{problem}") };
    let options = RestoreOptions { overwrite, ..RestoreOptions::default() };
    restore_folder(&StoredFiles::new(&place.blocks), &InlineWorkers, &root, destination, options, watch)
        .map(|_| ())
}

#[test]
fn what_exists_is_replaced_only_when_asked() {
    let place = Place::new();
    place.file("folder/file", "new");
    for make_old in [
        (|path| fs::write(path, "old").unwrap()) as fn(&Path),
        |path| fs::create_dir(path).unwrap(),
        |path| {
            fs::create_dir(path).unwrap();
            fs::write(path.join("old"), "old").unwrap();
        },
        |path| std::os::unix::fs::symlink("/nowhere", path).unwrap(),
    ] {
        make_old(&place.destination());
        let before = describe(&place.destination());
        let refused = restore(&place, &place.destination(), false);
        assert!(matches!(refused, Err(RestoreFolderError::Exists { .. })), "{refused:?}");
        assert_eq!(describe(&place.destination()), before);
        restore(&place, &place.destination(), true).unwrap();
        assert_eq!(describe(&place.destination()), describe(&place.source()));
        assert_eq!(place.leftovers(), [""; 0]);
        fs::remove_dir_all(place.destination()).unwrap();
    }
}

#[test]
fn a_destination_that_cannot_be_made_is_an_error() {
    let place = Place::new();
    place.file("file", "");
    let missing = restore(&place, &place.folder.path().join("missing/destination"), false);
    assert!(matches!(missing, Err(RestoreFolderError::Destination { .. })), "{missing:?}");
    for unnamed in ["/", "..", "a/.."] {
        let refused = restore(&place, Path::new(unnamed), true);
        assert!(matches!(refused, Err(RestoreFolderError::NoName { .. })), "{unnamed}: {refused:?}");
    }
    assert_eq!(place.leftovers(), [""; 0]);
}

#[test]
fn any_node_can_be_restored() {
    let place = Place::new();
    place.file("folder/below/file", "bytes");
    std::os::unix::fs::symlink("target", place.source().join("link")).unwrap();
    let root = place.archive(None).root;
    for path in ["folder", "folder/below/file", "link"] {
        let node = lookup(&StoredFiles::new(&place.blocks), &root, Path::new(path)).unwrap();
        place.restore(&node);
        assert_eq!(describe(&place.destination()), describe(&place.source().join(path)), "{path}");
        match fs::symlink_metadata(place.destination()).unwrap().is_dir() {
            true => fs::remove_dir_all(place.destination()).unwrap(),
            false => fs::remove_file(place.destination()).unwrap(),
        }
    }
}

#[test]
fn what_is_lost_is_left_out_and_named() {
    let place = Place::new();
    let noise: Vec<u8> =
        (0..10_000_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    place.file("large", &noise);
    place.file("small", "lost");
    place.file("kept", "bytes");
    let other_name = place.source().join("small, again");
    fs::hard_link(place.source().join("small"), &other_name).unwrap();
    let root = place.archive(None).root;
    let small = lookup(&StoredFiles::new(&place.blocks), &root, Path::new("small")).unwrap().content.unwrap();
    assert!(place.blocks.lose(&BlockName { score: small.root(), block_type: BlockType::DATA }));
    let leaf_of_large = varve_tree::TreeReader::new(
        &place.blocks,
        &lookup(&StoredFiles::new(&place.blocks), &root, Path::new("large")).unwrap().content.unwrap(),
    )
    .extents(30_000_000..30_000_001)
    .next()
    .unwrap()
    .unwrap();
    let block_type = BlockType::leaf(BlockKind::Data);
    assert!(place.blocks.lose(&BlockName { score: leaf_of_large.leaf.unwrap(), block_type }));
    let (counts, problems) = place.restore_with_problems(&root);
    let mut named: Vec<_> = problems.iter().map(|problem| problem.path.to_str().unwrap()).collect();
    named.sort_unstable();
    assert_eq!(named, ["large", "small", "small, again"]);
    assert_eq!((counts.file_count, counts.problem_count), (1, 3));
    let restored: Vec<_> = describe(&place.destination()).into_keys().collect();
    assert_eq!(restored, ["", "kept"].map(std::path::PathBuf::from));
}

#[test]
fn a_cancelled_restore_leaves_nothing() {
    let place = Place::new();
    place.file("folder/file", "bytes");
    let root = place.archive(None).root;
    let progress = Progress::new();
    progress.cancel();
    let watch = Watch { progress: &progress, report: &|problem| panic!("{problem}") };
    let options = RestoreOptions::default();
    let workers = RealWorkers::new(3);
    let cancelled = restore_folder(
        &StoredFiles::new(&place.blocks),
        &workers,
        &root,
        &place.destination(),
        options,
        watch,
    );
    assert!(matches!(cancelled, Err(RestoreFolderError::Cancelled)), "{cancelled:?}");
    assert!(!place.destination().exists());
    assert_eq!(place.leftovers(), [""; 0]);
}

/// Restores over what is at the destination, while some of it must stay.
fn replace(place: &Place, root: &Node, kept: &[PathBuf]) -> Result<RestoreCounts, RestoreFolderError> {
    let watch = Watch { progress: &place.progress, report: &|_| {} };
    let options = RestoreOptions { overwrite: true, kept, ..RestoreOptions::default() };
    let files = StoredFiles::new(&place.blocks);
    restore_folder(&files, &InlineWorkers, root, &place.destination(), options, watch)
}

#[test]
fn nothing_is_replaced_that_holds_what_must_stay() {
    let place = Place::new();
    place.file("file", "new");
    let root = place.archive(None).root;
    let file = lookup(&StoredFiles::new(&place.blocks), &root, Path::new("file")).unwrap();
    let (store, key) = (place.destination().join("a/b/store"), place.destination().join("a/key"));
    fs::create_dir_all(&store).unwrap();
    fs::write(store.join("log"), "everything").unwrap();
    fs::write(&key, "secret").unwrap();
    let links = tempfile::tempdir().unwrap();
    let by_link = links.path().join("link");
    symlink(place.destination().join("a"), &by_link).unwrap();
    let before = describe(&place.destination());
    for kept in [store, key.clone(), by_link.join("b/store"), by_link.join("key"), place.destination()] {
        for root in [&root, &file] {
            let refused = replace(&place, root, &["/nowhere".into(), kept.clone()]);
            let Err(RestoreFolderError::Holds { kept: found, .. }) = &refused else { panic!("{refused:?}") };
            assert_eq!(*found, kept);
            assert_eq!(describe(&place.destination()), before);
            assert_eq!(place.leftovers(), [""; 0]);
        }
    }
    // What is only like it, or beside it, is in nobody's way.
    fs::rename(key, place.folder.path().join("key")).unwrap();
    let beside = [place.folder.path().join("key"), place.source()];
    fs::remove_dir_all(place.destination().join("a/b")).unwrap();
    assert_eq!(replace(&place, &root, &beside).unwrap().problem_count, 0);
    assert_eq!(describe(&place.destination()), describe(&place.source()));
    assert_eq!(place.leftovers(), ["key"]);
}

/// What must stay comes there only while the work is done: all that was restored is kept under another name.
#[test]
fn what_must_stay_is_looked_for_once_more_at_the_end() {
    let place = Place::new();
    place.file("file", "new");
    let root = place.archive(None).root;
    fs::create_dir(place.destination()).unwrap();
    let store = place.folder.path().join("store");
    fs::create_dir(&store).unwrap();
    let moves = MovesWhenRead {
        files: StoredFiles::new(&place.blocks),
        from: store.clone(),
        to: place.destination().join("store"),
    };
    let watch = Watch { progress: &place.progress, report: &|problem| panic!("{problem}") };
    let kept = [store];
    let options = RestoreOptions { overwrite: true, kept: &kept, ..RestoreOptions::default() };
    let refused = restore_folder(&moves, &InlineWorkers, &root, &place.destination(), options, watch);
    let Err(RestoreFolderError::Unplaced { finished, .. }) = refused else { panic!("{refused:?}") };
    assert!(place.destination().join("store").is_dir());
    assert_eq!(describe(&finished), describe(&place.source()));
}

/// Moves a folder as soon as anything is asked for.
struct MovesWhenRead<'a> {
    files: StoredFiles<'a>,
    from: PathBuf,
    to: PathBuf,
}

impl Files for MovesWhenRead<'_> {
    fn blocks(&self) -> &dyn BlockStore {
        self.files.blocks()
    }

    fn nodes(&self, folder: &Node) -> Nodes<'_> {
        fs::rename(&self.from, &self.to).unwrap();
        self.files.nodes(folder)
    }

    fn find(&self, folder: &Node, name: &[u8]) -> Result<Option<Node>, ReadFolderError> {
        self.files.find(folder, name)
    }

    fn trouble(&self, node: &Node) -> Option<Trouble> {
        self.files.trouble(node)
    }

    fn read(
        &self,
        file: &Node,
        range: Range<u64>,
        take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), ReadContentError> {
        self.files.read(file, range, take)
    }

    fn write_to(
        &self,
        workers: &dyn Workers,
        file: &Node,
        into: &mut (dyn io::Write + Send),
        progress: &Progress,
    ) -> Result<(), RestoreImageError> {
        self.files.write_to(workers, file, into, progress)
    }

    fn content_key(&self, file: &Node) -> ContentKey {
        self.files.content_key(file)
    }
}

/// Something that is mounted; gone when the test is over. Only root can have any.
struct Mount(PathBuf);

impl Mount {
    #[allow(clippy::print_stdout, reason = "says what it skipped")]
    fn new(words: &[&str], at: &Path) -> Option<Self> {
        let made = Command::new("mount").args(words).arg(at).status().is_ok_and(|status| status.success());
        if !made {
            println!("skipped: a mount, which cannot be made here");
        }
        made.then(|| Self(at.to_path_buf()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a test that has failed may have left something open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn nothing_is_replaced_across_a_mount() {
    let place = Place::new();
    place.file("file", "new");
    let root = place.archive(None).root;
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("precious"), "bytes").unwrap();
    for at in ["", "deep/mounted"] {
        let at = place.destination().join(at);
        fs::create_dir_all(&at).unwrap();
        // Of another device, and of the same one.
        for words in [&["-t", "tmpfs", "none"][..], &["--bind", elsewhere.path().to_str().unwrap()]] {
            let Some(mount) = Mount::new(words, &at) else { return };
            fs::write(at.join("precious"), "bytes").unwrap();
            let refused = replace(&place, &root, &[]);
            let is_there = fs::read(at.join("precious"));
            drop(mount);
            assert!(matches!(refused, Err(RestoreFolderError::Mounted { .. })), "{refused:?}");
            assert_eq!(is_there.unwrap(), b"bytes");
            assert_eq!(place.leftovers(), [""; 0]);
        }
    }
    assert_eq!(replace(&place, &root, &[]).unwrap().problem_count, 0);
    assert_eq!(describe(&place.destination()), describe(&place.source()));
}

/// A file that something is mounted on cannot be removed, and does not keep its folder from being replaced.
#[test]
fn what_cannot_be_removed_is_a_problem() {
    let place = Place::new();
    place.file("file", "new");
    let root = place.archive(None).root;
    fs::create_dir(place.destination()).unwrap();
    let busy = place.destination().join("busy");
    fs::write(&busy, "below").unwrap();
    fs::write(place.destination().join("old"), "old").unwrap();
    let above = place.folder.path().join("above");
    fs::write(&above, "above").unwrap();
    let Some(_mount) = Mount::new(&["--bind", above.to_str().unwrap()], &busy) else { return };
    let counts = replace(&place, &root, &[]);
    let old = place.folder.path().join(".destination.varve-partial-0");
    let left: Vec<_> = fs::read_dir(&old)
        .map(|left| left.map(|entry| entry.unwrap().file_name()).collect())
        .unwrap_or_default();
    let _ = Command::new("umount").arg(old.join("busy")).status();
    assert_eq!(counts.unwrap().problem_count, 1);
    assert_eq!(left, ["busy"]);
    assert_eq!(fs::read(above).unwrap(), b"above");
    assert_eq!(describe(&place.destination()), describe(&place.source()));
}

/// A store that has lost all content of files.
struct Lacking<'a>(&'a dyn BlockStore);

impl BlockStore for Lacking<'_> {
    fn score_bytes(&self) -> usize {
        self.0.score_bytes()
    }

    fn empty_score(&self) -> Score {
        self.0.empty_score()
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        self.0.put(block)
    }

    fn get(&self, name: &BlockName) -> Result<bytes::Bytes, GetError> {
        if name.block_type == BlockType::DATA {
            Err(GetError::NotFound { name: *name })
        } else {
            self.0.get(name)
        }
    }

    fn sync(&self) -> Result<(), SyncError> {
        self.0.sync()
    }
}

#[test]
fn what_was_there_stays_if_not_all_is_restored() {
    let place = Place::new();
    place.file("file", [7; 5000]);
    let root = place.archive(None).root;
    fs::create_dir(place.destination()).unwrap();
    fs::write(place.destination().join("important"), "old").unwrap();
    let watch = Watch { progress: &place.progress, report: &|_| {} };
    let options = RestoreOptions { overwrite: true, ..RestoreOptions::default() };
    let blocks = Lacking(&place.blocks);
    let files = StoredFiles::new(&blocks);
    let counts = restore_folder(&files, &InlineWorkers, &root, &place.destination(), options, watch).unwrap();
    assert!(counts.is_old_left && counts.problem_count == 2, "{counts:?}");
    let old = place.folder.path().join(".destination.varve-partial-0");
    assert_eq!(fs::read(old.join("important")).unwrap(), b"old");
    assert!(!place.destination().join("file").exists());
}

#[test]
fn a_special_file_is_not_replaced_by_another_kind() {
    let place = Place::new();
    let fifo = |path: &Path| {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    fifo(&place.source().join("fifo"));
    fifo(&place.destination());
    let root = place.archive(None).root;
    let refused = replace(&place, &root, &[]);
    assert!(matches!(refused, Err(RestoreFolderError::OtherKind { .. })), "{refused:?}");
    assert_eq!(place.leftovers(), [""; 0]);
    let node = lookup(&StoredFiles::new(&place.blocks), &root, Path::new("fifo")).unwrap();
    replace(&place, &node, &[]).unwrap();
    assert_eq!(describe(&place.destination()), describe(&place.source().join("fifo")));
}

#[test]
fn what_is_restored_alone_inherits_nothing() {
    let place = Place::new();
    place.file("file", "bytes");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = place.source().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    symlink("target", place.source().join("link")).unwrap();
    let root = place.archive(None).root;
    set_xattr(place.folder.path(), "system.posix_acl_default", &acl());
    for path in ["file", "fifo", "link"] {
        let node = lookup(&StoredFiles::new(&place.blocks), &root, Path::new(path)).unwrap();
        place.restore(&node);
        assert_eq!(describe(&place.destination()), describe(&place.source().join(path)), "{path}");
        fs::remove_file(place.destination()).unwrap();
    }
}

/// A file of many parts, that is cancelled in the midst of them: there is no end of parts that nobody writes.
#[test]
fn a_large_file_alone_is_cancelled() {
    let place = Place::new();
    fs::File::create(place.source().join("large")).unwrap().set_len(1 << 40).unwrap();
    let root = place.archive(None).root;
    let large = lookup(&StoredFiles::new(&place.blocks), &root, Path::new("large")).unwrap();
    for node in [&root, &large] {
        for workers in [1, 3] {
            let progress = Progress::new();
            progress.cancel();
            let watch = Watch { progress: &progress, report: &|problem| panic!("{problem}") };
            let (files, workers) = (StoredFiles::new(&place.blocks), RealWorkers::new(workers));
            let options = RestoreOptions::default();
            let cancelled = restore_folder(&files, &workers, node, &place.destination(), options, watch);
            assert!(matches!(cancelled, Err(RestoreFolderError::Cancelled)), "{cancelled:?}");
            assert_eq!(place.leftovers(), [""; 0]);
        }
    }
}
