//! Verdicts that were worked out by hand: protections, clocks that change, groups, reasons to drop,
//! and the rules of Proxmox Backup Server.

use varve_archive::retention::{
    ContentKind, Dated, DropReason, KeptBy, RetentionPeriod, Verdict, judge, meeting_keys,
};
use varve_store::{Origin, Role};
use varve_world::Timestamp;

use super::{HOUR, LATE, at, dated, kept, number_of, policy, reasons, series};

#[test]
fn without_rules_everything_is_kept() {
    let snapshots = series(&["2024-05-01T06:00Z", "2024-05-01T07:00Z"]);
    let verdicts = judge(&snapshots, &policy(""), LATE);
    assert_eq!(verdicts[0], Verdict::Keep(vec![KeptBy::NoRules]));
    assert_eq!(verdicts[1], Verdict::Keep(vec![KeptBy::Newest, KeptBy::NoRules]));
    assert!(judge(&[], &policy("keep_last = 1"), LATE).is_empty());
}

#[test]
fn the_newest_of_each_group_is_kept_though_no_rule_keeps_it() {
    let snapshots = series(&["2024-05-01T06:00Z", "2024-05-01T07:00Z"]);
    let verdicts = judge(&snapshots, &policy("keep_tags = [\"release\"]"), LATE);
    assert_eq!(verdicts[0], Verdict::Drop(DropReason::OutOfReach));
    assert_eq!(verdicts[1], Verdict::Keep(vec![KeptBy::Newest]));
    // Borg measures from now, and drops both.
    assert_eq!(kept(&snapshots, &policy("keep_within = \"1d\"\ncount_like = \"borg\""), LATE), [1]);
}

#[test]
fn snapshots_after_now_are_kept_and_count_for_nothing() {
    let times = ["2024-05-01T06:00Z", "2024-05-02T06:00Z", "2024-05-03T06:00Z", "2030-01-01T00:00Z"];
    let snapshots = series(&times);
    let rules = policy("keep_last = 1\nkeep_within = \"1d\"");
    let verdicts = judge(&snapshots, &rules, at("2024-05-03T06:00Z"));
    assert_eq!(verdicts[3], Verdict::Keep(vec![KeptBy::AfterNow]));
    assert_eq!(reasons(&verdicts[2]), ["keep_last = 1", "keep_within = 1d", "newest"]);
    assert!(!verdicts[1].is_kept() && !verdicts[0].is_kept());
    // A moment earlier, the third is in the future, too.
    let earlier = Timestamp(at("2024-05-03T06:00Z").0 - 1);
    assert_eq!(kept(&snapshots, &rules, earlier), [1, 2, 3]);
    // All are in the future.
    assert_eq!(kept(&snapshots, &rules, at("2000-01-01T00:00Z")), [0, 1, 2, 3]);
}

#[test]
fn holds_and_keep_until_protect_a_snapshot() {
    let mut snapshots =
        series(&["2024-05-01T06:00Z", "2024-05-02T06:00Z", "2024-05-03T06:00Z", "2024-05-04T06:00Z"]);
    snapshots[0].holds = vec!["lawyers".into(), "tax".into()];
    snapshots[1].keep_until = Some(at("2025-01-01T00:00Z"));
    let rules = policy("keep_last = 1");
    let verdicts = judge(&snapshots, &rules, at("2024-12-31T23:59:59.999Z"));
    assert_eq!(reasons(&verdicts[0]), ["hold lawyers", "hold tax"]);
    assert_eq!(reasons(&verdicts[1]), ["keep until 2025-01-01T00:00:00Z"]);
    assert!(!verdicts[2].is_kept());
    assert_eq!(kept(&snapshots, &rules, at("2025-01-01T00:00Z")), [0, 3]);
}

#[test]
fn a_tag_without_a_value_matches_any_value() {
    let mut snapshots = series(&["2024-05-01T06:00Z"; 5]);
    snapshots[0].tags = vec!["release=1".into()];
    snapshots[1].tags = vec!["release=2".into(), "site=a".into()];
    snapshots[2].tags = vec!["releases=1".into()];
    let kept = |tags: &str| {
        let verdicts = judge(&snapshots, &policy(&format!("keep_tags = {tags}")), LATE);
        let tagged =
            |place: &usize| verdicts[*place].kept_by().iter().any(|by| matches!(by, KeptBy::Rule(_)));
        (0..5).filter(tagged).collect::<Vec<_>>()
    };
    assert_eq!(kept("[\"release\"]"), [0, 1]);
    assert_eq!(kept("[\"release=2\"]"), [1]);
    assert_eq!(kept("[\"release,site=a\"]"), [1]);
    assert_eq!(kept("[\"release=1\", \"site\"]"), [0, 1]);
}

