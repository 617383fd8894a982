//! Faults of single calls.

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The power is cut. The call may have taken effect, in whole, in part, or not at all. No call
    /// succeeds until the disk is restarted.
    PowerCut,
    /// A read fails; the next one may succeed.
    ReadError,
    /// A read returns one flipped bit.
    ReadFlip,
    /// A read returns old data: zeros in place of a later append, or the file that a rename
    /// replaced.
    ReadStale,
    /// An append or a creation finds no space, and so do all later ones until space is freed. A
    /// part of the bytes may be written.
    DiskFull,
    /// An append fails. A part of the bytes may be written.
    WriteError,
    /// A sync fails. Some of the pending sectors are written, and the others never will be.
    SyncError,
    /// A sync of a folder fails. Some of the changes are durable, and the others stay pending.
    FolderSyncError,
    /// A creation, truncation, rename, removal or lock fails without effect.
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

    /// The name of the fault in reports.
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

    /// Reports whether the fault makes a read return wrong data without an error.
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

/// A pending fault. It hits the first call of a suitable kind after a number of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strike {
    /// The number of calls, of any kind, that succeed first.
    pub after: u64,
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
