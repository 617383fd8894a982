//! A replica that is read in place, and this machine's notes on the replicas of a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Error, Result};
use varve_block::to_hex;
use varve_remote::Pace;
use varve_replica::{OpenReplicaError, RangeCache, Replica, ReplicaStorage, name_for_notes};
use varve_store::{ConfigError, Store};
use varve_world::{RealStorage, Storage, World};

use crate::hinted::hinted;
use crate::notice::Notice;
use crate::target::{self, NamedBy, TargetPaces};
use crate::user_folders;
use crate::user_interface::UserInterface;

/// In a store's folder of the cache: holds one folder for each replica, with the state last seen
/// there.
const SEEN: &str = "seen";

/// The hint for damaged settings of a replica.
pub const PUT_CONFIG: &str = "`varve replicate TARGET --replace config.toml` uploads the store's file; a copy of the file does as well";

/// A replica, and the world in which it can be opened as a read-only store.
#[expect(missing_docs, reason = "the names explain themselves")]
pub struct ReplicaHome {
    pub replica: Arc<Replica>,
    pub world: World,
    /// The notes on the other replicas of the store.
    seen_elsewhere: Vec<RealStorage>,
}

/// The way in which a session reads replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaReads {
    /// Through the cache of this machine.
    Cached,
    /// From the replica itself, and never from the cache on disk. The verification reports its
    /// findings, so there are no notices.
    Verified,
}

/// Opens replicas, and finds this machine's notes on them.
#[derive(Clone)]
pub(crate) struct Replicas {
    reads: ReplicaReads,
    cache: Option<PathBuf>,
    cache_bytes: u64,
    requests: Option<Arc<Pace>>,
    frontend: Arc<dyn UserInterface>,
}

impl Replicas {
    /// `cache` replaces the user's cache folder.
    pub(crate) fn new(
        reads: ReplicaReads,
        cache: Option<PathBuf>,
        cache_bytes: u64,
        requests: Option<Arc<Pace>>,
        frontend: Arc<dyn UserInterface>,
    ) -> Self {
        Self { reads, cache: cache.or_else(user_folders::cache), cache_bytes, requests, frontend }
    }

    /// Returns the folder for the cached data of replicas and the notes on them.
    pub(crate) fn cache_folder(&self) -> Option<&Path> {
        self.cache.as_deref()
    }

    /// Opens a target as the world of a read-only store.
    pub(crate) fn open(&self, text: &str, named_by: NamedBy) -> Result<ReplicaHome> {
        let paces = TargetPaces { up: None, requests: self.requests.clone() };
        let there = target::open(text, named_by, paces, self.frontend.as_ref())?;
        let not_opened = |error| cannot_open(error, text);
        let replica = Arc::new(Replica::open(there).map_err(not_opened)?);
        if self.reads == ReplicaReads::Cached {
            for found in replica.in_the_way() {
                let (replica, found) = (target::shown(text), found.to_string());
                self.frontend.notice(&Notice::ObjectInTheWay { replica, found });
            }
            if let Some((object, fault)) = replica.damaged_objects().next() {
                let (replica, object) = (target::shown(text), object.to_string());
                self.frontend.notice(&Notice::ObjectDamaged { replica, object, fault });
            }
        }
        let id = replica.config().map_err(not_opened)?.id;
        let own = self.cache_folder().map(|folder| folder.join(to_hex(&id)));
        // Two copies of a store may diverge, so the state of one replica says nothing about
        // another.
        let place = name_for_notes(replica.target().as_ref());
        let seen = own.as_ref().map(|own| own.join(SEEN).join(place));
        let mut elsewhere = own.as_deref().map(seen_in).unwrap_or_default();
        elsewhere.retain(|folder| Some(folder) != seen.as_ref());
        let cache = match self.reads {
            ReplicaReads::Verified => None,
            ReplicaReads::Cached => {
                own.map(|own| RangeCache::new(Arc::new(RealStorage::new(&own)), self.cache_bytes))
            }
        };
        let hints = seen.map(|seen| Arc::new(RealStorage::new(&seen)) as Arc<dyn Storage>);
        let storage = Arc::new(ReplicaStorage::new(Arc::clone(&replica), cache, hints).reading_ahead()?);
        let world = World { storage, ..World::real(Path::new("")) };
        let seen_elsewhere = elsewhere.iter().map(|folder| RealStorage::new(folder)).collect();
        Ok(ReplicaHome { replica, world, seen_elsewhere })
    }

