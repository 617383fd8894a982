//! Damage to durable bytes: each kind has its described effect as long as the file exists, and no
//! other.

use varve_sim::{Rot, SECTOR_BYTES, SimDisk};
use varve_world::{FileName, Storage};

const BYTES: usize = 10 * SECTOR_BYTES;

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

/// A disk with two durable files of the same bytes. The first one is damaged.
fn rotten(seed: u64, rot: Rot) -> (SimDisk, FileName) {
    let disk = SimDisk::new(seed);
    let file = name("folder/file");
    for file in [&file, &name("folder/other")] {
        disk.create(file).unwrap();
        disk.append(file, &[0xa5; BYTES]).unwrap();
        disk.sync(file).unwrap();
    }
    disk.sync_folder("folder").unwrap();
    assert!(disk.rot(&file, rot));
    assert_eq!(disk.tally().rotted, [(rot, 1)].into());
    (disk, file)
}

fn whole(disk: &SimDisk, file: &FileName) -> std::io::Result<Vec<u8>> {
    (disk as &dyn Storage).read_whole(file, 1 << 20)
}

/// Checks the file before and after a power cut. The other file must be unchanged.
fn check(rot: Rot, is_right: impl Fn(&SimDisk, &FileName)) {
    for seed in 0..50 {
        let (disk, file) = rotten(seed, rot);
        is_right(&disk, &file);
        disk.cut_power();
        disk.restart();
        is_right(&disk, &file);
        assert_eq!(whole(&disk, &name("folder/other")).unwrap(), [0xa5; BYTES]);
    }
}

#[test]
fn one_bit_flips() {
    check(Rot::FlippedBit, |disk, file| {
        let bytes = whole(disk, file).unwrap();
        let flipped: u32 = bytes.iter().map(|byte| (byte ^ 0xa5).count_ones()).sum();
        assert_eq!((bytes.len(), flipped), (BYTES, 1));
    });
}

#[test]
fn one_sector_reads_as_zeros() {
    check(Rot::ZeroedSector, |disk, file| {
        let bytes = whole(disk, file).unwrap();
        let zeroed: Vec<_> =
            bytes.chunks(SECTOR_BYTES).filter(|sector| **sector == [0; SECTOR_BYTES]).collect();
        assert_eq!((bytes.len(), zeroed.len()), (BYTES, 1));
        assert_eq!(bytes.iter().filter(|byte| **byte == 0xa5).count(), BYTES - SECTOR_BYTES);
    });
}

#[test]
fn one_sector_cannot_be_read() {
    check(Rot::UnreadableSector, |disk, file| {
        let mut sector = [0; SECTOR_BYTES];
        let read: Vec<_> = (0..BYTES as u64)
            .step_by(SECTOR_BYTES)
            .map(|offset| disk.read_at(file, offset, &mut sector).is_ok())
            .collect();
        assert_eq!(read.iter().filter(|is_read| !**is_read).count(), 1);
        assert!(whole(disk, file).is_err());
    });
}

#[test]
fn a_sector_can_be_read_again() {
    let (disk, file) = rotten(1, Rot::UnreadableSector);
    assert!(whole(&disk, &file).is_err());
    disk.heal();
    assert_eq!(whole(&disk, &file).unwrap(), [0xa5; BYTES]);
}

#[test]
fn the_end_is_gone() {
    check(Rot::LostEnd, |disk, file| {
        let bytes = whole(disk, file).unwrap();
        assert!(bytes.len() < BYTES && bytes.iter().all(|byte| *byte == 0xa5));
    });
}

#[test]
fn the_file_is_gone() {
    check(Rot::LostFile, |disk, file| {
        assert!(whole(disk, file).is_err());
        assert_eq!(disk.files(), [name("folder/other")]);
    });
}

#[test]
fn a_file_that_takes_the_place_of_a_damaged_one_is_good() {
    for rot in Rot::ALL {
        let (disk, file) = rotten(1, rot);
        let storage: &dyn Storage = &disk;
        storage.replace(&file, b"new").unwrap();
        assert_eq!(whole(&disk, &file).unwrap(), b"new");
    }
}

#[test]
fn what_is_not_there_cannot_rot() {
    let disk = SimDisk::new(1);
    disk.create(&name("empty")).unwrap();
    for rot in Rot::ALL {
        assert!(!disk.rot(&name("empty"), rot) && !disk.rot(&name("missing"), rot));
    }
    assert!(disk.tally().rotted.is_empty());
}
