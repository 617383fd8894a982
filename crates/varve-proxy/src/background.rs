//! The threads of the proxies. Only this module starts threads and measures real time.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_world::StopSignal;

use crate::buffer::{TrickleStep, WriteBuffer};
use crate::read_ahead::ReadAheadStore;

/// An idle buffer looks for work at this interval.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// The pause before an unreachable store is tried again: the first one, and the longest.
const AWAY_PAUSE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(4)];
/// Reader threads for read-ahead. Each fetches one group of blocks at a time.
const READERS: usize = 4;

/// Background threads. Dropping this ends them.
pub struct Background {
    threads: Vec<JoinHandle<()>>,
    stop: StopSignal,
    /// Its readers wait for blocks to fetch.
    ahead: Option<Arc<ReadAheadStore>>,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").field("threads", &self.threads).finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "the edge of this crate")]
fn start(run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(run)
}

#[expect(clippy::disallowed_methods, reason = "the edge of this crate")]
fn now() -> Instant {
    Instant::now()
}

/// The common rate limit of several sending threads.
struct TricklePace {
    bytes_per_second: Option<u64>,
    /// The time when the next thread may send.
    next: Mutex<Instant>,
}

impl TricklePace {
    /// The time that a thread waits after sending this many bytes since `started`.
    fn pause_after(&self, bytes: u64, started: Instant) -> Duration {
        let Some(rate) = self.bytes_per_second else { return Duration::ZERO };
        let needed = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let needed = Duration::from_nanos(u64::try_from(needed).unwrap_or(u64::MAX));
        let mut next = self.next.lock();
        let begun = (*next).max(started);
        *next = begun.checked_add(needed).unwrap_or(begun);
        next.saturating_duration_since(now())
    }
}

/// Sends the blocks of one route, until it is stopped.
fn send_on(buffer: &WriteBuffer, way: usize, pace: &TricklePace, stop: &StopSignal) {
    let mut away = AWAY_PAUSE[0];
    loop {
        let started = now();
        let pause = match buffer.step(way) {
            TrickleStep::Idle => IDLE_PAUSE,
            TrickleStep::Ended => Duration::ZERO,
            TrickleStep::Sent { bytes } => {
                away = AWAY_PAUSE[0];
                pace.pause_after(bytes, started)
            }
            TrickleStep::Away { reason } => {
                if away == AWAY_PAUSE[0] {
                    tracing::warn!(reason, "blocks cannot be sent on at present; it is tried again");
                }
                let pause = away;
                away = AWAY_PAUSE[1].min(away.saturating_mul(2));
                pause
            }
        };
        if stop.wait(pause) {
            return;
        }
    }
}

impl Background {
    /// Sends buffered blocks on every route independently. If `bytes_per_second` is given, it
    /// limits all routes together. Dropping this completes the steps that are running.
    #[must_use]
    pub fn trickle(buffer: Arc<WriteBuffer>, bytes_per_second: Option<u64>) -> Self {
        let pace = Arc::new(TricklePace { bytes_per_second, next: Mutex::new(now()) });
        let stop = StopSignal::default();
        let sender = |way| {
            let (buffer, pace, stop) = (Arc::clone(&buffer), Arc::clone(&pace), stop.clone());
            start(move || send_on(&buffer, way, &pace, &stop))
        };
        let threads = (0..buffer.way_count()).map(sender).collect();
        Self { threads, stop, ahead: None }
    }

    /// Prefetches queued blocks.
    #[must_use]
    pub fn read_ahead(ahead: Arc<ReadAheadStore>) -> Self {
        let reader = || {
            let ahead = Arc::clone(&ahead);
            start(move || {
                while ahead.wait() {
                    ahead.step();
                }
            })
        };
        let threads = (0..READERS).map(|_| reader()).collect();
        Self { threads, stop: StopSignal::default(), ahead: Some(ahead) }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(ahead) = &self.ahead {
            ahead.end();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of a proxy has panicked");
            }
        }
    }
}
