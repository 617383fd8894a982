//! Growth: the bytes that snapshots have added, by day or by month, without the first snapshot of
//! each source, which is no growth.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use varve_archive::{Snapshot, SnapshotId};

use crate::archive::snapshot_view::SnapshotView;
use crate::show;

/// A younger archive has bars for days.
const BY_DAY_MAX: i32 = 62;
/// The months of the chart.
const MONTHS: usize = 24;
/// The chart, in its own units, with room for the labels at its left and below it. Letters have 11
/// units, and are legible at the width of a phone.
pub(crate) const WIDTH: u64 = 360;
pub(crate) const HEIGHT: u64 = 180;
const LEFT: u64 = 56;
const TOP: u64 = 10;
const BOTTOM: u64 = 160;
/// Labels below the chart, at most.
const LABELS_MAX: u64 = 5;
/// Lines across the chart, at most, without that of zero.
const TICKS_MAX: u64 = 4;

/// The chart, and the rows of its table.
#[derive(Default)]
pub(crate) struct GrowthChart {
    pub(crate) is_by_day: bool,
    pub(crate) bars: Vec<GrowthBar>,
    pub(crate) ticks: Vec<GrowthTick>,
    pub(crate) labels: Vec<GrowthLabel>,
    /// The newest first, without days and months that have no snapshot.
    pub(crate) rows: Vec<GrowthRow>,
    /// The first snapshots, which are in no bar.
    pub(crate) first_count: u64,
    pub(crate) first_stored: u64,
}

pub(crate) struct GrowthBar {
    /// Its corner and sizes, in tenths of a unit.
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) width: String,
    pub(crate) height: String,
    /// The day or month with its bytes.
    pub(crate) text: String,
}

/// A line across the chart.
pub(crate) struct GrowthTick {
    pub(crate) y: u64,
    pub(crate) text: String,
}

/// A day or month below the chart.
pub(crate) struct GrowthLabel {
    pub(crate) x: u64,
    pub(crate) text: String,
}

pub(crate) struct GrowthRow {
    pub(crate) label: String,
    pub(crate) stored: String,
    pub(crate) new: String,
    pub(crate) count: String,
}

/// The sums of a day or month.
#[derive(Default)]
struct GrowthSum {
    stored: u64,
    new: u64,
    count: u64,
}

impl GrowthChart {
    /// The growth up to `today`, without the first snapshots of the sources.
    pub(crate) fn of(
        view: &SnapshotView,
        firsts: &BTreeSet<SnapshotId>,
        today: Date,
        zone: &TimeZone,
    ) -> Self {
        let day_of = |snapshot: &Snapshot| show::day(snapshot.time, zone);
        let Some(oldest) = view.snapshots().first().map(day_of) else { return Self::default() };
        let newest = view.snapshots().last().map_or(today, day_of).max(today);
        let is_by_day = newest.since(oldest).is_ok_and(|age| age.get_days() < BY_DAY_MAX);
        let period = |day: Date| if is_by_day { day } else { day.first_of_month() };
        let mut sums: BTreeMap<Date, GrowthSum> = BTreeMap::new();
        let mut chart = Self { is_by_day, ..Self::default() };
        for snapshot in view.snapshots() {
            let (stored, new) =
                snapshot.growth.map_or((0, 0), |growth| (growth.stored_bytes, growth.new_bytes));
            if firsts.contains(&snapshot.id) {
                chart.first_count += 1;
                chart.first_stored = chart.first_stored.saturating_add(stored);
                continue;
            }
            let sum = sums.entry(period(day_of(snapshot))).or_default();
            sum.count += 1;
            sum.stored = sum.stored.saturating_add(stored);
            sum.new = sum.new.saturating_add(new);
        }
        let step = if is_by_day { jiff::Span::new().days(1) } else { jiff::Span::new().months(1) };
        let mut periods = vec![period(newest)];
        while periods.len() < if is_by_day { BY_DAY_MAX as usize } else { MONTHS } {
            match periods.last().map(|last| last.saturating_sub(step)) {
                Some(before) if before >= period(oldest) => periods.push(before),
                _ => break,
            }
        }
        periods.reverse();
        chart.draw(&periods, &sums);
        chart
    }

    fn draw(&mut self, periods: &[Date], sums: &BTreeMap<Date, GrowthSum>) {
        let format = if self.is_by_day { "%Y-%m-%d" } else { "%Y-%m" };
        let stored = |period: &Date| sums.get(period).map_or(0, |sum| sum.stored);
        let most = periods.iter().map(stored).max().unwrap_or(0);
        let step = round_step(most);
        let top = most.div_ceil(step).max(1).saturating_mul(step);
        let height = |bytes: u64, unit: u64| {
            let height = u128::from(bytes) * u128::from((BOTTOM - TOP) * unit) / u128::from(top);
            u64::try_from(height).unwrap_or(0)
        };
        for number in 0..=most.div_ceil(step) {
            let bytes = number.saturating_mul(step);
            self.ticks.push(GrowthTick { y: BOTTOM - height(bytes, 1), text: round_bytes(bytes) });
        }
        // A chart of few days has bars as narrow as one of two weeks.
        let places = (periods.len() as u64).max(14);
        let x = |number: u64| LEFT * 10 + number * (WIDTH - LEFT) * 10 / places;
        let label_step = (periods.len() as u64).div_ceil(LABELS_MAX).max(1);
        for (number, period) in (0_u64..).zip(periods) {
            let label = period.strftime(format).to_string();
            if number.is_multiple_of(label_step) {
                let short = if self.is_by_day { period.strftime("%m-%d").to_string() } else { label.clone() };
                self.labels.push(GrowthLabel { x: (x(number) + x(number + 1)) / 20, text: short });
            }
            let Some(sum) = sums.get(period) else { continue };
            let tall = height(sum.stored, 10).max(if sum.stored > 0 { 10 } else { 0 });
            let tenths = |value: u64| format!("{}.{}", value / 10, value % 10);
            let width = x(number + 1) - x(number);
            self.bars.push(GrowthBar {
                x: tenths(x(number) + width / 8),
                y: tenths(BOTTOM * 10 - tall),
                width: tenths(width * 3 / 4),
                height: tenths(tall),
                text: format!("{label}: {}", show::bytes(sum.stored)),
            });
            self.rows.push(GrowthRow {
                label,
                stored: show::bytes(sum.stored),
                new: show::bytes(sum.new),
                count: show::grouped(sum.count),
            });
        }
        self.rows.reverse();
    }
}

