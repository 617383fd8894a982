//! A published disk for random reads. Its map is fetched when it is needed, a page at a time.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use varve_block::to_usize;
use varve_edition::{
    DiskShape, ImageCipher, MapEntry, MapLevel, MapPage, MapPageError, ObjectName, ObjectPart,
    PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, PublishedImage, ROOT_BYTES_MAX, UnpackError,
};
use varve_image::ReadAt;
use varve_tree::{DueReadAhead, Streams};

use crate::block_supply::{BlockOrigin, BlockSupply};
use crate::edge::Stopwatch;
use crate::fetcher::FetchError;
use crate::profile_use::ProfileUse;
use crate::schedule::Urgency;

/// The pages that are kept decoded. Each covers 1,024 blocks, and takes about 80 KiB.
const PAGE_COUNT_MAX: usize = 512;
/// The pages that are fetched together when all of them are read.
const PAGES_AHEAD: u64 = 64;
/// At most this number of blocks is examined for one search for data.
const SEARCH_BLOCKS_MAX: u64 = 1 << 16;
/// At most this number of blocks of one read is requested at once.
const AT_ONCE_MAX: usize = 64;

/// The reason why a published disk cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadDiskError {
    #[error("block {block}: {reason}")]
    Block { block: u64, reason: FetchError },
    #[error("block {block} has {actual} bytes, but the disk has {expected} there")]
    Length { block: u64, expected: u64, actual: usize },
    #[error("the map of the disk: {0}")]
    Map(FetchError),
    #[error("the page of the map in the object {object} is invalid: {reason}")]
    Page { object: ObjectName, reason: MapPageError },
    #[error("it is encrypted, and needs its content key")]
    NoKey,
    #[error("it is encrypted with another content key than the given one")]
    OtherKey,
    #[error("it is not encrypted, and needs no content key")]
    NotEncrypted,
    #[error("the disk ends before byte {end}")]
    End { end: u64 },
}

impl From<ReadDiskError> for io::Error {
    fn from(error: ReadDiskError) -> Self {
        let kind = match &error {
            ReadDiskError::End { .. } => io::ErrorKind::UnexpectedEof,
            ReadDiskError::Block { reason, .. } | ReadDiskError::Map(reason) => match reason {
                FetchError::Patience { .. } => io::ErrorKind::TimedOut,
                FetchError::Ended { .. } => io::ErrorKind::Interrupted,
                FetchError::Offline { .. } | FetchError::Missing { .. } => io::ErrorKind::NotFound,
                FetchError::WrongBytes { .. } | FetchError::Unpack { .. } => io::ErrorKind::InvalidData,
            },
            ReadDiskError::Length { .. } | ReadDiskError::Page { .. } => io::ErrorKind::InvalidData,
            ReadDiskError::NoKey | ReadDiskError::OtherKey | ReadDiskError::NotEncrypted => {
                io::ErrorKind::PermissionDenied
            }
        };
        io::Error::new(kind, error)
    }
}

/// One image of a publication. Many threads may read it at once.
pub struct PublishedDisk {
    image: PublishedImage,
    source: Arc<BlockSupply>,
    root: MapPage,
    pages: Cache<u64, Arc<MapPage>>,
    streams: Mutex<Streams>,
    profile_use: Mutex<Option<ProfileUse>>,
}

impl PublishedDisk {
    /// Opens an image, and fetches the root of its map.
    ///
    /// # Errors
    /// [`ReadDiskError`], also if `source` has another form than the image, or another content key.
    pub fn open(image: PublishedImage, source: Arc<BlockSupply>) -> Result<Self, ReadDiskError> {
        let part = ObjectPart::alone(image.root.name, image.root.bytes);
        match (image.cipher, source.form().fits(image.cipher)) {
            (_, true) => {}
            (ImageCipher::None, false) => return Err(ReadDiskError::NotEncrypted),
            (ImageCipher::Aes256Gcm, false) => return Err(ReadDiskError::NoKey),
        }
        let root = page(&source, &part, &image.shape, MapLevel::Root).map_err(|error| match error {
            // These are the published bytes, so the key is another one.
            ReadDiskError::Map(FetchError::Unpack { reason: UnpackError::Decrypt, .. }) => {
                ReadDiskError::OtherKey
            }
            error => error,
        })?;
        let pages = Cache::new(PAGE_COUNT_MAX);
        let (streams, profile_use) = (Mutex::default(), Mutex::default());
        Ok(Self { image, source, root, pages, streams, profile_use })
    }

    /// Returns the image.
    #[must_use]
    pub fn image(&self) -> &PublishedImage {
        &self.image
    }

    /// Returns the caches and mirrors behind the disk.
    #[must_use]
    pub fn source(&self) -> &Arc<BlockSupply> {
        &self.source
    }

