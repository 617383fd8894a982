//! Makes the map of one disk: each block is taken from an earlier map, is zeros, or is read from
//! the archive and uploaded. Blocks that a profile lists are packed at the end, and so are the
//! pages that lead to them.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Range;

use varve_block::{BlockStore, to_usize};
use varve_edition::{
    DiskShape, MapEntry, MapLevel, MapPage, ObjectName, ObjectPart, PAGE_ENTRIES_MAX, PublishedImage,
    StoredPart,
};
use varve_remote::{Observer, Target};
use varve_tree::{Entry, Extent, Extents, ReadPointerError, TreeReader, difference};
use varve_world::{Workers, read_each};

use crate::packs::{PackWriter, PackingOrder, PublicationLayout};
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
    pub(crate) layout: PublicationLayout,
}

/// A disk that is published already in the same form, and its tree in the archive.
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

/// At most so many blocks are read and compressed at a time to be packed.
const PACKED_AT_A_TIME: usize = 32;

/// The pages with packed blocks, until the blocks are packed.
#[derive(Default)]
struct PagesToPack {
    /// The entries of each page, those of blocks that are still to be packed as zeros.
    entries: BTreeMap<u64, Vec<MapEntry>>,
    /// The entries of these pages in an earlier map.
    earlier: BTreeMap<u64, MapEntry>,
    /// The blocks that are to be read and packed, by their place in the order of first access.
    blocks: BTreeMap<usize, u64>,
    /// The unchanged blocks in packs of an earlier edition.
    kept: BTreeMap<ObjectName, KeptInPack>,
}

/// The blocks of a pack of an earlier edition that are still needed.
#[derive(Default)]
struct KeptInPack {
    bytes: u64,
    blocks: BTreeMap<usize, u64>,
}

impl PagesToPack {
    /// Returns the source of a block, and notes the block if it is to be packed at `place`. Such a
    /// block counts as zeros until then. `kept` is its unchanged place in an earlier map.
    fn source_of(
        &mut self,
        block: u64,
        range: Range<u64>,
        kept: Option<ObjectPart>,
        place: Option<usize>,
        has_data: bool,
    ) -> BlockSource {
        match (kept, place) {
            (None, _) if !has_data => BlockSource::Known(MapEntry::Zeros),
            (None, None) => BlockSource::Archive(range),
            (Some(part), None) => BlockSource::Known(MapEntry::Stored(part)),
            (Some(part), Some(place)) if part.object != part.name => {
                let pack = self.kept.entry(part.object).or_default();
                pack.bytes += u64::from(part.bytes);
                pack.blocks.insert(place, block);
                BlockSource::Known(MapEntry::Stored(part))
            }
            // It is new, or an object by itself.
            (_, Some(place)) => {
                self.blocks.insert(place, block);
                BlockSource::Known(MapEntry::Zeros)
            }
        }
    }

    fn set(&mut self, block: u64, entry: MapEntry) {
        let (page, number) = (block / u64::from(PAGE_ENTRIES_MAX), block % u64::from(PAGE_ENTRIES_MAX));
        let entries = self.entries.get_mut(&page).expect("the pages of packed blocks are kept");
        entries[to_usize(number)] = entry;
    }

