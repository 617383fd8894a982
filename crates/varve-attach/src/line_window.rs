//! The bytes that may be on their way to the cache when no reader waits for them.

use std::time::Duration;

/// The rate of the line is measured over this time.
const INTERVAL: Duration = Duration::from_millis(500);
/// Enough for a line of 30 Mbit/s with a round trip of half a second.
const BYTES_MIN: u64 = 2 << 20;
/// A slow reader of the profile must find all of it in memory.
const BYTES_MAX: u64 = 8 << 20;

/// A window of as many bytes as have come in the last half second. With fewer, a fast line with a
/// long round trip is idle between requests. With more, a reader who wants something else waits
/// longer: its block comes after those on their way.
#[derive(Debug)]
pub(crate) struct LineWindow {
    measured_since: Duration,
    received_then: u64,
    bytes: u64,
}

impl LineWindow {
    /// Begins with the smallest window. `received_bytes` is the count of all received bytes so far.
    pub(crate) fn new(now: Duration, received_bytes: u64) -> Self {
        Self { measured_since: now, received_then: received_bytes, bytes: BYTES_MIN }
    }

    /// Measures, and returns the window.
    pub(crate) fn measured(&mut self, now: Duration, received_bytes: u64) -> u64 {
        let time = now.saturating_sub(self.measured_since);
        if time >= INTERVAL {
            let come = u128::from(received_bytes.saturating_sub(self.received_then));
            let bytes = come * INTERVAL.as_micros() / time.as_micros();
            self.bytes = u64::try_from(bytes).unwrap_or(u64::MAX).clamp(BYTES_MIN, BYTES_MAX);
            (self.measured_since, self.received_then) = (now, received_bytes);
        }
        self.bytes
    }

    /// Returns the bytes that are requested together. A window holds several of these batches, so
    /// that the line is not idle while the next one is requested.
    pub(crate) fn batch_bytes(&self) -> u64 {
        self.bytes / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A line that holds what is requested for a round trip, and delivers at its rate.
    fn bytes_in(seconds: u32, bytes_per_second: u64, round_trip: Duration) -> (u64, u64) {
        let mut window = LineWindow::new(Duration::ZERO, 0);
        let (mut received, mut on_the_way, mut size) = (0, std::collections::VecDeque::new(), BYTES_MIN);
        let (mut requested, mut free) = (0, Duration::ZERO);
        for millisecond in 0..seconds * 1000 {
            let now = MS * millisecond;
            while let Some((at, bytes)) = on_the_way.front().copied().filter(|(at, _)| *at <= now) {
                received += bytes;
                on_the_way.pop_front();
                let _: Duration = at;
            }
            size = window.measured(now, received);
            while requested - received < size {
                let bytes = 64 << 10;
                free =
                    free.max(now + round_trip) + Duration::from_micros(bytes * 1_000_000 / bytes_per_second);
                on_the_way.push_back((free, bytes));
                requested += bytes;
            }
        }
        (received, size)
    }

    #[test]
    fn a_line_with_a_long_round_trip_is_filled() {
        for (bytes_per_second, round_trip) in
            [(1_250_000, 200), (6_250_000, 200), (12_500_000, 200), (12_500_000, 10)]
        {
            let (received, window) = bytes_in(10, bytes_per_second, MS * round_trip);
            let possible = bytes_per_second * 10;
            assert!(received * 100 > possible * 92, "{received} of {possible}");
            let half_second = (bytes_per_second / 2).clamp(BYTES_MIN, BYTES_MAX);
            assert!(window <= half_second + (64 << 10), "{window} at {bytes_per_second}");
        }
    }

    #[test]
    fn the_window_has_bounds() {
        let mut window = LineWindow::new(Duration::ZERO, 7);
        assert_eq!(window.measured(MS, u64::MAX), BYTES_MIN);
        assert_eq!(window.measured(MS * 500, u64::MAX), BYTES_MAX);
        assert_eq!(window.measured(MS * 2000, u64::MAX), BYTES_MIN);
        assert_eq!(window.batch_bytes(), BYTES_MIN / 4);
    }
}
