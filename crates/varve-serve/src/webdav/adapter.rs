//! Answers the requests of WebDAV clients from a file system.

use std::io::SeekFrom;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dav_server::davpath::DavPath;
use dav_server::fs::{
    DavDirEntry, DavFile, DavFileSystem, DavMetaData, FsError, FsFuture, FsResult, FsStream, OpenOptions,
    ReadDirMeta,
};
use futures_util::stream;
use tokio::task::block_in_place;
use varve_block::with_causes;
use varve_image::{FileId, FileKind, FileStatus, FileSystemError, FileTime, FolderChild};

use crate::ServedFileSystem;
use crate::collected::is_collected;
use crate::path::{find, follow};

/// The last second of the year 9999.
const HTTP_SECONDS_MAX: u64 = 253_402_300_799;

/// Presents a file system to WebDAV clients.
#[derive(Clone)]
pub(super) struct WebDavAdapter {
    files: Arc<dyn ServedFileSystem>,
}

impl WebDavAdapter {
    pub(super) fn new(files: Arc<dyn ServedFileSystem>) -> Self {
        Self { files }
    }

    fn find(&self, path: &DavPath) -> FsResult<(FileId, WebDavProperties)> {
        let found = find(&*self.files, path.as_bytes()).map_err(|error| refuse(&error))?;
        let file = found.ok_or(FsError::NotFound)?;
        Ok((file, self.about(file)?))
    }

    fn about(&self, file: FileId) -> FsResult<WebDavProperties> {
        let status = self.files.status(file).map_err(|error| refuse(&error))?;
        WebDavProperties::of(file, &status).ok_or(FsError::NotFound)
    }

    /// The entry for a child of a folder; `None` if it is left out.
    fn entry(&self, folder: &[u8], child: FolderChild) -> Option<WebDavEntry> {
        let file = match child.kind {
            FileKind::SymbolicLink => follow(&*self.files, folder, &child.name).ok()??,
            _ => child.id,
        };
        // If the status cannot be read, list the child anyway. A later request for it gets the
        // error.
        let about = match self.files.status(file) {
            Ok(status) => WebDavProperties::of(file, &status)?,
            Err(_) => WebDavProperties {
                file,
                is_folder: child.kind == FileKind::Folder,
                size: 0,
                modified: FileTime::EPOCH,
            },
        };
        Some(WebDavEntry { name: child.name, about })
    }

    fn list(&self, path: &DavPath) -> FsResult<Vec<FsResult<Box<dyn DavDirEntry>>>> {
        let (folder, about) = self.find(path)?;
        if !about.is_folder {
            return Err(FsError::Forbidden);
        }
        let mut entries: Vec<FsResult<Box<dyn DavDirEntry>>> = Vec::new();
        let mut children = Vec::new();
        let listed = self.files.children(folder, 0, &mut |child| {
            children.push(child);
            ControlFlow::Continue(())
        });
        for child in children {
            entries.extend(self.entry(path.as_bytes(), child).map(|entry| Ok(Box::new(entry) as _)));
        }
        if let Err(error) = listed {
            entries.push(Err(refuse(&error)));
        }
        Ok(entries)
    }
}

/// Maps an error to a WebDAV error. Damage is logged.
fn refuse(error: &FileSystemError) -> FsError {
    match error {
        FileSystemError::Absent { .. } => FsError::NotFound,
        FileSystemError::Unsupported { .. } => FsError::NotImplemented,
        // The library has no answer "410 Gone".
        FileSystemError::Read { .. } if is_collected(error) => FsError::NotFound,
        FileSystemError::Read { .. } | FileSystemError::Damaged { .. } => {
            tracing::error!(error = %with_causes(error), "a file cannot be read");
            FsError::GeneralFailure
        }
    }
}

/// The properties of a file that WebDAV knows.
#[derive(Debug, Clone)]
struct WebDavProperties {
    file: FileId,
    is_folder: bool,
    size: u64,
    modified: FileTime,
}

impl WebDavProperties {
    /// Returns `None` for a kind of file that WebDAV does not know.
    fn of(file: FileId, status: &FileStatus) -> Option<Self> {
        let is_folder = match status.kind {
            FileKind::Folder => true,
            FileKind::File => false,
            _ => return None,
        };
        Some(Self { file, is_folder, size: status.size, modified: status.modified })
    }
}

