//! Images that are cut where their files begin.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;
use varve_block::{BlockKind, MemoryBlockStore, Score};
use varve_content::Progress;
use varve_content::image::{
    ArchivedImage, ContentRun, ImagePart, ImageSource, RunContent, ServedImage, archive_image_by_files,
    write_image,
};
use varve_image::{FilePlaces, FileRun, Ranges};
use varve_tree::{ContentWriter, Cutting, Entry, TreeReader};
use varve_world::{InlineWorkers, RealWorkers, Workers};

use crate::noise::noise;

const BLOCK_BYTES: u32 = 512;
const MIB: usize = 1 << 20;

fn disk_of(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    File::create(&path).unwrap().write_all(bytes).unwrap();
    (folder, path)
}

fn archive(
    store: &MemoryBlockStore,
    workers: &dyn Workers,
    (path, left_out): (&Path, &Ranges),
    places: &FilePlaces,
    cutting: Cutting,
) -> ArchivedImage {
    let source = ImageSource::open(path).unwrap().leaving_out(left_out.clone());
    archive_image_by_files(store, workers, &source, places, (cutting, BLOCK_BYTES), &Progress::new()).unwrap()
}

fn contents(store: &MemoryBlockStore, image: &ArchivedImage) -> Vec<u8> {
    let mut contents = Vec::new();
    write_image(store, &InlineWorkers, &ImagePart::whole(&image.entry), &mut contents, &Progress::new())
        .unwrap();
    contents
}

fn leaves(store: &MemoryBlockStore, entry: &Entry) -> BTreeSet<Score> {
    TreeReader::new(store, entry).extents(0..entry.size()).filter_map(|extent| extent.unwrap().leaf).collect()
}

/// The leaves of a file in a folder.
fn leaves_in_folder(store: &MemoryBlockStore, content: &[u8], cutting: Cutting) -> BTreeSet<Score> {
    let mut writer = ContentWriter::new(store, BlockKind::Data, cutting);
    writer.write(content).unwrap();
    leaves(store, &writer.finish().unwrap())
}

fn run(start: usize, content: usize, slack: usize) -> FileRun {
    let [start, content_end, end] = [start, start + content, start + content + slack].map(|at| at as u64);
    FileRun { start, content_end, end, before_start: 0, before_end: 0 }
}

/// A part of a disk: noise, zeros, or one byte.
fn part() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (any::<u64>(), 1..5000_usize).prop_map(|(seed, length)| noise(seed, length)),
        (1..9000_usize).prop_map(|length| vec![0; length]),
        (any::<u8>(), 1..4000_usize).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

proptest! {
    /// The places may be those of another disk, or invented: every byte comes back.
    #[test]
    fn whatever_the_places_say_the_image_is_what_was_read(
        parts in prop::collection::vec(part(), 0..8),
        runs in prop::collection::vec((0..30_000_usize, 0..6000_usize, 0..4096_usize), 0..12),
        before in (0..20_000_u64, 0..9000_u64),
        left_out in prop::collection::vec((0..30_000_u64, 0..5000_u64), 0..4),
        has_many_workers: bool,
    ) {
        let mut bytes = parts.concat();
        let (_folder, path) = disk_of(&bytes);
        let (before_start, before_end) = (before.0, before.0 + before.1);
        let runs = runs.into_iter().enumerate().map(|(number, (start, content, slack))| match number % 2 {
            0 => run(start, content, slack),
            _ => FileRun { before_start, before_end, ..run(start, content, slack) },
        });
        let runs = runs.collect();
        let places = FilePlaces::new(runs, bytes.len() as u64);
        let left_out: Ranges = left_out.into_iter().map(|(start, length)| start..start + length).collect();
        let store = MemoryBlockStore::new();
        let cutting = Cutting::new(64, 256, 1024).unwrap();
        let real = RealWorkers::new(3);
        let workers: &dyn Workers = if has_many_workers { &real } else { &InlineWorkers };
        let image = archive(&store, workers, (&path, &left_out), &places, cutting);
        let size = bytes.len() as u64;
        for at in left_out.iter().flatten().filter(|at| *at < size) {
            bytes[usize::try_from(at).unwrap()] = 0;
        }
        prop_assert_eq!(image.entry.size(), size);
        prop_assert!(contents(&store, &image) == bytes);
    }
}

