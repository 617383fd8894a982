//! Prints failures: the event, its causes, and a hint what to do next.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;

use anyhow::Error;
use serde_json::json;
use varve_block::{FailureKind, with_causes};
use varve_session::failure_kinds;

use crate::{exit_status, hint, say, show, signals};

/// Prints an error with its causes, and a hint if there is one.
pub fn print(error: &Error) {
    print_with(error, Some(STORE_FULL), None);
}

/// Prints the error that ended a command, with its hint for a full disk or for damage.
pub fn print_end(error: &Error, when_full: Option<&'static str>, when_damaged: Option<&'static str>) {
    print_with(error, when_full, when_damaged.filter(|_| exit_status::is_damage(error.as_ref())));
}

fn print_with(error: &Error, when_full: Option<&'static str>, last: Option<&'static str>) {
    let is_full = || failure_kinds(error.as_ref()).any(|kind| kind == FailureKind::NoSpace);
    let hint = hint::of(error.as_ref()).or_else(|| when_full.filter(|_| is_full())).or(last);
    let message = indented(&with_causes(error.as_ref()));
    let fields = || {
        let mut causes: Vec<_> = error.chain().map(ToString::to_string).collect();
        causes.dedup();
        let causes: Vec<_> = causes.into_iter().skip(1).collect();
        let status = exit_status::of(error, signals::was_signalled());
        json!({ "message": message, "causes": causes, "hint": hint, "status": status })
    };
    match hint {
        Some(hint) => say::diagnosis("error", fields, format_args!("varve: {message}\nhint: {hint}")),
        None => say::diagnosis("error", fields, format_args!("varve: {message}")),
    }
}

/// Prints a usage error. Returns the exit status.
pub fn print_usage(error: &clap::Error) -> u8 {
    if std::env::args_os().all(|argument| argument != "--json") {
        // A failure to write here cannot be reported anywhere.
        drop(error.print());
        return exit_status::USAGE;
    }
    say::set_form(say::OutputForm::Json);
    let text = error.to_string();
    let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let none: [&str; 0] = [];
    say::record(
        "error",
        json!({ "message": message, "causes": none, "hint": null, "status": exit_status::USAGE }),
    );
    exit_status::USAGE
}

/// Reports a problem with one file of an operation.
pub fn report_problem(problem: &varve_content::Problem) {
    let fields = || {
        let mut fields = json!({ "message": indented(&with_causes(problem.error.as_ref())) });
        show::put_name(&mut fields, "path", problem.path.as_os_str().as_bytes());
        fields
    };
    say::diagnosis("problem", fields, format_args!("varve: {}", self::problem(problem)));
}

/// Formats a problem with one file.
fn problem(problem: &varve_content::Problem) -> String {
    let path = show::name(problem.path.as_os_str().as_bytes());
    let path = if path.is_empty() { "." } else { &shortened(&path) };
    format!("{path}: {}", indented(&with_causes(problem.error.as_ref())))
}

/// Leaves out the middle of a path that would fill the screen. JSON has the whole path.
fn shortened(path: &str) -> Cow<'_, str> {
    const BYTES_MAX: usize = 1000;
    if path.len() <= BYTES_MAX {
        return path.into();
    }
    let start = path.floor_char_boundary(BYTES_MAX / 2);
    let end = path.ceil_char_boundary(path.len() - BYTES_MAX / 2);
    format!("{}[{} bytes]{}", &path[..start], end - start, &path[end..]).into()
}

/// Formats an error message, which may contain foreign text. Continuation lines are indented, so
/// that they cannot pose as lines of this program.
fn indented(text: &str) -> String {
    show::plain(text).replace('\n', "\n  ")
}

/// The hint for a store whose disk is full.
pub const STORE_FULL: &str = "nothing that was archived before is lost; make space, for example with `varve forget` and `varve gc`, and run the same command again";
/// The hint for a restore whose destination is full.
pub const DESTINATION_FULL: &str = "the archive is unchanged; make space at the destination, and the same command continues where it stopped";
/// The hint for a restore that meets damage.
pub const KEEP_DAMAGED: &str = "--keep-damaged restores all readable data, and lists the rest; `varve repair --from COPY` may bring the rest back";
