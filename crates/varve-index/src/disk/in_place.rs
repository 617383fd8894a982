//! Entries written in place: each to its page, as Venti writes them to its buckets (Quinlan and Dorward 2002). A page is
//! read, and written again with the entry in it; a pass leaves half of each page free for that.
//!
//! What a crash leaves of a page that was being written is damage like any other: its code tells. The note of a run says what part
//! of the log it has at least, and what was written in place only adds to that.

use parking_lot::RwLock;
use varve_block::{Fingerprint, LogAddress};

use super::Entry;
use super::page::{PAGE_BYTES, PageBuilder};
use super::run::{ReadRunError, Run};

/// What became of an entry.
enum Outcome {
    /// It is in its page now.
    Written,
    /// It was there.
    Known,
    /// Its page is full, or it comes before all pages, or pages cannot be written in place here: it has to wait for the next pass.
    NoRoom,
}

/// What became of many.
pub(super) struct Placed {
    /// Of those that were written.
    pub(super) keys: Vec<u64>,
    /// Those that wait.
    pub(super) rest: Vec<(Fingerprint, LogAddress)>,
    /// Why some of them do, if it is not for want of room.
    pub(super) failed: Option<ReadRunError>,
}

impl Run {
    /// Writes each entry to its page. While one is written, nobody holds `pages`.
    pub(super) fn put_all_in_place(
        &self,
        entries: &[(Fingerprint, LogAddress)],
        entry_of: impl Fn((Fingerprint, LogAddress)) -> Entry,
        pages: &RwLock<()>,
    ) -> Placed {
        let mut placed = Placed { keys: Vec::new(), rest: Vec::new(), failed: None };
        for pair in entries {
            let entry = entry_of(*pair);
            let outcome = {
                let _pages = pages.write();
                self.put_in_place(entry)
            };
            match outcome {
                Ok(Outcome::Known) => {}
                Ok(Outcome::Written) => placed.keys.push(entry.key),
                Ok(Outcome::NoRoom) => placed.rest.push(*pair),
                Err(error) => {
                    placed.failed = Some(error);
                    placed.rest.push(*pair);
                }
            }
        }
        placed
    }

    /// Reads the page of an entry, and writes it again with the entry in it.
    fn put_in_place(&self, entry: Entry) -> Result<Outcome, ReadRunError> {
        let Some(number) = self.fences.partition_point(|fence| *fence <= entry.key).checked_sub(1) else {
            return Ok(Outcome::NoRoom);
        };
        let number = number as u64;
        let mut bytes = [0; PAGE_BYTES];
        let page = self.page(number, &mut bytes)?;
        let mut entries = Vec::new();
        page.read_all(&mut entries)
            .ok_or_else(|| ReadRunError::Damaged { file: self.file.clone(), page: number })?;
        match entries.binary_search(&entry) {
            Ok(_) => return Ok(Outcome::Known),
            Err(at) => entries.insert(at, entry),
        }
        let mut builder = PageBuilder::new(self.codes);
        if !entries.iter().all(|entry| builder.push(*entry)) {
            return Ok(Outcome::NoRoom);
        }
        let written = self.storage.overwrite(&self.file, number * PAGE_BYTES as u64, &builder.finish(number));
        // Whatever went wrong, the entry is not lost: it waits. A page that was half written is found out by whoever reads it.
        Ok(written.map_or(Outcome::NoRoom, |()| Outcome::Written))
    }
}
