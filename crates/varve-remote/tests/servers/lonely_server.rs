//! A server of the test's own: alone on its port, with a folder of its own, ended with its test.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A server that runs.
pub struct Server {
    child: Child,
    pub port: u16,
    pub folder: TempDir,
}

impl Server {
    /// Starts what `command` makes of its folder and its port, and waits until the port answers.
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

    /// What it said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A port that nobody had a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Lets servers that serve as somebody else see a folder.
pub fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Where a program is: named by a variable of its own, or found where programs are. Says so when it is not.
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
