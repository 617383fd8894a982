//! The choice of a store by figures. memventi's calc made such a choice for its index (Lukkien
//! 2008, section 7.2.1); this module covers every kind of store.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_index::FINGERPRINT_BITS_MIN;
use varve_log::GRANULE_BYTES;
use varve_store::{CompareMode, DiskIndexConfig, Encryption, IndexKind, PassphraseCost, Store, StoreConfig};
use varve_world::{Clock, MemoryStorage, RealWorkers, World};

use crate::cost::{Case, CaseCost, DataShape, cost, engine};
use crate::device::DeviceFigures;
use crate::engine::Engine;

/// Bytes of an entry of the index in memory, including all overhead (`cargo bench -p varve-index`).
pub(crate) const MEMORY_ENTRY_BYTES: f64 = 9.0;
/// Bytes of a block in the filter of an index on disk.
pub(crate) const FILTER_ENTRY_BYTES: f64 = 2.0;
/// Average number of entries in a segment of the index in memory.
const SEGMENT_BLOCKS: f64 = 16_384.0;
/// Memory of a process, in bytes, without its index.
pub(crate) const PROCESS_BYTES: f64 = 200e6;

/// The requirements for the store.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Requirements {
    /// Disk space for the store, in bytes.
    pub disk_bytes: u64,
    /// Average bytes of a block before compression.
    pub block_bytes: u32,
    /// The share of a block that remains after compression: 1 is all of it.
    pub stored_share: f64,
    /// The share of the archived data that the store already has.
    pub duplicate_share: f64,
    /// Memory for the store's process, in bytes.
    pub memory_bytes: u64,
    /// The part of that memory, in bytes, that an index on disk may take without its filter.
    pub index_memory: u64,
    /// At most one block in this many may share its fingerprint with an earlier block.
    pub collision_interval: Option<u64>,
    /// Memory limit for the index of an empty store, in bytes.
    pub empty_memory_bytes: Option<u64>,
}

/// A limit that a kind of store exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Misfit {
    /// Memory of the process with the index of the full store.
    Memory,
    /// Memory of the index of the empty store.
    EmptyMemory,
    /// The collision interval: too many blocks share a fingerprint.
    CollisionInterval,
}

/// The speed of the processor, in bytes of blocks per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// New blocks: hashing, compression and encryption.
    pub put: f64,
    /// Existing blocks: hashing and look-up.
    pub duplicate: f64,
    /// Blocks that are read: decryption, decompression and checking.
    pub get: f64,
    /// Existing blocks in a store by value: fingerprinting, look-up, and comparison with the
    /// decompressed block of the log.
    pub compare: f64,
}

impl Processor {
    /// Measures the engine with some blocks in memory: put, put again and get. Takes less than a
    /// second.
    ///
    /// # Panics
    /// If a store in memory fails.
    #[must_use]
    pub fn measure(clock: &dyn Clock, block_bytes: u32) -> Self {
        const BYTES: usize = 24 << 20;
        let block_bytes = block_bytes as usize;
        let workers = Arc::new(RealWorkers::one_a_core());
        let world = |compare| {
            let workers = Arc::clone(&workers) as _;
            let world = World { workers, ..World::deterministic(Arc::new(MemoryStorage::new()), 1) };
            let mut config = StoreConfig::new([0x1b; 16]);
            (config.encryption, config.compare) = (Encryption::None, compare);
            Store::create(&world, &config, None, PassphraseCost::default()).expect("there is memory");
            world
        };
        // A store that was just opened has no decompressed blocks in memory.
        let open = |world: &World| {
            let access = varve_store::StoreAccess::Write { holder: "varve-plan predict" };
            let store = Store::open(world.clone(), None, access, &mut |_| ()).expect("it was made above");
            // The measured reads model single reads in a disk image.
            store.expect_reads_in_pieces(true);
            store
        };
        // Half of each block compresses, as on most disks.
        let contents: Vec<Vec<u8>> = (0..BYTES / block_bytes)
            .map(|number| {
                let mut bytes = vec![0; block_bytes];
                let mut state = number as u64 + 1;
                for word in bytes[..block_bytes / 2].chunks_mut(8) {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    word.copy_from_slice(&(state ^ (state >> 33)).to_le_bytes()[..word.len()]);
                }
                bytes
            })
            .collect();
        let blocks: Vec<_> =
            contents.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
        let rate = |work: &mut dyn FnMut()| {
            let started = clock.now().0;
            work();
            BYTES as f64 / ((clock.now().0 - started) as f64 / 1e9).max(1e-6)
        };
        let put = |store: &Store| {
            let scores = blocks.chunks(256).flat_map(|some| store.put_batch(some).expect("there is memory"));
            let name = |score| BlockName { score, block_type: BlockType::DATA };
            let names: Vec<_> = scores.map(name).collect();
            store.sync().expect("there is memory");
            names
        };
        let close = |store: Store| store.close().expect("there is memory");
        let (by_hash, by_value) = (world(CompareMode::Hash), world(CompareMode::Value));
        let store = open(&by_hash);
        let mut names = Vec::new();
        let first = rate(&mut || names = put(&store));
        let second = rate(&mut || drop(put(&store)));
        close(store);
        let store = open(&by_hash);
        let get = rate(&mut || {
            for some in names.chunks(256) {
                assert!(store.get_batch(some).iter().all(Result::is_ok), "a block that was put can be read");
            }
        });
        close(store);
        let store = open(&by_value);
        drop(put(&store));
        close(store);
        let store = open(&by_value);
        let compare = rate(&mut || drop(put(&store)));
        close(store);
        Self { put: first, duplicate: second, get, compare }
    }

