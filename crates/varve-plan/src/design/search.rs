//! The search for the cheapest candidate. It tries all of them, and skips those that already cost
//! more than the best one before they are timed.

use std::cell::Cell;
use std::collections::BTreeMap;

use varve_store::IndexKind;

use super::candidate::{Architecture, Candidate, Drives, Judged, PlacedCache, PlacedIndex, Setting};
use super::inputs::HardwareTable;

/// Upper bound on the drives of an index of its own, and on those of a cache.
const EXTRA_DRIVES_MAX: u32 = 4;
/// Upper bound on the units of memory for a cache. Its sizes are powers of two.
const CACHE_UNITS_MAX: u32 = 1 << 12;

/// A candidate that meets the level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FoundDesign {
    pub candidate: Candidate,
    pub verdict: Judged,
}

/// Returns the number of candidates with enough space for the data.
pub(super) fn candidate_count(setting: &Setting<'_>) -> u64 {
    let mut count = 0;
    each(setting, |_| false, |_| count += 1);
    count
}

/// Returns the cheapest candidate that meets the level; of several, the first in the order of
/// trying.
pub(super) fn cheapest(setting: &Setting<'_>) -> Option<FoundDesign> {
    let best: Cell<Option<FoundDesign>> = Cell::new(None);
    let is_dear = |least: f64| best.get().is_some_and(|best| least >= best.verdict.cost);
    each(setting, is_dear, |candidate| {
        if let Some(verdict) = setting.judge(candidate)
            && best.get().is_none_or(|best| verdict.cost < best.verdict.cost)
        {
            best.set(Some(FoundDesign { candidate: *candidate, verdict }));
        }
    });
    best.get()
}

/// Returns the cheapest candidate of each architecture, the cheapest architecture first.
pub(super) fn cheapest_of_each(setting: &Setting<'_>) -> Vec<FoundDesign> {
    let mut best: BTreeMap<Architecture, FoundDesign> = BTreeMap::new();
    each(
        setting,
        |_| false,
        |candidate| {
            if let Some(verdict) = setting.judge(candidate) {
                let found = FoundDesign { candidate: *candidate, verdict };
                let known = best.entry(candidate.architecture()).or_insert(found);
                if verdict.cost < known.verdict.cost {
                    *known = found;
                }
            }
        },
    );
    let mut all: Vec<FoundDesign> = best.into_values().collect();
    all.sort_by(|one, other| one.verdict.cost.total_cmp(&other.verdict.cost));
    all
}

/// Visits all candidates in a fixed order. `is_dear` gets the cost of the parts that are chosen so
/// far, to which the rest can only add; if it agrees, all candidates with them are skipped.
fn each(setting: &Setting<'_>, is_dear: impl Fn(f64) -> bool, mut visit: impl FnMut(&Candidate)) {
    let (table, market) = (setting.table, setting.market);
    let all_caches = caches(table);
    for engine in 0..setting.demand.engines.len() {
        let places = indexes(setting.demand.engines[engine].engine.index, table);
        for (server, machine) in table.servers.iter().enumerate() {
            let least = market.servers[server] + market.core + market.memory;
            for drive in 0..table.drives.len() {
                for count in 1..=machine.slots {
                    let arenas = Drives { drive, count };
                    let least = least + market.drives(arenas);
                    if is_dear(least) {
                        break;
                    }
                    for index in &places {
                        let least = least + market.index(*index);
                        if is_dear(least) || !setting.holds(arenas, setting.arena_bytes(engine, *index)) {
                            continue;
                        }
                        for cache in &all_caches {
                            // The first unit of memory is bought in any case.
                            let saved =
                                if matches!(cache, PlacedCache::InMemory(_)) { market.memory } else { 0.0 };
                            if is_dear(least + market.cache(*cache) - saved) {
                                continue;
                            }
                            let candidate =
                                Candidate { engine, server, arenas, index: *index, cache: *cache };
                            visit(&candidate);
                        }
                    }
                }
            }
        }
    }
}

fn extra_drives(table: &HardwareTable) -> impl Iterator<Item = Drives> {
    let of_type = |drive| (1..=EXTRA_DRIVES_MAX).map(move |count| Drives { drive, count });
    (0..table.drives.len()).flat_map(of_type)
}

/// Returns the places for an index of some kind.
fn indexes(kind: IndexKind, table: &HardwareTable) -> Vec<PlacedIndex> {
    match kind {
        IndexKind::Memory => vec![PlacedIndex::InMemory],
        IndexKind::Disk => std::iter::once(PlacedIndex::BesideArenas)
            .chain(extra_drives(table).map(PlacedIndex::On))
            .collect(),
    }
}

