//! Counts the references that the kernel holds to each file. The kernel reports the number of
//! references that it drops. When none are left, the file can be forgotten.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use varve_image::FileId;

/// The reference counts of the files that the kernel knows.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    counts: Mutex<BTreeMap<FileId, u64>>,
}

impl Lookups {
    /// Counts one more reference to this file.
    pub(super) fn add(&self, file: FileId) {
        let mut counts = self.counts.lock();
        *counts.entry(file).or_insert(0) += 1;
    }

    /// Drops `times` references. Calls `forget` if none are left, before another thread can add
    /// one.
    pub(super) fn remove(&self, file: FileId, times: u64, forget: impl FnOnce()) {
        let mut counts = self.counts.lock();
        let Some(count) = counts.get_mut(&file) else { return };
        *count = count.saturating_sub(times);
        if *count == 0 {
            counts.remove(&file);
            forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_forgotten_when_nobody_knows_it() {
        let lookups = Lookups::default();
        let forgets = |file, times| {
            let mut forgotten = false;
            lookups.remove(FileId(file), times, || forgotten = true);
            forgotten
        };
        assert!(!forgets(5, 1), "it was never shown");
        lookups.add(FileId(5));
        lookups.add(FileId(5));
        lookups.add(FileId(6));
        assert!(!forgets(5, 1));
        assert!(forgets(5, 1));
        assert!(!forgets(5, 1));
        assert!(forgets(6, 3), "more often than it was shown");
    }
}
