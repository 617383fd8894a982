//! Partition tables.
//!
//! Partitions have the numbers of Linux: the slots of an MBR are 1 to 4, and logical partitions
//! count from 5; the slots of a GPT count from 1. Damage is reported and read around: a partition
//! is shown if any copy of any table names it.

mod gpt;
mod mbr;
mod partition;
mod purpose;
mod sector_guess;

pub use partition::PartitionType;
pub(crate) use partition::{Partition, SECTOR_BYTES};
pub(crate) use purpose::PartitionPurpose;

use std::sync::Arc;

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
    /// The size of the sectors in which the table counts, if that is certain.
    pub(crate) sector_bytes: Option<u64>,
}

/// Finds the partition table of a disk. Returns `None` if no table makes sense.
pub(crate) fn read(disk: &Arc<dyn ReadAt>, problems: &mut Vec<DiskProblem>) -> Option<PartitionTable> {
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
    if !names_partitions && let Some((partitions, sector_bytes)) = gpt::read(disk, protects, problems) {
        return Some(PartitionTable { kind: TableKind::Gpt, partitions, sector_bytes: Some(sector_bytes) });
    }
    let boot = boot.filter(|boot| !boot.is_empty())?;
    let guess = sector_guess::of_mbr(disk, &boot);
    let sector_bytes = guess.unwrap_or(SECTOR_BYTES);
    if sector_bytes != SECTOR_BYTES {
        let problem = format!(
            "makes no sense in sectors of {SECTOR_BYTES} bytes; it is read in sectors of {sector_bytes} bytes"
        );
        problems.push(DiskProblem::new("the partition table", problem));
    }
    let partitions = boot.partitions(disk, sector_bytes, problems);
    Some(PartitionTable { kind: TableKind::Mbr, partitions, sector_bytes: guess })
}
