//! A write buffer in front of shards, some of which are away.

use std::sync::Arc;

use varve_block::{BlockStore, PutError, contract};
use varve_proxy::{BufferSettings, TrickleStep};
use varve_world::{MemoryStorage, Storage};

use crate::behind::{Behind, bytes_of, data, name_of};
use crate::buffer::{SETTINGS, drain, drain_way, open_with, target_of};

const ROOM: u64 = 32 << 20;
const LENGTH: usize = 30_000;

fn stores(count: usize) -> Vec<Arc<Behind>> {
    (0..count).map(|_| Behind::new()).collect()
}

/// The shard, out of `count`, that a block belongs to.
fn shard_of(bytes: &[u8], count: usize) -> usize {
    let name = name_of(bytes);
    let leading = name.score.as_bytes()[..4].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    usize::try_from((leading * count as u64) >> 32).unwrap()
}

#[test]
fn a_write_buffer_before_shards_keeps_the_contract() {
    for count in [2, 3, 40] {
        contract::check(&mut || {
            open_with(&MemoryStorage::new(), target_of(&stores(count)), SETTINGS).unwrap()
        });
    }
}

#[test]
fn what_belongs_to_a_shard_that_is_away_waits_by_itself() {
    let (storage, behind) = (MemoryStorage::new(), stores(3));
    let settings = BufferSettings { bytes_max: ROOM, ..SETTINGS };
    let buffer = open_with(&storage, target_of(&behind), settings).unwrap();
    behind[1].set_away(true);
    // Five times as many blocks as there is room for. Those of the other shards are sent on all the
    // time.
    let (mut taken, mut refused) = (vec![Vec::new(); 3], 0);
    for number in 0..5 * ROOM / LENGTH as u64 {
        let bytes = bytes_of(number, LENGTH);
        let shard = shard_of(&bytes, 3);
        match buffer.put(data(&bytes)) {
            Ok(_) => taken[shard].push(number),
            Err(PutError::Failed { source }) => {
                refused += 1;
                let said = source.to_string();
                assert!(
                    shard == 1 && said.contains("full") && said.contains("it is away"),
                    "{shard}: {said}"
                );
            }
            Err(other) => panic!("{other}"),
        }
        if number % 50 == 0 {
            drain_way(&buffer, 0);
            drain_way(&buffer, 2);
            buffer.step(1);
        }
    }
    buffer.sync().unwrap();
    drain_way(&buffer, 0);
    drain_way(&buffer, 2);
    assert!(refused > 0);
    let waiting = buffer.status().waiting_bytes;
    assert!((ROOM / 2..=ROOM).contains(&waiting), "{waiting}: only what is for the one that is away");
    assert!(buffer.status().trouble.unwrap().contains("store 1"));
    for (shard, numbers) in taken.iter().enumerate() {
        for number in numbers {
            let bytes = bytes_of(*number, LENGTH);
            assert_eq!(behind[shard].has_durable(&name_of(&bytes)), shard != 1);
            assert_eq!(buffer.get(&name_of(&bytes)).unwrap(), bytes);
        }
    }
    // The shard comes back after a restart of the buffer.
    drop(buffer);
    behind[1].set_away(false);
    let buffer = open_with(&storage, target_of(&behind), settings).unwrap();
    drain(&buffer);
    for number in &taken[1] {
        assert!(behind[1].has_durable(&name_of(&bytes_of(*number, LENGTH))));
    }
    assert_eq!(behind.iter().map(|store| store.most_puts()).max(), Some(1), "nothing is sent twice");
    assert_eq!((buffer.status().waiting_bytes, buffer.status().segment_count), (0, 0));
}

#[test]
fn a_shard_that_takes_nothing_leaves_the_others_slots_and_room() {
    // Some of the 40 shards share a way. The packed blocks are tiny, so slots run out before room.
    let (storage, behind) = (MemoryStorage::new(), stores(40));
    let settings = BufferSettings { bytes_max: ROOM, ..SETTINGS };
    let buffer = open_with(&storage, target_of(&behind), settings).unwrap();
    behind.iter().take(20).for_each(|store| store.set_away(true));
    let bytes = |number: u64| {
        let mut bytes = vec![0; 200_000];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    let mut refused = 0;
    for number in 0..1500 {
        let bytes = bytes(number);
        let shard = shard_of(&bytes, 40);
        match buffer.put(data(&bytes)) {
            Ok(_) => {}
            Err(error) => {
                refused += 1;
                assert!(shard < 20, "shard {shard}: {error}");
            }
        }
        if number % 25 == 0 {
            // The groups of the shards that are available.
            (8..16).for_each(|way| drain_way(&buffer, way));
        }
    }
    assert!(refused > 0, "it was never full");
    buffer.sync().unwrap();
    behind.iter().for_each(|store| store.set_away(false));
    drain(&buffer);
    assert_eq!(buffer.status().segment_count, 0);
}

#[test]
fn what_was_buffered_for_other_shards_goes_on_as_well() {
    let storage = MemoryStorage::new();
    let bytes: Vec<Vec<u8>> = (0..400).map(|number| bytes_of(number, 9000)).collect();
    let mut rest = bytes.chunks(100);
    // Nothing gets through, and the set of shards changes each time.
    for count in [1, 2, 3, 2] {
        let behind = stores(count);
        behind.iter().for_each(|store| store.set_away(true));
        let buffer = open_with(&storage, target_of(&behind), SETTINGS).unwrap();
        for bytes in rest.next().unwrap() {
            buffer.put(data(bytes)).unwrap();
        }
        buffer.sync().unwrap();
        for way in 0..buffer.way_count() {
            assert!(
                !matches!(buffer.step(way), TrickleStep::Sent { .. } | TrickleStep::Ended),
                "{count}: {way}"
            );
        }
    }
    let behind = stores(5);
    let buffer = open_with(&storage, target_of(&behind), SETTINGS).unwrap();
    for bytes in &bytes {
        assert_eq!(buffer.get(&name_of(bytes)).unwrap(), *bytes);
    }
    drain(&buffer);
    for bytes in &bytes {
        assert!(behind[shard_of(bytes, 5)].has_durable(&name_of(bytes)));
    }
    assert_eq!(buffer.status().segment_count, 0);
    let left = (0..64).map(|slot| storage.list(&format!("slots/{slot:02}/arenas")).unwrap().len());
    assert_eq!(left.sum::<usize>(), 0, "the room has come back");
}
