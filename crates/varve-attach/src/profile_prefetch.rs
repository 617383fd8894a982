//! Prefetches the blocks of a profile, in the order in which a start reads them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use varve_edition::{
    DiskProfile, MACHINE_DESCRIPTION_BYTES_MAX, MachineDescription, MachineDescriptionError, ObjectPart,
    PROFILE_BYTES_MAX, StoredPart,
};

use crate::block_supply::BlockSupply;
use crate::edge::Stopwatch;
use crate::fetcher::FetchError;
use crate::line_window::LineWindow;
use crate::profile_use::ProfileUse;
use crate::published_disk::{PublishedDisk, ReadDiskError};
use crate::schedule::Urgency;

/// The blocks that are looked up together.
const CHUNK_BLOCKS: usize = 16;
/// The pages of the map are requested so many chunks before their blocks, all together: one page
/// after the other would cost a round trip for each.
const MAPPED_CHUNKS: usize = 256;
/// The blocks of a profile after these are not prefetched.
const BLOCKS_MAX: usize = 1 << 16;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The use of a profile is judged over intervals of this length.
const INTERVAL: Duration = Duration::from_secs(3);

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
    let part = ObjectPart::alone(profile.name, profile.bytes);
    let (text, _) = source.content(&part, PROFILE_BYTES_MAX, false)?;
    Ok(DiskProfile::parse(&text).ok())
}

/// Returns the description that an edition has of the machine that starts from an image.
///
/// # Errors
/// [`FetchError`] if its bytes cannot be fetched. The result inside is an error if the bytes are no
/// description.
pub fn published_machine(
    source: &BlockSupply,
    machine: &StoredPart,
) -> Result<Result<MachineDescription, MachineDescriptionError>, FetchError> {
    let part = ObjectPart::alone(machine.name, machine.bytes);
    let (text, _) = source.content(&part, MACHINE_DESCRIPTION_BYTES_MAX, false)?;
    Ok(MachineDescription::parse(&text))
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
    let (clock, mut interval) = (Stopwatch::start(), Stopwatch::start());
    let mut window = LineWindow::new(clock.elapsed(), disk.source().received_bytes());
    let mut chunks = blocks.chunks(CHUNK_BLOCKS).enumerate();
    loop {
        let bytes = window.measured(clock.elapsed(), disk.source().received_bytes());
        // If the profile is wrong, its next blocks are wanted when the last ones have come.
        let (urgency, bytes, batch_bytes) = match report.was_wrong {
            false => (Urgency::Profile, bytes, window.batch_bytes()),
            true => (Urgency::Fill, 1, 1),
        };
        let parts = next_batch(disk, &blocks, &mut chunks, batch_bytes)?;
        if parts.is_empty() {
            break;
        }
        if let Some(cache) = disk.source().stored() {
            cache.favour(parts.iter().map(|part| part.name));
        }
        report.blocks = report.blocks.saturating_add(parts.len() as u64);
        if is_over.load(Ordering::Relaxed) || (report.was_wrong && disk.source().stored().is_none()) {
            break;
        }
        let requested = disk.source().prefetch(&parts, disk.content_bytes_max(), urgency);
        report.requested = report.requested.saturating_add(requested.len() as u64);
        let Some(fetcher) = disk.source().fetcher() else { continue };
        while !is_over.load(Ordering::Relaxed) && !fetcher.wait_below(bytes, urgency, LOOK_EVERY) {}
        if interval.elapsed() >= INTERVAL {
            interval = Stopwatch::start();
            report.was_wrong |= disk.has_surprised();
        }
    }
    Ok(report)
}

/// Returns the stored blocks of the next chunks, of at least `bytes` together; none at the end.
fn next_batch<'a>(
    disk: &PublishedDisk,
    blocks: &[u64],
    chunks: &mut impl Iterator<Item = (usize, &'a [u64])>,
    bytes: u64,
) -> Result<Vec<ObjectPart>, ReadDiskError> {
    let (mut parts, mut sum) = (Vec::new(), 0_u64);
    while sum < bytes
        && let Some((number, chunk)) = chunks.next()
    {
        if number % MAPPED_CHUNKS == 0 {
            // Those before it were requested with the chunks before it.
            let first = number.saturating_add(usize::from(number > 0) * MAPPED_CHUNKS) * CHUNK_BLOCKS;
            let end = number.saturating_add(2 * MAPPED_CHUNKS).saturating_mul(CHUNK_BLOCKS);
            disk.prefetch_map_of(blocks.get(first..end.min(blocks.len())).unwrap_or(&[]));
        }
        let stored = disk.parts_of(chunk.iter().copied())?;
        sum = stored.iter().map(|part| u64::from(part.bytes)).fold(sum, u64::saturating_add);
        parts.extend(stored);
    }
    Ok(parts)
}

/// Returns the blocks that a profile reads, each once and in order.
fn blocks_of(disk: &PublishedDisk, profile: &DiskProfile) -> Vec<u64> {
    let mut seen = BTreeSet::new();
    let blocks = profile.reads().iter().flat_map(|read| disk.blocks_of(&read.range));
    // A long profile has few blocks twice, so this ends soon after the last new one.
    blocks.filter(|block| seen.insert(*block)).take(BLOCKS_MAX).collect()
}