#[test]
fn groups_are_formed_by_the_chosen_properties() {
    let with = |number: usize, host: &str, name: &str, kind| {
        let time = Timestamp(HOUR * i64::try_from(number).unwrap());
        Dated { host: host.into(), name: name.into(), kind, ..dated(number, time) }
    };
    let (image, folder) = (ContentKind::Image, ContentKind::Folder);
    let snapshots = [
        with(0, "a", "home", folder),
        with(1, "a", "home", image),
        with(2, "a", "root", image),
        with(3, "b", "home", folder),
    ];
    let kept =
        |group_by: &str| kept(&snapshots, &policy(&format!("keep_last = 1\ngroup_by = {group_by}")), LATE);
    assert_eq!(kept("[\"host\", \"name\", \"kind\"]"), [0, 1, 2, 3]);
    assert_eq!(kept("[\"host\"]"), [2, 3]);
    assert_eq!(kept("[\"name\"]"), [2, 3]);
    assert_eq!(kept("[\"name\", \"host\"]"), [1, 2, 3]);
    assert_eq!(kept("[]"), [3]);
}

#[test]
fn reasons_to_drop_name_the_snapshot_that_stands_for_the_period() {
    let snapshots =
        series(&["2024-04-30T06:00Z", "2024-05-02T06:00Z", "2024-05-03T06:00Z", "2024-05-03T07:00Z"]);
    let verdicts = judge(&snapshots, &policy("keep_daily = 1\nkeep_monthly = 1"), LATE);
    let Verdict::Drop(DropReason::Represented { rule, by }) = &verdicts[2] else { panic!("{verdicts:?}") };
    assert_eq!((rule.to_string().as_str(), number_of(*by)), ("keep_monthly = 1", 3));
    let Verdict::Drop(DropReason::Represented { rule, by }) = &verdicts[1] else { panic!("{verdicts:?}") };
    assert_eq!((rule.to_string().as_str(), number_of(*by)), ("keep_monthly = 1", 3));
    assert_eq!(verdicts[0], Verdict::Drop(DropReason::OutOfReach));
}

#[test]
fn a_night_with_gaps_takes_the_place_of_no_whole_one() {
    let mut snapshots = series(&[
        "2024-05-01T06:00Z",
        "2024-05-02T06:00Z",
        "2024-05-02T08:00Z",
        "2024-05-02T20:00Z",
        "2024-05-03T06:00Z",
        "2024-05-03T20:00Z",
    ]);
    for rules in ["keep_daily = 9", "keep_daily = 9\ncount_like = borg", "keep_daily = 9\ncount_like = pbs"] {
        let rules = policy(&rules.replace("borg", "\"borg\"").replace("pbs", "\"pbs\""));
        snapshots.iter_mut().for_each(|one| one.has_gaps = false);
        assert_eq!(kept(&snapshots, &rules, LATE), [0, 3, 5], "{rules}");
        // The newest whole one of the day stays beside the one with gaps.
        snapshots[3].has_gaps = true;
        assert_eq!(kept(&snapshots, &rules, LATE), [0, 2, 3, 5], "{rules}");
        // Without a whole one, the newest stands for the day.
        snapshots[1].has_gaps = true;
        snapshots[2].has_gaps = true;
        assert_eq!(kept(&snapshots, &rules, LATE), [0, 3, 5], "{rules}");
    }
    // However many nights with gaps follow, the newest whole one stays.
    snapshots[4].has_gaps = true;
    snapshots[5].has_gaps = true;
    let verdicts = judge(&snapshots, &policy("keep_last = 2"), LATE);
    assert_eq!(verdicts[0].kept_by(), [KeptBy::NewestWhole]);
    assert_eq!(kept(&snapshots, &policy("keep_last = 2"), LATE), [0, 4, 5]);
}

#[test]
fn a_doubled_hour_is_one_hour() {
    // From 2:59:59 summer time to 2:00 winter time.
    let snapshots =
        series(&["2024-10-26T23:30Z", "2024-10-27T00:30Z", "2024-10-27T01:30Z", "2024-10-27T02:30Z"]);
    let rules = "keep_hourly = 3\nzone = \"Europe/Berlin\"";
    assert_eq!(kept(&snapshots, &policy(rules), LATE), [0, 2, 3]);
    assert_eq!(kept(&snapshots, &policy("keep_hourly = 3"), LATE), [1, 2, 3]);
}

