//! What is good in an arena that has no seal: the open one, or one whose end a crash has cut off.
//!
//! Everything up to the last page counts; what follows it was never acknowledged. A page tells up to where its arena was
//! durable when it was written. Beyond that, a power cut may have kept a page and lost part of a clump that it names: a
//! writer reads those clumps before it believes the page, and what fails ends the arena there.

use varve_world::Storage;

use crate::arena::{ArenaId, Granule};
use crate::footer::{FOOTER_BYTES, Footer, PageRow};
use crate::header::ARENA_HEADER_BYTES;
use crate::page::DirectoryPage;
use crate::read::{Log, OpenedArena, ReadLogError, Window};
use crate::record::{RECORD_HEADER_BYTES, RecordKind};

/// How much is read at a time.
const AHEAD_BYTES: usize = 1 << 20;

/// What a disk writes whole or not at all. A record's header never crosses the border of two.
const SECTOR_BYTES: usize = 512;

/// The good part of an arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Its pages, with the places of their records.
    pub pages: Vec<(PageRow, DirectoryPage)>,
    /// Where the good part ends, in bytes.
    pub log_bytes: u64,
    /// How many bytes follow it.
    pub cut_bytes: u64,
    /// Where, in bytes, something is damaged that good pages follow. No crash leaves that behind: nothing may be cut off,
    /// and nothing more may be written here.
    pub gap: Option<u64>,
}

/// What follows the last page of an arena without a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArenaEnd {
    /// Nothing, or whole records: those of a writer at work, or of one that was killed.
    Whole,
    /// A record that never reached the disk whole, as a crash leaves it: nothing was acknowledged from there on.
    Torn,
    /// A record that is all there, and has been changed: it may be the page that followed.
    Damaged,
}

/// Why an arena's good part could not be told.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// It could not be read; nothing was changed.
    #[error("cannot tell what a crash has left")]
    Read(#[from] ReadLogError),
    /// What a crash has left could not be cut off.
    #[error("arena {arena}: cannot cut what a crash has left")]
    Cut {
        /// Which arena.
        arena: ArenaId,
        /// What went wrong below.
        source: std::io::Error,
    },
}

impl Log {
    /// Finds the pages of an arena that has no seal. Reads record headers and pages only.
    ///
    /// # Errors
    /// [`ReadLogError::Storage`] when the file cannot be read. A torn or damaged record is no error: what can be
    /// found after it is found.
    pub fn scan(&self, arena: &OpenedArena) -> Result<Recovered, ReadLogError> {
        let mut place = Granule::at_or_after(ARENA_HEADER_BYTES as u64).expect("the header is short");
        let mut found = Recovered { log_bytes: place.byte_offset(), ..Recovered::default() };
        let mut window = self.window(arena, AHEAD_BYTES);
        let mut broken = None;
        loop {
            match self.next_page(arena, &mut window, place)? {
                Next::Page { row, page, end } => {
                    found.gap = found.gap.or(broken.take());
                    found.pages.push((row, page));
                    found.log_bytes = end.byte_offset();
                    place = end;
                }
                Next::Broken(at) => {
                    broken.get_or_insert(at.byte_offset());
                    let Some(again) = next_record(&mut window, at)? else { break };
                    place = again;
                }
            }
        }
        found.cut_bytes = self.file_bytes(arena.id())?.saturating_sub(found.log_bytes);
        Ok(found)
    }

    /// The next page at or after `from`, or where something comes before it that is no record.
    fn next_page(
        &self,
        arena: &OpenedArena,
        window: &mut Window<'_>,
        from: Granule,
    ) -> Result<Next, ReadLogError> {
        let mut place = from;
        loop {
            let header = match window.record(place) {
                Ok(header) => header,
                Err(error) if error.is_damage() => return Ok(Next::Broken(place)),
                Err(error) => return Err(error),
            };
            // The gap after a record counts: the next record is appended where it ends.
            let file_bytes = window.file_bytes()?;
            let Some(end) = header.next().filter(|end| end.byte_offset() <= file_bytes) else {
                return Ok(Next::Broken(place));
            };
            if header.kind == RecordKind::Page {
                let row = PageRow { granule: place, body_bytes: header.body_bytes, code: header.code };
                return match self.open_page(arena, &header, window) {
                    Ok(page) => Ok(Next::Page { row, page, end }),
                    Err(error) if error.is_damage() => Ok(Next::Broken(place)),
                    Err(error) => Err(error),
                };
            }
            place = end;
        }
    }

