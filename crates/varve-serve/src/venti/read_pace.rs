//! How many reads one thread takes at a time: few where each waits for the disk, as many threads wait for more of them at once; many where blocks are in memory, as to hand
//! work to a thread costs more than the work.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A read that takes longer has waited for a disk.
const QUICK: Duration = Duration::from_micros(150);
const FEW: usize = 2;
const MANY: usize = 16;

/// How long a read took lately, in microseconds.
#[derive(Debug)]
pub(super) struct ReadPace(AtomicU32);

impl Default for ReadPace {
    /// Nothing is known: perhaps a disk has to be waited for.
    fn default() -> Self {
        Self(AtomicU32::new(u32::MAX))
    }
}

impl ReadPace {
    pub(super) fn at_once(&self) -> usize {
        if self.is_quick() { MANY } else { FEW }
    }

    /// Whether reads did not wait for a disk lately.
    pub(super) fn is_quick(&self) -> bool {
        Duration::from_micros(self.0.load(Ordering::Relaxed).into()) <= QUICK
    }

    /// So many reads took so long. What was before counts for a third of what is now.
    pub(super) fn note(&self, elapsed: Duration, count: usize) {
        let each = elapsed.as_micros() / count.max(1) as u128;
        let each = u32::try_from(each).unwrap_or(u32::MAX);
        let before = self.0.load(Ordering::Relaxed);
        let now = if before == u32::MAX { each } else { before / 3 + (each - each / 3) };
        // Two that come at the same time may lose one of the two.
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
        // A disk is noticed at once, and memory soon after.
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
