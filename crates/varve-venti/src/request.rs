//! Requests of a client.
//!
//! | type | name    | after type and tag                                                         |
//! |-----:|---------|----------------------------------------------------------------------------|
//! |    2 | ping    | nothing                                                                    |
//! |    4 | hello   | version and uid (texts), strength (1 byte), crypto and codec (short bytes) |
//! |    6 | goodbye | nothing; it has no reply                                                   |
//! |   12 | read    | score (20 bytes), block type (1), padding (1), maximum length (2 or 4)     |
//! |   14 | write   | block type (1), padding (3), the block                                     |
//! |   16 | sync    | nothing                                                                    |
//!
//! A text has a length of 2 bytes in front, and short bytes have a length of 1 byte.

use bytes::{Buf as _, Bytes};
use varve_block::BigEndian;

use crate::frames::put_head;
use crate::text::{put_text, read_text};
use crate::version::Version;
use crate::wire_type::WireType;
use crate::{SCORE_BYTES, TEXT_BYTES_MAX};

pub(crate) const PING: u8 = 2;
pub(crate) const HELLO: u8 = 4;
pub(crate) const GOODBYE: u8 = 6;
pub(crate) const READ: u8 = 12;
pub(crate) const WRITE: u8 = 14;
pub(crate) const SYNC: u8 = 16;

/// The length of a read after type and tag, without its count.
const READ_BYTES: usize = SCORE_BYTES + 2;
/// The length of a write between the tag and the block.
const WRITE_BYTES: usize = 4;

/// A client's hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The chosen version.
    pub version: String,
    /// Free text.
    pub uid: String,
    /// The desired strength of encryption. No implementation offers any.
    pub strength: u8,
    /// The ciphers that the client knows. Other servers accept at most four, and an empty list is
    /// the safest.
    pub crypto: Bytes,
    /// The compressions that the client knows. Other servers accept at most four, and an empty list
    /// is the safest.
    pub codec: Bytes,
}

impl ClientHello {
    /// The hello that all clients send.
    #[must_use]
    pub fn anonymous(version: Version) -> Self {
        Self {
            version: version.name().into(),
            uid: "anonymous".into(),
            strength: 0,
            crypto: Bytes::new(),
            codec: Bytes::new(),
        }
    }
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VentiRequest {
    /// Asks for an answer only.
    Ping,
    /// The first request, and never a later one.
    Hello(ClientHello),
    /// The client ends the connection.
    Goodbye,
    Read {
        score: [u8; SCORE_BYTES],
        wire_type: WireType,
        /// The maximum length that the client accepts.
        count: u32,
        /// Set if the count has 4 bytes. Both widths are decoded in both versions.
        is_wide: bool,
    },
    /// Stores a block.
    Write { wire_type: WireType, data: Bytes },
    /// Makes everything durable that was answered before.
    Sync,
}

/// Why a message is not a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeRequestError {
    #[error("unknown request")]
    Unknown { kind: u8 },
    /// Too few bytes, too many bytes, or an invalid text.
    #[error("malformed {what}")]
    Malformed {
        /// The kind of request.
        what: &'static str,
    },
}

/// Why a request cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeRequestError {
    /// The version's length field is too short.
    #[error("a block of {bytes} bytes cannot be sent in version {}", version.name())]
    TooLong {
        /// The length of the block.
        bytes: usize,
        /// The negotiated version.
        version: Version,
    },
}

impl VentiRequest {
    /// A read of at most `count` bytes, encoded as other clients do.
    #[must_use]
    pub const fn read(score: [u8; SCORE_BYTES], wire_type: WireType, count: u32) -> Self {
        Self::Read { score, wire_type, count, is_wide: count > u16::MAX as u32 }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`DecodeRequestError`]
    pub fn decode(kind: u8, mut body: Bytes) -> Result<Self, DecodeRequestError> {
        let empty = |request, what| {
            if body.is_empty() { Ok(request) } else { Err(DecodeRequestError::Malformed { what }) }
        };
        match kind {
            PING => empty(Self::Ping, "ping"),
            GOODBYE => empty(Self::Goodbye, "goodbye"),
            SYNC => empty(Self::Sync, "sync"),
            HELLO => {
                let hello = decode_hello(&body).ok_or(DecodeRequestError::Malformed { what: "hello" })?;
                Ok(Self::Hello(hello))
            }
            READ => decode_read(&body).ok_or(DecodeRequestError::Malformed { what: "read" }),
            WRITE if body.len() < WRITE_BYTES => Err(DecodeRequestError::Malformed { what: "write" }),
            WRITE => {
                let wire_type = WireType::from_byte(body.get_u8());
                body.advance(WRITE_BYTES.saturating_sub(1));
                Ok(Self::Write { wire_type, data: body })
            }
            _ => Err(DecodeRequestError::Unknown { kind }),
        }
    }

