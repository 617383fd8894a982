//! The headers that the WebDAV server sends to browsers, and the host names that it accepts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use varve_image::{FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild};
use varve_serve::ServedFileSystem;
use varve_serve::{TcpServer, webdav};

const PAGE: &[u8] = b"<script>alert(1)</script>";

/// A folder with a page in it.
struct OnePage;

impl FileSystem for OnePage {
    fn root(&self) -> FileId {
        FileId(1)
    }

    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        let is_folder = file == self.root();
        Ok(match is_folder {
            true => FileStatus::new(FileKind::Folder, 0o755, 0),
            false => FileStatus::new(FileKind::File, 0o755, PAGE.len() as u64),
        })
    }

    fn children(&self, _: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        if first == 0 {
            let _ = visit(FolderChild { name: b"page.html".to_vec(), id: FileId(2), kind: FileKind::File });
        }
        Ok(())
    }

    fn read_at(&self, _: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        let rest = &PAGE[usize::try_from(offset).unwrap().min(PAGE.len())..];
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn link_target(&self, _: FileId) -> Result<Vec<u8>, FileSystemError> {
        Err(FileSystemError::Absent { what: "link".into() })
    }
}

impl ServedFileSystem for OnePage {
    fn is_settled(&self, _: FileId) -> bool {
        true
    }

    fn root_of(&self, _: FileId) -> Option<FileId> {
        None
    }
}

/// The whole reply to a request with these lines, in lower case.
fn ask(address: SocketAddr, lines: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "{lines}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer.to_lowercase()
}

fn start(is_exposed: bool) -> TcpServer {
    webdav::serve("127.0.0.1:0".parse().unwrap(), is_exposed, Arc::new(OnePage)).unwrap()
}

#[test]
fn only_what_is_there_is_promised() {
    let server = start(false);
    let host = server.address();
    for path in ["/", "/page.html", "*", "/absent"] {
        let answer = ask(host, &format!("OPTIONS {path} HTTP/1.1\r\nHost: {host}"));
        let line = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        assert_eq!(line("dav: ").as_deref(), Some("1"), "{path}: {answer}");
        for method in
            line("allow: ").unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty())
        {
            assert!(["options", "get", "head", "propfind"].contains(&method), "{path}: {method}: {answer}");
        }
    }
    for method in ["LOCK", "UNLOCK", "PUT", "PATCH", "DELETE", "MKCOL", "MOVE", "COPY", "PROPPATCH"] {
        let answer = ask(host, &format!("{method} /page.html HTTP/1.1\r\nHost: {host}"));
        assert!(answer.starts_with("http/1.1 405"), "{method}: {answer}");
    }
}

#[test]
fn names_that_lead_here_by_chance_are_not_answered() {
    let server = start(false);
    let address = server.address();
    for host in [address.to_string(), format!("localhost:{}", address.port()), "[::1]:80".into()] {
        let answer = ask(address, &format!("GET /page.html HTTP/1.1\r\nHost: {host}"));
        assert!(answer.starts_with("http/1.1 200") && answer.contains("alert"), "{host}: {answer}");
    }
    for request in [
        "GET /page.html HTTP/1.1\r\nHost: evil.example:8080",
        "PROPFIND / HTTP/1.1\r\nHost: evil.example\r\nDepth: 1",
    ] {
        let answer = ask(address, request);
        assert!(
            answer.starts_with("http/1.1 421") && !answer.contains("alert") && !answer.contains("page"),
            "{answer}"
        );
    }
    drop(server);
    // An exposed server cannot know the names that others use for it.
    let server = start(true);
    let answer = ask(server.address(), "GET /page.html HTTP/1.1\r\nHost: backup.example");
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    drop(server);
}

#[test]
fn who_says_nothing_keeps_nobody_away() {
    let server = start(false);
    let silent: Vec<_> = (0..260)
        .map(|_| {
            let mut socket = TcpStream::connect(server.address()).unwrap();
            socket.write_all(b"GET /").unwrap();
            socket
        })
        .collect();
    let mut patient = TcpStream::connect(server.address()).unwrap();
    // Less than the time-out of the silent clients.
    patient.set_read_timeout(Some(std::time::Duration::from_secs(15))).unwrap();
    write!(patient, "GET /page.html HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    patient.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(silent);
    drop(server);
}

#[test]
fn pages_that_were_archived_do_nothing() {
    const POLICY: &str = "content-security-policy: sandbox; default-src 'none'\r\n";
    let server = start(false);
    for (request, is_file) in [
        ("GET /page.html HTTP/1.1", true),
        ("HEAD /page.html HTTP/1.1", true),
        ("GET /page.html HTTP/1.1\r\nRange: bytes=3-5", true),
        ("GET / HTTP/1.1", false),
    ] {
        let answer = ask(server.address(), &format!("{request}\r\nHost: localhost"));
        assert_eq!(answer.contains(POLICY), is_file, "{request}: {answer}");
        assert!(answer.contains("x-content-type-options: nosniff\r\n"), "{request}: {answer}");
    }
    drop(server);
}
