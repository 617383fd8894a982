//! A device of which only measurements are known, by size, order and number of accesses.

use serde::Deserialize;

use crate::timed::access::{AccessKind, ServiceTime, float, nanoseconds};

/// The bytes that are appended for the measurement of a sync.
const PAGE_BYTES: u64 = 4096;

/// Measurements of a device, as `varve-plan bench device --json` prints them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedDevice {
    pub rows: Vec<FittedRow>,
    /// True if the transfers bypassed the page cache.
    #[serde(default)]
    pub is_direct: bool,
    /// Seconds in which a page is appended to a file and synced; `None` if a sync costs nothing but
    /// the writing of its data.
    #[serde(default)]
    pub sync_seconds: Option<f64>,
    /// `None` for a device that is as fast as it can be.
    #[serde(default)]
    pub budget: Option<FittedBudget>,
}

/// The budget of a device that a system holds to a number of accesses a second. After a pause, some
/// accesses pass at once, and the later ones wait.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedBudget {
    /// The part of a pause, in seconds, whose accesses may be made up for.
    pub saved_seconds: f64,
    /// Seconds of an access that does not wait.
    pub access_seconds: f64,
    /// False if reads and writes have budgets of their own.
    pub is_shared: bool,
}

/// One measurement: transfers of one kind, size and number at a time.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedRow {
    pub action: AccessKind,
    pub order: FittedOrder,
    /// Bytes of a transfer.
    pub bytes: u64,
    /// Transfers at a time.
    pub depth: u32,
    pub per_second: f64,
}

/// The order of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FittedOrder {
    /// Each begins where the one before ended.
    Sequential,
    Random,
}

impl FittedDevice {
    pub(super) fn figures(&self) -> Vec<(&'static str, f64)> {
        let sizes = self.rows.iter().map(|row| ("bytes", float(row.bytes)));
        let rates = self.rows.iter().map(|row| ("per_second", row.per_second));
        let syncs = self.sync_seconds.into_iter().map(|seconds| ("sync_seconds", seconds));
        let budgets = self.budget.into_iter().flat_map(|budget| {
            [("saved_seconds", budget.saved_seconds), ("access_seconds", budget.access_seconds)]
        });
        sizes.chain(rates).chain(syncs).chain(budgets).collect()
    }

    /// Returns the largest measured rate of transfers in order, in bytes a second.
    fn rate(&self, kind: AccessKind) -> f64 {
        let rows = self.rows.iter().filter(|row| (row.action, row.order) == (kind, FittedOrder::Sequential));
        rows.map(|row| float(row.bytes) * row.per_second).fold(1.0, f64::max)
    }

    /// Returns the seconds of a sync beside those of writing its data.
    fn seconds_of_sync(&self) -> f64 {
        let written = self.alone(AccessKind::Write, FittedOrder::Sequential, PAGE_BYTES);
        self.sync_seconds.map_or(0.0, |seconds| (seconds - written).max(0.0))
    }

