//! `varve snapshot`

mod dry_run;
mod emptied_source;
mod new_and_changed;
mod source_selection;

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use varve_archive::{Archive, LeftOutRecord, SnapshotHome, SnapshotRequest, TakeError, TakenSnapshot};
use varve_block::with_causes;
use varve_content::folder::{ArchiveFolderError, FolderOptions, StreamOwner, Watch, only_this_file};
use varve_content::image::{ImageCut, ImageSource, mounted_for_writing, open_to_read};
use varve_content::vac::{ArchivedVac, VacOptions};
use varve_content::{Problem, Progress};
use varve_image::{FilePlaces, LeaveOut, LeftOut};
use varve_machine::{ForeignImage, ImageFormat};
use varve_proxy::RecordingStore;
use varve_session::{Interrupted, StoreLocation, UsageError};
use varve_trace::SourceKind;
use varve_tree::VacShape;
use varve_world::{Clock, RealClock};

use self::source_selection::SourceSelection;
use super::program_output;
use super::report::{as_line, say_root, warn_if_hidden, warn_of_fast_commits};
use super::snapshot_names::{self, PlannedSnapshot};
use super::source_form::{self, ChosenForm, SourceForm};
use super::trace_file;
use crate::arguments::{AsChoice, CutChoice, TakeSnapshotArgs};
use crate::command::looking::left_out::say_left_out;
use crate::command::looking::snapshot_list;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{complaint, say, show};

pub fn run(invocation: &Invocation, args: &TakeSnapshotArgs) -> Result<CommandOutcome> {
    if let Some(qmp) = &args.machine.qmp {
        return super::machine_disks::run(invocation, args, qmp);
    }
    let mut planned = snapshot_names::plan(args)?;
    check_vac(args)?;
    source_form::check(args)?;
    check_read_from(args)?;
    let what_goes_in = SourceSelection::new(args)?;
    if args.what_goes_in.dry_run {
        return dry_run::run(invocation, args, planned, &what_goes_in);
    }
    let mut archive = invocation.session.write_home()?;
    snapshot_names::settle(invocation, args, &mut planned, archive.snapshots())?;
    for (source, plan) in args.sources.iter().zip(&planned) {
        archive.check_name(&plan.request).map_err(|error| snapshot_names::taken(source, error))?;
        if args.name.is_some() && !invocation.quiet {
            snapshot_names::warn_of_another_source(&archive, &plan.request);
        }
    }
    let recording =
        args.trace.as_ref().map(|file| trace_file::record(invocation, &mut archive, file)).transpose()?;
    let mut outcome = CommandOutcome::Done;
    for (place, (source, PlannedSnapshot { request, .. })) in args.sources.iter().zip(planned).enumerate() {
        let selected = what_goes_in.options(args, place)?;
        let read_at = args.read_from.as_deref().unwrap_or(source);
        let source_taken =
            take_source(&mut archive, invocation, args, read_at, selected, request, recording.as_deref())
                .with_context(|| format!("{} was not archived", source.display()))?;
        outcome = outcome.max(source_taken.warn_of_gaps(source));
        source_taken.print(invocation);
        let TakenSource { taken, .. } = source_taken;
        // A user who gives the time does so on purpose.
        if args.time.is_none() {
            warn_if_hidden(archive.snapshots(), &taken.snapshot);
        }
        if let (Some(vac), Some(file)) = (&taken.vac, &args.vac) {
            finish_vac(vac, file)?;
        }
        say_root(invocation, archive.home());
    }
    what_goes_in.warn_of_unmatched();
    if let (Some(recording), Some(file)) = (recording, &args.trace)
        && let Err(error) = recording.finish()
    {
        warning!("{} is incomplete: {}", file.display(), with_causes(&error));
        outcome = CommandOutcome::Gaps;
    }
    archive.close()?;
    Ok(outcome)
}

/// A source that is in the archive now.
struct TakenSource {
    chosen: ChosenForm,
    taken: TakenSnapshot,
    /// The file systems in a disk whose newest changes may be missing.
    fast_commits: Vec<String>,
}

