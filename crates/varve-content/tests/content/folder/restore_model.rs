//! Restores against a model: random trees, random destinations, every way to overwrite, an
//! interruption at any step, and damage to any block. The model predicts each path after the
//! restore. If flags can be set, entries with the second mode are immutable in the snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;
use proptest::prelude::*;
use varve_block::{Block, BlockName, BlockStore, GetError, MemoryBlockStore, PutError, Score};
use varve_content::folder::{
    FolderOptions, Overwrite, RestoreCounts, RestoreFolderError, RestoreOptions, StoredFiles, Watch,
    archive_folder, restore_folder,
};
use varve_content::{DamageList, Node, Problem, Progress};
use varve_world::{InlineWorkers, RealWorkers, Workers};

use super::sample::set_xattr;

/// The state of a file, a link or a fifo, as far as a restore brings it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Leaf {
    kind: Kind,
    /// Decides the content, the size and the time of change. A larger version is newer.
    version: u8,
    mode: u8,
    /// Files of one tree with the same group are names of one file.
    group: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Link,
    Fifo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Folder { mode: u8, entries: Tree },
    Leaf(Leaf),
}

type Tree = BTreeMap<&'static str, Entry>;

const NAMES: [&str; 5] = ["a", "b", "b c", "d", "e"];
const VERSIONS: u8 = 4;

fn leaf() -> impl Strategy<Value = Leaf> {
    let kind = prop_oneof![6 => Just(Kind::File), 1 => Just(Kind::Link), 1 => Just(Kind::Fifo)];
    let group = prop_oneof![3 => Just(None), 1 => (0..2_u8).prop_map(Some)];
    (kind, 0..VERSIONS, 0..2_u8, group).prop_map(|(kind, version, mode, group)| Leaf {
        kind,
        version,
        mode,
        group: group.filter(|_| kind == Kind::File),
    })
}

fn tree() -> impl Strategy<Value = Tree> {
    let entry = leaf().prop_map(Entry::Leaf).prop_recursive(3, 24, 5, |entry| {
        (0..2_u8, prop::collection::btree_map(prop::sample::select(&NAMES[..]), entry, 0..4))
            .prop_map(|(mode, entries)| Entry::Folder { mode, entries })
    });
    prop::collection::btree_map(prop::sample::select(&NAMES[..]), entry, 0..6).prop_map(|mut tree| {
        let mut firsts = BTreeMap::new();
        one_file_a_group(&mut tree, &mut firsts);
        let mut counts = BTreeMap::new();
        count_groups(&tree, &mut counts);
        forget_groups_of_one(&mut tree, &counts);
        tree
    })
}

/// Makes all names of a group equal, because they are one file.
fn one_file_a_group(tree: &mut Tree, firsts: &mut BTreeMap<u8, Leaf>) {
    for entry in tree.values_mut() {
        match entry {
            Entry::Folder { entries, .. } => one_file_a_group(entries, firsts),
            Entry::Leaf(leaf) => {
                if let Some(group) = leaf.group {
                    *leaf = *firsts.entry(group).or_insert(*leaf);
                }
            }
        }
    }
}

fn count_groups(tree: &Tree, counts: &mut BTreeMap<u8, u32>) {
    for entry in tree.values() {
        match entry {
            Entry::Folder { entries, .. } => count_groups(entries, counts),
            Entry::Leaf(Leaf { group: Some(group), .. }) => *counts.entry(*group).or_default() += 1,
            Entry::Leaf(_) => {}
        }
    }
}

fn forget_groups_of_one(tree: &mut Tree, counts: &BTreeMap<u8, u32>) {
    for entry in tree.values_mut() {
        match entry {
            Entry::Folder { entries, .. } => forget_groups_of_one(entries, counts),
            Entry::Leaf(leaf) => leaf.group = leaf.group.filter(|group| counts[group] > 1),
        }
    }
}

