//! ext2, ext3 and ext4 in every shape that e2fsprogs makes, compared with the source folder.

#![allow(clippy::cast_possible_truncation, reason = "sizes that the test itself has made")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;

use crate::sandbox::{Sandbox, missing};
use varve_image::{
    BlockOwners, Disk, ExtFileSystem, FileId, FileKind, FileSystem, FileSystemError, FileTime, FolderChild,
    ReadAt, Volume,
};

const MIB: u64 = 1 << 20;

/// Each shape has other structures: pointer maps or extents, wide descriptors, groups of groups,
/// checksums, clusters, content in inodes.
const SHAPES: [&[&str]; 17] = [
    &["mkfs.ext2", "-b", "1024"],
    &["mkfs.ext2", "-b", "2048"],
    &["mkfs.ext2", "-b", "4096"],
    &["mkfs.ext2", "-b", "1024", "-I", "128", "-O", "^filetype,^dir_index"],
    &["mkfs.ext3", "-b", "1024"],
    &["mkfs.ext3", "-b", "4096"],
    &["mkfs.ext4", "-b", "1024"],
    &["mkfs.ext4", "-b", "4096"],
    &["mkfs.ext4", "-b", "4096", "-O", "^64bit,^metadata_csum"],
    &["mkfs.ext4", "-b", "4096", "-O", "^64bit,^metadata_csum,uninit_bg"],
    &["mkfs.ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"],
    &["mkfs.ext4", "-b", "1024", "-O", "^flex_bg,^resize_inode,meta_bg", "-g", "512"],
    &["mkfs.ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"],
    &["mkfs.ext4", "-b", "1024", "-O", "bigalloc,inline_data", "-C", "16384"],
    &["mkfs.ext4", "-b", "4096", "-O", "inline_data", "-I", "256"],
    &["mkfs.ext4", "-b", "4096", "-O", "inline_data,large_dir,ea_inode,metadata_csum_seed", "-I", "512"],
    &["mkfs.ext4", "-b", "65536", "-I", "1024"],
];

/// The number of files in the tree, folders included.
const TREE_COUNT: usize = 1531;

/// Files of all kinds that any user may make.
fn make_tree(folder: &Path) {
    fs::create_dir_all(folder.join("deep/er/still")).unwrap();
    let bytes = |length: usize, seed: usize| {
        (0..length).map(|at| ((at * 31 + at / 251 + seed) % 253) as u8).collect::<Vec<_>>()
    };
    for (number, length) in
        [0, 1, 59, 60, 61, 100, 150, 160, 1023, 1024, 1025, 4096, 4097, 70_000, 300_000, 5_000_000]
            .into_iter()
            .enumerate()
    {
        fs::write(folder.join(format!("file-{length}")), bytes(length, number)).unwrap();
    }
    let sparse = File::create(folder.join("sparse")).unwrap();
    for place in [0, 11, 12, 13, 100, 267, 268, 1035, 1036, 2000, 66_000, 70_000_u64] {
        sparse.write_all_at(format!("here is {place}").as_bytes(), place * 1024).unwrap();
    }
    sparse.write_all_at(b"the end", 80_000_000).unwrap();
    File::create(folder.join("all-hole")).unwrap().set_len(200_000_000).unwrap();
    for length in [1, 59, 60, 61, 500, 1000] {
        symlink("t".repeat(length), folder.join(format!("link-{length}"))).unwrap();
    }
    fs::hard_link(folder.join("file-4097"), folder.join("deep/same as above")).unwrap();
    fs::create_dir(folder.join("many")).unwrap();
    for number in 0..1500 {
        File::create(folder.join(format!("many/a file with a name of some length {number}"))).unwrap();
    }
    fs::create_dir(folder.join("few")).unwrap();
    File::create(folder.join("few/ä\u{1f600}\n")).unwrap();
}

