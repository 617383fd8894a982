//! Daily work by a configuration: `config check`, `run`, `status` and `explain`.

#![expect(clippy::disallowed_methods, reason = "runs are waited for in real time")]

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::sandbox::{Run, Sandbox, noise};

/// Writes a configuration of one source `home`, with the key and the store of the sandbox.
pub fn configure(sandbox: &Sandbox, rest: &str) {
    let head = format!(
        "state = \"run-state\"\n[store.main]\nat = \"{}\"\nkey-file = \"{}\"\nwait = \"30s\"\n",
        sandbox.store().display(),
        sandbox.key().unwrap().display()
    );
    fs::write(sandbox.path("varve.toml"), head + rest).unwrap();
}

pub const HOME: &str = "[defaults]\nevery = \"day\"\n[source.home]\nfolder = \"home\"\n";

/// Kills runs of the source `home` at moments from their begin to `longest`, each after a change of
/// `changed`. Then runs once more, to the end. `VARVE_KILLS=1000` kills that many, instead of
/// `usual`.
pub fn kill_runs(sandbox: &Sandbox, changed: &Path, usual: u32, longest: Duration) {
    let kills = std::env::var("VARVE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(usual);
    for number in 0..kills {
        fs::write(changed, noise(u64::from(number), 200_000)).unwrap();
        let mut command = sandbox.command();
        command.args(["run", "home", "--config", "varve.toml"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(longest * number / kills);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // The job of a killed run ends by itself, and holds the lock until then.
    let begun = Instant::now();
    while daily(sandbox, &["run", "home"]).code != Some(0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "a run is stuck");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes a sandbox with a folder and a configuration.
pub fn home(rest: &str) -> Sandbox {
    let sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/letter"), "dear").unwrap();
    configure(&sandbox, &format!("{HOME}{rest}"));
    sandbox
}

pub fn daily(sandbox: &Sandbox, words: &[&str]) -> Run {
    sandbox.run([words, &["--config", "varve.toml"]].concat())
}

/// Runs a command of daily work, which must succeed. Returns its output, without the figures of
/// jobs that are done.
#[track_caller]
pub fn daily_ok(sandbox: &Sandbox, words: &[&str]) -> String {
    let run = daily(sandbox, words);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    without_figures(&run.text())
}

/// Removes the id, the sizes and the time after `done`.
pub fn without_figures(text: &str) -> String {
    const DONE: &str = ": done";
    let cut = |line: &str| match line.find(DONE) {
        Some(at) => format!("{}\n", &line[..at + DONE.len()]),
        None => format!("{line}\n"),
    };
    text.lines().map(cut).collect()
}

pub fn run_log(sandbox: &Sandbox) -> Vec<Value> {
    let text = fs::read_to_string(sandbox.path("run-state/runs.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The names of all snapshots.
pub fn names(sandbox: &Sandbox) -> Vec<String> {
    sandbox.json(["snapshots"]).iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

/// Takes a snapshot of the folder `home` that is dated so many days before now.
pub fn take_days_ago(sandbox: &Sandbox, name: &str, days: i64) {
    let moment = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * days);
    sandbox.ok(["snapshot", "home", "--name", name, "--time", &moment.to_string()]);
}

#[test]
fn a_configuration_is_explained_and_its_faults_are_named() {
    let sandbox = home("keep = { daily = 30, yearly = \"all\" }\n[promise]\nsnapshot-within = \"12h\"\n");
    let checked = sandbox.run(["config", "check", "varve.toml"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let text = checked.text();
    assert!(text.contains("varve.toml is good\nthe folder "), "{text}");
    assert!(
        text.contains("as home each day at 00:00; kept are 30 daily, unlimited yearly\n  next: "),
        "{text}"
    );
    assert!(checked.stderr.contains("snapshot-within 12h cannot hold for home"), "{}", checked.stderr);
    assert!(checked.stderr.contains("nothing applies the rules of keep to home"), "{}", checked.stderr);
    (1..=3).for_each(|days| take_days_ago(&sandbox, "home", days));
    let config = fs::read_to_string(sandbox.path("varve.toml")).unwrap();
    fs::write(sandbox.path("varve.toml"), config.replace("daily = 30, yearly = \"all\"", "last = 2"))
        .unwrap();
    let text = sandbox.ok(["config", "check", "varve.toml"]);
    assert!(text.contains("  today its rules would forget 1 of 3 snapshots\n"), "{text}");
    let record = &sandbox.json(["config", "check", "varve.toml"])[0];
    assert_eq!(record["jobs"][0]["would_forget"], 1);
    assert_eq!(record["jobs"][0]["next"].as_array().unwrap().len(), 3);

    configure(&sandbox, &HOME.replace("folder", "foldr"));
    let fault = sandbox.fails(2, ["config", "check", "varve.toml"]);
    assert!(
        fault.contains("varve.toml:9: unknown key foldr in [source.home]: did you mean folder?"),
        "{fault}"
    );
    for command in [&["run"][..], &["status"], &["explain", "home"]] {
        assert_eq!(daily(&sandbox, command).code, Some(2), "{command:?}");
    }
    configure(&sandbox, &format!("{HOME}keep = {{ within = \"5 parsecs\" }}\n"));
    assert!(sandbox.fails(2, ["config", "check", "varve.toml"]).contains("keep: "));
    fs::create_dir(sandbox.path("conf.d")).unwrap();
    fs::write(sandbox.path("conf.d/more.toml"), "[source.home]\nfolder = \"other\"\n").unwrap();
    let fault = sandbox.fails(2, ["config", "check", "varve.toml"]);
    assert!(fault.contains("conf.d/more.toml:2: source.home.folder is already set at "), "{fault}");
    assert!(sandbox.fails(2, ["status", "--config", "missing.toml"]).contains("cannot be read"));
}

#[test]
fn a_monitoring_program_gets_a_line_and_a_status() {
    let sandbox = home("[promise]\nsnapshot-within = \"30h\"\n");
    let answer = daily(&sandbox, &["status", "--nagios"]);
    assert_eq!(answer.code, Some(2), "{}", answer.text());
    assert!(answer.text().starts_with("VARVE CRITICAL - "), "{}", answer.text());
    assert!(answer.text().contains("snapshot-within home"), "{}", answer.text());
    daily_ok(&sandbox, &["run"]);
    let answer = daily(&sandbox, &["status", "--nagios"]);
    assert_eq!(answer.code, Some(0), "{}", answer.text());
    let text = answer.text();
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("VARVE OK - ")
            && first.contains(" | 'snapshot-within home'=")
            && first.ends_with("s;;108000"),
        "{text}"
    );
    daily_ok(&sandbox, &["pause", "1h"]);
    assert_eq!(daily(&sandbox, &["status", "--nagios"]).code, Some(1));
    let unknown = sandbox.run(["status", "--nagios", "--config", "nowhere.toml"]);
    assert_eq!(unknown.code, Some(3));
    assert!(
        unknown.text().starts_with("VARVE UNKNOWN - ") && unknown.text().lines().count() == 1,
        "{}",
        unknown.text()
    );
}

#[test]
fn past_runs_are_listed_with_their_figures() {
    let sandbox = home("[source.away]\nfolder = \"away\"\n");
    let empty = daily(&sandbox, &["log"]);
    assert_eq!((empty.code, empty.text()), (Some(0), String::new()));
    fs::write(sandbox.path("home/large"), noise(1, 300_000)).unwrap();
    assert_eq!(daily(&sandbox, &["run"]).code, Some(1));
    let done = daily(&sandbox, &["run", "home"]).text();
    let id = &sandbox.ids()[1][..8];
    assert!(done.starts_with(&format!("snapshot of home: done: {id}, 293 KiB, ")), "{done}");

    let listed = daily_ok(&sandbox, &["daily", "log"]);
    let lines: Vec<_> = listed.lines().collect();
    assert!(lines[0].starts_with("WHEN") && lines[0].ends_with("SNAPSHOT"), "{listed}");
    assert_eq!(lines.iter().filter(|line| line.contains("snapshot home")).count(), 2, "{listed}");
    let failed = lines.iter().position(|line| line.contains("snapshot away")).unwrap();
    assert!(lines[failed].contains("failed") && lines[failed + 1].starts_with("  "), "{listed}");
    assert!(lines[failed + 1].contains("away"), "{listed}");
    assert_eq!(daily_ok(&sandbox, &["log", "home"]).lines().count(), 3);
    assert_eq!(daily_ok(&sandbox, &["log", "--failed", "--since", "today"]).lines().count(), 3);
    assert_eq!(daily_ok(&sandbox, &["log", "--until", "yesterday"]), "");
    assert_eq!(daily(&sandbox, &["log", "hoem"]).code, Some(2));
    let records = sandbox.json(["log", "home", "--config", "varve.toml"]);
    assert_eq!((&records[0]["size"], &records[0]["outcome"]), (&300_004.into(), &"done".into()));
    assert!(records[0]["new_bytes"].as_u64().unwrap() > 300_000, "{}", records[0]);
    assert!(records[1]["new_bytes"].as_u64().unwrap() < 10_000, "{}", records[1]);
}

#[test]
fn a_run_does_what_is_due_and_nothing_twice() {
    let sandbox = home(
        "[replica.copy]\nat = \"/REPLICA\"\n[care]\nverify = { every = \"day\" }\nreclaim = { every = \"week\" }\n\
         [promise]\nsnapshot-within = \"30h\"\nreplica-within = \"2d\"\nverified-within = \"60d\"\n\
         reclaimed-within = \"10d\"\nroom-for = \"1d\"\n",
    );
    let config = fs::read_to_string(sandbox.path("varve.toml")).unwrap();
    fs::write(sandbox.path("varve.toml"), config.replace("/REPLICA", &sandbox.arg("copy"))).unwrap();
    let plan = daily_ok(&sandbox, &["run", "--dry-run"]);
    assert!(plan.contains("snapshot of home: would run: due since "), "{plan}");
    assert!(!sandbox.path("run-state").exists(), "a dry run writes nothing");
    assert_eq!(daily(&sandbox, &["status"]).code, Some(4));

    let done = daily_ok(&sandbox, &["run"]);
    assert_eq!(
        done,
        "snapshot of home: done\nreplica copy: done\nverification of main: done\nretention and space of main: done\n"
    );
    let status = daily_ok(&sandbox, &["status"]);
    for promise in [
        "snapshot-within",
        "replica-within",
        "verified-within",
        "reclaimed-within",
        "room-for",
        "continued",
        "clock",
    ] {
        assert!(
            status.lines().any(|line| line.starts_with("ok") && line.contains(promise)),
            "{promise}: {status}"
        );
    }
    assert_eq!(daily_ok(&sandbox, &["run"]), "");
    assert_eq!(daily(&sandbox, &["run", "--or-fail"]).code, Some(6));
    assert_eq!(names(&sandbox), ["home"]);
    assert_eq!(run_log(&sandbox).len(), 4);
    let explained = daily_ok(&sandbox, &["explain", "home"]);
    assert!(
        explained.contains("runs each day at 00:00; the last time was ") && explained.contains("next at "),
        "{explained}"
    );

    // Nothing in the state folder is needed. Jobs that the archive does not record run again.
    fs::remove_dir_all(sandbox.path("run-state")).unwrap();
    let done = daily_ok(&sandbox, &["run"]);
    assert_eq!(done, "replica copy: done\nretention and space of main: done\n");
    assert_eq!(daily_ok(&sandbox, &["status"]).lines().filter(|line| line.starts_with("ok")).count(), 8);
    // By hand it runs in any case.
    assert_eq!(daily_ok(&sandbox, &["run", "home"]), "snapshot of home: done\n");
    assert_eq!(names(&sandbox), ["home", "home"]);
    assert!(daily(&sandbox, &["run", "hone"]).stderr.contains("known are copy, home, main"));
}

#[test]
fn a_run_with_nothing_due_is_quick() {
    let sandbox = home("");
    daily_ok(&sandbox, &["run"]);
    let quickest = (0..10)
        .map(|_| {
            let begun = Instant::now();
            daily_ok(&sandbox, &["run"]);
            begun.elapsed()
        })
        .min();
    // The bar is 20 ms for a release build. This is an unoptimised one on a busy machine.
    assert!(quickest.unwrap() < Duration::from_millis(200), "{quickest:?}");
}

#[test]
fn the_rules_of_a_source_judge_its_own_snapshots_alone() {
    let sandbox = home("keep = { last = 2 }\n[care]\nreclaim = { every = \"day\" }\n");
    for days in 1..=4 {
        take_days_ago(&sandbox, "home", days);
        take_days_ago(&sandbox, "by-hand", days);
    }
    let run = daily(&sandbox, &["run"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.text().matches("forgot ").count(), 3, "{}", run.text());
    let names = names(&sandbox);
    assert_eq!(names.iter().filter(|name| *name == "home").count(), 2);
    assert_eq!(names.iter().filter(|name| *name == "by-hand").count(), 4);
    let reclaimed = run_log(&sandbox).into_iter().find(|line| line["job"] == "reclaim main").unwrap();
    assert_eq!(reclaimed["forgotten"].as_array().unwrap().len(), 3);
    // A name alone is no reason to forget a whole series.
    let refused = sandbox.fails(2, ["forget", "--name", "home"]);
    assert!(refused.contains("--name alone would take the whole series"), "{refused}");
}

#[test]
fn hooks_run_around_a_snapshot() {
    let sandbox = home("");
    let with_hooks = |before: &str, command: &str| {
        let log = sandbox.arg("hooks.log");
        let hook = |text: &str| format!("{{ run = [\"sh\", \"-c\", '''{text}'''], timeout = \"20s\" }}");
        configure(
            &sandbox,
            &format!(
                "[source.db]\ncommand = [\"sh\", \"-c\", \"{command}\"]\nevery = \"day\"\n[source.db.hooks]\nbefore = {}\nafter = {}\nalways = {}\n",
                hook(&format!("echo before >> {log}; {before}")),
                hook(&format!("echo after $VARVE_OUTCOME >> {log}")),
                hook(&format!("cat >> {log}")),
            ),
        );
        drop(fs::remove_file(&log));
        let run = daily(&sandbox, &["run", "db"]);
        (run, fs::read_to_string(&log).unwrap())
    };
    let (run, log) = with_hooks("exit 3", "echo data");
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("the hook before failed: sh ended with exit status: 3"), "{}", run.stderr);
    assert!(log.starts_with("before\n{") && log.contains("\"outcome\":\"failed\""), "{log}");
    assert_eq!(names(&sandbox), [""; 0]);

    let (run, log) = with_hooks("exit 75", "echo data");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(log.contains("\"outcome\":\"postponed\""), "{log}");
    assert_eq!(names(&sandbox), [""; 0]);

    let (run, log) = with_hooks("true", "echo data; exit 4");
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("ended with exit status: 4"), "{}", run.stderr);
    assert!(!log.contains("after") && log.contains("\"outcome\":\"failed\""), "{log}");
    assert_eq!(names(&sandbox), [""; 0], "a program that fails makes no snapshot");

    let (run, log) = with_hooks("true", "echo data");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let (before, rest) = log.split_once('{').unwrap();
    assert_eq!(before, "before\nafter done\n");
    let outcome: Value = serde_json::from_str(&format!("{{{rest}")).unwrap();
    assert_eq!(outcome["snapshot"], sandbox.ids()[0]);
    assert_eq!(sandbox.ok(["cat", "db:db"]), "data\n");
    assert!(!sandbox.path("run-state/open-hooks.json").exists());
}

/// However often a run is killed, nothing is stuck: the next run takes the snapshot, and the hook
/// `always` has run after each `before`.
#[test]
fn a_killed_run_leaves_nothing_stuck() {
    let sandbox = home("");
    let log = sandbox.arg("hooks.log");
    let hook = |word: &str| format!("{{ run = [\"sh\", \"-c\", \"echo {word} >> {log}\"] }}");
    let hooks = format!("[source.home.hooks]\nbefore = {}\nalways = {}\n", hook("before"), hook("always"));
    configure(&sandbox, &format!("{HOME}{hooks}"));
    kill_runs(&sandbox, &sandbox.path("home/letter"), 40, Duration::from_millis(100));
    let words = fs::read_to_string(&log).unwrap();
    let last = words.lines().last().unwrap();
    assert_eq!(last, "always", "{words}");
    assert!(words.matches("before").count() >= 2, "{words}");
    assert!(!words.replace("always\n", "").is_empty());
    // No `before` is followed by another one: the hook `always` ran in between.
    assert!(!words.contains("before\nbefore\nbefore\n"), "{words}");
    assert!(!sandbox.path("run-state/open-hooks.json").exists());
    sandbox.ok(["verify", "--data"]);
    let left = fs::read_dir(sandbox.path("run-state")).unwrap().count();
    assert!(left <= 4, "{left} files are left");
}

#[test]
fn a_run_waits_for_another_writer_and_names_it() {
    let sandbox = home("");
    let holder = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(sandbox.store().join("lock"))
        .unwrap();
    flock(&holder, FlockOperation::NonBlockingLockExclusive).unwrap();
    let command = |sandbox: &Sandbox| {
        let mut command = sandbox.command();
        command.args(["run", "--config", "varve.toml"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let running = command(&sandbox);
    std::thread::sleep(Duration::from_millis(500));
    // Meanwhile a second run of the same configuration does nothing.
    let second = daily(&sandbox, &["run"]);
    assert_eq!(second.code, Some(0));
    assert!(second.stderr.contains("another run of this configuration is at work"), "{}", second.stderr);
    drop(holder);
    let run = Run::new(running.wait_with_output().unwrap());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("waiting for up to") || run.stderr.contains("another"), "{}", run.stderr);
    assert_eq!(names(&sandbox), ["home"]);

    let config = fs::read_to_string(sandbox.path("varve.toml")).unwrap();
    fs::write(sandbox.path("varve.toml"), config.replace("30s", "1s")).unwrap();
    let holder = File::open(sandbox.store().join("lock")).unwrap();
    flock(&holder, FlockOperation::NonBlockingLockExclusive).unwrap();
    let run = daily(&sandbox, &["run", "home"]);
    assert_eq!(run.code, Some(11), "{}", run.stderr);
    drop(holder);
}

#[test]
fn on_battery_a_job_waits_until_it_is_too_late() {
    let sandbox = home("only-when = { power = \"mains or 60%\", load = \"80%\" }\nat-the-latest = \"3d\"\n");
    let battery = sandbox.path("system/sys/class/power_supply/BAT0");
    fs::create_dir_all(&battery).unwrap();
    let charge = |percent: &str| {
        for (file, text) in [("type", "Battery"), ("status", "Discharging"), ("capacity", percent)] {
            fs::write(battery.join(file), text).unwrap();
        }
    };
    take_days_ago(&sandbox, "home", 1);
    charge("41");
    let words = ["run", "--system-root", "system"];
    daily_ok(&sandbox, &words);
    daily_ok(&sandbox, &words);
    assert_eq!(names(&sandbox).len(), 1);
    let log = run_log(&sandbox);
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0]["message"].as_str().unwrap().contains("on battery, charged to 41%"), "{log:?}");
    charge("75");
    let load = |text: &str| fs::write(sandbox.path("system/proc/loadavg"), text).unwrap();
    fs::create_dir(sandbox.path("system/proc")).unwrap();
    load("900.0 1.0 1.0 1/1 1");
    let plan = daily_ok(&sandbox, &[&words[..], &["--dry-run"]].concat());
    assert!(plan.contains("would not run: due since") && plan.contains("the load is "), "{plan}");
    load("0.0 1.0 1.0 1/1 1");
    daily_ok(&sandbox, &words);
    assert_eq!(names(&sandbox).len(), 2);

    let late = home("only-when = { power = \"mains\" }\nat-the-latest = \"3d\"\n");
    take_days_ago(&late, "home", 4);
    daily_ok(&late, &["run", "--system-root", sandbox.path("system").to_str().unwrap()]);
    assert_eq!(names(&late).len(), 2);
}

/// Returns the broken promises as `PROMISE SUBJECT: MESSAGE DETAIL FAILURE`.
pub fn broken(sandbox: &Sandbox) -> Vec<String> {
    let run =
        Run::new(sandbox.command().args(["--json", "status", "--config", "varve.toml"]).output().unwrap());
    let records = crate::sandbox::json_lines(&run.text());
    let is_broken = |record: &&Value| record["state"] == "broken";
    let text = |record: &Value, field: &str| record[field].as_str().unwrap_or_default().to_owned();
    let broken: Vec<_> = records
        .iter()
        .filter(is_broken)
        .map(|one| {
            format!(
                "{} {}: {} {} {}",
                text(one, "promise"),
                text(one, "subject"),
                text(one, "message"),
                text(one, "detail"),
                text(one, "last_failure")
            )
        })
        .collect();
    assert_eq!(run.code, Some(if broken.is_empty() { 0 } else { 4 }), "{}{}", run.text(), run.stderr);
    broken
}

const PROMISES: &str = "[promise]\nsnapshot-within = \"30h\"\nreplica-within = \"2d\"\nverified-within = \"60d\"\nreclaimed-within = \"10d\"\nroom-for = \"1d\"\n";

/// Each way to stop silently is named by `status`. Nothing of it is asked of the run log.
#[test]
fn nothing_stops_silently() {
    let expect = |sandbox: &Sandbox, text: &str| {
        let found = broken(sandbox);
        assert!(found.iter().any(|one| one.contains(text)), "{text}: {found:#?}");
    };
    let whole = || {
        let sandbox = home(PROMISES);
        daily_ok(&sandbox, &["run"]);
        assert_eq!(broken(&sandbox), [""; 0]);
        sandbox
    };

    // 1. The timer was never started, or a source never had a snapshot.
    expect(&home(PROMISES), "snapshot-within home: there is no snapshot");
    // 2. The timer was deleted.
    let sandbox = home(PROMISES);
    take_days_ago(&sandbox, "home", 3);
    expect(&sandbox, "snapshot-within home: the newest snapshot was taken 3d");
    // 3. The store is gone, as with a disk that is not mounted.
    let sandbox = whole();
    fs::rename(sandbox.store(), sandbox.path("away")).unwrap();
    expect(&sandbox, "store main: ");
    for promise in ["snapshot-within home", "verified-within main", "reclaimed-within main", "room-for main"]
    {
        expect(&sandbox, &format!("{promise}: the store main cannot be read"));
    }
    // 4. The key is lost, or was replaced by another.
    let sandbox = whole();
    crate::sandbox::write_secret(sandbox.key().unwrap(), &noise(77, 32));
    expect(&sandbox, "store main: ");
    // 5. The program whose output is archived fails each time.
    let sandbox = home(PROMISES);
    configure(&sandbox, &format!("[source.db]\ncommand = [\"false\"]\nevery = \"day\"\n{PROMISES}"));
    assert_eq!(daily(&sandbox, &["run"]).code, Some(1));
    expect(&sandbox, "snapshot-within db: there is no snapshot ");
    expect(&sandbox, "ended with exit status: 1");
    // 6. The replica was never made; 7. it is behind; 8. its disk is gone, and it was behind.
    let sandbox = home("");
    fs::create_dir(sandbox.path("media")).unwrap();
    let replica = format!("{HOME}[replica.copy]\nat = \"{}\"\n{PROMISES}", sandbox.arg("media/copy"));
    configure(&sandbox, &replica);
    take_days_ago(&sandbox, "home", 5);
    expect(&sandbox, "replica-within copy: it was never brought up to date");
    daily_ok(&sandbox, &["run"]);
    assert_eq!(broken(&sandbox), [""; 0]);
    fs::rename(sandbox.path("media"), sandbox.path("unplugged")).unwrap();
    assert_eq!(broken(&sandbox), [""; 0], "away for a short time is no harm");
    fs::rename(sandbox.path("unplugged"), sandbox.path("media")).unwrap();
    take_days_ago(&sandbox, "home", 4);
    expect(&sandbox, "replica-within copy: it lacks 1 snapshot, the first taken 4d");
    // 9. The clock is wrong: here a snapshot is from the future.
    let sandbox = whole();
    take_days_ago(&sandbox, "home", -1_200);
    expect(&sandbox, "clock main: home has a snapshot of ");
    // 10. Damage waits to be mended.
    let sandbox = whole();
    for number in 0..3_u64 {
        fs::write(sandbox.path("home/letter"), noise(number, 1 << 20)).unwrap();
        daily_ok(&sandbox, &["run", "home"]);
    }
    damage(&sandbox.arenas()[0]);
    assert_eq!(sandbox.run(["verify", "--data"]).code, Some(5));
    expect(&sandbox, "store main: ");
    // 11. The disk fills.
    let sandbox = home(&PROMISES.replace("room-for = \"1d\"", "room-for = \"36000d\""));
    fs::write(sandbox.path("home/noise"), noise(5, 3 << 20)).unwrap();
    daily_ok(&sandbox, &["run"]);
    expect(&sandbox, "room-for main: the free space lasts for ");
    // 12. Nothing reads the data, and 13. nothing frees space.
    let sandbox = home(&PROMISES.replace("60d", "1s").replace("10d", "1s"));
    take_days_ago(&sandbox, "home", 1);
    daily_ok(&sandbox, &["run"]);
    sandbox.ok(["forget", &sandbox.ids()[0], "--undo-days", "0"]);
    std::thread::sleep(Duration::from_millis(1_100));
    expect(&sandbox, "verified-within main: ");
    expect(&sandbox, "reclaimed-within main: space has waited");
}

/// Changes a byte in the middle of a file.
fn damage(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_key_that_may_not_read_archives_and_says_that_it_cannot_judge() {
    let sandbox = home("");
    sandbox.add_limited_keys();
    crate::sandbox::write_secret(&sandbox.path("writer"), &fs::read(sandbox.path("writer")).unwrap());
    let config = fs::read_to_string(sandbox.path("varve.toml")).unwrap();
    let own_key = sandbox.key().unwrap().display().to_string();
    fs::write(sandbox.path("varve.toml"), config.replace(&own_key, &sandbox.arg("writer")) + PROMISES)
        .unwrap();
    assert_eq!(daily_ok(&sandbox, &["run"]), "snapshot of home: done\n");
    assert_eq!(daily_ok(&sandbox, &["run"]), "", "its own note says that it is done");
    assert_eq!(names(&sandbox), ["home"]);
    let status = daily(&sandbox, &["status"]);
    assert_eq!(status.code, Some(1), "{}", status.text());
    assert!(status.text().contains("unknown  store"), "{}", status.text());
}
