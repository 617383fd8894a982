//! The commands, in rooms by what a user does. Each command has a file of its name.
//!
//! | room        | what a user does                                                        |
//! |-------------|-------------------------------------------------------------------------|
//! | `taking`    | archive a source: snapshot, import, copy, tag, optimize                 |
//! | `looking`   | see what is archived: snapshots, ls, find, diff, stats                  |
//! | `restoring` | bring it back: restore, cat                                             |
//! | `serving`   | reach it from other programs: mount, serve, attach, boot, venti         |
//! | `keeping`   | look after a store: init, key, verify, repair, reindex, replicate, clone, publish |
//! | `daily`     | leave it to a configuration: config, run, status, explain               |
//! | `planning`  | size a machine: plan, bench, trace                                      |
//! | `reference` | print the reference pages: completions, man                             |
//!
//! `choosing` is used by most of them: it finds the snapshots and paths that a command line names.

mod choosing;
mod daily;
mod keeping;
mod looking;
mod planning;
mod reference;
mod restoring;
mod serving;
mod taking;

use anyhow::Result;

pub use daily::named_store::named_store;

use crate::arguments::Command;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;

/// Runs a command.
pub fn run(invocation: &Invocation, command: &Command) -> Result<CommandOutcome> {
    match command {
        Command::Init(args) => keeping::init::run(invocation, args),
        Command::Snapshot(args) => taking::snapshot::run(invocation, args),
        Command::Snapshots(args) => looking::snapshot_list::run(invocation, args),
        Command::Tag(args) => taking::tag::run(invocation, args),
        Command::Hold(args) => keeping::hold::run(invocation, args),
        Command::Release(args) => keeping::hold::release(invocation, args),
        Command::Forget(args) => keeping::forget::run(invocation, args),
        Command::Gc(args) => keeping::gc::run(invocation, args),
        Command::Prune(args) => keeping::prune::run(invocation, args),
        Command::Stats(args) => looking::stats::run(invocation, args),
        Command::Ls(args) => looking::ls::run(invocation, args),
        Command::Mount(args) => serving::mount::run(invocation, args),
        Command::Diff(args) => looking::diff::run(invocation, args),
        Command::Find(args) => looking::find::run(invocation, args),
        Command::Restore(args) => restoring::run(invocation, args),
        Command::Drill(args) => restoring::drill::run(invocation, args),
        Command::Cat(args) => restoring::cat(invocation, args),
        Command::Verify(args) => match (&args.replica, &args.publication) {
            (Some(target), _) => keeping::verify_replica::run(invocation, args, target),
            (None, Some(address)) => {
                keeping::verify_publication::run(invocation, address, &args.content_keys)
            }
            (None, None) => keeping::verify_store::run(invocation, args),
        },
        Command::Replicate(args) => keeping::replicate::run(invocation, args),
        Command::Publish(args) => keeping::publish::run(invocation, args),
        Command::Profile(args) => keeping::profile::run(invocation, args),
        Command::Attach(args) => serving::attach::run(invocation, args),
        Command::Optimize(args) => taking::optimize::run(invocation, args),
        Command::Clone(args) => keeping::clone::run(invocation, args),
        Command::Import(args) => taking::import::run(invocation, args),
        Command::Copy(args) => taking::copy::run(invocation, args),
        Command::Key(args) => keeping::key::run(invocation, args),
        Command::Reindex(args) => keeping::reindex::run(invocation, args),
        Command::Repair(args) => keeping::repair::run(invocation, args),
        Command::Boot(args) => serving::boot::run(invocation, args),
        Command::Serve(args) => serving::serve::run(invocation, args),
        Command::WebPassword(args) => serving::web_password::run(invocation, args),
        Command::Venti(args) => serving::venti_sessions::run(invocation, args),
        Command::Config(command) => daily::config_check::run(invocation, command),
        Command::Run(args) => daily::run::run(invocation, args),
        Command::Status(args) => daily::status::run(invocation, args),
        Command::Pause(args) => daily::pause::run(invocation, args),
        Command::Notify(args) => daily::notify::run(invocation, args),
        Command::Setup(args) => daily::setup::run(invocation, args),
        Command::Explain(args) => daily::explain::run(invocation, args),
        Command::Trace(command) => planning::trace::run(invocation, command),
        Command::Plan(args) => planning::plan::run(invocation, args),
        Command::Bench(args) => planning::bench::run(invocation, args),
        Command::Completions { shell } => reference::completions(*shell),
        Command::Man { folder } => reference::man(folder),
    }
}