/// Archives a source in the form that fits it.
fn take_source(
    archive: &mut Archive<dyn SnapshotHome>,
    invocation: &Invocation,
    args: &TakeSnapshotArgs,
    source: &Path,
    selected: FolderOptions,
    request: SnapshotRequest,
    recording: Option<&RecordingStore>,
) -> Result<TakenSource> {
    let progress = cancellable_progress()?;
    let chosen = source_form::choose(args, source, &request, &archive.earlier(&request))?;
    if chosen.form == SourceForm::Folder && !args.allow_empty {
        emptied_source::refuse(source, &archive.earlier(&request))?;
    }
    let shown = ShownProgress::start(&request.name, &progress, invocation.quiet || invocation.json);
    if let Some(recording) = recording {
        recording.begin_snapshot(&request.name, source_kind(chosen.form));
    }
    let next = NextSource { source, chosen: &chosen, selected, request, progress: &progress, shown: &shown };
    let (taken, fast_commits) = take(archive, invocation, args, next)?;
    drop(shown);
    if let Some(recording) = recording {
        recording.note_sync();
    }
    Ok(TakenSource { chosen, taken, fast_commits })
}

fn source_kind(form: SourceForm) -> SourceKind {
    match form {
        SourceForm::Image | SourceForm::Stream(AsChoice::Image) => SourceKind::Image,
        SourceForm::Folder | SourceForm::File | SourceForm::Stream(AsChoice::File) => SourceKind::Folder,
    }
}

/// Requires a single source with a path: another path has the contents of one.
fn check_read_from(args: &TakeSnapshotArgs) -> Result<()> {
    let is_one = matches!(args.sources.as_slice(), [source] if source != Path::new("-"));
    if args.read_from.is_some() && !is_one {
        bail!(UsageError("--read-from is for one folder, file or disk".into()));
    }
    Ok(())
}

/// Returns the path of the store for a reader of another path: a store inside the source is inside
/// its frozen view, too.
fn store_as_read(args: &TakeSnapshotArgs, store: PathBuf) -> PathBuf {
    let (Some(read_at), [source]) = (&args.read_from, args.sources.as_slice()) else { return store };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let inside = real(&store).strip_prefix(real(source)).map(Path::to_owned);
    inside.map_or(store, |inside| read_at.join(inside))
}

/// Requires a single folder: an archive for vac's tools holds one.
fn check_vac(args: &TakeSnapshotArgs) -> Result<()> {
    match args.sources.as_slice() {
        _ if args.vac.is_none() => Ok(()),
        [source] if source.is_dir() => Ok(()),
        [source] => bail!(UsageError(format!("--vac is for folders: {} is not a folder", source.display()))),
        sources => {
            bail!(UsageError(format!("--vac names one archive, but there are {} sources", sources.len())))
        }
    }
}

/// Reports the losses of the conversion, and writes the line that names the archive.
fn finish_vac(vac: &ArchivedVac, file: &Path) -> Result<()> {
    if vac.without_xattrs > 0 {
        let files = show::count(vac.without_xattrs, "file");
        warning!("the vac archive lacks the attributes of {files}, which exceed vac's limits");
    }
    if vac.left_out > 0 {
        let files = show::count(vac.left_out, "file");
        warning!("the vac archive lacks {files} that could not be read");
    }
    let context = || format!("{} cannot be written; the archive is vac:{}", file.display(), vac.score);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Replace the file in one step, so that its readers find the old line or the new one.
    let mut written = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder)
        .with_context(context)?;
    writeln!(written, "vac:{}", vac.score).with_context(context)?;
    written.as_file().sync_all().with_context(context)?;
    written.persist(file).with_context(context)?;
    Ok(())
}

/// The next source to be archived.
struct NextSource<'a> {
    source: &'a Path,
    chosen: &'a ChosenForm,
    /// The selection of its contents, if it is a folder.
    selected: FolderOptions,
    request: SnapshotRequest,
    progress: &'a Arc<Progress>,
    shown: &'a ShownProgress,
}