    pub(super) fn problem(&self) -> Option<&'static str> {
        let has = |action, order| {
            self.rows.iter().any(|row| (row.action, row.order, row.depth) == (action, order, 1))
        };
        for action in [AccessKind::Read, AccessKind::Write] {
            if !has(action, FittedOrder::Sequential) {
                return Some("sequential reads and writes, one at a time, must be among the rows");
            }
        }
        (!has(AccessKind::Read, FittedOrder::Random))
            .then_some("random reads, one at a time, must be among the rows")
    }

    /// Returns the seconds between the ends of two accesses, of `bytes` each and `depth` at a time.
    fn seconds(&self, action: AccessKind, order: FittedOrder, bytes: u64, depth: usize) -> f64 {
        let alone = self.alone(action, order, bytes);
        if depth <= 1 {
            return alone;
        }
        // The gain of several at a time is known for the measured sizes and depths only.
        let gains = self.rows.iter().filter(|row| (row.action, row.order) == (action, order));
        let gains = gains.map(|row| {
            let gain = self.alone(action, order, row.bytes) * row.per_second;
            (float(row.bytes).log2(), f64::from(row.depth).log2(), gain)
        });
        let gains: Vec<_> = gains.collect();
        let at_size = |size: f64| {
            let of_size = gains.iter().filter(|(other, ..)| (other - size).abs() < 1e-9);
            between(float(depth as u64).log2(), of_size.map(|(_, depth, gain)| (*depth, *gain)).collect())
        };
        let sizes = gains.iter().filter(|(_, depth, _)| *depth > 0.0).map(|(size, ..)| *size);
        let points: Vec<_> = sizes.map(|size| (size, at_size(size))).collect();
        if points.is_empty() {
            return alone;
        }
        alone / between(float(bytes).log2(), points)
    }

    /// Returns the seconds of an access, one at a time.
    fn alone(&self, action: AccessKind, order: FittedOrder, bytes: u64) -> f64 {
        let of = |order| {
            let rows = self.rows.iter();
            let rows = rows.filter(move |row| (row.action, row.order, row.depth) == (action, order, 1));
            let mut points: Vec<_> = rows.map(|row| (float(row.bytes), 1.0 / row.per_second)).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            points
        };
        let (sequential, random) = (of(FittedOrder::Sequential), of(FittedOrder::Random));
        let rate = sequential.iter().map(|(bytes, seconds)| bytes / seconds).fold(1.0, f64::max);
        let in_order = line(float(bytes), &sequential, rate);
        let anywhere = if random.is_empty() { in_order } else { line(float(bytes), &random, rate) };
        match order {
            FittedOrder::Sequential => in_order.min(anywhere),
            FittedOrder::Random => anywhere,
        }
    }
}

/// Returns the seconds of a transfer by the seconds of others, which are sorted by their bytes. A
/// larger one than all of them continues at `rate`. A smaller one than all of them takes as long
/// as the smallest, but no longer than a latency and its bytes if two of them show a latency.
fn line(bytes: f64, points: &[(f64, f64)], rate: f64) -> f64 {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return bytes / rate };
    if bytes >= last.0 {
        return last.1 + (bytes - last.0) / rate;
    }
    if bytes <= first.0 {
        // Random transfers have a smallest size; those in order are measured with large ones.
        let slope = points.get(1).map_or(first.1 / first.0, |next| (next.1 - first.1) / (next.0 - first.0));
        return (first.1 - slope.max(0.0) * (first.0 - bytes)).max(bytes / rate);
    }
    between(bytes, points.to_vec())
}

/// Interpolates between points, which need no order. Outside of them the nearest one counts.
fn between(at: f64, mut points: Vec<(f64, f64)>) -> f64 {
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let after = points.partition_point(|point| point.0 < at);
    let (Some(before), Some(next)) = (points.get(after.wrapping_sub(1)), points.get(after)) else {
        return points.get(after).or(points.last()).map_or(1.0, |point| point.1);
    };
    before.1 + (next.1 - before.1) * (at - before.0) / (next.0 - before.0)
}

/// A measured device at work.
#[derive(Debug, Clone)]
pub(in crate::timed) struct FittedState {
    device: FittedDevice,
    head: Option<u64>,
    /// The moment at which the part of the device that all accesses share has ended its work.
    shared_free_at: u64,
    /// The moments at which the budgets are even again, for reads and for writes: those of accesses
    /// and of bytes. A shared budget is the first one.
    budgets: [[u64; 2]; 2],
}

impl FittedState {
    pub(in crate::timed) fn new(device: &FittedDevice) -> Self {
        Self { device: device.clone(), head: None, shared_free_at: 0, budgets: [[0; 2]; 2] }
    }

    pub(in crate::timed) fn depth_max(&self) -> usize {
        self.device.rows.iter().map(|row| row.depth as usize).max().unwrap_or(1).max(1)
    }

