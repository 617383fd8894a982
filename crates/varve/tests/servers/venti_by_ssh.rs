//! A Venti server that other machines reach through SSH, as docs/guide/venti.md describes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::kinds::{Kind, sftp, who_i_am};
use crate::lonely_server::free_port;
use crate::sandbox::{Sandbox, manifest, sample_folder};

/// A process that ends with its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A client of an SSH server, with a key of its own.
struct Client<'a> {
    server: &'a Kind,
}

impl Client<'_> {
    fn folder(&self) -> &Path {
        self.server.server.folder.path()
    }

    /// Restricts the key to the given permissions.
    fn limit_key(&self, limits: &str) {
        let key = fs::read_to_string(self.folder().join("user.pub")).unwrap();
        fs::write(self.folder().join("authorized"), format!("{limits} {key}")).unwrap();
    }

    fn ssh(&self, options: &[&str], program: &[&str]) -> Command {
        let folder = self.folder();
        let mut ssh = Command::new("ssh");
        for option in ["BatchMode=yes", "ExitOnForwardFailure=yes", "IdentitiesOnly=yes"] {
            ssh.args(["-o", option]);
        }
        ssh.arg("-o").arg(format!("UserKnownHostsFile={}", folder.join("known_hosts").display()));
        ssh.args(["-F", "none", "-p", &self.server.server.port.to_string(), "-i"]).arg(folder.join("user"));
        ssh.args(options).arg(format!("{}@127.0.0.1", who_i_am())).args(program).stdin(Stdio::null());
        ssh
    }

    /// Forwards a local port to a place at the server. Returns the SSH process and the port.
    fn forward(&self, place: &str) -> (Ended, u16) {
        let port = free_port();
        let ssh = Ended(self.ssh(&["-N", "-L", &format!("{port}:{place}")], &[]).spawn().unwrap());
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", self.server.server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        (ssh, port)
    }
}

fn at_port(sandbox: &Sandbox, port: u16, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.args(["-s", &format!("venti://127.0.0.1:{port}"), "--roots", &sandbox.arg("roots")]).args(args);
    command.output().unwrap()
}

#[test]
fn a_venti_door_is_reached_through_ssh_with_a_key_that_may_do_nothing_else() {
    let Some(server) = sftp() else { return };
    let client = Client { server: &server };
    let sandbox = Sandbox::made_with(&["--plaintext", "--score", "sha1"]);
    sample_folder(&sandbox.path("home"));
    let (socket, door_port) = (sandbox.path("door"), free_port());
    let mut door = sandbox.command();
    door.args(["serve", "--venti", &format!("unix!{}", socket.display())]);
    door.args(["--venti", &format!("127.0.0.1:{door_port}")]).stdout(Stdio::piped());
    let mut door = Ended(door.spawn().unwrap());
    let mut lines = BufReader::new(door.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("unix!") && lines.next().is_some());

    let no_program = "restrict,port-forwarding,command=\"/bin/false\"";
    let only_door = format!("{no_program},permitopen=\"127.0.0.1:{door_port}\"");
    let (socket, port) = (socket.display().to_string(), format!("127.0.0.1:{door_port}"));
    for (number, (limits, place)) in [(no_program, &socket), (&only_door, &port)].into_iter().enumerate() {
        client.limit_key(limits);
        let (_ssh, port) = client.forward(place);
        let out = format!("out-{number}");
        for args in [["snapshot", &sandbox.arg("home")].as_slice(), &["restore", "home", &sandbox.arg(&out)]]
        {
            let output = at_port(&sandbox, port, args);
            assert!(output.status.success(), "{limits}: {}", String::from_utf8_lossy(&output.stderr));
        }
        assert_eq!(manifest(&sandbox.path(&out)), manifest(&sandbox.path("home")));
        let run = client.ssh(&[], &["echo", "reached"]).output().unwrap();
        assert!(!run.status.success() && run.stdout.is_empty(), "{limits}: {run:?}");
    }
    // The key reaches no other port now. An SSH server there would send its greeting at once.
    let other_port = format!("127.0.0.1:{}", server.server.port);
    let reach = client.ssh(&["-W", &other_port], &[]).output().unwrap();
    assert!(!reach.status.success() && reach.stdout.is_empty(), "{reach:?}");
}
