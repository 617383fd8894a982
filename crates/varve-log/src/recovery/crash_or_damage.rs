//! Telling what a crash has left from damage, in an arena that has no seal. Changes nothing on the disk.
//!
//! A page tells up to where its arena was durable when it was written. Beyond that, a power cut may have kept any sector and lost any
//! other: a writer reads the clumps that pages name there before it believes the pages, and the first one that fails, or follows something
//! broken, ends the arena. What is broken before the mark was durable once, so it is damage: it is reported, and nothing is cut.
//!
//! What the disk does not give is neither: it may be good, and may come back. Nothing is concluded from it, and the arena is left as it is.

use crate::arenas::address::Granule;
use crate::arenas::footer::{is_torn_seal, seal_bytes};
use crate::arenas::sectors::{in_sectors, may_be_lost};
use crate::reading::log::{ArenaState, Log, OpenedArena, ReadLogError};
use crate::reading::window::Window;
use crate::records::directory_page::DirectoryPage;
use crate::records::record_header::RECORD_HEADER_BYTES;
use crate::recovery::scan::{AHEAD_BYTES, Recovered};

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

impl Log {
    /// As [`Log::state`]; but a seal that a power cut has torn, and so was never acknowledged, counts as none.
    ///
    /// # Errors
    /// [`ReadLogError`]; [`ReadLogError::Seal`] when the seal is damaged in another way.
    pub fn state_as_left(&self, arena: &OpenedArena) -> Result<ArenaState, ReadLogError> {
        match self.state(arena) {
            Err(error @ ReadLogError::Seal { .. }) => {
                let found = self.scan(arena)?;
                let is_torn = found.ends_at_seal() && self.end(arena, &found)? == ArenaEnd::Torn;
                if is_torn { Ok(ArenaState::Unsealed) } else { Err(error) }
            }
            other => other,
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

    /// Of what a [`scan`](Self::scan) has found, keeps what a writer may go on from: reads the clumps that were not known to be
    /// durable, and ends the arena before what a crash has torn. What else is wrong is a [`gap`](Recovered::gap). Changes
    /// nothing on the disk.
    ///
    /// # Errors
    /// [`ReadLogError`] when it could not be read for a reason that is no damage.
    pub fn judge(&self, arena: &OpenedArena, mut found: Recovered) -> Result<Recovered, ReadLogError> {
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
            // Nothing of the arena is cut off. But pages behind something that never reached the disk do not count.
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

    /// Whether a broken record never reached the disk: then nothing after it was ever acknowledged, since a sync that covered
    /// any of that would have covered this record, too.
    fn was_lost(&self, window: &mut Window<'_>, place: u64, durable: Granule) -> Result<bool, ReadLogError> {
        match Granule::at_or_after(place) {
            Some(granule) if granule >= durable => is_torn(window, granule),
            _ => Ok(false),
        }
    }
}

/// The first clump of a page, from `durable` on, that is not as the page names it. One that the disk does not give is not taken for
/// broken, but noted.
fn broken_clump(
    window: &mut Window<'_>,
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

/// Whether a record that does not read is broken as a crash breaks it: its file ends before it does, or the part of it that
/// lies in one sector never reached the disk, and reads as zeros. A crash changes no bits within what it leaves.
fn is_torn(window: &mut Window<'_>, granule: Granule) -> Result<bool, ReadLogError> {
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
        // What is not known may be good.
        Err(error) if error.is_unreadable() => return Ok(false),
        other => other?,
    };
    Ok(in_sectors(start, record).any(may_be_lost))
}

/// Whether what follows the last page is what a crash has left of the seal over the pages.
fn ends_in_torn_seal(window: &mut Window<'_>, found: &Recovered) -> Result<bool, ReadLogError> {
    let rows: Vec<_> = found.pages.iter().map(|(row, _)| *row).collect();
    let left_bytes = window.file_bytes()?.saturating_sub(found.log_bytes);
    let left_bytes = match usize::try_from(left_bytes) {
        Ok(left_bytes) if left_bytes <= seal_bytes(rows.len()) => left_bytes,
        _ => return Ok(false),
    };
    match window.bytes(found.log_bytes, left_bytes) {
        // What is not known may be good.
        Err(error) if error.is_unreadable() => Ok(false),
        left => Ok(is_torn_seal(&rows, found.log_bytes, left?)),
    }
}
