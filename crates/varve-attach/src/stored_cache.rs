//! The cache on disk: stored blocks as their servers sent them, in segments that are only appended
//! to.
//!
//! ```text
//! lock                    held by the process that uses the folder
//! blocks/0000000001       a segment: records, oldest first
//! blocks/0000000002       …
//! ```
//!
//! Nothing is synced, because every block can be fetched again. After a crash a segment may end
//! with a torn record, which the checksum of its header or the name of its block reveals.
//!
//! Above the high-water mark the oldest segments are removed, down to the low-water mark. Blocks
//! that were read since they were written get a second chance: they are appended again.
//! Favoured blocks, those of a start, get one each time.
//!
//! Invariants:
//! - A block is returned only if its SHA-256 is its name.
//! - A damaged record is forgotten at its first read, and its block can be put again.
//! - The cache never fails its caller. If its disk is full or broken, it stops writing, once with a
//!   warning, and goes on reading.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use varve_block::to_usize;
use varve_edition::{CACHE_RECORD_HEADER_BYTES, CacheRecordHeader, CheckedBlock, ObjectName};
use varve_world::{FileLock, FileName, LockError, Storage};

const LOCK: &str = "lock";
const FOLDER: &str = "blocks";
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// A cache has at least about this number of segments.
const SEGMENT_COUNT: u64 = 16;

/// The smallest budget of a cache in bytes.
pub const CACHE_BYTES_MIN: u64 = 16 << 20;

/// The budget of a cache in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBudget {
    /// Above this mark, segments are removed.
    high_bytes: u64,
    /// Down to this mark.
    low_bytes: u64,
    segment_bytes: u64,
}

impl CacheBudget {
    /// Makes a budget with a low-water mark of 90 %. A budget below [`CACHE_BYTES_MIN`] is raised
    /// to it.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let high_bytes = bytes.max(CACHE_BYTES_MIN);
        Self::with_segments(high_bytes, (high_bytes / SEGMENT_COUNT).min(SEGMENT_BYTES_MAX))
    }

    fn with_segments(high_bytes: u64, segment_bytes: u64) -> Self {
        Self { high_bytes, low_bytes: high_bytes / 10 * 9, segment_bytes }
    }
}

/// The reason why a folder is not used as a cache.
#[derive(Debug, thiserror::Error)]
pub enum OpenCacheError {
    #[error("the cache is used by another process ({holder})")]
    InUse { holder: String },
    #[error("the cache cannot be used")]
    Storage(#[source] io::Error),
}

/// Figures of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheFigures {
    pub blocks: u64,
    /// The length of all segments.
    pub bytes: u64,
    /// The records that were found damaged since the cache was opened.
    pub damaged: u64,
    /// The segments that were removed since then.
    pub removed_segments: u64,
}

/// Stored blocks on disk. Many threads may use it at once.
pub struct StoredCache {
    storage: Arc<dyn Storage>,
    budget: CacheBudget,
    index: RwLock<BTreeMap<ObjectName, RecordPlace>>,
    segments: Mutex<Segments>,
    damaged: AtomicU64,
    removed: AtomicU64,
    _lock: Box<dyn FileLock>,
}

struct RecordPlace {
    segment: u64,
    offset: u64,
    stored_bytes: u32,
    /// True if the block was read since the record was written.
    is_used: AtomicBool,
}

/// The segments, oldest first. The last one is appended to.
#[derive(Default)]
struct Segments {
    known: VecDeque<Segment>,
    bytes: u64,
    favoured: BTreeSet<ObjectName>,
    /// Segments that may end with a torn record are not appended to.
    needs_new: bool,
    /// Nothing is written any more.
    has_stopped: bool,
}

struct Segment {
    number: u64,
    bytes: u64,
}

impl StoredCache {
    /// Opens the cache in a folder, which must exist, and locks it. `holder` names this process to
    /// others. Reads the headers of all records.
    ///
    /// # Errors
    /// [`OpenCacheError`].
    pub fn open(
        storage: Arc<dyn Storage>,
        budget: CacheBudget,
        holder: &str,
    ) -> Result<Self, OpenCacheError> {
        let lock = storage.lock(&name(LOCK), holder).map_err(|error| match error {
            LockError::Held { holder } => OpenCacheError::InUse { holder },
            LockError::Storage { source, .. } => OpenCacheError::Storage(source),
        })?;
        let (mut index, mut segments) = (BTreeMap::new(), Segments::default());
        for file in storage.list(FOLDER).map_err(OpenCacheError::Storage)? {
            let Some(number) = segment_number(&file) else { continue };
            let length = storage.length(&file).map_err(OpenCacheError::Storage)?;
            let end = scan(&*storage, &file, number, length, &mut index);
            segments.needs_new = end != length;
            segments.known.push_back(Segment { number, bytes: length });
            segments.bytes = segments.bytes.saturating_add(length);
        }
        let cache = Self {
            storage,
            budget,
            index: RwLock::new(index),
            segments: Mutex::new(segments),
            damaged: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            _lock: lock,
        };
        cache.make_room(&mut cache.segments.lock());
        Ok(cache)
    }

