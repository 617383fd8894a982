//! The failure kinds that a caller distinguishes. Scripts see them as exit statuses.

use std::error::Error;
use std::io;

use varve_archive::{
    CopySnapshotError, DecodeNodeError, DecodeSnapshotError, FieldError, LoadCatalogError, OpenVacError,
    ReadContentError, ReadFolderError, ReadRecordsError, RestoreImageError, SelectError, VerifyError,
};
use varve_block::{GetError, causes};
use varve_log::AppendError;
use varve_replica::{CloneError, OpenReplicaError, ReplicateError};
use varve_store::{
    BringBackError, ChooseIndexError, ChoosePlacesError, ConfigError, CreateError, KeyError, NotPermitted,
    OpenStoreError,
};
use varve_tree::{CopyTreeError, ReadPointerError, ReadTreeError};
use varve_upkeep::RepairError;
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

/// A kind of failure. It decides the exit status, and often the hint. The order of the variants is
/// their precedence: an error of two kinds counts as the first.
#[expect(missing_docs, reason = "the names explain themselves")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    Interrupted,
    Usage,
    /// Another writer holds the store, or another lock is taken.
    Locked,
    /// The key is wrong or missing, or does not permit the command.
    WrongKey,
    NoStore,
    /// Stored bytes are lost or changed.
    Damage,
    /// A disk is full.
    NoSpace,
}

impl FailureKind {
    const ALL: [Self; 7] = [
        Self::Interrupted,
        Self::Usage,
        Self::Locked,
        Self::WrongKey,
        Self::NoStore,
        Self::Damage,
        Self::NoSpace,
    ];

    /// Classifies an error. Returns `None` if it is of no kind listed here.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.is_in(error))
    }

    /// Reports whether an error, or one of its causes, is of this kind.
    #[must_use]
    pub fn is_in(self, error: &(dyn Error + 'static)) -> bool {
        typed_causes(error).into_iter().any(|cause| self.is(cause))
    }

    fn is(self, cause: &(dyn Error + 'static)) -> bool {
        match self {
            Self::Interrupted => cause.is::<Interrupted>(),
            Self::Usage => is_usage_error(cause),
            Self::Locked => is_locked(cause),
            Self::WrongKey => is_wrong_key(cause),
            Self::NoStore => is_no_store(cause),
            Self::Damage => is_damaged(cause),
            Self::NoSpace => is_full(cause),
        }
    }
}

/// Returns an error and its causes, including those that a transparent error hides from
/// [`Error::source`].
#[must_use]
pub fn typed_causes<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    let mut found = Vec::new();
    for cause in causes(error) {
        let mut next = Some(cause);
        while let Some(cause) = next {
            found.push(cause);
            next = hidden_below(cause);
        }
    }
    found
}

/// Returns the error that a transparent error wraps.
fn hidden_below<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return error.get_ref().map(|inner| inner as _);
    }
    // In a chain of causes a boxed error has the type of the box.
    macro_rules! boxed {
        ($($kind:ty),*) => {
            $(
                if let Some(inner) = error.downcast_ref::<Box<$kind>>() {
                    return Some(&**inner);
                }
            )*
        };
    }
    boxed!(OpenStoreError, ReadContentError, ReadFolderError, RestoreImageError);
    if let Some(ChooseIndexError::Config(inner)) = error.downcast_ref() {
        return Some(&**inner);
    }
    if let Some(RestoreImageError::ReadFile(inner)) = error.downcast_ref() {
        return Some(&**inner);
    }
    // No archive has this root. No stored data is lost, so this is not damage.
    if let Some(OpenVacError::Get(GetError::NotFound { .. })) = error.downcast_ref() {
        return None;
    }
    macro_rules! hidden {
        ($($kind:ident :: $variant:ident),* $(,)?) => {
            $(
                if let Some($kind::$variant(inner)) = error.downcast_ref() {
                    return Some(inner);
                }
            )*
        };
    }
    hidden!(
        BringBackError::Keys,
        ChoosePlacesError::Store,
        CloneError::Open,
        CloneError::Replica,
        CopySnapshotError::Enter,
        CopyTreeError::Read,
        CreateError::Keys,
        KeyError::NotPermitted,
        LoadCatalogError::Snapshot,
        OpenStoreError::Config,
        OpenStoreError::Keys,
        OpenVacError::Get,
        ReadContentError::Get,
        ReadContentError::Tree,
        ReadFolderError::Records,
        ReadRecordsError::Tree,
        ReadTreeError::Pointer,
        RepairError::NotPermitted,
        ReplicateError::Open,
        RestoreImageError::Read,
        VerifyError::LookUp,
    );
    None
}

