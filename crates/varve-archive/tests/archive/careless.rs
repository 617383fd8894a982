//! Collectors that each leave out one safety step. Each loses something, and the checks of the
//! other tests notice it. Together with all steps the same collector loses nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use varve_archive::{ForeignRoots, ForgetError, LiveRoots, SnapshotId, mark, verify};
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, Score};
use varve_content::Progress;
use varve_log::ArenaId;
use varve_store::{Keyring, NewKey, Role, Store, note_fingerprint};
use varve_upkeep::{
    ArenaMeter, AuditShare, BatchLimits, FILTER_BYTES_DEFAULT, LiveBlocks, ReclaimPlan, Reclaimer,
};
use varve_world::{MemoryStorage, Random, SeededRandom, Timestamp};

use crate::collecting::{options, read};
use crate::live_blocks::{COST, config, open, secret, take_image, world, write_only_secret};

/// A step of a collection without which something is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SafetyStep {
    /// The snapshots in the trash are roots until their undo has ended.
    Trash,
    /// Snapshots that came since the plan are marked under the lock.
    MarkDifference,
    /// Barren blocks are noted before the first arena is replaced.
    NoteBarren,
    /// The undo of what is freed is ended before.
    EndUndo,
    /// The catalog is written at the end of the log, so that no arena that is replaced has its
    /// newest root.
    WriteCatalog,
}

fn image(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 2 << 20];
    SeededRandom::new(number).fill(&mut bytes).unwrap();
    bytes
}

/// The state of a store while it is collected.
struct CarelessCollection {
    storage: MemoryStorage,
    forgotten: Vec<SnapshotId>,
    /// The arenas of a machine that may only add. One has the newest root of the catalog.
    added: BTreeSet<ArenaId>,
    /// A pointer block in the arena that still grows, above blocks that nothing needs.
    pointer: BlockName,
    below: Vec<BlockName>,
}

impl CarelessCollection {
    /// A store of which three nights are in the trash. The first two are no roots any more.
    fn new() -> Self {
        let storage = MemoryStorage::new();
        Store::create(&world(&storage, 1), &config(0), Some(&secret()), COST).unwrap();
        let mut archive = open(&storage, 2, &secret());
        let leaf = BlockType::leaf(BlockKind::Data);
        let put = |block_type, bytes: &[u8]| {
            let score = archive.store().put(Block { block_type, bytes }).unwrap();
            BlockName { score, block_type }
        };
        let below: Vec<_> = (0..40).map(|number| put(leaf, &image(1000 + number)[..8192])).collect();
        let nights = [("gone", 1), ("gone too", 5), ("in the trash", 2), ("kept", 3)];
        for (name, number) in nights {
            take_image(&mut archive, name, &image(number));
        }
        let ids: Vec<_> = archive.snapshots()[..3].iter().map(|snapshot| snapshot.id).collect();
        let forgotten: Result<_, ForgetError> =
            archive.forget(&ids[..2], Timestamp(-100), Duration::ZERO, "a test");
        forgotten.unwrap();
        archive.forget(&ids[2..], Timestamp(-100), Duration::from_secs(3600), "a test").unwrap();
        // Forgetting has begun a new arena, of the version that has notes.
        let scores: Vec<u8> = below.iter().flat_map(|name| name.score.as_bytes()).copied().collect();
        let block = Block { block_type: BlockType::at_depth(BlockKind::Data, 1).unwrap(), bytes: &scores };
        let score: Score = archive.store().put(block).unwrap();
        let pointer = BlockName { score, block_type: block.block_type };
        archive.close().unwrap();
        let keyring = Keyring::of(&world(&storage, 3)).unwrap();
        let by = keyring.unlock(&secret()).unwrap();
        let key = NewKey { secret: &write_only_secret(), cost: COST, label: "", role: Role::WriteOnly };
        keyring.add(&by, &key).unwrap();
        Self { storage, forgotten: ids, added: BTreeSet::new(), pointer, below }
    }

    /// A machine that may only add takes a night.
    fn add_night(&mut self) {
        let mut archive = open(&self.storage, 5, &write_only_secret());
        let before: BTreeSet<_> = archive.store().arenas().unwrap().into_iter().collect();
        take_image(&mut archive, "added", &image(4));
        let is_new = |arena: &ArenaId| !before.contains(arena);
        self.added = archive.store().arenas().unwrap().into_iter().filter(is_new).collect();
        archive.close().unwrap();
    }

    fn mark_roots(&self, store: &Store, live: &mut LiveBlocks, without: &BTreeSet<SnapshotId>) {
        let roots = LiveRoots::of(store, ForeignRoots::None, without).unwrap();
        mark(store, &roots, live, &Progress::new()).unwrap();
    }

