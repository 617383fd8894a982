//! The kinds of failures that a caller distinguishes: a script by the exit status, a user by the
//! hint. An error offers its own kind, so that nobody above has to know its variants.

use std::error::Error;
use std::io;

/// A kind of failure. The order of the variants is their precedence: an error of two kinds counts
/// as the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// A signal ended the command before its work was complete.
    Interrupted,
    /// The arguments cannot be used, or not together.
    Usage,
    /// Another writer holds the store, or another lock is taken.
    Locked,
    /// The store is encrypted, and no secret was given.
    NoSecret,
    /// The given secret does not open the store.
    WrongKey,
    /// A passphrase was given, and key files open the store.
    NeedsKeyFile,
    /// A key file was given, and passphrases open the store.
    NeedsPassphrase,
    /// The key does not permit reading.
    CannotRead,
    /// Only a full key permits this.
    NeedsFullKey,
    /// There is no store.
    NoStore,
    /// There is something else than a store or replica.
    NotAStore,
    /// A newer version of the program wrote the data.
    NewerVersion,
    /// Stored bytes are lost or changed.
    Damage,
    /// The settings of the store are lost or changed. Every copy of the store has them.
    SettingsLost,
    /// All keys of the store, or all of one kind, are lost or changed.
    KeysLost,
    /// A disk is full.
    NoSpace,
}

impl FailureKind {
    /// Reports whether stored bytes are lost or changed.
    #[must_use]
    pub fn is_damage(self) -> bool {
        matches!(self, Self::Damage | Self::SettingsLost | Self::KeysLost)
    }
}

/// An error that has a kind of its own, apart from its causes.
pub trait HasKind: Error {
    /// Returns the kind, if this value has one.
    fn failure_kind(&self) -> Option<FailureKind>;
}

/// Implements [`HasKind`]: patterns of the type, each with the kind of the values that match.
#[macro_export]
macro_rules! has_kind {
    ($error:ty: $($pattern:pat $(if $guard:expr)? => $kind:ident),+ $(,)?) => {
        impl $crate::HasKind for $error {
            #[allow(unreachable_patterns, reason = "the patterns may match all values")]
            fn failure_kind(&self) -> Option<$crate::FailureKind> {
                match self {
                    $($pattern $(if $guard)? => Some($crate::FailureKind::$kind),)+
                    _ => None,
                }
            }
        }
    };
}

impl HasKind for io::Error {
    fn failure_kind(&self) -> Option<FailureKind> {
        (self.kind() == io::ErrorKind::StorageFull).then_some(FailureKind::NoSpace)
    }
}
