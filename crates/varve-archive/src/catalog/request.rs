//! What a snapshot is to be called.

use varve_world::Timestamp;

use crate::catalog::left_out_record::LeftOutRecord;
use crate::catalog::machine::Machine;
use crate::catalog::snapshot_id::SnapshotId;

/// What a snapshot is to be called.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Its name: the same from night to night.
    pub name: String,
    /// The moment that it shows; the moment at which it was begun, if not given.
    pub time: Option<Timestamp>,
    /// The path that it is made of, as it is to be remembered.
    pub source: Vec<u8>,
    /// The machine that it is made on.
    pub host: String,
    /// `KEY=VALUE`.
    pub tags: Vec<String>,
    /// Whether its user has given it this name, and not the program: it may then be a name under which something else was
    /// archived before.
    pub name_is_given: bool,
    /// A line about it; empty if none.
    pub comment: String,
    /// Its identity, where something had to be named after it before it was there; drawn at random if not given.
    pub id: Option<SnapshotId>,
    /// The machine whose disk it is.
    pub machine: Option<Machine>,
    /// What of an image is archived as zeros, and what is not though it was asked for.
    pub left_out: Vec<LeftOutRecord>,
    /// How many problems of the source are known before it is read.
    pub problem_count: u64,
    /// Whether an image is to be packed so that small reads from it are fast, for some more room.
    pub read_in_pieces: bool,
}
