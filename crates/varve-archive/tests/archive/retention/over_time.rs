//! A policy that is applied each night leaves the same snapshots as one that is applied once at the
//! end.

use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};
use varve_archive::retention::{Dated, RetentionPolicy};
use varve_world::Timestamp;

use super::properties::{Amount, counting_rules, text, times};
use super::{HOUR, at, dated, number_of, policy, series, thinned};

const PERIODS: [&str; 5] = ["hourly", "daily", "weekly", "monthly", "yearly"];

fn numbers(snapshots: &[Dated]) -> Vec<usize> {
    snapshots.iter().map(|snapshot| number_of(snapshot.id)).collect()
}

/// Adds the snapshots one after another, and applies the policy after those that are marked.
fn step_by_step(snapshots: &[(Dated, bool)], rules: &RetentionPolicy) -> Vec<Dated> {
    let mut present = Vec::new();
    for (snapshot, is_applied) in snapshots {
        present.push(snapshot.clone());
        if *is_applied {
            present = thinned(present, rules, snapshot.time);
        }
    }
    present
}

/// Snapshots in the order of their times, each with a flag that the policy is applied after it. It
/// is applied after the last one.
fn history() -> impl Strategy<Value = Vec<(Dated, bool)>> {
    let flag = || proptest::bool::weighted(0.1);
    let one = (times(), any::<bool>(), flag(), flag(), any::<bool>());
    proptest::collection::vec(one, 1..32).prop_map(|mut all| {
        all.sort_by_key(|(time, ..)| *time);
        let count = all.len();
        let made = all.into_iter().enumerate().map(|(number, (time, is_other, held, until, applied))| {
            let snapshot = Dated {
                host: if is_other { "i".into() } else { "h".into() },
                holds: if held { vec!["hold".into()] } else { Vec::new() },
                keep_until: until.then_some(Timestamp(time.0 + 700 * HOUR)),
                has_gaps: false,
                ..dated(number, time)
            };
            (snapshot, applied || number + 1 == count)
        });
        made.collect()
    })
}

fn both_ways(history: &[(Dated, bool)], rules: &RetentionPolicy) -> (Vec<usize>, Vec<usize>) {
    let all: Vec<_> = history.iter().map(|(snapshot, _)| snapshot.clone()).collect();
    let now = all[all.len() - 1].time;
    (numbers(&step_by_step(history, rules)), numbers(&thinned(all, rules, now)))
}

fn hours() -> impl Strategy<Value = Amount> {
    (1_u32..2000).prop_map(|hours| Amount::Span([0, 0, 0, hours]))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(10_000) })]

    #[test]
    fn counting_rules_leave_the_same_in_steps_and_at_once(
        history in history(), mut rules in counting_rules(), within in proptest::option::of(hours()),
    ) {
        rules.extend(within.map(|within| ("keep_within".to_owned(), within)));
        let (in_steps, at_once) = both_ways(&history, &policy(&text(&rules, "")));
        prop_assert_eq!(in_steps, at_once);
    }

    /// In steps, the oldest snapshot that remains may be kept in addition.
    #[test]
    fn periods_within_hours_leave_no_less_in_steps(
        history in history(), mut rules in counting_rules(), within in hours(), period in 0_usize..5,
    ) {
        rules.insert(format!("keep_within_{}", PERIODS[period]), within);
        let (in_steps, at_once) = both_ways(&history, &policy(&text(&rules, "")));
        prop_assert!(at_once.iter().all(|number| in_steps.contains(number)), "{in_steps:?} {at_once:?}");
    }
}

#[test]
fn ten_years_of_nights_leave_the_same_as_one_evening() {
    let start: jiff::civil::Date = "2015-01-01".parse().unwrap();
    let zone = jiff::tz::TimeZone::get("Europe/Berlin").unwrap();
    let mut history = Vec::new();
    for day in 0..3653_i32 {
        // Some days have several snapshots, and some have none.
        for hour in [2_i8, 9, 15, 22].into_iter().take(usize::try_from(day * 7 % 5).unwrap()) {
            let date = start.checked_add(jiff::Span::new().days(day)).unwrap();
            let local = date.at(hour, 30, 0, 0);
            let time = at(&zone.to_timestamp(local).unwrap().to_string());
            history.push((dated(history.len(), time), hour == 22 || day % 3 == 0));
        }
    }
    history.last_mut().unwrap().1 = true;
    let texts = [
        "keep_daily = 7\nkeep_weekly = 4\nkeep_monthly = 12\nkeep_yearly = 10",
        "keep_last = 3\nkeep_hourly = 24\nkeep_yearly = \"unlimited\"",
        "keep_last = 5\nkeep_weekly = 60\nkeep_within = \"200h\"",
    ];
    for rules in texts {
        let rules = policy(&format!("zone = \"Europe/Berlin\"\n{rules}"));
        let (in_steps, at_once) = both_ways(&history, &rules);
        assert_eq!(in_steps, at_once);
        assert!((20..100).contains(&at_once.len()), "{} are left", at_once.len());
    }
}

fn in_nights(times: &[&str], rules: &str) -> (Vec<usize>, Vec<usize>) {
    let history: Vec<_> = series(times).into_iter().map(|snapshot| (snapshot, true)).collect();
    both_ways(&history, &policy(rules))
}

/// One month before 31 March is 3 March, and one month before 1 April is 1 March.
#[test]
fn a_limit_by_months_may_go_back() {
    let times = ["2025-03-02T12:00Z", "2025-03-31T12:00Z", "2025-04-01T12:00Z"];
    assert_eq!(in_nights(&times, "keep_within = \"1m\""), (vec![1, 2], vec![0, 1, 2]));
}

#[test]
fn the_oldest_that_remains_may_be_kept_in_addition() {
    let times = ["2025-03-01T12:00Z", "2025-03-06T10:00Z", "2025-03-06T20:00Z"];
    assert_eq!(in_nights(&times, "keep_within_daily = \"48h\""), (vec![1, 2], vec![2]));
}
