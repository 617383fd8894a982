use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use varve_block::{BlockStore, PutError, contract};
use varve_proxy::{
    BUFFER_BYTES_MIN, Background, BufferSettings, BufferTarget, OpenBufferError, OpenSegmentsError, Shard,
    ShardedStore, TrickleStep, WriteBuffer,
};
use varve_sim::{Fault, SeededDraw, SimDisk, Strike};
use varve_world::{FileName, InlineWorkers, MemoryStorage, Storage, World};

use crate::behind::{Behind, bytes_of, data, name_of, score_of};

pub const SETTINGS: BufferSettings =
    BufferSettings { bytes_max: 64 << 20, patience: Duration::ZERO, linger: Duration::ZERO };

pub fn open_with(
    storage: &(impl Storage + Clone + 'static),
    target: impl Into<BufferTarget>,
    settings: BufferSettings,
) -> Result<WriteBuffer, OpenBufferError> {
    let world = World::deterministic(Arc::new(storage.clone()), 7);
    WriteBuffer::open(world, target, settings, "a test")
}

fn open(storage: &(impl Storage + Clone + 'static), target: &Arc<Behind>) -> WriteBuffer {
    open_with(storage, Arc::clone(target), SETTINGS).unwrap()
}

/// Does all pending work.
pub fn drain(buffer: &WriteBuffer) {
    (0..buffer.way_count()).for_each(|way| drain_way(buffer, way));
}

/// Does all pending work of one way.
pub fn drain_way(buffer: &WriteBuffer, way: usize) {
    for _ in 0..100_000 {
        match buffer.step(way) {
            TrickleStep::Idle => return,
            TrickleStep::Away { reason } => panic!("{reason}"),
            TrickleStep::Sent { .. } | TrickleStep::Ended => {}
        }
    }
    panic!("it does not end");
}

#[test]
fn a_write_buffer_keeps_the_contract() {
    contract::check(&mut || open(&MemoryStorage::new(), &Behind::new()));
    // The same with the store behind it away, as long as no client requests a block that was never
    // written.
    let away = Behind::new();
    away.set_away(true);
    let buffer = open(&MemoryStorage::new(), &away);
    buffer.put(data(b"a block")).unwrap();
    buffer.sync().unwrap();
    assert_eq!(buffer.get(&name_of(b"a block")).unwrap(), b"a block"[..]);
    assert_eq!(buffer.has_batch(&[name_of(b"a block")]).unwrap(), [true]);
    assert!(buffer.get(&name_of(b"another")).is_err());
}

#[test]
fn the_contract_is_kept_while_blocks_go_on() {
    let mut running = Vec::new();
    contract::check(&mut || {
        let buffer = Arc::new(open(&MemoryStorage::new(), &Behind::new()));
        running.push(Background::trickle(Arc::clone(&buffer), None));
        Shared(buffer)
    });
}

/// A buffer that has another owner as well.
struct Shared(Arc<WriteBuffer>);

impl BlockStore for Shared {
    varve_block::forward_block_store!(0: score_bytes, empty_score, put, get, sync);
}

#[test]
fn what_is_buffered_gets_through_once_and_its_room_comes_back() {
    let (storage, target) = (MemoryStorage::new(), Behind::new());
    target.set_away(true);
    let buffer = open(&storage, &target);
    let bytes: Vec<Vec<u8>> = (0..600).map(|number| bytes_of(number, 20_000)).collect();
    for bytes in &bytes {
        assert_eq!(buffer.put(data(bytes)).unwrap(), score_of(bytes));
    }
    buffer.sync().unwrap();
    assert!(matches!(buffer.step(0), TrickleStep::Away { reason } if reason.contains("it is away")));
    assert!(buffer.status().trouble.is_some());
    assert!(buffer.status().waiting_bytes > 10 << 20);
    // A long absence, with a restart of the buffer in between.
    drop(buffer);
    let buffer = open(&storage, &target);
    for bytes in &bytes {
        assert_eq!(buffer.get(&name_of(bytes)).unwrap(), *bytes);
    }
    target.set_away(false);
    drain(&buffer);
    assert!(bytes.iter().all(|bytes| target.has_durable(&name_of(bytes))));
    assert_eq!(target.most_puts(), 1, "nothing is sent twice");
    let status = buffer.status();
    assert_eq!((status.waiting_bytes, status.segment_count, status.trouble), (0, 0, None));
    let left: Vec<FileName> =
        (0..64).flat_map(|slot| storage.list(&format!("slots/{slot:02}/arenas")).unwrap()).collect();
    assert_eq!(left, [], "the room has come back");
    for bytes in &bytes {
        assert_eq!(buffer.get(&name_of(bytes)).unwrap(), *bytes, "from behind");
    }
}

#[test]
fn what_is_marked_as_through_is_not_sent_again_after_a_crash() {
    let (storage, target) = (MemoryStorage::new(), Behind::new());
    let settings = BufferSettings { bytes_max: 512 << 20, ..SETTINGS };
    let buffer = open_with(&storage, Arc::clone(&target), settings).unwrap();
    let bytes: Vec<Vec<u8>> = (0..1000).map(|number| bytes_of(number, 40_000)).collect();
    for bytes in &bytes {
        buffer.put(data(bytes)).unwrap();
    }
    // About 24 MB of the one segment of 40 MB are sent. The mark that they were sent is written
    // after 16 MB.
    for _ in 0..13 {
        assert!(matches!(buffer.step(0), TrickleStep::Sent { .. }));
    }
    let durable: Vec<bool> = bytes.iter().map(|bytes| target.has_durable(&name_of(bytes))).collect();
    let count = durable.iter().filter(|is_durable| **is_durable).count();
    assert!((300..600).contains(&count), "{count}");
    drop(buffer);
    target.forget_acknowledged();
    let buffer = open_with(&storage, Arc::clone(&target), settings).unwrap();
    drain(&buffer);
    for (bytes, was_durable) in bytes.iter().zip(durable) {
        assert!(target.has_durable(&name_of(bytes)));
        assert!(!was_durable || target.puts(&name_of(bytes)) == 1);
    }
}

#[test]
fn a_full_buffer_pushes_back_and_says_why() {
    let (storage, target) = (MemoryStorage::new(), Behind::new());
    target.set_away(true);
    let buffer =
        open_with(&storage, Arc::clone(&target), BufferSettings { bytes_max: BUFFER_BYTES_MIN, ..SETTINGS })
            .unwrap();
    let bytes = |number: u64| bytes_of(number, 30_000);
    let mut taken = 0;
    let refused = loop {
        buffer.step(0);
        match buffer.put(data(&bytes(taken))) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!((200..290).contains(&taken), "{taken} blocks of 30 kB in 8 MiB");
    let PutError::Failed { source } = &refused else { panic!("{refused}") };
    let said = source.to_string();
    assert!(said.contains("full") && said.contains("it is away"), "{said}");
    assert_eq!(buffer.status().refused_writes, 1);
    // A block that is already there needs no room, and reads and syncs continue.
    buffer.put(data(&bytes(0))).unwrap();
    buffer.sync().unwrap();
    assert_eq!(buffer.get(&name_of(&bytes(taken - 1))).unwrap(), bytes(taken - 1));
    target.set_away(false);
    drain(&buffer);
    buffer.put(data(&bytes(taken))).unwrap();
    assert!((0..taken).all(|number| target.has_durable(&name_of(&bytes(number)))));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "this test is about somebody who waits")]
fn who_writes_to_a_full_buffer_waits_until_there_is_room() {
    let (storage, target) = (MemoryStorage::new(), Behind::new());
    let world =
        World { clock: Arc::new(varve_world::RealClock), ..World::deterministic(Arc::new(storage), 7) };
    let settings =
        BufferSettings { bytes_max: BUFFER_BYTES_MIN, patience: Duration::from_secs(600), ..SETTINGS };
    let buffer = Arc::new(WriteBuffer::open(world, Arc::clone(&target), settings, "a test").unwrap());
    let bytes = |number: u64| bytes_of(number, 30_000);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..1500 {
                buffer.put(data(&bytes(number))).unwrap();
            }
        });
        while !writer.is_finished() {
            buffer.step(0);
        }
    });
    drain(&buffer);
    assert!((0..1500).all(|number| target.has_durable(&name_of(&bytes(number)))), "40 MB through 8");
}

