//! A request to archive a source: the description of the new snapshot.

use varve_block::ExpectedReads;
use varve_content::image::SectorSizes;
use varve_world::Timestamp;

use crate::catalog::left_out_record::LeftOutRecord;
use crate::catalog::machine::Machine;
use crate::catalog::snapshot_id::SnapshotId;

/// The description of a new snapshot.
#[derive(Debug, Clone, Default)]
pub struct SnapshotRequest {
    /// The name, which stays the same from snapshot to snapshot.
    pub name: String,
    /// The time of the source. If absent, the time at which the snapshot was begun.
    pub time: Option<Timestamp>,
    /// The path of the source, as it is recorded.
    pub source: Vec<u8>,
    /// The host name of the machine that takes the snapshot.
    pub host: String,
    /// `KEY=VALUE`.
    pub tags: Vec<String>,
    /// True if the user chose the name, and not the program. It may then be the name of another
    /// source.
    pub name_is_given: bool,
    /// A line of text about the snapshot; may be empty.
    pub comment: String,
    /// The id, if something had to be named after it in advance. Drawn at random if absent.
    pub id: Option<SnapshotId>,
    pub machine: Option<Machine>,
    /// The parts of an image that are archived as zeros, and those that are kept although they were
    /// to be left out.
    pub left_out: Vec<LeftOutRecord>,
    /// The sizes of the sectors of the disk, if it reports them.
    pub sectors: Option<SectorSizes>,
    /// The number of problems that were found before the source is read.
    pub problem_count: u64,
    /// True if images, and disks and databases in folders, are packed for fast small reads, at the
    /// cost of some more space.
    pub read_in_pieces: bool,
}

impl SnapshotRequest {
    /// The way in which disks will be read.
    pub(crate) fn expected_reads(&self) -> ExpectedReads {
        if self.read_in_pieces { ExpectedReads::AtRandom } else { ExpectedReads::InOrder }
    }
}
