//! A folder for the files of one test, and the programs that make disks in it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The folders of the administration programs.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

fn program(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

/// Returns true if one of the programs is not installed, and prints which.
#[expect(clippy::print_stdout, reason = "a test that does not run says so")]
pub fn missing(programs: &[&str]) -> bool {
    let absent: Vec<_> = programs.iter().filter(|name| program(name).is_none()).collect();
    if !absent.is_empty() {
        println!("SKIPPED: {absent:?} not installed");
    }
    !absent.is_empty()
}

/// Unmounts a folder. A program that another test is starting shares the open files of this process
/// until it runs, so the folder may be in use for a moment.
pub fn unmount(folder: &Path) {
    let is_done = |_| {
        let mut command = Command::new(program("umount").unwrap_or_else(|| "umount".into()));
        let done = command.arg(folder).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success()) || {
            std::thread::park_timeout(std::time::Duration::from_millis(50));
            false
        }
    };
    let _ = (0..100).any(is_done);
}

pub struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    pub fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new sparse file.
    pub fn sparse(&self, name: &str, size: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).unwrap().set_len(size).unwrap();
        path
    }

    /// Runs a program, and returns its output.
    pub fn run(&self, words: &[&str], input: &str) -> String {
        let mut child = Command::new(program(words[0]).unwrap())
            .args(&words[1..])
            .current_dir(self.folder.path())
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The bytes of a disk with the table that a script of `sfdisk` describes.
    pub fn table(&self, script: &str, size: u64) -> Vec<u8> {
        let path = self.sparse("disk", size);
        self.run(&["sfdisk", "-q", path.to_str().unwrap()], script);
        fs::read(path).unwrap()
    }

    /// An empty disk after a program has written to it.
    pub fn made(&self, words: &[&str], size: u64) -> File {
        let path = self.sparse("disk", size);
        let words: Vec<_> = words.iter().copied().chain([path.to_str().unwrap()]).collect();
        self.run(&words, "");
        File::open(path).unwrap()
    }
}
