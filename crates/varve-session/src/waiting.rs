//! `--wait`: waiting until another process releases a lock.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::fs::{FlockOperation, OFlags, flock};
use varve_block::{FailureKind, with_causes};

use crate::failure::{Interrupted, failure_kinds};
use crate::hinted::Hinted;
use crate::user_interface::UserInterface;

/// The pause between two looks at a lock. A look is three system calls, and many machines that
/// write to one store one after the other would otherwise mostly wait.
const LOOK: Duration = Duration::from_millis(10);
/// Minimum and maximum pause between two attempts, if a lock cannot be looked at.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

const WAIT: &str =
    "--wait 10m waits for it; the store can be read meanwhile: only writers exclude each other";

/// Repeats `attempt` for up to `patience` while it fails because another writer holds the store.
/// `is_free` looks at the lock before each further attempt, which may be expensive. Without it,
/// attempts are made at longer intervals.
///
/// # Errors
/// The error of the last attempt. [`Interrupted`] after a signal.
pub(crate) fn until_free<T>(
    patience: Duration,
    frontend: &dyn UserInterface,
    is_free: Option<&dyn Fn() -> bool>,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut wait = LockWait::new(patience);
    let stop = frontend.stop_signal();
    loop {
        match attempt() {
            Err(error) if !is_locked(&error) => return Err(error),
            Err(error) if wait.is_over() => return Err(Hinted::new(error, WAIT).into()),
            Err(error) => {
                frontend.catch_signals()?;
                wait.announce(frontend, &error);
                while !wait.is_over() {
                    let pause = if is_free.is_some() { LOOK } else { wait.next_pause() };
                    if stop.wait(pause.min(wait.left())) {
                        bail!(Interrupted("interrupted while waiting for another writer"));
                    }
                    if is_free.is_none_or(|is_free| is_free()) {
                        break;
                    }
                }
            }
            Ok(done) => return Ok(done),
        }
    }
}

fn is_locked(error: &anyhow::Error) -> bool {
    failure_kinds(error.as_ref()).any(|kind| kind == FailureKind::Locked)
}

/// Reports whether no process holds the store in this folder for writing.
#[must_use]
pub fn is_store_free(folder: &Path) -> bool {
    is_lock_free(folder, "lock") && is_lock_free(folder, "arenas")
}

/// Reports whether no process holds the lock of a file or folder. It takes the lock for a moment,
/// as a reader does, and never creates the file.
#[must_use]
pub fn is_lock_free(folder: &Path, file: &str) -> bool {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(folder.join(file));
    // A lock file that cannot be opened counts as free: the attempt itself then reports the error.
    opened.map_or(true, |lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_ok())
}

struct LockWait {
    patience: Duration,
    begun: Instant,
    pause: Duration,
    /// The last message that was announced.
    announced: String,
}

impl LockWait {
    #[expect(clippy::disallowed_methods, reason = "a user waits in real time")]
    fn new(patience: Duration) -> Self {
        Self { patience, begun: Instant::now(), pause: PAUSE_MIN, announced: String::new() }
    }

    fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    fn left(&self) -> Duration {
        self.patience.saturating_sub(self.begun.elapsed())
    }

    fn announce(&mut self, frontend: &dyn UserInterface, error: &anyhow::Error) {
        let message = with_causes(error.as_ref());
        if message == self.announced {
            return;
        }
        frontend.waiting(&message, self.patience);
        self.announced = message;
        self.pause = PAUSE_MIN;
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::InUse;
    use crate::recorded::Recorded;

    /// Returns an attempt that another writer prevents this many times.
    fn held(times: usize) -> impl FnMut() -> Result<usize> {
        let mut attempts = 0;
        move || {
            attempts += 1;
            if attempts <= times { Err(InUse("it is in use".into()).into()) } else { Ok(attempts) }
        }
    }

    #[test]
    fn another_writer_is_waited_for_and_reported_once() {
        let frontend = Recorded::default();
        let done = until_free(Duration::from_secs(60), &frontend, None, held(3));
        assert_eq!(done.unwrap(), 4);
        assert_eq!(*frontend.waits.lock(), ["it is in use"]);
    }

    /// A writer that looks at the lock goes on soon after its release, however long it has waited.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the lock is released in real time")]
    fn a_released_lock_is_noticed_at_once() {
        const HELD: Duration = Duration::from_millis(1500);
        let begun = Instant::now();
        let attempt = || match begun.elapsed() < HELD {
            true => Err(InUse("it is in use".into()).into()),
            false => Ok(begun.elapsed() - HELD),
        };
        let is_free = || begun.elapsed() >= HELD;
        // On a busy machine one look may be late.
        let late =
            until_free(Duration::from_secs(60), &Recorded::default(), Some(&is_free), attempt).unwrap();
        assert!(late < PAUSE_MAX / 4, "{late:?}");
    }

    #[test]
    fn without_patience_the_first_refusal_counts() {
        let frontend = Recorded::default();
        let error = until_free(Duration::ZERO, &frontend, None, held(1)).unwrap_err();
        assert!(is_locked(&error));
        assert!(error.is::<Hinted>());
        assert!(frontend.waits.lock().is_empty());
    }

    #[test]
    fn other_failures_are_not_tried_again() {
        let mut attempts = 0;
        let attempt = || -> Result<()> {
            attempts += 1;
            bail!("no")
        };
        until_free(Duration::from_secs(60), &Recorded::default(), None, attempt).unwrap_err();
        assert_eq!(attempts, 1);
    }
}
