//! The needs of each command: its store, the form of its output, and its hints.

use std::path::Path;

use varve_session::ReplicaReads;

use super::{
    Command, DailyCommand, DiskCommand, OUTPUT, PlanningCommand, StoreCommand, ToolsCommand, TraceCommand,
};
use crate::complaint::{DESTINATION_FULL, KEEP_DAMAGED, STORE_FULL};

/// The needs of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandNeeds {
    /// The command works on a store of the configuration if the command line names none. Others
    /// make a store, need none, or read the configuration by themselves.
    pub configured_store: bool,
    /// The command writes the content of a file, or a script, to standard output.
    pub writes_content: bool,
    pub replica_reads: ReplicaReads,
    /// The hint for a full disk.
    pub when_full: Option<&'static str>,
    /// The hint for damage.
    pub when_damaged: Option<&'static str>,
}

impl CommandNeeds {
    /// A command that reads a store.
    pub const READER: Self = Self {
        configured_store: true,
        writes_content: false,
        replica_reads: ReplicaReads::Cached,
        when_full: None,
        when_damaged: None,
    };
    /// A command that writes to a store.
    const WRITER: Self = Self { when_full: Some(STORE_FULL), ..Self::READER };
    /// A command that reads something else.
    const STORELESS: Self = Self { configured_store: false, ..Self::READER };
    /// A command that prints a script.
    const PRINTER: Self = Self { writes_content: true, ..Self::STORELESS };
}

impl Command {
    pub fn needs(&self) -> CommandNeeds {
        match self {
            Self::Cat(_) => CommandNeeds { writes_content: true, ..CommandNeeds::READER },
            Self::Snapshots(_) | Self::Ls(_) | Self::Versions(_) | Self::Diff(_) | Self::Find(_) => {
                CommandNeeds::READER
            }
            Self::Restore(args) => CommandNeeds {
                writes_content: args.destination() == Some(Path::new(OUTPUT)),
                when_full: Some(DESTINATION_FULL),
                when_damaged: Some(KEEP_DAMAGED),
                ..CommandNeeds::READER
            },
            // An audit of a replica alone needs no store.
            Self::Verify(args) => CommandNeeds {
                configured_store: args.replica.is_none() && args.publication.is_none(),
                replica_reads: ReplicaReads::Verified,
                ..CommandNeeds::WRITER
            },
            Self::Init(_) => CommandNeeds {
                when_full: Some("make space, and run the same command again"),
                ..CommandNeeds::STORELESS
            },
            Self::Setup(_) | Self::Run(_) => {
                CommandNeeds { when_full: Some(STORE_FULL), ..CommandNeeds::STORELESS }
            }
            Self::Status(_) | Self::Job(_) => CommandNeeds::STORELESS,
            Self::Daily(command) | Self::DailyByName(command) => command.needs(),
            Self::Store(command) | Self::StoreByName(command) => command.needs(),
            Self::Disk(command) | Self::DiskByName(command) => command.needs(),
            Self::Tools(command) | Self::ToolsByName(command) => command.needs(),
            _ => CommandNeeds::WRITER,
        }
    }
}

impl DailyCommand {
    fn needs(&self) -> CommandNeeds {
        match self {
            Self::Log(_) | Self::Config(_) | Self::Explain(_) => CommandNeeds::STORELESS,
            Self::Notify(_) | Self::Pause(_) => {
                CommandNeeds { when_full: Some(STORE_FULL), ..CommandNeeds::STORELESS }
            }
            Self::Drill(_) => CommandNeeds::WRITER,
        }
    }
}

impl StoreCommand {
    fn needs(&self) -> CommandNeeds {
        match self {
            Self::Stats(_) => CommandNeeds::READER,
            Self::Clone(_) => CommandNeeds {
                when_full: Some(
                    "the replica is unchanged; make space, and the same command continues where it stopped",
                ),
                ..CommandNeeds::STORELESS
            },
            _ => CommandNeeds::WRITER,
        }
    }
}

impl DiskCommand {
    fn needs(&self) -> CommandNeeds {
        let configured_store = !matches!(self, Self::Attach(_));
        CommandNeeds { configured_store, ..CommandNeeds::WRITER }
    }
}

impl ToolsCommand {
    fn needs(&self) -> CommandNeeds {
        match self {
            Self::Completions { .. } => CommandNeeds::PRINTER,
            Self::Man { .. } => CommandNeeds::STORELESS,
            Self::WebPassword(_) => CommandNeeds { when_full: Some(STORE_FULL), ..CommandNeeds::STORELESS },
        }
    }
}

impl PlanningCommand {
    pub fn needs(&self) -> CommandNeeds {
        match self {
            Self::Trace(TraceCommand::FromStore(_)) => CommandNeeds::WRITER,
            Self::Trace(_) => CommandNeeds::READER,
            Self::Completions { .. } => CommandNeeds::PRINTER,
            Self::Predict(_) | Self::Bench(_) | Self::Man { .. } => CommandNeeds::STORELESS,
        }
    }
}
