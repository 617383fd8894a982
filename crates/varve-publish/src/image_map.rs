//! Makes the map of one disk: each block is taken from an earlier map, is zeros, or is read from
//! the archive and uploaded.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use varve_block::BlockStore;
use varve_edition::{
    DiskShape, MapEntry, MapLevel, MapPage, ObjectPart, PAGE_ENTRIES_MAX, PublishedImage, StoredPart,
};
use varve_remote::{Observer, Target};
use varve_tree::{Entry, Extent, Extents, ReadPointerError, TreeReader, difference};
use varve_world::{Workers, read_each};

use crate::publish_error::PublishError;
use crate::published::{PublishedState, read_page, root_part};
use crate::uploads::Uploads;

/// Uploads maps of disks, and the blocks that they lead to.
#[derive(Clone, Copy)]
pub(crate) struct MapWriter<'a> {
    pub(crate) target: &'a dyn Target,
    pub(crate) blocks: &'a dyn BlockStore,
    pub(crate) workers: &'a dyn Workers,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) uploads: &'a Uploads<'a>,
    /// The publication before this edition.
    pub(crate) before: &'a PublishedState,
}

/// A disk that is published already, and its tree in the archive.
pub(crate) struct EarlierMap<'a> {
    pub(crate) image: &'a PublishedImage,
    pub(crate) entry: Entry,
}

/// The map of a disk, uploaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UploadedMap {
    pub(crate) root: StoredPart,
    /// The blocks that were read from the archive.
    pub(crate) read_count: u64,
    /// The blocks that an earlier map has.
    pub(crate) kept_count: u64,
}

/// The source of one block.
enum BlockSource {
    Known(MapEntry),
    Archive(Range<u64>),
}

/// Ranges in ascending order, of which those before the current position are dropped.
struct PassedRanges<I: Iterator<Item = Result<Range<u64>, ReadPointerError>>>(Peekable<I>);

impl<I: Iterator<Item = Result<Range<u64>, ReadPointerError>>> PassedRanges<I> {
    /// Returns true if one of them overlaps `range`. Each call has a later range than the one
    /// before.
    fn overlap(&mut self, range: &Range<u64>) -> Result<bool, ReadPointerError> {
        while self.0.peek().is_some_and(|next| next.as_ref().is_ok_and(|next| next.end <= range.start)) {
            self.0.next();
        }
        match self.0.peek() {
            None => Ok(false),
            Some(Ok(next)) => Ok(next.start < range.end),
            Some(Err(_)) => match self.0.next() {
                Some(Err(error)) => Err(error),
                _ => Ok(true),
            },
        }
    }
}

fn leaves(extents: Extents<'_>) -> impl Iterator<Item = Result<Range<u64>, ReadPointerError>> {
    extents.filter_map(|extent| match extent {
        Ok(Extent { leaf: None, .. }) => None,
        Ok(extent) => Some(Ok(extent.range())),
        Err(error) => Some(Err(error)),
    })
}