/// The first snapshot of each source.
pub(crate) fn first_snapshots(view: &SnapshotView) -> BTreeSet<SnapshotId> {
    view.all_series().filter_map(|(_, mut snapshots)| snapshots.next().map(|first| first.id)).collect()
}

const STEPS: [u64; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// The distance of the lines across the chart: the smallest round number of bytes with which they
/// are few.
fn round_step(most: u64) -> u64 {
    let all = (0..UNITS.len()).flat_map(|unit| STEPS.map(|step| step << (10 * unit)));
    let mut fitting = all.filter(|step| most.div_ceil(*step) <= TICKS_MAX);
    fitting.next().unwrap_or(u64::MAX)
}

/// A multiple of a round step.
fn round_bytes(bytes: u64) -> String {
    let mut unit = 0;
    while unit + 1 < UNITS.len()
        && bytes >> (10 * unit) >= 1024
        && (bytes >> (10 * unit)).is_multiple_of(1024)
    {
        unit += 1;
    }
    format!("{} {}", show::grouped(bytes >> (10 * unit)), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use varve_archive::{Growth, SnapshotContent};
    use varve_content::{Node, NodeKind};
    use varve_world::Timestamp;

    use super::*;

    fn view(days: impl Iterator<Item = (i64, u64)>) -> SnapshotView {
        let snapshots: Vec<_> = days
            .map(|(day, stored_bytes)| {
                let root = SnapshotContent::Folder(Box::new(Node::new(Vec::new(), NodeKind::Folder)));
                let time = Timestamp(day * 86_400_000_000_000);
                let id = SnapshotId([u8::try_from(day % 251).unwrap(); 16]);
                let growth = Some(Growth { new_bytes: stored_bytes * 2, stored_bytes });
                Snapshot { growth, ..Snapshot::new(id, "home".into(), time, root) }
            })
            .collect();
        SnapshotView::new(&snapshots)
    }

    fn drawn(view: &SnapshotView, today: Date) -> GrowthChart {
        GrowthChart::of(view, &first_snapshots(view), today, &TimeZone::UTC)
    }

    #[test]
    fn a_young_archive_grows_by_day_and_its_first_snapshot_is_no_growth() {
        let nights = (0..29).map(|day| (day, if day == 0 { 400 << 20 } else { 3 << 20 }));
        let chart = drawn(&view(nights), Date::constant(1970, 1, 30));
        assert!(chart.is_by_day);
        assert_eq!((chart.first_count, chart.first_stored), (1, 400 << 20));
        assert_eq!((chart.bars.len(), chart.rows.len()), (28, 28));
        assert_eq!((chart.rows[0].label.as_str(), chart.rows[0].stored.as_str()), ("1970-01-29", "3.00 MiB"));
        let ticks: Vec<_> = chart.ticks.iter().map(|tick| (tick.y, tick.text.as_str())).collect();
        assert_eq!(ticks, [(160, "0 B"), (110, "1 MiB"), (60, "2 MiB"), (10, "3 MiB")]);
        let labels: Vec<_> = chart.labels.iter().map(|label| label.text.as_str()).collect();
        assert_eq!(labels, ["01-01", "01-07", "01-13", "01-19", "01-25"]);
    }

    #[test]
    fn an_older_archive_grows_by_month() {
        let weeks = (0..30).map(|week| (week * 7, 1 << 20));
        let chart = drawn(&view(weeks), Date::constant(1970, 7, 31));
        assert!(!chart.is_by_day);
        assert_eq!(chart.rows.len(), 7);
        assert_eq!((chart.rows[6].label.as_str(), chart.rows[6].count.as_str()), ("1970-01", "4"));
        assert!(drawn(&view(std::iter::empty()), Date::constant(1970, 7, 31)).bars.is_empty());
    }

    #[test]
    fn the_lines_of_the_chart_are_at_round_numbers() {
        for (most, step) in
            [(0, "1 B"), (3, "1 B"), (9, "5 B"), (1000, "500 B"), (2 << 30, "1 GiB"), (5 << 30, "2 GiB")]
        {
            assert_eq!(round_bytes(round_step(most)), step, "{most}");
        }
        assert_eq!(round_bytes(2000 << 20), "2,000 MiB");
        assert_eq!(round_bytes(0), "0 B");
    }
}
