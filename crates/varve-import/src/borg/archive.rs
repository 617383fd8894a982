//! The archives of a repository, and their trees as steps.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use serde::Deserialize;
use varve_block::to_usize;
use varve_content::folder::{ContentSink, DescriptionError, FileContent, TreeStep};
use varve_content::{Node, NodeKind, NodeProblem};
use varve_image::FileTime;
use varve_world::Timestamp;

use super::contents::{NeededFile, ReadContent, read_contents};
use super::items::{BorgContent, BorgItem, BorgItems};
use super::program::{BorgError, BorgProgram};
use crate::dated_name::before_date;
use crate::foreign::{ForeignArchive, ForeignContents, ForeignSnapshot, ForeignStep, ForeignTree};
use crate::lost_entries::LostEntries;
use crate::sorted_tree::{SortedTree, TreePathError, TreeSteps};

const READ_BYTES: usize = 1 << 20;
/// Upper bound on the memory of the items of an archive, in bytes, roughly.
const ITEMS_BYTES_MAX: usize = 2 << 30;
/// The memory of an item without its texts, in bytes, roughly.
const ITEM_BYTES: usize = 600;
/// The longest comment that becomes a tag.
const COMMENT_CHARS_MAX: usize = 1000;

/// Why a repository is not read.
#[derive(Debug, thiserror::Error)]
pub enum OpenBorgError {
    #[error("{} is not a repository of borg", path.display())]
    NotARepository { path: PathBuf },
    #[error("{0}")]
    Borg(#[from] BorgError),
    #[error("the list of archives is malformed")]
    Json(#[from] serde_json::Error),
    #[error("the time of the archive {name} is malformed")]
    Time { name: String },
}

/// Selects archives of a repository.
#[derive(Debug, Clone, Default)]
pub struct BorgFilter {
    /// A pattern of names, as borg's `--glob-archives` has it.
    pub names: Option<String>,
    pub hosts: Vec<String>,
}

/// A repository as a source of snapshots.
pub struct BorgArchive {
    program: BorgProgram,
    snapshots: Vec<ForeignSnapshot>,
    /// The name of each archive.
    names: Vec<String>,
}

#[derive(Deserialize)]
struct ArchiveListJson {
    archives: Vec<ArchiveJson>,
}

#[derive(Deserialize)]
struct ArchiveJson {
    name: String,
    id: String,
    time: String,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    comment: String,
    #[serde(default)]
    command_line: serde_json::Value,
}

#[derive(Deserialize)]
struct ArchiveTimesJson {
    archives: BTreeMap<String, TimedArchiveJson>,
}

#[derive(Deserialize)]
struct TimedArchiveJson {
    id: String,
    time: String,
}

impl BorgArchive {
    /// Returns an error if the place is a folder that is no repository. A place at a server is not
    /// looked at.
    ///
    /// # Errors
    /// [`OpenBorgError::NotARepository`].
    pub fn probe(repository: &OsStr) -> Result<(), OpenBorgError> {
        let path = Path::new(repository);
        let is_remote = !path.exists() && repository.to_string_lossy().contains(':');
        let mut start = String::new();
        let config = File::open(path.join("config"));
        let read = config.and_then(|file| file.take(4096).read_to_string(&mut start));
        if is_remote || (read.is_ok() && start.contains("[repository]")) {
            return Ok(());
        }
        Err(OpenBorgError::NotARepository { path: path.into() })
    }

    /// Lists the archives of a repository. A source that borg does not know is named `series`, or
    /// like the archives without the dates in their names.
    ///
    /// # Errors
    /// [`OpenBorgError`].
    pub fn open(
        program: BorgProgram,
        filter: &BorgFilter,
        series: Option<&str>,
    ) -> Result<Self, OpenBorgError> {
        let mut list = program.opening(&["list", "--json", "--format", "{hostname}{comment}{command_line}"]);
        if let Some(names) = &filter.names {
            list.arg("--glob-archives").arg(names);
        }
        list.arg(program.location());
        let listed: ArchiveListJson = serde_json::from_slice(&program.output(list)?)?;
        let exact = exact_times(&program)?;
        let mut found = Vec::new();
        for archive in listed.archives {
            if !filter.hosts.is_empty() && !filter.hosts.contains(&archive.hostname) {
                continue;
            }
            let time = exact.get(&archive.id).copied().or_else(|| utc(&archive.time));
            let time = time.ok_or_else(|| OpenBorgError::Time { name: archive.name.clone() })?;
            found.push((time, archive));
        }
        found.sort_by(|(one, earlier), (next, later)| (one, &earlier.name).cmp(&(next, &later.name)));
        let (mut snapshots, mut names) = (Vec::new(), Vec::new());
        for (time, archive) in found {
            let source = archive.source(series);
            let mut tags = vec![format!("archive={}", one_line(&archive.name))];
            if !archive.comment.is_empty() {
                tags.push(format!("comment={}", one_line(&archive.comment)));
            }
            let (id, host, earlier_ids) = (archive.id, archive.hostname, Vec::new());
            snapshots.push(ForeignSnapshot { id, earlier_ids, time, host, source, tags });
            names.push(archive.name);
        }
        Ok(Self { program, snapshots, names })
    }

    pub(super) fn program(&self) -> &BorgProgram {
        &self.program
    }

    /// The name of an archive.
    pub(super) fn name(&self, place: usize) -> Result<&str, DescriptionError> {
        Ok(self.names.get(place).map(String::as_str).ok_or("there is no such archive")?)
    }

    /// Reads the items of an archive.
    pub(super) fn load(&self, place: usize) -> Result<LoadedArchive, DescriptionError> {
        let name = self.name(place)?;
        let time = self.snapshots.get(place).ok_or("there is no such archive")?.time;
        // borg writes them into files, in the order of their names.
        let scratch = tempfile::Builder::new().prefix("varve-borg-").tempdir()?;
        let mut command = self.program.opening(&["debug", "dump-archive-items"]);
        command.arg(self.program.archive(name)).current_dir(scratch.path());
        self.program.run(command)?;
        let mut files = Vec::new();
        for entry in scratch.path().read_dir()? {
            files.push(entry?.path());
        }
        files.sort();
        let stream = JoinedFiles { files: files.into_iter(), current: None };
        let mut items = BorgItems::new(BufReader::with_capacity(READ_BYTES, stream));
        let mut loaded = LoadedArchive { items: Vec::new(), root: Vec::new(), time };
        let mut bytes = 0_usize;
        while let Some(item) = items.next_item()? {
            let texts = item.path.len().saturating_mul(2).saturating_add(item.node.target.len());
            let xattrs = item.node.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len());
            bytes = xattrs.fold(bytes.saturating_add(texts + ITEM_BYTES), usize::saturating_add);
            if bytes > ITEMS_BYTES_MAX {
                return Err(TreePathError::TooMany.into());
            }
            loaded.items.push(item);
        }
        loaded.find_root();
        Ok(loaded)
    }
}

/// The times of all archives to the microsecond, by their ids. The list has whole seconds.
fn exact_times(program: &BorgProgram) -> Result<BTreeMap<String, Timestamp>, OpenBorgError> {
    let mut command = program.opening(&["debug", "dump-manifest"]);
    command.arg(program.location()).arg("-");
    let manifest: ArchiveTimesJson = serde_json::from_slice(&program.output(command)?)?;
    // borg marks bytes in hexadecimal with a leading DEL.
    let time = |archive: TimedArchiveJson| {
        Some((archive.id.trim_start_matches('\u{7f}').to_owned(), utc(&archive.time)?))
    };
    Ok(manifest.archives.into_values().filter_map(time).collect())
}

/// A time of borg, which has a zone only in its newest versions.
fn utc(text: &str) -> Option<Timestamp> {
    let with_zone = text.parse::<jiff::Timestamp>().ok();
    let time = with_zone.or_else(|| {
        let civil = text.parse::<jiff::civil::DateTime>().ok()?;
        TimeZone::UTC.to_timestamp(civil).ok()
    })?;
    i64::try_from(time.as_nanosecond()).ok().map(Timestamp)
}

fn one_line(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(COMMENT_CHARS_MAX).collect()
}

impl ArchiveJson {
    /// The folder that was archived if the command line of borg tells, else a name for the series.
    fn source(&self, series: Option<&str>) -> Vec<u8> {
        if let Some(path) = self.only_path() {
            return path.into_bytes();
        }
        let series = series.unwrap_or_else(|| before_date(&self.name));
        if series.is_empty() { self.hostname.clone().into_bytes() } else { series.as_bytes().to_vec() }
    }

