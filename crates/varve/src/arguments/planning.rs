//! The arguments of the program `varve-plan`.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};

use super::{BenchCommand, GlobalArgs, PlanArgs, TraceCommand, plan};

/// Predicts the needs of an archive, and measures what it depends on.
///
/// The planner compares kinds of stores and hardware for a workload, from measured figures and from
/// traces: the order and the sizes of all blocks of snapshots, without their contents.
#[derive(Debug, Clone, Parser)]
#[command(name = "varve-plan", version, max_term_width = 100)]
pub struct PlanningArguments {
    #[command(flatten)]
    pub global: GlobalArgs,

    /// The command
    #[command(subcommand)]
    pub command: PlanningCommand,
}

/// The commands.
#[derive(Debug, Clone, Subcommand)]
pub enum PlanningCommand {
    /// Predict the needs and the speed of each kind of store on a disk, and choose one
    #[command(after_help = plan::PLAN_HELP)]
    Predict(Box<PlanArgs>),
    /// Measure the speed of a server or a disk
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Show traces and their profiles, and make a trace of all snapshots
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder
    Man {
        /// The folder
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}
