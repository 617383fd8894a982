//! The only access of this crate to clock and sleep: it talks to other programs, and these may
//! hang.

use std::time::{Duration, Instant};

/// The time by which an answer must have come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    #[expect(clippy::disallowed_methods, reason = "waits for other programs use the machine's clock")]
    pub(crate) fn after(patience: Duration) -> Self {
        Self(Instant::now() + patience)
    }

    /// Returns the remaining time; `None` if the deadline has passed.
    #[expect(clippy::disallowed_methods, reason = "waits for other programs use the machine's clock")]
    pub(crate) fn left(&self) -> Option<Duration> {
        self.0.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

/// Sleeps for `pause`.
#[expect(clippy::disallowed_methods, reason = "other programs are polled for their end")]
pub(crate) fn sleep(pause: Duration) {
    std::thread::sleep(pause);
}
