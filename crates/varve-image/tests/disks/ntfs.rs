//! NTFS, as `mkfs.ntfs` and NTFS-3G write it, and with damage.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::sandbox::{Sandbox, missing};
use crate::walk::{Seen, of_folder, open, sample, wade_damaged, walk, without};
use varve_image::{FileId, FileKind, FileSystem, FileSystemError, LeaveOut, LeftOut};

const MIB: u64 = 1 << 20;
const RECORD_BYTES: usize = 1024;

/// Mounts a volume. Returns false if nothing can be mounted.
#[expect(clippy::print_stdout, reason = "a test that does not run says so")]
fn mounted(disk: &str, mount: &Path) -> bool {
    let line = format!("ntfs-3g '{disk}' '{}' -o windows_names,compression", mount.display());
    let is_mounted = std::process::Command::new("sh").args(["-c", &line]).status().unwrap().success();
    if !is_mounted {
        println!("SKIPPED: ntfs-3g cannot mount here");
    }
    is_mounted
}

/// A disk with the sample in it. `None` if nothing can be mounted.
fn disk(sandbox: &Sandbox) -> Option<Vec<u8>> {
    let disk = sandbox.sparse("disk", 24 * MIB);
    let (disk_name, mount) = (disk.to_str().unwrap(), sandbox.path("mount"));
    let source = sandbox.path("source");
    sample(&source);
    fs::hard_link(source.join("large.bin"), source.join("deep/the same")).unwrap();
    // A file with a hole, and with an end that was never written.
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(3 * MIB).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", MIB).unwrap();
    drop(sparse);
    fs::write(source.join("pagefile.sys"), vec![0xa5; 200_000]).unwrap();
    fs::create_dir(&mount).unwrap();
    sandbox.run(&["mkfs.ntfs", "-q", "-F", "-f", "-L", "a label", disk_name], "");
    if !mounted(disk_name, &mount) {
        return None;
    }
    let line = format!("cp -a '{}/.' '{}/' && sync", source.display(), mount.display());
    let copied = std::process::Command::new("sh").args(["-c", &line]).status().unwrap();
    let link = symlink("deep/er", mount.join("link"));
    unmount(&mount);
    assert!(copied.success());
    link.unwrap();
    Some(fs::read(disk).unwrap())
}

