//! The threads of the proxies. Only this module starts threads and measures real time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::buffer::{TrickleStep, WriteBuffer};
use crate::read_ahead::ReadAheadStore;

/// An idle buffer looks for work at this interval.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// The pause before an unreachable store is tried again: the first one, and the longest.
const AWAY_PAUSE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(4)];
/// Reader threads for read-ahead. Each fetches one group of blocks at a time.
const READERS: usize = 4;

/// Background threads. Dropping this ends them.
#[derive(Debug)]
pub struct Background {
    threads: Vec<JoinHandle<()>>,
    stop: StopSignal,
}

enum StopSignal {
    Trickle(Vec<Sender<()>>),
    ReadAhead(Arc<ReadAheadStore>),
}

impl std::fmt::Debug for StopSignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Trickle(_) => "Trickle",
            Self::ReadAhead(_) => "ReadAhead",
        })
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
fn send_on(buffer: &WriteBuffer, way: usize, pace: &TricklePace, stopped: &Receiver<()>) {
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
        if !matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
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
        let (mut stops, mut threads) = (Vec::new(), Vec::new());
        for way in 0..buffer.way_count() {
            let (stop, stopped) = channel();
            let (buffer, pace) = (Arc::clone(&buffer), Arc::clone(&pace));
            threads.push(start(move || send_on(&buffer, way, &pace, &stopped)));
            stops.push(stop);
        }
        Self { threads, stop: StopSignal::Trickle(stops) }
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
        Self { threads: (0..READERS).map(|_| reader()).collect(), stop: StopSignal::ReadAhead(ahead.clone()) }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        match &mut self.stop {
            StopSignal::Trickle(stops) => stops.clear(),
            StopSignal::ReadAhead(ahead) => ahead.end(),
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of a proxy has panicked");
            }
        }
    }
}
