//! Resolves a path to a file, through symbolic links, without ever leaving the tree.

use varve_image::{FileId, FileKind, FileSystem, FileSystemError};

/// A path with more links than this counts as a loop, as in Linux.
const LINKS_MAX: usize = 40;
/// The path limit in components, against hostile paths.
const COMPONENTS_MAX: usize = 4096;

/// Resolves a path of components separated by `/`; `None` if the file does not exist. As in Linux,
/// `..` at the root stays at the root. An absolute link resolves to nothing, because it is unknown
/// which root it refers to.
pub(crate) fn find(files: &dyn FileSystem, path: &[u8]) -> Result<Option<FileId>, FileSystemError> {
    walk(files, vec![files.root()], FileKind::Folder, path)
}

/// Resolves the symbolic link `name` in the folder at the path `folder`. Otherwise like [`find`].
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
    // Components in reverse order: the next one is popped from the end.
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
