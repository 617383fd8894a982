//! Daily work: drills, pauses, and the conditions of the machine.

#![expect(clippy::disallowed_methods, reason = "runs are waited for in real time")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::daily::{HOME, broken, configure, daily, daily_ok, home, names, run_log, take_days_ago};
use crate::sandbox::{Run, is_root, noise, tool, write_program};

const DRILL: &str = "[care]\ndrill = { restore = \"3 files\", every = \"month\" }\n\
                     [promise]\ndrill-within = \"40d\"\n";

#[test]
fn a_drill_restores_files_and_is_recorded_in_the_store() {
    let sandbox = home(DRILL);
    for number in 0..20_u64 {
        fs::write(sandbox.path(&format!("home/{number}")), noise(number, 30_000)).unwrap();
    }
    assert_eq!(broken(&sandbox), ["drill-within home: it was never drilled  "]);
    // Before there is a snapshot, nothing can be drilled. Afterwards the same run does it.
    assert_eq!(daily_ok(&sandbox, &["run"]), "snapshot of home: done\ndrill of home: done\n");
    assert_eq!(broken(&sandbox), [""; 0]);
    assert_eq!(daily_ok(&sandbox, &["run"]), "");
    // The record is in the store, not in the state folder.
    fs::remove_dir_all(sandbox.path("run-state")).unwrap();
    assert_eq!(daily_ok(&sandbox, &["run"]), "");
    assert_eq!(broken(&sandbox), [""; 0]);
    let by_hand = sandbox.ok(["drill", "home", "--files", "7"]);
    assert!(by_hand.contains("7 files, ") && by_hand.contains(" restored and compared"), "{by_hand}");
    let record = &sandbox.json(["drill", "home"])[0];
    assert_eq!((record["files"].as_u64(), record["failure"].as_str()), (Some(21), None), "{record}");
    fs::remove_file(sandbox.store().join("index/drills")).unwrap();
    assert_eq!(broken(&sandbox), ["drill-within home: it was never drilled  "]);
    // A drill of something else says nothing about the source.
    sandbox.ok(["snapshot", "home", "--name", "other"]);
    sandbox.ok(["drill", "other"]);
    assert_eq!(broken(&sandbox).len(), 1);
}

#[test]
fn a_failed_drill_breaks_the_promise_until_one_is_good() {
    let sandbox = home(DRILL);
    fs::write(sandbox.path("home/noise"), noise(1, 3 << 20)).unwrap();
    daily_ok(&sandbox, &["run"]);
    let arena = &sandbox.arenas()[0];
    let whole = fs::read(arena).unwrap();
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0);
    fs::write(arena, bytes).unwrap();
    assert_eq!(sandbox.run(["drill", "home"]).code, Some(5));
    let found = broken(&sandbox);
    assert!(
        found.iter().any(|one| one.starts_with("drill-within home: the last drill failed ")),
        "{found:?}"
    );
    // The name of the file is in the part that stays on the machine.
    assert!(found.iter().any(|one| one.contains("noise: ")), "{found:?}");
    fs::write(arena, whole).unwrap();
    sandbox.ok(["drill", "home"]);
    let found = broken(&sandbox);
    assert!(!found.iter().any(|one| one.starts_with("drill-within")), "{found:?}");
}

#[test]
fn a_disk_without_files_is_drilled_in_pieces() {
    let sandbox = home("");
    sandbox.snapshot_bytes("disk", &noise(3, 5 << 20));
    let text = sandbox.ok(["drill", "disk", "--files", "4"]);
    assert!(text.contains("4 files, 4.00 MiB restored and compared"), "{text}");
    daily_ok(&sandbox, &["run"]);
    assert!(sandbox.fails(2, ["drill", "home", "--boot"]).contains("--boot is for snapshots of disks"));
}

