//! The user's own folders for this program, outside any store. They lie below the folders that the
//! XDG Base Directory Specification names.

use std::path::PathBuf;

/// Returns the folder for data that can be read or computed again.
pub fn cache() -> Option<PathBuf> {
    below("XDG_CACHE_HOME", ".cache")
}

/// Returns the folder for notes that cannot be computed again.
pub fn state() -> Option<PathBuf> {
    below("XDG_STATE_HOME", ".local/state")
}

fn below(variable: &str, usual: &str) -> Option<PathBuf> {
    let named =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    named(variable).or_else(|| Some(named("HOME")?.join(usual))).map(|folder| folder.join("varve"))
}
