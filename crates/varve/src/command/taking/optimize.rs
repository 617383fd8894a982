//! `varve optimize`
//!
//! ```text
//! old image, profile ─▶ plan ─▶ new file without its name ─▶ checks ─▶ name
//!                        └────▶ checks ─▶ snapshot
//! ```

mod check;
mod new_image;
mod report;
mod sparse;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use varve_archive::SnapshotContent;
use varve_content::image::{CachedBlocks, ImageReader, ImageSource, open_to_read};
use varve_edition::DiskProfile;
use varve_image::{ReadAt, RelocatedDisk};
use varve_machine::ImageFormat;
use varve_session::UsageError;

use crate::arguments::{OptimizeArgs, SnapshotFilterArgs};
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::keeping::profile::read_profile;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::show;
use crate::signals::cancellable_progress;

/// Size of the cache of decompressed image blocks.
const LEAVES_BYTES: u64 = 128 << 20;
/// The permissions of a new image of a snapshot, before those of the user's mask.
const USUAL_MODE: u32 = 0o666;

/// The image whose blocks move. It is only read.
struct OldImage {
    bytes: Arc<dyn ReadAt>,
    path: PathBuf,
    /// The permissions of the new image.
    mode: u32,
}

pub fn run(invocation: &Invocation, args: &OptimizeArgs) -> Result<CommandOutcome> {
    let profile = read_profile(&args.profile)?;
    if let Some(output) = args.output.as_deref().filter(|output| output.symlink_metadata().is_ok()) {
        bail!("{} exists: name a new file", output.display());
    }
    let source = Path::new(&args.source);
    if source.exists() {
        optimize(invocation, args, &profile, &file(source)?)?;
        return Ok(CommandOutcome::Done);
    }
    let archive = invocation.session.reading()?;
    let blocks = archive.blocks();
    let which = SnapshotFilterArgs { names: Vec::new(), others: args.which.clone() };
    let choice = ChosenSnapshots::new(invocation, archive.snapshots(), &which);
    let snapshot = choice.named(&args.source)?;
    let SnapshotContent::Image(entry) = &snapshot.content else {
        bail!("{} is a folder: only disk images have a start", show::name(snapshot.name.as_bytes()));
    };
    let _lease = archive.lease(&[snapshot])?;
    let cached = Arc::new(CachedBlocks::with_leaves_bytes(Arc::clone(&blocks) as _, LEAVES_BYTES));
    let old = OldImage {
        bytes: Arc::new(ImageReader::new(cached, entry)),
        path: PathBuf::from(format!("{}@{}", snapshot.name, snapshot.id)),
        mode: USUAL_MODE,
    };
    let made = optimize(invocation, args, &profile, &old);
    invocation.session.report_lost(&blocks);
    made.map(|()| CommandOutcome::Done)
}

/// Opens a raw image.
fn file(path: &Path) -> Result<OldImage> {
    let format = open_to_read(path).and_then(|file| ImageFormat::detect(&file));
    let format = format.with_context(|| format!("cannot read {}", path.display()))?;
    if format != ImageFormat::Raw {
        let (path, format) = (path.display(), format.name());
        bail!(
            "{path} is in the format {format}, and only raw images are read: archive it with `varve snapshot`, and name the snapshot"
        );
    }
    let bytes = ImageSource::open(path)?.reader()?;
    let bytes = bytes.ok_or_else(|| anyhow!("{} cannot be read at any offset", path.display()))?;
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    Ok(OldImage { bytes, path, mode: metadata.permissions().mode() & USUAL_MODE })
}

/// Plans, makes and checks the new image.
fn optimize(
    invocation: &Invocation,
    args: &OptimizeArgs,
    profile: &DiskProfile,
    old: &OldImage,
) -> Result<()> {
    if profile.size() != old.bytes.size() {
        warning!(
            "the profile is of a disk of {}, and {} has {}: it may be the profile of another disk",
            show::bytes(profile.size()),
            old.path.display(),
            show::bytes(old.bytes.size())
        );
    }
    let reads: Vec<_> = profile.reads().iter().map(|read| read.range.clone()).collect();
    let plan = RelocatedDisk::plan(Arc::clone(&old.bytes), &reads, args.align);
    report::print(invocation, &plan);
    refuse_unmoved(&plan).with_context(|| format!("there is no new image of {}", old.path.display()))?;
    if args.plan {
        return Ok(());
    }
    let progress = cancellable_progress()?;
    match (&args.output, &args.name) {
        (Some(output), _) => new_image::write(invocation, &plan, old, output, &progress),
        (None, Some(name)) => new_image::archive(invocation, &plan, old, name, &progress),
        (None, None) => bail!(UsageError("name the new image with --output or --name".into())),
    }
}

/// Refuses a plan that moves nothing.
fn refuse_unmoved(plan: &RelocatedDisk) -> Result<()> {
    let mut reasons = Vec::new();
    for volume in plan.volumes() {
        match volume.outcome() {
            Ok(moved) if !moved.moved().is_empty() => return Ok(()),
            Ok(_) => reasons.push(format!("{}: the profile reads no block that may move", volume.name())),
            Err(reason) => reasons.push(format!("{}: {}", volume.name(), show::plain(reason))),
        }
    }
    if reasons.is_empty() {
        bail!("the profile reads none of its volumes");
    }
    bail!("{}", reasons.join("; "))
}
