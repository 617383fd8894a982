//! A copy of a store elsewhere: its log as objects that need no index, at any
//! [`Target`](varve_remote::Target).
//!
//! ```text
//! replica.toml  FORMAT.md  config.toml  keys/…                       as they are in the store
//! arenas/N.G/OFFSET-BEFORE-END  …  arenas/N.G/OFFSET-BEFORE-seal-END an arena, one segment after the other
//! ```
//!
//! `docs/internals/format.md`, section 6, describes the names, and `docs/guide/replicas.md` the
//! guarantees.
//!
//! Invariants:
//! - A segment is uploaded only if it is durable in the store and every code in it was checked.
//!   Damage is never replicated.
//! - An object at a target is never changed, and never removed unless the user asked for it. So a
//!   write-once target is enough, and a replica that was stopped at any moment is a store: a prefix
//!   of the log.
//! - The earlier generation of an arena is removed only when the later one was read back whole, and
//!   a page there counts it.
//! - The target is not trusted. The names of objects are claims, which the codes in the log confirm
//!   or refute.
//! - Two copies of a store with different histories never mix: a segment's name contains the code
//!   of the record before it and the code of its end.
//!
//! Read first: `objects/listing.rs` (names become arenas), `replication/planner.rs` (the choice of
//! segments) and `cloning/clone_replica.rs` (the way back).
//!
//! A replica does not know snapshots. This crate starts no threads and does not read the clock. It
//! uses the given [`Workers`](varve_world::Workers).

mod audit;
mod cloning;
mod dropping;
mod objects;
mod reading;
mod remembered_targets;
mod replication;

pub use audit::{AuditError, AuditFinding, AuditFindingKind, AuditReport, ClumpShare, ReplicaToAudit, audit};
pub use cloning::clone_replica::{CloneError, CloneOptions, Cloned, DamagedInReplica, clone_replica};
pub use dropping::drop_error::DropError;
pub use dropping::drop_plan::{DropPlan, Dropped};
pub use dropping::proof::NotProven;
pub use objects::listing::{ArenaAssembly, ListedSegment, ObstructingEntry, ReplicaListing};
pub use objects::object_name::{SegmentEnd, SegmentName};
pub use objects::record_ends::RecordsDamage;
pub use reading::healing_store::{HealError, HealingStore, OpenReplicas};
pub use reading::range_cache::RangeCache;
pub use reading::replica::{ObjectFault, OpenReplicaError, Replica};
pub use reading::replica_storage::ReplicaStorage;
pub use remembered_targets::{RememberTargetError, RememberedTargets};
pub use replication::error::ReplicateError;
pub use replication::planned_segments::{PlannedSegment, WrongLength};
pub use replication::planner::ReplicateOptions;
pub use replication::replaced_objects::NotReplaceable;
pub use replication::replica_end::{ReplicaEnd, name_for_notes};
pub use replication::replication_plan::{
    DamagedInStore, PlannedSetting, ReplicationPlan, SupersededGeneration,
};
pub use replication::replication_source::ReplicationSource;
pub use replication::upload::Replicated;
