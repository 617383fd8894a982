//! Exit statuses: how a command ended, for scripts. `docs/guide/exit-status.md` promises them for ever.

use std::error::Error;
use std::fmt;
use std::io;

use varve_archive::{
    CopySnapshotError, DecodeNodeError, DecodeSnapshotError, FieldError, LoadCatalogError, OpenVacError,
    ReadContentError, ReadFolderError, ReadRecordsError, RestoreImageError, SelectError, VerifyError,
};
use varve_block::{GetError, causes};
use varve_machine::RestoreForeignError;
use varve_replica::{CloneError, OpenReplicaError, ReplicateError};
use varve_serve::ListenError;
use varve_serve::venti::StartError;
use varve_store::{
    BringBackError, ChooseIndexError, ChoosePlacesError, ConfigError, CreateError, KeyError, NotPermitted,
    OpenError, RepairError,
};
use varve_tree::{CopyTreeError, ReadPointerError, ReadTreeError};
use varve_world::LockError;

use crate::arguments::WrongWords;
use crate::signals;

pub const DONE: u8 = 0;
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const GAPS: u8 = 3;
pub const DAMAGE: u8 = 5;
pub const NO_STORE: u8 = 10;
pub const LOCKED: u8 = 11;
pub const WRONG_KEY: u8 = 12;
pub const INTERRUPTED: u8 = 130;

/// The work was ended before it was done, because a signal asked for it.
#[derive(Debug)]
pub struct Interrupted(pub &'static str);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Interrupted {}

/// A key was given that is not the store's.
#[derive(Debug)]
pub struct WrongKey(pub String);

impl fmt::Display for WrongKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for WrongKey {}

/// Another process holds something that only one process may write to.
#[derive(Debug)]
pub struct InUse(pub String);

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for InUse {}

/// The exit status of a command that failed with this error.
pub fn of(error: &anyhow::Error) -> u8 {
    let error: &(dyn Error + 'static) = error.as_ref();
    // A command that has met a signal stops with whatever error it was at, such as that of a
    // connection that was not tried again.
    if signals::was_signalled() || is_any(error, |cause| cause.is::<Interrupted>()) {
        return INTERRUPTED;
    }
    match () {
        () if is_any(error, is_usage_error) => USAGE,
        () if is_any(error, is_locked) => LOCKED,
        () if is_any(error, is_wrong_key) => WRONG_KEY,
        () if is_any(error, is_no_store) => NO_STORE,
        () if is_any(error, is_damaged) => DAMAGE,
        () => FAILED,
    }
}

/// Whether an error says that another process holds what was to be written.
pub fn is_in_use(error: &anyhow::Error) -> bool {
    is_any(error.as_ref(), is_locked)
}

/// Whether an error says that bytes which were once stored cannot be had any more.
pub fn is_damage(error: &(dyn Error + 'static)) -> bool {
    is_any(error, is_damaged)
}

fn is_any(error: &(dyn Error + 'static), holds: impl Fn(&(dyn Error + 'static)) -> bool) -> bool {
    typed_causes(error).into_iter().any(holds)
}

/// An error and its causes, with those that a transparent error hides from [`Error::source`].
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

/// The error for which a transparent error stands.
fn hidden_below<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return error.get_ref().map(|inner| inner as _);
    }
    // A box is an error of its own in a chain of causes.
    macro_rules! boxed {
        ($($kind:ty),*) => {
            $(
                if let Some(inner) = error.downcast_ref::<Box<$kind>>() {
                    return Some(&**inner);
                }
            )*
        };
    }
    boxed!(OpenError, ReadContentError, ReadFolderError, RestoreImageError);
    if let Some(ChooseIndexError::Config(inner)) = error.downcast_ref() {
        return Some(&**inner);
    }
    if let Some(RestoreImageError::ReadFile(inner)) = error.downcast_ref() {
        return Some(&**inner);
    }
    // No archive has this root: nothing that was stored is lost.
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
        OpenError::Config,
        OpenError::Keys,
        OpenVacError::Get,
        ReadContentError::Get,
        ReadContentError::Tree,
        ReadFolderError::Records,
        ReadRecordsError::Tree,
        ReadTreeError::Pointer,
        RepairError::NotPermitted,
        ReplicateError::Open,
        RestoreForeignError::Restore,
        RestoreImageError::Read,
        StartError::Listen,
        VerifyError::LookUp,
    );
    None
}

fn is_usage_error(cause: &(dyn Error + 'static)) -> bool {
    cause.is::<WrongWords>()
        || matches!(cause.downcast_ref(), Some(SelectError::NotAMoment { .. }))
        || matches!(
            cause.downcast_ref(),
            Some(ListenError::Exposed { .. } | ListenError::ExposedNumbers { .. })
        )
}

fn is_locked(cause: &(dyn Error + 'static)) -> bool {
    cause.is::<InUse>()
        || matches!(cause.downcast_ref(), Some(OpenError::Locked { .. }))
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
    matches!(cause.downcast_ref(), Some(OpenError::NotAStore | OpenError::NotAFolder))
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
        || matches!(cause.downcast_ref(), Some(OpenError::ConfigLost | OpenError::Downgraded { .. }))
        || matches!(cause.downcast_ref(), Some(OpenReplicaError::Mark | OpenReplicaError::InTheWay(_)))
        || matches!(cause.downcast_ref(), Some(ReplicateError::InTheWay(_)))
}
