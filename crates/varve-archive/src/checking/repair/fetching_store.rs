//! Reads the blocks that a store has lost from copies of it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::{BlockName, BlockStore, GetError, PutError};
use varve_store::{CompareMode, Store};

/// A store whose lost blocks are read from copies of it. A repair keeps these blocks. A plan only
/// records which copy has them.
pub(super) struct FetchingStore<'a> {
    store: &'a Store,
    copies: &'a [&'a Store],
    keeps: bool,
    supplied: Mutex<SuppliedBlocks>,
}

/// The blocks that copies have supplied.
#[derive(Default)]
pub(super) struct SuppliedBlocks {
    /// The names, by the number of the copy.
    pub(super) by_copy: BTreeMap<usize, BTreeSet<BlockName>>,
    /// The number of blocks that were stored.
    pub(super) stored_count: u64,
    /// The first failure to store a block.
    failure: Option<PutError>,
}

impl<'a> FetchingStore<'a> {
    pub(super) fn new(store: &'a Store, copies: &'a [&'a Store], keeps: bool) -> Self {
        Self { store, copies, keeps, supplied: Mutex::default() }
    }

    /// The copies, in the order in which they are asked.
    pub(super) fn all(&self) -> &'a [&'a Store] {
        self.copies
    }

    /// Returns whether blocks of a copy are kept.
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }

    /// The blocks that were supplied since the last call.
    pub(super) fn take_supplied(&self) -> Result<SuppliedBlocks, PutError> {
        let mut supplied = std::mem::take(&mut *self.supplied.lock());
        match supplied.failure.take() {
            Some(error) => Err(error),
            None => Ok(supplied),
        }
    }

    /// Returns whether blocks of a copy are acceptable. If scores are hashes, a block with the
    /// right hash is right, wherever it comes from. In a by-value store, only a copy of the same
    /// store can supply it.
    fn may_believe(&self, copy: &Store) -> bool {
        let (own, theirs) = (self.store.config(), copy.config());
        own.compare == CompareMode::Hash || (own.id, own.encryption) == (theirs.id, theirs.encryption)
    }

    /// Reads a block from the first copy that has it intact.
    fn fetch(&self, name: &BlockName) -> Option<Bytes> {
        let is_right = |bytes: &Bytes| self.store.namer().named_again(&name.score, bytes) == name.score;
        let believed = self.copies.iter().enumerate().filter(|(_, copy)| self.may_believe(copy));
        let (number, bytes) = believed
            .map(|(number, copy)| (number, copy.get(name).ok().filter(is_right)))
            .find_map(|(number, bytes)| Some((number, bytes?)))?;
        let stored = if self.keeps { self.store.put_back(&[(*name, bytes.clone())]) } else { Ok(0) };
        let mut supplied = self.supplied.lock();
        supplied.by_copy.entry(number).or_default().insert(*name);
        match stored {
            Ok(count) => supplied.stored_count += count,
            Err(error) => drop(supplied.failure.get_or_insert(error)),
        }
        Some(bytes)
    }
}

impl BlockStore for FetchingStore<'_> {
    varve_block::forward_block_store!(store: score_bytes, empty_score, put, sync);

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        match self.store.get(name) {
            Err(error @ (GetError::NotFound { .. } | GetError::Damaged { .. })) => {
                self.fetch(name).ok_or(error)
            }
            other => other,
        }
    }
}
