use std::sync::Arc;
use std::sync::atomic::Ordering;

use varve_block::{Block, BlockStore, GetError, MemoryBlockStore, contract};
use varve_proxy::{Shard, ShardedStore, ShardsError};
use varve_world::{InlineWorkers, RealWorkers, Workers};

use crate::behind::{Behind, bytes_of, data, name_of};

fn over(behind: &[Arc<Behind>], workers: Arc<dyn Workers>) -> ShardedStore {
    let shard = |(number, blocks): (usize, &Arc<Behind>)| Shard {
        name: format!("store {number}"),
        blocks: Arc::clone(blocks) as _,
    };
    ShardedStore::new(behind.iter().enumerate().map(shard).collect(), workers).unwrap()
}

fn stores(count: usize) -> Vec<Arc<Behind>> {
    (0..count).map(|_| Behind::new()).collect()
}

#[test]
fn shards_keep_the_contract() {
    for count in [1, 2, 3, 8] {
        contract::check(&mut || over(&stores(count), Arc::new(InlineWorkers)));
        contract::check(&mut || over(&stores(count), Arc::new(RealWorkers::new(4))));
    }
}

#[test]
fn the_leading_bits_say_which_store_has_a_block() {
    let behind = stores(4);
    let shards = over(&behind, Arc::new(InlineWorkers));
    let bytes: Vec<Vec<u8>> = (0..200).map(|number| bytes_of(number, 100)).collect();
    let blocks: Vec<Block<'_>> = bytes.iter().map(|bytes| data(bytes)).collect();
    shards.put_batch(&blocks).unwrap();
    for bytes in &bytes {
        let name = name_of(bytes);
        let expected = usize::from(name.score.as_bytes()[0] >> 6);
        let holders: Vec<usize> = (0..4).filter(|number| behind[*number].names().contains(&name)).collect();
        assert_eq!(holders, [expected], "{name}");
    }
    // The last of three shards begins at aaaaaaab.
    let three = over(&stores(3), Arc::new(InlineWorkers));
    for (score, expected) in
        [("55555555", 0), ("55555556", 1), ("aaaaaaaa", 1), ("aaaaaaab", 2), ("ffffffff", 2)]
    {
        let score = varve_block::Score::from_hex(&format!("{score}{}", "00".repeat(16))).unwrap();
        assert_eq!(three.shard_of(&score), expected, "{score}");
    }
}

#[test]
fn a_store_that_is_down_fails_its_own_blocks_only() {
    let behind = stores(3);
    let shards = over(&behind, Arc::new(InlineWorkers));
    let bytes: Vec<Vec<u8>> = (0..60).map(|number| bytes_of(number, 100)).collect();
    let of_shard = |number: usize| {
        let shards = &shards;
        bytes.iter().filter(move |bytes| shards.shard_of(&name_of(bytes).score) == number)
    };
    for bytes in &bytes {
        shards.put(data(bytes)).unwrap();
    }
    shards.sync().unwrap();
    behind[1].set_away(true);
    let names: Vec<_> = bytes.iter().map(|bytes| name_of(bytes)).collect();
    for (name, answer) in names.iter().zip(shards.get_batch(&names)) {
        match (shards.shard_of(&name.score), answer) {
            (1, Err(GetError::Failed { source, .. })) => {
                let said = source.to_string();
                assert!(said.contains("shard 2 of 3, store 1") && said.contains("55555556"), "{said}");
            }
            (0 | 2, Ok(_)) => {}
            (number, other) => panic!("shard {number}: {other:?}"),
        }
    }
    // The other stores accept new blocks and make them durable, although one is away.
    let fresh: Vec<Vec<u8>> = (1000..1060).map(|number| bytes_of(number, 100)).collect();
    for bytes in &fresh {
        assert_eq!(shards.put(data(bytes)).is_ok(), shards.shard_of(&name_of(bytes).score) != 1);
    }
    // A put was tried at the store that is away, so the proxy cannot claim that all is durable.
    assert!(shards.sync().is_err());
    for bytes in of_shard(0) {
        assert!(behind[0].has_durable(&name_of(bytes)));
    }
    let durable = |bytes: &&Vec<u8>| behind.iter().any(|store| store.has_durable(&name_of(bytes)));
    let others = fresh.iter().filter(|bytes| shards.shard_of(&name_of(bytes).score) != 1).count();
    assert_eq!(fresh.iter().filter(durable).count(), others);
    behind[1].set_away(false);
    shards.sync().unwrap();
}

#[test]
fn only_what_was_written_to_is_synced() {
    let behind = stores(2);
    let shards = over(&behind, Arc::new(InlineWorkers));
    let bytes = (0..)
        .map(|number| bytes_of(number, 50))
        .find(|bytes| name_of(bytes).score.as_bytes()[0] < 0x80)
        .unwrap();
    shards.put(data(&bytes)).unwrap();
    behind[1].set_away(true);
    shards.sync().unwrap();
    shards.sync().unwrap();
    let syncs = behind.iter().map(|store| store.syncs.load(Ordering::SeqCst));
    assert_eq!(syncs.collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn other_scores_cannot_be_spread() {
    let other = Shard { name: "blake".into(), blocks: Arc::new(MemoryBlockStore::new()) };
    let refused = ShardedStore::new(vec![other], Arc::new(InlineWorkers)).unwrap_err();
    assert!(matches!(&refused, ShardsError::NotSha1 { name } if name == "blake"), "{refused}");
    let none = ShardedStore::new(Vec::new(), Arc::new(InlineWorkers)).unwrap_err();
    assert!(matches!(none, ShardsError::Count { count: 0 }), "{none}");
}
