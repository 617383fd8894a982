//! A single file, archived as a folder that holds nothing else, so that every version of this
//! program can read it.

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use varve_block::{BlockKind, BlockStore};
use varve_image::FileTime;
use varve_tree::{ContentWriter, Cutting};
use varve_world::Timestamp;

use super::left_out::LeftOutOfFolder;
use super::options::FolderOptions;
use super::outcome::{ArchiveFolderError, ArchivedFolder};
use super::sequence::FolderCounts;
use crate::progress::Progress;
use crate::records::node::{Node, NodeKind, is_component};
use crate::records::node_list_writer::NodeListWriter;

/// Bytes of a stream that are read at a time.
const READ_BYTES: usize = 1 << 20;
/// Only the owner may read a file that was made from a stream.
const FILE_MODE: u16 = 0o600;
const FOLDER_MODE: u16 = 0o700;

/// The owner and the time of a file that is made from a stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamOwner {
    pub uid: u32,
    pub gid: u32,
    /// The modification time.
    pub time: Timestamp,
}

/// Returns the folder of a file, after following all links, and the options that archive only this
/// file of it.
///
/// # Errors
/// [`ArchiveFolderError::File`] if the file cannot be reached, or is no file.
pub fn only_this_file(
    file: &Path,
    options: FolderOptions,
) -> Result<(PathBuf, FolderOptions), ArchiveFolderError> {
    let failed = |source| ArchiveFolderError::File { path: file.into(), source };
    let whole = file.canonicalize().map_err(failed)?;
    match (whole.parent(), whole.file_name()) {
        (Some(folder), Some(name)) => {
            Ok((folder.into(), FolderOptions { only: Some(name.as_bytes().to_vec()), ..options }))
        }
        _ => Err(failed(io::ErrorKind::IsADirectory.into())),
    }
}

/// Archives a whole stream as a file with this name, in a folder that holds nothing else.
///
/// # Errors
/// [`ArchiveFolderError`].
pub fn archive_stream(
    blocks: &dyn BlockStore,
    stream: &mut dyn Read,
    name: &str,
    owner: StreamOwner,
    cutting: Cutting,
    progress: &Progress,
) -> Result<ArchivedFolder, ArchiveFolderError> {
    let mut content = ContentWriter::new(blocks, BlockKind::Data, cutting);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if progress.is_cancelled() {
            return Err(ArchiveFolderError::Cancelled);
        }
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                content.write(buffer.get(..count).unwrap_or_default())?;
                progress.add_bytes_read(count as u64);
                progress.add_bytes_done(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if progress.is_cancelled() => return Err(ArchiveFolderError::Cancelled),
            Err(source) => return Err(ArchiveFolderError::Stream { source }),
        }
    }
    let size = content.bytes_written();
    let content = if size > 0 { Some(content.finish()?) } else { None };
    let owned = |name: &[u8], kind, mode| Node {
        mode,
        uid: owner.uid,
        gid: owner.gid,
        mtime: FileTime::from_nanoseconds(owner.time.0),
        ..Node::new(name.to_vec(), kind)
    };
    let name = if is_component(name.as_bytes()) { name } else { "file" };
    let file = Node { size, content, ..owned(name.as_bytes(), NodeKind::File, FILE_MODE) };
    let mut list = NodeListWriter::new(blocks);
    list.push(&file)?;
    let root = Node { content: list.finish()?, ..owned(b"", NodeKind::Folder, FOLDER_MODE) };
    let counts = FolderCounts {
        file_count: 1,
        bytes: size,
        read_count: 1,
        read_bytes: size,
        ..FolderCounts::default()
    };
    Ok(ArchivedFolder {
        root,
        counts,
        left_out: LeftOutOfFolder::default(),
        vac: None,
        only: Some(name.as_bytes().to_vec()),
    })
}
