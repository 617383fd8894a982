//! `varve import qcow2`: the images of a chain, each as a snapshot of one disk.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use jiff::tz::TimeZone;
use varve_archive::{Archive, Snapshot, SnapshotContent, SnapshotRequest};
use varve_content::image::{ImageSource, image_shape};
use varve_import::{ForeignSnapshot, import_tag, series_names, time_in_name};
use varve_machine::{ImageFormat, ImageLayer, convert_to_raw, image_chain};
use varve_session::Hinted;
use varve_tree::{EarlierTree, Entry};
use varve_world::Timestamp;

use super::import_check::ImportCheck;
use super::import_lines::{print_planned, say_known};
use super::report::as_line;
use crate::arguments::ImportImagesArgs;
use crate::command::looking::left_out::say_left_out;
use crate::command::looking::snapshot_list;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{moment, say};

const KIND: &str = "qcow2";
const BY_MTIME: &str = "--by-mtime takes the modification time of each image: the end of the writes to it";

/// An image of the chain, and the snapshot that it becomes.
struct ChainImage {
    path: PathBuf,
    format: ImageFormat,
    snapshot: ForeignSnapshot,
}

pub fn run(invocation: &Invocation, args: &ImportImagesArgs) -> Result<CommandOutcome> {
    let images = images(args)?;
    let snapshots: Vec<ForeignSnapshot> = images.iter().map(|image| image.snapshot.clone()).collect();
    let made = series_names(&snapshots, &BTreeMap::new()).into_values().next();
    let name = args.imported.name.clone().or(made).unwrap_or_else(|| "disk".into());
    if args.imported.dry_run {
        let archive = invocation.session.check()?;
        let new = images.iter().filter(|image| imported(&archive, image).is_none());
        new.for_each(|image| print_planned(invocation, &image.snapshot, &name));
        say_known(invocation, images.iter().filter(|image| imported(&archive, image).is_some()).count());
        return Ok(CommandOutcome::Done);
    }
    let mut archive = invocation.session.write()?;
    let mut known_count = 0;
    // The disk as the image below has it.
    let mut below: Option<Entry> = None;
    for image in &images {
        if let Some(snapshot) = imported(&archive, image) {
            known_count += 1;
            below = disk_of(&archive, &snapshot);
            continue;
        }
        let taken = take(invocation, args, &mut archive, image, &name, below)?;
        below = disk_of(&archive, &taken);
        if invocation.json {
            say::record("snapshot", snapshot_list::as_json(&taken));
        } else if !invocation.quiet {
            say!("{} {}", moment::show(taken.time), as_line(&taken));
            say_left_out(&taken.left_out);
        }
    }
    say_known(invocation, known_count);
    let mut outcome = CommandOutcome::Done;
    if args.imported.check && !check(invocation, args, &archive, &images)? {
        outcome = CommandOutcome::Failed;
    }
    archive.close()?;
    Ok(outcome)
}

/// Compares each snapshot with the disk to which QEMU's own program converts its image. Returns
/// true if there is no difference.
fn check(
    invocation: &Invocation,
    args: &ImportImagesArgs,
    archive: &Archive,
    images: &[ChainImage],
) -> Result<bool> {
    let mut check = ImportCheck::new(invocation, args.imported.report.as_deref())?;
    for image in images {
        let Some(snapshot) = imported(archive, image) else { continue };
        let restore = |into: &Path| Ok(convert_to_raw(&image.path, image.format, &args.allow_backing, into)?);
        check.check_disk(archive, &restore, &snapshot, &*cancellable_progress()?)?;
    }
    Ok(check.difference_count == 0)
}

fn take(
    invocation: &Invocation,
    args: &ImportImagesArgs,
    archive: &mut Archive,
    image: &ChainImage,
    name: &str,
    below: Option<Entry>,
) -> Result<Snapshot> {
    let layer = ImageLayer::open(&image.path, image.format, &args.allow_backing)?;
    let left_out = layer.left_out().to_vec();
    let source = ImageSource::served(Box::new(layer), &image.path, below);
    let request = SnapshotRequest {
        name: name.to_owned(),
        time: Some(image.snapshot.time),
        source: image.snapshot.source.clone(),
        host: image.snapshot.host.clone(),
        tags: vec![import_tag(KIND, &image.snapshot.id)],
        name_is_given: args.imported.name.is_some(),
        left_out,
        ..SnapshotRequest::default()
    };
    archive.check_name(&request)?;
    let progress = cancellable_progress()?;
    let title = format!("{name} {}", moment::show(image.snapshot.time));
    let shown = ShownProgress::start(&title, &progress, invocation.quiet || invocation.json);
    let block_bytes = archive.store().config().block_bytes;
    let taken = archive.take_image(&source, block_bytes, request, &progress);
    drop(shown);
    Ok(taken?.snapshot)
}

/// The images of the chain, the oldest first.
fn images(args: &ImportImagesArgs) -> Result<Vec<ChainImage>> {
    let chain = image_chain(&args.image, ImageFormat::Qcow2, &args.allow_backing)?;
    let host = varve_session::snapshot_host();
    let Some((base, _)) = chain.first() else { return Ok(Vec::new()) };
    let base = base.canonicalize().with_context(|| format!("{} cannot be read", base.display()))?;
    let mut images: Vec<ChainImage> = Vec::new();
    for (path, format) in chain {
        let (time, id) = time_and_id(&path, args.by_mtime)?;
        if let Some(last) = images.last().filter(|last| last.snapshot.time >= time) {
            bail!(
                "{} is not older than {}, which needs it: their times are not those of the disk",
                last.path.display(),
                path.display()
            );
        }
        let source = base.as_os_str().as_bytes().to_vec();
        let snapshot = ForeignSnapshot {
            id,
            earlier_ids: Vec::new(),
            time,
            host: host.clone(),
            source,
            tags: Vec::new(),
        };
        images.push(ChainImage { path, format, snapshot });
    }
    Ok(images)
}

/// The time of an image, and its id, which changes when the image is written to.
fn time_and_id(path: &Path, by_mtime: bool) -> Result<(Timestamp, String)> {
    let status = path.metadata().with_context(|| format!("{} cannot be read", path.display()))?;
    let mtime = status.mtime().saturating_mul(1_000_000_000).saturating_add(status.mtime_nsec());
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let id = format!("{name}-{}-{mtime}", status.len());
    let time = if by_mtime { Some(Timestamp(mtime)) } else { time_in_name(&name, &TimeZone::system()) };
    match time {
        Some(time) => Ok((time, id)),
        None => {
            let error = anyhow!("the time of {} is unknown: its name has no date", path.display());
            Err(Hinted::new(error, BY_MTIME).into())
        }
    }
}

/// The snapshot of an image, if there is one.
fn imported(archive: &Archive, image: &ChainImage) -> Option<Snapshot> {
    let tag = import_tag(KIND, &image.snapshot.id);
    let is_it = |one: &&Snapshot| one.tags.contains(&tag) && !archive.is_of_lesser_key(one);
    archive.kept_snapshots().iter().find(is_it).cloned()
}

/// The disk of a snapshot, if the next image can be built on it.
fn disk_of(archive: &Archive, snapshot: &Snapshot) -> Option<Entry> {
    let SnapshotContent::Image(entry) = &snapshot.content else { return None };
    let shape = image_shape(archive.store().config().block_bytes);
    // A lost block would be needed by one more snapshot.
    let is_usable = archive.believes(snapshot)
        && archive.store().lost_blocks().is_empty()
        && EarlierTree::new(archive.store(), entry, &shape).is_some();
    is_usable.then_some(*entry)
}
