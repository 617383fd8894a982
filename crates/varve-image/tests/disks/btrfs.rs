//! Btrfs, as `mkfs.btrfs` and the kernel write it, and with damage.

mod damage;
mod free;
mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use varve_image::{
    Disk, FileId, FileKind, FileStatus, FileSystem, FileSystemError, FileTime, FolderChild, ReadAt, Xattr,
};

use crate::sandbox::{Sandbox, missing, unmount};

const MIB: u64 = 1 << 20;

/// A mounted volume. It is unmounted at the end, also of a test that fails.
struct Mount(PathBuf);

impl Mount {
    /// Makes a volume and mounts it. `None` if that cannot be done here.
    #[expect(clippy::print_stdout, reason = "a test that does not run says so")]
    fn new(sandbox: &Sandbox, bytes: u64, make: &[&str], options: &str) -> Option<(Self, PathBuf)> {
        if missing(&["mkfs.btrfs", "btrfs", "setfacl", "fallocate", "chattr"]) {
            return None;
        }
        let disk = sandbox.sparse("disk", bytes);
        sandbox.run(&[&["mkfs.btrfs", "-q"], make, &[disk.to_str().unwrap()]].concat(), "");
        let mounted = Self::again(sandbox, &disk, options);
        if mounted.is_none() {
            println!("SKIPPED: Btrfs cannot be mounted here");
        }
        mounted.map(|mount| (mount, disk))
    }

