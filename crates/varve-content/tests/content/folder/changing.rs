//! Sources that change at any moment while they are archived, and destinations that fill up or
//! change while they are restored to. A seed decides the tree and the changes. The machine decides
//! which steps of the workers a change meets, so a seed that fails may not fail again.
//!
//! A model has every state that each path ever had. An archived file without a problem must have
//! one of these states, and everything else must be reported.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use parking_lot::Mutex;
use varve_block::{Block, BlockName, BlockStore, GetError, MemoryBlockStore, PutError, Score};
use varve_content::folder::{
    ArchivedFolder, FolderOptions, Overwrite, RestoreCounts, RestoreFolderError, RestoreOptions, StoredFiles,
    Watch, archive_folder, lookup, restore_folder,
};
use varve_content::{Node, NodeKind, NodeProblem, Problem};
use varve_sim::SeededDraw;
use varve_world::{Clock, RealClock, RealWorkers};

use super::restore::Mount;
use super::sample::{Place, describe, set_mode};

/// The number of seeds without a setting.
const SEED_COUNT: u64 = 3;
const FOLDER_COUNT: u64 = 24;
const FILES_A_FOLDER: u64 = 10;
/// A change comes with one of so many blocks.
const BLOCKS_A_CHANGE: u64 = 3;

/// 3 seeds from 0 on. `VARVE_CHANGING_SEEDS` sets the count, and `VARVE_CHANGING_FIRST` the first
/// seed. With `VARVE_CHANGING_TREE`, a copy of that tree is changed.
fn seeds() -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("VARVE_CHANGING_FIRST").unwrap_or(0);
    first..first + number("VARVE_CHANGING_SEEDS").unwrap_or(SEED_COUNT)
}

fn random_bytes(draw: &mut SeededDraw, length: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| draw.number().to_le_bytes()).collect();
    bytes.truncate(usize::try_from(length).unwrap());
    bytes
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Absent,
    Folder,
    Link,
    File(Vec<u8>),
}

/// The states of one path, the present one last.
#[derive(Debug, Default)]
struct PathStates {
    states: Vec<State>,
    /// True once the permissions were removed.
    is_hidden: bool,
    /// True once it was changed. A path is changed once, because two changes within a tick of the
    /// file system's clock cannot be told apart.
    is_changed: bool,
}

impl PathStates {
    fn was(&self, state: &State) -> bool {
        self.states.contains(state)
    }

    fn is_untouched(&self) -> bool {
        !self.is_changed && self.states.len() == 1
    }
}

/// A source, and the states of its paths.
struct ChangingSource {
    root: PathBuf,
    /// The folders that files are added to, and that are removed and moved.
    folders: Vec<String>,
    /// Files are completed here, and then renamed to their place.
    aside: PathBuf,
    paths: BTreeMap<String, PathStates>,
    draw: SeededDraw,
    made_count: u64,
}

impl ChangingSource {
    fn new(place: &Place, seed: u64) -> Self {
        let mut draw = SeededDraw::new(seed);
        let aside = place.folder.path().join("aside");
        fs::create_dir(&aside).unwrap();
        match std::env::var_os("VARVE_CHANGING_TREE") {
            Some(tree) => copy_tree(Path::new(&tree), &place.source()),
            None => make_tree(place, &mut draw, seed.is_multiple_of(2)),
        }
        let (mut folders, mut paths) = (Vec::new(), BTreeMap::new());
        for (path, states) in files_in(&place.source(), &mut folders) {
            paths.insert(path, PathStates { states: vec![states], ..PathStates::default() });
        }
        assert!(!folders.is_empty(), "a tree needs a folder with files");
        Self { root: place.source(), folders, aside, paths, draw, made_count: 0 }
    }

    fn draw_folder(&mut self) -> String {
        let place = self.draw.below(self.folders.len() as u64);
        self.folders[usize::try_from(place).unwrap()].clone()
    }