    /// Packs the blocks of packs anew of which less than half is needed. Returns their number.
    fn leave_half_empty_packs(&mut self, before: &PublishedState) -> u64 {
        let mut left_count = 0;
        for (object, kept) in std::mem::take(&mut self.kept) {
            if before.object_bytes(&object).is_none_or(|bytes| kept.bytes < bytes / 2) {
                left_count += kept.blocks.len() as u64;
                self.blocks.extend(kept.blocks);
            }
        }
        left_count
    }
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

/// Finds the sources of the blocks of a disk, page after page.
struct BlockSources<'a, D, C>
where
    D: Iterator<Item = Result<Range<u64>, ReadPointerError>>,
    C: Iterator<Item = Result<Range<u64>, ReadPointerError>>,
{
    shape: &'a DiskShape,
    earlier: Option<&'a EarlierMap<'a>>,
    order: &'a PackingOrder,
    /// The parts of the disk with data.
    data: PassedRanges<D>,
    /// The parts that differ from the earlier disk.
    changes: PassedRanges<C>,
}

impl<D, C> BlockSources<'_, D, C>
where
    D: Iterator<Item = Result<Range<u64>, ReadPointerError>>,
    C: Iterator<Item = Result<Range<u64>, ReadPointerError>>,
{
    /// Returns the sources of the blocks of a page. Each call has a later page than the one before.
    fn of_page(
        &mut self,
        writer: &MapWriter<'_>,
        page: u64,
        earlier_page: Option<&MapPage>,
        to_pack: &mut PagesToPack,
    ) -> Result<Vec<BlockSource>, PublishError> {
        let mut sources = Vec::new();
        for number in 0..u64::from(self.shape.page_entry_count(page)) {
            let block = page * u64::from(PAGE_ENTRIES_MAX) + number;
            let range = self.shape.block_range(block);
            let is_changed = self.changes.overlap(&range)?;
            let has_data = self.data.overlap(&range)?;
            // The last block of a disk may be shorter than that of another one.
            let is_as_long =
                self.earlier.is_some_and(|earlier| earlier.image.shape.block_range(block) == range);
            let kept = earlier_page.and_then(|page| entry_at(page, number)).and_then(|entry| match entry {
                MapEntry::Stored(part) if !is_changed && is_as_long && writer.can_keep(&part) => Some(part),
                _ => None,
            });
            sources.push(to_pack.source_of(block, range, kept, self.order.place(block), has_data));
        }
        Ok(sources)
    }
}

impl MapWriter<'_> {
    /// Uploads the blocks and pages of a disk, and returns the place of its root.
    pub(crate) fn write(
        &self,
        entry: &Entry,
        shape: &DiskShape,
        earlier: Option<&EarlierMap<'_>>,
        order: &PackingOrder,
    ) -> Result<UploadedMap, PublishError> {
        let blocks = self.blocks;
        let reader = TreeReader::new(blocks, entry);
        let changes = earlier.map(|earlier| difference(blocks, &earlier.entry, entry));
        let mut sources = BlockSources {
            shape,
            earlier,
            order,
            data: PassedRanges(leaves(reader.extents(0..entry.size())).peekable()),
            changes: PassedRanges(changes.into_iter().flatten().peekable()),
        };
        let earlier_root = match earlier {
            Some(earlier) => self.earlier_page(earlier, &root_part(earlier.image), MapLevel::Root)?,
            None => None,
        };
        let (mut read_count, mut kept_count) = (0, 0);
        let mut root_entries = Vec::new();
        let mut to_pack = PagesToPack::default();
        for page in 0..shape.page_count() {
            if self.observer.is_cancelled() {
                return Err(PublishError::Cancelled);
            }
            let earlier_entry = earlier_root.as_ref().and_then(|root| entry_at(root, page));
            let earlier_page = match (earlier, earlier_entry) {
                (Some(earlier), Some(MapEntry::Stored(part))) => {
                    self.earlier_page(earlier, &part, MapLevel::Blocks { page })?
                }
                _ => None,
            };
            let sources = sources.of_page(self, page, earlier_page.as_ref(), &mut to_pack)?;
            for source in &sources {
                kept_count += u64::from(matches!(source, BlockSource::Known(MapEntry::Stored(_))));
                read_count += u64::from(matches!(source, BlockSource::Archive(_)));
            }
            let entries = self.read_entries(&reader, &sources)?;
            root_entries.push(if order.has_page(page) {
                to_pack.entries.insert(page, entries);
                to_pack.earlier.extend(earlier_entry.map(|entry| (page, entry)));
                MapEntry::Zeros
            } else {
                self.put_page(entries, shape, page, earlier_entry)?
            });
            let end = shape.block_range((page + 1) * u64::from(PAGE_ENTRIES_MAX)).start;
            self.observer.add_done(end - shape.block_range(page * u64::from(PAGE_ENTRIES_MAX)).start);
        }
        kept_count -= to_pack.leave_half_empty_packs(self.before);
        read_count += to_pack.blocks.len() as u64;
        self.pack_blocks(&reader, shape, &mut to_pack)?;
        for (page, entry) in self.pack_pages(shape, to_pack)? {
            root_entries[to_usize(page)] = entry;
        }
        let root = MapPage::new(root_entries, shape, MapLevel::Root)?;
        let part = self.uploads.put(&root.encode(MapLevel::Root))?;
        let root = StoredPart { name: part.name, bytes: part.bytes };
        Ok(UploadedMap { root, read_count, kept_count })
    }

    /// Reads and uploads the blocks of a page, and returns its entries.
    fn read_entries(
        &self,
        reader: &TreeReader<'_>,
        sources: &[BlockSource],
    ) -> Result<Vec<MapEntry>, PublishError> {
        let entries = read_each(self.workers, sources, |source| match source {
            BlockSource::Known(entry) => Ok(*entry),
            BlockSource::Archive(range) => match self.read_block(reader, range)? {
                Some(content) => Ok(MapEntry::Stored(self.uploads.put(&content)?)),
                None => Ok(MapEntry::Zeros),
            },
        });
        entries.into_iter().collect()
    }