    fn again(sandbox: &Sandbox, disk: &Path, options: &str) -> Option<Self> {
        let mount = sandbox.path("mount");
        fs::create_dir_all(&mount).unwrap();
        let options = format!("loop,subvolid=5,{options}");
        let status =
            Command::new("mount").args(["-t", "btrfs", "-o", &options]).arg(disk).arg(&mount).status();
        status.is_ok_and(|status| status.success()).then_some(Self(mount))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn run(&self, script: &str) {
        let output = Command::new("sh").args(["-ec", script]).current_dir(&self.0).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

fn open(disk: impl ReadAt + 'static) -> Arc<dyn FileSystem> {
    Disk::open(Arc::new(disk)).volume("p0").expect("no table").open_file_system().unwrap()
}

fn noise(bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) | 1;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()[3]
    };
    (0..bytes).map(next).collect()
}

fn lines(count: u32) -> Vec<u8> {
    (0..count).flat_map(|number| format!("line {number} of a text\n").into_bytes()).collect()
}

/// Makes files of all kinds, with all kinds of content.
fn populate(mount: &Mount) {
    let put = |name: &str, bytes: &[u8]| {
        let path = mount.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    put("empty", b"");
    put("inline", b"a few bytes");
    put("inline text", &lines(60));
    put("one sector", &noise(4096, 1));
    put("odd", &noise(70_001, 2));
    put("large", &noise(3_000_017, 3));
    put("text", &lines(100_000));
    put("mixed", &[lines(9000), noise(300_000, 4), vec![0; 500_000], lines(20_000)].concat());
    put("deep/er/and/deeper/end", &noise(5000, 5));
    put("Grüße und 蟹 in einem recht langen Namen %2F", b"named");
    let sparse = File::create(mount.path("sparse")).unwrap();
    sparse.set_len(9 * MIB).unwrap();
    sparse.write_all_at(b"in the middle", 5 * MIB + 77).unwrap();
    sparse.write_all_at(&noise(20_000, 6), 1_000_000).unwrap();
    let grown = File::create(mount.path("grown")).unwrap();
    grown.write_all_at(b"inline, and then longer", 0).unwrap();
    grown.sync_all().unwrap();
    grown.set_len(100_000).unwrap();
    fs::hard_link(mount.path("large"), mount.path("deep/the same")).unwrap();
    symlink("deep/er", mount.path("link")).unwrap();
    symlink("x".repeat(3000), mount.path("long link")).unwrap();
    mount.run(
        "fallocate -l 400000 prealloc; printf abc | dd of=prealloc bs=1 seek=200000 conv=notrunc status=none
        touch nocow; chattr +C nocow; head -c 300000 /dev/urandom >nocow
        cp large holey; sync holey; fallocate -p -o 100000 -l 900000 holey
        cp --reflink=always large shared; sync; printf changed | dd of=shared bs=1 seek=1234567 conv=notrunc status=none
        mknod null c 1 3; mknod disk-27 b 259 65537; mkfifo fifo
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")' || true
        chmod 6755 text; chown 1000:4000000000 text; chmod 1777 deep
        setfacl -m u:1234:rw inline; setfacl -d -m g:77:rx deep
        touch -h -d '1901-02-03T04:05:06.123456789Z' odd; touch -d '2400-01-01T00:00:00.5Z' inline
        touch -h -d '2024-02-29T12:34:56.7Z' link",
    );
    for (file, name, value) in [
        ("odd", "user.note", &b"a note"[..]),
        ("odd", "trusted.x", b""),
        ("odd", "user.long", &noise(3000, 7)),
        ("deep", "user.of a folder", b"1"),
    ] {
        rustix::fs::setxattr(mount.path(file), name, value, rustix::fs::XattrFlags::empty()).unwrap();
    }
    mount.run(
        "btrfs subvolume create sub >/dev/null; cp -a text odd sub/; mkdir sub/in
        btrfs subvolume create sub/in/nested >/dev/null; echo here >sub/in/nested/file
        btrfs subvolume snapshot -r sub deep/before >/dev/null; echo new >sub/new; rm sub/odd
        btrfs subvolume snapshot sub again >/dev/null; mv again renamed
        btrfs subvolume create gone >/dev/null; echo x >gone/x; btrfs subvolume delete gone >/dev/null",
    );
}

fn time(seconds: i64, nanoseconds: i64) -> FileTime {
    FileTime::new(seconds, u32::try_from(nanoseconds).unwrap())
}

fn listed(files: &dyn FileSystem, folder: FileId) -> Vec<FolderChild> {
    let mut children = Vec::new();
    files
        .children(folder, 0, &mut |child| {
            children.push(child);
            ControlFlow::Continue(())
        })
        .unwrap();
    children
}

fn content(files: &dyn FileSystem, id: FileId, size: u64) -> Vec<u8> {
    let mut whole = vec![0xee; usize::try_from(size).unwrap() + 10];
    let length = files.read_at(id, 0, &mut whole).unwrap();
    assert_eq!(length as u64, size);
    whole.truncate(length);
    whole
}

fn xattrs_of(path: &Path) -> Vec<Xattr> {
    let (mut names, mut value) = (vec![0; 10_000], vec![0; 10_000]);
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut xattrs: Vec<_> = names
        .map(|name| {
            let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            Xattr { name: name.into(), value: value[..length].into() }
        })
        .collect();
    xattrs.sort();
    xattrs
}

/// The state of a comparison with a mount.
#[derive(Default)]
struct Compared {
    /// The device and the inode of each file.
    ids: BTreeMap<FileId, (u64, u64)>,
    /// The time at which the kernel began to replay logs. It sets the times of some folders and
    /// files then.
    recovered: Option<i128>,
}

impl Compared {
    fn is_older(&self, time: FileTime) -> bool {
        self.recovered.is_none_or(|recovered| time.wide_nanoseconds() < recovered)
    }
}

/// Compares a folder with that of a mount, and everything below it. Returns the number of files.
fn compare(files: &dyn FileSystem, id: FileId, real: &Path, compared: &mut Compared) -> usize {
    let children = listed(files, id);
    let names: BTreeSet<_> = fs::read_dir(real).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let found: BTreeSet<_> =
        children.iter().map(|child| OsStr::from_bytes(&child.name).to_os_string()).collect();
    assert_eq!(found, names, "{}", real.display());
    assert_eq!(found.len(), children.len(), "{}", real.display());
    for first in [1, children.len() / 2, children.len()] {
        let mut page = Vec::new();
        let mut take = |child| {
            page.push(child);
            if page.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        files.children(id, first as u64, &mut take).unwrap();
        let rest = children.get(first..).unwrap_or_default();
        assert_eq!(page, rest[..rest.len().min(3)]);
    }
    let mut count = children.len();
    for child in children {
        let path = real.join(OsStr::from_bytes(&child.name));
        let what = path.display();
        assert_eq!(files.child(id, &child.name).unwrap().as_ref(), Some(&child), "{what}");
        let (status, metadata) = (files.status(child.id).unwrap(), fs::symlink_metadata(&path).unwrap());
        assert_eq!(status.kind, child.kind, "{what}");
        // No two inodes have the same number.
        let inode = (metadata.dev(), metadata.ino());
        // All stand-ins of a mount have the inode 2.
        let is_stand_in = metadata.ino() == 2;
        assert!(is_stand_in || *compared.ids.entry(child.id).or_insert(inode) == inode, "{what}");
        compare_status(&status, &metadata, &path, compared);
        compare_content(files, child.id, &status, &path);
        if status.kind == FileKind::Folder {
            count += compare(files, child.id, &path, compared);
        }
        let xattrs = files.xattrs(child.id).unwrap();
        assert_eq!(xattrs, if is_stand_in { Vec::new() } else { xattrs_of(&path) }, "{what}");
    }
    count
}

fn compare_status(status: &FileStatus, metadata: &fs::Metadata, path: &Path, compared: &Compared) {
    let what = path.display();
    let kind = metadata.file_type();
    let expected = match () {
        () if kind.is_dir() => FileKind::Folder,
        () if kind.is_symlink() => FileKind::SymbolicLink,
        () if kind.is_char_device() => FileKind::CharacterDevice,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () => FileKind::File,
    };
    assert_eq!(status.kind, expected, "{what}");
    assert_eq!(u32::from(status.mode), metadata.mode() & 0o7777, "{what}");
    assert_eq!((status.uid, status.gid), (metadata.uid(), metadata.gid()), "{what}");
    let size = if kind.is_file() || kind.is_symlink() { metadata.len() } else { 0 };
    assert_eq!(status.size, size, "{what}");
    if kind.is_char_device() || kind.is_block_device() {
        let device = status.device.unwrap();
        let (high, low) = (metadata.rdev() >> 32, metadata.rdev());
        assert_eq!(u64::from(device.major), high & !0xfff | low >> 8 & 0xfff, "{what}");
        assert_eq!(u64::from(device.minor), low >> 12 & 0xffff_ff00 | low & 0xff, "{what}");
    }
    if metadata.ino() == 2 {
        return;
    }
    assert_eq!(u64::from(status.links), metadata.nlink(), "{what}");
    let modified = time(metadata.mtime(), metadata.mtime_nsec());
    let changed = time(metadata.ctime(), metadata.ctime_nsec());
    assert!(status.modified == modified || !compared.is_older(modified), "{what}: {:?}", status.modified);
    assert!(status.changed == Some(changed) || !compared.is_older(changed), "{what}: {:?}", status.changed);
    let created = metadata.created().unwrap().duration_since(UNIX_EPOCH).unwrap();
    let created = FileTime::new(i64::try_from(created.as_secs()).unwrap(), created.subsec_nanos());
    assert_eq!(status.created, Some(created), "{what}");
}

fn compare_content(files: &dyn FileSystem, id: FileId, status: &FileStatus, path: &Path) {
    let what = path.display();
    if status.kind == FileKind::SymbolicLink {
        let target = fs::read_link(path).unwrap();
        assert_eq!(files.link_target(id).unwrap(), target.as_os_str().as_bytes(), "{what}");
    }
    if status.kind != FileKind::File {
        return;
    }
    let expected = fs::read(path).unwrap();
    let whole = content(files, id, status.size);
    let differs = whole.iter().zip(&expected).position(|(one, other)| one != other);
    assert_eq!(differs, None, "{what}");
    for place in (0..whole.len()).step_by(whole.len() / 7 + 1) {
        let mut some = vec![0xee; 5000.min(whole.len() - place)];
        assert_eq!(files.read_at(id, place as u64, &mut some).unwrap(), some.len());
        assert!(some == whole[place..place + some.len()], "{what} at {place}");
    }
    let mut data_end = 0;
    while let Some(data) = files.next_data(id, data_end).unwrap() {
        let hole = &whole[usize::try_from(data_end).unwrap()..usize::try_from(data.start).unwrap()];
        assert!(hole.iter().all(|byte| *byte == 0), "{what}: a hole has bytes");
        assert!(data.start < data.end && data.end <= status.size, "{what}: {data:?}");
        data_end = data.end;
    }
    assert!(whole[usize::try_from(data_end).unwrap()..].iter().all(|byte| *byte == 0), "{what}: its end");
}

/// Compares a disk with what the kernel shows of it.
fn compare_mounted(sandbox: &Sandbox, disk: &Path) -> usize {
    let files = open(File::open(disk).unwrap());
    assert_eq!(files.warning(), None);
    // Times of access would change.
    let mount = Mount::again(sandbox, disk, "ro,noatime").unwrap();
    compare(&*files, files.root(), &mount.0, &mut Compared::default())
}

fn id_of(files: &dyn FileSystem, path: &str) -> FileId {
    let step = |folder, name: &str| files.child(folder, name.as_bytes()).unwrap().unwrap().id;
    path.split('/').fold(files.root(), step)
}

#[test]
fn files_are_those_that_a_mount_shows() {
    for (make, options) in [
        (&["-m", "dup"][..], "max_inline=2048"),
        (&["-m", "single", "-n", "4096", "--csum", "xxhash"], "compress-force=zlib"),
        (&["-d", "raid0", "-m", "raid0"], "compress=zstd"),
        (&["-n", "65536", "--csum", "sha256", "-R", "quota"], "compress-force=lzo"),
        (&["--mixed", "--csum", "blake2"], "compress-force=zstd"),
        (&["-O", "^no-holes,^skinny-metadata,^extref"], "compress=lzo,max_inline=4000"),
    ] {
        let sandbox = Sandbox::new();
        let Some((mount, disk)) = Mount::new(&sandbox, 200 * MIB, make, options) else { return };
        populate(&mount);
        drop(mount);
        let count = compare_mounted(&sandbox, &disk);
        assert!(count > 40, "{count}");
    }
}

#[test]
fn subvolumes_are_folders() {
    let sandbox = Sandbox::new();
    let Some((mount, disk)) = Mount::new(&sandbox, 200 * MIB, &[], "defaults") else { return };
    populate(&mount);
    drop(mount);
    let files = open(File::open(disk).unwrap());
    let names = |path: &str| {
        let mut names: Vec<_> =
            listed(&*files, id_of(&*files, path)).into_iter().map(|child| child.name).collect();
        names.sort();
        names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names("sub"), ["in", "new", "text"]);
    assert_eq!(names("deep/before"), ["in", "odd", "text"]);
    assert_eq!(names("sub/in/nested"), ["file"]);
    // A snapshot has an empty folder in place of each other subvolume.
    assert_eq!(names("deep/before/in"), ["nested"]);
    assert_eq!(names("deep/before/in/nested"), [""; 0]);
    assert_eq!(names("renamed/in/nested"), [""; 0]);
    let stand_ins = [id_of(&*files, "deep/before/in/nested"), id_of(&*files, "renamed/in/nested")];
    assert_ne!(stand_ins[0], stand_ins[1]);
    let missing = files.child(files.root(), b"gone").unwrap();
    assert_eq!(missing, None);
    let refused = files.read_at(stand_ins[0], 0, &mut [0]);
    assert!(matches!(refused, Err(FileSystemError::Absent { .. })));
}

/// Makes gaps in a volume and fills it: then new files are in very many pieces.
fn age(mount: &Mount) {
    const COUNT: usize = 1000;
    let small = |number: usize| mount.path(&format!("small/{}/{number}", number / 100));
    for number in 0..COUNT {
        fs::create_dir_all(small(number).parent().unwrap()).unwrap();
        fs::write(small(number), noise(40_000, u32::try_from(number).unwrap())).unwrap();
    }
    mount.run("sync");
    for number in (0..COUNT).step_by(2) {
        fs::remove_file(small(number)).unwrap();
    }
    mount.run("sync");
    let pieces: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(mount.path("mail box"), pieces).unwrap();
    // Every second sector, and later the others.
    let file = File::create(mount.path("table")).unwrap();
    for start in [0, 4096] {
        for number in 0..1500_u64 {
            file.write_all_at(&noise(4096, 7), number * 8192 + start).unwrap();
        }
        file.sync_all().unwrap();
    }
    let rest = File::create(mount.path("rest")).unwrap();
    let is_written = |number: &u64| rest.write_all_at(&noise(1 << 20, 11), number << 20).is_ok();
    assert!((0..200).take_while(is_written).count() < 200, "it is not full");
}

#[test]
fn an_aged_volume_is_read_whole() {
    let sandbox = Sandbox::new();
    let Some((mount, disk)) = Mount::new(&sandbox, 120 * MIB, &["-m", "single"], "noatime") else { return };
    age(&mount);
    drop(mount);
    assert!(compare_mounted(&sandbox, &disk) > 500);
}

#[test]
fn large_folders_are_listed_in_pages() {
    const COUNT: usize = 20_000;
    let sandbox = Sandbox::new();
    let Some((mount, disk)) = Mount::new(&sandbox, 200 * MIB, &["-n", "4096"], "noatime") else { return };
    fs::create_dir(mount.path("many")).unwrap();
    let name = |number: usize| format!("a rather long name {number:05}");
    for number in 0..COUNT {
        File::create(mount.path("many").join(name(number))).unwrap();
    }
    // Two names with the same hash share an item.
    let twins = ["n255990120062", "n794891356550"];
    twins.iter().for_each(|twin| fs::write(mount.path(twin), twin).unwrap());
    drop(mount);
    let files = open(File::open(disk).unwrap());
    for twin in twins {
        assert_eq!(content(&*files, id_of(&*files, twin), twin.len() as u64), twin.as_bytes());
    }
    let folder = id_of(&*files, "many");
    let mut found = 0;
    while found < COUNT {
        let mut page = 0;
        files
            .children(folder, found as u64, &mut |child| {
                assert_eq!(child.name, name(found + page).into_bytes());
                page += 1;
                if page == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert!(page > 0);
        found += page;
    }
    assert_eq!(found, COUNT);
    for number in (0..COUNT).step_by(97) {
        assert!(files.child(folder, name(number).as_bytes()).unwrap().is_some());
    }
    assert_eq!(files.child(folder, b"a rather long name 20000").unwrap(), None);
}
