//! The only module of this crate that uses the clock, threads and sleep. Targets are an edge of the
//! program.

use std::io;
use std::pin::pin;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use varve_world::{Random, RealRandom, StopSignal};

use crate::attempt_error::AttemptError;

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

/// A call may go on for this long after its caller was told to end. Most calls are done by then,
/// and leave nothing unfinished at the server.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// The runtime for the asynchronous libraries of one target. It has threads of its own, which end
/// with it.
pub(crate) struct Runtime {
    runtime: Option<tokio::runtime::Runtime>,
    /// Set when the caller no longer waits for answers.
    stop: StopSignal,
}

impl Runtime {
    pub fn new(stop: StopSignal) -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("varve-remote").enable_all();
        Ok(Self { runtime: Some(builder.build()?), stop })
    }

    /// Runs `future` to completion, for at most `time`, or until shortly after the caller was told
    /// to end. Refuses to run on a thread of an asynchronous runtime, which must not block.
    pub fn wait<T>(
        &self,
        time: Duration,
        future: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        let runtime = self.runtime.as_ref().expect("a runtime is taken away only when it is dropped");
        if tokio::runtime::Handle::try_current().is_ok() {
            let text = "a target blocks until its answer comes, and cannot be used on a thread of an asynchronous runtime: use `spawn_blocking`";
            return Err(AttemptError::refused(text));
        }
        runtime.block_on(async {
            let (timed, over) = (pin!(tokio::time::timeout(time, future)), pin!(self.over()));
            match select(timed, over).await {
                Either::Left((outcome, _)) => outcome.unwrap_or_else(|_| Err(timed_out(time))),
                Either::Right(_) => Err(AttemptError::passing("interrupted")),
            }
        })
    }

    /// Waits until the caller has been told to end for the time of [`GRACE`].
    async fn over(&self) {
        self.stop.requested().await;
        tokio::time::sleep(GRACE).await;
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Connections may hang, so the shutdown does not wait for them.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts a thread that waits beside a call that blocks.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("varve-remote".into()).spawn(work)
}

/// The error of a call that took longer than `time`.
pub(crate) fn timed_out(time: Duration) -> AttemptError {
    let text = format!("no answer within {} s", time.as_secs_f32().ceil());
    AttemptError::Passing(io::Error::new(io::ErrorKind::TimedOut, text), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_must_not_wait_is_told_so() {
        let ours = Runtime::new(StopSignal::default()).unwrap();
        let theirs = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let refused = theirs.block_on(async { ours.wait(Duration::from_secs(1), async { Ok(()) }) });
        assert!(matches!(refused, Err(AttemptError::Refused(_))), "{refused:?}");
        assert!(ours.wait(Duration::from_secs(1), async { Ok(()) }).is_ok());
    }

    #[test]
    fn a_call_ends_when_nobody_waits_for_it() {
        let stop = StopSignal::default();
        stop.set();
        let over = Runtime::new(stop).unwrap();
        assert_eq!(over.wait(Duration::from_secs(60), async { Ok(7) }).unwrap(), 7, "it is soon done");
        let begun = now();
        let ended = over.wait(Duration::from_secs(60), std::future::pending::<Result<(), _>>());
        let Err(AttemptError::Passing(error, None)) = ended else { panic!("{ended:?}") };
        assert_eq!(error.to_string(), "interrupted");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
