//! The one way to a stored block: memory, then the cache on disk, then the mirrors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use varve_block::to_usize;
use varve_edition::{BlockForm, ObjectName, ObjectPart};

use crate::edge::Stopwatch;
use crate::fetcher::{FetchError, FetchSettings, FetchSink, FetchedFor, Fetcher, PublicationServer};
use crate::schedule::Urgency;
use crate::stored_cache::{CacheFigures, StoredCache};

/// A cached content is counted as longer by this, for its name and the table.
const CONTENT_OVERHEAD_BYTES: u64 = 128;

/// The origin of a block that a reader got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockOrigin {
    /// No block is stored: all bytes are zeros.
    Zeros,
    Memory,
    /// The cache on disk.
    Storage,
    /// The block was on its way already, for another reader or by read-ahead.
    Waited,
    Fetched {
        mirror: Arc<str>,
    },
    Failed,
}

/// One access to a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockAccess {
    /// The number of the block on its disk.
    pub block: u64,
    /// `None` for zeros.
    pub part: Option<ObjectPart>,
    pub origin: BlockOrigin,
    pub elapsed: Duration,
}

/// Wrong bytes from a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FalsifiedBlock {
    pub mirror: String,
    pub object: ObjectName,
    pub expected: ObjectName,
    pub found: ObjectName,
}

/// Observes the accesses, for a log. Many threads may call it at once.
pub trait AccessLog: Send + Sync {
    fn accessed(&self, access: &BlockAccess);
    fn falsified(&self, block: &FalsifiedBlock);
}

/// Figures since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttachFigures {
    /// Accesses to blocks by their origin.
    pub zeros: u64,
    pub memory: u64,
    pub storage: u64,
    pub waited: u64,
    pub fetched: u64,
    pub failed: u64,
    /// The stored bytes that have come for readers, by read-ahead and for a
    /// profile, and to fill the cache.
    pub reader_bytes: u64,
    pub ahead_bytes: u64,
    pub fill_bytes: u64,
    /// Blocks that came with wrong bytes.
    pub falsified: u64,
    /// The time of all threads together to unpack blocks, and to check those that servers have
    /// sent.
    pub opening: Duration,
    /// The figures of the cache on disk, if there is one.
    pub cache: Option<CacheFigures>,
}

#[derive(Default)]
struct Counters {
    zeros: AtomicU64,
    memory: AtomicU64,
    storage: AtomicU64,
    waited: AtomicU64,
    fetched: AtomicU64,
    failed: AtomicU64,
    reader_bytes: AtomicU64,
    ahead_bytes: AtomicU64,
    fill_bytes: AtomicU64,
    falsified: AtomicU64,
    opening_nanoseconds: AtomicU64,
}