    /// Returns the processing rate of an engine in a case.
    pub(crate) fn rate(&self, engine: Engine, case: Case) -> f64 {
        match case {
            Case::OutOfOrderRead | Case::SequentialRead => self.get,
            Case::FreshWrite => self.put,
            Case::SequentialDuplicate if engine.by_value => self.compare,
            Case::OutOfOrderDuplicate | Case::NearDuplicate | Case::SequentialDuplicate => self.duplicate,
        }
    }
}

/// The predicted speed of one case, and its bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CaseForecast {
    pub case: Case,
    /// Bytes of blocks per second.
    pub rate: f64,
    /// The part of the work that takes most of the time.
    pub limit: &'static str,
    pub cost: CaseCost,
}

/// The prediction for one kind of store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// `by hash, index in memory`
    pub engine: &'static str,
    /// The `varve init` command line for it.
    pub init: String,
    /// Memory of the index with its filter when the disk is full, in bytes.
    pub memory_bytes: f64,
    /// Memory of the index with its filter when the store is empty, in bytes.
    pub empty_memory_bytes: f64,
    /// True if the store is within all limits.
    pub fits: bool,
    /// The first exceeded limit.
    pub misfit: Option<Misfit>,
    /// Disk space of the index, in bytes.
    pub index_disk_bytes: f64,
    /// Index memory per block, in bits.
    pub memory_bits_per_block: f64,
    /// Fingerprint bits that the index compares.
    pub fingerprint_bits: f64,
    /// False candidates per look-up.
    pub wrong_places_per_lookup: f64,
    /// Blocks of the full store that share their fingerprint with an earlier block.
    pub shared_fingerprints: f64,
    /// One block in this many shares its fingerprint with an earlier one; `None` if less than one
    /// is expected in the whole store.
    pub collision_interval: Option<f64>,
    pub cases: Vec<CaseForecast>,
    /// The rate of a snapshot with the given share of duplicates, in bytes per second.
    pub night_rate: f64,
}

/// The predictions for all kinds of store, and the choice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StorePlan {
    pub wanted: Requirements,
    pub processor: Processor,
    /// Blocks in a full store.
    pub block_count: f64,
    /// The probability that two different blocks of the full store have the same BLAKE3 score.
    pub score_collision: f64,
    /// The same probability for SHA-1, without deliberate collisions.
    pub score_collision_sha1: f64,
    /// The formulas of the predictions.
    pub formulas: Vec<&'static str>,
    /// One for each kind of store.
    pub forecasts: Vec<Forecast>,
    /// The position of the chosen forecast in the list; `None` if no kind of store fits.
    pub choice: Option<usize>,
    /// The reason for the choice.
    pub reason: String,
}

