//! The programs of Plan 9 from User Space, if this machine has them: in `bin` of the folder that
//! `PLAN9` names, or in `PATH`.
#![allow(clippy::print_stderr, reason = "says what it skipped")]
#![allow(clippy::disallowed_methods, reason = "waits for another process")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::sandbox::{Sandbox, sparse_image};

/// Time-out for the start of a server, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The size of the server's arenas together; `ARENA` is the size of each.
const ARENAS_BYTES: u64 = 96 << 20;
const ARENA: &str = "32M";

/// Returns the folders that may contain the programs.
fn folders() -> Vec<PathBuf> {
    let own = std::env::var_os("PLAN9").map(|root| Path::new(&root).join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    own.into_iter().chain(std::env::split_paths(&path)).collect()
}

fn found(program: &str) -> Option<PathBuf> {
    folders().into_iter().map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Returns true if all of these programs exist. Otherwise prints the name of the skipped test and
/// the missing program.
pub fn has(test: &str, programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| found(program).is_none());
    if let Some(program) = missing {
        eprintln!(
            "skipped: {test}, which needs plan9port's {program} (in bin of the folder PLAN9, or in PATH)"
        );
    }
    missing.is_none()
}

/// Returns the command for one of the programs, with its arguments, in a folder.
pub fn command<S: AsRef<OsStr>>(program: &str, words: impl IntoIterator<Item = S>, folder: &Path) -> Command {
    let path = found(program).unwrap();
    let mut command = Command::new(&path);
    // If `PLAN9` is not set, it becomes the parent of the folder of `PATH` that has the program.
    if std::env::var_os("PLAN9").is_none() {
        let depth = program.split('/').count() + 1;
        command.env("PLAN9", path.ancestors().nth(depth).unwrap_or(Path::new("/")));
    }
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command
}

/// Runs one of the programs, which must succeed. Returns its output.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(program: &str, words: impl IntoIterator<Item = S>, folder: &Path) -> Vec<u8> {
    ended(program, command(program, words, folder))
}

/// Does the same for a program that takes the server's address from the environment.
#[track_caller]
pub fn run_at<S: AsRef<OsStr>>(
    program: &str,
    address: &str,
    words: impl IntoIterator<Item = S>,
    folder: &Path,
) -> Vec<u8> {
    let mut command = command(program, words, folder);
    command.env("venti", address);
    ended(program, command)
}

#[track_caller]
fn ended(program: &str, mut command: Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{program}: {} {}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// plan9port's server, with arenas of its own in a sandbox.
pub struct Venti {
    child: Child,
    pub address: String,
}

impl Venti {
    /// The programs that the server needs.
    pub const PROGRAMS: [&str; 4] = ["venti/venti", "venti/fmtarenas", "venti/fmtisect", "venti/fmtindex"];

    /// Makes arenas and an index, and serves them at a free port.
    #[track_caller]
    pub fn start(sandbox: &Sandbox) -> Self {
        let folder = sandbox.path("plan9");
        fs::create_dir(&folder).unwrap();
        sparse_image(&folder.join("arenas"), ARENAS_BYTES, &[]);
        sparse_image(&folder.join("isect"), 16 << 20, &[]);
        run("venti/fmtarenas", ["-a", ARENA, "arenas", "arenas"], &folder);
        run("venti/fmtisect", ["isect", "isect"], &folder);
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = format!("tcp!127.0.0.1!{}", free.port());
        let within = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let settings = format!(
            "index main\nisect {}\narenas {}\nmem 4m\nbcmem 8m\nicmem 8m\naddr {address}\n",
            within("isect"),
            within("arenas")
        );
        fs::write(folder.join("venti.conf"), settings).unwrap();
        run("venti/fmtindex", ["venti.conf"], &folder);
        let log = File::create(folder.join("log")).unwrap();
        // The server runs as several processes. They form a process group, so that they end
        // together.
        let mut command = command("venti/venti", ["-d", "-c", "venti.conf"], &folder);
        command.process_group(0).stdout(log.try_clone().unwrap()).stderr(log);
        let mut server = Self { child: command.spawn().unwrap(), address };
        let begun = Instant::now();
        while TcpStream::connect(free).is_err() {
            let log = || fs::read_to_string(folder.join("log")).unwrap();
            assert!(begun.elapsed() < PATIENCE && server.child.try_wait().unwrap().is_none(), "{}", log());
            std::thread::park_timeout(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for Venti {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
