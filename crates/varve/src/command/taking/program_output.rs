//! Streams as sources: standard input, and the output of a program.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use varve_archive::Progress;
use varve_session::UsageError;

use crate::arguments::TakeSnapshotArgs;

/// Poll interval for the cancellation of the command.
const LOOK: Duration = Duration::from_millis(100);

/// The environment variables with secrets of stores and replicas. They are removed for the program,
/// which needs none of them. Other processes of the same user can read its environment.
const SECRETS: [&str; 4] =
    ["VARVE_PASSPHRASE", "VARVE_NEW_PASSPHRASE", "VARVE_FROM_PASSPHRASE", "VARVE_REMOTE_PASSWORD"];

/// The reason why a stream was not archived.
#[derive(Debug)]
enum InputError {
    /// The stream is empty: its snapshot would look like a good backup.
    Empty { what: String },
    /// The program failed, so its output may be incomplete.
    Failed { program: PathBuf, status: ExitStatus },
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { what } => write!(f, "{what} is closed or empty: add --allow-empty to archive it"),
            Self::Failed { program, status } => write!(f, "{} ended with {status}", program.display()),
        }
    }
}

impl Error for InputError {}

/// Opens the stream that is to be archived.
pub(super) fn open(args: &TakeSnapshotArgs, progress: &Arc<Progress>) -> Result<Box<dyn Read + Send>> {
    let (inner, what): (Box<dyn Read + Send>, _) = match args.command {
        None => (Box::new(io::stdin()), "standard input".to_owned()),
        Some(_) => {
            let [program, ..] = args.sources.as_slice() else {
                bail!(UsageError("--command NAME needs -- and then the program with its arguments".into()));
            };
            let output = ProgramOutput::start(program, &args.sources[1..], progress)?;
            (Box::new(output), format!("the output of {}", program.display()))
        }
    };
    Ok(Box::new(NonEmptyStream { inner, what, may_end: args.allow_empty }))
}

/// A stream that fails if it ends before its first byte.
struct NonEmptyStream {
    inner: Box<dyn Read + Send>,
    what: String,
    may_end: bool,
}

impl Read for NonEmptyStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        if count == 0 && !into.is_empty() && !self.may_end {
            return Err(io::Error::other(InputError::Empty { what: self.what.clone() }));
        }
        self.may_end = true;
        Ok(count)
    }
}

/// The output of a program. The stream ends without an error only if the program succeeds.
struct ProgramOutput {
    program: PathBuf,
    output: ChildStdout,
    child: Arc<Mutex<RunningProgram>>,
    has_ended: bool,
}

/// A program, and whether it may still be killed: after the wait, its process id may belong to
/// another process.
struct RunningProgram {
    child: Child,
    is_waited_for: bool,
}

impl ProgramOutput {
    #[expect(clippy::disallowed_methods, reason = "a program that hangs is ended from beside it")]
    fn start(program: &Path, args: &[PathBuf], progress: &Arc<Progress>) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(args).stdout(Stdio::piped());
        for secret in SECRETS {
            command.env_remove(secret);
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let output = child.stdout.take().context("the program was started without an output")?;
        let child = Arc::new(Mutex::new(RunningProgram { child, is_waited_for: false }));
        let (watched, progress) = (Arc::clone(&child), Arc::clone(progress));
        std::thread::spawn(move || {
            while !watched.lock().is_waited_for {
                if progress.is_cancelled() {
                    return watched.lock().end(Signal::TERM);
                }
                std::thread::sleep(LOOK);
            }
        });
        Ok(Self { program: program.into(), output, child, has_ended: false })
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        self.has_ended = true;
        let mut running = self.child.lock();
        running.is_waited_for = true;
        running.child.wait()
    }
}

impl RunningProgram {
    fn end(&self, signal: Signal) {
        let number = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(number) = number.filter(|_| !self.is_waited_for) {
            // The process may have ended by itself. Then there is nothing to kill.
            let _ = kill_process(number, signal);
        }
    }
}

impl Read for ProgramOutput {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.output.read(into)?;
        if count == 0 && !into.is_empty() && !self.has_ended {
            let status = self.wait()?;
            if !status.success() {
                return Err(io::Error::other(InputError::Failed { program: self.program.clone(), status }));
            }
        }
        Ok(count)
    }
}

impl Drop for ProgramOutput {
    fn drop(&mut self) {
        if !self.has_ended {
            self.child.lock().end(Signal::KILL);
            // If the wait fails, nothing more can be done.
            let _ = self.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, progress: &Arc<Progress>) -> io::Result<Vec<u8>> {
        let args = ["-c".into(), script.into()];
        let mut output = ProgramOutput::start(Path::new("sh"), &args, progress).unwrap();
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).map(|_| bytes)
    }

    #[test]
    fn only_the_output_of_a_program_that_ends_well_ends() {
        let progress = Arc::new(Progress::new());
        assert_eq!(run("echo whole", &progress).unwrap(), b"whole\n");
        for (script, said) in
            [("echo part; exit 3", "exit status: 3"), ("echo part; kill -9 $$", "signal: 9")]
        {
            let error = run(script, &progress).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_the_work() {
        let progress = Arc::new(Progress::new());
        progress.cancel();
        assert!(run("exec sleep 1000", &progress).is_err());
        let left =
            ProgramOutput::start(Path::new("sleep"), &["1000".into()], &Arc::new(Progress::new())).unwrap();
        drop(left);
    }

    #[test]
    fn nothing_is_refused_unless_it_is_allowed() {
        let read = |bytes: &'static [u8], may_end| {
            let mut all = Vec::new();
            let mut stream = NonEmptyStream { inner: Box::new(bytes), what: "it".into(), may_end };
            stream.read_to_end(&mut all).map(|_| all)
        };
        assert!(read(b"", false).is_err());
        assert_eq!(read(b"", true).unwrap(), b"");
        assert_eq!(read(b"x", false).unwrap(), b"x");
    }
}
