//! The constants of the protocol. All integers are big-endian.

/// `NBDMAGIC`, the first magic of the greeting.
pub(crate) const SERVER_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, the second magic of the greeting, and the magic of options.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The magic of replies to options.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The magic of requests.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// The magic of simple replies.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// The magic of chunks of structured replies.
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// In the greeting and its answer: options may be refused without closing the connection.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
/// In the greeting and its answer: no zeros after the answer to `EXPORT_NAME`.
pub(crate) const NO_ZEROES: u16 = 2;
/// The number of these zeros.
pub(crate) const EXPORT_NAME_ZEROES: usize = 124;

pub(crate) const OPTION_EXPORT_NAME: u32 = 1;
pub(crate) const OPTION_ABORT: u32 = 2;
pub(crate) const OPTION_LIST: u32 = 3;
pub(crate) const OPTION_STARTTLS: u32 = 5;
pub(crate) const OPTION_INFO: u32 = 6;
pub(crate) const OPTION_GO: u32 = 7;
pub(crate) const OPTION_STRUCTURED_REPLY: u32 = 8;
pub(crate) const OPTION_LIST_META_CONTEXT: u32 = 9;
pub(crate) const OPTION_SET_META_CONTEXT: u32 = 10;

pub(crate) const REPLY_ACK: u32 = 1;
pub(crate) const REPLY_SERVER: u32 = 2;
pub(crate) const REPLY_INFO: u32 = 3;
pub(crate) const REPLY_META_CONTEXT: u32 = 4;
/// Set in every refusal.
pub(crate) const REPLY_IS_ERROR: u32 = 1 << 31;

pub(crate) const INFO_EXPORT: u16 = 0;
pub(crate) const INFO_NAME: u16 = 1;
pub(crate) const INFO_DESCRIPTION: u16 = 2;
pub(crate) const INFO_BLOCK_SIZE: u16 = 3;

pub(crate) const COMMAND_READ: u16 = 0;
pub(crate) const COMMAND_WRITE: u16 = 1;
pub(crate) const COMMAND_DISCONNECT: u16 = 2;
pub(crate) const COMMAND_FLUSH: u16 = 3;
pub(crate) const COMMAND_TRIM: u16 = 4;
pub(crate) const COMMAND_CACHE: u16 = 5;
pub(crate) const COMMAND_WRITE_ZEROES: u16 = 6;
pub(crate) const COMMAND_BLOCK_STATUS: u16 = 7;

/// In a chunk: the last one for its request.
pub(crate) const CHUNK_DONE: u16 = 1;
pub(crate) const CHUNK_NONE: u16 = 0;
pub(crate) const CHUNK_DATA: u16 = 1;
pub(crate) const CHUNK_HOLE: u16 = 2;
pub(crate) const CHUNK_BLOCK_STATUS: u16 = 5;
/// Set in every kind of chunk that reports an error.
pub(crate) const CHUNK_IS_ERROR: u16 = 1 << 15;
pub(crate) const CHUNK_ERROR: u16 = CHUNK_IS_ERROR | 1;
pub(crate) const CHUNK_ERROR_OFFSET: u16 = CHUNK_IS_ERROR | 2;

/// Bytes of a request before its payload.
pub(crate) const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply before its payload.
pub(crate) const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a chunk before its payload.
pub(crate) const CHUNK_BYTES: usize = 20;
/// Bytes of an option before its data.
pub(crate) const OPTION_HEAD_BYTES: usize = 16;
/// Bytes of a reply to an option before its data.
pub(crate) const OPTION_REPLY_HEAD_BYTES: usize = 20;

/// The error code of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// The operation is not permitted, for example a write to a read-only export.
    pub const NOT_PERMITTED: Self = Self(1);
    /// Reading or writing failed.
    pub const IO: Self = Self(5);
    /// There is not enough memory.
    pub const NO_MEMORY: Self = Self(12);
    /// The request is invalid.
    pub const INVALID: Self = Self(22);
    /// There is no space, or the range is beyond the end.
    pub const NO_SPACE: Self = Self(28);
    /// The answer would be too large for one message.
    pub const OVERFLOW: Self = Self(75);
    /// The operation is not supported, or would not be fast.
    pub const NOT_SUPPORTED: Self = Self(95);
    /// The server is shutting down.
    pub const SHUTDOWN: Self = Self(108);
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match *self {
            Self::NOT_PERMITTED => "it is not permitted",
            Self::IO => "the bytes could not be read or written",
            Self::NO_MEMORY => "there is not enough memory",
            Self::INVALID => "the request is not valid",
            Self::NO_SPACE => "there is no space",
            Self::OVERFLOW => "the answer is too large",
            Self::NOT_SUPPORTED => "it is not supported",
            Self::SHUTDOWN => "the server is shutting down",
            Self(other) => return write!(f, "error {other}"),
        };
        f.write_str(text)
    }
}
