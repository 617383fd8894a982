//! Archived content that has no entry in the catalog yet.

use std::io;

use varve_content::folder::{ArchivedFolder, FolderCounts, LeftOutOfFolder};
use varve_content::image::ArchivedImage;
use varve_content::vac::ArchivedVac;
use varve_world::{Random, Timestamp};

use crate::catalog::snapshot::{Snapshot, SnapshotContent};
use crate::catalog::snapshot_id::SnapshotId;
use crate::catalog::snapshot_request::SnapshotRequest;

/// An archived image or folder.
pub(crate) struct ArchivedSource {
    content: SnapshotContent,
    size: u64,
    file_count: u64,
    problem_count: u64,
    /// True if an image changed while it was read.
    pub(crate) changed_meanwhile: bool,
    /// The archive of a folder that was written for vac's tools.
    pub(crate) vac: Option<ArchivedVac>,
    /// The name of the file, if a single file was archived.
    file: Option<Vec<u8>>,
    /// The parts of a folder that were left out.
    pub(crate) left_out: LeftOutOfFolder,
    /// The counts of a folder.
    pub(crate) counts: Option<FolderCounts>,
}

impl From<ArchivedImage> for ArchivedSource {
    fn from(image: ArchivedImage) -> Self {
        Self {
            content: SnapshotContent::Image(image.entry),
            size: image.entry.size(),
            file_count: 0,
            problem_count: image.changed_meanwhile.into(),
            changed_meanwhile: image.changed_meanwhile,
            vac: None,
            file: None,
            left_out: LeftOutOfFolder::default(),
            counts: None,
        }
    }
}

impl From<ArchivedFolder> for ArchivedSource {
    fn from(folder: ArchivedFolder) -> Self {
        Self {
            content: SnapshotContent::Folder(Box::new(folder.root)),
            size: folder.counts.bytes,
            file_count: match &folder.only {
                Some(_) => 1,
                None => folder.counts.file_count + folder.counts.folder_count,
            },
            problem_count: folder.counts.problem_count,
            changed_meanwhile: false,
            vac: folder.vac,
            file: folder.only,
            left_out: folder.left_out,
            counts: Some(folder.counts),
        }
    }
}

impl ArchivedSource {
    /// Makes the requested snapshot, begun at `began_at`. The cost is not known yet. Fails if there
    /// are no random bytes for an id.
    pub(crate) fn into_snapshot(
        self,
        request: SnapshotRequest,
        began_at: Timestamp,
        random: &dyn Random,
    ) -> io::Result<Snapshot> {
        let id = request.id.map_or_else(|| SnapshotId::draw(random), Ok)?;
        // This tag is the only pointer to the data that vac's tools need besides the bytes of the
        // files.
        let vac = self.vac.map(|vac| format!("vac={}", vac.score));
        Ok(Snapshot {
            source: request.source,
            host: request.host,
            tags: request.tags.into_iter().chain(vac).collect(),
            size: self.size,
            file_count: self.file_count,
            problem_count: self.problem_count.saturating_add(request.problem_count),
            machine: request.machine,
            left_out: request.left_out,
            sectors: request.sectors,
            comment: request.comment,
            file: self.file,
            ..Snapshot::new(id, request.name, request.time.unwrap_or(began_at), self.content)
        })
    }
}