impl MapWriter<'_> {
    /// Uploads the blocks and pages of a disk, and returns the place of its root.
    pub(crate) fn write(
        &self,
        entry: &Entry,
        shape: &DiskShape,
        earlier: Option<&EarlierMap<'_>>,
    ) -> Result<UploadedMap, PublishError> {
        let blocks = self.blocks;
        let reader = TreeReader::new(blocks, entry);
        let mut data = PassedRanges(leaves(reader.extents(0..entry.size())).peekable());
        let changes = earlier.map(|earlier| difference(blocks, &earlier.entry, entry));
        let mut changes = PassedRanges(changes.into_iter().flatten().peekable());
        let earlier_root = match earlier {
            Some(earlier) => self.earlier_page(earlier, &root_part(earlier.image), MapLevel::Root)?,
            None => None,
        };
        let (read_count, kept_count) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut root_entries = Vec::new();
        for page in 0..shape.page_count() {
            if self.observer.is_cancelled() {
                return Err(PublishError::Cancelled);
            }
            let level = MapLevel::Blocks { page };
            let earlier_entry = earlier_root.as_ref().and_then(|root| entry_at(root, page));
            let earlier_page = match (earlier, earlier_entry) {
                (Some(earlier), Some(MapEntry::Stored(part))) => self.earlier_page(earlier, &part, level)?,
                _ => None,
            };
            let mut sources = Vec::new();
            for number in 0..u64::from(shape.page_entry_count(page)) {
                let block = page * u64::from(PAGE_ENTRIES_MAX) + number;
                let range = shape.block_range(block);
                let is_changed = changes.overlap(&range)?;
                let has_data = data.overlap(&range)?;
                let known = earlier_page.as_ref().and_then(|page| entry_at(page, number));
                // The last block of a disk may be shorter than that of another one.
                let is_as_long =
                    earlier.is_some_and(|earlier| earlier.image.shape.block_range(block) == range);
                sources.push(match known {
                    Some(MapEntry::Stored(part)) if !is_changed && is_as_long && self.before.has(&part) => {
                        kept_count.fetch_add(1, Ordering::Relaxed);
                        BlockSource::Known(MapEntry::Stored(part))
                    }
                    _ if has_data => BlockSource::Archive(range),
                    _ => BlockSource::Known(MapEntry::Zeros),
                });
            }
            let entries = read_each(self.workers, &sources, |source| match source {
                BlockSource::Known(entry) => Ok(*entry),
                BlockSource::Archive(range) => {
                    read_count.fetch_add(1, Ordering::Relaxed);
                    self.upload_block(&reader, range)
                }
            });
            let entries = entries.into_iter().collect::<Result<Vec<_>, _>>()?;
            root_entries.push(self.upload_page(entries, shape, level)?);
            let end = shape.block_range((page + 1) * u64::from(PAGE_ENTRIES_MAX)).start;
            self.observer.add_done(end - shape.block_range(page * u64::from(PAGE_ENTRIES_MAX)).start);
        }
        let root = MapPage::new(root_entries, shape, MapLevel::Root)?;
        let part = self.uploads.put(&root.encode(MapLevel::Root))?;
        let root = StoredPart { name: part.name, bytes: part.bytes };
        Ok(UploadedMap { root, read_count: read_count.into_inner(), kept_count: kept_count.into_inner() })
    }

    /// Reads a page of an earlier map. Returns `None` if it is missing or damaged: its blocks are
    /// then read from the archive.
    fn earlier_page(
        &self,
        earlier: &EarlierMap<'_>,
        part: &ObjectPart,
        level: MapLevel,
    ) -> Result<Option<MapPage>, PublishError> {
        match read_page(self.target, part, &earlier.image.shape, level) {
            Ok(page) => Ok(Some(page)),
            Err(error) if error.is_damage() => {
                self.uploads.forget(&part.object);
                Ok(None)
            }
            Err(error) => Err(PublishError::Part { source: Box::new(error) }),
        }
    }

    fn upload_block(&self, reader: &TreeReader<'_>, range: &Range<u64>) -> Result<MapEntry, PublishError> {
        if self.observer.is_cancelled() {
            return Err(PublishError::Cancelled);
        }
        let length = usize::try_from(range.end - range.start).expect("a block has at most 1 MiB");
        let mut content = vec![0; length];
        reader.read_at(range.start, &mut content)?;
        if content.iter().all(|byte| *byte == 0) {
            return Ok(MapEntry::Zeros);
        }
        Ok(MapEntry::Stored(self.uploads.put(&content)?))
    }

    fn upload_page(
        &self,
        entries: Vec<MapEntry>,
        shape: &DiskShape,
        level: MapLevel,
    ) -> Result<MapEntry, PublishError> {
        if entries.iter().all(|entry| *entry == MapEntry::Zeros) {
            return Ok(MapEntry::Zeros);
        }
        let page = MapPage::new(entries, shape, level)?;
        Ok(MapEntry::Stored(self.uploads.put(&page.encode(level))?))
    }
}

fn entry_at(page: &MapPage, number: u64) -> Option<MapEntry> {
    page.entries().get(usize::try_from(number).ok()?).copied()
}
