//! Restored disk images, and sources that change while they are read.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;
use varve_block::{Block, BlockName, BlockStore, GetError, MemoryBlockStore, PutError, Score};
use varve_content::image::{
    ArchiveImageError, ArchivedImage, ContentRun, ImageOptions, ImagePart, ImageSource, ReadRequest,
    ReadRequestError, RestoreImageError, RunContent, ServedImage, archive_image, read_back_image,
    restore_image, write_image, write_image_around,
};
use varve_content::{DamageList, Progress};
use varve_world::{InlineWorkers, RealWorkers};

const BLOCK_BYTES: u32 = 4096;
const MIB: u64 = 1 << 20;

fn archive(store: &MemoryBlockStore, source: &ImageSource) -> Result<ArchivedImage, ArchiveImageError> {
    archive_image(store, &InlineWorkers, source, BLOCK_BYTES, None, &Progress::new())
}

fn contents(store: &MemoryBlockStore, image: &ArchivedImage) -> Vec<u8> {
    let mut contents = Vec::new();
    write_image(store, &InlineWorkers, &ImagePart::whole(&image.entry), &mut contents, &Progress::new())
        .unwrap();
    contents
}

/// Makes a folder with an image of 9 MiB and 5 bytes: data, a hole, data, a hole.
fn sparse_image() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let file = File::create(&path).unwrap();
    file.set_len(9 * MIB + 5).unwrap();
    file.write_all_at(&[1; 3 << 20], 0).unwrap();
    file.write_all_at(&[2; 70_000], 5 * MIB + 300).unwrap();
    (folder, path)
}

fn set_len(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_sparse_image_comes_back_sparse() {
    let (folder, path) = sparse_image();
    let store = MemoryBlockStore::new();
    let image = archive(&store, &ImageSource::open(&path).unwrap()).unwrap();
    assert_eq!((image.entry.size(), image.changed_meanwhile), (9 * MIB + 5, false));
    let back = folder.path().join("back.img");
    restore(&store, &image, &back, false).unwrap();
    assert_eq!(fs::read(&back).unwrap(), fs::read(&path).unwrap());
    assert_eq!(contents(&store, &image), fs::read(&path).unwrap());
    let occupied = fs::metadata(&back).unwrap().blocks() * 512;
    assert!(occupied < 4 * MIB, "{occupied} bytes are occupied");
}

fn restore(
    store: &MemoryBlockStore,
    image: &ArchivedImage,
    to: &Path,
    overwrite: bool,
) -> Result<(), RestoreImageError> {
    let options = ImageOptions { overwrite, ..ImageOptions::default() };
    restore_image(store, &InlineWorkers, &ImagePart::whole(&image.entry), to, options, &Progress::new())
}

#[test]
fn nobody_else_can_lead_an_image_astray_or_look_into_it() {
    let (folder, path) = sparse_image();
    let store = MemoryBlockStore::new();
    let image = archive(&store, &ImageSource::open(&path).unwrap()).unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    for trap in [".back.img.varve-partial", ".back.img.varve-partial-0", ".back.img.varve-partial-1"] {
        symlink(&victim, folder.path().join(trap)).unwrap();
    }
    let back = folder.path().join("back.img");
    for overwrite in [false, true] {
        restore(&store, &image, &back, overwrite).unwrap();
        assert!(fs::symlink_metadata(&back).unwrap().is_file());
        assert_eq!(fs::metadata(&back).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(fs::read(&back).unwrap(), fs::read(&path).unwrap());
    }
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3 + 3, "nothing else is left there");
}

#[test]
fn an_image_replaces_only_files_and_only_when_asked() {
    let (folder, path) = sparse_image();
    let store = MemoryBlockStore::new();
    let image = archive(&store, &ImageSource::open(&path).unwrap()).unwrap();
    let at = |name: &str| folder.path().join(name);
    symlink("nowhere", at("dangling")).unwrap();
    let refused = restore(&store, &image, &at("dangling"), false);
    assert!(matches!(refused, Err(RestoreImageError::Exists { .. })), "{refused:?}");
    assert!(fs::symlink_metadata(at("dangling")).unwrap().is_symlink());

    fs::create_dir(at("folder")).unwrap();
    let make = |name: &str, file_type, device| {
        rustix::fs::mknodat(rustix::fs::CWD, at(name), file_type, rustix::fs::Mode::RUSR, device)
    };
    make("fifo", rustix::fs::FileType::Fifo, 0).unwrap();
    let mut others = vec!["folder", "fifo"];
    // Only root can make a device.
    let null = rustix::fs::makedev(1, 3);
    others.extend(make("null", rustix::fs::FileType::CharacterDevice, null).is_ok().then_some("null"));
    for other in others.iter().map(|name| at(name)) {
        let refused = restore(&store, &image, &other, true);
        assert!(
            matches!(refused, Err(RestoreImageError::NotAFile { .. })),
            "{}: {refused:?}",
            other.display()
        );
        assert!(!fs::symlink_metadata(&other).unwrap().is_file());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2 + others.len(), "nothing else is left there");
}

/// A store that lists the names of all blocks that were put. It can cancel an operation after a
/// number of reads.
#[derive(Default)]
struct Listing {
    store: MemoryBlockStore,
    names: Mutex<Vec<BlockName>>,
    ends: Mutex<Option<(usize, Arc<Progress>)>>,
}

impl BlockStore for Listing {
    varve_block::forward_block_store!(store: score_bytes, empty_score, sync);

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let (block_type, score) = (block.block_type, self.store.put(block)?);
        self.names.lock().push(BlockName { score, block_type });
        Ok(score)
    }

    fn get(&self, name: &BlockName) -> Result<bytes::Bytes, GetError> {
        if let Some((left, progress)) = &mut *self.ends.lock() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                progress.cancel();
            }
        }
        self.store.get(name)
    }
}

