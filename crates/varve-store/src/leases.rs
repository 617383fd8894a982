//! Leases: files in which long-running readers say which snapshots they use, so that a collector
//! keeps them. The store does not know snapshots; to it they are ids of 16 bytes.
//!
//! A lease is the file `leases/HOST-PROCESS-RANDOM`, locked by its reader for as long as it
//! counts. It is no part of the format: a reader of the store ignores it. Where no lease can be
//! written (a read-only disk, a replica, no permission) a reader works without one.
//!
//! Always true:
//! - A lease is locked before its reader relies on it, and a reader that changes its lease locks
//!   the new file before it removes the old one.
//! - A file that nobody has locked protects nothing: its reader is dead. A locked file that cannot
//!   be understood protects everything.
//!
//! How a collector and a reader meet: the collector makes durable that the snapshots which it
//! collects are no longer listed, and then looks for leases. The reader takes its lease, and then
//! looks at the list once more. So either the collector sees the lease, or the reader sees that
//! the snapshot is gone.

mod contents;

pub use contents::{LeaseHolder, LeasedSnapshots};

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use varve_block::{to_hex, with_causes};
use varve_world::{FileLock, FileName, LockError, Storage, Timestamp, World};

use contents::{LEASE_BYTES_MAX, LeaseContents};

const FOLDER: &str = "leases";
/// Attempts to take a lease whose file a collector took for an old one before it was locked.
const TAKE_ATTEMPTS: usize = 8;
/// Looks at the folder until nothing changes meanwhile.
const LOOKS_MAX: usize = 16;
/// More held leases than this protect everything.
const LEASES_MAX: usize = 1000;
/// More ids than this, in all leases together, protect everything.
const IDS_MAX: usize = 1_000_000;
/// The part of a host's name that is used in a file name.
const HOST_CHARS_MAX: usize = 64;

/// A lease of this process. It counts until it is dropped, or until the process dies.
pub struct HeldLease {
    storage: Arc<dyn Storage>,
    file: FileName,
    _lock: Box<dyn FileLock>,
}

impl std::fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HeldLease").field(&self.file).finish()
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        // The file is removed while it is locked, so that nobody takes it for a stale one. A file
        // that stays behind is stale.
        if let Err(error) = self.storage.remove_if_there(&self.file) {
            tracing::debug!(%error, file = %self.file, "a lease could not be removed");
        }
    }
}

/// A lease that another process holds, as a collector sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLease {
    pub file: FileName,
    /// The reader; `None` if the file does not say it.
    pub holder: Option<LeaseHolder>,
    /// When the reader took the lease.
    pub started: Option<Timestamp>,
    /// The snapshots that must stay.
    pub snapshots: LeasedSnapshots,
    /// Why the lease protects everything although its reader may need less.
    pub doubt: Option<String>,
}

impl FoundLease {
    fn doubtful(file: FileName, doubt: String) -> Self {
        Self { file, holder: None, started: None, snapshots: LeasedSnapshots::All, doubt: Some(doubt) }
    }
}

