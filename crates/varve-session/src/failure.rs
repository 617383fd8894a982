//! The kind of a failure. Scripts see it as an exit status.

use std::error::Error;
use std::io;

use varve_archive::{
    CollectError, DecodeSnapshotError, ForgetError, HoldLabelError, MarkTreeError, ReadRemovedError,
    SelectError, SpaceNeedsError, UnknownSnapshots, WalkBlocksError,
};
use varve_block::{FailureKind, GetError, HasKind, causes};
use varve_content::{DecodeNodeError, FieldError, ReadRecordsError};
use varve_log::{AppendError, ParityHeaderError, ReadLogError};
use varve_replica::{CloneError, DropError, ObstructingEntry, OpenReplicaError};
use varve_store::{ChooseIndexError, ConfigError, KeyError, NotPermitted, OpenStoreError};
use varve_tree::{DecodeTreeBlockError, ReadPointerError, ReadTreeError};
use varve_world::LockError;

/// Arguments that are valid each by itself, but not together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// A signal ended the command before its work was complete.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Interrupted(pub &'static str);

/// The given key does not open the store.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongKey(pub String);

/// Another process holds a lock that only one process may have.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InUse(pub String);

/// Returns the kinds of an error and of its causes, beginning with the error itself.
pub fn failure_kinds<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = FailureKind> + 'a {
    causes(error).filter_map(kind_of)
}

/// Returns the kind of an error itself, apart from its causes.
pub fn kind_of(error: &(dyn Error + 'static)) -> Option<FailureKind> {
    // The type of a boxed cause is that of the box.
    macro_rules! first_of {
        ($($kind:ty),* $(,)?) => {
            $(
                if let Some(error) = error.downcast_ref::<$kind>() {
                    return error.failure_kind();
                }
                if let Some(error) = error.downcast_ref::<Box<$kind>>() {
                    return error.failure_kind();
                }
            )*
        };
    }
    first_of!(
        AppendError,
        ChooseIndexError,
        CloneError,
        CollectError,
        ConfigError,
        DecodeNodeError,
        DecodeSnapshotError,
        DecodeTreeBlockError,
        DropError,
        FieldError,
        ForgetError,
        GetError,
        HoldLabelError,
        KeyError,
        MarkTreeError,
        NotPermitted,
        ObstructingEntry,
        OpenReplicaError,
        OpenStoreError,
        ParityHeaderError,
        ReadLogError,
        ReadPointerError,
        ReadRecordsError,
        ReadRemovedError,
        ReadTreeError,
        SelectError,
        SpaceNeedsError,
        UnknownSnapshots,
        WalkBlocksError,
        io::Error,
    );
    match error.downcast_ref() {
        Some(LockError::Held { .. }) => Some(FailureKind::Locked),
        _ if error.is::<Interrupted>() => Some(FailureKind::Interrupted),
        _ if error.is::<UsageError>() => Some(FailureKind::Usage),
        _ if error.is::<WrongKey>() => Some(FailureKind::WrongKey),
        _ if error.is::<InUse>() => Some(FailureKind::Locked),
        _ => None,
    }
}
