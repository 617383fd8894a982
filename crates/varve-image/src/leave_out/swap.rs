//! Finds copies of memory on a disk: swap partitions, swap files, `pagefile.sys` and
//! `hiberfil.sys`. A machine that boots anew does not use their content.
//!
//! This module finds candidates and applies the checks that concern each alone; `proof` checks
//! their surroundings. A swap file counts only if it has a swap header, belongs to root, has one of
//! the usual names or one from `/etc/fstab`, and lies on a file system that was left in a clean
//! state. The page with the swap header is not part of the ranges: without it, swap would lose its
//! identity.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use varve_block::to_usize;

use crate::contents::swap_header::{self, memory_in};
use crate::contents::volume_content::{FileSystemKind, VolumeContent};
use crate::disks::disk::Disk;
use crate::disks::partitions::PartitionPurpose;
use crate::disks::volume::Volume;
use crate::file_systems::ext::ExtFileSystem;
use crate::file_systems::file_system::{FileId, FileKind, FileSystem, FileSystemError, FolderChild};
use crate::file_systems::ntfs::NtfsFiles;
use crate::leave_out::open_ext::{OpenExt, ext_claim};
use crate::leave_out::proof::VolumeClaim;

/// The bytes that are read of a header: the largest page size.
const HEAD_BYTES: usize = 64 << 10;
/// The paths that installers use for swap files.
const USUAL_NAMES: [&str; 6] =
    ["/swapfile", "/swap.img", "/.swapfile", "/swap/swapfile", "/var/swap", "/var/swapfile"];
const WINDOWS_NAMES: [&[u8]; 3] = [b"pagefile.sys", b"hiberfil.sys", b"swapfile.sys"];
/// The bytes that are read of `/etc/fstab`.
const FSTAB_BYTES_MAX: usize = 256 << 10;
const FSTAB_ENTRIES_MAX: usize = 64;

/// A possible copy of memory.
pub(crate) struct SwapCandidate<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) what: String,
    /// Its known ranges in the volume.
    pub(crate) places: Vec<Range<u64>>,
    /// A contradiction that is already known.
    doubt: Option<String>,
    within: CandidateContainer<'a>,
}

/// The container of a candidate.
enum CandidateContainer<'a> {
    /// The candidate is the volume.
    Volume,
    Ext(&'a ExtFileSystem),
    Ntfs(NtfsFiles),
}

impl SwapCandidate<'_> {
    /// Checks the candidate and the file system that contains it.
    ///
    /// # Errors
    /// The contradiction, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(doubt) = &self.doubt {
            return Err(doubt.clone());
        }
        match &self.within {
            CandidateContainer::Volume => Ok(()),
            CandidateContainer::Ext(files) => {
                files.check_live().and_then(|()| files.check_in_use(&self.places))
            }
            CandidateContainer::Ntfs(files) => {
                files.check_live().and_then(|()| files.check_in_use(&self.places))
            }
        }
        .map_err(|reason| format!("its file system is in doubt: {reason}"))
    }

    /// Returns the claim to prove about the volume.
    pub(crate) fn claim(&self) -> VolumeClaim {
        match &self.within {
            CandidateContainer::Volume => {
                let page = self.places.first().map_or(0, |place| place.start);
                let own_bytes = swap_header::own_bytes(page);
                VolumeClaim { purpose: PartitionPurpose::Swap, names: swap_header::OWN_NAMES, own_bytes }
            }
            CandidateContainer::Ext(_) => ext_claim(),
            // The first file of NTFS is its boot code, of 8 KiB.
            CandidateContainer::Ntfs(_) => VolumeClaim {
                purpose: PartitionPurpose::WindowsFiles,
                names: &["NTFS"],
                own_bytes: 0..8 << 10,
            },
        }
    }

    /// Returns the proof in words.
    pub(crate) fn why(&self) -> String {
        match &self.within {
            CandidateContainer::Volume => "a valid swap header, and no other signature".into(),
            CandidateContainer::Ext(files) => {
                format!("a valid swap header in a file of root, on {} in order", files.age())
            }
            CandidateContainer::Ntfs(_) => "a file of Windows for its memory, on NTFS in order".into(),
        }
    }
}

/// Returns all candidates on a disk. The ranges of doubtful candidates are those that an older
/// version of this program left out.
pub(crate) fn candidates<'a>(disk: &'a Disk, opened: &'a [OpenExt<'a>]) -> Vec<SwapCandidate<'a>> {
    let mut found: Vec<_> = disk.volumes().iter().filter_map(swap_volume).collect();
    let names = fstab_names(opened);
    for OpenExt { volume, files } in opened {
        if let Ok(files) = files {
            add_named_files(volume, files, &names, &mut found);
        }
    }
    let is_ntfs = |volume: &&Volume| volume.content() == VolumeContent::FileSystem(FileSystemKind::Ntfs);
    for volume in disk.volumes().iter().filter(is_ntfs) {
        add_windows_files(volume, &mut found);
    }
    found
}

