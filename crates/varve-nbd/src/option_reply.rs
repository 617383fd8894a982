//! Replies of a server to options.
//!
//! A reply is a magic (8 bytes), the number of the option (4), the kind of reply (4), the length of
//! its data (4), and its data.

use varve_block::{BigEndian, to_usize};

use crate::export::{BlockSizes, ListedExport, TransmissionFlags};
use crate::text::{length_u32, put_text, read_text};
use crate::wire::{
    INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, OPTION_REPLY_HEAD_BYTES, OPTION_REPLY_MAGIC,
    REPLY_ACK, REPLY_INFO, REPLY_IS_ERROR, REPLY_META_CONTEXT, REPLY_SERVER,
};
use crate::{MESSAGE_BYTES_MAX, OPTION_BYTES_MAX};

/// A decoded reply to an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionReply {
    Ack,
    /// An export, in the reply to a list.
    Server(ListedExport),
    /// The size and the capabilities of an export.
    Export {
        /// In bytes.
        size: u64,
        flags: TransmissionFlags,
    },
    /// The server's own name for an export.
    Name(String),
    /// The description of an export.
    Description(String),
    /// Constraints on the offsets and lengths of requests.
    BlockSize(BlockSizes),
    /// Unused information about an export.
    OtherInfo(u16),
    /// A context, with the number that identifies it from here on.
    Context {
        id: u32,
        name: String,
    },
    Refused(Refusal),
    /// A reply of an unknown kind.
    Unknown(u32),
}

/// A refusal with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub kind: RefusalKind,
    /// For people; may be empty.
    pub message: String,
}

impl Refusal {
    /// Makes a refusal of this kind.
    #[must_use]
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.message.as_str() {
            "" => write!(f, "{}", self.kind),
            message => write!(f, "{}: {message:?}", self.kind),
        }
    }
}

/// The kinds of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The server does not know the option.
    Unsupported,
    /// The server does not permit the option.
    Policy,
    /// The option's data is malformed, or does not fit the state of the negotiation.
    Invalid,
    /// The platform does not support the option.
    Platform,
    /// TLS must be started first.
    TlsRequired,
    /// There is no such export.
    UnknownExport,
    /// The server is shutting down.
    Shutdown,
    /// The client must request the block sizes, and respect them.
    BlockSizeRequired,
    /// The option is too large.
    TooBig,
    /// A kind that is not known here.
    Other(u32),
}

impl RefusalKind {
    fn number(self) -> u32 {
        let number = match self {
            Self::Unsupported => 1,
            Self::Policy => 2,
            Self::Invalid => 3,
            Self::Platform => 4,
            Self::TlsRequired => 5,
            Self::UnknownExport => 6,
            Self::Shutdown => 7,
            Self::BlockSizeRequired => 8,
            Self::TooBig => 9,
            Self::Other(number) => number,
        };
        number | REPLY_IS_ERROR
    }

    fn from_number(number: u32) -> Self {
        match number & !REPLY_IS_ERROR {
            1 => Self::Unsupported,
            2 => Self::Policy,
            3 => Self::Invalid,
            4 => Self::Platform,
            5 => Self::TlsRequired,
            6 => Self::UnknownExport,
            7 => Self::Shutdown,
            8 => Self::BlockSizeRequired,
            9 => Self::TooBig,
            other => Self::Other(other),
        }
    }
}

impl std::fmt::Display for RefusalKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Self::Unsupported => "it is not supported",
            Self::Policy => "it is not allowed",
            Self::Invalid => "it is not valid",
            Self::Platform => "the platform does not support it",
            Self::TlsRequired => "TLS must be started first",
            Self::UnknownExport => "there is no such export",
            Self::Shutdown => "the server is shutting down",
            Self::BlockSizeRequired => "block sizes must be requested",
            Self::TooBig => "it is too large",
            Self::Other(number) => return write!(f, "it was refused with the error {number}"),
        };
        f.write_str(text)
    }
}

/// Why bytes are not a reply to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeOptionReplyError {
    /// The magic is wrong.
    #[error("a reply to an option begins with {found:#018x} instead of its magic number")]
    Magic { found: u64 },
    /// The reply exceeds the limit.
    #[error("a reply to option {option} announces {claimed} bytes, but the limit is {OPTION_BYTES_MAX}")]
    TooLong {
        option: u32,
        /// The announced length.
        claimed: u32,
    },
    /// The data does not fit the kind of reply.
    #[error("a reply of kind {kind} to option {option} is malformed")]
    Malformed { option: u32, kind: u32 },
}

