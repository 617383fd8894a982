//! Roles of keys, and the permissions that they give.

use serde::{Deserialize, Serialize};
use varve_block::has_kind;

/// The use of a key. If a role lacks a key, no program can do what that key is needed for. If only
/// a [`Permission`] is missing, this program refuses:
/// `docs/internals/security.md` lists both kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Full,
    /// May read and add. Lacks the master key, so it can make no other keys.
    AppendOnly,
    /// May add, but read nothing, not even the blocks that it has added. Lacks the read key.
    WriteOnly,
}

/// An action that not every key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Read,
    Add,
    /// To protect snapshots against being forgotten, and to extend that protection.
    Hold,
    /// To remove or replace anything: to forget snapshots, to reclaim their space, to write damaged
    /// arenas anew.
    Destroy,
    /// To make, change, export and remove keys.
    ManageKeys,
}

/// The key does not allow the requested action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this key is {role}: it may not {permission}")]
pub struct NotPermitted {
    pub role: Role,
    pub permission: Permission,
}

has_kind!(NotPermitted:
    Self { permission: Permission::Read, .. } => CannotRead,
    _ => NeedsFullKey,
);

impl Role {
    /// Returns true if a key of this role has the permission.
    #[must_use]
    pub fn allows(self, permission: Permission) -> bool {
        match (self, permission) {
            (Self::Full, _) | (_, Permission::Add) => true,
            (Self::AppendOnly, permission) => matches!(permission, Permission::Read | Permission::Hold),
            (Self::WriteOnly, _) => false,
        }
    }

    /// Refuses an action that a key of this role does not allow.
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
            Self::Hold => "hold snapshots",
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
        let all = [
            Permission::Read,
            Permission::Add,
            Permission::Hold,
            Permission::Destroy,
            Permission::ManageKeys,
        ];
        let allowed = |role: Role| all.map(|permission| role.allows(permission));
        assert_eq!(allowed(Role::Full), [true; 5]);
        assert_eq!(allowed(Role::AppendOnly), [true, true, true, false, false]);
        assert_eq!(allowed(Role::WriteOnly), [false, true, false, false, false]);
        let refused = Role::WriteOnly.require(Permission::Read).unwrap_err();
        assert_eq!(refused.to_string(), "this key is write-only: it may not read what is stored");
    }
}
