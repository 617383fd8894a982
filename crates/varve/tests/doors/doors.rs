//! The file system of days by NFS and by WebDAV, served by the real program and read by real
//! clients.
#![allow(clippy::print_stderr, reason = "says what it skipped")]
#![allow(clippy::disallowed_methods, reason = "waits for another process")]

use crate::sandbox;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::{Sandbox, has, noise, sample_folder, sparse_image, write_at};

/// The program as a server, which is killed when the value is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(sandbox: &Sandbox, words: &[&str]) -> Self {
        let complaints = fs::File::create(sandbox.path("serve.log")).unwrap();
        let mut command = sandbox.command();
        let mut child =
            command.arg("serve").args(words).stdout(Stdio::piped()).stderr(complaints).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix("serving at ")
            .unwrap_or_else(|| panic!("{line:?} {}", fs::read_to_string(sandbox.path("serve.log")).unwrap()));
        Self { address: address.to_owned(), child }
    }

    /// Ends the server with SIGTERM.
    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Files and folders by their paths, with bytes and metadata.
type Files = BTreeMap<String, (Vec<u8>, fs::Metadata)>;

/// A folder with a snapshot of the first of May and one of the second.
fn two_nights() -> (Sandbox, Vec<Files>) {
    let sandbox = Sandbox::encrypted();
    let source = sandbox.path("home");
    sample_folder(&source);
    sparse_image(&source.join("large"), 5 << 20, &[((3 << 20) + 5, &noise(8, 1_500_000))]);
    let mut nights = Vec::new();
    for time in ["2026-05-01T23:00:00Z", "2026-05-02T23:00:00Z"] {
        let mut files = BTreeMap::new();
        everything(&source, Path::new(""), &mut files);
        nights.push(files);
        sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", time]);
        fs::write(source.join("letter.txt"), "Dear archive, once more\n").unwrap();
    }
    (sandbox, nights)
}

/// Collects every file and folder with a printable UTF-8 name, with bytes and metadata.
fn everything(root: &Path, below: &Path, found: &mut Files) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let path = below.join(entry.unwrap().file_name());
        let (Some(text), whole) = (path.to_str(), root.join(&path)) else { continue };
        if text.contains('\n') {
            continue;
        }
        let metadata = fs::symlink_metadata(&whole).unwrap();
        let is_file = metadata.is_file();
        let bytes = if is_file { fs::read(&whole).unwrap() } else { Vec::new() };
        let is_folder = metadata.is_dir();
        found.insert(text.to_owned(), (bytes, metadata));
        if is_folder {
            everything(root, &path, found);
        }
    }
}

#[test]
fn every_file_of_every_night_by_nfs() {
    if !has("nfs-ls") || !has("nfs-cat") || !has("nfs-cp") {
        eprintln!("skipped: NFS, which needs libnfs-utils");
        return;
    }
    let (sandbox, nights) = two_nights();
    let server = Server::start(&sandbox, &["--nfs", "127.0.0.1:0"]);
    let (host, ports) = server.address.split_once("/?").unwrap();
    let url = |path: &str| format!("{host}/{path}?{ports}");
    for (day, files) in ["01", "02"].into_iter().zip(&nights) {
        let root = format!("2026/05/{day}/home");
        let listed = Command::new("nfs-ls").args(["-R", &url(&root)]).output().unwrap();
        let text = String::from_utf8_lossy(&listed.stdout);
        // A line is like `-rwsr-x--x  2     0     0           14 letter.txt`. Below a folder, the
        // name comes with its path.
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        for (path, (bytes, metadata)) in files {
            let name = path.rsplit('/').next().unwrap();
            let mode = mode_text(metadata);
            let (uid, gid) = (metadata.uid().to_string(), metadata.gid().to_string());
            let is_it = |line: &&Vec<&str>| {
                line.len() >= 6
                    && line[0].ends_with(&mode)
                    && line[2] == uid
                    && line[3] == gid
                    && text_after(line, 5).ends_with(name)
                    && (!metadata.is_file() || line[4] == metadata.len().to_string())
            };
            assert!(lines.iter().any(|line| is_it(&line)), "{path} ({mode} {uid} {gid}) is not in {text}");
            if metadata.is_file() && !path.contains(' ') {
                let read = Command::new("nfs-cat").arg(url(&format!("{root}/{path}"))).output().unwrap();
                assert!(read.status.success(), "{path}: {}", String::from_utf8_lossy(&read.stderr));
                assert!(read.stdout == *bytes, "{path} on day {day}");
            }
        }
    }
    let copied = sandbox.path("copied");
    let copy = Command::new("nfs-cp").arg(url("latest/home/large")).arg(&copied).output().unwrap();
    assert!(copy.status.success(), "{}", String::from_utf8_lossy(&copy.stderr));
    assert!(fs::read(&copied).unwrap() == nights[1]["large"].0);
    // A new snapshot appears.
    sandbox.ok(["snapshot", &sandbox.arg("home"), "--name", "again", "--time", "2026-05-03T23:00:00Z"]);
    let seen = || {
        let read = Command::new("nfs-cat").arg(url("2026/05/03/again/letter.txt")).output().unwrap();
        read.stdout == b"Dear archive, once more\n"
    };
    let begun = std::time::Instant::now();
    while !seen() {
        assert!(begun.elapsed().as_secs() < 60, "the new night does not appear");
    }
    // A write is refused.
    let refused = Command::new("nfs-cp").arg(&copied).arg(url("latest/home/new")).output().unwrap();
    assert!(!refused.status.success());
    server.end();
}

