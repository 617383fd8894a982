//! What is said: results on standard output, all else on standard error. Nobody has to listen. A command that changes or checks something
//! does all of its work, whatever becomes of its words; one that only shows something is done when nobody reads it any more.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::exit;
use std::sync::OnceLock;

use crate::show;

/// Prints a line of a result.
macro_rules! say {
    ($($part:tt)*) => { $crate::say::result(format_args!($($part)*)) };
}

/// Prints a line of a listing, which may be long and is all that the command is for.
macro_rules! list {
    ($($part:tt)*) => { $crate::say::listed(format_args!($($part)*)) };
}

/// Prints a line on standard error: what is wrong, or good to know.
macro_rules! remark {
    ($($part:tt)*) => { $crate::say::aside(format_args!($($part)*)) };
}

/// Why no more results are printed.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line of a result. If that fails the work goes on, and [`tell_failure`] tells when it is done.
pub fn result(text: fmt::Arguments<'_>) {
    if FAILURE.get().is_none()
        && let Err(error) = writeln!(io::stdout(), "{text}")
    {
        FAILURE.get_or_init(|| error);
    }
}

/// Prints a line of a listing; the program ends if that fails.
pub fn listed(text: fmt::Arguments<'_>) {
    result(text);
    if FAILURE.get().is_some() {
        exit(i32::from(tell_failure()));
    }
}

/// Prints what `--help` and `--version` ask for. Whether that has failed.
pub fn help(help: &clap::Error) -> bool {
    if let Err(error) = help.print() {
        FAILURE.get_or_init(|| error);
    }
    tell_failure()
}

/// Prints a line on standard error. If that fails there is nobody to tell it to. Parts of it may be the words of a server, a disk or an
/// image: nothing in it works on a terminal.
pub fn aside(text: fmt::Arguments<'_>) {
    drop(writeln!(io::stderr(), "{}", show::lines(&text.to_string())));
}

/// Tells why not all results were printed, if so. That somebody has read enough of them, as `head` does, is no failure.
pub fn tell_failure() -> bool {
    // What ends without the end of a line waits for one until now.
    if let Err(error) = io::stdout().flush() {
        FAILURE.get_or_init(|| error);
    }
    let failure = FAILURE.get().filter(|error| error.kind() != ErrorKind::BrokenPipe);
    if let Some(error) = failure {
        remark!("varve: cannot write to standard output: {error}");
    }
    failure.is_some()
}

/// Standard output, for content that is all that the command is for. The program ends when nobody reads it any more.
pub struct Output(io::Stdout);

impl Output {
    pub fn new() -> Self {
        Self(io::stdout())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(unless_enough)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(unless_enough)
    }
}

fn unless_enough(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::BrokenPipe {
        exit(0);
    }
    error
}
