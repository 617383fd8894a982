//! An arena that is being fetched: its records are checked as they come, out of memory, so that the disk need not give them back at once.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use varve_log::{ArenaHeader, ArenaId, GRANULE_BYTES, Granule, Log, OpenedArena, ReadLogError};
use varve_world::Storage;

use crate::held::Held;

/// A record that was checked: where it begins, and its code.
type Checked = (Granule, [u8; 16]);

/// What of an arena was found right while it came.
#[derive(Default)]
pub(crate) struct Arrival {
    opened: Option<OpenedArena>,
    checked: Vec<Checked>,
    /// Where the next record begins, if all records before are known.
    next: Option<Granule>,
}

impl Arrival {
    /// An arena of which nothing has come yet.
    pub(crate) fn begin() -> Self {
        Self { next: Granule::at_or_after(ArenaHeader::BYTES), ..Self::default() }
    }

    /// Checks those records that are whole in `piece`, which has come and is also in the `storage`. What cannot be read as a record
    /// is left to whoever looks at the whole arena.
    pub(crate) fn take(
        &mut self,
        log: &Log,
        storage: &Arc<dyn Storage>,
        id: ArenaId,
        offset: u64,
        piece: Bytes,
    ) {
        let end = offset + piece.len() as u64;
        let held = Held::in_memory(storage, id, offset, piece.clone());
        if self.check(&held.log(log), id, offset..end, piece).is_err() {
            self.next = None;
        }
    }

    fn check(&mut self, log: &Log, id: ArenaId, range: Range<u64>, piece: Bytes) -> Result<(), ReadLogError> {
        let Some(mut granule) = self.next else { return Ok(()) };
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => log.open_arena(id)?,
        };
        let opened = self.opened.insert(opened);
        let mut window = log.window_over(opened, range.start, piece);
        while granule.byte_offset() + GRANULE_BYTES <= range.end {
            let header = window.record(granule)?;
            let Some(next) = header.next() else { break };
            if granule.byte_offset() >= range.start && next.byte_offset() <= range.end {
                self.checked.push((granule, window.authenticate(granule)?.code));
            }
            granule = next;
        }
        self.next = Some(granule);
        Ok(())
    }

    /// Whether the record that begins at `granule` has come whole, with this code.
    pub(crate) fn has_checked(&self, granule: Granule, code: &[u8; 16]) -> bool {
        let place = self.checked.binary_search_by_key(&granule, |(granule, _)| *granule);
        place.is_ok_and(|place| self.checked[place].1 == *code)
    }
}
