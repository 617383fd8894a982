//! The bytes of one file: the volatile view, and the durable view that a power cut leaves.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::draw::SeededDraw;
use crate::rot::Rot;
use crate::tally::Leftover;

/// The unit that a disk writes atomically.
pub const SECTOR_BYTES: usize = 512;

/// A file without its name.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimInode {
    volatile: Vec<u8>,
    durable: Vec<u8>,
    /// The bytes before this position have no pending changes.
    clean_bytes: usize,
    /// The lengths of the file after each change since the last sync.
    lengths: Vec<usize>,
    /// The shortest length to which the file was truncated since its last sync.
    cut: Option<usize>,
    /// The file's lengths before earlier appends, synced or not. A stale read returns one of these
    /// states.
    ends: Vec<usize>,
    /// A background sync has failed, and the failure has not been reported yet.
    failed_behind: bool,
    /// The numbers of the sectors that have become unreadable.
    unreadable: BTreeSet<usize>,
}

/// The unsynced sectors that a power cut keeps.
enum KeptSectors {
    Nothing,
    All,
    /// The sectors before a random position.
    First,
    /// Each sector with even chances.
    Any,
    /// All sectors but one.
    AllButOne,
}

impl SimInode {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.volatile
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> usize {
        let offset = self.volatile.len();
        self.ends.push(offset);
        self.volatile.extend_from_slice(bytes);
        self.lengths.push(self.volatile.len());
        offset
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        self.volatile.truncate(length);
        self.unreadable.retain(|sector| sector * SECTOR_BYTES < length);
        self.ends.retain(|end| *end <= length);
        self.lengths.push(length);
        self.clean_bytes = self.clean_bytes.min(length);
        self.cut = Some(self.cut.map_or(length, |cut| cut.min(length)));
    }

    /// Simulates a read of an earlier state: turns the bytes of a later append into zeros.
    pub(crate) fn stale(&self, offset: usize, into: &mut [u8], draw: &mut SeededDraw) {
        let within: Vec<_> =
            self.ends.iter().copied().filter(|end| (offset..offset + into.len()).contains(end)).collect();
        let end = match within.get(draw.index(within.len())) {
            Some(end) => *end,
            None => offset,
        };
        into[end - offset..].fill(0);
    }

    /// Reports whether a part of this range is in an unreadable sector.
    pub(crate) fn has_unreadable(&self, range: Range<usize>) -> bool {
        let sectors = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
        !range.is_empty() && self.unreadable.range(sectors).next().is_some()
    }

    /// Damages the durable view, and the same place in the volatile one.
    pub(crate) fn rot(&mut self, rot: Rot, draw: &mut SeededDraw) {
        let place = draw.index(self.durable.len());
        let start = place / SECTOR_BYTES * SECTOR_BYTES;
        for view in [&mut self.durable, &mut self.volatile] {
            let end = (start + SECTOR_BYTES).min(view.len());
            match rot {
                Rot::FlippedBit if place < view.len() => view[place] ^= 1 << (place % 8),
                Rot::ZeroedSector if start < end => view[start..end].fill(0),
                Rot::LostEnd => view.truncate(place),
                _ => {}
            }
        }
        match rot {
            Rot::UnreadableSector => drop(self.unreadable.insert(start / SECTOR_BYTES)),
            Rot::LostEnd => {
                self.ends.retain(|end| *end <= place);
                self.lengths.retain(|length| *length <= place);
                self.clean_bytes = self.clean_bytes.min(place);
            }
            _ => {}
        }
    }

    /// Makes all sectors readable again.
    pub(crate) fn heal(&mut self) {
        self.unreadable.clear();
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.clean_bytes == self.volatile.len() && self.cut.is_none()
    }

    pub(crate) fn sync(&mut self) {
        self.durable.resize(self.clean_bytes, 0);
        self.durable.extend_from_slice(&self.volatile[self.clean_bytes..]);
        self.settle();
    }

    fn settle(&mut self) {
        self.clean_bytes = self.volatile.len();
        self.lengths.clear();
        self.cut = None;
    }

    pub(crate) fn fail_behind(&mut self) {
        self.failed_behind = true;
    }

    pub(crate) fn owes_failure(&self) -> bool {
        self.failed_behind
    }

    /// Returns and clears the pending failure.
    pub(crate) fn take_failure(&mut self) -> bool {
        std::mem::take(&mut self.failed_behind)
    }

