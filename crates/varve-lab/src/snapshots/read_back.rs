//! Restores whole disks from the store with all snapshots, as in Foundation's Figure 9.

use anyhow::{Result, ensure};
use serde::Serialize;
use varve_block::{BlockName, BlockStore, BlockType};
use varve_sim::DeviceTimes;
use varve_store::{Store, StoreAccess};

use super::setting::SnapshotSetting;
use super::take::{TakenSnapshots, block};
use super::workload::BLOCK_BYTES;

/// The order in which the blocks of a disk are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum RestoreOrder {
    /// One by one, in the order of the disk.
    Unsorted,
    /// 1024 at a time. The engine reads them in the order of the log.
    Sort1024,
    /// All, in the order of the log.
    Sorted,
}

/// The sum of all restored disks.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct RestoredDisks {
    order: RestoreOrder,
    disks: u64,
    blocks: u64,
    nanoseconds: u64,
    of_index: DeviceTimes,
    of_log: DeviceTimes,
}

/// Restores all disks that were kept, in each order that the engine knows.
pub(super) fn restore_all(taken: &TakenSnapshots, setting: &SnapshotSetting) -> Result<Vec<RestoredDisks>> {
    let orders: &[RestoreOrder] = match (setting.is_paper, setting.engine_name) {
        (true, "value") => &[RestoreOrder::Unsorted, RestoreOrder::Sort1024, RestoreOrder::Sorted],
        (true, _) => &[RestoreOrder::Unsorted],
        (false, _) => &[RestoreOrder::Sort1024],
    };
    orders.iter().map(|order| restore_in(*order, taken, setting)).collect()
}

fn restore_in(
    order: RestoreOrder,
    taken: &TakenSnapshots,
    setting: &SnapshotSetting,
) -> Result<RestoredDisks> {
    let mut sum = RestoredDisks {
        order,
        disks: 0,
        blocks: 0,
        nanoseconds: 0,
        of_index: DeviceTimes::default(),
        of_log: DeviceTimes::default(),
    };
    for disk in taken.disks.values() {
        taken.storage.forget();
        let store = Store::open(taken.world.clone(), None, StoreAccess::Read, &mut |_| ())?;
        store.bound_caches(setting.cache_bytes);
        let _opening = taken.storage.take_times();
        let started = taken.clock.nanoseconds();
        let mut contents = disk.clone();
        if order == RestoreOrder::Sorted {
            // Contents are numbered in the order of the log.
            contents.sort_unstable();
        }
        let together = if order == RestoreOrder::Unsorted { 1 } else { 1024 };
        for batch in contents.chunks(together) {
            let names: Vec<_> = batch
                .iter()
                .map(|content| BlockName {
                    score: taken.names[*content as usize],
                    block_type: BlockType::DATA,
                })
                .collect();
            for (content, found) in batch.iter().zip(store.get_batch(&names)) {
                let found = found?;
                let is_it = found.len() == BLOCK_BYTES as usize
                    && found[8..16] == block(*content).number.to_le_bytes();
                ensure!(is_it, "the engine returns another block than it was given");
            }
        }
        let [of_index, of_log] = taken.storage.take_times();
        sum.of_index += of_index;
        sum.of_log += of_log;
        sum.nanoseconds += taken.clock.nanoseconds() - started;
        sum.disks += 1;
        sum.blocks += disk.len() as u64;
    }
    Ok(sum)
}
