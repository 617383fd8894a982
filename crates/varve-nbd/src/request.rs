//! Requests of a client to an export.
//!
//! A request is a magic (4 bytes), flags (2), a kind (2), a cookie (8), an offset (8), a length
//! (4), and the data of a write.

use varve_block::{BigEndian, to_usize};

use crate::export::{ExportInfo, TransmissionFlags};
use crate::inbox::Inbox;
use crate::text::length_u32;
use crate::wire::{
    COMMAND_BLOCK_STATUS, COMMAND_CACHE, COMMAND_DISCONNECT, COMMAND_FLUSH, COMMAND_READ, COMMAND_TRIM,
    COMMAND_WRITE, COMMAND_WRITE_ZEROES, ErrorCode, REQUEST_BYTES, REQUEST_MAGIC,
};
use crate::{NAME_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Modifiers of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandFlags(pub u16);

impl CommandFlags {
    /// No flags.
    pub const NONE: Self = Self(0);
    /// Answer only after the data is durable.
    pub const FUA: Self = Self(1);
    /// For writing zeros: do not make a hole.
    pub const NO_HOLE: Self = Self(1 << 1);
    /// For a read: answer in one chunk.
    pub const DONT_FRAGMENT: Self = Self(1 << 2);
    /// For block status: one extent suffices.
    pub const ONE_EXTENT: Self = Self(1 << 3);
    /// For writing zeros: fail unless it is faster than a plain write.
    pub const FAST_ZERO: Self = Self(1 << 4);

    /// Reports whether all flags of `other` are set.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for CommandFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The kinds of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NbdCommand {
    Read {
        offset: u64,
        /// In bytes.
        length: u32,
    },
    Write {
        offset: u64,
        data: Vec<u8>,
    },
    /// Ends the connection. It has no reply.
    Disconnect,
    /// Makes all answered writes durable.
    Flush,
    /// These bytes are not needed any longer.
    Trim {
        offset: u64,
        /// In bytes.
        length: u32,
    },
    /// Announces that a range will be read soon.
    Cache {
        offset: u64,
        /// In bytes.
        length: u32,
    },
    /// Writes zeros.
    WriteZeroes {
        offset: u64,
        /// In bytes.
        length: u32,
    },
    /// Queries the status of a range in the negotiated contexts.
    BlockStatus {
        offset: u64,
        /// In bytes.
        length: u32,
    },
    /// A request of an unknown kind.
    Unknown {
        kind: u16,
    },
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdRequest {
    /// Chosen by the client, and repeated in the reply.
    pub cookie: u64,
    pub flags: CommandFlags,
    pub command: NbdCommand,
}

/// Why bytes are not a request. The connection is unusable afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The magic is wrong.
    #[error("a request begins with {found:#010x} instead of its magic number")]
    Magic { found: u32 },
    /// A write exceeds the limit.
    #[error("a write announces {claimed} bytes, but the limit is {allowed}")]
    TooLong {
        /// The announced length.
        claimed: u32,
        /// The maximum length.
        allowed: u32,
    },
}

impl NbdCommand {
    fn parts(&self) -> (u16, u64, u32) {
        match self {
            Self::Read { offset, length } => (COMMAND_READ, *offset, *length),
            Self::Write { offset, data } => (COMMAND_WRITE, *offset, length_u32(data.len())),
            Self::Disconnect => (COMMAND_DISCONNECT, 0, 0),
            Self::Flush => (COMMAND_FLUSH, 0, 0),
            Self::Trim { offset, length } => (COMMAND_TRIM, *offset, *length),
            Self::Cache { offset, length } => (COMMAND_CACHE, *offset, *length),
            Self::WriteZeroes { offset, length } => (COMMAND_WRITE_ZEROES, *offset, *length),
            Self::BlockStatus { offset, length } => (COMMAND_BLOCK_STATUS, *offset, *length),
            Self::Unknown { kind } => (*kind, 0, 0),
        }
    }

    /// The capability that an export needs for this command, and the flags that are permitted with
    /// it.
    fn rules(&self) -> (TransmissionFlags, CommandFlags) {
        let zeroes = CommandFlags::NO_HOLE | CommandFlags::FAST_ZERO;
        match self {
            Self::Read { .. } => (TransmissionFlags::HAS_FLAGS, CommandFlags::DONT_FRAGMENT),
            Self::BlockStatus { .. } => (TransmissionFlags::HAS_FLAGS, CommandFlags::ONE_EXTENT),
            Self::Write { .. } | Self::Disconnect | Self::Unknown { .. } => {
                (TransmissionFlags::HAS_FLAGS, CommandFlags::NONE)
            }
            Self::Flush => (TransmissionFlags::FLUSH, CommandFlags::NONE),
            Self::Trim { .. } => (TransmissionFlags::TRIM, CommandFlags::NONE),
            Self::Cache { .. } => (TransmissionFlags::CACHE, CommandFlags::NONE),
            Self::WriteZeroes { .. } => (TransmissionFlags::WRITE_ZEROES, zeroes),
        }
    }
}

impl NbdRequest {
    /// Appends the request to the bytes to be sent.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let (kind, offset, length) = self.command.parts();
        into.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        into.extend_from_slice(&self.flags.0.to_be_bytes());
        into.extend_from_slice(&kind.to_be_bytes());
        into.extend_from_slice(&self.cookie.to_be_bytes());
        into.extend_from_slice(&offset.to_be_bytes());
        into.extend_from_slice(&length.to_be_bytes());
        if let NbdCommand::Write { data, .. } = &self.command {
            into.extend_from_slice(data);
        }
    }

    /// Checks a request against the properties of the export.
    ///
    /// # Errors
    /// The error code for the reply.
    pub fn check(&self, export: &ExportInfo) -> Result<(), ErrorCode> {
        let (_, offset, length) = self.command.parts();
        let (needed, allowed) = self.command.rules();
        let is_write = matches!(
            self.command,
            NbdCommand::Write { .. } | NbdCommand::Trim { .. } | NbdCommand::WriteZeroes { .. }
        );
        if matches!(self.command, NbdCommand::Unknown { .. }) {
            return Err(ErrorCode::INVALID);
        }
        if is_write && export.flags.has(TransmissionFlags::READ_ONLY) {
            return Err(ErrorCode::NOT_PERMITTED);
        }
        // If the export supports FUA, the flag is permitted with any request.
        let fua =
            if export.flags.has(TransmissionFlags::FUA) { CommandFlags::FUA } else { CommandFlags::NONE };
        if !export.flags.has(needed) || self.flags.0 & !(allowed | fua).0 != 0 {
            return Err(ErrorCode::INVALID);
        }
        if offset.checked_add(u64::from(length)).is_none_or(|end| end > export.size) {
            return Err(if is_write { ErrorCode::NO_SPACE } else { ErrorCode::INVALID });
        }
        match self.command {
            NbdCommand::Read { length, .. } if length > export.block_sizes.maximum => Err(ErrorCode::INVALID),
            NbdCommand::BlockStatus { length: 0, .. } => Err(ErrorCode::INVALID),
            _ => Ok(()),
        }
    }
}

