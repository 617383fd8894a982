//! `varve serve --venti`, and a Venti server as the store, with the real program.

mod sandbox;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use sandbox::{Sandbox, noise, sparse_image};

/// The server, which is killed if a test ends before it does.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(sandbox: &Sandbox) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
        command.args(["-s", &sandbox.arg("venti-store"), "serve", "--venti", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("serving at ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, address }
    }

    fn signal(&self, signal: &str) {
        assert!(
            Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success()
        );
    }

    /// Asks it to end, and waits until it has.
    fn end(mut self) {
        self.signal("-TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the program, which must succeed, with the server as its store.
#[track_caller]
fn at(sandbox: &Sandbox, server: &Server, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.args(["-s", &server.address, "--roots", &sandbox.arg("roots")]).args(words);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn nights_go_to_a_venti_server_and_come_back_after_it_was_killed() {
    let sandbox = Sandbox::encrypted();
    let made = ["-s", &sandbox.arg("venti-store"), "init", "--plaintext", "--score", "sha1", "-q"];
    assert!(Command::new(env!("CARGO_BIN_EXE_varve")).args(made).status().unwrap().success());
    fs::create_dir_all(sandbox.path("folder/below")).unwrap();
    fs::write(sandbox.path("folder/large"), noise(1, 3_000_000)).unwrap();
    fs::write(sandbox.path("folder/below/small"), "a small file").unwrap();
    sparse_image(
        &sandbox.path("disk.raw"),
        24 << 20,
        &[(0, &noise(2, 1 << 20)), (9 << 20, &noise(3, 3 << 20))],
    );

    let mut server = Server::start(&sandbox);
    let first = at(&sandbox, &server, &["snapshot", &sandbox.arg("folder"), "--name", "home"]);
    assert!(first.contains("catalog:"), "{first}");
    at(&sandbox, &server, &["snapshot", &sandbox.arg("disk.raw"), "--name", "vm"]);
    // What was acknowledged to the snapshot is durable, whatever becomes of the server.
    server.child.kill().unwrap();
    server.child.wait().unwrap();

    let server = Server::start(&sandbox);
    let listed = at(&sandbox, &server, &["ls", "-R", "home"]);
    assert!(listed.contains("below/small"), "{listed}");
    at(&sandbox, &server, &["restore", "home", &sandbox.arg("out")]);
    assert_eq!(fs::read(sandbox.path("out/large")).unwrap(), noise(1, 3_000_000));
    at(&sandbox, &server, &["restore", "vm", &sandbox.arg("out.raw")]);
    assert_eq!(fs::read(sandbox.path("out.raw")).unwrap(), fs::read(sandbox.path("disk.raw")).unwrap());
    // The catalog is found by the file of this machine, and by nothing else.
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.args(["-s", &server.address, "--roots", &sandbox.arg("other"), "--json", "snapshots"]);
    assert_eq!(String::from_utf8(command.output().unwrap().stdout).unwrap().trim(), "[]");

    let measured = at(&sandbox, &server, &["bench", "venti", &server.address, "--count", "500"]);
    assert!(measured.contains("MB/s") && measured.contains("99.9%"), "{measured}");
    let order = ["--order", "permuted", "--action", "read", "--count", "500"];
    at(&sandbox, &server, &[&["bench", "venti", &server.address], &order[..]].concat());
    // Both histograms are for people to read; asking for them ends nothing.
    server.signal("-USR1");
    server.signal("-USR2");
    at(&sandbox, &server, &["snapshots"]);
    server.end();
}
