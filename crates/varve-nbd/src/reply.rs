//! Replies of a server to requests.
//!
//! A simple reply is a magic (4 bytes), an error (4), the cookie (8), and the data of a successful
//! read. A chunk of a structured reply is a magic (4), flags (2), a kind (2), the cookie (8), the
//! length of its data (4), and its data.

use std::ops::Range;

use varve_block::BigEndian;

use crate::MESSAGE_BYTES_MAX;
use crate::text::length_u32;
use crate::wire::{
    CHUNK_BLOCK_STATUS, CHUNK_DATA, CHUNK_DONE, CHUNK_ERROR, CHUNK_ERROR_OFFSET, CHUNK_HOLE, CHUNK_IS_ERROR,
    CHUNK_MAGIC, CHUNK_NONE, ErrorCode, SIMPLE_REPLY_MAGIC,
};

/// In `base:allocation`: nothing is stored for these bytes.
pub const BLOCK_HOLE: u32 = 1;
/// In `base:allocation`: these bytes read as zeros.
pub const BLOCK_ZERO: u32 = 2;

/// A range of bytes with the same status in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusExtent {
    /// In bytes.
    pub length: u32,
    /// The status, whose bits depend on the context.
    pub flags: u32,
}

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyChunk {
    /// No data: the end of a successful reply.
    None,
    /// Data of a read.
    Data { offset: u64, bytes: Vec<u8> },
    /// Zeros of a read.
    Hole {
        offset: u64,
        /// In bytes.
        length: u32,
    },
    /// The status in one context, from the request's offset on.
    Status {
        /// The number of the context.
        context: u32,
        extents: Vec<StatusExtent>,
    },
    /// The request has failed.
    Error {
        /// For programs.
        code: ErrorCode,
        /// For people.
        message: String,
        /// The position of the failure, if it is known.
        offset: Option<u64>,
    },
}

/// One message of a server. A simple reply is represented by an equivalent chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdReply {
    /// The cookie of the request.
    pub cookie: u64,
    /// This is the last message for the request.
    pub done: bool,
    pub chunk: ReplyChunk,
}

/// Appends a simple reply without data.
pub fn encode_simple(into: &mut Vec<u8>, cookie: u64, error: Option<ErrorCode>) {
    into.extend_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    into.extend_from_slice(&error.map_or(0, |code| code.0).to_be_bytes());
    into.extend_from_slice(&cookie.to_be_bytes());
}

/// Appends a simple reply to a read, with zeros for the first `length` bytes of its data, and
/// returns their range. The caller replaces the zeros, and sends the rest of the data directly
/// after them.
pub fn encode_simple_data(into: &mut Vec<u8>, cookie: u64, length: usize) -> Range<usize> {
    encode_simple(into, cookie, None);
    append_zeros(into, length)
}

/// Appends a data chunk of `length` bytes of a structured reply, with zeros for the first `present`
/// bytes, and returns their range. The caller replaces the zeros, and sends the rest of the data
/// directly after them.
pub fn encode_data_chunk(
    into: &mut Vec<u8>,
    cookie: u64,
    done: bool,
    offset: u64,
    length: usize,
    present: usize,
) -> Range<usize> {
    head(into, cookie, done, CHUNK_DATA, length.saturating_add(8));
    into.extend_from_slice(&offset.to_be_bytes());
    append_zeros(into, present)
}

/// Appends a chunk of a structured reply.
pub fn encode_chunk(into: &mut Vec<u8>, cookie: u64, done: bool, chunk: &ReplyChunk) {
    match chunk {
        ReplyChunk::None => head(into, cookie, true, CHUNK_NONE, 0),
        ReplyChunk::Data { offset, bytes } => {
            head(into, cookie, done, CHUNK_DATA, bytes.len().saturating_add(8));
            into.extend_from_slice(&offset.to_be_bytes());
            into.extend_from_slice(bytes);
        }
        ReplyChunk::Hole { offset, length } => {
            head(into, cookie, done, CHUNK_HOLE, 12);
            into.extend_from_slice(&offset.to_be_bytes());
            into.extend_from_slice(&length.to_be_bytes());
        }
        ReplyChunk::Status { context, extents } => {
            head(into, cookie, done, CHUNK_BLOCK_STATUS, extents.len().saturating_mul(8).saturating_add(4));
            into.extend_from_slice(&context.to_be_bytes());
            for extent in extents {
                into.extend_from_slice(&extent.length.to_be_bytes());
                into.extend_from_slice(&extent.flags.to_be_bytes());
            }
        }
        ReplyChunk::Error { code, message, offset } => {
            let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
            let text = message.get(..end).unwrap_or_default().as_bytes();
            let kind = if offset.is_some() { CHUNK_ERROR_OFFSET } else { CHUNK_ERROR };
            let place_bytes = if offset.is_some() { 8 } else { 0 };
            head(into, cookie, done, kind, text.len().saturating_add(6).saturating_add(place_bytes));
            into.extend_from_slice(&code.0.to_be_bytes());
            into.extend_from_slice(&u16::try_from(text.len()).unwrap_or(0).to_be_bytes());
            into.extend_from_slice(text);
            if let Some(offset) = offset {
                into.extend_from_slice(&offset.to_be_bytes());
            }
        }
    }
}

fn head(into: &mut Vec<u8>, cookie: u64, done: bool, kind: u16, length: usize) {
    into.extend_from_slice(&CHUNK_MAGIC.to_be_bytes());
    into.extend_from_slice(&if done { CHUNK_DONE } else { 0 }.to_be_bytes());
    into.extend_from_slice(&kind.to_be_bytes());
    into.extend_from_slice(&cookie.to_be_bytes());
    into.extend_from_slice(&length_u32(length).to_be_bytes());
}

fn append_zeros(into: &mut Vec<u8>, length: usize) -> Range<usize> {
    let start = into.len();
    into.resize(start.saturating_add(length), 0);
    start..into.len()
}

impl ReplyChunk {
    /// Decodes a chunk's data; `None` if it is malformed.
    pub(crate) fn from_data(kind: u16, data: &[u8]) -> Option<Self> {
        let mut data = BigEndian::new(data);
        let chunk = match kind {
            CHUNK_NONE => Self::None,
            CHUNK_DATA => Self::Data { offset: data.u64()?, bytes: data.rest().to_vec() },
            CHUNK_HOLE => Self::Hole { offset: data.u64()?, length: data.u32()? },
            CHUNK_BLOCK_STATUS => {
                let context = data.u32()?;
                let (pairs, rest) = data.rest().as_chunks::<8>();
                if !rest.is_empty() || pairs.is_empty() {
                    return None;
                }
                let extent = |pair: &[u8; 8]| {
                    let mut fields = BigEndian::new(pair);
                    Some(StatusExtent { length: fields.u32()?, flags: fields.u32()? })
                };
                Self::Status { context, extents: pairs.iter().map(extent).collect::<Option<_>>()? }
            }
            kind if kind & CHUNK_IS_ERROR != 0 => {
                let code = ErrorCode(data.u32()?);
                let length = usize::from(data.u16()?);
                let message = String::from_utf8_lossy(data.take(length)?).into_owned();
                let offset = if kind == CHUNK_ERROR_OFFSET { Some(data.u64()?) } else { None };
                if kind != CHUNK_ERROR && kind != CHUNK_ERROR_OFFSET {
                    // A future kind of error may have more data.
                    data.rest();
                }
                Self::Error { code, message, offset }
            }
            _ => return None,
        };
        data.is_empty().then_some(chunk)
    }
}
