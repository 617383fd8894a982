//! A Venti door that other machines reach through SSH, as docs/venti.md tells.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::kinds::{sftp, who_i_am};
use crate::lonely_server::free_port;
use crate::sandbox::{Sandbox, manifest, sample_folder};

/// Ended with its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_door_at_a_unix_socket_is_reached_through_ssh_with_a_key_that_may_do_nothing_else() {
    let Some(server) = sftp() else { return };
    let folder = server.server.folder.path();
    let key = fs::read_to_string(folder.join("user.pub")).unwrap();
    let limits = "restrict,port-forwarding,permitopen=\"127.0.0.1:1\",command=\"/bin/false\"";
    fs::write(folder.join("authorized"), format!("{limits} {key}")).unwrap();

    let sandbox = Sandbox::made_with(&["--plaintext", "--score", "sha1"]);
    sample_folder(&sandbox.path("home"));
    let socket = sandbox.path("door");
    let mut door = sandbox.command();
    door.args(["serve", "--venti", &format!("unix!{}", socket.display())]).stdout(Stdio::piped());
    let mut door = Ended(door.spawn().unwrap());
    let mut said = String::new();
    BufReader::new(door.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("unix!"), "{said}");

    let ssh = |options: &[&str], command: &[&str]| {
        let mut ssh = Command::new("ssh");
        ssh.args([
            "-F",
            "none",
            "-o",
            "BatchMode=yes",
            "-o",
            "ExitOnForwardFailure=yes",
            "-o",
            "IdentitiesOnly=yes",
        ]);
        ssh.arg("-o").arg(format!("UserKnownHostsFile={}", folder.join("known_hosts").display()));
        ssh.arg("-i").arg(folder.join("user")).args(["-p", &server.server.port.to_string()]).args(options);
        ssh.arg(format!("{}@127.0.0.1", who_i_am())).args(command).stdin(Stdio::null());
        ssh
    };
    let port = free_port();
    let forward = format!("{port}:{}", socket.display());
    let _ssh = Ended(ssh(&["-N", "-L", &forward], &[]).spawn().unwrap());
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", server.server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let ask = |args: &[&str]| {
        let address = format!("venti://127.0.0.1:{port}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
        command.args(["-s", &address, "--roots", &sandbox.arg("roots")]).args(args);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    ask(&["snapshot", &sandbox.arg("home")]);
    ask(&["restore", "home", &sandbox.arg("out")]);
    assert_eq!(manifest(&sandbox.path("out")), manifest(&sandbox.path("home")));

    // The key runs no command, and reaches no port: a server of SSH would greet at once.
    let run = ssh(&[], &["echo", "reached"]).output().unwrap();
    assert!(!run.status.success() && run.stdout.is_empty(), "{run:?}");
    let other_port = format!("127.0.0.1:{}", server.server.port);
    let reach = ssh(&["-W", &other_port], &[]).output().unwrap();
    assert!(!reach.status.success() && reach.stdout.is_empty(), "{reach:?}");
}
