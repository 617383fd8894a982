//! Healing of a store that is read: its lost blocks come from the replicas that it remembers.

use std::sync::Arc;

use anyhow::{Result, bail};
use varve_archive::{Archive, Catalog};
use varve_block::{BlockName, BlockStore, with_causes};
use varve_replica::{HealingStore, RememberedTargets};
use varve_store::{Permission, Store, StoreAccess, StoreConfig};
use varve_world::RealStorage;

use crate::notice::Notice;
use crate::session::CommandSession;
use crate::store_location::StoreLocation;
use crate::target::{self, NamedBy};

/// Reading a store that may have lost blocks.
impl CommandSession {
    /// Opens the store for reading, with its catalog. If a part of the catalog is lost here, it
    /// comes from a replica.
    ///
    /// # Errors
    /// When the store does not open, or the key does not permit reading.
    pub fn read(&self) -> Result<Archive> {
        let store = Arc::new(self.read_store()?);
        store.role().require(Permission::Read)?;
        let blocks = blocks(self, Arc::clone(&store));
        let catalog = Catalog::load_of(&store, &*blocks);
        self.report_lost(&blocks);
        Ok(Archive::with_catalog(store, catalog?))
    }

    /// Returns the blocks of a store. Lost blocks come from the replicas that the store remembers.
    #[must_use]
    pub fn healing(&self, archive: &Archive) -> Arc<HealingStore> {
        blocks(self, archive.blocks())
    }

    /// Reports the blocks that came from a replica since the last call, and stores them in the
    /// local store again.
    pub fn report_lost(&self, blocks: &HealingStore) {
        let lost = blocks.take_lost();
        if lost.is_empty() {
            return;
        }
        self.notice(&Notice::ReadFromReplica { block_count: lost.len() });
        self.notice(&match heal(self, blocks, &lost) {
            Ok(block_count) => Notice::StoredAgain { block_count },
            Err(error) => Notice::NotStoredAgain { reason: with_causes(error.as_ref()) },
        });
    }
}

fn blocks(session: &CommandSession, store: Arc<Store>) -> Arc<HealingStore> {
    let (session, config) = (session.clone(), store.config().clone());
    Arc::new(HealingStore::new(store, Box::new(move || open_remembered(&session, &config))))
}

fn heal(session: &CommandSession, blocks: &HealingStore, lost: &[BlockName]) -> Result<u64> {
    // A reader does not wait for a writer: without the lock, healing fails at once.
    let store = session.without_waiting().write_store()?;
    let count = blocks.heal(&store, lost)?;
    store.close()?;
    Ok(count)
}

fn open_remembered(session: &CommandSession, config: &StoreConfig) -> Vec<Box<dyn BlockStore>> {
    let Ok(StoreLocation::Folder(path)) = session.home() else { return Vec::new() };
    let targets = match RememberedTargets::read(&RealStorage::new(&path)) {
        Ok(remembered) => remembered.targets,
        Err(error) => {
            tracing::warn!(%error, "the remembered replicas cannot be read, so lost blocks cannot be fetched from them");
            return Vec::new();
        }
    };
    let mut stores: Vec<Box<dyn BlockStore>> = Vec::new();
    for text in targets {
        match open_replica(session, &text, config) {
            Ok(store) => stores.push(Box::new(store)),
            Err(error) => session.notice(&Notice::ReplicaUnavailable {
                replica: target::shown(&text),
                reason: with_causes(error.as_ref()),
            }),
        }
    }
    stores
}

fn open_replica(session: &CommandSession, text: &str, config: &StoreConfig) -> Result<Store> {
    let there = session.replica(text, NamedBy::Store)?;
    let shown = target::shown(text);
    if there.replica.config()?.binding() != config.binding() {
        bail!("{shown} is a replica of another store");
    }
    let secret = session.secret_of(&there.world, &shown)?;
    session.open_store(there.world, &shown, secret.as_ref(), StoreAccess::Read)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::recorded::Recorded;

    #[test]
    fn a_replica_that_cannot_be_asked_is_named_without_its_password() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        fs::create_dir(&store).unwrap();
        // The program writes no passwords to this file, but its user can.
        let targets = r#"targets = ["foo://u:hunter2@h", "s3://b11?endpoint=http://u:hunter2@h"]"#;
        fs::write(store.join("replicas.toml"), targets).unwrap();
        let frontend = Recorded::answering(&[]);
        assert!(open_remembered(&frontend.session(&store), &StoreConfig::new([7; 16])).is_empty());
        let notices = frontend.notices.lock();
        assert_eq!(notices.len(), 2, "{notices:?}");
        for notice in &*notices {
            assert!(matches!(notice, Notice::ReplicaUnavailable { .. }), "{notice:?}");
            let shown = notice.to_string();
            assert!(shown.contains("://...@h") && !format!("{notice:?}").contains("hunter2"), "{shown}");
        }
    }
}
