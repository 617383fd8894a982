//! An overlay against a model, with power cuts in between, on a full disk, and over a damaged disk.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use varve_serve::nbd::{DiskExtent, Overlay, OverlayError, ServedDisk, WritableDisk};

/// Not a multiple of the block size: the last block is shorter.
const SIZE: usize = 60_000;

/// A disk in memory. Its first 8 KiB can be made unreadable.
struct Below {
    bytes: Vec<u8>,
    is_damaged: AtomicBool,
}

impl Below {
    fn new() -> Arc<Self> {
        let byte = |place: usize| if place < 20_000 { u8::try_from(place % 251).unwrap() } else { 0 };
        let bytes = (0..SIZE).map(byte).collect();
        Arc::new(Self { bytes, is_damaged: AtomicBool::new(false) })
    }
}

impl ServedDisk for Below {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if offset < 8192 && self.is_damaged.load(Ordering::Relaxed) {
            return Err(io::Error::other("a block is damaged"));
        }
        let start = usize::try_from(offset).unwrap();
        into.copy_from_slice(&self.bytes[start..start + into.len()]);
        Ok(())
    }

    fn map(&self, range: Range<u64>) -> io::Result<Vec<DiskExtent>> {
        let data = range.end.min(20_000).saturating_sub(range.start);
        let hole = (range.end - range.start) - data;
        let both = [DiskExtent { length: data, is_hole: false }, DiskExtent { length: hole, is_hole: true }];
        Ok(both.into_iter().filter(|stretch| stretch.length > 0).collect())
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Write(Range<usize>, u8),
    Zero(Range<usize>),
    Trim(Range<usize>),
    Flush,
    OpenAgain,
}

fn range() -> impl Strategy<Value = Range<usize>> {
    (0..SIZE, 0..20_000_usize).prop_map(|(start, length)| start..(start + length).min(SIZE))
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (range(), 1..=255_u8).prop_map(|(range, value)| Operation::Write(range, value)),
        2 => range().prop_map(Operation::Zero),
        1 => range().prop_map(Operation::Trim),
        1 => Just(Operation::Flush),
        1 => Just(Operation::OpenAgain),
    ]
}

fn wide(range: &Range<usize>) -> Range<u64> {
    range.start as u64..range.end as u64
}

fn read_all(overlay: &Overlay) -> Vec<u8> {
    let mut bytes = vec![0xee; SIZE];
    overlay.read_at(0, &mut bytes).unwrap();
    bytes
}

fn keep(file: &Path) -> Result<Overlay, OverlayError> {
    Overlay::keep(Below::new(), "0123456789abcdef0123456789abcdef", file)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_a_disk_that_remembers(operations in vec(operation(), 1..30)) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("overlay");
        let mut overlay = keep(&file).unwrap();
        let mut model = Below::new().bytes.clone();
        for operation in operations {
            match operation {
                Operation::Write(range, value) => {
                    overlay.write_at(range.start as u64, &vec![value; range.len()]).unwrap();
                    model[range].fill(value);
                }
                Operation::Zero(range) => {
                    overlay.write_zeros(wide(&range)).unwrap();
                    model[range].fill(0);
                }
                Operation::Trim(range) => {
                    overlay.trim(wide(&range)).unwrap();
                    // A trimmed range may hold any bytes. The model takes over the bytes read now,
                    // and they must not change later.
                    overlay.read_at(range.start as u64, &mut model[range]).unwrap();
                }
                Operation::Flush => overlay.flush().unwrap(),
                Operation::OpenAgain => {
                    drop(overlay);
                    overlay = keep(&file).unwrap();
                }
            }
            prop_assert!(read_all(&overlay) == model);
            let map = overlay.map(0..SIZE as u64).unwrap();
            prop_assert_eq!(map.iter().map(|stretch| stretch.length).sum::<u64>(), SIZE as u64);
            let mut place = 0;
            for stretch in map {
                let end = place + usize::try_from(stretch.length).unwrap();
                prop_assert!(!stretch.is_hole || model[place..end].iter().all(|byte| *byte == 0));
                place = end;
            }
        }
    }
}

