//! exFAT, as `mkfs.exfat` and its driver write it, and with damage.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::sandbox::{Sandbox, missing};
use crate::walk::{Seen, of_folder, open, sample, wade_damaged, walk, without};
use varve_image::FileKind;

const MIB: u64 = 1 << 20;

/// A disk with the sample in it, some files in many pieces. `None` if nothing can be mounted.
#[expect(clippy::print_stdout, reason = "a test that does not run says so")]
fn disk(sandbox: &Sandbox) -> Option<Vec<u8>> {
    if missing(&["mkfs.exfat", "mount.exfat-fuse"]) {
        return None;
    }
    let disk = sandbox.sparse("disk", 24 * MIB);
    let (disk_name, mount, source) = (disk.to_str().unwrap(), sandbox.path("mount"), sandbox.path("source"));
    sample(&source);
    fs::create_dir(&mount).unwrap();
    sandbox.run(&["mkfs.exfat", "-L", "A LABEL", "-c", "4096", disk_name], "");
    // As root, the driver accepts only a device. As another user it accepts a file.
    let attached = Command::new("losetup").args(["-f", "--show", disk_name]).output().unwrap();
    let device = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
    let given = if device.is_empty() { disk_name } else { &device };
    // The driver runs in the foreground: when it ends, it has written everything.
    let mut driver = Command::new("mount.exfat-fuse")
        .args(["-d", given, mount.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let succeeds = |words: &[&str]| Command::new(words[0]).args(&words[1..]).status().unwrap().success();
    let is_mounted = || succeeds(&["mountpoint", "-q", mount.to_str().unwrap()]);
    while !is_mounted() && driver.try_wait().unwrap().is_none() {
        assert!(succeeds(&["sleep", "0.05"]));
    }
    let filled = is_mounted().then(|| fill(&source, &mount));
    if filled.is_some() {
        let mount = mount.to_str().unwrap();
        let taken_away = succeeds(&["umount", mount]) || succeeds(&["fusermount3", "-u", mount]);
        assert!(taken_away, "cannot unmount {mount}");
    }
    driver.wait().unwrap();
    if !device.is_empty() {
        assert!(succeeds(&["losetup", "-d", &device]));
    }
    let Some(filled) = filled else {
        println!("SKIPPED: exfat-fuse cannot mount here");
        return None;
    };
    filled.unwrap();
    Some(fs::read(disk).unwrap())
}

/// Removed files leave holes, and the next files are put into these. Two files that grow in turns
/// have interleaved pieces.
fn fill(source: &Path, mount: &Path) -> std::io::Result<()> {
    let line = format!(
        "cp -r --preserve=timestamps '{0}/many' '{1}/' && rm '{1}/many/file number 1'[0-9]* && cp -r --preserve=timestamps '{0}/.' '{1}/'",
        source.display(),
        mount.display()
    );
    assert!(Command::new("sh").args(["-c", &line]).status()?.success());
    for _ in 0..40 {
        for name in ["one in turns", "other in turns"] {
            let mut file = fs::OpenOptions::new().create(true).append(true).open(mount.join(name))?;
            std::io::Write::write_all(&mut file, &[name.as_bytes()[0]; 5000])?;
        }
    }
    // A file whose end was never written.
    let sparse = fs::File::create(mount.join("sparse"))?;
    sparse.set_len(100_000)?;
    Ok(())
}

#[test]
fn files_are_those_that_were_put() {
    let sandbox = Sandbox::new();
    let Some(bytes) = disk(&sandbox) else { return };
    let mut found = walk(&*open(bytes));
    for (name, letter) in [("one in turns", b'o'), ("other in turns", b'o')] {
        assert!(found.remove(&format!("/{name}")).unwrap().content == [letter; 200_000], "{name}");
    }
    assert!(found.remove("/sparse").unwrap().content == [0; 100_000]);
    let forget = |seen: &mut Seen| {
        seen.mode = 0;
        if seen.kind == FileKind::Folder {
            seen.modified = 0;
        }
    };
    let (expected, found) = (without(of_folder(&sandbox.path("source")), forget), without(found, forget));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (path, seen) in &expected {
        assert!(found[path] == *seen, "{path}: {:?}", found[path].modified);
    }
}

#[test]
fn damage_does_no_harm() {
    let Some(disk) = disk(&Sandbox::new()) else { return };
    let used = disk.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let hot = disk.windows(2).position(|two| two == [0x85, 2]).unwrap();
    wade_damaged(&disk[..used], &[0..128, hot..hot + 4096, hot..hot + 60_000, 0..used.min(3 << 20)], 150);
}
