//! The six cases of Foundation's Figure 5, run with the real engine on a storage that counts.
//!
//! Each case opens the store anew. If the caller supports it, the page cache of its files is
//! emptied before. Memory then holds only the data that opening reads, as in a store far larger
//! than memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use varve_block::{Block, BlockName, BlockStore, BlockType, GetError, PutError, SyncError, to_usize};
use varve_plan::{Case, Engine};
use varve_store::{
    CloseError, CompareMode, CreateError, DiskIndexConfig, Encryption, OpenStoreError, PassphraseCost,
    SaveCheckpointError, Store, StoreAccess, StoreConfig,
};
use varve_world::{Timestamp, World};

use crate::counted::{CountedStorage, DiskWork};

/// Blocks in one request, in the cases in which order matters.
const BATCH_COUNT: usize = 256;
/// Maximum distance, in blocks, of a near duplicate from the block that was written before it.
const NEAR_COUNT: usize = 1024;
/// Near duplicates that are written for each such neighbour.
const NEAR_RUN: usize = 64;
const HOLDER: &str = "varve-lab foundation";

/// The blocks that are written and read.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub block_bytes: usize,
    pub block_count: usize,
    /// Blocks that are requested one by one.
    pub sample_count: usize,
    /// The incompressible share of each block, from 0 to 1.
    pub incompressible: f64,
    /// Memory of an index on disk, in bytes, without its filter.
    pub index_memory: u64,
    pub seed: u64,
}

/// The result of one case.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CaseResult {
    pub case: Case,
    /// Blocks that were put or read.
    pub blocks: u64,
    pub bytes: u64,
    /// Duration in nanoseconds, until everything is durable.
    pub nanoseconds: u64,
    /// Duration of closing the store afterwards, in nanoseconds. Closing writes the buffers of the
    /// index.
    pub closing_nanoseconds: u64,
    /// Operations of the disk, without those of closing.
    pub disk: DiskWork,
    pub index: IndexWork,
}

/// Operations of an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IndexWork {
    pub lookups: u64,
    /// Look-ups that a filter answered.
    pub filtered: u64,
    /// Pages of an index on disk that look-ups read.
    pub pages_read: u64,
}

impl IndexWork {
    /// Returns the operations since the store was opened.
    fn of(store: &Store) -> Self {
        match store.disk_index_stats() {
            Some(stats) => {
                Self { lookups: stats.lookups, filtered: stats.filtered, pages_read: stats.page_reads }
            }
            None => Self { lookups: store.candidates_per_lookup().iter().sum(), ..Self::default() },
        }
    }

    fn add_since(&mut self, before: Self, after: Self) {
        self.lookups += after.lookups - before.lookups;
        self.filtered += after.filtered - before.filtered;
        self.pages_read += after.pages_read - before.pages_read;
    }
}

impl CaseResult {
    /// Returns the rate in megabytes per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 1e3 / (self.nanoseconds as f64).max(1.0)
    }
}