fn take(
    archive: &mut Archive<dyn SnapshotHome>,
    invocation: &Invocation,
    args: &TakeSnapshotArgs,
    next: NextSource<'_>,
) -> Result<(TakenSnapshot, Vec<String>)> {
    if matches!(next.chosen.form, SourceForm::Folder | SourceForm::File) {
        return Ok((take_files(archive, invocation, args, next)?, Vec::new()));
    }
    let NextSource { source, chosen, request, progress, .. } = next;
    let (image, beside) = match chosen.form {
        SourceForm::Stream(AsChoice::File) => {
            let mut stream = program_output::open(args, progress)?;
            let taken = archive.take_stream(&mut *stream, stream_owner(), request, progress);
            return Ok((taken.map_err(not_taken)?, Vec::new()));
        }
        SourceForm::Stream(AsChoice::Image) => {
            if args.format.is_some_and(|format| format != ImageFormat::Raw) {
                bail!(UsageError("a stream can only be archived as a raw image".into()));
            }
            (ImageSource::stream(program_output::open(args, progress)?, source), Vec::new())
        }
        _ => {
            let image = image(invocation, args, source)?;
            warn_if_mounted(source);
            image
        }
    };
    let left_out = left_out(args, &image)?;
    let sectors = image.sectors();
    let image = image.leaving_out(left_out.ranges().clone());
    let request = SnapshotRequest {
        left_out: [beside, LeftOutRecord::list(&left_out)].concat(),
        problem_count: left_out.fast_commits().len() as u64,
        sectors,
        ..request
    };
    let places = match args.cut {
        CutChoice::Fixed => None,
        CutChoice::Files => {
            let disk = image.reader()?.ok_or_else(|| {
                UsageError(
                    "the files in standard input cannot be found before it is read: give a file or a device"
                        .into(),
                )
            })?;
            Some(FilePlaces::find(disk, &|| progress.is_cancelled()))
        }
    };
    let block_bytes = archive.home().content_form().disk_block_bytes;
    let cut = places.as_ref().map_or(ImageCut::Fixed(block_bytes), ImageCut::AtFiles);
    let taken = archive.take_image(&image, cut, request, progress)?;
    Ok((taken, left_out.fast_commits().to_vec()))
}

/// Warns if a disk is mounted for writing while it is read.
fn warn_if_mounted(source: &Path) {
    let mounts = mounted_for_writing(source);
    if !mounts.is_empty() {
        warning!(
            "{} is mounted for writing at {}: the snapshot mixes the states during the read, and a file system in it may be restored damaged; unmount it, remount it read-only, or archive an LVM snapshot of it",
            source.display(),
            mounts.join(", ")
        );
    }
}

/// Archives a folder, or a single file.
fn take_files(
    archive: &mut Archive<dyn SnapshotHome>,
    invocation: &Invocation,
    args: &TakeSnapshotArgs,
    next: NextSource<'_>,
) -> Result<TakenSnapshot> {
    let NextSource { source, chosen, selected, request, progress, shown } = next;
    let report = |problem: Problem| complaint::report_problem(&problem);
    let watch = Watch { progress, report: &report };
    let (source, options) = if chosen.form == SourceForm::File {
        // The rules never exclude a file that is itself a source.
        let options = folder_options(invocation, args, source, FolderOptions::default())?;
        only_this_file(source, options).map_err(|error| not_taken(error.into()))?
    } else {
        let options = folder_options(invocation, args, source, selected)?;
        new_and_changed::count_ahead(shown, source, &options);
        (source.to_owned(), FolderOptions { note: new_and_changed::note(invocation), ..options })
    };
    let options = FolderOptions { reread: args.reread, ..options };
    archive.take_folder(&source, options, request, watch).map_err(not_taken)
}

/// The error for a snapshot that was not taken.
fn not_taken(error: TakeError) -> anyhow::Error {
    match error {
        TakeError::Folder(ArchiveFolderError::Cancelled) => {
            Interrupted("interrupted; data stored so far will not be stored again").into()
        }
        error => error.into(),
    }
}

/// Returns the owner of a file that was archived from a stream.
fn stream_owner() -> StreamOwner {
    StreamOwner {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        time: RealClock.now(),
    }
}

/// Finds the parts of an image that can be left out, each with its proof, before the image is
/// archived. Returns none if the image can be read only once.
fn left_out(args: &TakeSnapshotArgs, image: &ImageSource) -> Result<LeftOut> {
    let wanted = LeaveOut { swap: !args.keep_swap, free: args.skip_free };
    let Some(disk) = image.reader()? else {
        if args.skip_free {
            let said =
                "free blocks cannot be found on standard input before it is read: give a file or a device";
            bail!(UsageError(said.into()));
        }
        return Ok(LeftOut::default());
    };
    let found = LeftOut::find(disk, wanted);
    for part in found.parts() {
        if let Some(reason) = &part.kept_because {
            warning!("{}: kept: {} of {}: {reason}", image.path().display(), part.what, part.volume);
        }
    }
    Ok(found)
}

