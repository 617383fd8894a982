//! The shards of a group, read from the arena and from its parity file, and the check of their
//! codes.

use std::ops::Range;

use varve_block::to_usize;
use varve_log::{PARITY_BLOCK_BYTES, ParityLayout, ShardCode};
use varve_world::{FileName, Storage, Workers};

use super::ParityFile;

/// The codes in a group's table.
pub struct GroupCodes {
    /// The codes of the arena's shards; `None` where both copies of the table are bad.
    pub data: Vec<Option<ShardCode>>,
    /// The codes of the recovery shards.
    pub recovery: Vec<Option<ShardCode>>,
    /// The number of bad blocks in either copy.
    pub bad_blocks: usize,
}

/// The treatment of a shard whose code is lost, because both copies of the code are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum UnknownShard {
    /// The shard counts as lost, since it may be bad.
    IsLost,
    /// The shard counts as good: the codes in the arena itself decide later.
    IsGood,
}

/// Neighbouring shards, one after the other.
pub struct ParityShards {
    /// All shards, each filled up to its length.
    pub bytes: Vec<u8>,
    /// For each shard, true if it is good.
    pub is_good: Vec<bool>,
}

impl ParityFile {
    /// Reads a group's table.
    #[must_use]
    pub fn codes(&self, storage: &dyn Storage, group: u32) -> GroupCodes {
        let layout = &self.header.layout;
        let (data_count, recovery_count) = (layout.data_count(group), layout.recovery_count(group));
        let mut codes = Vec::with_capacity(data_count + recovery_count);
        let mut bad_blocks = 0;
        for number in 0..layout.table_blocks(group) {
            let copies = layout.tables(group).map(|table| {
                let mut block = vec![0; PARITY_BLOCK_BYTES];
                storage.read_at(&self.name, table + (number * PARITY_BLOCK_BYTES) as u64, &mut block).ok()?;
                self.key.decode_block(group, u32::try_from(number).ok()?, &block)
            });
            bad_blocks += copies.iter().filter(|copy| copy.is_none()).count();
            let left = data_count + recovery_count - codes.len();
            match copies.into_iter().flatten().next() {
                Some(known) => codes.extend(known.into_iter().take(left).map(Some)),
                None => codes.extend(std::iter::repeat_n(None, left.min(255))),
            }
        }
        let recovery = codes.split_off(data_count);
        GroupCodes { data: codes, recovery, bad_blocks }
    }

    /// Reads a group's data shards, as they are in the arena's file now.
    #[must_use]
    pub fn data(
        &self,
        storage: &dyn Storage,
        arena: &FileName,
        group: u32,
        codes: &GroupCodes,
        unknown: UnknownShard,
        workers: &dyn Workers,
    ) -> ParityShards {
        let layout = &self.header.layout;
        let mut bytes = vec![0; layout.data_count(group) * layout.shard_bytes()];
        let mut readable = Vec::with_capacity(codes.data.len());
        let mut rest = &mut bytes[..];
        for piece in layout.pieces(group) {
            let (into, after) = std::mem::take(&mut rest).split_at_mut(padded_bytes(layout, &piece));
            readable.extend(read_shards(storage, arena, piece, layout.shard_bytes(), into));
            rest = after;
        }
        self.checked(bytes, readable, &codes.data, unknown, workers)
    }

    /// Reads a group's recovery shards.
    #[must_use]
    pub fn recovery(
        &self,
        storage: &dyn Storage,
        group: u32,
        codes: &GroupCodes,
        unknown: UnknownShard,
        workers: &dyn Workers,
    ) -> ParityShards {
        let layout = &self.header.layout;
        let mut bytes = vec![0; layout.recovery_count(group) * layout.shard_bytes()];
        let start = layout.recovery(group);
        let range = start..start + bytes.len() as u64;
        let readable = read_shards(storage, &self.name, range, layout.shard_bytes(), &mut bytes);
        self.checked(bytes, readable, &codes.recovery, unknown, workers)
    }

    fn checked(
        &self,
        bytes: Vec<u8>,
        readable: Vec<bool>,
        codes: &[Option<ShardCode>],
        unknown: UnknownShard,
        workers: &dyn Workers,
    ) -> ParityShards {
        let matching = self.key.good_shards(&bytes, self.header.layout.shard_bytes(), codes, workers);
        let is_good = |((matches, code), readable): ((bool, &Option<_>), bool)| {
            readable && (matches || code.is_none() && unknown == UnknownShard::IsGood)
        };
        let is_good = matching.into_iter().zip(codes).zip(readable).map(is_good).collect();
        ParityShards { bytes, is_good }
    }
}

/// Returns the length of the shards of a piece, including the padding of the last one.
#[must_use]
pub fn padded_bytes(layout: &ParityLayout, piece: &Range<u64>) -> usize {
    let bytes = to_usize(piece.end - piece.start);
    bytes.next_multiple_of(layout.shard_bytes())
}

/// Reads neighbouring shards into `into`, which is as long as they are with padding. Returns true
/// for each shard that could be read.
pub fn read_shards(
    storage: &dyn Storage,
    file: &FileName,
    range: Range<u64>,
    shard_bytes: usize,
    into: &mut [u8],
) -> Vec<bool> {
    let count = into.len() / shard_bytes;
    let bytes = to_usize(range.end - range.start);
    if storage.read_at(file, range.start, &mut into[..bytes]).is_ok() {
        return vec![true; count];
    }
    // The range includes a sector that the disk cannot read, or the end of the file. The readable
    // shards are kept.
    let shards = into[..bytes].chunks_mut(shard_bytes).zip((range.start..).step_by(shard_bytes));
    shards.map(|(shard, offset)| storage.read_at(file, offset, shard).is_ok()).collect()
}