/// A large file is cut in pieces by several workers. Its blocks are those of one scan from its
/// beginning to its end, wherever it lies, even if the scans never agree.
#[test]
fn a_file_has_the_same_blocks_on_every_disk_and_in_a_folder() {
    let pattern: Vec<u8> = b"0123456789abcdef!".iter().copied().cycle().take(9 * MIB + 77).collect();
    for content in
        [noise(3, 21 * MIB + 4321), noise(4, 8 * MIB), noise(5, 8 * MIB + 1), noise(6, 100), pattern]
    {
        let store = MemoryBlockStore::new();
        let expected = leaves_in_folder(&store, &content, Cutting::FILE);
        let slack = content.len().next_multiple_of(4096) - content.len();
        for (seed, start) in [(1, 0), (2, 4096), (3, 3 * MIB + 12_288)] {
            let disk =
                [noise(seed, start), content.clone(), vec![0; slack], noise(seed + 9, 70_000)].concat();
            let (_folder, path) = disk_of(&disk);
            let places = FilePlaces::new(vec![run(start, content.len(), slack)], disk.len() as u64);
            let image =
                archive(&store, &RealWorkers::new(3), (&path, &Ranges::default()), &places, Cutting::FILE);
            assert!(contents(&store, &image) == disk);
            let found = leaves(&store, &image.entry);
            let missing = expected.difference(&found).count();
            // Where the scans of a pattern never agree, a border costs a leaf or two.
            let is_noise = content.len() != 9 * MIB + 77;
            assert!(if is_noise { missing == 0 } else { missing <= 2 }, "{missing} of {}", expected.len());
        }
    }
}

/// A file in pieces loses the leaves at its gaps, and no others.
#[test]
fn a_file_in_pieces_has_the_leaves_of_the_whole() {
    let content = noise(8, 13 * MIB + 777);
    // As ext2 lays it out: with blocks of its own between, and the last piece before the others.
    let cuts = [0, 12 * 4096, 4 * MIB + 12 * 4096, 9 * MIB, content.len()];
    let mut disk = noise(1, 100 * 4096);
    let mut runs: Vec<FileRun> = Vec::new();
    let mut places = [(0, 0); 4];
    for number in [3, 0, 1, 2] {
        let piece = &content[cuts[number]..cuts[number + 1]];
        places[number] = (disk.len(), piece.len());
        disk.extend_from_slice(piece);
        disk.resize(disk.len().next_multiple_of(4096), 0);
        disk.extend_from_slice(&noise(number as u64, 4096));
    }
    for (number, (start, length)) in places.into_iter().enumerate() {
        let slack = length.next_multiple_of(4096) - length;
        let before = number.checked_sub(1).map_or((0, 0), |before| places[before]);
        let (before_start, before_end) = (before.0 as u64, (before.0 + before.1) as u64);
        runs.push(FileRun { before_start, before_end, ..run(start, length, slack) });
    }
    let (_folder, path) = disk_of(&disk);
    let store = MemoryBlockStore::new();
    let places = FilePlaces::new(runs, disk.len() as u64);
    let none = Ranges::default();
    let image = archive(&store, &RealWorkers::new(3), (&path, &none), &places, Cutting::FILE);
    assert!(contents(&store, &image) == disk);
    let expected = leaves_in_folder(&store, &content, Cutting::FILE);
    let missing = expected.difference(&leaves(&store, &image.entry)).count();
    assert_eq!(missing, 3, "one at each gap, of {}", expected.len());
}

/// A small hole within a file is zeros like others; a large one is not read, however large.
#[test]
fn holes_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let file = File::create(&path).unwrap();
    let size = 1_usize << 36;
    file.set_len(size as u64).unwrap();
    file.write_all_at(&noise(1, 300_000), 0).unwrap();
    file.write_all_at(&noise(2, 300_000), 400_000).unwrap();
    file.write_all_at(&noise(3, 300_000), 1 << 30).unwrap();
    let places = FilePlaces::new(vec![run(0, 2 << 30, 0)], size as u64);
    let store = MemoryBlockStore::new();
    let none = Ranges::default();
    let image = archive(&store, &RealWorkers::new(3), (&path, &none), &places, Cutting::FILE);
    assert_eq!(image.entry.size(), size as u64);
    let reader = TreeReader::new(&store, &image.entry);
    let stored: u64 = reader
        .extents(0..size as u64)
        .map(Result::unwrap)
        .filter(|it| it.leaf.is_some())
        .map(|it| it.length)
        .sum();
    assert!((900_000..3 << 20).contains(&stored), "{stored}");
}

/// A disk behind another program, which reports what has changed since an earlier image.
struct ReportedDisk {
    bytes: Vec<u8>,
    /// The ends of the reported runs, in ascending order, and their contents.
    runs: Vec<(u64, RunContent)>,
}

