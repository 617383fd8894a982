//! A store in which barren blocks do not exist, for clients that take a block which they can read
//! for the whole tree below it.

use std::sync::Arc;

use varve_block::{BlockName, BlockStore, Bytes, GetError, forward_block_store};

use crate::store::Store;

/// A store that does not return barren blocks: blocks that lead to removed ones. `venti/copy -f`
/// skips the tree below every block that the destination returns.
///
/// If the list of barren blocks cannot be read, all blocks are returned.
pub struct WithoutBarren(pub Arc<Store>);

impl WithoutBarren {
    fn is_barren(&self, name: &BlockName) -> bool {
        // An error is left to the read itself.
        self.0.is_listed_as_barren(name) && !self.0.has_batch(&[*name]).is_ok_and(|has| has == [true])
    }
}

impl BlockStore for WithoutBarren {
    forward_block_store!(0: score_bytes, empty_score, put, sync, put_batch, put_batch_with, expect, has_batch);

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        if self.is_barren(name) { Err(GetError::NotFound { name: *name }) } else { self.0.get(name) }
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        if !names.iter().any(|name| self.0.is_listed_as_barren(name)) {
            return self.0.get_batch(names);
        }
        names.iter().map(|name| self.get(name)).collect()
    }
}
