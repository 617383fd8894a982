//! `varve clone`

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_block::with_causes;
use varve_log::ArenaId;
use varve_remote::Location;
use varve_replica::{CloneError, CloneOptions, Replica, clone_replica};
use varve_session::{Hinted, NamedBy, WithHint, replica_hint, target};
use varve_world::{RealWorkers, World};

use super::EMPTY_FOLDER;
use super::transfer_progress::TransferProgress;
use crate::arguments::CloneArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &CloneArgs) -> Result<CommandOutcome> {
    let there = invocation.session.replica(&args.target, NamedBy::User)?;
    let shown_target = target::shown(&args.target);
    refuse_nothing(&there.replica, &shown_target)?;
    let secret = match args.unchecked {
        true => None,
        false => invocation.session.secret_of(&there.world, &shown_target)?,
    };
    let jobs = match args.jobs {
        Some(jobs) => usize::from(jobs),
        None => args.target.parse::<Location>()?.usual_calls(),
    };
    let workers = Arc::new(RealWorkers::new(jobs));
    let world = World { workers, ..World::real(&args.folder) };
    let options = CloneOptions { unchecked: args.unchecked, keep_damaged: args.keep_damaged };
    let progress = cancellable_progress()?;
    let shown = ShownProgress::start(&shown_target, &progress, invocation.quiet);
    let transfer = TransferProgress(Arc::clone(&progress));
    let cloned = clone_replica(&there.replica, &world, secret.as_ref(), options, &transfer);
    drop(shown);
    let folder = args.folder.display();
    let cloned = match cloned {
        Err(error @ (CloneError::Exists | CloneError::NotEmpty { .. })) => {
            Err(Hinted::new(error, EMPTY_FOLDER)).with_context(|| format!("nothing was cloned into {folder}"))
        }
        cloned => cloned.with_hint(replica_damage).with_context(|| format!("{folder} is not a store yet")),
    }?;
    for damage in &cloned.damaged {
        remark!("varve: arena {} is damaged: {}", damage.arena, with_causes(&damage.reason));
    }
    if invocation.json {
        let value = json!({
            "path": args.folder.to_string_lossy(),
            "arenas": cloned.arena_count,
            "bytes": cloned.bytes,
            "fetched_bytes": cloned.fetched_bytes,
            "damaged_arenas": cloned.damaged.iter().map(|damage| damage.arena.0).collect::<Vec<_>>(),
        });
        say::record("cloned", value);
    } else if !invocation.quiet {
        let checked = if args.unchecked { "not checked" } else { "every record checked" };
        let arenas = show::count(cloned.arena_count, "arena");
        say!("{folder} is a store: {arenas}, {}, {checked}", show::bytes(cloned.bytes));
    }
    if !cloned.damaged.is_empty() {
        remark!("hint: `varve -s {folder} verify` shows what that harms; everything else can be restored");
        return Ok(CommandOutcome::Damage);
    }
    // A foreign object in the place of a small file was reported when the replica was opened. The
    // clone lacks that file.
    Ok(if there.replica.in_the_way().is_empty() { CommandOutcome::Done } else { CommandOutcome::Damage })
}

fn replica_damage(error: &CloneError) -> Option<&'static str> {
    match error {
        CloneError::Replica(error) => replica_hint(error),
        _ => None,
    }
}

/// Refuses a replica without arenas: its clone would look like an intact store.
fn refuse_nothing(replica: &Replica, shown_target: &str) -> Result<()> {
    if !replica.arenas().is_empty() {
        return Ok(());
    }
    if replica.strangers().iter().any(|object| ArenaId::of_file(&object.name).is_some()) {
        bail!(
            "{shown_target} is a store, not a replica: copy its folder, or make a replica with `varve -s {shown_target} replicate TARGET`"
        );
    }
    bail!("{shown_target} has no arenas, only a store's settings: there is nothing to clone")
}
