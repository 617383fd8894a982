//! Daily work with a clock that is wrong: nothing ends that a right clock would not have ended.

use std::fs;

use crate::daily::{HOME, broken, configure, daily, daily_ok, home, run_log, take_days_ago};
use crate::daily_sinks::WebSink;
use crate::moved_clock::MovedClock;
use crate::sandbox::{Run, Sandbox};

const DAY: i64 = 86_400;
const CARE: &str = "[care]\nreclaim = { every = \"day\" }\n";

/// A sandbox with a source `home` and these settings of it, and a clock for it; `None` without a
/// compiler.
fn with_clock(settings: &str) -> Option<(Sandbox, MovedClock)> {
    let sandbox = home("");
    configure(&sandbox, &format!("{HOME}{settings}\n{CARE}[promise]\nsnapshot-within = \"30h\"\n"));
    let clock = MovedClock::make(&sandbox.path(""))?;
    Some((sandbox, clock))
}

/// Runs a command while the clock is moved by so many days.
fn at(sandbox: &Sandbox, clock: &MovedClock, days: i64, words: &[&str]) -> Run {
    let mut command = sandbox.command();
    clock.move_by(&mut command, days * DAY);
    Run::new(command.args(words).output().unwrap())
}

#[track_caller]
fn night(sandbox: &Sandbox, clock: &MovedClock, days: i64) -> String {
    fs::write(sandbox.path("home/letter"), format!("dear {days}")).unwrap();
    let run = at(sandbox, clock, days, &["run", "--config", "varve.toml"]);
    assert_eq!(run.code, Some(0), "{days}: {}{}", run.text(), run.stderr);
    format!("{}{}", run.text(), run.stderr)
}

#[test]
fn a_clock_that_is_ahead_for_one_run_ends_nothing() {
    let Some((sandbox, clock)) = with_clock("keep = { within = \"30d\" }") else {
        eprintln!("skipped, as cc is not installed: a test of a wrong clock");
        return;
    };
    (-5..=-1).for_each(|day| drop(night(&sandbox, &clock, day)));
    let ids = sandbox.ids();
    sandbox.ok(["forget", &ids[0]]);
    for ahead in [8, 400] {
        let output = night(&sandbox, &clock, ahead);
        assert!(!output.contains("forgot "), "{output}");
        let planned = at(&sandbox, &clock, ahead, &["gc", "--dry-run"]).text();
        assert!(planned.contains("too few nights of work have passed"), "{planned}");
    }
    let listed = sandbox.ids();
    assert!(ids[1..].iter().all(|id| listed.contains(id)), "the rules have forgotten nothing");
    sandbox.ok(["forget", "--undo", &ids[0]]);
    // By hand, the clock is doubted, too.
    let refused = at(&sandbox, &clock, 400, &["forget", "--keep-within", "30d"]);
    assert_eq!(refused.code, Some(2), "{}", refused.text());
    assert!(refused.stderr.contains("or the clock is wrong"), "{}", refused.stderr);
    // With the right clock, the work goes on.
    fs::remove_dir_all(sandbox.path("run-state")).unwrap();
    assert!(night(&sandbox, &clock, 0).contains("retention and space of main: done"));
}

#[test]
fn a_clock_that_stays_ahead_ends_an_undo_after_seven_nights() {
    let Some((sandbox, clock)) = with_clock("keep = { last = 3 }") else {
        eprintln!("skipped, as cc is not installed: a test of a wrong clock");
        return;
    };
    (-4..=-2).for_each(|day| drop(night(&sandbox, &clock, day)));
    let first = sandbox.ids()[0].clone();
    sandbox.ok(["forget", &first]);
    for day in 500..=507 {
        let is_there = at(&sandbox, &clock, day, &["forget", "--undo", "--dry-run", &first]).code == Some(0);
        assert!(is_there, "{day}");
        night(&sandbox, &clock, day);
    }
    let gone = at(&sandbox, &clock, 507, &["forget", "--undo", &first]);
    assert!(gone.stderr.contains("too late to undo"), "{}", gone.stderr);
}

#[test]
fn a_clock_that_is_behind_forgets_nothing() {
    let Some((sandbox, clock)) = with_clock("keep = { last = 1 }") else {
        eprintln!("skipped, as cc is not installed: a test of a wrong clock");
        return;
    };
    (-6..=-2).for_each(|day| drop(night(&sandbox, &clock, day)));
    let (first, now) = (sandbox.ids()[0].clone(), jiff::Timestamp::now().as_second());
    let in_1970 = -(now / DAY) + 1;
    let refused = at(&sandbox, &clock, in_1970, &["forget", &first]);
    assert_eq!(refused.code, Some(2), "{}", refused.text());
    assert!(refused.stderr.contains("most snapshots are later"), "{}", refused.stderr);
    let output = night(&sandbox, &clock, in_1970);
    assert!(output.contains("postponed: the clock shows 1970-01-0"), "{output}");
    assert_eq!(run_log(&sandbox).last().unwrap()["outcome"], "postponed");
    // A clock that is a few days behind shortens no undo.
    at(&sandbox, &clock, -5, &["forget", &first]);
    let trash = sandbox.json(["snapshots", "--trash"]);
    let until: jiff::Timestamp = trash.last().unwrap()["undo_until"].as_str().unwrap().parse().unwrap();
    assert!(until.as_second() > now + 4 * DAY, "{until}");
}

#[test]
fn nothing_is_freed_while_a_server_has_another_time() {
    let web = WebSink::start();
    let Some((sandbox, clock)) = with_clock("keep = { last = 3 }") else {
        eprintln!("skipped, as cc is not installed: a test of a wrong clock");
        return;
    };
    let port = web.port;
    let told = format!("[notify]\nheartbeat = \"http://127.0.0.1:{port}/ping\"\n");
    configure(
        &sandbox,
        &format!(
            "{HOME}keep = {{ last = 2 }}\n{CARE}[promise]\nsnapshot-within = \"30h\"\nreclaimed-within = \"2h\"\n{told}"
        ),
    );
    (10..=12).for_each(|days| take_days_ago(&sandbox, "home", days));
    let first = sandbox.ids()[0].clone();
    assert_eq!(at(&sandbox, &clock, -10, &["forget", &first]).code, Some(0));
    (1..=9).for_each(|days| take_days_ago(&sandbox, "home", days));
    let in_trash = || sandbox.run(["forget", "--undo", "--dry-run", &first]).code == Some(0);
    web.move_clock_by(-3_600);
    let output = daily(&sandbox, &["run"]);
    assert!(output.stderr.contains("postponed: this clock is 1h ahead of that of "), "{}", output.stderr);
    assert!(in_trash() && sandbox.ids().len() > 5, "neither forgotten nor freed");
    assert!(broken(&sandbox).iter().any(|one| one.starts_with("clock ")));
    let plan = daily_ok(&sandbox, &["run", "--dry-run"]);
    assert!(plan.contains("retention and space of main: would not run: "), "{plan}");
    web.move_clock_by(0);
    daily_ok(&sandbox, &["run"]);
    assert!(!in_trash());
    assert_eq!(broken(&sandbox), [""; 0]);
}
