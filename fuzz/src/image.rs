//! Disks: partition tables, and ext file systems.
//!
//! An input is a list of sectors, each after its number; all other sectors of the disk are zeros. So a change of the input is nearly
//! always one of something that is read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use varve_image::{BlockOwners, Disk, ExtFileSystem, FileKind, FileSystem, LeaveOut, LeftOut, ReadAt};

const SECTOR_BYTES: usize = 512;
const RECORD_BYTES: usize = 2 + SECTOR_BYTES;
const DISK_BYTES: u64 = 8 << 20;
/// So much of a file system is looked at.
const STEPS_MAX: usize = 200;

/// A disk of zeros, but for some sectors.
struct Sectors(BTreeMap<u64, [u8; SECTOR_BYTES]>);

impl Sectors {
    fn parse(bytes: &[u8]) -> Self {
        let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
        let sector = |record: &[u8; RECORD_BYTES]| {
            let (number, content) = record.split_first_chunk::<2>()?;
            Some((u64::from(u16::from_le_bytes(*number)), *content.first_chunk()?))
        };
        Self(records.iter().filter_map(sector).collect())
    }
}

impl ReadAt for Sectors {
    fn size(&self) -> u64 {
        DISK_BYTES
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= DISK_BYTES);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        into.fill(0);
        let sector_bytes = SECTOR_BYTES as u64;
        for (number, content) in self.0.range(offset / sector_bytes..end.div_ceil(sector_bytes)) {
            for (at, byte) in (number * sector_bytes..).zip(content) {
                if (offset..end).contains(&at) {
                    into[usize::try_from(at - offset).expect("it is in memory")] = *byte;
                }
            }
        }
        Ok(())
    }
}

/// The tables of a disk, and what is left out of it.
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

/// Tables with logical partitions, and with names.
#[must_use]
pub fn partitions_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../disks/mbr").to_vec(), include_bytes!("../disks/gpt").to_vec()]
}

/// A file system, with all that is in it.
pub fn ext(bytes: &[u8]) {
    let Ok(files) = ExtFileSystem::open(Arc::new(Sectors::parse(bytes))) else { return };
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![files.root()]);
    while let Some(id) = waiting.pop().filter(|_| seen.len() < STEPS_MAX) {
        let Ok(status) = files.status(id) else { continue };
        if !seen.insert(id) {
            continue;
        }
        let _ = files.xattrs(id);
        let _ = files.runs(id);
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
    let _ = files.free_blocks();
    let _ = BlockOwners::scan(&files);
}

/// With maps of pointers; with extents, content in inodes and attributes; with checksums and a journal.
#[must_use]
pub fn ext_seeds() -> Vec<Vec<u8>> {
    vec![
        include_bytes!("../disks/ext2").to_vec(),
        include_bytes!("../disks/ext4").to_vec(),
        include_bytes!("../disks/ext4-checksums").to_vec(),
    ]
}
