//! A server for one test: it has a port and a folder of its own, and ends with the test.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running server.
pub struct Server {
    child: Child,
    pub port: u16,
    pub folder: TempDir,
}

impl Server {
    /// Starts the command that `make` returns for a folder and a port. Waits until the port accepts
    /// connections.
    pub fn start(make: impl FnOnce(&Path, u16) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        open_to_all(folder.path());
        let port = free_port();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = make(folder.path(), port);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let mut server = Self { child, port, folder };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended with {ended:?}: {}", server.log());
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "the server does not answer: {}",
                server.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// The server's output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Makes a folder readable for servers that run as another user.
pub fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The path of a program, from the environment variable with its name, or from `PATH`. Prints a
/// line when the program is not found.
pub fn program(name: &str) -> Option<PathBuf> {
    if std::env::var("VARVE_SERVERS").is_ok_and(|when| when == "later") {
        println!("skipped: {name} is left to `script/test servers`");
        return None;
    }
    let named = std::env::var_os(name.to_uppercase().replace('-', "_")).map(PathBuf::from);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&paths).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = named.into_iter().chain(folders.map(|folder| folder.join(name))).find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: {name} is not there, nor named by {}", name.to_uppercase().replace('-', "_"));
    }
    found
}
