//! Restores into a new place complete or not at all, and into an existing folder one file at a
//! time.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use varve_block::{BlockKind, BlockName, BlockStore, BlockType, GetError};
use varve_content::folder::{
    Overwrite, PlannedEntry, RestoreAction, RestoreCounts, RestoreFilter, RestoreFolderError, RestoreOptions,
    StoredFiles, Watch, lookup, plan_restore, read_back, restore_folder,
};
use varve_content::image::RestoreImageError;
use varve_content::{
    ContentKey, DamageList, Files, InodeFlags, Node, Nodes, OnLoss, Problem, Progress, ReadContentError,
    ReadFolderError, ReadProblem, TakeBytes,
};
use varve_world::{InlineWorkers, RealWorkers, Workers};

use super::sample::{Place, acl, describe, set_mode, set_xattr};

const ALWAYS: RestoreOptions<'_> = options(Some(Overwrite::Always));
const REPLACE: RestoreOptions<'_> = RestoreOptions { replace_types: true, ..ALWAYS };
const MIRROR: RestoreOptions<'_> = RestoreOptions { delete: true, ..REPLACE };

/// Options for any user: [`restore_watched`] sets owners if the process may.
const fn options(overwrite: Option<Overwrite>) -> RestoreOptions<'static> {
    RestoreOptions {
        overwrite,
        replace_types: false,
        delete: false,
        filter: &RestoreFilter::ALL,
        kept: &[],
        owners: false,
        source: b"the test",
        note_bytes: 1 << 20,
        damaged: None,
    }
}

/// Restores to the destination, as far as the process has permission, and fails at any problem.
fn restore(
    place: &Place,
    root: &Node,
    options: RestoreOptions<'_>,
) -> Result<RestoreCounts, RestoreFolderError> {
    let watch = Watch { progress: &place.progress, report: &|problem| panic!("{problem:?}") };
    restore_watched(place, root, options, watch)
}

/// Restores like [`restore`], and returns all problems.
fn restore_reporting(
    place: &Place,
    root: &Node,
    options: RestoreOptions<'_>,
) -> (Result<RestoreCounts, RestoreFolderError>, Vec<String>) {
    let problems = parking_lot::Mutex::new(Vec::new());
    let report = |problem: Problem| {
        problems.lock().push(format!("{}: {}", problem.path.display(), problem.error));
    };
    let restored =
        restore_watched(place, root, options, Watch { progress: &place.progress, report: &report });
    (restored, problems.into_inner())
}

fn restore_watched(
    place: &Place,
    root: &Node,
    options: RestoreOptions<'_>,
    watch: Watch<'_>,
) -> Result<RestoreCounts, RestoreFolderError> {
    let options = RestoreOptions { owners: RestoreOptions::default().owners, ..options };
    let files = StoredFiles::new(&place.blocks);
    restore_folder(&files, &InlineWorkers, root, &place.destination(), options, watch)
}

