//! What a server answers to an option.
//!
//! A reply is a magic (8 bytes), the number of the option (4 bytes), the kind of reply (4 bytes), the length of its data (4 bytes),
//! and its data.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::export::{BlockSizes, Listed, TransmissionFlags};
use crate::fields::{Fields, length_u32, put_text};
use crate::wire::{
    INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, OPTION_REPLY_HEAD_BYTES, OPTION_REPLY_MAGIC,
    REPLY_ACK, REPLY_INFO, REPLY_IS_ERROR, REPLY_META_CONTEXT, REPLY_SERVER,
};
use crate::{MESSAGE_BYTES_MAX, OPTION_BYTES_MAX};

/// One reply to an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionReply {
    /// Done.
    Ack,
    /// An export that there is.
    Server(Listed),
    /// How large an export is, and what can be done with it.
    Export {
        /// In bytes.
        size: u64,
        /// What can be done with it.
        flags: TransmissionFlags,
    },
    /// The name that the server itself uses for an export.
    Name(String),
    /// What an export is.
    Description(String),
    /// Of which sizes requests are to be.
    BlockSize(BlockSizes),
    /// Something else about an export, which is not of interest.
    OtherInfo(u16),
    /// A context, and the number that it is known by from here on.
    Context {
        /// Its number.
        id: u32,
        /// Its name.
        name: String,
    },
    /// No.
    Refused(Refusal),
    /// A kind of reply that is not known.
    Unknown(u32),
}

/// A no, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub kind: RefusalKind,
    /// For people; may be empty.
    pub message: String,
}

impl Refusal {
    /// A no of this kind.
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

/// The kinds of no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The option is not known.
    Unsupported,
    /// It is known and not allowed.
    Policy,
    /// The option's data makes no sense, or not now.
    Invalid,
    /// It cannot be done on this machine.
    Platform,
    /// Not before TLS was started.
    TlsRequired,
    /// There is no such export.
    UnknownExport,
    /// The server is being shut down.
    Shutdown,
    /// The client must ask for block sizes, and keep to them.
    BlockSizeRequired,
    /// The option is too large.
    TooBig,
    /// Something else.
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
            Self::Platform => "the machine cannot do it",
            Self::TlsRequired => "TLS must be started first",
            Self::UnknownExport => "there is no such export",
            Self::Shutdown => "the server is shutting down",
            Self::BlockSizeRequired => "block sizes must be asked for",
            Self::TooBig => "it is too large",
            Self::Other(number) => return write!(f, "it was refused with {number}"),
        };
        f.write_str(text)
    }
}

/// Why bytes are no reply to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeOptionReplyError {
    /// It begins otherwise.
    #[error("a reply to an option begins with {found:#018x}, which is not its magic")]
    Magic {
        /// How.
        found: u64,
    },
    /// It is longer than any real one.
    #[error(
        "a reply to option {option} announces {claimed} bytes, and none has more than {OPTION_BYTES_MAX}"
    )]
    TooLong {
        /// The number of the option.
        option: u32,
        /// Its length, as it says.
        claimed: u32,
    },
    /// Its data is not what such a reply has.
    #[error("a reply of kind {kind} to option {option} is malformed")]
    Malformed {
        /// The number of the option.
        option: u32,
        /// The kind of reply.
        kind: u32,
    },
}

impl OptionReply {
    /// Appends it, as a reply to an option, to what is to be sent.
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

    /// Reads the reply that `bytes` begin with: the option that it answers, the reply, and how many bytes it has. `None` while it is
    /// not whole.
    ///
    /// # Errors
    /// [`DecodeOptionReplyError`]: the other side speaks another language.
    pub fn decode(bytes: &[u8]) -> Result<Option<(u32, Self, usize)>, DecodeOptionReplyError> {
        let mut head = Fields(bytes);
        let Some(magic) = head.u64() else { return Ok(None) };
        if magic != OPTION_REPLY_MAGIC {
            return Err(DecodeOptionReplyError::Magic { found: magic });
        }
        let (Some(option), Some(kind), Some(claimed)) = (head.u32(), head.u32(), head.u32()) else {
            return Ok(None);
        };
        let length = usize::try_from(claimed).unwrap_or(usize::MAX);
        if length > OPTION_BYTES_MAX {
            return Err(DecodeOptionReplyError::TooLong { option, claimed });
        }
        let Some(data) = head.bytes(length) else { return Ok(None) };
        let reply = Self::from_data(kind, data).ok_or(DecodeOptionReplyError::Malformed { option, kind })?;
        Ok(Some((option, reply, OPTION_REPLY_HEAD_BYTES.saturating_add(length))))
    }

    fn from_data(kind: u32, data: &[u8]) -> Option<Self> {
        let mut data = Fields(data);
        let reply = match kind {
            REPLY_ACK => Self::Ack,
            REPLY_SERVER => {
                let name = text(data.text()?)?;
                Self::Server(Listed { name, description: text(data.rest())? })
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