    /// Favours blocks: they are removed last. Blocks beyond half of the budget are not favoured.
    pub fn favour(&self, names: impl IntoIterator<Item = ObjectName>) {
        self.segments.lock().favoured.extend(names);
    }

    /// Returns the current figures.
    #[must_use]
    pub fn figures(&self) -> CacheFigures {
        // One after the other: a writer holds the segments while it waits for the index.
        let blocks = self.index.read().len() as u64;
        let bytes = self.segments.lock().bytes;
        CacheFigures {
            blocks,
            bytes,
            damaged: self.damaged.load(Ordering::Relaxed),
            removed_segments: self.removed.load(Ordering::Relaxed),
        }
    }

    /// Reports whether a block seems to be there. Only [`get`](Self::get) is sure.
    #[must_use]
    pub fn contains(&self, block: &ObjectName) -> bool {
        self.index.read().contains_key(block)
    }

    /// Reads a stored block, and returns what `open` makes of it.
    pub fn get<T>(&self, block: &ObjectName, open: impl FnOnce(CheckedBlock<'_>) -> T) -> Option<T> {
        let (segment, offset, stored_bytes) = {
            let index = self.index.read();
            let place = index.get(block)?;
            place.is_used.store(true, Ordering::Relaxed);
            (place.segment, place.offset, place.stored_bytes)
        };
        let error = match self.read(segment, offset, stored_bytes) {
            Ok(stored) => match CheckedBlock::check(&stored, block) {
                Ok(checked) => return Some(open(checked)),
                Err(error) => error.to_string(),
            },
            // The segment was removed in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => error.to_string(),
        };
        self.forget(block, segment, &error);
        None
    }

    fn read(&self, segment: u64, offset: u64, stored_bytes: u32) -> io::Result<Vec<u8>> {
        let mut stored = vec![0; to_usize(stored_bytes)];
        let start = offset.saturating_add(CACHE_RECORD_HEADER_BYTES as u64);
        self.storage.read_at(&segment_file(segment), start, &mut stored)?;
        Ok(stored)
    }

    /// Forgets a damaged record.
    fn forget(&self, block: &ObjectName, segment: u64, error: &str) {
        let mut index = self.index.write();
        if index.get(block).is_some_and(|place| place.segment == segment) {
            index.remove(block);
            self.damaged.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%block, error, "a block of the cache is damaged: it will be fetched again");
        }
    }

    /// Keeps a stored block, whose name the caller has checked.
    pub fn put(&self, block: &ObjectName, stored: &[u8]) {
        let Ok(stored_bytes) = u32::try_from(stored.len()) else { return };
        if stored.is_empty() || self.contains(block) {
            return;
        }
        let mut segments = self.segments.lock();
        if segments.has_stopped {
            return;
        }
        let header = CacheRecordHeader { name: *block, stored_bytes };
        match self.append(&mut segments, header, stored) {
            Ok(()) => self.make_room(&mut segments),
            Err(error) => {
                segments.has_stopped = true;
                tracing::warn!(%error, "nothing more is written to the cache, and reads go on");
            }
        }
    }

    fn append(&self, segments: &mut Segments, header: CacheRecordHeader, stored: &[u8]) -> io::Result<()> {
        let is_full = |last: &Segment| last.bytes >= self.budget.segment_bytes;
        if segments.needs_new || segments.known.back().is_none_or(is_full) {
            let number = segments.known.back().map_or(1, |last| last.number.saturating_add(1));
            self.storage.create(&segment_file(number))?;
            segments.known.push_back(Segment { number, bytes: 0 });
            segments.needs_new = false;
        }
        let Some(last) = segments.known.back_mut() else { return Ok(()) };
        let record = [&header.encode()[..], stored].concat();
        let offset = self.storage.append(&segment_file(last.number), &record)?;
        last.bytes = offset.saturating_add(record.len() as u64);
        segments.bytes = segments.bytes.saturating_add(record.len() as u64);
        let place = RecordPlace {
            segment: last.number,
            offset,
            stored_bytes: header.stored_bytes,
            is_used: AtomicBool::new(false),
        };
        self.index.write().insert(header.name, place);
        Ok(())
    }

