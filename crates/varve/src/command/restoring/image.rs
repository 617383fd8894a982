//! Restoring the bytes of a disk image, or of a part of one.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use varve_content::Progress;
use varve_content::folder::{Overwrite, RestoreAction, RestoreCounts, RestoreReason};
use varve_content::image::{
    ImageOptions, ImagePart, device_sectors, open_to_read, read_back_image, restore_image, write_image_around,
};
use varve_machine::{ForeignFile, ImageFormat, RestoreForeignError, restore_foreign};
use varve_session::{UsageError, WithHint};
use varve_world::Timestamp;

use super::{RestoreResult, RestoreSource, hints};
use crate::arguments::{OUTPUT, RestoreArgs};
use crate::say::Output;

/// An image or a part of one, and the context of its restore.
pub(super) struct ImageToRestore<'a> {
    pub(super) part: &'a ImagePart,
    /// The time of its snapshot.
    pub(super) time: Option<Timestamp>,
    /// Identifies the content, so that an interrupted restore is resumed only by the same one.
    pub(super) source: &'a [u8],
}

/// Refuses arguments that do not apply to an image.
pub(super) fn check(restore: &RestoreArgs, destination: &Path) -> Result<()> {
    if !restore.includes.is_empty() || !restore.excludes.is_empty() {
        bail!(UsageError("--include and --exclude are for folders: this is an image".into()));
    }
    if restore.format == ImageFormat::Raw {
        return Ok(());
    }
    if destination == Path::new(OUTPUT) {
        bail!(UsageError("an image can be restored with --format only to a file".into()));
    }
    if restore.verify {
        bail!(UsageError("--verify reads back only files and raw images: leave out --format".into()));
    }
    Ok(())
}

/// Warns, before anything is written, if a device has other sectors than the archived disk had.
/// `expected` is the size of those in bytes.
pub(super) fn warn_of_sectors(destination: &Path, expected: Option<u64>) {
    let Some(expected) = expected else { return };
    let device = open_to_read(destination).ok().and_then(|file| device_sectors(&file));
    let Some(device) = device.map(|sectors| u64::from(sectors.logical())) else { return };
    if device != expected {
        warning!(
            "{} has sectors of {device} bytes, and the archived disk had sectors of {expected}: all its bytes are written, but a partition table counts in sectors, so its partitions are not found there, and some file systems cannot be mounted; a file, or a device with sectors of {expected} bytes, has neither problem",
            destination.display()
        );
    }
}

/// Decides about an existing file or device at the destination.
pub(super) fn decide(
    from: RestoreSource<'_>,
    image: &ImageToRestore<'_>,
    restore: &RestoreArgs,
    destination: &Path,
    progress: &Progress,
) -> Result<(RestoreAction, RestoreReason)> {
    let there = match fs::symlink_metadata(destination) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok((RestoreAction::Create, RestoreReason::Missing));
        }
        Err(error) => return Err(error).with_context(|| format!("cannot examine {}", destination.display())),
    };
    let overwrite = restore.overwrite();
    let is_device = fs::metadata(destination).is_ok_and(|there| there.file_type().is_block_device());
    Ok(match overwrite {
        None => (RestoreAction::Skip, RestoreReason::Exists),
        Some(Overwrite::Always) => (RestoreAction::Replace, RestoreReason::Always),
        Some(_) if is_device => {
            bail!("{} is a block device: --overwrite always is needed to write to it", destination.display())
        }
        Some(Overwrite::Never) => (RestoreAction::Keep, RestoreReason::Exists),
        Some(Overwrite::IfNewer) => {
            let changed =
                there.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
            let changed = changed.and_then(|since| i64::try_from(since.as_nanos()).ok());
            match (image.time, changed) {
                (Some(Timestamp(taken)), Some(changed)) if taken <= changed => {
                    (RestoreAction::Keep, RestoreReason::NotNewer)
                }
                _ => (RestoreAction::Replace, RestoreReason::Newer),
            }
        }
        Some(Overwrite::IfChanged) => {
            let is_equal = restore.format == ImageFormat::Raw
                && there.is_file()
                && there.len() == image.part.size()
                && read_back_image(&**from.blocks, image.part, destination, false, progress).is_ok();
            if is_equal {
                (RestoreAction::Keep, RestoreReason::Equal)
            } else {
                (RestoreAction::Replace, RestoreReason::Differs)
            }
        }
    })
}

/// Restores an image. Returns `None` if it went to standard output, so that there is nothing to
/// report.
pub(super) fn restore_bytes(
    from: RestoreSource<'_>,
    image: &ImageToRestore<'_>,
    restore: &RestoreArgs,
    destination: &Path,
    progress: &Progress,
) -> Result<Option<RestoreResult>> {
    let RestoreSource { blocks, workers, .. } = from;
    let damaged = from.damaged.filter(|_| restore.keep_damaged);
    if destination == Path::new(OUTPUT) {
        write_image_around(&**blocks, workers, image.part, &mut Output::new(), damaged, progress)?;
        return Ok(None);
    }
    let (action, _) = decide(from, image, restore, destination, progress)?;
    let kind = "image".into();
    if action == RestoreAction::Keep {
        let counts = RestoreCounts { kept_count: 1, ..RestoreCounts::default() };
        return Ok(Some(RestoreResult { kind, counts, is_damaged: false }));
    }
    let overwrite = action == RestoreAction::Replace;
    if restore.format == ImageFormat::Raw {
        let options = ImageOptions { overwrite, source: image.source, damaged, ..ImageOptions::default() };
        restore_image(&**blocks, workers, image.part, destination, options, progress)
            .with_hint(hints::of_image)?;
    } else {
        let to = ForeignFile { path: destination, format: restore.format };
        let restored = restore_foreign(&**blocks, workers, image.part, to, overwrite, damaged, progress);
        restored.with_hint(|error| match error {
            RestoreForeignError::Restore(error) => hints::of_image(error),
            _ => None,
        })?;
    }
    if restore.verify {
        let keeps_damaged = damaged.is_some();
        read_back_image(&**blocks, image.part, destination, keeps_damaged, progress)
            .with_context(|| format!("{} was restored", destination.display()))?;
    }
    let counts = RestoreCounts { file_count: 1, bytes: image.part.size(), ..RestoreCounts::default() };
    Ok(Some(RestoreResult { kind, counts, is_damaged: false }))
}