#[test]
fn a_pause_ends_by_itself() {
    let sandbox = home("");
    assert!(daily_ok(&sandbox, &["pause", "1d12h"]).contains("daily work is paused until "));
    let run = daily(&sandbox, &["run"]);
    assert!(run.stderr.contains("daily work is paused until "), "{}", run.stderr);
    assert!(daily_ok(&sandbox, &["run", "--dry-run"]).contains("would not run: daily work is paused until"));
    assert!(daily(&sandbox, &["status"]).stderr.contains("daily work is paused until "));
    assert_eq!(names(&sandbox), [""; 0]);
    assert_eq!(daily(&sandbox, &["run", "--or-fail"]).code, Some(6));
    assert_eq!(daily_ok(&sandbox, &["run", "home"]), "snapshot of home: done\n", "by hand it runs");
    daily_ok(&sandbox, &["pause", "--end"]);
    assert!(!daily(&sandbox, &["run"]).stderr.contains("paused"));
    daily_ok(&sandbox, &["pause", "1s"]);
    std::thread::sleep(Duration::from_millis(1_100));
    assert!(!daily(&sandbox, &["run"]).stderr.contains("paused"));
    assert_eq!(daily(&sandbox, &["pause"]).code, Some(2));
}

#[test]
fn a_watching_run_does_what_becomes_due_until_it_is_interrupted() {
    let sandbox = home("");
    configure(&sandbox, "[source.home]\nfolder = \"missing\"\nevery = \"day\"\n");
    let mut command = sandbox.command();
    command.args(["run", "--watch=1s", "--config", "varve.toml"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let wait = |until: &dyn Fn() -> bool, what: &str| {
        let begun = Instant::now();
        while !until() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait(&|| !run_log(&sandbox).is_empty(), "the first look");
    // The configuration is read each time. A new job has no failure behind it.
    configure(&sandbox, "[source.home]\nfoldr = \"home\"\nevery = \"day\"\n");
    std::thread::sleep(Duration::from_millis(1_500));
    configure(&sandbox, "[source.letters]\nfolder = \"home\"\nevery = \"day\"\n");
    wait(&|| names(&sandbox) == ["letters"], "the look after the change");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_ne!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_name_of_the_machine_is_that_of_the_configuration() {
    let sandbox = home("");
    let config = fs::read_to_string(sandbox.path("varve.toml")).unwrap();
    fs::write(
        sandbox.path("varve.toml"),
        format!("machine = \"web1\"\n{config}[promise]\nsnapshot-within = \"1d\"\n"),
    )
    .unwrap();
    daily_ok(&sandbox, &["run"]);
    assert_eq!(sandbox.json(["snapshots"])[0]["host"], "web1");
    assert_eq!(daily_ok(&sandbox, &["run"]), "", "it is known as done");
    assert_eq!(broken(&sandbox), [""; 0]);
}

/// A job that runs when the machine goes to battery is ended and left for later, and what it has
/// stored is found again.
#[test]
fn a_running_job_is_postponed_when_the_power_goes() {
    let sandbox = home("");
    let slow = "[defaults]\nevery = \"day\"\nonly-when = { power = \"mains\" }\nat-the-latest = \"3d\"\n\
                [source.slow]\ncommand = [\"sh\", \"-c\", \"echo a; sleep 60\"]\n";
    configure(&sandbox, slow);
    take_days_ago(&sandbox, "slow", 1);
    let battery = sandbox.path("system/sys/class/power_supply/BAT0");
    fs::create_dir_all(&battery).unwrap();
    let set = |status: &str| {
        for (file, text) in [("type", "Battery"), ("capacity", "90"), ("status", status)] {
            fs::write(battery.join(file), text).unwrap();
        }
    };
    set("Charging");
    let mut command = sandbox.command();
    command.args(["run", "--config", "varve.toml", "--system-root", "system"]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    set("Discharging");
    let run = Run::new(running.wait_with_output().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let log = run_log(&sandbox);
    let last = log.last().unwrap();
    assert_eq!(last["outcome"], "postponed", "{last}");
    assert!(last["message"].as_str().unwrap().contains("ended early: the machine is on battery"), "{last}");
}

/// The same happens when the network becomes metered, as with a phone.
#[test]
fn a_running_job_is_postponed_when_the_network_becomes_metered() {
    let sandbox = home("");
    let slow = "[defaults]\nevery = \"day\"\nonly-when = { network = \"not metered\" }\nat-the-latest = \"3d\"\n\
                [source.slow]\ncommand = [\"sh\", \"-c\", \"echo a; sleep 90\"]\n";
    configure(&sandbox, slow);
    take_days_ago(&sandbox, "slow", 1);
    let manager = sandbox.path("system/usr/bin/busctl");
    write_program(&manager, &format!("#!/bin/sh\ncat {}\n", sandbox.arg("metered")));
    fs::write(sandbox.path("metered"), "u 4\n").unwrap();
    let words = ["run", "--config", "varve.toml", "--system-root", "system"];
    let mut command = sandbox.command();
    command.args(words).stdout(Stdio::null()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(1_500));
    fs::write(sandbox.path("metered"), "u 1\n").unwrap();
    let run = Run::new(running.wait_with_output().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let last = run_log(&sandbox).pop().unwrap();
    assert_eq!(last["outcome"], "postponed", "{last}");
    assert!(last["message"].as_str().unwrap().contains("ended early: the network is metered"), "{last}");
    // It is due again, and done once the network allows it.
    configure(&sandbox, &slow.replace("sleep 90", "true"));
    daily_ok(&sandbox, &["run", "--system-root", "system"]);
    assert_eq!(names(&sandbox).len(), 1);
    fs::write(sandbox.path("metered"), "u 4\n").unwrap();
    daily_ok(&sandbox, &["run", "--system-root", "system"]);
    assert_eq!(names(&sandbox).len(), 2);
}

#[test]
fn a_file_that_is_never_read_breaks_the_promise_of_its_source() {
    if !is_root() {
        eprintln!("skipped: only root can take a file away from a user");
        return;
    }
    let sandbox = home("[promise]\nsnapshot-within = \"30h\"\n");
    fs::write(sandbox.path("home/locked"), "x").unwrap();
    fs::write(sandbox.path("home/open"), "x").unwrap();
    for folder in ["run-state", "cache", "state"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
    }
    tool("chown", ["-R", "65534:65534", sandbox.path("").to_str().unwrap()]);
    // Both users believe a configuration of root.
    for (path, mode) in [("", 0o755), ("varve.toml", 0o644)] {
        std::os::unix::fs::chown(sandbox.path(path), Some(0), Some(0)).unwrap();
        fs::set_permissions(sandbox.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let locked = sandbox.path("home/locked");
    std::os::unix::fs::chown(&locked, Some(0), Some(0)).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o600)).unwrap();
    for night in 0..3 {
        assert_eq!(broken(&sandbox).len(), usize::from(night == 0), "night {night}");
        let mut command = sandbox.command_as(65_534);
        command.args(["run", "home", "--config", "varve.toml"]);
        let run = Run::new(command.output().unwrap());
        assert_eq!(run.code, Some(3), "{}{}", run.text(), run.stderr);
    }
    let found = broken(&sandbox);
    let text = "snapshot-within home: 1 file could not be read in the last 3 snapshots locked ";
    assert_eq!(found, [text]);
    // A night on which it is read mends the promise.
    assert_eq!(daily_ok(&sandbox, &["run", "home"]), "snapshot of home: done\n");
    assert_eq!(broken(&sandbox), [""; 0]);
}

/// A replica that is away is named with the reason.
#[test]
fn a_replica_that_cannot_be_reached_is_named_with_the_reason() {
    let sandbox = home("");
    configure(
        &sandbox,
        &format!(
            "{HOME}[replica.usb]\nat = \"{}\"\nevery = \"day\"\n[promise]\nreplica-within = \"2d\"\n",
            sandbox.arg("media/copy")
        ),
    );
    fs::create_dir(sandbox.path("media")).unwrap();
    daily_ok(&sandbox, &["run"]);
    assert_eq!(broken(&sandbox), [""; 0]);
    fs::rename(sandbox.path("media"), sandbox.path("unplugged")).unwrap();
    let status = daily(&sandbox, &["status"]);
    assert!(status.text().contains("it cannot be reached now: "), "{}", status.text());
}
