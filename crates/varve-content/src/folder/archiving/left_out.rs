//! Records what is left out of a source, with the reasons and the sizes.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::folder::source::excludes::{ExcludeRule, RuleOrigin};
use crate::folder::source::status::{FolderNames, Status, open_folder};
use crate::records::node::NodeKind;

/// Upper bound on the entries that are listed one by one, for excluded files and for the others.
/// All of them are counted.
const NOTICES_MAX: usize = 1000;
/// Upper bound on the depth to which a folder is measured. A store is less deep.
const MEASURED_DEPTH_MAX: u32 = 16;

/// The reason why a part of a source is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftOutReason {
    /// A pattern matches it.
    Pattern {
        /// The pattern as it was written.
        text: String,
        /// The place where it was written.
        origin: RuleOrigin,
    },
    /// It has more bytes than this limit.
    LargerThan(u64),
    /// The folder contains a file with this name, and is archived with that file alone.
    Marked {
        /// The name of the file.
        by: Vec<u8>,
    },
    /// It is on another file system than the source.
    OtherFileSystem,
    /// It is a mounted virtual file system with this name, and is archived as an empty folder.
    Virtual(&'static str),
    /// It is a mounted archive, and is archived as an empty folder.
    MountedArchive,
    /// It is the store that receives the snapshot.
    OwnStore,
}

impl LeftOutReason {
    pub(crate) fn of_rule(rule: &ExcludeRule) -> Self {
        Self::Pattern { text: rule.text().into(), origin: rule.origin().clone() }
    }

    /// Returns whether an option of the user left it out.
    pub(crate) fn is_asked_for(&self) -> bool {
        match self {
            Self::Pattern { .. } | Self::LargerThan(_) | Self::Marked { .. } | Self::OtherFileSystem => true,
            Self::Virtual(_) | Self::MountedArchive | Self::OwnStore => false,
        }
    }
}

/// A file or folder that is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutEntry {
    /// The path from the root of the source.
    pub path: PathBuf,
    pub kind: NodeKind,
    /// Bytes of a file. For the store itself, bytes of all its files. 0 for other folders, which
    /// are not examined.
    pub bytes: u64,
    pub reason: LeftOutReason,
}

/// The files and folders that are left out: those that the user excluded, and the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOutOfFolder {
    /// Excluded nodes that are not folders.
    pub file_count: u64,
    /// Excluded folders. Their contents are not counted.
    pub folder_count: u64,
    /// Bytes of the excluded files.
    pub bytes: u64,
    /// The first excluded files and folders, in the order in which they were met.
    pub asked: Vec<LeftOutEntry>,
    /// The first files and folders that are left out for other reasons, in the order in which they
    /// were met.
    pub notices: Vec<LeftOutEntry>,
    /// The number of all files and folders that are left out for other reasons.
    pub notice_count: u64,
}

impl LeftOutOfFolder {
    pub(crate) fn add(&mut self, entry: LeftOutEntry) {
        if entry.reason.is_asked_for() {
            match entry.kind {
                NodeKind::Folder => self.folder_count += 1,
                _ => self.file_count += 1,
            }
            self.bytes = self.bytes.saturating_add(entry.bytes);
            if self.asked.len() < NOTICES_MAX {
                self.asked.push(entry);
            }
            return;
        }
        self.notice_count += 1;
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(entry);
        }
    }
}

/// The bytes of all files in the folder with this name.
pub(crate) fn measure(parent: impl AsFd, name: &[u8]) -> u64 {
    open_folder(parent, name).map_or(0, |folder| measure_open(folder, MEASURED_DEPTH_MAX))
}

fn measure_open(folder: impl AsFd, depth_left: u32) -> u64 {
    let (mut names, _) = FolderNames::read(&folder);
    let mut bytes = 0_u64;
    while let Some((name, _)) = names.next() {
        let Ok(status) = Status::of_name(&folder, name) else { continue };
        bytes = bytes.saturating_add(match status.kind {
            Some(NodeKind::File) => status.size,
            Some(NodeKind::Folder) if depth_left > 0 => {
                open_folder(&folder, name).map_or(0, |inner| measure_open(inner, depth_left - 1))
            }
            _ => 0,
        });
    }
    bytes
}

/// The text for messages.
impl std::fmt::Display for LeftOutReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pattern { text, origin: RuleOrigin::Argument } => write!(f, "the pattern {text:?}"),
            Self::Pattern { text, origin: RuleOrigin::Line { path, number } } => {
                write!(f, "the pattern {text:?} in {}, line {number}", shown(path))
            }
            Self::LargerThan(bytes) => write!(f, "larger than {bytes} bytes"),
            Self::Marked { by } => write!(f, "it contains a file {:?}", String::from_utf8_lossy(by)),
            Self::OtherFileSystem => f.write_str("another file system"),
            Self::Virtual(name) => write!(f, "a virtual file system: {name}"),
            Self::MountedArchive => f.write_str("a mounted archive"),
            Self::OwnStore => f.write_str("the store itself"),
        }
    }
}

fn shown(path: &Path) -> String {
    format!("{:?}", path.to_string_lossy())
}
