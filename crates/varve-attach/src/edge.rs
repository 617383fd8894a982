//! The only module of this crate that uses the clock, threads and sleep. A reader of publications
//! is an edge of the program.

use std::io;
use std::sync::mpsc;
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

/// Does some work on a thread of its own, and waits for it for at most `time`. Returns `None` after
/// that; the work goes on, and nobody sees its result.
pub(crate) fn within<T: Send + 'static>(
    name: &str,
    time: Option<Duration>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    let (sender, receiver) = mpsc::channel();
    start_thread(name, move || drop(sender.send(work())))?;
    Ok(match time {
        Some(time) => receiver.recv_timeout(time).ok(),
        None => receiver.recv().ok(),
    })
}

/// Starts a thread that nobody waits for.
pub(crate) fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}
