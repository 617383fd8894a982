//! Plans the removal of earlier generations, and carries it out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use varve_log::{ArenaId, Log};
use varve_remote::{Erased, Object, ObjectLock, Observer, Target, TargetError};
use varve_store::{Permission, Secret, Store, StoreAccess, UnsealedScans, newest_ledger};
use varve_upkeep::Checker;
use varve_world::{FileName, Timestamp, World};

use crate::audit::{AuditFindingKind, ClumpShare, ReplicaToAudit, audit};
use crate::dropping::drop_error::DropError;
use crate::dropping::proof::{NotProven, ProofError, prove};
use crate::objects::record_ends::ArenaRecords;
use crate::reading::replica::Replica;
use crate::reading::replica_storage::ReplicaStorage;
use crate::replication::error::ReplicateError;
use crate::replication::replication_plan::{ReplicationPlan, SupersededGeneration};
use crate::replication::replication_source::ReplicationSource;
use crate::replication::superseded_since::SupersededSince;
use crate::replication::upload::lock;

/// The earlier generations at a target that are to be removed. Nothing has been changed yet.
#[derive(Debug, Default)]
pub struct DropPlan {
    /// The generations that are to be removed now.
    pub due: Vec<SupersededGeneration>,
    /// The generations that are not old enough, each with the time until which it stays.
    pub waiting: Vec<(SupersededGeneration, Timestamp)>,
}

/// The result of a removal.
#[derive(Debug, Default)]
pub struct Dropped {
    /// The removed objects.
    pub removed: Vec<Object>,
    /// Objects that the target protects, each with its lock.
    pub locked: Vec<(Object, ObjectLock)>,
    /// Objects that the target refused to remove, for another reason.
    pub refused: Vec<(FileName, TargetError)>,
    /// Arenas whose earlier generations stay, since their present one is not proven whole there.
    pub kept: Vec<(ArenaId, NotProven)>,
    /// True if the caller cancelled the removal. The rest is removed by the next one.
    pub is_cancelled: bool,
}

impl Dropped {
    /// Returns the length of the removed objects in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.removed.iter().map(|object| object.bytes).sum()
    }
}

impl DropPlan {
    /// Selects the earlier generations that this machine has known as superseded for `age`.
    #[must_use]
    pub fn new(
        source: ReplicationSource<'_>,
        target: &dyn Target,
        plan: &ReplicationPlan,
        age: Duration,
    ) -> Self {
        let now = source.world.clock.now();
        let since = SupersededSince::read(source.world.storage.as_ref(), source.log.keys(), target);
        let mut drop_plan = Self::default();
        for older in &plan.superseded {
            let since = since.since(older.arena, older.generation).unwrap_or(now);
            let until = since.plus(age);
            if until <= now {
                drop_plan.due.push(older.clone());
            } else {
                drop_plan.waiting.push((older.clone(), until));
            }
        }
        drop_plan
    }

    /// Returns the length of the objects that are due, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.due.iter().map(SupersededGeneration::bytes).sum()
    }

    /// Removes the generations that are due. Before that, audits headers, pages, seals and ledger
    /// of the store and of the replica, and reads the present generation of each arena back. May
    /// be stopped at any moment and repeated.
    ///
    /// `dropped` has the removed objects also if this fails.
    ///
    /// # Errors
    /// [`DropError`] if the key may not remove anything, the store or the replica is damaged, or a
    /// read fails.
    pub fn apply(
        &self,
        source: ReplicationSource<'_>,
        secret: Option<&Secret>,
        target: &Arc<dyn Target>,
        observer: &dyn Observer,
        dropped: &mut Dropped,
    ) -> Result<(), DropError> {
        if self.due.is_empty() {
            return Ok(());
        }
        let _lock = lock(source)?;
        audit_store(source, secret)?;
        let there = AuditedReplica::open(source.world, secret, target, observer)?;
        let mut removal = Removal { source, target, observer, dropped, removed: Vec::new() };
        let done = removal.run(&self.due, &there);
        // Removals are recorded even if a later one has failed.
        let removed = removal.removed;
        let recorded = record_removed(source, target.as_ref(), &removed);
        done.and(recorded)
    }
}

