//! Where the bytes of an image come from: a file with holes, a block device, a stream, or a disk that somebody else keeps.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Advice, OFlags, SeekFrom as HoleSeek, fadvise, seek};
use varve_image::{Ranges, ReadAt};
use varve_tree::Entry;

use super::leave_out::part_of;
use super::piece::Piece;
use super::served::{Place, PlaceError, ServedImage, Told};

/// How much is claimed and read at a time. A multiple of every block size.
pub(super) const PIECE_BYTES: u64 = 1 << 20;

/// An image to be archived.
pub struct ImageSource {
    kind: Kind,
    path: PathBuf,
    /// What is archived as zeros.
    left_out: Ranges,
}

enum Kind {
    /// Read at any place, by many at once; `size` is what it was when it was opened.
    Placed { file: File, size: u64, changed: (i64, i64), has_holes: bool },
    /// Read once, from its beginning to its end.
    Stream(Mutex<Box<dyn Read + Send>>),
    /// Read at any place, by many at once, from whoever keeps it.
    Served { image: Arc<dyn ServedImage>, earlier: Option<Entry> },
}

/// Why a source cannot be archived as an image.
#[derive(Debug, thiserror::Error)]
pub enum OpenSourceError {
    /// It cannot be opened.
    #[error("cannot open {path}", path = path.display())]
    Open {
        /// What was to be opened.
        path: PathBuf,
        /// What went wrong below.
        source: io::Error,
    },
    /// It says that it is empty, and has bytes.
    #[error("{path} says that it is empty, and is not: archive what it gives with `varve snapshot - --name NAME < {path}`", path = path.display())]
    Unsized {
        /// What was opened.
        path: PathBuf,
    },
    /// It is neither a file nor a block device.
    #[error("{path} is neither a file nor a block device", path = path.display())]
    Kind {
        /// What was opened.
        path: PathBuf,
    },
}

/// Opens a file to be read, and keeps the time of its last access where the system allows that: to its owner and to root. Never waits: a
/// fifo would keep whoever opens it until somebody writes to it.
///
/// # Errors
/// [`io::Error`], as the system has it.
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
        // Files that the system makes up say that they are empty, and are not, or cannot be read at all.
        if metadata.is_file() && size == 0 && FileExt::read_at(&file, &mut [0], 0).map_err(failed)? > 0 {
            return Err(OpenSourceError::Unsized { path: path.into() });
        }
        // Only a hint: what cannot be advised is read all the same.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        Ok(Self::of(Kind::Placed { file, size, changed, has_holes }, path))
    }

    /// A stream of unknown length, such as standard input.
    #[must_use]
    pub fn stream(reader: Box<dyn Read + Send>, path: &Path) -> Self {
        Self::of(Kind::Stream(Mutex::new(reader)), path)
    }

    fn of(kind: Kind, path: &Path) -> Self {
        Self { kind, path: path.into(), left_out: Ranges::default() }
    }

    /// Archives these bytes as zeros, and does not read them. Whoever says so knows that nobody will miss them.
    #[must_use]
    pub fn leaving_out(mut self, ranges: Ranges) -> Self {
        self.left_out = ranges;
        self
    }

    /// Its bytes, to be looked at before it is archived; `None` if they can be read only once.
    ///
    /// # Errors
    /// The system has no more open files to give.
    pub fn reader(&self) -> io::Result<Option<Arc<dyn ReadAt>>> {
        Ok(match &self.kind {
            Kind::Placed { file, size, .. } => {
                Some(Arc::new(Placed { file: file.try_clone()?, size: *size }))
            }
            Kind::Stream(_) => None,
            Kind::Served { image, .. } => Some(Arc::new(Served(Arc::clone(image)))),
        })
    }

    pub(super) fn left_out(&self) -> &Ranges {
        &self.left_out
    }

    /// A disk that somebody else keeps; `path` is what it is called in messages. What it says is unchanged is as in `earlier`,
    /// which must have its size; without that, all is read.
    #[must_use]
    pub fn served(image: Box<dyn ServedImage>, path: &Path, earlier: Option<Entry>) -> Self {
        let earlier = earlier.filter(|entry| entry.size() == image.size());
        Self::of(Kind::Served { image: image.into(), earlier }, path)
    }

    /// What it was opened from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size in bytes, if that is known before it is read.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match &self.kind {
            Kind::Placed { size, .. } => Some(*size),
            Kind::Stream(_) => None,
            Kind::Served { image, .. } => Some(image.size()),
        }
    }

    /// The tree with what it says is unchanged.
    pub(super) fn earlier(&self) -> Option<&Entry> {
        match &self.kind {
            Kind::Served { earlier, .. } => earlier.as_ref(),
            _ => None,
        }
    }

    /// Whether it is now another than when it was opened. An error if what was read may be no image at all.
    pub(super) fn has_changed(&self) -> io::Result<bool> {
        match &self.kind {
            Kind::Placed { file, size, changed, has_holes: true } => {
                let now = file.metadata()?;
                Ok(now.len() != *size || (now.mtime(), now.mtime_nsec()) != *changed)
            }
            Kind::Served { image, .. } => image.held_still().map(|held| !held),
            _ => Ok(false),
        }
    }

    /// Its pieces from the beginning on, in blocks of `block_bytes`.
    pub(super) fn pieces(&self, block_bytes: u32) -> Pieces<'_> {
        Pieces { source: self, block_bytes: u64::from(block_bytes), offset: 0, data_end: 0 }
    }

    /// Fills places that come one after the other.
    pub(super) fn read_all(&self, places: &mut [Place<'_>]) -> Result<(), PlaceError> {
        match &self.kind {
            Kind::Placed { file, .. } => places.iter_mut().try_for_each(|Place { offset, into }| {
                file.read_exact_at(into, *offset).map_err(|source| PlaceError { offset: *offset, source })
            }),
            Kind::Stream(_) => match places {
                [] => Ok(()),
                [place, ..] => {
                    Err(PlaceError { offset: place.offset, source: io::ErrorKind::Unsupported.into() })
                }
            },
            Kind::Served { image, .. } => image.read_all(places),
        }
    }
}

