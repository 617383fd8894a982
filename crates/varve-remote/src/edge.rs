//! The only module of this crate that uses the clock, threads and sleep. Targets are an edge of the
//! program.

use std::io;
use std::time::{Duration, Instant};

use varve_world::{Random, RealRandom};

use crate::retry::attempt_error::AttemptError;

/// Returns the current time, for measuring durations.
#[expect(clippy::disallowed_methods, reason = "pauses and rates of a network are the machine's own time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Sleeps for `pause`.
#[expect(clippy::disallowed_methods, reason = "pauses and rates of a network are the machine's own time")]
pub(crate) fn sleep(pause: Duration) {
    if !pause.is_zero() {
        std::thread::sleep(pause);
    }
}

/// Draws a random number, which makes the names of temporary files unique to their writer.
pub(crate) fn draw() -> io::Result<u64> {
    let mut bytes = [0; 8];
    RealRandom.fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// The runtime for the asynchronous libraries of one target. It has threads of its own, which end
/// with it.
pub(crate) struct Runtime(Option<tokio::runtime::Runtime>);

impl Runtime {
    pub fn new() -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("varve-remote").enable_all();
        builder.build().map(|runtime| Self(Some(runtime)))
    }

    /// Runs `future` to completion, or for at most `time`. Refuses to run on a thread of an
    /// asynchronous runtime, which must not block.
    pub fn wait<T>(
        &self,
        time: Duration,
        future: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        let runtime = self.0.as_ref().expect("a runtime is taken away only when it is dropped");
        if tokio::runtime::Handle::try_current().is_ok() {
            let text = "a target blocks until its answer comes, and cannot be used on a thread of an asynchronous runtime: use `spawn_blocking`";
            return Err(AttemptError::refused(text));
        }
        let timed = async { tokio::time::timeout(time, future).await };
        runtime.block_on(timed).unwrap_or_else(|_| Err(timed_out(time)))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Connections may hang, so the shutdown does not wait for them.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn timed_out(time: Duration) -> AttemptError {
    let text = format!("no answer within {} s", time.as_secs_f32().ceil());
    AttemptError::Passing(io::Error::new(io::ErrorKind::TimedOut, text), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_must_not_wait_is_told_so() {
        let ours = Runtime::new().unwrap();
        let theirs = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let refused = theirs.block_on(async { ours.wait(Duration::from_secs(1), async { Ok(()) }) });
        assert!(matches!(refused, Err(AttemptError::Refused(_))), "{refused:?}");
        assert!(ours.wait(Duration::from_secs(1), async { Ok(()) }).is_ok());
    }
}