    /// Removes the oldest segments if the cache is above its high-water mark.
    fn make_room(&self, segments: &mut Segments) {
        if segments.bytes <= self.budget.high_bytes {
            return;
        }
        let (mut freed, mut kept, mut favoured) = (0_u64, 0_u64, 0_u64);
        while segments.bytes > self.budget.low_bytes && segments.known.len() > 1 {
            let Some(oldest) = segments.known.pop_front() else { return };
            let survivors = self.survivors(&oldest, &segments.favoured);
            freed = freed.saturating_add(oldest.bytes);
            for (header, is_favoured) in survivors {
                // At most half of what is freed is written again, so this ends.
                let bytes = header.record_bytes();
                let (sum, limit) = match is_favoured {
                    true => (&mut favoured, self.budget.high_bytes / 2),
                    false => (&mut kept, freed.saturating_sub(favoured) / 2),
                };
                if sum.saturating_add(bytes) > limit || segments.has_stopped {
                    continue;
                }
                let Some(appended) =
                    self.get(&header.name, |block| self.append(segments, header, block.bytes()))
                else {
                    continue;
                };
                *sum = sum.saturating_add(bytes);
                if let Err(error) = appended {
                    segments.has_stopped = true;
                    tracing::warn!(%error, "nothing more is written to the cache, and reads go on");
                }
            }
            self.index.write().retain(|_, place| place.segment != oldest.number);
            // The space is gone from the figures even if the file stays: the next start finds it.
            segments.bytes = segments.bytes.saturating_sub(oldest.bytes);
            self.removed.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = self.storage.remove_and_free_soon(&segment_file(oldest.number)) {
                tracing::warn!(%error, "an old part of the cache cannot be removed");
            }
        }
    }

    /// Returns the blocks of a segment that get a second chance, in order, and whether they are
    /// favoured.
    fn survivors(&self, oldest: &Segment, favoured: &BTreeSet<ObjectName>) -> Vec<(CacheRecordHeader, bool)> {
        let index = self.index.read();
        let mut found: Vec<_> = index
            .iter()
            .filter(|(_, place)| place.segment == oldest.number)
            .map(|(name, place)| (place.offset, name, place, favoured.contains(name)))
            .filter(|(.., place, is_favoured)| *is_favoured || place.is_used.load(Ordering::Relaxed))
            .collect();
        found.sort_by_key(|(offset, ..)| *offset);
        let header = |(_, name, place, is_favoured): (u64, &ObjectName, &RecordPlace, bool)| {
            (CacheRecordHeader { name: *name, stored_bytes: place.stored_bytes }, is_favoured)
        };
        found.into_iter().map(header).collect()
    }
}

/// Adds the records of a segment to the index. Returns the end of its good headers.
fn scan(
    storage: &dyn Storage,
    file: &FileName,
    segment: u64,
    length: u64,
    index: &mut BTreeMap<ObjectName, RecordPlace>,
) -> u64 {
    let mut offset = 0_u64;
    while offset < length {
        let mut header = [0; CACHE_RECORD_HEADER_BYTES];
        if storage.read_at(file, offset, &mut header).is_err() {
            break;
        }
        let Some(header) = CacheRecordHeader::decode(&header) else { break };
        let end = offset.saturating_add(header.record_bytes());
        if end > length {
            break;
        }
        let stored_bytes = header.stored_bytes;
        let place = RecordPlace { segment, offset, stored_bytes, is_used: AtomicBool::new(false) };
        index.insert(header.name, place);
        offset = end;
    }
    offset
}

fn name(text: &str) -> FileName {
    FileName::new(text).expect("the names of the cache are valid")
}

fn segment_file(number: u64) -> FileName {
    name(&format!("{FOLDER}/{number:010}"))
}

fn segment_number(file: &FileName) -> Option<u64> {
    let number = file.as_str().rsplit_once('/')?.1.parse().ok()?;
    (segment_file(number) == *file).then_some(number)
}

#[cfg(test)]
#[path = "stored_cache/tests.rs"]
mod tests;
