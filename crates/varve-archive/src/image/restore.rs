//! Restoring an image: several workers claim leaves in order, read and check them, and write them where they belong.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{Advice, CWD, Mode, OFlags, fadvise};
use rustix::io::Errno;
use varve_block::BlockStore;
use varve_tree::{ReadTreeError, TreeReader};
use varve_world::{Workers, work_in_order};

use super::new_image;
use super::part::{Cut, Cuts, ImagePart, LostCut};
use super::unfinished_image::{Noting, UnfinishedImage};
use crate::browsing::files::ReadContentError;
use crate::progress::Progress;
use crate::restoring::damage_list::DamageList;

/// How much is claimed at a time.
const BATCH_BYTES: u64 = 4 << 20;
/// How many extents are claimed at a time, at most.
const BATCH_EXTENTS_MAX: usize = 8192;

/// Where an image can be written at any place, by many at once.
pub trait ImageSink: Sync {
    /// Keeps all of `bytes` from `offset` on.
    ///
    /// # Errors
    /// Whatever kept them from being written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Hears that nothing more is coming for this part, so that it can be on its way to the disk while the next is unpacked.
    fn is_written(&self, _part: Range<u64>) {}
}

impl ImageSink for File {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn is_written(&self, part: Range<u64>) {
        // Linux answers this advice by beginning to write what is dirty, and does not wait; then it lets go of what is clean
        // already, of which there is nothing here. Only the sync at the end is a promise, so a refusal costs no more than time.
        let _ =
            fadvise(self, part.start, NonZeroU64::new(part.end.saturating_sub(part.start)), Advice::DontNeed);
    }
}

/// How an image is restored.
#[derive(Clone, Copy)]
pub struct ImageOptions<'a> {
    /// Whether a file that is there may be replaced, or a block device be written to.
    pub overwrite: bool,
    /// Names what is restored. An interrupted restore is continued only by one from the same source; with an empty one, by none.
    pub source: &'a [u8],
    /// After how many bytes the progress is made durable.
    pub note_bytes: u64,
    /// Takes the ranges that cannot be read, which then are zeros. `None`: damage ends the restore.
    pub damaged: Option<&'a DamageList>,
}

/// See [`ImageOptions::note_bytes`]: some tens of seconds of work.
const NOTE_BYTES: u64 = 8 << 30;

impl Default for ImageOptions<'_> {
    /// Overwrites nothing.
    fn default() -> Self {
        Self { overwrite: false, source: &[], note_bytes: NOTE_BYTES, damaged: None }
    }
}

