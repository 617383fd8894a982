//! Valid swap is left out. Any single contradiction beside it keeps it.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use varve_block::to_usize;

use crate::bytes::read_at::ReadAt;
use crate::contents::signatures::SIGNATURES;
use crate::contents::swap_header::OWN_NAMES;
use crate::contents::volume_content::{FileSystemKind, VolumeContent};
use crate::disks::disk::Disk;
use crate::leave_out::left_out::LeftOut;
use crate::leave_out::search::LeaveOut;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
const PAGE: u64 = 4096;
const SECTOR: u64 = 512;

/// A disk of zeros with some bytes written, and an optional range that cannot be read.
#[derive(Clone)]
struct Sketch {
    size: u64,
    written: Vec<(u64, Vec<u8>)>,
    broken: Range<u64>,
}

impl Sketch {
    fn new(size: u64) -> Self {
        Self { size, written: Vec::new(), broken: 0..0 }
    }

    fn with(mut self, place: u64, bytes: &[u8]) -> Self {
        self.written.push((place, bytes.to_vec()));
        self
    }

    /// Adds swap of `size` bytes at `place`, with a header and some content.
    fn with_swap(self, place: u64, size: u64) -> Self {
        let last_page = u32::try_from(size / PAGE - 1).unwrap();
        self.with(place + 1024, &1_u32.to_le_bytes())
            .with(place + 1028, &last_page.to_le_bytes())
            .with(place + 1036, &[0x7b; 16])
            .with(place + PAGE - 10, b"SWAPSPACE2")
            .with(place + 5 * MIB, &[0xa5; 64])
    }

    /// Adds one partition to an MBR. Its numbers are in sectors.
    fn with_partition(self, kind: u8, start: u32, count: u32) -> Self {
        let slot = [&[0, 0, 0, 0, kind, 0, 0, 0][..], &start.to_le_bytes(), &count.to_le_bytes()].concat();
        self.with(446, &slot).with(510, &[0x55, 0xaa])
    }
}

impl ReadAt for Sketch {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset + into.len() as u64;
        if end > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if offset < self.broken.end && end > self.broken.start {
            return Err(io::Error::other("a bad sector"));
        }
        into.fill(0);
        for (place, bytes) in &self.written {
            for (at, byte) in (*place..).zip(bytes) {
                if (offset..end).contains(&at) {
                    into[to_usize(at - offset)] = *byte;
                }
            }
        }
        Ok(())
    }
}

/// Returns the bytes of swap that are left out of a disk, or the reason why none are.
fn swap_of(disk: &Sketch) -> Result<u64, String> {
    let found = LeftOut::find(Arc::new(disk.clone()), LeaveOut { swap: true, free: false });
    let [part] = found.parts() else {
        assert_eq!((found.parts(), found.ranges().total()), (&[][..], 0));
        return Err("its swap header is none".into());
    };
    assert_eq!((part.what.as_str(), part.bytes), ("swap", found.ranges().total()));
    match &part.kept_because {
        None => Ok(part.bytes),
        Some(reason) => {
            assert_eq!((part.bytes, part.why.as_str()), (0, ""), "{reason}");
            Err(reason.clone())
        }
    }
}

#[test]
fn swap_beside_any_other_signature_is_kept() {
    let swap = Sketch::new(SIZE).with_swap(0, SIZE);
    assert_eq!(swap_of(&swap), Ok(SIZE - PAGE));
    let mut tried = 0;
    for signature in SIGNATURES.iter().filter(|signature| !OWN_NAMES.contains(&signature.name)) {
        let places: Vec<_> = signature.places(SIZE).collect();
        for place in [places.first().unwrap(), places.last().unwrap()] {
            // The FAT row needs the numbers of a boot sector. Before a magic number within the swap
            // header page, filler replaces the fields of the header.
            let boot = [&[0, 2, 4, 1, 0, 2, 0, 2, 0, 0, 0xf8, 8, 0][..], &[0; 8], &[0, 0, 2, 0]].concat();
            let swap = if signature.name == "FAT" { swap.clone().with(11, &boot) } else { swap.clone() };
            let before = if place.start < 2 * 1024 { place.start.saturating_sub(1024) } else { 0 };
            let fields = vec![0x55; to_usize(before)];
            let both = swap.with(1024, &fields).with(place.start, signature.magic());
            let reason = swap_of(&both).unwrap_err();
            let is_named = reason.contains(signature.name) || reason.contains("a signature of");
            assert!(is_named || reason.contains("swap header") || reason.contains("table"), "{reason}");
            tried += 1;
        }
    }
    assert!(tried > 2 * 230, "{tried}");
}

#[test]
fn rows_of_the_table_make_sense() {
    for signature in SIGNATURES {
        let source = signature.source();
        assert!(source.len() > 2 && source.strip_suffix(".c").is_some(), "{signature:?}");
        assert!(signature.magic().len() >= 2 && !signature.name.is_empty(), "{signature:?}");
        assert!(signature.places(SIZE).all(|place| place.end <= SIZE), "{signature:?}");
        assert_eq!(signature.places(100).filter(|place| place.end > 100).count(), 0, "{signature:?}");
        let same = |other: &&crate::contents::signatures::Signature| {
            other.magic() == signature.magic() && other.places(SIZE).eq(signature.places(SIZE))
        };
        assert_eq!(SIGNATURES.iter().filter(same).count(), 1, "{signature:?} is there twice");
    }
}