#[test]
fn what_is_refused_behind_stays_and_holds_up_nothing_else() {
    let (storage, target) = (MemoryStorage::new(), Behind::new());
    let buffer = open(&storage, &target);
    let bytes = |number: u64| bytes_of(number, 5000);
    target.refuse(name_of(&bytes(3)));
    for number in 0..10 {
        buffer.put(data(&bytes(number))).unwrap();
    }
    drain(&buffer);
    for number in 10..20 {
        buffer.put(data(&bytes(number))).unwrap();
    }
    drain(&buffer);
    for number in 0..20 {
        assert_eq!(target.has_durable(&name_of(&bytes(number))), number != 3, "{number}");
    }
    let status = buffer.status();
    assert_eq!((status.held_blocks, status.segment_count), (1, 1));
    assert_eq!(buffer.get(&name_of(&bytes(3))).unwrap(), bytes(3), "it is not lost");
    // The next start tries it again.
    drop(buffer);
    target.accept_all();
    let buffer = open(&storage, &target);
    drain(&buffer);
    assert!(target.has_durable(&name_of(&bytes(3))));
    assert_eq!(buffer.status().segment_count, 0);
}

/// Otherwise a block refused in that moment would wait for minutes, although the store is back.
#[test]
fn who_comes_back_between_two_questions_is_not_taken_to_refuse() {
    let (storage, target) = (MemoryStorage::new(), Behind::new());
    let buffer = open(&storage, &target);
    for number in 0..10 {
        buffer.put(data(&bytes_of(number, 5000))).unwrap();
    }
    // The put of the whole step fails, and then the put of its first block.
    target.blinks.store(2, Ordering::SeqCst);
    drain(&buffer);
    assert!((0..10).all(|number| target.has_durable(&name_of(&bytes_of(number, 5000)))));
    let status = buffer.status();
    assert_eq!((status.held_blocks, status.segment_count), (0, 0));
}