fn content(version: u8) -> (u64, Vec<(u64, Vec<u8>)>) {
    let noise = |length: usize| -> Vec<u8> {
        (0..length)
            .map(|at| u8::try_from((at * 31 + at / 251 + usize::from(version)) % 256).unwrap())
            .collect()
    };
    match version {
        0 => (0, Vec::new()),
        1 => (7, vec![(0, b"content".to_vec())]),
        // The file has holes at the beginning, in the middle and at the end.
        2 => (300_000, vec![(70_000, noise(30_000)), (200_000, noise(5))]),
        _ => (90_001, vec![(0, noise(90_001))]),
    }
}

fn bytes(version: u8) -> Vec<u8> {
    let (size, pieces) = content(version);
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    for (offset, piece) in pieces {
        bytes[usize::try_from(offset).unwrap()..][..piece.len()].copy_from_slice(&piece);
    }
    bytes
}

fn mtime(version: u8) -> Duration {
    Duration::new(1_000_000_000 + 1000 * u64::from(version), 123_456_000)
}

fn mode(mode: u8, is_folder: bool) -> u32 {
    match (is_folder, mode) {
        (true, 0) => 0o700,
        (true, _) => 0o755,
        (false, 0) => 0o600,
        (false, _) => 0o644,
    }
}

const NOTE: &str = "user.note";

/// Makes a tree on the disk.
fn make(root: &Path, tree: &Tree) {
    fs::create_dir_all(root).unwrap();
    make_in(root, tree, &mut BTreeMap::new());
    finish_folder(root, 0);
}

fn finish_folder(path: &Path, of: u8) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode(of, true))).unwrap();
    fs::File::open(path).unwrap().set_modified(UNIX_EPOCH + mtime(of)).unwrap();
}

fn make_in(folder: &Path, tree: &Tree, firsts: &mut BTreeMap<u8, PathBuf>) {
    for (name, entry) in tree {
        let path = folder.join(name);
        match entry {
            Entry::Folder { mode, entries } => {
                fs::create_dir(&path).unwrap();
                make_in(&path, entries, firsts);
                finish_folder(&path, *mode);
            }
            Entry::Leaf(leaf) => match leaf.group.and_then(|group| firsts.get(&group)) {
                Some(first) => fs::hard_link(first, &path).unwrap(),
                None => {
                    make_leaf(&path, leaf);
                    leaf.group.map(|group| firsts.insert(group, path));
                }
            },
        }
    }
}

/// Makes entries with the second mode immutable, from the leaves up. Returns true if that is
/// possible here.
fn lock(folder: &Path, tree: &Tree) -> bool {
    tree.iter().all(|(name, entry)| {
        let path = folder.join(name);
        match entry {
            Entry::Folder { mode, entries } => lock(&path, entries) && (*mode == 0 || set_flag(&path, true)),
            Entry::Leaf(leaf) => !is_locked(leaf) || set_flag(&path, true),
        }
    })
}

fn is_locked(leaf: &Leaf) -> bool {
    leaf.kind == Kind::File && leaf.mode == 1
}

/// Makes everything below a folder removable.
fn unlock(path: &Path) {
    let Ok(there) = fs::symlink_metadata(path) else { return };
    if there.is_file() || there.is_dir() {
        set_flag(path, false);
    }
    if there.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| unlock(&entry.unwrap().path()));
    }
}

fn has_flag(path: &Path) -> bool {
    let flags = rustix::fs::ioctl_getflags(fs::File::open(path).unwrap());
    flags.is_ok_and(|flags| flags.contains(rustix::fs::IFlags::IMMUTABLE))
}

fn set_flag(path: &Path, is_set: bool) -> bool {
    let file = fs::File::open(path).unwrap();
    let Ok(mut flags) = rustix::fs::ioctl_getflags(&file) else { return false };
    if flags.contains(rustix::fs::IFlags::IMMUTABLE) == is_set {
        return true;
    }
    flags.set(rustix::fs::IFlags::IMMUTABLE, is_set);
    rustix::fs::ioctl_setflags(&file, flags).is_ok()
}

