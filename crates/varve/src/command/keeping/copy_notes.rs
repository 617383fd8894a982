//! Notes of replications and verifications on the copies of a store, for `varve snapshots`.

use varve_archive::{Archive, SnapshotId};
use varve_block::with_causes;
use varve_daily::CopyRecord;
use varve_store::{Permission, Secret, StoreAccess};
use varve_world::World;

use crate::invocation::Invocation;

/// A store whose copies are looked at.
pub(super) struct CopyNotes(Archive);

impl CopyNotes {
    /// Opens a store, if its key may read. Of a copy that is brought up to date afterwards, the
    /// present snapshots are known to be there.
    pub(super) fn open(
        invocation: &Invocation,
        world: &World,
        name: &str,
        secret: Option<&Secret>,
    ) -> Option<Self> {
        let store = invocation.session.open_store(world.clone(), name, secret, StoreAccess::Read).ok()?;
        if !store.role().allows(Permission::Read) {
            return None;
        }
        Archive::open(store).ok().map(Self)
    }

    /// Notes that a copy was brought up to date.
    pub(super) fn brought_up_to_date(&self, address: &str) {
        let held = self.0.snapshots().iter().map(|snapshot| snapshot.id);
        self.note(|record| record.note_held(address, held));
    }

    /// Notes that a copy was verified. `held` are its snapshots; `None` if something is wrong with
    /// it.
    pub(super) fn verified(&self, address: &str, held: Option<Vec<SnapshotId>>, has_read_all: bool) {
        let now = self.0.store().world().clock.now();
        self.note(|record| match held {
            Some(held) => record.note_verified(address, held, now, has_read_all),
            None => record.note_damaged(address),
        });
    }

    fn note(&self, change: impl FnOnce(&mut CopyRecord)) {
        let vault = self.0.store().vault();
        let mut record = CopyRecord::read(vault);
        change(&mut record);
        if let Err(error) = record.save(vault) {
            let error = with_causes(&error);
            tracing::warn!(error, "the record of copies could not be saved");
        }
    }
}