    /// Collects without one of the steps.
    fn collect(&mut self, left_out: Option<SafetyStep>) {
        let reader = read(&self.storage, 10);
        let store = reader.store();
        let mut live = LiveBlocks::new(&SeededRandom::new(11), 100_000, FILTER_BYTES_DEFAULT).unwrap();
        let root_count = if left_out == Some(SafetyStep::Trash) { 3 } else { 2 };
        let without: BTreeSet<_> = self.forgotten[..root_count].iter().copied().collect();
        self.mark_roots(store, &mut live, &without);
        let meter = ArenaMeter::new(store, &live);
        let measured: Vec<_> = store.arenas().unwrap().iter().map(|id| meter.measure(*id).unwrap()).collect();
        let uses: Vec<_> = measured.iter().map(|measured| measured.usage.clone()).collect();
        let barren: BTreeSet<_> = measured.iter().flat_map(|measured| measured.barren.clone()).collect();
        let plan = ReclaimPlan::new(&uses, &options().budget);
        assert!(!plan.batches.is_empty());
        drop(reader);

        // Somebody takes the first night again: all its blocks are still there.
        let mut archive = open(&self.storage, 12, &secret());
        take_image(&mut archive, "taken again", &image(1));
        archive.close().unwrap();

        if left_out != Some(SafetyStep::EndUndo) {
            let mut archive = open(&self.storage, 14, &secret());
            assert_eq!(archive.expire_trash(Timestamp(0), true).unwrap(), self.forgotten[..2]);
            archive.close().unwrap();
        }
        self.add_night();
        let mut archive = open(&self.storage, 13, &secret());
        if left_out != Some(SafetyStep::WriteCatalog) {
            archive.write_root().unwrap();
        }
        let store = archive.store();
        if left_out != Some(SafetyStep::MarkDifference) {
            self.mark_roots(store, &mut live, &without);
        }
        let reclaimer = Reclaimer::of(store).unwrap();
        if left_out != Some(SafetyStep::NoteBarren) {
            let dead = barren.iter().filter(|name| !live.contains(name));
            let fingerprints: BTreeSet<_> = dead.map(note_fingerprint).collect();
            reclaimer.note_barren(&fingerprints.into_iter().collect::<Vec<_>>()).unwrap();
        }
        let limits = BatchLimits { written_bytes: u64::MAX, until: Timestamp(i64::MAX) };
        let planned = plan.batches.iter().map(|batch| batch.arenas.iter().map(|arena| arena.arena).collect());
        let batches: Vec<Vec<_>> = planned.chain([self.added.iter().copied().collect()]).collect();
        for arenas in batches {
            let done = reclaimer.replace(&arenas, &|name| live.contains(name), limits, &|| false).unwrap();
            assert!(done.failed.is_empty(), "{:?}", done.failed);
        }
        archive.close().unwrap();
    }

    /// Returns what is lost, after the snapshots in the trash were brought back.
    fn losses(&self) -> Vec<String> {
        let mut archive = open(&self.storage, 20, &secret());
        let trash: Vec<_> = archive.trash().iter().map(|trashed| trashed.snapshot.id).collect();
        archive.undo_forget(&trash).unwrap();
        let mut losses: Vec<_> = verify(&archive, Some(AuditShare::ALL), &Progress::new())
            .unwrap()
            .harm
            .iter()
            .map(|harm| harm.snapshot_name.clone())
            .collect();
        losses.dedup();
        let is_listed = |name: &&str| archive.snapshots().iter().any(|snapshot| snapshot.name == **name);
        let kept = ["in the trash", "kept", "taken again", "added"].into_iter();
        losses.extend(kept.filter(|name| !is_listed(name)).map(|name| format!("{name} is not listed")));
        let has = |names: &[BlockName]| archive.store().has_batch(names).unwrap();
        if has(&[self.pointer])[0] && has(&self.below).contains(&false) {
            losses.push("below a block that is there".into());
        }
        losses
    }
}

#[test]
fn each_safety_step_is_needed() {
    for (left_out, lost) in [
        (None, [].as_slice()),
        (Some(SafetyStep::Trash), &["in the trash"]),
        (Some(SafetyStep::MarkDifference), &["taken again", "added"]),
        (Some(SafetyStep::NoteBarren), &["below a block that is there"]),
        (Some(SafetyStep::EndUndo), &["gone too"]),
        (Some(SafetyStep::WriteCatalog), &["added is not listed"]),
    ] {
        let mut collection = CarelessCollection::new();
        collection.collect(left_out);
        assert_eq!(collection.losses(), lost, "{left_out:?}");
    }
}
