//! Counts the candidates that the index has proposed per look-up. Each candidate costs a look into
//! the log's directory.

use std::sync::atomic::{AtomicU64, Ordering};

/// The numbers of look-ups with 0 candidates, with 1, and so on. The last one also counts look-ups
/// with more.
pub type CandidateCounts = [u64; 9];

/// Counts the look-ups since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct CandidateCounters([AtomicU64; 9]);

impl CandidateCounters {
    pub(crate) fn note(&self, candidate_count: usize) {
        self.0[candidate_count.min(self.0.len() - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> CandidateCounts {
        std::array::from_fn(|number| self.0[number].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_look_up_is_counted_once() {
        let counters = CandidateCounters::default();
        [0, 1, 1, 8, 100].into_iter().for_each(|count| counters.note(count));
        assert_eq!(counters.counts(), [1, 2, 0, 0, 0, 0, 0, 0, 2]);
    }
}
