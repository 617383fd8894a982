//! Repositories of the real borg.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::changing_folder::{DAYS, change, checksums, copy, differences, has_all, make, text};
use crate::sandbox::{Run, Sandbox, noise, write_program};

const PASSPHRASE: &str = "a pass phrase";

struct Borg {
    sandbox: Sandbox,
}

impl Borg {
    /// Makes an empty repository; `None` if a program is missing.
    fn new(encryption: &str) -> Option<Self> {
        if !has_all(&["borg", "rsync"]) {
            return None;
        }
        let borg = Self { sandbox: Sandbox::encrypted() };
        borg.ok(&["init", "--encryption", encryption, &borg.place()]);
        Some(borg)
    }

    fn repository(&self) -> PathBuf {
        self.sandbox.path("repository")
    }

    fn place(&self) -> String {
        text(self.repository())
    }

    fn archive(&self, name: &str) -> String {
        format!("{}::{name}", self.place())
    }

    fn with_environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("BORG_BASE_DIR", self.sandbox.path("borg-base")).env("BORG_PASSPHRASE", PASSPHRASE)
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) {
        let mut command = Command::new("borg");
        self.with_environment(&mut command).args(words).current_dir(self.sandbox.path("")).env("TZ", "UTC");
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {told}");
    }

    fn create(&self, name: &str, time: &str, paths: &[&str]) {
        let mut words =
            vec!["create", "--compression", "none", "--timestamp", time, "--comment", "a \"note\""];
        let archive = self.archive(name);
        words.push(&archive);
        words.extend(paths);
        self.ok(&words);
    }

    fn import(&self, words: &[&str]) -> Run {
        let mut command = self.sandbox.command();
        self.with_environment(&mut command).args(["import", "borg"]).arg(self.repository()).args(words);
        Run::new(command.output().unwrap())
    }

    #[track_caller]
    fn imports(&self, words: &[&str]) -> String {
        let run = self.import(words);
        assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
        run.text()
    }

    /// Restores an archive with borg itself.
    fn extracted(&self, name: &str) -> PathBuf {
        let folder = self.sandbox.path(&format!("theirs-{name}"));
        fs::create_dir(&folder).unwrap();
        let mut command = Command::new("borg");
        self.with_environment(&mut command).args(["extract", "--numeric-ids", &self.archive(name)]);
        assert!(command.current_dir(&folder).status().unwrap().success());
        folder
    }
}

/// The commands that borg was called with, through a script before it in `PATH`.
fn recorded(sandbox: &Sandbox, command: &mut Command) -> PathBuf {
    let (folder, log) = (sandbox.path("bin"), sandbox.path("borg-calls"));
    let path = std::env::var("PATH").unwrap();
    let script = format!(
        "#!/bin/sh\nPATH='{path}'\nfor word; do printf '%s\\n' \"$word\"; done >> '{}'\nexec borg \"$@\"\n",
        log.display()
    );
    write_program(&folder.join("borg"), &script);
    command.env("PATH", format!("{}:{path}", folder.display()));
    log
}

/// The names of the archives are not in the order of their times.
const NAMES: [&str; 5] = ["zulu", "yankee", "xray", "whisky", "victor"];

#[test]
fn every_archive_is_what_borg_restores() {
    let Some(borg) = Borg::new("repokey") else { return };
    let sandbox = &borg.sandbox;
    let home = sandbox.path("home");
    make(&home);
    for (day, name) in (0..DAYS).zip(NAMES) {
        if day > 0 {
            change(&home, day);
        }
        copy(&home, &sandbox.path(&format!("day-{day}")));
        borg.create(name, &format!("2025-06-0{}T03:00:00", day + 1), &[&text(home.clone())]);
    }
    let before = checksums(&borg.repository().join("data"));
    assert_eq!(borg.imports(&["--dry-run"]).lines().count(), 5);
    borg.imports(&[]);
    assert_eq!(checksums(&borg.repository().join("data")), before, "the repository is untouched");
    let listed = sandbox.json(["snapshots"]);
    assert_eq!(listed.len(), 5);
    assert_eq!((&listed[0]["name"], &listed[0]["time"]), (&"home".into(), &"2025-06-01T03:00:00Z".into()));
    let tags = listed[0]["tags"].as_array().unwrap();
    assert!(tags.contains(&"archive=zulu".into()) && tags.contains(&"comment=a \"note\"".into()), "{tags:?}");
    for ((day, name), one) in (0..DAYS).zip(NAMES).zip(&listed) {
        let ours = sandbox.arg(&format!("ours-{day}"));
        sandbox.ok(["restore", one["id"].as_str().unwrap(), &ours]);
        let theirs = borg.extracted(name).join(home.strip_prefix("/").unwrap());
        assert_eq!(differences(&theirs, Path::new(&ours)), "", "day {day}, borg's restore");
        assert_eq!(differences(&sandbox.path(&format!("day-{day}")), Path::new(&ours)), "", "day {day}");
    }
    assert_eq!(borg.imports(&[]).trim(), "5 snapshots imported before");
    let checked = borg.imports(&["--check"]);
    assert_eq!(checked.matches("no difference").count(), 5, "{checked}");

    // Both programs go on side by side: a new run reads only the new file.
    fs::write(home.join("one more"), noise(7, 1000)).unwrap();
    borg.create("uniform", "2025-06-09T03:00:00", &[&text(home.clone())]);
    let mut command = sandbox.command();
    let log = recorded(sandbox, &mut command);
    borg.with_environment(&mut command).args(["import", "borg"]).arg(borg.repository());
    assert!(command.status().unwrap().success());
    let calls = fs::read_to_string(log).unwrap();
    let read: Vec<_> = calls.lines().filter(|word| word.starts_with("pf:")).collect();
    assert_eq!(read, [format!("pf:{}/one more", text(home.clone()).trim_start_matches('/'))], "{calls}");
    sandbox.ok(["restore", "home", "ours-again"]);
    assert_eq!(differences(&home, &sandbox.path("ours-again")), "");
}