    /// Fails a sync. Each pending sector is either written, or marked clean without being written.
    /// A sector marked clean can still be read while it is in the page cache; whether it is evicted
    /// is random.
    pub(crate) fn fail_sync(&mut self, draw: &mut SeededDraw, left: &mut BTreeSet<Leftover>) {
        if self.is_clean() {
            return;
        }
        let is_evicted = draw.once_in(3);
        let writes_all = draw.once_in(6);
        let length = self.volatile.len();
        let mut written = self.durable.clone();
        written.resize(length, 0);
        for sector in sectors(self.clean_bytes, length) {
            let (start, end) = (sector.start.max(self.clean_bytes), sector.end);
            if writes_all || draw.once_in(2) {
                written[start..end].copy_from_slice(&self.volatile[start..end]);
            } else {
                left.insert(Leftover::DroppedClean);
                if is_evicted {
                    self.volatile[start..end].copy_from_slice(&written[start..end]);
                }
            }
        }
        self.durable = written;
        self.settle();
    }

    /// Reduces the file to the state after a power cut.
    pub(crate) fn survive(&mut self, draw: &mut SeededDraw, left: &mut BTreeSet<Leftover>) {
        if !self.is_clean() {
            self.durable = self.remains(draw, left);
        }
        self.volatile = self.durable.clone();
        self.failed_behind = false;
        self.ends.retain(|end| *end <= self.volatile.len());
        self.settle();
    }

    fn remains(&self, draw: &mut SeededDraw, left: &mut BTreeSet<Leftover>) -> Vec<u8> {
        let (old, new) = (self.durable.len().max(self.clean_bytes), self.volatile.len());
        let keeps = match draw.below(6) {
            0 => KeptSectors::Nothing,
            1 => KeptSectors::All,
            2 => KeptSectors::First,
            3 => KeptSectors::AllButOne,
            _ => KeptSectors::Any,
        };
        let length = match keeps {
            KeptSectors::Nothing if draw.once_in(2) => self.durable.len(),
            KeptSectors::All | KeptSectors::AllButOne => new,
            _ => self.some_length(draw),
        };
        let mut remains = self.durable.clone();
        remains.resize(length, 0);
        let waiting: Vec<_> = sectors(self.clean_bytes, length).collect();
        let border = draw.index(waiting.len() + 1);
        let mut lost_before = false;
        for (number, sector) in waiting.into_iter().enumerate() {
            let is_kept = match keeps {
                KeptSectors::Nothing => false,
                KeptSectors::All => true,
                KeptSectors::First => number < border,
                KeptSectors::AllButOne => number != border,
                KeptSectors::Any => draw.once_in(2),
            };
            let (start, end) = (sector.start.max(self.clean_bytes), sector.end);
            if is_kept {
                let there = end.min(new).max(start);
                remains[start..there].copy_from_slice(&self.volatile[start.min(new)..there.min(new)]);
                remains[there..end].fill(0);
                left.insert(Leftover::BytesKept);
                if lost_before {
                    left.insert(Leftover::Reordered);
                }
                if self.lengths.iter().all(|length| *length != end) && end < new {
                    left.insert(Leftover::Torn);
                }
            } else {
                lost_before = true;
                left.insert(Leftover::BytesLost);
                // A truncation frees the bytes after the cut: they may keep their old contents, or
                // read as zeros.
                if let Some(cut) = self.cut.filter(|cut| *cut < end)
                    && draw.once_in(2)
                {
                    remains[start.max(cut)..end].fill(0);
                }
            }
        }
        if length < new {
            left.insert(Leftover::BytesLost);
        }
        if self.cut.is_some_and(|cut| length > cut.max(new)) && length <= old {
            left.insert(Leftover::CutUndone);
        }
        remains
    }

    fn some_length(&self, draw: &mut SeededDraw) -> usize {
        let (old, new) = (self.durable.len(), self.volatile.len());
        match draw.below(4) {
            0 => old,
            1 => new,
            2 => self.lengths.get(draw.index(self.lengths.len())).copied().unwrap_or(new),
            _ => {
                let (low, high) = (old.min(new).min(self.cut.unwrap_or(old)), old.max(new));
                let border = low + draw.index(high - low + 1);
                (border / SECTOR_BYTES * SECTOR_BYTES).max(low)
            }
        }
    }
}

/// The sectors that hold the bytes `from..to`, the last one cut at `to`.
fn sectors(from: usize, to: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let first = from / SECTOR_BYTES * SECTOR_BYTES;
    (first..to.max(first)).step_by(SECTOR_BYTES).map(move |start| start..(start + SECTOR_BYTES).min(to))
}