    /// Removes all notes on the replicas of a store, because the history of the store now diverges
    /// from theirs.
    pub(crate) fn forget_seen(&self, store_id: &[u8; 16]) {
        let Some(folder) = self.cache_folder() else { return };
        for seen in seen_in(&folder.join(to_hex(store_id))) {
            let seen = seen.join("index/newest");
            match std::fs::remove_file(&seen) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(%error, file = %seen.display(), "the record of this store's replicas cannot be removed");
                }
                _ => {}
            }
        }
    }
}

/// Returns the hint for a replica that does not open.
#[must_use]
pub fn replica_hint(error: &OpenReplicaError) -> Option<&'static str> {
    match error {
        OpenReplicaError::Config(ConfigError::NewerFormat { .. }) => None,
        OpenReplicaError::Config(_) => Some(PUT_CONFIG),
        OpenReplicaError::Mark => Some("`varve replicate TARGET --replace replica.toml` uploads it again"),
        _ => None,
    }
}

fn cannot_open(error: OpenReplicaError, text: &str) -> Error {
    let error = hinted(error, replica_hint);
    if target::is_named_by(&error, text) {
        return error.context("cannot open the replica");
    }
    error.context(format!("cannot open the replica {}", target::shown(text)))
}

/// Returns the folders with notes on the replicas of a store. The store's own folder in the cache
/// is one of them: builds before 0.1.0 kept a single note for all replicas there.
fn seen_in(own: &Path) -> Vec<PathBuf> {
    let places = std::fs::read_dir(own.join(SEEN)).into_iter().flatten().flatten();
    std::iter::once(own.to_owned()).chain(places.map(|place| place.path())).collect()
}

/// The relation of a replica's history to that of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// The replica was compared with no store; only the notes of this machine can tell.
    Unknown,
    /// The replica has the history of the store with which it was compared.
    Own,
    /// The replica has another history than the store with which it was compared.
    Other,
}

/// Compares a replica with this machine's notes on its store, and notes its present state. Returns
/// a notice if the replica is older. `store` was opened in the replica, or in a clone of it. A
/// replica with another history leaves no note: the target may be the user's own, filled by
/// somebody else, and about to be cleared.
pub(crate) fn rollback(store: &Store, there: &ReplicaHome, history: History, text: &str) -> Option<Notice> {
    if history == History::Other {
        return None;
    }
    let (replica, notes) = (target::shown(text), there.world.storage.as_ref());
    if !store.vault().has_newest_noted_in(notes).unwrap_or(false) {
        return Some(Notice::OlderThanSeen { replica });
    }
    // A machine that has seen this replica has a note on it. For a new replica the notes on the
    // other replicas count, unless the history is known.
    let is_new = history == History::Unknown && !store.vault().has_noted_newest_in(notes);
    let lacks = |seen: &RealStorage| !store.vault().has_newest_noted_in(seen).unwrap_or(false);
    if is_new && there.seen_elsewhere.iter().any(lacks) {
        return Some(Notice::OlderThanElsewhere { replica });
    }
    if let Err(error) = store.vault().note_newest_seen_in(notes) {
        tracing::warn!(%error, "the state of the replica could not be recorded");
    }
    None
}

#[cfg(test)]
mod tests {
    use varve_block::with_causes;

    use super::*;

    #[test]
    fn a_replica_that_does_not_open_is_named_without_its_password() {
        for (text, shown) in [("sftp://u:hunter2@h/x", "sftp://u@h/x"), ("foo://u:hunter2@h", "foo://...@h")]
        {
            let said = with_causes(cannot_open(OpenReplicaError::Mark, text).as_ref());
            assert_eq!(said, format!("cannot open the replica {shown}: replica.toml is damaged"));
        }
    }
}