/// Why an image was not restored. A file that was to be made is not there then, or is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreImageError {
    /// There is something already.
    #[error("{path} exists", path = path.display())]
    Exists {
        /// The destination.
        path: PathBuf,
    },
    /// What is there is neither a file nor a block device.
    #[error("{path} is a {what}: an image is restored to a file or a block device", path = path.display())]
    NotAFile {
        /// The destination.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The device is used by something else, which would go on writing to it.
    #[error("{path} is in use: it, or a part of it, is mounted or swapped to, or belongs to a RAID or a volume group; unmount it or release it, and then restore again", path = path.display())]
    Busy {
        /// The device.
        path: PathBuf,
    },
    /// The device is too small.
    #[error("{path} has {actual} bytes; the image has {needed}", path = path.display())]
    TooSmall {
        /// The device.
        path: PathBuf,
        /// Its size.
        actual: u64,
        /// The image's size.
        needed: u64,
    },
    /// The image could not be read from the store.
    #[error(transparent)]
    Read(#[from] ReadTreeError),
    /// The file could not be read in the file system that it lies in.
    #[error(transparent)]
    ReadFile(Box<ReadContentError>),
    /// The destination could not be written.
    #[error("cannot write {path}", path = path.display())]
    Write {
        /// The destination.
        path: PathBuf,
        /// What went wrong below.
        source: io::Error,
    },
    /// It was asked to stop.
    #[error("interrupted")]
    Cancelled,
    /// Some of it is made, and serves the next run.
    #[error("the restore is not finished; what is done is kept at {unfinished}, and the same command goes on from there", unfinished = unfinished.display())]
    Unfinished {
        /// Where it lies.
        unfinished: PathBuf,
        /// Why it ended.
        source: Box<RestoreImageError>,
    },
}

/// Restores an image, or a part of one, to a file, which is sparse where the image has zeros, comes into place only when complete, and
/// can be read by its owner alone; or onto a block device that nothing else uses. A restore to a file that fails leaves what it has made
/// beside the destination, and the next one from the same source goes on with that.
///
/// # Errors
/// [`RestoreImageError`].
pub fn restore_image(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    image: &ImagePart,
    destination: &Path,
    options: ImageOptions<'_>,
    progress: &Progress,
) -> Result<(), RestoreImageError> {
    let there = new_image::look_at(destination, options.overwrite)?;
    if there.is_some_and(|there| there.is_block_device()) {
        return restore_onto_device(blocks, workers, image, destination, options, progress);
    }
    let new = UnfinishedImage::open(destination, there, options.source)?;
    let written = new.begin(image.size()).and_then(|start| {
        let noting = Noting::new(&new, start, options.note_bytes);
        let target = Target::Placed { file: new.file(), writes_zeros: false, noting: Some(&noting) };
        let job = ToRestore { image, start, damaged: options.damaged };
        restore_to(blocks, workers, job, target, destination, progress)
            .inspect_err(|_| noting.note())
            .and_then(|()| new.complete(options.overwrite))
    });
    written.map_err(|source| new.stays(source))
}

fn restore_onto_device(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    image: &ImagePart,
    destination: &Path,
    options: ImageOptions<'_>,
    progress: &Progress,
) -> Result<(), RestoreImageError> {
    let failed = |source| RestoreImageError::Write { path: destination.into(), source };
    // Of a block device this asks for it to be ours alone: not mounted, nor any part of it, and nothing built upon it.
    let flags = OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file: File = match rustix::fs::openat(CWD, destination, flags, Mode::empty()) {
        Err(Errno::BUSY) => return Err(RestoreImageError::Busy { path: destination.into() }),
        opened => opened.map_err(|error| failed(error.into()))?.into(),
    };
    if !file.metadata().map_err(failed)?.file_type().is_block_device() {
        // It was another thing a moment ago.
        return Err(RestoreImageError::Exists { path: destination.into() });
    }
    let actual = io::Seek::seek(&mut file, io::SeekFrom::End(0)).map_err(failed)?;
    if actual < image.size() {
        return Err(RestoreImageError::TooSmall { path: destination.into(), actual, needed: image.size() });
    }
    let target = Target::Placed { file: &file, writes_zeros: true, noting: None };
    let job = ToRestore { image, start: 0, damaged: options.damaged };
    restore_to(blocks, workers, job, target, destination, progress)?;
    file.sync_all().map_err(failed)
}

/// Writes an image, or a part of one, to something that is all zeros, and of which `destination` is the name in messages. With
/// `damaged`, ranges that cannot be read stay zeros, and are added to it.
///
/// # Errors
/// [`RestoreImageError`].
pub fn fill_image(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    image: &ImagePart,
    into: &dyn ImageSink,
    destination: &Path,
    damaged: Option<&DamageList>,
    progress: &Progress,
) -> Result<(), RestoreImageError> {
    let target = Target::Placed { file: into, writes_zeros: false, noting: None };
    restore_to(blocks, workers, ToRestore { image, start: 0, damaged }, target, destination, progress)
}

/// Writes an image, or a part of one, to a stream, in order.
///
/// # Errors
/// [`RestoreImageError`]; `into` has then got all bytes before the one that could not be had.
pub fn write_image(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    image: &ImagePart,
    into: &mut (dyn Write + Send),
    progress: &Progress,
) -> Result<(), RestoreImageError> {
    write_image_around(blocks, workers, image, into, None, progress)
}

/// The same; with `damaged`, ranges that cannot be read come as zeros, and are added to it.
///
/// # Errors
/// [`RestoreImageError`]; `into` has then got all bytes before the one that could not be had.
pub fn write_image_around(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    image: &ImagePart,
    into: &mut (dyn Write + Send),
    damaged: Option<&DamageList>,
    progress: &Progress,
) -> Result<(), RestoreImageError> {
    let target = Target::Stream(into);
    let job = ToRestore { image, start: 0, damaged };
    restore_to(blocks, workers, job, target, Path::new("the output"), progress)
}

/// What is restored.
#[derive(Clone, Copy)]
struct ToRestore<'a> {
    image: &'a ImagePart,
    /// Everything before this is there already.
    start: u64,
    damaged: Option<&'a DamageList>,
}

fn restore_to(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    ToRestore { image, start, damaged }: ToRestore<'_>,
    target: Target<'_>,
    destination: &Path,
    progress: &Progress,
) -> Result<(), RestoreImageError> {
    progress.set_total(0, image.size());
    progress.add_bytes_done(start);
    let reader = TreeReader::new(blocks, image.entry());
    let job = Job { reader, damaged, destination, progress };
    let mut cuts = image.cuts_of(reader, start..image.size());
    let batches = std::iter::from_fn(|| job.next_batch(&mut cuts));
    match target {
        Target::Placed { file, writes_zeros, noting } => work_in_order(
            workers,
            usize::MAX,
            batches,
            |claims| claims.work_on_each(|batch| job.place(&batch, file, writes_zeros, noting)),
            |()| Ok(()),
        ),
        Target::Stream(into) => work_in_order(
            workers,
            0,
            batches,
            |claims| claims.work_on_each(|batch| job.read(&batch).map(|leaves| (batch, leaves))),
            |(batch, leaves)| {
                stream(into, &batch, &leaves).map_err(|source| job.write_failed(source))?;
                job.count(&batch, &leaves);
                Ok(())
            },
        ),
    }
}