/// A file or a device, of the size that it had when it was opened.
struct Placed {
    file: File,
    size: u64,
}

/// What a keeper of disks gives, to be looked at.
struct Served(Arc<dyn ServedImage>);

impl ReadAt for Served {
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

impl ReadAt for Placed {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

/// Hands out the pieces of an image, one after the other.
pub(super) struct Pieces<'a> {
    source: &'a ImageSource,
    block_bytes: u64,
    offset: u64,
    /// How far the source is known to have data without a hole.
    data_end: u64,
}

impl Pieces<'_> {
    /// Where the next piece begins; in the end, the size of the image.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Piece>> {
        let piece = match &self.source.kind {
            Kind::Placed { size, .. } if self.offset >= *size => None,
            Kind::Placed { file, size, has_holes, .. } => Some(self.next_placed(file, *size, *has_holes)?),
            Kind::Stream(reader) => {
                let mut bytes = Vec::new();
                let mut reader = reader.lock();
                reader.by_ref().take(PIECE_BYTES).read_to_end(&mut bytes)?;
                (!bytes.is_empty()).then_some(Piece::Bytes(bytes))
            }
            Kind::Served { image, .. } if self.offset >= image.size() => None,
            Kind::Served { image, earlier } => Some(self.next_served(image.as_ref(), earlier.is_some())?),
        };
        let piece = piece.map(|piece| part_of(piece, &self.source.left_out, self.block_bytes));
        self.offset += piece.as_ref().map_or(0, Piece::len);
        Ok(piece)
    }

    fn next_placed(&mut self, file: &File, size: u64, has_holes: bool) -> io::Result<Piece> {
        let from = self.offset;
        if from >= self.data_end {
            let data = if has_holes { data_range(file, from, size)? } else { Some((from, size)) };
            let Some((start, end)) = data else { return Ok(Piece::Hole { bytes: size - from }) };
            self.data_end = end.next_multiple_of(self.block_bytes).min(size);
            let start = (start / self.block_bytes * self.block_bytes).max(from);
            if start > from {
                return Ok(Piece::Hole { bytes: start - from });
            }
        }
        Ok(Piece::Data { offset: from, bytes: self.data_end.min(from + PIECE_BYTES) - from })
    }

    fn next_served(&mut self, image: &dyn ServedImage, has_earlier: bool) -> io::Result<Piece> {
        let (from, size) = (self.offset, image.size());
        if from >= self.data_end {
            let run = image.told_at(from)?;
            if run.end <= from || run.end > size {
                let said = format!("it says that what is at {from} goes on to {} of {size} bytes", run.end);
                return Err(io::Error::new(io::ErrorKind::InvalidData, said));
            }
            let whole = if run.end == size { size } else { run.end / self.block_bytes * self.block_bytes };
            match run.told {
                Told::Zeros if whole > from => return Ok(Piece::Hole { bytes: whole - from }),
                Told::Unchanged if has_earlier && whole > from => {
                    return Ok(Piece::Unchanged { bytes: whole - from });
                }
                // A block that is not of one kind all through is read.
                _ => self.data_end = run.end.next_multiple_of(self.block_bytes).min(size),
            }
        }
        Ok(Piece::Data { offset: from, bytes: self.data_end.min(from + PIECE_BYTES) - from })
    }
}

/// The first data at or after `from`; `None` if only a hole follows, up to `size`.
fn data_range(file: &File, from: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match seek(file, HoleSeek::Data(from)) {
        Ok(start) => start,
        // So does a file end that has come nearer meanwhile: that is no hole.
        Err(rustix::io::Errno::NXIO) if file.metadata()?.len() < size => {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        // A file system that knows no holes.
        Err(rustix::io::Errno::INVAL) => return Ok(Some((from, size))),
        Err(error) => return Err(error.into()),
    };
    if start >= size {
        return Ok(None);
    }
    let end = seek(file, HoleSeek::Hole(start))?;
    Ok(Some((start, end)))
}
