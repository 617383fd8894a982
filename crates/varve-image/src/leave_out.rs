//! Which parts of a disk need not be kept: they may be archived as zeros, and the disk is as good as before to whoever starts it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::sync::Arc;

use crate::content::VolumeContent;
use crate::disk::Disk;
use crate::left_out::LeftOut;
use crate::read_at::ReadAt;
use crate::swap;
use crate::volume::Volume;

/// What is to be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaveOut {
    /// Swap partitions and files, `pagefile.sys`, `hiberfil.sys`.
    pub swap: bool,
    /// Blocks that belong to no file, of file systems that were left in order.
    pub free: bool,
}

impl LeftOut {
    /// Looks for what can be left out of a disk. Whatever is damaged, unknown or not certain is kept.
    #[must_use]
    pub fn find(disk: Arc<dyn ReadAt>, wanted: LeaveOut) -> Self {
        let mut found = Self::default();
        if !wanted.swap && !wanted.free {
            return found;
        }
        let disk = Disk::open(disk);
        if overlaps(disk.volumes()) {
            // Of two volumes on the same bytes one is a mistake, and nobody knows which.
            return found;
        }
        if wanted.swap {
            swap::add_swap(&disk, &mut found);
        }
        if wanted.free {
            found.add_free(&disk);
        }
        found
    }

    fn add_free(&mut self, disk: &Disk) {
        for volume in disk.volumes() {
            let VolumeContent::FileSystem(_) = volume.content() else { continue };
            let what = "free blocks";
            match volume.open_file_system().and_then(|files| files.free_places()) {
                Ok(Some(places)) => self.add(volume, what, places),
                Ok(None) => {
                    self.keep(volume, what, "which are free is not certain: it was not left in order")
                }
                Err(error) => self.keep(volume, what, &error.to_string()),
            }
        }
    }
}

/// Whether any two volumes share bytes, but for the members of a group and what is in them.
fn overlaps(volumes: &[Volume]) -> bool {
    let apart = |volume: &&Volume| volume.content() != VolumeContent::LvmMember;
    let mut pieces: Vec<_> =
        volumes.iter().filter(apart).flat_map(|volume| volume.pieces().to_vec()).collect();
    pieces.sort_by_key(|piece| (piece.start, piece.end));
    !pieces.is_sorted_by(|one, two| one.end <= two.start)
}
