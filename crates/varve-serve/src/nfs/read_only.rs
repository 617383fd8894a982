//! The NFS operations that write: all of them are refused. The library's own read-only mode is not
//! used, because it clears the write bits of modes, and so would not show files as they were
//! archived.

use nfs3_server::nfs3_types::nfs3::{createverf3, fattr3, filename3, nfspath3, nfsstat3, sattr3, stable_how};
use nfs3_server::vfs::{FileHandleU64, NfsFileSystem, VFSCapabilities};

use super::adapter::NfsAdapter;

impl NfsFileSystem for NfsAdapter {
    fn capabilities(&self) -> VFSCapabilities {
        VFSCapabilities::ReadOnly
    }

    async fn setattr(&self, _: &FileHandleU64, _: sattr3) -> Result<fattr3, nfsstat3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn write(
        &self,
        _: &FileHandleU64,
        _: u64,
        _: &[u8],
        _: stable_how,
    ) -> Result<(fattr3, stable_how), nfsstat3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn create(
        &self,
        _: &FileHandleU64,
        _: &filename3<'_>,
        _: sattr3,
    ) -> Result<(FileHandleU64, fattr3), nfsstat3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn create_exclusive(
        &self,
        _: &FileHandleU64,
        _: &filename3<'_>,
        _: createverf3,
    ) -> Result<FileHandleU64, nfsstat3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn mkdir(&self, _: &FileHandleU64, _: &filename3<'_>) -> Result<(FileHandleU64, fattr3), nfsstat3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn remove(&self, _: &FileHandleU64, _: &filename3<'_>) -> Result<(), nfsstat3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn rename<'a>(
        &self,
        _: &FileHandleU64,
        _: &filename3<'a>,
        _: &FileHandleU64,
        _: &filename3<'a>,
    ) -> Result<(), nfsstat3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn symlink<'a>(
        &self,
        _: &FileHandleU64,
        _: &filename3<'a>,
        _: &nfspath3<'a>,
        _: &sattr3,
    ) -> Result<(FileHandleU64, fattr3), nfsstat3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }

    async fn commit(&self, _: &FileHandleU64, _: u64, _: u32) -> Result<(), nfsstat3> {
        Err(nfsstat3::NFS3ERR_ROFS)
    }
}
