//! `varve restore` and `varve cat`

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_archive::{
    ImagePart, NodeKind, Problem, Progress, RestoreCounts, RestoreFolderError, RestoreOptions, Tree, Watch,
    restore_folder, restore_image, write_image,
};
use varve_machine::{ImageFormat, restore_foreign};
use varve_replica::{Healing, Remembered};
use varve_world::{RealStorage, Workers};

use super::Outcome;
use super::choice::Choice;
use super::place::{Content, Place};
use super::taken::{left_out_json, left_out_lines};
use crate::arguments::{Arguments, Cat, Restore, WrongWords};
use crate::home::{self, Home};
use crate::progress_bar::Shown;
use crate::reading::Reading;
use crate::roots::Roots;
use crate::say::Output;
use crate::signals::cancel_on_signal;
use crate::{complaint, exit_status, healing, replica_home, say, show, target};

/// Where a store keeps the list of the folders that its index is spread over, a path a line.
const INDEX_PLACES: &str = "index/places";

pub(super) fn run(arguments: &Arguments, words: &Restore) -> Result<Outcome> {
    let archive = Reading::open(arguments)?;
    let place = Choice::new(arguments, archive.snapshots(), &words.which).place(&words.snapshot)?;
    let words = &Restore { destination: below_folder(&words.destination, &place), ..words.clone() };
    let kept = Kept::of(arguments)?;
    kept.refuse(&words.destination, words.overwrite)?;
    let progress = Arc::new(Progress::new());
    cancel_on_signal(&progress)?;
    let shown = Shown::start(&place.name(), &progress, arguments.quiet);
    let blocks = archive.blocks();
    let kept = kept.paths();
    let from = Origin { blocks: &blocks, workers: archive.workers(), kept: &kept };
    let restored = restore(from, &place, words, &progress);
    drop(shown);
    healing::report_lost(arguments, &blocks);
    let restored =
        restored.with_context(|| format!("{} was not restored", show::name(words.snapshot.as_bytes())))?;
    Ok(restored.map_or(Outcome::Done, |restored| tell(arguments, &place, &words.destination, &restored)))
}

pub(super) fn cat(arguments: &Arguments, words: &Cat) -> Result<Outcome> {
    let archive = Reading::open(arguments)?;
    let place = Choice::new(arguments, archive.snapshots(), &words.which).place(&words.snapshot)?;
    let blocks = archive.blocks();
    let from = Origin { blocks: &blocks, workers: archive.workers(), kept: &[] };
    let whole = Restore {
        snapshot: words.snapshot.clone(),
        destination: "-".into(),
        overwrite: false,
        format: ImageFormat::Raw,
        which: words.which.clone(),
    };
    let written = restore(from, &place, &whole, &Progress::new());
    healing::report_lost(arguments, &blocks);
    written.map(|_| Outcome::Done)
}

/// What came out of the archive, and lies somewhere else now.
struct Restored {
    /// What it is.
    kind: String,
    counts: RestoreCounts,
    /// The worst that was met on the way.
    outcome: Outcome,
}

/// Says what was restored, and what is missing of it.
fn tell(arguments: &Arguments, place: &Place<'_>, destination: &Path, restored: &Restored) -> Outcome {
    let &Restored { ref kind, counts, outcome } = restored;
    match counts.problem_count - u64::from(counts.is_old_left) {
        0 => {}
        1 => remark!("varve: 1 file or folder is missing, or lacks something"),
        several => remark!("varve: {several} files or folders are missing, or lack something"),
    }
    if arguments.json {
        let mut value = json!({
            "snapshot": place.what.id(),
            "kind": kind,
            "files": counts.file_count,
            "folders": counts.folder_count,
            "bytes": counts.bytes,
            "problems": counts.problem_count,
            "left_out": left_out_json(place.left_out()),
        });
        show::put_name(&mut value, "path", destination.as_os_str().as_bytes());
        say::record("restored", value);
    } else if !arguments.quiet {
        let held = match counts.folder_count {
            0 => String::new(),
            folders => {
                format!(
                    " in {} and {}",
                    show::count(counts.file_count, "file"),
                    show::count(folders, "folder")
                )
            }
        };
        let destination = show::name(destination.as_os_str().as_bytes());
        say!("restored to {destination}: {}{held}", show::bytes(counts.bytes));
        left_out_lines(place.left_out(), false).iter().for_each(|line| say!("{line}"));
    }
    if counts.problem_count > 0 { outcome.max(Outcome::Gaps) } else { outcome }
}

