//! A virtual machine with a real system, used through its console as a person would.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::qemu::wait_for;

/// Time-out for each step of the guest, whose processor is emulated.
const PATIENCE: Duration = Duration::from_secs(900);

/// A guest in QEMU without hardware virtualisation, with the sockets `qmp` and `console` in its
/// folder. Its power is cut on drop.
pub struct Guest {
    child: Child,
    console: UnixStream,
    said: String,
}

impl Guest {
    /// Starts the guest with these devices.
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

    /// Waits until the console shows a text, and discards the output up to its end.
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

    /// Logs in as root, who has no password. The prompt is all that is certain to be shown: when it
    /// begins, the line is hung up, and the last words before it may be lost.
    pub fn log_in(&mut self) {
        self.wait_for("login:");
        self.say("root");
        self.wait_for("# ");
        self.say("stty -echo");
        self.wait_for("# ");
    }

    /// Waits until a file in the guest has at least `count` lines.
    pub fn until_lines(&mut self, file: &str, count: usize) {
        self.say(&format!(
            "until [ \"$(wc -l <{file})\" -ge {count} ]; do sleep 0.1; done; echo THERE-$((40 + 2))"
        ));
        self.wait_for("THERE-42");
    }

    /// Asserts that this is the disk of a night of the workload.
    pub fn is_of_night(&mut self, night: u32) {
        self.say("echo NIGHT-$(cat /srv/day)-END");
        self.wait_for(&format!("NIGHT-{night}-END"));
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
