//! The arguments of the commands of daily work: `setup`, `run`, `status`, and those of the group.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use varve_world::Timestamp;

use super::value::{parse_duration, parse_since, parse_until};

pub const RUN_HELP: &str = "\
Does what is due, in this order: snapshots, replicas, verification, retention with the freeing of space, drills. A job is due when it has not \
succeeded since its last time, so any timer may call this, as often as it likes: every ten minutes is usual. Nothing has to be caught \
up after a missed night.

Jobs that are named are done now, due or not, and whatever the conditions are: the name of a source means its snapshot, that of a \
replica its update, and that of a store the care for it; `verify`, `reclaim` and `drill` mean all jobs of their kind. Another run of the same configuration that is \
still at work is left alone. Each job waits for other writers of its store as long as `wait` says.

Exit status: 0 done or nothing due, 3 a snapshot has gaps, 1 a job failed, 5 damage was found, 11 another writer held a store for \
too long; with --or-fail 6 if nothing was done.

Examples:
  varve run               what a timer calls
  varve run --dry-run     what would be done, and why
  varve run home          archive the source `home` now
  varve run copy drill    bring the replica `copy` up to date, and do all drills";

pub const STATUS_HELP: &str = "\
Judges the promises in the configuration from the archive itself: from its snapshots, the record of readings, its trash, the state of \
each replica and the free space. What earlier runs reported plays no part, so a timer that was never started is noticed, too.

Exit status: 0 if every promise is kept, 4 if one is broken, 1 if one cannot be judged with this key.";

pub const NOTIFY_HELP: &str = "\
Judges the promises, and sends a notice through each channel of the configuration for which something has changed since it was last \
told. Calls the heartbeat if every promise is kept. `varve run` does the same after each run that did something, and once an hour; \
this is for a second machine, which reads a replica.

Exit status: 0 everything was sent, 1 a channel failed. It is told the same again the next time.";

pub const SETUP_HELP: &str = "\
Asks for the folders, the store, how often, a second copy, and who is told when something is wrong. Writes the configuration with a \
new key file beside it, makes the store, and prints the paper key, which belongs away from this machine.

Each answer is checked when it is given, and a wrong one is asked for again.

Examples:
  varve setup --answers-example >answers.toml    the same questions as a file
  varve setup --answers answers.toml";

/// The operations on the configuration.
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigCommand {
    /// Check the configuration, and say what it means
    Check(ConfigCheckArgs),
}

#[derive(Debug, Clone, Args)]
pub struct ConfigCheckArgs {
    /// The configuration, as with --config
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "config")]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub named: ConfigFileArgs,
}

/// The configuration of a command.
#[derive(Debug, Clone, Args)]
pub struct ConfigFileArgs {
    /// The configuration [default: /etc/varve/varve.toml, or ~/.config/varve/varve.toml]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// A source, a replica or a store of the configuration
    #[arg(value_name = "NAME")]
    pub subject: String,

    #[command(flatten)]
    pub file: ConfigFileArgs,
}

#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// A source, a replica or a store of the configuration [default: all]
    #[arg(value_name = "NAME")]
    pub subject: Option<String>,

    /// Only jobs that began at this time or later, such as yesterday or 3d [default: the newest 50]
    #[arg(long, value_name = "WHEN", value_parser = parse_since)]
    pub since: Option<Timestamp>,

    /// Only jobs that began at this time or earlier; a day includes its end
    #[arg(long, value_name = "WHEN", value_parser = parse_until)]
    pub until: Option<Timestamp>,

    /// Only jobs that failed, had gaps or found damage
    #[arg(long)]
    pub failed: bool,

    #[command(flatten)]
    pub file: ConfigFileArgs,
}

#[derive(Debug, Clone, Args)]
pub struct NotifyArgs {
    /// Send a test through each channel, whatever the state of the promises is
    #[arg(long)]
    pub test: bool,

    #[command(flatten)]
    pub file: ConfigFileArgs,
}

#[derive(Debug, Clone, Args)]
pub struct SetupArgs {
    /// Take the answers from this file, and ask nothing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub answers: Option<PathBuf>,

    /// Print an example of a file for --answers, and do nothing
    #[arg(long, conflicts_with = "answers")]
    pub answers_example: bool,

    #[command(flatten)]
    pub file: ConfigFileArgs,
}

#[derive(Debug, Clone, Args)]
pub struct PauseArgs {
    /// The time after which it goes on by itself, such as 3d; jobs that are named to `run` are done
    /// nevertheless
    #[arg(value_name = "TIME", required_unless_present = "end", value_parser = parse_duration)]
    pub time: Option<Duration>,

    /// End a pause
    #[arg(long, conflicts_with = "time")]
    pub end: bool,

    #[command(flatten)]
    pub file: ConfigFileArgs,
}

#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Jobs to do now: a source to archive, a replica to bring up to date, a store to verify and to
    /// free space in, or a kind of jobs, such as drill [default: all jobs that are due]
    #[arg(value_name = "NAME")]
    pub jobs: Vec<String>,

    /// List the jobs that would run, with the reasons, and do nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Stay, and look for work each time after this time, until interrupted [default: 10m]
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "10m", require_equals = true, conflicts_with_all = ["dry_run", "or_fail", "jobs"], value_parser = parse_duration)]
    pub watch: Option<Duration>,

    /// End with status 6 if nothing was done
    #[arg(long)]
    pub or_fail: bool,

    #[command(flatten)]
    pub file: ConfigFileArgs,

    /// Another folder in place of / for the state of the machine
    #[arg(long, value_name = "FOLDER", default_value = "/", hide = true, value_hint = ValueHint::DirPath)]
    pub system_root: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Print the promises and the jobs as metrics of Prometheus, and end with 0
    #[arg(long)]
    pub metrics: bool,

    /// Answer as a plugin of Nagios, Icinga or Checkmk: a line with figures, and the status 0 (all
    /// is kept), 1 (paused), 2 (a promise is broken) or 3 (unknown)
    #[arg(long, conflicts_with = "metrics")]
    pub nagios: bool,

    #[command(flatten)]
    pub file: ConfigFileArgs,
}