/// The error that ended the cases early.
#[derive(Debug, thiserror::Error)]
pub enum CasesError {
    #[error("the store to be measured could not be made")]
    Create(#[from] CreateError),
    #[error("the store that is measured could not be opened")]
    Open(#[from] OpenStoreError),
    #[error("{0}")]
    Put(#[from] PutError),
    #[error("{0}")]
    Get(#[from] GetError),
    #[error("{0}")]
    Sync(#[from] SyncError),
    #[error("the index of the store that is measured could not be written")]
    SaveIndex(#[from] SaveCheckpointError),
    #[error("the store that is measured could not be closed")]
    Close(#[from] CloseError),
}

/// Makes a store in the empty folder of `world`, and runs the six cases. `forget` empties the page
/// cache of the files there. `done` receives each result as soon as it is complete.
///
/// # Errors
/// [`CasesError`].
pub fn run_cases(
    world: &World,
    engine: Engine,
    workload: &Workload,
    forget: &dyn Fn(),
    done: &mut dyn FnMut(&CaseResult),
) -> Result<Vec<CaseResult>, CasesError> {
    run_paced_cases(world, engine, workload, forget, &|_| (), done)
}

/// Like [`run_cases`]. `work` is called once for each measured step of a case, within its time.
///
/// # Errors
/// [`CasesError`].
pub fn run_paced_cases(
    world: &World,
    engine: Engine,
    workload: &Workload,
    forget: &dyn Fn(),
    work: &dyn Fn(Case),
    done: &mut dyn FnMut(&CaseResult),
) -> Result<Vec<CaseResult>, CasesError> {
    let counted = Arc::new(CountedStorage::new(Arc::clone(&world.storage)));
    let world = World { storage: Arc::clone(&counted) as _, ..world.clone() };
    Store::create(&world, &config(engine, workload), None, PassphraseCost::default())?;
    let mut bench = CaseRunner { world, counted, workload: *workload, names: Vec::new() };
    let mut results = Vec::new();
    // Fresh writes come first: the other cases use their blocks.
    for case in [
        Case::FreshWrite,
        Case::SequentialRead,
        Case::OutOfOrderRead,
        Case::SequentialDuplicate,
        Case::NearDuplicate,
        Case::OutOfOrderDuplicate,
    ] {
        forget();
        let result = bench.run(case, work)?;
        done(&result);
        results.push(result);
    }
    results.sort_by_key(|result| result.case);
    Ok(results)
}

fn config(engine: Engine, workload: &Workload) -> StoreConfig {
    let mut config = StoreConfig::new([0x1a; 16]);
    config.encryption = Encryption::None;
    config.index = engine.index;
    config.compare = if engine.by_value { CompareMode::Value } else { CompareMode::Hash };
    config.disk_index = DiskIndexConfig {
        memory_bytes: workload.index_memory.max(DiskIndexConfig::MEMORY_BYTES_MIN),
        expected_blocks: (workload.block_count as u64).max(1),
        ..DiskIndexConfig::default()
    };
    config
}

struct CaseRunner {
    world: World,
    counted: Arc<CountedStorage>,
    workload: Workload,
    /// The names that the store returned for the blocks, in the order of writing.
    names: Vec<BlockName>,
}

impl CaseRunner {
    fn run(&mut self, case: Case, work: &dyn Fn(Case)) -> Result<CaseResult, CasesError> {
        let is_read = matches!(case, Case::OutOfOrderRead | Case::SequentialRead);
        let access = if is_read { StoreAccess::Read } else { StoreAccess::Write { holder: HOLDER } };
        let store = self.open(access)?;
        // The out-of-order reads model single reads in a disk image.
        store.expect_reads_in_pieces(true);
        let (mut asked, mut nanoseconds) = (0, 0_u64);
        let (mut disk, mut index) = (DiskWork::default(), IndexWork::default());
        for step in self.steps(case) {
            let contents: Vec<_> =
                step.numbers.iter().map(|number| content(&self.workload, *number)).collect();
            let _before = self.counted.take();
            let index_before = IndexWork::of(&store);
            let started = self.world.clock.now();
            let put = self.ask(&store, &step, is_read, &contents)?;
            if step.is_measured {
                work(case);
            }
            if step.is_last && !is_read {
                store.sync()?;
            }
            if step.is_measured {
                nanoseconds += self.since(started);
                add(&mut disk, self.counted.take());
                index.add_since(index_before, IndexWork::of(&store));
                asked += step.numbers.len() as u64;
            }
            if case == Case::FreshWrite {
                self.names.extend(put);
            }
        }
        let started = self.world.clock.now();
        store.close()?;
        if case == Case::FreshWrite {
            self.write_out_index()?;
        }
        let closing_nanoseconds = self.since(started);
        Ok(CaseResult {
            case,
            blocks: asked,
            bytes: asked * self.workload.block_bytes as u64,
            nanoseconds,
            closing_nanoseconds,
            disk,
            index,
        })
    }

    fn open(&self, access: StoreAccess<'_>) -> Result<Store, OpenStoreError> {
        Store::open(self.world.clone(), None, access, &mut |_| ())
    }

    /// Writes out the buffers of the index. The next opening reads unwritten entries from the log
    /// into memory. In a store far larger than memory these are negligible; in a small store they
    /// are all entries.
    fn write_out_index(&self) -> Result<(), CasesError> {
        let store = self.open(StoreAccess::Write { holder: HOLDER })?;
        store.save_checkpoint()?;
        Ok(store.close()?)
    }

    fn since(&self, moment: Timestamp) -> u64 {
        u64::try_from(self.world.clock.now().0.saturating_sub(moment.0)).unwrap_or(0)
    }

    fn ask(
        &self,
        store: &Store,
        step: &CaseStep,
        is_read: bool,
        contents: &[Vec<u8>],
    ) -> Result<Vec<BlockName>, CasesError> {
        if is_read {
            let names: Vec<_> = step.numbers.iter().map(|number| self.names[*number]).collect();
            for (found, expected) in store.get_batch(&names).into_iter().zip(contents) {
                assert!(found?[..] == expected[..], "the engine returns what it was given");
            }
            return Ok(Vec::new());
        }
        let block = |bytes| Block { block_type: BlockType::DATA, bytes };
        let blocks: Vec<_> = contents.iter().map(|bytes| block(&bytes[..])).collect();
        let scores = store.put_batch(&blocks)?;
        Ok(scores.into_iter().map(|score| BlockName { score, block_type: BlockType::DATA }).collect())
    }

    /// Returns the steps of a case in their order.
    fn steps(&self, case: Case) -> Vec<CaseStep> {
        let count = self.workload.block_count;
        let mut steps: Vec<_> = match case {
            Case::FreshWrite | Case::SequentialRead | Case::SequentialDuplicate => (0..count)
                .step_by(BATCH_COUNT)
                .map(|first| CaseStep::measured((first..(first + BATCH_COUNT).min(count)).collect()))
                .collect(),
            Case::OutOfOrderRead | Case::OutOfOrderDuplicate => {
                self.sample(case as u64).map(|number| CaseStep::measured(vec![number])).collect()
            }
            Case::NearDuplicate => self.near_duplicates(),
        };
        if let Some(last) = steps.last_mut() {
            last.is_last = true;
        }
        steps
    }

    /// Draws distinct blocks in random order.
    fn sample(&self, salt: u64) -> impl Iterator<Item = usize> {
        let Workload { block_count, sample_count, seed, .. } = self.workload;
        let mut seen = BTreeSet::new();
        let numbers = (0..).map(move |draw| draw_below(block_count, seed ^ mix(salt) ^ mix(draw)));
        numbers.filter(move |number| seen.insert(*number)).take(sample_count.min(block_count))
    }

    /// Returns one duplicate that brings in its neighbours, followed by some of these neighbours;
    /// and so on.
    fn near_duplicates(&self) -> Vec<CaseStep> {
        let Workload { block_count, sample_count, seed, .. } = self.workload;
        let mut steps = Vec::new();
        for (run, middle) in self.sample(7).take(sample_count.div_ceil(NEAR_RUN)).enumerate() {
            steps.push(CaseStep { numbers: vec![middle], is_measured: false, is_last: false });
            let first = middle.saturating_sub(NEAR_COUNT / 2);
            let width = NEAR_COUNT.min(block_count - first).max(1);
            let mut seen = BTreeSet::from([middle]);
            for draw in 0..NEAR_RUN {
                let number = first + draw_below(width, seed ^ mix(run as u64) ^ mix(draw as u64));
                if seen.insert(number) {
                    steps.push(CaseStep::measured(vec![number]));
                }
            }
        }
        steps
    }
}

struct CaseStep {
    numbers: Vec<usize>,
    is_measured: bool,
    is_last: bool,
}

impl CaseStep {
    fn measured(numbers: Vec<usize>) -> Self {
        Self { numbers, is_measured: true, is_last: false }
    }
}

fn add(sum: &mut DiskWork, more: DiskWork) {
    sum.seeks += more.seeks;
    sum.reads += more.reads;
    sum.read_bytes += more.read_bytes;
    sum.writes += more.writes;
    sum.written_bytes += more.written_bytes;
    sum.syncs += more.syncs;
}

/// Mixes a number into all bits of the result: splitmix64 (Steele, Lea and Flood 2014).
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Draws a number below `end`; 0 if `end` is 0.
fn draw_below(end: usize, seed: u64) -> usize {
    to_usize(mix(seed) % (end as u64).max(1))
}

/// Returns the block of this number, which differs from all others. Its first part does not
/// compress, and the rest does.
fn content(workload: &Workload, number: usize) -> Vec<u8> {
    let mut bytes = vec![0; workload.block_bytes];
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a block"
    )]
    let share = ((workload.block_bytes as f64 * workload.incompressible) as usize).max(16);
    let mut state = mix(workload.seed) ^ mix(number as u64);
    let share = share.min(bytes.len());
    for word in bytes[..share].chunks_mut(8) {
        state = mix(state);
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use varve_sim::PageCacheLimits;
    use varve_world::MemoryStorage;

    use super::*;
    use crate::uncached::UncachedStorage;

    const WORKLOAD: Workload = Workload {
        block_bytes: 4096,
        block_count: 3000,
        sample_count: 100,
        incompressible: 0.5,
        index_memory: 256 << 10,
        seed: 3,
    };

    fn results(engine: Engine) -> Vec<CaseResult> {
        let world = World::deterministic(Arc::new(MemoryStorage::new()), 1);
        run_cases(&world, engine, &WORKLOAD, &|| (), &mut |_| ()).unwrap()
    }

    #[test]
    fn all_cases_are_run_and_counted() {
        for engine in Engine::CHOICES {
            let results = results(engine);
            assert_eq!(results.iter().map(|result| result.case).collect::<Vec<_>>(), Case::ALL);
            let of = |case| results.iter().find(|result| result.case == case).unwrap();
            let fresh = of(Case::FreshWrite);
            assert_eq!(fresh.blocks, WORKLOAD.block_count as u64);
            // Half of each block compresses.
            assert!(fresh.disk.written_bytes > fresh.bytes / 2 && fresh.disk.written_bytes < fresh.bytes);
            // Duplicates write nothing except the notes of opening and closing.
            for case in [Case::SequentialDuplicate, Case::NearDuplicate, Case::OutOfOrderDuplicate] {
                assert!(of(case).disk.written_bytes < 4096, "{:?}", of(case));
            }
            // A look-up brings in the neighbours of its block with either kind of index.
            let again = of(Case::SequentialDuplicate);
            assert!(again.disk.seeks * 10 < again.blocks, "{engine:?}: {again:?}");
            // By value, a near duplicate is compared with the stored block. By hash, memory has the
            // answer.
            let near = of(Case::NearDuplicate);
            if engine.by_value {
                assert!(near.disk.reads > 0, "{engine:?}");
            } else {
                // The directory page that names the neighbour also names the near duplicates.
                assert_eq!((near.disk.reads, near.index.pages_read), (0, 0), "{engine:?}: {near:?}");
            }
            let [single, in_a_row] = [Case::OutOfOrderRead, Case::SequentialRead].map(of);
            assert_eq!(single.blocks, WORKLOAD.sample_count as u64);
            let reads = |result: &CaseResult| result.disk.reads * 1000 / result.blocks;
            assert!(reads(single) > 10 * reads(in_a_row), "{single:?} {in_a_row:?}");
        }
    }

    #[test]
    fn the_same_seed_is_the_same_work() {
        let work = |engine| results(engine).into_iter().map(|result| result.disk).collect::<Vec<_>>();
        for engine in Engine::CHOICES {
            assert_eq!(work(engine), work(engine));
        }
    }

    /// The simulation is the engine itself, so it must request the same transfers as on a real
    /// disk.
    #[test]
    fn a_simulated_run_counts_the_same_as_a_real_one() {
        let workload = Workload { block_count: 2000, sample_count: 40, ..WORKLOAD };
        for engine in Engine::CHOICES {
            let counts = |world: &World, forget: &dyn Fn()| {
                let results = run_cases(world, engine, &workload, forget, &mut |_| ()).unwrap();
                assert_eq!(results.len(), 6);
                results.into_iter().map(|result| (result.case, result.blocks, result.disk, result.index))
            };
            let folder = tempfile::tempdir().unwrap();
            let storage = Arc::new(UncachedStorage::new(folder.path()));
            let real = counts(&World::deterministic(storage, 1), &|| crate::forget::forget(folder.path()));
            let device = crate::simulated::device("foundation-maxtor").unwrap();
            let (timed, clock) = crate::simulated::timed_storage(&device, PageCacheLimits::default());
            let world = World { clock, ..World::deterministic(Arc::clone(&timed) as _, 1) };
            let simulated = counts(&world, &|| timed.forget());
            assert!(real.eq(simulated), "{engine:?}");
        }
    }

    /// Without a page cache, a constant device takes a time for each seek and each byte.
    #[test]
    fn on_a_constant_device_the_times_follow_from_the_counts() {
        let device = crate::simulated::device("foundation-maxtor").unwrap();
        for engine in Engine::CHOICES {
            let (timed, clock) = crate::simulated::timed_storage(&device, PageCacheLimits::default());
            let world = World { clock, ..World::deterministic(Arc::clone(&timed) as _, 1) };
            let forget = || timed.forget();
            for result in run_cases(&world, engine, &WORKLOAD, &forget, &mut |_| ()).unwrap() {
                let float = |count: u64| f64::from(u32::try_from(count).unwrap());
                let disk = result.disk;
                let expected = float(disk.seeks) * 0.0136
                    + float(disk.read_bytes) / 33_764_147.2
                    + float(disk.written_bytes) / 27_787_264.0;
                let measured = float(u32::try_from(result.nanoseconds / 1000).unwrap().into()) / 1e6;
                // Files lie on the device in pieces of a megabyte, unknown to the counts.
                let pieces = float((disk.read_bytes + disk.written_bytes) >> 20) + 2.0;
                let difference = (measured - expected).abs();
                assert!(
                    difference <= expected / 100.0 + pieces * 0.0136,
                    "{engine:?} {result:?}: {expected}"
                );
            }
        }
    }
}
