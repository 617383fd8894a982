//! The number of outcomes of a power cut that a test tries.

/// The number of outcomes that are tried for each call: how often the call is hit, and how often
/// the machine restarts after each hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutcomeCount {
    pub hits: u64,
    pub restarts: u64,
}

impl OutcomeCount {
    /// One hit of each call, and one restart.
    pub const ONE: Self = Self { hits: 1, restarts: 1 };

    /// Divides at least `outcomes` into hits and restarts. A restart costs less than a hit, since
    /// the work before the hit is not done again.
    #[must_use]
    pub fn of(outcomes: u64) -> Self {
        let restarts = outcomes.clamp(1, 25);
        Self { hits: outcomes.div_ceil(restarts), restarts }
    }

    /// Returns the seed of the first restart after a hit of a call. The seeds of the other restarts
    /// follow it, and no two outcomes have the same.
    #[must_use]
    pub fn first_seed(self, call: u64, hit: u64) -> u64 {
        (call * self.hits + hit) * self.restarts
    }
}
