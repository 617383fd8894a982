//! Reads the records of one arena through a buffer: neighbours cost one read. Every byte is checked
//! before it is returned.

use std::ops::Range;

use varve_block::{Score, to_usize};
use varve_world::{PAGE_BYTES, PageBuffer};

use crate::arenas::footer::PageRow;
use crate::keys::cipher::{CODE_BYTES, CipherUnit};
use crate::reading::delta_bases::{DeltaBases, NoBases};
use crate::reading::file_part::FilePart;
use crate::reading::log::{Log, OpenedArena, ReadLogError, twice};
use crate::records::clump_content::{ClumpContent, DeltaFrame, FrameContent, OpenClumpError};
use crate::records::compression::Codec;
use crate::records::directory_page::{DirectoryPage, DirectoryPageError};
use crate::records::frame_table::{FramePlace, FrameRow, FrameTable};
use crate::records::granule::Granule;
use crate::records::record_header::{RecordError, RecordHeader, RecordKind};
use crate::records::record_sizes::RECORD_HEADER_BYTES;

/// The frames of a clump: its header and its authenticated table. If the clump is not framed, the
/// header is read but not yet authenticated. The code covers the body, which counts as one frame.
#[derive(Debug, Clone)]
pub struct ClumpMap {
    header: RecordHeader,
    table: Option<FrameTable>,
}

/// The decrypted body of a clump, as it was packed, to be encrypted again.
#[derive(Debug, Clone)]
pub(crate) struct DecryptedBody {
    pub(crate) bytes: Vec<u8>,
    pub(crate) table_bytes: u32,
}

/// The undamaged parts of a clump.
pub(crate) struct SalvagedParts {
    pub(crate) content: ClumpContent,
    /// The names of its blocks, which a clump of a by-value store holds.
    pub(crate) names: Option<Vec<Score>>,
    pub(crate) body: Option<DecryptedBody>,
}

/// Returns the names of the blocks in the undamaged frames.
fn whole_names(map: &ClumpMap, frames: &[Result<FrameContent, ReadLogError>]) -> Option<Vec<Score>> {
    let whole = frames.iter().enumerate().filter(|(_, frame)| frame.is_ok());
    Some(whole.map(|(number, _)| map.names(number)).collect::<Option<Vec<_>>>()?.concat())
}

impl ClumpMap {
    /// Returns the clump's header.
    #[must_use]
    pub fn header(&self) -> &RecordHeader {
        &self.header
    }

    pub(crate) fn table(&self) -> Option<&FrameTable> {
        self.table.as_ref()
    }

    /// Returns the number of frames; at least one.
    #[must_use]
    pub fn frame_count(&self) -> usize {
        self.table.as_ref().map_or(1, FrameTable::frame_count)
    }

    /// Returns the number of blocks in a frame; `None` if the frame must be read to know it.
    #[must_use]
    pub fn block_count(&self, frame: usize) -> Option<u32> {
        Some(self.table.as_ref()?.row(frame)?.block_count)
    }

    /// Returns true if a frame is a delta.
    #[must_use]
    pub fn is_delta(&self, frame: usize) -> bool {
        let row = self.table.as_ref().and_then(|table| table.row(frame));
        row.is_some_and(|row| row.codec == Codec::Delta)
    }

    /// Returns the places at which a block with this score may be, in order. The block is at no
    /// other place.
    #[must_use]
    pub fn places_of(&self, score: &Score) -> Vec<FramePlace> {
        let anywhere = || vec![FramePlace { frame: 0, ordinal: None }];
        self.table.as_ref().map_or_else(anywhere, |table| table.places_of(score).collect())
    }

    /// Returns the names of a frame's blocks in order, if the clump holds them, as in a by-value
    /// store.
    #[must_use]
    pub fn names(&self, frame: usize) -> Option<Vec<Score>> {
        self.table.as_ref()?.names(frame)
    }

