//! Disks: partition tables, and the file systems ext, exFAT, NTFS and XFS.
//!
//! An input is a list of sectors, each after its number. All other sectors of the disk are zeros. A
//! change of the input therefore nearly always changes bytes that are read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use varve_image::{
    BlockOwners, Disk, ExtFileSystem, FileId, FileKind, FileSystem, LeaveOut, LeftOut, ReadAt, Relocation,
    RelocationOptions,
};

pub(crate) const SECTOR_BYTES: usize = 512;
const RECORD_BYTES: usize = 2 + SECTOR_BYTES;
const DISK_BYTES: u64 = 8 << 20;
/// At most this number of files and folders of a file system is visited.
const STEPS_MAX: usize = 200;

/// No volume with XFS is smaller.
const XFS_DISK_BYTES: u64 = 16 << 20;

/// A disk of zeros, except for these sectors.
pub(crate) struct Sectors(pub(crate) BTreeMap<u64, [u8; SECTOR_BYTES]>, u64);

impl Sectors {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        Self::of_size(bytes, DISK_BYTES)
    }

    fn of_size(bytes: &[u8], size: u64) -> Self {
        let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
        let sector = |record: &[u8; RECORD_BYTES]| {
            let (number, content) = record.split_first_chunk::<2>()?;
            Some((u64::from(u16::from_le_bytes(*number)), *content.first_chunk()?))
        };
        Self(records.iter().filter_map(sector).collect(), size)
    }
}

impl ReadAt for Sectors {
    fn size(&self) -> u64 {
        self.1
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.1);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.fill(offset, into);
        Ok(())
    }
}

impl Sectors {
    /// Fills `into` with the bytes from `offset`, also beyond the end of the disk.
    pub(crate) fn fill(&self, offset: u64, into: &mut [u8]) {
        let end = offset + into.len() as u64;
        into.fill(0);
        let sector_bytes = SECTOR_BYTES as u64;
        for (number, content) in self.0.range(offset / sector_bytes..end.div_ceil(sector_bytes)) {
            for (at, byte) in (number * sector_bytes..).zip(content) {
                if (offset..end).contains(&at) {
                    into[usize::try_from(at - offset).expect("it is in memory")] = *byte;
                }
            }
        }
    }
}

/// The partition tables of a disk, and the search for parts that are left out.
pub fn partitions(bytes: &[u8]) {
    let source: Arc<dyn ReadAt> = Arc::new(Sectors::parse(bytes));
    let disk = Disk::open(Arc::clone(&source));
    let names: BTreeSet<_> = disk.volumes().iter().map(|volume| volume.name()).collect();
    assert_eq!(names.len(), disk.volumes().len(), "a name is one volume's");
    for volume in disk.volumes() {
        let inside = volume.pieces().iter().all(|piece| piece.start <= piece.end && piece.end <= DISK_BYTES);
        assert!(inside, "{volume:?}");
        let mut last = [0];
        assert!(volume.size() == 0 || volume.read().read_at(volume.size() - 1, &mut last).is_ok());
    }
    let left_out = LeftOut::find(source, LeaveOut { swap: true, free: true });
    assert!(left_out.ranges().iter().all(|range| range.end <= DISK_BYTES));
}

/// A disk with logical partitions, and one whose partitions have names.
#[must_use]
pub fn partitions_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../disks/mbr").to_vec(), include_bytes!("../disks/gpt").to_vec()]
}

