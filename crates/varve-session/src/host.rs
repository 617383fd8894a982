//! The names of this machine and of its users.

use varve_content::vac::OwnerNames;

/// The environment variable with the name of this machine in snapshots.
pub const HOST_VARIABLE: &str = "VARVE_HOST";

/// Returns the name of this machine, to be recorded in a snapshot: `VARVE_HOST`, or else its host
/// name.
#[must_use]
pub fn snapshot_host() -> String {
    std::env::var(HOST_VARIABLE).ok().filter(|name| !name.is_empty()).unwrap_or_else(host_name)
}

/// Returns the host name.
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
