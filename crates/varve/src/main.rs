//! The command line: parses, asks, prints progress and tables. What it does, the crates below do.

// First: its macros are used in all others.
#[macro_use]
mod say;

mod arguments;
mod command;
mod complaint;
mod exit_status;
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
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(said) if said.use_stderr() => said.exit(),
        Err(help) => return ExitCode::from(u8::from(say::help(&help))),
    };
    start_logging(&arguments);
    guard::guard_memory();
    open_files::allow_all();
    let outcome = command::run(&arguments);
    secret::forget_answer();
    let status = match outcome {
        Ok(outcome) => match (outcome.status(), say::tell_failure()) {
            (exit_status::DONE, true) => exit_status::FAILED,
            (status, _) => status,
        },
        Err(error) => {
            complaint::print_end(&arguments.command, &error);
            exit_status::of(&error)
        }
    };
    ExitCode::from(status)
}

fn start_logging(arguments: &Arguments) {
    // All crates of this program begin so. What a library that we use complains of comes to us as an error, too, and is told as a cause of ours.
    let level = match (arguments.quiet, arguments.verbose) {
        (true, _) => "off,varve=error",
        (false, 0) => "off,varve=warn",
        (false, 1) => "warn,varve=info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    let named = tracing_subscriber::EnvFilter::try_from_env("VARVE_LOG").ok();
    let shows_modules = named.is_some() || arguments.verbose > 0;
    tracing_subscriber::fmt()
        .with_env_filter(named.unwrap_or_else(|| level.into()))
        .with_target(shows_modules)
        .with_writer(std::io::stderr)
        // Which would panic where standard error cannot be written to.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .init();
}
