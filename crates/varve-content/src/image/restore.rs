//! Restores an image: several workers claim batches of leaves in order, read and check them, and
//! write them to their places.
//!
//! A batch consists of [`Cut`]s. A cut is one extent of the image's tree (a leaf or a hole),
//! limited to the part of the image that is restored.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use bytes::Bytes;
use rustix::fs::{Advice, CWD, Mode, OFlags, fadvise};
use rustix::io::Errno;
use varve_block::{BlockStore, to_usize};
use varve_tree::{ReadTreeError, TreeReader};
use varve_world::{Workers, work_in_order};

use super::new_image;
use super::part::{ImagePart, LostPartExtent, PartExtent, PartExtents};
use super::restore_error::RestoreImageError;
use super::unfinished_image::{ImageProgressRecorder, UnfinishedImage};
use crate::progress::Progress;
use crate::restoring::damage_list::DamageList;

/// Bytes per claim.
const BATCH_BYTES: u64 = 4 << 20;
/// Upper bound on the extents per claim.
const BATCH_EXTENTS_MAX: usize = 8192;

/// A destination that many workers can write to at any offset.
pub trait ImageSink: Sync {
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Any error of the write.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Signals that a part is complete, so that it can be written to the disk while the next one is
    /// unpacked.
    fn is_written(&self, _part: Range<u64>) {}
}

impl ImageSink for File {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn is_written(&self, part: Range<u64>) {
        // On this advice, Linux starts to write dirty pages without waiting, and drops clean pages,
        // of which there are none here. Only the final sync guarantees durability, so a refusal
        // costs no more than time.
        let _ =
            fadvise(self, part.start, NonZeroU64::new(part.end.saturating_sub(part.start)), Advice::DontNeed);
    }
}

/// The options for restoring an image.
#[derive(Clone, Copy)]
pub struct ImageOptions<'a> {
    /// True if an existing file may be replaced, or a block device may be written to.
    pub overwrite: bool,
    /// Identifies the source of the restore. A later restore continues an interrupted one only if
    /// both have the same source. An empty source is never continued.
    pub source: &'a [u8],
    /// Progress is made durable each time after this many bytes.
    pub note_bytes: u64,
    /// Receives the unreadable ranges, which become zeros. With `None`, damage ends the restore.
    pub damaged: Option<&'a DamageList>,
}

/// The default of [`ImageOptions::note_bytes`]: some tens of seconds of work.
const NOTE_BYTES: u64 = 8 << 30;

impl Default for ImageOptions<'_> {
    /// Options that overwrite nothing.
    fn default() -> Self {
        Self { overwrite: false, source: &[], note_bytes: NOTE_BYTES, damaged: None }
    }
}

/// Restores an image, or a part of one, to a file or onto a block device. A file is sparse where
/// the image has zeros, gets its name only when complete, and is readable only by its owner. A
/// block device must not be in use. A failed restore to a file leaves its partial result beside the
/// destination, and the next one from the same source continues from it.
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
    let there = new_image::look_at(destination, options.overwrite).inspect_err(|_| {
        UnfinishedImage::forget_completed(destination);
    })?;
    if there.is_some_and(|there| there.is_block_device()) {
        return restore_onto_device(blocks, workers, image, destination, options, progress);
    }
    let new = UnfinishedImage::open(destination, there, options.source)?;
    let written = new.begin(image.size()).and_then(|start| {
        let noting = ImageProgressRecorder::new(&new, start, options.note_bytes);
        let target =
            ImageDestination::Placed { file: new.file(), writes_zeros: false, noting: Some(&noting) };
        let job = PartToRestore { image, start, damaged: options.damaged };
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
    // For a block device, this flag demands exclusive use: neither it nor a part of it is mounted,
    // and no other device is built on it.
    let flags = OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file: File = match rustix::fs::openat(CWD, destination, flags, Mode::empty()) {
        Err(Errno::BUSY) => return Err(RestoreImageError::Busy { path: destination.into() }),
        opened => opened.map_err(|error| failed(error.into()))?.into(),
    };
    if !file.metadata().map_err(failed)?.file_type().is_block_device() {
        // The entry was another file a moment ago.
        return Err(RestoreImageError::Exists { path: destination.into() });
    }
    let actual = io::Seek::seek(&mut file, io::SeekFrom::End(0)).map_err(failed)?;
    if actual < image.size() {
        return Err(RestoreImageError::TooSmall { path: destination.into(), actual, needed: image.size() });
    }
    let target = ImageDestination::Placed { file: &file, writes_zeros: true, noting: None };
    let job = PartToRestore { image, start: 0, damaged: options.damaged };
    restore_to(blocks, workers, job, target, destination, progress)?;
    file.sync_all().map_err(failed)
}

/// Writes an image, or a part of one, to a destination that is all zeros. `destination` is its name
/// in messages. With `damaged`, unreadable ranges stay zeros, and are added to it.
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
    let target = ImageDestination::Placed { file: into, writes_zeros: false, noting: None };
    restore_to(blocks, workers, PartToRestore { image, start: 0, damaged }, target, destination, progress)
}

/// Writes an image, or a part of one, to a stream, in order.
///
/// # Errors
/// [`RestoreImageError`]; `into` has then received all bytes before the first unreadable one.
pub fn write_image(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    image: &ImagePart,
    into: &mut (dyn Write + Send),
    progress: &Progress,
) -> Result<(), RestoreImageError> {
    write_image_around(blocks, workers, image, into, None, progress)
}

