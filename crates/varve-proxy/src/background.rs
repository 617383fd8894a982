//! The threads of the proxies: the one place of this crate where there are any, and where time passes.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::buffer::{Step, WriteBuffer};
use crate::read_ahead::ReadAhead;

/// How often a buffer without work looks for some.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait before a store that takes nothing is tried again: at first, and at most.
const AWAY_PAUSE: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(30)];
/// How many blocks are read ahead at the same time, in groups.
const READERS: usize = 4;

/// Threads that end when this is dropped.
#[derive(Debug)]
pub struct Background {
    threads: Vec<JoinHandle<()>>,
    stop: Stop,
}

enum Stop {
    Trickle(Option<Sender<()>>),
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

impl Background {
    /// Sends on what is buffered, no faster than `bytes_per_second` if that is given. What a step has begun when this is dropped is ended first.
    #[must_use]
    pub fn trickle(buffer: Arc<WriteBuffer>, bytes_per_second: Option<u64>) -> Self {
        let (stop, stopped) = channel::<()>();
        let run = move || {
            let mut away = AWAY_PAUSE[0];
            loop {
                let started = now();
                let pause = match buffer.step() {
                    Step::Idle => IDLE_PAUSE,
                    Step::Ended => Duration::ZERO,
                    Step::Sent { bytes } => {
                        away = AWAY_PAUSE[0];
                        bytes_per_second.map_or(Duration::ZERO, |rate| {
                            let needed = Duration::from_nanos(
                                u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1)))
                                    .unwrap_or(u64::MAX),
                            );
                            needed.saturating_sub(started.elapsed())
                        })
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
        };
        Self { threads: vec![start(run)], stop: Stop::Trickle(Some(stop)) }
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
            Stop::Trickle(stop) => drop(stop.take()),
            Stop::ReadAhead(ahead) => ahead.end(),
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of a proxy has ended in the middle of its work");
            }
        }
    }
}
