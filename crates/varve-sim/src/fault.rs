//! What can go wrong in one call.

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The power goes: the call may have had its effect, a part of it, or none, and no call succeeds until the disk is restarted.
    PowerCut,
    /// A read fails; the next one may succeed.
    ReadError,
    /// A read returns one flipped bit.
    ReadFlip,
    /// A read returns what was there before: zeros where a later append wrote, or the file that a rename replaced.
    ReadStale,
    /// An append or a creation finds no space, and so does every later one until there is room again. A part of the bytes may be there.
    DiskFull,
    /// An append fails. A part of the bytes may be there.
    WriteError,
    /// A sync fails: of what was waiting some is written, and the rest will never be.
    SyncError,
    /// A sync of a folder fails: some of the changes are durable, the others still wait.
    FolderSyncError,
    /// A creation, truncation, rename, removal or lock fails, and has no effect.
    NameError,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::PowerCut,
        Self::ReadError,
        Self::ReadFlip,
        Self::ReadStale,
        Self::DiskFull,
        Self::WriteError,
        Self::SyncError,
        Self::FolderSyncError,
        Self::NameError,
    ];

    /// Its name in a report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PowerCut => "power cut",
            Self::ReadError => "read fails",
            Self::ReadFlip => "read returns a flipped bit",
            Self::ReadStale => "read returns what was there before",
            Self::DiskFull => "disk is full",
            Self::WriteError => "write fails",
            Self::SyncError => "sync fails",
            Self::FolderSyncError => "sync of a folder fails",
            Self::NameError => "creation, rename, removal, cut or lock fails",
        }
    }

    /// Whether what a read returns is wrong, and nothing says so.
    #[must_use]
    pub fn is_lie(self) -> bool {
        matches!(self, Self::ReadFlip | Self::ReadStale)
    }

    pub(crate) fn can_strike(self, call: Call) -> bool {
        match self {
            Self::PowerCut => true,
            Self::ReadError => matches!(call, Call::Read | Call::Look),
            Self::ReadFlip | Self::ReadStale => call == Call::Read,
            Self::DiskFull => matches!(call, Call::Append | Call::Create),
            Self::WriteError => call == Call::Append,
            Self::SyncError => matches!(call, Call::Sync | Call::SyncSoon),
            Self::FolderSyncError => call == Call::SyncFolder,
            Self::NameError => {
                matches!(call, Call::Create | Call::Truncate | Call::Rename | Call::Remove | Call::Lock)
            }
        }
    }
}

/// A fault that waits for its call: the first one that it can strike, after so many others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strike {
    /// How many calls are let through first, of any kind.
    pub after: u64,
    /// What then happens.
    pub fault: Fault,
}

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Look,
    Append,
    Create,
    Truncate,
    Sync,
    SyncSoon,
    SyncFolder,
    Rename,
    Remove,
    Lock,
}
