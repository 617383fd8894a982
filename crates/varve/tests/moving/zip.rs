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
