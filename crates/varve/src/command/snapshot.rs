//! `varve snapshot`

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_archive::{
    Archive, ArchiveFolderError, ArchivedVac, Elsewhere, Excludes, FolderOptions, ImageSource, LeftOutRecord,
    Problem, Progress, Request, Snapshot, TakeError, Taken, VacOptions, Watch, mounted_for_writing,
    open_to_read,
};
use varve_image::{LeaveOut, LeftOut};
use varve_machine::{ForeignImage, ImageFormat};
use varve_tree::VacShape;

use super::taken::{as_line, say_left_out, warn_if_hidden, warn_of_fast_commits};
use super::{Outcome, snapshots};
use crate::arguments::{Arguments, TakeSnapshot, WrongWords, parse_name};
use crate::exit_status::Interrupted;
use crate::home::{self, Home};
use crate::progress_bar::Shown;
use crate::roots::{LockedRoots, Roots};
use crate::signals::cancel_on_signal;
use crate::{complaint, say, session, show, waiting};

/// Of disk images at a Venti server: what everybody uses there.
const VENTI_BLOCK_BYTES: u32 = 8 << 10;

pub(super) fn run(arguments: &Arguments, words: &TakeSnapshot) -> Result<Outcome> {
    if let Some(qmp) = &words.machine.qmp {
        return super::machine::run(arguments, words, qmp);
    }
    let requests = requests(words)?;
    check_vac(words)?;
    let excludes = Excludes::new(&words.excludes, &words.exclude_files)?;
    let mut taker = Taker::open(arguments)?;
    let progress = Arc::new(Progress::new());
    cancel_on_signal(&progress)?;
    let mut outcome = Outcome::Done;
    for (source, request) in words.sources.iter().zip(requests) {
        let progress = Arc::clone(&progress);
        let shown = Shown::start(&request.name, &progress, arguments.quiet || arguments.json);
        let (taken, fast_commits) =
            take(&mut taker, arguments, words, (source, &excludes), request, &progress)
                .with_context(|| format!("{} was not archived", source.display()))?;
        drop(shown);
        if taken.changed_meanwhile {
            remark!("varve: {} changed while it was read: the snapshot mixes two moments", source.display());
            outcome = Outcome::Gaps;
        } else if !fast_commits.is_empty() {
            warn_of_fast_commits(source, &fast_commits);
            outcome = Outcome::Gaps;
        } else if taken.snapshot.problem_count > 0 {
            match taken.snapshot.problem_count {
                1 => remark!("varve: the snapshot lacks 1 file, or parts of it"),
                several => remark!("varve: the snapshot lacks {several} files, or parts of them"),
            }
            outcome = Outcome::Gaps;
        }
        print(arguments, &taken);
        // Who gives the moment knows what he does.
        if words.time.is_none() {
            warn_if_hidden(taker.snapshots(), &taken.snapshot);
        }
        if let (Some(vac), Some(file)) = (&taken.vac, &words.vac) {
            finish_vac(vac, file)?;
        }
        taker.note_root(arguments)?;
    }
    taker.close()?;
    Ok(outcome)
}

/// Where snapshots go.
enum Taker {
    Store(Box<Archive>),
    /// To a Venti server, with the file in which the catalog's root is noted.
    Elsewhere(Box<Elsewhere>, LockedRoots),
}

impl Taker {
    fn open(arguments: &Arguments) -> Result<Self> {
        let Home::Venti(address) = home::of(arguments)? else {
            return Ok(Self::Store(Box::new(session::write(arguments)?)));
        };
        let lock = || Roots::of(arguments, &address)?.lock();
        let roots = waiting::until_free(arguments, || true, lock)?;
        let blocks = home::venti(&address)?;
        let elsewhere = roots.open(blocks)?;
        Ok(Self::Elsewhere(Box::new(elsewhere), roots))
    }

    fn snapshots(&self) -> &[Snapshot] {
        match self {
            Self::Store(archive) => archive.snapshots(),
            Self::Elsewhere(elsewhere, _) => elsewhere.snapshots(),
        }
    }

    /// What a log would remember.
    fn note_root(&mut self, arguments: &Arguments) -> Result<()> {
        if let Self::Elsewhere(elsewhere, roots) = self
            && let Some(root) = elsewhere.root()
        {
            roots.add(root)?;
            if arguments.json {
                say::record("catalog_root", json!({ "root": format!("catalog:{root}") }));
            } else if !arguments.quiet {
                say!("catalog:{root}");
            }
        }
        Ok(())
    }

    fn close(self) -> Result<()> {
        match self {
            Self::Store(archive) => Ok(archive.close()?),
            Self::Elsewhere(..) => Ok(()),
        }
    }
}