/// Visits everything in a file system, up to `STEPS_MAX` files and folders.
pub(crate) fn wade(files: &dyn FileSystem, look_at: &mut dyn FnMut(FileId)) {
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![files.root()]);
    while let Some(id) = waiting.pop().filter(|_| seen.len() < STEPS_MAX) {
        let Ok(status) = files.status(id) else { continue };
        if !seen.insert(id) {
            continue;
        }
        let _ = files.xattrs(id);
        let _ = files.places(id);
        look_at(id);
        match status.kind {
            FileKind::Folder => {
                let _ = files.children(id, 0, &mut |child| {
                    let is_name = ![&b""[..], b".", b".."].contains(&child.name.as_slice());
                    assert!(is_name && !child.name.iter().any(|byte| [b'/', 0].contains(byte)));
                    waiting.push(child.id);
                    if waiting.len() < STEPS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
            }
            FileKind::SymbolicLink => drop(files.link_target(id)),
            FileKind::File => {
                let mut content = [0; 5000];
                let _ = files.read_at(id, 0, &mut content);
                let _ = files.read_at(id, status.size / 2, &mut content);
                if let Ok(Some(range)) = files.next_data(id, 1) {
                    assert!(1 <= range.start && range.start < range.end && range.end <= status.size);
                }
            }
            _ => {}
        }
    }
}

/// An ext file system, with everything in it.
pub fn ext(bytes: &[u8]) {
    let volume: Arc<dyn ReadAt> = Arc::new(Sectors::parse(bytes));
    let Ok(files) = ExtFileSystem::open(Arc::clone(&volume)) else { return };
    wade(&files, &mut |id| drop(files.runs(id)));
    let _ = files.free_blocks();
    let _ = BlockOwners::scan(&files);
    relocate(&volume, &files);
}

/// Moves every second range of blocks. If the file system is not refused, everything in it is equal
/// in its new place.
fn relocate(volume: &Arc<dyn ReadAt>, files: &ExtFileSystem) {
    const RANGE_BYTES: u64 = 24 << 10;
    let options = RelocationOptions { align_bytes: 4096, volume_start: 0 };
    let starts = (0..DISK_BYTES).step_by(2 * RANGE_BYTES as usize);
    let reads: Vec<_> = starts.map(|start| start..start + RANGE_BYTES).collect();
    let Ok(plan) = Relocation::plan(files, &reads, options) else { return };
    let after = ExtFileSystem::open(plan.show(volume)).expect("only maps and bitmaps change");
    if plan.verify(files, files).is_ok() {
        plan.verify(files, &after).expect("every file is equal");
    }
}

/// File systems with maps of pointers; with extents, content in inodes, and attributes; and with
/// checksums and a journal.
#[must_use]
pub fn ext_seeds() -> Vec<Vec<u8>> {
    vec![
        include_bytes!("../disks/ext2").to_vec(),
        include_bytes!("../disks/ext4").to_vec(),
        include_bytes!("../disks/ext4-checksums").to_vec(),
    ]
}

/// An exFAT file system, with everything in it.
pub fn exfat(bytes: &[u8]) {
    let mut sectors = Sectors::parse(bytes);
    sectors.seal_exfat();
    let disk = Disk::open(Arc::new(sectors));
    let Some(volume) = disk.volume("p0") else { return };
    if let Ok(files) = volume.open_file_system() {
        wade(files.as_ref(), &mut |_| {});
    }
}

/// A file system with folders in one piece and in several, long names, removed entries, and a file
/// whose end was never written.
#[must_use]
pub fn exfat_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../disks/exfat").to_vec()]
}

/// An NTFS file system, with everything in it.
pub fn ntfs(bytes: &[u8]) {
    let disk = Disk::open(Arc::new(Sectors::parse(bytes)));
    let Some(volume) = disk.volume("p0") else { return };
    if let Ok(files) = volume.open_file_system() {
        wade(files.as_ref(), &mut |_| {});
    }
    drop(LeftOut::find(Arc::new(Sectors::parse(bytes)), LeaveOut { swap: true, free: true }));
}

/// A volume with contents in records, in clusters, compressed, with holes, and in so many pieces
/// that their lists need an attribute list; with a stream, hard links, and a folder with an index
/// outside of its record.
#[must_use]
pub fn ntfs_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../disks/ntfs").to_vec()]
}

/// An XFS file system, with everything in it.
pub fn xfs(bytes: &[u8]) {
    let sectors = || {
        let mut sectors = Sectors::of_size(bytes, XFS_DISK_BYTES);
        sectors.seal_xfs();
        Arc::new(sectors)
    };
    let disk = Disk::open(sectors());
    let Some(volume) = disk.volume("p0") else { return };
    if let Ok(files) = volume.open_file_system() {
        wade(files.as_ref(), &mut |_| {});
        if let Ok(Some(places)) = files.free_places() {
            assert!(places.iter().all(|place| place.start < place.end && place.end <= XFS_DISK_BYTES));
        }
    }
    drop(LeftOut::find(sectors(), LeaveOut { swap: true, free: true }));
}

/// A volume of version 5 that was in use, with transactions in its log, and with folders, extents
/// and attributes of every form; and one of version 4. Records of the log have no checksum, so that
/// changes of them get past it.
#[must_use]
pub fn xfs_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../disks/xfs").to_vec(), include_bytes!("../disks/xfs-version-4").to_vec()]
}

