//! Files of the real zip of Info-ZIP.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::changing_folder::{differences, has_all, make, text};
use crate::sandbox::{Sandbox, noise, tool};

/// Makes an archive of a folder. Pipes and devices are left out: zip reads them like files.
fn zip(folder: &Path, archive: &str, options: &[&str]) {
    let mut command = Command::new("zip");
    command.args(["-q", "-r", "--symlinks"]).args(options).args([archive, ".", "-x", "fifo", "-x", "device"]);
    assert!(command.current_dir(folder).status().unwrap().success());
}

#[test]
fn a_zip_file_is_a_snapshot() {
    if !has_all(&["zip", "unzip", "rsync"]) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let home = sandbox.path("home");
    make(&home);
    // unzip changes these names.
    for name in [&b"not \xff\xfe UTF-8"[..], b"new\nline"] {
        fs::remove_file(home.join(OsStr::from_bytes(name))).unwrap();
    }
    let file = sandbox.path("home-2025-06-01.zip");
    zip(&home, &text(file.clone()), &[]);
    let theirs = sandbox.path("theirs");
    tool("unzip", ["-q", "-K", "-X", &text(file.clone()), "-d", &text(theirs.clone())]);
    sandbox.ok(["import", "zip", &text(file.clone()), "--name", "home"]);
    sandbox.ok(["restore", "home", "ours"]);
    // unzip makes symbolic links with times of its own, and the root is no entry.
    let unlike = differences(&theirs, &sandbox.path("ours"));
    let unlike: Vec<_> =
        unlike.lines().filter(|line| !line.starts_with(".L..t") && !line.ends_with("./")).collect();
    assert!(unlike.is_empty(), "{unlike:?}");
    assert_eq!(sandbox.json(["snapshots"])[0]["time"], "2025-06-01T00:00:00Z");
    let again = sandbox.ok(["import", "zip", &text(file.clone()), "--name", "home"]);
    assert_eq!(again.trim(), "1 snapshot imported before");
    let checked = sandbox.ok(["import", "zip", &text(file), "--name", "home", "--check"]);
    assert!(checked.contains("no difference"), "{checked}");
}

#[test]
fn a_check_finds_what_the_other_program_restores_differently() {
    if !has_all(&["zip", "unzip"]) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let folder = sandbox.path("in");
    fs::create_dir_all(folder.join("deep/er")).unwrap();
    for name in ["deep/er/a", "deep/b", "c"] {
        fs::write(folder.join(name), name.repeat(1000)).unwrap();
    }
    // The folders are no entries of their own, so their times are unknown.
    zip(&folder, "../-all[1].zip", &["-D"]);
    let import = ["import", "zip", "./-all[1].zip", "--by-mtime", "--name", "all", "--check"];
    let checked = sandbox.ok(import);
    assert!(checked.contains("5 entries compared, no difference"), "{checked}");
    // The import remembers the file by its length and its time, so it does not see the change.
    let file = sandbox.path("-all[1].zip");
    let status = fs::metadata(&file).unwrap();
    fs::write(folder.join("c"), "d".repeat(1000)).unwrap();
    fs::remove_file(&file).unwrap();
    zip(&folder, "../-all[1].zip", &["-D"]);
    assert_eq!(fs::metadata(&file).unwrap().len(), status.len());
    File::options().write(true).open(&file).unwrap().set_modified(status.modified().unwrap()).unwrap();
    let told = sandbox.fails(1, import);
    assert!(told.contains("c: ") && !told.contains("deep"), "{told}");
}

#[test]
fn damaged_and_encrypted_entries_are_named() {
    if !has_all(&["zip"]) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let folder = sandbox.path("in");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("whole"), "whole".repeat(10_000)).unwrap();
    fs::write(folder.join("harmed"), noise(1, 100_000)).unwrap();
    zip(&folder, "../secret.zip", &["--password", "x"]);
    let told = sandbox.fails(1, ["import", "zip", "secret.zip", "--by-mtime"]);
    assert!(told.contains("2 entries") && told.contains("encrypted"), "{told}");
    zip(&folder, "../all.zip", &["-0"]);
    let mut bytes = fs::read(sandbox.path("all.zip")).unwrap();
    let place = bytes.windows(64).position(|window| window == &noise(1, 100_000)[50_000..50_064]).unwrap();
    bytes[place] ^= 1;
    fs::write(sandbox.path("all.zip"), &bytes).unwrap();
    let told = sandbox.fails(1, ["import", "zip", "all.zip"]);
    assert!(told.contains("--time"), "{told}");
    let told = sandbox.fails(3, ["import", "zip", "all.zip", "--by-mtime", "--name", "all"]);
    assert!(told.contains("harmed") && !told.contains("whole"), "{told}");
    assert_eq!(sandbox.ok(["cat", "all:whole"]), "whole".repeat(10_000));
    fs::write(sandbox.path("cut.zip"), &bytes[..bytes.len() - 100]).unwrap();
    let told = sandbox.fails(1, ["import", "zip", "cut.zip", "--by-mtime"]);
    assert!(told.contains("cut short"), "{told}");
}

