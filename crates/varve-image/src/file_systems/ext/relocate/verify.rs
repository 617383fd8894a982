//! Compares a file system with the same one after blocks have moved.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use varve_block::to_usize;

use super::super::ExtFileSystem;
use super::super::inode::ExtInode;
use super::untouchable::FIRST_INODE;
use crate::file_systems::file_system::{FileId, FileKind, FileSystem, FileSystemError, FolderChild};

/// The bytes of a file that are compared at once.
const PART_BYTES: usize = 1 << 20;

/// Returns the first difference as an error. The files in `added` may occupy one block more.
pub(super) fn compare(
    before: &ExtFileSystem,
    after: &ExtFileSystem,
    added: &BTreeMap<u32, u64>,
) -> Result<(), String> {
    let numbers = [numbers(before)?, numbers(after)?];
    let [old, new] = &numbers;
    if old != new {
        return Err("other inodes are in use".into());
    }
    for number in old {
        let problem = |part: &str| format!("inode {number}: {part}");
        let read =
            |files: &ExtFileSystem| files.inode_if_used(*number).map_err(|error| problem(&error.to_string()));
        match (read(before)?, read(after)?) {
            (None, None) => {}
            (Some(one), Some(two)) => {
                compare_inode(before, after, &one, &two, added).map_err(|part| problem(&part))?;
            }
            _ => return Err(problem("only one of them has it")),
        }
    }
    Ok(())
}

fn numbers(files: &ExtFileSystem) -> Result<Vec<u32>, String> {
    let mut numbers = Vec::new();
    let visited = files.for_each_inode_in_use(|number| {
        numbers.push(number);
        Ok(())
    });
    visited.map_err(|error| error.to_string())?;
    Ok(numbers)
}

fn compare_inode(
    before: &ExtFileSystem,
    after: &ExtFileSystem,
    one: &ExtInode,
    two: &ExtInode,
    added: &BTreeMap<u32, u64>,
) -> Result<(), String> {
    let file = FileId(u64::from(one.number));
    let mut expected = before.status_of(one);
    if added.contains_key(&one.number) {
        expected.allocated = expected.allocated.saturating_add(u64::from(before.block_bytes()));
    }
    equal("its status", &expected, &after.status_of(two))?;
    if one.flags() != two.flags() || one.size != two.size {
        return Err("its flags or its size differ".into());
    }
    same("its attributes", before.xattrs_of(one), after.xattrs_of(two))?;
    let is_readable = one.kind() == FileKind::Folder || !one.is_encrypted();
    if one.number < FIRST_INODE && one.kind() != FileKind::Folder || !is_readable {
        return same("its blocks", before.runs(file), after.runs(file));
    }
    match one.kind() {
        FileKind::Folder => same("its names", children(before, file), children(after, file)),
        FileKind::SymbolicLink => same("its target", before.link_target(file), after.link_target(file)),
        FileKind::File => compare_content(before, after, one, two),
        _ => Ok(()),
    }
}

fn children(files: &ExtFileSystem, folder: FileId) -> Result<Vec<FolderChild>, FileSystemError> {
    let mut children = Vec::new();
    files.children(folder, 0, &mut |child| {
        children.push(child);
        ControlFlow::Continue(())
    })?;
    Ok(children)
}

fn compare_content(
    before: &ExtFileSystem,
    after: &ExtFileSystem,
    one: &ExtInode,
    two: &ExtInode,
) -> Result<(), String> {
    let file = FileId(u64::from(one.number));
    let mut bytes = [vec![0; PART_BYTES], vec![0; PART_BYTES]];
    let mut at = 0_u64;
    loop {
        // Holes of both are skipped, so that a sparse file costs only its data.
        let data = [before.next_data(file, at), after.next_data(file, at)];
        let [old, new] = data;
        let Some(range) = both("its holes", old, new)? else { return Ok(()) };
        at = range.start;
        while at < range.end {
            let length = to_usize(range.end.saturating_sub(at)).min(PART_BYTES);
            let [old, new] = &mut bytes;
            let old = old.get_mut(..length).unwrap_or_default();
            let new = new.get_mut(..length).unwrap_or_default();
            let counts = [before.read_inode(one, at, old), after.read_inode(two, at, new)];
            let [old_count, new_count] = counts;
            both("its content", old_count, new_count)?;
            if old != new {
                return Err(format!("its content differs after byte {at}"));
            }
            at = at.saturating_add(length as u64);
        }
    }
}

fn equal<T: PartialEq>(part: &str, one: &T, two: &T) -> Result<(), String> {
    if one == two { Ok(()) } else { Err(format!("{part} differs")) }
}

/// Compares two readings. The same error of both counts as equal.
fn same<T: PartialEq>(
    part: &str,
    one: Result<T, FileSystemError>,
    two: Result<T, FileSystemError>,
) -> Result<(), String> {
    match (one, two) {
        (Ok(one), Ok(two)) => equal(part, &one, &two),
        (Err(one), Err(two)) => equal(part, &one.to_string(), &two.to_string()),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error.to_string()),
    }
}

/// Returns the common value of two readings that must both succeed.
fn both<T: PartialEq>(
    part: &str,
    one: Result<T, FileSystemError>,
    two: Result<T, FileSystemError>,
) -> Result<T, String> {
    let (one, two) = (one.map_err(|error| error.to_string())?, two.map_err(|error| error.to_string())?);
    equal(part, &one, &two)?;
    Ok(one)
}
