//! The rhythm of a source: how often its snapshots come, and which of its last periods have one.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use varve_archive::Snapshot;
use varve_world::Timestamp;

use crate::show;

/// The periods that are shown.
pub(crate) const PERIODS: usize = 14;
/// The newest snapshots, from whose distances the rhythm is taken.
const RECENT: usize = 15;
/// Fewer distances say too little.
const DISTANCES_MIN: usize = 2;
const HOUR: i64 = 3_600_000_000_000;

/// The usual distance of a source's snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rhythm {
    /// The rhythm in words, such as `each day`. It is empty if the source has too few snapshots.
    pub(crate) text: String,
    period: RhythmStep,
}

/// The time of which one cell tells whether it has a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RhythmStep {
    Days(i64),
    Month,
}

/// A period of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeriodState {
    /// It ended before the first snapshot.
    Before,
    There,
    /// All its snapshots have files that were unreadable.
    Gaps,
    Missed,
    /// The present one, whose snapshot may still come.
    Open,
}

impl Rhythm {
    /// The rhythm of snapshots at these times, the newest first. It is the median of their
    /// distances, so that a missed night or a snapshot by hand does not change it.
    pub(crate) fn of(times: impl Iterator<Item = Timestamp>) -> Self {
        let times: Vec<_> = times.take(RECENT).collect();
        let mut distances: Vec<i64> =
            times.windows(2).map(|pair| pair[0].0.saturating_sub(pair[1].0)).collect();
        distances.sort_unstable();
        if distances.len() < DISTANCES_MIN {
            return Self { text: String::new(), period: RhythmStep::Days(1) };
        }
        let hours = (distances[distances.len() / 2].saturating_add(HOUR / 2)) / HOUR;
        let days = hours.saturating_add(12) / 24;
        let (text, period) = match hours {
            ..=1 => ("each hour".to_owned(), RhythmStep::Days(1)),
            2..20 => (format!("every {hours} hours"), RhythmStep::Days(1)),
            20..36 => ("each day".to_owned(), RhythmStep::Days(1)),
            156..180 => ("each week".to_owned(), RhythmStep::Days(7)),
            660..768 => ("each month".to_owned(), RhythmStep::Month),
            _ => (format!("every {days} days"), RhythmStep::Days(days)),
        };
        Self { text, period }
    }

    /// The first days of the last periods up to `today`, the oldest first.
    fn first_days(&self, today: Date) -> Vec<Date> {
        let first = |number: usize| match self.period {
            RhythmStep::Days(days) => {
                let back = days.saturating_mul(number as i64 + 1) - 1;
                today.saturating_sub(jiff::Span::new().days(back.min(100_000)))
            }
            RhythmStep::Month => {
                today.first_of_month().saturating_sub(jiff::Span::new().months(number as i64))
            }
        };
        (0..PERIODS).rev().map(first).collect()
    }

