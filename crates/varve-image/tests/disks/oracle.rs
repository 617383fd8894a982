//! The same disks in another reader of ext4, `ext4-view`: everything that both can read is the
//! same.
//!
//! `VARVE_DISKS=one.raw:two.raw` names further disks: the first file system of each is
//! compared whole.
#![allow(clippy::print_stderr, reason = "says what was compared and what it skipped")]
#![allow(clippy::cast_possible_truncation, reason = "sizes that both readers agree on")]

use std::error::Error;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::sandbox::{Sandbox, missing};
use ext4_view::{Ext4, Ext4Read, FileType, PathBuf as ViewPath};
use varve_image::{Disk, FileId, FileKind, FileSystem, ReadAt, VolumeContent};

struct Source(Arc<dyn ReadAt>);

impl Ext4Read for Source {
    fn read(&mut self, start_byte: u64, dst: &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self.0.read_at(start_byte, dst)?)
    }
}

fn kind(kind: FileType) -> FileKind {
    match kind {
        FileType::Regular => FileKind::File,
        FileType::Directory => FileKind::Folder,
        FileType::Symlink => FileKind::SymbolicLink,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
    }
}

fn names(files: &dyn FileSystem, folder: FileId) -> Vec<(Vec<u8>, FileId)> {
    let mut names = Vec::new();
    files
        .children(folder, 0, &mut |child| {
            names.push((child.name, child.id));
            ControlFlow::Continue(())
        })
        .unwrap();
    names.sort();
    names
}

/// Compares a folder and everything below it. Returns the number of files and of bytes.
fn compare(files: &dyn FileSystem, folder: FileId, view: &Ext4, path: &ViewPath) -> (u64, u64) {
    let mut expected: Vec<_> = view
        .read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().as_ref().to_vec())
        .filter(|name| ![&b"."[..], b".."].contains(&name.as_slice()))
        .collect();
    expected.sort();
    let found = names(files, folder);
    assert!(found.iter().map(|(name, _)| name).eq(&expected), "{path:?}");
    let mut total = (0, 0);
    for (name, id) in found {
        let path = path.join(name.as_slice());
        let (status, other) = (files.status(id).unwrap(), view.symlink_metadata(&path).unwrap());
        assert_eq!((status.kind, status.mode), (kind(other.file_type()), other.mode() & 0o7777), "{path:?}");
        assert_eq!((status.uid, status.gid), (other.uid(), other.gid()), "{path:?}");
        total.0 += 1;
        match status.kind {
            FileKind::Folder => {
                let below = compare(files, id, view, &path);
                total = (total.0 + below.0, total.1 + below.1);
            }
            FileKind::SymbolicLink => {
                assert_eq!(
                    files.link_target(id).unwrap(),
                    view.read_link(&path).unwrap().as_ref(),
                    "{path:?}"
                );
            }
            FileKind::File => {
                assert_eq!(status.size, other.len(), "{path:?}");
                let mut bytes = vec![0; status.size as usize];
                assert_eq!(files.read_at(id, 0, &mut bytes).unwrap(), bytes.len(), "{path:?}");
                assert!(bytes == view.read(&path).unwrap(), "{path:?}");
                total.1 += status.size;
            }
            _ => {}
        }
    }
    total
}

fn compare_disk(disk: Arc<dyn ReadAt>) -> (u64, u64) {
    let disk = Disk::open(disk);
    let is_files = |content: VolumeContent| matches!(content, VolumeContent::FileSystem(_));
    let volume = disk.volumes().iter().find(|volume| is_files(volume.content())).unwrap();
    let files = volume.open_file_system().unwrap();
    let view = Ext4::load(Box::new(Source(volume.read()))).unwrap();
    compare(&*files, files.root(), &view, &ViewPath::new("/"))
}

#[test]
fn both_readers_see_the_same() {
    if missing(&["mkfs.ext4"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let tree = sandbox.path("tree");
    fs::create_dir_all(tree.join("one/two")).unwrap();
    for number in 0..2000_u32 {
        fs::write(
            tree.join(format!("one/file {number}")),
            number.to_le_bytes().repeat(number as usize % 700),
        )
        .unwrap();
    }
    std::os::unix::fs::symlink("one/two", tree.join("link")).unwrap();
    for shape in
        [&["mkfs.ext4", "-b", "1024"][..], &["mkfs.ext4", "-O", "bigalloc"], &["mkfs.ext4", "-O", "^64bit"]]
    {
        let image = sandbox.sparse("image", 64 << 20);
        let words = ["-q", "-F", "-N", "4096", "-d", tree.to_str().unwrap(), image.to_str().unwrap()];
        sandbox.run(&[shape, &words].concat(), "");
        assert_eq!(compare_disk(Arc::new(File::open(image).unwrap())).0, 2004, "{shape:?}");
    }
}

#[test]
fn both_readers_see_the_same_of_real_disks() {
    let Some(disks) = std::env::var_os("VARVE_DISKS") else {
        eprintln!("skipped: real disks, which VARVE_DISKS names");
        return;
    };
    for path in std::env::split_paths(&disks).collect::<Vec<PathBuf>>() {
        let (files, bytes) = compare_disk(Arc::new(File::open(&path).unwrap()));
        eprintln!("{}: {files} files, {bytes} bytes are the same", path.display());
        assert!(files > 0);
    }
}
