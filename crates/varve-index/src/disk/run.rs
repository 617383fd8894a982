//! A run: all entries up to some moment, in order, in a file of pages that never changes. The first
//! key of each page is kept in memory, so a look-up reads one page.

use std::io;
use std::sync::Arc;

use varve_block::{LogAddress, to_usize};
use varve_world::{FileName, Storage};

use super::IndexEntry;
use super::page::{PAGE_BYTES, PageCodes, RunPage, RunPageBuilder};

/// The bytes that are read or written at a time.
const PIECE_BYTES: usize = 64 * PAGE_BYTES;
/// A file that is being written is synced after this many bytes, so that the last sync is short.
const SYNC_BYTES: u64 = 8 << 20;
/// The largest number of pages that one look-up reads. Only an attacker can make one key fill more
/// pages.
const LOOKUP_PAGES_MAX: usize = 16;

/// The reason why a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadRunError {
    #[error("{file}: page {page} is damaged, or belongs to another index")]
    Damaged { file: FileName, page: u64 },
    #[error("{file}: cannot read page {page}")]
    Storage { file: FileName, page: u64, source: io::Error },
}

/// A file of entries.
pub(super) struct IndexRun {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) file: FileName,
    pub(super) codes: PageCodes,
    /// The first key of each page.
    pub(super) fences: Vec<u64>,
    pub(super) entry_count: u64,
}

/// The result of a look-up in a run.
pub(super) struct RunLookup {
    pub(super) pages_read: u64,
    /// True if all pages with the key were read.
    pub(super) is_complete: bool,
}

impl IndexRun {
    pub(super) fn file_bytes(&self) -> u64 {
        self.fences.len() as u64 * PAGE_BYTES as u64
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.fences.capacity() * size_of::<u64>()) as u64
    }

    /// Adds every address of `key` to `into`.
    pub(super) fn addresses_of(
        &self,
        key: u64,
        into: &mut Vec<LogAddress>,
    ) -> Result<RunLookup, ReadRunError> {
        let first = self.fences.partition_point(|fence| *fence < key).saturating_sub(1);
        let end = self.fences.partition_point(|fence| *fence <= key);
        let mut bytes = [0; PAGE_BYTES];
        let mut pages_read = 0;
        for number in (first..end).take(LOOKUP_PAGES_MAX) {
            pages_read += 1;
            self.page(number as u64, &mut bytes)?.addresses_of(key, into);
        }
        Ok(RunLookup { pages_read, is_complete: end.saturating_sub(first) <= LOOKUP_PAGES_MAX })
    }

    pub(super) fn page<'a>(
        &self,
        page: u64,
        bytes: &'a mut [u8; PAGE_BYTES],
    ) -> Result<RunPage<'a>, ReadRunError> {
        let file = || self.file.clone();
        self.storage
            .read_at(&self.file, page * PAGE_BYTES as u64, bytes)
            .map_err(|source| ReadRunError::Storage { file: file(), page, source })?;
        RunPage::open(bytes, page, self.codes).ok_or_else(|| ReadRunError::Damaged { file: file(), page })
    }
}

/// Reads the entries of a run in order.
pub(super) struct RunReader {
    run: Arc<IndexRun>,
    piece: Vec<u8>,
    /// The first page of the piece.
    piece_page: u64,
    entries: Vec<IndexEntry>,
    /// The number of `entries` that were taken.
    taken: usize,
    next_page: u64,
}

impl RunReader {
    pub(super) fn new(run: Arc<IndexRun>) -> Self {
        Self { run, piece: Vec::new(), piece_page: 0, entries: Vec::new(), taken: 0, next_page: 0 }
    }

    /// Returns the next entries, as many as are in memory; none at the end.
    pub(super) fn ready(&mut self) -> Result<&[IndexEntry], ReadRunError> {
        if self.taken == self.entries.len() && !self.open_next_page()? {
            return Ok(&[]);
        }
        Ok(self.entries.get(self.taken..).unwrap_or_default())
    }

