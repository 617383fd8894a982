//! One machine on a moved clock stops in twelve ways, one after the other. Each is named by
//! `status`, told by mail and shown by a silent heartbeat, within one `snapshot-within`. After each
//! it is mended, and that is told, too. `docs/guide/daily.md` lists the twelve ways.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::daily_sinks::{MailSink, WebSink};
use crate::moved_clock::MovedClock;
use crate::sandbox::{Run, Sandbox, is_root, noise, write_secret};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// The user `nobody`, who may not read everything.
const NOBODY: u32 = 65_534;
/// The looks after a machine has begun to stop, in seconds. The second one is just after the
/// promises of 20 hours and the last one just after `snapshot-within`. No look is at the moment
/// when a promise breaks: the time goes on between a message and `status`.
const LOOKS: [i64; 3] = [10 * HOUR, 20 * HOUR + 600, 30 * HOUR + 600];

/// A machine, its clock and the servers that it knows.
struct Machine {
    sandbox: Sandbox,
    clock: MovedClock,
    mail: MailSink,
    web: WebSink,
    /// The time when it was set, in seconds since 1970, and its difference from the real one.
    time: i64,
    moved_by: i64,
    /// The difference between the clock of the machine and the time.
    is_ahead_by: i64,
    /// True if the machine runs as `nobody`.
    is_nobody: bool,
    /// True if its timer is there.
    has_timer: bool,
}

impl Machine {
    fn make() -> Option<Self> {
        let mut sandbox = Sandbox::empty();
        let clock = MovedClock::make(&sandbox.path(""))?;
        for folder in ["home", "media", "disk"] {
            fs::create_dir(sandbox.path(folder)).unwrap();
        }
        fs::write(sandbox.path("home/letter"), "dear").unwrap();
        fs::write(sandbox.path("home/noise"), noise(3, 2 << 20)).unwrap();
        fs::write(sandbox.path("database"), "is up").unwrap();
        sandbox.set_store(sandbox.path("disk/store"));
        let (mail, web) = (MailSink::start(), WebSink::start());
        // A Monday, 00:01 UTC.
        let week = 7 * DAY;
        let monday = (jiff::Timestamp::now().as_second() - 4 * DAY) / week * week + 4 * DAY + week;
        let mut machine = Self {
            sandbox,
            clock,
            mail,
            web,
            time: 0,
            moved_by: 0,
            is_ahead_by: 0,
            is_nobody: false,
            has_timer: true,
        };
        machine.set_time(monday + 60);
        Some(machine)
    }

    /// Sets the time, which goes on from there.
    fn set_time(&mut self, time: i64) {
        self.time = time;
        self.moved_by = time - jiff::Timestamp::now().as_second();
        self.web.move_clock_by(self.moved_by);
    }

    fn configure(&self) {
        let (mail, web) = (self.mail.port, self.web.port);
        let database = self.sandbox.arg("database");
        let promises = "[promise]\nsnapshot-within = \"30h\"\nreplica-within = \"20h\"\n\
                        verified-within = \"60d\"\nreclaimed-within = \"20h\"\ndrill-within = \"8d\"\nroom-for = \"5d\"\n";
        let told = format!(
            "[notify]\nmail = {{ to = [\"ops@example.org\"], from = \"varve@example.org\", server = \"smtp://127.0.0.1:{mail}\" }}\n"
        );
        let sources = format!(
            "[defaults]\nevery = \"6h\"\n[source.home]\nfolder = \"home\"\nkeep = {{ last = 4 }}\n\
             [source.orders]\ncommand = [\"cat\", \"{database}\"]\nas = \"orders\"\n\
             [source.orders.hooks]\nbefore = {{ run = [\"test\", \"-e\", \"{database}\"] }}\n"
        );
        let head = "machine = \"web1\"\ntime-zone = \"UTC\"\n";
        let first = format!(
            "{head}state = \"disk/run-state\"\n[store.main]\nat = \"disk/store\"\nkey-file = \"daily.key\"\nwait = \"5s\"\n\
             {sources}[replica.usb]\nat = \"media/copy\"\n[replica.vault]\nat = \"webdav+http://127.0.0.1:{web}/vault\"\n\
             [care]\nverify = {{ every = \"day\" }}\nreclaim = {{ every = \"6h\" }}\n\
             drill = {{ sources = [\"home\"], restore = \"2 files\", every = \"week\" }}\n{promises}\
             {told}heartbeat = \"http://127.0.0.1:{web}/ping\"\n"
        );
        // The replica on the disk is a folder, and its parent is absolute in the address.
        let first = first.replace("media/copy", &self.sandbox.arg("media/copy"));
        fs::write(self.sandbox.path("varve.toml"), first).unwrap();
        // A second machine reads the replica. It has no work of its own.
        let second = format!(
            "{head}state = \"second-state\"\n[store.main]\nat = \"media/copy\"\nkey-file = \"key\"\n{sources}\
             [promise]\nsnapshot-within = \"30h\"\n{told}"
        );
        fs::write(self.sandbox.path("second.toml"), second).unwrap();
    }