/// Refuses a store with a damaged header, page or seal, or whose seals are not those that were
/// counted.
fn audit_store(source: ReplicationSource<'_>, secret: Option<&Secret>) -> Result<(), DropError> {
    let store = Store::open(source.world.clone(), secret, StoreAccess::Read, &mut |_| {});
    let store = store.map_err(DropError::OpenStore)?;
    store.role().require(Permission::Destroy)?;
    if let Some(damage) = Checker::of(&store).check_order()?.into_iter().next() {
        return Err(DropError::OrderDamaged { arena: damage.arena, reason: damage.kind });
    }
    // A crash left it before its header was written.
    let never_begun = source.log.never_begun().map_err(ReplicateError::from)?;
    for arena in source.log.arenas()? {
        let records =
            source.log.open_arena(arena).and_then(|opened| ArenaRecords::read_left(source.log, &opened));
        match records {
            Ok(ArenaRecords { damage: Some(reason), .. }) => {
                return Err(DropError::StoreDamaged { arena, reason });
            }
            Ok(_) => {}
            Err(error) if error.is_damage() && never_begun.contains(&arena) => {}
            Err(error) if error.is_damage() => {
                return Err(DropError::StoreDamaged { arena, reason: error.into() });
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A replica whose structure is whole.
struct AuditedReplica {
    replica: Arc<Replica>,
    /// The number of seals that its last page counts.
    counted: u64,
}

impl AuditedReplica {
    fn open(
        world: &World,
        secret: Option<&Secret>,
        target: &Arc<dyn Target>,
        observer: &dyn Observer,
    ) -> Result<Self, DropError> {
        let replica = Arc::new(Replica::open(Arc::clone(target))?);
        let storage = Arc::new(ReplicaStorage::new(Arc::clone(&replica), None, None));
        let world = World { storage, ..world.clone() };
        let open = || {
            let (_, log) = Store::unlock(&world, secret)?;
            Ok((log, Store::open(world.clone(), secret, StoreAccess::Read, &mut |_| {})?))
        };
        let (log, store): (Log, Store) = open().map_err(DropError::OpenStoreThere)?;
        let audited = ReplicaToAudit { replica: &replica, world: &world, store: &store, log: &log };
        let mut findings = audit(audited, ClumpShare::NONE, observer)?.findings;
        // An object of somebody else harms no arena.
        findings.retain(|finding| !matches!(finding.kind, AuditFindingKind::Stranger));
        let count = findings.len();
        if let Some(first) = findings.into_iter().next() {
            return Err(DropError::ReplicaDamaged { count, first: Box::new(first) });
        }
        let ids = log.arenas()?;
        let ledger = newest_ledger(store.vault(), &ids, &mut UnsealedScans::new(&log)).ledger;
        Ok(Self { replica, counted: ledger.map_or(0, |ledger| ledger.arena_count) })
    }
}

/// A running removal.
struct Removal<'a> {
    source: ReplicationSource<'a>,
    target: &'a Arc<dyn Target>,
    observer: &'a dyn Observer,
    dropped: &'a mut Dropped,
    /// The generations of which nothing is left.
    removed: Vec<(ArenaId, u32)>,
}

impl Removal<'_> {
    fn run(&mut self, due: &[SupersededGeneration], there: &AuditedReplica) -> Result<(), DropError> {
        let mut by_arena: BTreeMap<ArenaId, Vec<&SupersededGeneration>> = BTreeMap::new();
        for older in due {
            by_arena.entry(older.arena).or_default().push(older);
        }
        for (arena, older) in by_arena {
            if self.observer.is_cancelled() {
                self.dropped.is_cancelled = true;
                break;
            }
            match self.prove(arena, &older, there)? {
                Ok(()) => older.into_iter().try_for_each(|older| self.remove(older))?,
                Err(reason) => self.dropped.kept.push((arena, reason)),
            }
        }
        Ok(())
    }

    fn prove(
        &self,
        arena: ArenaId,
        older: &[&SupersededGeneration],
        there: &AuditedReplica,
    ) -> Result<Result<(), NotProven>, DropError> {
        let Some(present) = there.replica.arenas().get(&arena) else { return Ok(Err(NotProven::Incomplete)) };
        if older.iter().any(|older| older.generation >= present.generation) {
            return Ok(Err(NotProven::OtherGeneration));
        }
        prove(self.source, self.target, arena, present, there.counted).map_err(|error| match error {
            ProofError::Read(error) => error.into(),
            ProofError::Target(error) => error.into(),
        })
    }

    fn remove(&mut self, older: &SupersededGeneration) -> Result<(), DropError> {
        let mut is_all_gone = true;
        for object in &older.objects {
            match self.target.erase(&object.name) {
                Ok(Erased::Gone) => self.dropped.removed.push(object.clone()),
                // Somebody else was faster.
                Err(TargetError::NotFound { .. }) => {}
                Ok(Erased::Locked(lock)) => {
                    is_all_gone = false;
                    self.dropped.locked.push((object.clone(), lock));
                }
                Err(error @ TargetError::Refused { .. }) => {
                    is_all_gone = false;
                    self.dropped.refused.push((object.name.clone(), error));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if is_all_gone {
            tracing::info!(
                arena = %older.arena,
                generation = older.generation,
                bytes = older.bytes(),
                target = %self.target,
                "removed an earlier generation from a replica"
            );
            self.removed.push((older.arena, older.generation));
        }
        Ok(())
    }
}

fn record_removed(
    source: ReplicationSource<'_>,
    target: &dyn Target,
    removed: &[(ArenaId, u32)],
) -> Result<(), DropError> {
    if removed.is_empty() {
        return Ok(());
    }
    let (storage, keys, now) = (source.world.storage.as_ref(), source.log.keys(), source.world.clock.now());
    let mut record = SupersededSince::read(storage, keys, target);
    removed.iter().for_each(|(arena, generation)| record.note_removed(*arena, *generation, now));
    record.write(storage, keys, target).map_err(DropError::Record)
}