impl OptionReply {
    /// Appends the reply, to the option with this number, to the bytes to be sent.
    pub fn encode(&self, option: u32, into: &mut Vec<u8>) {
        let mut data = Vec::new();
        let kind = match self {
            Self::Ack => REPLY_ACK,
            Self::Server(listed) => {
                put_text(&mut data, &listed.name);
                data.extend_from_slice(listed.description.as_bytes());
                REPLY_SERVER
            }
            Self::Export { size, flags } => {
                data.extend_from_slice(&INFO_EXPORT.to_be_bytes());
                data.extend_from_slice(&size.to_be_bytes());
                data.extend_from_slice(&flags.0.to_be_bytes());
                REPLY_INFO
            }
            Self::Name(text) | Self::Description(text) => {
                let is_name = matches!(self, Self::Name(_));
                data.extend_from_slice(&if is_name { INFO_NAME } else { INFO_DESCRIPTION }.to_be_bytes());
                data.extend_from_slice(text.as_bytes());
                REPLY_INFO
            }
            Self::BlockSize(sizes) => {
                data.extend_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
                for size in [sizes.minimum, sizes.preferred, sizes.maximum] {
                    data.extend_from_slice(&size.to_be_bytes());
                }
                REPLY_INFO
            }
            Self::OtherInfo(kind) => {
                data.extend_from_slice(&kind.to_be_bytes());
                REPLY_INFO
            }
            Self::Context { id, name } => {
                data.extend_from_slice(&id.to_be_bytes());
                data.extend_from_slice(name.as_bytes());
                REPLY_META_CONTEXT
            }
            Self::Refused(refusal) => {
                let end = refusal.message.floor_char_boundary(MESSAGE_BYTES_MAX);
                data.extend_from_slice(refusal.message.get(..end).unwrap_or_default().as_bytes());
                refusal.kind.number()
            }
            Self::Unknown(kind) => *kind,
        };
        into.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        into.extend_from_slice(&option.to_be_bytes());
        into.extend_from_slice(&kind.to_be_bytes());
        into.extend_from_slice(&length_u32(data.len()).to_be_bytes());
        into.extend_from_slice(&data);
    }

    /// Decodes the reply at the front of `bytes`. Returns the number of the option, the reply, and
    /// its length; `None` if it is incomplete.
    ///
    /// # Errors
    /// [`DecodeOptionReplyError`]: the peer violates the protocol.
    pub fn decode(bytes: &[u8]) -> Result<Option<(u32, Self, usize)>, DecodeOptionReplyError> {
        let mut head = BigEndian::new(bytes);
        let Some(magic) = head.u64() else { return Ok(None) };
        if magic != OPTION_REPLY_MAGIC {
            return Err(DecodeOptionReplyError::Magic { found: magic });
        }
        let (Some(option), Some(kind), Some(claimed)) = (head.u32(), head.u32(), head.u32()) else {
            return Ok(None);
        };
        let length = to_usize(claimed);
        if length > OPTION_BYTES_MAX {
            return Err(DecodeOptionReplyError::TooLong { option, claimed });
        }
        let Some(data) = head.take(length) else { return Ok(None) };
        let reply = Self::from_data(kind, data).ok_or(DecodeOptionReplyError::Malformed { option, kind })?;
        Ok(Some((option, reply, OPTION_REPLY_HEAD_BYTES.saturating_add(length))))
    }

    fn from_data(kind: u32, data: &[u8]) -> Option<Self> {
        let mut data = BigEndian::new(data);
        let reply = match kind {
            REPLY_ACK => Self::Ack,
            REPLY_SERVER => {
                let name = text(read_text(&mut data)?)?;
                Self::Server(ListedExport { name, description: text(data.rest())? })
            }
            REPLY_INFO => match data.u16()? {
                INFO_EXPORT => Self::Export { size: data.u64()?, flags: TransmissionFlags(data.u16()?) },
                INFO_NAME => Self::Name(text(data.rest())?),
                INFO_DESCRIPTION => Self::Description(text(data.rest())?),
                INFO_BLOCK_SIZE => Self::BlockSize(BlockSizes {
                    minimum: data.u32()?,
                    preferred: data.u32()?,
                    maximum: data.u32()?,
                }),
                other => {
                    data.rest();
                    Self::OtherInfo(other)
                }
            },
            REPLY_META_CONTEXT => Self::Context { id: data.u32()?, name: text(data.rest())? },
            kind if kind & REPLY_IS_ERROR != 0 => {
                let message = String::from_utf8_lossy(data.rest()).into_owned();
                Self::Refused(Refusal { kind: RefusalKind::from_number(kind), message })
            }
            other => {
                data.rest();
                Self::Unknown(other)
            }
        };
        data.is_empty().then_some(reply)
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}
