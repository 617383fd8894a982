//! The checks before a new image gets its name: by our own reader, and by e2fsck, which shares no
//! code with this program.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use varve_content::Progress;
use varve_image::{ReadAt, RelocatedDisk, VolumeStructure};
use varve_machine::find_program;
use varve_session::Interrupted;
use varve_world::{FinishedProgram, other_program};

use super::sparse::copy_range;
use crate::show;

/// The folders of administration programs, which are not on every user's search path.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];
/// The output of e2fsck that is looked through for them.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// The lines of e2fsck that an error has.
const LINES_MAX: usize = 5;

/// The result of the checks.
#[derive(Debug)]
pub(super) struct CheckedImage {
    /// The volumes in which e2fsck finds no problem; `None` if it is not installed.
    pub(super) e2fsck: Option<Vec<String>>,
}

/// Compares all files of the changed volumes with the old ones, and runs `e2fsck -fn` on each of
/// these volumes. `folder` is for files without a name, with the structure of a volume.
pub(super) fn check(
    plan: &RelocatedDisk,
    after: Arc<dyn ReadAt>,
    folder: &Path,
    progress: &Arc<Progress>,
) -> Result<CheckedImage> {
    let after: Arc<dyn ReadAt> = Arc::new(UntilCancelled { bytes: after, progress: Arc::clone(progress) });
    let different = |problem| anyhow!("the new image is not equal: {problem}");
    let checked = plan
        .verify(Arc::clone(&after))
        .and_then(|()| plan.structures(after))
        .map_err(different)
        .and_then(|structures| e2fsck(&structures, folder, progress));
    if progress.is_cancelled() {
        bail!(Interrupted("interrupted"));
    }
    Ok(CheckedImage { e2fsck: checked? })
}

fn e2fsck(structures: &[VolumeStructure], folder: &Path, progress: &Progress) -> Result<Option<Vec<String>>> {
    let Some(e2fsck) = find_program("e2fsck", &FOLDERS.map(Path::new)) else { return Ok(None) };
    let mut clean = Vec::new();
    for structure in structures {
        let context = || format!("cannot copy the structure of {} to {}", structure.name(), folder.display());
        let file = tempfile::tempfile_in(folder).with_context(context)?;
        copy_structure(structure, &file, progress).with_context(context)?;
        let mut command = other_program(&e2fsck);
        command.args(["-fn", "/dev/stdin"]).env("LC_ALL", "C.UTF-8").stdin(file);
        let ended = FinishedProgram::run(&mut command, OUTPUT_BYTES_MAX)
            .with_context(|| format!("cannot run {}", e2fsck.display()))?;
        if !ended.status.success() {
            let (text, complaint) = (String::from_utf8_lossy(&ended.output), ended.complaint());
            let is_problem = |line: &&str| !line.is_empty() && !line.starts_with("Pass ");
            let problems: Vec<_> =
                text.lines().chain([&*complaint]).filter(is_problem).take(LINES_MAX).collect();
            bail!("e2fsck refuses {}: {}", structure.name(), show::plain(&problems.join("; ")));
        }
        clean.push(structure.name().to_owned());
    }
    Ok(Some(clean))
}

fn copy_structure(structure: &VolumeStructure, into: &File, progress: &Progress) -> Result<()> {
    into.set_len(structure.bytes().size())?;
    for range in structure.ranges() {
        copy_range(structure.bytes(), range.clone(), into, progress)?;
    }
    Ok(())
}

/// Bytes that can be read until an operation is cancelled.
struct UntilCancelled {
    bytes: Arc<dyn ReadAt>,
    progress: Arc<Progress>,
}

impl ReadAt for UntilCancelled {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if self.progress.is_cancelled() {
            return Err(io::Error::other("interrupted"));
        }
        self.bytes.read_at(offset, into)
    }
}
