//! Getting: candidates are read in the log's order, and only a block whose bytes have the right score leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use varve_block::{BlockName, GetError, LogAddress};
use varve_log::{ArenaMap, ClumpContent, GRANULE_BYTES, ReadLogError, Window};

use crate::cache::{FixedHasher, cache};
use crate::naming::Namer;
use crate::role::Permission;
use crate::store::{PendingPlace, Store};

/// How much memory opened clumps may take.
const CLUMPS_BYTES_MAX: u64 = 64 << 20;
/// Clumps that lie closer than this are read in one go.
const GAP_BYTES_MAX: u64 = 256 << 10;
/// What is read for a clump whose length is not known yet.
const GUESS_BYTES: u64 = 128 << 10;
/// The most that is read in one go.
const AHEAD_BYTES_MAX: u64 = 4 << 20;

/// A clump with the names of its blocks, computed from their bytes.
pub(crate) struct NamedClump {
    blocks: Vec<(BlockName, Bytes)>,
    memory_bytes: usize,
}

impl NamedClump {
    fn new(content: &ClumpContent, namer: &Namer) -> Self {
        let blocks = content
            .blocks()
            .map(|(block_type, bytes)| (BlockName { score: namer.score(&bytes), block_type }, bytes))
            .collect();
        Self { blocks, memory_bytes: content.memory_bytes() }
    }

    fn block(&self, name: &BlockName) -> Option<Bytes> {
        self.blocks.iter().find(|(found, _)| found == name).map(|(_, bytes)| bytes.clone())
    }
}

#[derive(Clone)]
pub(crate) struct ClumpWeight;

impl Weighter<LogAddress, Arc<NamedClump>> for ClumpWeight {
    fn weight(&self, _: &LogAddress, clump: &Arc<NamedClump>) -> u64 {
        clump.memory_bytes as u64 + 100
    }
}

pub(crate) type ClumpCache = Cache<LogAddress, Arc<NamedClump>, ClumpWeight, FixedHasher>;

pub(crate) fn clump_cache() -> ClumpCache {
    cache(CLUMPS_BYTES_MAX, 128 << 10, ClumpWeight)
}

/// A block that is looked for, and what has been met on the way.
struct Wanted {
    name: BlockName,
    found: Option<Bytes>,
    damage: Option<Arc<ReadLogError>>,
}

impl Store {
    pub(crate) fn get_blocks(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        // Not even what still waits in memory.
        if let Err(refused) = self.role.require(Permission::Read) {
            let refuse = |name: &BlockName| Err(GetError::Failed { name: *name, source: refused.into() });
            return names.iter().map(refuse).collect();
        }
        let mut wanted: Vec<_> =
            names.iter().map(|name| Wanted { name: *name, found: None, damage: None }).collect();
        let mut places: BTreeMap<LogAddress, Vec<usize>> = BTreeMap::new();
        for (number, wanted) in wanted.iter_mut().enumerate() {
            for address in self.places(wanted) {
                places.entry(address).or_default().push(number);
            }
        }
        self.read_places(&places, &mut wanted);
        // A place that was proposed and does not hold the block: seldom another block with its fingerprint, else a disk that has returned
        // what was there before. That was good once, so nothing in it tells; it is not kept, and read again.
        places.retain(|address, numbers| {
            numbers.retain(|number| wanted[*number].found.is_none() && wanted[*number].damage.is_none());
            if !numbers.is_empty() {
                self.clumps.remove(address);
            }
            !numbers.is_empty()
        });
        self.read_places(&places, &mut wanted);
        for lost in wanted.iter().filter(|wanted| wanted.is_lost()) {
            self.lost.add(lost.name);
        }
        wanted.into_iter().map(Wanted::into_result).collect()
    }

    fn read_places(&self, places: &BTreeMap<LogAddress, Vec<usize>>, wanted: &mut [Wanted]) {
        for run in runs(self.log.config().map, places) {
            self.read_run(&run, places, wanted);
        }
    }

