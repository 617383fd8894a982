//! From a word to a place for a replica.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use varve_remote::{OpenOptions, Pace, Target};

/// Whether a word names a place by a scheme, as `s3://bucket` does.
pub fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

/// Whether a folder holds a replica, and not a store.
pub fn is_replica_folder(path: &Path) -> bool {
    // Whatever lies there: who has put a folder in place of the file has not made a store of it.
    path.join("replica.toml").symlink_metadata().is_ok()
}

/// Opens the place that `text` names, a folder or a URL; `bytes_per_second` bounds what is sent there.
pub fn open(text: &str, bytes_per_second: Option<u64>) -> Result<Arc<dyn Target>> {
    let up = bytes_per_second.map(|rate| Arc::new(Pace::new(rate)));
    let options = OpenOptions { up, ..OpenOptions::from_environment() };
    Ok(Arc::from(varve_remote::open(text, &options)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        for url in ["s3://bucket/x", "sftp://me@host/x"] {
            assert!(is_url(url), "{url}");
        }
        for path in ["/a/b", "relative", "://x", "a b://c", "C:/x"] {
            assert!(!is_url(path), "{path}");
        }
    }
}
