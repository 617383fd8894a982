//! What a key allows its holder to do.

use serde::{Deserialize, Serialize};

/// What a key is for. What a role lacks in keys, no program can do with it; what only its [`Permission`] forbids, this
/// program refuses to do. `docs/security.md` says which is which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Everything.
    Full,
    /// May read and add. Lacks the master key, so it can make no other keys.
    AppendOnly,
    /// May add, and read nothing, not even what it has added. Lacks the read key.
    WriteOnly,
}

/// Something that not every key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// To look at what is stored.
    Read,
    /// To add to it.
    Add,
    /// To remove or replace anything: to forget snapshots, to reclaim their space, to write damaged arenas anew.
    Destroy,
    /// To make, change, export and remove keys.
    ManageKeys,
}

/// A key does not allow what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this key is {role}: it may not {permission}")]
pub struct NotPermitted {
    /// What the key is for.
    pub role: Role,
    /// What was asked for.
    pub permission: Permission,
}

impl Role {
    /// Whether a key of this role allows it.
    #[must_use]
    pub fn allows(self, permission: Permission) -> bool {
        match (self, permission) {
            (Self::Full, _) | (_, Permission::Add) => true,
            (Self::AppendOnly, permission) => permission == Permission::Read,
            (Self::WriteOnly, _) => false,
        }
    }

    /// Refuses what a key of this role does not allow.
    ///
    /// # Errors
    /// [`NotPermitted`].
    pub fn require(self, permission: Permission) -> Result<(), NotPermitted> {
        if self.allows(permission) { Ok(()) } else { Err(NotPermitted { role: self, permission }) }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::AppendOnly => "append-only",
            Self::WriteOnly => "write-only",
        })
    }
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read what is stored",
            Self::Add => "add to the store",
            Self::Destroy => "remove anything",
            Self::ManageKeys => "make, change or remove keys",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_allows_what_it_is_for() {
        let all = [Permission::Read, Permission::Add, Permission::Destroy, Permission::ManageKeys];
        let allowed = |role: Role| all.map(|permission| role.allows(permission));
        assert_eq!(allowed(Role::Full), [true, true, true, true]);
        assert_eq!(allowed(Role::AppendOnly), [true, true, false, false]);
        assert_eq!(allowed(Role::WriteOnly), [false, true, false, false]);
        let refused = Role::WriteOnly.require(Permission::Read).unwrap_err();
        assert_eq!(refused.to_string(), "this key is write-only: it may not read what is stored");
    }
}