fn children(files: &dyn FileSystem, folder: FileId, first: u64) -> Vec<FolderChild> {
    let mut found = Vec::new();
    files
        .children(folder, first, &mut |child| {
            found.push(child);
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn content(files: &dyn FileSystem, file: FileId, size: u64) -> Vec<u8> {
    let mut bytes = vec![0xaa; size as usize];
    assert_eq!(files.read_at(file, 0, &mut bytes).unwrap() as u64, size);
    bytes
}

/// Compares everything below a folder, and returns the number of files.
fn compare(files: &dyn FileSystem, id: FileId, folder: &Path) -> usize {
    let mut expected: BTreeMap<Vec<u8>, _> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (std::os::unix::ffi::OsStringExt::into_vec(entry.file_name()), entry.path()))
        .collect();
    let mut count = 0;
    for child in children(files, id, 0) {
        let Some(path) = expected.remove(&child.name) else {
            assert_eq!(child.name, b"lost+found", "in {}", folder.display());
            continue;
        };
        count += 1;
        let (status, metadata) = (files.status(child.id).unwrap(), fs::symlink_metadata(&path).unwrap());
        let shown = path.display();
        assert_eq!(status.kind, child.kind, "{shown}");
        assert_eq!(u32::from(status.mode), metadata.mode() & 0o7777, "{shown}");
        assert_eq!((status.uid, status.gid), (metadata.uid(), metadata.gid()), "{shown}");
        assert_eq!(status.modified.seconds(), metadata.mtime(), "{shown}");
        match status.kind {
            FileKind::Folder => count += compare(files, child.id, &path),
            FileKind::SymbolicLink => {
                let target = fs::read_link(&path).unwrap();
                assert_eq!(
                    files.link_target(child.id).unwrap(),
                    target.as_os_str().as_encoded_bytes(),
                    "{shown}"
                );
            }
            _ => compare_file(files, child.id, &path),
        }
    }
    assert!(expected.is_empty(), "{expected:?} is missing");
    count
}

fn compare_file(files: &dyn FileSystem, id: FileId, path: &Path) {
    let status = files.status(id).unwrap();
    let metadata = fs::metadata(path).unwrap();
    assert_eq!(status.size, metadata.len(), "{}", path.display());
    assert_eq!(u64::from(status.links), metadata.nlink(), "{}", path.display());
    if status.size < 100 * MIB {
        assert!(content(files, id, status.size) == fs::read(path).unwrap(), "{}", path.display());
    }
    // Ranges without data read as zeros, and data lies at its reported place.
    let (mut place, mut data) = (0, 0);
    while let Some(range) = files.next_data(id, place).unwrap() {
        assert!(place <= range.start && range.start < range.end && range.end <= status.size, "{range:?}");
        if range.start > place && status.size < 100 * MIB {
            let mut hole = vec![1; (range.start - place) as usize];
            files.read_at(id, place, &mut hole).unwrap();
            assert!(hole.iter().all(|byte| *byte == 0), "{} at {place}", path.display());
        }
        data += range.end - range.start;
        place = range.end;
    }
    if path.ends_with("all-hole") {
        assert!(data <= 60, "what has room in an inode: {data}");
    } else if path.ends_with("sparse") {
        assert!(data > 0 && data < 2 * MIB, "{data}");
    } else {
        assert_eq!(data, status.size, "{}", path.display());
    }
    let (mut odd, from) = (vec![0; 777], status.size.saturating_sub(700));
    assert_eq!(files.read_at(id, from, &mut odd).unwrap() as u64, status.size - from);
    assert_eq!(files.read_at(id, status.size, &mut odd).unwrap(), 0);
    assert_eq!(files.read_at(id, u64::MAX, &mut odd).unwrap(), 0);
}

fn find(files: &dyn FileSystem, path: &str) -> FileId {
    path.split('/').fold(files.root(), |folder, name| {
        files.child(folder, name.as_bytes()).unwrap().unwrap_or_else(|| panic!("no {name} of {path}")).id
    })
}

fn volume(path: &Path) -> Volume {
    let disk = Disk::open(Arc::new(File::open(path).unwrap()));
    assert_eq!(disk.problems(), []);
    disk.volume("p0").unwrap().clone()
}

fn read_all(path: &Path) -> ExtFileSystem {
    ExtFileSystem::open(Arc::new(File::open(path).unwrap())).unwrap()
}

/// A file system made from a folder.
fn made(sandbox: &Sandbox, shape: &[&str], size: u64) -> std::path::PathBuf {
    let image = sandbox.sparse("image", size);
    let folder = sandbox.path("tree");
    let words = [shape, &["-q", "-F", "-N", "4096", "-d", folder.to_str().unwrap(), image.to_str().unwrap()]]
        .concat();
    sandbox.run(&words, "");
    image
}

#[test]
fn every_shape_shows_what_was_put_in() {
    if missing(&["mkfs.ext4", "e2fsck"]) {
        return;
    }
    let sandbox = Sandbox::new();
    make_tree(&sandbox.path("tree"));
    for shape in SHAPES {
        let image = made(&sandbox, shape, 96 * MIB);
        let files = volume(&image).open_file_system().unwrap();
        let count = compare(&*files, files.root(), &sandbox.path("tree"));
        assert_eq!(count, TREE_COUNT, "{shape:?}");
        let same = [find(&*files, "file-4097"), find(&*files, "deep/same as above")];
        assert_eq!(same[0], same[1], "{shape:?}");
    }
}

#[test]
fn what_is_free_agrees_with_e2fsprogs() {
    if missing(&["mkfs.ext4", "dumpe2fs"]) {
        return;
    }
    let sandbox = Sandbox::new();
    make_tree(&sandbox.path("tree"));
    for shape in SHAPES {
        let image = made(&sandbox, shape, 160 * MIB);
        let files = read_all(&image);
        assert!(files.is_clean() && !files.needs_recovery(), "{shape:?}");
        let told = sandbox.run(&["dumpe2fs", image.to_str().unwrap()], "");
        let free: u64 = files.free_blocks().unwrap().iter().map(|run| run.end - run.start).sum();
        let expected = told.lines().find_map(|line| line.strip_prefix("Free blocks:")).unwrap().trim();
        assert_eq!(free, expected.parse().unwrap(), "{shape:?}");
        let mut told_free = varve_image::Ranges::default();
        for line in told.lines().filter_map(|line| line.strip_prefix("  Free blocks: ")) {
            for run in line.split(", ").filter(|run| !run.is_empty()) {
                let (first, last) = run.split_once('-').unwrap_or((run, run));
                // For clusters, the output names the beginning of the last one.
                let cluster = told.lines().find_map(|line| line.strip_prefix("Cluster size:"));
                let cluster = cluster
                    .map_or(1, |size| size.trim().parse::<u64>().unwrap() / u64::from(files.block_bytes()));
                told_free.add(first.trim().parse().unwrap()..last.trim().parse::<u64>().unwrap() + cluster);
            }
        }
        let found: varve_image::Ranges = files.free_blocks().unwrap().into_iter().collect();
        assert_eq!(found, told_free, "{shape:?}");

        let owners = BlockOwners::scan(&files).unwrap();
        let file = find(&files, "file-5000000");
        let runs = files.runs(file).unwrap();
        assert_eq!(
            runs.iter().map(|run| run.count).sum::<u64>(),
            5_000_000_u64.div_ceil(files.block_bytes().into())
        );
        for run in runs {
            let owner = owners.of(run.physical.unwrap() + run.count - 1).unwrap();
            assert_eq!(owner.file, file);
            assert_eq!(owner.logical, run.logical);
        }
        for owner in owners.all() {
            assert!(
                !found.iter().any(|free| free.start < owner.blocks.end && owner.blocks.start < free.end),
                "{owner:?}"
            );
        }
    }
}

#[test]
fn what_only_root_makes_is_shown() {
    if missing(&["mkfs.ext4", "debugfs"]) {
        return;
    }
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("tree")).unwrap();
    fs::write(sandbox.path("tree/file"), "content").unwrap();
    fs::write(sandbox.path("long"), [b'v'; 600]).unwrap();
    fs::write(sandbox.path("longest"), [b'w'; 1020]).unwrap();
    // The list in the kernel's form: version 2, and entries of eight bytes.
    let none = [0xff; 4];
    let list = [
        &[2, 0, 0, 0][..],
        &[1, 0, 6, 0],
        &none,
        &[2, 0, 4, 0, 0xe8, 3, 0, 0],
        &[4, 0, 4, 0],
        &none,
        &[0x10, 0, 6, 0],
        &none,
        &[0x20, 0, 0, 0],
        &none,
    ]
    .concat();
    fs::write(sandbox.path("list"), &list).unwrap();
    for (shape, has_value_inodes) in
        [(&["mkfs.ext4", "-b", "1024", "-O", "ea_inode"][..], true), (&["mkfs.ext3", "-I", "128"], false)]
    {
        let image = made(&sandbox, shape, 16 * MIB);
        let mut script = String::from(
            "mknod c c 4 65\nmknod b b 8 200\nset_inode_field b block[0] 0\nset_inode_field b block[1] 0x11110370\nmknod p p\nea_set file user.short hello\nea_set -f long file trusted.long\n\
             ea_set -f list file system.posix_acl_access\nset_inode_field file uid 100000\nset_inode_field file gid 4000000000\n\
             set_inode_field file mtime @4000000000\nset_inode_field file mode 0104755\n",
        );
        if has_value_inodes {
            script += "ea_set -f longest file user.longest\nset_inode_field file mtime_extra 0x00000007\nset_inode_field file crtime @86400\n";
        }
        sandbox.run(&["debugfs", "-w", "-f", "/dev/stdin", image.to_str().unwrap()], &script);
        let files = read_all(&image);
        let device =
            |name| files.status(find(&files, name)).map(|status| (status.kind, status.device)).unwrap();
        let numbers = |major, minor| Some(varve_image::DeviceNumber { major, minor });
        assert_eq!(device("c"), (FileKind::CharacterDevice, numbers(4, 65)));
        assert_eq!(device("b"), (FileKind::BlockDevice, numbers(259, 70000)));
        assert_eq!(device("p"), (FileKind::Fifo, None));
        let file = find(&files, "file");
        let status = files.status(file).unwrap();
        assert_eq!((status.uid, status.gid, status.mode), (100_000, 4_000_000_000, 0o4755));
        let xattrs: Vec<_> = files
            .xattrs(file)
            .unwrap()
            .into_iter()
            .map(|xattr| (String::from_utf8(xattr.name).unwrap(), xattr.value))
            .collect();
        let mut expected = vec![
            ("system.posix_acl_access".to_owned(), list.clone()),
            ("trusted.long".to_owned(), vec![b'v'; 600]),
            ("user.short".to_owned(), b"hello".to_vec()),
        ];
        if has_value_inodes {
            expected.insert(2, ("user.longest".to_owned(), vec![b'w'; 1020]));
            // The two bits of the epoch reach until 2446.
            assert_eq!(status.modified, FileTime::new(4_000_000_000 - (1 << 32) + 3 * (1 << 32), 1));
            assert_eq!(status.created, Some(FileTime::new(86_400, 0)));
        } else {
            assert_eq!(status.modified, FileTime::new(4_000_000_000 - (1_i64 << 32), 0));
            assert_eq!(status.created, None);
        }
        let names = |list: &[(String, Vec<u8>)]| {
            list.iter().map(|(name, value)| (name.clone(), value.len())).collect::<Vec<_>>()
        };
        assert_eq!(names(&xattrs), names(&expected), "{shape:?}");
        assert_eq!(xattrs, expected, "{shape:?}");
        assert!(matches!(files.read_at(find(&files, "p"), 0, &mut [0]), Err(FileSystemError::Absent { .. })));
        assert!(matches!(files.link_target(file), Err(FileSystemError::Absent { .. })));
        assert!(matches!(files.status(FileId(0)), Err(FileSystemError::Absent { .. })));
        assert!(matches!(files.status(FileId(u64::MAX)), Err(FileSystemError::Absent { .. })));
    }
}

#[test]
fn big_folders_can_be_read_in_parts() {
    if missing(&["mkfs.ext4"]) {
        return;
    }
    let sandbox = Sandbox::new();
    make_tree(&sandbox.path("tree"));
    let files = read_all(&made(&sandbox, &["mkfs.ext4", "-b", "1024"], 96 * MIB));
    let many = find(&files, "many");
    let all = children(&files, many, 0);
    assert_eq!(all.len(), 1500);
    let mut parts = Vec::new();
    while parts.len() < all.len() {
        let wanted = parts.len() + 70;
        files
            .children(many, parts.len() as u64, &mut |child| {
                parts.push(child);
                if parts.len() < wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .unwrap();
    }
    assert_eq!(parts, all);
    assert_eq!(children(&files, many, 1499), all[1499..]);
    assert_eq!(children(&files, many, 1500), []);
}

#[test]
fn a_lost_superblock_is_replaced_by_a_copy() {
    if missing(&["mkfs.ext4"]) {
        return;
    }
    let sandbox = Sandbox::new();
    make_tree(&sandbox.path("tree"));
    for shape in [&["mkfs.ext4", "-b", "1024"], &["mkfs.ext4", "-b", "4096"], &["mkfs.ext2", "-b", "2048"]] {
        let image = made(&sandbox, shape, 200 * MIB);
        File::options().write(true).open(&image).unwrap().write_all_at(&[0; 1024], 1024).unwrap();
        let files = read_all(&image);
        assert_eq!(compare(&files, files.root(), &sandbox.path("tree")), TREE_COUNT, "{shape:?}");
    }
}

#[test]
fn damage_is_named_and_the_rest_is_shown() {
    if missing(&["mkfs.ext4", "debugfs"]) {
        return;
    }
    let sandbox = Sandbox::new();
    make_tree(&sandbox.path("tree"));
    let image = made(&sandbox, &["mkfs.ext4", "-b", "4096"], 96 * MIB);
    let files = read_all(&image);
    let file = find(&files, "file-100");
    let block_bytes = u64::from(files.block_bytes());
    // One byte of an inode changes, and the rest of its block stays as it was.
    let told = sandbox.run(&["debugfs", "-R", &format!("imap <{}>", file.0), image.to_str().unwrap()], "");
    let place = told.split("located at block ").nth(1).unwrap();
    let (block, offset) = place.trim().split_once(", offset ").unwrap();
    let offset = u64::from_str_radix(offset.trim_start_matches("0x"), 16).unwrap();
    let at = block.parse::<u64>().unwrap() * block_bytes + offset + 4;
    let writer = File::options().read(true).write(true).open(&image).unwrap();
    let mut byte = [0];
    writer.read_exact_at(&mut byte, at).unwrap();
    writer.write_all_at(&[byte[0] ^ 1], at).unwrap();
    let files = read_all(&image);
    let damage = files.status(file).unwrap_err().to_string();
    assert_eq!(damage, format!("the inode {} is damaged: it does not match its checksum", file.0));
    assert_eq!(
        content(&files, find(&files, "file-150"), 150),
        fs::read(sandbox.path("tree/file-150")).unwrap()
    );

    // A disk that ends early: files before its end are shown, and those beyond it are reported.
    writer.set_len(40 * MIB).unwrap();
    let files = read_all(&image);
    let late = files.runs(find(&files, "file-5000000")).unwrap();
    assert!(late.iter().any(|run| run.physical.unwrap() * block_bytes < 40 * MIB), "{late:?}");
    let lost = BlockOwners::scan(&files)
        .unwrap()
        .all()
        .iter()
        .find(|owner| owner.blocks.start * block_bytes > 40 * MIB)
        .cloned();
    if let Some(lost) = lost {
        assert!(files.read_at(lost.file, lost.logical * block_bytes, &mut [0]).is_err());
    }
}

#[test]
fn a_volume_of_zeros_is_no_file_system() {
    let zeros: Arc<dyn ReadAt> = Arc::new(vec![0; 1 << 20]);
    let refused = ExtFileSystem::open(zeros).map(drop).unwrap_err();
    assert_eq!(refused.to_string(), "the superblock is damaged: its magic number is missing");
}
