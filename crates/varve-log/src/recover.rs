//! What is good in an arena that has no seal: the open one, or one whose end a crash has cut off.
//!
//! Everything up to the last page counts; what follows it was never acknowledged. A page tells up to where its arena was
//! durable when it was written. Beyond that, a power cut may have kept a page and lost part of a clump that it names: a
//! writer reads those clumps before it believes the page, and what fails ends the arena there.

use varve_world::Storage;

use crate::arena::{ArenaId, Granule};
use crate::footer::PageRow;
use crate::header::ARENA_HEADER_BYTES;
use crate::page::DirectoryPage;
use crate::read::{Log, OpenedArena, ReadLogError, Window};
use crate::record::RecordKind;

/// How much is read at a time.
const AHEAD_BYTES: usize = 1 << 20;

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

/// What can be told of an arena without a seal by somebody who cannot read its clumps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proven {
    /// Pages whose clumps were all known to be durable when a later page was written.
    pub proven: Recovered,
    /// Pages of which that is not known: a power cut may have taken some of their clumps.
    pub unproven: Vec<(PageRow, DirectoryPage)>,
}

impl Proven {
    /// Whether all that the arena holds is proven: nothing is left to recover, and it can be sealed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.unproven.is_empty() && self.proven.gap.is_none() && self.proven.cut_bytes == 0
    }
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

    /// Whether what follows the last page of an arena without a seal is whole records: those of a writer at work, or
    /// of one that was killed.
    ///
    /// # Errors
    /// [`ReadLogError`] when it could not be read for a reason that is no damage.
    pub fn end_is_whole(&self, arena: &OpenedArena, found: &Recovered) -> Result<bool, ReadLogError> {
        let mut window = self.window(arena, AHEAD_BYTES);
        let file_bytes = window.file_bytes()?;
        let mut place = Granule::at_or_after(found.log_bytes);
        while let Some(granule) = place.filter(|granule| granule.byte_offset() < file_bytes) {
            place = match window.authenticate(granule) {
                Ok(header) => header.next(),
                Err(error) if error.is_damage() => return Ok(false),
                Err(error) => return Err(error),
            };
        }
        Ok(true)
    }

    /// Finds the good part of an arena that a writer is to go on with, and cuts off what a crash has left after it. An
    /// arena with a [`gap`](Recovered::gap) is left as it is.
    ///
    /// # Errors
    /// [`RecoverError`]; the arena is then as it was.
    pub fn recover(&self, arena: &OpenedArena) -> Result<Recovered, RecoverError> {
        let mut found = self.scan(arena)?;
        let durable = found.pages.iter().map(|(_, page)| page.durable()).max().unwrap_or_default();
        let mut window = self.window(arena, AHEAD_BYTES);
        let mut torn = Vec::new();
        for (number, (row, page)) in found.pages.iter().enumerate() {
            if !self.clumps_are_whole(&mut window, page, durable)? {
                tracing::warn!(arena = %arena.id(), offset = row.granule.byte_offset(), "a page outlived its clumps");
                torn.push(number);
            }
        }
        if let [number] = torn[..]
            && number + 1 == found.pages.len()
            && found.gap.is_none()
        {
            // What a power cut leaves: the last page reached the disk, and some of what it names did not.
            let kept = number.checked_sub(1).and_then(|last| found.pages.get(last));
            let kept_bytes = kept
                .map_or(ARENA_HEADER_BYTES as u64, |(row, _)| row.granule.byte_offset() + record_bytes(row));
            found.cut_bytes += found.log_bytes - kept_bytes;
            found.log_bytes = kept_bytes;
        } else if let Some((row, _)) = torn.first().and_then(|first| found.pages.get(*first)) {
            found.gap = found.gap.or(Some(row.granule.byte_offset()));
        }
        for number in torn.into_iter().rev() {
            found.pages.remove(number);
        }
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

    /// Tells what is surely good in an arena that has no seal, without reading its clumps. Changes nothing.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn prove(&self, arena: &OpenedArena) -> Result<Proven, ReadLogError> {
        let mut proven = self.scan(arena)?;
        let durable = proven.pages.iter().map(|(_, page)| page.durable()).max().unwrap_or_default();
        let is_proven = |page: &DirectoryPage| page.clumps().iter().all(|clump| clump.granule < durable);
        let (pages, unproven) =
            std::mem::take(&mut proven.pages).into_iter().partition(|(_, page)| is_proven(page));
        proven.pages = pages;
        Ok(Proven { proven, unproven })
    }

    /// Removes the newest arena if a crash came before its header was written: nothing was ever acknowledged in it.
    ///
    /// # Errors
    /// [`RecoverError`] when it could not be read or removed.
    pub fn remove_never_begun(&self) -> Result<(), RecoverError> {
        let Some(id) = self
            .arenas()
            .map_err(|error| RecoverError::Cut { arena: ArenaId(0), source: error.source })?
            .pop()
        else {
            return Ok(());
        };
        let (storage, file) = (self.storage(), id.file_name());
        let failed = |source| RecoverError::Cut { arena: id, source };
        let present = storage.length(&file).map_err(failed)?.min(ARENA_HEADER_BYTES as u64);
        let mut header = vec![0; usize::try_from(present).unwrap_or(ARENA_HEADER_BYTES)];
        storage.read_at(&file, 0, &mut header).map_err(failed)?;
        let is_begun = header.len() == ARENA_HEADER_BYTES && header.iter().any(|byte| *byte != 0);
        if is_begun {
            return Ok(());
        }
        tracing::info!(arena = %id, "removed an arena that a crash has left without a header");
        storage.remove(&file).map_err(failed)
    }

    fn clumps_are_whole(
        &self,
        window: &mut Window<'_>,
        page: &DirectoryPage,
        durable: Granule,
    ) -> Result<bool, ReadLogError> {
        for clump in page.clumps().iter().filter(|clump| clump.granule >= durable) {
            match window.authenticate(clump.granule) {
                Ok(header) if header.code == clump.code => {}
                Err(error) if !error.is_damage() => return Err(error),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
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
