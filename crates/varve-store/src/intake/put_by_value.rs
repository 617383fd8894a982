//! Putting blocks into a store that compares them by value (Rhea, Cox, Pesterev 2008, section 3.4): what may be a duplicate is read and
//! compared, and what is new is called by the place that it is given.
//!
//! No hash is ever believed here: a fingerprint says what to compare with, and nothing else. Whatever is to be compared in one call is
//! read in one go, sorted by where it lies.

use std::collections::{BTreeMap, BTreeSet};

use varve_block::{
    Block, BlockName, BlockType, CLUMP_NAME_BYTES, ClumpName, GetError, PLACED_SCORE_BYTES, PlacedName,
    PutError, Score,
};
use varve_log::{AppendError, NamedBlock, PageBlock};

use crate::placement::blocks_max;
use crate::put::failed;
use crate::store::{Admission, FullDraft, Pending, PendingPlace, Store, Writer};

/// With so many blocks at the most is one compared. Whoever chooses blocks with one fingerprint, for which they need the store's key,
/// has them stored twice.
const CANDIDATES_MAX: usize = 16;

/// A block that is being put.
struct Putting<'a> {
    block: Block<'a>,
    fingerprint: [u8; 8],
    /// What it is called, once that is known.
    score: Option<Score>,
    /// Blocks with its fingerprint that it is not, or that cannot be read.
    others: BTreeSet<BlockName>,
}

impl Store {
    pub(crate) fn put_by_value(&self, writer: &Writer, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        let mut puts: Vec<_> = blocks
            .iter()
            .map(|block| Putting {
                block: *block,
                fingerprint: self.namer.value_fingerprint(block.bytes),
                score: block.bytes.is_empty().then(|| self.namer.empty_score()),
                others: BTreeSet::new(),
            })
            .collect();
        while puts.iter().any(|put| put.score.is_none()) {
            let seen = self.admission().page_count;
            self.look_for_equals(&mut puts)?;
            let (full, placed) = {
                let mut admission = self.admission();
                if let Some(reason) = &admission.failed {
                    return Err(failed(AppendError::Failed { reason: reason.clone() }));
                }
                // A page that was written meanwhile has moved blocks from `pending` to the index: look there again.
                if admission.page_count != seen {
                    continue;
                }
                admission.place_new(&mut puts)
            };
            for full in full {
                self.append_draft(writer, &full).map_err(failed)?;
            }
            placed.map_err(failed)?;
        }
        Ok(puts.into_iter().filter_map(|put| put.score).collect())
    }

