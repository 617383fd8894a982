//! The basic types: blocks, their types, their names, and the trait [`BlockStore`] on which all
//! other crates build.
//!
//! A *block* is up to [`BLOCK_BYTES_MAX`] bytes with a [`BlockType`]. Its name is a [`Score`]. A
//! [`BlockStore`] turns blocks into scores and scores back into blocks. It is the narrow interface
//! between the layers above and below, and knows nothing of files, snapshots or disks.
//!
//! Read first: `score.rs` (the name of a block), `store.rs` (the trait of all block stores) and
//! `contract.rs` (the promises that each of them keeps).
//!
//! Invariants: a successful `get` returns exactly the bytes that were passed to a `put` with the
//! same type; and the score that a `put` returns names those bytes for ever.

mod address;
mod block_type;
mod byte_reader;
mod causes;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod failure;
mod forward;
mod hex;
mod memory;
mod placed;
mod score;
mod sha1;
mod show_bytes;
mod store;
mod to_usize;
mod visible;

pub use address::{Fingerprint, LogAddress};
pub use block_type::{BlockKind, BlockType};
pub use byte_reader::{BigEndian, ByteReader, LittleEndian};
/// The type of a block's bytes, for [`forward_block_store`].
#[doc(hidden)]
pub use bytes::Bytes;
pub use causes::{causes, with_causes};
pub use failure::{FailureKind, HasKind};
pub use hex::{FromHexError, from_hex, to_hex};
pub use memory::MemoryBlockStore;
pub use placed::{
    CLUMP_NAME_BYTES, ClumpName, PLACED_MARK_BYTES, PLACED_SCORE_BYTES, PlacedName, SESSION_MARK_BYTES,
};
pub use score::{SCORE_BYTES_MAX, Score, ScoreFromSliceError};
pub use sha1::SHA1_BYTES;
pub use show_bytes::{show_bytes, show_count};
pub use store::{
    BLOCK_BYTES_MAX, Block, BlockName, BlockStore, ExpectedReads, GetError, PutError, PutHints, SyncError,
};
pub use to_usize::to_usize;
pub use visible::{misleads_terminal, visible, visible_name};
