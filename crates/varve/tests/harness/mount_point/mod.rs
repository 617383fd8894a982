//! A mount by the real program, which ends with the test.
#![allow(dead_code, reason = "each test uses its own part of this")]
#![allow(clippy::print_stderr, reason = "says what it skipped")]
#![allow(clippy::disallowed_methods, reason = "waits for another process")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time-out for each action of the program, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns true if this machine can mount. Otherwise prints the name of the skipped test.
pub fn can_mount(test: &str) -> bool {
    let can = File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("skipped: {test}, which needs /dev/fuse");
    }
    can
}

/// Waits until a condition holds.
#[track_caller]
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A program that runs until a signal ends it, with its error output in a file.
pub struct Running {
    child: Child,
    complaints: PathBuf,
}

impl Running {
    pub fn start(mut command: Command, complaints: PathBuf) -> Self {
        let log = File::create(&complaints).unwrap();
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Self { child, complaints }
    }

    pub fn complaints(&self) -> String {
        fs::read_to_string(&self.complaints).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        // The process may already have ended.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(!self.complaints().contains("panicked"), "{}", self.complaints());
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {}", self.complaints());
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A mounted folder of days.
pub struct Mount {
    pub running: Running,
    pub at: PathBuf,
}

impl Mount {
    /// Runs `command`, and waits until it has mounted on `at`.
    #[track_caller]
    pub fn start(command: Command, at: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        let mut running = Running::start(command, at.with_extension("log"));
        let begun = Instant::now();
        while !is_mounted(at) {
            assert!(begun.elapsed() < PATIENCE && !running.has_ended(), "{}", running.complaints());
            std::thread::park_timeout(Duration::from_millis(20));
        }
        Self { running, at: at.to_path_buf() }
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.at.join(below)
    }

    /// Ends the program with a signal: it must exit with status 0, and leave nothing mounted.
    #[track_caller]
    pub fn end(mut self, signal: Signal) {
        self.running.signal(signal);
        let status = self.running.wait();
        assert_eq!(status.code(), Some(0), "{}", self.running.complaints());
        assert!(!is_mounted(&self.at));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.running.child.kill();
        let _ = self.running.child.wait();
        if is_mounted(&self.at) {
            let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.at).status();
        }
    }
}

/// Returns true if something is mounted on exactly this folder.
pub fn is_mounted(at: &Path) -> bool {
    let at = at.canonicalize().unwrap_or_else(|_| at.to_path_buf());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|on| Path::new(on) == at))
}
