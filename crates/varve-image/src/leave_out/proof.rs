//! The proof that a volume holds what it seems to hold, without which nothing of it is left out.
//!
//! Everything must agree: the partition table is sound and its type says the same or nothing; the disk has all of the volume; and no
//! second signature stands anywhere where one is looked for, neither in the volume nor in what it lies in: the members of its LVM
//! group, and the whole disk. A signature that cannot be looked for counts as one.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::cell::OnceCell;
use std::ops::Range;

use crate::bytes::read_at::ReadAt;
use crate::disks::content::VolumeContent;
use crate::disks::disk::Disk;
use crate::disks::partitions::{self, Purpose, TableKind};
use crate::disks::signatures::{Places, UnreadablePlace};
use crate::disks::volume::Volume;

/// What a volume seems to hold.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) purpose: Purpose,
    /// The names of the signatures that it has itself.
    pub(crate) names: &'static [&'static str],
    /// The bytes that were checked to be its own: no other signature counts in them.
    pub(crate) own_bytes: Range<u64>,
}

/// The volumes of a disk, to be proven.
pub(crate) struct Proof<'a> {
    disk: &'a Disk,
    /// Why nothing on this disk is proven.
    doubt: OnceCell<Option<String>>,
}

impl<'a> Proof<'a> {
    pub(crate) fn new(disk: &'a Disk) -> Self {
        Self { disk, doubt: OnceCell::new() }
    }

    /// Checks that a volume holds what is claimed and nothing else.
    ///
    /// # Errors
    /// Says what contradicts.
    pub(crate) fn check(&self, volume: &Volume, claim: &Claim) -> Result<(), String> {
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
            let claim = Claim { purpose: Purpose::Lvm, names: &["LVM2"], own_bytes: 0..0 };
            check_volume(member, &claim)
                .map_err(|reason| format!("the group that it is in lies on {}: {reason}", member.name()))?;
        }
        Ok(())
    }

    /// What is wrong with the disk as a whole.
    fn disk_doubt(&self) -> Option<String> {
        if let Some(problem) = self.disk.table_problem() {
            return Some(format!("the partition table is in doubt: {problem}"));
        }
        if overlaps(self.disk.volumes()) {
            return Some("two volumes of the disk overlap".into());
        }
        let names: &[&str] = match self.disk.table() {
            // Then the one volume is the disk.
            None => return None,
            Some(TableKind::Gpt) => &["GPT"],
            Some(TableKind::Mbr) => &[],
        };
        // A boot loader keeps its program in the first sector: no numbers of a file system are in it.
        let names = [names, &["FAT"]].concat();
        no_other(self.disk.bytes(), &names, &(0..0))
            .err()
            .map(|reason| format!("the whole disk has {reason}"))
    }
}

fn check_volume(volume: &Volume, claim: &Claim) -> Result<(), String> {
    if volume.is_cut_off() {
        return Err("the disk ends before it does".into());
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
    match Places::of(bytes).find_other(names, own_bytes) {
        Ok(None) => Ok(()),
        Ok(Some(sighting)) => Err(sighting.to_string()),
        Err(UnreadablePlace(place)) => {
            Err(format!("a place at byte {place} that cannot be read, where a signature may be"))
        }
    }
}

/// Whether any two volumes share bytes, but for the members of a group and the logical volumes in them. Then one of them is a
/// mistake, and nobody knows which.
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
