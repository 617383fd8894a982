//! The network block device protocol, in both roles: bytes in, messages out, no sockets.
//!
//! ```text
//!            ServerNegotiation ──▶ Requests ──▶ Request ─ ─ ▶ the shell ─ ─ ▶ reply::encode_…
//! bytes ──▶                                                                                     ──▶ bytes
//!            ClientNegotiation ──▶ Replies  ──▶ Reply         Request::encode ◀ ─ ─ the shell
//! ```
//!
//! The fixed newstyle handshake and the transmission phase, as the public description of the protocol has them (`doc/proto.md` of the NBD
//! project): structured replies, block status, upgrading to TLS by whoever holds the socket. Extended headers are refused politely.
//!
//! What must always be true:
//! - Any slicing of the stream gives the same messages.
//! - A length that the other side claims is compared with a limit before it is believed, and memory is taken for bytes that have come, not
//!   for bytes that are announced.
//! - What the other side may not say ends the connection with an error that tells what it said; nothing is guessed.
//! - Nothing that came before TLS was started is believed after it.
//!
//! This crate does not know what is behind an export, and starts no thread.

mod client;
mod export;
mod fields;
mod inbox;
mod option;
mod option_reply;
mod reply;
mod request;
mod server;
mod wire;

pub use client::{ClientNegotiation, ConnectError, Connected, Replies, ReplyError, Wanted};
pub use export::{BlockSizes, ExportInfo, Listed, TransmissionFlags};
pub use option::{DecodeOptionError, OptionRequest};
pub use option_reply::{DecodeOptionReplyError, OptionReply, Refusal, RefusalKind};
pub use reply::{
    BLOCK_HOLE, BLOCK_ZERO, Chunk, Extent, Reply, encode_chunk, encode_data_chunk, encode_simple,
    encode_simple_data,
};
pub use request::{Command, CommandFlags, Request, RequestError, Requests};
pub use server::{Agreed, Exports, NegotiationError, ServerNegotiation, Step, TlsPolicy};
pub use wire::ErrorCode;

/// The name of the context that tells holes from data.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The longest name of an export or of a context, in bytes: the protocol's own limit.
pub const NAME_BYTES_MAX: usize = 4096;
/// The longest option, or reply to one, in bytes. Whoever announces more is not listened to any longer.
pub const OPTION_BYTES_MAX: usize = 64 << 10;
/// How many options one negotiation may take.
pub const OPTION_COUNT_MAX: usize = 64;
/// How many contexts may be asked for at once.
pub const QUERY_COUNT_MAX: usize = 64;
/// The most bytes that one request may read or write. It is what QEMU and the protocol's description take for granted.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// The most extents in one answer about block status.
pub const EXTENT_COUNT_MAX: usize = 1 << 17;
/// The longest text of an error.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// How many requests a client may have unanswered.
pub const UNANSWERED_MAX: usize = 1024;