fn caches(table: &HardwareTable) -> Vec<PlacedCache> {
    let most =
        table.servers.iter().map(|server| server.memory_bytes / table.memory.bytes).fold(0.0, f64::max);
    let units = std::iter::successors(Some(1_u32), |units| units.checked_mul(2));
    let units = units.take_while(|units| *units <= CACHE_UNITS_MAX && f64::from(*units) <= most);
    std::iter::once(PlacedCache::Nowhere)
        .chain(units.map(PlacedCache::InMemory))
        .chain(extra_drives(table).map(PlacedCache::On))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::candidate::Market;
    use super::super::demand::Demand;
    use super::super::inputs::{ServiceLevel, WorkloadProfile};
    use super::*;
    use crate::example::Example;
    use crate::plan::Processor;

    const PROCESSOR: Processor = Processor { put: 250e6, duplicate: 900e6, get: 600e6, compare: 350e6 };

    fn example() -> (WorkloadProfile, HardwareTable, ServiceLevel) {
        (
            WorkloadProfile::parse(Example::Workload.text()).unwrap(),
            HardwareTable::parse(Example::Devices2012.text()).unwrap(),
            ServiceLevel::parse(Example::Sla.text()).unwrap(),
        )
    }

    /// Asks with the example's inputs after a change.
    fn answer<T>(
        profile: &WorkloadProfile,
        table: &HardwareTable,
        level: &ServiceLevel,
        ask: impl Fn(&Setting<'_>) -> T,
    ) -> T {
        let demand = Demand::of(profile, level, &PROCESSOR);
        let market = Market::of(table, level.years, None);
        ask(&Setting { demand: &demand, table, market: &market, level })
    }

    /// Tries everything, in another order and without any bound.
    fn slow(setting: &Setting<'_>) -> Option<FoundDesign> {
        let table = setting.table;
        let counts = |most: u32| (1..=most).rev();
        let drives = |most: u32| {
            let all = (0..table.drives.len())
                .flat_map(move |drive| counts(most).map(move |count| Drives { drive, count }));
            all.collect::<Vec<_>>()
        };
        let mut best: Option<FoundDesign> = None;
        for (engine, demand) in setting.demand.engines.iter().enumerate() {
            for server in 0..table.servers.len() {
                for arenas in drives(table.servers[server].slots) {
                    let indexes = match demand.engine.index {
                        IndexKind::Memory => vec![PlacedIndex::InMemory],
                        IndexKind::Disk => {
                            let own = drives(4).into_iter().map(PlacedIndex::On);
                            own.chain([PlacedIndex::BesideArenas]).collect()
                        }
                    };
                    for index in indexes {
                        let memory = (0..10).map(|power| PlacedCache::InMemory(1 << power));
                        let caches = memory.chain([PlacedCache::Nowhere]);
                        for cache in caches.chain(drives(4).into_iter().map(PlacedCache::On)) {
                            let candidate = Candidate { engine, server, arenas, index, cache };
                            let Some(verdict) = setting.judge(&candidate) else { continue };
                            if best.is_none_or(|best| verdict.cost < best.verdict.cost) {
                                best = Some(FoundDesign { candidate, verdict });
                            }
                        }
                    }
                }
            }
        }
        best
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn the_search_is_as_good_as_a_slow_one(
            terabytes in 0.01_f64..1.0,
            changed in 0.0_f64..0.02,
            looks in 0.0_f64..3000.0,
            hot in 0.0_f64..1.0,
            hours in 0.5_f64..24.0,
            look_ms in 1.0_f64..60.0,
            restore in 1e6_f64..1e9,
            by_value: bool,
            prices in prop::array::uniform3(1.0_f64..800.0),
        ) {
            let (mut profile, mut table, mut level) = example();
            (profile.source_bytes, profile.changed_share) = (terabytes * 1e12, changed);
            (profile.looks_per_second, profile.hot_share) = (looks, hot);
            (level.snapshot_hours, level.look_ms) = (hours, look_ms);
            (level.restore_bytes_per_second, level.by_value) = (restore, by_value);
            for (drive, price) in table.drives.iter_mut().zip(prices) {
                drive.price = price;
            }
            let (fast, reference) = answer(&profile, &table, &level, |setting| (cheapest(setting), slow(setting)));
            let cost = |found: Option<FoundDesign>| found.map(|found| found.verdict.cost);
            prop_assert_eq!(cost(fast), cost(reference));
            let first = answer(&profile, &table, &level, |setting| cheapest_of_each(setting).first().copied());
            prop_assert_eq!(cost(fast), cost(first));
        }
    }

    /// A workload of one terabyte that never changes and does not compress.
    fn still() -> (WorkloadProfile, HardwareTable, ServiceLevel) {
        let (mut profile, table, mut level) = example();
        (profile.growth_per_year, profile.changed_share, profile.duplicate_share) = (0.0, 0.0, 0.0);
        (profile.source_bytes, profile.stored_share) = (1e12, 1.0);
        (profile.looks_per_second, profile.hot_share) = (0.0, 0.0);
        (level.snapshot_hours, level.restore_bytes_per_second, level.look_ms) = (1000.0, 1e6, 1000.0);
        (profile, table, level)
    }

    /// A first corner of scc's table, by hand: capacity alone. A terabyte in 61 million blocks is
    /// 1.002 TB of arenas, and 0.55 GB of index in memory with 1.1 GB of files. Three disks of 500
    /// GB, a tenth of them free, hold 1.35 TB, and two do not. They cost less for each byte than
    /// the others ($0.43 a gigabyte against 2.03 and 14.25), and fit into the smallest server.
    #[test]
    fn capacity_alone_takes_the_largest_disks() {
        let (profile, table, level) = still();
        let found = answer(&profile, &table, &level, cheapest).unwrap();
        assert_eq!(found.candidate.arenas, Drives { drive: 0, count: 3 });
        assert_eq!(table.servers[found.candidate.server].name, "Server1");
        assert_eq!(found.candidate.cache, PlacedCache::Nowhere);
        // Server1, three disks, one core and one gigabyte. The index in memory is 0.55 GB beside a
        // process of 0.2 GB.
        let by_hand = 1400.0 + 3.0 * 213.0 + 137.0 + 35.0;
        assert!((found.verdict.cost - by_hand).abs() < 1e-6, "{found:?}");
    }

    /// A second corner: the time of a single read. A table and a frame are two places: 16 ms on a
    /// 7.2K disk, 7.0 ms on a 15K disk, 0.8 ms on an SSD. With 10 ms, 20 GB lie on one 15K disk;
    /// with 5 ms on one SSD.
    #[test]
    fn fast_single_reads_take_faster_drives() {
        for (look_ms, drive, drives) in [(30.0, 0, 213.0), (10.0, 1, 296.0), (5.0, 2, 456.0)] {
            let (mut profile, table, mut level) = still();
            (profile.source_bytes, level.look_ms) = (20e9, look_ms);
            let found = answer(&profile, &table, &level, cheapest).unwrap();
            assert_eq!(found.candidate.arenas, Drives { drive, count: 1 }, "{look_ms} ms");
            let by_hand = 1400.0 + drives + 137.0 + 35.0;
            assert!((found.verdict.cost - by_hand).abs() < 1e-6, "{found:?}");
        }
    }

    /// A third corner: many single reads of few bytes. Of 2000 reads a second, 95 % go to 4 GB. 100
    /// are left for the arenas: two places each, 1.6 disks. Three disks are there for capacity.
    /// Without a cache, 2000 reads are 32 disks, which no server takes. So the cache is in memory:
    /// 4 GB of it, and 0.75 GB for the process and its index, are 5 units. The reads work for one
    /// core: 8 KiB frames at 600 MB/s.
    #[test]
    fn popular_bytes_are_cached_in_memory() {
        let (mut profile, table, level) = still();
        (profile.looks_per_second, profile.hot_bytes, profile.hot_share) = (2000.0, 4e9, 0.95);
        let found = answer(&profile, &table, &level, cheapest).unwrap();
        assert_eq!(found.candidate.cache, PlacedCache::InMemory(4), "{found:?}");
        assert_eq!(found.candidate.arenas, Drives { drive: 0, count: 3 });
        let by_hand = 1400.0 + 3.0 * 213.0 + 137.0 + 5.0 * 35.0;
        assert!((found.verdict.cost - by_hand).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn all_candidates_of_the_examples_are_few_enough_to_try() {
        let (profile, _, level) = example();
        let table = HardwareTable::parse(Example::Devices.text()).unwrap();
        let count = answer(&profile, &table, &level, candidate_count);
        assert!((1_000..200_000).contains(&count), "{count}");
    }
}