    /// Makes one change.
    fn change(&mut self) {
        match self.draw.below(24) {
            0 => self.remove_folder(),
            1 => self.move_folder(),
            2..=4 => self.add_file(),
            // Seldom, so that it is often read when this comes.
            5 if self.draw.below(4) == 0 => self.change_large_file(),
            kind => {
                let place = usize::try_from(self.draw.below(self.paths.len() as u64)).unwrap();
                self.change_file(place, kind % 8);
            }
        }
    }

    fn change_large_file(&mut self) {
        let length = |states: &PathStates| match states.states.last() {
            Some(State::File(bytes)) => bytes.len(),
            _ => 0,
        };
        let largest = self.paths.values().enumerate().max_by_key(|(_, states)| length(states));
        let place = largest.unwrap().0;
        let kind = 3 + 5 * self.draw.below(2);
        self.change_file(place, kind);
    }

    fn change_file(&mut self, place: usize, kind: u64) {
        let (name, states) = self.paths.iter_mut().nth(place).unwrap();
        let Some(State::File(old)) = states.states.last().cloned() else { return };
        if std::mem::replace(&mut states.is_changed, true) {
            return;
        }
        let path = self.root.join(name);
        let open = || fs::File::options().write(true).open(&path).unwrap();
        let offset = self.draw.below(old.len() as u64 + 1);
        match kind {
            0 => fs::remove_file(&path).unwrap(),
            1 => open().set_len(offset).unwrap(),
            2 => {
                let more = random_bytes(&mut self.draw, 1 + offset.min(5000));
                fs::File::options().append(true).open(&path).unwrap().write_all(&more).unwrap();
            }
            3 => open().write_all_at(b"other", offset).unwrap(),
            8 => {
                open().write_all_at(b"first", offset / 2).unwrap();
                states.states.push(State::File(fs::read(&path).unwrap()));
                open().write_all_at(b"second", offset / 2 + old.len() as u64 / 2).unwrap();
            }
            4 => {
                fs::write(self.aside.join("new"), format!("in place of {name}")).unwrap();
                fs::rename(self.aside.join("new"), &path).unwrap();
            }
            5 => set_mode(&path, 0),
            _ => {
                fs::remove_file(&path).unwrap();
                states.states.push(State::Absent);
                match kind {
                    6 => fs::create_dir(&path).unwrap(),
                    _ => symlink("/etc/passwd", &path).unwrap(),
                }
            }
        }
        states.is_hidden = kind == 5;
        states.states.push(match kind {
            0 => State::Absent,
            5 => return,
            6 => State::Folder,
            7 => State::Link,
            _ => State::File(fs::read(&path).unwrap()),
        });
    }

    fn add_file(&mut self) {
        let folder = self.draw_folder();
        let length = self.draw.below(20_000);
        let bytes = random_bytes(&mut self.draw, length);
        self.made_count += 1;
        let name = format!("{folder}/new {}", self.made_count);
        fs::write(self.aside.join("new"), &bytes).unwrap();
        if fs::rename(self.aside.join("new"), self.root.join(&name)).is_ok() {
            let states = vec![State::Absent, State::File(bytes)];
            self.paths.insert(name, PathStates { states, is_changed: true, ..PathStates::default() });
        }
    }

    fn remove_folder(&mut self) {
        let folder = self.draw_folder();
        if fs::remove_dir_all(self.root.join(&folder)).is_ok() {
            self.leave(&folder);
        }
    }

    fn move_folder(&mut self) {
        let (folder, to) = (self.draw_folder(), format!("moved {}", self.made_count));
        self.made_count += 1;
        if fs::rename(self.root.join(&folder), self.root.join(&to)).is_ok() {
            for (name, states) in self.leave(&folder) {
                let states = [vec![State::Absent], states].concat();
                let moved = PathStates { states, is_changed: true, ..PathStates::default() };
                self.paths.insert(format!("{to}/{name}"), moved);
            }
        }
    }

