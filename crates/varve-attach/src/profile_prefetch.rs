//! Prefetches the blocks of a profile, in the order in which a start reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use varve_edition::{DiskProfile, PROFILE_BYTES_MAX, StoredPart};

use crate::block_supply::{BlockOrigin, BlockSupply};
use crate::edge::Stopwatch;
use crate::fetcher::FetchError;
use crate::published_disk::{PublishedDisk, ReadDiskError};
use crate::schedule::Urgency;

/// The blocks that are requested together.
const BATCH_BLOCKS: usize = 16;
/// The next batch is requested when fewer blocks than this are on their way. A reader shares the
/// line with at most so many blocks and a batch.
const WINDOW_BLOCKS: usize = 32;
/// The blocks of a profile after these are not prefetched.
const BLOCKS_MAX: usize = 1 << 16;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The use of a profile is judged over intervals of this length.
const INTERVAL: Duration = Duration::from_secs(3);
/// An interval with fewer reads says nothing.
const READS_MIN: u64 = 16;
/// A profile is wrong if it has foreseen fewer reads than this.
const FORESEEN_PERCENT_MIN: u64 = 30;

/// The result of prefetching.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrefetchReport {
    /// The blocks of the profile that are stored. The blocks of zeros are left out.
    pub blocks: u64,
    /// The blocks that were requested, because they were neither here nor on their way.
    pub requested: u64,
    /// True if the readers wanted other blocks.
    pub was_wrong: bool,
}

/// Returns the profile that an edition has for an image.
///
/// # Errors
/// [`FetchError`] if its bytes cannot be fetched. Bytes that are no profile are `None`.
pub fn published_profile(
    source: &BlockSupply,
    profile: &StoredPart,
) -> Result<Option<DiskProfile>, FetchError> {
    let part = varve_edition::ObjectPart::alone(profile.name, profile.bytes);
    let (text, _) = source.content(&part, PROFILE_BYTES_MAX, false)?;
    Ok(DiskProfile::parse(&text).ok())
}

/// Prefetches the blocks of a profile that are not here, after everything that readers want. The
/// cache on disk keeps them longest. If most reads are for other blocks, the rest is fetched only
/// as a fill does, a batch at a time, and without a cache on disk it is not fetched. Returns early
/// when `is_over` is set.
///
/// # Errors
/// [`ReadDiskError`] if the map cannot be read.
pub fn prefetch_profile(
    disk: &PublishedDisk,
    profile: &DiskProfile,
    is_over: &Arc<AtomicBool>,
) -> Result<PrefetchReport, ReadDiskError> {
    let blocks = blocks_of(disk, profile);
    disk.expect_reads(ProfileUse::new(&blocks));
    let mut report = PrefetchReport::default();
    let mut interval = Stopwatch::start();
    for batch in blocks.chunks(BATCH_BLOCKS) {
        let parts = disk.parts_of(batch.iter().copied())?;
        if let Some(cache) = disk.source().stored() {
            cache.favour(parts.iter().map(|part| part.name));
        }
        report.blocks = report.blocks.saturating_add(parts.len() as u64);
        if is_over.load(Ordering::Relaxed) || (report.was_wrong && disk.source().stored().is_none()) {
            break;
        }
        let (urgency, window) = match report.was_wrong {
            false => (Urgency::Profile, WINDOW_BLOCKS),
            true => (Urgency::Fill, 1),
        };
        let requested = disk.source().prefetch(&parts, disk.content_bytes_max(), urgency);
        report.requested = report.requested.saturating_add(requested.len() as u64);
        let Some(fetcher) = disk.source().fetcher() else { continue };
        while !is_over.load(Ordering::Relaxed) && !fetcher.wait_below(window, urgency, LOOK_EVERY) {}
        if interval.elapsed() >= INTERVAL {
            interval = Stopwatch::start();
            report.was_wrong |= disk.has_surprised();
        }
    }
    Ok(report)
}

/// Returns the blocks that a profile reads, each once and in order.
fn blocks_of(disk: &PublishedDisk, profile: &DiskProfile) -> Vec<u64> {
    let mut seen = BTreeSet::new();
    let blocks = profile.reads().iter().flat_map(|read| disk.blocks_of(&read.range));
    // A long profile has few blocks twice, so this ends soon after the last new one.
    blocks.filter(|block| seen.insert(*block)).take(BLOCKS_MAX).collect()
}

/// Compares the reads with a profile.
#[derive(Debug, Default)]
pub(crate) struct ProfileUse {
    /// The blocks of the profile, and whether they were read.
    blocks: BTreeMap<u64, bool>,
    /// First reads of blocks of the profile, in the current interval.
    foreseen: u64,
    /// Reads that waited for other blocks, in the current interval.
    surprises: u64,
}

impl ProfileUse {
    fn new(blocks: &[u64]) -> Self {
        let blocks = blocks.iter().map(|block| (*block, false)).collect();
        Self { blocks, ..Self::default() }
    }

    pub(crate) fn note(&mut self, block: u64, origin: &BlockOrigin) {
        match self.blocks.get_mut(&block) {
            Some(was_read) => {
                if !std::mem::replace(was_read, true) {
                    self.foreseen = self.foreseen.saturating_add(1);
                }
            }
            None => {
                if matches!(origin, BlockOrigin::Fetched { .. } | BlockOrigin::Waited) {
                    self.surprises = self.surprises.saturating_add(1);
                }
            }
        }
    }

    /// Ends an interval. Returns true if its reads were mostly for other blocks.
    pub(crate) fn end_interval(&mut self) -> bool {
        let (foreseen, surprises) = (std::mem::take(&mut self.foreseen), std::mem::take(&mut self.surprises));
        let all = foreseen.saturating_add(surprises);
        all >= READS_MIN && foreseen.saturating_mul(100) < all.saturating_mul(FORESEEN_PERCENT_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_wrong_if_most_reads_wait_for_other_blocks() {
        let mut uses = ProfileUse::new(&[1, 2, 3, 4, 5]);
        let fetched = BlockOrigin::Fetched { mirror: "here".into() };
        (1..=5).for_each(|block| uses.note(block, &BlockOrigin::Memory));
        // Another read of a block says nothing, and neither do blocks that were here.
        (1..=5).for_each(|block| uses.note(block, &BlockOrigin::Memory));
        (100..200).for_each(|block| uses.note(block, &BlockOrigin::Storage));
        (10..21).for_each(|block| uses.note(block, &fetched));
        assert!(!uses.end_interval(), "5 of 16 reads are more than 30 %");
        (10..25).for_each(|block| uses.note(block, &fetched));
        assert!(!uses.end_interval(), "15 reads are too few");
        (10..26).for_each(|block| uses.note(block, &BlockOrigin::Waited));
        assert!(uses.end_interval());
        assert!(!uses.end_interval(), "each interval begins with nothing");
    }
}
