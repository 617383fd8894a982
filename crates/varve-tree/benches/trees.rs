//! Measures how fast trees are written to a store that hashes each block and drops it, and how fast
//! they are read from a store in memory.
//!
//! Run with `cargo bench -p varve-tree`. `cargo test --benches` runs it at a tiny size, so that it
//! keeps working.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a bench takes the time and says so")]

use std::time::Instant;

use bytes::Bytes;
use varve_block::{
    Block, BlockKind, BlockName, BlockStore, GetError, MemoryBlockStore, PutError, Score, SyncError,
};
use varve_tree::{
    ContentWriter, Cutting, Entry, FixedBuilder, Shape, StreamPiece, TreeReader, put_leaves, put_whole,
};

const IMAGE: Shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 8192, pointer_bytes: 8192 };

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let bytes = noise(if is_bench { 512 << 20 } else { 3 << 20 });
    let store = HashingStore;
    let hash = |entry: &Entry| entry.root().to_string();

    let sum = measure("hash alone", bytes.len(), || {
        bytes.chunks(65_536).fold(0, |sum, leaf| sum ^ blake3::hash(leaf).as_bytes()[0])
    });
    println!("  {sum}");
    println!("  {}", hash(&measure("write, fixed", bytes.len(), || write_fixed(&store, &bytes))));
    for (name, slice_bytes) in [("write, cut, by 1 MiB", 1 << 20), ("write, cut, by 64 KiB", 1 << 16)] {
        let entry = measure(name, bytes.len(), || {
            let mut writer = ContentWriter::new(&store, BlockKind::Data, Cutting::FILE);
            bytes.chunks(slice_bytes).for_each(|slice| writer.write(slice).unwrap());
            writer.finish().unwrap()
        });
        println!("  {}", hash(&entry));
    }
    let small: Vec<&[u8]> = bytes.chunks(4096).collect();
    let entries = measure("write, small files", bytes.len(), || {
        let put = |files: &[&[u8]]| put_whole(&store, BlockKind::Data, Cutting::FILE, files).unwrap();
        small.chunks(256).flat_map(put).collect::<Vec<_>>()
    });
    println!("  {} files, the last {}", entries.len(), hash(entries.last().unwrap()));
    let store = MemoryBlockStore::new();
    let fixed = write_fixed(&store, &bytes);
    let streamed = measure("stream and hash, fixed", bytes.len(), || stream(&store, &fixed));
    assert_eq!(streamed, blake3::hash(&bytes).to_hex().to_string());
}

fn write_fixed(store: &dyn BlockStore, bytes: &[u8]) -> Entry {
    let mut builder = FixedBuilder::new(store, IMAGE);
    for piece in bytes.chunks(1 << 20) {
        builder.push(&put_leaves(store, &IMAGE, piece).unwrap()).unwrap();
    }
    builder.finish(bytes.len() as u64).unwrap()
}

/// Names blocks, and keeps none.
struct HashingStore;

impl BlockStore for HashingStore {
    fn score_bytes(&self) -> usize {
        32
    }

    fn empty_score(&self) -> Score {
        Score::from(*blake3::hash(&[]).as_bytes())
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        Ok(Score::from(*blake3::hash(block.bytes).as_bytes()))
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        Err(GetError::NotFound { name: *name })
    }

    fn sync(&self) -> Result<(), SyncError> {
        Ok(())
    }
}

fn measure<T>(name: &str, bytes: usize, run: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = run();
    println!("{name:24} {:6.0} MB/s", bytes as f64 / 1e6 / begun.elapsed().as_secs_f64());
    result
}

fn stream(store: &dyn BlockStore, entry: &Entry) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut take = |piece: StreamPiece<'_>| {
        match piece {
            StreamPiece::Bytes(bytes) => hasher.update(bytes),
            StreamPiece::Zeros(count) => hasher.update(&vec![0; usize::try_from(count).unwrap()]),
        };
        Ok(())
    };
    TreeReader::new(store, entry).stream(&mut take).unwrap();
    hasher.finalize().to_hex().to_string()
}

fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(b"a file").finalize_xof().fill(&mut bytes);
    bytes
}