impl Counters {
    fn note_opening(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.opening_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// The caches and the mirrors of a publication, for images of one form. The cache on disk has the
/// stored blocks, encrypted ones as they came.
pub struct BlockSupply {
    form: BlockForm,
    caches: Arc<BlockCaches>,
    /// `None` offline.
    fetcher: Option<Fetcher>,
}

/// The parts that also the threads of the fetcher use.
struct BlockCaches {
    contents: Cache<ObjectName, Bytes, ContentWeighter>,
    stored: Option<StoredCache>,
    counters: Counters,
    log: Option<Arc<dyn AccessLog>>,
}

#[derive(Clone)]
struct ContentWeighter;

impl Weighter<ObjectName, Bytes> for ContentWeighter {
    fn weight(&self, _name: &ObjectName, content: &Bytes) -> u64 {
        content.len() as u64 + CONTENT_OVERHEAD_BYTES
    }
}

impl FetchSink for BlockCaches {
    fn content(&self, name: &ObjectName) -> Option<Bytes> {
        self.contents.peek(name)
    }

    fn take_content(&self, name: &ObjectName, content: &Bytes) {
        self.contents.insert(*name, content.clone());
    }

    fn take_stored(&self, name: &ObjectName, stored: &[u8], purpose: FetchedFor, opening: Duration) {
        self.counters.note_opening(opening);
        let counter = match purpose {
            FetchedFor::Reader => &self.counters.reader_bytes,
            FetchedFor::Ahead => &self.counters.ahead_bytes,
            FetchedFor::Fill => &self.counters.fill_bytes,
        };
        counter.fetch_add(stored.len() as u64, Ordering::Relaxed);
        if let Some(cache) = &self.stored {
            cache.put(name, stored);
        }
    }

    fn wrong_bytes(&self, mirror: &str, object: &ObjectName, expected: &ObjectName, found: &ObjectName) {
        self.counters.falsified.fetch_add(1, Ordering::Relaxed);
        if let Some(log) = &self.log {
            let mirror = mirror.to_owned();
            log.falsified(&FalsifiedBlock { mirror, object: *object, expected: *expected, found: *found });
        }
    }
}

impl BlockSupply {
    /// Opens the way to stored blocks of the form of an image. Without mirrors, it is offline.
    /// `memory_bytes` bounds the contents in memory.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub fn open(
        mirrors: Vec<PublicationServer>,
        settings: FetchSettings,
        form: BlockForm,
        stored: Option<StoredCache>,
        memory_bytes: u64,
        log: Option<Arc<dyn AccessLog>>,
    ) -> std::io::Result<Self> {
        let content_count = to_usize(memory_bytes / (64 << 10)).max(16);
        let contents = Cache::with_weighter(content_count, memory_bytes, ContentWeighter);
        let caches = Arc::new(BlockCaches { contents, stored, counters: Counters::default(), log });
        let fetcher = match mirrors.is_empty() {
            true => None,
            false => {
                let sink: Arc<dyn FetchSink> = Arc::clone(&caches) as _;
                Some(Fetcher::start(mirrors, settings, form.clone(), Arc::downgrade(&sink))?)
            }
        };
        Ok(Self { form, caches, fetcher })
    }

    /// Returns the form of the stored blocks.
    #[must_use]
    pub fn form(&self) -> &BlockForm {
        &self.form
    }

    /// Returns the figures.
    #[must_use]
    pub fn figures(&self) -> AttachFigures {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.caches.counters;
        AttachFigures {
            zeros: count(&counters.zeros),
            memory: count(&counters.memory),
            storage: count(&counters.storage),
            waited: count(&counters.waited),
            fetched: count(&counters.fetched),
            failed: count(&counters.failed),
            reader_bytes: count(&counters.reader_bytes),
            ahead_bytes: count(&counters.ahead_bytes),
            fill_bytes: count(&counters.fill_bytes),
            falsified: count(&counters.falsified),
            opening: Duration::from_nanos(count(&counters.opening_nanoseconds)),
            cache: self.caches.stored.as_ref().map(StoredCache::figures),
        }
    }

    /// Waits until everything that is on its way has come, and is in the cache, for at most `time`.
    /// Returns whether that is so.
    pub fn wait_idle(&self, time: Duration) -> bool {
        self.fetcher.as_ref().is_none_or(|fetcher| fetcher.wait_idle(time))
    }

    /// Returns the cache on disk.
    #[must_use]
    pub fn stored(&self) -> Option<&StoredCache> {
        self.caches.stored.as_ref()
    }

    pub(crate) fn fetcher(&self) -> Option<&Fetcher> {
        self.fetcher.as_ref()
    }

    /// Returns the content of a stored block, of at most `content_bytes_max` bytes. `is_own` is
    /// true if the same reader has prefetched it for this read.
    pub(crate) fn content(
        &self,
        part: &ObjectPart,
        content_bytes_max: usize,
        is_own: bool,
    ) -> Result<(Bytes, BlockOrigin), FetchError> {
        if let Some(content) = self.caches.contents.get(&part.name) {
            return Ok((content, BlockOrigin::Memory));
        }
        if let Some(content) = self.stored_content(part, content_bytes_max)? {
            return Ok((content, BlockOrigin::Storage));
        }
        let Some(fetcher) = &self.fetcher else { return Err(FetchError::Offline { object: part.object }) };
        let fetched = fetcher.fetch(part, content_bytes_max)?;
        let is_own = (fetched.was_asked || is_own) && !fetched.mirror.is_empty();
        let origin = match is_own {
            true => BlockOrigin::Fetched { mirror: fetched.mirror },
            false => BlockOrigin::Waited,
        };
        Ok((fetched.content, origin))
    }

    fn stored_content(
        &self,
        part: &ObjectPart,
        content_bytes_max: usize,
    ) -> Result<Option<Bytes>, FetchError> {
        let Some(cache) = &self.caches.stored else { return Ok(None) };
        let opened = cache.get(&part.name, |block| {
            let since = Stopwatch::start();
            let content = block.unpack(&self.form, content_bytes_max);
            self.caches.counters.note_opening(since.elapsed());
            content
        });
        let Some(content) = opened else { return Ok(None) };
        let content = content.map_err(|reason| FetchError::Unpack { object: part.object, reason })?;
        let content = Bytes::from(content);
        self.caches.contents.insert(part.name, content.clone());
        Ok(Some(content))
    }

    /// Returns the count of all stored bytes that have come from mirrors.
    pub(crate) fn received_bytes(&self) -> u64 {
        let counters = &self.caches.counters;
        let counts = [&counters.reader_bytes, &counters.ahead_bytes, &counters.fill_bytes];
        counts.map(|count| count.load(Ordering::Relaxed)).into_iter().fold(0, u64::saturating_add)
    }

    /// Counts and logs an access that began when `since` was started.
    pub(crate) fn note(&self, block: u64, part: Option<&ObjectPart>, origin: BlockOrigin, since: Stopwatch) {
        let counters = &self.caches.counters;
        let counter = match &origin {
            BlockOrigin::Zeros => &counters.zeros,
            BlockOrigin::Memory => &counters.memory,
            BlockOrigin::Storage => &counters.storage,
            BlockOrigin::Waited => &counters.waited,
            BlockOrigin::Fetched { .. } => &counters.fetched,
            BlockOrigin::Failed => &counters.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(log) = &self.caches.log {
            let elapsed = since.elapsed();
            log.accessed(&BlockAccess { block, part: part.copied(), origin, elapsed });
        }
    }

    /// Fetches blocks that will be read soon, unless they are here. Returns those that were not on
    /// their way already.
    pub(crate) fn prefetch(
        &self,
        parts: &[ObjectPart],
        content_bytes_max: usize,
        urgency: Urgency,
    ) -> Vec<ObjectName> {
        let Some(fetcher) = &self.fetcher else { return Vec::new() };
        let missing: Vec<_> = parts.iter().filter(|part| !self.is_here(part)).copied().collect();
        if missing.is_empty() {
            return Vec::new();
        }
        fetcher.want(&missing, content_bytes_max, urgency)
    }

    fn is_here(&self, part: &ObjectPart) -> bool {
        self.caches.contents.peek(&part.name).is_some() || self.is_stored(&part.name)
    }

    pub(crate) fn is_stored(&self, name: &ObjectName) -> bool {
        self.caches.stored.as_ref().is_some_and(|cache| cache.contains(name))
    }
}
