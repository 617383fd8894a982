//! Collections: in one go, or in batches between which anything else happens.

use varve_archive::{CollectOptions, Collection, ForeignRoots, PriceFile, Snapshot, SnapshotId};
use varve_block::with_causes;
use varve_content::Progress;
use varve_replica::{DropPlan, Dropped, ReplicateOptions, ReplicationPlan, ReplicationSource};
use varve_store::{LeaseHolder, LeasedSnapshots, Store, StoreAccess, take_lease};
use varve_upkeep::{FILTER_BYTES_DEFAULT, ReclaimBudget};
use varve_world::Timestamp;

use crate::case::{Case, Checked, Reader, broken};
use crate::model::Fate;
use crate::session;

fn options(arenas_max: u32) -> CollectOptions {
    let batch_bytes = if arenas_max == u32::MAX { u64::MAX } else { u64::from(arenas_max) };
    CollectOptions {
        budget: ReclaimBudget { least_dead: 0.0, batch_bytes, ..ReclaimBudget::default() },
        filter_bytes: FILTER_BYTES_DEFAULT,
        young_since: None,
        prices: PriceFile::default(),
        foreign: Some(ForeignRoots::None),
        trusts_clock: true,
    }
}

impl Case {
    /// Plans without the lock, beside a writer if one is active.
    pub fn plan_collection(&mut self, arenas_max: u32) -> Checked {
        self.collection = None;
        let planned = self.open(StoreAccess::Read).and_then(|reader| {
            Collection::plan(&reader, options(arenas_max), &Progress::new())
                .map_err(|error| with_causes(&error))
        });
        match planned {
            Ok(collection) => {
                self.tell(|| format!("a collection of {} batches", collection.report().plan.batches.len()));
                self.collection = Some(collection);
                Ok(())
            }
            Err(text) => self.excused(&text),
        }
    }

    /// Carries out the next batch, in a session of its own.
    pub fn apply_batch(&mut self) -> Checked {
        let Some(mut collection) = self.collection.take() else { return Ok(()) };
        if collection.is_done() {
            return Ok(());
        }
        self.close()?;
        self.open_writer()?;
        self.model.forget_rootless();
        if let Some(there) = &mut self.second_home.promised {
            there.forget_rootless();
        }
        self.collected_count += 1;
        let expired = self.labels_in_trash(&collection.report().expired);
        self.model.durable.may_be(&expired, &[Fate::Gone]);
        let archive = self.writer.as_mut().expect("it was opened");
        match collection.apply(archive, Timestamp(i64::MAX), &Progress::new()) {
            Ok(batch) => {
                self.settle_places();
                if let Some((arena, error)) = batch.failed.first() {
                    let text = format!("arena {arena}: {}", with_causes(error));
                    self.tell(|| text.clone());
                    self.excused(&text)?;
                }
                if let Some(grown) = batch.replaced.iter().find(|arena| arena.new_bytes > arena.old_bytes) {
                    return Err(broken(format!("a collection has made an arena longer: {grown:?}")));
                }
                *self.cures.entry("arenas were rewritten").or_default() += batch.replaced.len() as u64;
                self.tell(|| format!("rewritten: {:?}", batch.replaced));
                self.collection = Some(collection);
                self.close()
            }
            Err(error) => {
                self.excused(&with_causes(&error))?;
                self.end_session();
                Ok(())
            }
        }
    }

    pub fn collect(&mut self, arenas_max: u32) -> Checked {
        self.plan_collection(arenas_max)?;
        while self.collection.is_some() && !self.disk.is_down() {
            self.apply_batch()?;
        }
        Ok(())
    }

    /// The labels of these snapshots, as far as the writer has them in the trash.
    fn labels_in_trash(&self, ids: &[SnapshotId]) -> Vec<String> {
        let trash = self.writer().trash().iter().map(|trashed| &trashed.snapshot);
        let is_one = |snapshot: &&Snapshot| ids.contains(&snapshot.id);
        trash.filter(is_one).map(|snapshot| session::label(snapshot).to_owned()).collect()
    }

    // ---- readers

    /// Opens a reader, as a mount does: what its snapshots need stays as long as it is open.
    pub fn open_leased_reader(&mut self) -> Checked {
        self.open_reader()?;
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let ids = LeasedSnapshots::of(reader.archive.snapshots().iter().map(|snapshot| snapshot.id.0));
        let world = reader.archive.store().world();
        reader.lease = take_lease(world, &LeaseHolder::new("model", 1), &ids);
        Ok(())
    }

    /// A reader from before a collection reads on. A snapshot that is gone may be unreadable, if
    /// no lease protects it.
    pub fn check_after_collections(&self, reader: &Reader) -> Checked {
        let is_gone = |snapshot: &&Snapshot| {
            let fates = self.model.durable.forgotten.get(session::label(snapshot));
            fates.is_some_and(|fates| fates.contains(&Fate::Gone))
        };
        let snapshots = reader.archive.snapshots().iter().rev();
        let whole = snapshots.filter(|snapshot| reader.lease.is_some() || !is_gone(snapshot)).take(2);
        whole.into_iter().try_for_each(|snapshot| self.check_snapshot(&reader.archive, snapshot))
    }

    // ---- the replica

    /// Brings the replica up to date, and removes from it what rewritten arenas have superseded.
    pub fn drop_superseded(&mut self) -> Checked {
        self.replicate()?;
        if let Err(text) = self.try_to_drop() {
            self.excused(&text)?;
        }
        self.disarm();
        self.restart();
        self.note_struck();
        self.open_writer()?;
        self.replicate()?;
        self.close()?;
        let left = self.try_to_drop().map_err(|text| broken(format!("cannot be dropped: {text}")))?;
        if left > 0 {
            return Err(broken(format!("{left} superseded generations are still at the replica")));
        }
        self.check_second_home()
    }

    /// Returns the number of superseded generations that stay.
    fn try_to_drop(&mut self) -> Result<usize, String> {
        let world = self.world();
        let secret = session::secret(&self.config);
        let (config, log) = Store::unlock(&world, secret.as_ref()).map_err(|error| with_causes(&error))?;
        let source = ReplicationSource { world: &world, config: &config, log: &log };
        let target = self.second_home.target.shared();
        let list = || {
            ReplicationPlan::new(source, &target, &ReplicateOptions::default())
                .map_err(|error| with_causes(&error))
        };
        let plan = DropPlan::new(source, &*target, &list()?, std::time::Duration::ZERO);
        let mut dropped = Dropped::default();
        self.second_home.target.allow_removal(true);
        let done = plan.apply(source, secret.as_ref(), &target, &(), &mut dropped);
        self.second_home.target.allow_removal(false);
        done.map_err(|error| with_causes(&error))?;
        self.tell(|| format!("dropped: {dropped:?}"));
        Ok(list()?.superseded.len())
    }
}