    /// Fills `into` with the bytes from `offset`.
    ///
    /// # Errors
    /// [`ReadDiskError`]. The contents of `into` are then undefined, and other reads go on.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadDiskError> {
        let end = offset.saturating_add(into.len() as u64);
        if end > self.image.shape.size {
            return Err(ReadDiskError::End { end });
        }
        let blocks = self.blocks_of(&(offset..end));
        // A profile knows better than a guess what is read next.
        let is_foreseen = self.profile_use.lock().as_ref().is_some_and(|profile| profile.foresees(&blocks));
        let ahead = if is_foreseen { None } else { self.streams.lock().note(offset..end) };
        // All blocks of a long read come at once, and not one after the other.
        let own = if blocks.end - blocks.start > 1 { self.prefetch(&blocks)? } else { Vec::new() };
        if let Some(ahead) = ahead {
            // A failure matters only to the read that needs these blocks.
            self.prefetch(&self.blocks_of(&ahead)).ok();
        }
        let mut rest = into;
        for block in blocks {
            let range = self.image.shape.block_range(block);
            let from = offset.max(range.start);
            let length = end.min(range.end).saturating_sub(from);
            let length = to_usize(length).min(rest.len());
            let (part, others) = std::mem::take(&mut rest).split_at_mut(length);
            rest = others;
            let within = to_usize(from - range.start);
            self.read_block(block, &own, within, part)?;
        }
        Ok(())
    }

    fn read_block(
        &self,
        block: u64,
        own: &[ObjectName],
        within: usize,
        into: &mut [u8],
    ) -> Result<(), ReadDiskError> {
        let since = Stopwatch::start();
        let range = self.image.shape.block_range(block);
        let part = match self.entry(block)? {
            MapEntry::Zeros => {
                into.fill(0);
                self.source.note(block, None, BlockOrigin::Zeros, since);
                return Ok(());
            }
            MapEntry::Stored(part) => part,
        };
        let is_own = own.contains(&part.name);
        let content = match self.source.content(&part, self.content_bytes_max(), is_own) {
            Ok((content, origin)) => {
                // It has come while the blocks before it were read: that is no hit.
                let was_fetched = is_own && origin == BlockOrigin::Memory;
                let origin = if was_fetched { BlockOrigin::Waited } else { origin };
                if let Some(profile) = self.profile_use.lock().as_mut() {
                    profile.note(block, &origin);
                }
                self.source.note(block, Some(&part), origin, since);
                content
            }
            Err(reason) => {
                self.source.note(block, Some(&part), BlockOrigin::Failed, since);
                return Err(ReadDiskError::Block { block, reason });
            }
        };
        let expected = range.end - range.start;
        if content.len() as u64 != expected {
            return Err(ReadDiskError::Length { block, expected, actual: content.len() });
        }
        let bytes = content.get(within..).and_then(|content| content.get(..into.len()));
        into.copy_from_slice(bytes.ok_or(ReadDiskError::End { end: range.end })?);
        Ok(())
    }

    /// Prefetches what the sequential readers will request next. A front end calls it after it has
    /// answered.
    pub fn read_ahead(&self) {
        let due = self.streams.lock().take_due();
        if let Some(DueReadAhead::Range(range)) = due {
            self.prefetch(&self.blocks_of(&range)).ok();
        }
    }

    /// Returns the blocks that were not on their way already.
    fn prefetch(&self, blocks: &Range<u64>) -> Result<Vec<ObjectName>, ReadDiskError> {
        let parts = self.parts_of(blocks.clone().take(AT_ONCE_MAX))?;
        Ok(self.source.prefetch(&parts, self.content_bytes_max(), Urgency::Ahead))
    }

    /// Returns the stored blocks among `blocks`, in their order.
    pub(crate) fn parts_of(
        &self,
        blocks: impl Iterator<Item = u64>,
    ) -> Result<Vec<ObjectPart>, ReadDiskError> {
        let mut parts = Vec::new();
        for block in blocks {
            if let MapEntry::Stored(part) = self.entry(block)? {
                parts.push(part);
            }
        }
        Ok(parts)
    }

    /// Compares the reads with a profile from now on. Reads of its blocks cause no read-ahead.
    pub(crate) fn expect_reads(&self, profile: ProfileUse) {
        *self.profile_use.lock() = Some(profile);
    }

    /// Returns true if the reads since the last call were mostly for blocks outside of the profile.
    /// It is then forgotten.
    pub(crate) fn has_surprised(&self) -> bool {
        self.profile_use.lock().take_if(ProfileUse::end_interval).is_some()
    }

    /// Returns the first range within `range` that has stored blocks; `None` if only zeros follow.
    /// The search is bounded: the rest of a long range of zeros may be reported as data.
    ///
    /// # Errors
    /// [`ReadDiskError`] if the map cannot be read.
    pub fn next_data_in(&self, range: Range<u64>) -> Result<Option<Range<u64>>, ReadDiskError> {
        let end = range.end.min(self.image.shape.size);
        if range.start >= end {
            return Ok(None);
        }
        let blocks = self.blocks_of(&(range.start..end));
        let is_data = |block| match self.root_entry(block / u64::from(PAGE_ENTRIES_MAX)) {
            MapEntry::Zeros => Ok(false),
            MapEntry::Stored(_) => self.entry(block).map(|entry| entry != MapEntry::Zeros),
        };
        let mut block = blocks.start;
        while block < blocks.end && block - blocks.start < SEARCH_BLOCKS_MAX && !is_data(block)? {
            block += 1;
        }
        if block >= blocks.end {
            return Ok(None);
        }
        let first = block;
        block += 1;
        while block < blocks.end && block - blocks.start < SEARCH_BLOCKS_MAX && is_data(block)? {
            block += 1;
        }
        let start = self.image.shape.block_range(first).start.max(range.start);
        Ok(Some(start..self.image.shape.block_range(block - 1).end.min(end)))
    }

    /// Returns the stored blocks of each page, in the order of the disk. Pages are fetched many at
    /// a time.
    pub(crate) fn stored_parts(&self) -> impl Iterator<Item = Result<Vec<ObjectPart>, ReadDiskError>> {
        (0..self.image.shape.page_count()).map(|page| {
            if page % PAGES_AHEAD == 0 {
                self.prefetch_pages(page..page.saturating_add(PAGES_AHEAD));
            }
            self.parts_of_page(page)
        })
    }

    /// Prefetches those pages of the map that are not known yet.
    fn prefetch_pages(&self, pages: impl IntoIterator<Item = u64>) {
        let missing = pages.into_iter().filter(|page| self.pages.peek(page).is_none());
        let parts = missing.filter_map(|page| match self.root_entry(page) {
            MapEntry::Zeros => None,
            MapEntry::Stored(part) => Some(part),
        });
        let parts: Vec<_> = parts.collect();
        self.source.prefetch(&parts, PAGE_BYTES_MAX, Urgency::Ahead);
    }

    /// Prefetches the pages of the map that have these blocks.
    pub(crate) fn prefetch_map_of(&self, blocks: &[u64]) {
        let mut seen = BTreeSet::new();
        let pages = blocks.iter().map(|block| block / u64::from(PAGE_ENTRIES_MAX));
        self.prefetch_pages(pages.filter(|page| seen.insert(*page)));
    }

    fn parts_of_page(&self, page: u64) -> Result<Vec<ObjectPart>, ReadDiskError> {
        let MapEntry::Stored(_) = self.root_entry(page) else { return Ok(Vec::new()) };
        let page = self.page(page)?;
        let parts = page.entries().iter().filter_map(|entry| match entry {
            MapEntry::Zeros => None,
            MapEntry::Stored(part) => Some(*part),
        });
        Ok(parts.collect())
    }

    /// Reads a stored block of the disk, if only to have it in the cache. Waits with the patience
    /// of a reader.
    pub(crate) fn read_part(&self, part: &ObjectPart) -> Result<(), FetchError> {
        self.source.content(part, self.content_bytes_max(), false).map(drop)
    }

    pub(crate) fn content_bytes_max(&self) -> usize {
        to_usize(self.image.shape.block_bytes.get())
    }

    pub(crate) fn blocks_of(&self, range: &Range<u64>) -> Range<u64> {
        let block_bytes = u64::from(self.image.shape.block_bytes.get());
        let end = range.end.min(self.image.shape.size);
        range.start / block_bytes..end.div_ceil(block_bytes)
    }

    fn root_entry(&self, page: u64) -> MapEntry {
        let entry = self.root.entries().get(to_usize(page));
        entry.copied().unwrap_or(MapEntry::Zeros)
    }

    fn entry(&self, block: u64) -> Result<MapEntry, ReadDiskError> {
        let (page, number) = (block / u64::from(PAGE_ENTRIES_MAX), block % u64::from(PAGE_ENTRIES_MAX));
        let MapEntry::Stored(_) = self.root_entry(page) else { return Ok(MapEntry::Zeros) };
        let page = self.page(page)?;
        let entry = page.entries().get(to_usize(number));
        Ok(entry.copied().unwrap_or(MapEntry::Zeros))
    }

    fn page(&self, number: u64) -> Result<Arc<MapPage>, ReadDiskError> {
        if let Some(page) = self.pages.get(&number) {
            return Ok(page);
        }
        let MapEntry::Stored(part) = self.root_entry(number) else {
            return Err(ReadDiskError::End { end: self.image.shape.size });
        };
        let level = MapLevel::Blocks { page: number };
        let page = Arc::new(page(&self.source, &part, &self.image.shape, level)?);
        self.pages.insert(number, Arc::clone(&page));
        Ok(page)
    }
}

fn page(
    source: &BlockSupply,
    part: &ObjectPart,
    shape: &DiskShape,
    level: MapLevel,
) -> Result<MapPage, ReadDiskError> {
    let bytes_max = match level {
        MapLevel::Root => ROOT_BYTES_MAX,
        MapLevel::Blocks { .. } => PAGE_BYTES_MAX,
    };
    let (content, _): (Bytes, _) = source.content(part, bytes_max, false).map_err(ReadDiskError::Map)?;
    // Nothing of the disk can be read without its map.
    source.stored().into_iter().for_each(|cache| cache.favour([part.name]));
    MapPage::decode(&content, shape, level)
        .map_err(|reason| ReadDiskError::Page { object: part.object, reason })
}

impl ReadAt for PublishedDisk {
    fn size(&self) -> u64 {
        self.image.shape.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        Ok(self.read(offset, into)?)
    }
}
