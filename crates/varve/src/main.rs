//! The command line: parses, asks, prints progress and tables. What it does, the crates below do.

// First: its macros are used in all others.
#[macro_use]
mod say;

mod arguments;
mod command;
mod complaint;
mod guard;
mod healing;
mod home;
mod known_servers;
mod moment;
mod open_files;
mod progress_bar;
mod reading;
mod replica_home;
mod roots;
mod secret;
mod session;
mod show;
mod target;
mod user_folders;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_logging(&arguments);
    guard::guard_memory();
    open_files::allow_all();
    let outcome = command::run(&arguments);
    secret::forget_answer();
    match outcome {
        Ok(_) if say::tell_failure() => ExitCode::FAILURE,
        Ok(outcome) => outcome.exit_code(),
        Err(error) => {
            complaint::print_end(&arguments.command, &error);
            ExitCode::from(if complaint::is_wrong_words(&error) { 2 } else { 1 })
        }
    }
}

fn start_logging(arguments: &Arguments) {
    let level = match (arguments.quiet, arguments.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("VARVE_LOG").unwrap_or_else(|_| level.into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Which would panic where standard error cannot be written to.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .init();
}
