//! Completes a command line, for a shell that calls this program at each TAB.
//!
//! The options and words come from the definitions of all commands. The names of snapshots, their
//! days, and the paths in them come from the store of that line. A completion writes nothing, asks
//! for no passphrase, starts no program, asks no server, and ends after a bounded time.

mod candidates;
mod shells;
mod typed_line;

use std::ffi::OsStr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::{ArgValueCompleter, CompleteEnv, Shell};

use self::candidates::CandidateKind;
use self::typed_line::TypedLine;
use crate::arguments::ProgramArguments;

/// The environment variable with the name of the shell. The arguments after `--` are then the words
/// of a command line, and the last one is to be completed.
const VARIABLE: &str = "VARVE_COMPLETE";

/// Returns the script that makes a shell call this program.
pub(super) fn script<P: ProgramArguments>(shell: Shell) -> Result<Vec<u8>> {
    let shells = shells::ALL;
    let adapter = shells.completer(&shell.to_string()).context("this shell is not known")?;
    let command = P::command();
    let name = command.get_name();
    let mut script = Vec::new();
    adapter.write_registration(VARIABLE, name, name, name, &mut script)?;
    Ok(script)
}

/// Answers the shell, if one has called.
pub fn answer<P: ProgramArguments>() -> Option<ExitCode> {
    std::env::var_os(VARIABLE).filter(|shell| !shell.is_empty())?;
    let words = std::env::args_os().skip_while(|argument| argument != "--").skip(1);
    let words: Vec<_> = words.map(|word| shells::unquoted(&word)).collect();
    let line = Arc::new(TypedLine::new::<P>(words));
    let answered = CompleteEnv::with_factory(|| with_candidates(P::completed_command(), &line))
        .var(VARIABLE)
        .shells(shells::ALL)
        .try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref());
    // No error is shown while a line is typed.
    Some(ExitCode::from(u8::from(answered.is_err())))
}

/// Adds the candidates of the archive and the configuration.
fn with_candidates(command: Command, line: &Arc<TypedLine>) -> Command {
    command
        .mut_args(|argument| match CandidateKind::of(&argument) {
            Some(kind) => {
                let line = Arc::clone(line);
                let candidates = move |current: &OsStr| candidates::find(kind, &line, current);
                argument.add(ArgValueCompleter::new(candidates))
            }
            None => argument,
        })
        .mut_subcommands(|command| with_candidates(command, line))
}
