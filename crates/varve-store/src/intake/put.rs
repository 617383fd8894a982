//! Puts blocks: names them, looks each one up, and adds the new ones to a draft. A full draft is
//! packed and appended, by `append.rs`. `put_by_value.rs` does the same for a by-value store.

use std::collections::BTreeMap;

use varve_block::{
    BLOCK_BYTES_MAX, Block, BlockName, BlockType, Bytes, ExpectedReads, LogAddress, PutError, PutHints, Score,
};
use varve_log::{AppendError, BaseBlock, Digest, NamedBlock};

use super::Intake;
use crate::config::CompareMode;
use crate::drafts::{AdmittedBlocks, DraftKind};
use crate::reader::LossNotes;

/// The result for a block that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutResult {
    pub score: Score,
    /// True if this call has stored the block: it was not in the store before.
    pub is_new: bool,
}

impl Intake {
    pub(crate) fn put_blocks(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        Ok(scores_of(self.put_as(blocks, &[], DraftKind::Data)?))
    }

    /// Puts blocks with what is known of them. A data leaf may be stored as a delta of the leaf
    /// that it has replaced, if the store's settings say so.
    pub(crate) fn put_with(&self, blocks: &[Block<'_>], hints: PutHints<'_>) -> Result<Vec<Score>, PutError> {
        let data = match hints.reads {
            ExpectedReads::InOrder => DraftKind::Data,
            ExpectedReads::AtRandom => DraftKind::RandomReads,
        };
        let makes_deltas = self.vault.config().deltas && self.vault.log().keys().can_read();
        let replaced = if makes_deltas { hints.replaced } else { &[] };
        Ok(scores_of(self.put_as(blocks, replaced, data)?))
    }

    /// Puts blocks, and reports for each whether it was new. In a store that compares by value
    /// every block counts as new.
    ///
    /// # Errors
    /// [`PutError`]
    pub(crate) fn put_each(&self, blocks: &[Block<'_>]) -> Result<Vec<PutResult>, PutError> {
        self.put_as(blocks, &[], DraftKind::Data)
    }

    /// `data` is the kind for blocks of data. `replaced` has the leaves that some of the first
    /// blocks have replaced.
    fn put_as(
        &self,
        blocks: &[Block<'_>],
        replaced: &[Option<Score>],
        data: DraftKind,
    ) -> Result<Vec<PutResult>, PutError> {
        self.tail.check_nothing_withheld().map_err(|error| PutError::Failed { source: error.into() })?;
        if let Some(block) = blocks.iter().find(|block| block.bytes.len() > BLOCK_BYTES_MAX) {
            return Err(PutError::TooLarge { bytes: block.bytes.len() });
        }
        if self.vault.config().compare == CompareMode::Value {
            let scores = self.put_by_value(blocks, data)?;
            return Ok(scores.into_iter().map(|score| PutResult { score, is_new: true }).collect());
        }
        let scores = self.vault.namer().hash_each(blocks.iter().map(|block| block.bytes));
        let named: Vec<NamedBlock<'_>> = blocks
            .iter()
            .zip(&scores)
            .map(|(block, score)| NamedBlock {
                name: BlockName { score: *score, block_type: block.block_type },
                digest: self.vault.namer().digest(block.bytes),
                bytes: block.bytes,
                base: None,
            })
            .collect();
        let AdmittedBlocks { full, result: is_new } = self.admit(&named, replaced, data)?;
        // Drafts that became full before a block was refused are appended too, since a `sync` waits
        // for every draft that was closed.
        for full in full {
            self.append_draft(&full).map_err(failed)?;
        }
        let is_new = is_new?;
        Ok(scores.into_iter().zip(is_new).map(|(score, is_new)| PutResult { score, is_new }).collect())
    }

    /// Adds the new blocks to the drafts, until one is refused. A block is known if a directory
    /// page names it, or if it waits in a draft.
    fn admit(
        &self,
        blocks: &[NamedBlock<'_>],
        replaced: &[Option<Score>],
        data: DraftKind,
    ) -> Result<AdmittedBlocks<Vec<bool>, PutError>, PutError> {
        let mut places = vec![None; blocks.len()];
        let mut bases = None;
        loop {
            let seen = self.drafts.page_count();
            for (block, place) in blocks.iter().zip(&mut places) {
                if place.is_none() {
                    *place = self.indexed_place(&block.name, block.digest)?;
                }
            }
            let known: Vec<bool> = places.iter().map(Option::is_some).collect();
            let bases = bases.get_or_insert_with(|| self.bases_of(blocks, &known, replaced));
            let mut with_bases = Vec::new();
            if !bases.is_empty() {
                with_bases.extend(blocks.iter().enumerate().map(|(number, block)| {
                    let base = bases.get(&number).map(|(score, bytes)| BaseBlock { score: *score, bytes });
                    NamedBlock { base, ..*block }
                }));
            }
            let blocks = if bases.is_empty() { blocks } else { &with_bases };
            // The drafts refuse if a page was written meanwhile: it has moved blocks from the
            // drafts to the index, so the index is asked again.
            if let Some(admitted) = self.drafts.admit(blocks, &known, data, seen).map_err(failed)? {
                let names = blocks.iter().map(|block| &block.name);
                self.note_found_data(names.zip(&places).filter_map(|(name, place)| Some((name, (*place)?))));
                return Ok(admitted);
            }
        }
    }

    /// Returns the blocks that some of these, by their numbers, may be stored as deltas of.
    ///
    /// A block that was lost is stored whole: others may be deltas of it.
    fn bases_of(
        &self,
        blocks: &[NamedBlock<'_>],
        known: &[bool],
        replaced: &[Option<Score>],
    ) -> BTreeMap<usize, (Score, Bytes)> {
        let empty = self.vault.namer().empty_score();
        let mut like = Vec::new();
        for (number, (block, replaced)) in blocks.iter().zip(replaced).enumerate() {
            let is_leaf = block.name.block_type == BlockType::DATA && !block.bytes.is_empty();
            if let Some(replaced) = replaced
                && is_leaf
                && !known[number]
                && *replaced != empty
                && !self.reader.lost().contains(&block.name)
            {
                like.push((number, *replaced));
            }
        }
        if like.is_empty() {
            return BTreeMap::new();
        }
        let leaves: Vec<_> = like.iter().map(|(_, replaced)| *replaced).collect();
        let bases = like.into_iter().zip(self.reader.bases_like(&leaves));
        bases.filter_map(|((number, _), base)| Some((number, base?))).collect()
    }

    /// Returns the place in which a page names this block, if any.
    fn indexed_place(
        &self,
        name: &BlockName,
        digest: Option<Digest>,
    ) -> Result<Option<LogAddress>, PutError> {
        if self.reader.lost().contains(name) {
            return Ok(None);
        }
        let mut place = None;
        self.finder.is_at_any_place(name, |address| {
            match self.vault.directory().find(address, name) {
                // A writer that cannot read remembers in which arenas its data is, and not where
                // the base of a delta is. So it stores the block whole.
                Ok(Some(found)) if found.base.is_some() && !self.vault.log().keys().can_read() => {}
                Ok(Some(found)) if found.digest == digest => {
                    if self.is_vouched_for(address, name) {
                        place = Some(address);
                        return Ok(true);
                    }
                    tracing::warn!(block = %name, "a writer without read permission has named a block that is not there");
                }
                Ok(Some(_)) => return Err(PutError::Collision { name: *name }),
                Ok(None) => {}
                // An unreadable page cannot be relied on, so the block is stored anew.
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, block = %name, "a directory page is damaged; storing the block again");
                }
                Err(error) => return Err(PutError::Failed { source: error.into() }),
            }
            Ok(false)
        })?;
        Ok(place)
    }

    /// Returns true if a page that names this block can be trusted. The holder of a write-only key
    /// can write a page that names blocks which they never stored. So a block in the arena of such
    /// a key is read first, if this store's key can read.
    fn is_vouched_for(&self, address: LogAddress, name: &BlockName) -> bool {
        let (arena, _) = self.vault.map().locate(address);
        let is_foreign =
            self.vault.directory().arena(arena).is_ok_and(|arena| arena.header().is_write_only());
        !is_foreign
            || !self.vault.log().keys().can_read()
            || self.reader.get_blocks(&[*name], LossNotes::Final).iter().all(Result::is_ok)
    }
}

fn scores_of(put: Vec<PutResult>) -> Vec<Score> {
    put.into_iter().map(|put| put.score).collect()
}

pub(super) fn failed(error: AppendError) -> PutError {
    PutError::Failed { source: error.into() }
}
