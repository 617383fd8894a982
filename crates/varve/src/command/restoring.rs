//! `varve restore` and `varve cat`

mod damage_report;
mod destinations;
pub mod drill;
mod hints;
mod image;
mod protected_paths;
mod restore_plan;
mod total;

use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde_json::json;
use varve_content::folder::{
    RestoreCounts, RestoreFilter, RestoreFolderError, RestoreOptions, Watch, read_back, restore_folder,
};
use varve_content::{DamageList, Files, Node, NodeKind, Problem, Progress, Tree};
use varve_machine::ImageFormat;
use varve_replica::HealingStore;
use varve_session::{Hinted, OpenArchive, UsageError, WithHint};
use varve_world::Workers;

use self::destinations::targets;
use self::image::ImageToRestore;
use self::protected_paths::ProtectedPaths;
use crate::arguments::{CatArgs, OUTPUT, RestoreArgs};
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::choosing::place_in_snapshot::{NamedSource, PlaceContent, PlaceInSnapshot};
use crate::command::looking::left_out::{left_out_json, left_out_lines};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::say::Output;
use crate::signals::cancellable_progress;
use crate::{complaint, exit_status, moment, say, show};

pub fn run(invocation: &Invocation, restore: &RestoreArgs) -> Result<CommandOutcome> {
    let archive = invocation.session.reading()?;
    let blocks = archive.blocks();
    let filter = RestoreFilter::new(&restore.includes, &restore.excludes)?;
    let kept = ProtectedPaths::of(&invocation.session)?.with_paths();
    let progress = cancellable_progress()?;
    let choice = ChosenSnapshots::new(invocation, archive.snapshots(), &restore.which);
    let mut places = Vec::new();
    if restore.snapshots().is_empty() {
        bail!(UsageError(NO_DESTINATION.into()));
    }
    for text in restore.snapshots() {
        let place = choice.place(text)?;
        let content = place.content(&blocks).with_context(|| not_restored(text))?;
        places.push((place, content));
    }
    let targets = targets(restore, &places)?;
    let snapshots: Vec<_> = places.iter().filter_map(|(place, _)| place.what.snapshot()).collect();
    let _lease = archive.lease(&snapshots).context("nothing was restored")?;
    let mut outcome = CommandOutcome::Done;
    for (((place, content), target), text) in places.iter().zip(&targets).zip(restore.snapshots()) {
        if target != Path::new(OUTPUT) {
            kept.0.refuse(target)?;
        }
        let damaged = DamageList::new();
        let from = RestoreSource {
            invocation,
            blocks: &blocks,
            workers: archive.workers(),
            kept: &kept.1,
            filter: &filter,
            damaged: Some(&damaged),
        };
        let shown = ShownProgress::start(&place.name(), &progress, invocation.quiet || restore.dry_run);
        // Patterns leave out an unknown part, and of several places each would set a total.
        if restore.includes.is_empty() && restore.excludes.is_empty() && places.len() == 1 {
            total::count_ahead(&shown, &blocks, place, restore.overwrite().is_some());
        }
        let restored = restore_one(from, place, content, restore, target, &progress);
        drop(shown);
        invocation.session.report_lost(&blocks);
        let restored = restored.map_err(|error| explained(&archive, place, error));
        let restored = restored.with_context(|| not_restored(text));
        if !damaged.is_empty() {
            damage_report::report(invocation, target, &damaged);
        }
        let mut is_damaged = !damaged.is_empty();
        if let Some(restored) = restored? {
            is_damaged |= restored.is_damaged;
            outcome = outcome.max(tell(invocation, place, target, &restored));
        }
        if is_damaged {
            // The snapshot may have been collected meanwhile, which is no damage.
            let collected = place.what.snapshot().and_then(|snapshot| archive.collected(snapshot));
            if let Some(error) = collected {
                return Err(
                    error.context(format!("{} is incomplete", show::name(target.as_os_str().as_bytes())))
                );
            }
            outcome = outcome.max(CommandOutcome::Damage);
        }
    }
    Ok(outcome)
}