/// A stored entry: path, extra field, mode of Unix (0 for none), content.
type ZipEntry<'a> = (&'a [u8], &'a [u8], u16, &'a [u8]);

fn zip_of(entries: &[ZipEntry<'_>]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (path, extra, mode, content) in entries {
        let system = if *mode == 0 { 0_u16 } else { 3 };
        let number = |value: usize| u32::try_from(value).unwrap().to_le_bytes();
        let short = |value: usize| u16::try_from(value).unwrap().to_le_bytes();
        // The version, flags, the method, and a time of 2026-05-01.
        let common = [
            &[20, 0, 0, 0, 0, 0, 0, 0, 0xa1, 0x5c][..],
            &crc32(content).to_le_bytes(),
            &number(content.len()),
            &number(content.len()),
            &short(path.len()),
            &short(extra.len()),
        ]
        .concat();
        let place = number(bytes.len());
        bytes.extend([&b"PK\x03\x04"[..], &common, path, extra, content].concat());
        let made_by = (system << 8 | 20).to_le_bytes();
        let attributes = (u32::from(*mode) << 16).to_le_bytes();
        let tail = [&[0; 6][..], &attributes, &place].concat();
        directory.extend([&b"PK\x01\x02"[..], &made_by, &common, &tail, path, extra].concat());
    }
    let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
    let sizes = [directory.len(), bytes.len()].map(|size| u32::try_from(size).unwrap().to_le_bytes());
    let end = [&b"PK\x05\x06"[..], &[0; 4], &count, &count, &sizes.concat(), &[0; 2]].concat();
    [bytes, directory, end].concat()
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |code, byte| {
        (0..8).fold(code ^ u32::from(*byte), |code, _| code >> 1 ^ (0xedb8_8320 & (code & 1).wrapping_neg()))
    })
}

fn import(entries: &[ZipEntry<'_>]) -> (Sandbox, crate::sandbox::Run) {
    let sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("x-2026-05-01.zip"), zip_of(entries)).unwrap();
    let run = sandbox.run(["import", "zip", "x-2026-05-01.zip", "--name", "x"]);
    sandbox.ok(["verify", "--data"]);
    sandbox.ok(["gc"]);
    (sandbox, run)
}

#[test]
fn names_of_windows_are_read_in_their_code_page() {
    let unicode = |of: &[u8]| {
        let path = "\u{141}\u{f3}d\u{17a}.txt".as_bytes();
        let data = [&[1][..], &crc32(of).to_le_bytes(), path].concat();
        [&[0x75, 0x70, u8::try_from(data.len()).unwrap(), 0][..], &data].concat()
    };
    let (sandbox, run) = import(&[
        (b"\x9aber gr\x94\xe1e.txt", b"", 0, b"one"),
        ("\u{fc}ml.txt".as_bytes(), b"", 0, b"two"),
        (b"L\xa2d?.txt", &unicode(b"L\xa2d?.txt"), 0, b"three"),
        // The extra field is of a name before.
        (b"renamed.txt", &unicode(b"other"), 0, b"four"),
        (b"of Unix \xff", b"", 0o100_644, b"five"),
    ]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stderr.matches("code page 437").count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("1 name without"), "{}", run.stderr);
    let of_unix = OsStr::from_bytes(b"x:of Unix \xff");
    let names =
        ["x:\u{dc}ber gr\u{f6}\u{df}e.txt", "x:\u{fc}ml.txt", "x:\u{141}\u{f3}d\u{17a}.txt", "x:renamed.txt"];
    for (name, content) in
        names.map(OsStr::new).into_iter().chain([of_unix]).zip(["one", "two", "three", "four", "five"])
    {
        let cat = sandbox.command().arg("cat").arg(name).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&cat.stdout), content, "{name:?}");
    }
}

#[test]
fn every_entry_that_is_left_out_is_named() {
    let link = 0o120_777;
    let (sandbox, run) = import(&[
        (b"a", b"", 0o100_644, b"first"),
        (b"link", b"", link, b"to\0nowhere"),
        (b"long", b"", link, &b"l".repeat(4096)),
        (b"twice", b"", 0o100_644, b"one"),
        (b"twice", b"", 0o100_644, b"two"),
        (b"folder/inside", b"", 0o100_644, b"inside"),
        (b"folder", b"", 0o100_644, b"no folder"),
        (b"z", b"", 0o100_644, b"last"),
    ]);
    assert_eq!(run.code, Some(3));
    for told in [
        "link: the target of the symbolic link has a zero byte",
        "long: its target has 4096 bytes",
        "twice: the archive has another entry of this name before it",
        "folder/inside: a later entry of the archive is in place of its folder",
    ] {
        assert!(run.stderr.contains(told), "{told}: {}", run.stderr);
    }
    for (name, content) in [("a", "first"), ("twice", "one"), ("z", "last")] {
        assert_eq!(sandbox.run(["cat", &format!("x:{name}")]).stdout, content.as_bytes());
    }
}
