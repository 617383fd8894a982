//! Disks made by `sfdisk` and the tools that make file systems, and disks damaged afterwards.

use std::sync::Arc;

use crate::sandbox::{Sandbox, missing};
use varve_image::{Disk, FileSystemKind, PartitionType, ReadAt, TableKind, Volume, VolumeContent};

const MIB: u64 = 1 << 20;

fn shape(volume: &Volume) -> (&str, u64, u64) {
    (volume.name(), volume.start(), volume.size())
}

fn problems(disk: &Disk) -> Vec<String> {
    disk.problems().iter().map(ToString::to_string).collect()
}

fn open(bytes: &[u8]) -> Disk {
    Disk::open(Arc::new(bytes.to_vec()))
}

/// Four logical partitions in an extended one, and two primary ones.
const LOGICAL: &str = "label: dos
start=2048, size=4096, type=83, bootable
start=8192, size=40960, type=5
start=10240, size=2048, type=83
start=14336, size=2048, type=82
start=18432, size=4096, type=7
start=26624, size=2048, type=b
start=53248, size=4096, type=c";

#[test]
fn logical_partitions_are_numbered_as_linux_does() {
    if missing(&["sfdisk"]) {
        return;
    }
    let disk = Disk::open(Arc::new(Sandbox::new().table(LOGICAL, 32 * MIB)));
    assert_eq!((problems(&disk), disk.table()), (vec![], Some(TableKind::Mbr)));
    let shapes: Vec<_> = disk.volumes().iter().map(shape).collect();
    let expected = [
        ("p1", 2048, 4096),
        ("p3", 53248, 4096),
        ("p5", 10240, 2048),
        ("p6", 14336, 2048),
        ("p7", 18432, 4096),
        ("p8", 26624, 2048),
    ];
    assert_eq!(shapes, expected.map(|(name, start, size)| (name, start * 512, size * 512)));
    assert_eq!(disk.volume("p6").unwrap().partition_type(), Some(PartitionType::Mbr(0x82)));
    assert!(disk.volume("p6").unwrap().partition_type().unwrap().is_swap());
    assert_eq!(disk.volume("p6").unwrap().content(), VolumeContent::Empty);
}

#[test]
fn a_chain_that_bites_its_tail_ends() {
    if missing(&["sfdisk"]) {
        return;
    }
    let mut bytes = Sandbox::new().table(LOGICAL, 32 * MIB);
    // The third link points to the first partition as the next one.
    let links: Vec<usize> =
        (8192..49152).filter(|sector| bytes[sector * 512 + 510..][..2] == [0x55, 0xaa]).collect();
    assert_eq!(links.len(), 4);
    bytes[links[2] * 512 + 446 + 16 + 8..][..4].fill(0);
    let disk = open(&bytes);
    assert_eq!(disk.volumes().len(), 5);
    assert_eq!(problems(&disk), ["extended partition 2 has a chain that returns to sector 8192"]);
    // A link that points far beyond the disk.
    bytes[links[2] * 512 + 446 + 16 + 8..][..4].fill(0xf0);
    let disk = open(&bytes);
    assert_eq!(disk.volumes().len(), 5);
    assert!(problems(&disk)[0].contains("cannot be read"), "{:?}", problems(&disk));
}

#[test]
fn a_partition_beyond_the_disk_is_named() {
    if missing(&["sfdisk"]) {
        return;
    }
    let mut bytes = Sandbox::new().table(LOGICAL, 32 * MIB);
    bytes.truncate(27 << 20);
    let disk = open(&bytes);
    assert_eq!(disk.volume("p3").map(shape), Some(("p3", 53248 * 512, MIB)));
    assert_eq!(problems(&disk), ["p3 has 2097152 bytes, but the disk has only 1048576 of them"]);
    bytes.truncate(26 << 20);
    let disk = open(&bytes);
    assert!(disk.volume("p3").is_none());
    assert_eq!(problems(&disk), ["p3 begins at 27262976, beyond the end of the disk"]);
}

const GPT: &str = "label: gpt
start=2048, size=4096, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=\"EFI für alle\"
start=8192, size=8192, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4
start=20480, size=8192, type=0657FD6D-A4AB-43C4-84E5-0933C84B4F4F, name=\"swap\"";

