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
//! A replica does not know what a snapshot is. This crate starts no threads and asks no time: it is given
//! [`Workers`](varve_world::Workers).

mod arrival;
mod audit;
mod cache;
mod clone;
mod healing;
mod held;
mod history;
mod listing;
mod name;
mod observer;
mod plan;
mod planned;
mod records;
mod remembered;
mod replaced;
mod replica;
mod replicate;
mod replicate_error;
mod seen;
mod segment;
mod source;
mod storage;
mod upload;

pub use audit::{Audit, AuditError, Audited, Finding, FindingKind, Share, audit};
pub use cache::RangeCache;
pub use clone::{CloneError, CloneOptions, Cloned, DamagedThere, clone_replica};
pub use healing::{HealError, Healing, OpenReplicas};
pub use listing::{Assembly, InTheWay, Listing, Segment};
pub use name::{SegmentEnd, SegmentName};
pub use observer::Observer;
pub use plan::{PlannedSegment, WrongLength};
pub use planned::{DamagedHere, PlannedSetting, ReplicationPlan};
pub use records::RecordsDamage;
pub use remembered::{RememberError, Remembered};
pub use replaced::NotReplaceable;
pub use replica::{OpenReplicaError, Replica};
pub use replicate::ReplicateOptions;
pub use replicate_error::ReplicateError;
pub use seen::{Seen, name_for_notes};
pub use source::Source;
pub use storage::ReplicaStorage;
pub use upload::Replicated;
