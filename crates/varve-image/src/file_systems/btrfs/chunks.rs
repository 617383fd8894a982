//! Chunks: ranges of logical addresses, and the devices that have their bytes.
//!
//! | offset | bytes | of a chunk                | offset | bytes | of a stripe, 32 bytes each from 48 |
//! |-------:|------:|---------------------------|-------:|------:|-------------------------------------|
//! |      0 |     8 | its length                |      0 |     8 | number of the device                |
//! |     16 |     8 | bytes of a stripe         |      8 |     8 | place on the device                 |
//! |     24 |     8 | contents and profile      |     16 |    16 | UUID of the device                  |
//! |     44 |     2 | number of its stripes     |        |       |                                     |
//! |     46 |     2 | copies in a RAID10        |        |       |                                     |

use std::collections::BTreeMap;

use varve_block::to_usize;

use super::superblock::BtrfsSuperblock;
use crate::bytes::fields::{array_at, u16_at, u64_at};

const HEAD_BYTES: usize = 48;
const STRIPE_BYTES: usize = 32;
/// The part of a stripe that is read from one device before the next one.
const STRIPE_UNIT: u64 = 64 << 10;

/// The ways in which a chunk is spread over devices, in the bits of its type.
mod profile {
    pub(super) const RAID0: u64 = 1 << 3;
    pub(super) const RAID1: u64 = 1 << 4;
    pub(super) const DUP: u64 = 1 << 5;
    pub(super) const RAID10: u64 = 1 << 6;
    pub(super) const RAID5: u64 = 1 << 7;
    pub(super) const RAID6: u64 = 1 << 8;
    pub(super) const RAID1C3: u64 = 1 << 9;
    pub(super) const RAID1C4: u64 = 1 << 10;
    pub(super) const ALL: u64 = 0xff << 3;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Profile {
    /// Each stripe has all bytes: single, DUP, RAID1.
    Copies,
    /// The stripes take turns.
    Raid0,
    /// Groups of this number of stripes take turns, and the stripes of a group are copies.
    Raid10 { copies: usize },
    /// The stripes take turns, and some have parity.
    Parity,
}

#[derive(Debug, Clone, Copy)]
struct Stripe {
    device: u64,
    /// The place on this device; `None` if the stripe lies on another device.
    place: Option<u64>,
}

#[derive(Debug)]
struct Chunk {
    length: u64,
    profile: Profile,
    stripes: Vec<Stripe>,
}

/// Places of the same bytes on this device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Copies {
    /// At least one place.
    pub(super) places: Vec<u64>,
    /// The number of bytes from there on.
    pub(super) length: u64,
}

/// The reason why bytes are not on this device.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoCopy {
    /// No chunk has this address.
    NoChunk,
    /// They are on these devices.
    Elsewhere(Vec<u64>),
    /// They are spread with parity, by RAID5 or RAID6.
    Parity,
}

/// All known chunks.
#[derive(Debug, Default)]
pub(super) struct ChunkMap {
    /// By their first address. They do not overlap.
    chunks: BTreeMap<u64, Chunk>,
}

impl ChunkMap {
    /// Adds a chunk that begins at `logical`. A chunk that is known already is ignored. Returns its
    /// length in the list.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub(super) fn add(
        &mut self,
        logical: u64,
        bytes: &[u8],
        superblock: &BtrfsSuperblock,
    ) -> Result<usize, &'static str> {
        let chunk = Chunk::parse(bytes, superblock)?;
        let used = HEAD_BYTES.saturating_add(chunk.stripes.len().saturating_mul(STRIPE_BYTES));
        let end = logical.checked_add(chunk.length).ok_or("it ends beyond all addresses")?;
        if self.chunks.get(&logical).is_some_and(|known| known.length == chunk.length) {
            return Ok(used);
        }
        let before = self.chunks.range(..end).next_back();
        if before.is_some_and(|(start, chunk)| start.saturating_add(chunk.length) > logical) {
            return Err("it overlaps another one");
        }
        self.chunks.insert(logical, chunk);
        Ok(used)
    }

    /// Iterates over the first addresses and the lengths of all chunks.
    pub(super) fn lengths(&self) -> impl Iterator<Item = (u64, u64)> {
        self.chunks.iter().map(|(start, chunk)| (*start, chunk.length))
    }

    /// Iterates over the places at which the stripes of a chunk begin.
    pub(super) fn first_places(&self, logical: u64) -> impl Iterator<Item = u64> {
        let chunk = self.chunks.get(&logical);
        chunk.into_iter().flat_map(|chunk| chunk.stripes.iter().filter_map(|stripe| stripe.place))
    }

    /// Finds the bytes at an address.
    pub(super) fn locate(&self, logical: u64) -> Result<Copies, NoCopy> {
        let (start, chunk) = self.chunks.range(..=logical).next_back().ok_or(NoCopy::NoChunk)?;
        let inside = logical.saturating_sub(*start);
        if inside >= chunk.length {
            return Err(NoCopy::NoChunk);
        }
        chunk.locate(inside)
    }
}