    /// The only argument behind the name of the archive, if it is the path of a folder.
    fn only_path(&self) -> Option<String> {
        let words: Vec<&str> =
            self.command_line.as_array()?.iter().filter_map(serde_json::Value::as_str).collect();
        let place = words.iter().position(|word| word.contains("::"))?;
        match words.get(place + 1..)? {
            [path] if path.starts_with('/') => Some(clean_path(path)),
            _ => None,
        }
    }
}

fn clean_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    format!("/{}", parts.join("/"))
}

/// Files as one stream.
struct JoinedFiles {
    files: std::vec::IntoIter<PathBuf>,
    current: Option<File>,
}

impl Read for JoinedFiles {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(file) = &mut self.current {
                match file.read(into)? {
                    0 => self.current = None,
                    count => return Ok(count),
                }
            }
            let Some(next) = self.files.next() else { return Ok(0) };
            self.current = Some(File::open(next)?);
        }
    }
}

/// The items of an archive.
pub(super) struct LoadedArchive {
    items: Vec<BorgItem>,
    /// The path of the folder that has all others in it, and becomes the root; else empty.
    pub(super) root: Vec<u8>,
    pub(super) time: Timestamp,
}

impl LoadedArchive {
    /// borg archives a folder before its files. If everything is in the first one, that is the
    /// root.
    fn find_root(&mut self) {
        let Some((first, rest)) = self.items.split_first() else { return };
        let is_folder = first.node.kind == NodeKind::Folder && first.path != b".";
        let is_below = |item: &BorgItem| {
            item.path.strip_prefix(first.path.as_slice()).is_some_and(|below| below.starts_with(b"/"))
        };
        if is_folder && rest.iter().all(is_below) {
            self.root.clone_from(&first.path);
        }
    }

