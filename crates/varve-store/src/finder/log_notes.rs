//! The notes in sight: blocks of type note that pages name, and the list of barren blocks that
//! counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_block::{BlockName, BlockType, LogAddress};
use varve_log::{ArenaId, DirectoryPage, ReadLogError};

use super::Finder;
use crate::notes::{BarrenPart, LogNote, is_structure, note_fingerprint};
use crate::vault::{Vault, barren_hint};

/// The notes that pages name.
pub(super) struct LogNotes {
    /// The clumps that hold notes, each with the name of one of them.
    places: Mutex<BTreeMap<LogAddress, BlockName>>,
    /// The list of barren blocks that counts; `None` until it is needed.
    barren: Mutex<Option<Arc<BarrenBlocks>>>,
    /// Before this place there are pages that were lost. They may have named notes.
    lost_before: Mutex<Option<LogAddress>>,
}

impl LogNotes {
    pub(super) fn new(places: BTreeMap<LogAddress, BlockName>) -> Self {
        Self { places: Mutex::new(places), barren: Mutex::default(), lost_before: Mutex::default() }
    }
}

/// The barren blocks, which count as absent at every place before `since`.
struct BarrenBlocks {
    since: LogAddress,
    names: BarrenNames,
}

enum BarrenNames {
    /// In ascending order.
    Fingerprints(Vec<u64>),
    /// The list cannot be read or may be lost, so every block that leads to others may be barren.
    /// To store it anew costs space, and to rely on it could lose data.
    Unknown,
}

impl BarrenBlocks {
    fn none() -> Self {
        let first = LogAddress::new(0).expect("the log has a first address");
        Self { since: first, names: BarrenNames::Fingerprints(Vec::new()) }
    }

    /// The list for a key that cannot read the one in the log: that of the hint. Without a hint,
    /// every block that leads to others and is older than the newest note may be barren.
    fn hinted(vault: &Vault, notes: BTreeMap<LogAddress, BlockName>) -> Self {
        let Some((since, newest)) = notes.into_iter().next_back() else { return Self::none() };
        let hinted = barren_hint::read(vault, &newest.score);
        Self { since, names: hinted.map_or(BarrenNames::Unknown, BarrenNames::Fingerprints) }
    }

    fn contains(&self, name: &BlockName, address: LogAddress) -> bool {
        address < self.since
            && is_structure(name)
            && match &self.names {
                BarrenNames::Fingerprints(names) => names.binary_search(&note_fingerprint(name)).is_ok(),
                BarrenNames::Unknown => true,
            }
    }
}

/// A list of barren blocks of which some parts were found.
struct IncompleteList {
    list: [u8; 16],
    part_count: u32,
    parts: BTreeMap<u32, Vec<u64>>,
    since: LogAddress,
}

impl IncompleteList {
    fn new(part: &BarrenPart, since: LogAddress) -> Self {
        Self { list: part.list, part_count: part.part_count, parts: BTreeMap::new(), since }
    }

    fn add(&mut self, part: BarrenPart, address: LogAddress) {
        self.parts.insert(part.part, part.fingerprints);
        self.since = self.since.min(address);
    }

    fn complete(&self) -> Option<BarrenBlocks> {
        let is_complete = u32::try_from(self.parts.len()).is_ok_and(|count| count == self.part_count);
        is_complete.then(|| {
            let mut names: Vec<u64> = self.parts.values().flatten().copied().collect();
            names.sort_unstable();
            BarrenBlocks { since: self.since, names: BarrenNames::Fingerprints(names) }
        })
    }
}

impl Finder {
    /// Returns the clumps that hold notes, each with the name of one of them.
    pub(crate) fn note_places(&self) -> BTreeMap<LogAddress, BlockName> {
        self.notes.places.lock().clone()
    }

    /// Records the notes that a page names, and returns the places of their clumps. A note of a
    /// writer that cannot read does not count.
    pub(crate) fn note_notes(&self, arena: ArenaId, page: &DirectoryPage) -> Vec<LogAddress> {
        let notes = page.blocks().filter(|block| block.name.block_type == BlockType::NOTE);
        let placed =
            notes.filter_map(|block| Some((self.vault.map().address(arena, block.granule)?, block.name)));
        let found: BTreeMap<_, _> = placed.filter(|(address, _)| self.is_final(*address)).collect();
        if !found.is_empty() {
            *self.notes.barren.lock() = None;
            self.notes.places.lock().extend(found.iter().map(|(address, name)| (*address, *name)));
        }
        found.into_keys().collect()
    }

    /// Records that pages before `end` are lost. If no list of barren blocks comes after them,
    /// every block before `end` that leads to others may be barren.
    pub(crate) fn note_lost_pages(&self, end: LogAddress) {
        *self.notes.lost_before.lock() = Some(end);
        *self.notes.barren.lock() = None;
    }

