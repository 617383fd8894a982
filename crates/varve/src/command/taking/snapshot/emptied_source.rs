//! A source that was emptied since its last snapshot: the mount point of a disk that is away looks
//! like that.

use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use varve_archive::Snapshot;
use varve_session::Hinted;

use crate::show;

/// Refuses a folder without entries whose newest snapshot has some.
pub(super) fn refuse(source: &Path, earlier: &[&Snapshot]) -> Result<()> {
    let Some(newest) = earlier.iter().max_by_key(|one| one.time).filter(|one| one.entry_count() > 0) else {
        return Ok(());
    };
    // The snapshot itself reports a folder that cannot be read.
    if !fs::read_dir(source).is_ok_and(|mut entries| entries.next().is_none()) {
        return Ok(());
    }
    let entries = show::count(newest.entry_count(), "entry");
    let error = anyhow!(
        "the folder is empty, but its newest snapshot has {entries}: its disk is not mounted, or it was emptied"
    );
    bail!(Hinted::new(error, "mount the disk; --allow-empty archives the empty folder"))
}