#[test]
fn the_kernels_own_client_of_nfs_shows_the_same() {
    if !sandbox::is_root() || !has("mount.nfs") {
        eprintln!("skipped: the kernel's client of NFS, which needs root and mount.nfs");
        return;
    }
    let (sandbox, nights) = two_nights();
    let server = Server::start(&sandbox, &["--nfs", "127.0.0.1:0"]);
    let at = sandbox.path("mounted");
    fs::create_dir(&at).unwrap();
    let port = server.address.split_once("nfsport=").unwrap().1.split('&').next().unwrap();
    let options = format!("ro,vers=3,tcp,nolock,port={port},mountport={port}");
    let mounted = Command::new("mount").args(["-t", "nfs", "-o", &options, "127.0.0.1:/"]).arg(&at).output();
    let mounted = mounted.unwrap();
    if !mounted.status.success() {
        let said = String::from_utf8_lossy(&mounted.stderr);
        eprintln!("skipped: the kernel's client of NFS cannot mount here: {}", said.trim());
        return;
    }
    let mut found = Vec::new();
    for day in ["01", "02"] {
        let mut files = BTreeMap::new();
        everything(&at.join("2026/05").join(day).join("home"), Path::new(""), &mut files);
        found.push(files);
    }
    assert!(Command::new("umount").arg(&at).status().unwrap().success());
    for (found, expected) in found.iter().zip(&nights) {
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (path, (bytes, metadata)) in expected {
            let (seen_bytes, seen) = &found[path];
            assert!(seen_bytes == bytes, "{path}");
            let about = |of: &fs::Metadata| (of.mode(), of.uid(), of.gid(), of.mtime());
            assert_eq!(about(seen), about(metadata), "{path}");
        }
    }
    server.end();
}

fn text_after(line: &[&str], count: usize) -> String {
    line[count..].join(" ")
}

/// The permissions in the style of `ls -l`, without the first letter. This lister has no letter for
/// fifos and sockets, and does not show setuid.
fn mode_text(metadata: &fs::Metadata) -> String {
    let bit = |bit: u32, letter: char| if metadata.mode() & bit == 0 { '-' } else { letter };
    "rwxrwxrwx".chars().enumerate().map(|(place, letter)| bit(0o400 >> place, letter)).collect()
}

#[test]
fn doors_that_show_everything_are_closed_to_the_network() {
    let sandbox = Sandbox::encrypted();
    for door in ["--nfs", "--webdav"] {
        let complaint = sandbox.fails(2, ["serve", door, "0.0.0.0:0"]);
        assert!(complaint.contains("--expose"), "{complaint}");
    }
    let numbers = sandbox.fails(2, ["serve", "--nbd", "127.0.0.1:0", "--metrics", "0.0.0.0:0"]);
    assert!(numbers.contains("--expose"), "{numbers}");
    let blocks = Sandbox::made_with(&["--score", "sha1"]).fails(2, ["serve", "--venti", "0.0.0.0:0"]);
    assert!(blocks.contains("--expose"), "{blocks}");
    sandbox.fails(2, ["serve"]);
    let open = Server::start(&sandbox, &["--webdav", "0.0.0.0:0", "--expose"]);
    open.end();
}

/// The answer of a server.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

