//! The commands, in rooms by what a user does. Each command has a file of its name.
//!
//! | room        | what a user does                                                        |
//! |-------------|-------------------------------------------------------------------------|
//! | `taking`    | archive a source: snapshot, import, copy, tag, optimize                 |
//! | `looking`   | see what is archived: snapshots, ls, find, versions, diff, stats        |
//! | `restoring` | bring it back: restore, cat                                             |
//! | `serving`   | reach it from other programs: mount, serve, attach, boot, venti         |
//! | `keeping`   | look after a store: init, key, verify, repair, reindex, replicate, clone, publish |
//! | `daily`     | leave it to a configuration: config, run, status, explain               |
//! | `planning`  | the program `varve-plan`: predict, bench, trace                         |
//! | `reference` | print the reference pages: completions, man                             |
//!
//! The commands of a group go by two names: `varve gc` is `varve store gc`.
//!
//! `choosing` is used by most of them: it finds the snapshots and paths that a command line names.
//! `completing` answers a shell while such a line is typed.

mod choosing;
mod completing;
mod daily;
mod keeping;
mod looking;
mod planning;
mod reference;
mod restoring;
mod serving;
mod taking;

use anyhow::Result;

pub use completing::answer as answer_shell;
pub use daily::named_store::named_store;

use crate::arguments::{
    Arguments, Command, DailyCommand, DiskCommand, MarkCommand, PlanningArguments, PlanningCommand,
    StoreCommand, ToolsCommand,
};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;

/// Runs a command.
pub fn run(invocation: &Invocation, command: &Command) -> Result<CommandOutcome> {
    match command {
        Command::Init(args) => keeping::init::run(invocation, args),
        Command::Snapshot(args) => taking::snapshot::run(invocation, args),
        Command::Snapshots(args) => looking::snapshot_list::run(invocation, args),
        Command::Forget(args) => keeping::forget::run(invocation, args),
        Command::Prune(args) => keeping::prune::run(invocation, args),
        Command::Ls(args) => looking::ls::run(invocation, args),
        Command::Mount(args) => serving::mount::run(invocation, args),
        Command::Versions(args) => looking::versions::run(invocation, args),
        Command::Diff(args) => looking::diff::run(invocation, args),
        Command::Find(args) => looking::find::run(invocation, args),
        Command::Restore(args) => restoring::run(invocation, args),
        Command::Cat(args) => restoring::cat(invocation, args),
        Command::Verify(args) => match (&args.replica, &args.publication) {
            (Some(target), _) => keeping::verify_replica::run(invocation, args, target),
            (None, Some(address)) => {
                keeping::verify_publication::run(invocation, address, &args.content_keys)
            }
            (None, None) => keeping::verify_store::run(invocation, args),
        },
        Command::Replicate(args) => keeping::replicate::run(invocation, args),
        Command::Import(args) => taking::import::run(invocation, args),
        Command::Key(args) => keeping::key::run(invocation, args),
        Command::Repair(args) => keeping::repair::run(invocation, args),
        Command::Boot(args) => serving::boot::run(invocation, args),
        Command::Serve(args) => serving::serve::run(invocation, args),
        Command::Setup(args) => daily::setup::run(invocation, args),
        Command::Run(args) => daily::run::run(invocation, args),
        Command::Status(args) => daily::status::run(invocation, args),
        // The order has become the command that it is for.
        Command::Job(_) => Ok(CommandOutcome::NothingDone),
        Command::Mark(command) | Command::MarkByName(command) => run_mark(invocation, command),
        Command::Store(command) | Command::StoreByName(command) => run_store(invocation, command),
        Command::Disk(command) | Command::DiskByName(command) => run_disk(invocation, command),
        Command::Daily(command) | Command::DailyByName(command) => run_daily(invocation, command),
        Command::Tools(command) | Command::ToolsByName(command) => run_tools(invocation, command),
    }
}

fn run_mark(invocation: &Invocation, command: &MarkCommand) -> Result<CommandOutcome> {
    match command {
        MarkCommand::Tag(args) => taking::tag::run(invocation, args),
        MarkCommand::Hold(args) => keeping::hold::run(invocation, args),
        MarkCommand::Release(args) => keeping::hold::release(invocation, args),
    }
}

fn run_store(invocation: &Invocation, command: &StoreCommand) -> Result<CommandOutcome> {
    match command {
        StoreCommand::Stats(args) => looking::stats::run(invocation, args),
        StoreCommand::Gc(args) => keeping::gc::run(invocation, args),
        StoreCommand::Reindex(args) => keeping::reindex::run(invocation, args),
        StoreCommand::Clone(args) => keeping::clone::run(invocation, args),
        StoreCommand::Copy(args) => taking::copy::run(invocation, args),
        StoreCommand::Venti(args) => serving::venti_sessions::run(invocation, args),
    }
}

fn run_disk(invocation: &Invocation, command: &DiskCommand) -> Result<CommandOutcome> {
    match command {
        DiskCommand::Publish(args) => keeping::publish::run(invocation, args),
        DiskCommand::Attach(args) => serving::attach::run(invocation, args),
        DiskCommand::Profile(args) => keeping::profile::run(invocation, args),
        DiskCommand::Optimize(args) => taking::optimize::run(invocation, args),
    }
}

fn run_daily(invocation: &Invocation, command: &DailyCommand) -> Result<CommandOutcome> {
    match command {
        DailyCommand::Log(args) => daily::log::run(invocation, args),
        DailyCommand::Config(args) => daily::config_check::run(invocation, args),
        DailyCommand::Explain(args) => daily::explain::run(invocation, args),
        DailyCommand::Notify(args) => daily::notify::run(invocation, args),
        DailyCommand::Pause(args) => daily::pause::run(invocation, args),
        DailyCommand::Drill(args) => restoring::drill::run(invocation, args),
    }
}

fn run_tools(invocation: &Invocation, command: &ToolsCommand) -> Result<CommandOutcome> {
    match command {
        ToolsCommand::WebPassword(args) => serving::web_password::run(invocation, args),
        ToolsCommand::Completions { shell } => reference::completions::<Arguments>(*shell),
        ToolsCommand::Man { folder } => reference::man::<Arguments>(folder),
    }
}

/// Runs a command of the program `varve-plan`.
pub fn run_planning(invocation: &Invocation, command: &PlanningCommand) -> Result<CommandOutcome> {
    match command {
        PlanningCommand::Predict(args) => planning::plan::run(invocation, args),
        PlanningCommand::Bench(command) => planning::bench::run(invocation, command),
        PlanningCommand::Trace(command) => planning::trace::run(invocation, command),
        PlanningCommand::Completions { shell } => reference::completions::<PlanningArguments>(*shell),
        PlanningCommand::Man { folder } => reference::man::<PlanningArguments>(folder),
    }
}
