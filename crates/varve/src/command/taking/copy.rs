//! `varve copy`

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;
use varve_archive::{Archive, CopySnapshotError, Snapshot, SnapshotCopier};
use varve_block::{Score, with_causes};
use varve_session::UsageError;
use varve_store::Store;
use varve_tree::{CopyError, CopyMode, CopyProgress, copy_archive};

use super::report::growth;
use crate::arguments::CopyArgs;
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::choosing::place_in_snapshot::vac_place;
use crate::command::looking::snapshot_list::short_id;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{exit_status, say, show};

pub fn run(invocation: &Invocation, args: &CopyArgs) -> Result<CommandOutcome> {
    let [from, what @ .., to] = args.operands.as_slice() else {
        bail!(UsageError("name the store to copy from, what to copy, and the store to copy to".into()))
    };
    let what: Vec<_> = what.iter().map(|what| what.to_string_lossy().into_owned()).collect();
    match (args.all, what.as_slice()) {
        (false, []) if args.which.filter().is_empty() => {
            let said = "name what to copy: snapshots between the two stores, --all before them, or conditions such as --host";
            bail!(UsageError(said.into()))
        }
        (true, [_, ..]) => {
            bail!(UsageError("--all copies everything: leave out the names of snapshots".into()))
        }
        (false, [archive]) => {
            if let Some((line, [])) = vac_place(OsStr::new(archive))? {
                return copy_vac(invocation, args, from, to, &line.to_string(), line.score);
            }
        }
        _ => {}
    }
    if args.fast {
        let said = "--fast is for archives of vac and vbackup: unchanged data of snapshots is never read twice anyway";
        bail!(UsageError(said.into()));
    }
    copy_snapshots(invocation, args, from, to, &what)
}

/// Opens both stores: the first for reading, the second for writing.
fn open(invocation: &Invocation, args: &CopyArgs, from: &Path, to: &Path) -> Result<(Store, Store)> {
    let source = invocation.session.as_source(from, args.from_key_file.as_deref())?;
    let from = source.read_store_at(from)?;
    let to = invocation.session.write_store_at(to)?;
    if from.config().id == to.config().id {
        bail!("both are the same store, or copies of it: `varve replicate` and `varve clone` copy a store");
    }
    Ok((from, to))
}

fn copy_snapshots(
    invocation: &Invocation,
    args: &CopyArgs,
    from_path: &Path,
    to_path: &Path,
    what: &[String],
) -> Result<CommandOutcome> {
    let (from, to) = open(invocation, args, from_path, to_path)?;
    let from = Archive::open(from).with_context(|| format!("cannot read {}", from_path.display()))?;
    let mut to = Archive::open(to).with_context(|| format!("cannot read {}", to_path.display()))?;
    let mut chosen = choose(&ChosenSnapshots::new(invocation, from.snapshots(), &args.which), what)?;
    if what.is_empty() {
        leave_forgotten(invocation, &to, &mut chosen);
    }
    let progress = cancellable_progress()?;
    let is_there = |snapshot: &&Snapshot| to.snapshots().iter().any(|there| there.id == snapshot.id);
    let bytes_total =
        chosen.iter().filter(|snapshot| !is_there(snapshot)).map(|snapshot| snapshot.size).sum();
    progress.set_total(0, bytes_total);
    let shown = ShownProgress::start("copy", &progress, invocation.quiet || invocation.json);
    let source = invocation.session.as_source(from_path, args.from_key_file.as_deref())?;
    let blocks = source.healing(&from);
    // A snapshot that the destination has forgotten is among them only if it was named.
    let mut copier = SnapshotCopier::new(&*blocks, &progress).bringing_back();
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    let mut cancelled = false;
    for snapshot in &chosen {
        match copier.copy(snapshot, &mut to) {
            Ok(copy) => rows.push((*snapshot, copy)),
            Err(CopySnapshotError::Cancelled) => {
                cancelled = true;
                break;
            }
            // If the destination fails to take a snapshot or a block, it will take no others.
            Err(error @ (CopySnapshotError::Enter(_) | CopySnapshotError::Put(_))) => {
                drop(shown);
                return Err(anyhow::Error::new(error).context(format!("{} is not copied", snapshot.name)));
            }
            Err(error) => failures.push((*snapshot, anyhow::Error::new(error))),
        }
    }
    drop(shown);
    // Keep the copied blocks, so that they need not be copied again.
    let closed = to.close();
    source.report_lost(&blocks);
    print(invocation, &rows, &failures);
    closed.with_context(|| format!("{} cannot be closed", to_path.display()))?;
    if cancelled {
        let of = show::count(chosen.len(), "snapshot");
        bail!("interrupted: {} of {of} copied; the same command continues from here", rows.len());
    }
    let of_failure = |(_, error): &(_, anyhow::Error)| match exit_status::is_damage(error.as_ref()) {
        true => CommandOutcome::Damage,
        false => CommandOutcome::Failed,
    };
    Ok(failures.iter().map(of_failure).max().unwrap_or(CommandOutcome::Done))
}