/// Where a destination leads: one that can only be a folder, such as `.` or `there/`, holds what is restored, under its own name.
fn below_folder(destination: &Path, place: &Place<'_>) -> PathBuf {
    let is_folder = destination.file_name().is_none() || destination.as_os_str().as_bytes().ends_with(b"/");
    let name = place.name();
    let own = place.path.file_name().or_else(|| Path::new(&name).file_name());
    match own.filter(|_| is_folder) {
        Some(own) => destination.join(own),
        None => destination.to_owned(),
    }
}

/// What this program must not take away, nor write into: the store, what opens it, and what this machine knows of it.
struct Kept {
    /// The store's folder, and those of its replicas: whatever is written into them would be taken for a part of them.
    folders: Vec<(&'static str, PathBuf)>,
    /// The rest.
    others: Vec<(&'static str, PathBuf)>,
}

impl Kept {
    fn of(arguments: &Arguments) -> Result<Self> {
        let (mut folders, mut others) = (Vec::new(), Vec::new());
        match home::of(arguments)? {
            Home::Folder(store) => {
                let storage = RealStorage::new(&store);
                // A list that makes no sense is complained of by whoever needs it.
                let targets =
                    Remembered::read(&storage).map(|remembered| remembered.targets).unwrap_or_default();
                folders.extend(
                    targets
                        .iter()
                        .filter_map(|text| Some(("a replica of the store", target::folder_of(text)?))),
                );
                let list = std::fs::read_to_string(store.join(INDEX_PLACES)).unwrap_or_default();
                for place in list.lines().map(Path::new).filter(|place| place.is_absolute()) {
                    others.push(("a part of the index", place.join("index")));
                    others.push(("a part of the index", place.join("varve-index")));
                }
                folders.insert(0, ("the store itself", store));
            }
            Home::Replica(text) => {
                folders.extend(
                    target::folder_of(&text).map(|folder| ("the replica that it comes from", folder)),
                );
            }
            Home::Venti(_) => {}
        }
        others.extend(arguments.key_file.clone().map(|file| ("the key", file)));
        others.extend(arguments.roots.clone().map(|file| ("the catalog's roots", file)));
        others.extend(Roots::folder().map(|folder| ("the catalogs' roots", folder)));
        others.extend(replica_home::cache_folder(arguments).map(|folder| ("the cache", folder)));
        Ok(Self { folders, others })
    }

    fn all(&self) -> impl Iterator<Item = &(&'static str, PathBuf)> {
        self.folders.iter().chain(&self.others)
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.all().map(|(_, path)| path.clone()).collect()
    }

    /// Nothing is restored into the folders, and nothing is replaced that any of it is, or is in.
    fn refuse(&self, destination: &Path, overwrite: bool) -> Result<()> {
        if destination == Path::new("-") {
            return Ok(());
        }
        let Ok(absolute) = std::path::absolute(destination) else { return Ok(()) };
        for (what, folder) in &self.folders {
            if home::leads_into(&absolute, folder) {
                bail!("{} is in {what}: restore it elsewhere", destination.display());
            }
        }
        // A link is replaced itself, and not what it leads to.
        let replaced = absolute.parent().and_then(|parent| parent.canonicalize().ok());
        let replaced = replaced.zip(absolute.file_name()).map(|(parent, name)| parent.join(name));
        let Some(replaced) = replaced.filter(|_| overwrite) else { return Ok(()) };
        for (what, path) in self.all() {
            if path.canonicalize().is_ok_and(|path| path.starts_with(&replaced)) {
                bail!(
                    "{} cannot be replaced: {what} would be removed with it ({}); restore elsewhere",
                    destination.display(),
                    path.display()
                );
            }
        }
        Ok(())
    }
}

/// What is restored from, and who does it.
#[derive(Clone, Copy)]
struct Origin<'a> {
    blocks: &'a Arc<Healing>,
    workers: &'a dyn Workers,
    /// What must stay, whatever is replaced.
    kept: &'a [PathBuf],
}

/// Restores what is at a place. `None`: it went to standard output, and nothing is to be said of it.
fn restore(
    from: Origin<'_>,
    place: &Place<'_>,
    words: &Restore,
    progress: &Progress,
) -> Result<Option<Restored>> {
    let Restore { destination, overwrite, format, .. } = words;
    let (files, node) = match place.content(from.blocks)? {
        Content::Disk(disk) => return restore_bytes(from, &disk.raw(), words, progress),
        Content::Raw(part) => return restore_bytes(from, &part, words, progress),
        Content::Node { files, node } => (files, node),
    };
    if *format != ImageFormat::Raw {
        bail!(WrongWords("--format is for disk images: this is no image".into()));
    }
    if destination != Path::new("-") {
        let tree = Tree { files: &*files, root: &node };
        return restore_node(from, tree, destination, *overwrite, progress).map(Some);
    }
    if node.kind != NodeKind::File {
        let name = place.name();
        let what = if place.path.as_os_str().is_empty() { Path::new(&name) } else { place.path };
        bail!("{what:?} is a {}: only a file can be written to standard output", node.kind);
    }
    if let Some(trouble) = files.trouble(&node).filter(|trouble| trouble.lacks_all) {
        return Err(anyhow::Error::from_boxed(trouble.error))
            .with_context(|| format!("{:?} has no content", place.path));
    }
    files.write_to(from.workers, &node, &mut Output::new(), progress)?;
    Ok(None)
}

fn restore_bytes(
    from: Origin<'_>,
    image: &ImagePart,
    words: &Restore,
    progress: &Progress,
) -> Result<Option<Restored>> {
    let Origin { blocks, workers, .. } = from;
    let Restore { destination, overwrite, format, .. } = words;
    match (*format, destination == Path::new("-")) {
        (ImageFormat::Raw, true) => {
            write_image(&**blocks, workers, image, &mut Output::new(), progress)?;
            return Ok(None);
        }
        (ImageFormat::Raw, false) => {
            restore_image(&**blocks, workers, image, destination, *overwrite, progress)?;
        }
        (_, true) => bail!(WrongWords("an image can be restored with --format only to a file".into())),
        (format, false) => {
            restore_foreign(&**blocks, workers, image, (destination, format), *overwrite, progress)?;
        }
    }
    let counts = RestoreCounts { file_count: 1, bytes: image.size(), ..RestoreCounts::default() };
    Ok(Some(Restored { kind: "image".into(), counts, outcome: Outcome::Done }))
}

fn restore_node(
    from: Origin<'_>,
    tree: Tree<'_>,
    destination: &Path,
    overwrite: bool,
    progress: &Progress,
) -> Result<Restored> {
    let options = RestoreOptions { overwrite, kept: from.kept, ..RestoreOptions::default() };
    let is_folder = tree.root.kind == NodeKind::Folder;
    // Of a file by itself, what it lacks may be why nothing came of it.
    let of_file = Mutex::new(Vec::new());
    let is_full = AtomicBool::new(false);
    let is_damaged = AtomicBool::new(false);
    let report = |problem: Problem| {
        is_full.fetch_or(complaint::is_full(&*problem.error), Ordering::Relaxed);
        is_damaged.fetch_or(exit_status::is_damage(&*problem.error), Ordering::Relaxed);
        match is_folder {
            true => complaint::report_problem(&problem),
            false => of_file.lock().unwrap_or_else(PoisonError::into_inner).push(problem),
        }
    };
    let watch = Watch { progress, report: &report };
    let restored = restore_folder(tree.files, from.workers, tree.root, destination, options, watch);
    let of_file = of_file.into_inner().unwrap_or_else(PoisonError::into_inner);
    let counts = match restored {
        Ok(counts) => counts,
        Err(error) => {
            let is_absent = matches!(&error, RestoreFolderError::Destination { source, .. } if source.kind() == ErrorKind::NotFound);
            return match of_file.into_iter().next().filter(|_| is_absent) {
                Some(problem) => Err(anyhow::Error::from_boxed(problem.error))
                    .context(show::name(destination.as_os_str().as_bytes())),
                None => bail!(error),
            };
        }
    };
    for problem in &of_file {
        complaint::report_problem(problem);
    }
    let mut outcome = if is_damaged.into_inner() { Outcome::Damage } else { Outcome::Done };
    if is_full.into_inner() {
        remark!("hint: {}", complaint::DESTINATION_FULL);
        outcome = outcome.max(Outcome::Failed);
    }
    Ok(Restored { kind: tree.root.kind.to_string(), counts, outcome })
}
