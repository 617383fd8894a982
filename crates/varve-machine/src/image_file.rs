//! Opens files whose names come from untrusted sources, for reading and without blocking.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file or a block device. Other kinds are refused: opening some devices has effects, and
/// opening a FIFO blocks.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    known(path.metadata()?.file_type())?;
    // The path may lead to something else by now.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    known(file.metadata()?.file_type())?;
    Ok(file)
}

fn known(kind: FileType) -> io::Result<()> {
    match kind.is_file() || kind.is_block_device() {
        true => Ok(()),
        false => Err(io::Error::other("it is neither a file nor a block device")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_keeps_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        for path in [fifo.as_path(), Path::new("/dev/zero"), folder.path()] {
            assert!(open(path).unwrap_err().to_string().contains("nor a block device"), "{}", path.display());
        }
        std::fs::write(folder.path().join("file"), "").unwrap();
        open(&folder.path().join("file")).unwrap();
    }
}
