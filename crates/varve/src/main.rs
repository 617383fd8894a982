//! The command line program: it parses arguments, asks questions, and prints progress and tables.
//! The crates below do the work.
//!
//! Read first: `arguments.rs` (all commands and options), `command.rs` (the command of each, in
//! rooms), and `complaint.rs` (a failure as the user sees it).

// First, because all other modules use its macros.
#[macro_use]
mod say;

mod arguments;
mod command;
mod complaint;
mod environment;
mod exit_status;
mod guard;
mod hint;
mod invocation;
mod job_process;
mod logging;
mod metrics_text;
mod moment;
mod open_files;
mod outcome;
mod program_group;
mod progress_bar;
mod secret_variables;
mod show;
mod signals;
mod terminal;

use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::invocation::Invocation;

fn main() -> ExitCode {
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => return ExitCode::from(complaint::print_usage(&error)),
        Err(help) => return ExitCode::from(u8::from(say::help(&help))),
    };
    say::set_form(match (arguments.json, arguments.command.writes_content()) {
        (false, _) => say::OutputForm::Text,
        (true, false) => say::OutputForm::Json,
        (true, true) => say::OutputForm::JsonBesideContent,
    });
    logging::start(&arguments);
    guard::guard_memory();
    open_files::allow_all();
    job_process::begin();
    let (store, key) = command::named_store(&arguments);
    let invocation = Invocation::new(&arguments, store, key);
    let outcome = command::run(&invocation, &arguments.command);
    // Dropping it wipes the typed passphrase.
    drop(invocation);
    let status = match outcome {
        Ok(outcome) => match (outcome.status(), say::tell_failure()) {
            (exit_status::DONE, true) => exit_status::FAILED,
            (status, _) => status,
        },
        Err(error) => {
            complaint::print_end(&arguments.command, &error);
            exit_status::of(&error, signals::was_signalled())
        }
    };
    ExitCode::from(status)
}