fn make_leaf(path: &Path, leaf: &Leaf) {
    match leaf.kind {
        Kind::File => {
            let file = fs::File::create(path).unwrap();
            let (size, pieces) = content(leaf.version);
            file.set_len(size).unwrap();
            pieces.iter().for_each(|(offset, piece)| file.write_all_at(piece, *offset).unwrap());
            if leaf.mode == 1 {
                set_xattr(path, NOTE, b"kept");
            }
        }
        Kind::Link => symlink(format!("target {}", leaf.version), path).unwrap(),
        Kind::Fifo => {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        }
    }
    if leaf.kind != Kind::Link {
        fs::set_permissions(path, PermissionsExt::from_mode(mode(leaf.mode, false))).unwrap();
    }
    let time = mtime(leaf.version);
    let time = rustix::fs::Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap(),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Reads the tree on the disk, and the paths that are names of one file.
fn read(root: &Path) -> (Tree, BTreeMap<u64, BTreeSet<PathBuf>>) {
    let mut inodes = BTreeMap::new();
    let tree = read_in(root, Path::new(""), &mut inodes);
    inodes.retain(|_, paths: &mut BTreeSet<PathBuf>| paths.len() > 1);
    (tree, inodes)
}

fn read_in(root: &Path, below: &Path, inodes: &mut BTreeMap<u64, BTreeSet<PathBuf>>) -> Tree {
    let mut tree = Tree::new();
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let name = entry.unwrap().file_name();
        let (path, name) = (below.join(&name), name.to_str().unwrap());
        let name = *NAMES.iter().find(|known| **known == name).unwrap_or_else(|| panic!("what is {path:?}?"));
        let entry = read_entry(root, &path, inodes);
        tree.insert(name, entry);
    }
    tree
}

fn read_entry(root: &Path, path: &Path, inodes: &mut BTreeMap<u64, BTreeSet<PathBuf>>) -> Entry {
    let full = root.join(path);
    let there = fs::symlink_metadata(&full).unwrap();
    let permissions = there.permissions().mode() & 0o7777;
    let time = u64::try_from(there.mtime()).unwrap().checked_sub(1_000_000_000).unwrap_or(u64::MAX);
    let of_time = u8::try_from(time / 1000).unwrap_or(u8::MAX);
    if there.is_dir() {
        let of = if permissions == 0o700 { 0 } else { 1 };
        assert_eq!(permissions, mode(of, true), "{path:?}");
        return Entry::Folder { mode: of, entries: read_in(root, path, inodes) };
    }
    let of = if there.is_symlink() || permissions == 0o600 { 0 } else { 1 };
    assert!(there.is_symlink() || permissions == mode(of, false), "{path:?}: {permissions:o}");
    let (kind, version) = if there.is_symlink() {
        let target = fs::read_link(&full).unwrap().to_str().unwrap().to_owned();
        (Kind::Link, target.strip_prefix("target ").unwrap().parse().unwrap())
    } else if there.is_file() {
        inodes.entry(there.ino()).or_default().insert(path.to_path_buf());
        let found = fs::read(&full).unwrap();
        let version = (0..VERSIONS).find(|version| bytes(*version) == found);
        let has_note = rustix::fs::lgetxattr(&full, NOTE, &mut [0; 10]).is_ok();
        assert_eq!(has_note, of == 1, "{path:?}: its attributes are those of its mode");
        (Kind::File, version.unwrap_or_else(|| panic!("{path:?} has half a content")))
    } else {
        (Kind::Fifo, of_time)
    };
    assert_eq!(of_time, version, "{path:?}: its time is that of its content");
    Entry::Leaf(Leaf { kind, version, mode: of, group: None })
}

/// The options of a restore.
#[derive(Debug, Clone, Copy)]
struct Way {
    overwrite: Overwrite,
    delete: bool,
    replace_types: bool,
}

