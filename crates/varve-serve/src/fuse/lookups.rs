//! How often the kernel was shown each file: it says how many of those it has forgotten, and at none nobody knows the number any more.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use varve_image::FileId;

/// The files that the kernel knows.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    counts: Mutex<BTreeMap<FileId, u64>>,
}

impl Lookups {
    /// The kernel is about to be shown this file once more.
    pub(super) fn add(&self, file: FileId) {
        let mut counts = self.counts.lock();
        *counts.entry(file).or_insert(0) += 1;
    }

    /// The kernel has forgotten it so many times. `forget` is called if it does not know it any more, before anybody can show it again.
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