/// The length of a block in the seed of version 5.
const XFS_BLOCK_BYTES: u64 = 1024;

/// Returns the place of the checksum in a sector with metadata of XFS, and the length of what it
/// belongs to.
fn xfs_seal(sector: &[u8; SECTOR_BYTES]) -> Option<(usize, u64)> {
    const SECTOR: u64 = SECTOR_BYTES as u64;
    Some(match &sector[..4] {
        b"XFSB" => (224, SECTOR),
        b"XAGF" => (216, SECTOR),
        b"XAGI" => (312, SECTOR),
        b"XAFL" => (32, SECTOR),
        [b'I', b'N', ..] => (100, SECTOR),
        b"BMA3" => (64, XFS_BLOCK_BYTES),
        b"XDB3" | b"XDD3" | b"XDF3" => (4, XFS_BLOCK_BYTES),
        b"XSLM" | b"XARM" => (12, XFS_BLOCK_BYTES),
        b"AB3B" | b"AB3C" | b"IAB3" | b"FIB3" | b"RMB3" | b"R3FC" => (52, XFS_BLOCK_BYTES),
        _ => match sector[8..10] {
            [0x3d, 0xf1 | 0xff] | [0x3b, 0xee] | [0x3e, 0xbe] => (12, XFS_BLOCK_BYTES),
            _ => return None,
        },
    })
}

/// Computes CRC-32C.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let (mut table, mut number) = ([0; 256], 0);
        while number < 256 {
            let (mut code, mut bit) = (number as u32, 0);
            while bit < 8 {
                code = code >> 1 ^ (0x82f6_3b78 & (code & 1).wrapping_neg());
                bit += 1;
            }
            table[number] = code;
            number += 1;
        }
        table
    };
    let step = |code: u32, byte: &u8| code >> 8 ^ TABLE[usize::from(code.to_le_bytes()[0] ^ byte)];
    !bytes.iter().fold(!0, step)
}

impl Sectors {
    /// Sets the checksums of everything that has the magic number of metadata of XFS, if its
    /// version has them.
    fn seal_xfs(&mut self) {
        if self.0.get(&0).is_none_or(|superblock| superblock[101] & 0xf != 5) {
            return;
        }
        let numbers: Vec<u64> = self.0.keys().copied().collect();
        for number in numbers {
            let start = number * SECTOR_BYTES as u64;
            let Some((at, length)) = xfs_seal(&self.0[&number]) else { continue };
            if !start.is_multiple_of(length) || start + length > self.1 {
                continue;
            }
            let mut bytes = self.bytes(start..start + length);
            bytes[at..at + 4].fill(0);
            let code = crc32c(&bytes).to_le_bytes();
            if let Some(sector) = self.0.get_mut(&number) {
                sector[at..at + 4].copy_from_slice(&code);
            }
        }
    }
}

/// The type of the first entry of a file.
const EXFAT_FILE: u8 = 0x85;
const EXFAT_ENTRY_BYTES: usize = 32;
/// The number of sectors in a boot region. The last one holds the checksum of the others. The copy
/// of the region has as many.
const EXFAT_BOOT_SECTORS: u64 = 12;

impl Sectors {
    /// Sets the checksums of both boot regions and of the entries of each file to the right values.
    fn seal_exfat(&mut self) {
        for first in [0, EXFAT_BOOT_SECTORS] {
            let last = first + EXFAT_BOOT_SECTORS - 1;
            let region = self.bytes(first * SECTOR_BYTES as u64..last * SECTOR_BYTES as u64);
            // Fields that change while the volume is in use do not count.
            let counted = region.iter().enumerate().filter(|(at, _)| !matches!(at, 106 | 107 | 112));
            let sum = counted.fold(0_u32, |sum, (_, byte)| sum.rotate_right(1).wrapping_add((*byte).into()));
            let mut sealed = [0; SECTOR_BYTES];
            sealed.as_chunks_mut::<4>().0.fill(sum.to_le_bytes());
            self.0.insert(last, sealed);
        }
        let numbers: Vec<u64> = self.0.range(2 * EXFAT_BOOT_SECTORS..).map(|(number, _)| *number).collect();
        for number in numbers {
            for at in (0..SECTOR_BYTES).step_by(EXFAT_ENTRY_BYTES) {
                let start = number * SECTOR_BYTES as u64 + at as u64;
                let [kind, more, ..] = self.0[&number][at..] else { continue };
                let entries_bytes = EXFAT_ENTRY_BYTES as u64 * (u64::from(more) + 1);
                if kind != EXFAT_FILE || start + entries_bytes > DISK_BYTES {
                    continue;
                }
                let entries = self.bytes(start..start + entries_bytes);
                let counted = entries.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
                let sum =
                    counted.fold(0_u16, |sum, (_, byte)| sum.rotate_right(1).wrapping_add((*byte).into()));
                if let Some(sector) = self.0.get_mut(&number) {
                    sector[at + 2..at + 4].copy_from_slice(&sum.to_le_bytes());
                }
            }
        }
    }

