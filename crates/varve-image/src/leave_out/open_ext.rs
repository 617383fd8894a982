//! The ext file systems of a disk, opened once for all checks that read them.

use crate::contents::volume_content::{FileSystemKind, VolumeContent};
use crate::disks::disk::Disk;
use crate::disks::partitions::PartitionPurpose;
use crate::disks::volume::Volume;
use crate::file_systems::ext::ExtFileSystem;
use crate::file_systems::file_system::FileSystemError;
use crate::leave_out::proof::VolumeClaim;

/// A volume with an ext file system.
pub(crate) struct OpenExt<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) files: Result<ExtFileSystem, FileSystemError>,
}

/// Returns the signatures that ext has itself, and the bytes of its superblock: counts in it may
/// look like the magic numbers of other content.
pub(crate) fn ext_claim() -> VolumeClaim {
    VolumeClaim { purpose: PartitionPurpose::LinuxFiles, names: &["ext"], own_bytes: 1024..2048 }
}

/// Returns true for ext2, ext3 and ext4.
pub(crate) fn is_ext(volume: &Volume) -> bool {
    use FileSystemKind::{Ext2, Ext3, Ext4};
    matches!(volume.content(), VolumeContent::FileSystem(Ext2 | Ext3 | Ext4))
}

/// Opens all ext file systems of a disk.
pub(crate) fn open_ext(disk: &Disk) -> Vec<OpenExt<'_>> {
    let volumes = disk.volumes().iter().filter(|volume| is_ext(volume));
    volumes.map(|volume| OpenExt { volume, files: ExtFileSystem::open(volume.read()) }).collect()
}
