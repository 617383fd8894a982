//! Starts borg, and reads its output with limits.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use varve_world::other_program;
use zeroize::Zeroizing;

/// The bytes of a complaint that are passed on.
const COMPLAINT_BYTES_MAX: usize = 4000;
/// Upper bound on an output that is held in memory.
const OUTPUT_BYTES_MAX: u64 = 256 << 20;
/// Seconds for which borg waits for another borg that writes.
const LOCK_WAIT: &str = "600";
/// The highest exit status that is no failure: borg warns, and has done its work.
const WARNING_STATUS: i32 = 1;

/// Why borg gave no result.
#[derive(Debug, thiserror::Error)]
pub enum BorgError {
    #[error("borg is not installed")]
    NotInstalled,
    #[error("borg cannot be started")]
    Start { source: io::Error },
    #[error("the output of borg cannot be read")]
    Read { source: io::Error },
    #[error("the output of borg has more than {} MiB", OUTPUT_BYTES_MAX >> 20)]
    Large,
    #[error("borg failed: {complaint}")]
    Failed { complaint: String },
    #[error("borg 1 is needed, but this one is {found}")]
    Version { found: String },
}

impl BorgError {
    /// True if borg has found damage in the repository. Other parts of it may be whole.
    pub(super) fn is_damage(&self) -> bool {
        const SIGNS: [&str; 4] =
            ["integrity error", "integrityerror", "objectnotfound", "not found in repository"];
        let Self::Failed { complaint } = self else { return false };
        let complaint = complaint.to_lowercase();
        SIGNS.iter().any(|sign| complaint.contains(sign))
    }
}

/// The program borg, and a repository.
pub struct BorgProgram {
    repository: OsString,
    passphrase: Option<Zeroizing<String>>,
}

impl BorgProgram {
    /// A repository: a folder, or a place at a server in borg's own form. Without a passphrase,
    /// borg takes the one in its environment.
    ///
    /// # Errors
    /// [`BorgError`]: there is no borg 1.
    pub fn new(repository: &OsStr, passphrase: Option<Zeroizing<String>>) -> Result<Self, BorgError> {
        // The program is started in other folders.
        let whole = Path::new(repository).canonicalize();
        let repository = whole.map_or_else(|_| repository.to_owned(), |whole| whole.into_os_string());
        let program = Self { repository, passphrase };
        let version = program.output(program.command(&["--version"]))?;
        let version = String::from_utf8_lossy(&version).trim().to_owned();
        if !version.starts_with("borg 1.") {
            return Err(BorgError::Version { found: varve_block::visible(&version) });
        }
        Ok(program)
    }

    /// The place of the repository.
    #[must_use]
    pub fn location(&self) -> &OsStr {
        &self.repository
    }

    /// An archive, as borg's commands name it.
    pub(super) fn archive(&self, name: &str) -> OsString {
        let mut whole = self.repository.clone();
        whole.push("::");
        whole.push(name);
        whole
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = other_program("borg");
        if let Some(passphrase) = &self.passphrase {
            command.env("BORG_PASSPHRASE", passphrase.as_str());
        }
        // Names of files are UTF-8 or bytes, and borg prints times in the zone of its environment.
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env_remove("BORG_PASSPHRASE_FD");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"VARVE_")) {
            command.env_remove(name);
        }
        command.args(args);
        command
    }

    /// A command that opens the repository.
    pub(super) fn opening(&self, args: &[&str]) -> Command {
        let mut command = self.command(args);
        command.args(["--lock-wait", LOCK_WAIT]);
        command
    }

    /// The whole output of a command.
    pub(super) fn output(&self, mut command: Command) -> Result<Vec<u8>, BorgError> {
        let mut running = RunningBorg::start(&mut command)?;
        let mut output = Vec::new();
        let read = Read::by_ref(&mut running).take(OUTPUT_BYTES_MAX).read_to_end(&mut output);
        let read = read.map_err(|source| BorgError::Read { source })?;
        if read as u64 >= OUTPUT_BYTES_MAX {
            return Err(BorgError::Large);
        }
        running.finish()?;
        Ok(output)
    }

    /// Runs a command whose output has no meaning.
    pub(super) fn run(&self, mut command: Command) -> Result<(), BorgError> {
        let mut running = RunningBorg::start(&mut command)?;
        io::copy(&mut running, &mut io::sink()).map_err(|source| BorgError::Read { source })?;
        running.finish()
    }
}

/// A borg that runs, and its output. If it is dropped early, borg is ended.
pub(super) struct RunningBorg {
    child: Child,
    output: Option<ChildStdout>,
    complaint: Option<JoinHandle<Vec<u8>>>,
}

impl RunningBorg {
    pub(super) fn start(command: &mut Command) -> Result<Self, BorgError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => BorgError::NotInstalled,
            _ => BorgError::Start { source },
        })?;
        let output = child.stdout.take();
        let complaint = child.stderr.take().map(last_bytes);
        Ok(Self { child, output, complaint })
    }

    /// Waits for the end, after the output has ended.
    pub(super) fn finish(mut self) -> Result<(), BorgError> {
        drop(self.output.take());
        let complaint = self.complaint.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let status = self.child.wait().map_err(|source| BorgError::Read { source })?;
        if status.code().is_some_and(|code| (0..=WARNING_STATUS).contains(&code)) {
            return Ok(());
        }
        let complaint = varve_block::visible(String::from_utf8_lossy(&complaint).trim());
        let complaint = if complaint.is_empty() { status.to_string() } else { complaint };
        Err(BorgError::Failed { complaint })
    }
}

impl Read for RunningBorg {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.output.as_mut().map_or(Ok(0), |output| output.read(into))
    }
}

impl Drop for RunningBorg {
    fn drop(&mut self) {
        // After `finish`, the process has ended, and both do nothing.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads a stream to its end, beside the output, and keeps its last bytes.
#[expect(clippy::disallowed_methods, reason = "borg would wait if nobody read what it reports")]
fn last_bytes(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut kept: Vec<u8> = Vec::new();
        let mut buffer = [0; COMPLAINT_BYTES_MAX];
        loop {
            let count = match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            kept.extend(buffer.get(..count).unwrap_or_default());
            kept.drain(..kept.len().saturating_sub(COMPLAINT_BYTES_MAX));
        }
        kept
    })
}
