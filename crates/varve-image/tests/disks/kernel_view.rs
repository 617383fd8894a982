//! Compares a reader of a file system with what the kernel shows of the same volume after a mount.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use varve_image::{FileId, FileKind, FileSystem, FileTime, FolderChild};

/// The extended attributes of files, by the bytes of their paths.
type KernelXattrs = BTreeMap<Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>>;

fn kind(metadata: &fs::Metadata) -> FileKind {
    let kind = metadata.file_type();
    match kind {
        _ if kind.is_dir() => FileKind::Folder,
        _ if kind.is_symlink() => FileKind::SymbolicLink,
        _ if kind.is_char_device() => FileKind::CharacterDevice,
        _ if kind.is_block_device() => FileKind::BlockDevice,
        _ if kind.is_fifo() => FileKind::Fifo,
        _ if kind.is_socket() => FileKind::Socket,
        _ => FileKind::File,
    }
}

/// Undoes the octal escapes of `getfattr`.
fn without_escapes(text: &[u8]) -> Vec<u8> {
    let (mut plain, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let digits = text.get(at + 1..at + 4).filter(|digits| digits.iter().all(u8::is_ascii_digit));
        match digits {
            Some(digits) if text[at] == b'\\' => {
                let number = digits.iter().fold(0_u32, |number, digit| number * 8 + u32::from(digit - b'0'));
                plain.push(u8::try_from(number).unwrap());
                at += 4;
            }
            _ => {
                plain.push(text[at]);
                at += 1;
            }
        }
    }
    plain
}

/// Reads all attributes below a folder, except for the copies of access control lists in XFS's own
/// form.
fn kernel_xattrs(folder: &Path) -> KernelXattrs {
    let output = Command::new("getfattr")
        .args(["-R", "-P", "-h", "-d", "-m", "-", "-e", "hex", "--absolute-names"])
        .arg(folder)
        .output()
        .unwrap();
    let mut found = KernelXattrs::new();
    let mut file = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        if let Some(path) = line.strip_prefix(b"# file: ") {
            file = without_escapes(path);
        } else if let Some(at) = line.windows(3).position(|part| part == b"=0x") {
            let name = without_escapes(&line[..at]);
            let digit = |byte: &u8| u8::try_from(char::from(*byte).to_digit(16).unwrap()).unwrap();
            let value = line[at + 3..].chunks(2).map(|pair| digit(&pair[0]) << 4 | digit(&pair[1])).collect();
            if !name.starts_with(b"trusted.SGI_ACL_") {
                found.entry(file.clone()).or_default().push((name, value));
            }
        } else if line.ends_with(b"=\"\"") || (!line.is_empty() && !line.starts_with(b"#")) {
            let name = line.strip_suffix(b"=\"\"").unwrap_or(line);
            found.entry(file.clone()).or_default().push((without_escapes(name), Vec::new()));
        }
    }
    found.values_mut().for_each(|xattrs| xattrs.sort());
    found
}

fn children(files: &dyn FileSystem, folder: FileId) -> Vec<FolderChild> {
    let mut children = Vec::new();
    let all = files.children(folder, 0, &mut |child| {
        children.push(child);
        ControlFlow::Continue(())
    });
    all.unwrap();
    children
}

fn time(seconds: i64, nanoseconds: i64) -> FileTime {
    FileTime::new(seconds, u32::try_from(nanoseconds).unwrap())
}

/// Compares two contents without keeping them in memory.
fn compare_content(files: &dyn FileSystem, id: FileId, path: &Path, size: u64) {
    let file = File::open(path).unwrap();
    let piece = usize::try_from(size.min(1 << 20)).unwrap();
    let (mut at, mut ours, mut theirs) = (0_u64, vec![0x5a; piece], vec![0xa5; piece]);
    // A hole is skipped if the kernel says the same.
    while at < size {
        let Some(data) = files.next_data(id, at).unwrap() else { break };
        assert!(data.start >= at && data.start < data.end && data.end <= size, "{}", path.display());
        at = data.start;
        while at < data.end {
            let length = usize::try_from((data.end - at).min(1 << 20)).unwrap();
            assert_eq!(files.read_at(id, at, &mut ours[..length]).unwrap(), length, "{}", path.display());
            file.read_exact_at(&mut theirs[..length], at).unwrap();
            assert!(ours[..length] == theirs[..length], "{} from {at}", path.display());
            at += length as u64;
        }
    }
    // Reads across holes.
    let mut place = 0;
    while place < size {
        let length = usize::try_from((size - place).min(1 << 20)).unwrap();
        assert_eq!(files.read_at(id, place, &mut ours[..length]).unwrap(), length, "{}", path.display());
        file.read_exact_at(&mut theirs[..length], place).unwrap();
        assert!(ours[..length] == theirs[..length], "{} from {place}", path.display());
        place += (length as u64).max(size / 64);
    }
    assert_eq!(files.read_at(id, size, &mut ours).unwrap(), 0);
}