    fn bytes(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("it is in memory")];
        self.read_at(range.start, &mut bytes).expect("it is inside the disk");
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut sectors = Sectors::parse(bytes);
        sectors.seal_exfat();
        let disk = Disk::open(Arc::new(sectors));
        let files = disk.volume("p0").expect("no table").open_file_system().expect("it is sealed");
        let mut names = Vec::new();
        let mut take = |child: varve_image::FolderChild| {
            names.push(child.name);
            ControlFlow::Continue(())
        };
        files.children(files.root(), 0, &mut take).expect("its entries are sealed");
        names
    }

    #[test]
    fn the_seed_of_ntfs_has_every_kind_of_content() {
        let disk = Disk::open(Arc::new(Sectors::parse(&ntfs_seeds().remove(0))));
        let files = disk.volume("p0").expect("no table").open_file_system().expect("it is whole");
        let child = |folder, name: &[u8]| {
            files.child(folder, name).expect("the folder is whole").expect("it is there").id
        };
        let mut content = [1; 40_000];
        let mut read = |id| files.read_at(id, 0, &mut content).expect("its content is whole");
        // The content of these two lies in pieces of one cluster, in turn.
        assert_eq!(
            [&b"a"[..], b"b", b"one"].map(|name| read(child(files.root(), name))),
            [40_000, 40_000, 6]
        );
        let packed = child(files.root(), b"packed");
        let length = read(child(packed, b"text"));
        assert!(content[..length].starts_with(b"line 0\nline 1\n"));
        assert_eq!(files.xattrs(child(files.root(), b"one")).expect("it is whole").len(), 1);
    }

    #[test]
    fn the_seeds_of_xfs_have_every_form() {
        let open = |bytes: &[u8]| {
            let mut sectors = Sectors::of_size(bytes, XFS_DISK_BYTES);
            sectors.seal_xfs();
            let disk = Disk::open(Arc::new(sectors));
            disk.volume("p0").expect("no table").open_file_system().expect("it is whole")
        };
        let seeds = xfs_seeds();
        for (bytes, folders) in seeds.iter().zip([["last", "node", "short"], ["block", "node", "short"]]) {
            let files = open(bytes);
            assert_eq!(files.warning(), None);
            for name in folders {
                let folder =
                    files.child(files.root(), name.as_bytes()).expect("it is whole").expect("it is there").id;
                let mut count = 0;
                let mut take = |child: varve_image::FolderChild| {
                    files.status(child.id).expect("it is whole");
                    count += 1;
                    ControlFlow::Continue(())
                };
                files.children(folder, 0, &mut take).expect("it is whole");
                assert!(count > 0, "{name}");
            }
        }
        let files = open(&seeds[0]);
        let child =
            |name: &[u8]| files.child(files.root(), name).expect("it is whole").expect("it is there").id;
        // This is only in the log.
        let last = files.child(child(b"last"), b"moved").expect("it is whole");
        assert!(last.is_some());
        assert_eq!(files.xattrs(child(b"two")).expect("they are whole").len(), 30);
        assert_eq!(files.xattrs(child(b"one")).expect("they are whole").len(), 2);
        assert!(open(&seeds[1]).free_places().expect("it is whole").is_some());
    }

    #[test]
    fn what_is_changed_in_exfat_gets_past_its_checksums() {
        let mut seed = exfat_seeds().remove(0);
        assert!(names(&seed).contains(&b"sparse".to_vec()), "{:?}", names(&seed));
        // These lines change a letter of a name, and the serial number of the volume.
        let name: Vec<u8> = "sparse".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let at = seed.windows(name.len()).position(|bytes| bytes == name).expect("it is there");
        seed[at] = b'S';
        seed[2 + 100] ^= 1;
        assert!(names(&seed).contains(&b"Sparse".to_vec()), "{:?}", names(&seed));
    }
}