    /// A path below the root.
    fn below_root<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        path.strip_prefix(self.root.as_slice()).unwrap_or(path)
    }

    /// The folders below the root that paths lead through, and that are no items, in ascending
    /// order.
    pub(super) fn implied_folders(&self) -> BTreeSet<Vec<u8>> {
        let known: BTreeSet<&[u8]> = self.items.iter().map(|item| item.path.as_slice()).collect();
        let mut implied = BTreeSet::new();
        for path in &known {
            let mut path = *path;
            while let Some(end) = path.iter().rposition(|byte| *byte == b'/') {
                path = path.get(..end).unwrap_or_default();
                let is_below = path.len() > self.root.len();
                if !is_below || known.contains(path) || !implied.insert(path.to_vec()) {
                    break;
                }
            }
        }
        implied
    }
}

impl ForeignArchive for BorgArchive {
    fn kind(&self) -> &'static str {
        "borg"
    }

    fn snapshots(&self) -> &[ForeignSnapshot] {
        &self.snapshots
    }

    fn tree(&self, place: usize) -> Result<Box<dyn ForeignTree + '_>, DescriptionError> {
        let loaded = self.load(place)?;
        Ok(Box::new(BorgTree {
            program: &self.program,
            name: self.name(place)?,
            loaded: Some(loaded),
            files: Vec::new(),
            read: BTreeMap::new(),
            steps: None,
            lost: LostEntries::default(),
            root: true,
        }))
    }
}

/// The tree of an archive: first the unknown contents are read, in the order of the archive, and
/// then the steps are passed on.
struct BorgTree<'a> {
    program: &'a BorgProgram,
    name: &'a str,
    loaded: Option<LoadedArchive>,
    /// The contents of files. While a node is in the tree, its inode is the number of its content,
    /// from 1 on.
    files: Vec<BorgContent>,
    /// The contents that were read or found, by their places in `files`.
    read: BTreeMap<usize, ReadContent>,
    steps: Option<TreeSteps>,
    /// Reports about items.
    lost: LostEntries,
    /// True until the root was passed on.
    root: bool,
}