    /// Appends the request.
    ///
    /// # Errors
    /// [`EncodeRequestError`]; nothing was appended.
    ///
    /// # Panics
    /// If a hello lists more than 255 ciphers or compressions.
    pub fn encode(&self, version: Version, tag: u8, into: &mut Vec<u8>) -> Result<(), EncodeRequestError> {
        let mut put = |kind, rest| {
            put_head(into, version, kind, tag, rest).expect("far shorter than any version's longest")
        };
        match self {
            Self::Ping => put(PING, 0),
            Self::Goodbye => put(GOODBYE, 0),
            Self::Sync => put(SYNC, 0),
            Self::Hello(hello) => {
                let rest = encode_hello(hello);
                put(HELLO, rest.len());
                into.extend_from_slice(&rest);
            }
            Self::Read { score, wire_type, count, is_wide } => {
                let narrow = u16::try_from(*count).ok().filter(|_| !is_wide);
                put(READ, READ_BYTES.saturating_add(if narrow.is_some() { 2 } else { 4 }));
                into.extend_from_slice(score);
                into.extend_from_slice(&[wire_type.to_byte(), 0]);
                match narrow {
                    Some(count) => into.extend_from_slice(&count.to_be_bytes()),
                    None => into.extend_from_slice(&count.to_be_bytes()),
                }
            }
            Self::Write { wire_type, data } => return encode_write(into, version, tag, *wire_type, data),
        }
        Ok(())
    }
}

/// Appends a write of a borrowed block.
pub(crate) fn encode_write(
    into: &mut Vec<u8>,
    version: Version,
    tag: u8,
    wire_type: WireType,
    data: &[u8],
) -> Result<(), EncodeRequestError> {
    let length = into.len();
    if put_head(into, version, WRITE, tag, data.len().saturating_add(WRITE_BYTES)).is_none() {
        into.truncate(length);
        return Err(EncodeRequestError::TooLong { bytes: data.len(), version });
    }
    into.extend_from_slice(&[wire_type.to_byte(), 0, 0, 0]);
    into.extend_from_slice(data);
    Ok(())
}

fn decode_hello(body: &Bytes) -> Option<ClientHello> {
    let mut fields = BigEndian::new(body);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let hello = ClientHello {
        version: text(read_text(&mut fields)?)?,
        uid: text(read_text(&mut fields)?)?,
        strength: fields.u8()?,
        crypto: body.slice_ref(read_short(&mut fields)?),
        codec: body.slice_ref(read_short(&mut fields)?),
    };
    fields.is_empty().then_some(hello)
}

/// Reads bytes with a length of one byte in front.
fn read_short<'a>(from: &mut BigEndian<'a>) -> Option<&'a [u8]> {
    let length = usize::from(from.u8()?);
    from.take(length)
}

fn encode_hello(hello: &ClientHello) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TEXT_BYTES_MAX);
    put_text(&mut bytes, &hello.version);
    put_text(&mut bytes, &hello.uid);
    bytes.push(hello.strength);
    for list in [&hello.crypto, &hello.codec] {
        bytes.push(u8::try_from(list.len()).expect("no list has more than 255 members"));
        bytes.extend_from_slice(list);
    }
    bytes
}

fn decode_read(body: &[u8]) -> Option<VentiRequest> {
    let mut fields = BigEndian::new(body);
    let score = fields.array()?;
    let wire_type = WireType::from_byte(fields.u8()?);
    fields.u8()?;
    let is_wide = fields.left().len() != 2;
    let count = if is_wide { fields.u32()? } else { u32::from(fields.u16()?) };
    fields.is_empty().then_some(VentiRequest::Read { score, wire_type, count, is_wide })
}
