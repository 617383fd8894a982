//! The commands, one in each file.

mod bench;
mod boot;
mod choice;
mod clone;
mod copy;
mod diff;
mod find;
mod import;
mod init;
mod input;
mod key;
mod losses;
mod ls;
mod machine;
mod mount;
mod naming;
mod pages;
mod paper_page;
mod place;
mod plan;
mod reindex;
mod repair;
mod replicate;
mod restore;
mod serve;
mod snapshot;
mod snapshots;
mod source;
mod stats;
mod tag;
mod taken;
mod taker;
mod venti;
mod verify;
mod verify_archive;
mod verify_replica;

use std::error::Error;

use anyhow::Result;

pub use self::restore::WouldChange;
use crate::arguments::Command;
use crate::exit_status;
use crate::invocation::Invocation;

/// The outcome of a command that ran to its end. The variants are in order from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Done,
    /// The work is done, but something is missing, such as an unreadable file.
    Gaps,
    /// A part of the work failed, and was reported.
    Failed,
    /// Damage was found: stored bytes are lost or changed.
    Damage,
}

impl Outcome {
    /// Returns the outcome of a command that met this error and continued.
    pub fn of_problem(error: &(dyn Error + 'static)) -> Self {
        if exit_status::is_damage(error) { Self::Damage } else { Self::Gaps }
    }

    /// Returns the exit status.
    pub fn status(self) -> u8 {
        match self {
            Self::Done => exit_status::DONE,
            Self::Gaps => exit_status::GAPS,
            Self::Failed => exit_status::FAILED,
            Self::Damage => exit_status::DAMAGE,
        }
    }
}

/// Runs a command.
pub fn run(invocation: &Invocation, command: &Command) -> Result<Outcome> {
    match command {
        Command::Init(words) => init::run(invocation, words),
        Command::Snapshot(words) => snapshot::run(invocation, words),
        Command::Snapshots(words) => snapshots::run(invocation, words),
        Command::Tag(args) => tag::run(invocation, args),
        Command::Stats => stats::run(invocation),
        Command::Ls(words) => ls::run(invocation, words),
        Command::Mount(words) => mount::run(invocation, words),
        Command::Diff(words) => diff::run(invocation, words),
        Command::Find(words) => find::run(invocation, words),
        Command::Restore(words) => restore::run(invocation, words),
        Command::Cat(words) => restore::cat(invocation, words),
        Command::Verify(words) => match &words.replica {
            Some(target) => verify_replica::run(invocation, words, target),
            None => verify::run(invocation, words),
        },
        Command::Replicate(words) => replicate::run(invocation, words),
        Command::Clone(words) => clone::run(invocation, words),
        Command::Import(words) => import::run(invocation, words),
        Command::Copy(words) => copy::run(invocation, words),
        Command::Key(words) => key::run(invocation, words),
        Command::Reindex(words) => reindex::run(invocation, words),
        Command::Repair(words) => repair::run(invocation, words),
        Command::Boot(words) => boot::run(invocation, words),
        Command::Serve(words) => serve::run(invocation, words),
        Command::Venti(args) => venti::run(invocation, args),
        Command::Plan(words) => plan::run(invocation, words),
        Command::Bench(words) => bench::run(invocation, words),
        Command::Completions { shell } => pages::completions(*shell),
        Command::Man { folder } => pages::man(folder),
    }
}