    /// Compares blocks with those that are stored and have their fingerprints, until each has met its equal or there are no more.
    fn look_for_equals(&self, puts: &mut [Putting<'_>]) -> Result<(), PutError> {
        loop {
            let mut candidates: BTreeMap<BlockName, Vec<usize>> = BTreeMap::new();
            for (number, put) in puts.iter().enumerate().filter(|(_, put)| put.score.is_none()) {
                for name in self.candidates(put)? {
                    candidates.entry(name).or_default().push(number);
                }
            }
            if candidates.is_empty() {
                return Ok(());
            }
            self.compare(puts, candidates)?;
        }
    }

    /// Reads all candidates in the log's order, and compares each with the blocks whose candidate it is.
    fn compare(
        &self,
        puts: &mut [Putting<'_>],
        candidates: BTreeMap<BlockName, Vec<usize>>,
    ) -> Result<(), PutError> {
        let names: Vec<_> = candidates.keys().copied().collect();
        for (found, (name, numbers)) in self.get_blocks(&names).into_iter().zip(candidates) {
            let found = match found {
                Ok(bytes) => Some(bytes),
                Err(GetError::Failed { source, .. }) => return Err(PutError::Failed { source }),
                // What cannot be read cannot be compared: the block is stored anew.
                Err(error) => {
                    tracing::warn!(%error, "a block that may be a duplicate cannot be read; storing it again");
                    None
                }
            };
            for number in numbers {
                let put = &mut puts[number];
                if found.as_ref().is_some_and(|bytes| put.block.bytes == &bytes[..]) {
                    put.score.get_or_insert(name.score);
                } else {
                    put.others.insert(name);
                }
            }
        }
        Ok(())
    }

    /// Blocks in the log that have a block's fingerprint, type and size, and were not compared with it yet: those that are
    /// found soonest, for one of them is nearly always its equal.
    fn candidates(&self, put: &Putting<'_>) -> Result<BTreeSet<BlockName>, PutError> {
        let left = CANDIDATES_MAX.saturating_sub(put.others.len());
        if left == 0 {
            return Ok(BTreeSet::new());
        }
        let is_new = |name: &BlockName| !put.others.contains(name);
        let waits = |(name, place)| matches!(place, PendingPlace::Clump(_)).then_some(name);
        let mut found: BTreeSet<_> =
            self.admission().pending_like(put).filter_map(waits).filter(is_new).collect();
        if !found.is_empty() {
            return Ok(found.into_iter().take(left).collect());
        }
        let probe = put.probe();
        let mut take = |address| {
            let size = put.block.bytes.len();
            let is_like =
                |block: &PageBlock| block.size as usize == size && self.namer.may_be(&block.name, &probe);
            match self.directory.blocks_like(address, &put.fingerprint) {
                Ok(blocks) => {
                    let names = blocks.into_iter().filter(is_like).map(|block| block.name);
                    found.extend(names.filter(|name| is_new(name) && !self.lost.contains(name)));
                }
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, "a directory page is damaged; storing what it may name again");
                }
                Err(error) => return Err(PutError::Failed { source: error.into() }),
            }
            Ok(!found.is_empty())
        };
        self.is_where_indexed(&probe, &mut take)?;
        Ok(found.into_iter().take(left).collect())
    }

    /// Stores blocks under the names that they have had: such as were lost, and whose bytes somebody has who can vouch for them. They lie
    /// elsewhere from then on.
    ///
    /// # Errors
    /// [`PutError`]; some may have been stored.
    pub(crate) fn put_again(&self, writer: &Writer, blocks: &[(BlockName, &[u8])]) -> Result<(), PutError> {
        let mut by_clump: BTreeMap<ClumpName, Vec<&(BlockName, &[u8])>> = BTreeMap::new();
        for block in blocks {
            if let Some(name) = PlacedName::of(&block.0.score) {
                by_clump.entry(name.clump).or_default().push(block);
            }
        }
        for (_, mut blocks) in by_clump {
            // A clump tells its blocks in the order of their slots.
            blocks.sort_by_key(|(name, _)| PlacedName::of(&name.score).map(|name| name.slot));
            while !blocks.is_empty() {
                let mut full = Vec::new();
                let taken = self.admission().place_again(&blocks, &mut full);
                for full in full {
                    self.append_draft(writer, &full).map_err(failed)?;
                }
                blocks.drain(..taken.ok_or_else(|| failed(AppendError::LogFull))?);
            }
        }
        Ok(())
    }
}