/// Explains the failure to read a snapshot that was collected meanwhile.
fn explained(archive: &OpenArchive, place: &PlaceInSnapshot<'_>, error: anyhow::Error) -> anyhow::Error {
    match place.what.snapshot() {
        Some(snapshot) => archive.explain_missing(snapshot, error),
        None => error,
    }
}

fn not_restored(text: &std::ffi::OsStr) -> String {
    format!("{} was not restored", show::name(text.as_bytes()))
}

pub(super) fn cat(invocation: &Invocation, cat: &CatArgs) -> Result<CommandOutcome> {
    let archive = invocation.session.reading()?;
    let place = ChosenSnapshots::new(invocation, archive.snapshots(), &cat.which).place(&cat.snapshot)?;
    let blocks = archive.blocks();
    let from = RestoreSource {
        invocation,
        blocks: &blocks,
        workers: archive.workers(),
        kept: &[],
        filter: &RestoreFilter::ALL,
        damaged: None,
    };
    let whole = RestoreArgs::to_output(cat.snapshot.clone(), cat.which.clone());
    let content = place.content(&blocks);
    let written = content
        .and_then(|content| restore_one(from, &place, &content, &whole, Path::new(OUTPUT), &Progress::new()));
    invocation.session.report_lost(&blocks);
    written.map(|_| CommandOutcome::Done).map_err(|error| explained(&archive, &place, error))
}

/// The result of one restore.
struct RestoreResult {
    kind: String,
    counts: RestoreCounts,
    /// True if something is missing because the archive is damaged.
    is_damaged: bool,
}

/// The origin of a restore, and the rules that apply to it.
#[derive(Clone, Copy)]
struct RestoreSource<'a> {
    invocation: &'a Invocation,
    blocks: &'a Arc<HealingStore>,
    workers: &'a dyn Workers,
    /// Paths that must survive, whatever is replaced.
    kept: &'a [PathBuf],
    filter: &'a RestoreFilter,
    /// Collects the unreadable ranges, if the user accepts damaged files.
    damaged: Option<&'a DamageList>,
}

const NO_DESTINATION: &str =
    "name a destination after the snapshot; or --in-place restores it to where it came from";

/// The reason why a file lacks flags.
const NO_FLAGS: &str = "this file system, or this user's rights, do not allow them";

/// Reports a restore, and everything that it lacks.
fn tell(
    invocation: &Invocation,
    place: &PlaceInSnapshot<'_>,
    destination: &Path,
    restored: &RestoreResult,
) -> CommandOutcome {
    let RestoreResult { kind, counts, is_damaged } = restored;
    match counts.problem_count {
        0 => {}
        1 => warning!("1 file or folder is missing, or lacks something"),
        several => warning!("{several} files or folders are missing, or lack something"),
    }
    match counts.lacking_flags_count {
        0 => {}
        1 => warning!("1 file or folder lacks flags that chattr sets: {NO_FLAGS}"),
        several => warning!("{several} files or folders lack flags that chattr sets: {NO_FLAGS}"),
    }
    if counts.is_delete_withheld {
        warning!("nothing was removed, because not everything is restored");
    }
    if invocation.json {
        let mut value = json!({
            "snapshot": place.what.id(),
            "kind": kind,
            "files": counts.file_count,
            "folders": counts.folder_count,
            "bytes": counts.bytes,
            "kept": counts.kept_count,
            "attributes": counts.attributes_count,
            "deleted": counts.deleted_count,
            "problems": counts.problem_count,
            "lacking_flags": counts.lacking_flags_count,
            "left_out": left_out_json(place.left_out()),
        });
        show::put_name(&mut value, "path", destination.as_os_str().as_bytes());
        say::record("restored", value);
    } else if !invocation.quiet {
        let destination = show::name(destination.as_os_str().as_bytes());
        let (source, size) = (shown_source(place), show::bytes(counts.bytes));
        say!("restored {source} to {destination}: {size}{}", counted(counts));
        left_out_lines(place.left_out(), false).iter().for_each(|line| say!("{line}"));
    }
    match (is_damaged, counts.problem_count) {
        (true, _) => CommandOutcome::Damage,
        (false, 0) => CommandOutcome::Done,
        (false, _) => CommandOutcome::Gaps,
    }
}

