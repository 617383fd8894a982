//! A machine with a real system in it, used from its console as a person would.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::qemu::wait_for;

/// How long the guest may take for anything: its processor is emulated.
const PATIENCE: Duration = Duration::from_secs(900);

/// Runs in software, with the sockets `qmp` and `console` in its folder. The power is cut when this is dropped.
pub struct Guest {
    child: Child,
    console: UnixStream,
    said: String,
}

impl Guest {
    /// Starts it, with these devices.
    pub fn start(folder: &Path, devices: &[&str]) -> Self {
        for socket in ["qmp", "console"] {
            let _ = fs::remove_file(folder.join(socket));
        }
        let words = "-nodefaults -display none -machine pc,accel=tcg -cpu max -m 1024 -name web \
            -qmp unix:qmp,server=on,wait=off -chardev socket,id=console,path=console,server=on,wait=on -serial chardev:console";
        let mut command = Command::new("qemu-system-x86_64");
        command.args(words.split_whitespace()).args(devices).current_dir(folder).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let console = wait_for("the console", || UnixStream::connect(folder.join("console")).ok());
        console.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        Self { child, console, said: String::new() }
    }

    /// Waits until it says this, and forgets what it said up to there.
    #[track_caller]
    #[allow(clippy::disallowed_methods, reason = "waits for another program")]
    pub fn wait_for(&mut self, text: &str) {
        let begun = Instant::now();
        loop {
            if let Some(found) = self.said.find(text) {
                self.said.drain(..found + text.len());
                return;
            }
            let mut bytes = [0; 4096];
            match self.console.read(&mut bytes) {
                Ok(0) => panic!("the machine ended before it said {text:?}: {}", self.said),
                Ok(count) => self.said += &String::from_utf8_lossy(&bytes[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => panic!("{error}: {}", self.said),
            }
            assert!(begun.elapsed() < PATIENCE, "it does not say {text:?}: {}", self.said);
        }
    }

    /// Types a line.
    pub fn say(&mut self, line: &str) {
        self.console.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// As root, who has no password.
    pub fn log_in(&mut self) {
        self.say("");
        self.wait_for("login:");
        self.say("root");
        self.wait_for("# ");
        self.say("stty -echo");
        self.wait_for("# ");
    }

    /// Waits until a file in it has so many lines.
    pub fn until_lines(&mut self, file: &str, count: usize) {
        self.say(&format!(
            "until [ \"$(wc -l <{file})\" -ge {count} ]; do sleep 0.1; done; echo THERE-$((40 + 2))"
        ));
        self.wait_for("THERE-42");
    }

    /// Cuts the power.
    pub fn end(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
