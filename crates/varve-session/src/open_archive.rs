//! Read access to a store, a replica, or blocks at a Venti server.

use std::sync::Arc;

use anyhow::Result;
use varve_archive::{Archive, CollectedError, Snapshot, SnapshotHome, SnapshotList, lacks_block};
use varve_block::with_causes;
use varve_remote::VentiStore;
use varve_replica::HealingStore;
use varve_store::{HeldLease, LeasedSnapshots, Store, Vault};
use varve_venti::Address;
use varve_world::Workers;

use crate::hinted::Hinted;
use crate::leased_snapshots::{LeaseScope, LeaseTaker, LeasedSnapshotList};
use crate::session::CommandSession;
use crate::store_location::StoreLocation;
use crate::venti_home::VentiHome;

/// Snapshots, and the blocks of which they are made.
pub struct OpenArchive {
    list: Box<dyn SnapshotList>,
    blocks: Arc<HealingStore>,
    workers: Arc<dyn Workers>,
    leases: LeaseTaker,
    /// `None` if a server holds the snapshots.
    store: Option<Arc<Store>>,
}

impl OpenArchive {
    /// Returns all snapshots.
    pub fn snapshots(&self) -> &[Snapshot] {
        self.list.snapshots()
    }

    /// Returns the list itself under a lease. It can also be asked for newer snapshots.
    pub fn into_leased(self, scope: LeaseScope) -> LeasedSnapshotList<Box<dyn SnapshotList>> {
        LeasedSnapshotList::new(self.list, self.leases, scope)
    }

    /// Takes a lease on snapshots that are read from now on. `None` if there can be none here.
    ///
    /// # Errors
    /// One of them was forgotten before there was a lease, so a collector may not keep it.
    pub fn lease(&self, snapshots: &[&Snapshot]) -> Result<Option<HeldLease>> {
        let ids = snapshots.iter().map(|snapshot| snapshot.id.0);
        let Some(lease) = self.leases.take(&LeasedSnapshots::of(ids)) else { return Ok(None) };
        match self.first_unlisted(snapshots) {
            Some(error) => Err(error),
            None => Ok(Some(lease)),
        }
    }

    /// Returns the blocks. Lost blocks come from replicas, if the store has any.
    pub fn blocks(&self) -> Arc<HealingStore> {
        Arc::clone(&self.blocks)
    }

    /// Explains the failure to read a snapshot: if a block is gone and the newest catalog does not
    /// list the snapshot, it was collected meanwhile. Any other error stays as it is.
    #[must_use]
    pub fn explain_missing(&self, snapshot: &Snapshot, error: anyhow::Error) -> anyhow::Error {
        let collected = lacks_block(error.as_ref()).then(|| self.collected(snapshot)).flatten();
        collected.unwrap_or(error)
    }

    /// Returns the error for a snapshot that the newest catalog no longer lists; `None` if it is
    /// listed, or if that cannot be found out.
    #[must_use]
    pub fn collected(&self, snapshot: &Snapshot) -> Option<anyhow::Error> {
        self.first_unlisted(&[snapshot])
    }

    /// Returns the error for the first of these snapshots that the newest catalog does not list.
    fn first_unlisted(&self, snapshots: &[&Snapshot]) -> Option<anyhow::Error> {
        match self.newest_list(self.store.as_ref()?) {
            Ok(list) => {
                let unlisted = snapshots.iter().find(|snapshot| !list.is_in_catalog(&snapshot.id))?;
                Some(Hinted::new(CollectedError::new(unlisted), CollectedError::HINT).into())
            }
            Err(error) => {
                let error = with_causes(error.as_ref());
                tracing::warn!(error, "it is unknown whether the snapshots still exist");
                None
            }
        }
    }

    fn newest_list(&self, store: &Arc<Store>) -> Result<Archive> {
        store.follow()?;
        Ok(Archive::open_through(Arc::clone(store), Arc::clone(&self.blocks) as _)?)
    }

    /// Returns the settings, keys and hints of the store; `None` if a server holds the snapshots.
    pub fn vault(&self) -> Option<&Vault> {
        self.store.as_ref().map(|store| store.vault())
    }

