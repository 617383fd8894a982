//! Ten years in forty time zones, on a simulated clock: a trigger asks every ten minutes what is
//! due. Each boundary is served once, although the machine sleeps, jobs fail and the clock is set
//! back. The boundaries are found a second time by a slow search.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::civil::{DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp as Moment};
use varve_daily::{Dueness, JobHistory, Timetable, due};
use varve_world::Timestamp;

const MINUTE: i64 = 60_000_000_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const TRIGGER: i64 = 10 * MINUTE;

const ZONES: [&str; 40] = [
    "UTC",
    "Europe/Berlin",
    "Europe/London",
    "Europe/Dublin",
    "Europe/Moscow",
    "Europe/Istanbul",
    "Atlantic/Azores",
    "America/New_York",
    "America/Chicago",
    "America/Denver",
    "America/Phoenix",
    "America/Los_Angeles",
    "America/Anchorage",
    "America/St_Johns",
    "America/Halifax",
    "America/Havana",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Asuncion",
    "America/Godthab",
    "America/Argentina/Buenos_Aires",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/Lagos",
    "Africa/Johannesburg",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Jerusalem",
    "Asia/Tehran",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Asia/Shanghai",
    "Asia/Tokyo",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Apia",
    "Pacific/Kiritimati",
];

const FORMS: [&str; 11] = [
    "hour",
    "6h",
    "36h",
    "day",
    "day at 02:30",
    "day at 01:59, 03:00, 14:00",
    "week",
    "week on sun at 02:00",
    "week on mon..fri at 00:30",
    "month on 1 at 00:00",
    "month on last at 02:15",
];

struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

fn at(text: &str) -> i64 {
    i64::try_from(text.parse::<Moment>().unwrap().as_nanosecond()).unwrap()
}

/// The events of one period.
#[derive(Default)]
struct Seen {
    served_count: u32,
    is_failed: bool,
}

/// Runs ten years, and returns what happened in each period in which the trigger came.
fn run(table: &Timetable, draw: &mut Draw) -> BTreeMap<i64, Seen> {
    let (mut now, end) = (at("2024-01-01T00:00:00Z"), at("2034-01-01T00:00:00Z"));
    let mut history = JobHistory::default();
    let mut seen: BTreeMap<i64, Seen> = BTreeMap::new();
    // The trigger need not ask again before this time: a pure function would answer the same.
    let mut quiet_until = now;
    while now < end {
        if now >= quiet_until || draw.one_in(4_000) {
            let answer = due(table, &history, Timestamp(now));
            assert!(now >= quiet_until || !matches!(answer, Dueness::Due(_)), "due too early");
            match answer {
                Dueness::Served { period, .. } => quiet_until = period.end.0,
                Dueness::BackingOff { until, .. } => quiet_until = until.0,
                Dueness::Due(period) => {
                    assert!(period.contains(Timestamp(now)));
                    let seen = seen.entry(period.start.0).or_default();
                    if draw.one_in(30) {
                        seen.is_failed = true;
                        history.failures.push(Timestamp(now));
                    } else {
                        seen.served_count += 1;
                        history.successes.push(Timestamp(now));
                    }
                    quiet_until = now;
                    for list in [&mut history.successes, &mut history.failures] {
                        let surplus = list.len().saturating_sub(600);
                        list.drain(..surplus);
                    }
                }
            }
        }
        // To the next trigger, or to the last one before something can be due.
        let idle = (quiet_until - now - 1).div_euclid(TRIGGER);
        let skipped = if idle > 1 { 1 + i64::try_from(draw.below(idle.cast_unsigned())).unwrap() } else { 1 };
        now += skipped * TRIGGER + i64::try_from(draw.below(3)).unwrap() * 1_000_000_000;
        if draw.one_in(300) {
            // Asleep, for up to six days.
            now += i64::try_from(draw.below(144)).unwrap() * HOUR;
        }
        if draw.one_in(900) {
            // The clock is set back, by up to three days.
            now -= i64::try_from(draw.below(72 * 60)).unwrap() * MINUTE;
            quiet_until = now;
        }
    }
    seen
}

