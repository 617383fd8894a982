//! Limits the bytes per second of transfers.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::edge;

/// A token bucket: one token per byte, a steady rate, and a capacity of a quarter of a second. A
/// caller that takes more than is there leaves a debt, and waits. So concurrent callers share the
/// rate.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: u64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Negative if tokens were taken in advance.
    tokens: f64,
    filled_at: Instant,
}

impl Pace {
    /// Makes a pace of this many bytes per second. A rate of zero counts as one.
    #[must_use]
    pub fn new(bytes_per_second: u64) -> Self {
        let bucket = Mutex::new(Bucket { tokens: 0.0, filled_at: edge::now() });
        Self { bytes_per_second: bytes_per_second.max(1), bucket }
    }

    /// Takes tokens for `bytes`. Returns the pause before the bytes may be transferred.
    pub(crate) fn take(&self, bytes: usize) -> Duration {
        self.take_at(bytes, edge::now())
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact in its fifteenth digit")]
    fn take_at(&self, bytes: usize, now: Instant) -> Duration {
        let rate = self.bytes_per_second as f64;
        let mut bucket = self.bucket.lock();
        let passed = now.saturating_duration_since(bucket.filled_at).as_secs_f64();
        bucket.filled_at = now.max(bucket.filled_at);
        bucket.tokens = (bucket.tokens + passed * rate).min(rate / 4.0) - bytes as f64;
        let owed = (-bucket.tokens / rate).max(0.0);
        Duration::try_from_secs_f64(owed).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_over_any_stretch() {
        let pace = Pace::new(1000);
        let start = edge::now();
        let mut now = start;
        for _ in 0..100 {
            now += pace.take_at(100, now);
        }
        let seconds = (now - start).as_secs_f64();
        assert!((9.9..10.1).contains(&seconds), "10,000 bytes took {seconds} s at 1,000 a second");
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let pace = Pace::new(1000);
        let later = edge::now() + Duration::from_secs(3600);
        assert_eq!(pace.take_at(250, later), Duration::ZERO);
        assert!(pace.take_at(1000, later) >= Duration::from_millis(990));
    }

    #[test]
    fn callers_at_the_same_time_share() {
        let pace = Pace::new(1000);
        let now = edge::now();
        pace.take_at(1000, now);
        assert!(pace.take_at(1000, now) >= Duration::from_millis(1900));
    }
}
