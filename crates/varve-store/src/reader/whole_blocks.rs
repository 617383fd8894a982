//! Whole blocks: those that deltas need, and those that deltas may be made of.

use bytes::Bytes;
use varve_block::{BlockName, BlockType, GetError, Score};
use varve_log::{BaseError, DeltaBases};

use super::Reader;
use super::search::{AcceptedForms, LossNotes};

/// The data leaves that a reader finds stored whole.
pub(crate) struct WholeBlocks<'a>(pub(crate) &'a Reader, pub(crate) LossNotes);

impl DeltaBases for WholeBlocks<'_> {
    fn base(&self, score: &Score) -> Result<Bytes, BaseError> {
        let name = BlockName { score: *score, block_type: BlockType::DATA };
        let found = self.0.search(&[name], AcceptedForms::Whole, self.1).into_results().next();
        found.unwrap_or(Err(GetError::NotFound { name })).map_err(|error| match error {
            GetError::Failed { .. } => BaseError::Failed(error.into()),
            lost => BaseError::Lost(lost.into()),
        })
    }
}

impl Reader {
    /// Returns, for each of these data leaves, a whole block that a delta may be made of: the leaf
    /// itself, or the block that it is stored as a delta of. `None` if it cannot be read, or if no
    /// page names it yet.
    pub(crate) fn bases_like(&self, leaves: &[Score]) -> Vec<Option<(Score, Bytes)>> {
        let names: Vec<_> = leaves.iter().map(|score| leaf(*score)).collect();
        let found = self.search(&names, AcceptedForms::All, LossNotes::Final).into_named_blocks();
        let base = |(name, block): (&BlockName, Option<(Bytes, Option<Score>)>)| {
            let (bytes, base) = block.filter(|_| !self.drafts.contains(name))?;
            match base {
                None => Some((name.score, bytes)),
                Some(base) => Some((base, WholeBlocks(self, LossNotes::Final).base(&base).ok()?)),
            }
        };
        names.iter().zip(found).map(base).collect()
    }
}

fn leaf(score: Score) -> BlockName {
    BlockName { score, block_type: BlockType::DATA }
}
