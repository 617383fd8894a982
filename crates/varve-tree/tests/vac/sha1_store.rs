//! A store in memory with Venti's scores, filled with blocks that real programs wrote.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use parking_lot::Mutex;
use sha1::{Digest, Sha1};
use varve_block::{
    Block, BlockKind, BlockName, BlockStore, BlockType, GetError, PutError, Score, SyncError, from_hex,
};

#[derive(Default)]
pub struct Sha1Store(Mutex<BTreeMap<BlockName, Bytes>>);

impl Sha1Store {
    /// The blocks of an archive in `fixtures/vac`, and its score. `None` if `gzip` is not installed
    /// to unpack them.
    pub fn with_archive(name: &str) -> Option<(Self, Score)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/vac").join(name);
        let Ok(unpacked) = Command::new("gzip").arg("-dc").arg(folder.join("blocks.gz")).output() else {
            eprintln!("SKIPPED {name}: there is no gzip");
            return None;
        };
        let store = Self::default();
        let text = String::from_utf8(unpacked.stdout).unwrap();
        for line in text.lines() {
            let fields: Vec<_> = line.split(' ').collect();
            let block_type = match fields[0].parse().unwrap() {
                1 => BlockType::ROOT,
                2 => BlockType::DIRECTORY,
                13 => BlockType::DATA,
                pointer => BlockType::at_depth(BlockKind::Data, pointer - 2).unwrap(),
            };
            let bytes = from_hex(fields[2]).unwrap();
            assert_eq!(store.put(Block { block_type, bytes: &bytes }).unwrap().to_string(), fields[1]);
        }
        let line = std::fs::read_to_string(folder.join("archive.vac")).unwrap();
        Some((store, Score::from_hex(line.trim().strip_prefix("vac:").unwrap()).unwrap()))
    }

    pub fn names(&self) -> BTreeSet<BlockName> {
        self.0.lock().keys().copied().collect()
    }
}

fn score_of(bytes: &[u8]) -> Score {
    Score::try_from(Sha1::digest(bytes).as_slice()).unwrap()
}

impl BlockStore for Sha1Store {
    fn score_bytes(&self) -> usize {
        20
    }

    fn empty_score(&self) -> Score {
        score_of(&[])
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let score = score_of(block.bytes);
        let name = BlockName { score, block_type: block.block_type };
        self.0.lock().insert(name, Bytes::copy_from_slice(block.bytes));
        Ok(score)
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.0.lock().get(name).cloned().ok_or(GetError::NotFound { name: *name })
    }

    fn sync(&self) -> Result<(), SyncError> {
        Ok(())
    }
}
