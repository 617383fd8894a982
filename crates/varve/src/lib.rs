//! The two command line programs: they parse arguments, ask questions, and print progress and
//! tables. The crates below do the work.
//!
//! `varve` is the archive, and `varve-plan` plans archives and measures what they depend on.
//!
//! Read first: `arguments.rs` (all commands and options), `command.rs` (the command of each, in
//! rooms), and `complaint.rs` (a failure as the user sees it).

// First, because all other modules use its macros.
#[macro_use]
mod say;

mod arguments;
mod colour;
mod command;
mod complaint;
mod environment;
mod exit_status;
mod guard;
mod hint;
mod invocation;
mod logging;
mod moment;
mod open_files;
mod outcome;
mod progress_bar;
mod show;
mod signals;
mod terminal;

use std::process::ExitCode;

use anyhow::Result;

use crate::arguments::{Arguments, CommandNeeds, GlobalArgs, PlanningArguments, ProgramArguments};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;

/// Runs the program `varve` with the arguments of this process.
pub fn run_archive() -> ExitCode {
    if let Some(status) = command::answer_shell::<Arguments>() {
        return status;
    }
    let run = |arguments: Arguments| {
        let needs = arguments.command.needs();
        run_command(&arguments.global, needs, |invocation| command::run(invocation, &arguments.command))
    };
    match Arguments::read().map(Arguments::carried_out) {
        Ok(Ok(arguments)) => run(arguments),
        Ok(Err(error)) => {
            complaint::print(&error);
            ExitCode::from(exit_status::FAILED)
        }
        Err(error) => print_help(&error),
    }
}

/// Runs the program `varve-plan` with the arguments of this process.
pub fn run_planning() -> ExitCode {
    if let Some(status) = command::answer_shell::<PlanningArguments>() {
        return status;
    }
    let run = |arguments: PlanningArguments| {
        let needs = arguments.command.needs();
        let run = |invocation: &Invocation| command::run_planning(invocation, &arguments.command);
        run_command(&arguments.global, needs, run)
    };
    PlanningArguments::read().map_or_else(|error| print_help(&error), run)
}

/// Prints the text that ends a program before a command runs.
fn print_help(error: &clap::Error) -> ExitCode {
    match error.use_stderr() {
        true => ExitCode::from(complaint::print_usage(error)),
        false => ExitCode::from(u8::from(say::help(error))),
    }
}

fn run_command(
    global: &GlobalArgs,
    needs: CommandNeeds,
    run: impl FnOnce(&Invocation) -> Result<CommandOutcome>,
) -> ExitCode {
    say::set_form(match (global.json, needs.writes_content) {
        (false, _) => say::OutputForm::Text,
        (true, false) => say::OutputForm::Json,
        (true, true) => say::OutputForm::JsonBesideContent,
    });
    logging::start(global);
    guard::guard_memory();
    open_files::allow_all();
    varve_daily::end_with_run(exit_status::INTERRUPTED);
    let (store, key) = command::named_store(global, needs);
    let invocation = Invocation::new(global, needs.replica_reads, store, key);
    let outcome = run(&invocation);
    // Dropping it wipes the typed passphrase.
    drop(invocation);
    let status = match outcome {
        Ok(outcome) => match (outcome.status(), say::tell_failure()) {
            (exit_status::DONE, true) => exit_status::FAILED,
            (status, _) => status,
        },
        Err(error) => {
            complaint::print_end(&error, needs.when_full, needs.when_damaged);
            exit_status::of(&error, signals::was_signalled())
        }
    };
    ExitCode::from(status)
}
