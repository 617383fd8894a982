//! Walks through trusted and untrusted file systems, and the results to compare them with.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use varve_image::{Disk, FileId, FileKind, FileSystem, FileSystemError};

/// The visible properties of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub kind: FileKind,
    pub size: u64,
    pub mode: u16,
    /// In seconds.
    pub modified: i64,
    /// The bytes of a file, or the target of a link.
    pub content: Vec<u8>,
}

pub type Files = BTreeMap<String, Seen>;

/// The file system that fills a whole disk.
pub fn open(disk: Vec<u8>) -> Arc<dyn FileSystem> {
    Disk::open(Arc::new(disk)).volume("p0").expect("no table").open_file_system().unwrap()
}

/// Everything in a file system. Each file is read whole, and at several places.
pub fn walk(files: &dyn FileSystem) -> Files {
    let mut found = Files::new();
    let mut folders = vec![(String::new(), files.root())];
    while let Some((path, folder)) = folders.pop() {
        let mut children = Vec::new();
        files
            .children(folder, 0, &mut |child| {
                children.push(child);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_pages_agree(files, folder, &children);
        for child in children {
            let path = format!("{path}/{}", String::from_utf8_lossy(&child.name));
            assert_eq!(files.child(folder, &child.name).unwrap().as_ref(), Some(&child), "{path}");
            let status = files.status(child.id).unwrap();
            assert_eq!(status.kind, child.kind, "{path}");
            let content = match status.kind {
                FileKind::File => read(files, child.id, status.size),
                FileKind::SymbolicLink => files.link_target(child.id).unwrap(),
                _ => Vec::new(),
            };
            if status.kind == FileKind::Folder {
                folders.push((path.clone(), child.id));
            }
            let modified = status.modified.seconds();
            let size = if status.kind == FileKind::File { status.size } else { 0 };
            let seen = Seen { kind: status.kind, size, mode: status.mode, modified, content };
            assert!(found.insert(path.clone(), seen).is_none(), "{path} is there twice");
        }
    }
    found
}

/// A listing that begins at a later child is the same without its beginning.
fn assert_pages_agree(files: &dyn FileSystem, folder: FileId, children: &[varve_image::FolderChild]) {
    for first in [1, children.len() / 2, children.len()] {
        let mut page = Vec::new();
        let mut take = |child| {
            page.push(child);
            if page.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        files.children(folder, first as u64, &mut take).unwrap();
        let rest = children.get(first..).unwrap_or_default();
        assert_eq!(page, rest[..rest.len().min(3)]);
    }
}

fn read(files: &dyn FileSystem, file: FileId, size: u64) -> Vec<u8> {
    let mut whole = vec![0xee; usize::try_from(size).unwrap() + 10];
    let mut filled = 0;
    while filled < whole.len() {
        let count = files.read_at(file, filled as u64, &mut whole[filled..]).unwrap();
        filled += count;
        if count == 0 {
            break;
        }
    }
    assert_eq!(filled as u64, size);
    whole.truncate(filled);
    for place in (0..filled).step_by(filled / 7 + 1) {
        let mut some = vec![0xee; 5000.min(filled - place)];
        assert_eq!(files.read_at(file, place as u64, &mut some).unwrap(), some.len());
        assert_eq!(some, whole[place..place + some.len()]);
    }
    let mut data_end = 0;
    while let Some(data) = files.next_data(file, data_end).unwrap() {
        let hole = &whole[usize::try_from(data_end).unwrap()..usize::try_from(data.start).unwrap()];
        assert!(hole.iter().all(|byte| *byte == 0), "a hole has bytes");
        assert!(data.start < data.end && data.end <= size, "{data:?} of {size}");
        data_end = data.end;
    }
    whole
}

/// The same for a folder of this machine.
pub fn of_folder(folder: &Path) -> Files {
    let mut found = Files::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(parent) = folders.pop() {
        for child in fs::read_dir(&parent).unwrap() {
            let path = child.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let (kind, content) = if metadata.is_dir() {
                folders.push(path.clone());
                (FileKind::Folder, Vec::new())
            } else if metadata.is_symlink() {
                (FileKind::SymbolicLink, fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
            } else {
                (FileKind::File, fs::read(&path).unwrap())
            };
            let size = if kind == FileKind::File { metadata.len() } else { 0 };
            let mode = u16::try_from(metadata.mode() & 0o7777).unwrap();
            let name = format!("/{}", path.strip_prefix(folder).unwrap().display());
            found.insert(name, Seen { kind, size, mode, modified: metadata.mtime(), content });
        }
    }
    found
}

/// Removes the properties that a file system does not keep.
pub fn without(files: Files, forget: impl Fn(&mut Seen)) -> Files {
    let forgotten = |(path, mut seen): (String, Seen)| {
        forget(&mut seen);
        (path, seen)
    };
    files.into_iter().map(forgotten).collect()
}

/// A folder with all kinds of names and sizes, and times that every file system can keep.
pub fn sample(folder: &Path) {
    let content = |bytes: usize, seed: u8| -> Vec<u8> {
        let mut state = u32::from(seed) + 1;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_le_bytes()[3]
        };
        (0..bytes).map(next).collect()
    };
    let put = |path: &str, bytes: Vec<u8>| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
    };
    put("EMPTY", Vec::new());
    put("one byte", content(1, 1));
    put("ROUND.BIN", content(8192, 2));
    put("large.bin", content(300_001, 3));
    put("Grüße und 蟹 in einem recht langen Namen, der nicht in acht Zeichen paßt.text", content(777, 4));
    put("deep/er/and/deeper/end", content(5000, 5));
    for number in 0..150 {
        put(&format!("many/file number {number}.txt"), content(number, 6));
    }
    let status = std::process::Command::new("find")
        .arg(folder)
        .args(["-depth", "-exec", "touch", "-h", "-d", "2024-02-29T12:34:56Z", "{}", "+"])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Walks through an untrusted disk, and gives up after a while. Returns the number of files found.
pub fn wade(disk: Vec<u8>) -> usize {
    let disk = Disk::open(Arc::new(disk));
    let mut count = 0;
    for volume in disk.volumes() {
        let Ok(files) = volume.open_file_system() else { continue };
        let mut folders = vec![files.root()];
        while let Some(folder) = folders.pop() {
            let mut children = Vec::new();
            let _: Result<(), FileSystemError> = files.children(folder, 0, &mut |child| {
                assert!(!child.name.is_empty() && !child.name.contains(&b'/') && !child.name.contains(&0));
                assert!(child.name != b"." && child.name != b"..");
                children.push(child);
                if children.len() < 500 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            for child in children {
                count += 1;
                if count > 2000 {
                    return count;
                }
                if child.kind == FileKind::Folder {
                    folders.push(child.id);
                }
                let _ = files.child(folder, &child.name);
                let _ = files.link_target(child.id);
                let _ = files.xattrs(child.id);
                let _ = files.children(child.id, 0, &mut |_| ControlFlow::Break(()));
                let Ok(status) = files.status(child.id) else { continue };
                let mut some = vec![0; 3000];
                for offset in [0, status.size / 2, status.size.saturating_sub(10), u64::MAX - 1] {
                    let _ = files.read_at(child.id, offset, &mut some);
                    let _ = files.next_data(child.id, offset);
                }
            }
        }
    }
    count
}

/// Wades through `count` copies of a disk with changed bytes. Bytes within `hot` change often,
/// others seldom.
pub fn wade_damaged(disk: &[u8], hot: &[std::ops::Range<usize>], count: u64) {
    let mut found = 0;
    for seed in 0..count {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 16).unwrap()
        };
        let mut damaged = disk.to_vec();
        for _ in 0..=random() % 12 {
            let range = hot[random() % hot.len()].clone();
            let place = range.start + random() % (range.end - range.start);
            let value = match random() % 4 {
                0 => 0,
                1 => 0xff,
                2 => damaged[place] ^ 1 << (random() % 8),
                _ => u8::try_from(random() % 256).unwrap(),
            };
            damaged[place] = value;
            if random() % 5 == 0 {
                let end = (place + random() % 64).min(damaged.len());
                damaged[place..end].fill(value);
            }
        }
        if seed % 50 == 49 {
            damaged.truncate(random() % disk.len());
        }
        found += wade(damaged);
    }
    assert!(found > 0, "nothing was readable");
}