#[test]
fn other_bytes_with_a_score_that_waits_are_refused() {
    let [one, other] = two_with_one_score();
    let (storage, target) = (MemoryStorage::new(), Behind::new());
    target.set_away(true);
    let buffer = open(&storage, &target);
    buffer.put(data(&one)).unwrap();
    // In the open segment, and in a closed one.
    for _ in 0..2 {
        assert!(matches!(buffer.put(data(&other)), Err(PutError::Collision { .. })));
        buffer.put(data(&one)).unwrap();
        buffer.step(0);
    }
    assert_eq!(buffer.get(&name_of(&one)).unwrap(), one);
}

/// Two blocks with one SHA-1 (see `README.md` in their folder).
fn two_with_one_score() -> [Vec<u8>; 2] {
    let read = |name: &str| {
        let path = format!("{}/../varve-store/tests/collision/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    [read("sha-mbles-1.bin"), read("sha-mbles-2.bin")]
}

#[test]
fn a_disk_that_cannot_write_ends_the_writing_and_loses_nothing_that_was_synced() {
    for fault in [Fault::SyncError, Fault::WriteError, Fault::DiskFull] {
        let (disk, target) = (SimDisk::new(3), Behind::new());
        target.set_away(true);
        let buffer = open(&disk, &target);
        for number in 0..50 {
            buffer.put(data(&bytes_of(number, 9000))).unwrap();
        }
        buffer.sync().unwrap();
        disk.arm(&[Strike { after: 0, fault }]);
        let failed = (50..2000)
            .any(|number| buffer.put(data(&bytes_of(number, 9000))).is_err() || buffer.sync().is_err());
        assert!(failed, "{fault:?}");
        assert!(buffer.sync().is_err(), "{fault:?}: once something may be lost, every sync says so");
        assert!(buffer.put(data(b"more")).is_err());
        // Synced blocks are still sent, now or later.
        disk.behave();
        drop(buffer);
        target.set_away(false);
        let buffer = open(&disk, &target);
        drain(&buffer);
        assert!((0..50).all(|number| target.has_durable(&name_of(&bytes_of(number, 9000)))), "{fault:?}");
    }
}

#[test]
fn too_little_room_and_other_folders_are_refused() {
    let (storage, target) = (MemoryStorage::new(), Behind::new());
    let small = open_with(&storage, Arc::clone(&target), BufferSettings { bytes_max: 1 << 20, ..SETTINGS })
        .unwrap_err();
    assert!(matches!(small, OpenBufferError::TooSmall { .. }), "{small}");
    let _held = open(&storage, &target);
    let second = open_with(&storage, Arc::clone(&target), SETTINGS).unwrap_err();
    assert!(matches!(second, OpenBufferError::Segments(OpenSegmentsError::Lock(_))), "{second}");
}

/// The blocks that were acknowledged to the client.
#[derive(Default)]
struct Told {
    /// Put, and perhaps lost.
    put: BTreeMap<u64, usize>,
    /// Covered by a sync.
    synced: BTreeMap<u64, usize>,
}

/// One store, or several as shards.
pub fn target_of(behind: &[Arc<Behind>]) -> BufferTarget {
    if let [one] = behind {
        return Arc::clone(one).into();
    }
    let shard = |(number, blocks): (usize, &Arc<Behind>)| Shard {
        name: format!("store {number}"),
        blocks: Arc::clone(blocks) as _,
    };
    let shards = behind.iter().enumerate().map(shard).collect();
    BufferTarget::Shards(Arc::new(ShardedStore::new(shards, Arc::new(InlineWorkers)).unwrap()))
}

/// One run of a buffer, up to the power cut or to an orderly end.
fn live(disk: &SimDisk, behind: &[Arc<Behind>], draw: &mut SeededDraw, told: &mut Told, seed: u64) {
    let settings = BufferSettings { bytes_max: 24 << 20, ..SETTINGS };
    let Ok(buffer) = open_with(disk, target_of(behind), settings) else {
        assert!(disk.is_down(), "seed {seed}: it has to open as long as there is power");
        return;
    };
    for _ in 0..200 {
        if disk.is_down() {
            return;
        }
        match draw.below(20) {
            0..=9 => {
                let (number, length) = (draw.below(5000), 100 + draw.index(30_000));
                // A number has one length, so that it stands for one block.
                let length = *told.put.get(&number).or(told.synced.get(&number)).unwrap_or(&length);
                if buffer.put(data(&bytes_of(number, length))).is_ok() {
                    told.put.insert(number, length);
                }
            }
            10 | 11 => {
                if buffer.sync().is_ok() {
                    told.synced.append(&mut told.put);
                }
            }
            12..=15 => {
                buffer.step(draw.index(buffer.way_count()));
            }
            16 => behind[draw.index(behind.len())].set_away(draw.once_in(2)),
            _ => {
                if let Some((number, length)) =
                    told.synced.iter().nth(draw.index(told.synced.len().max(1))).map(|(a, b)| (*a, *b))
                {
                    let bytes = bytes_of(number, length);
                    match buffer.get(&name_of(&bytes)) {
                        Ok(found) => assert_eq!(found, bytes, "seed {seed}"),
                        Err(error) => assert!(
                            disk.is_down() || behind.iter().any(|store| store.is_away.load(Ordering::SeqCst)),
                            "seed {seed}: block {number}: {error}"
                        ),
                    }
                }
            }
        }
    }
}

/// Power cuts at any call of a buffer's disk. The stores behind it come, go, and forget the blocks
/// that they have not synced.
#[test]
fn what_was_synced_survives_every_crash_of_either_side() {
    let seeds: u64 = std::env::var("VARVE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(25);
    let mut sent_twice = 0;
    for seed in 0..seeds {
        let (disk, mut draw) = (SimDisk::new(seed), SeededDraw::new(seed));
        let behind: Vec<Arc<Behind>> = (0..1 + seed % 3).map(|_| Behind::new()).collect();
        let mut told = Told::default();
        for _ in 0..6 {
            if !draw.once_in(4) {
                disk.arm(&[Strike { after: draw.below(700), fault: Fault::PowerCut }]);
            }
            live(&disk, &behind, &mut draw, &mut told, seed);
            if !disk.is_down() && draw.once_in(2) {
                disk.cut_power();
            }
            if disk.is_down() {
                disk.restart();
                told.put.clear();
            } else {
                // Only the process was killed, not the machine: blocks without a sync may be there
                // or not.
                told.put.clear();
            }
            disk.behave();
            behind.iter().for_each(|store| store.forget_acknowledged());
        }
        behind.iter().for_each(|store| store.set_away(false));
        let opened = open_with(&disk, target_of(&behind), SETTINGS);
        let buffer = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for (number, length) in &told.synced {
            let bytes = bytes_of(*number, *length);
            let found = buffer.get(&name_of(&bytes));
            assert_eq!(found.unwrap_or_else(|error| panic!("seed {seed}: block {number}: {error}")), bytes);
        }
        drain(&buffer);
        for (number, length) in &told.synced {
            let name = name_of(&bytes_of(*number, *length));
            assert!(behind.iter().any(|store| store.has_durable(&name)), "seed {seed}: block {number}");
        }
        assert_eq!(buffer.status().waiting_bytes, 0, "seed {seed}: its room has come back");
        sent_twice += usize::from(behind.iter().any(|store| store.most_puts() > 1));
    }
    assert!(sent_twice > 0 || seeds < 10, "no crash has met anything that was on its way");
}
