//! Trees that no Venti client would write.

use std::ops::ControlFlow;

use varve_block::{Block, BlockKind, BlockStore, BlockType, Score};
use varve_tree::{MetaBlockBuilder, TreeReader, VacRecord, VentiEntry, VentiFolder};

use crate::sha1_store::Sha1Store;

fn entry(flags: u8, size: u64, root: Score) -> VentiEntry {
    let mut bytes = vec![0, 0, 0, 0, 0x1f, 0xf4, 0x20, 0, flags, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&size.to_be_bytes()[2..]);
    bytes.extend_from_slice(root.as_bytes());
    VentiEntry::decode(&bytes).unwrap().unwrap()
}

fn put(store: &Sha1Store, depth: u8, bytes: &[u8]) -> Score {
    let block_type = BlockType::at_depth(BlockKind::Data, depth).unwrap();
    store.put(Block { block_type, bytes }).unwrap()
}

#[test]
fn blocks_that_go_on_beyond_the_end_are_cut() {
    let store = Sha1Store::default();
    let leaf = put(&store, 0, &[7; 8192]);
    // Two pointers too many, some bytes that are no pointer, and two levels more than necessary.
    let slop = [leaf.as_bytes(), leaf.as_bytes(), leaf.as_bytes(), &[1, 2, 3]].concat();
    let above = put(&store, 1, &slop);
    let tree = entry(0x29, 100, put(&store, 2, &[above.as_bytes(), above.as_bytes()].concat())).tree;
    let mut bytes = [0; 100];
    TreeReader::new(&store, &tree).read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 100]);
    assert!(TreeReader::new(&store, &tree).read_at(0, &mut [0; 101]).is_err());
}

#[test]
fn a_block_that_is_missing_takes_only_its_own_bytes() {
    let store = Sha1Store::default();
    let leaf = put(&store, 0, &[7; 8192]);
    let missing = Score::try_from([9; 20].as_slice()).unwrap();
    let pointers = [leaf.as_bytes(), missing.as_bytes(), leaf.as_bytes()].concat();
    let tree = entry(0x25, 3 * 8192, put(&store, 1, &pointers)).tree;
    let reader = TreeReader::new(&store, &tree);
    let mut bytes = [0; 8192];
    assert!(reader.read_at(8192, &mut bytes).is_err());
    reader.read_at(2 * 8192, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 8192]);
}

/// The metadata has the largest size, and each of its blocks is the same empty one. The search for
/// records still ends.
#[test]
fn names_are_not_looked_for_for_ever() {
    let store = Sha1Store::default();
    let mut top = put(&store, 0, &MetaBlockBuilder::new(8192).unwrap().finish());
    for depth in 1..=4 {
        top = put(&store, depth, &top.as_bytes().repeat(409));
    }
    let meta = entry(0x31, 409_u64.pow(4) * 8192, top).tree;
    let (mut records, mut errors) = (0, 0);
    VentiFolder::new(&store, &meta, &meta).records(&mut |record| {
        match record {
            Ok(_) => records += 1,
            Err(_) => errors += 1,
        }
        ControlFlow::Continue(())
    });
    assert_eq!((records, errors), (0, 1), "there are too many, and this is told once");
    // Holes cost nothing.
    let hole = entry(0x31, 409_u64.pow(4) * 8192, store.empty_score()).tree;
    VentiFolder::new(&store, &hole, &hole).records(&mut |_| panic!("there is nothing in a hole"));
}

#[test]
fn entries_beyond_the_end_are_not_there() {
    let store = Sha1Store::default();
    let leaf = entry(0x01, 0, store.empty_score()).encode(false).unwrap();
    let block = store.put(Block { block_type: BlockType::DIRECTORY, bytes: &leaf }).unwrap();
    let source = entry(0x23, 40, block).tree;
    let mut folder = VentiFolder::new(&store, &source, &source);
    assert!(folder.entry(0).unwrap().is_some());
    for number in [1, 203, 204, u32::MAX] {
        assert!(folder.entry(number).unwrap().is_none(), "{number}");
    }
}

#[test]
fn a_block_that_is_none_hides_no_other() {
    let store = Sha1Store::default();
    let record = VacRecord { name: b"x".to_vec(), meta_entry: 1, ..VacRecord::default() };
    let mut builder = MetaBlockBuilder::new(8192).unwrap();
    let bytes = record.encode().unwrap();
    assert!(builder.push(b"x", &bytes, bytes.len()));
    let good = put(&store, 0, &builder.finish());
    let bad = put(&store, 0, b"this is no block of a directory");
    let missing = Score::try_from([9; 20].as_slice()).unwrap();
    let pointers = [bad.as_bytes(), missing.as_bytes(), good.as_bytes()].concat();
    let meta = entry(0x25, 3 * 8192, put(&store, 1, &pointers)).tree;
    let mut found = Vec::new();
    VentiFolder::new(&store, &meta, &meta).records(&mut |record| {
        found.push(record.ok());
        ControlFlow::Continue(())
    });
    assert_eq!(found, [None, None, Some(record)]);
}
