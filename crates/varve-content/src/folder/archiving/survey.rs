//! Shows what would be archived of a folder, without reading any file.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::archive::open_source;
use super::left_out::{LeftOutEntry, LeftOutOfFolder};
use super::options::FolderOptions;
use super::outcome::ArchiveFolderError;
use super::path_limit::PathLimit;
use super::read::{JoinName, SourceFolder};
use crate::folder::source::listed_paths::ListedPaths;
use crate::folder::source::selection::{Selection, empty, marked};
use crate::folder::source::status::{FolderNames, Status, open_folder};
use crate::records::node::NodeKind;
use varve_image::DeviceNumber;

/// An event of a survey.
#[derive(Debug)]
pub enum SurveyEvent<'a> {
    /// The node would be archived.
    GoesIn {
        /// The path from the root of the source; empty for the source itself.
        path: &'a Path,
        kind: NodeKind,
        /// Bytes of a file, as the system reports them.
        size: u64,
    },
    /// The node would be left out, or archived without its contents.
    LeftOut(&'a LeftOutEntry),
    /// The node is unreadable.
    Unreadable {
        /// The path from the root of the source.
        path: &'a Path,
        error: io::Error,
    },
}

/// The counts of a survey.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderSurvey {
    /// Nodes that would be archived and are not folders.
    pub file_count: u64,
    /// Folders that would be archived, including the source itself.
    pub folder_count: u64,
    /// Bytes of those files, counted once for each name.
    pub bytes: u64,
    /// Unreadable nodes.
    pub problem_count: u64,
    /// The parts that would be left out.
    pub left_out: LeftOutOfFolder,
}

/// Walks through `source` as [`archive_folder`](crate::folder::archive_folder) would with these
/// options. Reports what it would archive and what it would leave out, in the order of the walk.
/// Files are not opened. Ends early if `visit` returns `Break`.
///
/// # Errors
/// [`ArchiveFolderError`]: the source is unreadable, or is the store itself.
pub fn survey_folder(
    source: &Path,
    options: &FolderOptions,
    visit: &mut dyn FnMut(SurveyEvent<'_>) -> ControlFlow<()>,
) -> Result<FolderSurvey, ArchiveFolderError> {
    let unreadable =
        |source_error| ArchiveFolderError::Source { path: source.to_path_buf(), source: source_error };
    let (descriptor, status) = open_source(source, OFlags::RDONLY).map_err(unreadable)?;
    let store_folder = options.store_folder.as_ref().and_then(|path| open_source(path, OFlags::RDONLY).ok());
    let store_folder = store_folder.map(|(_, status)| status.id);
    if store_folder == Some(status.id) {
        return Err(ArchiveFolderError::OwnStore { path: source.to_path_buf() });
    }
    let selection = Selection::new(options, status.id, store_folder);
    let (virtual_name, _) = selection.virtual_file_system(None, &descriptor);
    let device = status.id.file_system;
    let folder =
        SourceFolder { descriptor, path: PathBuf::new(), device, virtual_name, _token: Arc::new(()) };
    let mut surveyor = Surveyor {
        listed: selection.listed(),
        selection,
        visit,
        survey: FolderSurvey::default(),
        stack: Vec::new(),
        path_limit: PathLimit::of_process(),
    };
    let _ = surveyor.walk(folder);
    Ok(surveyor.survey)
}

struct Surveyor<'a, 'v> {
    selection: Selection<'a>,
    listed: Option<&'a ListedPaths>,
    visit: &'v mut dyn FnMut(SurveyEvent<'_>) -> ControlFlow<()>,
    survey: FolderSurvey,
    stack: Vec<SurveyedFolder<'a>>,
    path_limit: PathLimit,
}

struct SurveyedFolder<'a> {
    folder: Arc<SourceFolder>,
    names: FolderNames,
    listed: Option<&'a ListedPaths>,
}

