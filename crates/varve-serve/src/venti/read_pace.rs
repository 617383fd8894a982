//! Chooses how many reads one thread takes at a time. If reads wait for the disk, each thread takes
//! few, so that many threads wait at once. If blocks come from memory, each takes many, because
//! handing work to a thread costs more than the read itself.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Slower reads have waited for a disk.
const QUICK: Duration = Duration::from_micros(150);
const FEW: usize = 2;
const MANY: usize = 16;

/// The smoothed time per read, in microseconds.
#[derive(Debug)]
pub(super) struct ReadPace(AtomicU32);

impl Default for ReadPace {
    /// Initially, reads are assumed to wait for a disk.
    fn default() -> Self {
        Self(AtomicU32::new(u32::MAX))
    }
}

impl ReadPace {
    pub(super) fn at_once(&self) -> usize {
        if self.is_quick() { MANY } else { FEW }
    }

    /// Reports whether recent reads did not wait for a disk.
    pub(super) fn is_quick(&self) -> bool {
        Duration::from_micros(self.0.load(Ordering::Relaxed).into()) <= QUICK
    }

    /// Records that `count` reads took `elapsed`. The previous value keeps a weight of one third.
    pub(super) fn note(&self, elapsed: Duration, count: usize) {
        let each = elapsed.as_micros() / count.max(1) as u128;
        let each = u32::try_from(each).unwrap_or(u32::MAX);
        let before = self.0.load(Ordering::Relaxed);
        let now = if before == u32::MAX { each } else { before / 3 + (each - each / 3) };
        // Concurrent updates may overwrite each other, which is harmless.
        self.0.store(now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_disk_is_taken_by_many_threads_and_what_does_not_by_few() {
        let pace = ReadPace::default();
        assert_eq!(pace.at_once(), FEW);
        pace.note(Duration::from_micros(40), 2);
        assert_eq!(pace.at_once(), MANY);
        // A slow disk is noticed at once, and fast memory a little later.
        pace.note(Duration::from_millis(160), 16);
        assert_eq!(pace.at_once(), FEW);
        for _ in 0..8 {
            pace.note(Duration::from_micros(30), 2);
        }
        assert_eq!(pace.at_once(), MANY);
        pace.note(Duration::MAX, 0);
        assert_eq!(pace.at_once(), FEW);
    }
}
