//! `varve-plan trace workload`: the workload of the store, as an input of `varve-plan predict`.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use varve_block::visible;
use varve_plan::WorkloadProfile;
use varve_store::StoreConfig;
use varve_trace::{SnapshotShape, TraceProfile, TraceRecord};

const DAY_SECONDS: f64 = 86_400.0;
const DAYS_PER_YEAR: f64 = 365.25;
/// The growth in a year does not follow from a shorter time.
const GROWTH_DAYS_MIN: f64 = 60.0;

/// The sizes of the first and of the newest snapshot of each series.
#[derive(Debug, Default)]
pub(super) struct SeriesSizes {
    sizes: BTreeMap<u64, SeriesSize>,
    current: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct SeriesSize {
    snapshot_count: u64,
    first_bytes: u64,
    newest_bytes: u64,
}

impl SeriesSizes {
    pub(super) fn add(&mut self, record: &TraceRecord) {
        match record {
            TraceRecord::Snapshot(begin) => {
                let size = self.sizes.entry(begin.series).or_default();
                size.snapshot_count += 1;
                size.newest_bytes = 0;
                self.current = Some(begin.series);
            }
            TraceRecord::Put(run) => {
                if let Some(size) = self.current.and_then(|series| self.sizes.get_mut(&series)) {
                    size.newest_bytes += run.bytes();
                    if size.snapshot_count == 1 {
                        size.first_bytes = size.newest_bytes;
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns the bytes of the newest snapshot of each series, together.
    fn newest(&self) -> u64 {
        self.sizes.values().map(|size| size.newest_bytes).sum()
    }

    /// Returns the series with more than one snapshot: their number, and the bytes of their first
    /// and of their newest snapshots.
    fn grown(&self) -> (u64, u64, u64) {
        let grown = self.sizes.values().filter(|size| size.snapshot_count > 1);
        grown.fold((0, 0, 0), |(count, first, newest), size| {
            (count + 1, first + size.first_bytes, newest + size.newest_bytes)
        })
    }
}

/// The store that the workload is found in.
pub(super) struct PlannedStore {
    /// The names of some snapshots.
    pub(super) name: String,
    pub(super) log_bytes: u64,
    pub(super) block_bytes: u32,
}

/// The figures of a workload, and what is not known of it.
pub(super) struct FoundWorkload {
    pub(super) workload: WorkloadProfile,
    /// The days from the first to the newest snapshot, on the average of the series.
    days: f64,
    snapshot_count: u64,
    has_growth: bool,
}

/// Finds the workload of the snapshots that a store has. The next years begin with the newest ones.
#[expect(clippy::cast_precision_loss, reason = "shares need few digits")]
pub(super) fn of_store(
    profile: &TraceProfile,
    sizes: &SeriesSizes,
    store: &PlannedStore,
) -> Result<FoundWorkload> {
    let TraceProfile { first, later, .. } = profile;
    let later_count = later.put_bytes.count();
    let (series, first_bytes, newest_bytes) = sizes.grown();
    let days = profile.intervals.sum() as f64 / DAY_SECONDS / series.max(1) as f64;
    if later_count == 0 || days <= 0.0 || later.put_bytes.sum() == 0 {
        bail!("the store has no second snapshot of anything: changes cannot be seen before that");
    }
    let has_growth = days >= GROWTH_DAYS_MIN && first_bytes > 0;
    let growth = (newest_bytes as f64 / first_bytes.max(1) as f64).powf(DAYS_PER_YEAR / days) - 1.0;
    // The plan adds the growth itself.
    let changed = later.new_bytes.sum().saturating_sub(newest_bytes.saturating_sub(first_bytes));
    let unique = (first.new_bytes.sum() + later.new_bytes.sum()) as f64;
    let repeated = 1.0 - first.new_bytes.sum() as f64 / first.put_bytes.sum().max(1) as f64;
    let block_bytes = store.block_bytes;
    let workload = WorkloadProfile {
        name: format!("the snapshots of {}", visible(&store.name)),
        source: format!("varve-plan trace workload: {} snapshots", later_count + first.put_bytes.count()),
        source_bytes: sizes.newest() as f64,
        growth_per_year: if has_growth { rounded(growth.clamp(-0.9, 10.0)) } else { 0.0 },
        snapshots_per_day: rounded((later_count as f64 / series as f64 / days).clamp(0.001, 1440.0)),
        read_share: 1.0,
        changed_share: rounded((changed as f64 / later.put_bytes.sum() as f64).min(1.0)),
        duplicate_share: rounded(repeated.clamp(0.0, 1.0)),
        stored_share: rounded(stored_share(&[first, later], store.log_bytes as f64 / unique.max(1.0))),
        kept_share: 1.0,
        block_bytes: if StoreConfig::block_bytes_is_good(block_bytes) { block_bytes } else { 16 << 10 },
        looks_per_second: 0.0,
        hot_bytes: 0.0,
        hot_share: 0.0,
        over_network: true,
        processor: None,
    };
    let snapshot_count = later_count + first.put_bytes.count();
    Ok(FoundWorkload { workload, days, snapshot_count, has_growth })
}

/// The share of new data that compression leaves: from the classes of blocks that were read, or
/// else from the length of the log.
#[expect(clippy::cast_precision_loss, reason = "shares need few digits")]
fn stored_share(shapes: &[&SnapshotShape], of_log: f64) -> f64 {
    let (mut eighths, mut known, mut unknown) = (0.0, 0.0, 0.0);
    for shape in shapes {
        for (class, bytes) in shape.size_classes.iter().enumerate() {
            match class {
                0 => unknown += *bytes as f64,
                _ => (eighths, known) = (eighths + class as f64 * *bytes as f64, known + *bytes as f64),
            }
        }
    }
    // A class is the upper bound of an eighth.
    let read = (eighths / 8.0 - known / 16.0) / known.max(1.0);
    if known > unknown { read.clamp(0.001, 1.0) } else { of_log.clamp(0.001, 1.1) }
}

/// Keeps three digits.
fn rounded(number: f64) -> f64 {
    format!("{number:.2e}").parse().unwrap_or(number)
}

impl FoundWorkload {
    /// Returns the text of an input of `varve-plan predict`.
    pub(super) fn text(&self) -> String {
        let WorkloadProfile {
            name,
            source_bytes,
            growth_per_year,
            snapshots_per_day,
            changed_share,
            duplicate_share,
            stored_share,
            block_bytes,
            ..
        } = &self.workload;
        let name = name.replace(['\\', '"'], "_");
        let growth = if self.has_growth {
            "The growth in a year, as in the days between the first and the newest snapshot."
        } else {
            "The growth in a year: write your own figure. The snapshots are of too few days to show it."
        };
        format!(
            "# A workload for `varve-plan predict --workload`, made by `varve-plan trace workload` from {} snapshots of {:.0} days.\n\
             # Edit the figures that say so; the store cannot know them.\n\
             name = \"{name}\"\n\
             source = \"The history of the store: varve-plan trace workload.\"\n\n\
             # The newest snapshot of each name, together, without holes.\n\
             source_bytes = {source_bytes:e}\n\
             # {growth}\n\
             growth_per_year = {growth_per_year}\n\n\
             # On the average of the names. Forgotten snapshots are not counted.\n\
             snapshots_per_day = {snapshots_per_day}\n\
             # 1 for images. Edit: less for folders, whose unchanged files are skipped.\n\
             read_share = 1\n\
             # The share of the source that a snapshot adds, without the growth.\n\
             changed_share = {changed_share}\n\
             # The share of the first snapshots that occurs twice in them.\n\
             duplicate_share = {duplicate_share}\n\
             # The share of new data that compression leaves.\n\
             stored_share = {stored_share}\n\
             # Edit: less than 1 if old snapshots are to be forgotten.\n\
             kept_share = 1\n\
             block_bytes = {block_bytes}\n\n\
             # Edit: single reads, of mounted snapshots or machines that run from the archive.\n\
             looks_per_second = 0\n\
             hot_bytes = 0\n\
             hot_share = 0\n\n\
             # Edit: false if the source is in the same machine as the store.\n\
             over_network = true\n",
            self.snapshot_count, self.days
        )
    }
}
