//! The new image: a file that gets its name last, or a snapshot.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use varve_archive::SnapshotRequest;
use varve_content::Progress;
use varve_content::image::{ContentRun, ImageSource, RunContent, ServedImage, make_image};
use varve_image::{ReadAt, RelocatedDisk};
use varve_session::UsageError;

use super::OldImage;
use super::check::{CheckedImage, check};
use super::report;
use super::sparse::copy_range;
use crate::command::looking::snapshot_list;
use crate::command::taking::{report as snapshot_report, snapshot_names};
use crate::invocation::Invocation;
use crate::progress_bar::ShownProgress;
use crate::{say, show};

/// Writes the new image beside its place, checks it, and gives it its name.
pub(super) fn write(
    invocation: &Invocation,
    plan: &RelocatedDisk,
    old: &OldImage,
    output: &Path,
    progress: &Arc<Progress>,
) -> Result<()> {
    let context = || format!("{} was not made", output.display());
    if output.file_name().is_none() {
        bail!(UsageError(format!("{} names no file", output.display())));
    }
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let fill = |file: &File, partial: &Path| {
        let shown = shown(invocation, &output.display().to_string(), progress);
        let written = write_bytes(&*plan.shown(), file, progress);
        drop(shown);
        written?;
        let checked = check(plan, Arc::new(File::open(partial)?), folder, progress)?;
        report::checked(invocation, &checked);
        Ok(())
    };
    make_image::<anyhow::Error>(output, false, old.mode, fill).with_context(context)?;
    report::made(invocation, output, old.bytes.size());
    Ok(())
}

fn write_bytes(shown: &dyn ReadAt, into: &File, progress: &Progress) -> Result<()> {
    progress.set_total(0, shown.size());
    into.set_len(shown.size())?;
    copy_range(shown, 0..shown.size(), into, progress)
}

/// Checks the new image, and archives it as a snapshot.
pub(super) fn archive(
    invocation: &Invocation,
    plan: &RelocatedDisk,
    old: &OldImage,
    name: &str,
    progress: &Arc<Progress>,
) -> Result<()> {
    let context = || format!("{} was not archived", show::name(name.as_bytes()));
    let checked: CheckedImage =
        check(plan, plan.shown(), &std::env::temp_dir(), progress).with_context(context)?;
    report::checked(invocation, &checked);
    let mut archive = invocation.session.write_home()?;
    let request = SnapshotRequest {
        name: name.to_owned(),
        source: old.path.as_os_str().as_encoded_bytes().to_vec(),
        host: varve_session::snapshot_host(),
        name_is_given: true,
        read_in_pieces: true,
        ..SnapshotRequest::default()
    };
    archive.check_name(&request).map_err(|error| snapshot_names::taken(&old.path, error))?;
    let source = ImageSource::served(Box::new(NewImage(plan.shown())), &old.path, None);
    let shown = shown(invocation, name, progress);
    let block_bytes = archive.home().content_form().disk_block_bytes;
    let taken = archive.take_image(&source, block_bytes, request, progress);
    drop(shown);
    let taken = taken.with_context(context)?;
    if invocation.json {
        say::record("snapshot", snapshot_list::as_json(&taken.snapshot));
    } else if !invocation.quiet {
        say!("{}", snapshot_report::as_line(&taken.snapshot));
    }
    snapshot_report::say_root(invocation, archive.home());
    Ok(archive.close()?)
}

fn shown(invocation: &Invocation, title: &str, progress: &Arc<Progress>) -> ShownProgress {
    ShownProgress::start(title, progress, invocation.quiet || invocation.json)
}

/// The new image, as a source of a snapshot.
struct NewImage(Arc<dyn ReadAt>);

impl ServedImage for NewImage {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn content_at(&self, offset: u64) -> io::Result<ContentRun> {
        if offset >= self.0.size() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(ContentRun { content: RunContent::Data, end: self.0.size() })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, into)
    }
}
