//! Compares an imported snapshot with a folder into which the other program has restored it.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use varve_archive::folder::{HostEntry, HostFolder};
use varve_archive::{Node, NodeKind, NodeList};
use varve_block::BlockStore;

/// The deepest folder that is compared.
const DEPTH_MAX: usize = 4096;

/// The differences that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttributeCheck {
    /// The number of entries that were compared.
    pub entry_count: u64,
    /// The number of entries with a difference.
    pub difference_count: u64,
}

/// Compares the attributes of all entries of a snapshot with those of a folder: the kind, the mode,
/// the owner, the time of the last change, the target, the device and the extended attributes. Also
/// names that only one of both has are differences. Times are compared where `restores_time` holds.
/// Sockets are not compared: other programs do not restore them. Contents are compared by
/// [`read_back`](varve_archive::folder::read_back).
///
/// # Errors
/// The folder cannot be opened.
pub fn check_attributes(
    blocks: &dyn BlockStore,
    root: &Node,
    folder: &Path,
    restores_time: &dyn Fn(&Node) -> bool,
    report: &mut dyn FnMut(&Path, &str),
) -> io::Result<AttributeCheck> {
    let (there, _) = HostFolder::open(folder)?;
    let mut checker = AttributeChecker { blocks, restores_time, report, found: AttributeCheck::default() };
    checker.folder(&there, root, &PathBuf::new(), 0);
    Ok(checker.found)
}

struct AttributeChecker<'a> {
    blocks: &'a dyn BlockStore,
    restores_time: &'a dyn Fn(&Node) -> bool,
    report: &'a mut dyn FnMut(&Path, &str),
    found: AttributeCheck,
}

impl AttributeChecker<'_> {
    fn folder(&mut self, there: &HostFolder, node: &Node, path: &Path, depth: usize) {
        let mut names: BTreeSet<Vec<u8>> = match there.names() {
            Ok(names) => names.into_iter().collect(),
            Err(error) => return self.differs(path, &format!("it cannot be listed: {error}")),
        };
        for child in NodeList::new(self.blocks, node) {
            let child = match child {
                Ok(child) => child,
                Err(error) => return self.differs(path, &error.to_string()),
            };
            let path = path.join(std::ffi::OsStr::from_bytes(&child.name));
            let is_there = names.remove(&child.name);
            if child.kind == NodeKind::Socket {
                continue;
            }
            self.found.entry_count += 1;
            if !is_there {
                self.differs(&path, "it is only in the snapshot");
                continue;
            }
            match there.entry(&child.name) {
                Ok(HostEntry { node: mut other, .. }) => {
                    if !(self.restores_time)(&child) {
                        other.mtime = child.mtime;
                    }
                    let unlike = differences(&child, &other);
                    if !unlike.is_empty() {
                        self.differs(&path, &format!("it differs in {}", unlike.join(", ")));
                    }
                }
                Err(error) => self.differs(&path, &format!("it cannot be read: {error}")),
            }
            if child.kind == NodeKind::Folder
                && depth < DEPTH_MAX
                && let Ok(below) = there.folder(&child.name)
            {
                self.folder(&below, &child, &path, depth + 1);
            }
        }
        for name in names {
            self.differs(&path.join(std::ffi::OsStr::from_bytes(&name)), "it is missing in the snapshot");
        }
    }

    fn differs(&mut self, path: &Path, text: &str) {
        self.found.difference_count += 1;
        (self.report)(path, text);
    }
}

/// The attributes in which two nodes differ.
fn differences(ours: &Node, theirs: &Node) -> Vec<&'static str> {
    let is_link = ours.kind == NodeKind::SymbolicLink;
    let unlike = [
        (ours.kind != theirs.kind, "the kind"),
        // Linux has no modes of links.
        (!is_link && ours.mode != theirs.mode, "the mode"),
        ((ours.uid, ours.gid) != (theirs.uid, theirs.gid), "the owner"),
        (ours.mtime != theirs.mtime, "the modification time"),
        (ours.size != theirs.size, "the size"),
        (ours.target != theirs.target, "the target"),
        (ours.device != theirs.device, "the device"),
        (ours.xattrs != theirs.xattrs, "the extended attributes"),
    ];
    unlike.into_iter().filter(|(is_unlike, _)| *is_unlike).map(|(_, what)| what).collect()
}
