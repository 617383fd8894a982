//! One program or server that never ends stops nothing else: time limits of jobs, notices while a
//! job works, and the end of all programs with their run.

#![expect(clippy::disallowed_methods, reason = "runs are waited for in real time")]

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::daily::{configure, daily, daily_ok, home, names, run_log, take_days_ago};
use crate::daily_notices::{Recorded, http, server};
use crate::moved_clock::MovedClock;
use crate::sandbox::{Run, Sandbox, all_json_lines};

/// A source whose program never ends. It writes its process id into the file `endless.pid`.
const ENDLESS: &str = "[source.endless]\ncommand = [\"sh\", \"-c\", \"echo $$ > endless.pid; echo a; exec sleep 300\"]\nevery = \"day\"\n";

fn spawn(mut command: Command) -> Child {
    command.args(["run", "--config", "varve.toml"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[track_caller]
fn wait_until(what: &str, until: impl Fn() -> bool) {
    let begun = Instant::now();
    while !until() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the process whose id is in a file, once it is there.
#[track_caller]
fn pid_in(file: &Path) -> Pid {
    let read = || fs::read_to_string(file).unwrap_or_default().trim().parse().ok().and_then(Pid::from_raw);
    wait_until("the program has begun", || read().is_some());
    read().unwrap()
}

#[track_caller]
fn assert_ends(pid: Pid) {
    wait_until("the program ends", || test_kill_process(pid).is_err());
}

#[test]
fn a_silent_server_and_an_endless_program_stop_no_other_job() {
    // It accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let sandbox = home("");
    let replica = format!("[replica.far]\nat = \"webdav+http://127.0.0.1:{port}/far\"\n");
    let care = "[care]\nverify = { every = \"day\" }\n";
    let source = "[source.home]\nfolder = \"home\"\ntimeout = \"1h\"\n";
    let limits = "[defaults]\nevery = \"day\"\ntimeout = \"3s\"\n";
    configure(&sandbox, &format!("{limits}{ENDLESS}{source}{replica}{care}timeout = \"1h\"\n"));
    let begun = Instant::now();
    let run = daily(&sandbox, &["run"]);
    assert_eq!(run.code, Some(1), "{}{}", run.text(), run.stderr);
    // A request that has been sent is given up after 30 s of silence.
    assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
    for (title, table) in [("snapshot of endless", "source.endless"), ("replica far", "replica.far")] {
        let told = format!(
            "varve: {title} (failed): it did not end within 3s, and was ended: what it has stored stays; timeout in [{table}] sets another limit"
        );
        assert!(run.stderr.contains(&told), "{}", run.stderr);
    }
    assert_ends(pid_in(&sandbox.path("endless.pid")));
    let text = run.text();
    assert!(text.contains("snapshot of home: done") && text.contains("verification of main: done"), "{text}");
    assert_eq!(names(&sandbox), ["home"]);
    let log = run_log(&sandbox);
    let failed = log.iter().filter(|line| line["outcome"] == "failed").count();
    assert_eq!((failed, log.len()), (2, 4), "{log:#?}");
}

#[test]
fn promises_are_judged_while_a_job_works() {
    let web = Recorded::default();
    let port = server(&web, http);
    let sandbox = home("");
    let Some(clock) = MovedClock::make(&sandbox.path("")) else {
        return eprintln!("skipped, as cc is not installed: promises_are_judged_while_a_job_works");
    };
    let rest = format!(
        "[promise]\nsnapshot-within = \"30h\"\n[notify]\nwebhook = {{ url = \"http://127.0.0.1:{port}/hook\" }}\n"
    );
    configure(&sandbox, &format!("{ENDLESS}{rest}"));
    take_days_ago(&sandbox, "endless", 1);
    daily_ok(&sandbox, &["notify"]);
    web.lock().clear();
    // A day passes in 24 seconds.
    let mut command = sandbox.command();
    clock.run_faster(&mut command, 3_600);
    let mut run = spawn(command);
    pid_in(&sandbox.path("endless.pid"));
    wait_until("the broken promise is reported", || {
        web.lock().iter().any(|notice| notice.contains("\"state\":\"broken\""))
    });
    assert!(run.try_wait().unwrap().is_none(), "the run is still at work");
    run.kill().unwrap();
    run.wait().unwrap();
}

/// As it is on a machine whose timer begins a second run.
#[test]
fn a_run_beside_another_one_judges_the_promises() {
    let web = Recorded::default();
    let port = server(&web, http);
    let sandbox = home("");
    let Some(clock) = MovedClock::make(&sandbox.path("")) else {
        return eprintln!("skipped, as cc is not installed: a_run_beside_another_one_judges_the_promises");
    };
    let rest = format!(
        "[promise]\nsnapshot-within = \"1h\"\n[notify]\nwebhook = {{ url = \"http://127.0.0.1:{port}/hook\" }}\n"
    );
    configure(&sandbox, &format!("{ENDLESS}{rest}"));
    // It has been at work for ten minutes, and then for two hours.
    for (minutes, notice_count) in [(10, 0), (120, 1)] {
        let mut command = sandbox.command();
        clock.move_by(&mut command, -60 * minutes);
        let mut run = spawn(command);
        let pid = pid_in(&sandbox.path("endless.pid"));
        let second = daily(&sandbox, &["run"]);
        assert_eq!(second.code, Some(0), "{}", second.stderr);
        let since = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(minutes);
        let since = since.strftime("at work since %Y-%m-%d %H:").to_string();
        assert!(second.stderr.contains(&since), "{}", second.stderr);
        assert!(second.stderr.contains(", now with snapshot endless"), "{}", second.stderr);
        assert_eq!(daily(&sandbox, &["run", "--or-fail"]).code, Some(6));
        assert_eq!(web.lock().len(), notice_count, "{minutes} minutes");
        run.kill().unwrap();
        run.wait().unwrap();
        assert_ends(pid);
        fs::remove_file(sandbox.path("endless.pid")).unwrap();
    }
}

/// A signal ends a run with its job, and the program of the job, whatever they do. After `kill -9`
/// they end by themselves.
#[test]
fn a_run_ends_with_all_its_programs() {
    let sandbox = home("");
    let stubborn = ENDLESS.replace("echo a;", "trap '' TERM; echo a;");
    configure(&sandbox, &stubborn);
    for signals in [&[Signal::TERM][..], &[Signal::INT], &[Signal::HUP, Signal::TERM], &[Signal::KILL]] {
        let mut run = spawn(sandbox.command());
        let pid = pid_in(&sandbox.path("endless.pid"));
        let begun = Instant::now();
        for signal in signals {
            kill_process(Pid::from_child(&run), *signal).unwrap();
            std::thread::sleep(Duration::from_millis(300));
        }
        let status = run.wait().unwrap();
        let expected = if signals[0] == Signal::KILL { None } else { Some(130) };
        assert_eq!(status.code(), expected, "{signals:?}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{signals:?}: {:?}", begun.elapsed());
        assert_ends(pid);
        fs::remove_file(sandbox.path("endless.pid")).unwrap();
        // Nobody holds the lock of the run.
        let lock = File::open(sandbox.path("run-state/lock")).unwrap();
        let is_free = || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        wait_until("the lock is free", is_free);
    }
    assert_eq!(names(&sandbox), [""; 0]);
}

/// A program of a hook or a source may leave an agent or a tunnel behind.
#[test]
fn programs_that_are_left_behind_are_ended_and_named() {
    let sandbox = home("");
    let rest = "[source.db]\ncommand = [\"sh\", \"-c\", \"sleep 300 & echo $! > left.pid; echo data\"]\nevery = \"day\"\n\
                [source.db.hooks]\nbefore = { run = [\"sh\", \"-c\", \"sleep 300 & echo $! > hook.pid\"] }\n";
    configure(&sandbox, rest);
    let begun = Instant::now();
    let run = daily(&sandbox, &["run"]);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
    let expected = [
        "varve: sh has left sleep at work in the background, which was ended",
        "varve: sh has ended, but sleep still held its output open, and was ended",
    ];
    for line in expected {
        assert!(run.stderr.contains(line), "{line}: {}", run.stderr);
    }
    for file in ["left.pid", "hook.pid"] {
        assert_ends(pid_in(&sandbox.path(file)));
    }
    assert_eq!(sandbox.ok(["cat", "db:db"]), "data\n");

    let run = as_json(&sandbox);
    for line in expected {
        let message = line.trim_start_matches("varve: ");
        let is_warning =
            |record: &&serde_json::Value| record["type"] == "warning" && record["message"] == message;
        assert!(run.iter().any(|record| is_warning(&record)), "{message}: {run:#?}");
    }
}

fn as_json(sandbox: &Sandbox) -> Vec<serde_json::Value> {
    let mut command = sandbox.command();
    command.args(["--json", "run", "db", "--config", "varve.toml"]).process_group(0);
    let run = Run::new(command.output().unwrap());
    all_json_lines(&run.text())
}
