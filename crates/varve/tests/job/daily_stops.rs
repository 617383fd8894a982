//! Daily work that stops without anybody saying so, and configurations whose world is another one.

use std::fs;

use crate::daily::{HOME, broken, configure, daily, daily_ok, home, names};
use crate::moved_clock::MovedClock;
use crate::sandbox::{Run, Sandbox};

/// Adds lines to the table of the store.
fn with_store_lines(sandbox: &Sandbox, lines: &str) {
    let file = sandbox.path("varve.toml");
    let config = fs::read_to_string(&file).unwrap();
    fs::write(file, config.replacen("wait = \"30s\"\n", &format!("wait = \"30s\"\n{lines}\n"), 1)).unwrap();
}

fn continued(sandbox: &Sandbox) -> Vec<String> {
    broken(sandbox).into_iter().filter(|one| one.starts_with("continued ")).collect()
}

/// Takes snapshots of `home` on these days before now, as a host.
fn take_as(sandbox: &Sandbox, host: &str, name: &str, days: std::ops::RangeInclusive<i64>) {
    for days in days.rev() {
        let time = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * days);
        let mut command = sandbox.command();
        command.env("VARVE_HOST", host).args(["snapshot", "home", "--name", name]);
        let run = Run::new(command.args(["--time", &time.to_string()]).output().unwrap());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_str().unwrap().to_owned()
}

fn store_id(sandbox: &Sandbox) -> String {
    let config = fs::read_to_string(sandbox.store().join("config.toml")).unwrap();
    let line = config.lines().find(|line| line.starts_with("id = ")).unwrap();
    line.trim_start_matches("id = ").trim_matches('"').to_owned()
}

#[test]
fn a_configuration_without_sources_breaks_a_promise() {
    let sandbox = home("");
    configure(&sandbox, "");
    let found = continued(&sandbox);
    assert!(found[0].starts_with("continued main: no source is archived into main"), "{found:?}");
    assert_eq!(daily(&sandbox, &["status"]).code, Some(4));
    with_store_lines(&sandbox, "ended = \"all\"");
    assert_eq!(daily_ok(&sandbox, &["status"]).matches("BROKEN").count(), 0);
}

#[test]
fn a_series_that_no_source_continues_breaks_a_promise() {
    let sandbox = home("");
    take_as(&sandbox, &host(), "db", 8..=12);
    daily_ok(&sandbox, &["run"]);
    let found = continued(&sandbox);
    assert!(found[0].contains("no source continues db: its newest snapshot is 8d old"), "{found:?}");
    with_store_lines(&sandbox, "ended = [\"db\"]");
    assert_eq!(continued(&sandbox), [""; 0]);
}

#[test]
fn snapshots_of_host_names_that_were_given_up_break_a_promise() {
    let sandbox = home("keep = { last = 2 }\n[care]\nreclaim = { every = \"day\" }\n");
    for (host, day) in [("c3", 14), ("c2", 13), ("c1", 12)] {
        take_as(&sandbox, host, "home", day..=day);
    }
    daily_ok(&sandbox, &["run"]);
    let text = "3 snapshots of home are of other hosts (c1, c2, c3), and no rule of keep reaches them: set machine = ";
    assert!(continued(&sandbox)[0].contains(text), "{:?}", continued(&sandbox));
    let checked = daily(&sandbox, &["config", "check"]);
    assert!(checked.stderr.contains(text), "{}", checked.stderr);
    let config = fs::read_to_string(sandbox.path("varve.toml")).unwrap();
    fs::write(sandbox.path("varve.toml"), format!("machine = \"{}\"\n{config}", host())).unwrap();
    assert_eq!(continued(&sandbox), [""; 0]);
}

#[test]
fn a_timer_that_does_not_look_breaks_a_promise() {
    let sandbox = home("");
    let Some(clock) = MovedClock::make(&sandbox.path("")) else {
        eprintln!("skipped, as cc is not installed: a_timer_that_does_not_look_breaks_a_promise");
        return;
    };
    let status_in = |hours: i64| {
        let mut command = sandbox.command();
        clock.move_by(&mut command, hours * 3_600);
        Run::new(command.args(["status", "--config", "varve.toml"]).output().unwrap())
    };
    // A machine that only judges has no timer.
    assert_eq!(status_in(0).code, Some(0), "{}", status_in(0).text());
    daily_ok(&sandbox, &["run"]);
    assert_eq!(status_in(25).code, Some(0), "{}", status_in(25).text());
    let late = status_in(27);
    assert_eq!(late.code, Some(4));
    assert!(late.text().contains("no timer has looked for due jobs for 1d 3h"), "{}", late.text());
    // A source that is run by hand is no timer.
    let mut command = sandbox.command();
    clock.move_by(&mut command, 27 * 3_600);
    assert!(command.args(["run", "home", "--config", "varve.toml"]).output().unwrap().status.success());
    assert_eq!(status_in(27).code, Some(4));
}