    /// Returns the range of a frame in the arena's file, in bytes.
    #[must_use]
    pub fn place(&self, frame: usize) -> Range<u64> {
        let body = self.header.granule.byte_offset() + RECORD_HEADER_BYTES as u64;
        let within = match &self.table {
            None => Some(0..self.header.body_bytes),
            Some(table) => table.place(frame),
        };
        within.map_or(body..body, |within| body + u64::from(within.start)..body + u64::from(within.end))
    }

    /// Returns the memory that it holds, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.table.as_ref().map_or(0, FrameTable::memory_bytes)
    }
}

impl Log {
    /// Opens a window on an arena's records, with a buffer that reads `ahead_bytes` at a time.
    #[must_use]
    pub fn window<'a>(&'a self, arena: &'a OpenedArena, ahead_bytes: usize) -> ArenaWindow<'a> {
        ArenaWindow {
            log: self,
            arena,
            file_bytes: None,
            ahead_bytes,
            start: 0,
            buffer: PageBuffer::default(),
            filled: 0,
            held: FilePart::default(),
            scratch: Vec::new(),
            bases: &NoBases,
            is_uncached: false,
            is_careful: false,
        }
    }

    /// Opens a window on the records in `held`, a part of the arena's file. Bytes that are missing
    /// there, or seem damaged, are read from the file.
    #[must_use]
    pub fn window_over<'a>(&'a self, arena: &'a OpenedArena, held: FilePart) -> ArenaWindow<'a> {
        ArenaWindow { held, ..self.window(arena, 0) }
    }

    /// Reads a page that a seal or a scan has named.
    ///
    /// # Errors
    /// [`ReadLogError`] when the record is not that page.
    pub fn read_page(&self, arena: &OpenedArena, row: &PageRow) -> Result<DirectoryPage, ReadLogError> {
        twice(|| {
            let mut window = self.window(arena, RECORD_HEADER_BYTES + row.body_bytes as usize);
            let header = window.record(row.granule)?;
            if header.kind != RecordKind::Page || header.code != row.code {
                return Err(self.forged(arena, row.granule, "directory page"));
            }
            self.open_page(arena, &header, &mut window)
        })
    }

    pub(crate) fn open_page(
        &self,
        arena: &OpenedArena,
        header: &RecordHeader,
        window: &mut ArenaWindow<'_>,
    ) -> Result<DirectoryPage, ReadLogError> {
        let body = window.opened_body(header)?;
        let page = DirectoryPage::decode(&body).and_then(|page| {
            let is_good = page.delta_count() == 0 || arena.header.may_hold_deltas();
            is_good.then_some(page).ok_or(DirectoryPageError::Malformed { part: "number of deltas" })
        });
        page.map_err(|source| ReadLogError::Page {
            arena: arena.id,
            offset: header.granule.byte_offset(),
            source,
        })
    }
}

/// A buffer over one arena's file. Neighbouring records cost one read.
pub struct ArenaWindow<'a> {
    log: &'a Log,
    arena: &'a OpenedArena,
    /// The length of the file, after the first read.
    file_bytes: Option<u64>,
    ahead_bytes: usize,
    start: u64,
    /// The bytes of the last read are the first `filled` ones.
    buffer: PageBuffer,
    filled: usize,
    /// The bytes of the file that the caller has.
    held: FilePart,
    /// Temporary memory for checks of codes.
    scratch: Vec<u8>,
    /// Supplies the blocks that deltas need.
    bases: &'a dyn DeltaBases,
    /// True if whole pages are read without the system's page cache.
    is_uncached: bool,
    /// True after the disk has failed to return something here. From then on there is no
    /// read-ahead, so that a bad sector makes nothing else unreadable.
    is_careful: bool,
}

impl<'a> ArenaWindow<'a> {
    /// Reads deltas with these bases from now on. Without them no delta can be read.
    #[must_use]
    pub fn with_bases(self, bases: &'a dyn DeltaBases) -> Self {
        Self { bases, ..self }
    }
}