struct Job<'a> {
    reader: TreeReader<'a>,
    damaged: Option<&'a DamageList>,
    destination: &'a Path,
    progress: &'a Progress,
}

/// Where the bytes go.
enum Target<'a> {
    /// Anywhere, at any time. A new file is all zeros to begin with; a device is not.
    Placed { file: &'a dyn ImageSink, writes_zeros: bool, noting: Option<&'a Noting<'a>> },
    /// One batch after the other.
    Stream(&'a mut (dyn Write + Send)),
}

impl Job<'_> {
    fn next_batch(&self, cuts: &mut Cuts<'_>) -> Option<Result<Vec<Cut>, RestoreImageError>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES && batch.len() < BATCH_EXTENTS_MAX {
            match cuts.next() {
                None => break,
                Some(Ok(cut)) => {
                    bytes += cut.extent.leaf.map_or(0, |_| cut.extent.length);
                    batch.push(cut);
                }
                Some(Err(LostCut { range, source })) => match self.damaged {
                    Some(damaged) => {
                        damaged.add(Path::new(""), range.clone());
                        batch.push(Cut::hole(range));
                    }
                    None => return Some(Err(ReadTreeError::from(source).into())),
                },
            }
        }
        if batch.is_empty() {
            return None;
        }
        if self.progress.is_cancelled() {
            return Some(Err(RestoreImageError::Cancelled));
        }
        Some(Ok(batch))
    }

    fn read(&self, batch: &[Cut]) -> Result<Vec<Bytes>, RestoreImageError> {
        let extents: Vec<_> = batch.iter().map(|cut| cut.extent).collect();
        let leaves = batch.iter().zip(self.reader.read_extents(&extents));
        Ok(leaves.map(|(cut, leaf)| self.leaf_or_hole(cut, leaf)).collect::<Result<_, _>>()?)
    }

    fn place(
        &self,
        batch: &[Cut],
        file: &dyn ImageSink,
        writes_zeros: bool,
        noting: Option<&Noting<'_>>,
    ) -> Result<(), RestoreImageError> {
        let leaves = self.read(batch)?;
        place(file, writes_zeros, batch, &leaves).map_err(|source| self.write_failed(source))?;
        if let (Some(first), Some(last)) = (batch.first(), batch.last()) {
            let range = first.offset..last.offset + last.length;
            file.is_written(range.clone());
            // What damage has left as zeros is met, and told, once more by the next run.
            let is_damaged = self.damaged.is_some_and(|damaged| damaged.touches(Path::new(""), &range));
            if let Some(noting) = noting.filter(|_| !is_damaged) {
                noting.add(range);
            }
        }
        self.count(batch, &leaves);
        Ok(())
    }

    fn count(&self, batch: &[Cut], leaves: &[Bytes]) {
        self.progress.add_bytes_read(leaves.iter().map(|leaf| leaf.len() as u64).sum());
        self.progress.add_bytes_done(batch.iter().map(|cut| cut.length).sum());
    }

    fn write_failed(&self, source: io::Error) -> RestoreImageError {
        RestoreImageError::Write { path: self.destination.into(), source }
    }

    fn leaf_or_hole(&self, cut: &Cut, leaf: Result<Bytes, ReadTreeError>) -> Result<Bytes, ReadTreeError> {
        match (leaf, self.damaged) {
            (Ok(leaf), _) => Ok(cut.of(&leaf)),
            (Err(_), Some(damaged)) => {
                damaged.add(Path::new(""), cut.range());
                Ok(Bytes::new())
            }
            (Err(damage), None) => Err(damage),
        }
    }
}

/// Writes neighbouring leaves in one go.
fn place(file: &dyn ImageSink, writes_zeros: bool, batch: &[Cut], leaves: &[Bytes]) -> io::Result<()> {
    let mut run = Vec::new();
    let mut run_offset = 0;
    for (cut, leaf) in batch.iter().zip(leaves) {
        if run_offset + run.len() as u64 != cut.offset {
            file.write_all_at(&run, run_offset)?;
            run.clear();
            run_offset = cut.offset;
        }
        run.extend_from_slice(leaf);
        if writes_zeros {
            let mut zeros = cut.length - leaf.len() as u64;
            while zeros > 0 {
                let piece = zeros.min(BATCH_BYTES);
                run.resize(run.len() + usize::try_from(piece).expect("a batch fits"), 0);
                zeros -= piece;
                file.write_all_at(&run, run_offset)?;
                run_offset += run.len() as u64;
                run.clear();
            }
        }
    }
    file.write_all_at(&run, run_offset)
}

fn stream(into: &mut dyn Write, batch: &[Cut], leaves: &[Bytes]) -> io::Result<()> {
    for (cut, leaf) in batch.iter().zip(leaves) {
        into.write_all(leaf)?;
        io::copy(&mut io::Read::take(io::repeat(0), cut.length - leaf.len() as u64), into)?;
    }
    Ok(())
}
