//! A program that is run to its end, with bounds on what is kept of its output.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// The first bytes of a complaint are kept. Later ones are seldom its reason.
const COMPLAINT_BYTES_MAX: usize = 4096;

/// A program that has ended.
#[derive(Debug)]
pub struct FinishedProgram {
    pub status: ExitStatus,
    /// The beginning of its standard output.
    pub output: Vec<u8>,
    complaint: Vec<u8>,
}

/// Why a program was not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunProgramError {
    #[error("it is not installed")]
    NotInstalled,
    #[error("it cannot be started")]
    Start(#[source] io::Error),
    #[error("its output cannot be read")]
    Read(#[source] io::Error),
}

impl From<RunProgramError> for io::Error {
    fn from(error: RunProgramError) -> Self {
        match error {
            RunProgramError::NotInstalled => io::ErrorKind::NotFound.into(),
            RunProgramError::Start(error) | RunProgramError::Read(error) => error,
        }
    }
}

impl FinishedProgram {
    /// Runs a program to its end. It keeps `output_max` bytes of the standard output, and drops the
    /// rest.
    ///
    /// # Errors
    /// [`RunProgramError`]. A program that fails is no error: `status` tells it.
    pub fn run(command: &mut Command, output_max: usize) -> Result<Self, RunProgramError> {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => RunProgramError::NotInstalled,
            _ => RunProgramError::Start(error),
        })?;
        let mut output = BoundedStream::new(child.stdout.take(), output_max);
        let mut complaint = BoundedStream::new(child.stderr.take(), COMPLAINT_BYTES_MAX);
        let read = read_both(&mut output, &mut complaint);
        // If reading fails, the pipes are closed here, so the program ends.
        let (output, complaint) = (output.kept, complaint.kept);
        let status = child.wait().map_err(RunProgramError::Read)?;
        read.map_err(RunProgramError::Read)?;
        Ok(Self { status, output, complaint })
    }

    /// The beginning of its standard error, as [`one_line`].
    #[must_use]
    pub fn complaint(&self) -> String {
        one_line(&self.complaint)
    }
}

/// Returns the output of a program as one line, in which each line break is `; `. It may have any
/// other character.
#[must_use]
pub fn one_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// A stream that is read to its end, and its beginning.
struct BoundedStream<S> {
    /// `None` at the end.
    stream: Option<S>,
    kept: Vec<u8>,
    kept_max: usize,
}

impl<S: Read + AsFd> BoundedStream<S> {
    fn new(stream: Option<S>, kept_max: usize) -> Self {
        Self { stream, kept: Vec::new(), kept_max }
    }

    /// Reads once. It waits if nothing is there.
    fn read(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let mut piece = [0; 4096];
        match stream.read(&mut piece) {
            Ok(0) => self.stream = None,
            Ok(count) => {
                let room = self.kept_max.saturating_sub(self.kept.len());
                self.kept.extend(piece.iter().take(count.min(room)));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Reads both streams to their ends. A program that fills one of them waits for its reader, so none
/// of them is waited for alone.
fn read_both(
    output: &mut BoundedStream<impl Read + AsFd>,
    complaint: &mut BoundedStream<impl Read + AsFd>,
) -> io::Result<()> {
    while let (Some(first), Some(second)) = (&output.stream, &complaint.stream) {
        let mut waited = [PollFd::new(first, PollFlags::IN), PollFd::new(second, PollFlags::IN)];
        match poll(&mut waited, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [has_output, has_complaint] = waited.map(|one| !one.revents().is_empty());
        if has_output {
            output.read()?;
        }
        if has_complaint {
            complaint.read()?;
        }
    }
    while output.stream.is_some() {
        output.read()?;
    }
    while complaint.stream.is_some() {
        complaint.read()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> FinishedProgram {
        FinishedProgram::run(Command::new("sh").args(["-c", script]).stdin(Stdio::null()), 6).unwrap()
    }

    #[test]
    fn the_beginning_of_an_output_is_kept() {
        let ended = run("echo short; echo wrong >&2; echo ' very ' >&2; exit 3");
        assert_eq!((ended.status.code(), ended.output.as_slice()), (Some(3), &b"short\n"[..]));
        assert_eq!(ended.complaint(), "wrong; very");
        let ended = run("yes | head -c 1000000; yes no | head -c 1000000 >&2; yes | head -c 1000000");
        assert!(ended.status.success());
        assert_eq!(ended.output, b"y\ny\ny\n");
        assert_eq!(ended.complaint.len(), COMPLAINT_BYTES_MAX);
    }

    #[test]
    fn a_program_that_closes_its_output_is_awaited() {
        assert_eq!(run("exec >&- 2>&-; sleep 0.2; exit 4").status.code(), Some(4));
    }

    #[test]
    fn a_missing_program_has_an_error_of_its_own() {
        let missing = FinishedProgram::run(&mut Command::new("no such program"), 0);
        assert!(matches!(missing, Err(RunProgramError::NotInstalled)));
    }
}
