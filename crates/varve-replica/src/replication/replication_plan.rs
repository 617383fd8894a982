//! What a replication is going to do.

use bytes::Bytes;
use varve_log::ArenaId;
use varve_world::FileName;

use crate::objects::listing::Listing;
use crate::objects::record_ends::RecordsDamage;
use crate::replication::planned_segments::{PlannedSegment, WrongLength};
use crate::replication::seen::Seen;

/// A small file that is to be put as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSetting {
    /// Its name at the target.
    pub file: FileName,
    /// What is in it.
    pub contents: Bytes,
    /// Whether it takes the place of what is there.
    pub replaces: bool,
}

/// An arena of the store itself that is damaged: what is damaged is not replicated.
#[derive(Debug)]
pub struct DamagedHere {
    /// Which.
    pub arena: ArenaId,
    /// From where on, in bytes.
    pub offset: u64,
    /// What was found.
    pub reason: RecordsDamage,
}

/// What a replication is going to do, and what was noticed on the way. Nothing has been changed yet.
#[derive(Debug, Default)]
pub struct ReplicationPlan {
    /// Small files to be put, in this order, before all segments.
    pub settings: Vec<PlannedSetting>,
    /// Small files at the target that are not the store's, and stay so unless they are to be replaced: without them the replica does not open.
    pub wrong_settings: Vec<FileName>,
    /// Segments to be put, in this order.
    pub segments: Vec<PlannedSegment>,
    /// How much of the log is at the target already, in bytes.
    pub present_bytes: u64,
    /// Keys at the target that the store no longer has: they still open the replica.
    pub extra_keys: Vec<FileName>,
    /// Objects at the target that are too short, or too long. Where that is possible what they should hold is uploaded
    /// beside them.
    pub wrong: Vec<WrongLength>,
    /// Arenas of the store that are damaged.
    pub damaged: Vec<DamagedHere>,
    /// What a crash, or a writer at work, has left unfinished: an arena, and where that begins, in bytes. It is not replicated, and lost to
    /// nobody: it was never acknowledged.
    pub unfinished: Vec<(ArenaId, u64)>,
    /// Arenas that the target has and the store has lost.
    pub missing_here: Vec<ArenaId>,
    /// What this machine has seen at the target once, and is not there any more.
    pub lost_there: Option<Seen>,
    /// What lies at the target and belongs to no replica.
    pub strangers: Vec<FileName>,
    /// Objects of arenas as they were before the store had to write them anew: nobody reads them once the arenas as they are now are there.
    pub(crate) superseded: Vec<FileName>,
    pub(crate) listing: Listing,
}
