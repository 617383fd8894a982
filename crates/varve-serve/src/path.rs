//! From a path to a file, through symbolic links, without ever leaving the tree.

use varve_image::{FileId, FileKind, FileSystem, FileSystemError};

/// More links than this on one path are a loop, as for Linux.
const LINKS_MAX: usize = 40;
/// A path of more components was made to harm.
const COMPONENTS_MAX: usize = 4096;

/// What is at the end of a path of components that `/` separates; `None` if there is nothing. What `..` leads to above the root is the
/// root. A link to a path that begins at a root leads nowhere: whose root that would be is not known.
pub(crate) fn find(files: &dyn FileSystem, path: &[u8]) -> Result<Option<FileId>, FileSystemError> {
    walk(files, vec![files.root()], FileKind::Folder, path)
}

/// What a symbolic link in a folder leads to, whose path is known; else as [`find`].
pub(crate) fn follow(
    files: &dyn FileSystem,
    folder: &[u8],
    name: &[u8],
) -> Result<Option<FileId>, FileSystemError> {
    find(files, &[folder, b"/", name].concat())
}

fn walk(
    files: &dyn FileSystem,
    mut above: Vec<FileId>,
    mut kind: FileKind,
    path: &[u8],
) -> Result<Option<FileId>, FileSystemError> {
    let split = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect()
    };
    // The last one comes first.
    let mut left = split(path);
    let mut link_count = 0;
    while let Some(name) = left.pop() {
        match name.as_slice() {
            b"" | b"." => continue,
            b".." => {
                if above.len() > 1 {
                    above.pop();
                }
                kind = FileKind::Folder;
                continue;
            }
            _ => {}
        }
        let Some(folder) = above.last().filter(|_| kind == FileKind::Folder) else { return Ok(None) };
        let Some(child) = files.child(*folder, &name)? else { return Ok(None) };
        if child.kind != FileKind::SymbolicLink {
            above.push(child.id);
            kind = child.kind;
            continue;
        }
        link_count += 1;
        let target = files.link_target(child.id)?;
        if link_count > LINKS_MAX || target.starts_with(b"/") {
            return Ok(None);
        }
        left.extend(split(&target));
        if left.len() + above.len() > COMPONENTS_MAX {
            return Ok(None);
        }
    }
    Ok(above.pop())
}