const FORMULAS: [&str; 7] = [
    "blocks N = disk / (block x stored share + 33 bytes of directory)",
    "index in memory: 9 bytes a block; fingerprint bits f = 64 - address bits + log2(N / 16384), at least 38",
    "index on disk: its memory, and 2 bytes a block for the filter; f as chosen",
    "index of an empty store: in memory one segment of 16384 entries; on disk its memory and its filter",
    "wrong places for each look-up: N / 2^f",
    "blocks that share a fingerprint with an earlier one: N - 2^f + 2^f (1 - 2^-f)^N",
    "time of a block: places found / places a second + bytes / rate; processor time in parallel, or after it if blocks are requested one by one",
];

/// Predicts the needs and the speed of each kind of store. The figures of the device and the
/// processor must be positive; see [`DeviceFigures::is_usable`].
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "predictions have few digits")]
pub fn plan(wanted: &Requirements, device: &DeviceFigures, processor: &Processor) -> StorePlan {
    let stored = f64::from(wanted.block_bytes) * wanted.stored_share + engine::PAGE_ENTRY_BYTES;
    let block_count = (wanted.disk_bytes as f64 / stored).max(1.0);
    let forecasts: Vec<_> = Engine::CHOICES
        .into_iter()
        .map(|engine| forecast(engine, wanted, block_count, device, processor))
        .collect();
    let fitting = forecasts.iter().enumerate().filter(|(_, forecast)| forecast.fits);
    // Only stores by hash are proposed. The one advantage of a store by value is independence from
    // hashes, and the user decides about that.
    let by_rate = |one: &(usize, &Forecast), other: &(usize, &Forecast)| {
        one.1.night_rate.total_cmp(&other.1.night_rate).then(other.0.cmp(&one.0))
    };
    let best = fitting.filter(|(_, forecast)| forecast.engine.starts_with("by hash")).max_by(by_rate);
    let choice = best.map(|(number, _)| number);
    let reason = match best {
        Some((_, forecast)) => {
            format!(
                "it fits into {:.1} GB of memory, and its daily snapshots are the fastest of those that do; choose a store by value if you do not want to rely on hashes",
                wanted.memory_bytes as f64 / 1e9
            ) + if forecast.index_disk_bytes > 0.0 && !forecasts[0].fits {
                ": an index in memory would not fit"
            } else {
                ""
            }
        }
        None => why_none(wanted, &forecasts),
    };
    let collision = |bits: i32| (block_count * block_count * 0.5_f64.powi(bits + 1)).min(1.0);
    StorePlan {
        wanted: *wanted,
        processor: *processor,
        block_count,
        score_collision: collision(256),
        score_collision_sha1: collision(160),
        formulas: FORMULAS.to_vec(),
        forecasts,
        choice,
        reason,
    }
}

/// Explains why no kind of store by hash is within the limits.
#[expect(clippy::cast_precision_loss, reason = "predictions have few digits")]
fn why_none(wanted: &Requirements, forecasts: &[Forecast]) -> String {
    let by_hash = forecasts.iter().filter(|forecast| forecast.engine.starts_with("by hash"));
    let misfits: Vec<Misfit> = by_hash.filter_map(|forecast| forecast.misfit).collect();
    if misfits.contains(&Misfit::EmptyMemory) {
        return "no index fits into both --memory and --empty-memory: allow more of either, or a smaller --index-memory".into();
    }
    if misfits.contains(&Misfit::CollisionInterval) {
        return "no index within --memory meets the collision interval: allow more memory for an index on disk, or a smaller interval"
            .into();
    }
    let gigabytes = wanted.memory_bytes as f64 / 1e9;
    format!(
        "no index fits into {gigabytes:.1} GB of memory beside the rest of the process: allow more, or use larger blocks"
    )
}

/// Returns the fewest fingerprint bits, from the default upwards, with which an index on disk keeps
/// the interval.
fn disk_fingerprint_bits(block_count: f64, wanted: &Requirements) -> u32 {
    let (default, most) =
        (DiskIndexConfig::default().fingerprint_bits, *DiskIndexConfig::FINGERPRINT_BITS.end());
    let keeps = |bits: &u32| keeps_interval(block_count, f64::from(*bits), wanted);
    (default..most).find(keeps).unwrap_or(most)
}