/// Decodes the requests of one client, in order.
#[derive(Debug)]
pub struct RequestDecoder {
    inbox: Inbox,
    payload_bytes_max: u32,
}

impl Default for RequestDecoder {
    fn default() -> Self {
        Self::new(Inbox::default())
    }
}

impl RequestDecoder {
    pub(crate) fn new(inbox: Inbox) -> Self {
        Self { inbox, payload_bytes_max: PAYLOAD_BYTES_MAX }
    }

    /// Sets the maximum length of a write.
    #[must_use]
    pub fn with_payload_bytes_max(self, payload_bytes_max: u32) -> Self {
        Self { payload_bytes_max: payload_bytes_max.min(PAYLOAD_BYTES_MAX), ..self }
    }

    /// Accepts received bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.inbox.receive(bytes);
    }

    /// Reports whether a part of a request has arrived, but not all of it.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// The next request; `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`RequestError`]: all later bytes are unusable.
    pub fn next_request(&mut self) -> Result<Option<NbdRequest>, RequestError> {
        let mut head = BigEndian::new(self.inbox.waiting());
        let Some(magic) = head.u32() else { return Ok(None) };
        if magic != REQUEST_MAGIC {
            return Err(RequestError::Magic { found: magic });
        }
        let (Some(flags), Some(kind)) = (head.u16(), head.u16()) else { return Ok(None) };
        let (Some(cookie), Some(offset), Some(length)) = (head.u64(), head.u64(), head.u32()) else {
            return Ok(None);
        };
        let mut byte_count = REQUEST_BYTES;
        let command = match kind {
            COMMAND_READ => NbdCommand::Read { offset, length },
            COMMAND_WRITE => {
                let data_length = to_usize(length);
                if length > self.payload_bytes_max {
                    return Err(RequestError::TooLong { claimed: length, allowed: self.payload_bytes_max });
                }
                let Some(data) = head.take(data_length) else { return Ok(None) };
                byte_count = byte_count.saturating_add(data_length);
                NbdCommand::Write { offset, data: data.to_vec() }
            }
            COMMAND_DISCONNECT => NbdCommand::Disconnect,
            COMMAND_FLUSH => NbdCommand::Flush,
            COMMAND_TRIM => NbdCommand::Trim { offset, length },
            COMMAND_CACHE => NbdCommand::Cache { offset, length },
            COMMAND_WRITE_ZEROES => NbdCommand::WriteZeroes { offset, length },
            COMMAND_BLOCK_STATUS => NbdCommand::BlockStatus { offset, length },
            kind => NbdCommand::Unknown { kind },
        };
        self.inbox.take(byte_count);
        Ok(Some(NbdRequest { cookie, flags: CommandFlags(flags), command }))
    }
}

// Names are the longest texts in options. Three names with their lengths stay far below the limit
// of an option.
const _: () = assert!(3 * NAME_BYTES_MAX < crate::OPTION_BYTES_MAX);
