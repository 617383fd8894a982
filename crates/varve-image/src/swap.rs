//! What a disk keeps of memory: swap partitions, swap files, `pagefile.sys` and `hiberfil.sys`. A machine that is started again
//! makes nothing of it.
//!
//! Only what is certain counts: a volume that says that it is swap and nothing else, and files that say so too, belong to root, are named where
//! machines name theirs, and are on a file system that was left in order. The page in which swap says what it is, is not among
//! these ranges: without it swap would lose its identity.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use crate::content::{FileSystemKind, VolumeContent};
use crate::disk::Disk;
use crate::left_out::LeftOut;
use crate::ntfs::NtfsFiles;
use crate::swap_header::memory_in;
use crate::volume::Volume;
use crate::{Child, FileId, FileKind, FileSystem, FileSystemError};

/// Where installers put swap files.
const USUAL_NAMES: [&str; 6] =
    ["/swapfile", "/swap.img", "/.swapfile", "/swap/swapfile", "/var/swap", "/var/swapfile"];
const WINDOWS_NAMES: [&[u8]; 3] = [b"pagefile.sys", b"hiberfil.sys", b"swapfile.sys"];
/// What is read of `/etc/fstab`.
const FSTAB_BYTES_MAX: usize = 256 << 10;
const FSTAB_ENTRIES_MAX: usize = 64;

/// Adds all swap of a disk.
pub(crate) fn add_swap(disk: &Disk, left_out: &mut LeftOut) {
    let names = fstab_names(disk);
    for volume in disk.volumes() {
        match volume.content() {
            VolumeContent::Swap => {
                let mut head = vec![0; 64 << 10];
                let length = usize::try_from(volume.size()).unwrap_or(usize::MAX).min(head.len());
                head.truncate(length);
                if volume.read().read_at(0, &mut head).is_ok()
                    && let Some(memory) = memory_in(&head)
                {
                    left_out.add(volume, "swap", [memory]);
                }
            }
            // Never made swap, or a random key makes it so anew at every start: only the table says what it is for.
            VolumeContent::Empty if volume.partition_type().is_some_and(|kind| kind.is_swap()) => {
                left_out.add(volume, "swap", std::iter::once(0..volume.size()));
            }
            VolumeContent::FileSystem(FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4) => {
                add_named_files(volume, &names, left_out);
            }
            VolumeContent::FileSystem(FileSystemKind::Ntfs) => add_windows_files(volume, left_out),
            _ => {}
        }
    }
}

/// Swap files that `/etc/fstab` names on any volume, and the usual ones: as paths, and without the folders in which their
/// volume may be mounted.
fn fstab_names(disk: &Disk) -> BTreeSet<Vec<u8>> {
    let mut names: BTreeSet<Vec<u8>> = USUAL_NAMES.iter().map(|name| name.as_bytes().to_vec()).collect();
    for volume in disk.volumes() {
        let VolumeContent::FileSystem(FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4) =
            volume.content()
        else {
            continue;
        };
        let text = volume.open_file_system().and_then(|files| {
            let file = find(&*files, b"/etc/fstab")?;
            let mut text = vec![0; FSTAB_BYTES_MAX];
            let length = file.map_or(Ok(0), |file| files.read_at(file.id, 0, &mut text))?;
            text.truncate(length);
            Ok(text)
        });
        let text = text.unwrap_or_default();
        for path in text.split(|byte| *byte == b'\n').filter_map(swap_file_of_line).take(FSTAB_ENTRIES_MAX) {
            let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            names.extend(slashes.filter_map(|(at, _)| path.get(at..)).map(<[u8]>::to_vec));
        }
    }
    names
}

/// The file that a line of `/etc/fstab` makes swap.
fn swap_file_of_line(line: &[u8]) -> Option<&[u8]> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (what, _, kind) = (words.next()?, words.next()?, words.next()?);
    (what.first() == Some(&b'/') && !what.starts_with(b"/dev/") && kind == b"swap").then_some(what)
}

/// Follows a path, and no links.
fn find(files: &dyn FileSystem, path: &[u8]) -> Result<Option<Child>, FileSystemError> {
    let mut at: Option<Child> = None;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let folder = match &at {
            None => files.root(),
            Some(child) if child.kind == FileKind::Folder => child.id,
            Some(_) => return Ok(None),
        };
        at = files.child(folder, name)?;
        if at.is_none() {
            return Ok(None);
        }
    }
    Ok(at)
}