    /// The paths of a folder are absent. Returns the names of its files, and their states.
    fn leave(&mut self, folder: &str) -> Vec<(String, Vec<State>)> {
        let mut left = Vec::new();
        let prefix = format!("{folder}/");
        for (path, states) in &mut self.paths {
            if let Some(name) = path.strip_prefix(&prefix) {
                left.push((name.to_owned(), states.states.clone()));
                states.states.push(State::Absent);
                states.is_changed = true;
            }
        }
        left
    }
}

/// Makes folders of small files, and one large file.
fn make_tree(place: &Place, draw: &mut SeededDraw, has_disk: bool) {
    for folder in 0..FOLDER_COUNT {
        for file in 0..FILES_A_FOLDER {
            let length = draw.below(30_000);
            place.file(&format!("{folder:02}/{file}"), random_bytes(draw, length));
        }
    }
    // It is read in segments, or archived as a disk is.
    let mut large = random_bytes(draw, 9 << 20);
    if has_disk {
        large[..16].copy_from_slice(b"SQLite format 3\0");
    }
    place.file("11/large", large);
}

/// Copies a tree with all attributes. Each name of a hard link becomes a file, since a change to
/// one name is one to all of them.
fn copy_tree(tree: &Path, to: &Path) {
    let mut cp = Command::new("cp");
    let copied = cp.args(["-a", "--no-preserve=links", "-T"]).args([tree, to]).status().unwrap();
    assert!(copied.success(), "{} cannot be copied", tree.display());
}

/// Returns the files below a folder, by their paths in it. Adds the folders that have files and no
/// folders to `folders`. Names that are not UTF-8 are left out, and never change.
fn files_in(root: &Path, folders: &mut Vec<String>) -> BTreeMap<String, State> {
    let mut files = BTreeMap::new();
    let mut left = vec![String::new()];
    while let Some(folder) = left.pop() {
        let (mut has_folder, mut has_file) = (false, false);
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            has_folder |= kind.is_dir();
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() {
                has_file = true;
                files.insert(path, State::File(fs::read(entry.path()).unwrap()));
            }
        }
        if has_file && !has_folder && !folder.is_empty() {
            folders.push(folder);
        }
    }
    folders.sort_unstable();
    files
}

/// A store that calls `meddle` with some of the blocks that are put or got.
struct Meddling<'a> {
    blocks: &'a MemoryBlockStore,
    left: Mutex<(u64, SeededDraw)>,
    meddle: Mutex<Box<dyn FnMut() + Send + 'a>>,
}

impl<'a> Meddling<'a> {
    fn new(blocks: &'a MemoryBlockStore, seed: u64, meddle: impl FnMut() + Send + 'a) -> Self {
        let mut draw = SeededDraw::new(seed);
        let left = draw.below(20);
        Self { blocks, left: Mutex::new((left, draw)), meddle: Mutex::new(Box::new(meddle)) }
    }

    fn pass(&self) {
        let is_due = {
            let (left, draw) = &mut *self.left.lock();
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => *left = draw.below(2 * BLOCKS_A_CHANGE),
            }
            *left == 0
        };
        if is_due {
            (self.meddle.lock())();
        }
    }
}

impl BlockStore for Meddling<'_> {
    varve_block::forward_block_store!(blocks: score_bytes, empty_score, sync);

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        self.pass();
        self.blocks.put(block)
    }

    fn get(&self, name: &BlockName) -> Result<bytes::Bytes, GetError> {
        self.pass();
        self.blocks.get(name)
    }
}

fn archive(
    place: &Place,
    blocks: &dyn BlockStore,
    previous: Option<&Node>,
) -> (ArchivedFolder, Vec<Problem>) {
    let problems = Mutex::new(Vec::new());
    let watch = Watch { progress: &place.progress, report: &|problem| problems.lock().push(problem) };
    let options = FolderOptions { began_at: RealClock.now(), ..FolderOptions::default() };
    let workers = RealWorkers::new(4);
    let archived = archive_folder(blocks, &workers, &place.source(), previous, &options, watch).unwrap();
    (archived, problems.into_inner())
}