fn ask(server: &Server, method: &str, path: &str, headers: &str) -> Answer {
    let host = server.address.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut stream = TcpStream::connect(host.parse::<SocketAddr>().unwrap()).unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    // A server that meets damage before its first byte only closes the connection.
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Answer { status: 0, head: String::new(), body: Vec::new() };
    };
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let mut body = answer.split_off(end + 4);
    if head.contains("transfer-encoding: chunked") {
        body = unchunked(&body);
    }
    Answer { status: head[9..12].parse().unwrap(), head, body }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole.extend_from_slice(&bytes[end + 2..end + 2 + length]);
        bytes = &bytes[end + 4 + length..];
    }
}

#[test]
fn every_file_of_every_night_by_webdav() {
    let (sandbox, nights) = two_nights();
    let server = Server::start(&sandbox, &["--webdav", "127.0.0.1:0"]);
    for (day, files) in ["01", "02"].into_iter().zip(&nights) {
        for (path, (bytes, metadata)) in files {
            let place = format!("/2026/05/{day}/home/{}", path.replace(' ', "%20"));
            if metadata.is_file() {
                let read = ask(&server, "GET", &place, "");
                assert!(read.status == 200 && read.body == *bytes, "{place}: {}", read.head);
            }
        }
    }
    // A link is shown as its target. Dangling links and devices are not shown.
    let letter = ask(&server, "GET", "/2026/05/01/home/deep/link", "");
    assert_eq!(letter.body, nights[0]["letter.txt"].0);
    assert_eq!(ask(&server, "GET", "/latest/home/letter.txt", "").body, nights[1]["letter.txt"].0);
    for absent in
        ["/2026/05/01/home/dangling", "/2026/05/01/home/fifo", "/2026/05/01/home/absent", "/../../etc/passwd"]
    {
        assert!(ask(&server, "GET", absent, "").status >= 400, "{absent}");
    }
    // A read of a part of a file.
    let part = ask(&server, "GET", "/latest/home/large", "Range: bytes=3145730-3145739\r\n");
    assert_eq!((part.status, part.body.as_slice()), (206, &nights[1]["large"].0[3_145_730..3_145_740]));
    // A listing of a folder.
    let listed = ask(&server, "PROPFIND", "/2026/05/01/home/", "Depth: 1\r\nContent-Length: 0\r\n");
    let text = String::from_utf8_lossy(&listed.body).into_owned();
    assert_eq!(listed.status, 207, "{text}");
    for shown in ["/2026/05/01/home/letter.txt", "/2026/05/01/home/deep/", "/2026/05/01/home/large"] {
        assert!(text.contains(&format!("<D:href>{shown}</D:href>")), "{shown} is not in {text}");
    }
    for hidden in ["home/fifo<", "home/socket<", "home/dangling<"] {
        assert!(!text.contains(hidden), "{hidden} is in {text}");
    }
    // Every change is refused.
    for (method, path) in [
        ("PUT", "/latest/home/new"),
        ("DELETE", "/latest/home/letter.txt"),
        ("MKCOL", "/new"),
        ("LOCK", "/new"),
    ] {
        let refused = ask(&server, method, path, "Content-Length: 0\r\n");
        assert!(matches!(refused.status, 403 | 405 | 501), "{method}: {}", refused.head);
    }
    server.end();
}

#[test]
fn a_damaged_block_breaks_off_its_file_alone() {
    let sandbox = Sandbox::encrypted();
    let source = sandbox.path("home");
    fs::create_dir_all(&source).unwrap();
    let files: Vec<_> =
        (0..8_u64).map(|number| (format!("file-{number}"), noise(20 + number, 600_000))).collect();
    for (name, bytes) in &files {
        fs::write(source.join(name), bytes).unwrap();
    }
    sandbox.ok(["snapshot", &sandbox.arg("home")]);
    let arena = &sandbox.arenas()[2];
    write_at(arena, fs::metadata(arena).unwrap().len() / 2, &[0x55; 64]);
    let server = Server::start(&sandbox, &["--webdav", "127.0.0.1:0"]);
    let mut bad = Vec::new();
    for (name, bytes) in &files {
        let read = ask(&server, "GET", &format!("/latest/home/{name}"), "");
        // The bytes before the damage are right. Then the connection ends early.
        assert!(bytes.starts_with(&read.body), "{name}");
        if read.body.len() < bytes.len() {
            bad.push(name);
        }
    }
    assert!(!bad.is_empty() && bad.len() <= 4, "{bad:?}");
    let complaints = fs::read_to_string(sandbox.path("serve.log")).unwrap();
    for name in bad {
        assert!(complaints.contains(&format!("file {name} in snapshot home")), "{complaints}");
    }
    server.end();
}
