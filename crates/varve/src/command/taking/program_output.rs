//! Streams as sources: standard input, and the output of a program.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use varve_content::Progress;
use varve_daily::is_job_process;
use varve_session::UsageError;
use varve_world::{ProgramGroup, other_program};

use crate::arguments::TakeSnapshotArgs;
use crate::show;

/// The time between two looks at the program, and whether its output is still needed.
const LOOK: Duration = Duration::from_millis(100);
/// The output of a program that has ended is complete after this silence.
const SILENCE: Duration = Duration::from_secs(10);

/// The reason why a stream was not archived.
#[derive(Debug)]
enum InputError {
    /// The stream is empty: its snapshot would look like a good backup.
    Empty { what: String },
    /// The program failed, so its output may be incomplete.
    Failed { program: PathBuf, status: ExitStatus },
    /// Others went on to write the output after the program had ended, and then were silent.
    CutOff { program: PathBuf, left: String },
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { what } => write!(f, "{what} is closed or empty: add --allow-empty to archive it"),
            Self::Failed { program, status } => write!(f, "{} ended with {status}", program.display()),
            Self::CutOff { program, left } => write!(
                f,
                "{} has ended, but {left} went on to write its output, and then was silent for {} s: let {0} wait for it",
                program.display(),
                SILENCE.as_secs()
            ),
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
///
/// The program may leave others behind that hold its output open, such as an agent or a tunnel. So
/// the stream ends some seconds after the program, and the others are ended, once they are silent.
struct ProgramOutput {
    program: PathBuf,
    output: ChildStdout,
    group: ProgramGroup,
    progress: Arc<Progress>,
    /// Set once the program was seen to have ended.
    after_end: Option<AfterEnd>,
    is_over: bool,
}

/// The output since the end of the program.
struct AfterEnd {
    /// The bytes in the pipe that were written before the end was noticed.
    unread_bytes: u64,
    /// True if bytes came later: another program writes this output, too.
    is_written_by_others: bool,
    last: Instant,
}

impl ProgramOutput {
    fn start(program: &Path, args: &[PathBuf], progress: &Arc<Progress>) -> Result<Self> {
        let mut command = other_program(program);
        command.args(args).stdout(Stdio::piped());
        if is_job_process() {
            // The input of a job is the lock of its run.
            command.stdin(Stdio::null());
        }
        let started = ProgramGroup::spawn_with_terminal(&mut command);
        let mut group = started.with_context(|| format!("cannot start {}", program.display()))?;
        let output = group.child().stdout.take().context("the program was started without an output")?;
        let progress = Arc::clone(progress);
        Ok(Self { program: program.into(), output, group, progress, after_end: None, is_over: false })
    }

    /// Waits until there is something to read, for at most [`LOOK`].
    fn poll(&self) -> io::Result<bool> {
        let pause = Timespec::try_from(LOOK).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&pause)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks whether the program has ended.
    #[expect(clippy::disallowed_methods, reason = "another program is awaited in real time")]
    fn look(&mut self) -> io::Result<()> {
        if self.after_end.is_none() && self.group.has_ended() {
            let unread_bytes = ioctl_fionread(&self.output)?;
            self.after_end =
                Some(AfterEnd { unread_bytes, is_written_by_others: false, last: Instant::now() });
        }
        Ok(())
    }

    /// Notes that so many bytes were read.
    #[expect(clippy::disallowed_methods, reason = "another program is awaited in real time")]
    fn note(&mut self, count: usize) {
        if let Some(after_end) = &mut self.after_end {
            let count = count as u64;
            after_end.is_written_by_others |= count > after_end.unread_bytes;
            after_end.unread_bytes = after_end.unread_bytes.saturating_sub(count);
            after_end.last = Instant::now();
        }
    }

    /// Ends the programs that hold the output open although nothing comes any more.
    fn end_left_programs(&mut self, is_written_by_others: bool) -> io::Result<()> {
        let left = self.group.left_programs();
        // A program that has left the group is not known by name, and is not ended.
        let (left, end) = match left.is_empty() {
            true => ("a program that it has started".to_owned(), ": the output ends here"),
            false => (left.join(", "), ", and was ended"),
        };
        self.group.end_left_programs();
        if is_written_by_others {
            let program = self.program.clone();
            return Err(io::Error::other(InputError::CutOff { program, left }));
        }
        warning!(
            "{} has ended, but {} still held its output open{end}",
            self.program.display(),
            show::plain(&left)
        );
        Ok(())
    }

    /// Waits for the end of the program, whose output has ended.
    fn finish(&mut self) -> io::Result<usize> {
        self.is_over = true;
        self.group.end_within(None, &|| self.progress.is_cancelled());
        let status = self.group.wait()?;
        if !status.success() {
            return Err(self.failed(status));
        }
        Ok(0)
    }

    /// Ends the program, whose output nobody needs any more.
    fn cancel(&mut self) -> io::Error {
        self.is_over = true;
        self.group.end_within(None, &|| true);
        self.group.wait().map_or_else(|error| error, |status| self.failed(status))
    }

    fn failed(&self, status: ExitStatus) -> io::Error {
        io::Error::other(InputError::Failed { program: self.program.clone(), status })
    }
}

impl Read for ProgramOutput {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.is_over && !into.is_empty() {
            if self.progress.is_cancelled() {
                return Err(self.cancel());
            }
            let is_readable = self.poll()?;
            self.look()?;
            if is_readable {
                let count = self.output.read(into)?;
                if count == 0 {
                    return self.finish();
                }
                self.note(count);
                return Ok(count);
            }
            if let Some(after_end) = &self.after_end
                && after_end.last.elapsed() >= SILENCE
            {
                let is_written_by_others = after_end.is_written_by_others;
                self.end_left_programs(is_written_by_others)?;
                return self.finish();
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "programs end in real time")]
    fn begun() -> Instant {
        Instant::now()
    }

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
    fn an_output_ends_with_its_program_although_another_one_holds_it_open() {
        let progress = Arc::new(Progress::new());
        let begun = begun();
        assert_eq!(run("echo whole; sleep 300 &", &progress).unwrap(), b"whole\n");
        // A part that is written later belongs to it.
        assert_eq!(run("(sleep 1; echo late) & echo soon", &progress).unwrap(), b"soon\nlate\n");
        // If the writer goes on without an end, nobody knows that all is there.
        let error = run("(sleep 1; echo late; sleep 300) & echo soon", &progress).unwrap_err().to_string();
        assert!(
            error.starts_with("sh has ended, but ") && error.contains("sleep went on to write its output"),
            "{error}"
        );
        let took = begun.elapsed();
        assert!(took >= SILENCE * 2 && took < Duration::from_secs(60), "{took:?}");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "programs end in real time")]
    fn a_program_that_closes_its_output_is_ended_with_the_work() {
        let progress = Arc::new(Progress::new());
        let cancelled = Arc::clone(&progress);
        std::thread::spawn(move || {
            std::thread::sleep(LOOK);
            cancelled.cancel();
        });
        let error = run("echo x; exec >&-; exec sleep 300", &progress).unwrap_err().to_string();
        assert!(error.contains("signal: 15"), "{error}");
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
