use std::sync::Arc;
use std::sync::atomic::Ordering;

use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, contract};
use varve_proxy::{Background, ReadAheadStore};

use crate::behind::{Behind, bytes_of, data, name_of, score_of};

/// The block is a list of scores, each of a block one level below.
fn leads(name: &BlockName, bytes: &[u8]) -> Vec<BlockName> {
    let Some(depth) = name.block_type.depth().checked_sub(1) else { return Vec::new() };
    let block_type = BlockType::at_depth(name.block_type.kind(), depth).unwrap();
    let scores = bytes.chunks_exact(20).map(|score| varve_block::Score::try_from(score).unwrap());
    scores.map(|score| BlockName { score, block_type }).collect()
}

fn pointer(kind: BlockKind, depth: u8) -> BlockType {
    BlockType::at_depth(kind, depth).unwrap()
}

/// Leaves, and a block that points to them.
fn tree(source: &Behind, leaf: BlockType, count: u64) -> (BlockName, Vec<BlockName>) {
    let mut names = Vec::new();
    for number in 0..count {
        let bytes = bytes_of(number, 4000);
        source.put(Block { block_type: leaf, bytes: &bytes }).unwrap();
        names.push(BlockName { score: score_of(&bytes), block_type: leaf });
    }
    let scores: Vec<u8> = names.iter().flat_map(|name| name.score.as_bytes().to_vec()).collect();
    let block_type = pointer(BlockKind::Data, 1);
    source.put(Block { block_type, bytes: &scores }).unwrap();
    (BlockName { score: score_of(&scores), block_type }, names)
}

#[test]
fn reading_ahead_keeps_the_contract() {
    contract::check(&mut || ReadAheadStore::new(Behind::new(), leads, 1 << 20));
}

#[test]
fn what_a_block_names_is_there_before_it_is_asked_for() {
    for leaf in [BlockType::DATA, BlockType::DIRECTORY] {
        let source = Behind::new();
        let (root, leaves) = tree(&source, leaf, 100);
        let ahead = ReadAheadStore::new(Arc::clone(&source) as _, leads, 8 << 20);
        assert!(!ahead.step(), "nothing was read yet");
        ahead.get(&root).unwrap();
        while ahead.step() {}
        let asked = source.gets.load(Ordering::SeqCst);
        for name in &leaves {
            assert_eq!(score_of(&ahead.get(name).unwrap()), name.score);
        }
        assert_eq!(source.gets.load(Ordering::SeqCst), asked, "{leaf}: nothing had to be fetched any more");
        // The pointer does not tell whether it leads to data or to directories, so both were tried.
        assert_eq!(ahead.counts().ahead, 100);
        let as_directories = BlockName { score: root.score, block_type: pointer(BlockKind::Directory, 1) };
        ahead.get(&as_directories).unwrap();
        assert_eq!(source.gets.load(Ordering::SeqCst), asked, "on the wire both are one");
    }
}

#[test]
fn memory_and_queue_are_bounded_and_wrong_pointers_cost_nothing_but_questions() {
    let source = Behind::new();
    let (root, leaves) = tree(&source, BlockType::DATA, 2000);
    // Room for about 250 of the 2000.
    let ahead = ReadAheadStore::new(Arc::clone(&source) as _, leads, 1 << 20);
    ahead.get(&root).unwrap();
    while ahead.step() {}
    assert!(ahead.counts().ahead <= 64, "{:?}", ahead.counts());
    assert!(leaves.iter().all(|name| ahead.get(name).is_ok()));
    // Noise leads nowhere.
    let noise = bytes_of(7, 4000);
    let name = BlockName { score: score_of(&noise), block_type: pointer(BlockKind::Data, 1) };
    source.put(Block { block_type: name.block_type, bytes: &noise }).unwrap();
    assert_eq!(ahead.get(&name).unwrap(), noise);
    while ahead.step() {}
    assert!(leaves.iter().all(|name| ahead.get(name).is_ok()));
}

#[test]
fn a_source_that_lies_or_is_away_is_found_out_by_who_asks() {
    let source = Behind::new();
    let (root, leaves) = tree(&source, BlockType::DATA, 10);
    let ahead = ReadAheadStore::new(Arc::clone(&source) as _, leads, 1 << 20);
    ahead.get(&root).unwrap();
    source.lies.store(true, Ordering::SeqCst);
    while ahead.step() {}
    assert_eq!(ahead.counts().ahead, 0, "wrong bytes are not kept");
    source.lies.store(false, Ordering::SeqCst);
    assert_eq!(score_of(&ahead.get(&leaves[3]).unwrap()), leaves[3].score);
    source.set_away(true);
    assert!(ahead.get(&leaves[4]).is_err());
    source.set_away(false);
    assert!(ahead.get(&leaves[4]).is_ok());
}

#[test]
#[allow(clippy::disallowed_methods, reason = "this test is about threads")]
fn readers_and_threads_that_read_ahead_agree() {
    let source = Behind::new();
    let (root, leaves) = tree(&source, BlockType::DATA, 500);
    let ahead = Arc::new(ReadAheadStore::new(Arc::clone(&source) as _, leads, 16 << 20));
    let background = Background::read_ahead(Arc::clone(&ahead));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                ahead.get(&root).unwrap();
                for name in &leaves {
                    assert_eq!(score_of(&ahead.get(name).unwrap()), name.score);
                }
            });
        }
    });
    drop(background);
    // The read-ahead has ended, and all blocks can still be read.
    assert!(leaves.iter().all(|name| ahead.get(name).is_ok()));
    ahead.put(data(b"one more")).unwrap();
    assert!(ahead.get(&name_of(b"one more")).is_ok());
}
