//! The threads of the proxies: the one place of this crate where there are any, and where time passes.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::buffer::{Step, WriteBuffer};
use crate::read_ahead::ReadAhead;

/// How often a buffer without work looks for some.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait before a store that takes nothing is tried again: at first, and at most.
const AWAY_PAUSE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(4)];
/// How many blocks are read ahead at the same time, in groups.
const READERS: usize = 4;

/// Threads that end when this is dropped.
#[derive(Debug)]
pub struct Background {
    threads: Vec<JoinHandle<()>>,
    stop: Stop,
}

enum Stop {
    Trickle(Vec<Sender<()>>),
    ReadAhead(Arc<ReadAhead>),
}

impl std::fmt::Debug for Stop {
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

/// How fast several threads may send together.
struct Pace {
    bytes_per_second: Option<u64>,
    /// When the next one may begin.
    next: Mutex<Instant>,
}

impl Pace {
    /// How long who has sent so many bytes since a moment waits before they send more.
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

/// Sends on what goes one way, until it is told to stop.
fn send_on(buffer: &WriteBuffer, way: usize, pace: &Pace, stopped: &Receiver<()>) {
    let mut away = AWAY_PAUSE[0];
    loop {
        let started = now();
        let pause = match buffer.step(way) {
            Step::Idle => IDLE_PAUSE,
            Step::Ended => Duration::ZERO,
            Step::Sent { bytes } => {
                away = AWAY_PAUSE[0];
                pace.pause_after(bytes, started)
            }
            Step::Away { reason } => {
                if away == AWAY_PAUSE[0] {
                    tracing::warn!(reason, "nothing can be sent on for now: it is tried again");
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
    /// Sends on what is buffered, each way by itself, and all together no faster than `bytes_per_second` if that is given. What a step has begun when
    /// this is dropped is ended first.
    #[must_use]
    pub fn trickle(buffer: Arc<WriteBuffer>, bytes_per_second: Option<u64>) -> Self {
        let pace = Arc::new(Pace { bytes_per_second, next: Mutex::new(now()) });
        let (mut stops, mut threads) = (Vec::new(), Vec::new());
        for way in 0..buffer.way_count() {
            let (stop, stopped) = channel();
            let (buffer, pace) = (Arc::clone(&buffer), Arc::clone(&pace));
            threads.push(start(move || send_on(&buffer, way, &pace, &stopped)));
            stops.push(stop);
        }
        Self { threads, stop: Stop::Trickle(stops) }
    }

    /// Reads ahead.
    #[must_use]
    pub fn read_ahead(ahead: Arc<ReadAhead>) -> Self {
        let reader = || {
            let ahead = Arc::clone(&ahead);
            start(move || {
                while ahead.wait() {
                    ahead.step();
                }
            })
        };
        Self { threads: (0..READERS).map(|_| reader()).collect(), stop: Stop::ReadAhead(ahead.clone()) }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        match &mut self.stop {
            Stop::Trickle(stops) => stops.clear(),
            Stop::ReadAhead(ahead) => ahead.end(),
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of a proxy has ended in the middle of its work");
            }
        }
    }
}
