//! The candidates for a word, from the archive and the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use clap::Arg;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use varve_archive::{Archive, Snapshot, select, series, split_place};
use varve_content::{Files, Node, NodeKind};
use varve_replica::HealingStore;

use super::typed_line::TypedLine;
use crate::command::choosing::place_in_snapshot::{
    NamedSource, PlaceContent, PlaceInSnapshot, without_slashes,
};
use crate::{moment, show};

/// A store that has not answered in this time has no candidates.
const PATIENCE: Duration = Duration::from_secs(2);
/// The maximum number of candidates in a folder.
const PATHS_MAX: usize = 1000;
/// With fewer characters, ids would hide names.
const ID_DIGITS: usize = 2;
/// An operand of `restore`: all but the first may be the destination.
const OPERANDS: &str = "operands";

/// The kind of things that a word can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CandidateKind {
    Snapshots,
    /// Snapshots, and paths in them.
    Places,
    /// The same, and paths on this machine.
    PlacesAndFiles,
    /// Paths on this machine, and snapshots.
    FilesAndSnapshots,
    Hosts,
    Sources,
    Tags,
    Names,
    Stores,
    /// The sources, replicas and stores of the configuration.
    Configured,
}

impl CandidateKind {
    /// The name of a value in the help decides what it can be.
    pub(super) fn of(argument: &Arg) -> Option<Self> {
        let id = argument.get_id().as_str();
        let name = argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name);
        Some(match (id, name) {
            (OPERANDS, _) => Self::PlacesAndFiles,
            (_, "SNAPSHOT") => Self::Snapshots,
            (_, "SNAPSHOT[:PATH]" | "SNAPSHOT:PATH") => Self::Places,
            (_, "IMAGE|SNAPSHOT") => Self::FilesAndSnapshots,
            ("hosts", "HOST") => Self::Hosts,
            ("paths", "PATH") => Self::Sources,
            ("tags", "KEY[=VALUE]") => Self::Tags,
            ("names", "NAME") => Self::Names,
            ("store", "PATH") => Self::Stores,
            ("subject" | "jobs", "NAME") => Self::Configured,
            _ => return None,
        })
    }
}

/// Finds the candidates of a kind that begin with `current`.
pub(super) fn find(kind: CandidateKind, line: &Arc<TypedLine>, current: &OsStr) -> Vec<CompletionCandidate> {
    let files = || PathCompleter::any().complete(current);
    let Some(text) = current.to_str() else { return files() };
    let find = match kind {
        CandidateKind::Stores | CandidateKind::Configured => of_config,
        _ => of_archive,
    };
    let found = in_time(line, text, move |line, text| find(kind, line, text));
    let files = match kind {
        CandidateKind::PlacesAndFiles if line.count_of(OPERANDS) > 1 => files(),
        CandidateKind::FilesAndSnapshots => files(),
        CandidateKind::Stores => PathCompleter::dir().complete(current),
        _ => Vec::new(),
    };
    found.into_iter().chain(files).collect()
}

/// Finds names in the configuration of the line.
fn of_config(kind: CandidateKind, line: &TypedLine, text: &str) -> Option<Vec<CompletionCandidate>> {
    let config = line.config()?;
    let stores = config.stores.into_keys();
    let jobs = config.sources.into_keys().chain(config.replicas.into_keys());
    let names: Vec<_> =
        if kind == CandidateKind::Stores { stores.collect() } else { jobs.chain(stores).collect() };
    Some(beginning_with(text, names))
}

/// Finds names in the store of the line.
fn of_archive(kind: CandidateKind, line: &TypedLine, text: &str) -> Option<Vec<CompletionCandidate>> {
    let archive = line.archive()?;
    Some(match kind {
        CandidateKind::Configured | CandidateKind::Stores => return None,
        CandidateKind::Snapshots | CandidateKind::FilesAndSnapshots => snapshots(&archive, text),
        CandidateKind::Places | CandidateKind::PlacesAndFiles => places(&archive, text),
        CandidateKind::Hosts => texts(&archive, text, |one| vec![one.host.clone()]),
        CandidateKind::Names => texts(&archive, text, |one| vec![one.name.clone()]),
        CandidateKind::Tags => texts(&archive, text, |one| one.tags.clone()),
        CandidateKind::Sources => {
            texts(&archive, text, |one| String::from_utf8(one.source.clone()).into_iter().collect())
        }
    })
}

/// Returns what `find` has found in the time that a user waits for.
#[expect(clippy::disallowed_methods, reason = "a dead mount is awaited in real time")]
fn in_time(
    line: &Arc<TypedLine>,
    text: &str,
    find: impl FnOnce(&TypedLine, &str) -> Option<Vec<CompletionCandidate>> + Send + 'static,
) -> Vec<CompletionCandidate> {
    let (sender, receiver) = mpsc::channel();
    let (line, text) = (Arc::clone(line), text.to_owned());
    // The end of the process ends a thread that still waits.
    std::thread::spawn(move || drop(sender.send(find(&line, &text))));
    receiver.recv_timeout(PATIENCE).ok().flatten().unwrap_or_default()
}

