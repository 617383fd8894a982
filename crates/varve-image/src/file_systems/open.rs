//! Opens the file system of a volume. Only this module knows which reader reads which file system.

use std::sync::Arc;

use crate::bytes::read_at::ReadAt;
use crate::contents::volume_content::FileSystemKind as Kind;
use crate::contents::volume_content::VolumeContent;
use crate::file_systems::btrfs::Btrfs;
use crate::file_systems::exfat::ExFat;
use crate::file_systems::ext::ExtFileSystem;
use crate::file_systems::fat::Fat;
use crate::file_systems::file_system::{FileSystem, FileSystemError};
use crate::file_systems::iso::Iso;
use crate::file_systems::ntfs::NtfsFiles;
use crate::file_systems::xfs::XfsFiles;

/// Opens the file system on the volume called `volume`, whose kind is `content`.
pub(crate) fn file_system(
    volume: &str,
    content: VolumeContent,
    bytes: Arc<dyn ReadAt>,
) -> Result<Arc<dyn FileSystem>, FileSystemError> {
    let unreadable =
        |feature: String| Err(FileSystemError::Unsupported { what: format!("volume {volume}"), feature });
    match content {
        VolumeContent::FileSystem(Kind::Ext2 | Kind::Ext3 | Kind::Ext4) => {
            Ok(Arc::new(ExtFileSystem::open(bytes)?))
        }
        VolumeContent::FileSystem(Kind::Btrfs) => Ok(Arc::new(Btrfs::open(bytes)?)),
        VolumeContent::FileSystem(Kind::Fat) => Ok(Arc::new(Fat::open(bytes)?)),
        VolumeContent::FileSystem(Kind::ExFat) => Ok(Arc::new(ExFat::open(bytes)?)),
        VolumeContent::FileSystem(Kind::Iso9660) => Ok(Arc::new(Iso::open(bytes)?)),
        VolumeContent::FileSystem(Kind::Ntfs) => Ok(Arc::new(NtfsFiles::open(bytes)?)),
        VolumeContent::FileSystem(Kind::Xfs) => Ok(Arc::new(XfsFiles::open(bytes)?)),
        VolumeContent::FileSystem(kind) => unreadable(format!("the file system {}", kind.name())),
        content => unreadable(format!("the content type {content}")),
    }
}
