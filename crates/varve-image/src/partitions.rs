//! Partition tables: which parts a disk says that it has.
//!
//! Numbers are those of Linux: the slots of an MBR are 1 to 4 and logical partitions count from 5; the slots of a GPT count from 1.
//! Damage is reported and read around: a partition is shown if any copy of any table names it.

mod gpt;
mod mbr;

use std::fmt;

use crate::disk::DiskProblem;
use crate::read_at::ReadAt;

pub(crate) const SECTOR_BYTES: u64 = 512;

/// What a table says that a partition is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartitionType {
    /// The type byte of an MBR.
    Mbr(u8),
    /// The type of a GPT, as its bytes lie on the disk.
    Gpt([u8; 16]),
}

impl PartitionType {
    /// Whether the table calls it Linux swap.
    #[must_use]
    pub fn is_swap(&self) -> bool {
        match self {
            Self::Mbr(number) => *number == 0x82,
            Self::Gpt(guid) => *guid == gpt::LINUX_SWAP,
        }
    }
}

/// As `82` or as `0657fd6d-a4ab-43c4-84e5-0933c84b4f4f`.
impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mbr(number) => write!(f, "{number:02x}"),
            Self::Gpt(guid) => gpt::write_guid(guid, f),
        }
    }
}

/// A part of a disk as its table names it; not yet compared with the disk's size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) kind: PartitionType,
    /// As the table has it; an MBR has none.
    pub(crate) label: Option<String>,
}

/// Which kind of table a disk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableKind {
    /// A master boot record, of DOS.
    Mbr,
    /// A GUID partition table, of UEFI.
    Gpt,
}

/// A disk's table.
pub(crate) struct PartitionTable {
    pub(crate) kind: TableKind,
    pub(crate) partitions: Vec<Partition>,
}

/// Finds the table of a disk; `None` if there is none that makes sense.
pub(crate) fn read(disk: &dyn ReadAt, problems: &mut Vec<DiskProblem>) -> Option<PartitionTable> {
    let mut first = [0; 512];
    if disk.size() < SECTOR_BYTES {
        return None;
    }
    if let Err(source) = disk.read_at(0, &mut first) {
        problems.push(DiskProblem::new("the first sector", format!("cannot be read: {source}")));
    }
    let boot = mbr::BootSector::parse(&first);
    let protects = boot.as_ref().is_some_and(mbr::BootSector::protects_gpt);
    let names_partitions = boot.as_ref().is_some_and(|boot| !boot.is_empty()) && !protects;
    if !names_partitions && let Some(partitions) = gpt::read(disk, protects, problems) {
        return Some(PartitionTable { kind: TableKind::Gpt, partitions });
    }
    let boot = boot.filter(|boot| !boot.is_empty())?;
    Some(PartitionTable { kind: TableKind::Mbr, partitions: boot.partitions(disk, problems) })
}
