//! The sources of an image: a file with holes, a block device, a stream, or a disk behind another
//! program.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Advice, OFlags, SeekFrom as HoleSeek, fadvise, seek};
use varve_image::{Ranges, ReadAt};
use varve_tree::Entry;

use super::device_sectors::device_sectors;
use super::image_piece::ImagePiece;
use super::leave_out::part_of;
use super::served_image::{ContentRun, ReadRequest, ReadRequestError, RunContent, ServedImage};
use super::sized_file::SizedFile;
use crate::image::sector_sizes::SectorSizes;

/// Bytes that are claimed and read at a time. A multiple of every block size.
pub(super) const PIECE_BYTES: u64 = 1 << 20;

/// An image to archive.
pub struct ImageSource {
    kind: ImageSourceKind,
    path: PathBuf,
    /// The ranges that are archived as zeros.
    left_out: Ranges,
}

enum ImageSourceKind {
    /// Many workers read it at any offset. `size` is the size that it had when it was opened.
    Placed { file: File, size: u64, changed: (i64, i64), has_holes: bool },
    /// It is read once, from beginning to end.
    Stream(Mutex<Box<dyn Read + Send>>),
    /// Many workers read it at any offset from the program that keeps it.
    Served { image: Arc<dyn ServedImage>, earlier: Option<Entry> },
}

/// Why a source cannot be archived as an image.
#[derive(Debug, thiserror::Error)]
pub enum OpenSourceError {
    #[error("cannot open {path}", path = path.display())]
    Open { path: PathBuf, source: io::Error },
    /// Its size is reported as 0, but it has content.
    #[error("{path} reports a size of 0, but has content: archive it as a stream with `varve snapshot - --name NAME < {path}`", path = path.display())]
    Unsized { path: PathBuf },
    /// It is neither a file nor a block device.
    #[error("{path} is neither a file nor a block device", path = path.display())]
    Kind { path: PathBuf },
}

/// Opens a file for reading, and preserves its access time where the system permits that, which is
/// for the owner and for root. Never blocks: a fifo would block until another program opens it for
/// writing.
///
/// # Errors
/// The system's [`io::Error`].
pub fn open_to_read(path: &Path) -> io::Result<File> {
    let open =
        |flags: OFlags| OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    match open(OFlags::NONBLOCK | OFlags::NOATIME) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(OFlags::NONBLOCK),
        opened => opened,
    }
}

impl ImageSource {
    /// Opens a file or a block device.
    ///
    /// # Errors
    /// [`OpenSourceError`].
    pub fn open(path: &Path) -> Result<Self, OpenSourceError> {
        let failed = |source| OpenSourceError::Open { path: path.into(), source };
        let mut file = open_to_read(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let (size, has_holes) = if metadata.file_type().is_block_device() {
            (file.seek(SeekFrom::End(0)).map_err(failed)?, false)
        } else if metadata.is_file() {
            (metadata.len(), true)
        } else {
            return Err(OpenSourceError::Kind { path: path.into() });
        };
        // Generated files of the system have size 0 although they have content, or are unreadable.
        if metadata.is_file() && size == 0 && FileExt::read_at(&file, &mut [0], 0).map_err(failed)? > 0 {
            return Err(OpenSourceError::Unsized { path: path.into() });
        }
        // A failure is ignored, because this is only a hint.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        Ok(Self::of(ImageSourceKind::Placed { file, size, changed, has_holes }, path))
    }

    /// A stream of unknown length, such as standard input.
    #[must_use]
    pub fn stream(reader: Box<dyn Read + Send>, path: &Path) -> Self {
        Self::of(ImageSourceKind::Stream(Mutex::new(reader)), path)
    }

    fn of(kind: ImageSourceKind, path: &Path) -> Self {
        Self { kind, path: path.into(), left_out: Ranges::default() }
    }

    /// Archives these ranges as zeros, without reading them. The caller must know that they are not
    /// needed.
    #[must_use]
    pub fn leaving_out(mut self, ranges: Ranges) -> Self {
        self.left_out = ranges;
        self
    }

    /// A reader for examining the source before it is archived. `None` if the source can be read
    /// only once.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn reader(&self) -> io::Result<Option<Arc<dyn ReadAt>>> {
        Ok(match &self.kind {
            ImageSourceKind::Placed { file, size, .. } => {
                Some(Arc::new(SizedFile::new(file.try_clone()?, *size)))
            }
            ImageSourceKind::Stream(_) => None,
            ImageSourceKind::Served { image, .. } => Some(Arc::new(ServedImageReader(Arc::clone(image)))),
        })
    }