    /// Returns the workers of the store.
    pub fn workers(&self) -> &dyn Workers {
        self.workers.as_ref()
    }
}

/// Opening snapshots.
impl CommandSession {
    /// Opens the snapshots of the store and their blocks for reading.
    ///
    /// # Errors
    /// When the store or its catalog does not open.
    pub fn reading(&self) -> Result<OpenArchive> {
        if let StoreLocation::Venti(address) = self.home()? {
            let (archive, blocks) = self.venti_snapshots(&address)?;
            let blocks = Arc::new(HealingStore::new(blocks, Box::new(Vec::new)));
            return Ok(OpenArchive {
                blocks,
                workers: Arc::clone(&archive.home().world().workers),
                list: Box::new(archive),
                leases: LeaseTaker::new(None),
                store: None,
            });
        }
        let archive = self.read()?;
        Ok(OpenArchive {
            blocks: self.healing(&archive),
            workers: Arc::clone(&archive.store().world().workers),
            leases: LeaseTaker::new(Some(archive.store().world().clone())),
            store: Some(archive.blocks()),
            list: Box::new(archive),
        })
    }

    /// Opens the snapshots at a Venti server. Returns the server's blocks, too.
    ///
    /// # Errors
    /// When the server cannot be reached, or its catalog cannot be read.
    pub fn venti_snapshots(&self, address: &Address) -> Result<(Archive<VentiHome>, Arc<VentiStore>)> {
        let blocks = self.venti(address)?;
        let archive = VentiHome::open(self.roots(address)?, Arc::clone(&blocks) as _)?;
        Ok((archive, blocks))
    }

    /// Opens the home of the snapshots for new ones: a store on this machine, or a Venti server.
    ///
    /// # Errors
    /// When the home or its catalog does not open, or another writer has held it for longer than
    /// the session waits.
    pub fn write_home(&self) -> Result<Archive<dyn SnapshotHome>> {
        let StoreLocation::Venti(address) = self.home()? else { return Ok(self.write()?.of_any_kind()) };
        let roots = self.until_free(None, || self.roots(&address)?.lock())?;
        Ok(VentiHome::open(roots, self.venti(&address)?)?.of_any_kind())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use varve_archive::SnapshotRequest;
    use varve_content::Progress;
    use varve_content::folder::StreamOwner;
    use varve_store::{Encryption, PassphraseCost, StoreConfig, held_leases};
    use varve_world::{Timestamp, World};

    use super::*;
    use crate::recorded::Recorded;

    fn take(archive: &mut Archive, name: &str) {
        let request = SnapshotRequest { name: name.into(), ..SnapshotRequest::default() };
        let owner = StreamOwner { uid: 0, gid: 0, time: Timestamp(0) };
        archive.take_stream(&mut name.as_bytes(), owner, request, &Progress::new()).unwrap();
    }

    #[test]
    fn a_lease_that_comes_too_late_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("store");
        std::fs::create_dir(&place).unwrap();
        let config = StoreConfig { encryption: Encryption::None, ..StoreConfig::new([5; 16]) };
        Store::create(&World::real(&place), &config, None, PassphraseCost::default()).unwrap();
        let session = Recorded::answering(&[]).session(&place);
        let mut writer = session.write().unwrap();
        ["one", "two"].iter().for_each(|name| take(&mut writer, name));
        writer.close().unwrap();

        let reader = session.reading().unwrap();
        let [one, two] = reader.snapshots() else { panic!("two snapshots were taken") };
        let leases = || held_leases(&*World::real(&place).storage).unwrap().len();
        let lease = reader.lease(&[one, two]).unwrap();
        assert_eq!((lease.is_some(), leases()), (true, 1));
        drop(lease);
        // The list was read before this, and the lease is taken after it.
        let mut writer = session.write().unwrap();
        writer.forget(&[one.id], Timestamp(0), Duration::ZERO, "").unwrap();
        writer.close().unwrap();
        let refused = reader.lease(&[two, one]).unwrap_err();
        assert!(CollectedError::is_cause_of(refused.as_ref()), "{refused:#}");
        assert_eq!(leases(), 0);
        assert!(reader.lease(&[two]).unwrap().is_some());
    }
}
