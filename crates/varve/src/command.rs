//! The commands, one a file.

mod bench;
mod boot;
mod clone;
mod copy;
mod diff;
mod find;
mod import;
mod init;
mod key;
mod ls;
mod machine;
mod mount;
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
mod stats;
mod taken;
mod verify;
mod verify_replica;

use std::process::ExitCode;

use anyhow::Result;

use crate::arguments::{Arguments, Command};

/// How a command ended that did what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// It did its work, and found or met something that is not as it should be.
    Found,
}

impl Outcome {
    /// The status that tells it to other programs.
    pub fn exit_code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::Found => ExitCode::FAILURE,
        }
    }
}

/// Does what the words say.
pub fn run(arguments: &Arguments) -> Result<Outcome> {
    match &arguments.command {
        Command::Init(words) => init::run(arguments, words),
        Command::Snapshot(words) => snapshot::run(arguments, words),
        Command::Snapshots(words) => snapshots::run(arguments, words),
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
        Command::Plan(words) => plan::run(arguments, words),
        Command::Bench(words) => bench::run(arguments, words),
        Command::Completions { shell } => pages::completions(*shell),
        Command::Man { folder } => pages::man(folder),
    }
}