#[expect(clippy::cast_precision_loss, reason = "predictions have few digits")]
fn keeps_interval(block_count: f64, fingerprint_bits: f64, wanted: &Requirements) -> bool {
    wanted.collision_interval.is_none_or(|interval| {
        shared_fingerprints(block_count, fingerprint_bits) * interval as f64 <= block_count
    })
}

#[expect(clippy::cast_precision_loss, reason = "predictions have few digits")]
fn forecast(
    engine: Engine,
    wanted: &Requirements,
    block_count: f64,
    device: &DeviceFigures,
    processor: &Processor,
) -> Forecast {
    let index_memory = wanted.index_memory as f64;
    let (memory_bytes, empty_memory_bytes, index_disk_bytes, fingerprint_bits) = match engine.index {
        IndexKind::Memory => {
            let bytes = block_count * MEMORY_ENTRY_BYTES;
            let empty = SEGMENT_BLOCKS * MEMORY_ENTRY_BYTES;
            // The checkpoint is as large as the index.
            (bytes, empty, bytes, memory_fingerprint_bits(block_count, wanted.disk_bytes as f64))
        }
        IndexKind::Disk => {
            let filter = block_count * FILTER_ENTRY_BYTES;
            let file = block_count * engine::INDEX_ENTRY_BYTES + filter;
            // The filter has room for all blocks from the beginning.
            let memory = index_memory + filter;
            (memory, memory, file, f64::from(disk_fingerprint_bits(block_count, wanted)))
        }
    };
    let misfit = [
        (memory_bytes + PROCESS_BYTES > wanted.memory_bytes as f64, Misfit::Memory),
        (wanted.empty_memory_bytes.is_some_and(|most| empty_memory_bytes > most as f64), Misfit::EmptyMemory),
        (!keeps_interval(block_count, fingerprint_bits, wanted), Misfit::CollisionInterval),
    ];
    let misfit = misfit.into_iter().find_map(|(exceeds, misfit)| exceeds.then_some(misfit));
    let shared = shared_fingerprints(block_count, fingerprint_bits);
    let shape = DataShape {
        block_bytes: f64::from(wanted.block_bytes),
        stored_share: wanted.stored_share,
        block_count,
        index_memory,
    };
    let cases: Vec<_> = Case::ALL
        .into_iter()
        .map(|case| {
            let work_rate = processor.rate(engine, case);
            choice(case, cost(engine, case, &shape), shape.block_bytes, device, work_rate)
        })
        .collect();
    let rate_of =
        |case| cases.iter().find(|choice| choice.case == case).map_or(f64::NAN, |choice| choice.rate);
    let (old, new) = (wanted.duplicate_share, 1.0 - wanted.duplicate_share);
    let night_rate = 1.0 / (old / rate_of(Case::SequentialDuplicate) + new / rate_of(Case::FreshWrite));
    Forecast {
        engine: engine.name(),
        init: init_words(engine, wanted, block_count, fingerprint_bits),
        memory_bytes,
        empty_memory_bytes,
        fits: misfit.is_none(),
        misfit,
        index_disk_bytes,
        memory_bits_per_block: memory_bytes * 8.0 / block_count,
        fingerprint_bits,
        wrong_places_per_lookup: block_count / fingerprint_bits.exp2(),
        shared_fingerprints: shared,
        collision_interval: (shared >= 1.0).then(|| block_count / shared),
        cases,
        night_rate,
    }
}

fn init_words(engine: Engine, wanted: &Requirements, block_count: f64, fingerprint_bits: f64) -> String {
    let compare = if engine.by_value { " --compare value" } else { "" };
    let default_bits = f64::from(DiskIndexConfig::default().fingerprint_bits);
    match engine.index {
        IndexKind::Memory => format!("varve init{compare}"),
        IndexKind::Disk => {
            let fingerprint = match fingerprint_bits > default_bits {
                true => format!(" --index-fingerprint {fingerprint_bits:.0}"),
                false => String::new(),
            };
            format!(
                "varve init{compare} --index disk --index-memory {}M --index-size {:.0}M{fingerprint}",
                wanted.index_memory >> 20,
                (block_count / 1e6).ceil()
            )
        }
    }
}

