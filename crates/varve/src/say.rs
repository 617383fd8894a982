//! Output. Results go to standard output, everything else to standard error. With `--json` all
//! output goes to standard output as objects, one on each line. A command that changes or checks
//! something completes its work even if its output fails. A command that only shows something ends
//! when its output is closed.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::exit;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::show;

/// Prints a line of a result.
macro_rules! say {
    ($($part:tt)*) => { $crate::say::result(format_args!($($part)*)) };
}

/// Prints a line of a listing. The listing may be long, and is the only purpose of the command.
macro_rules! list {
    ($($part:tt)*) => { $crate::say::listed(format_args!($($part)*)) };
}

/// Prints a warning on standard error: something was left out, done otherwise than asked, or is
/// wrong.
macro_rules! warning {
    ($($part:tt)*) => { $crate::say::aside($crate::say::Aside::Warning, format_args!($($part)*)) };
}

/// Prints on standard error what the user may do next.
macro_rules! hint {
    ($($part:tt)*) => { $crate::say::aside($crate::say::Aside::Hint, format_args!($($part)*)) };
}

/// Prints another line on standard error that is no result.
macro_rules! notice {
    ($($part:tt)*) => { $crate::say::aside($crate::say::Aside::Notice, format_args!($($part)*)) };
}

/// The error that stopped the output of results.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line of a result. If that fails, the work continues, and [`tell_failure`] reports the
/// error at the end.
pub fn result(text: fmt::Arguments<'_>) {
    if FAILURE.get().is_none()
        && let Err(error) = writeln!(io::stdout(), "{text}")
    {
        FAILURE.get_or_init(|| error);
    }
}

/// Prints a line of a listing, and ends the program if that fails.
pub fn listed(text: fmt::Arguments<'_>) {
    result(text);
    if FAILURE.get().is_some() {
        exit(i32::from(tell_failure()));
    }
}

/// Prints the text that `--help` or `--version` requests. Returns whether that failed.
pub fn help(help: &clap::Error) -> bool {
    if let Err(error) = help.print() {
        FAILURE.get_or_init(|| error);
    }
    tell_failure()
}

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputForm {
    /// For people: results on standard output, remarks on standard error.
    Text,
    /// For programs: both as JSON objects on standard output, one a line.
    Json,
    /// For programs, where standard output takes the content of a file: remarks are JSON objects on
    /// standard error.
    JsonBesideContent,
}

static FORM: OnceLock<OutputForm> = OnceLock::new();

/// Sets the form of all output. Only the first call has an effect.
pub fn set_form(form: OutputForm) {
    FORM.get_or_init(|| form);
}

fn form() -> OutputForm {
    FORM.get().copied().unwrap_or(OutputForm::Text)
}

/// Prints a result for programs: an object with its type. `docs/guide/json` has a schema for each
/// type.
pub fn record(kind: &str, fields: Value) {
    result(format_args!("{}", typed(kind, fields)));
}

/// Prints an object of a listing. The listing may be long, and is the only purpose of the command.
pub fn item(kind: &str, fields: Value) {
    listed(format_args!("{}", typed(kind, fields)));
}

fn typed(kind: &str, mut fields: Value) -> Value {
    fields["type"] = kind.into();
    fields
}

/// Prints a message that is no result, such as an error or a warning: as an object in JSON,
/// otherwise as these lines on standard error. A failure to write here cannot be reported anywhere.
pub fn diagnosis(kind: &str, fields: impl FnOnce() -> Value, lines: fmt::Arguments<'_>) {
    match form() {
        OutputForm::Text => drop(writeln!(io::stderr(), "{}", show::plain(&lines.to_string()))),
        OutputForm::Json => record(kind, fields()),
        OutputForm::JsonBesideContent => drop(writeln!(io::stderr(), "{}", typed(kind, fields()))),
    }
}

/// The severity of a line on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aside {
    Warning,
    Hint,
    Notice,
}

/// Prints a line on standard error, or its object. Parts of it may come from a server, a disk or an
/// image, so control characters are made visible.
pub fn aside(severity: Aside, text: fmt::Arguments<'_>) {
    let message = show::plain(&text.to_string());
    let (kind, lead) = match severity {
        Aside::Warning => ("warning", "varve: "),
        Aside::Hint => ("hint", "hint: "),
        Aside::Notice => ("notice", ""),
    };
    let fields = || json!({ "message": message.trim_end() });
    // Empty lines part paragraphs for people only.
    if !message.is_empty() || form() == OutputForm::Text {
        diagnosis(kind, fields, format_args!("{lead}{message}"));
    }
}

/// Prints a line of the log on standard error, in any form of output.
pub fn log_line(text: fmt::Arguments<'_>) {
    drop(writeln!(io::stderr(), "{}", show::plain(&text.to_string())));
}

/// Reports whether results could not be printed, and prints the reason. A closed pipe is no
/// failure: the reader has read enough, as `head` does.
pub fn tell_failure() -> bool {
    // Output without a final line break is still buffered.
    if let Err(error) = io::stdout().flush() {
        FAILURE.get_or_init(|| error);
    }
    let failure = FAILURE.get().filter(|error| error.kind() != ErrorKind::BrokenPipe);
    if let Some(error) = failure {
        drop(writeln!(io::stderr(), "varve: cannot write to standard output: {error}"));
    }
    failure.is_some()
}

/// Standard output for content that is the only purpose of the command. The program ends when the
/// output is closed.
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