fn is_reported(problems: &[Problem], path: &Path) -> bool {
    problems.iter().any(|problem| path.starts_with(&problem.path))
}

/// Checks a path of a snapshot against all states that the path had. `restored` is the path in a
/// restore of the snapshot.
fn check_path(path: &str, states: &PathStates, node: Option<Node>, problems: &[Problem], restored: &Path) {
    let Some(node) = node else {
        assert!(states.was(&State::Absent), "{path} existed all the time, and is missing");
        return;
    };
    if node.problem.is_some() {
        assert!(is_reported(problems, Path::new(path)), "{path}: {:?}", node.problem);
        assert!(!states.is_untouched(), "{path} was not touched: {:?}", node.problem);
    } else {
        let reported = problems.iter().find(|problem| problem.path == Path::new(path));
        assert!(reported.is_none(), "the snapshot does not say that there was a problem: {reported:?}");
    }
    match (node.kind, node.problem) {
        (NodeKind::Folder, _) => assert!(states.was(&State::Folder), "{path} was never a folder"),
        (NodeKind::SymbolicLink, _) => assert!(states.was(&State::Link), "{path} was never a link"),
        (_, Some(NodeProblem::Vanished)) => assert!(states.was(&State::Absent), "{path} did not vanish"),
        (_, Some(NodeProblem::Unreadable)) => {
            let was_other = states.was(&State::Folder) || states.was(&State::Link);
            assert!(states.is_hidden || was_other, "{path} could be read");
        }
        (_, None) => {
            let bytes = fs::read(restored).unwrap();
            assert_eq!(bytes.len() as u64, node.size, "{path}");
            assert!(states.was(&State::File(bytes)), "{path} has bytes that it never had, unreported");
        }
        (_, Some(NodeProblem::Changed)) => {
            let Ok(bytes) = fs::read(restored) else { return };
            assert_eq!(bytes.len() as u64, node.size, "{path}");
            let was = |at: usize, byte: u8| {
                let file = |state: &State| match state {
                    State::File(old) => old.get(at).is_none_or(|old| *old == byte),
                    _ => false,
                };
                byte == 0 || states.states.iter().any(file)
            };
            let strange = bytes.iter().enumerate().position(|(at, byte)| !was(at, *byte));
            assert_eq!(strange, None, "{path} never had this byte there");
        }
    }
}

/// Gives the owner the right to read each file, wherever it was moved to.
fn show_files(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
        if kind.is_dir() {
            show_files(&path);
        } else if kind.is_file() && path.metadata().unwrap().mode() & 0o400 == 0 {
            set_mode(&path, 0o600);
        }
    }
}

#[test]
fn what_is_archived_was_there_or_is_reported() {
    for seed in seeds() {
        let place = Place::new();
        let source = Mutex::new(ChangingSource::new(&place, seed));
        let blocks = Meddling::new(&place.blocks, seed, || source.lock().change());
        let (archived, problems) = archive(&place, &blocks, None);
        drop(blocks);
        let source = source.into_inner();
        let restored = place.restore_with_problems(&archived.root).1;
        for (path, states) in &source.paths {
            let node = lookup(&StoredFiles::new(&place.blocks), &archived.root, Path::new(path)).ok();
            check_path(path, states, node, &problems, &place.destination().join(path));
        }
        for problem in problems.iter().chain(&restored) {
            let touched = |(path, states): (&String, &PathStates)| {
                Path::new(path).starts_with(&problem.path) && !states.is_untouched()
            };
            assert!(source.paths.iter().any(touched), "seed {seed}: nothing was changed: {problem}");
        }

        // The next run finds every change, whatever this one has seen of it.
        show_files(&source.root);
        let (archived, problems) = archive(&place, &place.blocks, Some(&archived.root));
        assert!(problems.is_empty(), "seed {seed}: {problems:?}");
        fs::remove_dir_all(place.destination()).unwrap();
        place.restore(&archived.root);
        assert!(
            describe(&place.destination()) == describe(&place.source()),
            "seed {seed}: the next run differs"
        );
    }
}

