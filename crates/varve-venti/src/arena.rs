//! The files of plan9port's Venti: its log of blocks, as partitions of arenas. Numbers are
//! big-endian. This module only decodes bytes: the caller reads them and checks hashes.
//!
//! ```text
//! partition: 256 KiB ─ header ─ table of arenas ─ arena ─ arena ─ …
//! arena:     head │ clump clump clump …  free  … directory, its first block last │ trailer, score
//! ```

mod clump;
mod head;
mod partition;
mod trailer;

use varve_block::BigEndian;

pub use clump::{CLUMP_HEADER_BYTES, ClumpHeader, DIRECTORY_ENTRY_BYTES, OpenVentiClumpError};
pub use head::{ARENA_HEAD_BYTES, ArenaHead, DecodeArenaHeadError};
pub use partition::{
    ArenaPlace, DecodePartitionError, PARTITION_HEADER_AT, PARTITION_HEADER_BYTES, PartitionHeader,
};
pub use trailer::{ArenaTrailer, DecodeArenaTrailerError};

/// The length of an arena's name, padded with zeros.
const NAME_BYTES: usize = 64;

/// Reads the name of an arena.
fn read_name(from: &mut BigEndian<'_>) -> Option<String> {
    let name = from.take(NAME_BYTES)?;
    let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Reports whether a Venti server may use this block size in its files.
fn is_block_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && (512..=65_536).contains(&bytes)
}