fn lay(place: &Place, entries: &[(&str, &str)]) {
    for (path, content) in entries {
        let path = place.destination().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

#[test]
fn what_exists_is_changed_only_when_asked() {
    let place = Place::new();
    place.file("folder/file", "new");
    let root = place.archive(None).root;
    for make_old in [
        (|path| fs::write(path, "old").unwrap()) as fn(&Path),
        |path| {
            fs::create_dir(path).unwrap();
            fs::write(path.join("old"), "old").unwrap();
        },
        |path| symlink("/nowhere", path).unwrap(),
    ] {
        make_old(&place.destination());
        let before = describe(&place.destination());
        let refused = restore(&place, &root, options(None));
        assert!(matches!(refused, Err(RestoreFolderError::Exists { .. })), "{refused:?}");
        if !before[Path::new("")].is_folder() {
            for overwrite in [Overwrite::Always, Overwrite::IfChanged, Overwrite::IfNewer, Overwrite::Never] {
                let refused = restore(&place, &root, options(Some(overwrite)));
                assert!(matches!(refused, Err(RestoreFolderError::OtherKind { .. })), "{refused:?}");
            }
        }
        assert_eq!(describe(&place.destination()), before);
        assert_eq!(restore(&place, &root, MIRROR).unwrap().problem_count, 0);
        assert_eq!(describe(&place.destination()), describe(&place.source()));
        assert_eq!(place.leftovers(), [""; 0]);
        fs::remove_dir_all(place.destination()).unwrap();
    }
}

#[test]
fn an_empty_folder_is_filled_and_stays_the_same_folder() {
    let place = Place::new();
    super::sample::make_everything(&place.source());
    let root = place.archive(None).root;
    fs::create_dir(place.destination()).unwrap();
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let before = inode(&place.destination());
    let counts = restore(&place, &root, options(None)).unwrap();
    assert_eq!((counts.problem_count, inode(&place.destination())), (0, before));
    assert_eq!(describe(&place.destination()), describe(&place.source()));
    assert_eq!(place.leftovers(), [""; 0]);
}

#[test]
fn a_merge_keeps_what_the_snapshot_does_not_have() {
    let place = Place::new();
    for (path, content) in [("a/one", "new one"), ("a/two", "new two"), ("b", "new b")] {
        place.file(path, content);
    }
    let root = place.archive(None).root;
    lay(&place, &[("a/one", "old"), ("a/three", "mine"), ("four", "mine"), ("c/five", "mine")]);
    let counts = restore(&place, &root, ALWAYS).unwrap();
    assert_eq!((counts.file_count, counts.kept_count, counts.deleted_count), (3, 0, 0));
    let read = |path: &str| fs::read_to_string(place.destination().join(path)).unwrap();
    for (path, content) in [
        ("a/one", "new one"),
        ("a/two", "new two"),
        ("b", "new b"),
        ("a/three", "mine"),
        ("four", "mine"),
        ("c/five", "mine"),
    ] {
        assert_eq!(read(path), content, "{path}");
    }
    // Another run has nothing left to do.
    let again = restore(&place, &root, options(Some(Overwrite::IfChanged))).unwrap();
    assert_eq!((again.file_count, again.kept_count), (0, 3));
    let mirrored =
        restore(&place, &root, RestoreOptions { delete: true, ..options(Some(Overwrite::IfChanged)) })
            .unwrap();
    assert_eq!((mirrored.file_count, mirrored.deleted_count), (0, 4));
    assert_eq!(describe(&place.destination()), describe(&place.source()));
}

/// A name is never without its file, and another name of the old file keeps the old content.
#[test]
fn a_file_is_replaced_and_not_written_into() {
    let place = Place::new();
    place.file("file", "new");
    let root = place.archive(None).root;
    lay(&place, &[("file", "old")]);
    let other = place.folder.path().join("other name");
    fs::hard_link(place.destination().join("file"), &other).unwrap();
    restore(&place, &root, ALWAYS).unwrap();
    assert_eq!(fs::read(&other).unwrap(), b"old");
    assert_eq!(fs::read(place.destination().join("file")).unwrap(), b"new");
    // A run removes the unfinished file that a killed run has left.
    let stale = place.destination().join(".file.varve-partial-0");
    fs::write(&stale, "half").unwrap();
    set_mode(&stale, 0o600);
    restore(&place, &root, ALWAYS).unwrap();
    assert!(!stale.exists());
    assert_eq!(describe(&place.destination()), describe(&place.source()));
}

#[test]
fn kinds_are_exchanged_only_when_asked() {
    let place = Place::new();
    place.file("folder here/file", "new");
    place.file("file here", "new");
    let root = place.archive(None).root;
    let there = [("folder here", "a file"), ("file here/deep/kept", "in a folder")];
    lay(&place, &there);
    let before = describe(&place.destination());
    let (counts, problems) = restore_reporting(&place, &root, RestoreOptions { delete: true, ..ALWAYS });
    let counts = counts.unwrap();
    assert_eq!((counts.problem_count, counts.is_delete_withheld), (2, true), "{problems:?}");
    assert!(
        problems[0].contains("a folder is there") && problems[1].contains("a file is there"),
        "{problems:?}"
    );
    let without_root = |mut all: std::collections::BTreeMap<PathBuf, super::sample::Description>| {
        all.remove(Path::new(""));
        all
    };
    assert_eq!(without_root(describe(&place.destination())), without_root(before));
    assert_eq!(restore(&place, &root, REPLACE).unwrap().problem_count, 0);
    assert_eq!(describe(&place.destination()), describe(&place.source()));
}

#[test]
fn only_what_matches_takes_part() {
    let place = Place::new();
    for path in ["src/main.c", "src/main.o", "src/deep/x.c", "doc/a.txt", "keep/b.c"] {
        place.file(path, "new");
    }
    let root = place.archive(None).root;
    let list = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
    let names = || -> Vec<String> {
        let all = describe(&place.destination());
        all.iter().filter(|(_, what)| what.is_file()).map(|(path, _)| path.display().to_string()).collect()
    };
    for (includes, excludes, expected) in [
        (&["*.c"][..], &[][..], &["keep/b.c", "src/deep/x.c", "src/main.c"][..]),
        (&["/src/"], &["*.o"], &["src/deep/x.c", "src/main.c"]),
        (&[], &["src", "keep"], &["doc/a.txt"]),
        (&["nothing"], &[], &[]),
    ] {
        let filter = RestoreFilter::new(&list(includes), &list(excludes)).unwrap();
        restore(&place, &root, RestoreOptions { filter: &filter, ..options(None) }).unwrap();
        assert_eq!(names(), expected, "{includes:?} {excludes:?}");
        fs::remove_dir_all(place.destination()).unwrap();
    }
    // Entries that the filter excludes are not removed, and a folder with such entries stays.
    lay(&place, &[("old/x.c", "old"), ("old/y.o", "mine"), ("gone/z.c", "old"), ("mine.o", "mine")]);
    let filter = RestoreFilter::new(&[], &list(&["*.o"])).unwrap();
    let mirrored = restore(&place, &root, RestoreOptions { filter: &filter, ..MIRROR }).unwrap();
    assert_eq!(mirrored.deleted_count, 3);
    let wanted = ["doc/a.txt", "keep/b.c", "mine.o", "old/y.o", "src/deep/x.c", "src/main.c"];
    assert_eq!(names(), wanted);
}

#[test]
fn a_plan_is_what_is_done() {
    let place = Place::new();
    for path in ["new", "changed", "equal", "kind", "below/new"] {
        place.file(path, "content");
    }
    let root = place.archive(None).root;
    lay(&place, &[("changed", "old"), ("equal", "content"), ("kind/x", "mine"), ("extra/y", "mine")]);
    let time = fs::metadata(place.source().join("equal")).unwrap().modified().unwrap();
    fs::File::options()
        .write(true)
        .open(place.destination().join("equal"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    let options = RestoreOptions {
        delete: true,
        owners: super::sample::is_root(),
        ..options(Some(Overwrite::IfChanged))
    };
    let plan = || {
        let mut shown = Vec::new();
        let mut show = |entry: &PlannedEntry| shown.push((entry.path.display().to_string(), entry.action));
        let files = StoredFiles::new(&place.blocks);
        let counts = plan_restore(&files, &root, &place.destination(), options, &mut show).unwrap();
        (shown, counts)
    };
    let before = describe(&place.destination());
    let (shown, counts) = plan();
    assert_eq!(describe(&place.destination()), before);
    let shown: Vec<_> = shown.iter().map(|(path, action)| (path.as_str(), *action)).collect();
    let wanted = [
        ("", RestoreAction::Keep),
        ("below", RestoreAction::Create),
        ("below/new", RestoreAction::Create),
        ("changed", RestoreAction::Replace),
        ("equal", RestoreAction::Keep),
        ("kind", RestoreAction::Skip),
        ("new", RestoreAction::Create),
        ("extra/y", RestoreAction::Delete),
        ("extra", RestoreAction::Delete),
    ];
    assert_eq!(shown, wanted);
    assert_eq!((counts.create, counts.replace, counts.delete, counts.skip, counts.bytes), (3, 1, 2, 1, 21));
    // Without the conflict, the restore completes, and then nothing is left to do.
    fs::remove_dir_all(place.destination().join("kind")).unwrap();
    restore(&place, &root, options).unwrap();
    assert_eq!(plan().1.changes(), 0, "{:?}", plan().0);
}

#[test]
fn a_destination_that_cannot_be_made_is_an_error() {
    let place = Place::new();
    place.file("file", "");
    let root = place.archive(None).root;
    let at = |destination: &Path| {
        let watch = Watch { progress: &place.progress, report: &|problem| panic!("{problem:?}") };
        restore_folder(&StoredFiles::new(&place.blocks), &InlineWorkers, &root, destination, REPLACE, watch)
    };
    let missing = at(&place.folder.path().join("missing/destination"));
    assert!(matches!(missing, Err(RestoreFolderError::Destination { .. })), "{missing:?}");
    for unnamed in ["/", "..", "a/.."] {
        let refused = at(Path::new(unnamed));
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

/// Blocks that call `before` ahead of each read.
struct BeforeEachRead<'a, F> {
    blocks: &'a dyn BlockStore,
    before: F,
}

impl<F: Fn() + Send + Sync> BlockStore for BeforeEachRead<'_, F> {
    varve_block::forward_block_store!(blocks: score_bytes, empty_score, put, sync);

    fn get(&self, name: &BlockName) -> Result<bytes::Bytes, GetError> {
        (self.before)();
        self.blocks.get(name)
    }
}

/// An interrupted restore leaves complete entries only, and the next run continues from there.
#[test]
fn an_interrupted_restore_is_continued() {
    let place = Place::new();
    super::sample::make_everything(&place.source());
    let root = place.archive(None).root;
    let file =
        lookup(&StoredFiles::new(&place.blocks), &root, Path::new("deep/er/and/deeper/large")).unwrap();
    for (node, is_empty_there) in [(&root, false), (&root, true), (&file, false)] {
        if is_empty_there {
            fs::create_dir(place.destination()).unwrap();
        }
        let (mut runs, mut gets) = (0, Vec::new());
        loop {
            let progress = Progress::new();
            let left = std::sync::atomic::AtomicUsize::new(40 + 40 * runs);
            let cancel_after_some = || {
                if left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                    progress.cancel();
                }
            };
            let ending = BeforeEachRead { blocks: &place.blocks, before: cancel_after_some };
            let watch = Watch { progress: &progress, report: &|problem| panic!("{problem:?}") };
            let options = RestoreOptions { owners: super::sample::is_root(), ..options(None) };
            let before = place.blocks.get_count();
            let restored = restore_folder(
                &StoredFiles::new(&ending),
                &RealWorkers::new(3),
                node,
                &place.destination(),
                options,
                watch,
            );
            gets.push(place.blocks.get_count() - before);
            runs += 1;
            assert!(runs < 100, "it comes to no end: {gets:?}");
            match restored {
                Ok(counts) => break assert_eq!(counts.problem_count, 0),
                Err(RestoreFolderError::Cancelled { unfinished: Some(unfinished) }) => {
                    assert!(unfinished.exists(), "{}", unfinished.display());
                    assert_eq!(place.destination().exists(), is_empty_there);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(runs > 1, "it was interrupted: {gets:?}");
        let expected = if std::ptr::eq(node, &root) {
            place.source()
        } else {
            place.source().join("deep/er/and/deeper/large")
        };
        let mut expected = describe(&expected);
        if !std::ptr::eq(node, &root) {
            expected.values_mut().for_each(super::sample::Description::forget_other_names);
        }
        assert_eq!(describe(&place.destination()), expected);
        assert_eq!(place.leftovers(), [""; 0]);
        drop(fs::remove_dir_all(place.destination()));
        drop(fs::remove_file(place.destination()));
    }
}

/// A run fails at one name after it has moved all others into the empty folder, and does not reach
/// the flags. The next run sets them.
#[test]
fn what_is_put_in_its_place_later_gets_its_flags() {
    let place = Place::new();
    let flags = |path: &Path| {
        let flags = rustix::fs::ioctl_getflags(fs::File::open(path).unwrap());
        InodeFlags::of_system(flags.map_or(0, |flags| flags.bits()))
    };
    let wanted = [("a", "+d"), ("b", "+i"), ("folder", "+a"), ("folder/in", "+i"), ("", "+d")];
    for name in ["a", "b", "folder/in", "z"] {
        place.file(name, name);
    }
    let chattr = |args: &[&str], path: &Path| {
        Command::new("chattr").args(args).arg(path).status().is_ok_and(|status| status.success())
    };
    let is_set = wanted.iter().all(|(path, flag)| chattr(&[flag], &place.source().join(path)));
    let unlock = || chattr(&["-R", "-f", "-ia"], place.folder.path());
    if !is_set {
        unlock();
        eprintln!("skipped as flags cannot be set here: what_is_put_in_its_place_later_gets_its_flags");
        return;
    }
    let root = place.archive(None).root;
    fs::create_dir(place.destination()).unwrap();
    let path = place.destination().join("z");
    let meddling =
        BeforeEachRead { blocks: &place.blocks, before: || fs::write(&path, "somebody's").unwrap() };
    let files = StoredFiles::new(&meddling);
    let watch = Watch { progress: &place.progress, report: &|problem| panic!("{problem:?}") };
    let options = RestoreOptions { owners: super::sample::is_root(), ..options(None) };
    let unplaced = restore_folder(&files, &InlineWorkers, &root, &place.destination(), options, watch);
    fs::remove_file(&path).unwrap();
    let counts = restore(&place, &root, options);
    let there: Vec<_> = wanted.iter().map(|(path, _)| flags(&place.destination().join(path))).collect();
    unlock();
    assert!(matches!(unplaced, Err(RestoreFolderError::Unplaced { .. })), "{unplaced:?}");
    assert_eq!(counts.unwrap().lacking_flags_count, 0);
    let (dump, fixed) = (InodeFlags::from_bits(0x40), InodeFlags::IMMUTABLE);
    assert_eq!(there, [dump, fixed, InodeFlags::APPEND_ONLY, fixed, dump]);
    assert_eq!(describe(&place.destination()), describe(&place.source()));
    assert_eq!(place.leftovers(), [""; 0]);
}

/// An unfinished restore of another source is not continued, and stays.
#[test]
fn only_the_same_restore_is_continued() {
    let place = Place::new();
    place.file("file", "one");
    let first = place.archive(None).root;
    place.file("file", "another");
    let second = place.archive(None).root;
    let progress = Progress::new();
    progress.cancel();
    let watch = Watch { progress: &progress, report: &|problem| panic!("{problem:?}") };
    let cancelled = restore_watched(&place, &first, options(None), watch);
    let Err(RestoreFolderError::Cancelled { unfinished: Some(unfinished) }) = cancelled else {
        panic!("{cancelled:?}")
    };
    restore(&place, &second, RestoreOptions { source: b"another", ..options(None) }).unwrap();
    assert_eq!(fs::read(place.destination().join("file")).unwrap(), b"another");
    assert!(unfinished.is_dir(), "it may be wanted");
}

#[test]
fn a_full_disk_leaves_what_the_next_run_goes_on_with() {
    let place = Place::new();
    for number in 0..8_u8 {
        place.file(&format!("{number}"), vec![number + 1; 400_000]);
    }
    let root = place.archive(None).root;
    let disk = place.folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let Some(_mount) = Mount::new(&["-t", "tmpfs", "-o", "size=1500k", "none"], &disk) else { return };
    let watch = Watch { progress: &place.progress, report: &|problem| panic!("{problem:?}") };
    let options = RestoreOptions { owners: super::sample::is_root(), ..options(None) };
    let files = StoredFiles::new(&place.blocks);
    for to in [disk.join("new"), disk.clone()] {
        let full = restore_folder(&files, &InlineWorkers, &root, &to, options, watch);
        let Err(RestoreFolderError::Stopped { unfinished: Some(unfinished), source, .. }) = full else {
            panic!("{full:?}")
        };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        assert!(unfinished.is_dir() && !disk.join("new").exists());
        let grown = Command::new("mount").args(["-o", "remount,size=8m"]).arg(&disk).status().unwrap();
        assert!(grown.success());
        let before = place.blocks.get_count();
        let counts = restore_folder(&files, &InlineWorkers, &root, &to, options, watch).unwrap();
        assert!(counts.kept_count >= 2, "{counts:?}");
        assert!(place.blocks.get_count() - before < 30, "what is there is not read again");
        assert_eq!(describe(&to), describe(&place.source()));
        for left in fs::read_dir(&disk).unwrap().map(|left| left.unwrap().path()) {
            if left.is_dir() { fs::remove_dir_all(left).unwrap() } else { fs::remove_file(left).unwrap() }
        }
        let shrunk = Command::new("mount").args(["-o", "remount,size=1500k"]).arg(&disk).status().unwrap();
        assert!(shrunk.success());
    }
}

#[test]
fn what_must_stay_is_neither_replaced_nor_removed_nor_written_into() {
    let place = Place::new();
    place.file("a/key", "new");
    place.file("a/b/store/log", "new");
    place.file("new", "new");
    let root = place.archive(None).root;
    let file = lookup(&StoredFiles::new(&place.blocks), &root, Path::new("new")).unwrap();
    let (store, key) = (place.destination().join("a/b/store"), place.destination().join("a/key"));
    let links = tempfile::tempdir().unwrap();
    let by_link = links.path().join("link");
    symlink(place.destination().join("a"), &by_link).unwrap();
    for (kept, what) in [
        (&store, "a/b/store"),
        (&key, "a/key"),
        (&by_link.join("b/store"), "a/b/store"),
        (&by_link.join("key"), "a/key"),
    ] {
        drop(fs::remove_dir_all(place.destination()));
        lay(&place, &[("a/b/store/log", "everything"), ("a/key", "secret"), ("old", "old")]);
        let before = describe(&place.destination().join(what));
        let kept_paths = ["/nowhere".into(), kept.clone()];
        let options = RestoreOptions { kept: &kept_paths, ..MIRROR };
        let (counts, problems) = restore_reporting(&place, &root, options);
        let counts = counts.unwrap();
        assert_eq!((counts.problem_count, counts.is_delete_withheld), (1, true), "{problems:?}");
        assert!(problems[0].contains("must stay") && problems[0].starts_with(what), "{problems:?}");
        // A snapshot without the entry does not remove it. A snapshot with a file in place of a
        // parent folder does not remove it either.
        let bare = Node { content: None, ..root.clone() };
        let (counts, problems) = restore_reporting(&place, &bare, options);
        assert_eq!(counts.unwrap().problem_count, 1, "{problems:?}");
        assert!(!place.destination().join("new").exists(), "everything else is removed");
        let refused = restore(&place, &file, options);
        assert!(matches!(refused, Err(RestoreFolderError::Holds { .. })), "{refused:?}");
        assert_eq!(describe(&place.destination().join(what)), before);
        assert_eq!(place.leftovers(), [""; 0]);
    }
    let kept = [place.destination()];
    let refused = restore(&place, &root, RestoreOptions { kept: &kept, ..MIRROR });
    assert!(matches!(refused, Err(RestoreFolderError::Holds { .. })), "{refused:?}");
}

/// A restore protects every store below the destination, and not only the open one.
#[test]
fn another_store_is_neither_removed_nor_written_into() {
    let place = Place::new();
    place.file("backup/arenas/0", "from the snapshot");
    place.file("file", "new");
    let root = place.archive(None).root;
    let bare = Node { content: None, ..root.clone() };
    let store = [("config.toml", "x"), ("arenas/0", "everything")];
    let at = |path: &str| store.map(|(name, content)| (format!("{path}{name}"), content));
    for path in ["backup/", "deep/er/backup/"] {
        drop(fs::remove_dir_all(place.destination()));
        lay(&place, &at(path).each_ref().map(|(name, content)| (name.as_str(), *content)));
        let before = describe(&place.destination().join(path));
        for root in [&root, &bare] {
            let (counts, problems) = restore_reporting(&place, root, MIRROR);
            assert_eq!(counts.unwrap().problem_count, 1, "{problems:?}");
            assert!(problems[0].contains("a Varve store"), "{problems:?}");
            assert_eq!(describe(&place.destination().join(path)), before);
        }
    }
    drop(fs::remove_dir_all(place.destination()));
    lay(&place, &store);
    let refused = restore(&place, &root, MIRROR);
    assert!(matches!(refused, Err(RestoreFolderError::Store { .. })), "{refused:?}");
    let file = lookup(&StoredFiles::new(&place.blocks), &root, Path::new("file")).unwrap();
    let refused = restore(&place, &file, MIRROR);
    assert!(matches!(refused, Err(RestoreFolderError::Store { .. })), "{refused:?}");
    assert_eq!(fs::read(place.destination().join("arenas/0")).unwrap(), b"everything");
}

/// A path that must stay is moved to the destination during the restore. The finished restore then
/// stays under another name.
#[test]
fn what_must_stay_is_looked_for_once_more_at_the_end() {
    let place = Place::new();
    place.file("file", "new");
    let root = place.archive(None).root;
    let file = lookup(&StoredFiles::new(&place.blocks), &root, Path::new("file")).unwrap();
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
    let options = RestoreOptions { kept: &kept, owners: super::sample::is_root(), ..REPLACE };
    let refused = restore_folder(&moves, &InlineWorkers, &file, &place.destination(), options, watch);
    let Err(RestoreFolderError::Unplaced { finished, .. }) = refused else { panic!("{refused:?}") };
    assert!(place.destination().join("store").is_dir());
    assert_eq!(describe(&finished), describe(&place.source().join("file")));
}

/// Moves a folder as soon as the content of a file is read.
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
        self.files.nodes(folder)
    }

    fn find(&self, folder: &Node, name: &[u8]) -> Result<Option<Node>, ReadFolderError> {
        self.files.find(folder, name)
    }

    fn problem(&self, node: &Node) -> Option<ReadProblem> {
        self.files.problem(node)
    }

    fn read_with(
        &self,
        file: &Node,
        range: Range<u64>,
        take: &mut TakeBytes<'_>,
        lost: &mut OnLoss<'_>,
    ) -> Result<(), ReadContentError> {
        fs::rename(&self.from, &self.to).unwrap();
        self.files.read_with(file, range, take, lost)
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

/// A mount that is removed at the end of the test. Only root can mount.
pub(super) struct Mount(PathBuf);

impl Mount {
    #[allow(clippy::print_stdout, reason = "says what it skipped")]
    pub(super) fn new(words: &[&str], at: &Path) -> Option<Self> {
        let made = Command::new("mount").args(words).arg(at).status().is_ok_and(|status| status.success());
        if !made {
            println!("skipped: a mount, which cannot be made here");
        }
        made.then(|| Self(at.to_path_buf()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The unmount is lazy, because a failed test may have left a file open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A restore does not write into a mount below the destination either.
#[test]
fn nothing_is_changed_across_a_mount() {
    let place = Place::new();
    place.file("deep/mounted/precious", "new");
    place.file("file", "new");
    let root = place.archive(None).root;
    let bare = Node { content: None, ..root.clone() };
    let file = lookup(&StoredFiles::new(&place.blocks), &root, Path::new("file")).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("precious"), "bytes").unwrap();
    let at = place.destination().join("deep/mounted");
    fs::create_dir_all(&at).unwrap();
    // The first mount is of another device, and the second of the same one.
    for words in [&["-t", "tmpfs", "none"][..], &["--bind", elsewhere.path().to_str().unwrap()]] {
        let Some(mount) = Mount::new(words, &at) else { return };
        fs::write(at.join("precious"), "bytes").unwrap();
        let told = [&root, &bare].map(|root| restore_reporting(&place, root, MIRROR));
        let refused = restore(&place, &file, MIRROR);
        let is_there = fs::read(at.join("precious"));
        drop(mount);
        for (counts, problems) in told {
            assert_eq!(counts.unwrap().problem_count, 1, "{problems:?}");
            assert!(problems[0].contains("mounted there"), "{problems:?}");
        }
        assert!(matches!(refused, Err(RestoreFolderError::Mounted { .. })), "{refused:?}");
        assert_eq!(is_there.unwrap(), b"bytes");
        assert_eq!(place.leftovers(), [""; 0]);
    }
    assert_eq!(restore(&place, &root, MIRROR).unwrap().problem_count, 0);
    assert_eq!(describe(&place.destination()), describe(&place.source()));
}

/// A file with a mount on it cannot be removed, but the folder that holds it is replaced all the
/// same.
#[test]
fn what_cannot_be_removed_is_a_problem() {
    let place = Place::new();
    place.file("file", "new");
    let root = place.archive(None).root;
    fs::create_dir(place.destination()).unwrap();
    let busy = place.destination().join("file/busy");
    lay(&place, &[("file/busy", "below"), ("file/old", "old")]);
    let above = place.folder.path().join("above");
    fs::write(&above, "above").unwrap();
    let Some(_mount) = Mount::new(&["--bind", above.to_str().unwrap()], &busy) else { return };
    let (counts, problems) = restore_reporting(&place, &root, REPLACE);
    let old = place.destination().join(".file.varve-partial-0");
    let left: Vec<_> = fs::read_dir(&old)
        .map(|left| left.map(|entry| entry.unwrap().file_name()).collect())
        .unwrap_or_default();
    let _ = Command::new("umount").arg(old.join("busy")).status();
    assert_eq!(counts.unwrap().problem_count, 1, "{problems:?}");
    assert_eq!(left, ["busy"]);
    assert_eq!(fs::read(above).unwrap(), b"above");
    assert_eq!(fs::read(place.destination().join("file")).unwrap(), b"new");
}

/// A store that has lost all file content.
struct Lacking<'a>(&'a dyn BlockStore);

impl BlockStore for Lacking<'_> {
    varve_block::forward_block_store!(0: score_bytes, empty_score, put, sync);

    fn get(&self, name: &BlockName) -> Result<bytes::Bytes, GetError> {
        if name.block_type == BlockType::DATA {
            Err(GetError::NotFound { name: *name })
        } else {
            self.0.get(name)
        }
    }
}

#[test]
fn nothing_is_removed_if_not_all_is_restored() {
    let place = Place::new();
    place.file("file", [7; 5000]);
    let root = place.archive(None).root;
    lay(&place, &[("important", "old"), ("file", "old")]);
    let watch = Watch { progress: &place.progress, report: &|_| {} };
    let blocks = Lacking(&place.blocks);
    let files = StoredFiles::new(&blocks);
    let counts = restore_folder(&files, &InlineWorkers, &root, &place.destination(), MIRROR, watch).unwrap();
    assert!(counts.is_delete_withheld && counts.problem_count == 1, "{counts:?}");
    for name in ["important", "file"] {
        assert_eq!(fs::read(place.destination().join(name)).unwrap(), b"old", "{name}");
    }
}

#[test]
fn damage_leaves_holes_if_that_is_asked_for() {
    let place = Place::new();
    let noise: Vec<u8> =
        (0..10_000_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    place.file("large", &noise);
    place.file("small", "lost");
    place.file("whole", "bytes");
    let root = place.archive(None).root;
    let files = StoredFiles::new(&place.blocks);
    let small = lookup(&files, &root, Path::new("small")).unwrap().content.unwrap();
    let large = lookup(&files, &root, Path::new("large")).unwrap();
    assert!(place.blocks.lose(&BlockName { score: small.root(), block_type: BlockType::DATA }));
    let reader = varve_tree::TreeReader::new(&place.blocks, &large.content.unwrap());
    let lost = reader.extents(30_000_000..30_000_001).next().unwrap().unwrap();
    let block_type = BlockType::leaf(BlockKind::Data);
    assert!(place.blocks.lose(&BlockName { score: lost.leaf.unwrap(), block_type }));
    let damaged = DamageList::new();
    let options = RestoreOptions { damaged: Some(&damaged), ..options(None) };
    let counts = restore(&place, &root, options).unwrap();
    assert_eq!((counts.file_count, counts.problem_count), (3, 0));
    let mut ranges = Vec::new();
    damaged.for_each(|path, range| ranges.push((path.display().to_string(), range)));
    assert_eq!(ranges, [("large".to_owned(), lost.range()), ("small".to_owned(), 0..4)]);
    let mut expected = noise.clone();
    let at = |place: u64| usize::try_from(place).unwrap();
    expected[at(lost.offset)..at(lost.range().end)].fill(0);
    assert!(fs::read(place.destination().join("large")).unwrap() == expected);
    assert_eq!(fs::read(place.destination().join("small")).unwrap(), [0; 4]);
    let watch = Watch { progress: &place.progress, report: &|problem| panic!("{problem:?}") };
    let checked = read_back(&files, &InlineWorkers, &root, &place.destination(), options, watch).unwrap();
    assert_eq!(checked, (3, 0));
    // The file with a hole does not pass for the original: it is replaced once the bytes are back.
    let time = |root: &Path| fs::metadata(root.join("large")).unwrap().modified().unwrap();
    assert_ne!(time(&place.destination()), time(&place.source()));
    place.archive(None);
    let counts = restore(&place, &root, self::options(Some(Overwrite::IfChanged))).unwrap();
    assert_eq!((counts.file_count, counts.kept_count), (2, 1));
    assert_eq!(describe(&place.destination()), describe(&place.source()));
}

#[test]
fn what_differs_from_the_snapshot_is_found_when_it_is_read_back() {
    let place = Place::new();
    super::sample::make_everything(&place.source());
    let root = place.archive(None).root;
    let options = RestoreOptions { owners: super::sample::is_root(), ..options(None) };
    restore(&place, &root, options).unwrap();
    let check = || {
        let problems = parking_lot::Mutex::new(Vec::new());
        let report = |problem: Problem| problems.lock().push(problem.path.display().to_string());
        let watch = Watch { progress: &place.progress, report: &report };
        let files = StoredFiles::new(&place.blocks);
        let (count, bad) =
            read_back(&files, &RealWorkers::new(2), &root, &place.destination(), options, watch).unwrap();
        let mut problems = problems.into_inner();
        problems.sort();
        assert_eq!(problems.len() as u64, bad);
        assert!(count > 10);
        problems
    };
    assert_eq!(check(), [""; 0]);
    let at = |name: &str| place.destination().join(name);
    let large = fs::File::options().write(true).open(at("zz large again")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&large, b"x", 7_000_000).unwrap();
    let sparse = fs::File::options().write(true).open(at("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"x", 20 << 20).unwrap();
    fs::write(at("small"), "short").unwrap();
    fs::remove_file(at("link")).unwrap();
    symlink("elsewhere", at("link")).unwrap();
    fs::remove_file(at("odd/-r *?[a]\\")).unwrap();
    let wanted = [
        "deep/er/and/deeper/large",
        "deep/small again",
        "link",
        "odd/-r *?[a]\\",
        "small",
        "sparse",
        "zz large again",
    ];
    assert_eq!(check(), wanted);
}

#[test]
fn a_special_file_is_not_replaced_by_another_kind() {
    let place = Place::new();
    let fifo = |path: &Path| {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    fifo(&place.source().join("fifo"));
    place.file("file", "new");
    fifo(&place.destination());
    let root = place.archive(None).root;
    let find = |path: &str| lookup(&StoredFiles::new(&place.blocks), &root, Path::new(path)).unwrap();
    for node in [&root, &find("file")] {
        let refused = restore(&place, node, ALWAYS);
        assert!(matches!(refused, Err(RestoreFolderError::OtherKind { .. })), "{refused:?}");
        assert_eq!(place.leftovers(), [""; 0]);
    }
    restore(&place, &find("fifo"), ALWAYS).unwrap();
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

/// A file with many parts is cancelled in the middle of them. The run does not wait for parts that
/// nobody writes.
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
            assert!(matches!(cancelled, Err(RestoreFolderError::Cancelled { .. })), "{cancelled:?}");
            assert!(!place.destination().exists());
        }
    }
}
