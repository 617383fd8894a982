//! The state of the archive beside its snapshots: promises, the log, and the space.
//!
//! The program reads it, because it knows the configuration and the store. The page asks for it in
//! the background, and shows the newest state that is known.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use varve_archive::SpaceNeeds;
use varve_daily::{Drill, StatusReport};
use varve_world::{Clock, Timestamp};

/// The ages at which the parts of the state are read again. The last one walks all snapshots.
const STATUS_AGE: Duration = Duration::from_secs(60);
const LOG_AGE: Duration = Duration::from_secs(60);
const SPACE_AGE: Duration = Duration::from_secs(3_600);

/// Reads the state of an archive. Errors are texts for people.
pub trait ArchiveState: Send + Sync {
    /// The promises; `None` if there is no configuration.
    ///
    /// # Errors
    /// The configuration has faults.
    fn status(&self) -> Result<Option<StatusReport>, String>;

    /// The state of the log.
    ///
    /// # Errors
    /// The store does not open.
    fn log(&self) -> Result<LogState, String>;

    /// The bytes that snapshots need alone and together. Walks all snapshots.
    ///
    /// # Errors
    /// The store does not open, or is damaged.
    fn space(&self) -> Result<SpaceNeeds, String>;

    /// The saved index of the names in all snapshots; `None` if there is none.
    fn saved_names(&self) -> Option<Box<dyn Read + '_>>;

    /// Saves the index of the names in all snapshots, which `write` writes, so that only readers of
    /// the store can read it.
    ///
    /// # Errors
    /// The index cannot be written. It is then made anew at the next start.
    fn save_names(&self, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> Result<(), String>;
}

/// An arena of the log.
#[derive(Debug, Clone)]
pub struct ArenaHealth {
    pub name: String,
    /// The time when it was last read as a whole; `None` if never.
    pub read_at: Option<Timestamp>,
    pub is_damaged: bool,
}

/// The state of the log of a store.
#[derive(Debug, Clone, Default)]
pub struct LogState {
    /// In the order of the log.
    pub arenas: Vec<ArenaHealth>,
    pub lost_block_count: u64,
    /// The length of all arenas.
    pub log_bytes: u64,
    pub parity_bytes: u64,
    pub parity_arena_count: u64,
    /// The free bytes of the file system; `None` if they are not known.
    pub free_bytes: Option<u64>,
    /// The newest drills of each series, the oldest first.
    pub drills: Vec<Drill>,
}

/// The state of an archive, each part of which is read when a page needs it.
pub(crate) struct SiteState {
    pub(crate) status: Arc<FollowedState<Option<StatusReport>>>,
    pub(crate) log: Arc<FollowedState<LogState>>,
    pub(crate) space: Arc<FollowedState<SpaceNeeds>>,
}

impl SiteState {
    pub(crate) fn new(state: &Arc<dyn ArchiveState>, clock: &Arc<dyn Clock>) -> Self {
        let (of_status, of_log, of_space) = (Arc::clone(state), Arc::clone(state), Arc::clone(state));
        Self {
            status: FollowedState::new(Arc::clone(clock), STATUS_AGE, move || of_status.status()),
            log: FollowedState::new(Arc::clone(clock), LOG_AGE, move || of_log.log()),
            space: FollowedState::new(Arc::clone(clock), SPACE_AGE, move || of_space.space()),
        }
    }
}

/// A part of the state, with the time when it was read.
pub(crate) struct KnownState<T> {
    pub(crate) value: Result<T, String>,
    pub(crate) at: Timestamp,
}

/// A part of the state that is read again in the background when it is old.
pub(crate) struct FollowedState<T> {
    read: Box<dyn Fn() -> Result<T, String> + Send + Sync>,
    clock: Arc<dyn Clock>,
    age_max: Duration,
    inner: Mutex<FollowedInner<T>>,
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
        read: impl Fn() -> Result<T, String> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let inner = FollowedInner { known: None, read_at: None, is_reading: false };
        Arc::new(Self { read: Box::new(read), clock, age_max, inner: Mutex::new(inner) })
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
        let value = (self.read)();
        if let Err(error) = &value {
            tracing::warn!(error, "the state of the archive was not read");
        }
        let mut inner = self.inner.lock();
        inner.known = Some(Arc::new(KnownState { value, at: self.clock.now() }));
        inner.read_at = Some(Instant::now());
        inner.is_reading = false;
    }

    /// Waits for the first state, for a short time only.
    pub(crate) fn soon(self: &Arc<Self>) -> Option<Arc<KnownState<T>>> {
        const WAIT: Duration = Duration::from_millis(10);
        for _ in 0..200 {
            if let Some(known) = self.known() {
                return Some(known);
            }
            Handle::current().block_on(tokio::time::sleep(WAIT));
        }
        None
    }
}