/// Compares a folder and everything in it. Returns the number of files.
///
/// `is_exact` is false for a volume whose mount has changed it: times of access and the blocks that
/// were allocated ahead differ then.
pub fn compare(files: &dyn FileSystem, mount: &Path, is_exact: bool) -> usize {
    let mut xattrs = kernel_xattrs(mount);
    let mut folders: Vec<(PathBuf, FileId)> = vec![(mount.to_path_buf(), files.root())];
    let mut numbers: BTreeMap<u64, FileId> = BTreeMap::new();
    let mut count = 0;
    while let Some((path, folder)) = folders.pop() {
        compare_file(files, &path, folder, &mut xattrs, is_exact);
        let mut expected: Vec<_> =
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_vec()).collect();
        expected.sort();
        let found = children(files, folder);
        let mut names: Vec<_> = found.iter().map(|child| child.name.clone()).collect();
        names.sort();
        assert!(names == expected, "{}: {} of {}", path.display(), names.len(), expected.len());
        for first in [1, found.len() / 2, found.len().saturating_sub(1)] {
            let mut next = None;
            let mut take = |child| {
                next = Some(child);
                ControlFlow::Break(())
            };
            files.children(folder, first as u64, &mut take).unwrap();
            assert_eq!(next.as_ref(), found.get(first), "{} from {first}", path.display());
        }
        assert_eq!(files.child(folder, b"no such name").unwrap(), None);
        for child in found {
            let child_path = path.join(std::ffi::OsStr::from_bytes(&child.name));
            assert_eq!(
                files.child(folder, &child.name).unwrap().as_ref(),
                Some(&child),
                "{}",
                child_path.display()
            );
            let metadata = fs::symlink_metadata(&child_path).unwrap();
            assert_eq!(child.kind, kind(&metadata), "{}", child_path.display());
            let known = numbers.entry(metadata.ino()).or_insert(child.id);
            assert_eq!(*known, child.id, "{}", child_path.display());
            count += 1;
            if child.kind == FileKind::Folder {
                folders.push((child_path, child.id));
            } else {
                compare_file(files, &child_path, child.id, &mut xattrs, is_exact);
            }
        }
    }
    assert!(xattrs.is_empty(), "attributes of {:?}", xattrs.keys().next());
    count
}

fn compare_file(files: &dyn FileSystem, path: &Path, id: FileId, xattrs: &mut KernelXattrs, is_exact: bool) {
    let name = path.display();
    let metadata = fs::symlink_metadata(path).unwrap();
    let status = files.status(id).unwrap();
    assert_eq!(status.kind, kind(&metadata), "{name}");
    assert_eq!(u32::from(status.mode), metadata.mode() & 0o7777, "{name}");
    assert_eq!((status.uid, status.gid), (metadata.uid(), metadata.gid()), "{name}");
    assert_eq!(u64::from(status.links), metadata.nlink(), "{name}");
    assert_eq!(status.modified, time(metadata.mtime(), metadata.mtime_nsec()), "{name}");
    assert_eq!(status.changed, Some(time(metadata.ctime(), metadata.ctime_nsec())), "{name}");
    if is_exact {
        assert_eq!(status.allocated, metadata.blocks() * 512, "{name}");
        let created =
            metadata.created().map(|created| created.duration_since(std::time::UNIX_EPOCH).unwrap());
        if let (Ok(created), Some(found)) = (created, status.created) {
            assert_eq!(found.wide_nanoseconds(), i128::try_from(created.as_nanos()).unwrap(), "{name}");
        }
    }
    if let Some(device) = status.device {
        let number = metadata.rdev();
        let minor = number & 0xff | number >> 12 & 0xfff_ff00;
        assert_eq!(
            (u64::from(device.major), u64::from(device.minor)),
            (number >> 8 & 0xfff, minor),
            "{name}"
        );
    }
    let found: Vec<_> =
        files.xattrs(id).unwrap().into_iter().map(|xattr| (xattr.name, xattr.value)).collect();
    let expected = xattrs.remove(path.as_os_str().as_bytes()).unwrap_or_default();
    if status.links == 1 || status.kind == FileKind::Folder || !expected.is_empty() {
        assert!(
            found == expected,
            "{name}: {:?}",
            found.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect::<Vec<_>>()
        );
    }
    match status.kind {
        FileKind::File => {
            assert_eq!(status.size, metadata.len(), "{name}");
            compare_content(files, id, path, status.size);
        }
        FileKind::SymbolicLink => {
            let target = files.link_target(id).unwrap();
            assert_eq!(target, fs::read_link(path).unwrap().as_os_str().as_bytes(), "{name}");
        }
        _ => {}
    }
}