#[test]
fn several_paths_keep_their_places() {
    let Some(borg) = Borg::new("none") else { return };
    let sandbox = &borg.sandbox;
    fs::create_dir_all(sandbox.path("srv/www/deep")).unwrap();
    fs::create_dir_all(sandbox.path("etc")).unwrap();
    fs::write(sandbox.path("srv/www/deep/page"), b"page").unwrap();
    fs::write(sandbox.path("etc/hosts"), b"hosts").unwrap();
    borg.create("all-2025-06-02T03:00:00", "2025-06-02T03:00:00", &["srv/www", "etc"]);
    fs::write(sandbox.path("etc/hosts"), b"other").unwrap();
    borg.create("all-2025-06-01T03:00:00", "2025-06-01T03:00:00", &["srv/www/deep/page", "etc/hosts"]);
    borg.create("here", "2025-06-03T03:00:00", &["srv/.", "--exclude", "srv/www/deep"]);
    borg.imports(&["--archives", "all-*", "--check"]);
    let listed = sandbox.json(["snapshots"]);
    let names: Vec<_> = listed.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["all", "all"]);
    let cat = |path: &str| sandbox.ok(["cat", path]);
    assert_eq!((cat("all:srv/www/deep/page"), cat("all:etc/hosts")), ("page".into(), "hosts".into()));
    assert_eq!(cat(&format!("{}:etc/hosts", listed[0]["id"].as_str().unwrap())), "other");
    borg.imports(&["--check"]);
    assert_eq!(sandbox.json(["snapshots"]).len(), 3);
}

#[test]
fn damage_costs_only_the_files_that_need_it() {
    let Some(borg) = Borg::new("repokey") else { return };
    let home = borg.sandbox.path("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("whole"), noise(1, 100_000)).unwrap();
    borg.create("one", "2025-01-01T00:00:00", &[&text(home.clone())]);
    let first = segments(&borg.repository());
    fs::write(home.join("harmed"), noise(2, 100_000)).unwrap();
    fs::write(home.join("later"), noise(3, 3_000)).unwrap();
    borg.create("two", "2025-01-02T00:00:00", &[&text(home)]);
    let new = segments(&borg.repository()).into_iter().filter(|segment| !first.contains(segment));
    let harmed = new.max_by_key(|segment| fs::metadata(segment).unwrap().len()).unwrap();
    let mut bytes = fs::read(&harmed).unwrap();
    bytes[50_000] ^= 1;
    fs::write(&harmed, &bytes).unwrap();
    let run = borg.import(&[]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("harmed") && !run.stderr.contains("whole"), "{}", run.stderr);
    assert_eq!(borg.sandbox.json(["snapshots"]).len(), 2);
    for (name, bytes) in [("whole", noise(1, 100_000)), ("later", noise(3, 3_000))] {
        let cat = borg.sandbox.command().args(["cat", &format!("home:{name}")]).output().unwrap();
        assert_eq!(cat.stdout, bytes, "{name}");
    }
}

#[test]
fn a_wrong_passphrase_or_folder_is_refused() {
    let Some(borg) = Borg::new("repokey") else { return };
    let sandbox = &borg.sandbox;
    let told = sandbox.fails(1, ["import", "borg", &sandbox.arg("")]);
    assert!(told.contains("not a repository"), "{told}");
    let run = |variable: &str, value: &str| {
        let mut command = sandbox.command();
        borg.with_environment(&mut command).env(variable, value);
        let run = Run::new(command.args(["import", "borg"]).arg(borg.repository()).output().unwrap());
        assert_eq!(run.code, Some(1), "{}", run.stderr);
        run.stderr
    };
    let told = run("BORG_PASSPHRASE", "wrong");
    assert!(told.contains("BORG_PASSCOMMAND"), "{told}");
    let told = run("PATH", "/nonexistent");
    assert!(told.contains("borg is not installed") && told.contains("borgbackup"), "{told}");
}

fn segments(repository: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(repository.join("data")).unwrap().map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()));
    files.collect()
}

/// borg gives an archive a new id when its name or its comment changes.
#[test]
fn an_archive_with_a_new_name_is_known() {
    let Some(borg) = Borg::new("none") else { return };
    fs::create_dir(borg.sandbox.path("home")).unwrap();
    fs::write(borg.sandbox.path("home/a"), "content").unwrap();
    borg.create("home-1", "2026-05-01T01:00:00", &["home"]);
    borg.create("home-2", "2026-05-02T01:00:00", &["home"]);
    borg.imports(&["--name", "home"]);
    borg.ok(&["rename", &borg.archive("home-1"), "first"]);
    for _ in 0..2 {
        assert_eq!(borg.imports(&["--name", "home"]).trim(), "2 snapshots imported before");
    }
    // Another tree of the same time is another archive.
    borg.ok(&["delete", &borg.archive("home-2")]);
    fs::write(borg.sandbox.path("home/a"), "other content").unwrap();
    borg.create("again-2", "2026-05-02T01:00:00", &["home"]);
    assert!(borg.imports(&["--name", "home"]).contains("1 snapshot imported before"));
    assert_eq!(borg.sandbox.json(["snapshots"]).len(), 3);
}
