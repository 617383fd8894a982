//! `varve restore` and `varve cat`

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use varve_archive::{
    Archive, Node, NodeKind, Problem, Progress, RestoreOptions, Watch, restore_folder, restore_image,
    write_image,
};

use super::Outcome;
use super::place::{Content, Place, place};
use crate::arguments::{Arguments, Cat, Restore};
use crate::progress_bar::{Shown, cancel_on_signal};
use crate::{complaint, session};

pub(super) fn run(arguments: &Arguments, words: &Restore) -> Result<Outcome> {
    let archive = session::read(arguments)?;
    let place = place(&archive, &words.snapshot)?;
    let progress = Arc::new(Progress::new());
    cancel_on_signal(&progress)?;
    let shown = Shown::start(&place.snapshot.name, &progress, arguments.quiet);
    let outcome = restore(&archive, &place, &words.destination, words.overwrite, &progress);
    drop(shown);
    outcome.with_context(|| format!("{} was not restored", words.snapshot))
}

pub(super) fn cat(arguments: &Arguments, words: &Cat) -> Result<Outcome> {
    let archive = session::read(arguments)?;
    let place = place(&archive, &words.snapshot)?;
    restore(&archive, &place, Path::new("-"), false, &Progress::new())
}

fn restore(
    archive: &Archive,
    place: &Place<'_>,
    destination: &Path,
    overwrite: bool,
    progress: &Progress,
) -> Result<Outcome> {
    let store = archive.store();
    let workers = store.world().workers.as_ref();
    let to_output = destination == Path::new("-");
    match place.content(store)? {
        Content::Image(entry) if to_output => {
            write_image(store, workers, entry, &mut std::io::stdout(), progress)?
        }
        Content::Image(entry) => restore_image(store, workers, entry, destination, overwrite, progress)?,
        Content::Node(node) if to_output => write_file(archive, &node, place, progress)?,
        Content::Node(node) => return restore_node(archive, &node, destination, overwrite, progress),
    }
    Ok(Outcome::Done)
}

fn write_file(archive: &Archive, node: &Node, place: &Place<'_>, progress: &Progress) -> Result<()> {
    let store = archive.store();
    match (node.kind, &node.content) {
        (NodeKind::File, Some(entry)) => {
            write_image(store, store.world().workers.as_ref(), entry, &mut std::io::stdout(), progress)?;
            Ok(())
        }
        (NodeKind::File, None) => Ok(()),
        (kind, _) => bail!("{:?} is a {kind}: only a file can be written to standard output", place.path),
    }
}

fn restore_node(
    archive: &Archive,
    node: &Node,
    destination: &Path,
    overwrite: bool,
    progress: &Progress,
) -> Result<Outcome> {
    let store = archive.store();
    let options = RestoreOptions { overwrite, ..RestoreOptions::default() };
    let report = |problem: Problem| eprintln!("varve: {}", complaint::problem(&problem));
    let watch = Watch { progress, report: &report };
    let counts = restore_folder(store, store.world().workers.as_ref(), node, destination, options, watch)?;
    if counts.problem_count > 0 {
        eprintln!("varve: {} files or folders are missing, or lack something", counts.problem_count);
        return Ok(Outcome::Found);
    }
    Ok(Outcome::Done)
}
