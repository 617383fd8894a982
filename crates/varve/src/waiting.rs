//! `--wait`: waiting until another process lets go of what only one may write to.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde_json::json;

use crate::arguments::Arguments;
use crate::exit_status::{self, Interrupted};
use crate::{say, show, signals};

/// How soon it is looked again at first, and at last.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Does something that another writer may keep from being done, and does it again once that is through,
/// for as long as `--wait` allows. `is_free` is asked before each further attempt, which may cost more.
///
/// # Errors
/// Those of the attempt; that of the last one if it was waited in vain. [`Interrupted`] after a signal.
pub fn until_free<T>(
    arguments: &Arguments,
    is_free: impl Fn() -> bool,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut wait = Wait::new(arguments.wait.unwrap_or_default());
    loop {
        match attempt() {
            Err(error) if exit_status::is_in_use(&error) && !wait.is_over() => {
                signals::watch()?;
                wait.announce(arguments, &error);
                while !wait.is_over() {
                    wait.pause();
                    if signals::was_signalled() {
                        bail!(Interrupted("interrupted while another writer was waited for"));
                    }
                    if is_free() {
                        break;
                    }
                }
            }
            done => return done,
        }
    }
}

/// Whether nobody holds the lock of a store. Holds it for a moment, as a reader would, and never makes it.
pub fn is_lock_free(folder: &Path, file: &str) -> bool {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(folder.join(file));
    // What cannot be looked at is told by the attempt.
    opened.map_or(true, |lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_ok())
}

struct Wait {
    patience: Duration,
    begun: Instant,
    pause: Duration,
    /// Whom it was said of last.
    announced: String,
}

impl Wait {
    #[expect(clippy::disallowed_methods, reason = "somebody waits, who goes by the clock")]
    fn new(patience: Duration) -> Self {
        Self { patience, begun: Instant::now(), pause: PAUSE_MIN, announced: String::new() }
    }

    fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.patience
    }

    fn announce(&mut self, arguments: &Arguments, error: &anyhow::Error) {
        let message = format!("{error:#}");
        if arguments.quiet || message == self.announced {
            return;
        }
        let nanoseconds = u64::try_from(self.patience.as_nanos()).unwrap_or(u64::MAX);
        let fields = || json!({ "message": message, "seconds": self.patience.as_secs() });
        let patience = show::duration(nanoseconds);
        say::diagnosis("waiting", fields, format_args!("varve: {message}; waiting for up to {patience}"));
        self.announced = message;
        self.pause = PAUSE_MIN;
    }

    fn pause(&mut self) {
        std::thread::park_timeout(self.pause.min(self.patience.saturating_sub(self.begun.elapsed())));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}
