//! A clock that moves only when simulated work takes time.

use std::sync::atomic::{AtomicU64, Ordering};

use varve_world::{Clock, Timestamp};

/// The time of a simulation, in nanoseconds since its start. The start is 1970, so the clock also
/// serves as the engine's time of day.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// Starts at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the nanoseconds since the start.
    #[must_use]
    pub fn nanoseconds(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Moves forward by a duration in nanoseconds: the work of a processor, for example.
    pub fn advance(&self, nanoseconds: u64) {
        self.0.fetch_add(nanoseconds, Ordering::SeqCst);
    }

    /// Moves forward to a moment, unless that has passed already.
    pub fn wait_until(&self, nanoseconds: u64) {
        self.0.fetch_max(nanoseconds, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp(i64::try_from(self.nanoseconds()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back() {
        let clock = VirtualClock::new();
        clock.advance(5);
        clock.wait_until(3);
        assert_eq!(clock.now(), Timestamp(5));
        clock.wait_until(9);
        assert_eq!(clock.nanoseconds(), 9);
    }
}
