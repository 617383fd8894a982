//! Btrfs.
//!
//! An input is a list of sectors, as for the other file systems. Every changed node and superblock
//! gets a right checksum, so changes get past the checksums of metadata. Most files of the seed
//! have no checksums of data.

use std::io;
use std::sync::Arc;

use varve_image::{Disk, LeaveOut, LeftOut, ReadAt};

use crate::image::{SECTOR_BYTES, Sectors, wade};

const VOLUME_BYTES: u64 = 16 << 20;
const SUPERBLOCK: u64 = 64 << 10;
const SUPERBLOCK_BYTES: usize = 4096;
/// The alignment of nodes, and the least size of one.
const NODE_BYTES_MIN: u64 = 4096;
const NODE_BYTES_MAX: u64 = 65536;
const UUID_AT: u64 = 32;
const CHECKSUM_ROOM: usize = 32;
const NODE_SIZE_AT: u64 = 148;

/// A volume of Btrfs of the least size.
struct Volume(Sectors);

impl ReadAt for Volume {
    fn size(&self) -> u64 {
        VOLUME_BYTES
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= VOLUME_BYTES);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0.fill(offset, into);
        Ok(())
    }
}

/// CRC-32C.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |sum: u32, _| {
                if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 }
            },
        )
    })
}

impl Volume {
    fn bytes<const N: usize>(&self, place: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill(place, &mut bytes);
        bytes
    }

    /// Gives the right checksum to the bytes at a place that is in the list of sectors.
    fn seal(&mut self, place: u64, length: u64) {
        let mut bytes = vec![0; usize::try_from(length).expect("it is in memory")];
        self.0.fill(place, &mut bytes);
        if let Some(sector) = self.0.0.get_mut(&(place / SECTOR_BYTES as u64)) {
            sector[..4].copy_from_slice(&checksum(&bytes[CHECKSUM_ROOM..]).to_le_bytes());
        }
    }

    fn seal_all(&mut self) {
        let uuid: [u8; 16] = self.bytes(SUPERBLOCK + UUID_AT);
        let node_bytes = u64::from(u32::from_le_bytes(self.bytes(SUPERBLOCK + NODE_SIZE_AT)));
        let node_bytes = node_bytes.clamp(NODE_BYTES_MIN, NODE_BYTES_MAX);
        let places = self.0.0.keys().map(|number| number * SECTOR_BYTES as u64);
        let starts: Vec<_> = places.filter(|place| place.is_multiple_of(NODE_BYTES_MIN)).collect();
        for start in starts {
            if start == SUPERBLOCK {
                self.seal(start, SUPERBLOCK_BYTES as u64);
            } else if self.bytes(start + UUID_AT) == uuid {
                self.seal(start, node_bytes);
            }
        }
    }
}

fn sealed(bytes: &[u8]) -> Arc<dyn ReadAt> {
    let mut volume = Volume(Sectors::parse(bytes));
    volume.seal_all();
    Arc::new(volume)
}

/// A Btrfs file system, with everything in it.
pub fn btrfs(bytes: &[u8]) {
    let bytes = sealed(bytes);
    let disk = Disk::open(Arc::clone(&bytes));
    let Some(volume) = disk.volume("p0") else { return };
    if let Ok(files) = volume.open_file_system() {
        wade(files.as_ref(), &mut |_| {});
        if let Ok(Some(free)) = files.free_places() {
            assert!(free.iter().all(|place| place.start < place.end && place.end <= VOLUME_BYTES));
        }
    }
    drop(LeftOut::find(bytes, LeaveOut { swap: true, free: true }));
}

/// A volume with subvolumes, a snapshot, a folder in several leaves, attributes, links, and
/// contents that are inline, stored, shared, never written, and compressed in each way. And one
/// that was in use, with logs of two subvolumes.
#[must_use]
pub fn btrfs_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../disks/btrfs").to_vec(), include_bytes!("../disks/btrfs-log").to_vec()]
}

#[cfg(test)]
mod tests {
    use varve_image::FileSystem;

    use super::*;

    fn files(seed: &[u8]) -> Arc<dyn FileSystem> {
        let disk = Disk::open(sealed(seed));
        disk.volume("p0").expect("no table").open_file_system().expect("it is whole")
    }

    #[test]
    fn the_seed_of_btrfs_has_every_kind_of_content() {
        let files = files(&btrfs_seeds().remove(0));
        let child = |folder, name: &[u8]| {
            files.child(folder, name).expect("the folder is whole").expect("it is there").id
        };
        let mut content = [1; 40_000];
        let mut read = |id| files.read_at(id, 0, &mut content).expect("its content is whole");
        let sizes = [&b"zlib"[..], b"lzo", b"zstd", b"plain", b"shared", b"prealloc", b"inline", b"packed"];
        let sizes = sizes.map(|name| read(child(files.root(), name)));
        assert_eq!(sizes, [20_000, 20_000, 20_000, 10_000, 10_000, 8192, 6, 600]);
        let nested = child(child(files.root(), b"sub"), b"nested");
        assert_eq!(read(child(nested, b"file")), 5);
        assert_eq!(files.xattrs(child(files.root(), b"inline")).expect("it is whole").len(), 2);
        let many = child(files.root(), b"many");
        assert_eq!(read(child(many, b"file number 59")), 0);
    }

    #[test]
    fn the_seed_with_logs_has_changes_of_every_kind() {
        let files = files(&btrfs_seeds().remove(1));
        assert_eq!(files.warning(), None);
        let child = |folder, name: &[u8]| files.child(folder, name).expect("the folder is whole");
        let sub = child(files.root(), b"sub").expect("it is there").id;
        for root in [files.root(), sub] {
            let size = |name| child(root, name).map(|child| files.status(child.id).expect("whole").size);
            let sizes = [&b"longer"[..], b"created", b"big", b"renamed-2", b"linked-2", b"n794891356550"];
            assert_eq!(sizes.map(size), [11, 7, 20_000, 8, 7, 0].map(Some));
            assert_eq!([&b"renamed"[..]].map(size), [None]);
            let folder = child(root, b"d").expect("it is there").id;
            assert!(child(folder, b"2").is_none() && child(folder, b"1").is_some());
            let attr = child(root, b"attr").expect("it is there").id;
            assert_eq!(files.xattrs(attr).expect("it is whole").len(), 2);
        }
    }

    #[test]
    fn what_is_changed_in_btrfs_gets_past_its_checksums() {
        let mut seed = btrfs_seeds().remove(0);
        let at = seed.windows(6).position(|bytes| bytes == b"inside").expect("it is there");
        seed[at] = b'I';
        let files = files(&seed);
        let id = files.child(files.root(), b"inline").expect("it is whole").expect("it is there").id;
        let mut content = [0; 6];
        files.read_at(id, 0, &mut content).expect("it is sealed");
        assert_eq!(&content, b"Inside");
    }
}
