//! Disks whose sectors do not have 512 bytes: their tables count in other units.

use std::fs;
use std::sync::Arc;

use crate::sandbox::{Sandbox, missing};
use varve_image::{Disk, FileSystemKind, TableKind, VolumeContent};

const MIB: usize = 1 << 20;

/// Writes slots of an MBR, each with its kind, start and count, into a sector.
fn put_slots(disk: &mut [u8], at: usize, slots: &[(u8, u32, u32)]) {
    for (number, (kind, start, count)) in slots.iter().enumerate() {
        let slot = &mut disk[at + 446 + 16 * number..][..16];
        slot[4] = *kind;
        slot[8..12].copy_from_slice(&start.to_le_bytes());
        slot[12..].copy_from_slice(&count.to_le_bytes());
    }
    disk[at + 510..at + 512].copy_from_slice(&[0x55, 0xaa]);
}

/// The bytes of an empty ext2.
fn ext2() -> Vec<u8> {
    let sandbox = Sandbox::new();
    drop(sandbox.made(&["mkfs.ext2", "-q"], MIB as u64));
    fs::read(sandbox.path("disk")).unwrap()
}

fn open(bytes: &[u8]) -> Disk {
    Disk::open(Arc::new(bytes.to_vec()))
}

fn shapes(disk: &Disk) -> Vec<(String, u64, u64)> {
    let shape = |volume: &varve_image::Volume| (volume.name().to_owned(), volume.start(), volume.size());
    disk.volumes().iter().map(shape).collect()
}

fn problems(disk: &Disk) -> Vec<String> {
    disk.problems().iter().map(ToString::to_string).collect()
}

#[test]
fn a_table_that_counts_in_larger_sectors_is_understood_and_named() {
    if missing(&["mkfs.ext2"]) {
        return;
    }
    let files = ext2();
    for sector_bytes in [4096, 2048] {
        let sectors = |bytes: usize| u32::try_from(bytes / sector_bytes).unwrap();
        let mut bytes = vec![0; 16 * MIB];
        let one = sectors(MIB);
        put_slots(&mut bytes, 0, &[(0x83, one, one), (5, 4 * one, 8 * one)]);
        // Two logical partitions, each one MiB after the link to it.
        put_slots(&mut bytes, 4 * MIB, &[(0x83, one, one), (5, 4 * one, 4 * one)]);
        put_slots(&mut bytes, 8 * MIB, &[(0x83, one, one)]);
        for at in [MIB, 5 * MIB, 9 * MIB] {
            bytes[at..at + MIB].copy_from_slice(&files);
        }
        let disk = open(&bytes);
        assert_eq!((disk.table(), disk.sector_bytes()), (Some(TableKind::Mbr), Some(sector_bytes as u64)));
        let expected = [("p1", MIB), ("p5", 5 * MIB), ("p6", 9 * MIB)];
        assert_eq!(shapes(&disk), expected.map(|(name, at)| (name.to_owned(), at as u64, MIB as u64)));
        for volume in disk.volumes() {
            assert_eq!(volume.content(), VolumeContent::FileSystem(FileSystemKind::Ext2), "{volume:?}");
        }
        let said = format!(
            "the partition table makes no sense in sectors of 512 bytes; it is read in sectors of {sector_bytes} bytes"
        );
        assert_eq!(problems(&disk), [said]);
    }
}

#[test]
fn the_usual_sectors_are_believed_wherever_they_make_sense() {
    if missing(&["mkfs.ext2"]) {
        return;
    }
    let files = ext2();
    let usual = |bytes: &[u8], sector_bytes| {
        let disk = open(bytes);
        assert_eq!((disk.sector_bytes(), disk.volumes()[0].start()), (sector_bytes, 128 << 10));
        assert_eq!(problems(&disk), [""; 0]);
    };
    let mut bytes = vec![0; 16 * MIB];
    put_slots(&mut bytes, 0, &[(0x83, 256, 2048)]);
    // Nothing is anywhere: no size is certain.
    usual(&bytes, None);
    // The same table, with files where it points to in sectors of 4096 bytes, and of 512.
    bytes[MIB..2 * MIB].copy_from_slice(&files);
    assert_eq!(open(&bytes).sector_bytes(), Some(4096));
    bytes[128 << 10..][..MIB].copy_from_slice(&files);
    usual(&bytes, Some(512));
    // Files are there, but the partition would end beyond the disk.
    bytes[..MIB].fill(0);
    put_slots(&mut bytes, 0, &[(0x83, 256, 4096)]);
    usual(&bytes, None);
    // Files are at two other places, so one of them is a coincidence.
    bytes.fill(0);
    put_slots(&mut bytes, 0, &[(0x83, 256, 512)]);
    for at in [512 << 10, MIB] {
        bytes[at..at + (64 << 10)].copy_from_slice(&files[..64 << 10]);
    }
    usual(&bytes, None);
}

#[test]
fn a_disk_without_a_table_states_its_sectors_itself() {
    if missing(&["mkfs.fat"]) {
        return;
    }
    for (size, words) in [
        (512, &["mkfs.fat", "-S", "512"][..]),
        (4096, &["mkfs.fat", "-S", "4096"]),
        (2048, &["mkfs.fat", "-S", "2048"]),
    ] {
        drop(Sandbox::new().made(words, 16 << 20));
        let disk = Disk::open(Arc::new(Sandbox::new().made(words, 16 << 20)));
        assert_eq!((disk.sector_bytes(), disk.table()), (Some(size), None), "{words:?}");
    }
    assert_eq!(open(&[0; MIB]).sector_bytes(), None);
}

#[test]
fn no_table_makes_the_guess_fail() {
    // Starts and counts at the limits of their numbers, on disks of all lengths.
    for length in [512, 1024, 4096, 4097, 65_536] {
        for (start, count) in [(u32::MAX, u32::MAX), (0, u32::MAX), (u32::MAX, 1), (1, 1), (0, 1)] {
            for kind in [0x83, 5, 0xee] {
                let mut bytes = vec![0x55; length];
                bytes[446..510].fill(0);
                put_slots(&mut bytes, 0, &[(kind, start, count), (kind, 0, 1)]);
                drop(open(&bytes));
            }
        }
    }
}