/// Returns the named snapshots in the order of the catalog, without duplicates; all snapshots if
/// none is named.
fn choose<'a>(choice: &ChosenSnapshots<'a>, what: &[String]) -> Result<Vec<&'a Snapshot>> {
    if what.is_empty() {
        return Ok(choice.snapshots().to_vec());
    }
    let wanted = what.iter().map(|what| Ok(choice.named(what)?.id)).collect::<Result<Vec<_>>>()?;
    Ok(choice.snapshots().iter().copied().filter(|snapshot| wanted.contains(&snapshot.id)).collect())
}

/// Removes the snapshots that the destination has forgotten. A copy of everything, made each day,
/// must not bring them back.
fn leave_forgotten(invocation: &Invocation, to: &Archive, chosen: &mut Vec<&Snapshot>) {
    let count = chosen.len();
    chosen.retain(|snapshot| !to.catalog().is_forgotten(snapshot.id));
    let left = count - chosen.len();
    if left > 0 && !invocation.quiet {
        let left = show::count(left, "snapshot");
        warning!("{left} not copied, because the destination has forgotten them: name a snapshot to copy it");
    }
}

fn print(
    invocation: &Invocation,
    rows: &[(&Snapshot, Option<Snapshot>)],
    failures: &[(&Snapshot, anyhow::Error)],
) {
    for (snapshot, copy) in rows {
        let (id, name) = (snapshot.id.to_string(), &snapshot.name);
        match copy {
            _ if invocation.json => {
                let growth = copy.as_ref().and_then(|copy| copy.growth);
                let (new_bytes, stored_bytes) =
                    growth.map(|growth| (growth.new_bytes, growth.stored_bytes)).unzip();
                say::record(
                    "copied",
                    json!({ "id": id, "name": name, "was_there": copy.is_none(), "new_bytes": new_bytes, "stored_bytes": stored_bytes }),
                );
            }
            _ if invocation.quiet => {}
            Some(copy) => {
                say!("{} {name}: {}{}", short_id(snapshot), show::bytes(snapshot.size), growth(copy))
            }
            None => say!("{} {name}: already there", short_id(snapshot)),
        }
    }
    for (snapshot, error) in failures {
        warning!("{} {} is not copied: {}", short_id(snapshot), snapshot.name, with_causes(error.as_ref()));
    }
}

fn copy_vac(
    invocation: &Invocation,
    args: &CopyArgs,
    from_path: &Path,
    to_path: &Path,
    line: &str,
    score: Score,
) -> Result<CommandOutcome> {
    let source = invocation.session.as_source(from_path, args.from_key_file.as_deref())?;
    let from = source.read_blocks_at(from_path)?;
    let to = invocation.session.write_blocks_at(to_path)?;
    let progress = cancellable_progress()?;
    let shown = ShownProgress::start(line, &progress, invocation.quiet || invocation.json);
    let mode = if args.fast { CopyMode::Fast } else { CopyMode::Whole };
    let mut done = CopyProgress::default();
    let mut watch = |copied: &CopyProgress| {
        progress.add_bytes_done(copied.bytes - done.bytes);
        progress.add_files_done(copied.block_count - done.block_count);
        done = *copied;
        !progress.is_cancelled()
    };
    let copied = copy_archive(&*from, to.blocks(), score, mode, &mut watch);
    drop(shown);
    // Keep the copied blocks, so that they need not be copied again.
    let closed = to.close();
    let copied = copied.map_err(|error| match error {
        CopyError::Cancelled => {
            anyhow!("interrupted: {line} is not copied completely; the same command continues from here")
        }
        error => anyhow::Error::new(error).context(format!("{line} is not copied completely")),
    })?;
    closed.with_context(|| format!("{} cannot be closed", to_path.display()))?;
    let CopyProgress { block_count, bytes, present_count } = copied;
    if invocation.json {
        say::record(
            "archive_copied",
            json!({ "archive": line, "blocks": block_count, "bytes": bytes, "present": present_count }),
        );
    } else if !invocation.quiet {
        let blocks = show::count(block_count, "block");
        let were = if present_count == 1 { "was" } else { "were" };
        say!("{line}: {blocks} copied, {}; {present_count} {were} there", show::bytes(bytes));
    }
    Ok(CommandOutcome::Done)
}
