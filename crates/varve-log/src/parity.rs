//! Parity: recovery shards of a sealed arena. Damaged parts of the arena can be computed from them
//! without a second copy.
//!
//! ```text
//! parity file  │ header │ table of group 0 │ recovery shards of group 0 │ … │ all tables again │ header again │
//! ```
//!
//! The arena's file is cut into *shards*; the last one is padded with zeros. 64 neighbouring shards
//! are a *piece*; piece P belongs to *group* P modulo `group_count`. Each group is a separate
//! Reed–Solomon code: if a group has N data shards, any N good shards, data or recovery, are enough
//! to compute all others. A *table* has a code for each shard, which distinguishes good shards from
//! bad ones.
//!
//! The header has 4096 bytes. The bytes after the fields of this table are zeros:
//!
//! | offset | bytes | field             | meaning                                                                    |
//! |-------:|------:|-------------------|----------------------------------------------------------------------------|
//! |      0 |     8 | magic             | `varvePR1`                                                                 |
//! |      8 |     4 | version           | 1                                                                          |
//! |     12 |     4 | percent           | recovery shards for a hundred data shards: 1 to 100                        |
//! |     16 |    16 | store_id          | the store's identity                                                       |
//! |     32 |     8 | arena             | the arena's number                                                         |
//! |     40 |     4 | generation        | the arena's generation                                                     |
//! |     44 |     4 | shard_bytes       | length of a shard: a power of two from 4,096 to 65,536                     |
//! |     48 |     8 | arena_bytes       | length of the arena's file                                                 |
//! |     56 |     4 | group_count       |                                                                            |
//! |     60 |     4 | zero              |                                                                            |
//! |     64 |    32 | arena_header_code | the header code of the arena                                               |
//! |     96 |    32 | arena_seal_code   | the seal code of the arena                                                 |
//! |    128 |    32 | parity_code       | `BLAKE3(parity key, bytes 0..128)`                                         |
//!
//! A table consists of blocks of 4096 bytes. They hold the codes of the group's data shards,
//! followed by those of its recovery shards:
//!
//! | offset | bytes | field      | meaning                                                                           |
//! |-------:|------:|------------|-----------------------------------------------------------------------------------|
//! |      0 |  4080 | codes      | of 255 shards: the first 16 bytes of `BLAKE3(file key, the shard)`; zeros if there are fewer |
//! |   4080 |    16 | block_code | the first 16 bytes of `BLAKE3(file key, "table" ‖ group as u32 ‖ number of the block in its table as u32 ‖ codes)` |
//!
//! Invariants:
//! - A shard is used only if its code matches. A block of a table is taken from the copy that is
//!   good.
//! - Every writer can make parity, also one without the read key: parity covers the bytes on the
//!   disk.
//! - Everything is bounded: a group with its recovery shards has at most 128 MiB.
//!
//! This module is pure: bytes in, bytes out. The store reads and writes the files.

mod codec;
mod header;
mod layout;
mod table;

pub use codec::{TooFewShards, rebuild, recovery_of};
pub use header::{ParityHeader, ParityHeaderError};
pub use layout::{PARITY_HEADER_BYTES, ParityLayout, ParityPercent};
pub use table::{PARITY_BLOCK_BYTES, ParityKey, ShardCode};
