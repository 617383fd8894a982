//! The groups of commands. The command of a group also goes by its own name: `varve gc` is
//! `varve store gc`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

use super::{
    AttachArgs, CloneArgs, ConfigCommand, CopyArgs, DrillArgs, ExplainArgs, GcArgs, HoldArgs, LogArgs,
    NotifyArgs, OptimizeArgs, PauseArgs, ProfileCommand, PublishArgs, ReindexArgs, ReleaseArgs, StatsArgs,
    TagArgs, VentiCommand, WebPasswordArgs, attach, daily, drill, forgetting, optimize, publish, reclaiming,
    replicas, snapshots, stats, venti,
};

/// The commands for daily work that are needed now and then.
#[derive(Debug, Clone, Subcommand)]
pub enum DailyCommand {
    /// List the jobs of past runs: when, how long, how much, and what failed
    Log(LogArgs),
    /// Check the configuration of daily work
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say why a job of the configuration ran, or did not
    Explain(ExplainArgs),
    /// Send notices about promises that have changed, or try the channels for them
    #[command(after_help = daily::NOTIFY_HELP)]
    Notify(NotifyArgs),
    /// Pause daily work for some time
    Pause(PauseArgs),
    /// Restore some files, compare them, and record that in the store
    #[command(after_help = drill::DRILL_HELP)]
    Drill(DrillArgs),
}

/// The commands that mark snapshots.
#[derive(Debug, Clone, Subcommand)]
pub enum MarkCommand {
    /// Change the tags and the comments of snapshots
    #[command(after_help = snapshots::TAG_HELP)]
    Tag(TagArgs),
    /// Protect snapshots against being forgotten
    #[command(after_help = forgetting::HOLD_HELP)]
    Hold(HoldArgs),
    /// End the protection of snapshots
    #[command(after_help = forgetting::RELEASE_HELP)]
    Release(ReleaseArgs),
}

/// The commands that look after a store.
#[derive(Debug, Clone, Subcommand)]
pub enum StoreCommand {
    /// Show the contents of the store and their size
    #[command(after_help = stats::STATS_HELP)]
    Stats(StatsArgs),
    /// Free the space of what no snapshot needs
    #[command(after_help = reclaiming::GC_HELP)]
    Gc(GcArgs),
    /// Rebuild the index from the log, and choose its place
    ///
    /// The log is not changed, and does not depend on the index. If this is interrupted, the next
    /// command rebuilds the index.
    Reindex(ReindexArgs),
    /// Restore a whole store from a replica
    #[command(after_help = replicas::CLONE_HELP)]
    Clone(CloneArgs),
    /// Copy snapshots, or archives of vac and vbackup, to a store of another kind
    #[command(after_help = venti::COPY_HELP)]
    Copy(CopyArgs),
    /// List the sessions of Venti clients, and set aside the blocks of one of them
    #[command(subcommand)]
    Venti(VentiCommand),
}

/// The commands for disks that are published.
#[derive(Debug, Clone, Subcommand)]
pub enum DiskCommand {
    /// Publish disks as signed files that any web server can deliver
    #[command(after_help = publish::PUBLISH_HELP)]
    Publish(Box<PublishArgs>),
    /// Use a published disk while it is fetched, as a device or as files
    #[command(after_help = attach::ATTACH_HELP)]
    Attach(Box<AttachArgs>),
    /// Show, merge and make profiles: the reads of a machine's start, for `publish --profile`
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Make a disk image whose start reads few, large ranges: for ext2, ext3 and ext4
    #[command(after_help = optimize::OPTIMIZE_HELP)]
    Optimize(Box<OptimizeArgs>),
}

/// The commands that make files for other programs.
#[derive(Debug, Clone, Subcommand)]
pub enum ToolsCommand {
    /// Make the file for `serve --http-password`: asks for a password, and writes its hash
    ///
    /// If standard input is no terminal, the password is its first line.
    WebPassword(WebPasswordArgs),
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command};

    #[test]
    fn a_command_of_a_group_goes_by_two_names() {
        let parsed =
            |words: &[&str]| Arguments::try_parse_from([&["varve"], words].concat()).unwrap().command;
        assert!(matches!(parsed(&["store", "gc"]), Command::Store(StoreCommand::Gc(_))));
        assert!(matches!(parsed(&["gc"]), Command::StoreByName(StoreCommand::Gc(_))));
        assert!(matches!(
            parsed(&["mark", "hold", "x", "--label", "y"]),
            Command::Mark(MarkCommand::Hold(_))
        ));
        assert!(matches!(parsed(&["hold", "x", "--label", "y"]), Command::MarkByName(MarkCommand::Hold(_))));
    }
}
