//! Compares an imported snapshot with a folder into which the other program has restored it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::geteuid;
use varve_block::BlockStore;
use varve_content::folder::{HostEntry, HostFolder};
use varve_content::{FolderStack, FolderStep, Node, NodeKind, NodeList};

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
/// Users other than root cannot restore the owners of files, so a file that they own may have any
/// owner in the snapshot. Sockets are not compared: other programs do not restore them. Contents
/// are compared by
/// [`read_back`](varve_content::folder::read_back).
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
    let user = geteuid();
    let restorer = (!user.is_root()).then(|| user.as_raw());
    let found = AttributeCheck::default();
    let mut checker = AttributeChecker { blocks, restores_time, restorer, report, found };
    checker.folders(there, root);
    Ok(checker.found)
}

struct AttributeChecker<'a> {
    blocks: &'a dyn BlockStore,
    restores_time: &'a dyn Fn(&Node) -> bool,
    /// The user who owns all that was restored; `None` for root, who can restore owners.
    restorer: Option<u32>,
    report: &'a mut dyn FnMut(&Path, &str),
    found: AttributeCheck,
}

/// A restored folder that is being compared.
struct RestoredFolder {
    there: HostFolder,
    /// The names that the snapshot's folder did not have yet.
    names: BTreeSet<Vec<u8>>,
    /// False if the list of the snapshot ended early.
    is_readable: bool,
}

impl<'a> AttributeChecker<'a> {
    fn folders(&mut self, there: HostFolder, root: &Node) {
        let mut open = FolderStack::default();
        self.enter(there, root, &mut open);
        while let Some(step) = open.next() {
            let path = Path::new(OsStr::from_bytes(open.path())).to_path_buf();
            match step {
                FolderStep::Node(Ok(node)) => {
                    let Some(above) = open.value_mut() else { break };
                    if self.is_there(above, &node, &path)
                        && node.kind == NodeKind::Folder
                        && let Ok(below) = above.there.folder(&node.name)
                    {
                        self.enter(below, &node, &mut open);
                    }
                }
                FolderStep::Node(Err(error)) => {
                    if let Some(above) = open.value_mut() {
                        above.is_readable = false;
                    }
                    self.differs(&path, &error.to_string());
                }
                FolderStep::Left(RestoredFolder { names, is_readable, .. }) => {
                    for name in names.iter().filter(|_| is_readable) {
                        self.differs(&path.join(OsStr::from_bytes(name)), "it is missing in the snapshot");
                    }
                }
            }
        }
    }

    fn enter(&mut self, there: HostFolder, node: &Node, open: &mut FolderStack<'a, RestoredFolder>) {
        let path = Path::new(OsStr::from_bytes(open.path())).to_path_buf();
        let names = match there.names() {
            Ok(names) => names.into_iter().collect(),
            Err(error) => return self.differs(&path, &format!("it cannot be listed: {error}")),
        };
        let list = NodeList::new(self.blocks, node);
        if let Err(error) = open.enter(list, RestoredFolder { there, names, is_readable: true }) {
            self.differs(&path, &error.to_string());
        }
    }

    /// Compares an entry. Returns true if both have it.
    fn is_there(&mut self, above: &mut RestoredFolder, node: &Node, path: &Path) -> bool {
        let is_there = above.names.remove(&node.name);
        if node.kind == NodeKind::Socket {
            return false;
        }
        self.found.entry_count += 1;
        if !is_there {
            self.differs(path, "it is only in the snapshot");
            return false;
        }
        match above.there.entry(&node.name) {
            Ok(HostEntry { node: mut other, .. }) => {
                if !(self.restores_time)(node) {
                    other.mtime = node.mtime;
                }
                if self.restorer == Some(other.uid) {
                    (other.uid, other.gid) = (node.uid, node.gid);
                }
                let unlike = differences(node, &other);
                if !unlike.is_empty() {
                    self.differs(path, &format!("it differs in {}", unlike.join(", ")));
                }
            }
            Err(error) => self.differs(path, &format!("it cannot be read: {error}")),
        }
        true
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
