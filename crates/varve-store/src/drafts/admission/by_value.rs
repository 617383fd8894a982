//! Drafts of a by-value store. A new block is named by the place that it is given, so a draft has
//! its place before its first block.

use std::collections::BTreeSet;

use varve_block::{
    Block, BlockName, BlockType, CLUMP_NAME_BYTES, ClumpName, PLACED_SCORE_BYTES, PlacedName, Score,
};
use varve_log::{AppendError, NamedBlock};

use super::{Admission, DraftKind, FullDraft, PendingPlace, PendingRow};
use crate::drafts::placement::blocks_max;

/// A block is compared with at most this many others. To choose blocks with equal fingerprints, an
/// attacker needs the store's key. All that happens then is that such blocks are stored twice.
const CANDIDATES_MAX: usize = 16;

/// A block that is being put.
pub(crate) struct BlockToPut<'a> {
    block: Block<'a>,
    fingerprint: [u8; 8],
    /// The block's name, once it is known.
    score: Option<Score>,
    /// Blocks with the same fingerprint that differ from this one, or that cannot be read.
    others: BTreeSet<BlockName>,
}

impl<'a> BlockToPut<'a> {
    /// Begins a put. `score` is the name of a block that is not stored at all.
    pub(crate) fn new(block: Block<'a>, fingerprint: [u8; 8], score: Option<Score>) -> Self {
        Self { block, fingerprint, score, others: BTreeSet::new() }
    }

    pub(crate) fn score(&self) -> Option<Score> {
        self.score
    }

    pub(crate) fn fingerprint(&self) -> &[u8; 8] {
        &self.fingerprint
    }

    pub(crate) fn byte_count(&self) -> usize {
        self.block.bytes.len()
    }

    /// Returns the number of blocks that it may still be compared with.
    pub(crate) fn comparisons_left(&self) -> usize {
        CANDIDATES_MAX.saturating_sub(self.others.len())
    }

    /// Returns true if it was compared with a block and differs, or could not be compared.
    pub(crate) fn differs_from(&self, name: &BlockName) -> bool {
        self.others.contains(name)
    }

    /// Compares it with a stored block, and gives it the name of its equal. `stored` is `None` if
    /// that block cannot be read.
    pub(crate) fn compare(&mut self, name: BlockName, stored: Option<&[u8]>) {
        if stored == Some(self.block.bytes) {
            self.score.get_or_insert(name.score);
        } else {
            self.others.insert(name);
        }
    }

    /// Returns a name with the block's fingerprint that no stored block has.
    pub(crate) fn probe(&self) -> BlockName {
        let clump = ClumpName::from_bytes([0; CLUMP_NAME_BYTES]);
        let score = PlacedName { fingerprint: self.fingerprint, slot: u16::MAX, clump }.score();
        BlockName { score, block_type: self.block.block_type }
    }

    /// Returns the range from the first to the last name that the fingerprint can have.
    fn names(&self) -> std::ops::RangeInclusive<BlockName> {
        let name = |fill: u8, block_type| {
            let mut bytes = [fill; PLACED_SCORE_BYTES];
            bytes[..8].copy_from_slice(&self.fingerprint);
            BlockName { score: Score::try_from(bytes.as_slice()).expect("24 bytes"), block_type }
        };
        let last = BlockType::from_byte(127).expect("the last of all types");
        name(0, BlockType::DATA)..=name(0xff, last)
    }
}

impl Admission {
    /// Returns blocks in clumps without a page that may be equal to this block, and were not
    /// compared with it yet.
    pub(in crate::drafts) fn clumped_like(&self, put: &BlockToPut<'_>) -> BTreeSet<BlockName> {
        let in_clump = |(name, place)| matches!(place, PendingPlace::Clump(_)).then_some(name);
        let is_new = |name: &BlockName| !put.differs_from(name);
        self.pending_like(put).filter_map(in_clump).filter(is_new).collect()
    }

