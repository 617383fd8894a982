//! One time zone: the days of `keep` and `prune` are those of `every` and of the lists.

use std::fs;

use jiff::tz::TimeZone;
use jiff::{Span, ToSpan, Zoned};

use crate::daily::{HOME, configure, home};
use crate::sandbox::{Run, Sandbox};

const TOKYO: &str = "Asia/Tokyo";

/// Runs a command on a machine in this zone.
fn in_zone(sandbox: &Sandbox, zone: &str, words: &[&str]) -> String {
    let run = Run::new(sandbox.command().env("TZ", zone).args(words).output().unwrap());
    assert_eq!(run.code, Some(0), "{words:?}: {}{}", run.text(), run.stderr);
    run.text()
}

/// Makes a sandbox with two snapshots on each of four days in Tokyo, at 08:00 and at 20:00. In UTC
/// the second one has the day of the first one, and the first one that of the day before.
fn two_a_day(settings: &str) -> (Sandbox, Vec<Zoned>) {
    let sandbox = home("");
    let tokyo = TimeZone::get(TOKYO).unwrap();
    let today = jiff::Timestamp::now().to_zoned(tokyo).start_of_day().unwrap();
    let days: Vec<Zoned> = (2..=5).rev().map(|ago: i64| &today - ago.days()).collect();
    for day in &days {
        for hour in [8, 20] {
            fs::write(sandbox.path("home/letter"), format!("{} at {hour}", day.date())).unwrap();
            let time = day + Span::new().hours(hour);
            sandbox.ok(["snapshot", "home", "--time", &time.timestamp().to_string()]);
        }
    }
    configure(&sandbox, &format!("{HOME}keep = {{ daily = 30 }}\n[care]\nreclaim = {{ every = \"day\" }}\n"));
    let config = fs::read_to_string(sandbox.path("varve.toml")).unwrap();
    fs::write(sandbox.path("varve.toml"), format!("{settings}\n{config}")).unwrap();
    (sandbox, days)
}

/// The letters that are kept of these days, but for the first day, whose oldest snapshot stays.
fn letters(sandbox: &Sandbox) -> Vec<String> {
    let ids = sandbox.ids();
    let letter = |id: &String| sandbox.run(["cat", &format!("{id}:letter")]).text();
    let all: Vec<_> = ids.iter().map(letter).collect();
    all.into_iter().filter(|letter| letter.contains(" at ")).skip(1).collect()
}

#[test]
fn the_days_of_keep_are_those_of_the_user() {
    for (zone, settings) in [(TOKYO, ""), ("UTC", "time-zone = \"Asia/Tokyo\"")] {
        let (sandbox, days) = two_a_day(settings);
        let checked = in_zone(&sandbox, zone, &["config", "check", "varve.toml"]);
        let whose = if settings.is_empty() { "this machine" } else { "time-zone" };
        assert!(checked.contains(&format!("all days and times are those of {TOKYO} ({whose})")), "{checked}");
        fs::write(sandbox.path("home/letter"), "today").unwrap();
        in_zone(&sandbox, zone, &["run", "--config", "varve.toml"]);
        let expected: Vec<_> = days.iter().map(|day| format!("{} at 20", day.date())).collect();
        assert_eq!(letters(&sandbox), expected, "{zone} {settings}");
    }
}

#[test]
fn the_days_of_prune_are_those_of_the_machine() {
    let (sandbox, days) = two_a_day("");
    fs::write(sandbox.path("policy"), "keep_daily = 30\n").unwrap();
    for rules in [&["--keep-daily", "30"][..], &["--policy", "policy"]] {
        let planned = in_zone(&sandbox, TOKYO, &[&["prune", "--dry-run"], rules].concat());
        for day in &days[1..] {
            // Lists show the same days as those by which the rules judge.
            let kept = format!("home {} 20:00:00", day.date());
            assert!(
                planned.lines().any(|line| line.starts_with("keep ") && line.contains(&kept)),
                "{planned}"
            );
        }
        let in_utc = in_zone(&sandbox, "UTC", &[&["prune", "--dry-run"], rules, &["--zone", TOKYO]].concat());
        assert_eq!(in_utc.matches("keep ").count(), planned.matches("keep ").count(), "{in_utc}{planned}");
    }
}