impl Putting<'_> {
    /// A name with its fingerprint, of a block that is nowhere.
    fn probe(&self) -> BlockName {
        let clump = ClumpName::from_bytes([0; CLUMP_NAME_BYTES]);
        let score = PlacedName { fingerprint: self.fingerprint, slot: u16::MAX, clump }.score();
        BlockName { score, block_type: self.block.block_type }
    }

    /// The first and the last name that its fingerprint can have.
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
    /// What waits for a page, and may be equal to this block.
    fn pending_like<'a>(
        &'a self,
        put: &'a Putting<'_>,
    ) -> impl Iterator<Item = (BlockName, PendingPlace)> + 'a {
        self.pending
            .range(put.names())
            .filter(|(name, _)| name.block_type == put.block.block_type)
            .map(|(name, pending)| (*name, pending.place))
    }

    /// Gives names to what is surely new. What waits in a draft is compared here; what may be equal to a clump that no page names yet is left for
    /// another turn. Says which drafts became full, and whether places ran out.
    fn place_new(&mut self, puts: &mut [Putting<'_>]) -> (Vec<FullDraft>, Result<(), AppendError>) {
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
                    PendingPlace::Clump(_) => must_be_read |= !put.others.contains(&name),
                }
            }
            // After so many it is not worth it.
            must_be_read &= put.others.len() < CANDIDATES_MAX;
            put.score = match equal {
                Some(score) => Some(score),
                None if must_be_read => None,
                None => match self.place(put, &mut full) {
                    Some(score) => Some(score),
                    None => return (full, Err(AppendError::LogFull)),
                },
            };
        }
        (full, Ok(()))
    }

    fn block_of_draft(&self, number: u64, ordinal: usize) -> Option<&[u8]> {
        let closed = self.in_flight.get(&number).map(|full| &*full.draft);
        let open = self.drafts.iter().find(|open| open.number == number).map(|open| &open.draft);
        closed.or(open)?.block(ordinal)
    }

    /// Adds a block to a draft, and says what it is called from now on. `None` if there is no place left in the log.
    fn place(&mut self, put: &Putting<'_>, full: &mut Vec<FullDraft>) -> Option<Score> {
        let kind = usize::from(put.block.block_type != BlockType::DATA);
        let bytes = put.block.bytes;
        if self.drafts[kind].draft.should_close_before(bytes.len()) {
            full.extend(self.close_draft(kind));
        }
        if self.drafts[kind].draft.is_empty() {
            self.begin_draft(kind, bytes.len(), full)?;
        }
        let open = &mut self.drafts[kind];
        let slot = u16::try_from(open.draft.names().len()).ok()?;
        let score = PlacedName { fingerprint: put.fingerprint, slot, clump: open.home?.clump }.score();
        let name = BlockName { score, block_type: put.block.block_type };
        let place = PendingPlace::Draft {
            number: open.number,
            ordinal: open.draft.push(NamedBlock { name, digest: None, bytes }),
        };
        self.pending.insert(name, Pending { place, digest: None });
        self.new_block_count += 1;
        self.new_block_bytes += bytes.len() as u64;
        if self.is_full(kind) {
            full.extend(self.close_draft(kind));
        }
        Some(score)
    }

    /// Whether a draft has what it was given room for.
    fn is_full(&self, kind: usize) -> bool {
        let draft = &self.drafts[kind].draft;
        draft.is_full() || draft.names().len() >= blocks_max(draft.goal_bytes())
    }

    /// Finds a place for a draft, whose first block has so many bytes. If that is in the next arena, nothing more is added to what belongs
    /// in this one.
    fn begin_draft(&mut self, kind: usize, first_bytes: usize, full: &mut Vec<FullDraft>) -> Option<()> {
        let draft_bytes = self.drafts[kind].draft.goal_bytes().max(first_bytes);
        if !self.placement.as_ref()?.has_room(draft_bytes) {
            for kind in 0..self.drafts.len() {
                full.extend(self.close_draft(kind));
            }
            self.placement.as_mut()?.move_on();
        }
        let number = self.drafts[kind].number;
        self.drafts[kind].home = Some(self.placement.as_mut()?.give(number, draft_bytes)?);
        Some(())
    }

    /// Puts as many of these blocks of one clump as a draft takes into a draft of their own, under the names that they have.
    fn place_again(&mut self, blocks: &[&(BlockName, &[u8])], full: &mut Vec<FullDraft>) -> Option<usize> {
        // Whatever waits there has other names.
        let (kind, mut taken) = (0, 0);
        full.extend(self.close_draft(kind));
        let first_bytes = blocks.first().map_or(0, |(_, bytes)| bytes.len());
        self.begin_draft(kind, first_bytes, full)?;
        for (name, bytes) in blocks {
            if self.drafts[kind].draft.should_close_before(bytes.len()) || self.is_full(kind) {
                break;
            }
            let open = &mut self.drafts[kind];
            let place = PendingPlace::Draft {
                number: open.number,
                ordinal: open.draft.push(NamedBlock { name: *name, digest: None, bytes }),
            };
            self.pending.insert(*name, Pending { place, digest: None });
            taken += 1;
        }
        full.extend(self.close_draft(kind));
        Some(taken)
    }
}
