//! `varve restore` and `varve cat`

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use varve_archive::{
    Node, NodeKind, Problem, Progress, RestoreOptions, Watch, restore_folder, restore_image, write_image,
};
use varve_block::BlockStore;
use varve_world::Workers;

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
    let blocks = session::healing(arguments, &archive);
    let from = Origin { blocks: &blocks, workers: archive.store().world().workers.as_ref() };
    let outcome = restore(from, &place, &words.destination, words.overwrite, &progress);
    drop(shown);
    session::report_lost(arguments, &blocks);
    outcome.with_context(|| format!("{} was not restored", words.snapshot))
}

pub(super) fn cat(arguments: &Arguments, words: &Cat) -> Result<Outcome> {
    let archive = session::read(arguments)?;
    let place = place(&archive, &words.snapshot)?;
    let blocks = session::healing(arguments, &archive);
    let from = Origin { blocks: &blocks, workers: archive.store().world().workers.as_ref() };
    let outcome = restore(from, &place, Path::new("-"), false, &Progress::new());
    session::report_lost(arguments, &blocks);
    outcome
}

/// What is restored from, and who does it.
#[derive(Clone, Copy)]
struct Origin<'a> {
    blocks: &'a dyn BlockStore,
    workers: &'a dyn Workers,
}

fn restore(
    from: Origin<'_>,
    place: &Place<'_>,
    destination: &Path,
    overwrite: bool,
    progress: &Progress,
) -> Result<Outcome> {
    let Origin { blocks: store, workers } = from;
    let to_output = destination == Path::new("-");
    match place.content(store)? {
        Content::Image(entry) if to_output => {
            write_image(store, workers, entry, &mut std::io::stdout(), progress)?
        }
        Content::Image(entry) => restore_image(store, workers, entry, destination, overwrite, progress)?,
        Content::Node(node) if to_output => write_file(from, &node, place, progress)?,
        Content::Node(node) => return restore_node(from, &node, destination, overwrite, progress),
    }
    Ok(Outcome::Done)
}

fn write_file(from: Origin<'_>, node: &Node, place: &Place<'_>, progress: &Progress) -> Result<()> {
    match (node.kind, &node.content) {
        (NodeKind::File, Some(entry)) => {
            write_image(from.blocks, from.workers, entry, &mut std::io::stdout(), progress)?;
            Ok(())
        }
        (NodeKind::File, None) => Ok(()),
        (kind, _) => bail!("{:?} is a {kind}: only a file can be written to standard output", place.path),
    }
}

fn restore_node(
    from: Origin<'_>,
    node: &Node,
    destination: &Path,
    overwrite: bool,
    progress: &Progress,
) -> Result<Outcome> {
    let options = RestoreOptions { overwrite, ..RestoreOptions::default() };
    let report = |problem: Problem| eprintln!("varve: {}", complaint::problem(&problem));
    let watch = Watch { progress, report: &report };
    let counts = restore_folder(from.blocks, from.workers, node, destination, options, watch)?;
    if counts.problem_count > 0 {
        eprintln!("varve: {} files or folders are missing, or lack something", counts.problem_count);
        return Ok(Outcome::Found);
    }
    Ok(Outcome::Done)
}