fn add_named_files(volume: &Volume, names: &BTreeSet<Vec<u8>>, left_out: &mut LeftOut) {
    let Ok(files) = volume.open_file_system() else { return };
    let mut seen = BTreeSet::new();
    for name in names {
        let shown = String::from_utf8_lossy(name);
        match find(&*files, name) {
            Ok(Some(child)) if seen.insert(child.id) => match memory_in_file(&*files, child.id) {
                Ok(Memory::Absent) => {}
                Ok(Memory::Uncertain) => {
                    left_out.keep(volume, &shown, "its file system was not left in order")
                }
                Ok(Memory::At(places)) => left_out.add(volume, &shown, places),
                Err(error) => left_out.keep(volume, &shown, &error.to_string()),
            },
            _ => {}
        }
    }
}

enum Memory {
    Absent,
    /// It is swap, but where it lies is not certain.
    Uncertain,
    At(Vec<Range<u64>>),
}

fn memory_in_file(files: &dyn FileSystem, file: FileId) -> Result<Memory, FileSystemError> {
    let status = files.status(file)?;
    // Nobody but root can have made it, and nobody else can have read it: else it may be anything that only looks so.
    let is_private = status.uid == 0 && status.mode & 0o7177 == 0 && status.links == 1;
    if status.kind != FileKind::File || !is_private {
        return Ok(Memory::Absent);
    }
    let mut head = vec![0; 64 << 10];
    let length = files.read_at(file, 0, &mut head)?;
    let Some(memory) = head.get(..length).and_then(memory_in) else { return Ok(Memory::Absent) };
    let Some(places) = files.places(file)? else { return Ok(Memory::Uncertain) };
    // Such files have no holes, so that a place in the file is one in the sum of its places.
    let total = places.iter().map(|place| place.end.saturating_sub(place.start)).fold(0, u64::saturating_add);
    if total < status.size {
        return Ok(Memory::Uncertain);
    }
    let memory = memory.start..memory.end.min(status.size);
    let mut found = Vec::new();
    let mut before = 0_u64;
    for place in places {
        let length = place.end.saturating_sub(place.start);
        let from = memory.start.clamp(before, before.saturating_add(length)).saturating_sub(before);
        let to = memory.end.clamp(before, before.saturating_add(length)).saturating_sub(before);
        found.push(place.start.saturating_add(from)..place.start.saturating_add(to));
        before = before.saturating_add(length);
    }
    Ok(Memory::At(found))
}

fn add_windows_files(volume: &Volume, left_out: &mut LeftOut) {
    let Ok(files) = NtfsFiles::open(volume.read()) else { return };
    let mut found = Vec::new();
    let listed = files.children(files.root(), 0, &mut |child| {
        let is_memory = WINDOWS_NAMES.iter().any(|name| child.name.eq_ignore_ascii_case(name));
        if is_memory && child.kind == FileKind::File {
            found.push(child);
        }
        ControlFlow::Continue(())
    });
    if listed.is_err() || found.is_empty() {
        return;
    }
    // What waits in the log may give their places to other files.
    let is_in_order = files.was_left_in_order().unwrap_or(false);
    for child in found {
        let shown = String::from_utf8_lossy(&child.name);
        if !is_in_order {
            left_out.keep(volume, &shown, "its file system was not left in order");
            continue;
        }
        match files.places(child.id) {
            Ok(Some(places)) => left_out.add(volume, &shown, places),
            Ok(None) => left_out.keep(volume, &shown, "where it lies is not certain"),
            Err(error) => left_out.keep(volume, &shown, &error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_make_files_swap_are_read() {
        let of = |line: &str| {
            swap_file_of_line(line.as_bytes()).map(|path| String::from_utf8_lossy(path).into_owned())
        };
        assert_eq!(of("/data/swap\tnone  swap sw 0 0").as_deref(), Some("/data/swap"));
        for line in [
            "# /swap none swap",
            "/dev/sda2 none swap sw",
            "UUID=1 none swap",
            "/home /h ext4",
            "",
            "/swap none",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