impl ForeignTree for BorgTree<'_> {
    fn next(
        &mut self,
        contents: Option<&ForeignContents<'_>>,
    ) -> Result<Option<ForeignStep>, DescriptionError> {
        if let Some(loaded) = self.loaded.take() {
            self.steps = Some(self.prepare(loaded, contents)?);
        }
        if !self.root
            && let Some(step) = self.lost.next()
        {
            return Ok(Some(ForeignStep::Tree(step)));
        }
        self.root = false;
        let step = self.steps.as_mut().and_then(Iterator::next);
        Ok(step.map(|step| self.with_content(step, contents.is_some())))
    }
}

impl BorgTree<'_> {
    /// Sorts the items into a tree, and reads contents.
    fn prepare(
        &mut self,
        loaded: LoadedArchive,
        contents: Option<&ForeignContents<'_>>,
    ) -> Result<TreeSteps, DescriptionError> {
        let mut tree = SortedTree::default();
        let mut needed = Vec::new();
        let mut pending = BTreeSet::new();
        let mut total = 0_u64;
        for (number, item) in (1_u64..).zip(&loaded.items) {
            let path = loaded.below_root(&item.path);
            if let Some(problem) = item.problem {
                self.lost.lose(path.to_vec(), problem);
            }
            let mut node = item.node.clone();
            if let Some(content) = item.content {
                let place = self.files.len();
                self.files.push(content);
                node.inode = self.files.len() as u64;
                node.size = content.bytes;
                total = total.saturating_add(content.bytes);
                let id = Some(content.id).filter(|_| !content.has_lost_chunks);
                let known = contents.zip(id).and_then(|(contents, id)| contents.find(&id));
                if let Some(entry) = known {
                    self.read.insert(place, Ok(entry));
                } else if id.is_none_or(|id| pending.insert(id)) {
                    let (path, bytes) = (item.path.clone(), content.bytes);
                    needed.push(NeededFile { path, bytes, id, number: place });
                }
            }
            let result = match &item.linked_to {
                None => tree.set(path, node),
                Some(target) => {
                    let first = tree.get_mut(loaded.below_root(target));
                    let Some(first) = first.filter(|first| first.kind != NodeKind::Folder) else {
                        let error = "it is a hard link to a file that is not before it in the archive";
                        self.lost.lose(path.to_vec(), error);
                        continue;
                    };
                    first.link_group.get_or_insert(number);
                    let linked = first.clone();
                    tree.set(path, linked)
                }
            };
            match result {
                Ok(()) => {}
                Err(error @ TreePathError::TooMany) => return Err(error.into()),
                Err(error) => {
                    self.lost.lose(path.to_vec(), error);
                }
            }
        }
        if let Some(contents) = contents {
            self.read.extend(read_contents(self.program, self.name, needed, total, contents)?);
            self.share_equal_contents();
            self.report_losses(&loaded);
        }
        let mut missing = Node::new(Vec::new(), NodeKind::Folder);
        missing.mode = 0o755;
        missing.mtime = FileTime::from_nanoseconds(loaded.time.0);
        Ok(tree.into_steps(&missing))
    }

    /// Gives files the contents that other files of the archive have, which were read once.
    fn share_equal_contents(&mut self) {
        let mut first_places = BTreeMap::new();
        for (place, file) in self.files.iter().enumerate() {
            if let Some(Ok(entry)) = self.read.get(&place) {
                first_places.entry(file.id).or_insert(*entry);
            }
        }
        for (place, file) in self.files.iter().enumerate() {
            if let Some(entry) = first_places.get(&file.id) {
                self.read.entry(place).or_insert(Ok(*entry));
            }
        }
    }

    /// Reports the files without a whole content.
    fn report_losses(&mut self, loaded: &LoadedArchive) {
        let with_content = loaded.items.iter().filter(|item| item.content.is_some());
        for (place, item) in with_content.enumerate() {
            let has_lost_chunks = self.files.get(place).is_some_and(|file| file.has_lost_chunks);
            let error: DescriptionError = match self.read.get_mut(&place) {
                Some(Ok(_)) if has_lost_chunks => "borg has put zeros in place of lost parts".into(),
                Some(Ok(_)) => continue,
                Some(Err(error)) => std::mem::replace(error, "it was reported".into()),
                None => "a file with the same content is unreadable".into(),
            };
            let name = loaded.below_root(&item.path);
            self.lost.harm(name.strip_prefix(b"/").unwrap_or(name).to_vec(), error);
        }
    }

    /// A step with the content of its node.
    fn with_content(&self, step: TreeStep, is_taken: bool) -> ForeignStep {
        let TreeStep::Entry(mut node) = step else { return ForeignStep::Tree(step) };
        let number = std::mem::take(&mut node.inode);
        let place = number.checked_sub(1).map(to_usize);
        let Some((place, file)) = place.and_then(|place| Some((place, self.files.get(place)?))) else {
            return ForeignStep::Tree(TreeStep::Entry(node));
        };
        if !is_taken {
            return ForeignStep::File { node, id: file.id, content: Box::new(UnreadContent) };
        }
        match self.read.get(&place) {
            Some(Ok(entry)) => {
                node.content = *entry;
                node.size = entry.map_or(0, |entry| entry.size());
                node.problem = file.has_lost_chunks.then_some(NodeProblem::Unreadable);
            }
            _ => {
                node.size = 0;
                node.problem = Some(NodeProblem::Unreadable);
            }
        }
        ForeignStep::Tree(TreeStep::Entry(node))
    }
}

