//! Leases of this process on the snapshots that it shows or reads.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Arc, Weak};

use varve_archive::{Snapshot, SnapshotId, SnapshotList};
use varve_store::{HeldLease, LeaseHolder, LeasedSnapshots, take_lease};
use varve_world::{Clock, World};

use crate::host::host_name;
use crate::session::CommandSession;

/// Looks at the list until its lease fits.
const LOOKS_MAX: usize = 4;

/// Takes the leases of this process on snapshots of one store.
#[derive(Clone)]
pub(crate) struct LeaseTaker {
    /// `None` for snapshots that are in no store's folder.
    world: Option<World>,
    holder: LeaseHolder,
}

impl LeaseTaker {
    pub(crate) fn new(world: Option<World>) -> Self {
        Self { world, holder: LeaseHolder::new(&host_name(), std::process::id()) }
    }

    pub(crate) fn take(&self, snapshots: &LeasedSnapshots) -> Option<HeldLease> {
        take_lease(self.world.as_ref()?, &self.holder, snapshots)
    }
}

/// The snapshots that a lease covers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LeaseScope {
    /// All snapshots of the list, and those in use.
    Listed,
    /// The snapshots in use.
    Used,
}

/// A list of snapshots under a lease, which changes with the list.
///
/// A snapshot that leaves the list leaves the lease, too, unless it is known to be in use. The days
/// for which a forgotten snapshot can be brought back then protect it a while longer.
pub struct LeasedSnapshotList<L> {
    list: L,
    scope: LeaseScope,
    taker: LeaseTaker,
    used: BTreeMap<SnapshotId, Weak<()>>,
    /// The lease, and the snapshots that it covers.
    lease: Option<(HeldLease, LeasedSnapshots)>,
    /// The list has changed, and its user has not been told.
    has_news: bool,
}

impl CommandSession {
    /// Puts a list of snapshots under a lease. `world` is that of the store which holds them;
    /// `None` if a server holds them.
    pub fn leased<L: SnapshotList>(
        &self,
        list: L,
        world: Option<World>,
        scope: LeaseScope,
    ) -> LeasedSnapshotList<L> {
        LeasedSnapshotList::new(list, LeaseTaker::new(world), scope)
    }
}

impl<L: SnapshotList> LeasedSnapshotList<L> {
    pub(crate) fn new(list: L, taker: LeaseTaker, scope: LeaseScope) -> Self {
        let mut leased = Self { list, scope, taker, used: BTreeMap::new(), lease: None, has_news: false };
        leased.renew();
        // Without the new look, a snapshot could have been collected before there was a lease.
        leased.settle();
        leased.has_news = false;
        leased
    }

    /// Looks at the list after a change of the lease, until the list does not change.
    fn settle(&mut self) {
        for _ in 0..LOOKS_MAX {
            match self.list.follow() {
                Ok(true) => {
                    self.has_news = true;
                    if !self.renew() {
                        return;
                    }
                }
                Ok(false) => return,
                Err(error) => {
                    tracing::debug!(%error, "the list of snapshots was not read again under its lease");
                    return;
                }
            }
        }
    }

    /// Makes the lease fit the list. Returns whether there is a new one.
    fn renew(&mut self) -> bool {
        self.used.retain(|_, user| user.strong_count() > 0);
        let used = self.used.keys().map(|id| id.0);
        let listed = match self.scope {
            LeaseScope::Listed => self.list.snapshots(),
            LeaseScope::Used => &[],
        };
        let ids: BTreeSet<_> = used.chain(listed.iter().map(|snapshot| snapshot.id.0)).collect();
        if ids.is_empty() {
            self.lease = None;
            return false;
        }
        let snapshots = LeasedSnapshots::of(ids);
        if self.lease.as_ref().is_some_and(|(_, covered)| *covered == snapshots) {
            return false;
        }
        // If the new lease cannot be taken, the old one still covers most of the snapshots.
        let Some(lease) = self.taker.take(&snapshots) else { return false };
        self.lease = Some((lease, snapshots));
        true
    }
}

impl<L: SnapshotList> SnapshotList for LeasedSnapshotList<L> {
    fn snapshots(&self) -> &[Snapshot] {
        self.list.snapshots()
    }

    fn follow(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        if self.list.follow()? {
            self.has_news = true;
            if self.renew() {
                self.settle();
            }
        }
        Ok(std::mem::take(&mut self.has_news))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.list.clock()
    }

    fn is_in_catalog(&self, id: &SnapshotId) -> bool {
        self.list.is_in_catalog(id)
    }

