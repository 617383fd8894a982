//! A lost block harms only the bytes that it stands for.

use std::collections::BTreeMap;
use std::ops::Range;

use varve_block::{BlockName, BlockStore, MemoryBlockStore};
use varve_tree::{Entry, StreamError, StreamPiece, TreeReader, Visit, walk};

use crate::sample::{DEEP, TINY, noise, put_cut, put_fixed};

fn file() -> Vec<u8> {
    [noise(1, 30_000), vec![0; 9000], noise(2, 30_000)].concat()
}

/// Every block of a tree, with the range of bytes that it stands for.
fn blocks(store: &dyn BlockStore, entry: &Entry) -> BTreeMap<BlockName, Range<u64>> {
    let mut blocks = BTreeMap::new();
    walk(store, entry, &mut |node| {
        assert_eq!(node.level, node.name.block_type.depth());
        assert!(node.damage.is_none());
        blocks.insert(node.name, node.range);
        Visit::Descend
    });
    blocks
}

#[test]
fn a_walk_names_every_block_and_reads_no_leaf() {
    let puts: [&dyn Fn(&MemoryBlockStore) -> Entry; 2] =
        [&|store| put_fixed(store, DEEP, &file()), &|store| put_cut(store, TINY, &file())];
    for put in puts {
        let store = MemoryBlockStore::new();
        let entry = put(&store);
        let named: Vec<BlockName> = blocks(&store, &entry).into_keys().collect();
        assert_eq!(named, store.names());
        let pointers = named.iter().filter(|name| name.block_type.depth() > 0).count();
        assert_eq!(store.get_count(), pointers as u64);
    }
}

#[test]
fn what_is_skipped_is_not_read() {
    let store = MemoryBlockStore::new();
    let entry = put_fixed(&store, DEEP, &file());
    let mut visited = Vec::new();
    walk(&store, &entry, &mut |node| {
        visited.push(node.level);
        if node.level == entry.depth() { Visit::Descend } else { Visit::Skip }
    });
    assert_eq!(visited, [entry.depth(), entry.depth() - 1, entry.depth() - 1]);
    assert_eq!(store.get_count(), 1);
}

#[test]
fn a_lost_block_harms_its_range_and_no_other() {
    let puts: [&dyn Fn(&MemoryBlockStore) -> Entry; 2] =
        [&|store| put_fixed(store, DEEP, &file()), &|store| put_cut(store, TINY, &file())];
    for put in puts {
        let whole = MemoryBlockStore::new();
        let entry = put(&whole);
        for (name, range) in blocks(&whole, &entry) {
            let store = MemoryBlockStore::new();
            put(&store);
            assert!(store.lose(&name));
            check_reads_around(&store, &entry, &range);
            check_stream_until(&store, &entry, range.start);
            check_walk(&whole, &store, &entry, &name);
        }
    }
}

/// Every byte outside of `lost` is read as before. Every read inside of it fails.
fn check_reads_around(store: &MemoryBlockStore, entry: &Entry, lost: &Range<u64>) {
    let (file, reader) = (file(), TreeReader::new(store, entry));
    let mut readable = Vec::new();
    for extent in reader.extents(0..reader.size()) {
        let extent = match extent {
            Ok(extent) => extent,
            Err(damage) => {
                assert_eq!(damage.range(), *lost);
                continue;
            }
        };
        match reader.read_extents(&[extent]).remove(0) {
            Ok(_) => readable.push(extent.range()),
            Err(_) => assert_eq!(extent.range(), *lost),
        }
    }
    let readable_bytes: u64 = readable.iter().map(|range| range.end - range.start).sum();
    assert_eq!(readable_bytes, reader.size() - (lost.end - lost.start));
    for range in readable {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap()];
        reader.read_at(range.start, &mut bytes).unwrap();
        assert_eq!(bytes, file[usize::try_from(range.start).unwrap()..][..bytes.len()]);
    }
    for offset in [lost.start, lost.end - 1] {
        assert!(reader.read_at(offset, &mut [0]).is_err(), "byte {offset} of the lost {lost:?}");
    }
}

/// A stream returns the bytes before the damage, and then fails.
fn check_stream_until(store: &MemoryBlockStore, entry: &Entry, damage_offset: u64) {
    let mut streamed = Vec::new();
    let mut append = |piece: StreamPiece<'_>| {
        match piece {
            StreamPiece::Bytes(bytes) => streamed.extend_from_slice(bytes),
            StreamPiece::Zeros(count) => streamed.resize(streamed.len() + usize::try_from(count).unwrap(), 0),
        }
        Ok(())
    };
    let ended = TreeReader::new(store, entry).stream(&mut append);
    assert!(matches!(ended, Err(StreamError::Read(_))), "{ended:?}");
    assert_eq!(streamed, file()[..usize::try_from(damage_offset).unwrap()]);
}

/// A walk names the lost block and all others except those below it. It reports a lost pointer
/// block as damage.
fn check_walk(whole: &MemoryBlockStore, store: &MemoryBlockStore, entry: &Entry, lost: &BlockName) {
    let (mut named, mut damaged) = (BTreeMap::new(), Vec::new());
    walk(store, entry, &mut |node| {
        match node.damage {
            Some(damage) => damaged.push((damage.name(), damage.range())),
            None => drop(named.insert(node.name, node.range)),
        }
        Visit::Descend
    });
    let all = blocks(whole, entry);
    let is_pointer = lost.block_type.depth() > 0;
    let expected = if is_pointer { vec![(*lost, all[lost].clone())] } else { Vec::new() };
    assert_eq!(damaged, expected);
    let below = |name: &BlockName, range: &Range<u64>| {
        name.block_type < lost.block_type && range.start >= all[lost].start && range.end <= all[lost].end
    };
    let expected: BTreeMap<_, _> =
        all.clone().into_iter().filter(|(name, range)| !below(name, range)).collect();
    assert_eq!(named, expected);
}

#[test]
fn a_taker_that_fails_ends_the_stream() {
    let store = MemoryBlockStore::new();
    let entry = put_cut(&store, TINY, &file());
    let mut calls = 0;
    let mut full = |_: StreamPiece<'_>| {
        calls += 1;
        Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
    };
    let ended = TreeReader::new(&store, &entry).stream(&mut full);
    assert!(matches!(ended, Err(StreamError::Write { .. })), "{ended:?}");
    assert_eq!(calls, 1);
}