/// Opens a disk image of any format. Returns records of the parts of the file that are no part of
/// the disk, too.
fn image(
    invocation: &Invocation,
    args: &TakeSnapshotArgs,
    source: &Path,
) -> Result<(ImageSource, Vec<LeftOutRecord>)> {
    // Only the format of a regular file is detected. The owner of a device controls its first
    // bytes, and a fifo would block.
    let is_file = source.metadata().is_ok_and(|metadata| metadata.is_file());
    let format = match args.format {
        Some(format) => format,
        None if is_file => {
            open_to_read(source).and_then(|file| ImageFormat::detect(&file)).unwrap_or(ImageFormat::Raw)
        }
        None => ImageFormat::Raw,
    };
    if format == ImageFormat::Raw {
        return Ok((ImageSource::open(source)?, Vec::new()));
    }
    if args.format.is_none() && !invocation.quiet {
        let (path, name) = (source.display(), format.name());
        warning!(
            "{path} is an image in the format {name}: the disk in it is archived (--format raw archives the file)"
        );
    }
    let disk = ForeignImage::open(source, format, &args.allow_backing)?;
    let beside = disk.left_out();
    Ok((ImageSource::served(Box::new(disk), source, None), beside))
}

fn folder_options(
    invocation: &Invocation,
    args: &TakeSnapshotArgs,
    source: &Path,
    selected: FolderOptions,
) -> Result<FolderOptions> {
    let vac = args.vac.is_some().then(|| VacOptions {
        // A path without a last name, such as `.`, puts the contents of the folder at the top.
        name: source.file_name().map(|name| name.as_bytes().to_vec()),
        shape: VacShape::default(),
        owners: varve_session::owner_names(),
    });
    Ok(FolderOptions {
        vac,
        store_folder: match invocation.session.home()? {
            StoreLocation::Folder(path) => Some(store_as_read(args, path)),
            StoreLocation::Replica(_) | StoreLocation::Venti(_) => None,
        },
        ..selected
    })
}

impl TakenSource {
    /// Warns if the snapshot lacks a part of the source, or mixes its states.
    fn warn_of_gaps(&self, source: &Path) -> CommandOutcome {
        let problem_count = self.taken.snapshot.problem_count;
        if self.taken.changed_meanwhile {
            warning!("{} changed while it was read: the snapshot mixes two states of it", source.display());
        } else if !self.fast_commits.is_empty() {
            warn_of_fast_commits(source, &self.fast_commits);
        } else if problem_count > 0 {
            match problem_count {
                1 => warning!("the snapshot lacks 1 file, or parts of it"),
                several => warning!("the snapshot lacks {several} files, or parts of them"),
            }
        } else {
            return CommandOutcome::Done;
        }
        CommandOutcome::Gaps
    }

    fn print(&self, invocation: &Invocation) {
        let Self { chosen, taken, .. } = self;
        let snapshot = &taken.snapshot;
        if invocation.json {
            let mut shown = snapshot_list::as_json(snapshot);
            shown["kind_because"] = chosen.because.clone().into();
            if let Some(counts) = taken.counts.as_ref().filter(|_| chosen.form == SourceForm::Folder) {
                new_and_changed::put_counts(&mut shown, counts);
            }
            let asked = taken.left_out.asked.iter().filter(|_| invocation.verbose > 0);
            for entry in taken.left_out.notices.iter().chain(asked) {
                say::record("left_out", source_selection::as_json(entry, &snapshot.source));
            }
            shown["excluded"] = source_selection::counts_as_json(&taken.left_out);
            if let Some(vac) = &taken.vac {
                shown["vac"] = vac.score.to_string().into();
            }
            say::record("snapshot", shown);
            return;
        }
        if invocation.quiet {
            return;
        }
        say!("{}", as_line(snapshot));
        if let Some(because) = &chosen.because {
            let form = if chosen.form == SourceForm::File { "a file" } else { "a disk image" };
            say!("  as {form}: {because}");
        }
        if let Some(vac) = &taken.vac {
            say!("vac:{}", vac.score);
        }
        if let Some(counts) = taken.counts.as_ref().filter(|_| chosen.form == SourceForm::Folder) {
            new_and_changed::say_counts(counts);
        }
        say_left_out(&snapshot.left_out);
        source_selection::say_left_out(&taken.left_out, invocation.verbose > 0);
    }
}
