//! NTFS, as `mkfs.ntfs` and NTFS-3G leave it, and damaged since.

mod sandbox;
mod walk;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use sandbox::{Sandbox, missing};
use varve_image::FileKind;
use walk::{Seen, of_folder, open, sample, wade_damaged, walk, without};

const MIB: u64 = 1 << 20;

/// A disk with the sample in it; `None` where nothing can be mounted.
#[expect(clippy::print_stdout, reason = "a test that does not run says so")]
fn disk(sandbox: &Sandbox) -> Option<Vec<u8>> {
    let disk = sandbox.sparse("disk", 24 * MIB);
    let (disk_name, mount) = (disk.to_str().unwrap(), sandbox.path("mount"));
    let source = sandbox.path("source");
    sample(&source);
    fs::hard_link(source.join("large.bin"), source.join("deep/the same")).unwrap();
    // A hole, and an end that was never written.
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(3 * MIB).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", MIB).unwrap();
    drop(sparse);
    fs::create_dir(&mount).unwrap();
    sandbox.run(&["mkfs.ntfs", "-q", "-F", "-f", "-L", "a label", disk_name], "");
    let line = format!("ntfs-3g '{disk_name}' '{}' -o windows_names", mount.display());
    if !std::process::Command::new("sh").args(["-c", &line]).status().unwrap().success() {
        println!("SKIPPED: ntfs-3g cannot mount here");
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

fn unmount(mount: &Path) {
    for words in [["fusermount", "-u"].as_slice(), &["umount"]] {
        let mut command = std::process::Command::new(words[0]);
        if command.args(&words[1..]).arg(mount).status().is_ok_and(|status| status.success()) {
            return;
        }
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
    // NTFS-3G keeps symbolic links in a way of its own, as files of the system.
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

#[test]
fn damage_does_no_harm() {
    if missing(&["mkfs.ntfs", "ntfs-3g"]) {
        return;
    }
    let Some(disk) = disk(&Sandbox::new()) else { return };
    // Where the table of files and the indexes of folders lie.
    let magic = |magic: &[u8; 4]| -> Vec<std::ops::Range<usize>> {
        let is_there = |at: &usize| disk[*at..].starts_with(magic);
        (0..disk.len()).step_by(512).filter(is_there).map(|at| at..at + 1024).collect()
    };
    let mut hot = magic(b"FILE");
    hot.extend(magic(b"INDX"));
    hot.push(0..96);
    wade_damaged(&disk, &hot, 300);
}