/// A snapshot of a few hundred files, one of them large.
fn snapshot(place: &Place, seed: u64) -> Node {
    ChangingSource::new(place, seed);
    place.archive(None).root
}

fn restore(
    place: &Place,
    blocks: &dyn BlockStore,
    root: &Node,
    to: &Path,
    overwrite: Option<Overwrite>,
) -> (Result<RestoreCounts, RestoreFolderError>, Vec<Problem>) {
    let problems = Mutex::new(Vec::new());
    let watch = Watch { progress: &place.progress, report: &|problem| problems.lock().push(problem) };
    let options = RestoreOptions { overwrite, source: b"the snapshot", ..RestoreOptions::default() };
    let restored = restore_folder(&StoredFiles::new(blocks), &RealWorkers::new(3), root, to, options, watch);
    (restored, problems.into_inner())
}

#[test]
fn a_disk_that_fills_leaves_nothing_half_done_at_the_destination() {
    for seed in seeds() {
        let place = Place::new();
        let root = snapshot(&place, seed);
        let mut draw = SeededDraw::new(seed);
        let disk = place.folder.path().join("disk");
        fs::create_dir(&disk).unwrap();
        // Either its blocks or its inodes are used up first.
        let (mut kilobytes, mut inodes) = (200 + draw.below(12_000), 20 + draw.below(500));
        let size = |kilobytes: u64, inodes: u64| format!("size={kilobytes}k,nr_inodes={inodes}");
        let options = size(kilobytes, inodes);
        let Some(_mount) = Mount::new(&["-t", "tmpfs", "-o", &options, "none"], &disk) else { return };
        let to = disk.join("new");
        loop {
            let (restored, problems) = restore(&place, &place.blocks, &root, &to, None);
            assert!(problems.is_empty(), "seed {seed}: {problems:?}");
            match restored {
                Ok(_) => break,
                Err(RestoreFolderError::Stopped { unfinished: Some(unfinished), .. }) => {
                    assert!(unfinished.is_dir() && !to.exists(), "seed {seed}");
                }
                Err(error) => panic!("seed {seed}: {error:?}"),
            }
            (kilobytes, inodes) = (kilobytes * 2, inodes * 2);
            let options = format!("remount,{}", size(kilobytes, inodes));
            let grown = Command::new("mount").args(["-o", &options]).arg(&disk).status().unwrap();
            assert!(grown.success());
        }
        assert!(describe(&to) == describe(&place.source()), "seed {seed}");
        assert_eq!(fs::read_dir(&disk).unwrap().count(), 1, "seed {seed}: something is left");
    }
}

/// The content of files that others make in the destination.
const FOREIGN: &[u8] = b"made by another program";

/// Makes an entry where the snapshot has one, unless there is one already. Returns its path.
fn make_foreign(place: &Place, names: &[String], draw: &mut SeededDraw) -> Option<String> {
    let name = &names[usize::try_from(draw.below(names.len() as u64)).unwrap()];
    let path = place.destination().join(name);
    // Its folder may be a link to the outside by now.
    let is_inside = |folder: PathBuf| folder.starts_with(place.destination().canonicalize().unwrap());
    if !path.parent().unwrap().canonicalize().is_ok_and(is_inside) {
        return None;
    }
    let made = match draw.below(4) {
        0 => symlink(place.folder.path().join("outside"), &path),
        1 => fs::create_dir(&path),
        // It appears with its content.
        _ => {
            let aside = place.folder.path().join("foreign");
            fs::write(&aside, FOREIGN).unwrap();
            fs::hard_link(&aside, &path).and_then(|()| fs::remove_file(&aside))
        }
    };
    made.is_ok().then(|| name.clone())
}

