//! Limits the bytes per second of transfers.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::edge;

/// The rate in bytes per second at this moment; `None` without a limit.
type RateNow = dyn Fn() -> Option<u64> + Send + Sync;

/// A token bucket: one token per byte, a rate that may change, and a capacity of a quarter of a
/// second. A caller that takes more than is there leaves a debt, and waits. So concurrent callers
/// share the rate.
pub struct Pace {
    rate: Box<RateNow>,
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
        Self::changing(move || Some(bytes_per_second))
    }

    /// Makes a pace whose rate in bytes per second is asked for at each transfer; `None` means that
    /// there is no limit.
    #[must_use]
    pub fn changing(rate: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        let bucket = Mutex::new(Bucket { tokens: 0.0, filled_at: edge::now() });
        Self { rate: Box::new(rate), bucket }
    }

    /// Takes tokens for `bytes`. Returns the pause before the bytes may be transferred.
    pub(crate) fn take(&self, bytes: usize) -> Duration {
        self.take_at(bytes, edge::now())
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact in its fifteenth digit")]
    fn take_at(&self, bytes: usize, now: Instant) -> Duration {
        let rate = (self.rate)();
        let mut bucket = self.bucket.lock();
        let passed = now.saturating_duration_since(bucket.filled_at).as_secs_f64();
        bucket.filled_at = now.max(bucket.filled_at);
        let Some(rate) = rate else {
            // A debt of slower times is forgotten.
            bucket.tokens = 0.0;
            return Duration::ZERO;
        };
        let rate = rate.max(1) as f64;
        bucket.tokens = (bucket.tokens + passed * rate).min(rate / 4.0) - bytes as f64;
        let owed = (-bucket.tokens / rate).max(0.0);
        Duration::try_from_secs_f64(owed).unwrap_or(Duration::MAX)
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("rate", &(self.rate)()).field("bucket", &self.bucket).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use varve_block::to_usize;

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

    /// A day in steps, with a slow working time. The clock is simulated.
    #[test]
    fn a_rate_that_changes_is_kept_at_each_time() {
        const HOUR: u64 = 3_600;
        let seconds = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&seconds);
        let pace = Pace::changing(move || match clock.load(Ordering::SeqCst) / HOUR {
            8..18 => Some(1_000),
            18..20 => Some(4_000),
            _ => None,
        });
        let start = edge::now();
        let mut sent = [0_u64; 24];
        let mut passed = Duration::ZERO;
        while passed.as_secs() < 24 * HOUR {
            seconds.store(passed.as_secs(), Ordering::SeqCst);
            let hour = to_usize(passed.as_secs() / HOUR);
            let pause = pace.take_at(16_000, start + passed);
            sent[hour] += 16_000;
            // Without a limit, the line takes a second for this piece.
            passed += pause.max(Duration::from_secs(u64::from(pause.is_zero())));
        }
        for (hour, sent) in sent.iter().enumerate() {
            let expected = match hour {
                8..18 => 1_000 * HOUR,
                18..20 => 4_000 * HOUR,
                _ => 16_000 * HOUR,
            };
            let off = sent.abs_diff(expected);
            assert!(off <= 48_000, "hour {hour}: {sent} bytes were sent instead of {expected}");
        }
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
