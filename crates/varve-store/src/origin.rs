//! The origin of what was added to a store: the key that its writer had.

use crate::role::Role;

/// The key that something was added with, by its role and its id.
///
/// Both are texts, so that a role of a later version is read and kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    pub role: String,
    /// Empty for an early write-only key, which cannot prove which one it is.
    pub key: String,
}

impl Origin {
    /// The origin that a key of this role and id gives.
    #[must_use]
    pub fn new(role: Role, key: &str) -> Self {
        Self { role: role.to_string(), key: key.to_owned() }
    }

    /// Returns whether the key could read the store. Only such a key writes final catalogs, so it
    /// could have changed all earlier snapshots as well.
    #[must_use]
    pub fn can_read(&self) -> bool {
        self.is_full() || self.role == Role::AppendOnly.to_string()
    }

    /// Returns whether it was a full key.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.role == Role::Full.to_string()
    }

    /// The text from which the origin key is derived.
    pub(crate) fn holder(&self) -> String {
        format!("{} {}", self.role, self.key)
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "an early {} key", self.role),
            key => write!(f, "{} key {key}", self.role),
        }
    }
}