impl ServedImage for ReportedDisk {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn content_at(&self, offset: u64) -> io::Result<ContentRun> {
        let (end, content) = self.runs[self.runs.partition_point(|(end, _)| *end <= offset)];
        Ok(ContentRun { content, end })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        into.copy_from_slice(&self.bytes[start..start + into.len()]);
        Ok(())
    }
}

/// Reports each unit as it is. Runs may go on in the next one.
fn reported(before: &[u8], after: &[u8], unit: usize) -> ReportedDisk {
    let units = after.chunks(unit).zip(before.chunks(unit)).scan(0, |end, (now, then)| {
        *end += now.len() as u64;
        let content = match now {
            now if now == then => RunContent::Unchanged,
            now if now.iter().all(|byte| *byte == 0) => RunContent::Zeros,
            _ => RunContent::Data,
        };
        Some((*end, content))
    });
    ReportedDisk { bytes: after.to_vec(), runs: units.collect() }
}

/// Archives a reported disk, and returns the image with the number of bytes that were read for it.
fn archive_reported(
    store: &MemoryBlockStore,
    disk: ReportedDisk,
    earlier: Option<&ArchivedImage>,
    places: &FilePlaces,
    cutting: Cutting,
) -> (ArchivedImage, u64) {
    let earlier = earlier.map(|image| image.entry);
    let source = ImageSource::served(Box::new(disk), Path::new("disk"), earlier);
    let (workers, progress) = (RealWorkers::new(2), Progress::new());
    let sizes = (cutting, BLOCK_BYTES);
    let image = archive_image_by_files(store, &workers, &source, places, sizes, &progress).unwrap();
    (image, progress.snapshot().bytes_read)
}

proptest! {
    /// The bytes that are reported as unchanged come from the earlier image, whose files lay
    /// elsewhere.
    #[test]
    fn an_image_of_changes_is_what_the_disk_was(
        parts in prop::collection::vec(part(), 1..8),
        places in prop::collection::vec(
            prop::collection::vec((0..30_000_usize, 0..6000_usize, 0..4096_usize), 0..8), 2),
        changes in prop::collection::vec((any::<usize>(), part()), 0..6),
        unit in 1..3000_usize,
    ) {
        let before = parts.concat();
        let size = before.len() as u64;
        let mut places = places.into_iter().map(|runs| {
            let runs = runs.into_iter().map(|(start, content, slack)| run(start, content, slack));
            FilePlaces::new(runs.collect(), size)
        });
        let mut after = before.clone();
        for (at, part) in changes {
            let at = at % after.len();
            let length = part.len().min(after.len() - at);
            after[at..at + length].copy_from_slice(&part[..length]);
        }
        let store = MemoryBlockStore::new();
        let cutting = Cutting::new(64, 256, 1024).unwrap();
        let first = reported(&before, &before, unit);
        let (first, _) = archive_reported(&store, first, None, &places.next().unwrap(), cutting);
        prop_assert!(contents(&store, &first) == before);
        let second = reported(&before, &after, unit);
        let (second, _) = archive_reported(&store, second, Some(&first), &places.next().unwrap(), cutting);
        prop_assert_eq!(second.entry.size(), size);
        prop_assert!(contents(&store, &second) == after);
    }
}

#[test]
fn little_is_read_around_what_has_changed() {
    let cutting = Cutting::FILE;
    let before = noise(7, 24 * MIB);
    let places = FilePlaces::new(vec![run(MIB, 20 * MIB, 0)], before.len() as u64);
    let store = MemoryBlockStore::new();
    let whole = reported(&before, &before, MIB);
    let (first, read) = archive_reported(&store, whole, None, &places, cutting);
    assert_eq!(read, 24 << 20);

    let unchanged = reported(&before, &before, MIB);
    let (same, read) = archive_reported(&store, unchanged, Some(&first), &places, cutting);
    assert_eq!((same.entry, read), (first.entry, 0));

    let mut after = before.clone();
    after[9_000_000..9_004_096].copy_from_slice(&noise(8, 4096));
    let changed = reported(&before, &after, 64 << 10);
    let (second, read) = archive_reported(&store, changed, Some(&first), &places, cutting);
    assert!(contents(&store, &second) == after);
    assert!(read < 700_000, "{read}");
    let (old, new) = (leaves(&store, &first.entry), leaves(&store, &second.entry));
    assert!(new.difference(&old).count() < 12, "{}", new.difference(&old).count());
}