/// Unmounts a volume. It may be in use for a moment, as others look at all mounts.
#[expect(clippy::disallowed_methods, reason = "the volume is in use in real time")]
fn unmount(mount: &Path) {
    for _ in 0..100 {
        for words in [["fusermount", "-u"].as_slice(), &["umount"]] {
            let mut command = std::process::Command::new(words[0]);
            if command.args(&words[1..]).arg(mount).status().is_ok_and(|status| status.success()) {
                return;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("{} cannot be unmounted", mount.display());
}

#[test]
fn files_are_those_that_were_put() {
    if missing(&["mkfs.ntfs", "ntfs-3g"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let Some(disk) = disk(&sandbox) else { return };
    let files = open(disk);
    let forget = |seen: &mut Seen| seen.mode = 0;
    let mut found = without(walk(&*files), forget);
    // NTFS-3G keeps symbolic links in its own form, as system files.
    let link = found.remove("/link").unwrap();
    assert!(link.kind == FileKind::SymbolicLink || link.kind == FileKind::File);
    let expected = without(of_folder(&sandbox.path("source")), forget);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (path, seen) in &expected {
        assert!(
            found[path] == *seen,
            "{path}: {:?}",
            (found[path].kind, found[path].size, found[path].modified)
        );
    }
    let id_of = |name: &[u8]| files.child(files.root(), name).unwrap().unwrap().id;
    let deep = id_of(b"deep");
    let twin = files.child(deep, b"the same").unwrap().unwrap().id;
    assert_eq!((twin, files.status(twin).unwrap().links), (id_of(b"large.bin"), 2));
    let first = files.next_data(id_of(b"sparse"), 0).unwrap().unwrap();
    assert!(first.start > 0 && first.start <= MIB, "{first:?}");
}

/// Fills a mounted volume with small files, removes every second one, and fills the gaps: then a
/// large file, the file table and the index of a folder are in very many pieces.
fn age(mount: &Path) {
    let small = |number: usize| mount.join(format!("small/{}/{number}", number / 100));
    let mut count = 0;
    loop {
        let path = small(count);
        let is_made = fs::create_dir_all(path.parent().unwrap()).is_ok();
        if !is_made || fs::write(path, vec![u8::try_from(count % 251).unwrap(); 3000]).is_err() {
            break;
        }
        count += 1;
    }
    assert!(count > 2000, "{count}");
    // The last part of the volume is reserved for the file table.
    while fs::write(mount.join(format!("rest-{count}")), [1; 4096]).is_ok() {
        count += 1;
    }
    for number in (0..count).step_by(2) {
        let _ = fs::remove_file(small(number));
    }
    // The pieces differ, so a wrong order or a missing one is noticed.
    let pieces: Vec<u8> = (0..1500_u32).flat_map(|number| number.to_le_bytes().repeat(1024)).collect();
    fs::write(mount.join("mail box"), pieces).unwrap();
    fs::create_dir(mount.join("many")).unwrap();
    for number in 0..6000 {
        if fs::write(mount.join(format!("many/a rather long name {number:05}")), b"within its record")
            .is_err()
        {
            assert!(number > 1000, "{number}");
            break;
        }
    }
}

#[test]
fn an_aged_volume_is_read_whole() {
    if missing(&["mkfs.ntfs", "ntfs-3g"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let (disk, mount) = (sandbox.sparse("disk", 40 * MIB), sandbox.path("mount"));
    let disk_name = disk.to_str().unwrap();
    fs::create_dir(&mount).unwrap();
    sandbox.run(&["mkfs.ntfs", "-q", "-F", "-f", "-c", "4096", disk_name], "");
    if !mounted(disk_name, &mount) {
        return;
    }
    age(&mount);
    let forget = |seen: &mut Seen| seen.mode = 0;
    let expected = without(of_folder(&mount), forget);
    unmount(&mount);
    let bytes = fs::read(disk).unwrap();
    let table_list = attribute(&bytes, record(&bytes, FileId(0)), 0x20);
    assert_eq!(number_at(&bytes, table_list, 4), 0x20, "the file table is in too few pieces");
    let files = open(bytes);
    assert_eq!(files.warning(), None);
    let found = without(walk(&*files), forget);
    assert!(found.keys().eq(expected.keys()), "{} of {} files", found.len(), expected.len());
    for (path, seen) in &expected {
        assert!(found[path] == *seen, "{path}: {:?}", (found[path].kind, found[path].size));
    }
}

#[test]
fn compressed_files_and_streams_are_read() {
    if missing(&["mkfs.ntfs", "ntfs-3g", "setfattr"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let (disk, mount) = (sandbox.sparse("disk", 24 * MIB), sandbox.path("mount"));
    let disk_name = disk.to_str().unwrap();
    fs::create_dir(&mount).unwrap();
    sandbox.run(&["mkfs.ntfs", "-q", "-F", "-f", "-c", "4096", disk_name], "");
    if !mounted(disk_name, &mount) {
        return;
    }
    let packed = mount.join("packed");
    fs::create_dir(&packed).unwrap();
    // New files in this folder are compressed.
    sandbox
        .run(&["setfattr", "-n", "system.ntfs_attrib_be", "-v", "0x00000800", packed.to_str().unwrap()], "");
    let text: Vec<u8> = (0..60_000_u32).flat_map(|number| format!("line {number}\n").into_bytes()).collect();
    let noise: Vec<u8> =
        (0..300_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
    let mixed = [&text[..100_001], &[0; 200_000], &noise, &text].concat();
    for (name, content) in [("text", &text), ("noise", &noise), ("mixed", &mixed)] {
        fs::write(packed.join(name), content).unwrap();
    }
    let text_path = packed.join("text");
    sandbox.run(&["setfattr", "-n", "user.note", "-v", "beside it", text_path.to_str().unwrap()], "");
    let used = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&text_path).unwrap()) * 512;
    assert!(used < text.len() as u64 / 2, "it is not compressed: {used} of {} bytes", text.len());
    unmount(&mount);
    let files = open(fs::read(disk).unwrap());
    let folder = id_of(&*files, "packed");
    for (name, content) in [("text", &text), ("noise", &noise), ("mixed", &mixed)] {
        let id = files.child(folder, name.as_bytes()).unwrap().unwrap().id;
        let mut bytes = vec![1; content.len() + 10];
        let length = files.read_at(id, 0, &mut bytes).unwrap();
        assert!(&bytes[..length] == content, "{name}");
        for offset in [1_u64, 65_535, 65_536, 131_000] {
            let mut part = [1; 70_000];
            let length = files.read_at(id, offset, &mut part).unwrap();
            let from = usize::try_from(offset).unwrap();
            assert!(part[..length] == content[from..from + length], "{name} from {offset}");
        }
        let notes: Vec<_> =
            files.xattrs(id).unwrap().into_iter().map(|xattr| (xattr.name, xattr.value)).collect();
        let expected =
            if name == "text" { vec![(b"user.note".to_vec(), b"beside it".to_vec())] } else { Vec::new() };
        assert_eq!(notes, expected, "{name}");
    }
}

fn number_at(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// The offset of a record. The first records of the table are contiguous.
fn record(disk: &[u8], file: FileId) -> usize {
    let cluster_bytes = number_at(disk, 11, 2) * usize::from(disk[13]);
    number_at(disk, 48, 8) * cluster_bytes + usize::try_from(file.0).unwrap() * RECORD_BYTES
}

/// The offset of the attribute of this kind in a record, or of the end if there is none.
fn attribute(disk: &[u8], record: usize, kind: usize) -> usize {
    let mut at = record + number_at(disk, record + 20, 2);
    while ![kind, 0xffff_ffff].contains(&number_at(disk, at, 4)) {
        at += number_at(disk, at + 4, 4);
    }
    at
}

/// Turns a file into a reparse point in the form of NTFS.
fn make_reparse_point(disk: &mut [u8], file: FileId, kind: u32) {
    let record = record(disk, file);
    // The last two bytes of each sector are kept at the beginning.
    let kept = record + number_at(disk, record + 4, 2);
    let ends = [(record + 510, kept + 2), (record + 1022, kept + 4)];
    ends.iter().for_each(|(end, kept)| disk.copy_within(*kept..*kept + 2, *end));
    let info = attribute(disk, record, 0x10);
    disk[info + 24 + 33] |= 4;
    let end = attribute(disk, record, 0xffff_ffff);
    let mut point = vec![0; 40];
    point[0] = 0xc0;
    point[4] = 40;
    point[14] = 9;
    point[16] = 16;
    point[20] = 24;
    point[24..28].copy_from_slice(&kind.to_le_bytes());
    point[28] = 8;
    point.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let used = end + point.len() - record;
    assert!(used < RECORD_BYTES);
    disk[end..end + point.len()].copy_from_slice(&point);
    disk[record + 24..record + 28].copy_from_slice(&u32::try_from(used).unwrap().to_le_bytes());
    for (end, place) in ends {
        disk.copy_within(end..end + 2, place);
        disk.copy_within(kept..kept + 2, end);
    }
}

fn id_of(files: &dyn FileSystem, name: &str) -> FileId {
    files.child(files.root(), name.as_bytes()).unwrap().unwrap().id
}

#[test]
fn content_that_is_kept_elsewhere_is_not_shown_as_zeros() {
    if missing(&["mkfs.ntfs", "ntfs-3g"]) {
        return;
    }
    let Some(disk) = disk(&Sandbox::new()) else { return };
    let whole = open(disk.clone());
    for (kind, feature) in [
        (0x8000_0017, "WOF"),
        (0x8000_0013, "deduplication"),
        (0x9000_001a, "cloud"),
        (0x9000_301a, "cloud"),
        (0x8000_0007, "0x80000007"),
    ] {
        let mut disk = disk.clone();
        for name in ["sparse", "large.bin", "one byte", "EMPTY"] {
            make_reparse_point(&mut disk, id_of(&*whole, name), kind);
        }
        let files = open(disk);
        let sparse = id_of(&*files, "sparse");
        let status = files.status(sparse).unwrap();
        assert_eq!((status.kind, status.size), (FileKind::File, 3 * MIB));
        let mut bytes = [1; 100];
        match files.read_at(sparse, 5000, &mut bytes) {
            Err(FileSystemError::Unsupported { feature: told, .. }) => {
                assert!(told.contains(feature), "{told}")
            }
            other => panic!("{kind:#x}: {other:?}"),
        }
        assert_eq!(files.places(sparse).unwrap(), None);
        // The whole content of these files is on the disk, even if it is also kept elsewhere.
        for name in ["large.bin", "one byte", "EMPTY"] {
            let (id, mut bytes, mut expected) = (id_of(&*files, name), vec![1; 400_000], vec![1; 400_000]);
            let length = files.read_at(id, 0, &mut bytes).unwrap();
            assert_eq!(length, whole.read_at(id, 0, &mut expected).unwrap(), "{name}");
            assert!(bytes == expected, "{name}");
        }
    }
}

#[test]
fn a_file_that_has_lost_its_content_is_not_shown_as_empty() {
    if missing(&["mkfs.ntfs", "ntfs-3g"]) {
        return;
    }
    let Some(mut disk) = disk(&Sandbox::new()) else { return };
    let whole = open(disk.clone());
    let [lost, empty] = ["one byte", "EMPTY"].map(|name| id_of(&*whole, name));
    for id in [lost, empty] {
        let data = attribute(&disk, record(&disk, id), 0x80);
        disk[data..data + 4].fill(0xff);
    }
    let files = open(disk);
    for problem in [files.status(lost).unwrap_err(), files.read_at(lost, 0, &mut [0]).unwrap_err()] {
        assert!(problem.to_string().contains("its folder states 1 bytes"), "{problem}");
    }
    assert_eq!(files.status(empty).unwrap().size, 0);
}

#[test]
fn memory_is_left_out_of_what_was_left_in_order() {
    if missing(&["mkfs.ntfs", "ntfs-3g"]) {
        return;
    }
    let Some(disk) = disk(&Sandbox::new()) else { return };
    let left_out = |disk: &[u8]| {
        let found = LeftOut::find(std::sync::Arc::new(disk.to_vec()), LeaveOut { swap: true, free: false });
        let [part] = found.parts() else { panic!("{found:?}") };
        assert_eq!(part.what, "pagefile.sys");
        assert_eq!(part.bytes, found.ranges().total());
        (part.bytes, part.kept_because.clone())
    };
    assert_eq!(left_out(&disk), (200_000, None));
    let kept = (0, Some("its file system was not unmounted cleanly".to_owned()));
    // The volume is marked as to be checked.
    let mut dirty = disk.clone();
    let about = attribute(&disk, record(&disk, FileId(3)), 0x70);
    dirty[about + number_at(&disk, about + 20, 2) + 10] |= 1;
    assert_eq!(left_out(&dirty), kept);
    // The log is in use, or was closed cleanly.
    let log = usize::try_from(open(disk.clone()).places(FileId(2)).unwrap().unwrap()[0].start).unwrap();
    for (flags, expected) in [(0, kept), (2, (200_000, None))] {
        let mut logged = disk.clone();
        for page in [log, log + 4096] {
            logged[page..page + 4096].fill(0);
            logged[page..page + 4].copy_from_slice(b"RSTR");
            logged[page + 24] = 48;
            logged[page + 62] = flags;
        }
        assert_eq!(left_out(&logged), expected);
    }
}

#[test]
fn damage_does_no_harm() {
    if missing(&["mkfs.ntfs", "ntfs-3g"]) {
        return;
    }
    let Some(disk) = disk(&Sandbox::new()) else { return };
    // The places of the file table and of the folder indexes.
    let magic = |magic: &[u8; 4]| -> Vec<std::ops::Range<usize>> {
        let is_there = |at: &usize| disk[*at..].starts_with(magic);
        (0..disk.len()).step_by(512).filter(is_there).map(|at| at..at + 1024).collect()
    };
    let mut hot = magic(b"FILE");
    hot.extend(magic(b"INDX"));
    hot.push(0..96);
    wade_damaged(&disk, &hot, 300);
}
