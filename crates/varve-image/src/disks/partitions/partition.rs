//! A partition as its table describes it.

use std::fmt;

pub(crate) const SECTOR_BYTES: u64 = 512;

/// The purpose of a partition according to its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartitionType {
    /// The type byte of an MBR.
    Mbr(u8),
    /// The type GUID of a GPT, in the byte order of the disk.
    Gpt([u8; 16]),
}

/// Written as `82` or as `0657fd6d-a4ab-43c4-84e5-0933c84b4f4f`.
impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mbr(number) => write!(f, "{number:02x}"),
            Self::Gpt(guid) => write_guid(guid, f),
        }
    }
}

/// A partition according to its table. It has not been compared with the size of the disk yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) kind: PartitionType,
    /// An MBR has none.
    pub(crate) label: Option<String>,
}

fn write_guid(guid: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let [a, b, c, d, e, g, h, i, rest @ ..] = guid;
    write!(f, "{:08x}-", u32::from_le_bytes([*a, *b, *c, *d]))?;
    write!(f, "{:04x}-{:04x}-", u16::from_le_bytes([*e, *g]), u16::from_le_bytes([*h, *i]))?;
    for (place, byte) in rest.iter().enumerate() {
        let dash = if place == 2 { "-" } else { "" };
        write!(f, "{dash}{byte:02x}")?;
    }
    Ok(())
}
