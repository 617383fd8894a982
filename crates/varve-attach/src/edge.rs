//! The only module of this crate that uses the clock, threads and sleep. A reader of publications
//! is an edge of the program.

use std::io;
use std::time::{Duration, Instant};

/// A clock that counts from its creation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "waiting for servers is the machine's own time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Sleeps for `pause`.
#[expect(clippy::disallowed_methods, reason = "waiting for other processes is the machine's own time")]
pub(crate) fn sleep(pause: Duration) {
    std::thread::sleep(pause);
}

/// Starts a thread that nobody waits for.
pub(crate) fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}