    fn command(&self) -> Command {
        let mut command =
            if self.is_nobody { self.sandbox.command_as(NOBODY) } else { self.sandbox.command() };
        self.clock.move_by(&mut command, self.moved_by + self.is_ahead_by);
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        Run::new(self.command().args(arguments).output().unwrap())
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.code, Some(0), "{arguments:?}: {}{}", run.text(), run.stderr);
        run.text()
    }

    /// Lets the timers of both machines run out once. Returns the output of the first.
    fn timers(&self) -> String {
        let mut output = String::new();
        if self.has_timer {
            let run = self.run(&["run", "--config", "varve.toml"]);
            output = format!("{}{}", run.text(), run.stderr);
        }
        let second = self.run(&["notify", "--config", "second.toml"]);
        assert_eq!(second.code, Some(0), "{}{}", second.text(), second.stderr);
        output
    }

    fn status(&self) -> Run {
        self.run(&["status", "--config", "varve.toml"])
    }

    #[track_caller]
    fn assert_all_is_well(&self, after: &str) {
        let status = self.status();
        assert_eq!(status.code, Some(0), "{after}: {}{}", status.text(), status.stderr);
    }

    /// Stops in one way, and is mended. `named` is the promise that breaks, with its subject.
    #[track_caller]
    fn stops(
        &mut self,
        way: &str,
        named: (&str, &str),
        stop: impl FnOnce(&mut Self),
        mend: impl FnOnce(&mut Self),
    ) {
        let start = self.time;
        self.assert_all_is_well(way);
        self.mail.take();
        self.web.take_pings();
        stop(self);
        let (kind, subject) = named;
        let is_named = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.first() == Some(&"BROKEN") && words.get(1) == Some(&kind) && words.contains(&subject)
        };
        for look in LOOKS {
            self.set_time(start + look);
            let output = self.timers();
            let status = self.status();
            let (mails, pings) = (self.mail.take(), self.web.take_pings());
            let in_status = status.text().lines().any(is_named);
            let is_told = mails.iter().any(|mail| mail.lines().any(|line| is_told(line, kind, subject)));
            assert_eq!(in_status, is_told, "{way}: {output}{}{mails:#?}", status.text());
            if in_status {
                assert_eq!(status.code, Some(4), "{way}: {}", status.text());
                assert_eq!(pings, 0, "{way}: the heartbeat is silent");
                break;
            }
            assert!(look < LOOKS[2], "{way} is not named: {output}{}{}", status.text(), status.stderr);
        }
        mend(self);
        self.set_time(start + 36 * HOUR);
        let output = self.timers();
        self.assert_all_is_well(&format!("{way}, mended: {output}"));
        let (mails, pings) = (self.mail.take(), self.web.take_pings());
        assert!(
            mails.iter().any(|mail| mail.contains("every promise is kept") && mail.contains(subject)),
            "{way}, mended: {output}{mails:#?}"
        );
        assert_eq!(pings, i64::from(self.has_timer), "{way}, mended: {output}");
    }
}

