//! A part of the state that is read in the background.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use varve_block::with_causes;
use varve_world::{Clock, Timestamp};

/// A part of the state, with the time when it was read.
pub(crate) struct KnownState<T> {
    /// An error is a text for people.
    pub(crate) value: Result<T, String>,
    pub(crate) at: Timestamp,
}

/// A part of the state that is read again in the background when it is old.
pub(crate) struct FollowedState<T> {
    read: Box<dyn Fn() -> anyhow::Result<T> + Send + Sync>,
    clock: Arc<dyn Clock>,
    age_max: Duration,
    inner: Mutex<FollowedInner<T>>,
    was_read: Notify,
}

struct FollowedInner<T> {
    known: Option<Arc<KnownState<T>>>,
    read_at: Option<Instant>,
    is_reading: bool,
}

impl<T: Send + Sync + 'static> FollowedState<T> {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        age_max: Duration,
        read: impl Fn() -> anyhow::Result<T> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let inner = FollowedInner { known: None, read_at: None, is_reading: false };
        Arc::new(Self {
            read: Box::new(read),
            clock,
            age_max,
            inner: Mutex::new(inner),
            was_read: Notify::new(),
        })
    }

    /// The newest known state; `None` while it is read for the first time. An old state is read
    /// again in the background.
    pub(crate) fn known(self: &Arc<Self>) -> Option<Arc<KnownState<T>>> {
        let mut inner = self.inner.lock();
        let is_old = inner.read_at.is_none_or(|at| at.elapsed() >= self.age_max);
        if is_old && !inner.is_reading {
            inner.is_reading = true;
            let state = Arc::clone(self);
            drop(Handle::current().spawn_blocking(move || state.read_again()));
        }
        inner.known.clone()
    }

    fn read_again(&self) {
        let value = (self.read)().map_err(|error| with_causes(error.as_ref()));
        if let Err(error) = &value {
            tracing::warn!(error, "the state of the archive was not read");
        }
        let mut inner = self.inner.lock();
        inner.known = Some(Arc::new(KnownState { value, at: self.clock.now() }));
        inner.read_at = Some(Instant::now());
        inner.is_reading = false;
        drop(inner);
        self.was_read.notify_waiters();
    }

    /// Waits for the first state, for a short time only.
    pub(crate) fn soon(self: &Arc<Self>) -> Option<Arc<KnownState<T>>> {
        self.known_within(Duration::from_secs(2))
    }

    /// Waits for the first state, for this time only.
    pub(crate) fn known_within(self: &Arc<Self>, wait_max: Duration) -> Option<Arc<KnownState<T>>> {
        // It is told of each reading from here on, also before it is awaited.
        let was_read = self.was_read.notified();
        let known = self.known();
        if known.is_some() {
            return known;
        }
        Handle::current().block_on(timeout_at(Instant::now() + wait_max, was_read)).ok()?;
        self.known()
    }
}