    pub(super) fn left_out(&self) -> &Ranges {
        &self.left_out
    }

    /// A disk behind another program. `path` is its name in messages. The parts that the program
    /// reports as unchanged are taken from `earlier`, which must have the size of the disk. Without
    /// it, everything is read.
    #[must_use]
    pub fn served(image: Box<dyn ServedImage>, path: &Path, earlier: Option<Entry>) -> Self {
        let earlier = earlier.filter(|entry| entry.size() == image.size());
        Self::of(ImageSourceKind::Served { image: image.into(), earlier }, path)
    }

    /// The sizes of its sectors, if it is a block device.
    #[must_use]
    pub fn sectors(&self) -> Option<SectorSizes> {
        match &self.kind {
            ImageSourceKind::Placed { file, .. } => device_sectors(file),
            ImageSourceKind::Stream(_) | ImageSourceKind::Served { .. } => None,
        }
    }

    /// The path from which it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size in bytes, if it is known before reading.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match &self.kind {
            ImageSourceKind::Placed { size, .. } => Some(*size),
            ImageSourceKind::Stream(_) => None,
            ImageSourceKind::Served { image, .. } => Some(image.size()),
        }
    }

    /// The tree that has the unchanged parts.
    pub(super) fn earlier(&self) -> Option<&Entry> {
        match &self.kind {
            ImageSourceKind::Served { earlier, .. } => earlier.as_ref(),
            _ => None,
        }
    }

    /// Returns whether the source has changed since it was opened. An error if the bytes that were
    /// read may be no valid image at all.
    pub(super) fn has_changed(&self) -> io::Result<bool> {
        match &self.kind {
            ImageSourceKind::Placed { file, size, changed, has_holes: true } => {
                let now = file.metadata()?;
                Ok(now.len() != *size || (now.mtime(), now.mtime_nsec()) != *changed)
            }
            ImageSourceKind::Served { image, .. } => image.held_still().map(|held| !held),
            _ => Ok(false),
        }
    }

    /// The run at an offset, which is before the end. A stream has none. Called with ascending
    /// offsets.
    pub(super) fn run_at(&self, from: u64) -> io::Result<ContentRun> {
        match &self.kind {
            ImageSourceKind::Placed { file, size, has_holes, .. } => {
                let data = if *has_holes { data_range(file, from, *size)? } else { Some((from, *size)) };
                Ok(match data {
                    None => ContentRun { content: RunContent::Zeros, end: *size },
                    Some((start, _)) if start > from => ContentRun { content: RunContent::Zeros, end: start },
                    Some((_, end)) => ContentRun { content: RunContent::Data, end: end.min(*size) },
                })
            }
            ImageSourceKind::Stream(_) => Err(io::ErrorKind::Unsupported.into()),
            ImageSourceKind::Served { image, earlier } => {
                let run = image.content_at(from)?;
                let is_unknown = run.content == RunContent::Unchanged && earlier.is_none();
                Ok(if is_unknown { ContentRun { content: RunContent::Data, ..run } } else { run })
            }
        }
    }

    /// The pieces of the image from its start, in blocks of `block_bytes`.
    pub(super) fn pieces(&self, block_bytes: u32) -> ImagePieces<'_> {
        ImagePieces { source: self, block_bytes: u64::from(block_bytes), offset: 0, data_end: 0 }
    }

    /// Fills places, in ascending order of their offsets.
    pub(super) fn read_all(&self, places: &mut [ReadRequest<'_>]) -> Result<(), ReadRequestError> {
        match &self.kind {
            ImageSourceKind::Placed { file, .. } => {
                places.iter_mut().try_for_each(|ReadRequest { offset, into }| {
                    file.read_exact_at(into, *offset)
                        .map_err(|source| ReadRequestError { offset: *offset, source })
                })
            }
            ImageSourceKind::Stream(_) => match places {
                [] => Ok(()),
                [place, ..] => {
                    Err(ReadRequestError { offset: place.offset, source: io::ErrorKind::Unsupported.into() })
                }
            },
            ImageSourceKind::Served { image, .. } => image.read_all(places),
        }
    }
}

