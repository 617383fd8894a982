//! A folder with all kinds of files, that changes from day to day.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sandbox::{has, is_root, noise, tool};

/// The number of days on which the folder differs.
pub const DAYS: u64 = 5;

/// Returns true if all of these programs are installed. Otherwise prints the missing one.
pub fn has_all(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !has(program));
    if let Some(program) = missing {
        println!("SKIPPED: there is no {program}");
    }
    missing.is_none()
}

/// Makes the folder as it is on the first day.
pub fn make(folder: &Path) {
    fs::create_dir_all(folder.join("deep/er/and/deeper")).unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    fs::write(folder.join("zero"), b"").unwrap();
    fs::write(folder.join("stays"), noise(1, 3_000_000)).unwrap();
    fs::write(folder.join("goes"), noise(2, 10_000)).unwrap();
    fs::write(folder.join("moves"), noise(3, 700_000)).unwrap();
    fs::write(folder.join("grows"), noise(4, 50_000)).unwrap();
    fs::write(folder.join("deep/er/and/deeper/linked"), b"one file, three names").unwrap();
    fs::hard_link(folder.join("deep/er/and/deeper/linked"), folder.join("another name")).unwrap();
    fs::hard_link(folder.join("deep/er/and/deeper/linked"), folder.join("deep/a third")).unwrap();
    symlink("deep/er", folder.join("to a folder")).unwrap();
    symlink("/nowhere/at all", folder.join("dangling")).unwrap();
    for name in odd_names() {
        fs::write(folder.join(&name), name.as_bytes()).unwrap();
    }
    let holes = File::create(folder.join("holes")).unwrap();
    holes.set_len(20 << 20).unwrap();
    holes.write_all_at(&noise(5, 100_000), 5 << 20).unwrap();
    holes.write_all_at(b"end", (20 << 20) - 3).unwrap();
    for number in 0..200 {
        fs::write(folder.join(format!("deep/small {number:03}")), noise(1000 + number, 300)).unwrap();
    }
    set_mode(&folder.join("zero"), 0o4711);
    set_mode(&folder.join("deep"), 0o1775);
    set_mode(&folder.join("goes"), 0o600);
    if is_root() {
        tool("chown", ["1234:4321", "deep/small 001"].map(|word| in_folder(folder, word)));
        tool("chown", ["-h".into(), "99:98".into(), folder.join("dangling").into_os_string()]);
        tool("mknod", [folder.join("device").as_os_str(), OsStr::new("c"), OsStr::new("5"), OsStr::new("1")]);
    }
    tool("mkfifo", [folder.join("fifo")]);
    if has("setfattr") {
        set_xattr(&folder.join("stays"), "user.note", "kept");
        set_xattr(&folder.join("deep"), "user.of a folder", "\u{e9}");
    }
    if has("setfacl") {
        tool("setfacl", [OsStr::new("-m"), OsStr::new("u:1:r--,g:2:rwx"), folder.join("grows").as_os_str()]);
        tool(
            "setfacl",
            [OsStr::new("-d"), OsStr::new("-m"), OsStr::new("u:1:rwx"), folder.join("empty").as_os_str()],
        );
    }
    for (number, name) in ["zero", "stays", "deep/small 002", "to a folder"].iter().enumerate() {
        set_time(&folder.join(name), &format!("20{:02}-03-04 05:06:07.123456789", number + 1));
    }
}

/// Changes the folder to what it is on this day, from 1 on.
pub fn change(folder: &Path, day: u64) {
    let mut grown = fs::read(folder.join("grows")).unwrap();
    grown.extend(noise(100 + day, 40_000));
    fs::write(folder.join("grows"), grown).unwrap();
    fs::write(folder.join(format!("new {day}")), noise(200 + day, 2_000)).unwrap();
    fs::write(folder.join(format!("deep/small {day:03}")), format!("changed on day {day}")).unwrap();
    match day {
        1 => fs::remove_file(folder.join("goes")).unwrap(),
        2 => fs::rename(folder.join("moves"), folder.join("deep/moved")).unwrap(),
        3 => {
            fs::remove_file(folder.join("empty/../zero")).unwrap();
            fs::create_dir(folder.join("zero")).unwrap();
            fs::write(folder.join("zero/inside"), b"a folder was a file").unwrap();
            fs::remove_file(folder.join("another name")).unwrap();
        }
        _ => {
            set_mode(&folder.join("stays"), 0o640);
            if has("setfattr") {
                set_xattr(&folder.join("stays"), "user.note", "changed");
            }
            fs::rename(folder.join("deep"), folder.join("renamed")).unwrap();
            fs::create_dir(folder.join("deep")).unwrap();
            fs::write(folder.join(format!("deep/small {:03}", day + 1)), b"x").unwrap();
        }
    }
}

fn odd_names() -> Vec<OsString> {
    let names: [&[u8]; 9] = [
        b"not \xff\xfe UTF-8",
        b"new\nline",
        b"\"quoted\" and \\slashed\\",
        b"-rf",
        b" ",
        "\u{e9}\u{301}\u{202e}".as_bytes(),
        b"%41*?[a]",
        b"a.b",
        b"a-b",
    ];
    let long = [b'n'; 250];
    names.into_iter().chain([&long[..]]).map(|name| OsStr::from_bytes(name).to_owned()).collect()
}

fn in_folder(folder: &Path, word: &str) -> OsString {
    if word.contains(':') { word.into() } else { folder.join(word).into_os_string() }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn set_xattr(path: &Path, name: &str, value: &str) {
    tool(
        "setfattr",
        [OsStr::new("-n"), OsStr::new(name), OsStr::new("-v"), OsStr::new(value), path.as_os_str()],
    );
}

fn set_time(path: &Path, time: &str) {
    tool("touch", [OsStr::new("-h"), OsStr::new("-d"), OsStr::new(time), path.as_os_str()]);
}

/// Returns what rsync would have to change to make `copy` what `original` is: contents, owners,
/// modes, times also of links and folders, hard links, access lists and attributes.
pub fn differences(original: &Path, copy: &Path) -> String {
    let with_slash = |path: &Path| format!("{}/", path.display());
    let output = Command::new("rsync")
        .args(["-aHAXn", "--checksum", "--delete", "-i"])
        .args([with_slash(original), with_slash(copy)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Copies a folder with everything.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    tool("rsync", [OsStr::new("-aHAXS"), OsStr::new(&format!("{}/", from.display())), to.as_os_str()]);
}

/// The checksums of all files below a folder, and their times.
pub fn checksums(folder: &Path) -> String {
    let script =
        "find . -printf '%p %T@ %m %s\\n' | sort; find . -type f -print0 | sort -z | xargs -0r sha256sum";
    let output = Command::new("sh").args(["-c", script]).current_dir(folder).output().unwrap();
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A folder inside another one, as text.
pub fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().unwrap()
}
