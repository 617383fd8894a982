//! The partition table of DOS: four slots in the first sector. A slot may be *extended*: it is the
//! head of a chain of sectors, each of which names one logical partition and the next sector.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeSet;

use super::partition::{Partition, PartitionType};
use crate::bytes::fields::{array_at, has_at, u8_at, u32_at};
use crate::bytes::read_at::ReadAt;
use crate::disks::disk_problem::DiskProblem;

const TABLE_AT: usize = 446;
const SLOT_BYTES: usize = 16;
const SIGNATURE: [u8; 2] = [0x55, 0xaa];
const PROTECTIVE: u8 = 0xee;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// More logical partitions than any tool makes.
const LOGICAL_MAX: usize = 256;

#[derive(Clone, Copy)]
struct MbrEntry {
    flag: u8,
    kind: u8,
    /// In sectors.
    start: u32,
    count: u32,
}

impl MbrEntry {
    fn parse(bytes: &[u8; SLOT_BYTES]) -> Self {
        Self {
            flag: u8_at(bytes, 0),
            kind: u8_at(bytes, 4),
            start: u32_at(bytes, 8),
            count: u32_at(bytes, 12),
        }
    }

    fn is_used(self) -> bool {
        self.count > 0
    }

    fn is_extended(self) -> bool {
        EXTENDED.contains(&self.kind)
    }

    /// Converts the slot to a partition in bytes. Its start counts from sector `base`.
    fn partition(self, number: u32, base: u64, sector_bytes: u64) -> Partition {
        let start = base.saturating_add(u64::from(self.start)).saturating_mul(sector_bytes);
        let size = u64::from(self.count).saturating_mul(sector_bytes);
        Partition { number, start, size, kind: PartitionType::Mbr(self.kind), label: None }
    }
}

fn slots(sector: &[u8; 512]) -> [MbrEntry; 4] {
    let at = |number: usize| number.saturating_mul(SLOT_BYTES).saturating_add(TABLE_AT);
    [0, 1, 2, 3].map(|number| MbrEntry::parse(&array_at(sector, at(number))))
}

/// A first sector that has the form of a partition table.
pub(super) struct BootSector {
    slots: [MbrEntry; 4],
}

impl BootSector {
    /// Returns `None` if the sector is not a table: the first sectors of many file systems look
    /// similar.
    pub(super) fn parse(sector: &[u8; 512]) -> Option<Self> {
        let slots = slots(sector);
        let is_table = has_at(sector, 510, &SIGNATURE)
            && slots.iter().all(|slot| slot.flag & 0x7f == 0)
            && !is_boot_sector_of_a_file_system(sector);
        is_table.then_some(Self { slots })
    }

    /// Returns true if this table precedes a GPT and tells old tools that the disk is in use.
    pub(super) fn protects_gpt(&self) -> bool {
        self.slots.iter().any(|slot| slot.kind == PROTECTIVE && slot.is_used())
    }

    /// Returns true if no slot is used.
    pub(super) fn is_empty(&self) -> bool {
        !self.slots.iter().any(|slot| slot.is_used())
    }

    /// Returns all partitions: those of the slots, then the logical ones.
    pub(super) fn partitions(
        &self,
        disk: &dyn ReadAt,
        sector_bytes: u64,
        problems: &mut Vec<DiskProblem>,
    ) -> Vec<Partition> {
        let used = || (1..).zip(self.slots).filter(|(_, slot)| slot.is_used());
        let mut found: Vec<_> = used()
            .filter(|(_, slot)| !slot.is_extended())
            .map(|(number, slot)| slot.partition(number, 0, sector_bytes))
            .collect();
        let mut logical = Vec::new();
        for (number, slot) in used().filter(|(_, slot)| slot.is_extended()) {
            if let Some(problem) = follow(disk, slot, sector_bytes, &mut logical) {
                problems.push(DiskProblem::new(format!("extended partition {number}"), problem));
            }
        }
        found.extend(logical);
        found
    }
}

/// A used slot of the first sector.
pub(super) struct PrimarySlot {
    /// The partition, as it lies in sectors of some size.
    pub(super) partition: Partition,
    pub(super) is_extended: bool,
}

impl BootSector {
    /// Returns the used slots, read in sectors of this size.
    pub(super) fn primary_slots(&self, sector_bytes: u64) -> Vec<PrimarySlot> {
        let used = (1..).zip(self.slots).filter(|(_, slot)| slot.is_used());
        used.map(|(number, slot)| PrimarySlot {
            partition: slot.partition(number, 0, sector_bytes),
            is_extended: slot.is_extended(),
        })
        .collect()
    }
}

/// Returns true if a sector has the form of a link in the chain of an extended partition.
pub(super) fn is_link(sector: &[u8; 512]) -> bool {
    let slots = slots(sector);
    BootSector::parse(sector).is_some() && slots.iter().any(|slot| slot.is_used())
}

/// NTFS, exFAT and FAT identify themselves in their first sector. The bytes of the table are
/// program code there.
fn is_boot_sector_of_a_file_system(sector: &[u8; 512]) -> bool {
    let is_named = [&b"NTFS    "[..], b"EXFAT   "].iter().any(|name| has_at(sector, 3, name));
    let is_fat = [54, 82].iter().any(|at| has_at(sector, *at, b"FAT")) && u8_at(sector, 21) >= 0xf0;
    is_named || is_fat
}

/// Adds the logical partitions in the chain of an extended partition. Returns the reason if the
/// chain ended early.
fn follow(
    disk: &dyn ReadAt,
    extended: MbrEntry,
    sector_bytes: u64,
    logical: &mut Vec<Partition>,
) -> Option<String> {
    let first = u64::from(extended.start);
    let end = first.saturating_add(u64::from(extended.count));
    let mut seen = BTreeSet::new();
    let mut sector_number = first;
    loop {
        if !seen.insert(sector_number) {
            return Some(format!("has a chain that returns to sector {sector_number}"));
        }
        let mut sector = [0; 512];
        if let Err(error) = disk.read_at(sector_number.saturating_mul(sector_bytes), &mut sector) {
            return Some(format!("has a chain whose sector {sector_number} cannot be read: {error}"));
        }
        if !has_at(&sector, 510, &SIGNATURE) {
            return Some(format!("has a chain with sector {sector_number}, which is not a partition table"));
        }
        let slots = slots(&sector);
        for (place, slot) in
            slots.iter().enumerate().filter(|(_, slot)| slot.is_used() && !slot.is_extended())
        {
            if logical.len() >= LOGICAL_MAX {
                return Some(format!("has more than {LOGICAL_MAX} logical partitions"));
            }
            let number = u32::try_from(logical.len()).unwrap_or(u32::MAX).saturating_add(5);
            let partition = slot.partition(number, sector_number, sector_bytes);
            // Well-formed tables do not use the last two slots. Linux accepts them only if they lie
            // inside the extended partition.
            let inside = partition.start.saturating_add(partition.size) <= end.saturating_mul(sector_bytes);
            if place < 2 || inside {
                logical.push(partition);
            }
        }
        let next = slots.iter().find(|slot| slot.is_extended() && slot.is_used())?;
        sector_number = first.saturating_add(u64::from(next.start));
    }
}
