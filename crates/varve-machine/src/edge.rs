//! The one place of this crate that asks the machine for time and sleep: it talks to other programs, and these may hang.

use std::time::{Duration, Instant};

/// A moment by which an answer must have come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    #[expect(
        clippy::disallowed_methods,
        reason = "how long another program is waited for is the machine's own time"
    )]
    pub(crate) fn after(patience: Duration) -> Self {
        Self(Instant::now() + patience)
    }

    /// How long there is still; `None` if it has passed.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long another program is waited for is the machine's own time"
    )]
    pub(crate) fn left(&self) -> Option<Duration> {
        self.0.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

/// Waits.
#[expect(
    clippy::disallowed_methods,
    reason = "other programs are asked from time to time whether they are done"
)]
pub(crate) fn sleep(pause: Duration) {
    std::thread::sleep(pause);
}
