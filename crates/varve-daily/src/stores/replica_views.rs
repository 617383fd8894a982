//! Looks at replicas, all at the same time, and for a bounded time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use varve_archive::Archive;
use varve_block::{FailureKind, with_causes};
use varve_session::{CommandSession, failure_kinds, lock_sentence, target};
use varve_world::Timestamp;

use crate::config::ConfiguredReplica;
use crate::judging::{ReplicaView, snapshot_facts};

/// The time after which a replica that has not answered is judged by what earlier runs saw.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks at the replicas of a store. `known` returns the state of those that are away now, as
/// earlier runs saw it.
#[expect(clippy::disallowed_methods, reason = "servers are awaited in real time")]
pub fn look_at_replicas<'a>(
    session: &CommandSession,
    known: impl Fn(&str) -> Option<Timestamp>,
    replicas: impl Iterator<Item = (&'a String, &'a ConfiguredReplica)>,
) -> BTreeMap<String, ReplicaView> {
    let (sender, receiver) = mpsc::channel();
    let silent = format!("it has not answered within {} s", PATIENCE.as_secs());
    let mut views = BTreeMap::new();
    for (name, replica) in replicas {
        let known = known(name);
        views.insert(
            name.clone(),
            ReplicaView { is_silent: true, ..ReplicaView::closed(known, silent.clone()) },
        );
        let (sender, session) = (sender.clone(), session.clone());
        let (name, at) = (name.clone(), replica.at.clone());
        // A thread that waits for a dead server is left to the end of the process.
        std::thread::spawn(move || {
            let view = match open(&session, &at) {
                Ok(view) => view,
                Err(error) => {
                    let is_gone = holds_no_copy(&at, &error);
                    ReplicaView { is_gone, ..ReplicaView::closed(known, with_causes(error.as_ref())) }
                }
            };
            // The receiver is gone once the patience has ended.
            let _ = sender.send((name, view));
        });
    }
    drop(sender);
    let until = Instant::now() + PATIENCE;
    while let Ok((name, view)) = receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
        views.insert(name, view);
    }
    views
}

fn open(session: &CommandSession, at: &str) -> Result<ReplicaView> {
    if lacks_copy(at) {
        return Err(anyhow!("{at} holds no replica"));
    }
    let (store, there) = session.read_at(Path::new(at))?;
    let lock = there.and_then(|there| there.home.replica.oldest_lock().ok().flatten());
    let archive = Archive::open(store)?;
    let held = snapshot_facts(&archive).into_iter().map(|snapshot| snapshot.id).collect();
    Ok(ReplicaView { lock: lock.as_ref().map(lock_sentence), ..ReplicaView::open(held) })
}

/// Reports whether the place of a replica can be reached, and holds no copy.
fn holds_no_copy(at: &str, error: &anyhow::Error) -> bool {
    match target::folder_of(at) {
        Some(_) => lacks_copy(at),
        None => failure_kinds(error.as_ref()).any(|kind| kind == FailureKind::NotAStore),
    }
}

/// Reports whether a folder could hold a copy and does not. A replication makes the folder, but not
/// its parent.
fn lacks_copy(at: &str) -> bool {
    target::folder_of(at).is_some_and(|folder| {
        let has_place = folder.is_dir() || folder.parent().is_some_and(Path::is_dir);
        has_place && folder.join("replica.toml").symlink_metadata().is_err()
    })
}
