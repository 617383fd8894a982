//! What this machine calls itself and its users.

use varve_archive::OwnerNames;

/// The machine's name, to be remembered with a snapshot.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The names of this machine's users and groups, with their numbers.
#[must_use]
pub fn owner_names() -> OwnerNames {
    // Without the files, owners have numbers and no names.
    let file = |path: &str| std::fs::read(path).unwrap_or_default();
    OwnerNames::parse(&file("/etc/passwd"), &file("/etc/group"))
}
