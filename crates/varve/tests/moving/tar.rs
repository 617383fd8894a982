//! Files of the real GNU tar, in all its formats.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::changing_folder::{differences, has_all, make, text};
use crate::sandbox::Sandbox;

#[test]
fn a_tar_file_is_a_snapshot() {
    if !has_all(&["tar", "rsync"]) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let home = sandbox.path("home");
    make(&home);
    // Access lists are text in a tar file.
    drop(Command::new("setfacl").args(["-R", "-b"]).arg(&home).status());
    let cases: [(&str, &[&str]); 5] = [
        ("posix", &["--format=posix", "--xattrs", "--sparse"]),
        ("posix-0.0", &["--format=posix", "--xattrs", "--sparse", "--sparse-version=0.0"]),
        ("posix-0.1", &["--format=posix", "--xattrs", "--sparse", "--sparse-version=0.1"]),
        ("gnu", &["--format=gnu", "--sparse"]),
        ("plain", &["--format=gnu"]),
    ];
    for (name, options) in cases {
        let file = sandbox.path(&format!("{name}-2025-06-01.tar"));
        let status =
            Command::new("tar").args(options).arg("-cf").arg(&file).arg("-C").arg(&home).arg(".").status();
        assert!(status.unwrap().success());
        let theirs = sandbox.path(&format!("theirs-{name}"));
        fs::create_dir(&theirs).unwrap();
        let unpack = ["--xattrs", "--xattrs-include=*", "-xpf"];
        let status = Command::new("tar").args(unpack).arg(&file).arg("-C").arg(&theirs).status();
        assert!(status.unwrap().success());
        sandbox.ok(["import", "tar", &text(file.clone()), "--name", name]);
        let ours = sandbox.arg(&format!("ours-{name}"));
        sandbox.ok(["restore", name, &ours]);
        assert_eq!(differences(&theirs, ours.as_ref()), "", "{name}");
        let again = sandbox.ok(["import", "tar", &text(file.clone()), "--name", name]);
        assert_eq!(again.trim(), "1 snapshot imported before");
        let checked = sandbox.ok(["import", "tar", &text(file), "--name", name, "--check"]);
        assert!(checked.contains("no difference"), "{checked}");
    }
    let listed = sandbox.json(["snapshots"]);
    assert_eq!(listed[0]["time"], "2025-06-01T00:00:00Z");
}

#[test]
fn a_stream_and_a_cut_file() {
    if !has_all(&["tar"]) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("in")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(sandbox.path("in").join(name), name.repeat(50_000)).unwrap();
    }
    let status = Command::new("tar").args(["-cf", "all.tar", "in"]).current_dir(sandbox.path("")).status();
    assert!(status.unwrap().success());
    let told = sandbox.fails(1, ["import", "tar", "all.tar"]);
    assert!(told.contains("--time"), "{told}");
    sandbox.ok(["import", "tar", "all.tar", "--by-mtime", "--name", "by mtime"]);
    let mut command = sandbox.command();
    command.args(["import", "tar", "-", "--time", "2025-01-01", "--name", "streamed"]);
    command.stdin(Stdio::from(File::open(sandbox.path("all.tar")).unwrap()));
    assert!(command.status().unwrap().success());
    for name in ["by mtime", "streamed"] {
        let cat = sandbox.command().args(["cat", &format!("{name}:in/c")]).output().unwrap();
        assert_eq!(cat.stdout, "c".repeat(50_000).into_bytes());
    }
    // The names in a folder may come in any order, and the archive may be cut short.
    let bytes = fs::read(sandbox.path("all.tar")).unwrap();
    fs::write(sandbox.path("cut.tar"), &bytes[..bytes.len() - 70_000]).unwrap();
    let told = sandbox.fails(3, ["import", "tar", "cut.tar", "--by-mtime", "--name", "cut"]);
    assert!(told.contains("cut short"), "{told}");
    let whole = sandbox.command().args(["ls", "cut:in"]).output().unwrap();
    assert!(String::from_utf8_lossy(&whole.stdout).lines().count() >= 2);
    fs::write(sandbox.path("no.tar"), vec![1; 2000]).unwrap();
    sandbox.fails(1, ["import", "tar", "no.tar", "--by-mtime"]);
}
