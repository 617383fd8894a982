//! The commands, one a file.

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
use crate::arguments::{Arguments, Command};
use crate::exit_status;

/// How a command ended that ran to its end, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All is well.
    Done,
    /// The work is done, and something of it is missing, such as a file that could not be read.
    Gaps,
    /// A part of the work failed, and was reported.
    Failed,
    /// Damage was found: bytes that were stored once cannot be had, or are others.
    Damage,
}

impl Outcome {
    /// The outcome of a command that met this error and went on.
    pub fn of_problem(error: &(dyn Error + 'static)) -> Self {
        if exit_status::is_damage(error) { Self::Damage } else { Self::Gaps }
    }

    /// Its exit status.
    pub fn status(self) -> u8 {
        match self {
            Self::Done => exit_status::DONE,
            Self::Gaps => exit_status::GAPS,
            Self::Failed => exit_status::FAILED,
            Self::Damage => exit_status::DAMAGE,
        }
    }
}

/// Does what the words say.
pub fn run(arguments: &Arguments) -> Result<Outcome> {
    match &arguments.command {
        Command::Init(words) => init::run(arguments, words),
        Command::Snapshot(words) => snapshot::run(arguments, words),
        Command::Snapshots(words) => snapshots::run(arguments, words),
        Command::Tag(args) => tag::run(arguments, args),
        Command::Stats => stats::run(arguments),
        Command::Ls(words) => ls::run(arguments, words),
        Command::Mount(words) => mount::run(arguments, words),
        Command::Diff(words) => diff::run(arguments, words),
        Command::Find(words) => find::run(arguments, words),
        Command::Restore(words) => restore::run(arguments, words),
        Command::Cat(words) => restore::cat(arguments, words),
        Command::Verify(words) => match &words.replica {
            Some(target) => verify_replica::run(arguments, words, target),
            None => verify::run(arguments, words),
        },
        Command::Replicate(words) => replicate::run(arguments, words),
        Command::Clone(words) => clone::run(arguments, words),
        Command::Import(words) => import::run(arguments, words),
        Command::Copy(words) => copy::run(arguments, words),
        Command::Key(words) => key::run(arguments, words),
        Command::Reindex(words) => reindex::run(arguments, words),
        Command::Repair(words) => repair::run(arguments, words),
        Command::Boot(words) => boot::run(arguments, words),
        Command::Serve(words) => serve::run(arguments, words),
        Command::Venti(args) => venti::run(arguments, args),
        Command::Plan(words) => plan::run(arguments, words),
        Command::Bench(words) => bench::run(arguments, words),
        Command::Completions { shell } => pages::completions(*shell),
        Command::Man { folder } => pages::man(folder),
    }
}
