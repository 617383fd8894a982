//! The work that a workload makes at the end of its years, for each kind of store.

use serde::Serialize;

use super::inputs::{ServiceLevel, WorkloadProfile};
use crate::cost::{Case, CaseCost, DataShape, SplitCost, engine, split_cost};
use crate::engine::Engine;
use crate::plan::{FILTER_ENTRY_BYTES, MEMORY_ENTRY_BYTES, PROCESS_BYTES, Processor};

/// Memory of an index on disk without its filter, in bytes: the default of `varve init`.
const INDEX_MEMORY_BYTES: f64 = 192.0 * 1024.0 * 1024.0;
/// The share of the arenas' drives that stays free.
pub(super) const FREE_SHARE: f64 = 0.1;
/// A pass writes the index's file anew beside the old one.
const INDEX_FILES: f64 = 2.0;
const DAYS_PER_YEAR: f64 = 365.25;

/// The size of a store after some years.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StoreNeeds {
    /// Bytes of the disks and folders at the end.
    pub source_bytes: f64,
    /// Bytes that a snapshot reads at the end.
    pub snapshot_bytes: f64,
    /// Bytes of these that the store does not have yet.
    pub new_bytes: f64,
    /// Bytes of the arenas at the end.
    pub log_bytes: f64,
    /// Blocks in the store at the end.
    pub block_count: f64,
}

impl StoreNeeds {
    pub(super) fn of(profile: &WorkloadProfile, years: f64) -> Self {
        let growth = 1.0 + profile.growth_per_year;
        let source_bytes = profile.source_bytes * growth.powf(years);
        // The sum of the source's size over all years: the integral of `growth.powf(t)`.
        let summed = match growth.ln() {
            flat if flat.abs() < 1e-9 => years,
            rate => (growth.powf(years) - 1.0) / rate,
        };
        let changes = profile.source_bytes
            * summed
            * DAYS_PER_YEAR
            * profile.snapshots_per_day
            * profile.changed_share
            * profile.kept_share;
        let first = profile.source_bytes * (1.0 - profile.duplicate_share);
        let grown = (source_bytes - profile.source_bytes).max(0.0);
        let block_bytes = f64::from(profile.block_bytes);
        let block_count = ((first + grown + changes) / block_bytes).max(1.0);
        let read = profile.read_share.max(profile.changed_share);
        Self {
            source_bytes,
            snapshot_bytes: source_bytes * read,
            new_bytes: source_bytes * profile.changed_share,
            log_bytes: block_count * (block_bytes * profile.stored_share + engine::PAGE_ENTRY_BYTES),
            block_count,
        }
    }
}

/// The work of one kind of store, in units that candidates divide by the speed of their parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct EngineDemand {
    pub engine: Engine,
    /// The work of a whole snapshot.
    pub snapshot: SplitCost,
    /// Seconds of one core.
    pub snapshot_core: f64,
    /// The work of restoring one byte.
    pub restore: SplitCost,
    pub restore_core: f64,
    /// The work of one single read.
    pub look: SplitCost,
    pub look_core: f64,
    /// Bytes of the process with its index.
    pub memory_bytes: f64,
    /// Bytes of the index's files, while one of them is written anew.
    pub index_bytes: f64,
}

/// All demands of a workload.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    pub needs: StoreNeeds,
    pub engines: Vec<EngineDemand>,
    /// Bytes of one frame, which a hit of the cache reads.
    pub frame_bytes: f64,
    pub looks_per_second: f64,
    pub hot_bytes: f64,
    pub hot_share: f64,
    /// Bytes that a snapshot moves over the network.
    pub network_bytes: f64,
    pub over_network: bool,
}

