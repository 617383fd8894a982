//! `varve clone`

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_archive::{Archive, Snapshot};
use varve_block::with_causes;
use varve_log::ArenaId;
use varve_remote::Location;
use varve_replica::{CloneError, CloneOptions, Replica, clone_replica};
use varve_session::{Hinted, History, NamedBy, ReplicaHome, WithHint, replica_hint, target};
use varve_store::{Permission, Secret, StoreAccess};
use varve_world::{RealWorkers, World};

use super::EMPTY_FOLDER;
use super::transfer_progress::TransferProgress;
use crate::arguments::CloneArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{moment, say, show};

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
        warning!("arena {} is damaged: {}", damage.arena, with_causes(&damage.reason));
    }
    let state =
        if args.unchecked { ClonedState::default() } else { state_of(invocation, args, &there, secret) };
    if invocation.json {
        let value = json!({
            "path": args.folder.to_string_lossy(),
            "arenas": cloned.arena_count,
            "bytes": cloned.bytes,
            "fetched_bytes": cloned.fetched_bytes,
            "damaged_arenas": cloned.damaged.iter().map(|damage| damage.arena.0).collect::<Vec<_>>(),
            "snapshots": state.snapshot_count,
            "newest": state.newest.as_ref().map(|newest| json!({
                "id": newest.id.to_string(),
                "name": newest.name,
                "time": moment::rfc3339(newest.time),
            })),
            "older_than_seen": state.is_older,
        });
        say::record("cloned", value);
    } else if !invocation.quiet {
        let checked = if args.unchecked { "not checked" } else { "every record checked" };
        let arenas = show::count(cloned.arena_count, "arena");
        say!("{folder} is a store: {arenas}, {}, {checked}", show::bytes(cloned.bytes));
        // Nothing in a replica shows that it is an earlier state, but its owner may know.
        if let (Some(count), Some(newest)) = (state.snapshot_count, &state.newest) {
            let (name, time) = (show::name(newest.name.as_bytes()), moment::show(newest.time));
            say!("the newest of its {} is {name} of {time}", show::count(count, "snapshot"));
        }
    }
    if !cloned.damaged.is_empty() {
        hint!("`varve -s {folder} verify` shows what that harms; everything else can be restored");
        return Ok(CommandOutcome::Damage);
    }
    if state.is_older {
        return Ok(CommandOutcome::Damage);
    }
    // A foreign object in the place of a small file was reported when the replica was opened. The
    // clone lacks that file.
    Ok(if there.replica.in_the_way().is_empty() { CommandOutcome::Done } else { CommandOutcome::Damage })
}

/// The facts about a clone that show whether it is the newest state.
#[derive(Default)]
struct ClonedState {
    /// `None` if the key cannot read the list.
    snapshot_count: Option<usize>,
    newest: Option<Snapshot>,
    /// True if this machine has seen a newer state of the replica.
    is_older: bool,
}

/// Opens the clone, and compares it with the newest state that this machine has seen of the
/// replica.
fn state_of(
    invocation: &Invocation,
    args: &CloneArgs,
    there: &ReplicaHome,
    secret: Option<Secret>,
) -> ClonedState {
    let session = &invocation.session;
    let name = args.folder.display().to_string();
    let opened = session.open_store(World::real(&args.folder), &name, secret.as_ref(), StoreAccess::Read);
    let mut state = ClonedState::default();
    let read = opened.and_then(|store| {
        state.is_older = session.notice_rollback(&store, there, History::Unknown, &args.target);
        if store.role().allows(Permission::Read) {
            let archive = Archive::open(store)?;
            state.snapshot_count = Some(archive.snapshots().len());
            state.newest = archive.snapshots().iter().max_by_key(|snapshot| snapshot.time).cloned();
        }
        Ok(())
    });
    if let Err(error) = read {
        warning!("the snapshots of the clone cannot be listed: {}", with_causes(error.as_ref()));
    }
    state
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
