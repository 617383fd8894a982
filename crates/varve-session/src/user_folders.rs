//! Where this program keeps what is its user's, and of no store: below the folders that the XDG
//! Base Directory Specification names.

use std::path::PathBuf;

/// What can be had again.
pub fn cache() -> Option<PathBuf> {
    below("XDG_CACHE_HOME", ".cache")
}

/// What was noted.
pub fn state() -> Option<PathBuf> {
    below("XDG_STATE_HOME", ".local/state")
}

fn below(variable: &str, usual: &str) -> Option<PathBuf> {
    let named =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    named(variable).or_else(|| Some(named("HOME")?.join(usual))).map(|folder| folder.join("varve"))
}
