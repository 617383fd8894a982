//! From a volume to its files: the one place that knows which reader reads what.

use std::sync::Arc;

use crate::content::VolumeContent;
use crate::disk::Volume;
use crate::exfat::ExFat;
use crate::fat::Fat;
use crate::iso::Iso;
use crate::ntfs::NtfsFiles;
use crate::{ExtFileSystem, FileSystem, FileSystemError, FileSystemKind as Kind};

/// Opens the files of a volume.
pub(crate) fn file_system(volume: &Volume) -> Result<Arc<dyn FileSystem>, FileSystemError> {
    let unreadable = |feature: String| {
        Err(FileSystemError::Unsupported { what: format!("volume {}", volume.name()), feature })
    };
    match volume.content() {
        VolumeContent::FileSystem(Kind::Ext2 | Kind::Ext3 | Kind::Ext4) => {
            Ok(Arc::new(ExtFileSystem::open(volume.read())?))
        }
        VolumeContent::FileSystem(Kind::Fat) => Ok(Arc::new(Fat::open(volume.read())?)),
        VolumeContent::FileSystem(Kind::ExFat) => Ok(Arc::new(ExFat::open(volume.read())?)),
        VolumeContent::FileSystem(Kind::Iso9660) => Ok(Arc::new(Iso::open(volume.read())?)),
        VolumeContent::FileSystem(Kind::Ntfs) => Ok(Arc::new(NtfsFiles::open(volume.read())?)),
        VolumeContent::FileSystem(kind) => unreadable(format!("the file system {}", kind.name())),
        content => unreadable(format!("files in what is {content}")),
    }
}
