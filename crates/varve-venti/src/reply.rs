//! Replies of a server.
//!
//! | type | name  | after type and tag                               |
//! |-----:|-------|--------------------------------------------------|
//! |    1 | error | text                                             |
//! |    3 | ping  | nothing                                          |
//! |    5 | hello | sid (text), cipher (1 byte), compression (1)     |
//! |   13 | read  | the block                                        |
//! |   15 | write | score (20 bytes)                                 |
//! |   17 | sync  | nothing                                          |

use bytes::Bytes;
use varve_block::BigEndian;

use crate::frames::put_head;
use crate::text::{put_text, read_text};
use crate::version::Version;
use crate::{SCORE_BYTES, TEXT_BYTES_MAX};

pub(crate) const ERROR: u8 = 1;
pub(crate) const PING: u8 = 3;
pub(crate) const HELLO: u8 = 5;
pub(crate) const READ: u8 = 13;
pub(crate) const WRITE: u8 = 15;
pub(crate) const SYNC: u8 = 17;

/// A server's hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Free text.
    pub sid: String,
    /// The chosen cipher; 0 for none.
    pub crypto: u8,
    /// The chosen compression; 0 for none.
    pub codec: u8,
}

impl Hello {
    /// The hello that all servers send.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { sid: "anonymous".into(), crypto: 0, codec: 0 }
    }
}

/// A reply of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VentiReply {
    Error(String),
    Ping,
    /// The handshake is complete.
    Hello(Hello),
    Read(Bytes),
    /// The score of the written block.
    Write([u8; SCORE_BYTES]),
    /// Everything is durable.
    Sync,
}

/// Why a message is not a reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeReplyError {
    #[error("the reply type {kind} is unknown")]
    Unknown { kind: u8 },
    /// Too few bytes, too many bytes, or an invalid text.
    #[error("a reply of type {kind} is malformed")]
    Malformed { kind: u8 },
}

/// Why a reply cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeReplyError {
    /// The version's length field is too short.
    #[error("a block of {bytes} bytes cannot be sent in version {}", version.name())]
    TooLong {
        /// The length of the block.
        bytes: usize,
        /// The negotiated version.
        version: Version,
    },
}

impl VentiReply {
    /// Decodes a message.
    ///
    /// # Errors
    /// [`DecodeReplyError`]
    pub fn decode(kind: u8, body: Bytes) -> Result<Self, DecodeReplyError> {
        let malformed = || DecodeReplyError::Malformed { kind };
        let empty = |reply| if body.is_empty() { Ok(reply) } else { Err(malformed()) };
        match kind {
            PING => empty(Self::Ping),
            SYNC => empty(Self::Sync),
            READ => Ok(Self::Read(body)),
            WRITE => body.as_ref().try_into().map(Self::Write).map_err(|_| malformed()),
            ERROR => {
                let mut fields = BigEndian::new(&body);
                let text = read_text(&mut fields).filter(|_| fields.is_empty()).ok_or_else(malformed)?;
                // The text is for people. Invalid bytes in it need not hide the rest.
                Ok(Self::Error(String::from_utf8_lossy(text).into_owned()))
            }
            HELLO => decode_hello(&body).map(Self::Hello).ok_or_else(malformed),
            _ => Err(DecodeReplyError::Unknown { kind }),
        }
    }

    /// Appends the reply. An error text that is too long is cut.
    ///
    /// # Errors
    /// [`EncodeReplyError`]; nothing was appended.
    pub fn encode(&self, version: Version, tag: u8, into: &mut Vec<u8>) -> Result<(), EncodeReplyError> {
        let mut put = |kind, rest| {
            put_head(into, version, kind, tag, rest).expect("far shorter than any version's longest")
        };
        match self {
            Self::Ping => put(PING, 0),
            Self::Sync => put(SYNC, 0),
            Self::Write(score) => {
                put(WRITE, score.len());
                into.extend_from_slice(score);
            }
            Self::Error(text) => {
                let mut rest = Vec::with_capacity(text.len().min(TEXT_BYTES_MAX).saturating_add(2));
                put_text(&mut rest, text);
                put(ERROR, rest.len());
                into.extend_from_slice(&rest);
            }
            Self::Hello(hello) => {
                let mut rest = Vec::with_capacity(hello.sid.len().min(TEXT_BYTES_MAX).saturating_add(4));
                put_text(&mut rest, &hello.sid);
                rest.extend_from_slice(&[hello.crypto, hello.codec]);
                put(HELLO, rest.len());
                into.extend_from_slice(&rest);
            }
            Self::Read(block) => {
                encode_read_head(version, tag, block.len(), into)?;
                into.extend_from_slice(block);
            }
        }
        Ok(())
    }
}

/// Appends the part of a read reply that precedes the block. The caller sends the block after it.
///
/// # Errors
/// [`EncodeReplyError`]; nothing was appended.
pub fn encode_read_head(
    version: Version,
    tag: u8,
    block_bytes: usize,
    into: &mut Vec<u8>,
) -> Result<(), EncodeReplyError> {
    let length = into.len();
    if put_head(into, version, READ, tag, block_bytes).is_none() {
        into.truncate(length);
        return Err(EncodeReplyError::TooLong { bytes: block_bytes, version });
    }
    Ok(())
}

fn decode_hello(body: &[u8]) -> Option<Hello> {
    let mut fields = BigEndian::new(body);
    let sid = String::from_utf8_lossy(read_text(&mut fields)?).into_owned();
    let hello = Hello { sid, crypto: fields.u8()?, codec: fields.u8()? };
    fields.is_empty().then_some(hello)
}