    /// Uploads a page as an object of its own, unless an earlier map has it. Returns its entry of
    /// the root.
    fn put_page(
        &self,
        entries: Vec<MapEntry>,
        shape: &DiskShape,
        page: u64,
        earlier: Option<MapEntry>,
    ) -> Result<MapEntry, PublishError> {
        let Some(stored) = self.store_page(entries, shape, MapLevel::Blocks { page })? else {
            return Ok(MapEntry::Zeros);
        };
        match earlier.and_then(|entry| self.unchanged_page(entry, &stored)) {
            Some(entry) => Ok(entry),
            None => Ok(MapEntry::Stored(self.uploads.put_stored(stored)?)),
        }
    }

    /// Reads the blocks that are to be packed, and uploads them in packs.
    fn pack_blocks(
        &self,
        reader: &TreeReader<'_>,
        shape: &DiskShape,
        to_pack: &mut PagesToPack,
    ) -> Result<(), PublishError> {
        let mut packs = PackWriter::new(self.uploads);
        let blocks: Vec<u64> = std::mem::take(&mut to_pack.blocks).into_values().collect();
        for group in blocks.chunks(PACKED_AT_A_TIME) {
            let stored = read_each(self.workers, group, |block| {
                let content = self.read_block(reader, &shape.block_range(*block))?;
                Ok::<_, PublishError>(content.map(|content| self.uploads.store(&content)))
            });
            for (block, stored) in group.iter().zip(stored) {
                if let Some(stored) = stored? {
                    packs.add(*block, &stored)?;
                }
            }
        }
        for (block, part) in packs.finish()? {
            to_pack.set(block, MapEntry::Stored(part));
        }
        Ok(())
    }

    /// Uploads the pages of packed blocks in packs, and returns their entries of the root.
    fn pack_pages(
        &self,
        shape: &DiskShape,
        to_pack: PagesToPack,
    ) -> Result<Vec<(u64, MapEntry)>, PublishError> {
        let mut packs = PackWriter::new(self.uploads);
        let mut unchanged = Vec::new();
        for (page, entries) in to_pack.entries {
            let Some(stored) = self.store_page(entries, shape, MapLevel::Blocks { page })? else { continue };
            match to_pack.earlier.get(&page).and_then(|entry| self.unchanged_page(*entry, &stored)) {
                Some(entry) => unchanged.push((page, entry)),
                None => packs.add(page, &stored)?,
            }
        }
        let packed = packs.finish()?.into_iter().map(|(page, part)| (page, MapEntry::Stored(part)));
        Ok(packed.chain(unchanged).collect())
    }

    /// Returns the place of a page in an earlier map, if it is there with the same bytes.
    fn unchanged_page(&self, earlier: MapEntry, stored: &[u8]) -> Option<MapEntry> {
        match earlier {
            MapEntry::Stored(part) if part.name == ObjectName::of(stored) && self.can_keep(&part) => {
                Some(earlier)
            }
            _ => None,
        }
    }

    /// Returns true if the object of a part is at the target, and fits the layout.
    fn can_keep(&self, part: &ObjectPart) -> bool {
        let fits = self.layout == PublicationLayout::Packs || part.object == part.name;
        fits && self.uploads.has(part)
    }

    /// Reads a page of an earlier map. Returns `None` if it is missing or damaged: its blocks are
    /// then read from the archive.
    fn earlier_page(
        &self,
        earlier: &EarlierMap<'_>,
        part: &ObjectPart,
        level: MapLevel,
    ) -> Result<Option<MapPage>, PublishError> {
        match read_page(self.target, part, self.uploads.form(), &earlier.image.shape, level) {
            Ok(page) => Ok(Some(page)),
            Err(error) if error.is_damage() => {
                self.uploads.forget(&part.object);
                Ok(None)
            }
            Err(error) => Err(PublishError::Part { source: Box::new(error) }),
        }
    }

    /// Reads a block; `None` if it is zeros.
    fn read_block(
        &self,
        reader: &TreeReader<'_>,
        range: &Range<u64>,
    ) -> Result<Option<Vec<u8>>, PublishError> {
        if self.observer.is_cancelled() {
            return Err(PublishError::Cancelled);
        }
        let length = to_usize(range.end - range.start);
        let mut content = vec![0; length];
        reader.read_at(range.start, &mut content)?;
        Ok(Some(content).filter(|content| content.iter().any(|byte| *byte != 0)))
    }

    /// Returns a page in its stored form; `None` if all its blocks are zeros.
    fn store_page(
        &self,
        entries: Vec<MapEntry>,
        shape: &DiskShape,
        level: MapLevel,
    ) -> Result<Option<Vec<u8>>, PublishError> {
        if entries.iter().all(|entry| *entry == MapEntry::Zeros) {
            return Ok(None);
        }
        Ok(Some(self.uploads.store(&MapPage::new(entries, shape, level)?.encode(level))))
    }
}

fn entry_at(page: &MapPage, number: u64) -> Option<MapEntry> {
    page.entries().get(to_usize(number)).copied()
}