#[test]
fn what_was_flushed_survives_and_what_was_not_is_the_disk_below() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("overlay"), folder.path().join("copy"));
    let overlay = keep(&file).unwrap();
    overlay.write_at(100, &[1; 5000]).unwrap();
    overlay.flush().unwrap();
    overlay.write_at(30_000, &[2; 5000]).unwrap();
    // The copy is the file at the power cut. The later writes were not made durable.
    fs::copy(&file, &copy).unwrap();
    let after = read_all(&keep(&copy).unwrap());
    let mut expected = Below::new().bytes.clone();
    expected[100..5100].fill(1);
    assert!(after == expected);
}

#[test]
fn another_disk_and_another_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("overlay");
    let overlay = keep(&file).unwrap();
    assert!(matches!(keep(&file), Err(OverlayError::InUse { .. })));
    drop(overlay);
    let other = Overlay::keep(Below::new(), "another", &file);
    assert!(
        matches!(other, Err(OverlayError::OtherDisk { found, .. }) if found.contains("0123456789abcdef"))
    );
    for at in [0, 9, 17, 30, 90] {
        let mut bytes = fs::read(&file).unwrap();
        bytes[at] ^= 1;
        let damaged = folder.path().join("damaged");
        fs::write(&damaged, &bytes).unwrap();
        assert!(matches!(keep(&damaged), Err(OverlayError::NotAnOverlay { .. })), "byte {at}");
    }
    let text = folder.path().join("text");
    fs::write(&text, "my thesis").unwrap();
    assert!(matches!(keep(&text), Err(OverlayError::NotAnOverlay { .. })));
    assert_eq!(fs::read(&text).unwrap(), b"my thesis");
}

#[test]
fn a_full_disk_costs_that_write_and_no_other() {
    let Ok(full) = File::options().read(true).write(true).open("/dev/full") else {
        println!("skipped as there is no /dev/full: a_full_disk_costs_that_write_and_no_other");
        return;
    };
    let below = Below::new();
    let overlay = Overlay::throw_away(below.clone(), full).unwrap();
    let error = overlay.write_at(8192, &[1; 4096]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(
        read_all(&overlay) == below.bytes,
        "the block that could not be written is still that of the disk below"
    );
}

/// Zeros and trimmed ranges behind everything ever written: on a file that has its full size, and
/// on one that cannot grow.
#[test]
fn zeros_behind_the_end_of_what_is_thrown_away_are_zeros() {
    let sealed = memfd_create("overlay", MemfdFlags::ALLOW_SEALING).unwrap();
    fcntl_add_seals(&sealed, SealFlags::GROW).unwrap();
    for file in [tempfile::tempfile().unwrap(), File::from(sealed)] {
        let below = Below::new();
        let overlay = Overlay::throw_away(below.clone(), file).unwrap();
        overlay.trim(4000..13_000).unwrap();
        overlay.write_zeros(16_384..20_480).unwrap();
        overlay.trim(57_344..SIZE as u64).unwrap();
        let mut expected = below.bytes.clone();
        expected[4096..12_288].fill(0);
        expected[16_384..20_480].fill(0);
        assert!(read_all(&overlay) == expected);
    }
}

#[test]
fn damage_below_is_an_error_for_what_it_hits_alone() {
    let below = Below::new();
    let overlay = Overlay::throw_away(below.clone(), tempfile::tempfile().unwrap()).unwrap();
    overlay.write_at(0, &[1; 4096]).unwrap();
    below.is_damaged.store(true, Ordering::Relaxed);
    let mut block = [0; 4096];
    overlay.read_at(0, &mut block).unwrap();
    assert_eq!(block, [1; 4096], "what was written is here");
    assert!(overlay.read_at(4096, &mut block).is_err());
    assert!(overlay.write_at(5000, &[1; 10]).is_err(), "a part of a block needs the rest of it");
    overlay.write_at(4096, &[2; 4096]).unwrap();
    overlay.read_at(4096, &mut block).unwrap();
    assert_eq!(block, [2; 4096], "a whole block does not");
    overlay.read_at(8192, &mut block).unwrap();
}
