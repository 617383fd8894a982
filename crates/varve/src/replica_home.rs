//! A replica that is read in place, and what this machine has seen of a store's replicas.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Error, Result};
use varve_block::to_hex;
use varve_replica::{OpenReplicaError, RangeCache, Replica, ReplicaStorage, name_for_notes};
use varve_store::Store;
use varve_world::{MemoryStorage, RealStorage, Storage, World};

use crate::arguments::{Arguments, Command};
use crate::target::{self, NamedBy};
use crate::user_folders;

/// How much of a replica is kept in memory while it is verified.
const VERIFY_CACHE_BYTES: u64 = 64 << 20;
/// Below a store's folder in the cache: a folder for each replica, with what was seen there.
const SEEN: &str = "seen";

/// A replica, and the world in which it is a store to be read.
pub struct ReplicaHome {
    pub replica: Arc<Replica>,
    pub world: World,
    /// What this machine has seen at other replicas of the store.
    seen_elsewhere: Vec<RealStorage>,
}

/// Opens a target as the world of a store that is only read.
pub fn open(arguments: &Arguments, text: &str, named_by: NamedBy) -> Result<ReplicaHome> {
    let there = target::open(text, named_by, None)?;
    let shown = target::shown(text);
    let not_opened = |error| cannot_open(error, text);
    let replica = Arc::new(Replica::open(there).map_err(not_opened)?);
    // Who verifies is told with all else that was found.
    if !matches!(arguments.command, Command::Verify(_)) {
        replica.in_the_way().iter().for_each(|found| remark!("varve: {shown}: {found}"));
    }
    let id = replica.config().map_err(not_opened)?.id;
    let own = cache_folder(arguments).map(|folder| folder.join(to_hex(&id)));
    // Two copies of a store may go different ways: what is seen at the replica of one says nothing of the other's.
    let place = name_for_notes(replica.target().as_ref());
    let seen = own.as_ref().map(|own| own.join(SEEN).join(place));
    let mut elsewhere = own.as_deref().map(seen_in).unwrap_or_default();
    elsewhere.retain(|folder| Some(folder) != seen.as_ref());
    // Who verifies asks the replica itself, and not what was there once; what is read twice is kept while it lasts.
    let cache = match arguments.command {
        Command::Verify(_) => Some(RangeCache::new(Arc::new(MemoryStorage::new()), VERIFY_CACHE_BYTES)),
        _ => own.map(|own| RangeCache::new(Arc::new(RealStorage::new(&own)), arguments.cache_size)),
    };
    let hints = seen.map(|seen| Arc::new(RealStorage::new(&seen)) as Arc<dyn Storage>);
    let storage = Arc::new(ReplicaStorage::new(Arc::clone(&replica), cache, hints));
    let world = World { storage, ..World::real(Path::new("")) };
    let seen_elsewhere = elsewhere.iter().map(|folder| RealStorage::new(folder)).collect();
    Ok(ReplicaHome { replica, world, seen_elsewhere })
}

fn cannot_open(error: OpenReplicaError, text: &str) -> Error {
    let error = Error::from(error);
    if target::is_named_by(&error, text) {
        return error.context("cannot open the replica");
    }
    error.context(format!("cannot open the replica {}", target::shown(text)))
}

/// The folders that tell what was seen at the replicas of a store, below its folder in the cache; that one too: builds before 0.1.0 kept one
/// note for all of them, there.
fn seen_in(own: &Path) -> Vec<PathBuf> {
    let places = std::fs::read_dir(own.join(SEEN)).into_iter().flatten().flatten();
    std::iter::once(own.to_owned()).chain(places.map(|place| place.path())).collect()
}

/// Where this machine keeps what it has read and seen of replicas.
pub fn cache_folder(arguments: &Arguments) -> Option<PathBuf> {
    arguments.cache.clone().or_else(user_folders::cache)
}

/// What is known of the history that a replica holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Nothing but what this machine has seen at replicas.
    Unknown,
    /// It is that of a store that it was compared with.
    Own,
    /// It is not that of the store that it was compared with.
    Other,
}

/// Notices a replica that is older than what this machine has seen of its store, and remembers what it sees now. What is at a replica of
/// another history is not remembered: the place may be one's own, to be cleared of what somebody else has put there.
pub fn notice_rollback(store: &Store, there: &ReplicaHome, history: History, text: &str) -> bool {
    if history == History::Other {
        return false;
    }
    let text = target::shown(text);
    if !store.newest_is_there().unwrap_or(false) {
        remark!(
            "varve: {text} does not have the newest that this machine has seen there: it was put back to an older state, or has lost \
             its end"
        );
        return true;
    }
    // Who has seen a place knows what to expect of it. Of a new one the others tell, if nothing better does.
    let is_new = history == History::Unknown && !store.has_noted_newest();
    let lacks = |seen: &RealStorage| !store.has_newest_noted_in(seen).unwrap_or(false);
    if is_new && there.seen_elsewhere.iter().any(lacks) {
        remark!(
            "varve: {text} does not have the newest that this machine has seen at another replica of the store: it was put back to an \
             older state, was not brought up to date, or holds another history of the store"
        );
        remark!("hint: `varve -s STORE verify --replica {text}` compares it with the store itself");
        return true;
    }
    if let Err(error) = store.note_newest_seen() {
        tracing::warn!(%error, "what is at the replica could not be noted");
    }
    false
}

/// Forgets what this machine has seen at replicas of a store that goes another way from now on.
pub fn forget_seen(arguments: &Arguments, store_id: &[u8; 16]) {
    let Some(folder) = cache_folder(arguments) else { return };
    for seen in seen_in(&folder.join(to_hex(store_id))) {
        let seen = seen.join("index/newest");
        match std::fs::remove_file(&seen) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, file = %seen.display(), "what was seen of the store cannot be forgotten");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_does_not_open_is_named_without_its_password() {
        for (text, shown) in [("sftp://u:hunter2@h/x", "sftp://u@h/x"), ("foo://u:hunter2@h", "foo://...@h")]
        {
            let said = format!("{:#}", cannot_open(OpenReplicaError::Mark, text));
            assert_eq!(said, format!("cannot open the replica {shown}: replica.toml is damaged"));
        }
    }
}