/// Formats the name of a place, with its path and the time of its snapshot.
fn shown_source(place: &PlaceInSnapshot<'_>) -> String {
    let mut text = show::name(place.name().as_bytes());
    if !place.path.as_os_str().is_empty() {
        text += &format!(":{}", show::name(place.path.as_os_str().as_bytes()));
    }
    match place.what.snapshot() {
        Some(snapshot) => format!("{text} of {}", moment::show(snapshot.time)),
        None => text,
    }
}

fn counted(counts: &RestoreCounts) -> String {
    let mut text = match counts.folder_count {
        0 => String::new(),
        folders => {
            format!(" in {} and {}", show::count(counts.file_count, "file"), show::count(folders, "folder"))
        }
    };
    for (count, what) in [
        (counts.kept_count, "kept"),
        (counts.attributes_count, "given attributes"),
        (counts.deleted_count, "deleted"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}

/// Restores one place. Returns `None` if there is nothing to report: the data went to standard
/// output, or was only planned.
fn restore_one(
    from: RestoreSource<'_>,
    place: &PlaceInSnapshot<'_>,
    content: &PlaceContent<'_>,
    restore: &RestoreArgs,
    destination: &Path,
    progress: &Progress,
) -> Result<Option<RestoreResult>> {
    let source = source_of(place, restore);
    let recorded = place.what.snapshot().and_then(|snapshot| snapshot.sectors);
    let recorded = recorded.map(|sectors| sectors.logical().into());
    let (files, node) = match content {
        PlaceContent::Disk(disk) => {
            image::warn_of_sectors(destination, disk.sector_bytes().or(recorded));
            return restore_image(from, place, &disk.raw(), &source, restore, destination, progress);
        }
        PlaceContent::Raw(part) => {
            image::warn_of_sectors(destination, recorded);
            return restore_image(from, place, part, &source, restore, destination, progress);
        }
        PlaceContent::Node { files, node } => (&**files, &**node),
    };
    if restore.format != ImageFormat::Raw {
        bail!(UsageError("--format is for disk images: this is not an image".into()));
    }
    if destination != Path::new(OUTPUT) {
        let options = RestoreOptions {
            overwrite: restore.overwrite(),
            replace_types: restore.replace_types,
            delete: restore.delete,
            filter: from.filter,
            kept: from.kept,
            source: &source,
            damaged: from.damaged.filter(|_| restore.keep_damaged),
            ..RestoreOptions::default()
        };
        return restore_tree(from, Tree { files, root: node }, restore, destination, options, progress);
    }
    if node.kind != NodeKind::File {
        let name = place.name();
        let what = if place.path.as_os_str().is_empty() { Path::new(&name) } else { place.path };
        bail!("{what:?} is a {}: only a file can be written to standard output", node.kind);
    }
    if let Some(trouble) = files.problem(node).filter(|trouble| trouble.lacks_all) {
        return Err(anyhow::Error::from_boxed(trouble.error))
            .with_context(|| format!("{:?} has no content", place.path));
    }
    match from.damaged.filter(|_| restore.keep_damaged) {
        None => files.write_to(from.workers, node, &mut Output::new(), progress)?,
        Some(damaged) => write_around(files, node, damaged)?,
    }
    Ok(None)
}

/// Returns an identifier of a restore's content, so that an interrupted restore is resumed only by
/// the same one.
fn source_of(place: &PlaceInSnapshot<'_>, restore: &RestoreArgs) -> Vec<u8> {
    let patterns = format!("{:?} {:?} {:?}", restore.includes, restore.excludes, restore.format);
    [place.what.id().as_bytes(), b":", place.path.as_os_str().as_bytes(), b"\0", patterns.as_bytes()].concat()
}

fn restore_image(
    from: RestoreSource<'_>,
    place: &PlaceInSnapshot<'_>,
    part: &varve_content::image::ImagePart,
    source: &[u8],
    restore: &RestoreArgs,
    destination: &Path,
    progress: &Progress,
) -> Result<Option<RestoreResult>> {
    let time = match place.what {
        NamedSource::Snapshot(snapshot) => Some(snapshot.time),
        NamedSource::Vac(_) => None,
    };
    let image = ImageToRestore { part, time, source };
    image::check(restore, destination)?;
    if restore.dry_run {
        let decision = image::decide(from, &image, restore, destination, progress)?;
        restore_plan::show_one(from.invocation, destination, part.size(), decision);
        return Ok(None);
    }
    image::restore_bytes(from, &image, restore, destination, progress)
}

/// Writes a file to standard output, with zeros for the bytes that are unreadable.
fn write_around(files: &dyn Files, node: &Node, damaged: &DamageList) -> Result<()> {
    let mut output = Output::new();
    let mut written = 0;
    files.read_with(
        node,
        0..node.size,
        &mut |offset, bytes| {
            std::io::copy(
                &mut std::io::Read::take(std::io::repeat(0), offset.saturating_sub(written)),
                &mut output,
            )?;
            output.write_all(bytes)?;
            written = offset + bytes.len() as u64;
            Ok(())
        },
        &mut |range, _| {
            damaged.add(Path::new(""), range);
            Ok(())
        },
    )?;
    std::io::copy(
        &mut std::io::Read::take(std::io::repeat(0), node.size.saturating_sub(written)),
        &mut output,
    )?;
    Ok(())
}

fn restore_tree(
    from: RestoreSource<'_>,
    tree: Tree<'_>,
    restore: &RestoreArgs,
    destination: &Path,
    options: RestoreOptions<'_>,
    progress: &Progress,
) -> Result<Option<RestoreResult>> {
    if restore.dry_run {
        restore_plan::show_plan(from.invocation, tree, destination, options)?;
        return Ok(None);
    }
    if (restore.delete || restore.in_place)
        && !restore_plan::has_consent(from.invocation, restore, tree, destination, options)?
    {
        return Ok(None);
    }
    let (mut counts, is_damaged) = write_tree(from, tree, destination, options, progress)?;
    if restore.verify {
        let report = |problem: Problem| complaint::report_problem(&problem);
        let watch = Watch { progress, report: &report };
        let (_, unlike) = read_back(tree.files, from.workers, tree.root, destination, options, watch)
            .with_context(|| format!("{} cannot be read back", destination.display()))?;
        counts.problem_count += unlike;
    }
    Ok(Some(RestoreResult { kind: tree.root.kind.to_string(), counts, is_damaged }))
}

fn write_tree(
    from: RestoreSource<'_>,
    tree: Tree<'_>,
    destination: &Path,
    options: RestoreOptions<'_>,
    progress: &Progress,
) -> Result<(RestoreCounts, bool)> {
    let is_folder = tree.root.kind == NodeKind::Folder;
    // The problems of a single file may explain why it could not be restored at all.
    let of_file = Mutex::new(Vec::new());
    let is_damaged = AtomicBool::new(false);
    let report = |problem: Problem| {
        is_damaged.fetch_or(exit_status::is_damage(&*problem.error), Ordering::Relaxed);
        match is_folder {
            true => complaint::report_problem(&problem),
            false => of_file.lock().push(problem),
        }
    };
    let watch = Watch { progress, report: &report };
    let restored = restore_folder(tree.files, from.workers, tree.root, destination, options, watch);
    let of_file = of_file.into_inner();
    let is_damaged = is_damaged.into_inner();
    let counts = match restored {
        Ok(counts) => counts,
        Err(RestoreFolderError::Exists { .. }) if is_folder && destination.is_dir() => {
            let refusal = restore_plan::would_change(tree, destination, options)?;
            bail!(Hinted::new(refusal, hints::EXISTS))
        }
        Err(error) => {
            let is_absent = matches!(&error, RestoreFolderError::Destination { source, .. } if source.kind() == ErrorKind::NotFound);
            return match of_file.into_iter().next().filter(|_| is_absent) {
                Some(problem) => Err(anyhow::Error::from_boxed(problem.error))
                    .context(show::name(destination.as_os_str().as_bytes())),
                None => Err(error).with_hint(hints::of_folder),
            };
        }
    };
    for problem in of_file {
        let path = if problem.path.as_os_str().is_empty() { destination.to_path_buf() } else { problem.path };
        complaint::report_problem(&Problem { path, error: problem.error });
    }
    if is_damaged {
        hint!("{}", complaint::KEEP_DAMAGED);
    }
    Ok((counts, is_damaged))
}