/// An archive for vac's tools is of one folder.
fn check_vac(words: &TakeSnapshot) -> Result<()> {
    match words.sources.as_slice() {
        _ if words.vac.is_none() => Ok(()),
        [source] if source.is_dir() => Ok(()),
        [source] => bail!(WrongWords(format!("--vac is for folders: {} is none", source.display()))),
        sources => {
            bail!(WrongWords(format!("--vac names one archive, and there are {} sources", sources.len())))
        }
    }
}

/// Says what is not as it was, and writes the line that names the archive.
fn finish_vac(vac: &ArchivedVac, file: &Path) -> Result<()> {
    if vac.without_xattrs > 0 {
        let files = show::count(vac.without_xattrs, "file");
        remark!(
            "varve: the vac archive has no attributes of {files}, which had more than vac's records take"
        );
    }
    if vac.left_out > 0 {
        let files = show::count(vac.left_out, "file");
        remark!("varve: the vac archive is without {files} that could not be read");
    }
    let context = || format!("{} cannot be written; the archive is vac:{}", file.display(), vac.score);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Whoever reads the file finds the line of before or this one, and not a part of it.
    let mut written = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder)
        .with_context(context)?;
    writeln!(written, "vac:{}", vac.score).with_context(context)?;
    written.as_file().sync_all().with_context(context)?;
    written.persist(file).with_context(context)?;
    Ok(())
}

/// What each source's snapshot is to be called.
fn requests(words: &TakeSnapshot) -> Result<Vec<Request>> {
    if words.name.is_some() && words.sources.len() > 1 {
        let said = format!("--name names one snapshot, and there are {} sources", words.sources.len());
        bail!(WrongWords(said));
    }
    let host = session::host_name();
    words
        .sources
        .iter()
        .map(|source| {
            Ok(Request {
                name: match &words.name {
                    Some(name) => name.clone(),
                    None => own_name(source)?,
                },
                time: words.time,
                source: remembered_path(source),
                host: host.clone(),
                tags: words.tags.clone(),
                read_in_pieces: !words.compact,
                ..Request::default()
            })
        })
        .collect()
}

/// What a source is called if nobody says: its last part, without the ending of an image. That of a link is the link's own: what it leads
/// to may change, as what `/dev/disk/by-id` leads to does.
fn own_name(source: &Path) -> Result<String> {
    if source == Path::new("-") {
        bail!(WrongWords("standard input has no name: give it one with --name".into()));
    }
    let whole = std::path::absolute(source)?;
    let whole = if whole.file_name().is_some() { whole } else { whole.canonicalize().unwrap_or(whole) };
    // A point in the name of a folder or of a device begins no ending.
    let has_ending = std::fs::metadata(&whole)
        .map_or(true, |found| !found.is_dir() && !found.file_type().is_block_device());
    let name = if has_ending { whole.file_stem() } else { whole.file_name() };
    let name = name.map_or_else(|| "root".into(), |name| name.to_string_lossy().into_owned());
    let fit = name.replace(|c: char| c.is_control() || matches!(c, ':' | '@'), "-");
    parse_name(&fit)
        .map_err(|said| WrongWords(format!("{said}; name {} with --name", source.display())).into())
}

fn remembered_path(source: &Path) -> Vec<u8> {
    let whole = std::path::absolute(source).unwrap_or_else(|_| source.into());
    if source == Path::new("-") { b"-".to_vec() } else { whole.as_os_str().as_bytes().to_vec() }
}

fn take(
    taker: &mut Taker,
    arguments: &Arguments,
    words: &TakeSnapshot,
    (source, excludes): (&Path, &Excludes),
    request: Request,
    progress: &Progress,
) -> Result<(Taken, Vec<String>)> {
    if source.is_dir() {
        let options = folder_options(arguments, words, source, excludes)?;
        let report = |problem: Problem| complaint::report_problem(&problem);
        let watch = Watch { progress, report: &report };
        let taken = match taker {
            Taker::Store(archive) => archive.take_folder(source, options, words.reread, request, watch),
            Taker::Elsewhere(elsewhere, _) => {
                elsewhere.take_folder(source, options, words.reread, request, watch)
            }
        };
        return match taken {
            Ok(taken) => Ok((taken, Vec::new())),
            Err(TakeError::Folder(ArchiveFolderError::Cancelled)) => {
                bail!(Interrupted("interrupted; what was stored so far will not be stored again"))
            }
            Err(error) => bail!(error),
        };
    }
    let image = image(arguments, words, source)?;
    warn_if_mounted(source);
    let left_out = left_out(words, &image)?;
    let image = image.leaving_out(left_out.ranges().clone());
    let request = Request {
        left_out: LeftOutRecord::list(&left_out),
        problem_count: left_out.fast_commits().len() as u64,
        ..request
    };
    let taken = match taker {
        Taker::Store(archive) => {
            let block_bytes = archive.store().config().block_bytes;
            archive.take_image(&image, block_bytes, request, progress)?
        }
        Taker::Elsewhere(elsewhere, _) => {
            elsewhere.take_image(&image, VENTI_BLOCK_BYTES, request, progress)?
        }
    };
    Ok((taken, left_out.fast_commits().to_vec()))
}

