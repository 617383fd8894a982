//! Guesses the size of the sectors in which an MBR counts: the table does not state it.
//!
//! The usual size is believed unless nothing is where the table points to in sectors of that size,
//! and something is everywhere in sectors of exactly one other size.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::sync::Arc;

use super::mbr::{BootSector, PrimarySlot, is_link};
use super::partition::SECTOR_BYTES;
use crate::bytes::read_at::{BytesPart, ReadAt};
use crate::contents::detection;
use crate::contents::volume_content::VolumeContent;

/// The other sizes of sectors: of newer disks, and of optical media.
const OTHER_SIZES: [u64; 2] = [4096, 2048];

/// Returns the size of a sector, if the content of the disk shows it.
pub(super) fn of_mbr(disk: &Arc<dyn ReadAt>, boot: &BootSector) -> Option<u64> {
    if boot.primary_slots(SECTOR_BYTES).iter().any(|slot| is_recognised(disk, slot)) {
        return Some(SECTOR_BYTES);
    }
    let makes_sense = |sector_bytes: &u64| {
        let slots = boot.primary_slots(*sector_bytes);
        slots.iter().all(|slot| fits(disk, slot)) && slots.iter().any(|slot| is_recognised(disk, slot))
    };
    let mut possible = OTHER_SIZES.into_iter().filter(makes_sense);
    possible.next().filter(|_| possible.next().is_none())
}

fn fits(disk: &Arc<dyn ReadAt>, slot: &PrimarySlot) -> bool {
    slot.partition.start.saturating_add(slot.partition.size) <= disk.size()
}

/// Returns true if the partition begins with something that this crate recognises.
fn is_recognised(disk: &Arc<dyn ReadAt>, PrimarySlot { partition, is_extended }: &PrimarySlot) -> bool {
    if *is_extended {
        let mut sector = [0; 512];
        return disk.read_at(partition.start, &mut sector).is_ok() && is_link(&sector);
    }
    let bytes = BytesPart::new(Arc::clone(disk), partition.start, partition.size);
    !matches!(detection::detect(&bytes), VolumeContent::Unknown | VolumeContent::Empty)
}