    /// Returns pending blocks that may be equal to this block.
    fn pending_like<'a>(
        &'a self,
        put: &'a BlockToPut<'_>,
    ) -> impl Iterator<Item = (BlockName, PendingPlace)> + 'a {
        self.pending
            .range(put.names())
            .filter(|(name, _)| name.block_type == put.block.block_type)
            .map(|(name, pending)| (*name, pending.place))
    }

    /// Names the blocks that are surely new. Compares each with the blocks in drafts. A block that
    /// may be equal to one in a clump without a page is left for the next round. Returns the drafts
    /// that became full, and an error if places ran out.
    pub(in crate::drafts) fn place_new(
        &mut self,
        puts: &mut [BlockToPut<'_>],
        data: DraftKind,
    ) -> (Vec<FullDraft>, Result<(), AppendError>) {
        let mut full = Vec::new();
        for put in puts.iter_mut().filter(|put| put.score.is_none()) {
            let (mut must_be_read, mut equal) = (false, None);
            for (name, place) in self.pending_like(put) {
                match place {
                    PendingPlace::Draft { number, ordinal } => {
                        if self.block_of_draft(number, ordinal) == Some(put.block.bytes) {
                            equal.get_or_insert(name.score);
                        }
                    }
                    PendingPlace::Clump(_) => must_be_read |= !put.differs_from(&name),
                }
            }
            // After this many comparisons another one is not worth its cost.
            must_be_read &= put.comparisons_left() > 0;
            put.score = match equal {
                Some(score) => Some(score),
                None if must_be_read => None,
                None => match self.place(put, data, &mut full) {
                    Some(score) => Some(score),
                    None => return (full, Err(AppendError::LogFull)),
                },
            };
        }
        (full, Ok(()))
    }

    /// Adds a block to a draft, and returns its new name. `None` if there is no place left in the
    /// log.
    fn place(&mut self, put: &BlockToPut<'_>, data: DraftKind, full: &mut Vec<FullDraft>) -> Option<Score> {
        let kind = DraftKind::of(put.block.block_type, data);
        let bytes = put.block.bytes;
        if self.open(kind).draft.should_close_before(bytes.len()) {
            full.extend(self.close_draft(kind));
        }
        if self.open(kind).draft.is_empty() {
            self.begin_draft(kind, bytes.len(), full)?;
        }
        let open = self.open(kind);
        let slot = u16::try_from(open.draft.names().len()).ok()?;
        let score = open.home?.score(put.fingerprint, slot);
        let name = BlockName { score, block_type: put.block.block_type };
        let place = PendingPlace::Draft {
            number: open.number,
            ordinal: open.draft.push(NamedBlock { name, digest: None, bytes, base: None }),
        };
        self.pending.insert(name, PendingRow { place, digest: None });
        self.new_block_count += 1;
        self.new_block_bytes += bytes.len() as u64;
        if self.is_full(kind) {
            full.extend(self.close_draft(kind));
        }
        Some(score)
    }

    /// Returns true if a draft has reached the size that room was reserved for.
    fn is_full(&mut self, kind: DraftKind) -> bool {
        let draft = &self.open(kind).draft;
        draft.is_full() || draft.names().len() >= blocks_max(draft.goal_bytes())
    }

    /// Finds a place for a draft whose first block has `first_bytes`. If that place is in the next
    /// arena, no more blocks are added to drafts of the current arena.
    fn begin_draft(&mut self, kind: DraftKind, first_bytes: usize, full: &mut Vec<FullDraft>) -> Option<()> {
        let draft_bytes = self.open(kind).draft.goal_bytes().max(first_bytes);
        if !self.placement.as_ref()?.has_room(draft_bytes) {
            for kind in DraftKind::ALL {
                full.extend(self.close_draft(kind));
            }
            self.placement.as_mut()?.move_on();
        }
        let number = self.open(kind).number;
        self.open(kind).home = Some(self.placement.as_mut()?.give(number, draft_bytes)?);
        Some(())
    }

    /// Puts the first of these blocks, all of one clump, into a draft of their own under the names
    /// that they have, and returns the number of blocks that fit.
    pub(in crate::drafts) fn place_again(
        &mut self,
        blocks: &[&(BlockName, &[u8])],
        full: &mut Vec<FullDraft>,
    ) -> Option<usize> {
        // The open draft is closed first, since its blocks have other names.
        let (kind, mut taken) = (DraftKind::Data, 0);
        full.extend(self.close_draft(kind));
        let first_bytes = blocks.first().map_or(0, |(_, bytes)| bytes.len());
        self.begin_draft(kind, first_bytes, full)?;
        for (name, bytes) in blocks {
            if self.open(kind).draft.should_close_before(bytes.len()) || self.is_full(kind) {
                break;
            }
            let open = self.open(kind);
            let place = PendingPlace::Draft {
                number: open.number,
                ordinal: open.draft.push(NamedBlock { name: *name, digest: None, bytes, base: None }),
            };
            self.pending.insert(*name, PendingRow { place, digest: None });
            taken += 1;
        }
        full.extend(self.close_draft(kind));
        Some(taken)
    }
}
