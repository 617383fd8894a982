//! The command line: parses, asks, prints progress and tables. What it does, the crates below do.
#![expect(clippy::print_stderr, reason = "this is the one crate that talks to people")]

// First: its macro is used in the commands.
#[macro_use]
mod show;

mod arguments;
mod command;
mod complaint;
mod guard;
mod moment;
mod progress_bar;
mod reading;
mod roots;
mod session;
mod target;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_logging(&arguments);
    guard::guard_memory();
    let outcome = command::run(&arguments);
    session::forget_answer();
    match outcome {
        Ok(outcome) => outcome.exit_code(),
        Err(error) if complaint::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complaint::print(&error);
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
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .init();
}
