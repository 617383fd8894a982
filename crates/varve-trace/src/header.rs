//! The header of a trace. All numbers are little-endian.
//!
//! | offset | bytes | field       | meaning                                                        |
//! |-------:|------:|-------------|----------------------------------------------------------------|
//! |      0 |     8 | magic       | `varvetrc`                                                     |
//! |      8 |     2 | version     | 1                                                              |
//! |     10 |     1 | maker       | 0: a recorder, from real work; 1: a generator                  |
//! |     11 |     1 | name_bytes  | length of `name`                                               |
//! |     12 |     4 | block_bytes | size into which the source was cut; 0 if sizes differ, or if the maker does not know it |
//! |     16 |     8 | seed        | the generator's seed; 0 for a recorder                         |
//! |     24 |  rest | name        | recorder or generator with its version, printable ASCII        |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{BLOCK_BYTES_MAX, LittleEndian, to_usize};

/// The longest name of a recorder or generator, in bytes.
pub const TRACE_NAME_BYTES_MAX: usize = 255;

/// The first bytes of each trace.
const MAGIC: &[u8; 8] = b"varvetrc";
const VERSION: u16 = 1;
/// The bytes before the name.
const FIXED_BYTES: usize = 24;
/// The longest header.
pub(crate) const HEADER_BYTES_MAX: usize = FIXED_BYTES + TRACE_NAME_BYTES_MAX;

/// The origin of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceMaker {
    /// Recorded from real work.
    Recorder,
    /// Generated. The same generator makes the same trace from the same seed and parameters.
    Generator { seed: u64 },
}

/// The properties of a whole trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceHeader {
    pub maker: TraceMaker,
    /// The name of the recorder or generator, with its version: printable ASCII.
    pub name: String,
    /// The size in bytes into which the source was cut, if it is one size. At most
    /// [`BLOCK_BYTES_MAX`].
    pub block_bytes: Option<u32>,
}

/// The reason why some bytes are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    NotATrace,
    NewerVersion(u16),
    Damaged(&'static str),
}

impl TraceHeader {
    /// Encodes the header; `None` if the name or the block size is invalid.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let name_bytes = u8::try_from(self.name.len()).ok()?;
        let block_bytes = self.block_bytes.unwrap_or(0);
        if !is_name(self.name.as_bytes()) || !is_size(block_bytes) || self.block_bytes == Some(0) {
            return None;
        }
        let (maker, seed) = match self.maker {
            TraceMaker::Recorder => (0, 0),
            TraceMaker::Generator { seed } => (1, seed),
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[maker, name_bytes]);
        bytes.extend_from_slice(&block_bytes.to_le_bytes());
        bytes.extend_from_slice(&seed.to_le_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
        Some(bytes)
    }

    /// Decodes the header at the front of `bytes`, and takes its bytes.
    pub(crate) fn decode(bytes: &mut LittleEndian<'_>) -> Result<Self, HeaderFault> {
        if bytes.array() != Some(*MAGIC) {
            return Err(HeaderFault::NotATrace);
        }
        const CUT: HeaderFault = HeaderFault::Damaged("the header is cut off");
        let version = bytes.u16().ok_or(CUT)?;
        if version > VERSION {
            return Err(HeaderFault::NewerVersion(version));
        }
        let [maker, name_bytes] = bytes.array().ok_or(CUT)?;
        let block_bytes = bytes.u32().ok_or(CUT)?;
        let seed = bytes.u64().ok_or(CUT)?;
        let name = bytes.take(usize::from(name_bytes)).ok_or(CUT)?;
        let maker = match (version, maker, seed) {
            (1, 0, 0) => TraceMaker::Recorder,
            (1, 1, seed) => TraceMaker::Generator { seed },
            _ => return Err(HeaderFault::Damaged("the version or the maker does not exist")),
        };
        if !is_name(name) || !is_size(block_bytes) {
            return Err(HeaderFault::Damaged("the name or the block size is invalid"));
        }
        let name = String::from_utf8_lossy(name).into_owned();
        Ok(Self { maker, name, block_bytes: Some(block_bytes).filter(|bytes| *bytes > 0) })
    }
}

fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

fn is_size(block_bytes: u32) -> bool {
    to_usize(block_bytes) <= BLOCK_BYTES_MAX
}