fn way() -> impl Strategy<Value = Way> {
    let modes = [Overwrite::Always, Overwrite::IfChanged, Overwrite::IfNewer, Overwrite::Never];
    (prop::sample::select(modes.to_vec()), any::<bool>(), any::<bool>())
        .prop_map(|(overwrite, delete, replace_types)| Way { overwrite, delete, replace_types })
}

/// Returns the folder after a restore, and counts the entries that could not be restored.
fn merged(snapshot: &Tree, there: &Tree, way: Way, problems: &mut u64) -> Tree {
    let mut result = there.clone();
    for (name, new) in snapshot {
        let entry = match there.get(name) {
            None => new.clone(),
            Some(old) => merged_entry(new, old, way, problems),
        };
        result.insert(name, entry);
    }
    result
}

fn merged_entry(new: &Entry, old: &Entry, way: Way, problems: &mut u64) -> Entry {
    let is_special = |leaf: &Leaf| leaf.kind == Kind::Fifo;
    match (new, old) {
        (Entry::Folder { mode, entries }, Entry::Folder { mode: old_mode, entries: old_entries }) => {
            let gives = matches!(way.overwrite, Overwrite::Always | Overwrite::IfChanged);
            let mode = if gives { *mode } else { *old_mode };
            Entry::Folder { mode, entries: merged(entries, old_entries, way, problems) }
        }
        (Entry::Leaf(new_leaf), Entry::Leaf(old_leaf)) if is_special(new_leaf) == is_special(old_leaf) => {
            let is_newer = new_leaf.version > old_leaf.version;
            let takes = match way.overwrite {
                // Equal files get the attributes, and others everything: the result is the same.
                Overwrite::Always | Overwrite::IfChanged => true,
                Overwrite::IfNewer => is_newer,
                Overwrite::Never => false,
            };
            if takes { new.clone() } else { old.clone() }
        }
        (Entry::Folder { .. }, Entry::Leaf(_)) if way.overwrite == Overwrite::Never => {
            *problems += 1;
            old.clone()
        }
        _ if way.overwrite == Overwrite::Never => old.clone(),
        _ if way.replace_types => new.clone(),
        _ => {
            *problems += 1;
            old.clone()
        }
    }
}

/// Removes the entries that the snapshot does not have.
fn without_extras(result: &mut Tree, snapshot: &Tree) {
    result.retain(|name, _| snapshot.contains_key(name));
    for (name, entry) in result {
        if let (Entry::Folder { entries, .. }, Some(Entry::Folder { entries: known, .. })) =
            (entry, snapshot.get(name))
        {
            without_extras(entries, known);
        }
    }
}

fn without_groups(tree: &Tree) -> Tree {
    let plain = |entry: &Entry| match entry {
        Entry::Folder { mode, entries } => Entry::Folder { mode: *mode, entries: without_groups(entries) },
        // A link has no mode of its own.
        Entry::Leaf(leaf) => Entry::Leaf(Leaf {
            group: None,
            mode: if leaf.kind == Kind::Link { 0 } else { leaf.mode },
            ..*leaf
        }),
    };
    tree.iter().map(|(name, entry)| (*name, plain(entry))).collect()
}

/// Checks that exactly the entries with the second mode are immutable.
fn check_flags(folder: &Path, tree: &Tree) -> Result<(), TestCaseError> {
    for (name, entry) in tree {
        let path = folder.join(name);
        let should_be = match entry {
            Entry::Folder { mode, entries } => {
                check_flags(&path, entries)?;
                *mode == 1
            }
            Entry::Leaf(leaf) if leaf.kind == Kind::File => is_locked(leaf),
            Entry::Leaf(_) => continue,
        };
        prop_assert_eq!(has_flag(&path), should_be, "{:?}", path);
    }
    Ok(())
}

/// Collects the paths of each group of a snapshot, and under `None` the files with one name.
fn names(tree: &Tree, below: &Path, groups: &mut BTreeMap<Option<u8>, BTreeSet<PathBuf>>) {
    for (name, entry) in tree {
        match entry {
            Entry::Folder { entries, .. } => names(entries, &below.join(name), groups),
            Entry::Leaf(leaf) if leaf.kind == Kind::File => {
                groups.entry(leaf.group).or_default().insert(below.join(name));
            }
            Entry::Leaf(_) => {}
        }
    }
}

