//! Puts blocks into a store that compares them by value (Rhea, Cox, Pesterev 2008, section 3.4):
//! possible duplicates are read and compared, and a new block is named by the place that it is
//! given.
//!
//! No hash is trusted here: a fingerprint only selects the blocks to compare with. All blocks to be
//! compared in one call are read in one go, sorted by their places.

use std::collections::{BTreeMap, BTreeSet};

use varve_block::{Block, BlockName, ClumpName, GetError, PlacedName, PutError, Score};
use varve_log::{AppendError, PageBlock};

use super::Intake;
use super::put::failed;
use crate::drafts::{BlockToPut, DraftKind};
use crate::reader::LossNotes;

impl Intake {
    pub(crate) fn put_by_value(&self, blocks: &[Block<'_>], data: DraftKind) -> Result<Vec<Score>, PutError> {
        let mut puts: Vec<_> = blocks
            .iter()
            .map(|block| {
                let fingerprint = self.vault.namer().value_fingerprint(block.bytes);
                let empty = block.bytes.is_empty().then(|| self.vault.namer().empty_score());
                BlockToPut::new(*block, fingerprint, empty)
            })
            .collect();
        while puts.iter().any(|put| put.score().is_none()) {
            let seen = self.drafts.page_count();
            self.look_for_equals(&mut puts)?;
            // A page that was written meanwhile has moved blocks from the drafts to the index, so
            // the index is asked again.
            let Some(placed) = self.drafts.place_new(&mut puts, data, seen).map_err(failed)? else {
                continue;
            };
            for full in placed.full {
                self.append_draft(&full).map_err(failed)?;
            }
            placed.result.map_err(failed)?;
        }
        Ok(puts.iter().filter_map(BlockToPut::score).collect())
    }

    /// Compares blocks with the stored ones that have their fingerprints, until each has met its
    /// equal or there are no more.
    fn look_for_equals(&self, puts: &mut [BlockToPut<'_>]) -> Result<(), PutError> {
        loop {
            let mut candidates: BTreeMap<BlockName, Vec<usize>> = BTreeMap::new();
            for (number, put) in puts.iter().enumerate().filter(|(_, put)| put.score().is_none()) {
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

    /// Reads all candidates in the log's order, and compares each with the blocks that it is a
    /// candidate for.
    fn compare(
        &self,
        puts: &mut [BlockToPut<'_>],
        candidates: BTreeMap<BlockName, Vec<usize>>,
    ) -> Result<(), PutError> {
        let names: Vec<_> = candidates.keys().copied().collect();
        for (found, (name, numbers)) in
            self.reader.get_blocks(&names, LossNotes::Final).into_iter().zip(candidates)
        {
            let found = match found {
                Ok(bytes) => Some(bytes),
                Err(GetError::Failed { source, .. }) => return Err(PutError::Failed { source }),
                // An unreadable block cannot be compared, so the block is stored anew.
                Err(error) => {
                    tracing::warn!(%error, "a block that may be a duplicate cannot be read; storing it again");
                    None
                }
            };
            for number in numbers {
                puts[number].compare(name, found.as_deref());
            }
        }
        Ok(())
    }

    /// Returns blocks in the log that have a block's fingerprint, type and size, and were not
    /// compared with it yet. Stops at the candidates that are found first, since one of them is
    /// nearly always the block's equal.
    fn candidates(&self, put: &BlockToPut<'_>) -> Result<BTreeSet<BlockName>, PutError> {
        let left = put.comparisons_left();
        if left == 0 {
            return Ok(BTreeSet::new());
        }
        let is_new = |name: &BlockName| !put.differs_from(name);
        let mut found = self.drafts.clumped_like(put);
        if !found.is_empty() {
            return Ok(found.into_iter().take(left).collect());
        }
        let probe = put.probe();
        let mut take = |address| {
            let size = put.byte_count();
            let is_like = |block: &PageBlock| {
                block.size as usize == size && self.vault.namer().may_be(&block.name, &probe)
            };
            match self.vault.directory().blocks_like(address, put.fingerprint()) {
                Ok(blocks) => {
                    let names = blocks.into_iter().filter(is_like).map(|block| block.name);
                    found.extend(names.filter(|name| is_new(name) && !self.reader.lost().contains(name)));
                }
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, "a directory page is damaged; storing a block again that it may name");
                }
                Err(error) => return Err(PutError::Failed { source: error.into() }),
            }
            Ok(!found.is_empty())
        };
        self.finder.is_where_indexed(&probe, &mut take)?;
        Ok(found.into_iter().take(left).collect())
    }

    /// Stores blocks under the names that they had. They were lost, and their bytes come from a
    /// source that can vouch for them. Afterwards they lie in other places.
    ///
    /// # Errors
    /// [`PutError`]; some may have been stored.
    pub(crate) fn put_again(&self, blocks: &[(BlockName, &[u8])]) -> Result<(), PutError> {
        let mut by_clump: BTreeMap<ClumpName, Vec<&(BlockName, &[u8])>> = BTreeMap::new();
        for block in blocks {
            if let Some(name) = PlacedName::of(&block.0.score) {
                by_clump.entry(name.clump).or_default().push(block);
            }
        }
        for (_, mut blocks) in by_clump {
            // A clump names its blocks in the order of their slots.
            blocks.sort_by_key(|(name, _)| PlacedName::of(&name.score).map(|name| name.slot));
            while !blocks.is_empty() {
                let mut full = Vec::new();
                let taken = self.drafts.place_again(&blocks, &mut full);
                for full in full {
                    self.append_draft(&full).map_err(failed)?;
                }
                blocks.drain(..taken.ok_or_else(|| failed(AppendError::LogFull))?);
            }
        }
        Ok(())
    }
}