/// Why the leases are not known. Nothing may be collected then.
#[derive(Debug, thiserror::Error)]
pub enum FindLeasesError {
    #[error("the leases of readers cannot be listed")]
    List(#[source] io::Error),
    /// Readers come and go faster than their leases are read.
    #[error("the leases of readers kept changing while they were read")]
    Unsettled,
}

/// Takes a lease on these snapshots. Returns `None` if it cannot be written; only the log says so,
/// because a reader works without one.
#[must_use]
pub fn take_lease(world: &World, holder: &LeaseHolder, snapshots: &LeasedSnapshots) -> Option<HeldLease> {
    match try_to_take(world, holder, snapshots) {
        Ok(lease) => Some(lease),
        Err(error) => {
            tracing::debug!(error = with_causes(&error), "no lease protects the snapshots in use");
            None
        }
    }
}

fn try_to_take(world: &World, holder: &LeaseHolder, snapshots: &LeasedSnapshots) -> io::Result<HeldLease> {
    let started = world.clock.now();
    let contents = LeaseContents { holder: holder.clone(), started, snapshots: snapshots.clone() };
    let text = contents.encode();
    let storage = &world.storage;
    for _ in 0..TAKE_ATTEMPTS {
        let file = draw_file(world, holder)?;
        // This makes the folder as well, which a lock does not.
        storage.create(&file)?;
        let lock = match storage.lock(&file, &text) {
            Ok(lock) => lock,
            // A collector is looking at the file.
            Err(LockError::Held { .. }) => continue,
            Err(LockError::Storage { source, .. }) => {
                storage.remove_if_there(&file).ok();
                return Err(source);
            }
        };
        let lease = HeldLease { storage: Arc::clone(storage), file, _lock: lock };
        // A collector may have removed the file before it was locked.
        if storage.read_whole(&lease.file, LEASE_BYTES_MAX).is_ok_and(|there| there == text.as_bytes()) {
            return Ok(lease);
        }
    }
    Err(io::Error::other("its file does not keep what is written to it"))
}

fn draw_file(world: &World, holder: &LeaseHolder) -> io::Result<FileName> {
    let mut random = [0; 8];
    world.random.fill(&mut random)?;
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let host: String = holder.host().chars().take(HOST_CHARS_MAX).map(plain).collect();
    let name = format!("{FOLDER}/{host}-{}-{}", holder.process(), to_hex(&random));
    FileName::new(&name).map_err(io::Error::other)
}

/// Returns the leases that processes hold, and removes the files of readers that are dead. A
/// collector calls it after it has made durable that what it collects is no longer listed. Several
/// processes may look at once: then one may take a stale lease for a held one.
///
/// A lease whose file cannot be locked or read for want of permission counts as held, and protects
/// everything.
///
/// # Errors
/// [`FindLeasesError`].
pub fn held_leases(storage: &dyn Storage) -> Result<Vec<FoundLease>, FindLeasesError> {
    let list = || storage.list(FOLDER).map_err(FindLeasesError::List);
    let mut names = list()?;
    for look in 1..=LOOKS_MAX {
        let mut found = Vec::new();
        let mut kept = BTreeSet::new();
        let mut id_count = 0_usize;
        for name in names {
            match look_at(storage, &name) {
                LeaseState::Gone => {}
                LeaseState::Stuck => drop(kept.insert(name)),
                LeaseState::Held(lease) => {
                    kept.insert(name);
                    id_count = id_count.saturating_add(lease.snapshots.id_count());
                    if found.len() >= LEASES_MAX || id_count > IDS_MAX {
                        let doubt = "there are too many leases".to_owned();
                        return Ok(vec![FoundLease::doubtful(lease.file, doubt)]);
                    }
                    found.push(*lease);
                }
            }
        }
        // A reader that has changed its lease since the files were listed has a new one. It was
        // there before the old one went.
        names = list()?;
        let is_settled = names.iter().all(|name| kept.contains(name));
        // A reader that is just taking its lease has locked the file, and not written it yet.
        let is_clear = found.iter().all(|lease| lease.doubt.is_none()) || look >= LOOKS_MAX / 2;
        if is_settled && is_clear {
            return Ok(found);
        }
    }
    Err(FindLeasesError::Unsettled)
}

/// Removes the files of readers that are dead. A writer calls it.
pub fn remove_stale_leases(storage: &dyn Storage) {
    if let Err(error) = held_leases(storage) {
        tracing::debug!(error = with_causes(&error), "old leases of readers could not be removed");
    }
}

/// The state of a file in the folder of leases.
enum LeaseState {
    /// Its reader has removed it, or is dead: then it has been removed now.
    Gone,
    /// Its reader is dead, and the file cannot be removed.
    Stuck,
    Held(Box<FoundLease>),
}

fn look_at(storage: &dyn Storage, file: &FileName) -> LeaseState {
    match storage.lock(file, "") {
        // The lock has made the file again if it was gone.
        Ok(lock) => {
            let removed = storage.remove_if_there(file);
            drop(lock);
            match removed {
                Ok(_) => LeaseState::Gone,
                Err(error) => {
                    tracing::debug!(%error, %file, "a stale lease could not be removed");
                    LeaseState::Stuck
                }
            }
        }
        Err(LockError::Held { .. }) => read_held(storage, file),
        Err(LockError::Storage { source, .. }) => match storage.length(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => LeaseState::Gone,
            _ => {
                let doubt = format!("it cannot be tried whether it is in use: {source}");
                LeaseState::Held(Box::new(FoundLease::doubtful(file.clone(), doubt)))
            }
        },
    }
}

fn read_held(storage: &dyn Storage, file: &FileName) -> LeaseState {
    let doubt = match storage.read_whole(file, LEASE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return LeaseState::Gone,
        Err(error) => format!("it cannot be read: {error}"),
        Ok(text) => match LeaseContents::parse(&text) {
            Some(LeaseContents { holder, started, snapshots }) => {
                return LeaseState::Held(Box::new(FoundLease {
                    file: file.clone(),
                    holder: Some(holder),
                    started: Some(started),
                    snapshots,
                    doubt: None,
                }));
            }
            None => "its contents are incomplete, or of another version".to_owned(),
        },
    };
    LeaseState::Held(Box::new(FoundLease::doubtful(file.clone(), doubt)))
}

#[cfg(test)]
mod tests;
