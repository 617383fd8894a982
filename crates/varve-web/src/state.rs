//! The state of the archive beside its snapshots: promises, runs, the log, harm, and the space.
//!
//! All but the runs is read in the background, and pages show the newest state that is known.

pub(crate) mod followed_state;
pub(crate) mod known_harm;
pub(crate) mod log_state;
pub(crate) mod run_log;
pub(crate) mod served_store;

use std::sync::Arc;
use std::time::Duration;

use varve_archive::SpaceNeeds;
use varve_daily::StatusReport;
use varve_world::Clock;

use followed_state::FollowedState;
use known_harm::{HarmSearch, KnownHarm};
use log_state::LogState;
use served_store::ServedStore;

/// The ages at which the parts of the state are read again. For the needs of space, all snapshots
/// are walked.
const STATUS_AGE: Duration = Duration::from_secs(60);
const LOG_AGE: Duration = Duration::from_secs(60);
const HARM_AGE: Duration = Duration::from_secs(60);
const SPACE_AGE: Duration = Duration::from_secs(3_600);

/// The state of an archive, each part of which is read when a page needs it.
pub(crate) struct SiteState {
    pub(crate) store: Arc<ServedStore>,
    /// The promises; `None` if there is no configuration.
    pub(crate) status: Arc<FollowedState<Option<StatusReport>>>,
    pub(crate) log: Arc<FollowedState<LogState>>,
    /// The harm to snapshots; `None` if no loss is known.
    pub(crate) harm: Arc<FollowedState<Option<Arc<KnownHarm>>>>,
    /// The bytes that snapshots need alone and together.
    pub(crate) space: Arc<FollowedState<SpaceNeeds>>,
}

impl SiteState {
    pub(crate) fn new(store: ServedStore, clock: &Arc<dyn Clock>) -> Self {
        let store = Arc::new(store);
        let [of_status, of_log, of_harm, of_space] = std::array::from_fn(|_| Arc::clone(&store));
        let search = HarmSearch::default();
        Self {
            store,
            status: FollowedState::new(Arc::clone(clock), STATUS_AGE, move || of_status.status()),
            log: FollowedState::new(Arc::clone(clock), LOG_AGE, move || LogState::read(&of_log.archive()?)),
            harm: FollowedState::new(Arc::clone(clock), HARM_AGE, move || search.find(&of_harm.archive()?)),
            space: FollowedState::new(Arc::clone(clock), SPACE_AGE, move || of_space.space()),
        }
    }
}
