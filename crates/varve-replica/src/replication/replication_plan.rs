//! The plan of a replication.

use bytes::Bytes;
use varve_log::ArenaId;
use varve_remote::Object;
use varve_world::FileName;

use crate::objects::listing::{FORMAT_PAGE, ReplicaListing};
use crate::objects::record_ends::RecordsDamage;
use crate::replication::planned_segments::{PlannedSegment, Succeeding, WrongLength};
use crate::replication::replica_end::ReplicaEnd;

/// A small file to be put unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSetting {
    /// The name at the target.
    pub file: FileName,
    pub contents: Bytes,
    /// True if it replaces an object.
    pub replaces: bool,
}

impl PlannedSetting {
    /// Returns true if this is the page of the format.
    #[must_use]
    pub fn is_page(&self) -> bool {
        self.file.as_str() == FORMAT_PAGE
    }
}

/// A damaged arena of the store itself. Damage is not replicated.
#[derive(Debug)]
pub struct DamagedInStore {
    pub arena: ArenaId,
    /// The offset of the damage, in bytes.
    pub offset: u64,
    pub reason: RecordsDamage,
}

/// The planned actions and the findings of a replication. Nothing has been changed yet.
#[derive(Debug, Default)]
pub struct ReplicationPlan {
    /// The small files to be put, in this order, before all segments.
    pub settings: Vec<PlannedSetting>,
    /// Small files at the target that differ from the store's and are only changed if they are to
    /// be replaced. Without the right ones, the replica does not open.
    pub wrong_settings: Vec<FileName>,
    /// The segments to be put, in this order.
    pub segments: Vec<PlannedSegment>,
    /// The bytes of the log that are already at the target.
    pub present_bytes: u64,
    /// Keys at the target that the store no longer has. They still open the replica.
    pub extra_keys: Vec<FileName>,
    /// Objects at the target that are too short or too long. If possible, their contents are
    /// uploaded again beside them.
    pub wrong: Vec<WrongLength>,
    /// The damaged arenas of the store.
    pub damaged: Vec<DamagedInStore>,
    /// Unfinished tails, from a crash or a running writer: the arena and the offset in bytes. They
    /// are not replicated. Nothing is lost, because they were never acknowledged.
    pub unfinished: Vec<(ArenaId, u64)>,
    /// Arenas that the target has and the store has lost.
    pub missing_here: Vec<ArenaId>,
    /// A state that this machine has seen at the target, and that is no longer there.
    pub lost_there: Option<ReplicaEnd>,
    /// Objects at the target that belong to no replica.
    pub strangers: Vec<FileName>,
    /// The earlier generations at the target. Nobody reads them after the present ones are there.
    pub superseded: Vec<SupersededGeneration>,
    pub(crate) succeeding: Succeeding,
    pub(crate) listing: ReplicaListing,
}

/// An earlier generation of an arena at a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupersededGeneration {
    pub arena: ArenaId,
    pub generation: u32,
    /// Its objects at the target.
    pub objects: Vec<Object>,
}

impl SupersededGeneration {
    /// Returns the length of its objects in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }
}
