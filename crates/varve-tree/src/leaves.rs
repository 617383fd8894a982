//! Puts leaves: zero truncation, and one batch for all.

use varve_block::{Block, BlockKind, BlockStore, BlockType, PutError, PutHints, Score};

/// Returns `bytes` without the zeros at the end.
pub(crate) fn zero_truncated(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = bytes.strip_suffix(&[0; 256]) {
        bytes = rest;
    }
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..length]
}

/// Puts each of `leaves`, zero-truncated, in one batch, and returns the scores in the same order.
/// Leaves of zeros are not put.
pub(crate) fn put_truncated<'a>(
    store: &dyn BlockStore,
    kind: BlockKind,
    leaves: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Score>, PutError> {
    put_truncated_with(store, kind, leaves, PutHints::default())
}

/// Like [`put_truncated`], with what is known of the leaves, of which some may be zeros.
pub(crate) fn put_truncated_with<'a>(
    store: &dyn BlockStore,
    kind: BlockKind,
    leaves: impl Iterator<Item = &'a [u8]>,
    hints: PutHints<'_>,
) -> Result<Vec<Score>, PutError> {
    let leaves: Vec<Block<'_>> =
        leaves.map(|leaf| Block { block_type: BlockType::leaf(kind), bytes: zero_truncated(leaf) }).collect();
    if leaves.iter().all(|leaf| !leaf.bytes.is_empty()) {
        return if leaves.is_empty() { Ok(Vec::new()) } else { store.put_batch_with(&leaves, hints) };
    }
    let is_filled = |(_, leaf): &(usize, &Block<'_>)| !leaf.bytes.is_empty();
    let (places, filled): (Vec<usize>, Vec<Block<'_>>) =
        leaves.iter().enumerate().filter(is_filled).map(|(place, leaf)| (place, *leaf)).unzip();
    let replaced = |place: &usize| hints.replaced.get(*place).copied().flatten();
    let replaced: Vec<_> = places.iter().map(replaced).collect();
    let hints = PutHints { replaced: &replaced, ..hints };
    let stored = if filled.is_empty() { Vec::new() } else { store.put_batch_with(&filled, hints)? };
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
