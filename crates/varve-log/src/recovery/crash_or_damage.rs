//! Distinguishes the traces of a crash from damage, in an arena that has no seal. Writes nothing.
//!
//! A page records the end of the part of its arena that was durable when the page was written: the
//! durable mark. Beyond the mark, a power cut may have kept or lost any sector. So before a writer
//! believes pages there, it reads the clumps that they name. The first clump that fails, or that
//! follows a broken record, ends the arena. A broken record before the mark was once durable, so it
//! is damage: it is reported, and nothing is cut.
//!
//! A place that the disk does not return is neither. It may be good, and may be readable again.
//! Nothing is concluded from it, and the arena is not changed.

use crate::arenas::footer::{is_torn_seal, seal_bytes};
use crate::arenas::sectors::{in_sectors, may_be_lost};
use crate::reading::log::{ArenaState, Log, OpenedArena, ReadLogError};
use crate::reading::window::ArenaWindow;
use crate::records::directory_page::DirectoryPage;
use crate::records::granule::Granule;
use crate::records::record_sizes::RECORD_HEADER_BYTES;
use crate::recovery::scan::{AHEAD_BYTES, RecoveredArena};
use varve_block::to_usize;

/// The state of the part after the last page of an arena without a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArenaEnd {
    /// Empty, or whole records of a writer that is still running or was killed.
    Whole,
    /// A record that never reached the disk whole, as after a crash. Nothing was acknowledged from
    /// there on.
    Torn,
    /// A complete record with changed bytes. It may be the page that followed.
    Damaged,
}

impl Log {
    /// As [`Log::state`], but a seal that a power cut has torn counts as none. It was never
    /// acknowledged.
    ///
    /// # Errors
    /// [`ReadLogError`]; [`ReadLogError::Seal`] when the seal is damaged in another way.
    pub fn state_as_left(&self, arena: &OpenedArena) -> Result<ArenaState, ReadLogError> {
        match self.state(arena) {
            Err(error) if error.is_broken_seal() => {
                let found = self.scan(arena)?;
                let is_torn = found.ends_at_seal() && self.end(arena, &found)? == ArenaEnd::Torn;
                if is_torn { Ok(ArenaState::Unsealed) } else { Err(error) }
            }
            other => other,
        }
    }

    /// Judges the part after the last page of an arena without a seal.
    ///
    /// # Errors
    /// [`ReadLogError`] when it could not be read for a reason other than damage.
    pub fn end(&self, arena: &OpenedArena, found: &RecoveredArena) -> Result<ArenaEnd, ReadLogError> {
        let mut window = self.window(arena, AHEAD_BYTES);
        let file_bytes = window.file_bytes()?;
        let mut place = Granule::at_or_after(found.log_bytes);
        while let Some(granule) = place.filter(|granule| granule.byte_offset() < file_bytes) {
            place = match window.authenticate(granule) {
                Ok(header) => header.next(),
                Err(error) if error.is_damage() => {
                    let is_after_page = granule.byte_offset() == found.log_bytes;
                    let is_torn = is_torn(&mut window, granule)?
                        || (is_after_page && ends_in_torn_seal(&mut window, found)?);
                    return Ok(if is_torn { ArenaEnd::Torn } else { ArenaEnd::Damaged });
                }
                Err(error) => return Err(error),
            };
        }
        Ok(ArenaEnd::Whole)
    }