    /// Advances past `count` of them.
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
    }

    fn open_next_page(&mut self) -> Result<bool, ReadRunError> {
        let (page, page_count) = (self.next_page, self.run.fences.len() as u64);
        if page == page_count {
            return Ok(false);
        }
        let mut offset = to_usize(page - self.piece_page) * PAGE_BYTES;
        if offset >= self.piece.len() {
            let rest = to_usize(page_count - page).saturating_mul(PAGE_BYTES);
            self.piece.resize(rest.min(PIECE_BYTES), 0);
            (self.piece_page, offset) = (page, 0);
            self.read(0)?;
        }
        let last = self.entries.last().map(|entry| entry.key);
        if !self.take_page(page, offset, last) {
            // One failed read is not damage yet.
            self.read(offset)?;
            if !self.take_page(page, offset, last) {
                return Err(ReadRunError::Damaged { file: self.run.file.clone(), page });
            }
        }
        (self.taken, self.next_page) = (0, page + 1);
        Ok(true)
    }

    /// Reads the piece from an offset within it.
    fn read(&mut self, offset: usize) -> Result<(), ReadRunError> {
        let page = self.piece_page + (offset / PAGE_BYTES) as u64;
        self.run
            .storage
            .read_at(&self.run.file, page * PAGE_BYTES as u64, &mut self.piece[offset..])
            .map_err(|source| ReadRunError::Storage { file: self.run.file.clone(), page, source })
    }

    /// Decodes the page at an offset of the piece. Returns true if its entries are valid after the
    /// last key.
    fn take_page(&mut self, page: u64, offset: usize, last: Option<u64>) -> bool {
        let bytes = self.piece[offset..].first_chunk();
        let opened = bytes.and_then(|bytes| RunPage::open(bytes, page, self.run.codes));
        if opened.and_then(|opened| opened.read_all(&mut self.entries)).is_none() {
            return false;
        }
        // Entries out of order would make the next run unsearchable. The addresses of one key may
        // be in any order: earlier versions could write entries in place.
        let first = self.entries.first().map(|entry| entry.key);
        let fence = self.run.fences.get(to_usize(page)).copied();
        last <= first && self.entries.is_sorted_by_key(|entry| entry.key) && first == fence
    }
}

/// Writes a run.
pub(super) struct RunWriter {
    storage: Arc<dyn Storage>,
    file: FileName,
    codes: PageCodes,
    page: RunPageBuilder,
    piece: Vec<u8>,
    fences: Vec<u64>,
    entry_count: u64,
    unsynced_bytes: u64,
}

impl RunWriter {
    /// Creates the file, and replaces one that was never finished.
    pub(super) fn create(storage: Arc<dyn Storage>, file: FileName, codes: PageCodes) -> io::Result<Self> {
        storage.create_anew(&file)?;
        let page = RunPageBuilder::new(codes);
        Ok(Self {
            storage,
            file,
            codes,
            page,
            piece: Vec::new(),
            fences: Vec::new(),
            entry_count: 0,
            unsynced_bytes: 0,
        })
    }

    /// Adds an entry that is not before the last one.
    pub(super) fn push(&mut self, entry: IndexEntry) -> io::Result<()> {
        if !self.page.push(entry) {
            self.finish_page()?;
            assert!(self.page.push(entry), "an empty page takes any entry");
        }
        self.entry_count += 1;
        Ok(())
    }

    fn finish_page(&mut self) -> io::Result<()> {
        let Some(first_key) = self.page.first_key() else { return Ok(()) };
        self.piece.extend_from_slice(&self.page.finish(self.fences.len() as u64));
        self.fences.push(first_key);
        if self.piece.len() >= PIECE_BYTES { self.write_piece() } else { Ok(()) }
    }

    fn write_piece(&mut self) -> io::Result<()> {
        self.storage.append(&self.file, &self.piece)?;
        self.unsynced_bytes += self.piece.len() as u64;
        self.piece.clear();
        if self.unsynced_bytes >= SYNC_BYTES {
            self.unsynced_bytes = 0;
            self.storage.sync_soon(&self.file);
        }
        Ok(())
    }

    /// Writes the rest. The file is not durable yet.
    pub(super) fn finish(mut self) -> io::Result<IndexRun> {
        self.finish_page()?;
        self.write_piece()?;
        self.fences.shrink_to_fit();
        Ok(IndexRun {
            storage: self.storage,
            file: self.file,
            codes: self.codes,
            fences: self.fences,
            entry_count: self.entry_count,
        })
    }
}
