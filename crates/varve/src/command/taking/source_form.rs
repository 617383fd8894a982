//! The form in which a source is archived: a regular file may be archived as a file or as a disk
//! image.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use varve_archive::{Snapshot, SnapshotContent, SnapshotRequest};
use varve_content::image::{OpenSourceError, open_to_read};
use varve_image::{Disk, TableKind, VolumeContent};
use varve_machine::ImageFormat;
use varve_session::UsageError;

use crate::arguments::{AsChoice, CutChoice, TakeSnapshotArgs};

/// The form in which a source is archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceForm {
    Folder,
    File,
    Image,
    /// Standard input or the output of a program, as a file or as an image.
    Stream(AsChoice),
}

/// The chosen form, and the reason if the choice was not obvious.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChosenForm {
    pub(super) form: SourceForm,
    pub(super) because: Option<String>,
}

/// Refuses options that apply to none of the sources, and an `--as` that contradicts another
/// argument.
pub(super) fn check(args: &TakeSnapshotArgs) -> Result<()> {
    let for_disks = [("--cut files", args.cut == CutChoice::Files), ("--skip-free", args.skip_free)];
    if let Some((option, _)) = for_disks.iter().find(|(_, is_given)| *is_given)
        && !args.sources.is_empty()
        && args.sources.iter().all(|source| source.is_dir())
    {
        bail!(UsageError(format!("{option} is for disks, but every source is a folder")));
    }
    let Some(form) = args.form else { return Ok(()) };
    if form == AsChoice::File && args.format.is_some() {
        bail!(UsageError("--format is for disk images, but --as file archives a file".into()));
    }
    // A source that does not exist is reported when it is opened.
    let is_other =
        |source: &PathBuf| source != Path::new("-") && source.metadata().is_ok_and(|found| !found.is_file());
    if args.command.is_none() && args.sources.iter().all(is_other) {
        bail!(UsageError("--as is for regular files and standard input, but no source is one".into()));
    }
    Ok(())
}

/// Chooses the form of a source.
pub(super) fn choose(
    args: &TakeSnapshotArgs,
    source: &Path,
    request: &SnapshotRequest,
    earlier: &[&Snapshot],
) -> Result<ChosenForm> {
    let plain = |form| Ok(ChosenForm { form, because: None });
    if args.command.is_some() {
        return plain(SourceForm::Stream(args.form.unwrap_or(AsChoice::File)));
    }
    if source == Path::new("-") {
        return plain(SourceForm::Stream(args.form.unwrap_or(AsChoice::Image)));
    }
    let found = source.metadata();
    let is_file = found.as_ref().is_ok_and(|found| found.is_file());
    if is_file {
        refuse_unsized(source)?;
    }
    match args.form {
        _ if found.is_ok_and(|found| found.is_dir()) => plain(SourceForm::Folder),
        Some(AsChoice::File) => plain(SourceForm::File),
        // For any other source, opening it as an image reports what is wrong.
        _ if !is_file || args.form.is_some() || args.format.is_some() => plain(SourceForm::Image),
        _ => of_file(source, request, earlier),
    }
}

/// Refuses files that the kernel generates: their size is reported as zero, or they are unreadable.
fn refuse_unsized(source: &Path) -> Result<()> {
    let opened = || format!("cannot open {}", source.display());
    let file = open_to_read(source).with_context(opened)?;
    let is_empty = file.metadata().with_context(opened)?.len() == 0;
    if is_empty && file.read_at(&mut [0], 0).with_context(|| format!("cannot read {}", source.display()))? > 0
    {
        return Err(OpenSourceError::Unsized { path: source.into() }.into());
    }
    Ok(())
}

/// Chooses the form of a regular file for which the user gave none.
fn of_file(source: &Path, request: &SnapshotRequest, earlier: &[&Snapshot]) -> Result<ChosenForm> {
    let chosen = |form, because: String| Ok(ChosenForm { form, because: Some(because) });
    let file = open_to_read(source).with_context(|| format!("cannot open {}", source.display()))?;
    // The snapshot itself reports a format that is read through QEMU's tools.
    if ImageFormat::detect(&file).is_ok_and(|format| format != ImageFormat::Raw) {
        return Ok(ChosenForm { form: SourceForm::Image, because: None });
    }
    if let Some(disk) = disk_in(file) {
        return chosen(SourceForm::Image, format!("it holds {disk}"));
    }
    let newest =
        earlier.iter().filter(|one| one.source == request.source).max_by_key(|snapshot| snapshot.time);
    if newest.is_some_and(|newest| matches!(newest.content, SnapshotContent::Image(_))) {
        return chosen(
            SourceForm::Image,
            "no disk was found in it, but its newest snapshot is one of a disk image".into(),
        );
    }
    chosen(SourceForm::File, "no partition table, no boot sector and no file system was found in it".into())
}

/// Describes the evidence that a file is a disk, if there is any.
fn disk_in(file: File) -> Option<String> {
    let file = Arc::new(file);
    let disk = Disk::open(Arc::clone(&file) as _);
    if let Some(table) = disk.table() {
        let kind = match table {
            TableKind::Gpt => "GPT",
            TableKind::Mbr => "MBR",
        };
        return Some(format!("a partition table ({kind})"));
    }
    let known = disk.volumes().iter().map(|volume| volume.content());
    let mut known = known.filter(|content| !matches!(content, VolumeContent::Unknown | VolumeContent::Empty));
    known.next().map(|content| content.to_string()).or_else(|| {
        // A boot sector makes it a disk, whatever else it holds.
        let mut mark = [0; 2];
        let is_read = file.read_exact_at(&mut mark, BOOT_MARK_AT).is_ok();
        (is_read && mark == BOOT_MARK).then(|| "a boot sector".into())
    })
}

/// The BIOS boot signature at the end of the first sector.
const BOOT_MARK: [u8; 2] = [0x55, 0xaa];
const BOOT_MARK_AT: u64 = 510;
