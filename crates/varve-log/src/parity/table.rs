//! The codes that distinguish good shards from bad ones, and the blocks that hold the codes. The
//! table of their bytes is in `parity.rs`.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_world::{Task, Workers};

use crate::keys::cipher::constant_time_equal;
use crate::keys::cipher::first_bytes;
use crate::keys::log_keys::LogKeys;

/// The length of a block of a table: the unit that a disk loses.
pub const PARITY_BLOCK_BYTES: usize = 4096;

/// The number of codes in a block.
pub(super) const BLOCK_CODES: usize = 255;
const CODE_BYTES: usize = 16;

/// The code of one shard.
pub type ShardCode = [u8; CODE_BYTES];

/// The key of the codes of one parity file.
#[derive(Clone, PartialEq, Eq, zeroize::Zeroize, zeroize::ZeroizeOnDrop)]
pub struct ParityKey([u8; 32]);

impl std::fmt::Debug for ParityKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParityKey").finish_non_exhaustive()
    }
}

impl ParityKey {
    pub(super) fn new(keys: &LogKeys, parity_code: &[u8; 32]) -> Self {
        Self(keys.parity_file_key(parity_code))
    }

    /// Computes the code of a shard.
    pub(crate) fn shard_code(&self, shard: &[u8]) -> ShardCode {
        first_bytes(blake3::keyed_hash(&self.0, shard).as_bytes())
    }

    /// Returns true if the code matches the shard.
    #[must_use]
    pub fn is_good(&self, shard: &[u8], code: &ShardCode) -> bool {
        constant_time_equal(&self.shard_code(shard), code)
    }

    /// Computes the codes of neighbouring shards, each `shard_bytes` long.
    #[must_use]
    pub fn shard_codes(&self, shards: &[u8], shard_bytes: usize, workers: &dyn Workers) -> Vec<ShardCode> {
        let count = shards.len().checked_div(shard_bytes).unwrap_or_default();
        let mut codes = vec![ShardCode::default(); count];
        let share = count.div_ceil(workers.width().max(1)).max(1);
        let parts = shards.chunks(share.saturating_mul(shard_bytes).max(1)).zip(codes.chunks_mut(share));
        let tasks = parts.map(|(shards, codes)| {
            Box::new(move || {
                for (shard, code) in shards.chunks_exact(shard_bytes).zip(codes) {
                    *code = self.shard_code(shard);
                }
            }) as Task<'_>
        });
        workers.run_all(tasks.collect());
        codes
    }

    /// Compares neighbouring shards with their codes. A shard without a known code is not good.
    #[must_use]
    pub fn good_shards(
        &self,
        shards: &[u8],
        shard_bytes: usize,
        expected: &[Option<ShardCode>],
        workers: &dyn Workers,
    ) -> Vec<bool> {
        let codes = self.shard_codes(shards, shard_bytes, workers);
        let pairs = codes.iter().zip(expected);
        pairs
            .map(|(code, expected)| expected.is_some_and(|expected| constant_time_equal(&expected, code)))
            .collect()
    }

    /// Encodes the table of a group: the codes of its data shards, then those of its recovery
    /// shards.
    #[must_use]
    pub fn encode_table(&self, group: u32, codes: &[ShardCode]) -> Vec<u8> {
        let blocks = codes.chunks(BLOCK_CODES).zip(0_u32..);
        let blocks = blocks.flat_map(|(codes, number)| {
            let mut block = codes.concat();
            block.resize(BLOCK_CODES * CODE_BYTES, 0);
            let code = self.block_code(group, number, &block);
            block.extend_from_slice(&code);
            block
        });
        blocks.collect()
    }

    /// Returns the codes in one block of a group's table; `None` if the block is damaged.
    #[must_use]
    pub fn decode_block(&self, group: u32, number: u32, block: &[u8]) -> Option<Vec<ShardCode>> {
        let (codes, code) = block.split_last_chunk::<CODE_BYTES>()?;
        let good = codes.len() == BLOCK_CODES * CODE_BYTES
            && constant_time_equal(&self.block_code(group, number, codes), code);
        good.then(|| codes.as_chunks().0.to_vec())
    }

    fn block_code(&self, group: u32, number: u32, codes: &[u8]) -> ShardCode {
        // No shard has this length, so the code of a shard is never that of a block.
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"table").update(&group.to_le_bytes()).update(&number.to_le_bytes()).update(codes);
        first_bytes(hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]
mod tests {
    use varve_world::{InlineWorkers, RealWorkers};

    use super::*;

    fn key() -> ParityKey {
        ParityKey::new(&LogKeys::from_master(&[9; 32]), &[7; 32])
    }

    #[test]
    fn any_number_of_hands_make_the_same_codes() {
        let shards: Vec<u8> = (0..9 * 4096_u32).map(|n| (n / 11) as u8).collect();
        let alone = key().shard_codes(&shards, 4096, &InlineWorkers);
        assert_eq!(alone.len(), 9);
        assert!(key().is_good(&shards[8 * 4096..], &alone[8]));
        assert!(!key().is_good(&shards[7 * 4096..8 * 4096], &alone[8]));
        for width in [2, 4, 20] {
            assert_eq!(key().shard_codes(&shards, 4096, &RealWorkers::new(width)), alone);
        }
        assert!(key().shard_codes(&[], 4096, &InlineWorkers).is_empty());
    }

    #[test]
    fn a_block_is_believed_only_in_its_place() {
        let codes: Vec<ShardCode> = (0..600_u32).map(|n| [n as u8; 16]).collect();
        let table = key().encode_table(2, &codes);
        assert_eq!(table.len(), 3 * PARITY_BLOCK_BYTES);
        let mut read: Vec<ShardCode> = Vec::new();
        for (block, number) in table.chunks(PARITY_BLOCK_BYTES).zip(0..) {
            read.extend(key().decode_block(2, number, block).unwrap());
            assert_eq!(key().decode_block(1, number, block), None);
            assert_eq!(key().decode_block(2, number + 1, block), None);
            for bit in (0..PARITY_BLOCK_BYTES * 8).step_by(61) {
                let mut bad = block.to_vec();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(key().decode_block(2, number, &bad), None, "bit {bit}");
            }
            assert_eq!(key().decode_block(2, number, &block[1..]), None);
        }
        assert_eq!(read[..600], codes);
        assert!(read[600..].iter().all(|code| *code == ShardCode::default()));
    }
}
