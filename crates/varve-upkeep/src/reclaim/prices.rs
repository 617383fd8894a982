//! The prices of object stores that have copies of the arenas: whether it pays there to write an
//! arena anew. Prices only ever spare arenas: nothing is written anew that would not be without
//! them.

use std::collections::BTreeSet;

use varve_log::ArenaId;

use super::arena_use::ArenaUse;

/// The bytes of an object of a replica, unless told otherwise.
const OBJECT_BYTES: u64 = 16 << 20;
const GB: f64 = 1e9;
const DAYS_PER_MONTH: f64 = 30.0;

/// The prices of one target, in any currency. All are finite, and none is less than zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TargetPrices {
    /// Its name, as `replicate` is given it.
    pub target: String,
    /// For 10⁹ bytes and 30 days.
    pub storage_gb_month: f64,
    /// For 1000 uploads.
    pub put_1000: f64,
    /// For 1000 reads.
    pub get_1000: f64,
    /// For 10⁹ bytes that are read.
    pub read_gb: f64,
    /// An object that is removed earlier is paid for as long as this.
    pub minimum_days: u32,
}

/// The prices of one target, and what has to stay there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PricedTarget {
    pub prices: TargetPrices,
    /// The arenas whose objects may be younger than the minimum.
    pub within_minimum: BTreeSet<ArenaId>,
}

/// The targets with prices, and the time after which a rewriting must have paid.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReclaimPrices {
    pub targets: Vec<PricedTarget>,
    pub horizon_days: u32,
}

impl TargetPrices {
    /// Returns the price of the storage that an arena's dead bytes take in this number of days,
    /// less the price of replacing its objects. Each new object is uploaded, and read back before
    /// the old ones are removed.
    fn gain(&self, arena: &ArenaUse, days: u32) -> f64 {
        let months = f64::from(days) / DAYS_PER_MONTH;
        let saved = arena.dead_bytes() as f64 / GB * self.storage_gb_month * months;
        // The first object begins with the header, and the seal may be alone in the last one.
        let object_count = (arena.kept_bytes.div_ceil(OBJECT_BYTES) + 1) as f64;
        let requests = object_count * (self.put_1000 + self.get_1000) / 1000.0;
        saved - requests - arena.kept_bytes as f64 / GB * self.read_gb
    }
}

impl ReclaimPrices {
    /// Returns true if a target would be paid for the objects of the arena in any case.
    pub(super) fn is_within_minimum(&self, arena: ArenaId) -> bool {
        self.targets.iter().any(|target| target.within_minimum.contains(&arena))
    }

    /// Returns true if writing the arena anew saves more at all targets together than it costs
    /// there. Without prices everything pays.
    pub(super) fn pays(&self, arena: &ArenaUse) -> bool {
        let gains = self.targets.iter().map(|target| target.prices.gain(arena, self.horizon_days));
        self.targets.is_empty() || gains.sum::<f64>() > 0.0
    }
}
