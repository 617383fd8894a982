//! The bytes of one file: as they are seen, and as a power cut would leave them.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::draw::Draw;
use crate::rot::Rot;
use crate::tally::Leftover;

/// What a disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// A file without its name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inode {
    volatile: Vec<u8>,
    durable: Vec<u8>,
    /// Nothing before this place waits to be written.
    clean_bytes: usize,
    /// Where appends since the last sync have ended.
    lengths: Vec<usize>,
    /// The lowest place at which the file was cut since its last sync.
    cut: Option<usize>,
    /// Where earlier appends ended, synced or not: a stale read goes back to one of them.
    ends: Vec<usize>,
    /// A sync that nobody waited for has failed, and nobody has been told.
    failed_behind: bool,
    /// Sectors that the drive does not give any more, by their number.
    unreadable: BTreeSet<usize>,
}

/// How much a power cut keeps of a file's unsynced sectors.
enum Keeps {
    Nothing,
    All,
    /// Those before a border.
    First,
    /// Each with even chances.
    Any,
    /// All but one.
    AllButOne,
}

impl Inode {
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

    /// What the file had before a later append; zeros behind it.
    pub(crate) fn stale(&self, offset: usize, into: &mut [u8], draw: &mut Draw) {
        let within: Vec<_> =
            self.ends.iter().copied().filter(|end| (offset..offset + into.len()).contains(end)).collect();
        let end = match within.get(draw.index(within.len())) {
            Some(end) => *end,
            None => offset,
        };
        into[end - offset..].fill(0);
    }

    /// Whether a part of this range is in a sector that cannot be read.
    pub(crate) fn has_unreadable(&self, range: Range<usize>) -> bool {
        let sectors = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
        !range.is_empty() && self.unreadable.range(sectors).next().is_some()
    }

    /// Damages what is durable, and what is seen of it.
    pub(crate) fn rot(&mut self, rot: Rot, draw: &mut Draw) {
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

    /// Every sector can be read again.
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

    /// Whether a failure was waiting to be told.
    pub(crate) fn take_failure(&mut self) -> bool {
        std::mem::take(&mut self.failed_behind)
    }

    /// A sync that fails: each waiting sector is written, or marked clean all the same. Those may be read for as long as the cache keeps
    /// them; this draws whether it does.
    pub(crate) fn fail_sync(&mut self, draw: &mut Draw, left: &mut BTreeSet<Leftover>) {
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

    /// What a power cut leaves.
    pub(crate) fn survive(&mut self, draw: &mut Draw, left: &mut BTreeSet<Leftover>) {
        if !self.is_clean() {
            self.durable = self.remains(draw, left);
        }
        self.volatile = self.durable.clone();
        self.failed_behind = false;
        self.ends.retain(|end| *end <= self.volatile.len());
        self.settle();
    }

    fn remains(&self, draw: &mut Draw, left: &mut BTreeSet<Leftover>) -> Vec<u8> {
        let (old, new) = (self.durable.len().max(self.clean_bytes), self.volatile.len());
        let keeps = match draw.below(6) {
            0 => Keeps::Nothing,
            1 => Keeps::All,
            2 => Keeps::First,
            3 => Keeps::AllButOne,
            _ => Keeps::Any,
        };
        let length = match keeps {
            Keeps::Nothing if draw.once_in(2) => self.durable.len(),
            Keeps::All | Keeps::AllButOne => new,
            _ => self.some_length(draw),
        };
        let mut remains = self.durable.clone();
        remains.resize(length, 0);
        let waiting: Vec<_> = sectors(self.clean_bytes, length).collect();
        let border = draw.index(waiting.len() + 1);
        let mut lost_before = false;
        for (number, sector) in waiting.into_iter().enumerate() {
            let is_kept = match keeps {
                Keeps::Nothing => false,
                Keeps::All => true,
                Keeps::First => number < border,
                Keeps::AllButOne => number != border,
                Keeps::Any => draw.once_in(2),
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
                // A cut frees what is behind it: there may be what was before, or nothing.
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

    fn some_length(&self, draw: &mut Draw) -> usize {
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

/// The sectors that hold bytes `from..to`, each cut off at `to`.
fn sectors(from: usize, to: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let first = from / SECTOR_BYTES * SECTOR_BYTES;
    (first..to.max(first)).step_by(SECTOR_BYTES).map(move |start| start..(start + SECTOR_BYTES).min(to))
}