    /// Drops the notes in an arena that was replaced. Those of its new generation are recorded with
    /// its pages.
    pub(crate) fn forget_notes_in(&self, arena: ArenaId) {
        let map = self.vault.map();
        let mut places = self.notes.places.lock();
        let before = places.len();
        places.retain(|address, _| map.locate(*address).0 != arena);
        if places.len() != before {
            *self.notes.barren.lock() = None;
        }
    }

    /// Reads the notes in the clump at `address`. Skips notes that this version does not know.
    ///
    /// # Errors
    /// [`ReadLogError`] when the clump cannot be read.
    pub(crate) fn read_notes(&self, address: LogAddress) -> Result<Vec<LogNote>, ReadLogError> {
        let (id, granule) = self.vault.map().locate(address);
        let (_, content) = self.vault.directory().read(id, || {
            let arena = self.vault.directory().arena(id)?;
            self.vault.log().window(&arena, 0).clump(granule)
        })?;
        let notes = content.blocks().filter(|(block_type, _)| *block_type == BlockType::NOTE);
        Ok(notes.filter_map(|(_, bytes)| LogNote::decode(&bytes)).collect())
    }

    /// Returns true if the block at `address` is barren: it may lead to blocks that were removed.
    pub(crate) fn is_barren(&self, name: &BlockName, address: LogAddress) -> bool {
        is_structure(name) && self.barren_blocks().is_some_and(|barren| barren.contains(name, address))
    }

    /// Returns true if a list that can be read has the block. A place that is newer than the list
    /// may have it too, and then it is not barren there.
    pub(crate) fn is_listed_as_barren(&self, name: &BlockName) -> bool {
        let is_listed = |barren: &BarrenBlocks| match &barren.names {
            BarrenNames::Fingerprints(names) => names.binary_search(&note_fingerprint(name)).is_ok(),
            BarrenNames::Unknown => false,
        };
        is_structure(name) && self.barren_blocks().is_some_and(|barren| is_listed(&barren))
    }

    /// Returns the list of barren blocks that counts; `None` if no page names a note, and none is
    /// lost.
    fn barren_blocks(&self) -> Option<Arc<BarrenBlocks>> {
        let lost_before = *self.notes.lost_before.lock();
        if lost_before.is_none() && self.notes.places.lock().is_empty() {
            return None;
        }
        if let Some(known) = self.notes.barren.lock().clone() {
            return Some(known);
        }
        let read = match (self.read_barren(), lost_before) {
            (read, Some(since)) if read.since < since => {
                tracing::warn!("a list in the log may be lost; blocks that lead to others are stored anew");
                BarrenBlocks { since, names: BarrenNames::Unknown }
            }
            (read, _) => read,
        };
        let read = Arc::new(read);
        *self.notes.barren.lock() = Some(Arc::clone(&read));
        Some(read)
    }

    /// Writes the hint from which write-only keys learn the list of barren blocks that counts.
    /// Without it they store their structure again, so a failure costs space only.
    pub(crate) fn write_barren_hint(&self) {
        let Some((_, newest)) = self.note_places().into_iter().next_back() else { return };
        let Some(barren) = self.barren_blocks() else { return };
        let BarrenNames::Fingerprints(names) = &barren.names else { return };
        if let Err(error) = barren_hint::write(&self.vault, &newest.score, names) {
            tracing::warn!(%error, "machines with a write-only key will store their structure again");
        }
    }

    /// Reads the newest complete list of barren blocks.
    fn read_barren(&self) -> BarrenBlocks {
        if !self.vault.log().keys().can_read() {
            return BarrenBlocks::hinted(&self.vault, self.note_places());
        }
        let take_in_if_changed = |address: LogAddress| {
            let suspected = [self.vault.map().locate(address).0].into();
            !self.take_in_changed(&suspected, self.changed_count()).is_empty()
        };
        let mut list: Option<IncompleteList> = None;
        for address in self.note_places().into_keys().rev() {
            let notes = match self.read_notes(address) {
                Ok(notes) => notes,
                // A collector has moved it. The reader has not followed that yet.
                Err(_) if take_in_if_changed(address) => return self.read_barren(),
                Err(error) => {
                    tracing::error!(%error, "a note in the log cannot be read; blocks that lead to others are stored anew");
                    return BarrenBlocks { since: address, names: BarrenNames::Unknown };
                }
            };
            for note in notes {
                let LogNote::Barren(part) = note else { continue };
                let mut current = match list.take() {
                    Some(list) if list.list == part.list => list,
                    // A crash has left the list after this one incomplete.
                    _ => IncompleteList::new(&part, address),
                };
                current.add(part, address);
                if let Some(complete) = current.complete() {
                    return complete;
                }
                list = Some(current);
            }
        }
        BarrenBlocks::none()
    }
}