impl ArenaWindow<'_> {
    /// Reads from the disk without the system's page cache from now on. For callers that read much
    /// data once.
    #[must_use]
    pub fn uncached(self) -> Self {
        Self { is_uncached: true, ..self }
    }

    /// Uses `memory`, which was taken from another window, as the buffer.
    #[must_use]
    pub fn in_memory(self, memory: PageBuffer) -> Self {
        Self { buffer: memory, filled: 0, ..self }
    }

    /// Closes the window and returns its memory for the next one.
    #[must_use]
    pub fn into_memory(self) -> PageBuffer {
        self.buffer
    }

    /// Reads the header of the record at `granule`.
    ///
    /// # Errors
    /// [`ReadLogError::Record`] when there is none, or another one.
    pub fn record(&mut self, granule: Granule) -> Result<RecordHeader, ReadLogError> {
        let (arena, offset) = (self.arena.id, granule.byte_offset());
        let bytes = self.bytes(offset, RECORD_HEADER_BYTES)?;
        let bytes = bytes.first_chunk().expect("the read returns the requested number of bytes");
        RecordHeader::decode(bytes, granule).map_err(|source| ReadLogError::Record { arena, offset, source })
    }

    /// Reads the header of the clump at `granule` and, if it is framed, the table of its frames.
    ///
    /// # Errors
    /// [`ReadLogError`]: this store has written no clump there, or it is damaged.
    pub fn map(&mut self, granule: Granule) -> Result<ClumpMap, ReadLogError> {
        self.twice(|window| window.read_map(granule))
    }

    fn read_map(&mut self, granule: Granule) -> Result<ClumpMap, ReadLogError> {
        let header = self.record(granule)?;
        if header.kind != RecordKind::Clump {
            let (arena, offset) = (self.arena.id, granule.byte_offset());
            return Err(ReadLogError::Record { arena, offset, source: RecordError::NotARecord });
        }
        if header.table_bytes == 0 {
            return Ok(ClumpMap { header, table: None });
        }
        let table =
            self.opened(&header, 0..header.table_bytes, CipherUnit::body(header.counter), &header.code)?;
        let table = FrameTable::decode(&table, &header)
            .ok_or_else(|| self.malformed(&header, OpenClumpError::Malformed { part: "table of frames" }))?;
        Ok(ClumpMap { header, table: Some(table) })
    }

    /// Reads, checks and decompresses a frame of a clump.
    ///
    /// # Errors
    /// [`ReadLogError`] when the frame is damaged, or this store did not write it there.
    ///
    /// # Panics
    /// When the clump does not have that frame.
    pub fn frame(&mut self, map: &ClumpMap, frame: usize) -> Result<FrameContent, ReadLogError> {
        self.twice(|window| window.read_frame(map, frame))
    }

    fn read_frame(&mut self, map: &ClumpMap, frame: usize) -> Result<FrameContent, ReadLogError> {
        let bytes = self.opened_frame(map, frame)?;
        let content = match &map.table {
            None => FrameContent::of_body(bytes),
            Some(table) => {
                let row = table.row(frame).expect("it was read above");
                if row.codec == Codec::Delta && self.arena.header.may_hold_deltas() {
                    return self.delta(map, row, bytes);
                }
                FrameContent::of_frame(row, bytes)
            }
        };
        content.map_err(|source| self.malformed(&map.header, source))
    }

    /// Reads the base of a delta, and returns the content of its frame.
    fn delta(&self, map: &ClumpMap, row: &FrameRow, frame: Vec<u8>) -> Result<FrameContent, ReadLogError> {
        let malformed = |source| self.malformed(&map.header, source);
        let delta = DeltaFrame::decode(frame, self.log.config().score_bytes).map_err(malformed)?;
        let base = self.bases.base(&delta.base).map_err(|source| ReadLogError::Base {
            arena: self.arena.id,
            offset: map.header.granule.byte_offset(),
            base: delta.base,
            source,
        })?;
        delta.open(row, &base).map_err(malformed)
    }

    /// Checks every code of the clump at `granule`, and decompresses it, except for deltas: they
    /// need blocks from elsewhere.
    ///
    /// # Errors
    /// As [`clump`](Self::clump).
    pub fn check_clump(&mut self, granule: Granule) -> Result<RecordHeader, ReadLogError> {
        self.in_one_go(granule, |window| {
            let map = window.map(granule)?;
            for frame in 0..map.frame_count() {
                if map.is_delta(frame) {
                    window.twice(|window| window.opened_frame(&map, frame))?;
                } else {
                    window.frame(&map, frame)?;
                }
            }
            Ok(map.header)
        })
    }

    /// Reads, checks and decrypts a frame, or the body of a clump that is not framed.
    pub(crate) fn opened_frame(&mut self, map: &ClumpMap, frame: usize) -> Result<Vec<u8>, ReadLogError> {
        let header = &map.header;
        let Some(table) = &map.table else { return self.opened_body(header) };
        let (place, row) =
            table.place(frame).zip(table.row(frame)).expect("the caller has counted the frames");
        self.opened(header, place, CipherUnit::frame(header.counter, frame), &row.code)
    }

    /// Reads, checks and decompresses the clump at `granule`.
    ///
    /// # Errors
    /// [`ReadLogError`]: this store has written no clump there, or it is damaged.
    pub fn clump(&mut self, granule: Granule) -> Result<(RecordHeader, ClumpContent), ReadLogError> {
        let (map, frames) = self.frames(granule)?;
        Ok((map.header, ClumpContent::new(frames.into_iter().collect::<Result<_, _>>()?)))
    }

    /// Reads all frames of the clump at `granule`, in order. Each frame is returned or has its own
    /// error.
    ///
    /// # Errors
    /// [`ReadLogError`] when the header or the table is damaged. Nothing of the clump can be read
    /// then.
    pub fn frames(
        &mut self,
        granule: Granule,
    ) -> Result<(ClumpMap, Vec<Result<FrameContent, ReadLogError>>), ReadLogError> {
        self.in_one_go(granule, |window| {
            let map = window.map(granule)?;
            let frames = (0..map.frame_count()).map(|frame| window.frame(&map, frame)).collect();
            Ok((map, frames))
        })
    }

    /// Calls `read`, which reads all of the record at `granule`, with as few disk reads as for one
    /// message.
    fn in_one_go<T>(
        &mut self,
        granule: Granule,
        read: impl FnOnce(&mut Self) -> Result<T, ReadLogError>,
    ) -> Result<T, ReadLogError> {
        let ahead_bytes = self.ahead_bytes;
        // A missing header makes `read` fail, which reports it.
        if let Ok(header) = self.record(granule) {
            self.ahead_bytes = ahead_bytes.max(to_usize(header.body_bytes));
        }
        let done = read(self);
        self.ahead_bytes = ahead_bytes;
        done
    }

    /// Reads the undamaged frames of the clump at `granule`. If all are undamaged, returns its body
    /// as well.
    pub(crate) fn salvage(&mut self, granule: Granule) -> Result<SalvagedParts, ReadLogError> {
        let (map, frames) = self.frames(granule)?;
        let names = whole_names(&map, &frames);
        let is_whole = frames.iter().all(Result::is_ok);
        let is_no_loss =
            |frame: &Result<_, ReadLogError>| frame.as_ref().is_err_and(ReadLogError::is_no_loss);
        if let Some(place) = frames.iter().position(is_no_loss) {
            return Err(frames.into_iter().nth(place).and_then(Result::err).expect("that one has failed"));
        }
        let content = ClumpContent::new(frames.into_iter().filter_map(Result::ok).collect());
        let decrypted = |window: &mut Self| window.decrypted(&map);
        let body = if is_whole { Some(self.in_one_go(granule, decrypted)?) } else { None };
        Ok(SalvagedParts { content, names, body })
    }

    /// Reads and decrypts the body of a clump.
    fn decrypted(&mut self, map: &ClumpMap) -> Result<DecryptedBody, ReadLogError> {
        let header = &map.header;
        let table = 0..header.table_bytes;
        let mut bytes = if table.is_empty() {
            Vec::new()
        } else {
            self.opened(header, table, CipherUnit::body(header.counter), &header.code)?
        };
        for frame in 0..map.frame_count() {
            bytes.extend(self.opened_frame(map, frame)?);
        }
        Ok(DecryptedBody { bytes, table_bytes: header.table_bytes })
    }

    /// Reads, checks and decrypts the body of a record that is not framed.
    pub(crate) fn opened_body(&mut self, header: &RecordHeader) -> Result<Vec<u8>, ReadLogError> {
        self.opened(header, 0..header.body_bytes, CipherUnit::body(header.counter), &header.code)
    }

    /// Reads, checks and decrypts one unit of encryption within a body.
    fn opened(
        &mut self,
        header: &RecordHeader,
        place: Range<u32>,
        message: CipherUnit,
        code: &[u8; CODE_BYTES],
    ) -> Result<Vec<u8>, ReadLogError> {
        let start = header.granule.byte_offset() + RECORD_HEADER_BYTES as u64 + u64::from(place.start);
        let mut bytes = self.take(start, place.len())?;
        self.log.open_in_place(self.arena, header, message, code, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn forged_clump(&self, map: &ClumpMap) -> ReadLogError {
        self.log.forged(self.arena, map.header.granule, "clump")
    }

    pub(crate) fn malformed(&self, header: &RecordHeader, source: OpenClumpError) -> ReadLogError {
        ReadLogError::Clump { arena: self.arena.id, offset: header.granule.byte_offset(), source }
    }

    /// Checks every code of the record at `granule`, without decompressing it.
    ///
    /// # Errors
    /// As [`clump`](Self::clump).
    pub fn authenticate(&mut self, granule: Granule) -> Result<RecordHeader, ReadLogError> {
        self.in_one_go(granule, |window| window.twice(|window| window.read_codes(granule)))
    }

    fn read_codes(&mut self, granule: Granule) -> Result<RecordHeader, ReadLogError> {
        let header = self.record(granule)?;
        let table = match header.kind {
            RecordKind::Page => None,
            RecordKind::Clump => self.read_map(granule)?.table,
        };
        let Some(table) = table else {
            self.check(&header, 0..header.body_bytes, CipherUnit::body(header.counter), &header.code)?;
            return Ok(header);
        };
        for frame in 0..table.frame_count() {
            let (place, row) = table.place(frame).zip(table.row(frame)).expect("they were just counted");
            self.check(&header, place, CipherUnit::frame(header.counter, frame), &row.code)?;
        }
        Ok(header)
    }

    /// Checks one unit of encryption within a body.
    fn check(
        &mut self,
        header: &RecordHeader,
        place: Range<u32>,
        message: CipherUnit,
        code: &[u8; CODE_BYTES],
    ) -> Result<(), ReadLogError> {
        let start = header.granule.byte_offset() + RECORD_HEADER_BYTES as u64 + u64::from(place.start);
        let (log, arena, mut scratch) = (self.log, self.arena, std::mem::take(&mut self.scratch));
        let bytes = self.bytes(start, place.len())?;
        let checked = log.check(arena, header, message, code, bytes, &mut scratch);
        self.scratch = scratch;
        checked
    }

    /// As [`twice`](twice()), but drops the buffer before the retry.
    fn twice<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, ReadLogError>,
    ) -> Result<T, ReadLogError> {
        match read(self) {
            Err(error) if error.is_damage() => {
                self.forget();
                read(self)
            }
            other => other,
        }
    }

    /// Drops the buffer, so that the next read is from the file. A writer may have cut off what its
    /// predecessor left.
    pub(crate) fn forget(&mut self) {
        self.file_bytes = None;
        self.filled = 0;
        self.held = FilePart::default();
    }

    /// Sets the read-ahead in bytes.
    pub fn set_ahead_bytes(&mut self, ahead_bytes: usize) {
        self.ahead_bytes = ahead_bytes;
    }

    /// Returns the length of the arena's file. It is cached until [`forget`](Self::forget).
    pub(crate) fn file_bytes(&mut self) -> Result<u64, ReadLogError> {
        match self.file_bytes {
            Some(file_bytes) => Ok(file_bytes),
            None => Ok(*self.file_bytes.insert(self.log.file_bytes(self.arena.id)?)),
        }
    }

    /// Returns bytes of the file that the caller may change.
    fn take(&mut self, offset: u64, count: usize) -> Result<Vec<u8>, ReadLogError> {
        let is_at_hand = self.held.slice(offset, count).is_some() || self.buffered(offset, count).is_some();
        if is_at_hand || (self.ahead_bytes > count && !self.is_careful) {
            return Ok(self.bytes(offset, count)?.to_vec());
        }
        let mut bytes = vec![0; count];
        self.log.read_at(self.arena.id, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the position of these bytes in the buffer.
    fn buffered(&self, offset: u64, count: usize) -> Option<usize> {
        let skip = to_usize(offset.checked_sub(self.start)?);
        (skip.checked_add(count)? <= self.filled).then_some(skip)
    }

    pub(crate) fn bytes(&mut self, offset: u64, count: usize) -> Result<&[u8], ReadLogError> {
        if self.held.slice(offset, count).is_none() && self.buffered(offset, count).is_none() {
            let exactly = offset..offset.saturating_add(count as u64);
            let is_alone = self.is_careful || self.held.covers(offset, count);
            let wanted = if is_alone { exactly.clone() } else { self.range_ahead(&exactly)? };
            match self.fill(&wanted) {
                Err(error) if error.is_unreadable() => {
                    self.is_careful = true;
                    if wanted == exactly {
                        return Err(error);
                    }
                    self.fill(&exactly)?;
                }
                other => other?,
            }
        }
        let skip = self.buffered(offset, count).unwrap_or(0);
        Ok(self.held.slice(offset, count).unwrap_or_else(|| &self.buffer[skip..skip + count]))
    }

    /// Returns the range to read when `range` is requested.
    fn range_ahead(&mut self, range: &Range<u64>) -> Result<Range<u64>, ReadLogError> {
        let (file_bytes, page) = (self.file_bytes()?, PAGE_BYTES as u64);
        let ahead = range.start.saturating_add(self.ahead_bytes as u64);
        let (mut start, mut end) = (range.start, range.end.max(ahead).min(file_bytes));
        if self.is_uncached {
            start -= start % page;
            end = end.next_multiple_of(page).min(file_bytes);
        }
        // A read past the end of the file fails and reports the place.
        Ok(start..end.max(range.end))
    }

    fn fill(&mut self, range: &Range<u64>) -> Result<(), ReadLogError> {
        (self.start, self.filled) = (range.start, 0);
        let count = to_usize(range.end - range.start);
        if self.buffer.len() < count {
            self.buffer.resize(count);
        }
        let into = &mut self.buffer[..count];
        if self.held.covers(range.start, count) {
            self.held.put_over(range.start, into);
        } else if self.is_uncached {
            self.log.read_uncached_at(self.arena.id, range.start, into)?;
        } else {
            self.log.read_at(self.arena.id, range.start, into)?;
        }
        self.filled = count;
        Ok(())
    }
}