fn is_told(line: &str, kind: &str, subject: &str) -> bool {
    line.starts_with(&format!("BROKEN {kind} ")) && line.contains(&format!(" {subject}: "))
}

fn replace_in(file: &Path, old: &str, new: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(old), "{text}");
    fs::write(file, text.replace(old, new)).unwrap();
}

/// A small disk; `None` without the right to mount one.
struct SmallDisk(String);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        let at = at.to_str().unwrap().to_owned();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=48M", "tmpfs", &at]);
        command.output().is_ok_and(|output| output.status.success()).then_some(Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn twelve_ways_to_stop_are_named_told_and_mended() {
    let Some(mut machine) = Machine::make() else {
        eprintln!("skipped, as cc is not installed: twelve_ways_to_stop_are_named_told_and_mended");
        return;
    };
    let disk = SmallDisk::mount(&machine.sandbox.path("disk"));
    let path = |machine: &Machine, name: &str| machine.sandbox.path(name);
    machine.sandbox.ok(["init", "--arena-size", "1M"]);
    let add_key = |machine: &Machine| {
        write_secret(&machine.sandbox.path("daily.key"), &noise(21, 32));
        machine.ok(&["key", "add", "--new-key-file", "daily.key"]);
    };
    add_key(&machine);
    machine.configure();
    // The first run has nothing to tell before it, and the copy is there after it.
    let first = machine.ok(&["run", "--config", "varve.toml"]);
    assert!(first.contains("replica vault: done") && first.contains("drill of home: done"), "{first}");
    machine.timers();

    let snapshot = |source| ("snapshot-within", source);
    machine.stops("the timer is deleted", snapshot("home"), |m| m.has_timer = false, |m| m.has_timer = true);
    machine.stops(
        "the key is removed",
        ("store", "main"),
        |m| {
            let keys = m.ok(&["--json", "key", "list"]);
            let ids: Vec<serde_json::Value> =
                keys.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            m.ok(&["key", "remove", ids.last().unwrap()["id"].as_str().unwrap()]);
        },
        |m| add_key(m),
    );
    machine.stops(
        "the server of a replica refuses",
        ("replica-within", "vault"),
        |m| m.web.refuse(true),
        |m| m.web.refuse(false),
    );
    machine.stops(
        "the disk of a replica is not mounted",
        ("replica-within", "usb"),
        |m| {
            fs::rename(path(m, "media"), path(m, "unplugged")).unwrap();
            fs::create_dir_all(path(m, "media")).unwrap();
            // The second machine reads the same copy elsewhere.
            replace_in(&path(m, "second.toml"), "media/copy", "unplugged/copy");
        },
        |m| {
            fs::remove_dir(path(m, "media")).unwrap();
            fs::rename(path(m, "unplugged"), path(m, "media")).unwrap();
            replace_in(&path(m, "second.toml"), "unplugged/copy", "media/copy");
        },
    );
    machine.stops(
        "the rules of keep are not applied",
        ("reclaimed-within", "main"),
        |m| {
            // This key may add and read, and not forget.
            write_secret(&path(m, "adder.key"), &noise(22, 32));
            m.ok(&["key", "add", "--append-only", "--new-key-file", "adder.key"]);
            // More than the rules keep. The rules apply to each key by itself, so the snapshots
            // that follow take the place of none of these.
            for _ in 0..5 {
                m.ok(&["run", "home", "--config", "varve.toml"]);
            }
            replace_in(&path(m, "varve.toml"), "daily.key", "adder.key");
        },
        |m| replace_in(&path(m, "varve.toml"), "adder.key", "daily.key"),
    );
    machine.stops(
        "a hook fails",
        snapshot("orders"),
        |m| fs::rename(path(m, "database"), path(m, "database.away")).unwrap(),
        |m| fs::rename(path(m, "database.away"), path(m, "database")).unwrap(),
    );
    machine.stops(
        "a source is emptied",
        snapshot("home"),
        |m| {
            fs::rename(path(m, "home"), path(m, "home.away")).unwrap();
            fs::create_dir(path(m, "home")).unwrap();
        },
        |m| {
            fs::remove_dir(path(m, "home")).unwrap();
            fs::rename(path(m, "home.away"), path(m, "home")).unwrap();
        },
    );
    machine.stops(
        "damage waits",
        ("store", "main"),
        |m| {
            let mut arenas: Vec<_> = fs::read_dir(path(m, "disk/store/arenas"))
                .unwrap()
                .map(|file| file.unwrap().path())
                .collect();
            arenas.sort();
            let mut bytes = Vec::new();
            fs::File::open(&arenas[0]).unwrap().read_to_end(&mut bytes).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&arenas[0], bytes).unwrap();
        },
        |m| {
            m.ok(&["repair", "--from", &m.sandbox.arg("media/copy")]);
        },
    );
    machine.stops(
        "a drill has failed",
        ("drill-within", "home"),
        |m| {
            // The disk lies once, and then no more: only the drill has seen it.
            let arenas = fs::read_dir(path(m, "disk/store/arenas")).unwrap();
            let whole: Vec<_> = arenas
                .map(|file| file.unwrap().path())
                .map(|arena| (arena.clone(), fs::read(arena).unwrap()))
                .collect();
            for (arena, bytes) in &whole {
                let mut bytes = bytes.clone();
                let middle = bytes.len() / 2;
                bytes[middle..].fill(0);
                fs::write(arena, bytes).unwrap();
            }
            let drilled = m.run(&["drill", "home", "--files", "5"]);
            assert_ne!(drilled.code, Some(0), "{}{}", drilled.text(), drilled.stderr);
            whole.iter().for_each(|(arena, bytes)| fs::write(arena, bytes).unwrap());
        },
        |m| {
            m.ok(&["drill", "home"]);
        },
    );
    if disk.is_some() {
        machine.stops(
            "the disk is full",
            ("room-for", "main"),
            |m| {
                let mut file = OpenOptions::new();
                let mut file =
                    file.write(true).create(true).truncate(true).open(path(m, "disk/fill")).unwrap();
                while file.write_all(&[7; 4096]).is_ok() {}
            },
            |m| fs::remove_file(path(m, "disk/fill")).unwrap(),
        );
    } else {
        eprintln!("skipped, as it needs the right to mount a tmpfs: the disk is full");
    }
    machine.stops(
        "the clock is years ahead",
        ("clock", "main"),
        |m| m.is_ahead_by = 4 * 365 * DAY,
        |m| {
            m.is_ahead_by = 0;
            // The snapshots of those years are in the way of the true ones.
            let listed = m.ok(&["--json", "snapshots"]);
            let snapshots: Vec<serde_json::Value> =
                listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let now = jiff::Timestamp::from_second(m.time).unwrap();
            let is_future = |one: &&serde_json::Value| {
                one["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap() > now
            };
            for one in snapshots.iter().filter(is_future) {
                m.ok(&["forget", one["id"].as_str().unwrap()]);
            }
        },
    );
    machine.stops(
        "a file is unread three times",
        snapshot("home"),
        |m| {
            let locked = path(m, "home/locked");
            fs::write(&locked, "x").unwrap();
            if is_root() {
                m.is_nobody = true;
                m.sandbox.give_to(NOBODY);
                std::os::unix::fs::chown(&locked, Some(0), Some(0)).unwrap();
            }
            fs::set_permissions(&locked, fs::Permissions::from_mode(if is_root() { 0o600 } else { 0 }))
                .unwrap();
        },
        |m| fs::remove_file(path(m, "home/locked")).unwrap(),
    );
}
