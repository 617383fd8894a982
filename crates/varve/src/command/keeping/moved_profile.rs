//! The profile of an earlier disk, moved to a later one: files that were written anew are read at
//! their new places.

use std::sync::Arc;

use varve_block::BlockStore;
use varve_content::image::{CachedBlocks, ImageReader};
use varve_edition::{DiskProfile, ProfileRead};
use varve_image::{Disk, MovedFiles};
use varve_publish::ProfileMover;
use varve_tree::Entry;

/// The cache of blocks of the two disks, in bytes. Their metadata is read once.
const LEAVES_BYTES: u64 = 32 << 20;

/// Moves profiles between the disks of an archive.
pub(super) struct ArchivedDiskMover(pub(super) Arc<dyn BlockStore>);

impl ProfileMover for ArchivedDiskMover {
    fn moved(&self, profile: &DiskProfile, from: &Entry, to: &Entry) -> DiskProfile {
        let blocks = Arc::new(CachedBlocks::with_leaves_bytes(Arc::clone(&self.0), LEAVES_BYTES));
        let disk = |entry| Disk::open(Arc::new(ImageReader::new(Arc::clone(&blocks), entry)));
        let files = MovedFiles::new(&disk(from), &disk(to));
        let reads = profile.reads().iter().flat_map(|read| {
            let moved = files.find(&read.range);
            moved.into_iter().map(|range| ProfileRead { milliseconds: read.milliseconds, range })
        });
        DiskProfile::from_reads(to.size(), reads)
    }
}
