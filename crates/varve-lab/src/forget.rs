//! Empties the page cache of the files in one folder.

use std::fs::File;
use std::path::{Path, PathBuf};

/// Drops the files in a folder from the page cache, as far as the system does that.
pub(crate) fn forget(folder: &Path) {
    for path in files_below(folder) {
        if let Ok(file) = File::open(&path) {
            // Only clean pages can be dropped.
            let _ = file.sync_data();
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found
}