    /// Keeps the part of a [`scan`](Self::scan)'s result from which a writer may continue. Reads
    /// the clumps that were not known to be durable, and ends the arena before a record that a
    /// crash has torn. Other broken records become a [`gap`](RecoveredArena::gap). Writes nothing.
    ///
    /// # Errors
    /// [`ReadLogError`] when it could not be read for a reason other than damage.
    pub fn judge(
        &self,
        arena: &OpenedArena,
        mut found: RecoveredArena,
    ) -> Result<RecoveredArena, ReadLogError> {
        let durable = found.durable();
        let mut window = self.window(arena, AHEAD_BYTES);
        let (mut broken, mut unreadable) = (Vec::new(), found.first_hidden());
        for (number, (row, page)) in found.pages.iter().enumerate() {
            if let Some(clump) = broken_clump(&mut window, page, durable, &mut unreadable)? {
                tracing::warn!(arena = %arena.id(), offset = row.granule.byte_offset(), "a page outlived its clumps");
                broken.push((number, clump.byte_offset()));
            }
        }
        if let Some(place) = unreadable {
            // Nothing of the arena is cut off. But pages after a record that never reached the disk
            // are dropped.
            let first = broken.iter().map(|(_, clump)| *clump).min();
            match first {
                Some(first) if self.was_lost(&mut window, first, durable)? => {
                    found.pages.retain(|(row, _)| row.granule.byte_offset() < first);
                }
                _ => {
                    for (number, _) in broken.into_iter().rev() {
                        found.pages.remove(number);
                    }
                }
            }
            found.gap = found.gap.into_iter().chain(first).chain([place]).min();
            return Ok(found);
        }
        let Some(first) = broken.iter().map(|(_, clump)| *clump).chain(found.gap).min() else {
            return Ok(found);
        };
        if self.was_lost(&mut window, first, durable)? {
            let kept = found.pages.partition_point(|(row, _)| row.granule.byte_offset() < first);
            found.keep_pages(kept);
            found.gap = None;
            return Ok(found);
        }
        for (number, _) in broken.into_iter().rev() {
            let (row, _) = found.pages.remove(number);
            found.gap =
                Some(found.gap.map_or(row.granule.byte_offset(), |gap| gap.min(row.granule.byte_offset())));
        }
        Ok(found)
    }

    /// Returns true if a broken record never reached the disk. Then nothing after it was ever
    /// acknowledged, because a sync of later records would have covered this record, too.
    fn was_lost(
        &self,
        window: &mut ArenaWindow<'_>,
        place: u64,
        durable: Granule,
    ) -> Result<bool, ReadLogError> {
        match Granule::at_or_after(place) {
            Some(granule) if granule >= durable => is_torn(window, granule),
            _ => Ok(false),
        }
    }
}

/// Returns the first clump of a page, at or after `durable`, that differs from the page's row. A
/// clump that the disk does not return is recorded in `unreadable` instead.
fn broken_clump(
    window: &mut ArenaWindow<'_>,
    page: &DirectoryPage,
    durable: Granule,
    unreadable: &mut Option<u64>,
) -> Result<Option<Granule>, ReadLogError> {
    for clump in page.clumps().iter().filter(|clump| clump.granule >= durable) {
        match window.authenticate(clump.granule) {
            Ok(header) if header.code == clump.code => {}
            Err(error) if error.is_unreadable() => {
                unreadable.get_or_insert(clump.granule.byte_offset());
            }
            Err(error) if !error.is_damage() => return Err(error),
            _ => return Ok(Some(clump.granule)),
        }
    }
    Ok(None)
}

/// Returns true if a record is broken in the way of a crash: the file ends before the record does,
/// or the record's part in one sector never reached the disk and reads as zeros. A crash does not
/// change bits in the sectors that it keeps.
fn is_torn(window: &mut ArenaWindow<'_>, granule: Granule) -> Result<bool, ReadLogError> {
    let file_bytes = window.file_bytes()?;
    let start = granule.byte_offset();
    let body_bytes = match window.record(granule) {
        Ok(header) => header.body_bytes as usize,
        Err(error) if error.is_unreadable() => return Ok(false),
        Err(error) if error.is_damage() => 0,
        Err(error) => return Err(error),
    };
    let length = RECORD_HEADER_BYTES + body_bytes;
    if start.saturating_add(length as u64) > file_bytes {
        return Ok(true);
    }
    let record = match window.bytes(start, length) {
        // An unreadable record may be good.
        Err(error) if error.is_unreadable() => return Ok(false),
        other => other?,
    };
    Ok(in_sectors(start, record).any(may_be_lost))
}

/// Returns true if the bytes after the last page are the remainder of a torn seal over the pages.
fn ends_in_torn_seal(window: &mut ArenaWindow<'_>, found: &RecoveredArena) -> Result<bool, ReadLogError> {
    let rows: Vec<_> = found.pages.iter().map(|(row, _)| *row).collect();
    let left_bytes = to_usize(window.file_bytes()?.saturating_sub(found.log_bytes));
    if left_bytes > seal_bytes(rows.len()) {
        return Ok(false);
    }
    match window.bytes(found.log_bytes, left_bytes) {
        // Unreadable bytes may be good.
        Err(error) if error.is_unreadable() => Ok(false),
        left => Ok(is_torn_seal(&rows, found.log_bytes, left?)),
    }
}
