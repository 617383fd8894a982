//! The commands, in rooms by what a user does. Each command has a file of its name.
//!
//! | room        | what a user does                                                        |
//! |-------------|-------------------------------------------------------------------------|
//! | `taking`    | archive a source: snapshot, import, copy, tag                           |
//! | `looking`   | see what is archived: snapshots, ls, find, diff, stats                  |
//! | `restoring` | bring it back: restore, cat                                             |
//! | `serving`   | reach it from other programs: mount, serve, boot, venti                 |
//! | `keeping`   | look after a store: init, key, verify, repair, reindex, replicate, clone |
//! | `planning`  | size a machine: plan, bench                                             |
//! | `reference` | print the reference pages: completions, man                             |
//!
//! `choosing` is used by most of them: it finds the snapshots and paths that a command line names.

mod choosing;
mod keeping;
mod looking;
mod planning;
mod reference;
mod restoring;
mod serving;
mod taking;

use anyhow::Result;

use crate::arguments::Command;
use crate::invocation::Invocation;
use crate::outcome::Outcome;

/// Runs a command.
pub fn run(invocation: &Invocation, command: &Command) -> Result<Outcome> {
    match command {
        Command::Init(words) => keeping::init::run(invocation, words),
        Command::Snapshot(words) => taking::snapshot::run(invocation, words),
        Command::Snapshots(words) => looking::snapshot_list::run(invocation, words),
        Command::Tag(args) => taking::tag::run(invocation, args),
        Command::Stats => looking::stats::run(invocation),
        Command::Ls(words) => looking::ls::run(invocation, words),
        Command::Mount(words) => serving::mount::run(invocation, words),
        Command::Diff(words) => looking::diff::run(invocation, words),
        Command::Find(words) => looking::find::run(invocation, words),
        Command::Restore(words) => restoring::run(invocation, words),
        Command::Cat(words) => restoring::cat(invocation, words),
        Command::Verify(words) => match &words.replica {
            Some(target) => keeping::verify_replica::run(invocation, words, target),
            None => keeping::verify_store::run(invocation, words),
        },
        Command::Replicate(words) => keeping::replicate::run(invocation, words),
        Command::Clone(words) => keeping::clone::run(invocation, words),
        Command::Import(words) => taking::import::run(invocation, words),
        Command::Copy(words) => taking::copy::run(invocation, words),
        Command::Key(words) => keeping::key::run(invocation, words),
        Command::Reindex(words) => keeping::reindex::run(invocation, words),
        Command::Repair(words) => keeping::repair::run(invocation, words),
        Command::Boot(words) => serving::boot::run(invocation, words),
        Command::Serve(words) => serving::serve::run(invocation, words),
        Command::Venti(args) => serving::venti_sessions::run(invocation, args),
        Command::Plan(words) => planning::plan::run(invocation, words),
        Command::Bench(words) => planning::bench::run(invocation, words),
        Command::Completions { shell } => reference::completions(*shell),
        Command::Man { folder } => reference::man(folder),
    }
}