/// Says what it means that a disk is written to while it is read.
fn warn_if_mounted(source: &Path) {
    let mounts = mounted_for_writing(source);
    if !mounts.is_empty() {
        remark!(
            "varve: {} is mounted for writing at {}: the snapshot mixes moments of all that is written meanwhile, and a file system \
             in it may come back damaged; unmount it, remount it read-only, or archive an LVM snapshot of it",
            source.display(),
            mounts.join(", ")
        );
    }
}

/// The parts of an image that nobody will miss, each with its proof. Found before any of it is archived; none, if it can be read only
/// once.
fn left_out(words: &TakeSnapshot, image: &ImageSource) -> Result<LeftOut> {
    let wanted = LeaveOut { swap: !words.keep_swap, free: words.skip_free };
    let Some(disk) = image.reader()? else {
        if words.skip_free {
            let said =
                "what is free on standard input is known only when it has been read: give a file or a device";
            bail!(WrongWords(said.into()));
        }
        return Ok(LeftOut::default());
    };
    let found = LeftOut::find(disk, wanted);
    for part in found.parts() {
        if let Some(reason) = &part.kept_because {
            remark!("varve: {}: {} of {} is kept: {reason}", image.path().display(), part.what, part.volume);
        }
    }
    Ok(found)
}

/// A disk image of any format.
fn image(arguments: &Arguments, words: &TakeSnapshot, source: &Path) -> Result<ImageSource> {
    if source == Path::new("-") {
        if words.format.is_some_and(|format| format != ImageFormat::Raw) {
            bail!(WrongWords("standard input can only be a raw image".into()));
        }
        return Ok(ImageSource::stream(Box::new(std::io::stdin()), source));
    }
    // Only a file says what it is. The first bytes of a device are its owner's, whoever that is; and a fifo would keep us.
    let is_file = source.metadata().is_ok_and(|metadata| metadata.is_file());
    let format = match words.format {
        Some(format) => format,
        None if is_file => {
            open_to_read(source).and_then(|file| ImageFormat::detect(&file)).unwrap_or(ImageFormat::Raw)
        }
        None => ImageFormat::Raw,
    };
    if format == ImageFormat::Raw {
        return Ok(ImageSource::open(source)?);
    }
    if words.format.is_none() && !arguments.quiet {
        let (path, name) = (source.display(), format.name());
        remark!(
            "varve: {path} is an image in the format {name}: the disk in it is archived (--format raw: the file)"
        );
    }
    let disk = ForeignImage::open(source, format, &words.allow_backing)?;
    Ok(ImageSource::served(Box::new(disk), source, None))
}

fn folder_options(
    arguments: &Arguments,
    words: &TakeSnapshot,
    source: &Path,
    excludes: &Excludes,
) -> Result<FolderOptions> {
    let vac = words.vac.is_some().then(|| VacOptions {
        // Of a path that ends in no name, as `.`, what the folder holds is at the top.
        name: source.file_name().map(|name| name.as_bytes().to_vec()),
        shape: VacShape::default(),
        owners: session::owner_names(),
    });
    Ok(FolderOptions {
        vac,
        excludes: excludes.clone(),
        exclude_caches: words.exclude_caches,
        one_file_system: words.one_file_system,
        store_folder: match home::of(arguments)? {
            Home::Folder(path) => Some(path),
            Home::Replica(_) | Home::Venti(_) => None,
        },
        ..FolderOptions::default()
    })
}

fn print(arguments: &Arguments, taken: &Taken) {
    let snapshot = &taken.snapshot;
    if arguments.json {
        let mut shown = snapshots::as_json(snapshot);
        if let Some(vac) = &taken.vac {
            shown["vac"] = vac.score.to_string().into();
        }
        say::record("snapshot", shown);
        return;
    }
    if arguments.quiet {
        return;
    }
    say!("{}", as_line(snapshot));
    if let Some(vac) = &taken.vac {
        say!("vac:{}", vac.score);
    }
    say_left_out(&snapshot.left_out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_names_of_their_own() {
        for (source, name) in
            [("/srv/web.img", "web"), ("/dev/null", "null"), ("/", "root"), ("/usr/bin", "bin")]
        {
            assert_eq!(own_name(Path::new(source)).unwrap(), name, "{source}");
        }
        assert!(own_name(Path::new("-")).is_err());
        let folder = tempfile::tempdir().unwrap();
        let (link, inside) = (folder.path().join("by-id.1"), folder.path().join("dm-3"));
        std::fs::create_dir(&inside).unwrap();
        std::os::unix::fs::symlink(&inside, &link).unwrap();
        assert_eq!(own_name(&link).unwrap(), "by-id.1");
        assert_eq!(
            own_name(&inside.join("..")).unwrap(),
            folder.path().file_name().unwrap().to_str().unwrap()
        );
    }
}