/// A store that lists the names of all blocks that were put. It cancels a restore after a number of
/// reads.
struct Watched<'a> {
    blocks: &'a MemoryBlockStore,
    names: Mutex<Vec<BlockName>>,
    ends: Option<(AtomicUsize, &'a Progress)>,
}

impl<'a> Watched<'a> {
    fn new(blocks: &'a MemoryBlockStore, ends: Option<(usize, &'a Progress)>) -> Self {
        let ends = ends.map(|(reads, progress)| (AtomicUsize::new(reads), progress));
        Self { blocks, names: Mutex::default(), ends }
    }
}

impl BlockStore for Watched<'_> {
    varve_block::forward_block_store!(blocks: score_bytes, empty_score, sync);

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let (block_type, score) = (block.block_type, self.blocks.put(block)?);
        self.names.lock().push(BlockName { score, block_type });
        Ok(score)
    }

    fn get(&self, name: &BlockName) -> Result<bytes::Bytes, GetError> {
        if let Some((left, progress)) = &self.ends
            && left.fetch_sub(1, Ordering::Relaxed) == 0
        {
            progress.cancel();
        }
        self.blocks.get(name)
    }
}

/// A snapshot in a store in memory, and a folder to restore it to.
struct Bench {
    folder: tempfile::TempDir,
    blocks: MemoryBlockStore,
    names: Vec<BlockName>,
    root: Node,
    /// True if the snapshot has flags.
    is_locked: bool,
}

impl Drop for Bench {
    fn drop(&mut self) {
        unlock(self.folder.path());
    }
}

impl Bench {
    fn new(snapshot: &Tree) -> Self {
        let (folder, blocks) = (tempfile::tempdir().unwrap(), MemoryBlockStore::new());
        let source = folder.path().join("source");
        make(&source, snapshot);
        let is_locked = lock(&source, snapshot);
        if !is_locked {
            unlock(&source);
        }
        let watched = Watched::new(&blocks, None);
        let progress = Progress::new();
        let watch = Watch { progress: &progress, report: &|problem| panic!("{problem:?}") };
        let options = FolderOptions::default();
        let archived = archive_folder(&watched, &InlineWorkers, &source, None, &options, watch).unwrap();
        let names = watched.names.into_inner();
        Self { root: archived.root, names, folder, blocks, is_locked }
    }

    fn destination(&self) -> PathBuf {
        self.folder.path().join("destination")
    }

    /// Runs a restore, and cancels it after `ends_after` reads. Returns the result and the paths of
    /// all problems.
    fn run(
        &self,
        way: Option<Way>,
        ends_after: Option<usize>,
        damaged: Option<&DamageList>,
    ) -> (Result<RestoreCounts, RestoreFolderError>, Vec<PathBuf>) {
        let progress = Progress::new();
        let watched = Watched::new(&self.blocks, ends_after.map(|reads| (reads, &progress)));
        let problems = Mutex::new(Vec::new());
        let report = |problem: Problem| problems.lock().push(problem.path);
        let watch = Watch { progress: &progress, report: &report };
        let options = RestoreOptions {
            overwrite: way.map(|way| way.overwrite),
            delete: way.is_some_and(|way| way.delete),
            replace_types: way.is_some_and(|way| way.replace_types),
            source: b"the model",
            note_bytes: 50_000,
            damaged,
            ..RestoreOptions::default()
        };
        let workers: Box<dyn Workers> = match ends_after {
            Some(reads) if reads % 2 == 1 => Box::new(RealWorkers::new(3)),
            _ => Box::new(InlineWorkers),
        };
        let files = StoredFiles::new(&watched);
        let restored =
            restore_folder(&files, workers.as_ref(), &self.root, &self.destination(), options, watch);
        (restored, problems.into_inner())
    }

