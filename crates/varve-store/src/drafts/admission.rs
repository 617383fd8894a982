//! The state behind the drafts' lock: pending blocks, open drafts, and full drafts that are being
//! packed.

mod by_value;

pub(crate) use by_value::BlockToPut;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use varve_block::{BlockName, BlockType, LogAddress, PutError};
use varve_log::{
    AppendError, ArenaId, ClumpBytes, ClumpDraft, CompressionLevel, Digest, Framing, NamedBlock, PackedClump,
    WriteFailure,
};

use super::placement::{AssignedPlace, Placement};

/// The blocks that were put and are not in the index yet.
pub(super) struct Admission {
    pending: BTreeMap<BlockName, PendingRow>,
    /// The open drafts, one for each [`DraftKind`].
    drafts: [OpenDraft; 3],
    next_draft_number: u64,
    /// The full drafts that some thread is packing.
    in_flight: BTreeMap<u64, FullDraft>,
    /// Assigns places to drafts, in a store that names blocks by their places.
    placement: Option<Placement>,
    /// The number of clumps that this session has appended.
    clump_count: u64,
    /// The number of pages that have been added to the index.
    page_count: u64,
    new_block_count: u64,
    new_block_bytes: u64,
    /// The reason why no more blocks are accepted.
    failed: Option<WriteFailure>,
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
    const ALL: [Self; 3] = [Self::Data, Self::Structure, Self::RandomReads];

    /// Returns the kind for a block. `data` is the kind for data.
    fn of(block_type: BlockType, data: Self) -> Self {
        if block_type == BlockType::DATA { data } else { Self::Structure }
    }
}

/// A draft that accepts blocks.
struct OpenDraft {
    number: u64,
    /// The place of a draft that has a block, in a store that names blocks by their places.
    home: Option<AssignedPlace>,
    draft: ClumpDraft,
}

/// A full draft. The thread that filled it packs it.
#[derive(Clone)]
pub(crate) struct FullDraft {
    number: u64,
    kind: DraftKind,
    home: Option<AssignedPlace>,
    draft: Arc<ClumpDraft>,
}

impl FullDraft {
    /// Packs the draft. `framing` is that for a kind of drafts.
    pub(super) fn pack(
        &self,
        level: CompressionLevel,
        framing: impl Fn(DraftKind) -> Framing,
    ) -> PackedClump {
        self.draft.pack(level, framing(self.kind))
    }

    /// Returns the names of its blocks, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = BlockName> {
        self.draft.names()
    }

    /// Returns the arena in which the draft has a place, in a store that names blocks by their
    /// places.
    pub(crate) fn arena(&self) -> Option<ArenaId> {
        self.home.map(|home| home.arena())
    }
}

/// The place of a block that no page names yet.
#[derive(Debug, Clone, Copy)]
struct PendingRow {
    place: PendingPlace,
    digest: Option<Digest>,
}

#[derive(Debug, Clone, Copy)]
enum PendingPlace {
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

    /// Assigns places to drafts in advance.
    pub(super) fn place_by(&mut self, placement: Placement) {
        self.placement = Some(placement);
    }

    /// Records the end of the log, for drafts that get a place in advance.
    pub(super) fn note_end(&mut self, home: (ArenaId, u64)) {
        if let Some(placement) = &mut self.placement {
            placement.note_end(home);
        }
    }

    pub(super) fn is_pending(&self, name: &BlockName) -> bool {
        self.pending.contains_key(name)
    }

    pub(super) fn page_count(&self) -> u64 {
        self.page_count
    }

    pub(super) fn clump_count(&self) -> u64 {
        self.clump_count
    }

    /// Returns the number of blocks and bytes that this session has stored.
    pub(super) fn growth(&self) -> (u64, u64) {
        (self.new_block_count, self.new_block_bytes)
    }

    /// Accepts no more blocks, for this reason unless there is an earlier one.
    pub(super) fn fail_with(&mut self, reason: impl FnOnce() -> WriteFailure) {
        self.failed.get_or_insert_with(reason);
    }

    /// Returns true as long as a draft below this number may still become a clump.
    pub(super) fn has_drafts_below(&self, number: u64) -> bool {
        self.failed.is_none() && self.in_flight.keys().next().is_some_and(|first| *first < number)
    }

    /// Returns true as long as a draft that belongs in an earlier arena may still become a clump.
    pub(super) fn has_drafts_before(&self, arena: ArenaId) -> bool {
        let is_before = |full: &FullDraft| full.arena().is_some_and(|home| home < arena);
        self.failed.is_none() && self.in_flight.values().any(is_before)
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

    fn block_of_draft(&self, number: u64, ordinal: usize) -> Option<&[u8]> {
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
    fn open(&mut self, kind: DraftKind) -> &mut OpenDraft {
        &mut self.drafts[kind as usize]
    }

    fn close_draft(&mut self, kind: DraftKind) -> Option<FullDraft> {
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

    /// Closes the open drafts, full or not. Also returns a number that is greater than that of
    /// every draft closed until now.
    pub(super) fn close_all(&mut self) -> (Vec<FullDraft>, u64) {
        let closed = DraftKind::ALL.into_iter().filter_map(|kind| self.close_draft(kind)).collect();
        (closed, self.next_draft_number)
    }

    /// Records that a page names these blocks, and that the index has the page.
    pub(super) fn note_page(&mut self, names: impl Iterator<Item = BlockName>) {
        for name in names {
            self.pending.remove(&name);
        }
        self.page_count += 1;
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
