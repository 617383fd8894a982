//! Read-ahead of pointer blocks: the next ones are read together with the requested one. Most of
//! them are adjacent in the log, and each costs a disk read if it is read alone.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::VecDeque;

use bytes::Bytes;
use varve_block::{BlockName, BlockStore, GetError};

/// The largest number of blocks that are read at a time.
const COUNT_MAX: usize = 64;
/// The largest number of bytes that are read at a time.
const BYTES_MAX: usize = 4 << 20;

/// Doubles the number of blocks with each read, as long as all of them are requested, and falls
/// back to one as soon as one is not. So fewer blocks are read in vain than are used.
pub(crate) struct BlockReadAhead {
    /// Blocks that were read and not requested yet, in order.
    read: VecDeque<(BlockName, Result<Bytes, GetError>)>,
    next_count: usize,
    count_max: usize,
}

impl BlockReadAhead {
    /// Makes a read-ahead for blocks of at most `block_bytes` bytes.
    pub(crate) fn new(block_bytes: usize) -> Self {
        let count_max = BYTES_MAX.checked_div(block_bytes).unwrap_or(COUNT_MAX).clamp(1, COUNT_MAX);
        Self { read: VecDeque::new(), next_count: 1, count_max }
    }

    /// Returns the block `name`. The same read may include some of the blocks in `next`.
    pub(crate) fn get(
        &mut self,
        store: &dyn BlockStore,
        name: BlockName,
        next: impl Iterator<Item = BlockName>,
    ) -> Result<Bytes, GetError> {
        while let Some((known, read)) = self.read.pop_front() {
            if known == name {
                return read;
            }
            self.next_count = 1;
        }
        let names: Vec<BlockName> = std::iter::once(name).chain(next).take(self.next_count).collect();
        self.next_count = self.next_count.saturating_mul(2).min(self.count_max);
        self.read = names.iter().copied().zip(store.get_batch(&names)).collect();
        self.read.pop_front().map_or(Err(GetError::NotFound { name }), |(_, read)| read)
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{Block, BlockType, MemoryBlockStore};

    use super::*;

    /// Stores one block for each item of `is_wanted`, and requests those that are true. Returns the
    /// number of blocks read.
    fn read_count(is_wanted: &[bool]) -> u64 {
        let store = MemoryBlockStore::new();
        let block_type = BlockType::DATA;
        let block = |number: usize| number.to_le_bytes();
        let names: Vec<BlockName> = (0..is_wanted.len())
            .map(|number| store.put(Block { block_type, bytes: &block(number) }).unwrap())
            .map(|score| BlockName { score, block_type })
            .collect();
        let before = store.get_count();
        let mut ahead = BlockReadAhead::new(8192);
        for (number, name) in names.iter().enumerate().filter(|(number, _)| is_wanted[*number]) {
            let got = ahead.get(&store, *name, names[number..].iter().skip(1).copied()).unwrap();
            assert_eq!(*got, block(number));
        }
        store.get_count().checked_sub(before).unwrap()
    }

    #[test]
    fn all_that_is_asked_for_in_order_is_read_once() {
        assert_eq!(read_count(&[true; 1000]), 1000);
    }

    #[test]
    fn what_is_read_in_vain_is_less_than_what_is_not() {
        for period in 1..100 {
            let some: Vec<bool> = (0..1000).map(|number| number / period % 2 == 0).collect();
            let wanted = some.iter().filter(|is| **is).count() as u64;
            let read = read_count(&some);
            assert!(read < 2 * wanted, "{wanted} wanted, {read} read, {period} at a time");
        }
    }

    #[test]
    fn what_is_lost_is_an_error_of_its_own() {
        let store = MemoryBlockStore::new();
        let block_type = BlockType::DATA;
        let names: Vec<BlockName> = (0..10_u8)
            .map(|number| store.put(Block { block_type, bytes: &[number] }).unwrap())
            .map(|score| BlockName { score, block_type })
            .collect();
        assert!(store.lose(&names[5]));
        let mut ahead = BlockReadAhead::new(8192);
        for (number, name) in names.iter().enumerate() {
            let got = ahead.get(&store, *name, names[number..].iter().skip(1).copied());
            assert_eq!(got.is_err(), number == 5, "{number}: {got:?}");
        }
    }
}
