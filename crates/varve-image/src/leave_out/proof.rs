//! Proves that a volume holds exactly the content that it seems to hold. Without this proof,
//! nothing of a volume is left out.
//!
//! All evidence must agree. The partition table must be intact, and its type must not contradict.
//! The disk must have the whole volume. There must be no second signature at any known place: in
//! the volume, in the members of its LVM group, or on the disk as a whole. A place that cannot be
//! read counts as a signature.

use std::cell::OnceCell;
use std::ops::Range;

use crate::bytes::read_at::ReadAt;
use crate::contents::signatures::{ProbedVolume, UnreadablePlace};
use crate::contents::volume_content::VolumeContent;
use crate::disks::disk::Disk;
use crate::disks::partitions::{self, PartitionPurpose, TableKind};
use crate::disks::volume::Volume;

/// The supposed content of a volume.
#[derive(Debug, Clone)]
pub(crate) struct VolumeClaim {
    pub(crate) purpose: PartitionPurpose,
    /// The names of the signatures that this content has itself.
    pub(crate) names: &'static [&'static str],
    /// The bytes that were checked to belong to this content. Other signatures are ignored there.
    pub(crate) own_bytes: Range<u64>,
}

/// Proves claims about the volumes of one disk.
pub(crate) struct Proof<'a> {
    disk: &'a Disk,
    /// The reason why no claim about this disk can be proven; `None` if there is no such reason.
    doubt: OnceCell<Option<String>>,
}

impl<'a> Proof<'a> {
    pub(crate) fn new(disk: &'a Disk) -> Self {
        Self { disk, doubt: OnceCell::new() }
    }

    /// Checks that a volume holds the claimed content and no other.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub(crate) fn check(&self, volume: &Volume, claim: &VolumeClaim) -> Result<(), String> {
        if let Some(doubt) = self.doubt.get_or_init(|| self.disk_doubt()) {
            return Err(doubt.clone());
        }
        check_volume(volume, claim)?;
        let inside = |whole: &Volume, part: &Range<u64>| {
            whole.pieces().iter().any(|piece| piece.start < part.end && part.start < piece.end)
        };
        let members = self.disk.volumes().iter().filter(|member| {
            member.content() == VolumeContent::LvmMember
                && volume.pieces().iter().any(|piece| inside(member, piece))
        });
        for member in members.filter(|_| volume.is_logical()) {
            let claim = VolumeClaim { purpose: PartitionPurpose::Lvm, names: &["LVM2"], own_bytes: 0..0 };
            check_volume(member, &claim)
                .map_err(|reason| format!("its group lies on {}: {reason}", member.name()))?;
        }
        Ok(())
    }

    /// Returns the reason to doubt the disk as a whole.
    fn disk_doubt(&self) -> Option<String> {
        if let Some(problem) = self.disk.table_problem() {
            return Some(format!("the partition table is in doubt: {problem}"));
        }
        if overlaps(self.disk.volumes()) {
            return Some("two volumes of the disk overlap".into());
        }
        let names: &[&str] = match self.disk.table() {
            // The only volume is the whole disk, and `check_volume` examines it.
            None => return None,
            Some(TableKind::Gpt) => &["GPT"],
            Some(TableKind::Mbr) => &[],
        };
        // The first sector holds the code of a boot loader, so it cannot be tested for the numbers
        // of FAT.
        let names = [names, &["FAT"]].concat();
        no_other(self.disk.bytes(), &names, &(0..0))
            .err()
            .map(|reason| format!("the whole disk has {reason}"))
    }
}

fn check_volume(volume: &Volume, claim: &VolumeClaim) -> Result<(), String> {
    if volume.is_cut_off() {
        return Err("it is cut off by the end of the disk".into());
    }
    if let Some(kind) = volume.partition_type()
        && !kind.is_for(claim.purpose)
    {
        return Err(format!("its partition type is {kind}, which is not for {}", claim.purpose.name()));
    }
    let bytes = volume.read();
    if partitions::read(&bytes, &mut Vec::new()).is_some() {
        return Err("it has a partition table".into());
    }
    no_other(&bytes, claim.names, &claim.own_bytes).map_err(|reason| format!("it has {reason}"))
}

fn no_other(bytes: &dyn ReadAt, names: &[&str], own_bytes: &Range<u64>) -> Result<(), String> {
    match ProbedVolume::of(bytes).find_other(names, own_bytes) {
        Ok(None) => Ok(()),
        Ok(Some(sighting)) => Err(sighting.to_string()),
        Err(UnreadablePlace(place)) => {
            Err(format!("a place at byte {place} that cannot be read and may hold a signature"))
        }
    }
}

/// Returns true if two volumes share bytes. A logical volume may share bytes with the members of
/// its group. Any other overlap means that one of the volumes is a mistake, and it is unknown
/// which.
fn overlaps(volumes: &[Volume]) -> bool {
    let is_member = |volume: &Volume| volume.content() == VolumeContent::LvmMember;
    let is_logical = |volume: &Volume| volume.is_logical();
    share_bytes(volumes.iter().filter(|volume| !is_member(volume)))
        || share_bytes(volumes.iter().filter(|volume| !is_logical(volume)))
}

fn share_bytes<'a>(volumes: impl Iterator<Item = &'a Volume>) -> bool {
    let mut pieces: Vec<_> = volumes.flat_map(|volume| volume.pieces().to_vec()).collect();
    pieces.sort_by_key(|piece| (piece.start, piece.end));
    !pieces.is_sorted_by(|one, two| one.end <= two.start)
}