    /// What follows the last page of an arena without a seal.
    ///
    /// # Errors
    /// [`ReadLogError`] when it could not be read for a reason that is no damage.
    pub fn end(&self, arena: &OpenedArena, found: &Recovered) -> Result<ArenaEnd, ReadLogError> {
        let mut window = self.window(arena, AHEAD_BYTES);
        let file_bytes = window.file_bytes()?;
        let mut place = Granule::at_or_after(found.log_bytes);
        while let Some(granule) = place.filter(|granule| granule.byte_offset() < file_bytes) {
            place = match window.authenticate(granule) {
                Ok(header) => header.next(),
                Err(error) if error.is_damage() => {
                    let torn = is_torn(&mut window, granule)?;
                    return Ok(if torn { ArenaEnd::Torn } else { ArenaEnd::Damaged });
                }
                Err(error) => return Err(error),
            };
        }
        Ok(ArenaEnd::Whole)
    }

    /// Of what a [`scan`](Self::scan) has found, keeps what a writer may go on from: reads the clumps that were not known to be
    /// durable, and ends the arena before what a crash has torn. What else is wrong is a [`gap`](Recovered::gap).
    ///
    /// # Errors
    /// [`ReadLogError`] when it could not be read for a reason that is no damage.
    pub fn judge(&self, arena: &OpenedArena, mut found: Recovered) -> Result<Recovered, ReadLogError> {
        let durable = found.durable();
        let mut window = self.window(arena, AHEAD_BYTES);
        let mut broken = Vec::new();
        for (number, (row, page)) in found.pages.iter().enumerate() {
            if let Some(clump) = broken_clump(&mut window, page, durable)? {
                tracing::warn!(arena = %arena.id(), offset = row.granule.byte_offset(), "a page outlived its clumps");
                broken.push((number, clump.byte_offset()));
            }
        }
        let Some(first) = broken.iter().map(|(_, clump)| *clump).chain(found.gap).min() else {
            return Ok(found);
        };
        // What a power cut leaves at the least: the last page reached the disk, and some of what it names did not.
        let only_last_page =
            found.gap.is_none() && matches!(broken[..], [(number, _)] if number + 1 == found.pages.len());
        if only_last_page || self.was_lost(&mut window, first, durable)? {
            found.pages.retain(|(row, _)| row.granule.byte_offset() < first);
            let kept_bytes = found
                .pages
                .last()
                .map_or(ARENA_HEADER_BYTES as u64, |(row, _)| row.granule.byte_offset() + record_bytes(row));
            found.cut_bytes += found.log_bytes - kept_bytes;
            (found.log_bytes, found.gap) = (kept_bytes, None);
            return Ok(found);
        }
        for (number, _) in broken.into_iter().rev() {
            let (row, _) = found.pages.remove(number);
            found.gap =
                Some(found.gap.map_or(row.granule.byte_offset(), |gap| gap.min(row.granule.byte_offset())));
        }
        Ok(found)
    }

    /// Whether a broken record never reached the disk: then nothing after it was ever acknowledged, since a sync that covered
    /// any of that would have covered this record, too.
    fn was_lost(&self, window: &mut Window<'_>, place: u64, durable: Granule) -> Result<bool, ReadLogError> {
        match Granule::at_or_after(place) {
            Some(granule) if granule >= durable => is_torn(window, granule),
            _ => Ok(false),
        }
    }

    /// Of what a [`scan`](Self::scan) has found in an arena that a writer is to go on with, tells the good part, and cuts off
    /// what a crash has left after it. An arena with a [`gap`](Recovered::gap) is left as it is.
    ///
    /// # Errors
    /// [`RecoverError`]; the arena is then as it was.
    pub fn recover(&self, arena: &OpenedArena, found: Recovered) -> Result<Recovered, RecoverError> {
        let found = self.judge(arena, found)?;
        if found.gap.is_some() {
            tracing::error!(arena = %arena.id(), "an arena is damaged before its end; it is left as it is");
            return Ok(found);
        }
        if found.cut_bytes > 0 {
            tracing::info!(arena = %arena.id(), cut_bytes = found.cut_bytes, "cut what a crash has left");
            cut(self.storage().as_ref(), arena.id(), found.log_bytes)?;
        }
        Ok(found)
    }

    /// Removes arenas that a crash has left without a header: nothing was ever acknowledged in them. Only the last `tail_count`
    /// can be such.
    ///
    /// # Errors
    /// [`RecoverError`] when one could not be read or removed.
    pub fn remove_never_begun(&self, tail_count: usize) -> Result<(), RecoverError> {
        for id in self.never_begun(tail_count)? {
            tracing::info!(arena = %id, "removed an arena that a crash has left without a header");
            let failed = |source| RecoverError::Cut { arena: id, source };
            self.storage().remove(&id.file_name()).map_err(failed)?;
        }
        Ok(())
    }