impl DavMetaData for WebDavProperties {
    fn len(&self) -> u64 {
        self.size
    }

    fn modified(&self) -> FsResult<SystemTime> {
        Ok(http_time(self.modified))
    }

    fn is_dir(&self) -> bool {
        self.is_folder
    }

    fn etag(&self) -> Option<String> {
        // The number identifies an immutable file. Size and time cover names that may later stand
        // for another file.
        Some(format!("{:x}-{:x}-{:x}", self.file.0, self.size, self.modified.wide_nanoseconds()))
    }
}

/// Converts a time to the range of HTTP, from 1970 to 9999. The HTTP library panics outside of it.
fn http_time(time: FileTime) -> SystemTime {
    match u64::try_from(time.seconds()) {
        Ok(seconds) if seconds <= HTTP_SECONDS_MAX => {
            UNIX_EPOCH + Duration::new(seconds, time.subsecond_nanoseconds())
        }
        Ok(_) => UNIX_EPOCH + Duration::from_secs(HTTP_SECONDS_MAX),
        Err(_) => UNIX_EPOCH,
    }
}

/// An entry of a folder.
struct WebDavEntry {
    name: Vec<u8>,
    about: WebDavProperties,
}

impl DavDirEntry for WebDavEntry {
    fn name(&self) -> Vec<u8> {
        self.name.clone()
    }

    fn metadata(&self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        Box::pin(async { Ok(Box::new(self.about.clone()) as _) })
    }
}

/// An open file.
struct WebDavFile {
    files: Arc<dyn ServedFileSystem>,
    about: WebDavProperties,
    place: u64,
}

impl std::fmt::Debug for WebDavFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebDavFile")
            .field("about", &self.about)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl DavFile for WebDavFile {
    fn metadata(&mut self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        Box::pin(async { Ok(Box::new(self.about.clone()) as _) })
    }

    fn write_buf(&mut self, _: Box<dyn bytes::Buf + Send>) -> FsFuture<'_, ()> {
        Box::pin(async { Err(FsError::Forbidden) })
    }

    fn write_bytes(&mut self, _: bytes::Bytes) -> FsFuture<'_, ()> {
        Box::pin(async { Err(FsError::Forbidden) })
    }

    fn read_bytes(&mut self, count: usize) -> FsFuture<'_, bytes::Bytes> {
        Box::pin(async move {
            let mut buffer = vec![0; count.min(super::READ_BYTES)];
            let read = block_in_place(|| self.files.read_at(self.about.file, self.place, &mut buffer));
            let read = read.map_err(|error| refuse(&error))?;
            buffer.truncate(read);
            self.place = self.place.saturating_add(read as u64);
            Ok(buffer.into())
        })
    }

    fn seek(&mut self, to: SeekFrom) -> FsFuture<'_, u64> {
        Box::pin(async move {
            let place = match to {
                SeekFrom::Start(place) => Some(place),
                SeekFrom::End(distance) => self.about.size.checked_add_signed(distance),
                SeekFrom::Current(distance) => self.place.checked_add_signed(distance),
            };
            self.place = place.ok_or(FsError::Forbidden)?;
            Ok(self.place)
        })
    }

    fn flush(&mut self) -> FsFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

impl DavFileSystem for WebDavAdapter {
    fn open<'a>(&'a self, path: &'a DavPath, options: OpenOptions) -> FsFuture<'a, Box<dyn DavFile>> {
        Box::pin(async move {
            if options.write || options.append || options.create || options.create_new || options.truncate {
                return Err(FsError::Forbidden);
            }
            let (_, about) = block_in_place(|| self.find(path))?;
            if about.is_folder {
                return Err(FsError::Forbidden);
            }
            Ok(Box::new(WebDavFile { files: Arc::clone(&self.files), about, place: 0 }) as _)
        })
    }

    fn read_dir<'a>(
        &'a self,
        path: &'a DavPath,
        _: ReadDirMeta,
    ) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        Box::pin(async move {
            let entries = block_in_place(|| self.list(path))?;
            Ok(Box::pin(stream::iter(entries)) as _)
        })
    }

    fn metadata<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, Box<dyn DavMetaData>> {
        Box::pin(async move {
            let (_, about) = block_in_place(|| self.find(path))?;
            Ok(Box::new(about) as _)
        })
    }
}
