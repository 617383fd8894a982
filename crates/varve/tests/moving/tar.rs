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

/// A header of POSIX with its checksum.
fn header(name: &str, kind: u8, size: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    block[124..124 + size.len()].copy_from_slice(size);
    block[136..147].copy_from_slice(b"00000000001");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

/// An entry with this data.
fn entry(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, kind, format!("{:011o}", data.len()).as_bytes());
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A PAX header for the next entry.
fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut data = Vec::new();
    for (key, value) in records {
        let rest = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
        let length = (1..).find(|length| length == &(length.to_string().len() + rest.len())).unwrap();
        data.extend_from_slice(length.to_string().as_bytes());
        data.extend_from_slice(&rest);
    }
    entry("pax", b'x', &data)
}

/// Imports these parts, with a file in front of them and another one behind them, which are there
/// in the end. Returns the reports of an import with gaps.
fn gaps(parts: &[Vec<u8>]) -> (Sandbox, String) {
    let sandbox = Sandbox::encrypted();
    let ends = [entry("first", b'0', b"first"), entry("last", b'0', b"last"), vec![0; 1024]];
    let bytes = [&ends[..1], parts, &ends[1..]].concat().concat();
    fs::write(sandbox.path("x-2026-05-01.tar"), bytes).unwrap();
    let told = sandbox.fails(3, ["import", "tar", "x-2026-05-01.tar", "--name", "x"]);
    for name in ["first", "last"] {
        let cat = sandbox.command().args(["cat", &format!("x:{name}")]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&cat.stdout), name, "{told}");
    }
    sandbox.ok(["verify", "--data"]);
    sandbox.ok(["gc"]);
    (sandbox, told)
}

fn cat(sandbox: &Sandbox, path: &str) -> String {
    let output = sandbox.command().args(["cat", &format!("x:{path}")]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_malformed_value_is_a_problem_of_its_entry() {
    let file = || entry("file", b'0', b"content");
    for (key, value) in [("mtime", "12345678901234567890123"), ("size", "-1"), ("uid", "x")] {
        let (sandbox, told) = gaps(&[pax(&[(key, value.as_bytes())]), file()]);
        assert_eq!(told.matches("file: byte").count(), 1, "{told}");
        assert_eq!(cat(&sandbox, "file"), "content");
    }
    let map = [("GNU.sparse.map", &b"0,99999"[..]), ("GNU.sparse.size", b"10")];
    let (sandbox, told) = gaps(&[pax(&map), file()]);
    assert!(told.contains("the map of a sparse file is malformed"), "{told}");
    assert!(sandbox.ok(["ls", "x"]).contains("file"));
    // A name of 1 TiB, which is not there.
    let long = header("././@LongLink", b'L', b"\x80\0\0\0\0\0\x01\0\0\0\0\0");
    let (_, told) = gaps(&[long, entry("file", b'0', b"content")]);
    assert!(told.contains("1099511627776 bytes"), "{told}");
}

#[test]
fn links_that_no_system_can_make_are_named() {
    let link = || entry("link", b'2', b"");
    let (_, told) = gaps(&[pax(&[("linkpath", b"a\0b")]), link()]);
    assert!(told.contains("link: the target of the symbolic link has a zero byte"), "{told}");
    let (sandbox, told) = gaps(&[pax(&[("linkpath", &b"a".repeat(4096))]), link()]);
    assert!(told.contains("link: the target of the symbolic link has 4096 bytes"), "{told}");
    assert!(!sandbox.ok(["ls", "x"]).contains("link"));
    // A name that no Linux has keeps its content.
    let name = "n".repeat(300);
    let (sandbox, told) = gaps(&[pax(&[("path", name.as_bytes())]), entry("file", b'0', b"content")]);
    assert!(told.contains("its name has 300 bytes"), "{told}");
    assert_eq!(cat(&sandbox, &name), "content");
    let deep = "d/".repeat(9000);
    let (_, told) = gaps(&[pax(&[("path", deep.as_bytes())]), entry("file", b'5', b"")]);
    assert!(told.contains("folders deep"), "{}", told.len());
}

#[test]
fn an_archive_without_its_end_is_cut_short() {
    let sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("empty-2026-05-01.tar"), b"").unwrap();
    let told = sandbox.fails(3, ["import", "tar", "empty-2026-05-01.tar"]);
    assert!(told.contains("cut short"), "{told}");
    assert_eq!(sandbox.json(["snapshots"]).len(), 0);
    fs::write(sandbox.path("half-2026-05-01.tar"), entry("file", b'0', b"content")).unwrap();
    let told = sandbox.fails(3, ["import", "tar", "half-2026-05-01.tar", "--name", "x"]);
    assert!(told.contains("the rest of the archive: the archive ends at byte 1024"), "{told}");
    assert_eq!(cat(&sandbox, "file"), "content");
    // An empty archive has an end.
    fs::write(sandbox.path("none-2026-05-02.tar"), vec![0; 1024]).unwrap();
    sandbox.ok(["import", "tar", "none-2026-05-02.tar"]);
}