#[test]
fn a_gpt_survives_the_loss_of_either_copy() {
    if missing(&["sfdisk"]) {
        return;
    }
    let whole = Sandbox::new().table(GPT, 32 * MIB);
    let check = |bytes: &[u8], expected: &[&str]| {
        let disk = open(bytes);
        assert_eq!(problems(&disk), expected);
        assert_eq!(disk.table(), Some(TableKind::Gpt));
        let shapes: Vec<_> = disk.volumes().iter().map(shape).collect();
        let sectors = [("p1", 2048, 4096), ("p2", 8192, 8192), ("p3", 20480, 8192)];
        assert_eq!(shapes, sectors.map(|(name, start, size)| (name, start * 512, size * 512)));
        assert_eq!(disk.volumes()[0].label(), Some("EFI für alle"));
        assert_eq!(disk.volumes()[1].label(), None);
        let kind = disk.volumes()[2].partition_type().unwrap();
        assert!(kind.is_swap());
        assert_eq!(kind.to_string(), "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f");
    };
    check(&whole, &[]);
    let damaged = |at: usize, length: usize| {
        let mut bytes = whole.clone();
        bytes[at..at + length].iter_mut().for_each(|byte| *byte ^= 0xff);
        bytes
    };
    let last = whole.len() - 512;
    check(&damaged(512, 8), &["the first copy of the GPT is missing"]);
    check(
        &damaged(512 + 56, 8),
        &["the first copy of the GPT is damaged: its header does not match its checksum"],
    );
    check(
        &damaged(1024 + 40, 4),
        &["the first copy of the GPT is damaged: its entries do not match their checksum"],
    );
    check(&damaged(last, 8), &["the second copy of the GPT is missing"]);
    check(
        &damaged(last + 60, 1),
        &["the second copy of the GPT is damaged: its header does not match its checksum"],
    );
    let mut bytes = whole.clone();
    bytes[..512].fill(0);
    check(&bytes, &["the first sector has no entry that protects the GPT"]);
    bytes[512..34 * 512].fill(0);
    check(
        &bytes,
        &["the first sector has no entry that protects the GPT", "the first copy of the GPT is missing"],
    );
    let mut bytes = whole.clone();
    bytes[512..1024].fill(0);
    bytes[last..].fill(0);
    let disk = open(&bytes);
    assert_eq!(problems(&disk), ["the partition table is a GPT, but both copies of it are missing"]);
}

#[test]
fn a_gpt_of_a_longer_disk_is_read_from_its_first_copy() {
    if missing(&["sfdisk"]) {
        return;
    }
    let mut bytes = Sandbox::new().table(GPT, 32 * MIB);
    bytes.truncate(20 << 20);
    let disk = open(&bytes);
    assert_eq!(disk.volumes().len(), 3);
    assert_eq!(problems(&disk), ["the second copy of the GPT is missing"]);
}

#[test]
fn a_disk_without_a_table_is_one_volume() {
    let disk = open(&[0; 1 << 20]);
    assert_eq!(disk.volumes().iter().map(shape).collect::<Vec<_>>(), [("p0", 0, MIB)]);
    assert_eq!((disk.volumes()[0].content(), disk.table()), (VolumeContent::Empty, None));
    assert_eq!(open(&[1; 5000]).volumes()[0].content(), VolumeContent::Unknown);
    for length in [0, 1, 511, 512, 1023, 4096] {
        assert_eq!(open(&vec![7; length]).volumes().len(), 1, "{length} bytes");
    }
}

#[test]
fn what_is_made_is_recognised() {
    let mut skipped = Vec::new();
    let made: [(&[&str], VolumeContent); 12] = [
        (&["mkfs.ext2", "-q"], VolumeContent::FileSystem(FileSystemKind::Ext2)),
        (&["mkfs.ext3", "-q"], VolumeContent::FileSystem(FileSystemKind::Ext3)),
        (&["mkfs.ext4", "-q"], VolumeContent::FileSystem(FileSystemKind::Ext4)),
        (&["mkswap"], VolumeContent::Swap),
        (&["mkswap", "-p", "16384"], VolumeContent::Swap),
        (&["mkfs.fat"], VolumeContent::FileSystem(FileSystemKind::Fat)),
        (&["mkfs.fat", "-F", "32"], VolumeContent::FileSystem(FileSystemKind::Fat)),
        (&["mkfs.exfat"], VolumeContent::FileSystem(FileSystemKind::ExFat)),
        (&["mkfs.ntfs", "-F", "-q"], VolumeContent::FileSystem(FileSystemKind::Ntfs)),
        (&["mkfs.btrfs", "-q"], VolumeContent::FileSystem(FileSystemKind::Btrfs)),
        (&["mkfs.xfs", "-q", "-f"], VolumeContent::FileSystem(FileSystemKind::Xfs)),
        (&["mkfs.f2fs", "-q"], VolumeContent::FileSystem(FileSystemKind::F2fs)),
    ];
    for (maker, content) in made {
        if missing(&maker[..1]) {
            skipped.push(maker[0]);
            continue;
        }
        let disk = Disk::open(Arc::new(Sandbox::new().made(maker, 320 * MIB)));
        let [whole] = disk.volumes() else { panic!("{maker:?}: {:?}", disk.volumes()) };
        assert_eq!((whole.name(), whole.content()), ("p0", content), "{maker:?}");
        assert_eq!(problems(&disk), [""; 0], "{maker:?}");
    }
    assert!(skipped.len() < 12, "nothing was tried");
}

#[test]
fn a_volume_reads_its_own_bytes() {
    if missing(&["sfdisk"]) {
        return;
    }
    let mut bytes = Sandbox::new().table(GPT, 32 * MIB);
    bytes[8192 * 512..][..5].copy_from_slice(b"here!");
    let disk = open(&bytes);
    let mut found = [0; 5];
    let volume = disk.volume("p2").unwrap().read();
    volume.read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"here!");
    assert!(volume.read_at(volume.size() - 4, &mut found).is_err());
    let refused = disk.volume("p2").unwrap().open_file_system().map(drop).unwrap_err();
    assert_eq!(refused.to_string(), "volume p2 cannot be read: the content type unknown is not supported");
}