/// A reader of a disk behind another program.
struct ServedImageReader(Arc<dyn ServedImage>);

impl ReadAt for ServedImageReader {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match offset.checked_add(into.len() as u64) {
            Some(end) if end <= self.0.size() => self.0.read_at(offset, into),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Iterates over the pieces of an image.
pub(super) struct ImagePieces<'a> {
    source: &'a ImageSource,
    block_bytes: u64,
    offset: u64,
    /// The source has data without a hole up to here.
    data_end: u64,
}

impl ImagePieces<'_> {
    /// The offset of the next piece. At the end, this is the size of the image.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<ImagePiece>> {
        let piece = match &self.source.kind {
            ImageSourceKind::Placed { size, .. } if self.offset >= *size => None,
            ImageSourceKind::Placed { file, size, has_holes, .. } => {
                Some(self.next_placed(file, *size, *has_holes)?)
            }
            ImageSourceKind::Stream(reader) => {
                let mut bytes = Vec::new();
                let mut reader = reader.lock();
                reader.by_ref().take(PIECE_BYTES).read_to_end(&mut bytes)?;
                let offset = self.offset;
                (!bytes.is_empty()).then_some(ImagePiece::Bytes { offset, bytes })
            }
            ImageSourceKind::Served { image, .. } if self.offset >= image.size() => None,
            ImageSourceKind::Served { image, earlier } => {
                Some(self.next_served(image.as_ref(), earlier.is_some())?)
            }
        };
        let piece = piece.map(|piece| part_of(piece, &self.source.left_out, self.block_bytes));
        self.offset += piece.as_ref().map_or(0, ImagePiece::len);
        Ok(piece)
    }

    fn next_placed(&mut self, file: &File, size: u64, has_holes: bool) -> io::Result<ImagePiece> {
        let from = self.offset;
        if from >= self.data_end {
            let data = if has_holes { data_range(file, from, size)? } else { Some((from, size)) };
            let Some((start, end)) = data else { return Ok(ImagePiece::Hole { bytes: size - from }) };
            self.data_end = end.next_multiple_of(self.block_bytes).min(size);
            let start = (start / self.block_bytes * self.block_bytes).max(from);
            if start > from {
                return Ok(ImagePiece::Hole { bytes: start - from });
            }
        }
        Ok(ImagePiece::Data { offset: from, bytes: self.data_end.min(from + PIECE_BYTES) - from })
    }

    fn next_served(&mut self, image: &dyn ServedImage, has_earlier: bool) -> io::Result<ImagePiece> {
        let (from, size) = (self.offset, image.size());
        if from >= self.data_end {
            let run = image.content_at(from)?;
            if run.end <= from || run.end > size {
                let said =
                    format!("it reports an impossible range: from {from} to {} of {size} bytes", run.end);
                return Err(io::Error::new(io::ErrorKind::InvalidData, said));
            }
            let whole = if run.end == size { size } else { run.end / self.block_bytes * self.block_bytes };
            match run.content {
                RunContent::Zeros if whole > from => return Ok(ImagePiece::Hole { bytes: whole - from }),
                RunContent::Unchanged if has_earlier && whole > from => {
                    return Ok(ImagePiece::Unchanged { bytes: whole - from });
                }
                // A block with mixed contents is read.
                _ => self.data_end = run.end.next_multiple_of(self.block_bytes).min(size),
            }
        }
        Ok(ImagePiece::Data { offset: from, bytes: self.data_end.min(from + PIECE_BYTES) - from })
    }
}

/// The first data at or after `from`; `None` if only a hole follows, up to `size`.
fn data_range(file: &File, from: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match seek(file, HoleSeek::Data(from)) {
        Ok(start) => start,
        // The error also occurs if the file has become shorter, which must not pass for a hole.
        Err(rustix::io::Errno::NXIO) if file.metadata()?.len() < size => {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        // The file system does not support holes.
        Err(rustix::io::Errno::INVAL) => return Ok(Some((from, size))),
        Err(error) => return Err(error.into()),
    };
    if start >= size {
        return Ok(None);
    }
    let end = seek(file, HoleSeek::Hole(start))?;
    Ok(Some((start, end)))
}