/// Troll Station sets its clock back by two hours: 1:00 and 2:00 come twice. Restic compares each
/// snapshot with the one before it only, and counts four hours here.
#[test]
fn two_doubled_hours_are_two_hours() {
    let hours = ["2024-10-26T23:30Z", "2024-10-27T00:30Z", "2024-10-27T01:30Z", "2024-10-27T02:30Z"];
    let wall =
        |time: &str| time.parse::<jiff::Timestamp>().unwrap().in_tz("Antarctica/Troll").unwrap().hour();
    assert_eq!(hours.map(wall), [1, 2, 1, 2]);
    let snapshots = series(&[&hours[..], &["2024-10-27T00:10Z", "2024-10-27T00:40Z"]].concat());
    let rules = policy("keep_hourly = 3\nzone = \"Antarctica/Troll\"");
    // The rule finds two hours only, so the oldest is kept.
    assert_eq!(kept(&snapshots, &rules, LATE), [0, 2, 3]);
}

/// The limit of `1d` is 2:30 on 27 October, which comes twice. Restic takes the later one here, and
/// the earlier one west of Greenwich. Varve always takes the earlier one, and so keeps more.
#[test]
fn a_limit_in_a_doubled_hour_is_the_earlier_one() {
    let times = ["2024-10-27T00:30Z", "2024-10-27T00:31Z", "2024-10-27T01:31Z", "2024-10-28T01:30Z"];
    let rules = policy("keep_within = \"1d\"\nzone = \"Europe/Berlin\"");
    assert_eq!(kept(&series(&times), &rules, LATE), [1, 2, 3]);
}

#[test]
fn a_month_before_the_31st_of_march_is_the_3rd() {
    let times = ["2025-03-03T12:00Z", "2025-03-03T12:01Z", "2025-03-31T12:00Z"];
    assert_eq!(kept(&series(&times), &policy("keep_within = \"1m\""), LATE), [1, 2]);
    // A span that is longer than the calendar includes everything.
    let long = policy("keep_within = \"1000000y\"");
    assert_eq!(kept(&series(&times), &long, LATE), [0, 1, 2]);
    assert_eq!(kept(&series(&times), &policy("keep_within = \"1000000h\""), LATE), [0, 1, 2]);
}

#[test]
fn extreme_times_are_judged() {
    let rules = "keep_last = 1\nkeep_weekly = 1\nkeep_within_monthly = \"1m\"\nzone = \"Asia/Tokyo\"";
    let snapshots = [dated(0, Timestamp(i64::MIN)), dated(1, Timestamp(0)), dated(2, Timestamp(i64::MAX))];
    for like in ["union", "borg", "pbs"] {
        let rules = policy(&format!("{rules}\ncount_like = {like:?}"));
        assert_eq!(kept(&snapshots, &rules, LATE).last(), Some(&2));
        assert_eq!(kept(&snapshots, &rules, Timestamp(i64::MIN)), [0, 1, 2]);
    }
}

#[test]
fn equal_times_are_ordered_by_id() {
    let snapshots = series(&["2024-05-01T06:00Z"; 3]);
    assert_eq!(kept(&snapshots, &policy("keep_last = 2"), LATE), [1, 2]);
    let reversed: Vec<_> = snapshots.into_iter().rev().collect();
    assert_eq!(kept(&reversed, &policy("keep_last = 2"), LATE), [0, 1]);
}

/// For borg and Proxmox, `keep_last` counts seconds.
#[test]
fn borg_and_proxmox_count_seconds_as_the_last() {
    let snapshots = series(&["2024-05-01T06:00Z", "2024-05-01T06:00:01.2Z", "2024-05-01T06:00:01.7Z"]);
    assert_eq!(kept(&snapshots, &policy("keep_last = 2"), LATE), [1, 2]);
    assert_eq!(kept(&snapshots, &policy("keep_last = 2\ncount_like = \"borg\""), LATE), [0, 2]);
    assert_eq!(kept(&snapshots, &policy("keep_last = 2\ncount_like = \"pbs\""), LATE), [0, 2]);
}

/// The week from 26 January to 1 February 2026 lies in two months.
const TWO_MONTHS: [&str; 6] = [
    "2025-12-30T12:00Z",
    "2026-01-17T12:00Z",
    "2026-01-24T12:00Z",
    "2026-01-31T12:00Z",
    "2026-02-01T12:00Z",
    "2026-02-05T12:00Z",
];

#[test]
fn the_three_ways_differ_in_a_week_of_two_months() {
    let snapshots = series(&TWO_MONTHS);
    let kept = |like: &str| {
        kept(&snapshots, &policy(&format!("keep_weekly = 2\nkeep_monthly = 2\ncount_like = {like:?}")), LATE)
    };
    // By week: 5 and 4. By month: 5 and 3.
    assert_eq!(kept("union"), [3, 4, 5]);
    // February's newest is kept already, so January and December count.
    assert_eq!(kept("borg"), [0, 3, 4, 5]);
    // In addition, the week covers 31 January.
    assert_eq!(kept("pbs"), [0, 2, 4, 5]);
}

fn kept_by_pbs(times: &[&str], rules: &str) -> Vec<usize> {
    kept(&series(times), &policy(&format!("count_like = \"pbs\"\nzone = \"Europe/Berlin\"\n{rules}")), LATE)
}

