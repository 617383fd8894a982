//! The names of this machine and of its users.

use varve_archive::vac::OwnerNames;

/// Returns the host name, to be recorded in a snapshot.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the names of this machine's users and groups, by number.
#[must_use]
pub fn owner_names() -> OwnerNames {
    // If a file is unreadable, owners have numbers but no names.
    let file = |path: &str| std::fs::read(path).unwrap_or_default();
    OwnerNames::parse(&file("/etc/passwd"), &file("/etc/group"))
}
