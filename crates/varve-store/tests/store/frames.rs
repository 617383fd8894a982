//! Clumps in frames: a block needs only its own frame, and damage to one frame harms no other.

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_block::{Block, BlockName, BlockStore, BlockType, ExpectedReads, GetError, PutHints, Score};
use varve_log::ArenaId;
use varve_store::{Encryption, PassphraseCost, Store, StoreAccess, StoreConfig};
use varve_upkeep::{Checker, DamageKind, MendPlan, Mender};
use varve_world::{MemoryStorage, Random, SeededRandom, World};

use crate::memory_store::{WRITER, open, secret};

const BLOCK_BYTES: usize = 8 << 10;
const BLOCK_COUNT: usize = 64;
/// Frames have 32 KiB when reads in pieces are expected.
const BLOCKS_EACH: usize = 4;

/// A store with one clump of random blocks, their names, and the blocks.
fn sample(encryption: Encryption) -> (MemoryStorage, Vec<BlockName>, Vec<Vec<u8>>) {
    sample_put(encryption, |store, blocks| {
        store.expect_reads_in_pieces(true);
        store.put_batch(blocks).unwrap()
    })
}

fn sample_put(
    encryption: Encryption,
    put: impl Fn(&Store, &[Block<'_>]) -> Vec<Score>,
) -> (MemoryStorage, Vec<BlockName>, Vec<Vec<u8>>) {
    let storage = MemoryStorage::new();
    let mut config = StoreConfig::new([5; 16]);
    config.encryption = encryption;
    config.arena_map = varve_log::ArenaMap::new(4 << 20).unwrap();
    config.clump_bytes = varve_log::ClumpBytes::new(512 << 10).unwrap();
    let world = World::deterministic(Arc::new(storage.clone()), 1);
    Store::create(&world, &config, Some(&secret()), PassphraseCost::default()).unwrap();
    let store = open(&storage, 2, WRITER);
    let random = SeededRandom::new(3);
    let blocks: Vec<Vec<u8>> = (0..BLOCK_COUNT)
        .map(|_| {
            let mut bytes = vec![0; BLOCK_BYTES];
            random.fill(&mut bytes).unwrap();
            bytes
        })
        .collect();
    let to_put: Vec<_> = blocks.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
    let scores = put(&store, &to_put);
    store.close().unwrap();
    let names = scores.into_iter().map(|score| BlockName { score, block_type: BlockType::DATA }).collect();
    (storage, names, blocks)
}

fn kinds() -> [Encryption; 2] {
    [Encryption::Aes256Gcm, Encryption::None]
}

/// Changes the byte in the middle of each of these frames.
fn damage_frames(storage: &MemoryStorage, frames: impl Iterator<Item = usize>) {
    let file = ArenaId(0).file_name();
    let mut bytes = storage.contents(&file).unwrap();
    for frame in frames {
        // After the headers and the table, which has a row of 32 bytes for each frame and two bytes
        // for each block.
        let start = 512 + 64 + 8 + BLOCK_COUNT / BLOCKS_EACH * 32 + BLOCK_COUNT * 2;
        let each = 4 + BLOCKS_EACH * (4 + BLOCK_BYTES);
        bytes[start + frame * each + each / 2] ^= 0x10;
    }
    storage.set_contents(&file, bytes);
}

#[test]
fn a_block_needs_nothing_but_its_frame() {
    for encryption in kinds() {
        for wanted in [0, 7, 15] {
            let (storage, names, blocks) = sample(encryption);
            damage_frames(&storage, (0..BLOCK_COUNT / BLOCKS_EACH).filter(|frame| *frame != wanted));
            let store = open(&storage, 4, StoreAccess::Read);
            for (number, (name, bytes)) in names.iter().zip(&blocks).enumerate() {
                match store.get(name) {
                    Ok(found) if number / BLOCKS_EACH == wanted => assert_eq!(found, *bytes),
                    Err(GetError::Damaged { .. }) if number / BLOCKS_EACH != wanted => {}
                    other => panic!("block {number}, when only frame {wanted} is whole: {other:?}"),
                }
            }
            let together = store.get_batch(&names);
            assert_eq!(together.iter().filter(|block| block.is_ok()).count(), BLOCKS_EACH);
        }
    }
}

#[test]
fn blocks_for_random_reads_are_in_frames_and_apart_from_others() {
    let (storage, names, blocks) = sample_put(Encryption::None, |store, blocks| {
        let hints = PutHints { reads: ExpectedReads::AtRandom, ..PutHints::default() };
        // In turns with other blocks: the two kinds do not share a clump.
        let put = |(number, block): (usize, &Block<'_>)| {
            let bytes = format!("another block {number}").into_bytes();
            store.put(Block { block_type: BlockType::DATA, bytes: &bytes }).unwrap();
            store.put_batch_with(&[*block], hints).unwrap()
        };
        blocks.iter().enumerate().flat_map(put).collect()
    });
    let store = open(&storage, 4, StoreAccess::Read);
    let place = |name| store.clump_of(name).unwrap().unwrap();
    let clumps: BTreeSet<_> = names.iter().map(|name| (place(name).arena, place(name).bytes.start)).collect();
    assert_eq!(clumps.len(), 1, "no other block was in the draft");
    drop(store);
    let wanted = 3;
    damage_frames(&storage, (0..BLOCK_COUNT / BLOCKS_EACH).filter(|frame| *frame != wanted));
    let store = open(&storage, 4, StoreAccess::Read);
    for (name, bytes) in names.iter().zip(&blocks).skip(wanted * BLOCKS_EACH).take(BLOCKS_EACH) {
        assert_eq!(store.get(name).unwrap(), *bytes);
    }
    assert_eq!(store.get_batch(&names).iter().filter(|block| block.is_ok()).count(), BLOCKS_EACH);
}

#[test]
fn what_one_frame_has_lost_is_named_and_the_rest_is_kept() {
    for encryption in kinds() {
        let (storage, names, blocks) = sample(encryption);
        damage_frames(&storage, [3].into_iter());
        let lost: BTreeSet<_> = names[3 * BLOCKS_EACH..4 * BLOCKS_EACH].iter().copied().collect();

        let store = open(&storage, 4, WRITER);
        let check = Checker::of(&store).check_arena(ArenaId(0), true).unwrap();
        assert_eq!(check.damage.len(), 1);
        assert!(matches!(check.damage[0].kind, DamageKind::Unreadable(_)));
        assert_eq!(check.damage[0].blocks.iter().copied().collect::<BTreeSet<_>>(), lost);

        let repaired = Mender::of(&store).unwrap().rewrite(&MendPlan::new(&check.damage)).unwrap();
        assert_eq!(repaired.kept_block_count, (BLOCK_COUNT - BLOCKS_EACH) as u64);
        store.close().unwrap();
        let store = open(&storage, 5, WRITER);
        for (name, bytes) in names.iter().zip(&blocks) {
            match store.get(name) {
                Ok(found) => assert!(found == *bytes && !lost.contains(name)),
                Err(error) => {
                    assert!(matches!(error, GetError::NotFound { .. }) && lost.contains(name), "{error}")
                }
            }
        }
        // Blocks that are put again are whole again, and the arena has no more damage.
        store
            .put_batch(
                &blocks.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect::<Vec<_>>(),
            )
            .unwrap();
        store.sync().unwrap();
        assert!(names.iter().all(|name| store.get(name).is_ok()));
        assert!(Checker::of(&store).check_arena(ArenaId(0), true).unwrap().damage.is_empty());
    }
}

#[test]
fn a_table_that_is_damaged_is_damage_to_the_clump() {
    for encryption in kinds() {
        let (storage, names, _) = sample(encryption);
        let file = ArenaId(0).file_name();
        let mut bytes = storage.contents(&file).unwrap();
        bytes[512 + 64 + 20] ^= 1;
        storage.set_contents(&file, bytes);
        let store = open(&storage, 4, StoreAccess::Read);
        assert!(names.iter().all(|name| matches!(store.get(name), Err(GetError::Damaged { .. }))));
        let check = Checker::of(&store).check_arena(ArenaId(0), true).unwrap();
        assert_eq!(check.damage[0].blocks.len(), BLOCK_COUNT);
    }
}