/// The content of a file in a tree that is described without contents.
struct UnreadContent;

impl FileContent for UnreadContent {
    fn write_to(&mut self, _: &mut ContentSink<'_>) -> Result<(), DescriptionError> {
        Err("the contents of the archive are not read one by one".into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn archive(name: &str, command_line: serde_json::Value) -> ArchiveJson {
        let (id, time, comment) = (String::new(), String::new(), String::new());
        ArchiveJson { name: name.into(), id, time, hostname: "web".into(), comment, command_line }
    }

    #[test]
    fn the_source_is_a_path_or_the_name_of_the_series() {
        let source = |name: &str, words: &[&str], series| {
            let archive = archive(name, serde_json::json!(words));
            String::from_utf8(archive.source(series)).unwrap()
        };
        let home = ["borg", "create", "--exclude", "/home/x", "R::{now}", "/home/"];
        assert_eq!(source("home-2026-05-01", &home, None), "/home");
        let two = ["borg", "create", "R::a", "/home", "/etc"];
        assert_eq!(source("all-2026-05-01T02:00:00", &two, None), "all");
        assert_eq!(source("2026-05-01", &["borg", "create", "R::a", "."], None), "web");
        assert_eq!(source("monday", &[], Some("days")), "days");
        assert_eq!(archive("x", serde_json::Value::Null).source(None), b"x");
    }

    #[test]
    fn times_are_utc() {
        let second = Timestamp(1_795_873_640_000_000_000);
        assert_eq!(utc("2026-11-28T13:47:20.000000"), Some(second));
        assert_eq!(utc("2026-11-28T14:47:20+01:00"), Some(second));
        assert_eq!(utc("yesterday"), None);
    }

    #[test]
    fn folders_that_are_no_items_are_known() {
        let item = |path: &str, kind| BorgItem {
            path: path.into(),
            node: Node::new(Vec::new(), kind),
            linked_to: None,
            content: None,
            problem: None,
        };
        let load = |items| {
            let mut loaded = LoadedArchive { items, root: Vec::new(), time: Timestamp(0) };
            loaded.find_root();
            loaded
        };
        let one = load(vec![item("srv/www", NodeKind::Folder), item("srv/www/a/b/c", NodeKind::Fifo)]);
        assert_eq!(one.root, b"srv/www");
        let implied: Vec<_> = one.implied_folders().into_iter().collect();
        assert_eq!(implied, [b"srv/www/a".to_vec(), b"srv/www/a/b".to_vec()]);
        let two = load(vec![item("home", NodeKind::Folder), item("homes/x", NodeKind::Fifo)]);
        assert_eq!((two.root.as_slice(), two.implied_folders().len()), (&b""[..], 1));
    }
}
