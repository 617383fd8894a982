//! The state behind the drafts' lock: pending blocks, open drafts, and full drafts that are being
//! packed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use varve_block::{BlockName, BlockType, LogAddress, PutError};
use varve_log::{AppendError, ClumpBytes, ClumpDraft, Digest, NamedBlock, WriteFailure};

use super::placement::{AssignedPlace, Placement};

/// The blocks that were put and are not in the index yet.
pub(super) struct Admission {
    pub(super) pending: BTreeMap<BlockName, PendingRow>,
    /// The open drafts, one for each [`DraftKind`].
    pub(super) drafts: [OpenDraft; 3],
    pub(super) next_draft_number: u64,
    /// The full drafts that some thread is packing.
    pub(super) in_flight: BTreeMap<u64, FullDraft>,
    /// Assigns places to drafts, in a store that names blocks by their places.
    pub(super) placement: Option<Placement>,
    /// The number of clumps that this session has appended.
    pub(super) clump_count: u64,
    /// The number of pages that have been added to the index.
    pub(super) page_count: u64,
    pub(super) new_block_count: u64,
    pub(super) new_block_bytes: u64,
    /// The reason why no more blocks are accepted.
    pub(super) failed: Option<WriteFailure>,
}

/// Blocks of different kinds do not share a clump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DraftKind {
    Data,
    /// A reader that looks into a snapshot reads the structure, and does not have to unpack data
    /// for it.
    Structure,
    /// Data that is expected to be read in small pieces at random. Its clump has frames.
    RandomReads,
}

impl DraftKind {
    pub(super) const ALL: [Self; 3] = [Self::Data, Self::Structure, Self::RandomReads];

    /// Returns the kind for a block. `data` is the kind for data.
    pub(super) fn of(block_type: BlockType, data: Self) -> Self {
        if block_type == BlockType::DATA { data } else { Self::Structure }
    }
}

/// A draft that accepts blocks.
pub(super) struct OpenDraft {
    pub(super) number: u64,
    /// The place of a draft that has a block, in a store that names blocks by their places.
    pub(super) home: Option<AssignedPlace>,
    pub(super) draft: ClumpDraft,
}

/// A full draft. The thread that filled it packs it.
#[derive(Clone)]
pub(crate) struct FullDraft {
    number: u64,
    pub(crate) kind: DraftKind,
    pub(crate) home: Option<AssignedPlace>,
    pub(crate) draft: Arc<ClumpDraft>,
}

/// The place of a block that no page names yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingRow {
    pub(super) place: PendingPlace,
    pub(super) digest: Option<Digest>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum PendingPlace {
    Draft { number: u64, ordinal: usize },
    Clump(LogAddress),
}

/// A pending block, as a reader gets it.
pub(crate) enum PendingBlock {
    /// The bytes of the block, from its draft.
    Here(Option<Bytes>),
    /// The block is in the log already, at this address.
    At(LogAddress),
}

impl Admission {
    pub(super) fn new(clump_bytes: ClumpBytes) -> Self {
        let open = |number, goal| OpenDraft { number, home: None, draft: ClumpDraft::new(goal) };
        Self {
            pending: BTreeMap::new(),
            drafts: [
                open(0, clump_bytes),
                open(1, clump_bytes.min(structure_clump_bytes())),
                open(2, clump_bytes),
            ],
            next_draft_number: 3,
            in_flight: BTreeMap::new(),
            placement: None,
            clump_count: 0,
            page_count: 0,
            new_block_count: 0,
            new_block_bytes: 0,
            failed: None,
        }
    }

    pub(super) fn check_not_failed(&self) -> Result<(), AppendError> {
        match &self.failed {
            Some(reason) => Err(AppendError::Failed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    pub(super) fn waiting(&self, name: &BlockName) -> Option<PendingBlock> {
        Some(match self.pending.get(name)?.place {
            PendingPlace::Clump(address) => PendingBlock::At(address),
            PendingPlace::Draft { number, ordinal } => {
                PendingBlock::Here(self.block_of_draft(number, ordinal).map(Bytes::copy_from_slice))
            }
        })
    }

    pub(super) fn block_of_draft(&self, number: u64, ordinal: usize) -> Option<&[u8]> {
        let closed = self.in_flight.get(&number).map(|full| &*full.draft);
        let open = self.drafts.iter().find(|open| open.number == number).map(|open| &open.draft);
        closed.or(open)?.block(ordinal)
    }

    pub(super) fn add_new(
        &mut self,
        blocks: &[NamedBlock<'_>],
        known: &[bool],
        data: DraftKind,
        full: &mut Vec<FullDraft>,
    ) -> Result<Vec<bool>, PutError> {
        let mut is_new = vec![false; blocks.len()];
        for (number, (block, _)) in blocks.iter().zip(known).enumerate().filter(|(_, (_, known))| !**known) {
            if let Some(pending) = self.pending.get(&block.name) {
                if pending.digest != block.digest {
                    return Err(PutError::Collision { name: block.name });
                }
                continue;
            }
            let kind = DraftKind::of(block.name.block_type, data);
            if self.open(kind).draft.should_close_before(block.bytes.len()) {
                full.extend(self.close_draft(kind));
            }
            let open = self.open(kind);
            let place = PendingPlace::Draft { number: open.number, ordinal: open.draft.push(*block) };
            self.pending.insert(block.name, PendingRow { place, digest: block.digest });
            is_new[number] = true;
            self.new_block_count += 1;
            self.new_block_bytes += block.bytes.len() as u64;
            if self.open(kind).draft.is_full() {
                full.extend(self.close_draft(kind));
            }
        }
        Ok(is_new)
    }

    /// The draft of this kind that accepts blocks.
    pub(super) fn open(&mut self, kind: DraftKind) -> &mut OpenDraft {
        &mut self.drafts[kind as usize]
    }

    pub(super) fn close_draft(&mut self, kind: DraftKind) -> Option<FullDraft> {
        let next_number = self.next_draft_number;
        let open = self.open(kind);
        if open.draft.is_empty() {
            return None;
        }
        let draft = Arc::new(open.draft.take());
        let number = std::mem::replace(&mut open.number, next_number);
        let full = FullDraft { number, kind, home: open.home.take(), draft };
        self.next_draft_number += 1;
        self.in_flight.insert(number, full.clone());
        Some(full)
    }

    pub(super) fn note_clump(&mut self, full: &FullDraft, address: LogAddress) {
        self.in_flight.remove(&full.number);
        if let Some(placement) = &mut self.placement {
            placement.note_written(full.number);
        }
        self.clump_count += 1;
        for name in full.draft.names() {
            if let Some(pending) = self.pending.get_mut(&name) {
                pending.place = PendingPlace::Clump(address);
            }
        }
    }
}

/// Folder lists and pointer blocks are read at random, so their clumps are kept small.
fn structure_clump_bytes() -> ClumpBytes {
    ClumpBytes::new(128 << 10).expect("between the bounds")
}