#[test]
fn each_boundary_is_served_once() {
    let mut served_count = 0;
    for (number, zone) in (1..).zip(ZONES) {
        let zone = TimeZone::get(zone).unwrap();
        for (form_number, form) in (1..).zip(FORMS) {
            let offset = Duration::from_secs(number * 60 % 2_400);
            let table = Timetable::new(form.parse().unwrap(), zone.clone(), offset);
            let mut draw = Draw(number * 1_000 + form_number);
            for (start, seen) in run(&table, &mut draw) {
                let start = Timestamp(start);
                assert!(seen.served_count <= 1, "{form} {zone:?} {start:?} was served twice");
                // Only a failure before the end of the period excuses it.
                assert!(seen.served_count == 1 || seen.is_failed, "{form} {zone:?} {start:?} was not served");
                served_count += seen.served_count;
            }
        }
    }
    assert!(served_count > 3_000_000, "{served_count}");
}

/// Finds the first minute at which the clocks of a zone show `civil` or a later time, by looking at
/// each minute.
fn slow_first_moment(zone: &TimeZone, civil: DateTime) -> i64 {
    let guess = i64::try_from(civil.to_zoned(TimeZone::UTC).unwrap().timestamp().as_nanosecond()).unwrap();
    (guess - 16 * HOUR..guess + 40 * HOUR)
        .step_by(usize::try_from(MINUTE).unwrap())
        .find(|moment| zone.to_datetime(Moment::from_nanosecond(i128::from(*moment)).unwrap()) >= civil)
        .unwrap()
}

#[test]
fn boundaries_are_the_first_moments_at_their_civil_times() {
    let mut transition_count = 0;
    for name in ZONES {
        let zone = TimeZone::get(name).unwrap();
        let first: Moment = "2024-01-01T00:00:00Z".parse().unwrap();
        let transitions: Vec<_> = zone
            .following(first)
            .take_while(|transition| {
                transition.timestamp() < "2029-01-01T00:00:00Z".parse::<Moment>().unwrap()
            })
            .map(|transition| transition.timestamp())
            .collect();
        for transition in transitions {
            transition_count += 1;
            let day = zone.to_datetime(transition).date();
            for (form, time) in [("day", (0, 0)), ("day at 02:30", (2, 30)), ("day at 01:59", (1, 59))] {
                let table = Timetable::new(form.parse().unwrap(), zone.clone(), Duration::ZERO);
                for day in [day, day.yesterday().unwrap(), day.tomorrow().unwrap()] {
                    let expected = slow_first_moment(&zone, day.at(time.0, time.1, 0, 0));
                    let period = table.period(Timestamp(expected));
                    assert_eq!(period.start, Timestamp(expected), "{name} {form} {day}");
                    assert!(table.period(Timestamp(expected - 1)).end == Timestamp(expected));
                }
            }
        }
    }
    assert!(transition_count > 200, "{transition_count}");
}

#[test]
fn periods_cover_all_time() {
    for name in ZONES {
        let zone = TimeZone::get(name).unwrap();
        for form in FORMS {
            let table = Timetable::new(form.parse().unwrap(), zone.clone(), Duration::from_secs(1_234));
            let mut now = at("2025-12-20T00:00:00Z");
            for _ in 0..40 {
                let period = table.period(Timestamp(now));
                assert!(period.contains(Timestamp(now)), "{name} {form}");
                assert_eq!(table.period(Timestamp(period.end.0 - 1)), period, "{name} {form}");
                assert_eq!(table.period(period.end).start, period.end, "{name} {form}");
                now = period.end.0 + DAY / 3;
            }
        }
    }
}

#[test]
fn weeks_and_months_meet_their_days() {
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    let weeks = Timetable::new("week on mon..fri at 00:30".parse().unwrap(), zone.clone(), Duration::ZERO);
    for boundary in weeks.next_boundaries(Timestamp(at("2026-01-01T00:00:00Z")), 300) {
        let local = zone.to_datetime(Moment::from_nanosecond(i128::from(boundary.0)).unwrap());
        assert!(!matches!(local.weekday(), Weekday::Saturday | Weekday::Sunday), "{local}");
    }
    let months = Timetable::new("month on last at 02:15".parse().unwrap(), zone.clone(), Duration::ZERO);
    let boundaries = months.next_boundaries(Timestamp(at("2026-01-01T00:00:00Z")), 48);
    for (number, boundary) in (0..).zip(boundaries) {
        let local = zone.to_datetime(Moment::from_nanosecond(i128::from(boundary.0)).unwrap());
        let month = jiff::civil::date(2026, 1, 1).checked_add(Span::new().months(number)).unwrap();
        assert_eq!(local.date(), month.last_of_month());
    }
}