    /// Runs until the restore is complete. Each interruption comes a few reads later.
    fn run_until_done(&self, way: Option<Way>, ends_after: Option<usize>) -> RestoreCounts {
        let mut ends_after = ends_after;
        loop {
            match self.run(way, ends_after, None).0 {
                Ok(counts) => return counts,
                Err(RestoreFolderError::Cancelled { unfinished }) => {
                    assert_eq!(unfinished.is_some(), way.is_none());
                    ends_after = ends_after.map(|reads| reads + 3).filter(|reads| *reads < 60);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    fn leftovers(&self) -> usize {
        fs::read_dir(self.folder.path()).unwrap().count() - 2
    }
}

/// Names of one file in the snapshot are names of one file again, and other names are not.
fn check_links(snapshot: &Tree, inodes: &BTreeMap<u64, BTreeSet<PathBuf>>) -> Result<(), TestCaseError> {
    let mut groups = BTreeMap::new();
    names(snapshot, Path::new(""), &mut groups);
    for (group, paths) in &groups {
        let together: BTreeSet<_> =
            inodes.values().filter(|all| paths.iter().any(|path| all.contains(path))).collect();
        match group {
            None => {
                for all in together {
                    prop_assert!(paths.is_disjoint(all), "{:?} are linked", all);
                }
            }
            Some(_) => prop_assert!(
                together.len() == 1 && together.iter().all(|all| paths.is_subset(all)),
                "{:?}",
                together
            ),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// A new place or an empty folder becomes equal to the snapshot, however often the restore is
    /// interrupted.
    #[test]
    fn a_new_place_becomes_the_snapshot(snapshot in tree(), ends_after in prop::option::of(0..40_usize), is_empty_there in any::<bool>()) {
        let bench = Bench::new(&snapshot);
        if is_empty_there {
            fs::create_dir(bench.destination()).unwrap();
        }
        prop_assert_eq!(bench.run_until_done(None, ends_after).problem_count, 0);
        let (found, inodes) = read(&bench.destination());
        prop_assert_eq!(found, without_groups(&snapshot));
        check_links(&snapshot, &inodes)?;
        if bench.is_locked {
            check_flags(&bench.destination(), &snapshot)?;
        }
        prop_assert_eq!(bench.leftovers(), 0);
    }

    /// A folder that exists becomes what the model predicts. Without an overwrite mode it does not
    /// change.
    #[test]
    fn a_merge_agrees_with_the_model(snapshot in tree(), there in tree(), way in way(), ends_after in prop::option::of(0..40_usize)) {
        let bench = Bench::new(&snapshot);
        make(&bench.destination(), &there);
        if !there.is_empty() {
            let (refused, _) = bench.run(None, None, None);
            prop_assert!(matches!(refused, Err(RestoreFolderError::Exists { .. })), "{:?}", refused);
            prop_assert_eq!(read(&bench.destination()).0, without_groups(&there));
        }
        let mut problems = 0;
        let mut expected = merged(&snapshot, &there, way, &mut problems);
        let is_merge = !there.is_empty();
        if way.delete && problems == 0 {
            without_extras(&mut expected, &snapshot);
        }
        let counts = bench.run_until_done_either(way, ends_after, is_merge);
        prop_assert_eq!(counts.problem_count, problems);
        prop_assert_eq!(counts.is_delete_withheld, way.delete && problems > 0);
        let (found, inodes) = read(&bench.destination());
        prop_assert_eq!(found, without_groups(&expected));
        if problems == 0 && matches!(way.overwrite, Overwrite::Always | Overwrite::IfChanged) {
            check_links(&snapshot, &inodes)?;
            if bench.is_locked {
                check_flags(&bench.destination(), &snapshot)?;
            }
        }
        prop_assert_eq!(bench.leftovers(), 0);
    }

    /// The loss of any block leaves each path as it should be, or the path is reported and missing.
    /// With holes allowed, each file exists whose folder is readable, and it differs only in the
    /// listed ranges.
    #[test]
    fn damage_hides_nothing_else(snapshot in tree(), lost in any::<prop::sample::Index>(), keeps in any::<bool>(), ends_after in prop::option::of(0..20_usize)) {
        let bench = Bench::new(&snapshot);
        prop_assume!(!bench.names.is_empty());
        let name = lost.get(&bench.names);
        bench.blocks.lose(name);
        let mut ends_after = ends_after;
        let (damaged, reported, counts) = loop {
            let damaged = DamageList::new();
            let (restored, reported) = bench.run(None, ends_after, keeps.then_some(&damaged));
            match restored {
                Ok(counts) => break (damaged, reported, counts),
                Err(RestoreFolderError::Cancelled { .. }) => {
                    ends_after = ends_after.map(|reads| reads + 3).filter(|reads| *reads < 60);
                }
                Err(error) => panic!("{error:?}"),
            }
        };
        prop_assert_eq!(counts.problem_count, reported.len() as u64);
        let mut ranges: BTreeMap<PathBuf, Vec<std::ops::Range<u64>>> = BTreeMap::new();
        damaged.for_each(|path, range| ranges.entry(path.to_path_buf()).or_default().push(range));
        prop_assert!(!ranges.is_empty() || !reported.is_empty(), "something was lost");
        // All names of a file have its holes, and the list names only the one that was written.
        let mut groups = BTreeMap::new();
        names(&snapshot, Path::new(""), &mut groups);
        for (_, paths) in groups.iter().filter(|(group, _)| group.is_some()) {
            let of_group = paths.iter().find_map(|path| ranges.get(path)).cloned();
            paths.iter().for_each(|path| {
                of_group.clone().map(|of_group| ranges.insert(path.clone(), of_group));
            });
        }
        check_damaged(&bench.destination(), Path::new(""), &snapshot, &reported, &ranges)?;
    }
}

impl Bench {
    /// Runs until the restore is complete. An empty folder is filled like a new place.
    fn run_until_done_either(&self, way: Way, ends_after: Option<usize>, is_merge: bool) -> RestoreCounts {
        let mut ends_after = ends_after;
        loop {
            match self.run(Some(way), ends_after, None).0 {
                Ok(counts) => return counts,
                Err(RestoreFolderError::Cancelled { unfinished }) => {
                    assert_eq!(unfinished.is_none(), is_merge);
                    ends_after = ends_after.map(|reads| reads + 3).filter(|reads| *reads < 60);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

fn check_damaged(
    root: &Path,
    below: &Path,
    tree: &Tree,
    reported: &[PathBuf],
    ranges: &BTreeMap<PathBuf, Vec<std::ops::Range<u64>>>,
) -> Result<(), TestCaseError> {
    for (name, entry) in tree {
        let path = below.join(name);
        let full = root.join(&path);
        let Ok(there) = fs::symlink_metadata(&full) else {
            prop_assert!(reported.iter().any(|problem| path.starts_with(problem)), "{:?} is missing", path);
            continue;
        };
        match entry {
            Entry::Folder { entries, .. } => check_damaged(root, &path, entries, reported, ranges)?,
            Entry::Leaf(leaf) if leaf.kind == Kind::File => {
                let mut expected = bytes(leaf.version);
                for range in ranges.get(&path).into_iter().flatten() {
                    expected[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
                        .fill(0);
                }
                prop_assert!(fs::read(&full).unwrap() == expected, "{:?} has other bytes", path);
                let is_listed = ranges.contains_key(&path);
                let has_time = u64::try_from(there.mtime()).unwrap() == mtime(leaf.version).as_secs();
                // Other names of a damaged file are damaged too, and the list has them under the
                // file's first name.
                prop_assert!(
                    is_listed != has_time || leaf.group.is_some(),
                    "{:?}: nothing takes it for whole",
                    path
                );
            }
            Entry::Leaf(_) => {}
        }
    }
    Ok(())
}
