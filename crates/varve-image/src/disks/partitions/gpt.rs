//! The partition table of UEFI: a header and an array of entries after the first sector, and a
//! second copy of both at the end of the disk.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::partition::{Partition, PartitionType, SECTOR_BYTES};
use crate::bytes::crc::crc32;
use crate::bytes::fields::{array_at, has_at, u32_at, u64_at};
use crate::bytes::read_at::ReadAt;
use crate::disks::disk_problem::DiskProblem;
use varve_block::to_usize;

const MAGIC: &[u8; 8] = b"EFI PART";
const HEADER_BYTES: usize = 92;
const ENTRY_BYTES_MIN: usize = 128;
/// Tables usually have 128 entries of 128 bytes. Larger tables than this are not read.
const TABLE_BYTES_MAX: u64 = 4 << 20;
/// The sector sizes of disks, and of optical media.
const SECTORS: [u64; 3] = [SECTOR_BYTES, 4096, 2048];

/// One copy of the table, read at a guessed position.
struct GptCopy {
    sector_bytes: u64,
    entries: Vec<u8>,
    entry_bytes: usize,
    /// The sector of the other copy's header, according to this one.
    other: u64,
    first_usable: u64,
    /// Set if this copy is damaged.
    problem: Option<String>,
}

/// Reads the better of the two copies. `expected` is true if the first sector promises a GPT.
/// Returns the partitions, and the size of a sector.
pub(super) fn read(
    disk: &dyn ReadAt,
    expected: bool,
    problems: &mut Vec<DiskProblem>,
) -> Option<(Vec<Partition>, u64)> {
    let primary = SECTORS.iter().find_map(|sector_bytes| GptCopy::read(disk, *sector_bytes, 1));
    let last = |sector_bytes: u64| {
        disk.size().checked_div(sector_bytes).and_then(|count| count.checked_sub(1)).filter(|last| *last > 1)
    };
    let places = primary.iter().map(|primary| (primary.sector_bytes, Some(primary.other)));
    let at_end = SECTORS.iter().map(|sector_bytes| (*sector_bytes, last(*sector_bytes)));
    let backup = places.chain(at_end).find_map(|(sector_bytes, at)| GptCopy::read(disk, sector_bytes, at?));
    if primary.is_none() && backup.is_none() {
        if expected {
            problems
                .push(DiskProblem::new("the partition table", "is a GPT, but both copies of it are missing"));
        }
        return None;
    }
    // Without a protective first sector, only a copy with correct checksums is believed: it may be
    // a remnant of an earlier use of the disk.
    let whole = |copy: &Option<GptCopy>| copy.as_ref().is_some_and(|copy| copy.problem.is_none());
    if !expected {
        if !whole(&primary) && !whole(&backup) {
            return None;
        }
        problems.push(DiskProblem::new("the first sector", "has no entry that protects the GPT"));
    }
    for (name, copy) in [("first", &primary), ("second", &backup)] {
        let problem = match copy {
            None => "is missing",
            Some(copy) => match &copy.problem {
                None => continue,
                Some(problem) => problem.as_str(),
            },
        };
        problems.push(DiskProblem::new(format!("the {name} copy of the GPT"), problem));
    }
    if let (Some(one), Some(two)) = (&primary, &backup)
        && whole(&primary)
        && whole(&backup)
        && one.entries != two.entries
    {
        problems.push(DiskProblem::new(
            "the partition table",
            "is a GPT with two copies that differ; the first is shown",
        ));
    }
    let chosen = if whole(&primary) || !whole(&backup) { primary.or(backup) } else { backup };
    chosen.map(|copy| (copy.partitions(), copy.sector_bytes))
}

impl GptCopy {
    /// Returns `None` if no header is there.
    fn read(disk: &dyn ReadAt, sector_bytes: u64, at: u64) -> Option<Self> {
        let mut header = [0; 512];
        disk.read_at(at.checked_mul(sector_bytes)?, &mut header).ok()?;
        if !has_at(&header, 0, MAGIC) {
            return None;
        }
        let (other, first_usable) = (u64_at(&header, 32), u64_at(&header, 40));
        let entry_bytes = to_usize(u32_at(&header, 84));
        let table_bytes = u64::from(u32_at(&header, 80)).saturating_mul(entry_bytes as u64);
        let mut copy =
            Self { sector_bytes, entries: Vec::new(), entry_bytes, other, first_usable, problem: None };
        copy.problem = header_problem(&header, at);
        if entry_bytes < ENTRY_BYTES_MIN || table_bytes > TABLE_BYTES_MAX {
            copy.problem =
                Some(format!("is damaged: its entries have {entry_bytes} bytes, {table_bytes} in all"));
            return Some(copy);
        }
        copy.entries.resize(to_usize(table_bytes), 0);
        let read = disk.read_at(u64_at(&header, 72).saturating_mul(sector_bytes), &mut copy.entries);
        if let Err(error) = read {
            copy.problem = Some(format!("has unreadable entries: {error}"));
            copy.entries.clear();
        } else if crc32(&copy.entries) != u32_at(&header, 88) {
            copy.problem.get_or_insert("is damaged: its entries do not match their checksum".into());
        }
        Some(copy)
    }

    fn partitions(&self) -> Vec<Partition> {
        let entries = (1..).zip(self.entries.chunks_exact(self.entry_bytes.max(ENTRY_BYTES_MIN)));
        entries.filter_map(|(number, entry)| self.partition(number, entry)).collect()
    }

    /// Returns `None` for a slot that is not used.
    fn partition(&self, number: u32, entry: &[u8]) -> Option<Partition> {
        let kind: [u8; 16] = array_at(entry, 0);
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        if kind == [0; 16] || last < first || first < self.first_usable.min(1) {
            return None;
        }
        let start = first.checked_mul(self.sector_bytes)?;
        let end = last.checked_add(1)?.checked_mul(self.sector_bytes)?;
        let units = entry
            .get(56..128)
            .unwrap_or_default()
            .chunks_exact(2)
            .map(|pair| u16::from_le_bytes(array_at(pair, 0)));
        let label: String = char::decode_utf16(units.take_while(|unit| *unit != 0))
            .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        let label = (!label.is_empty()).then_some(label);
        Some(Partition {
            number,
            start,
            size: end.checked_sub(start)?,
            kind: PartitionType::Gpt(kind),
            label,
        })
    }
}

fn header_problem(header: &[u8; 512], at: u64) -> Option<String> {
    let length = to_usize(u32_at(header, 12));
    let Some(covered) = header.get(..length).filter(|_| length >= HEADER_BYTES) else {
        return Some(format!("is damaged: its header has an impossible length of {length} bytes"));
    };
    let mut covered = covered.to_vec();
    if let Some(own) = covered.get_mut(16..20) {
        own.fill(0);
    }
    if crc32(&covered) != u32_at(header, 16) {
        return Some("is damaged: its header does not match its checksum".into());
    }
    let said = u64_at(header, 24);
    (said != at).then(|| format!("is at sector {at}, but names sector {said} as its place"))
}
