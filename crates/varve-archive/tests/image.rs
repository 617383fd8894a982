//! Disk images that come back, and sources that do not hold still.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use varve_archive::{
    ArchiveImageError, ArchivedImage, ImagePart, ImageSource, Place, PlaceError, Progress, RestoreImageError,
    ServedImage, Told, ToldRun, archive_image, restore_image, write_image,
};
use varve_block::MemoryBlockStore;
use varve_world::{InlineWorkers, RealWorkers};

const BLOCK_BYTES: u32 = 4096;
const MIB: u64 = 1 << 20;

fn archive(store: &MemoryBlockStore, source: &ImageSource) -> Result<ArchivedImage, ArchiveImageError> {
    archive_image(store, &InlineWorkers, source, BLOCK_BYTES, &Progress::new())
}

fn contents(store: &MemoryBlockStore, image: &ArchivedImage) -> Vec<u8> {
    let mut contents = Vec::new();
    write_image(store, &InlineWorkers, &ImagePart::whole(&image.entry), &mut contents, &Progress::new())
        .unwrap();
    contents
}

/// A folder, and in it an image of 9 MiB and 5 bytes: data, a hole, data, a hole.
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
    restore_image(&store, &InlineWorkers, &ImagePart::whole(&image.entry), &back, false, &Progress::new())
        .unwrap();
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
    restore_image(store, &InlineWorkers, &ImagePart::whole(&image.entry), to, overwrite, &Progress::new())
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
    // Only root can have a device.
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

/// Only root can have a device.
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

/// Wherever the end comes to lie, in data or in a hole, what is gone is never taken for zeros.
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

/// A disk in memory, of which every twentieth block has changed; one of them may be unreadable.
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

    /// As it was before, and as it is now.
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

    fn told_at(&self, offset: u64) -> io::Result<ToldRun> {
        if !self.has_earlier {
            return Ok(ToldRun { told: Told::Data, end: self.size() });
        }
        let block = offset / u64::from(BLOCK_BYTES);
        let has_changed = Self::has_changed(block);
        let end = (block + 1..Self::BLOCK_COUNT).find(|next| Self::has_changed(*next) != has_changed);
        let told = if has_changed { Told::Data } else { Told::Unchanged };
        Ok(ToldRun { told, end: end.unwrap_or(Self::BLOCK_COUNT) * u64::from(BLOCK_BYTES) })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if self.bad == Some(offset) {
            return Err(io::Error::other("it is scratched"));
        }
        let start = usize::try_from(offset).unwrap();
        into.copy_from_slice(&self.bytes[start..start + into.len()]);
        Ok(())
    }

    fn read_all(&self, places: &mut [Place<'_>]) -> Result<(), PlaceError> {
        let offsets: Vec<_> = places.iter().map(|place| place.offset).collect();
        assert!(!places.is_empty() && offsets.is_sorted());
        assert!(places.len() > 1 || !self.has_earlier || offsets[0] > self.size() * 9 / 10, "one by one");
        places.iter_mut().try_for_each(|Place { offset, into }| {
            self.read_at(*offset, into).map_err(|source| PlaceError { offset: *offset, source })
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
            let taken = archive_image(&store, &RealWorkers::new(width), &source, BLOCK_BYTES, &progress);
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
