//! Reads restored files back, and compares them with the snapshot.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags};
use varve_world::Workers;

use super::super::watch::Watch;
use super::options::RestoreOptions;
use crate::files::Files;
use crate::folder::archiving::pipeline;
use crate::folder::archiving::read::JoinName;
use crate::folder::source::status::{Status, open_file, open_folder};
use crate::records::node::{Node, NodeKind};
use crate::restoring::comparison::{ReadBackDifference, compare_content};

/// Reads back from the disk everything that [`restore_folder`](super::restore_folder) wrote to
/// `destination`, bypassing the page cache where the system allows it, and reports differences.
/// Paths that the options exclude, and damaged ranges, are not compared. Returns the number of
/// files compared, and the number of problems.
///
/// # Errors
/// The destination cannot be opened.
pub fn read_back(
    files: &dyn Files,
    workers: &dyn Workers,
    root: &Node,
    destination: &Path,
    options: RestoreOptions<'_>,
    watch: Watch<'_>,
) -> io::Result<(u64, u64)> {
    let counts = Mutex::new((0, 0));
    let check = ReadBackCheck { files, options, watch, counts: &counts };
    if root.kind == NodeKind::Folder {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, destination, flags, Mode::empty())?;
        pipeline::run(workers, &|file: FileToCheck| check.file(&file), |pipeline| {
            check.folder(folder, root, &|file| {
                pipeline.submit(file);
                drop(pipeline.take_done());
            });
            while pipeline.help_or_wait() {}
        });
    } else if root.kind == NodeKind::File {
        check.file(&FileToCheck { file: File::open(destination)?, path: PathBuf::new(), node: root.clone() });
    }
    Ok(counts.into_inner())
}

struct FileToCheck {
    file: File,
    path: PathBuf,
    node: Node,
}

struct ReadBackCheck<'a> {
    files: &'a dyn Files,
    options: RestoreOptions<'a>,
    watch: Watch<'a>,
    counts: &'a Mutex<(u64, u64)>,
}

impl ReadBackCheck<'_> {
    /// Checks everything in a folder.
    fn folder(&self, root: OwnedFd, node: &Node, submit: &dyn Fn(FileToCheck)) {
        let filter = self.options.filter;
        let mut stack = vec![(root, PathBuf::new(), self.files.nodes(node), filter.is_all())];
        while let Some((folder, path, nodes, is_included)) = stack.last_mut() {
            if self.watch.progress.is_cancelled() {
                return;
            }
            let Some(node) = nodes.next() else {
                stack.pop();
                continue;
            };
            // Unreadable parts of the snapshot were reported during the restore.
            let Ok(node) = node else { continue };
            let (path, is_folder) = (path.join_name(&node.name), node.kind == NodeKind::Folder);
            let lacks_all = self.files.problem(&node).is_some_and(|trouble| trouble.lacks_all);
            if filter.excludes(&path, is_folder) || lacks_all {
                continue;
            }
            let is_included = *is_included || filter.includes(&path, is_folder);
            if is_folder {
                match open_folder(&*folder, &node.name) {
                    Ok(below) => stack.push((below, path, self.files.nodes(&node), is_included)),
                    Err(error) if is_included => self.unlike(&path, ReadBackDifference::Read(error)),
                    Err(_) => {}
                }
            } else if is_included {
                match self.entry(folder, &node) {
                    Ok(Some(file)) => submit(FileToCheck { file, path, node }),
                    Ok(None) => self.count(false),
                    Err(unlike) => self.unlike(&path, unlike),
                }
            }
        }
    }

    /// Checks an entry without reading its content. Returns a file whose content is still to be
    /// compared.
    fn entry(&self, folder: &OwnedFd, node: &Node) -> Result<Option<File>, ReadBackDifference> {
        let status = Status::of_name(folder, &node.name).map_err(ReadBackDifference::Read)?;
        let differs = |what| Err(ReadBackDifference::Status { what });
        match node.kind {
            _ if status.kind != Some(node.kind) => differs("the kind"),
            NodeKind::File if status.size != node.size => differs("the size"),
            NodeKind::File => {
                Ok(Some(open_file(folder, &node.name).map_err(ReadBackDifference::Read)?.into()))
            }
            NodeKind::SymbolicLink => {
                let target = rustix::fs::readlinkat(folder, node.name.as_slice(), Vec::new());
                let target = target.map_err(|error| ReadBackDifference::Read(error.into()))?;
                if target.to_bytes() == node.target { Ok(None) } else { differs("the target") }
            }
            NodeKind::CharacterDevice | NodeKind::BlockDevice if Some(status.device) != node.device => {
                differs("the device")
            }
            _ => Ok(None),
        }
    }

    fn file(&self, file: &FileToCheck) {
        match self.compare(file) {
            Ok(()) => self.count(false),
            Err(unlike) => self.unlike(&file.path, unlike),
        }
        self.watch.progress.add_files_done(1);
    }

    fn compare(&self, file: &FileToCheck) -> Result<(), ReadBackDifference> {
        let FileToCheck { file, node, .. } = file;
        // A range that was damaged during the restore is a hole. New damage shows as a difference.
        let mut lost = |_, damage| if self.options.damaged.is_some() { Ok(()) } else { Err(damage) };
        let progress = self.watch.progress;
        let compared = compare_content(file, node.size, progress, |take| {
            self.files.read_with(node, 0..node.size, take, &mut lost)
        });
        match compared {
            Err(ReadBackDifference::Read(_)) if progress.is_cancelled() => Ok(()),
            compared => compared,
        }
    }

    fn unlike(&self, path: &Path, unlike: ReadBackDifference) {
        self.count(true);
        self.watch.report(path, unlike);
    }

    fn count(&self, is_problem: bool) {
        let mut counts = self.counts.lock();
        counts.0 += 1;
        counts.1 += u64::from(is_problem);
    }
}