/// A slot has 64 bits. The address takes as many as the length of the log requires, and the slot's
/// segment implies the first bits of the fingerprint.
#[expect(clippy::cast_precision_loss, reason = "a granule is small")]
fn memory_fingerprint_bits(block_count: f64, log_bytes: f64) -> f64 {
    let address_bits = (log_bytes / GRANULE_BYTES as f64).max(2.0).log2().ceil();
    let prefix_bits = (block_count / SEGMENT_BLOCKS).max(1.0).log2().floor();
    (64.0 - address_bits + prefix_bits).clamp(f64::from(FINGERPRINT_BITS_MIN), 64.0)
}

/// Returns the expected number of blocks that share a fingerprint of `bits` bits with an earlier
/// one of `blocks` blocks (Lukkien 2008, formula 7.2).
#[must_use]
pub fn shared_fingerprints(blocks: f64, bits: f64) -> f64 {
    let all = bits.exp2();
    (blocks + all * (blocks * (-1.0 / all).ln_1p()).exp_m1()).max(0.0)
}

fn choice(
    case: Case,
    cost: CaseCost,
    block_bytes: f64,
    device: &DeviceFigures,
    work_rate: f64,
) -> CaseForecast {
    let parts = [
        ("finding places", cost.seeks / device.places_per_second()),
        ("reading", cost.read_bytes / device.read_rate()),
        ("writing", cost.written_bytes / device.write_rate()),
        ("processor", cost.worked_bytes / work_rate),
    ];
    let disk: f64 = parts[..3].iter().map(|(_, seconds)| seconds).sum();
    let work = parts[3].1;
    let seconds = if case.is_one_by_one() { disk + work } else { disk.max(work) };
    let largest = parts.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    CaseForecast {
        case,
        rate: block_bytes / seconds.max(1e-12),
        limit: largest.map_or("", |(limit, _)| limit),
        cost,
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{Fingerprint, LogAddress};
    use varve_index::MemoryIndex;
    use varve_world::RealClock;

    use super::*;

    const PROCESSOR: Processor = Processor { put: 7e8, duplicate: 2e9, get: 2e9, compare: 4e8 };

    fn wanted(disk_bytes: u64, memory_bytes: u64) -> Requirements {
        Requirements {
            disk_bytes,
            block_bytes: 16 << 10,
            stored_share: 0.6,
            duplicate_share: 0.95,
            memory_bytes,
            index_memory: 192 << 20,
            collision_interval: None,
            empty_memory_bytes: None,
        }
    }

    fn spinning() -> DeviceFigures {
        DeviceFigures::assumed(150e6, 140e6, 120.0)
    }

    #[test]
    fn what_fits_into_memory_is_kept_there() {
        let small = plan(&wanted(1 << 40, 4 << 30), &spinning(), &PROCESSOR);
        assert_eq!(small.choice, Some(0), "{}", small.reason);
        let large = plan(&wanted(16 << 40, 4 << 30), &spinning(), &PROCESSOR);
        assert_eq!(large.choice, Some(1), "{}", large.reason);
        assert!(large.forecasts[1].init.contains("--index disk"), "{}", large.forecasts[1].init);
        assert!(large.reason.contains("would not fit"), "{}", large.reason);
        let none = plan(&wanted(16 << 40, 100 << 20), &spinning(), &PROCESSOR);
        assert_eq!(none.choice, None);
    }

    /// The thesis: an index for 32 GB of 4 KB blocks with one collision in 1000 takes 72 MB
    /// (Lukkien 2008, section 7.2.1).
    #[test]
    fn a_collision_interval_is_kept_or_excludes_an_index() {
        let asked = |interval| Requirements {
            block_bytes: 4096,
            stored_share: 1.0,
            collision_interval: Some(interval),
            ..wanted(32 << 30, 4 << 30)
        };
        let thesis = plan(&asked(1000), &spinning(), &PROCESSOR);
        let memory = &thesis.forecasts[0];
        assert!(memory.fits && (60e6..80e6).contains(&memory.memory_bytes), "{memory:?}");
        assert!(memory.collision_interval.is_none_or(|interval| interval >= 1000.0), "{memory:?}");
        // An index in memory cannot have more bits. An index on disk can, and the proposed command
        // line asks for them.
        let strict = plan(&asked(1_000_000_000), &spinning(), &PROCESSOR);
        assert_eq!(strict.forecasts[0].misfit, Some(Misfit::CollisionInterval));
        let disk = &strict.forecasts[1];
        assert!(disk.fits && disk.fingerprint_bits > 48.0, "{disk:?}");
        assert!(
            disk.init.contains(&format!("--index-fingerprint {}", disk.fingerprint_bits)),
            "{}",
            disk.init
        );
        assert_eq!(strict.choice, Some(1));
        let never = plan(&asked(u64::MAX), &spinning(), &PROCESSOR);
        assert!(never.choice.is_none() && never.reason.contains("collision interval"), "{}", never.reason);
    }

    #[test]
    fn an_empty_store_may_have_to_be_small() {
        let limited = |most| Requirements { empty_memory_bytes: Some(most), ..wanted(16 << 40, 4 << 30) };
        let small = plan(&limited(1 << 20), &spinning(), &PROCESSOR);
        // The index in memory is small while it is empty, but too large when the disk is full. The
        // index on disk is too large from the beginning.
        let misfits: Vec<_> = small.forecasts[..2].iter().map(|forecast| forecast.misfit).collect();
        assert_eq!(misfits, [Some(Misfit::Memory), Some(Misfit::EmptyMemory)]);
        assert!(small.choice.is_none() && small.reason.contains("--empty-memory"), "{}", small.reason);
        assert_eq!(plan(&limited(4 << 30), &spinning(), &PROCESSOR).choice, Some(1));
    }

    /// Foundation's own predictions have the same order (Rhea et al. 2008, Figure 6).
    #[test]
    fn the_order_is_foundations() {
        let plan = plan(&wanted(1 << 40, 4 << 30), &spinning(), &PROCESSOR);
        let rate = |engine: usize, case| {
            plan.forecasts[engine].cases.iter().find(|choice| choice.case == case).unwrap().rate
        };
        let (hash_disk, value_disk) = (1, 3);
        assert!(rate(value_disk, Case::OutOfOrderRead) > rate(hash_disk, Case::OutOfOrderRead));
        assert!(rate(value_disk, Case::SequentialRead) >= rate(hash_disk, Case::SequentialRead));
        assert!(rate(hash_disk, Case::NearDuplicate) > 100.0 * rate(value_disk, Case::NearDuplicate));
        assert!(rate(hash_disk, Case::SequentialRead) > 50.0 * rate(hash_disk, Case::OutOfOrderRead));
        for forecast in &plan.forecasts {
            assert!(forecast.cases.iter().all(|choice| choice.rate.is_finite() && choice.rate > 0.0));
            assert!(forecast.night_rate.is_finite());
        }
    }

    /// The thesis has 2^28 blocks and 40 bits: about 2^15 blocks share a fingerprint (Lukkien 2008,
    /// section 7.1).
    #[test]
    fn the_formula_gives_the_thesis_numbers() {
        let shared = shared_fingerprints(28_f64.exp2(), 40.0);
        assert!((shared / 15_f64.exp2() - 1.0).abs() < 0.01, "{shared}");
        assert!(shared_fingerprints(1e8, 64.0) < 0.001);
    }

    #[test]
    fn an_index_in_memory_is_as_large_as_foretold() {
        const COUNT: u64 = 400_000;
        let mut index = MemoryIndex::new();
        let spread = |number: u64| {
            let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (mixed >> 32)
        };
        for number in 0..COUNT {
            index.insert(Fingerprint(spread(number)), LogAddress::new(number * 80).unwrap()).unwrap();
        }
        #[expect(clippy::cast_precision_loss, reason = "small enough")]
        let (count, bytes) = (COUNT as f64, index.memory_bytes() as f64);
        let foretold = count * MEMORY_ENTRY_BYTES;
        assert!((0.8..1.25).contains(&(bytes / foretold)), "{bytes} against {foretold}");
    }

    #[test]
    fn the_processor_is_measured_by_the_engine() {
        let measured = Processor::measure(&RealClock, 16 << 10);
        for rate in [measured.put, measured.duplicate, measured.get, measured.compare] {
            assert!(rate.is_finite() && rate > 0.0, "{measured:?}");
        }
    }
}
