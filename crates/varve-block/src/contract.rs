//! The contract of every [`BlockStore`](crate::BlockStore), as one test suite that all
//! implementations pass.

use crate::block_type::{BlockKind, BlockType};
use crate::store::{
    BLOCK_BYTES_MAX, Block, BlockName, BlockStore, ExpectedReads, GetError, PutError, PutHints,
};

/// Runs the whole suite on stores that `fresh` makes. Each must be empty.
///
/// # Panics
/// When a store breaks its contract; the message names the broken rule.
pub fn check<S: BlockStore>(fresh: &mut dyn FnMut() -> S) {
    what_is_put_comes_back(&fresh());
    the_same_block_has_the_same_name(&fresh());
    types_are_distinguished(&fresh());
    batches_answer_in_order(&fresh());
    a_missing_block_is_named(&fresh());
    sizes_are_bounded(&fresh());
    many_threads_agree(&fresh());
}

fn data(bytes: &[u8]) -> Block<'_> {
    Block { block_type: BlockType::DATA, bytes }
}

fn pattern(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()[3]
    })
    .take(length)
    .collect()
}

fn what_is_put_comes_back(store: &impl BlockStore) {
    for length in [0, 1, 511, 512, 4096, 8192, 65_536, BLOCK_BYTES_MAX] {
        let bytes = pattern(7, length);
        let score = store.put(data(&bytes)).unwrap();
        assert_eq!(score.as_bytes().len(), store.score_bytes(), "a score has the store's width");
        let name = BlockName { score, block_type: BlockType::DATA };
        assert_eq!(store.get(&name).unwrap(), bytes, "{length} bytes before a sync");
        store.sync().unwrap();
        assert_eq!(store.get(&name).unwrap(), bytes, "{length} bytes after a sync");
    }
    let empty = store.put(data(&[])).unwrap();
    assert_eq!(empty, store.empty_score(), "the empty block's name");
}

fn the_same_block_has_the_same_name(store: &impl BlockStore) {
    let (one, other) = (pattern(1, 5000), pattern(2, 5000));
    let first = store.put(data(&one)).unwrap();
    assert_ne!(store.put(data(&other)).unwrap(), first);
    assert_eq!(store.put(data(&one)).unwrap(), first, "while the block waits to be written");
    store.sync().unwrap();
    assert_eq!(store.put(data(&one)).unwrap(), first, "once the block is written");
}

fn types_are_distinguished(store: &impl BlockStore) {
    let pointer = BlockType::at_depth(BlockKind::Directory, 2).unwrap();
    let bytes = pattern(3, 100);
    let score = store.put(Block { block_type: pointer, bytes: &bytes }).unwrap();
    store.sync().unwrap();
    assert_eq!(store.get(&BlockName { score, block_type: pointer }).unwrap(), bytes);
    let other = BlockName { score, block_type: BlockType::ROOT };
    assert!(
        matches!(store.get(&other), Err(GetError::NotFound { .. })),
        "a block under a type that was never put"
    );
    let again = store.put(Block { block_type: BlockType::ROOT, bytes: &bytes }).unwrap();
    assert_eq!(store.get(&BlockName { score: again, block_type: BlockType::ROOT }).unwrap(), bytes);
}

fn batches_answer_in_order(store: &impl BlockStore) {
    let bytes: Vec<Vec<u8>> = (0..300).map(|i| pattern(i % 100, 700 + i as usize % 100)).collect();
    let blocks: Vec<Block<'_>> = bytes.iter().map(|bytes| data(bytes)).collect();
    let scores = store.put_batch(&blocks).unwrap();
    assert_eq!(scores.len(), blocks.len());
    let replaced: Vec<_> = scores.iter().rev().copied().map(Some).collect();
    let hints = PutHints { reads: ExpectedReads::AtRandom, replaced: &replaced };
    assert_eq!(store.put_batch_with(&blocks, hints).unwrap(), scores, "the same blocks");
    let mut names: Vec<BlockName> =
        scores.iter().map(|score| BlockName { score: *score, block_type: BlockType::DATA }).collect();
    names.reverse();
    for round in ["before a sync", "after a sync"] {
        let answers = store.get_batch(&names);
        for (answer, expected) in answers.iter().zip(bytes.iter().rev()) {
            assert_eq!(answer.as_ref().unwrap(), expected, "{round}");
        }
        assert_eq!(store.has_batch(&names).unwrap(), vec![true; names.len()]);
        store.sync().unwrap();
    }
}

fn a_missing_block_is_named(store: &impl BlockStore) {
    let there = store.put(data(b"here")).unwrap();
    let missing_score = {
        let mut bytes = there.as_bytes().to_vec();
        bytes[0] ^= 1;
        crate::score::Score::try_from(bytes.as_slice()).unwrap()
    };
    let missing = BlockName { score: missing_score, block_type: BlockType::DATA };
    let present = BlockName { score: there, block_type: BlockType::DATA };
    assert!(matches!(store.get(&missing), Err(GetError::NotFound { name }) if name == missing));
    let answers = store.get_batch(&[present, missing, present]);
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(store.has_batch(&[missing, present]).unwrap(), [false, true]);
}

fn sizes_are_bounded(store: &impl BlockStore) {
    let bytes = vec![1; BLOCK_BYTES_MAX + 1];
    assert!(matches!(store.put(data(&bytes)), Err(PutError::TooLarge { bytes: 1_048_577 })));
}

#[expect(clippy::disallowed_methods, reason = "this check is about threads")]
fn many_threads_agree(store: &impl BlockStore) {
    let bytes: Vec<Vec<u8>> = (0..200).map(|i| pattern(i, 3000)).collect();
    let blocks: Vec<Block<'_>> = bytes.iter().map(|bytes| data(bytes)).collect();
    let answers: Vec<Vec<crate::score::Score>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let blocks = &blocks;
                scope.spawn(move || {
                    let scores: Vec<_> =
                        blocks.chunks(7 + thread).flat_map(|batch| store.put_batch(batch).unwrap()).collect();
                    store.sync().unwrap();
                    scores
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for scores in &answers {
        assert_eq!(scores, &answers[0]);
    }
    for (score, expected) in answers[0].iter().zip(&bytes) {
        assert_eq!(store.get(&BlockName { score: *score, block_type: BlockType::DATA }).unwrap(), *expected);
    }
}
