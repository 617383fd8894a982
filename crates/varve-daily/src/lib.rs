//! Daily work over an open archive: the facts that it depends on, and the promises judged from
//! them.
//!
//! ```text
//! Archive ─▶ StoreFacts ─┐
//! free space, replicas ──┴▶ StoreView ─▶ judge_store ─▶ StatusReport: promises and notes
//!                            DailyConfig ──┘
//! ```
//!
//! Always true:
//! - A promise is judged from the archive and from the configuration, never from the log of earlier
//!   runs. Only the state of a replica that is away comes from there.
//! - A promise that cannot be judged is never kept.
//! - [`JudgedPromise::text`](varve_watch::JudgedPromise) has no name of an archived file. Those are
//!   in `detail`, which stays on the machine.
//!
//! Read first: `facts.rs` and `judge.rs`.

mod clock;
mod continued;
mod drill_record;
mod facts;
mod judge;
mod series;
mod unread;

pub use clock::{ServerClock, server_clock_fault};
pub use continued::ContinuedStore;
pub use drill_record::{Drill, DrillRecord};
pub use facts::{SnapshotFact, StoreFacts, snapshot_facts, store_mark};
pub use judge::{
    HeldSnapshots, JudgeContext, OpenStoreView, ReplicaView, StatusReport, StoreView, WriteOnlyView,
    judge_store,
};
pub use series::{is_of_source, is_series_of};
pub use unread::{UnreadFiles, unread_files};