    pub(in crate::timed) fn head(&self) -> Option<u64> {
        self.head
    }

    pub(in crate::timed) fn serve(
        &mut self,
        now: u64,
        in_flight: usize,
        kind: AccessKind,
        at: u64,
        bytes: u64,
    ) -> ServiceTime {
        let goes_on = self.head.replace(at + bytes) == Some(at);
        let order = if goes_on { FittedOrder::Sequential } else { FittedOrder::Random };
        let in_order = self.device.alone(kind, FittedOrder::Sequential, bytes);
        // An access takes the time that it takes alone, and longer if others are before it.
        let alone = nanoseconds(self.device.alone(kind, order, bytes));
        let all = match self.device.budget {
            Some(budget) => self.pass(budget, now, kind, alone, bytes),
            None => {
                let share = nanoseconds(self.device.seconds(kind, order, bytes, in_flight));
                self.shared_free_at = self.shared_free_at.max(now) + share;
                (now + alone).max(self.shared_free_at) - now
            }
        };
        let transfer = nanoseconds(in_order).min(all);
        ServiceTime { positioning: all - transfer, transfer }
    }

    /// Performs what a sync needs beside the writing of its data. Returns its nanoseconds.
    pub(in crate::timed) fn sync(&mut self, now: u64) -> u64 {
        let needed = nanoseconds(self.device.seconds_of_sync());
        match self.device.budget {
            Some(budget) if needed > 0 => self.pass(budget, now, AccessKind::Write, needed, 0),
            _ => needed,
        }
    }

