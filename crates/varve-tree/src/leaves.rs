//! Puts leaves: zero truncation, and one batch for all.

use varve_block::{Block, BlockKind, BlockStore, BlockType, PutError, Score};

/// Returns `bytes` without the zeros at the end.
pub(crate) fn zero_truncated(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = bytes.strip_suffix(&[0; 256]) {
        bytes = rest;
    }
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..length]
}

/// The way in which a file will probably be read. A store can keep its leaves accordingly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedReads {
    /// From its beginning to its end.
    InOrder,
    /// In small pieces at random places.
    AtRandom,
}

/// Puts each of `leaves`, zero-truncated, in one batch, and returns the scores in the same order.
/// Leaves of zeros are not put.
pub(crate) fn put_truncated<'a>(
    store: &dyn BlockStore,
    kind: BlockKind,
    leaves: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Score>, PutError> {
    put_truncated_for(store, kind, ExpectedReads::InOrder, leaves)
}

/// Like [`put_truncated`], for a file that will be read in this way.
pub(crate) fn put_truncated_for<'a>(
    store: &dyn BlockStore,
    kind: BlockKind,
    reads: ExpectedReads,
    leaves: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Score>, PutError> {
    let put = |blocks: &[Block<'_>]| match reads {
        ExpectedReads::InOrder => store.put_batch(blocks),
        ExpectedReads::AtRandom => store.put_batch_for_random_reads(blocks),
    };
    let leaves: Vec<Block<'_>> =
        leaves.map(|leaf| Block { block_type: BlockType::leaf(kind), bytes: zero_truncated(leaf) }).collect();
    if leaves.iter().all(|leaf| !leaf.bytes.is_empty()) {
        return if leaves.is_empty() { Ok(Vec::new()) } else { put(&leaves) };
    }
    let filled: Vec<Block<'_>> = leaves.iter().filter(|leaf| !leaf.bytes.is_empty()).copied().collect();
    let stored = if filled.is_empty() { Vec::new() } else { put(&filled)? };
    let mut stored = stored.into_iter();
    let empty = store.empty_score();
    let score_of = |leaf: &Block<'_>| {
        if leaf.bytes.is_empty() { empty } else { stored.next().expect("a batch answers each of its blocks") }
    };
    Ok(leaves.iter().map(score_of).collect())
}

#[cfg(test)]
mod tests {
    use varve_block::MemoryBlockStore;

    use super::*;

    #[test]
    fn only_the_zeros_at_the_end_go() {
        for length in [0, 1, 255, 256, 257, 1000] {
            for zeros in [0, 1, 255, 256, 257, 512, 1000] {
                let mut bytes = vec![0; length];
                if let Some(last) = bytes.last_mut() {
                    *last = 7;
                }
                let expected = bytes.clone();
                bytes.resize(length + zeros, 0);
                assert_eq!(zero_truncated(&bytes), expected, "{length} bytes and {zeros} zeros");
            }
        }
    }

    #[test]
    fn zeros_are_named_and_not_put() {
        let store = MemoryBlockStore::new();
        let leaves: [&[u8]; 4] = [&[0; 9], &[1, 0, 0], &[], &[1]];
        let scores = put_truncated(&store, BlockKind::Data, leaves.into_iter()).unwrap();
        assert_eq!(scores[0], store.empty_score());
        assert_eq!(scores[2], store.empty_score());
        assert_eq!(scores[1], scores[3], "trailing zeros are no part of a block");
        assert_eq!(store.block_count(), 1);
    }
}