    fn note_use(&mut self, id: &SnapshotId) -> Arc<()> {
        if let Some(user) = self.used.get(id).and_then(Weak::upgrade) {
            return user;
        }
        let user = Arc::new(());
        self.used.insert(*id, Arc::downgrade(&user));
        if self.renew() {
            self.settle();
        }
        user
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use varve_archive::{Archive, SnapshotRequest};
    use varve_content::Progress;
    use varve_content::folder::StreamOwner;
    use varve_store::{Encryption, PassphraseCost, Store, StoreAccess, StoreConfig, held_leases};
    use varve_world::{FixedClock, MemoryStorage, Storage, Timestamp};

    use super::*;

    /// A list that finds the next of these lists at each look, and then no change.
    struct Scripted {
        now: Vec<Snapshot>,
        next: VecDeque<Vec<Snapshot>>,
    }

    impl SnapshotList for Scripted {
        fn snapshots(&self) -> &[Snapshot] {
            &self.now
        }

        fn follow(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
            let Some(next) = self.next.pop_front() else { return Ok(false) };
            let is_new = next != self.now;
            self.now = next;
            Ok(is_new)
        }

        fn clock(&self) -> Arc<dyn Clock> {
            Arc::new(FixedClock(Timestamp(0)))
        }
    }

    fn world(storage: &MemoryStorage) -> World {
        World::deterministic(Arc::new(storage.clone()), 7)
    }

    /// Three snapshots.
    fn snapshots() -> Vec<Snapshot> {
        let world = world(&MemoryStorage::new());
        let config = StoreConfig { encryption: Encryption::None, ..StoreConfig::new([5; 16]) };
        Store::create(&world, &config, None, PassphraseCost::default()).unwrap();
        let access = StoreAccess::Write { holder: "a test" };
        let mut archive = Archive::open(Store::open(world, None, access, &mut |_| {}).unwrap()).unwrap();
        for number in 0..3 {
            let request = SnapshotRequest { name: format!("{number}"), ..SnapshotRequest::default() };
            let owner = StreamOwner { uid: 0, gid: 0, time: Timestamp(0) };
            archive.take_stream(&mut &b"some"[..], owner, request, &Progress::new()).unwrap();
        }
        archive.snapshots().to_vec()
    }

    fn list(now: &[Snapshot], next: &[&[Snapshot]]) -> Scripted {
        Scripted { now: now.to_vec(), next: next.iter().map(|next| next.to_vec()).collect() }
    }

    /// Returns for each snapshot whether it is protected.
    fn protected(storage: &MemoryStorage, all: &[Snapshot]) -> Vec<bool> {
        let leases = held_leases(storage).unwrap();
        let is_protected =
            |snapshot: &Snapshot| leases.iter().any(|lease| lease.snapshots.protects(&snapshot.id.0));
        all.iter().map(is_protected).collect()
    }

    #[test]
    fn the_lease_follows_the_list() {
        let (all, storage) = (snapshots(), MemoryStorage::new());
        let next = [&all[..1], &all[..2], &all[1..], &[]];
        let taker = LeaseTaker::new(Some(world(&storage)));
        // The first look follows the lease, and finds nothing new.
        let mut leased = LeasedSnapshotList::new(list(&all[..1], &next), taker, LeaseScope::Listed);
        assert_eq!(protected(&storage, &all), [true, false, false]);
        assert!(leased.follow().unwrap());
        assert_eq!(leased.snapshots(), []);
        // A snapshot that came and went while the lease was changed is not leased any more.
        assert_eq!(protected(&storage, &all), [false, false, false]);
        assert!(!leased.follow().unwrap());
        drop(leased);
        assert_eq!(storage.list("leases").unwrap(), []);
    }

    #[test]
    fn a_snapshot_in_use_stays_in_the_lease_when_it_leaves_the_list() {
        let (all, storage) = (snapshots(), MemoryStorage::new());
        for (scope, is_listed) in [(LeaseScope::Listed, true), (LeaseScope::Used, false)] {
            let next = [&all[..], &all[..], &all[..], &all[1..]];
            let taker = LeaseTaker::new(Some(world(&storage)));
            let mut leased = LeasedSnapshotList::new(list(&all, &next), taker, scope);
            assert_eq!(protected(&storage, &all), [is_listed; 3]);
            let user = leased.note_use(&all[0].id);
            assert!(Arc::ptr_eq(&user, &leased.note_use(&all[0].id)));
            assert_eq!(protected(&storage, &all), [true, is_listed, is_listed]);
            while leased.snapshots().len() == 3 {
                leased.follow().unwrap();
            }
            assert_eq!(protected(&storage, &all), [true, is_listed, is_listed]);
            assert!(!leased.is_in_catalog(&all[0].id));
            drop(user);
            let other = leased.note_use(&all[1].id);
            assert_eq!(protected(&storage, &all), [false, true, is_listed]);
            drop((other, leased));
        }
    }

    #[test]
    fn a_change_that_is_found_while_the_lease_is_taken_is_reported_later() {
        let (all, storage) = (snapshots(), MemoryStorage::new());
        let taker = LeaseTaker::new(Some(world(&storage)));
        let mut leased = LeasedSnapshotList::new(list(&all, &[&all, &all[1..]]), taker, LeaseScope::Used);
        let _user = leased.note_use(&all[1].id);
        assert!(leased.follow().unwrap(), "its user still shows the list as it was");
        assert!(!leased.follow().unwrap());
    }

    #[test]
    fn a_list_without_a_folder_works_without_a_lease() {
        let all = snapshots();
        let mut leased = LeasedSnapshotList::new(
            list(&all, &[&all, &all[1..]]),
            LeaseTaker::new(None),
            LeaseScope::Listed,
        );
        assert!(leased.follow().unwrap());
        assert_eq!(leased.snapshots().len(), 2);
    }
}