fn beginning_with(text: &str, all: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let good = |one: &String| one.starts_with(text) && !one.contains(char::is_control);
    all.into_iter().filter(good).map(CompletionCandidate::new).collect()
}

fn texts(archive: &Archive, text: &str, of: impl Fn(&Snapshot) -> Vec<String>) -> Vec<CompletionCandidate> {
    beginning_with(text, archive.snapshots().iter().flat_map(of).collect::<BTreeSet<_>>())
}

/// Names, `HOST:NAME` where several hosts have the name, the days after an `@`, and ids after some
/// digits.
fn snapshots(archive: &Archive, text: &str) -> Vec<CompletionCandidate> {
    let all: Vec<_> = archive.snapshots().iter().collect();
    if let Some((name, _)) = text.rsplit_once('@') {
        let named = if name.is_empty() { all } else { series(&all, name) };
        let days: BTreeSet<_> = named.iter().map(|one| moment::show_day(one.time)).collect();
        return beginning_with(text, days.into_iter().rev().map(|day| format!("{name}@{day}")));
    }
    let mut hosts = BTreeMap::<&str, BTreeSet<&str>>::new();
    for snapshot in archive.snapshots() {
        hosts.entry(&snapshot.name).or_default().insert(&snapshot.host);
    }
    let mut names = BTreeMap::<String, Vec<&Snapshot>>::new();
    for snapshot in archive.snapshots() {
        names.entry(snapshot.name.clone()).or_default().push(snapshot);
        if hosts.get(&*snapshot.name).is_some_and(|hosts| hosts.len() > 1) {
            names.entry(format!("{}:{}", snapshot.host, snapshot.name)).or_default().push(snapshot);
        }
    }
    let named = |(name, snapshots): (String, Vec<&Snapshot>)| Some((name, sum_of(&snapshots)?));
    let mut found: Vec<_> = names.into_iter().filter_map(named).collect();
    found.extend(sum_of(&all).map(|sum| ("latest".to_owned(), sum)));
    if text.len() >= ID_DIGITS {
        found.extend(all.iter().map(|one| {
            let id = show::short_id(&one.id.to_string()).to_owned();
            (id, format!("{} of {}", show::name(one.name.as_bytes()), moment::show(one.time)))
        }));
    }
    found.retain(|(name, _)| name.starts_with(text) && !name.contains(char::is_control));
    found.into_iter().map(|(name, help)| CompletionCandidate::new(name).help(Some(help.into()))).collect()
}

fn sum_of(snapshots: &[&Snapshot]) -> Option<String> {
    let newest = snapshots.iter().map(|one| one.time).max()?;
    Some(format!(
        "{}, the newest of {}",
        show::count(snapshots.len() as u64, "snapshot"),
        moment::show(newest)
    ))
}

/// Snapshots, and after a colon the paths in the one before it.
fn places(archive: &Archive, text: &str) -> Vec<CompletionCandidate> {
    let mut found = snapshots(archive, text);
    found.extend(paths(archive, text).unwrap_or_default());
    if let [only] = found.as_slice()
        && !text.contains(':')
    {
        // A path may follow: with a second candidate, the shell adds no blank.
        let with_path = CompletionCandidate::new(format!("{}:", only.get_value().to_string_lossy()));
        found.push(with_path);
    }
    found
}

fn paths(archive: &Archive, text: &str) -> Option<Vec<CompletionCandidate>> {
    let all: Vec<_> = archive.snapshots().iter().collect();
    let (name, path) = split_place(&all, text.as_bytes());
    // Before the first colon there is no path.
    if name.len() == text.len() {
        return None;
    }
    let snapshot = select(&all, std::str::from_utf8(name).ok()?, &moment::parse_last_past).ok()?.snapshot;
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (folder, beginning) = path.split_at_checked(start)?;
    let blocks = Arc::new(HealingStore::new(archive.blocks(), Box::new(Vec::new)));
    let place = PlaceInSnapshot { what: NamedSource::Snapshot(snapshot), path: without_slashes(folder) };
    let before = text.get(..text.len() - beginning.len())?;
    let list = |files: &dyn Files, root: &Node| {
        let nodes = files.nodes(root).map_while(Result::ok);
        let matching = nodes.filter(|node| node.name.starts_with(beginning));
        let shown = matching.filter_map(|node| {
            let slash = if node.kind == NodeKind::Folder { "/" } else { "" };
            Some(format!("{before}{}{slash}", std::str::from_utf8(&node.name).ok()?))
        });
        beginning_with(text, shown.take(PATHS_MAX))
    };
    Some(match place.content(&blocks).ok()? {
        PlaceContent::Disk(disk) => list(&disk, &disk.root()),
        PlaceContent::Node { files, node } => list(&*files, &node),
        PlaceContent::Raw(_) => return None,
    })
}