    /// Where a block may be; none if it still waits in a draft, from which it is taken at once.
    fn places(&self, wanted: &mut Wanted) -> Vec<LogAddress> {
        let admission = self.admission();
        if let Some(pending) = admission.pending.get(&wanted.name) {
            match pending.place {
                PendingPlace::Clump(address) => return vec![address],
                PendingPlace::Draft { number, ordinal } => {
                    let closed = admission.in_flight.get(&number).map(|draft| &**draft);
                    let open =
                        admission.drafts.iter().find(|open| open.number == number).map(|open| &open.draft);
                    let block = closed.or(open).and_then(|draft| draft.block(ordinal));
                    wanted.found = block.map(Bytes::copy_from_slice);
                    return Vec::new();
                }
            }
        }
        drop(admission);
        self.candidates(&wanted.name)
    }

    /// Reads neighbouring clumps of one arena through one window.
    fn read_run(&self, run: &[LogAddress], places: &BTreeMap<LogAddress, Vec<usize>>, wanted: &mut [Wanted]) {
        let map = self.log.config().map;
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        let arena = match self.directory.arena(map.locate(*first).0) {
            Ok(arena) => arena,
            Err(error) => return note_damage(wanted, run.iter().flat_map(|address| &places[address]), error),
        };
        let mut window = self.log.window(&arena, 0);
        for address in run {
            let numbers = &places[address];
            if numbers.iter().all(|number| wanted[*number].found.is_some()) {
                continue;
            }
            window.set_ahead_bytes(ahead_bytes(*address, *last));
            match self.clump(&mut window, *address) {
                Ok(clump) => {
                    for number in numbers {
                        let wanted = &mut wanted[*number];
                        wanted.found = wanted.found.take().or_else(|| clump.block(&wanted.name));
                    }
                }
                Err(error) => note_damage(wanted, numbers.iter(), error),
            }
        }
    }

    fn clump(&self, window: &mut Window<'_>, address: LogAddress) -> Result<Arc<NamedClump>, ReadLogError> {
        self.clumps.get_or_insert_with(&address, || {
            let (_, granule) = self.log.config().map.locate(address);
            let (_, content) = window.clump(granule)?;
            Ok(Arc::new(NamedClump::new(&content, &self.namer)))
        })
    }
}

fn note_damage<'a>(wanted: &mut [Wanted], numbers: impl Iterator<Item = &'a usize>, error: ReadLogError) {
    let error = Arc::new(error);
    for number in numbers {
        wanted[*number].damage = Some(Arc::clone(&error));
    }
}

impl Wanted {
    fn is_lost(&self) -> bool {
        self.found.is_none() && self.damage.as_ref().is_some_and(|error| error.is_damage())
    }

    fn into_result(self) -> Result<Bytes, GetError> {
        let name = self.name;
        match (self.found, self.damage) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(error)) if error.is_damage() => Err(GetError::Damaged { name, source: error.into() }),
            (None, Some(error)) => Err(GetError::Failed { name, source: error.into() }),
            (None, None) => Err(GetError::NotFound { name }),
        }
    }
}

/// From a clump to the guessed end of its run's last one.
fn ahead_bytes(address: LogAddress, last: LogAddress) -> usize {
    let span = (last.granule() - address.granule()) * GRANULE_BYTES + GUESS_BYTES;
    usize::try_from(span.min(AHEAD_BYTES_MAX)).unwrap_or(usize::MAX)
}

/// Addresses that lie close together in one arena, run by run.
fn runs<T>(map: ArenaMap, places: &BTreeMap<LogAddress, T>) -> Vec<Vec<LogAddress>> {
    let is_close = |one: LogAddress, next: LogAddress| {
        let same_arena = map.locate(one).0 == map.locate(next).0;
        same_arena && (next.granule() - one.granule()) * GRANULE_BYTES <= GAP_BYTES_MAX + GUESS_BYTES
    };
    let mut runs: Vec<Vec<LogAddress>> = Vec::new();
    for address in places.keys() {
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| is_close(*last, *address)) => run.push(*address),
            _ => runs.push(vec![*address]),
        }
    }
    runs
}
