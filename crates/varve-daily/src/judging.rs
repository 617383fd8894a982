//! The facts of an open archive that daily work depends on, and the promises judged from them.
//!
//! Read first: `facts.rs` and `judge.rs`.

mod changes;
mod clock;
mod continued;
mod copy_record;
mod drill_record;
mod facts;
mod judge;
mod series;
mod unread;

pub use changes::ReportedStates;
pub use clock::{ServerClock, clock_behind_text, clock_leap_text, server_clock_fault};
pub use continued::ContinuedStore;
pub use copy_record::{CopiedSnapshot, CopyRecord, KnownCopy};
pub use drill_record::{Drill, DrillRecord};
pub use facts::{SnapshotFact, StoreFacts, snapshot_facts, store_mark};
pub use judge::{
    JudgeContext, OpenStoreView, ReplicaView, StatusReport, StoreView, WriteOnlyView, judge_store,
};
pub use series::{is_of_source, is_series_of};
pub use unread::unread_files;
