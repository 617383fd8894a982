//! The system's memory of files, emptied of those of one folder.

use std::fs::File;
use std::path::{Path, PathBuf};

/// Lets the system forget what it remembers of the files in a folder, as far as it does.
pub(crate) fn forget(folder: &Path) {
    for path in files_below(folder) {
        if let Ok(file) = File::open(&path) {
            // Only what is on disk can be forgotten.
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
