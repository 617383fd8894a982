//! Options: the requests of a client during the handshake.
//!
//! An option is the magic `IHAVEOPT`, a number (4 bytes), the length of its data (4), and its data.

use varve_block::{BigEndian, to_usize};

use crate::text::{length_u32, put_text, read_text};
use crate::wire::{
    OPTION_ABORT, OPTION_EXPORT_NAME, OPTION_GO, OPTION_HEAD_BYTES, OPTION_INFO, OPTION_LIST,
    OPTION_LIST_META_CONTEXT, OPTION_MAGIC, OPTION_SET_META_CONTEXT, OPTION_STARTTLS,
    OPTION_STRUCTURED_REPLY,
};
use crate::{NAME_BYTES_MAX, OPTION_BYTES_MAX, QUERY_COUNT_MAX};

/// A decoded option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionRequest {
    /// Use this export. The server can refuse it only by closing the connection.
    ExportName(String),
    /// The client ends the negotiation.
    Abort,
    /// List the exports.
    List,
    /// Switch to TLS.
    StartTls,
    /// Describe this export. Lists the kinds of information that the client wants.
    Info(String, Vec<u16>),
    /// Like `Info`, and use the export.
    Go(String, Vec<u16>),
    /// Enable structured replies.
    StructuredReply,
    /// List the contexts that match one of the queries.
    ListContexts(String, Vec<String>),
    /// Use these contexts.
    SetContexts(String, Vec<String>),
    /// An option with an unknown number.
    Unknown(u32),
    /// A known option with malformed data.
    Malformed(u32),
}

/// Why bytes are not an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeOptionError {
    /// The magic is wrong.
    #[error("an option begins with {found:#018x} instead of its magic number")]
    Magic { found: u64 },
    /// The option exceeds the limit.
    #[error("option {option} announces {claimed} bytes, but the limit is {OPTION_BYTES_MAX}")]
    TooLong { option: u32, claimed: u32 },
}

impl OptionRequest {
    /// The option's number in the protocol.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::ExportName(_) => OPTION_EXPORT_NAME,
            Self::Abort => OPTION_ABORT,
            Self::List => OPTION_LIST,
            Self::StartTls => OPTION_STARTTLS,
            Self::Info(..) => OPTION_INFO,
            Self::Go(..) => OPTION_GO,
            Self::StructuredReply => OPTION_STRUCTURED_REPLY,
            Self::ListContexts(..) => OPTION_LIST_META_CONTEXT,
            Self::SetContexts(..) => OPTION_SET_META_CONTEXT,
            Self::Unknown(number) | Self::Malformed(number) => *number,
        }
    }

    /// Appends the option to the bytes to be sent.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let mut data = Vec::new();
        match self {
            Self::ExportName(name) => data.extend_from_slice(name.as_bytes()),
            Self::Info(name, wanted) | Self::Go(name, wanted) => {
                put_text(&mut data, name);
                data.extend_from_slice(&u16::try_from(wanted.len()).unwrap_or(u16::MAX).to_be_bytes());
                wanted
                    .iter()
                    .take(usize::from(u16::MAX))
                    .for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
            }
            Self::ListContexts(name, queries) | Self::SetContexts(name, queries) => {
                put_text(&mut data, name);
                data.extend_from_slice(&length_u32(queries.len()).to_be_bytes());
                queries.iter().for_each(|query| put_text(&mut data, query));
            }
            Self::Abort
            | Self::List
            | Self::StartTls
            | Self::StructuredReply
            | Self::Unknown(_)
            | Self::Malformed(_) => {}
        }
        into.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        into.extend_from_slice(&self.number().to_be_bytes());
        into.extend_from_slice(&length_u32(data.len()).to_be_bytes());
        into.extend_from_slice(&data);
    }

    /// Decodes the option at the front of `bytes`. Returns it with its length; `None` if it is
    /// incomplete.
    ///
    /// # Errors
    /// [`DecodeOptionError`]: the peer violates the protocol.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeOptionError> {
        let mut head = BigEndian::new(bytes);
        let Some(magic) = head.u64() else { return Ok(None) };
        if magic != OPTION_MAGIC {
            return Err(DecodeOptionError::Magic { found: magic });
        }
        let (Some(number), Some(claimed)) = (head.u32(), head.u32()) else { return Ok(None) };
        let length = to_usize(claimed);
        if length > OPTION_BYTES_MAX {
            return Err(DecodeOptionError::TooLong { option: number, claimed });
        }
        let Some(data) = head.take(length) else { return Ok(None) };
        let request = Self::from_data(number, data).unwrap_or(Self::Malformed(number));
        Ok(Some((request, OPTION_HEAD_BYTES.saturating_add(length))))
    }

    /// Returns `None` if the data is malformed.
    fn from_data(number: u32, data: &[u8]) -> Option<Self> {
        let mut data = BigEndian::new(data);
        let request = match number {
            OPTION_EXPORT_NAME => Self::ExportName(name(data.rest())?),
            OPTION_ABORT => {
                // Data is ignored.
                data.rest();
                Self::Abort
            }
            OPTION_LIST => Self::List,
            OPTION_STARTTLS => Self::StartTls,
            OPTION_STRUCTURED_REPLY => Self::StructuredReply,
            OPTION_INFO | OPTION_GO => {
                let name = name(read_text(&mut data)?)?;
                let count = data.u16()?;
                let wanted = (0..count).map(|_| data.u16()).collect::<Option<_>>()?;
                if number == OPTION_GO { Self::Go(name, wanted) } else { Self::Info(name, wanted) }
            }
            OPTION_LIST_META_CONTEXT | OPTION_SET_META_CONTEXT => {
                let export = name(read_text(&mut data)?)?;
                let count = Some(to_usize(data.u32()?)).filter(|count| *count <= QUERY_COUNT_MAX)?;
                let queries = (0..count).map(|_| name(read_text(&mut data)?)).collect::<Option<_>>()?;
                if number == OPTION_SET_META_CONTEXT {
                    Self::SetContexts(export, queries)
                } else {
                    Self::ListContexts(export, queries)
                }
            }
            other => {
                data.rest();
                Self::Unknown(other)
            }
        };
        data.is_empty().then_some(request)
    }
}

fn name(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= NAME_BYTES_MAX).then(|| text.to_owned())
}