#[test]
fn a_place_that_cannot_be_read_may_have_a_signature() {
    let swap = Sketch::new(SIZE).with_swap(0, SIZE);
    for place in [64 << 10, 200 << 10, MIB, SIZE - (64 << 10), SIZE - 8192, SIZE - 512] {
        let broken = Sketch { broken: place..place + 1, ..swap.clone() };
        let reason = swap_of(&broken).unwrap_err();
        assert!(reason.contains("cannot be read"), "{place}: {reason}");
    }
    let elsewhere = Sketch { broken: 30 * MIB..31 * MIB, ..swap };
    assert_eq!(swap_of(&elsewhere), Ok(SIZE - PAGE), "nothing is looked for there");
}

#[test]
fn a_header_that_names_more_than_there_is_proves_nothing() {
    let swap = Sketch::new(SIZE).with_swap(0, SIZE + PAGE);
    assert!(swap_of(&swap).unwrap_err().contains("its swap header names"));
    let short = Sketch::new(SIZE).with_swap(0, SIZE - MIB);
    assert_eq!(swap_of(&short), Ok(SIZE - MIB - PAGE), "what is behind is kept");
}

#[test]
fn the_partition_type_agrees_or_swap_is_kept() {
    let disk = |kind| Sketch::new(2 * SIZE).with_partition(kind, 2048, 65536).with_swap(MIB, 32 * MIB);
    assert_eq!(swap_of(&disk(0x82)), Ok(32 * MIB - PAGE));
    for kind in [0x83, 0x8e, 0xfd, 0xbf, 0xa5, 0xa8, 0x07, 0xda, 0xef] {
        let reason = swap_of(&disk(kind)).unwrap_err();
        assert!(reason.contains("partition type"), "{kind:x}: {reason}");
    }
    let with_raid = disk(0x82).with(2 * SIZE - (64 << 10), b"\xfc\x4e\x2b\xa9\0\0\0\0");
    assert!(swap_of(&with_raid).unwrap_err().contains("whole disk"), "the table is older than the RAID");
    let with_table =
        disk(0x82).with(MIB + 446 + 4, &[0x83, 0, 0, 0, 1, 0, 0, 0, 1]).with(MIB + 510, &[0x55, 0xaa]);
    assert!(swap_of(&with_table).unwrap_err().contains("partition table"));
    let cut_off = Sketch { size: MIB + 20 * MIB, ..disk(0x82) };
    assert!(swap_of(&cut_off).is_err());
    let never_made = Sketch::new(SIZE).with_partition(0x82, 2048, 65536);
    assert!(swap_of(&never_made).unwrap_err().contains("no swap header"));
}

#[test]
fn two_partitions_on_the_same_bytes_prove_nothing() {
    let second =
        [&[0, 0, 0, 0, 0x83, 0, 0, 0][..], &4096_u32.to_le_bytes(), &2048_u32.to_le_bytes()].concat();
    let disk = Sketch::new(SIZE).with_partition(0x82, 2048, 65536).with(446 + 16, &second);
    assert!(swap_of(&disk.with_swap(MIB, 32 * MIB)).unwrap_err().contains("overlap"));
}

#[test]
fn what_was_made_over_swap_gives_the_volume_its_name() {
    let swap = Sketch::new(SIZE).with_swap(0, SIZE);
    let content = |disk: &Sketch| Disk::open(Arc::new(disk.clone())).volumes()[0].content();
    assert_eq!(content(&swap), VolumeContent::Swap);
    for (place, magic, expected) in [
        (64 << 10, &b"\x01\x16\x19\x70"[..], VolumeContent::FileSystem(FileSystemKind::Gfs2)),
        (8192, b"OCFSV2", VolumeContent::FileSystem(FileSystemKind::Ocfs2)),
        (MIB, b"\x0d\xd0\x01\xc0", VolumeContent::FileSystem(FileSystemKind::Vmfs)),
        (8192 + 1372, b"\x54\x19\x01\0", VolumeContent::FileSystem(FileSystemKind::Ufs1)),
        (SIZE - 4036, b"\x83\x74\x02\x6d", VolumeContent::Drbd),
        (SIZE - 8192, b"\xfc\x4e\x2b\xa9\x01\0\0\0", VolumeContent::RaidMember),
        (SIZE - (64 << 10), b"\xfc\x4e\x2b\xa9\0\0\0\0", VolumeContent::RaidMember),
        (140 << 10, b"\x0c\xb1\xba\0\0\0\0\0", VolumeContent::FileSystem(FileSystemKind::Zfs)),
        (SIZE - SECTOR, b"$XIDE$", VolumeContent::Unknown),
    ] {
        assert_eq!(content(&swap.clone().with(place, magic)), expected, "at {place}");
    }
}

#[test]
fn an_earlier_version_may_have_left_out_more() {
    let zfs = Sketch::new(SIZE).with_swap(0, SIZE).with(140 << 10, b"\x0c\xb1\xba\0\0\0\0\0");
    assert!(swap_of(&zfs).is_err());
    assert_eq!(LeftOut::ever_possible(Arc::new(zfs)), std::slice::from_ref(&(PAGE..SIZE)));
    let never_made = Sketch::new(SIZE).with_partition(0x82, 2048, 65536);
    assert_eq!(LeftOut::ever_possible(Arc::new(never_made)), std::slice::from_ref(&(MIB..33 * MIB)));
}