/// Returns a candidate if the volume has a swap header, or if the partition table marks it as swap.
fn swap_volume(volume: &Volume) -> Option<SwapCandidate<'_>> {
    let is_called_swap = volume.partition_type().is_some_and(|kind| kind.is_swap());
    let mut head = vec![0; HEAD_BYTES];
    head.truncate(to_usize(volume.size()));
    let (memory, doubt) = match volume.read().read_at(0, &mut head) {
        Ok(()) => (memory_in(&head), swap_header::check(&head, volume.size()).err()),
        Err(error) => (None, Some(format!("its first page cannot be read: {error}"))),
    };
    let places = match memory {
        Some(memory) => vec![memory],
        // Older versions left out the whole volume: it was never formatted as swap, or is encrypted
        // with a random key.
        None if is_called_swap && volume.content() == VolumeContent::Empty => {
            std::iter::once(0..volume.size()).collect()
        }
        None if is_called_swap => Vec::new(),
        None => return None,
    };
    Some(SwapCandidate { volume, what: "swap".into(), places, doubt, within: CandidateContainer::Volume })
}

/// Returns the paths of swap files: those in `/etc/fstab` on any volume, and the usual ones. Each
/// path from `/etc/fstab` is also tried without its leading folders, because its volume may be
/// mounted there.
fn fstab_names(opened: &[OpenExt<'_>]) -> BTreeSet<Vec<u8>> {
    let mut names: BTreeSet<Vec<u8>> = USUAL_NAMES.iter().map(|name| name.as_bytes().to_vec()).collect();
    for files in opened.iter().filter_map(|opened| opened.files.as_ref().ok()) {
        let text = find(files, b"/etc/fstab").and_then(|file| {
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

/// Returns the path of the swap file that a line of `/etc/fstab` names.
fn swap_file_of_line(line: &[u8]) -> Option<&[u8]> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (what, _, kind) = (words.next()?, words.next()?, words.next()?);
    (what.first() == Some(&b'/') && !what.starts_with(b"/dev/") && kind == b"swap").then_some(what)
}

/// Follows a path without following links.
fn find(files: &dyn FileSystem, path: &[u8]) -> Result<Option<FolderChild>, FileSystemError> {
    let mut at: Option<FolderChild> = None;
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

fn add_named_files<'a>(
    volume: &'a Volume,
    files: &'a ExtFileSystem,
    names: &BTreeSet<Vec<u8>>,
    found: &mut Vec<SwapCandidate<'a>>,
) {
    let mut seen = BTreeSet::new();
    for name in names {
        let Ok(Some(child)) = find(files, name) else { continue };
        if !seen.insert(child.id) {
            continue;
        }
        let (places, doubt) = match memory_in_file(files, child.id) {
            Ok(None) => continue,
            Ok(Some((places, doubt))) => (places, doubt),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let what = String::from_utf8_lossy(name).into_owned();
        found.push(SwapCandidate { volume, what, places, doubt, within: CandidateContainer::Ext(files) });
    }
}

/// Returns the ranges of memory in a swap file, and the contradiction if there is one; `None` if
/// the file is not a swap file.
#[expect(clippy::type_complexity, reason = "used once")]
fn memory_in_file(
    files: &dyn FileSystem,
    file: FileId,
) -> Result<Option<(Vec<Range<u64>>, Option<String>)>, FileSystemError> {
    let status = files.status(file)?;
    // Only root can have made it and only root can have read it. Otherwise the file may be any data
    // that looks like swap.
    let is_private = status.uid == 0 && status.mode & 0o7177 == 0 && status.links == 1;
    if status.kind != FileKind::File || !is_private {
        return Ok(None);
    }
    let mut head = vec![0; HEAD_BYTES];
    let length = files.read_at(file, 0, &mut head)?;
    let head = head.get(..length).unwrap_or_default();
    let Some(memory) = memory_in(head) else { return Ok(None) };
    let uncertain = |reason: &str| Ok(Some((Vec::new(), Some(reason.to_owned()))));
    let Some(places) = files.places(file)? else {
        return uncertain("its file system was not unmounted cleanly");
    };
    // A swap file has no holes, so an offset in the file is an offset in the concatenation of its
    // ranges.
    let total = places.iter().map(|place| place.end.saturating_sub(place.start)).fold(0, u64::saturating_add);
    if total < status.size {
        return uncertain("it has holes, which no swap file in use has");
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
    found.retain(|place| !place.is_empty());
    Ok(Some((found, swap_header::check(head, status.size).err())))
}

fn add_windows_files<'a>(volume: &'a Volume, found: &mut Vec<SwapCandidate<'a>>) {
    let Ok(files) = NtfsFiles::open(volume.read()) else { return };
    let mut children = Vec::new();
    let listed = files.children(files.root(), 0, &mut |child| {
        let is_memory = WINDOWS_NAMES.iter().any(|name| child.name.eq_ignore_ascii_case(name));
        if is_memory && child.kind == FileKind::File {
            children.push(child);
        }
        ControlFlow::Continue(())
    });
    if listed.is_err() || children.is_empty() {
        return;
    }
    // Pending records of the log may assign these clusters to other files.
    let is_in_order = files.was_left_in_order().unwrap_or(false);
    for child in children {
        let (places, doubt) = match files.places(child.id) {
            _ if !is_in_order => (Vec::new(), Some("its file system was not unmounted cleanly".into())),
            Ok(Some(places)) => (places, None),
            Ok(None) => (Vec::new(), Some("its place on the disk is uncertain".into())),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let Ok(files) = NtfsFiles::open(volume.read()) else { return };
        let what = String::from_utf8_lossy(&child.name).into_owned();
        found.push(SwapCandidate { volume, what, places, doubt, within: CandidateContainer::Ntfs(files) });
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