#[test]
fn what_appears_in_the_destination_is_not_lost_unasked() {
    for (seed, overwrite) in seeds().flat_map(|seed| {
        [Overwrite::Never, Overwrite::IfNewer, Overwrite::IfChanged].map(|overwrite| (seed, overwrite))
    }) {
        let place = Place::new();
        let root = snapshot(&place, seed);
        let names: Vec<String> = describe(&place.source())
            .keys()
            .filter(|path| !path.as_os_str().is_empty())
            .map(|path| path.to_str().unwrap().to_owned())
            .collect();
        let outside = place.folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::create_dir(place.destination()).unwrap();
        fs::write(place.destination().join("kept"), "kept").unwrap();
        let made = Mutex::new((SeededDraw::new(seed), Vec::new()));
        let blocks = Meddling::new(&place.blocks, seed, || {
            let (draw, made) = &mut *made.lock();
            made.extend(make_foreign(&place, &names, draw));
        });
        let (restored, problems) = restore(&place, &blocks, &root, &place.destination(), Some(overwrite));
        drop(blocks);
        let counts = restored.unwrap();
        assert_eq!(counts.problem_count, problems.len() as u64, "seed {seed}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "seed {seed}: written through a link");
        assert_eq!(fs::read(place.destination().join("kept")).unwrap(), b"kept");
        let made = made.into_inner().1;
        for name in &names {
            let (here, there) = (place.destination().join(name), place.source().join(name));
            let is_foreign = made.contains(name);
            let is_file = fs::symlink_metadata(&here).is_ok_and(|there| there.is_file());
            let is_reported = is_reported(&problems, Path::new(name));
            let kind = fs::symlink_metadata(&there).unwrap().file_type();
            if kind.is_dir() {
                let is_folder = fs::symlink_metadata(&here).is_ok_and(|there| there.is_dir());
                assert!(is_folder || is_reported, "seed {seed}: {name} is silently missing");
                continue;
            }
            let bytes = if is_file { fs::read(&here).unwrap() } else { Vec::new() };
            let is_restored = if kind.is_file() {
                is_file && bytes == fs::read(&there).unwrap()
            } else if kind.is_symlink() {
                fs::read_link(&here).is_ok_and(|to| to == fs::read_link(&there).unwrap())
            } else {
                fs::symlink_metadata(&here).is_ok_and(|found| found.file_type() == kind)
            };
            let may_stay = is_foreign && overwrite != Overwrite::IfChanged;
            assert!(
                is_restored || may_stay || is_reported,
                "seed {seed}: {name} silently differs from the snapshot"
            );
            if is_file && !is_restored {
                assert!(is_foreign && bytes == FOREIGN, "seed {seed}: {name} is neither old nor new");
            }
            if is_foreign && overwrite == Overwrite::Never {
                assert!(!is_restored, "seed {seed}: {name} was replaced");
            }
        }
    }
}

#[test]
fn a_destination_that_appears_is_left_alone() {
    for seed in seeds() {
        let place = Place::new();
        let root = snapshot(&place, seed);
        let blocks = Meddling::new(&place.blocks, seed, || {
            let _ = fs::create_dir(place.destination());
            let _ = fs::write(place.destination().join("foreign"), FOREIGN);
        });
        let (restored, problems) = restore(&place, &blocks, &root, &place.destination(), None);
        drop(blocks);
        assert!(problems.is_empty(), "seed {seed}: {problems:?}");
        let Err(RestoreFolderError::Unplaced { finished, .. }) = restored else { panic!("{restored:?}") };
        assert_eq!(fs::read(place.destination().join("foreign")).unwrap(), FOREIGN);
        assert_eq!(fs::read_dir(place.destination()).unwrap().count(), 1);
        assert!(describe(&finished) == describe(&place.source()), "seed {seed}");
    }
}
