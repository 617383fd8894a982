//! Partition tables.
//!
//! Partitions have the numbers of Linux: the slots of an MBR are 1 to 4, and logical partitions
//! count from 5; the slots of a GPT count from 1. Damage is reported and read around: a partition
//! is shown if any copy of any table names it.

mod gpt;
mod mbr;
mod partition;
mod purpose;

pub use partition::PartitionType;
pub(crate) use partition::{Partition, SECTOR_BYTES};
pub(crate) use purpose::PartitionPurpose;

use crate::bytes::read_at::ReadAt;
use crate::disks::disk_problem::DiskProblem;

/// The kind of a partition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableKind {
    /// The master boot record of DOS.
    Mbr,
    /// The GUID partition table of UEFI.
    Gpt,
}

/// A disk's partition table.
pub(crate) struct PartitionTable {
    pub(crate) kind: TableKind,
    pub(crate) partitions: Vec<Partition>,
}

/// Finds the partition table of a disk. Returns `None` if no table makes sense.
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