impl Chunk {
    fn parse(bytes: &[u8], superblock: &BtrfsSuperblock) -> Result<Self, &'static str> {
        let (length, kind) = (u64_at(bytes, 0), u64_at(bytes, 24));
        let count = usize::from(u16_at(bytes, 44));
        let list = bytes.get(HEAD_BYTES..).unwrap_or_default();
        let (stripes, _) = list.as_chunks::<STRIPE_BYTES>();
        let Some(stripes) = stripes.get(..count).filter(|_| count > 0 && length > 0) else {
            return Err("its stripes are missing");
        };
        let profile = match kind & profile::ALL {
            0 if count == 1 => Profile::Copies,
            profile::DUP | profile::RAID1 | profile::RAID1C3 | profile::RAID1C4 => Profile::Copies,
            profile::RAID0 => Profile::Raid0,
            profile::RAID10 => {
                let copies = usize::from(u16_at(bytes, 46));
                if count.checked_rem(copies) != Some(0) {
                    return Err("its stripes are not a multiple of its copies");
                }
                Profile::Raid10 { copies }
            }
            profile::RAID5 | profile::RAID6 => Profile::Parity,
            _ => return Err("its profile is unknown"),
        };
        if profile != Profile::Copies && u64_at(bytes, 16) != STRIPE_UNIT {
            return Err("its stripes are not of 64 KiB");
        }
        let stripe = |bytes: &[u8; STRIPE_BYTES]| {
            let device = u64_at(bytes, 0);
            let is_here = device == superblock.device && array_at(bytes, 16) == superblock.device_uuid;
            Stripe { device, place: is_here.then(|| u64_at(bytes, 8)) }
        };
        Ok(Self { length, profile, stripes: stripes.iter().map(stripe).collect() })
    }

    fn locate(&self, inside: u64) -> Result<Copies, NoCopy> {
        let all = self.stripes.as_slice();
        // The rows of one stripe of each group, the group in turn, and the bytes left in its unit.
        let in_turn = |copies: usize| {
            let groups = all.len().checked_div(copies)? as u64;
            let unit = inside.checked_div(STRIPE_UNIT)?;
            let within = inside.checked_rem(STRIPE_UNIT)?;
            let group = to_usize(unit.checked_rem(groups)?).checked_mul(copies)?;
            let row = unit.checked_div(groups)?.checked_mul(STRIPE_UNIT)?;
            let stripes = all.get(group..group.checked_add(copies)?)?;
            Some((stripes, row.checked_add(within)?, STRIPE_UNIT.checked_sub(within)?))
        };
        let left = self.length.saturating_sub(inside);
        let (stripes, offset, length) = match self.profile {
            Profile::Copies => Some((all, inside, left)),
            Profile::Raid0 => in_turn(1),
            Profile::Raid10 { copies } => in_turn(copies),
            Profile::Parity => return Err(NoCopy::Parity),
        }
        .ok_or(NoCopy::NoChunk)?;
        let places: Vec<_> = stripes.iter().filter_map(|stripe| stripe.place?.checked_add(offset)).collect();
        if places.is_empty() {
            let mut devices: Vec<_> = stripes.iter().map(|stripe| stripe.device).collect();
            devices.sort_unstable();
            devices.dedup();
            return Err(NoCopy::Elsewhere(devices));
        }
        Ok(Copies { places, length: length.min(left) })
    }
}
