//! Venti's protocol, for servers and clients: bytes in, messages out, no sockets.
//!
//! ```text
//!            ServerConnection ──▶ Request ─ ─ ▶ the shell ─ ─ ▶ Reply::encode
//! bytes ──▶                                                                     ──▶ bytes
//!            ClientConnection ──▶ Answer        ClientConnection::ask ◀ ─ ─ the shell
//! ```
//!
//! A connection begins with one line from each side that lists the versions that it speaks. Neither
//! side waits for the other's line. Then come messages, each with its length in front: 2 bytes in
//! version 02, 4 bytes in version 04.
//!
//! ```text
//! ┌────────┬──────┬─────┬──────────┐
//! │ length │ type │ tag │ the rest │   big-endian; the length counts type, tag and rest
//! └────────┴──────┴─────┴──────────┘
//! ```
//!
//! Requests have even types, and each reply has the next odd number. A reply carries the tag that
//! the client chose for its request.
//!
//! Read first: `request.rs` (the messages), `server.rs` and `client.rs` (the two sides of a
//! connection).
//!
//! Invariants:
//! - Any slicing of the stream gives the same messages.
//! - An announced length is compared with a limit before it is used, and memory is allocated only
//!   for bytes that have arrived. A message that is too long to be kept is skipped as it arrives,
//!   and answered with an error.
//! - A malformed message with a readable tag gets an error, and the connection continues, as with
//!   other Venti programs.
//! - A client accepts an answer only if it matches an outstanding request. The caller compares the
//!   bytes of a block with the requested score.
//!
//! Besides the protocol: [`PartitionHeader`], [`ArenaHead`], [`ArenaTrailer`] and [`ClumpHeader`]
//! decode the files in which plan9port's Venti keeps its blocks, and [`unwhack`] decompresses them.
//!
//! This crate does not know stores, and starts no thread.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod address;
mod arena;
mod client;
mod error_text;
mod frames;
mod reply;
mod request;
mod server;
mod text;
mod version;
mod whack;
mod wire_type;

pub use address::{Address, ParseAddressError};
pub use arena::{
    ARENA_HEAD_BYTES, ArenaHead, ArenaPlace, ArenaTrailer, CLUMP_HEADER_BYTES, ClumpHeader,
    DIRECTORY_ENTRY_BYTES, DecodeArenaHeadError, DecodeArenaTrailerError, DecodePartitionError,
    OpenVentiClumpError, PARTITION_HEADER_AT, PARTITION_HEADER_BYTES, PartitionHeader,
};
pub use client::{AskError, ClientConnection, ClientError, VentiAnswer};
pub use error_text::{
    COLLISION_TEXT, LUMP_TOO_LARGE_TEXT, READ_ONLY_TEXT, READ_TOO_SMALL_TEXT, is_missing, missing,
    read_too_small,
};
pub use frames::{FrameError, MessageDecoder, VentiMessage};
pub use reply::{DecodeReplyError, EncodeReplyError, Hello, VentiReply, encode_read_head};
pub use request::{ClientHello, DecodeRequestError, EncodeRequestError, VentiRequest};
pub use server::{ReceivedMessage, ServerConnection, ServerError};
pub use version::{Version, VersionError, VersionLine};
pub use whack::{UnwhackError, unwhack};
pub use wire_type::WireType;

/// The length of a score (SHA-1).
pub const SCORE_BYTES: usize = varve_block::SHA1_BYTES;
/// The default port of a Venti server.
pub const PORT: u16 = 17034;
/// The maximum number of outstanding requests: the number of tags.
pub const UNANSWERED_MAX: usize = 256;
/// The longest text in a message, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;
/// The longest version line without its newline, in bytes.
pub(crate) const VERSION_LINE_BYTES_MAX: usize = 1022;
/// The largest block that all servers accept.
pub const BLOCK_BYTES_MAX: usize = 57_344;
/// The longest message that is skipped if it is too long to be kept. A longer one ends the
/// connection.
pub(crate) const SKIPPED_BYTES_MAX: u32 = 16 << 20;
/// Bytes of a write before its data: type, tag, block type, padding.
pub(crate) const WRITE_HEAD_BYTES: usize = 6;
