//! A store's second home: its log as objects that need no index, at any [`Target`](varve_remote::Target).
//!
//! ```text
//! replica.toml  FORMAT.md  config.toml  keys/…                       as they are in the store
//! arenas/N.G/OFFSET-BEFORE-END  …  arenas/N.G/OFFSET-BEFORE-seal-END an arena, one segment after the other
//! ```
//!
//! `docs/internals/format.md`, section 6, has the names; `docs/guide/replicas.md` has the promises.
//!
//! What must always be true:
//! - Nothing is uploaded before it is durable here and every code in it was checked: damage is never replicated.
//! - Nothing at a target is ever changed, and nothing removed unless somebody asked for it by name. So a target that can be
//!   written only once will do, and a replica that was stopped at any moment is a store: a prefix of the log.
//! - Nothing that a target says is believed. Its objects' names are claims, which the codes in the log confirm or not.
//! - Two copies of a store that have gone different ways never mix: a segment's name tells what comes before it
//!   and what it ends with.
//!
//! Read first: `objects/listing.rs` (names become arenas), `replication/planner.rs` (what is sent) and
//! `cloning/clone_replica.rs` (the way back).
//!
//! A replica does not know what a snapshot is. This crate starts no threads and asks no time: it is given
//! [`Workers`](varve_world::Workers).

mod audit;
mod cloning;
mod objects;
mod observer;
mod reading;
mod remembered;
mod replication;

pub use audit::{Audit, AuditError, Audited, Finding, FindingKind, Share, audit};
pub use cloning::clone_replica::{CloneError, CloneOptions, Cloned, DamagedThere, clone_replica};
pub use objects::listing::{Assembly, InTheWay, Listing, Segment};
pub use objects::object_name::{SegmentEnd, SegmentName};
pub use objects::record_ends::RecordsDamage;
pub use observer::Observer;
pub use reading::healing::{HealError, Healing, OpenReplicas};
pub use reading::range_cache::RangeCache;
pub use reading::replica::{OpenReplicaError, Replica};
pub use reading::replica_storage::ReplicaStorage;
pub use remembered::{RememberError, Remembered};
pub use replication::error::ReplicateError;
pub use replication::planned_segments::{PlannedSegment, WrongLength};
pub use replication::planner::ReplicateOptions;
pub use replication::replaced_objects::NotReplaceable;
pub use replication::replication_plan::{DamagedHere, PlannedSetting, ReplicationPlan};
pub use replication::seen::{Seen, name_for_notes};
pub use replication::source::Source;
pub use replication::upload::Replicated;
