//! `varve restore` and `varve cat`

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use varve_archive::{
    ImagePart, NodeKind, Problem, Progress, RestoreOptions, Tree, Watch, restore_folder, restore_image,
    write_image,
};
use varve_machine::{ImageFormat, restore_foreign};
use varve_replica::Healing;
use varve_world::Workers;

use super::Outcome;
use super::place::{Content, Place, place};
use crate::arguments::{Arguments, Cat, Restore, WrongWords};
use crate::progress_bar::{Shown, cancel_on_signal};
use crate::reading::Reading;
use crate::say::Output;
use crate::{complaint, session};

pub(super) fn run(arguments: &Arguments, words: &Restore) -> Result<Outcome> {
    let archive = Reading::open(arguments)?;
    let place = place(archive.snapshots(), &words.snapshot)?;
    let words = &Restore { destination: below_folder(&words.destination, &place), ..words.clone() };
    refuse_store(arguments, &words.destination)?;
    let progress = Arc::new(Progress::new());
    cancel_on_signal(&progress)?;
    let shown = Shown::start(&place.name(), &progress, arguments.quiet);
    let blocks = archive.blocks();
    let from = Origin { blocks: &blocks, workers: archive.workers() };
    let outcome = restore(from, &place, words, &progress);
    drop(shown);
    session::report_lost(arguments, &blocks);
    outcome.with_context(|| format!("{} was not restored", words.snapshot))
}

pub(super) fn cat(arguments: &Arguments, words: &Cat) -> Result<Outcome> {
    let archive = Reading::open(arguments)?;
    let place = place(archive.snapshots(), &words.snapshot)?;
    let blocks = archive.blocks();
    let from = Origin { blocks: &blocks, workers: archive.workers() };
    let whole = Restore {
        snapshot: words.snapshot.clone(),
        destination: "-".into(),
        overwrite: false,
        format: ImageFormat::Raw,
    };
    let outcome = restore(from, &place, &whole, &Progress::new());
    session::report_lost(arguments, &blocks);
    outcome
}

/// Where a destination leads: one that can only be a folder, such as `.` or `there/`, holds what is restored, under its own name.
fn below_folder(destination: &Path, place: &Place<'_>) -> PathBuf {
    let is_folder = destination.file_name().is_none() || destination.as_os_str().as_bytes().ends_with(b"/");
    let name = place.name();
    let own = Path::new(place.path).file_name().or_else(|| Path::new(&name).file_name());
    match own.filter(|_| is_folder) {
        Some(own) => destination.join(own),
        None => destination.to_owned(),
    }
}

/// Nothing is restored into the store's own folder, where it would be taken for a part of it.
fn refuse_store(arguments: &Arguments, destination: &Path) -> Result<()> {
    let session::Home::Folder(store) = session::home(arguments)? else { return Ok(()) };
    let (Ok(store), Ok(absolute)) = (store.canonicalize(), std::path::absolute(destination)) else {
        return Ok(());
    };
    // What is not there yet will be in what is.
    let present = absolute.ancestors().find_map(|path| path.canonicalize().ok());
    if destination != Path::new("-") && present.is_some_and(|present| present.starts_with(&store)) {
        bail!("{} is in the store itself: restore it elsewhere", destination.display());
    }
    Ok(())
}

/// What is restored from, and who does it.
#[derive(Clone, Copy)]
struct Origin<'a> {
    blocks: &'a Arc<Healing>,
    workers: &'a dyn Workers,
}

fn restore(from: Origin<'_>, place: &Place<'_>, words: &Restore, progress: &Progress) -> Result<Outcome> {
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
        return restore_node(from, Tree { files: &*files, root: &node }, destination, *overwrite, progress);
    }
    if node.kind != NodeKind::File {
        let name = place.name();
        let what = if place.path.is_empty() { &*name } else { place.path };
        bail!("{what:?} is a {}: only a file can be written to standard output", node.kind);
    }
    if let Some(trouble) = files.trouble(&node).filter(|trouble| trouble.lacks_all) {
        return Err(anyhow::Error::from_boxed(trouble.error))
            .with_context(|| format!("{:?} has no content", place.path));
    }
    files.write_to(from.workers, &node, &mut Output::new(), progress)?;
    Ok(Outcome::Done)
}

fn restore_bytes(
    from: Origin<'_>,
    image: &ImagePart,
    words: &Restore,
    progress: &Progress,
) -> Result<Outcome> {
    let Origin { blocks, workers } = from;
    let Restore { destination, overwrite, format, .. } = words;
    match (*format, destination == Path::new("-")) {
        (ImageFormat::Raw, true) => write_image(&**blocks, workers, image, &mut Output::new(), progress)?,
        (ImageFormat::Raw, false) => {
            restore_image(&**blocks, workers, image, destination, *overwrite, progress)?
        }
        (_, true) => bail!(WrongWords("an image can be restored with --format only to a file".into())),
        (format, false) => {
            restore_foreign(&**blocks, workers, image, (destination, format), *overwrite, progress)?;
        }
    }
    Ok(Outcome::Done)
}

fn restore_node(
    from: Origin<'_>,
    tree: Tree<'_>,
    destination: &Path,
    overwrite: bool,
    progress: &Progress,
) -> Result<Outcome> {
    let options = RestoreOptions { overwrite, ..RestoreOptions::default() };
    let report = |problem: Problem| remark!("varve: {}", complaint::problem(&problem));
    let watch = Watch { progress, report: &report };
    let counts = restore_folder(tree.files, from.workers, tree.root, destination, options, watch)?;
    if counts.problem_count > 0 {
        remark!("varve: {} files or folders are missing, or lack something", counts.problem_count);
        return Ok(Outcome::Found);
    }
    Ok(Outcome::Done)
}