    /// The states of the last periods, the oldest first. `snapshots` come with the newest first.
    pub(crate) fn states<'a>(
        &self,
        snapshots: impl Iterator<Item = &'a Snapshot>,
        today: Date,
        zone: &TimeZone,
    ) -> Vec<PeriodState> {
        let first_days = self.first_days(today);
        let mut states = vec![PeriodState::Before; first_days.len()];
        // The period of the oldest snapshot, and everything after it, counts.
        let mut oldest = first_days.len();
        for snapshot in snapshots {
            let day = show::day(snapshot.time, zone);
            let Some(place) = first_days.iter().rposition(|first| *first <= day) else {
                oldest = 0;
                break;
            };
            oldest = place;
            let has_gaps = snapshot.problem_count > 0 && states[place] != PeriodState::There;
            states[place] = if has_gaps { PeriodState::Gaps } else { PeriodState::There };
        }
        let last = states.len().saturating_sub(1);
        for (place, state) in states.iter_mut().enumerate().skip(oldest) {
            if *state == PeriodState::Before {
                *state = if place == last { PeriodState::Open } else { PeriodState::Missed };
            }
        }
        states
    }

    /// The rhythm and the number of periods that have kept it: `each week: 5 of 6, 1 with gaps`.
    pub(crate) fn summary(&self, states: &[PeriodState]) -> String {
        let count = |state| states.iter().filter(|one| **one == state).count();
        let gaps = count(PeriodState::Gaps);
        let there = count(PeriodState::There) + gaps;
        let all = there + count(PeriodState::Missed);
        let with_gaps = if gaps > 0 { format!(", {gaps} with gaps") } else { String::new() };
        match (self.text.as_str(), self.period) {
            ("", _) => format!("{} so far{with_gaps}", show::count(there as u64, "day")),
            // The cells of a source with several snapshots a day are days.
            (text, RhythmStep::Days(1)) if text != "each day" => {
                format!("{text}: {there} of {}{with_gaps}", show::count(all as u64, "day"))
            }
            (text, _) => format!("{text}: {there} of {all}{with_gaps}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use varve_archive::{SnapshotContent, SnapshotId};
    use varve_content::{Node, NodeKind};

    use super::*;

    const DAY: i64 = 24 * HOUR;

    fn snapshot(time: i64, problem_count: u64) -> Snapshot {
        let root = SnapshotContent::Folder(Box::new(Node::new(Vec::new(), NodeKind::Folder)));
        let new = Snapshot::new(SnapshotId([0; 16]), "home".into(), Timestamp(time), root);
        Snapshot { problem_count, ..new }
    }

    fn rhythm(step: i64) -> Rhythm {
        Rhythm::of((0..20).rev().map(|number| Timestamp(number * step)))
    }

    #[test]
    fn the_usual_distance_has_a_name() {
        let texts = [HOUR, 6 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 91 * DAY]
            .map(|step| rhythm(step).text);
        let expected = [
            "each hour",
            "every 6 hours",
            "each day",
            "every 2 days",
            "each week",
            "every 14 days",
            "each month",
            "every 91 days",
        ];
        assert_eq!(texts, expected);
        // A missed night and a snapshot by hand change nothing.
        let nights = [0, 1, 2, 4, 5, 6, 7].map(|day| day * DAY);
        let times = nights.into_iter().chain([7 * DAY + HOUR]).rev().map(Timestamp);
        assert_eq!(Rhythm::of(times).text, "each day");
        assert_eq!(Rhythm::of([Timestamp(DAY), Timestamp(0)].into_iter()).text, "");
    }

    #[test]
    fn a_weekly_source_misses_no_nights() {
        let today = Date::constant(1970, 6, 30);
        let day_of_year = |day: i64| (day - 1) * DAY;
        // Sundays up to 28 June, which is day 179.
        let taken: Vec<_> = (0..20).map(|week| snapshot(day_of_year(179 - 7 * week), 0)).collect();
        let weekly = Rhythm::of(taken.iter().map(|one| one.time));
        let states = weekly.states(taken.iter(), today, &TimeZone::UTC);
        assert_eq!(states, [PeriodState::There; PERIODS]);
        assert_eq!(weekly.summary(&states), "each week: 14 of 14");
        // One is missing, one has gaps, and the source is younger than the strip.
        let younger: Vec<_> =
            [0, 1, 3, 4].map(|week| snapshot(day_of_year(179 - 7 * week), u64::from(week == 4))).into();
        let states = weekly.states(younger.iter(), today, &TimeZone::UTC);
        assert_eq!(states[..9], [PeriodState::Before; 9]);
        assert_eq!(states[9..12], [PeriodState::Gaps, PeriodState::There, PeriodState::Missed]);
        assert_eq!(weekly.summary(&states), "each week: 4 of 5, 1 with gaps");
    }

    #[test]
    fn the_present_period_is_not_missed_yet() {
        let taken: Vec<_> = (0..5).map(|day| snapshot((178 - day) * DAY, 0)).collect();
        let daily = Rhythm::of(taken.iter().map(|one| one.time));
        let states = daily.states(taken.iter(), Date::constant(1970, 6, 29), &TimeZone::UTC);
        assert_eq!(states[13], PeriodState::Open);
        assert_eq!(daily.summary(&states), "each day: 5 of 5");
        let monthly = rhythm(30 * DAY);
        let first_days = monthly.first_days(Date::constant(1970, 3, 31));
        assert_eq!((first_days[0], first_days[13]), (Date::constant(1969, 2, 1), Date::constant(1970, 3, 1)));
    }
}
