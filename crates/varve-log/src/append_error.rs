//! Why nothing more can be appended, and the first failure of a writer, which every later caller is
//! told.

use std::error::Error;
use std::io;

use varve_block::{causes, has_kind, with_causes};

use crate::arenas::address::ArenaId;

/// The reason why nothing more can be appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// A write failed. The log refuses everything until it is opened again, which cuts off a torn
    /// tail.
    #[error("arena {arena}: cannot write")]
    Storage { arena: ArenaId, source: io::Error },
    /// An earlier append or sync failed.
    #[error("the store takes no more data, because an earlier write failed: {reason}")]
    Failed { reason: WriteFailure },
    /// The log has reached the end of its addresses.
    #[error("the log is full: it has reached the last address, 128 TiB")]
    LogFull,
}

has_kind!(AppendError:
    // Another worker met the full disk. This worker's append was refused because of that.
    Self::Failed { reason } if reason.kind == Some(io::ErrorKind::StorageFull) => NoSpace,
);

/// Why a writer takes no more data. It outlives the error that it was made of, and can be told to
/// many callers; it keeps the kind of that error, by which a full disk is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct WriteFailure {
    reason: String,
    kind: Option<io::ErrorKind>,
}

impl WriteFailure {
    /// A failure that no call of the system has caused.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), kind: None }
    }

    /// The failure that this error was, with all of its causes.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        Self { reason: with_causes(error), kind: causes(error).find_map(kind_of) }
    }

    /// The failure of a call of the system, which `reason` explains.
    #[must_use]
    pub fn of_call(reason: impl Into<String>, error: &io::Error) -> Self {
        Self { reason: reason.into(), kind: Some(error.kind()) }
    }

    /// The kind of the system's error behind it.
    #[must_use]
    pub fn kind(&self) -> Option<io::ErrorKind> {
        self.kind
    }
}

fn kind_of(cause: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    match (cause.downcast_ref::<io::Error>(), cause.downcast_ref()) {
        (Some(error), _) => Some(error.kind()),
        (_, Some(AppendError::Failed { reason })) => reason.kind,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_known_from_the_first_error_and_from_all_that_follow() {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        let first = WriteFailure::of(&AppendError::Storage { arena: ArenaId(3), source });
        assert_eq!(first.kind(), Some(io::ErrorKind::StorageFull));
        assert_eq!(first.to_string(), "arena 3: cannot write: no storage space");
        let later = WriteFailure::of(&AppendError::Failed { reason: first });
        assert_eq!(later.kind(), Some(io::ErrorKind::StorageFull));
        assert_eq!(WriteFailure::of(&AppendError::LogFull).kind(), None);
    }
}