    /// Which of the last `tail_count` arenas have no header: a crash has lost it, or a writer is about to write it.
    ///
    /// # Errors
    /// [`RecoverError`] when they could not be listed or read.
    pub fn never_begun(&self, tail_count: usize) -> Result<Vec<ArenaId>, RecoverError> {
        let listed = self.arenas();
        let ids = listed.map_err(|error| RecoverError::Cut { arena: ArenaId(0), source: error.source })?;
        let mut never_begun = Vec::new();
        for id in ids.into_iter().rev().take(tail_count) {
            if self.was_never_begun(id)? {
                never_begun.push(id);
            }
        }
        Ok(never_begun)
    }

    fn was_never_begun(&self, id: ArenaId) -> Result<bool, ReadLogError> {
        let file_bytes = self.file_bytes(id)?;
        let read = |offset, into: &mut [u8]| {
            let bytes = into.len();
            let failed = |source| ReadLogError::Storage { arena: id, offset, bytes, source };
            self.storage().read_at(&id.file_name(), offset, into).map_err(failed)
        };
        let mut header = [0; ARENA_HEADER_BYTES];
        if file_bytes < header.len() as u64 {
            return Ok(true);
        }
        read(0, &mut header)?;
        let mut footer = [0; FOOTER_BYTES];
        read(file_bytes - footer.len() as u64, &mut footer)?;
        // One with a seal had its header once.
        Ok(header.iter().all(|byte| *byte == 0) && Footer::decode(&footer, file_bytes).is_err())
    }
}

impl Recovered {
    /// Up to where the arena was known to be durable when its pages were written.
    #[must_use]
    pub fn durable(&self) -> Granule {
        self.pages.iter().map(|(_, page)| page.durable()).max().unwrap_or_default()
    }
}

/// The first clump of a page, from `durable` on, that is not as the page names it.
fn broken_clump(
    window: &mut Window<'_>,
    page: &DirectoryPage,
    durable: Granule,
) -> Result<Option<Granule>, ReadLogError> {
    for clump in page.clumps().iter().filter(|clump| clump.granule >= durable) {
        match window.authenticate(clump.granule) {
            Ok(header) if header.code == clump.code => {}
            Err(error) if !error.is_damage() => return Err(error),
            _ => return Ok(Some(clump.granule)),
        }
    }
    Ok(None)
}

/// What a step of a scan comes to.
enum Next {
    Page { row: PageRow, page: DirectoryPage, end: Granule },
    Broken(Granule),
}

/// The first place after `broken` where a record begins.
fn next_record(window: &mut Window<'_>, broken: Granule) -> Result<Option<Granule>, ReadLogError> {
    let file_bytes = window.file_bytes()?;
    for granule in (broken.0.saturating_add(1)..u32::MAX).map(Granule) {
        if granule.byte_offset() >= file_bytes {
            break;
        }
        match window.record(granule) {
            Ok(_) => return Ok(Some(granule)),
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether a record that does not read is broken as a crash breaks it: its file ends before it does, or the part of it that
/// lies in one sector never reached the disk, and reads as zeros. A crash changes no bits within what it leaves.
fn is_torn(window: &mut Window<'_>, granule: Granule) -> Result<bool, ReadLogError> {
    let file_bytes = window.file_bytes()?;
    let start = granule.byte_offset();
    let body_bytes = match window.record(granule) {
        Ok(header) => header.body_bytes as usize,
        Err(error) if error.is_damage() => 0,
        Err(error) => return Err(error),
    };
    let length = RECORD_HEADER_BYTES + body_bytes;
    if start.saturating_add(length as u64) > file_bytes {
        return Ok(true);
    }
    let record = window.bytes(start, length)?;
    let in_first_sector = SECTOR_BYTES - usize::try_from(start % SECTOR_BYTES as u64).unwrap_or_default();
    let (first, others) = record.split_at(in_first_sector.min(length));
    let mut parts = std::iter::once(first).chain(others.chunks(SECTOR_BYTES));
    Ok(parts.any(|part| part.iter().all(|byte| *byte == 0)))
}

fn record_bytes(row: &PageRow) -> u64 {
    crate::record::record_bytes(row.body_bytes)
}

fn cut(storage: &dyn Storage, arena: ArenaId, log_bytes: u64) -> Result<(), RecoverError> {
    let file = arena.file_name();
    storage
        .truncate(&file, log_bytes)
        .and_then(|()| storage.sync(&file))
        .map_err(|source| RecoverError::Cut { arena, source })
}