#[test]
fn proxmox_keeps_one_snapshot_a_period_beyond_those_that_are_covered() {
    let times = [
        "2026-01-05T08:00Z", // Monday
        "2026-01-06T08:00Z",
        "2026-01-07T08:00Z",
        "2026-01-07T20:00Z",
        "2026-01-08T08:00Z",
        "2026-01-08T20:00Z",
    ];
    assert_eq!(kept_by_pbs(&times, "keep_last = 2"), [4, 5]);
    assert_eq!(kept_by_pbs(&times, "keep_daily = 2"), [3, 5]);
    // 8 January has a snapshot already: the days that count are those before it.
    assert_eq!(kept_by_pbs(&times, "keep_last = 1\nkeep_daily = 2"), [1, 3, 5]);
    assert_eq!(kept_by_pbs(&times, "keep_last = 2\nkeep_daily = 1"), [3, 4, 5]);
    // The week has a snapshot already, and so have the month and the year.
    assert_eq!(kept_by_pbs(&times, "keep_last = 1\nkeep_weekly = 5\nkeep_monthly = 5\nkeep_yearly = 5"), [5]);
    // Proxmox has no rule for the oldest.
    assert_eq!(kept_by_pbs(&times, "keep_weekly = 9"), [5]);
    assert_eq!(kept_by_pbs(&times, "keep_hourly = \"unlimited\""), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn proxmox_counts_weeks_months_and_years_beyond_each_other() {
    let times = [
        "2023-06-01T10:00Z",
        "2024-06-01T10:00Z",
        "2024-12-30T10:00Z", // Week 1 of 2025.
        "2025-01-03T10:00Z", // The same week.
        "2025-02-10T10:00Z",
        "2025-02-28T10:00Z",
        "2025-03-01T10:00Z", // The same week as 28 February.
        "2025-03-20T10:00Z",
    ];
    assert_eq!(kept_by_pbs(&times, "keep_weekly = 4"), [3, 4, 6, 7]);
    assert_eq!(kept_by_pbs(&times, "keep_weekly = 2\nkeep_monthly = 1"), [4, 6, 7]);
    assert_eq!(kept_by_pbs(&times, "keep_monthly = 2\nkeep_yearly = 1"), [2, 5, 7]);
    assert_eq!(kept_by_pbs(&times, "keep_last = 1\nkeep_yearly = 9"), [0, 2, 7]);
    assert_eq!(kept_by_pbs(&times, "keep_weekly = 4\nkeep_yearly = 1"), [1, 3, 4, 6, 7]);
}

#[test]
fn proxmox_does_not_count_protected_snapshots() {
    let mut snapshots =
        series(&["2026-01-05T08:00Z", "2026-01-05T09:00Z", "2026-01-05T09:30Z", "2026-01-06T08:00Z"]);
    snapshots[2].holds = vec!["protected".into()];
    snapshots[3].holds = vec!["protected".into()];
    for like in ["pbs", "borg"] {
        let rules = policy(&format!("keep_daily = 1\ncount_like = {like:?}"));
        assert_eq!(kept(&snapshots, &rules, LATE), [1, 2, 3]);
    }
    assert_eq!(kept(&snapshots, &policy("keep_daily = 1"), LATE), [2, 3]);
}

#[test]
fn keys_that_meet_in_a_period_are_named() {
    let key = |key| Some(Origin::new(Role::WriteOnly, key));
    let times = ["2024-05-01T20:00Z", "2024-05-02T20:00Z", "2024-05-02T20:01Z", "2024-05-03T20:00Z"];
    let mut snapshots: Vec<_> =
        times.iter().enumerate().map(|(number, time)| dated(number, at(time))).collect();
    let rules = policy("keep_daily = 2\nkeep_yearly = 1");
    assert_eq!(meeting_keys(&snapshots, &rules, LATE), []);
    // A key that takes over a series meets nobody.
    (2..4).for_each(|number| snapshots[number].lesser_key = key("web"));
    snapshots[2].time = at("2024-05-03T19:00Z");
    assert_eq!(meeting_keys(&snapshots, &rules, LATE), []);
    snapshots[2].time = at("2024-05-02T20:01Z");
    let met = meeting_keys(&snapshots, &rules, LATE);
    assert_eq!((met.len(), met[0].period, met[0].period_count), (1, RetentionPeriod::Daily, 1));
    assert_eq!(met[0].keys, [None, key("web")].into());
    // Snapshots that are marked as backdated, or dated after now, are named elsewhere.
    assert_eq!(meeting_keys(&snapshots, &rules, at("2024-05-02T20:00Z")), []);
    snapshots[2].is_backdated = true;
    assert_eq!(meeting_keys(&snapshots, &rules, LATE), []);
}
