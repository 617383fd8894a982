//! A disk whose ext file systems have the blocks that a start reads together, in the order of first
//! access. Nothing is written.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;
use std::sync::Arc;

use crate::bytes::overlaid::OverlaidBytes;
use crate::bytes::ranges::Ranges;
use crate::bytes::read_at::ReadAt;
use crate::contents::volume_content::VolumeContent;
use crate::disks::disk::Disk;
use crate::disks::volume::Volume;
use crate::file_systems::ext::{ExtFileSystem, Relocation, RelocationError, RelocationOptions};
use crate::file_systems::ext::{loader_with_block_lists, structure};
use crate::leave_out::open_ext::{ext_claim, is_ext};
use crate::leave_out::proof::Proof;

const SECTOR_BYTES: usize = 512;

/// A volume that a profile reads, and its new places.
pub struct VolumeRelocation {
    name: String,
    read_bytes: u64,
    outcome: Result<Relocation, String>,
}

impl VolumeRelocation {
    /// Returns the name of the volume.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of its bytes that the profile reads.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Returns the new places, or the reason why the volume stays as it is.
    ///
    /// # Errors
    ///
    /// The reason, in words.
    pub fn outcome(&self) -> Result<&Relocation, &str> {
        self.outcome.as_ref().map_err(String::as_str)
    }
}

/// A volume without the contents of its files, for a check by another program.
pub struct VolumeStructure {
    name: String,
    bytes: Arc<dyn ReadAt>,
    ranges: Vec<Range<u64>>,
}

impl VolumeStructure {
    /// Returns the name of the volume.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the whole volume.
    #[must_use]
    pub fn bytes(&self) -> &dyn ReadAt {
        &*self.bytes
    }

    /// Returns the ranges of bytes that a check of the file system reads, in ascending order: all
    /// that are in use, without the contents of files.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }
}

/// A disk with new places for the blocks of a profile.
pub struct RelocatedDisk {
    before: Disk,
    reads: Vec<Range<u64>>,
    volumes: Vec<VolumeRelocation>,
    shown: Arc<dyn ReadAt>,
    changed_bytes: u64,
}

impl RelocatedDisk {
    /// Plans new places for the blocks that were read. The reads are ranges of bytes of the disk,
    /// in the order of first access. Moved blocks share no unit of `align_bytes` of the disk with
    /// others while there is space.
    #[must_use]
    pub fn plan(disk: Arc<dyn ReadAt>, reads: &[Range<u64>], align_bytes: u64) -> Self {
        let before = Disk::open(disk);
        let mut sector = [0; SECTOR_BYTES];
        let read = before.bytes().read_at(0, &mut sector);
        let loader = read.ok().and_then(|()| loader_with_block_lists(&sector));
        let mut shown = OverlaidBytes::new(Arc::clone(before.bytes()));
        let mut volumes = Vec::new();
        let proof = Proof::new(&before);
        for volume in before.volumes() {
            let reads: Vec<_> = reads.iter().flat_map(|read| in_volume(volume, read)).collect();
            // The logical volumes in a member of LVM are volumes of their own.
            if reads.is_empty() || volume.content() == VolumeContent::LvmMember {
                continue;
            }
            let relocation = match loader {
                Some(loader) => Err(RelocationError::BlockLists(loader).to_string()),
                None => proof_and_plan(&proof, volume, &reads, align_bytes),
            };
            if let Ok(relocation) = &relocation {
                show(volume, relocation, &mut shown);
            }
            let read_bytes = reads.iter().map(|read| read.end.saturating_sub(read.start));
            volumes.push(VolumeRelocation {
                name: volume.name().into(),
                read_bytes: read_bytes.fold(0, u64::saturating_add),
                outcome: relocation,
            });
        }
        let changed = shown.ranges().map(|range| range.end.saturating_sub(range.start));
        let changed_bytes = changed.fold(0, u64::saturating_add);
        Self { before, reads: reads.to_vec(), volumes, shown: Arc::new(shown), changed_bytes }
    }

    /// Returns the volumes that the profile reads.
    #[must_use]
    pub fn volumes(&self) -> &[VolumeRelocation] {
        &self.volumes
    }

    /// Returns the disk with the new places.
    #[must_use]
    pub fn shown(&self) -> Arc<dyn ReadAt> {
        Arc::clone(&self.shown)
    }

    /// Returns the number of bytes that differ in place: moved data and changed metadata.
    #[must_use]
    pub fn changed_bytes(&self) -> u64 {
        self.changed_bytes
    }

