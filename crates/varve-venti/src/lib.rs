//! Venti's protocol, in both roles: bytes in, messages out, no sockets.
//!
//! ```text
//!            ServerConnection ──▶ Request ─ ─ ▶ the shell ─ ─ ▶ Reply::encode
//! bytes ──▶                                                                     ──▶ bytes
//!            ClientConnection ──▶ Answer        ClientConnection::ask ◀ ─ ─ the shell
//! ```
//!
//! A connection begins with one line from each side that lists the versions that it speaks, sent without waiting for the other's. Then come
//! messages, each with its length before it, of 2 bytes in version 02 and of 4 in version 04:
//!
//! ```text
//! ┌────────┬──────┬─────┬──────────┐
//! │ length │ type │ tag │ the rest │     all numbers are big-endian; the length counts type, tag and rest
//! └────────┴──────┴─────┴──────────┘
//! ```
//!
//! Requests have even types, replies the next odd number, and the client's tag tells which reply is whose.
//!
//! What must always be true:
//! - Any slicing of the stream gives the same messages.
//! - A length that the other side claims is compared with a limit before it is believed, and memory is taken for bytes that have come, not
//!   for bytes that are announced. What is too long to be kept is skipped as it comes, and answered with an error.
//! - A message that makes no sense is an error of that message, where its tag can be told; the connection goes on, as it does with the
//!   programs that everybody else uses.
//! - A client believes no answer that is not exactly one to what it asked. That the bytes have the score that was asked for is for whoever can
//!   hash them.
//!
//! Beside the protocol: [`PartitionHeader`], [`ArenaHead`], [`ArenaTrailer`] and [`ClumpHeader`] read the files in which plan9port's Venti keeps its
//! blocks, and [`unwhack`] undoes how it compresses them.
//!
//! This crate does not know what a store is, and starts no thread.

mod address;
mod arena;
mod client;
mod error_text;
mod fields;
mod frames;
mod reply;
mod request;
mod server;
mod version;
mod whack;
mod wire_type;

pub use address::{Address, ParseAddressError};
pub use arena::{
    ARENA_HEAD_BYTES, ARENA_TRAILER_BYTES, ArenaHead, ArenaPlace, ArenaTrailer, CLUMP_HEADER_BYTES,
    ClumpHeader, DIRECTORY_ENTRY_BYTES, DecodeArenaHeadError, DecodeArenaTrailerError, DecodePartitionError,
    OpenClumpError, PARTITION_HEADER_AT, PARTITION_HEADER_BYTES, PartitionHeader,
};
pub use client::{Answer, AskError, ClientConnection, ClientError};
pub use error_text::{
    COLLISION_TEXT, LUMP_TOO_LARGE_TEXT, MISSING_TEXT, READ_ONLY_TEXT, READ_TOO_SMALL_TEXT, is_missing,
    missing, read_too_small,
};
pub use frames::{FrameError, Message, Messages};
pub use reply::{DecodeReplyError, EncodeReplyError, Hello, Reply, encode_read_head};
pub use request::{ClientHello, DecodeRequestError, EncodeRequestError, Request};
pub use server::{Received, ServerConnection, ServerError};
pub use version::{Version, VersionError, VersionLine};
pub use whack::{UnwhackError, unwhack};
pub use wire_type::WireType;

/// How many bytes a score has: SHA-1's.
pub const SCORE_BYTES: usize = varve_block::SHA1_BYTES;
/// The port of a Venti server.
pub const PORT: u16 = 17034;
/// How many requests can be unanswered: there are no more tags.
pub const UNANSWERED_MAX: usize = 256;
/// The longest text in a message, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;
/// The longest version line, without its end, in bytes.
pub const VERSION_LINE_BYTES_MAX: usize = 1022;
/// The largest block that everybody's servers take.
pub const BLOCK_BYTES_MAX: usize = 57_344;
/// A message longer than this ends the connection; a shorter one that is still too long for whoever reads it is skipped.
pub const SKIPPED_BYTES_MAX: u32 = 16 << 20;
/// Bytes of a write before its data: type, tag, block type, padding.
pub const WRITE_HEAD_BYTES: usize = 6;
