//! The network block device protocol, for servers and clients: bytes in, messages out, no sockets.
//!
//! ```text
//!            ServerNegotiation ──▶ Requests ──▶ Request ─ ▶ the caller ─ ▶ reply::encode_…
//! bytes ──▶                                                                              ──▶ bytes
//!            ClientNegotiation ──▶ Replies  ──▶ Reply       Request::encode ◀ ─ the caller
//! ```
//!
//! It has the fixed newstyle handshake and the transmission phase of the public specification
//! (`doc/proto.md` of the NBD project), with structured replies, block status and TLS. The caller,
//! which holds the socket, starts TLS. Extended headers are refused in the way that the protocol
//! prescribes.
//!
//! Read first: `request.rs` (the messages), `server.rs` and `client.rs` (the two sides of the
//! handshake).
//!
//! Invariants:
//! - Any slicing of the stream gives the same messages.
//! - An announced length is compared with a limit before it is used, and memory is allocated only
//!   for bytes that have arrived.
//! - A protocol violation ends the connection with an error that describes it. Nothing is guessed.
//! - Bytes that arrived before TLS was started are not used after it.
//!
//! This crate does not know the disks behind the exports, and starts no thread.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod client;
mod export;
mod inbox;
mod option;
mod option_reply;
mod reply;
mod request;
mod server;
mod text;
mod wire;

pub use client::{ClientNegotiation, ConnectError, ConnectedExport, ExportRequest, Replies, ReplyError};
pub use export::{BlockSizes, ExportInfo, ListedExport, TransmissionFlags};
pub use option::{DecodeOptionError, OptionRequest};
pub use option_reply::{DecodeOptionReplyError, OptionReply, Refusal, RefusalKind};
pub use reply::{
    BLOCK_HOLE, BLOCK_ZERO, NbdReply, ReplyChunk, StatusExtent, encode_chunk, encode_data_chunk,
    encode_simple, encode_simple_data,
};
pub use request::{CommandFlags, NbdCommand, NbdRequest, RequestDecoder, RequestError};
pub use server::{
    Exports, NegotiatedExport, NegotiationError, NegotiationStep, ServerNegotiation, TlsPolicy,
};
pub use wire::ErrorCode;

/// The context that distinguishes holes from data.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The longest name of an export or of a context, in bytes. The protocol sets this limit.
pub const NAME_BYTES_MAX: usize = 4096;
/// The longest option or reply to an option, in bytes. A longer one ends the connection.
pub(crate) const OPTION_BYTES_MAX: usize = 64 << 10;
/// The maximum number of options in one negotiation.
pub const OPTION_COUNT_MAX: usize = 64;
/// The maximum number of contexts in one query.
pub(crate) const QUERY_COUNT_MAX: usize = 64;
/// The maximum length of a read or write. It is the default of the specification, and QEMU's limit.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// The maximum number of extents in one reply about block status.
pub const EXTENT_COUNT_MAX: usize = 1 << 17;
/// The longest text of an error, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// The maximum number of outstanding requests of a client.
pub const UNANSWERED_MAX: usize = 1024;