fn is_usage_error(cause: &(dyn Error + 'static)) -> bool {
    cause.is::<UsageError>() || matches!(cause.downcast_ref(), Some(SelectError::NotAMoment { .. }))
}

fn is_locked(cause: &(dyn Error + 'static)) -> bool {
    cause.is::<InUse>()
        || matches!(cause.downcast_ref(), Some(OpenStoreError::Locked { .. }))
        || matches!(cause.downcast_ref(), Some(LockError::Held { .. }))
        || matches!(cause.downcast_ref(), Some(KeyError::Locked(_)))
        || matches!(cause.downcast_ref(), Some(ChooseIndexError::Locked { .. }))
}

fn is_wrong_key(cause: &(dyn Error + 'static)) -> bool {
    cause.is::<WrongKey>()
        || cause.is::<NotPermitted>()
        || matches!(
            cause.downcast_ref(),
            Some(
                KeyError::Missing
                    | KeyError::Wrong { .. }
                    | KeyError::NotAllTried { .. }
                    | KeyError::NoSuchKind { .. }
            )
        )
}

fn is_no_store(cause: &(dyn Error + 'static)) -> bool {
    matches!(cause.downcast_ref(), Some(OpenStoreError::NotAStore | OpenStoreError::NotAFolder))
        || matches!(cause.downcast_ref(), Some(OpenReplicaError::NotAReplica))
}

fn is_damaged(cause: &(dyn Error + 'static)) -> bool {
    cause.is::<DecodeNodeError>()
        || cause.is::<DecodeSnapshotError>()
        || cause.is::<FieldError>()
        || matches!(cause.downcast_ref(), Some(GetError::NotFound { .. } | GetError::Damaged { .. }))
        || matches!(cause.downcast_ref(), Some(ReadTreeError::LeafLength { .. }))
        || matches!(cause.downcast_ref(), Some(ReadPointerError::Malformed { .. }))
        || matches!(cause.downcast_ref(), Some(ReadRecordsError::Truncated { .. }))
        || matches!(cause.downcast_ref(), Some(CloneError::Damaged { .. }))
        || matches!(cause.downcast_ref(), Some(ConfigError::Parse(_) | ConfigError::Value { .. }))
        || matches!(cause.downcast_ref(), Some(KeyError::Malformed { .. } | KeyError::NoKeys))
        || matches!(
            cause.downcast_ref(),
            Some(OpenStoreError::ConfigLost | OpenStoreError::Downgraded { .. })
        )
        || matches!(cause.downcast_ref(), Some(OpenReplicaError::Mark | OpenReplicaError::InTheWay(_)))
        || matches!(cause.downcast_ref(), Some(ReplicateError::InTheWay(_)))
}

fn is_full(cause: &(dyn Error + 'static)) -> bool {
    match (cause.downcast_ref::<io::Error>(), cause.downcast_ref()) {
        (Some(error), _) => error.kind() == io::ErrorKind::StorageFull,
        // Another worker met the full disk. This worker's append was refused because of that.
        (_, Some(AppendError::Failed { reason })) => reason.kind() == Some(io::ErrorKind::StorageFull),
        _ => false,
    }
}
