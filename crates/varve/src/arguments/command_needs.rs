//! The store that a command needs, and the form of its output.

use super::Command;

impl Command {
    /// Reports whether the command works on a store of the configuration if the command line names
    /// none. Others make a store, need none, or read the configuration by themselves. An audit of a
    /// replica alone needs no store.
    pub fn may_use_configured_store(&self) -> bool {
        match self {
            Self::Verify(args) => args.replica.is_none() && args.publication.is_none(),
            Self::Init(_)
            | Self::Clone(_)
            | Self::Attach(_)
            | Self::WebPassword(_)
            | Self::Setup(_)
            | Self::Config(_)
            | Self::Run(_)
            | Self::Status(_)
            | Self::Explain(_)
            | Self::Notify(_)
            | Self::Pause(_)
            | Self::Plan(_)
            | Self::Bench(_)
            | Self::Completions { .. }
            | Self::Man { .. } => false,
            _ => true,
        }
    }

    /// Reports whether the command writes the content of a file, or a script, to standard output.
    pub fn writes_content(&self) -> bool {
        match self {
            Self::Cat(_) | Self::Completions { .. } => true,
            Self::Restore(args) => args.destination.as_os_str() == "-",
            _ => false,
        }
    }
}
