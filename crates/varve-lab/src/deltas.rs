//! `varve-lab deltas`: the space that deltas would save in a store with versions of one file.
//!
//! A changed block may be stored as a delta against the block that the version before has at the
//! same place, so that it needs no index of similar blocks. The base of a delta is never a delta.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use serde_json::{Value, json};
use varve_block::to_usize;
use zstd_safe::{CCtx, compress_bound};

use crate::amount;

/// A delta is used if it takes at most this percentage of the whole block.
const DELTA_PERCENT_MAX: u64 = 60;

#[derive(Debug, Clone, Args)]
pub(crate) struct Deltas {
    /// The versions of a disk or a file, the oldest first
    #[arg(required = true)]
    versions: Vec<PathBuf>,

    /// The size of a block
    #[arg(long, value_name = "BYTES", default_value = "16K", value_parser = amount::bytes)]
    block_size: u64,

    /// The level of the compression
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=19))]
    level: i32,
}

/// The bytes that the blocks of one version take in a store that has the versions before.
#[derive(Debug, Clone, Copy, Default)]
struct StoredBytes {
    new_blocks: u64,
    delta_blocks: u64,
    /// Without deltas.
    whole: u64,
    with_deltas: u64,
}

/// A store of versions, of which only names and sizes are kept.
struct VersionStore {
    context: CCtx<'static>,
    level: i32,
    known: BTreeSet<[u8; 32]>,
    /// The whole block that a delta of each place would have as its base.
    bases: Vec<Vec<u8>>,
    buffer: Vec<u8>,
}

/// Compares the versions. `done` receives one object for each.
pub(crate) fn run(args: &Deltas, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let block_bytes = to_usize(args.block_size.clamp(512, 16 << 20));
    let mut store = VersionStore::new(args.level, block_bytes)?;
    for path in &args.versions {
        let named = || path.display().to_string();
        let mut file = File::open(path).with_context(named)?;
        let (mut stored, mut at) = (StoredBytes::default(), 0);
        loop {
            let mut block = Vec::with_capacity(block_bytes);
            Read::by_ref(&mut file).take(args.block_size).read_to_end(&mut block).with_context(named)?;
            if block.is_empty() {
                break;
            }
            store.put(at, block, &mut stored)?;
            at += 1;
        }
        done(json!({
            "type": "deltas",
            "block_bytes": block_bytes,
            "blocks": at,
            "new_blocks": stored.new_blocks,
            "delta_blocks": stored.delta_blocks,
            "stored_bytes": stored.whole,
            "stored_bytes_with_deltas": stored.with_deltas,
        }))?;
    }
    Ok(())
}

impl VersionStore {
    fn new(level: i32, block_bytes: usize) -> Result<Self> {
        let context = CCtx::try_create().context("no memory for a compressor")?;
        let buffer = vec![0; compress_bound(block_bytes)];
        Ok(Self { context, level, known: BTreeSet::new(), bases: Vec::new(), buffer })
    }

    /// Stores the block at a place of a version, unless a version before has it.
    fn put(&mut self, at: usize, block: Vec<u8>, stored: &mut StoredBytes) -> Result<()> {
        if self.bases.len() <= at {
            self.bases.resize(at + 1, Vec::new());
        }
        if !self.known.insert(*blake3::hash(&block).as_bytes()) {
            return Ok(());
        }
        let base = std::mem::take(&mut self.bases[at]);
        let whole = self.compressed(&block, &[])?;
        let delta = if base.is_empty() { whole } else { self.compressed(&block, &base)? };
        let is_delta = delta * 100 <= whole * DELTA_PERCENT_MAX;
        stored.new_blocks += 1;
        stored.delta_blocks += u64::from(is_delta);
        stored.whole += whole;
        stored.with_deltas += if is_delta { delta } else { whole };
        self.bases[at] = if is_delta { base } else { block };
        Ok(())
    }

    /// The bytes of a compressed block, given another one.
    fn compressed(&mut self, block: &[u8], given: &[u8]) -> Result<u64> {
        let length =
            self.context
                .compress_using_dict(self.buffer.as_mut_slice(), block, given, self.level)
                .map_err(|code| anyhow!("a block is not compressed: {}", zstd_safe::get_error_name(code)))?;
        Ok(length as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that do not compress.
    fn noise(seed: u64) -> Vec<u8> {
        let mut number = seed;
        let mut next = || {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 56).to_le_bytes()[0]
        };
        (0..4096).map(|_| next()).collect()
    }

    fn stored(versions: &[&[u8]]) -> Vec<Value> {
        let folder = tempfile::tempdir().unwrap();
        let paths = versions.iter().enumerate().map(|(number, bytes)| {
            let path = folder.path().join(number.to_string());
            std::fs::write(&path, bytes).unwrap();
            path
        });
        let args = Deltas { versions: paths.collect(), block_size: 4096, level: 1 };
        let mut found = Vec::new();
        run(&args, &mut |value| {
            found.push(value);
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn a_changed_block_is_a_delta_of_the_block_before() {
        let (one, other) = (noise(1), noise(2));
        let mut changed = one.clone();
        changed[100..104].copy_from_slice(b"more");
        let found = stored(&[
            &[one.as_slice(), &other].concat(),
            &[changed.as_slice(), &other].concat(),
            // A delta is never a base: this block is one of the first version.
            &[one.as_slice(), &noise(3), b"end"].concat(),
        ]);
        let figure = |version: usize, name: &str| found[version][name].as_u64().unwrap();
        assert_eq!((figure(0, "new_blocks"), figure(0, "delta_blocks")), (2, 0));
        assert_eq!(figure(0, "stored_bytes"), figure(0, "stored_bytes_with_deltas"));
        assert_eq!((figure(1, "new_blocks"), figure(1, "delta_blocks")), (1, 1));
        assert!(figure(1, "stored_bytes") > 4096, "{found:?}");
        assert!(figure(1, "stored_bytes_with_deltas") < 64, "{found:?}");
        assert_eq!((figure(2, "blocks"), figure(2, "new_blocks"), figure(2, "delta_blocks")), (3, 2, 0));
    }
}