#[test]
fn another_store_in_the_place_of_the_configured_one_is_noticed() {
    let sandbox = home("[promise]\nsnapshot-within = \"30h\"\n");
    let id = store_id(&sandbox);
    let line = format!("add id = \"{id}\" to [store.main]");
    let checked = daily(&sandbox, &["config", "check"]);
    assert_eq!(checked.code, Some(0));
    assert!(checked.stderr.contains(&line), "{}", checked.stderr);
    with_store_lines(&sandbox, &format!("id = \"{id}\""));
    daily_ok(&sandbox, &["run"]);
    let checked = daily(&sandbox, &["config", "check"]);
    assert!(!checked.stderr.contains("add id"), "{}", checked.stderr);
    // Another store with the same key.
    fs::rename(sandbox.store(), sandbox.path("first-store")).unwrap();
    sandbox.ok(["init"]);
    let other = store_id(&sandbox);
    let text = format!("is another store: its id is {other}, and the configuration was made for {id}");
    let run = daily(&sandbox, &["run", "home"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains(&text), "{}", run.stderr);
    assert_eq!(names(&sandbox), [""; 0], "nothing was archived there");
    let found = broken(&sandbox);
    assert!(found.iter().any(|one| one.starts_with("store main: ") && one.contains(&text)), "{found:?}");
    let checked = daily(&sandbox, &["config", "check"]);
    assert_eq!(checked.code, Some(1));
    assert!(checked.stderr.contains(&text), "{}", checked.stderr);
    with_store_lines(&sandbox, "id = \"short\"");
    assert!(daily(&sandbox, &["run"]).code == Some(2));
}

#[test]
fn config_check_looks_for_the_things_that_are_named() {
    let sandbox = home("");
    // The form of its neighbours, and the old one.
    for words in [&["config", "check", "--config", "varve.toml"][..], &["config", "check", "varve.toml"]] {
        assert!(sandbox.ok(words).contains("varve.toml is good"));
    }
    sandbox.fails(2, ["config", "check", "varve.toml", "--config", "varve.toml"]);
    let cases = [
        ("[source.gone]\nfolder = \"gone\"\n", "there is no folder "),
        ("[source.gone]\nfile = \"gone\"\n", "there is no file "),
        ("[source.gone]\ndisk = \"/dev/gone\"\n", "there is no disk /dev/gone"),
        ("exclude-file = \"gone\"\n", "there is no file "),
        ("[replica.copy]\nat = \"/gone/copy\"\n", "there is no folder /gone"),
    ];
    for (lines, text) in cases {
        configure(&sandbox, &format!("{HOME}{lines}"));
        let checked = daily(&sandbox, &["config", "check"]);
        assert_eq!(checked.code, Some(1), "{lines}");
        assert!(checked.text().contains("names things that are not there"), "{}", checked.text());
        let is_named = |line: &str| line.contains("varve.toml:") && line.contains(text);
        assert!(checked.stderr.lines().any(is_named), "{lines}: {}", checked.stderr);
    }
    configure(&sandbox, HOME);
    let config = fs::read_to_string(sandbox.path("varve.toml")).unwrap();
    fs::write(sandbox.path("other.key"), [7; 32]).unwrap();
    let other = config.lines().map(|line| match line.starts_with("key-file") {
        true => "key-file = \"other.key\"\n".to_owned(),
        false => format!("{line}\n"),
    });
    fs::write(sandbox.path("varve.toml"), other.collect::<String>()).unwrap();
    let checked = daily(&sandbox, &["config", "check"]);
    assert_eq!(checked.code, Some(1));
    assert!(checked.stderr.contains("the store main does not open: "), "{}", checked.stderr);
}

#[test]
fn a_folder_does_not_take_over_the_series_of_another_one() {
    let sandbox = home("");
    daily_ok(&sandbox, &["run"]);
    let move_to = |folder: &str| configure(&sandbox, &HOME.replace("\"home\"", &format!("\"{folder}\"")));
    fs::create_dir(sandbox.path("music")).unwrap();
    fs::write(sandbox.path("music/song"), "la").unwrap();
    move_to("music");
    let run = daily(&sandbox, &["run", "home"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("holds other things: give it a source with another name"), "{}", run.stderr);
    assert_eq!(names(&sandbox).len(), 1);
    // An explicit word.
    sandbox.ok(["snapshot", "music", "--name", "home"]);
    daily_ok(&sandbox, &["run", "home"]);
    // The same folder at another place, and a link to it.
    fs::rename(sandbox.path("music"), sandbox.path("moved")).unwrap();
    move_to("moved");
    daily_ok(&sandbox, &["run", "home"]);
    std::os::unix::fs::symlink("moved", sandbox.path("link")).unwrap();
    move_to("link");
    daily_ok(&sandbox, &["run", "home"]);
    assert_eq!(names(&sandbox).len(), 5);
}