impl Demand {
    pub(super) fn of(profile: &WorkloadProfile, level: &ServiceLevel, processor: &Processor) -> Self {
        let needs = StoreNeeds::of(profile, level.years);
        let shape = DataShape {
            block_bytes: f64::from(profile.block_bytes),
            stored_share: profile.stored_share,
            block_count: needs.block_count,
            index_memory: INDEX_MEMORY_BYTES,
        };
        let allowed = |engine: &Engine| level.by_value || !engine.by_value;
        let engines = Engine::CHOICES.into_iter().filter(allowed);
        Self {
            needs,
            engines: engines.map(|engine| EngineDemand::of(engine, &needs, &shape, processor)).collect(),
            frame_bytes: shape.frame_bytes(),
            looks_per_second: profile.looks_per_second,
            hot_bytes: profile.hot_bytes,
            hot_share: profile.hot_share,
            network_bytes: if profile.over_network { needs.snapshot_bytes } else { 0.0 },
            over_network: profile.over_network,
        }
    }
}

impl EngineDemand {
    fn of(engine: Engine, needs: &StoreNeeds, shape: &DataShape, processor: &Processor) -> Self {
        let of_case = |case, blocks: f64| {
            let split = split_cost(engine, case, shape);
            let core = split.log.worked_bytes * blocks / processor.rate(engine, case);
            (SplitCost { log: times(split.log, blocks), index: times(split.index, blocks) }, core)
        };
        let new_blocks = needs.new_bytes / shape.block_bytes;
        let old_blocks = needs.snapshot_bytes / shape.block_bytes - new_blocks;
        let (new, new_core) = of_case(Case::FreshWrite, new_blocks);
        let (old, old_core) = of_case(Case::SequentialDuplicate, old_blocks);
        let (restore, restore_core) = of_case(Case::SequentialRead, 1.0 / shape.block_bytes);
        let (look, look_core) = of_case(Case::OutOfOrderRead, 1.0);
        let (memory_bytes, index_bytes) = match engine.index {
            varve_store::IndexKind::Memory => {
                let bytes = needs.block_count * MEMORY_ENTRY_BYTES;
                (bytes, bytes * INDEX_FILES)
            }
            varve_store::IndexKind::Disk => {
                let filter = needs.block_count * FILTER_ENTRY_BYTES;
                let file = needs.block_count * engine::INDEX_ENTRY_BYTES + filter;
                (INDEX_MEMORY_BYTES + filter, file * INDEX_FILES)
            }
        };
        Self {
            engine,
            snapshot: SplitCost { log: new.log + old.log, index: new.index + old.index },
            snapshot_core: new_core + old_core,
            restore,
            restore_core,
            look,
            look_core,
            memory_bytes: memory_bytes + PROCESS_BYTES,
            index_bytes,
        }
    }
}

fn times(cost: CaseCost, count: f64) -> CaseCost {
    CaseCost {
        seeks: cost.seeks * count,
        read_bytes: cost.read_bytes * count,
        written_bytes: cost.written_bytes * count,
        worked_bytes: cost.worked_bytes * count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::Example;

    #[test]
    fn a_store_grows_by_its_first_snapshot_its_growth_and_its_changes() {
        let mut profile = WorkloadProfile::parse(Example::Workload.text()).unwrap();
        (profile.source_bytes, profile.growth_per_year) = (1e12, 0.0);
        (profile.duplicate_share, profile.stored_share) = (0.0, 1.0);
        (profile.changed_share, profile.kept_share) = (0.01, 0.5);
        let needs = StoreNeeds::of(&profile, 2.0);
        // The first terabyte, and half of 730.5 times 10 GB.
        assert!((needs.block_count * 16384.0 / (1e12 + 730.5 * 5e9) - 1.0).abs() < 1e-9);
        assert!((needs.new_bytes - 1e10).abs() < 1.0);
        profile.growth_per_year = 1.0;
        let needs = StoreNeeds::of(&profile, 2.0);
        assert!((needs.source_bytes - 4e12).abs() < 1.0, "doubled twice");
        // The integral of 2^t from 0 to 2 is 3 / ln 2.
        let changes = 3.0 / 2_f64.ln() * 365.25 * 5e9;
        assert!((needs.block_count * 16384.0 / (4e12 + changes) - 1.0).abs() < 1e-9);
    }
}