impl<'a> Surveyor<'a, '_> {
    fn walk(&mut self, root: SourceFolder) -> ControlFlow<()> {
        let listed = self.listed;
        self.enter(root, listed)?;
        while let Some(frame) = self.stack.last_mut() {
            match frame.names.next() {
                Some((name, _)) => {
                    let name = name.to_vec();
                    let folder = Arc::clone(&frame.folder);
                    let listed = frame.listed.and_then(|listed| listed.below(&name));
                    self.look_at(&name, &folder, listed)?;
                }
                None => drop(self.stack.pop()),
            }
        }
        ControlFlow::Continue(())
    }

    fn look_at(
        &mut self,
        name: &[u8],
        folder: &SourceFolder,
        listed: Option<&'a ListedPaths>,
    ) -> ControlFlow<()> {
        let path = folder.path.join_name(name);
        let status = match Status::of_name(&folder.descriptor, name) {
            Ok(status) => status,
            Err(error) => return self.give_up(&path, error),
        };
        let Some(kind) = status.kind else { return ControlFlow::Continue(()) };
        if let Err(error) = self.path_limit.check(&folder.path, self.stack.len(), name, kind) {
            return self.give_up(&path, io::Error::other(error));
        }
        if let Some(entry) = self.selection.leaves_out(folder, name, kind, &status) {
            return self.leave_out(entry);
        }
        if let Some(reason) = self.selection.leaves_empty(folder, name, kind, &status) {
            self.take(&path, kind, 0)?;
            return self.leave_out(empty(&path, kind, reason));
        }
        if kind != NodeKind::Folder {
            if listed.is_some() {
                return self.give_up(&path, io::ErrorKind::NotADirectory.into());
            }
            return self.take(&path, kind, if kind == NodeKind::File { status.size } else { 0 });
        }
        let descriptor = match open_folder(&folder.descriptor, name) {
            Ok(descriptor) => descriptor,
            Err(error) => return self.give_up(&path, error),
        };
        let (virtual_name, left_empty) = self.selection.virtual_file_system(Some(folder), &descriptor);
        if let Some(reason) = left_empty {
            self.take(&path, kind, 0)?;
            return self.leave_out(empty(&path, kind, reason));
        }
        let device: DeviceNumber = status.id.file_system;
        self.enter(SourceFolder { descriptor, path, device, virtual_name, _token: Arc::new(()) }, listed)
    }

    fn enter(&mut self, folder: SourceFolder, listed: Option<&'a ListedPaths>) -> ControlFlow<()> {
        self.take(&folder.path, NodeKind::Folder, 0)?;
        let names = match listed {
            Some(listed) => FolderNames::listed(listed.names()),
            None => {
                let (mut names, read) = FolderNames::read(&folder.descriptor);
                if let Err(error) = read {
                    self.give_up(&folder.path, error)?;
                }
                if let Some(only) = self.selection.keeps_only(&folder.descriptor, &names) {
                    if names.len() > 1 {
                        self.leave_out(marked(&folder.path, only.clone()))?;
                    }
                    names.retain_only(&only);
                }
                names
            }
        };
        self.stack.push(SurveyedFolder { folder: Arc::new(folder), names, listed });
        ControlFlow::Continue(())
    }

    fn take(&mut self, path: &Path, kind: NodeKind, size: u64) -> ControlFlow<()> {
        match kind {
            NodeKind::Folder => self.survey.folder_count += 1,
            _ => self.survey.file_count += 1,
        }
        self.survey.bytes = self.survey.bytes.saturating_add(size);
        (self.visit)(SurveyEvent::GoesIn { path, kind, size })
    }

    fn leave_out(&mut self, entry: LeftOutEntry) -> ControlFlow<()> {
        let going_on = (self.visit)(SurveyEvent::LeftOut(&entry));
        self.survey.left_out.add(entry);
        going_on
    }

    fn give_up(&mut self, path: &Path, error: io::Error) -> ControlFlow<()> {
        self.survey.problem_count += 1;
        (self.visit)(SurveyEvent::Unreadable { path, error })
    }
}
