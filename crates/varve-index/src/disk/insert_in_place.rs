//! Writes entries in place: each to its page, as Venti writes them to its buckets (Quinlan and
//! Dorward 2002). A page is read, and written again with the new entry; a pass leaves half of each
//! page free for that.
//!
//! A page that was torn by a crash is damage like any other: its code detects it. The note of a run
//! names the part of the log that it covers at least; entries written in place only add to that.

use parking_lot::RwLock;
use varve_block::{Fingerprint, LogAddress};

use super::IndexEntry;
use super::page::{PAGE_BYTES, RunPageBuilder};
use super::run::{IndexRun, ReadRunError};

/// The result for an entry.
enum EntryOutcome {
    /// The entry was added to its page.
    Written,
    /// The entry was present.
    Known,
    /// The page is full, the entry precedes all pages, or pages cannot be written in place here:
    /// the entry waits for the next pass.
    NoRoom,
}

/// The result for many entries.
pub(super) struct InPlaceResult {
    /// The keys of the entries that were written.
    pub(super) keys: Vec<u64>,
    /// The entries that wait.
    pub(super) rest: Vec<(Fingerprint, LogAddress)>,
    /// The failure, if entries wait for another reason than lack of room.
    pub(super) failed: Option<ReadRunError>,
}

impl IndexRun {
    /// Writes each entry to its page. `pages` is locked during each write, so that no page is read
    /// then.
    pub(super) fn put_all_in_place(
        &self,
        entries: &[(Fingerprint, LogAddress)],
        entry_of: impl Fn((Fingerprint, LogAddress)) -> IndexEntry,
        pages: &RwLock<()>,
    ) -> InPlaceResult {
        let mut placed = InPlaceResult { keys: Vec::new(), rest: Vec::new(), failed: None };
        for pair in entries {
            let entry = entry_of(*pair);
            let outcome = {
                let _pages = pages.write();
                self.put_in_place(entry)
            };
            match outcome {
                Ok(EntryOutcome::Known) => {}
                Ok(EntryOutcome::Written) => placed.keys.push(entry.key),
                Ok(EntryOutcome::NoRoom) => placed.rest.push(*pair),
                Err(error) => {
                    placed.failed = Some(error);
                    placed.rest.push(*pair);
                }
            }
        }
        placed
    }

    /// Reads the page of an entry, and writes it again with the entry.
    fn put_in_place(&self, entry: IndexEntry) -> Result<EntryOutcome, ReadRunError> {
        let Some(number) = self.fences.partition_point(|fence| *fence <= entry.key).checked_sub(1) else {
            return Ok(EntryOutcome::NoRoom);
        };
        let number = number as u64;
        let mut bytes = [0; PAGE_BYTES];
        let page = self.page(number, &mut bytes)?;
        let mut entries = Vec::new();
        page.read_all(&mut entries)
            .ok_or_else(|| ReadRunError::Damaged { file: self.file.clone(), page: number })?;
        match entries.binary_search(&entry) {
            Ok(_) => return Ok(EntryOutcome::Known),
            Err(at) => entries.insert(at, entry),
        }
        let mut builder = RunPageBuilder::new(self.codes);
        if !entries.iter().all(|entry| builder.push(*entry)) {
            return Ok(EntryOutcome::NoRoom);
        }
        let written = self.storage.overwrite(&self.file, number * PAGE_BYTES as u64, &builder.finish(number));
        // If the write fails, the entry is not lost: it waits. A half-written page is detected by
        // its code.
        Ok(written.map_or(EntryOutcome::NoRoom, |()| EntryOutcome::Written))
    }
}