    /// Lets an access pass that takes `alone` nanoseconds if there are many in a row. Systems count
    /// accesses and bytes by themselves, and an access waits for both. Returns the nanoseconds
    /// until its end.
    fn pass(&mut self, budget: FittedBudget, now: u64, kind: AccessKind, alone: u64, bytes: u64) -> u64 {
        let of_bytes = float(bytes) / self.device.rate(kind);
        let of_bytes = nanoseconds(of_bytes).min(alone);
        // A long access takes its bytes' time only.
        let of_access = match bytes {
            0 => alone,
            _ => alone.min(nanoseconds(self.device.alone(kind, FittedOrder::Random, PAGE_BYTES))),
        };
        let own = usize::from(!budget.is_shared && kind == AccessKind::Write);
        let earliest = now.saturating_sub(nanoseconds(budget.saved_seconds));
        let mut end = now + nanoseconds(budget.access_seconds).min(alone);
        for (even_at, needed) in self.budgets[own].iter_mut().zip([of_access, of_bytes]) {
            *even_at = (*even_at).max(earliest) + needed;
            end = end.max(*even_at);
        }
        end - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> FittedDevice {
        let row =
            |action, order, bytes, depth, per_second| FittedRow { action, order, bytes, depth, per_second };
        let rows = vec![
            row(AccessKind::Read, FittedOrder::Sequential, 1 << 20, 1, 1000.0),
            row(AccessKind::Read, FittedOrder::Random, 4096, 1, 1000.0),
            row(AccessKind::Read, FittedOrder::Random, 4096, 4, 3000.0),
            row(AccessKind::Read, FittedOrder::Random, 4096, 32, 6000.0),
            row(AccessKind::Read, FittedOrder::Random, 16384, 1, 500.0),
            row(AccessKind::Write, FittedOrder::Sequential, 1 << 20, 1, 100.0),
        ];
        FittedDevice { rows, is_direct: true, sync_seconds: None, budget: None }
    }

    fn milliseconds(action: AccessKind, order: FittedOrder, bytes: u64, depth: usize) -> f64 {
        (device().seconds(action, order, bytes, depth) * 1e6).round() / 1e3
    }

    #[test]
    fn measured_rows_come_out_as_they_went_in() {
        for row in device().rows {
            let found = device().seconds(row.action, row.order, row.bytes, row.depth as usize);
            assert!((found * row.per_second - 1.0).abs() < 1e-9, "{row:?}: {found}");
        }
    }

    #[test]
    fn sizes_and_depths_between_them_are_interpolated() {
        use AccessKind::{Read, Write};
        use FittedOrder::{Random, Sequential};
        assert!((milliseconds(Read, Random, 10240, 1) - 1.5).abs() < 0.01);
        assert!((milliseconds(Read, Random, 16384 + (1 << 20), 1) - 3.0).abs() < 0.01);
        assert!((milliseconds(Read, Random, 4096, 8) - 0.25).abs() < 0.01, "a third of the way to 32");
        assert!((milliseconds(Read, Random, 16384, 4) - 0.667).abs() < 0.01, "the gain of 4 kB");
        assert!((milliseconds(Read, Sequential, 1 << 19, 1) - 0.5).abs() < 0.01);
        assert!((milliseconds(Write, Random, 1 << 21, 1) - 20.0).abs() < 0.01);
    }

    #[test]
    fn accesses_at_the_same_time_share_the_device() {
        let mut state = FittedState::new(&device());
        let mut write = |in_flight| {
            let time = state.serve(0, in_flight, AccessKind::Write, 1 << 30, 1 << 20);
            time.sum() / 1_000_000
        };
        assert_eq!([write(1), write(2), write(3)], [10, 20, 30], "the second gains nothing here");
        let mut read = |in_flight| state.serve(1 << 40, in_flight, AccessKind::Read, 0, 4096).sum() / 1000;
        assert_eq!(
            [read(4), read(4), read(4), read(4)],
            [1000, 1000, 1000, 1333],
            "four gain a factor of three"
        );
    }

    /// A disk with 100 accesses a second, of which ten pass at once after a pause.
    #[test]
    fn a_budget_lets_a_burst_pass_and_then_waits() {
        use AccessKind::{Read, Write};
        let row = |action, order| FittedRow { action, order, bytes: 4096, depth: 1, per_second: 100.0 };
        let budget = FittedBudget { saved_seconds: 0.1, access_seconds: 0.001, is_shared: false };
        let rows = vec![
            row(AccessKind::Read, FittedOrder::Sequential),
            row(AccessKind::Read, FittedOrder::Random),
            row(AccessKind::Write, FittedOrder::Sequential),
        ];
        let held = FittedDevice { rows, is_direct: true, sync_seconds: Some(0.06), budget: Some(budget) };
        let ends = |budget: FittedBudget, kinds: &[AccessKind]| {
            let mut state = FittedState::new(&FittedDevice { budget: Some(budget), ..held.clone() });
            let mut now = 1_000_000_000;
            let mut end = |kind: &AccessKind| {
                now += state.serve(now, 1, *kind, 1 << 30, 4096).sum();
                (now - 1_000_000_000) / 1_000_000
            };
            kinds.iter().map(&mut end).collect::<Vec<_>>()
        };
        assert_eq!(ends(budget, &[Read; 13]), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 20, 30]);
        let pairs = [Read, Write].repeat(50);
        assert_eq!(ends(budget, &pairs).last(), Some(&401), "each kind has its own 100 a second");
        let shared = FittedBudget { is_shared: true, ..budget };
        assert_eq!(ends(shared, &pairs).last(), Some(&900));
        let mut state = FittedState::new(&held);
        let syncs: Vec<_> = (0..4).map(|_| state.sync(1_000_000_000) / 1_000_000).collect();
        assert_eq!(syncs, [1, 1, 50, 100], "50 ms each beside the page");
        let large = state.serve(1_000_000_000, 1, Write, 0, 4096).sum() / 1_000_000;
        assert_eq!(large, 110, "it waits for its turn among the accesses");
    }

    #[test]
    fn rows_that_do_not_suffice_are_named() {
        let mut device = device();
        assert_eq!(device.problem(), None);
        device.rows.pop();
        assert!(device.problem().unwrap().contains("writes"));
    }
}
