//! The real program, serving a store of SHA-1 scores by Venti's protocol.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::Sandbox;

pub mod strange;

/// The name of the store in its sandbox.
pub const STORE: &str = "venti-store";

/// A server, which is killed if the test ends before it.
pub struct Server {
    pub child: Child,
    /// The addresses at which it listens, in the order of the arguments.
    pub addresses: Vec<String>,
}

/// Makes the store.
#[track_caller]
pub fn make_store(sandbox: &Sandbox) {
    let words = ["-s", &sandbox.arg(STORE), "init", "--plaintext", "--score", "sha1", "-q"];
    assert!(Command::new(env!("CARGO_BIN_EXE_varve")).args(words).status().unwrap().success());
}

/// Returns the command that serves the store with these arguments.
pub fn command(sandbox: &Sandbox, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.args(["-s", &sandbox.arg(STORE), "serve"]).args(words);
    command
}

impl Server {
    /// Serves the store at a free port.
    #[track_caller]
    pub fn start(sandbox: &Sandbox) -> Self {
        Self::run(sandbox, command(sandbox, &["--venti", "127.0.0.1:0"]), 1)
    }

    /// Runs a command that reports `address_count` addresses at which it serves.
    #[track_caller]
    pub fn run(sandbox: &Sandbox, mut command: Command, address_count: usize) -> Self {
        let complaints = File::create(sandbox.path("serve.log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(complaints).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(address_count);
        let address = |line: std::io::Result<String>| {
            let line = line.unwrap();
            line.strip_prefix("serving at ").map_or_else(|| line.clone(), str::to_owned)
        };
        let addresses: Vec<String> = lines.map(address).collect();
        let server = Self { child, addresses };
        assert_eq!(server.addresses.len(), address_count, "{}", Self::complaints(sandbox));
        server
    }

    pub fn address(&self) -> &str {
        &self.addresses[0]
    }

    /// Returns the error output so far.
    pub fn complaints(sandbox: &Sandbox) -> String {
        fs::read_to_string(sandbox.path("serve.log")).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends SIGTERM, and waits for the end.
    pub fn end(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command of the program with a Venti server as its store.
pub fn command_at(sandbox: &Sandbox, address: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.args(["-s", address, "--roots", &sandbox.arg("roots")]).env("TZ", "UTC");
    command
}

/// Returns the command that measures a Venti server with the program `varve-plan`.
pub fn bench(address: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve-plan"));
    command.args(["bench", "venti", address]).args(words);
    command
}

/// Measures a Venti server. It must succeed.
#[track_caller]
pub fn measure(address: &str, words: &[&str]) -> String {
    let output = bench(address, words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the program with a Venti server as its store. It must succeed.
#[track_caller]
pub fn at(sandbox: &Sandbox, address: &str, words: &[&str]) -> String {
    let output = command_at(sandbox, address).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the program with a Venti server as its store. It must fail with this exit status. Returns
/// its error output.
#[track_caller]
pub fn fails_at(sandbox: &Sandbox, address: &str, code: i32, words: &[&str]) -> String {
    let output = command_at(sandbox, address).args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}