/// Writes like [`write_image`]. With `damaged`, unreadable ranges become zeros, and are added to
/// it.
///
/// # Errors
/// [`RestoreImageError`]; `into` has then received all bytes before the first unreadable one.
pub fn write_image_around(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    image: &ImagePart,
    into: &mut (dyn Write + Send),
    damaged: Option<&DamageList>,
    progress: &Progress,
) -> Result<(), RestoreImageError> {
    let target = ImageDestination::Stream(into);
    let job = PartToRestore { image, start: 0, damaged };
    restore_to(blocks, workers, job, target, Path::new("the output"), progress)
}

/// The part of an image that is restored.
#[derive(Clone, Copy)]
struct PartToRestore<'a> {
    image: &'a ImagePart,
    /// Everything before this offset was restored by an earlier run.
    start: u64,
    damaged: Option<&'a DamageList>,
}

fn restore_to(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    PartToRestore { image, start, damaged }: PartToRestore<'_>,
    target: ImageDestination<'_>,
    destination: &Path,
    progress: &Progress,
) -> Result<(), RestoreImageError> {
    progress.set_total(0, image.size());
    progress.add_bytes_done(start);
    let reader = TreeReader::new(blocks, image.entry());
    let job = RestoreImageJob { reader, damaged, destination, progress };
    let mut cuts = image.cuts_of(reader, start..image.size());
    let batches = std::iter::from_fn(|| job.next_batch(&mut cuts));
    match target {
        ImageDestination::Placed { file, writes_zeros, noting } => work_in_order(
            workers,
            usize::MAX,
            batches,
            |claims| claims.work_on_each(|batch| job.place(&batch, file, writes_zeros, noting)),
            |()| Ok(()),
        ),
        ImageDestination::Stream(into) => work_in_order(
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

struct RestoreImageJob<'a> {
    reader: TreeReader<'a>,
    damaged: Option<&'a DamageList>,
    destination: &'a Path,
    progress: &'a Progress,
}

/// The destination of the bytes.
enum ImageDestination<'a> {
    /// Accepts writes at any offset. A new file is initially all zeros; a device is not.
    Placed { file: &'a dyn ImageSink, writes_zeros: bool, noting: Option<&'a ImageProgressRecorder<'a>> },
    /// Accepts batches only in order.
    Stream(&'a mut (dyn Write + Send)),
}

impl RestoreImageJob<'_> {
    fn next_batch(&self, cuts: &mut PartExtents<'_>) -> Option<Result<Vec<PartExtent>, RestoreImageError>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES && batch.len() < BATCH_EXTENTS_MAX {
            match cuts.next() {
                None => break,
                Some(Ok(cut)) => {
                    bytes += cut.extent.leaf.map_or(0, |_| cut.extent.length);
                    batch.push(cut);
                }
                Some(Err(LostPartExtent { range, source })) => match self.damaged {
                    Some(damaged) => {
                        damaged.add(Path::new(""), range.clone());
                        batch.push(PartExtent::hole(range));
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

    fn read(&self, batch: &[PartExtent]) -> Result<Vec<Bytes>, RestoreImageError> {
        let extents: Vec<_> = batch.iter().map(|cut| cut.extent).collect();
        let leaves = batch.iter().zip(self.reader.read_extents(&extents));
        Ok(leaves.map(|(cut, leaf)| self.leaf_or_hole(cut, leaf)).collect::<Result<_, _>>()?)
    }

    fn place(
        &self,
        batch: &[PartExtent],
        file: &dyn ImageSink,
        writes_zeros: bool,
        noting: Option<&ImageProgressRecorder<'_>>,
    ) -> Result<(), RestoreImageError> {
        let leaves = self.read(batch)?;
        place(file, writes_zeros, batch, &leaves).map_err(|source| self.write_failed(source))?;
        if let (Some(first), Some(last)) = (batch.first(), batch.last()) {
            let range = first.offset..last.offset + last.length;
            file.is_written(range.clone());
            // A range with damage stays unrecorded, so that the next run finds and reports it
            // again.
            let is_damaged = self.damaged.is_some_and(|damaged| damaged.touches(Path::new(""), &range));
            if let Some(noting) = noting.filter(|_| !is_damaged) {
                noting.add(range);
            }
        }
        self.count(batch, &leaves);
        Ok(())
    }

    fn count(&self, batch: &[PartExtent], leaves: &[Bytes]) {
        self.progress.add_bytes_read(leaves.iter().map(|leaf| leaf.len() as u64).sum());
        self.progress.add_bytes_done(batch.iter().map(|cut| cut.length).sum());
    }

    fn write_failed(&self, source: io::Error) -> RestoreImageError {
        RestoreImageError::Write { path: self.destination.into(), source }
    }

    fn leaf_or_hole(
        &self,
        cut: &PartExtent,
        leaf: Result<Bytes, ReadTreeError>,
    ) -> Result<Bytes, ReadTreeError> {
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

/// Writes adjacent leaves with one call.
fn place(file: &dyn ImageSink, writes_zeros: bool, batch: &[PartExtent], leaves: &[Bytes]) -> io::Result<()> {
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
                run.resize(run.len() + to_usize(piece), 0);
                zeros -= piece;
                file.write_all_at(&run, run_offset)?;
                run_offset += run.len() as u64;
                run.clear();
            }
        }
    }
    file.write_all_at(&run, run_offset)
}

fn stream(into: &mut dyn Write, batch: &[PartExtent], leaves: &[Bytes]) -> io::Result<()> {
    for (cut, leaf) in batch.iter().zip(leaves) {
        into.write_all(leaf)?;
        io::copy(&mut io::Read::take(io::repeat(0), cut.length - leaf.len() as u64), into)?;
    }
    Ok(())
}