    /// Returns the number of units of `unit_bytes` of the disk that the profile reads: before, and
    /// with the new places.
    #[must_use]
    pub fn units_read(&self, unit_bytes: u64) -> [u64; 2] {
        let unit_bytes = unit_bytes.max(1);
        let units = |ranges: &mut dyn Iterator<Item = Range<u64>>| {
            let units = |range: Range<u64>| {
                range.start.checked_div(unit_bytes).unwrap_or(0)..range.end.div_ceil(unit_bytes)
            };
            ranges.map(units).collect::<Ranges>().total()
        };
        let old: Ranges = self.reads.iter().cloned().collect();
        let (mut moved, mut places) = (Ranges::default(), Vec::new());
        for relocated in &self.volumes {
            let (Ok(relocation), Some(volume)) = (&relocated.outcome, self.before.volume(&relocated.name))
            else {
                continue;
            };
            moved.extend(volume.pieces().iter().cloned());
            for read in old.iter().flat_map(|read| in_volume(volume, &read)) {
                let new = relocation.new_places(&read);
                places.extend(new.into_iter().flat_map(|place| volume.on_disk(place)));
            }
        }
        let staying = old.without(&moved);
        [units(&mut old.iter()), units(&mut staying.iter().chain(places))]
    }

    /// Reads all changed file systems on the disk before and on `after`, and compares the inodes in
    /// use, and the status, attributes, names and content of each.
    ///
    /// # Errors
    ///
    /// The first difference, in words.
    pub fn verify(&self, after: Arc<dyn ReadAt>) -> Result<(), String> {
        let after = Disk::open(after);
        for (name, relocation) in self.moved() {
            let open = |disk: &Disk| {
                let volume = disk.volume(name).ok_or_else(|| format!("{name} is missing"))?;
                ExtFileSystem::open(volume.read()).map_err(|error| format!("{name}: {error}"))
            };
            let compared = relocation.verify(&open(&self.before)?, &open(&after)?);
            compared.map_err(|difference| format!("{name}: {difference}"))?;
        }
        Ok(())
    }

    /// Finds the structures of all changed file systems on `after`, for a check by another program.
    ///
    /// # Errors
    ///
    /// The first structure that cannot be read or is inconsistent, in words.
    pub fn structures(&self, after: Arc<dyn ReadAt>) -> Result<Vec<VolumeStructure>, String> {
        let after = Disk::open(after);
        let structure = |name: &str| {
            let volume = after.volume(name).ok_or_else(|| format!("{name} is missing"))?;
            let problem = |error: RelocationError| format!("{name}: {error}");
            let bytes = volume.read();
            let files = ExtFileSystem::open(Arc::clone(&bytes)).map_err(|error| problem(error.into()))?;
            let ranges = structure::ranges(&files).map_err(problem)?;
            Ok(VolumeStructure { name: name.into(), bytes, ranges })
        };
        self.moved().map(|(name, _)| structure(name)).collect()
    }

    /// Iterates over the volumes with moved blocks.
    fn moved(&self) -> impl Iterator<Item = (&str, &Relocation)> {
        let moved =
            |volume: &'_ VolumeRelocation| volume.outcome.as_ref().is_ok_and(|new| !new.moved().is_empty());
        let moved = self.volumes.iter().filter(move |volume| moved(volume));
        moved.filter_map(|volume| Some((volume.name.as_str(), volume.outcome.as_ref().ok()?)))
    }
}

fn proof_and_plan(
    proof: &Proof<'_>,
    volume: &Volume,
    reads: &[Range<u64>],
    align_bytes: u64,
) -> Result<Relocation, String> {
    if !is_ext(volume) {
        return Err(format!("its content is {}, and only ext2, ext3 and ext4 are moved", volume.content()));
    }
    proof.check(volume, &ext_claim())?;
    let files = ExtFileSystem::open(volume.read()).map_err(|error| error.to_string())?;
    let options = RelocationOptions { align_bytes, volume_start: volume.start() };
    Relocation::plan(&files, reads, options).map_err(|error| error.to_string())
}

/// Returns the parts of a range of the disk that lie in a volume, as offsets in the volume.
fn in_volume(volume: &Volume, read: &Range<u64>) -> Vec<Range<u64>> {
    let (mut found, mut before) = (Vec::new(), 0_u64);
    for piece in volume.pieces() {
        let inside =
            |at: u64| at.clamp(piece.start, piece.end).saturating_sub(piece.start).saturating_add(before);
        found.push(inside(read.start)..inside(read.end));
        before = before.saturating_add(piece.end.saturating_sub(piece.start));
    }
    found.retain(|range| !range.is_empty());
    found
}

/// Shows the changed ranges of a volume on its disk.
fn show(volume: &Volume, relocation: &Relocation, disk: &mut OverlaidBytes) {
    let bytes = relocation.shown(&volume.read());
    let ranges: Vec<_> = bytes.ranges().collect();
    let bytes: Arc<dyn ReadAt> = Arc::new(bytes);
    for range in ranges {
        let mut at = range.start;
        for place in volume.on_disk(range) {
            let length = place.end.saturating_sub(place.start);
            disk.show(place, Arc::clone(&bytes), at);
            at = at.saturating_add(length);
        }
    }
}
