//! What a client wants done with an export.
//!
//! A request is a magic (4 bytes), flags (2), a kind (2), a cookie (8), an offset (8), a length (4), and for a write so many bytes.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::export::{ExportInfo, TransmissionFlags};
use crate::fields::{Fields, length_u32};
use crate::inbox::Inbox;
use crate::wire::{
    COMMAND_BLOCK_STATUS, COMMAND_CACHE, COMMAND_DISCONNECT, COMMAND_FLUSH, COMMAND_READ, COMMAND_TRIM,
    COMMAND_WRITE, COMMAND_WRITE_ZEROES, ErrorCode, REQUEST_BYTES, REQUEST_MAGIC,
};
use crate::{NAME_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// How a request is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandFlags(pub u16);

impl CommandFlags {
    /// Nothing special.
    pub const NONE: Self = Self(0);
    /// Answer only when it is durable.
    pub const FUA: Self = Self(1);
    /// Of zeros that are written: do not make a hole.
    pub const NO_HOLE: Self = Self(1 << 1);
    /// Of a read: answer in one piece.
    pub const DONT_FRAGMENT: Self = Self(1 << 2);
    /// Of block status: one extent is enough.
    pub const ONE_EXTENT: Self = Self(1 << 3);
    /// Of zeros that are written: only if it is faster than writing zeros.
    pub const FAST_ZERO: Self = Self(1 << 4);

    /// Whether all of `other` are set here.
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

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Send these bytes.
    Read {
        /// From here.
        offset: u64,
        /// So many.
        length: u32,
    },
    /// Keep these bytes.
    Write {
        /// From here.
        offset: u64,
        /// Which.
        data: Vec<u8>,
    },
    /// There will be no more requests, and no answer is expected.
    Disconnect,
    /// Make all that was answered durable.
    Flush,
    /// These bytes are not needed any longer.
    Trim {
        /// From here.
        offset: u64,
        /// So many.
        length: u32,
    },
    /// These bytes will be read soon.
    Cache {
        /// From here.
        offset: u64,
        /// So many.
        length: u32,
    },
    /// Keep zeros.
    WriteZeroes {
        /// From here.
        offset: u64,
        /// So many.
        length: u32,
    },
    /// Tell of these bytes what the contexts that were agreed on know.
    BlockStatus {
        /// From here.
        offset: u64,
        /// So many.
        length: u32,
    },
    /// Something that is not understood.
    Unknown {
        /// Its kind.
        kind: u16,
    },
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The client's own number for it: the answer carries it, too.
    pub cookie: u64,
    /// How it is to be done.
    pub flags: CommandFlags,
    /// What.
    pub command: Command,
}

/// Why bytes are no request. The connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It begins otherwise.
    #[error("a request begins with {found:#010x}, which is no request's magic")]
    Magic {
        /// How.
        found: u32,
    },
    /// A write of more than was agreed on.
    #[error("a write announces {claimed} bytes, and none has more than {allowed}")]
    TooLong {
        /// Its length, as it says.
        claimed: u32,
        /// The most that it may have.
        allowed: u32,
    },
}

impl Command {
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

    /// The flag of an export that says that this can be asked for, and the flags that it may come with.
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

impl Request {
    /// Appends it to what is to be sent.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let (kind, offset, length) = self.command.parts();
        into.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        into.extend_from_slice(&self.flags.0.to_be_bytes());
        into.extend_from_slice(&kind.to_be_bytes());
        into.extend_from_slice(&self.cookie.to_be_bytes());
        into.extend_from_slice(&offset.to_be_bytes());
        into.extend_from_slice(&length.to_be_bytes());
        if let Command::Write { data, .. } = &self.command {
            into.extend_from_slice(data);
        }
    }

    /// Whether an export can do this at all: what can be told without trying.
    ///
    /// # Errors
    /// What to answer instead.
    pub fn check(&self, export: &ExportInfo) -> Result<(), ErrorCode> {
        let (_, offset, length) = self.command.parts();
        let (needed, allowed) = self.command.rules();
        let is_write = matches!(
            self.command,
            Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. }
        );
        if matches!(self.command, Command::Unknown { .. }) {
            return Err(ErrorCode::INVALID);
        }
        if is_write && export.flags.has(TransmissionFlags::READ_ONLY) {
            return Err(ErrorCode::NOT_PERMITTED);
        }
        // Where single writes can be made durable, the flag may come with any request.
        let fua =
            if export.flags.has(TransmissionFlags::FUA) { CommandFlags::FUA } else { CommandFlags::NONE };
        if !export.flags.has(needed) || self.flags.0 & !(allowed | fua).0 != 0 {
            return Err(ErrorCode::INVALID);
        }
        if offset.checked_add(u64::from(length)).is_none_or(|end| end > export.size) {
            return Err(if is_write { ErrorCode::NO_SPACE } else { ErrorCode::INVALID });
        }
        match self.command {
            Command::Read { length, .. } if length > export.block_sizes.maximum => Err(ErrorCode::INVALID),
            Command::BlockStatus { length: 0, .. } => Err(ErrorCode::INVALID),
            _ => Ok(()),
        }
    }
}

/// The requests of one client, in the order in which they come.
#[derive(Debug)]
pub struct Requests {
    inbox: Inbox,
    payload_bytes_max: u32,
}

impl Default for Requests {
    fn default() -> Self {
        Self::new(Inbox::default())
    }
}

impl Requests {
    pub(crate) fn new(inbox: Inbox) -> Self {
        Self { inbox, payload_bytes_max: PAYLOAD_BYTES_MAX }
    }

    /// Takes no write of more than this.
    #[must_use]
    pub fn with_payload_bytes_max(self, payload_bytes_max: u32) -> Self {
        Self { payload_bytes_max: payload_bytes_max.min(PAYLOAD_BYTES_MAX), ..self }
    }

    /// Takes bytes that have come.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.inbox.receive(bytes);
    }

    /// Whether a request has begun to come and is not whole.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// The next request; `None` until more bytes come.
    ///
    /// # Errors
    /// [`RequestError`]: nothing that comes after this can be understood.
    pub fn next_request(&mut self) -> Result<Option<Request>, RequestError> {
        let mut head = Fields(self.inbox.waiting());
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
            COMMAND_READ => Command::Read { offset, length },
            COMMAND_WRITE => {
                let data_length = usize::try_from(length).unwrap_or(usize::MAX);
                if length > self.payload_bytes_max {
                    return Err(RequestError::TooLong { claimed: length, allowed: self.payload_bytes_max });
                }
                let Some(data) = head.bytes(data_length) else { return Ok(None) };
                byte_count = byte_count.saturating_add(data_length);
                Command::Write { offset, data: data.to_vec() }
            }
            COMMAND_DISCONNECT => Command::Disconnect,
            COMMAND_FLUSH => Command::Flush,
            COMMAND_TRIM => Command::Trim { offset, length },
            COMMAND_CACHE => Command::Cache { offset, length },
            COMMAND_WRITE_ZEROES => Command::WriteZeroes { offset, length },
            COMMAND_BLOCK_STATUS => Command::BlockStatus { offset, length },
            kind => Command::Unknown { kind },
        };
        self.inbox.take(byte_count);
        Ok(Some(Request { cookie, flags: CommandFlags(flags), command }))
    }
}

// A name is the longest text of an option: three of them, with their lengths, are far from the limit of all options.
const _: () = assert!(3 * NAME_BYTES_MAX < crate::OPTION_BYTES_MAX);
