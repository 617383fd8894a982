//! A clock that jumps, between nights and in the middle of one. No night is lost, no note is
//! believed for too long, and nothing panics.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use varve_archive::{Archive, SnapshotRequest, Verified, verify};
use varve_block::{Block, BlockStore, BlockType};
use varve_content::Progress;
use varve_content::folder::{FolderOptions, Watch};
use varve_log::ArenaMap;
use varve_store::{Encryption, PassphraseCost, Store, StoreAccess, StoreConfig};
use varve_upkeep::AuditShare;
use varve_world::{Clock, InlineWorkers, MemoryStorage, Random, RealRandom, SeededRandom, Timestamp, World};

const DAY: i64 = 86_400_000_000_000;
/// A night in 2026.
const TONIGHT: i64 = 20_600 * DAY;

/// A clock that shows one moment after the other, and stays at the last.
struct Jumping {
    moments: Vec<i64>,
    asked: AtomicUsize,
}

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        let place = self.asked.fetch_add(1, Ordering::Relaxed);
        Timestamp(self.moments[place.min(self.moments.len() - 1)])
    }
}

fn world(storage: &MemoryStorage, moments: &[i64]) -> World {
    // A writer asks once when it gets the lock, before the night begins.
    let moments = moments.iter().take(1).chain(moments).copied().collect();
    World {
        storage: Arc::new(storage.clone()),
        clock: Arc::new(Jumping { moments, asked: AtomicUsize::new(0) }),
        random: Arc::new(RealRandom),
        workers: Arc::new(InlineWorkers),
    }
}

fn store() -> MemoryStorage {
    let storage = MemoryStorage::new();
    let arena_map = ArenaMap::new(1 << 20).unwrap();
    let config = StoreConfig { encryption: Encryption::None, arena_map, ..StoreConfig::new([5; 16]) };
    Store::create(&world(&storage, &[TONIGHT]), &config, None, PassphraseCost::default()).unwrap();
    storage
}

fn open(storage: &MemoryStorage, moments: &[i64]) -> Archive {
    let access = StoreAccess::Write { holder: "a test" };
    Archive::open(Store::open(world(storage, moments), None, access, &mut |_| {}).unwrap()).unwrap()
}

#[test]
fn every_night_is_kept_whatever_the_clock_says() {
    let (storage, folder) = (store(), tempfile::tempdir().unwrap());
    let nights = [
        vec![TONIGHT],
        // The clock's battery is empty.
        vec![0],
        vec![i64::MAX],
        vec![i64::MIN],
        // The clock jumps in the middle of a night, in both directions.
        vec![TONIGHT, 0],
        vec![TONIGHT, i64::MAX],
        vec![i64::MAX, i64::MIN],
        vec![i64::MIN, i64::MAX],
        vec![TONIGHT + DAY],
    ];
    for (number, moments) in nights.iter().enumerate() {
        fs::write(folder.path().join("letter"), format!("night {number}")).unwrap();
        let mut archive = open(&storage, moments);
        let progress = Progress::new();
        let watch = Watch { progress: &progress, report: &|problem| panic!("{problem:?}") };
        let request = SnapshotRequest { name: "home".into(), ..SnapshotRequest::default() };
        let taken = archive.take_folder(folder.path(), FolderOptions::default(), request, watch).unwrap();
        assert_eq!(taken.snapshot.time, Timestamp(moments[0]), "it shows the moment at which it was begun");
        assert!(taken.snapshot.growth.unwrap().new_bytes > 0, "tonight's letter was read");
        archive.close().unwrap();
    }
    let archive = open(&storage, &[TONIGHT]);
    let times: Vec<_> = archive.snapshots().iter().map(|snapshot| snapshot.time.0).collect();
    assert_eq!(
        times,
        nights.iter().map(|moments| moments[0]).collect::<Vec<_>>(),
        "in the order in which they were taken"
    );
    let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new()).unwrap();
    assert!(verified.damage.is_empty() && verified.harm.is_empty(), "{verified:?}");
}

/// Verifies all arenas that were not verified in the last month, by this clock.
fn monthly(storage: &MemoryStorage, now: i64) -> Verified {
    let archive = open(storage, &[now]);
    let share = AuditShare { not_since: Some(Timestamp(now.saturating_sub(30 * DAY))), share: 1.0 };
    verify(&archive, Some(share), &Progress::new()).unwrap()
}

#[test]
fn a_check_that_was_noted_in_the_future_is_made_again() {
    let storage = store();
    let archive = open(&storage, &[TONIGHT]);
    for number in 0..60 {
        let mut bytes = vec![0; 64 << 10];
        SeededRandom::new(number).fill(&mut bytes).unwrap();
        archive.store().put(Block { block_type: BlockType::DATA, bytes: &bytes }).unwrap();
    }
    archive.close().unwrap();
    let all = monthly(&storage, TONIGHT).read_count;
    assert!(all >= 3, "{all} arenas");
    // The arena that is still being written is read each time.
    assert_eq!(monthly(&storage, TONIGHT + DAY).read_count, 1, "all others were read yesterday");
    assert_eq!(
        monthly(&storage, TONIGHT + 9000 * DAY).read_count,
        all,
        "the clock is ahead, and nobody can know"
    );
    let back = monthly(&storage, TONIGHT + 2 * DAY);
    assert_eq!(back.read_count, all, "twenty-four years would be a long time without a check");
    assert_eq!(monthly(&storage, TONIGHT + 3 * DAY).read_count, 1);
}
