//! Finds the parts of a disk that need not be stored. They may be archived as zeros, and the
//! restored disk still boots and works as before.
//!
//! ```text
//! candidates (seem to be swap, or free) ─▶ proof (all evidence agrees) ─┬▶ left out, with proof
//!                                                                       └▶ kept, with the reason
//! ```

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::bytes::read_at::ReadAt;
use crate::contents::volume_content::{FileSystemKind, VolumeContent};
use crate::disks::disk::Disk;
use crate::disks::partitions::PartitionPurpose;
use crate::disks::volume::Volume;
use crate::file_systems::btrfs::Btrfs;
use crate::file_systems::ext::ExtFileSystem;
use crate::file_systems::file_system::FileSystem;
use crate::file_systems::xfs::XfsFiles;
use crate::leave_out::left_out::LeftOut;
use crate::leave_out::open_ext::{OpenExt, ext_claim, is_ext, open_ext};
use crate::leave_out::proof::{Proof, VolumeClaim};
use crate::leave_out::swap::{self, SwapCandidate};

/// The kinds of content to leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaveOut {
    /// Swap partitions and swap files, `pagefile.sys`, `hiberfil.sys`.
    pub swap: bool,
    /// Blocks that belong to no file, on file systems that were left in a clean state.
    pub free: bool,
}

impl LeftOut {
    /// Finds the parts of a disk that can be left out. Everything that is damaged, unknown or not
    /// proven is kept.
    #[must_use]
    pub fn find(disk: Arc<dyn ReadAt>, wanted: LeaveOut) -> Self {
        let mut found = Self::default();
        let disk = Disk::open(disk);
        let opened = open_ext(&disk);
        for OpenExt { volume, files } in &opened {
            if files.as_ref().is_ok_and(ExtFileSystem::has_fast_commits) {
                found.add_fast_commits(volume);
            }
        }
        let proof = Proof::new(&disk);
        if wanted.swap {
            for candidate in swap::candidates(&disk, &opened) {
                found.decide(&candidate, &proof);
            }
        }
        if wanted.free {
            found.add_free(&disk, &opened, &proof);
        }
        found
    }

    /// Returns all ranges that any version of this program may have left out of this disk as swap,
    /// proven or not. Each range was left out as a whole or not at all.
    #[must_use]
    pub fn ever_possible(disk: Arc<dyn ReadAt>) -> Vec<Range<u64>> {
        let disk = Disk::open(disk);
        let opened = open_ext(&disk);
        let candidates = swap::candidates(&disk, &opened).into_iter();
        candidates
            .flat_map(|SwapCandidate { volume, places, .. }| {
                places.into_iter().flat_map(|place| volume.on_disk(place)).collect::<Vec<_>>()
            })
            .collect()
    }

    fn decide(&mut self, candidate: &SwapCandidate<'_>, proof: &Proof<'_>) {
        let SwapCandidate { volume, what, places, .. } = candidate;
        match candidate.check().and_then(|()| proof.check(volume, &candidate.claim())) {
            Ok(()) => self.add(volume, what, places.clone(), candidate.why()),
            Err(reason) => self.keep(volume, what, &reason),
        }
    }

    fn add_free(&mut self, disk: &Disk, opened: &[OpenExt<'_>], proof: &Proof<'_>) {
        let what = "free blocks";
        for volume in disk.volumes() {
            let VolumeContent::FileSystem(kind) = volume.content() else { continue };
            let (found, why) = match kind {
                FileSystemKind::Xfs => (
                    free_of_xfs(volume, proof),
                    "free in both trees of every group of XFS that was left in order",
                ),
                FileSystemKind::Btrfs => {
                    (free_of_btrfs(volume, proof), "in no extent of Btrfs, all of whose counts agree")
                }
                _ if is_ext(volume) => continue,
                _ => (Err(format!("the free blocks of {} are not supported", kind.name())), ""),
            };
            match found {
                Ok(places) => self.add(volume, what, places, why.into()),
                Err(reason) => self.keep(volume, what, &reason),
            }
        }
        for OpenExt { volume, files } in opened {
            let found = match files {
                Ok(files) => free_places(files).and_then(|found| {
                    proof.check(volume, &ext_claim())?;
                    Ok((found, files.age()))
                }),
                Err(error) => Err(error.to_string()),
            };
            match found {
                Ok((places, age)) => {
                    let why = format!("free in every block bitmap of {age} that was left in order");
                    self.add(volume, what, places, why);
                }
                Err(reason) => self.keep(volume, what, &reason),
            }
        }
    }
}

/// Returns the free ranges of a volume with XFS.
fn free_of_xfs(volume: &Volume, proof: &Proof<'_>) -> Result<Vec<Range<u64>>, String> {
    let files = XfsFiles::open(volume.read()).map_err(|error| error.to_string())?;
    let places = files.proven_free().map_err(|reason| format!("the free blocks are uncertain: {reason}"))?;
    // The log may begin where other volumes have a log for another volume. The first four sectors
    // have the headers of the first group.
    let claim = VolumeClaim {
        purpose: PartitionPurpose::LinuxFiles,
        names: &["XFS", "external XFS log"],
        own_bytes: 0..2048,
    };
    proof.check(volume, &claim)?;
    Ok(places)
}

/// Returns the free ranges of a volume with Btrfs.
fn free_of_btrfs(volume: &Volume, proof: &Proof<'_>) -> Result<Vec<Range<u64>>, String> {
    let files = Btrfs::open(volume.read()).map_err(|error| error.to_string())?;
    let places = files.proven_free().map_err(|reason| format!("the free blocks are uncertain: {reason}"))?;
    let purpose = PartitionPurpose::LinuxFiles;
    let claim = VolumeClaim { purpose, names: &["Btrfs"], own_bytes: 65536..69632 };
    proof.check(volume, &claim)?;
    Ok(places)
}

fn free_places(files: &ExtFileSystem) -> Result<Vec<Range<u64>>, String> {
    let uncertain = || "the free blocks are uncertain: the file system was not unmounted cleanly".to_owned();
    let places = files.free_places().map_err(|error| error.to_string())?.ok_or_else(uncertain)?;
    files.check_live()?;
    files.check_free_counts()?;
    Ok(places)
}