#[test]
fn an_interrupted_image_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let bytes: Vec<u8> = (0..12_000_000_u32).flat_map(|word| (word / 1000 * 7 + 1).to_le_bytes()).collect();
    fs::write(&path, &bytes).unwrap();
    let store = Listing::default();
    let image = archive_image(
        &store,
        &InlineWorkers,
        &ImageSource::open(&path).unwrap(),
        BLOCK_BYTES,
        None,
        &Progress::new(),
    );
    let part = ImagePart::whole(&image.unwrap().entry);
    let back = folder.path().join("back.img");
    let mut reads = Vec::new();
    for _ in 0..100 {
        let progress = Arc::new(Progress::new());
        *store.ends.lock() = Some((4000, Arc::clone(&progress)));
        let before = store.store.get_count();
        let options = ImageOptions { source: b"disk", note_bytes: 4 * MIB, ..ImageOptions::default() };
        let restored = restore_image(&store, &RealWorkers::new(2), &part, &back, options, &progress);
        reads.push(store.store.get_count() - before);
        match restored {
            Ok(()) => break,
            Err(RestoreImageError::Unfinished { unfinished, .. }) => {
                assert!(unfinished.is_file() && !back.exists());
                // Bytes behind the noted part do not count, as after a crash.
                let file = File::options().write(true).open(&unfinished).unwrap();
                file.write_all_at(&[7; 100], bytes.len() as u64 - 100).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(fs::read(&back).unwrap() == bytes, "{reads:?}");
    assert!(reads.len() > 2, "it was interrupted: {reads:?}");
    let leaves = bytes.len() as u64 / u64::from(BLOCK_BYTES);
    assert!(reads.iter().sum::<u64>() < 2 * leaves, "nothing is read again and again: {reads:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left there");
}

/// Each block of an image is lost in turn. All other bytes come back, and the lost ranges are
/// listed.
#[test]
fn damage_takes_nothing_else_with_it() {
    let (folder, path) = sparse_image();
    let good = fs::read(&path).unwrap();
    let archived = || {
        let store = Listing::default();
        let source = ImageSource::open(&path).unwrap();
        let image =
            archive_image(&store, &InlineWorkers, &source, BLOCK_BYTES, None, &Progress::new()).unwrap();
        (store, ImagePart::whole(&image.entry))
    };
    let count = archived().0.names.lock().len();
    for number in (0..count).step_by(count / 40 + 1).chain(count - 6..count) {
        let (store, part) = archived();
        let lost = store.names.lock()[number];
        assert!(store.store.lose(&lost));
        let back = folder.path().join("back.img");
        let refused = restore_image(
            &store,
            &InlineWorkers,
            &part,
            &back,
            ImageOptions { source: b"x", ..ImageOptions::default() },
            &Progress::new(),
        );
        assert!(matches!(refused, Err(RestoreImageError::Unfinished { .. })), "{refused:?}");
        // The next run continues the unfinished image.
        let damaged = DamageList::new();
        let options = ImageOptions { source: b"x", damaged: Some(&damaged), ..ImageOptions::default() };
        restore_image(&store, &InlineWorkers, &part, &back, options, &Progress::new()).unwrap();
        let mut expected = good.clone();
        damaged.for_each(|path, range| {
            assert_eq!(path, Path::new(""));
            assert!(range.start < range.end && range.end <= good.len() as u64, "{range:?}");
            expected[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].fill(0);
        });
        assert!(fs::read(&back).unwrap() == expected, "block {number}: {lost:?}");
        assert!(!damaged.is_empty() && expected != good, "block {number}");
        if lost.block_type.depth() == 0 {
            // A lost block harms all places with the same bytes, and no others.
            let block = usize::try_from(BLOCK_BYTES).unwrap();
            let blocks = || good.chunks(block).zip(expected.chunks(block));
            let first = blocks().find(|(good, back)| good != back).map(|(good, _)| good).unwrap();
            assert!(blocks().all(|(good, back)| (good == back) == (good != first)), "block {number}");
        }
        read_back_image(&store, &part, &back, true, &Progress::new()).unwrap();
        let again = DamageList::new();
        let mut streamed = Vec::new();
        write_image_around(
            &store,
            &RealWorkers::new(2),
            &part,
            &mut streamed,
            Some(&again),
            &Progress::new(),
        )
        .unwrap();
        assert!(streamed == expected && again.bytes() == damaged.bytes());
        fs::remove_file(&back).unwrap();
    }
}

#[test]
fn an_image_that_is_not_what_was_restored_is_found() {
    let (folder, path) = sparse_image();
    let store = MemoryBlockStore::new();
    let image = archive(&store, &ImageSource::open(&path).unwrap()).unwrap();
    let (part, back) = (ImagePart::whole(&image.entry), folder.path().join("back.img"));
    restore(&store, &image, &back, false).unwrap();
    let check = || read_back_image(&store, &part, &back, false, &Progress::new());
    check().unwrap();
    let file = File::options().write(true).open(&back).unwrap();
    // The places are in data, in a hole, and at the end.
    for place in [3, 2 * MIB + 17, 9 * MIB + 4] {
        let mut byte = [0];
        let old = File::open(&back).unwrap();
        old.read_exact_at(&mut byte, place).unwrap();
        file.write_all_at(&[byte[0] ^ 1], place).unwrap();
        let found = check().unwrap_err();
        assert!(matches!(found, varve_content::ReadBackDifference::Bytes { at } if at == place), "{found:?}");
        file.write_all_at(&byte, place).unwrap();
    }
    file.set_len(9 * MIB).unwrap();
    assert!(matches!(check(), Err(varve_content::ReadBackDifference::Status { .. })));
}

/// Only root can make a device.
#[test]
fn a_device_that_is_in_use_is_not_written_to() {
    let (folder, path) = sparse_image();
    let store = MemoryBlockStore::new();
    let image = archive(&store, &ImageSource::open(&path).unwrap()).unwrap();
    let (disk, mounted_at) = (folder.path().join("disk"), folder.path().join("mounted"));
    fs::create_dir(&mounted_at).unwrap();
    File::create(&disk).unwrap().set_len(64 * MIB).unwrap();
    let run = |program: &str, words: &[&str]| {
        let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let output = std::process::Command::new(program).args(words).env("PATH", path).output().ok()?;
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    let made = run("mkfs.ext4", &["-q", disk.to_str().unwrap()]);
    let Some(device) = made.and_then(|_| run("losetup", &["--find", "--show", disk.to_str().unwrap()]))
    else {
        println!("skipped: a loop device with a file system, which cannot be made here");
        return;
    };
    let is_mounted = run("mount", &[&device, mounted_at.to_str().unwrap()]).is_some();
    let refused = restore(&store, &image, Path::new(&device), true);
    if is_mounted {
        run("umount", &[mounted_at.to_str().unwrap()]).unwrap();
    }
    let freed = restore(&store, &image, Path::new(&device), true);
    let begins = fs::read(&device);
    run("losetup", &["--detach", &device]).unwrap();
    if is_mounted {
        assert!(matches!(refused, Err(RestoreImageError::Busy { .. })), "{refused:?}");
    }
    freed.unwrap();
    assert!(begins.unwrap().starts_with(&fs::read(&path).unwrap()));
}

#[test]
fn a_stream_has_no_size_until_it_ends() {
    let (_folder, path) = sparse_image();
    let store = MemoryBlockStore::new();
    let source = ImageSource::stream(Box::new(File::open(&path).unwrap()), Path::new("-"));
    assert_eq!(source.size(), None);
    let streamed = archive(&store, &source).unwrap();
    let placed = archive(&store, &ImageSource::open(&path).unwrap()).unwrap();
    assert_eq!(streamed.entry, placed.entry, "holes are zeros");
}

#[test]
fn an_image_that_grows_is_archived_as_it_was_and_said_to_have_changed() {
    for grown in [10 * MIB, 40 * MIB] {
        let (_folder, path) = sparse_image();
        let before = fs::read(&path).unwrap();
        let store = MemoryBlockStore::new();
        let source = ImageSource::open(&path).unwrap();
        set_len(&path, grown);
        File::options().write(true).open(&path).unwrap().write_all_at(b"new", grown - 3).unwrap();
        let image = archive(&store, &source).unwrap();
        assert!(image.changed_meanwhile);
        assert_eq!(contents(&store, &image), before);
    }
}

#[test]
fn an_image_that_is_written_while_it_is_read_is_said_to_have_changed() {
    let (_folder, path) = sparse_image();
    let source = ImageSource::open(&path).unwrap();
    File::options().write(true).open(&path).unwrap().write_all_at(b"other", 17).unwrap();
    assert!(archive(&MemoryBlockStore::new(), &source).unwrap().changed_meanwhile);
}

/// The file ends earlier, in data or in a hole. The missing bytes are never taken for zeros.
#[test]
fn an_image_that_shrinks_is_not_archived() {
    for shrunk in [0, 1, 2 * MIB + 17, 3 * MIB, 4 * MIB, 5 * MIB + 5000, 9 * MIB + 4] {
        let (_folder, path) = sparse_image();
        let source = ImageSource::open(&path).unwrap();
        set_len(&path, shrunk);
        let error = archive(&MemoryBlockStore::new(), &source).unwrap_err();
        let ArchiveImageError::Shrank { offset, .. } = error else { panic!("cut to {shrunk}: {error}") };
        assert!(offset <= 9 * MIB, "cut to {shrunk}, noticed at {offset}");
    }
}

/// A disk in memory. Every twentieth block of it has changed, and one may be unreadable.
struct Scattered {
    bytes: Vec<u8>,
    has_earlier: bool,
    bad: Option<u64>,
}

impl Scattered {
    const BLOCK_COUNT: u64 = 5000;

    fn has_changed(block: u64) -> bool {
        block % 20 == 7
    }

    /// The disk before the changes, and after them.
    fn nights() -> [Vec<u8>; 2] {
        let night = |number: u64| {
            (0..Self::BLOCK_COUNT)
                .flat_map(|block| {
                    let value = block * 2 + if Self::has_changed(block) { number } else { 0 };
                    value.to_le_bytes().repeat(BLOCK_BYTES as usize / 8)
                })
                .collect()
        };
        [night(0), night(1)]
    }
}

impl ServedImage for Scattered {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn content_at(&self, offset: u64) -> io::Result<ContentRun> {
        if !self.has_earlier {
            return Ok(ContentRun { content: RunContent::Data, end: self.size() });
        }
        let block = offset / u64::from(BLOCK_BYTES);
        let has_changed = Self::has_changed(block);
        let end = (block + 1..Self::BLOCK_COUNT).find(|next| Self::has_changed(*next) != has_changed);
        let told = if has_changed { RunContent::Data } else { RunContent::Unchanged };
        Ok(ContentRun { content: told, end: end.unwrap_or(Self::BLOCK_COUNT) * u64::from(BLOCK_BYTES) })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if self.bad == Some(offset) {
            return Err(io::Error::other("it is scratched"));
        }
        let start = usize::try_from(offset).unwrap();
        into.copy_from_slice(&self.bytes[start..start + into.len()]);
        Ok(())
    }

    fn read_all(&self, places: &mut [ReadRequest<'_>]) -> Result<(), ReadRequestError> {
        let offsets: Vec<_> = places.iter().map(|place| place.offset).collect();
        assert!(!places.is_empty() && offsets.is_sorted());
        assert!(places.len() > 1 || !self.has_earlier || offsets[0] > self.size() * 9 / 10, "one by one");
        places.iter_mut().try_for_each(|ReadRequest { offset, into }| {
            self.read_at(*offset, into).map_err(|source| ReadRequestError { offset: *offset, source })
        })
    }
}

#[test]
fn small_changes_are_read_together_and_fall_into_their_places() {
    let [before, after] = Scattered::nights();
    let path = Path::new("disk");
    for width in [1, 3] {
        let store = MemoryBlockStore::new();
        let take = |bytes: &[u8], earlier: Option<&ArchivedImage>, bad| {
            let disk = Scattered { bytes: bytes.to_vec(), has_earlier: earlier.is_some(), bad };
            let source = ImageSource::served(Box::new(disk), path, earlier.map(|image| image.entry));
            let progress = Progress::new();
            let taken =
                archive_image(&store, &RealWorkers::new(width), &source, BLOCK_BYTES, None, &progress);
            (taken, progress.snapshot().bytes_read)
        };
        let first = take(&before, None, None).0.unwrap();
        let (second, read) = take(&after, Some(&first), None);
        let second = second.unwrap();
        assert_eq!(read, Scattered::BLOCK_COUNT / 20 * u64::from(BLOCK_BYTES), "what has changed");
        assert!(contents(&store, &first) == before && contents(&store, &second) == after, "{width}");
        assert_eq!(take(&after, None, None).0.unwrap().entry, second.entry, "as if all had been read");

        let bad = 2007 * u64::from(BLOCK_BYTES);
        match take(&after, Some(&first), Some(bad)).0.unwrap_err() {
            ArchiveImageError::Read { offset, .. } => assert_eq!(offset, bad),
            other => panic!("{other}"),
        }
    }
}
