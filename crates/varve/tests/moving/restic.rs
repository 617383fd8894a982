//! Repositories of the real restic.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::changing_folder::{DAYS, change, checksums, copy, differences, has_all, make, text};
use crate::sandbox::{Sandbox, noise};

const PROGRAMS: [&str; 2] = ["restic", "rsync"];
const PASSWORD: &str = "a pass word";

struct Restic<'a> {
    sandbox: &'a Sandbox,
}

impl<'a> Restic<'a> {
    /// Makes an empty repository.
    fn with_repository(sandbox: &'a Sandbox) -> Self {
        let restic = Self { sandbox };
        restic.ok(&["init"]);
        restic
    }

    fn repository(&self) -> PathBuf {
        self.sandbox.path("repository")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("restic");
        command.env("RESTIC_PASSWORD", PASSWORD).env("RESTIC_REPOSITORY", self.repository());
        command.env("RESTIC_CACHE_DIR", self.sandbox.path("restic-cache"));
        command.args(["--quiet", "--no-cache"]).args(words).current_dir(self.sandbox.path(""));
        command
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {told}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The ids of all snapshots, the oldest first.
    fn ids(&self) -> Vec<String> {
        let snapshots: serde_json::Value = serde_json::from_str(&self.ok(&["snapshots", "--json"])).unwrap();
        snapshots.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    }

    fn import(&self, words: &[&str]) -> crate::sandbox::Run {
        let mut command = self.sandbox.command();
        command
            .env("RESTIC_PASSWORD", PASSWORD)
            .args(["import", "restic"])
            .arg(self.repository())
            .args(words);
        crate::sandbox::Run::new(command.output().unwrap())
    }

    #[track_caller]
    fn imports(&self, words: &[&str]) -> String {
        let run = self.import(words);
        assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
        run.text()
    }
}

/// The id of our snapshot of a foreign one.
fn imported(sandbox: &Sandbox, id: &str) -> String {
    let tag = format!("import=restic:{id}");
    let all = sandbox.json(["snapshots"]);
    let found = all.iter().find(|one| one["tags"].as_array().unwrap().iter().any(|one| *one == *tag));
    found.unwrap_or_else(|| panic!("{tag} was not imported"))["id"].as_str().unwrap().to_owned()
}

/// A sandbox for a repository that is not made yet; `None` if a program is missing.
fn sandbox() -> Option<Sandbox> {
    has_all(&PROGRAMS).then(Sandbox::encrypted)
}

#[test]
fn every_day_is_what_restic_restores() {
    let Some(sandbox) = sandbox() else { return };
    let restic = Restic::with_repository(&sandbox);
    let home = sandbox.path("home");
    make(&home);
    for day in 0..DAYS {
        if day > 0 {
            change(&home, day);
        }
        copy(&home, &sandbox.path(&format!("day-{day}")));
        let time = format!("2025-06-0{} 03:00:00", day + 1);
        restic.ok(&["backup", &text(home.clone()), "--host", "web1", "--tag", "nightly", "--time", &time]);
    }
    let before = checksums(&restic.repository());
    let planned = restic.imports(&["--dry-run"]);
    assert_eq!(planned.lines().count(), 5, "{planned}");
    restic.imports(&[]);
    assert_eq!(checksums(&restic.repository()), before, "the repository is untouched");
    let listed = sandbox.json(["snapshots"]);
    assert_eq!(listed.len(), 5);
    assert_eq!(listed[0]["time"], "2025-06-01T03:00:00Z");
    assert_eq!((&listed[0]["name"], &listed[0]["host"]), (&"home".into(), &"web1".into()));
    for (day, id) in restic.ids().iter().enumerate() {
        let (theirs, ours) = (sandbox.path(&format!("theirs-{day}")), sandbox.arg(&format!("ours-{day}")));
        restic.ok(&["restore", id, "--target", &text(theirs.clone())]);
        sandbox.ok(["restore", &imported(&sandbox, id), &ours]);
        let theirs = theirs.join(home.strip_prefix("/").unwrap());
        assert_eq!(differences(&theirs, Path::new(&ours)), "", "day {day}, restic's restore");
        assert_eq!(differences(&sandbox.path(&format!("day-{day}")), Path::new(&ours)), "", "day {day}");
        fs::remove_dir_all(&theirs).unwrap();
    }
    let again = restic.imports(&[]);
    assert_eq!(again.trim(), "5 snapshots imported before");
    let checked = restic.imports(&["--check", "--report", "report"]);
    assert_eq!(checked.matches("no difference").count(), 5, "{checked}");
    assert_eq!(fs::read_to_string(sandbox.path("report")).unwrap().lines().count(), 5);
    sandbox.ok(["verify"]);

    // Both programs go on side by side: the next import reads only what is new.
    fs::write(home.join("one more"), noise(7, 1000)).unwrap();
    restic.ok(&["backup", &text(home.clone()), "--host", "web1", "--time", "2025-06-09 03:00:00"]);
    restic.imports(&[]);
    let listed = sandbox.json(["snapshots"]);
    assert_eq!(listed.len(), 6);
    assert!(listed[5]["new_bytes"].as_u64().unwrap() < 200_000, "{}", listed[5]);
    let ours = sandbox.arg("ours-again");
    sandbox.ok(["restore", &imported(&sandbox, restic.ids().last().unwrap()), &ours]);
    assert_eq!(differences(&home, Path::new(&ours)), "");
}

/// A snapshot of our own continues the imported ones, and reads no unchanged file.
#[test]
fn a_snapshot_continues_the_imported_ones() {
    let Some(sandbox) = sandbox() else { return };
    let restic = Restic::with_repository(&sandbox);
    let home = sandbox.path("home");
    make(&home);
    restic.ok(&["backup", &text(home.clone()), "--time", "2099-01-01 00:00:00"]);
    restic.imports(&[]);
    let mut command = sandbox.command();
    command.args(["--json", "snapshot", "--name", "home"]).arg(&home);
    let run = crate::sandbox::Run::new(command.output().unwrap());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let taken = run.result();
    assert_eq!((&taken["new_files"], &taken["changed_files"]), (&0.into(), &0.into()), "{taken}");
    assert!(taken["new_bytes"].as_u64().unwrap() < 50_000, "{taken}");
}

/// Twelve sources of the same files: each content is read once.
#[test]
fn equal_files_of_several_sources_are_read_once() {
    let Some(sandbox) = sandbox() else { return };
    let restic = Restic::with_repository(&sandbox);
    for source in 0..12 {
        let folder = sandbox.path(&format!("source-{source}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("same"), noise(1, 2_000_000)).unwrap();
        fs::write(folder.join("own"), noise(50 + source, 1_000)).unwrap();
        restic.ok(&["backup", &text(folder)]);
    }
    let text = restic.imports(&[]);
    assert_eq!(text.lines().count(), 12);
    let listed = sandbox.json(["snapshots"]);
    let new: Vec<u64> = listed.iter().map(|one| one["new_bytes"].as_u64().unwrap()).collect();
    assert!(new[0] > 2_000_000 && new[1..].iter().all(|bytes| *bytes < 20_000), "{new:?}");
    let names: std::collections::BTreeSet<_> = listed.iter().map(|one| one["name"].to_string()).collect();
    assert_eq!(names.len(), 12, "each source has a name of its own");
}

/// Writes a file of a repository, which only root may do as long as it is read-only.
fn overwrite(file: &Path, bytes: &[u8]) {
    fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(file, bytes).unwrap();
}

#[test]
fn damage_costs_only_the_files_that_need_it() {
    let Some(sandbox) = sandbox() else { return };
    let restic = Restic::with_repository(&sandbox);
    let home = sandbox.path("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("whole"), noise(1, 100_000)).unwrap();
    restic.ok(&["backup", &text(home.clone()), "--time", "2025-01-01 00:00:00"]);
    let first = packs(&restic.repository());
    fs::write(home.join("harmed"), noise(2, 100_000)).unwrap();
    restic.ok(&["backup", &text(home.clone()), "--time", "2025-01-02 00:00:00"]);
    // The pack with the data of `harmed` is the largest new one.
    let new = packs(&restic.repository()).into_iter().filter(|pack| !first.contains(pack));
    let harmed = new.max_by_key(|pack| fs::metadata(pack).unwrap().len()).unwrap();
    let mut bytes = fs::read(&harmed).unwrap();
    bytes[50_000] ^= 1;
    overwrite(&harmed, &bytes);
    let run = restic.import(&[]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("harmed") && !run.stderr.contains("whole"), "{}", run.stderr);
    assert_eq!(sandbox.json(["snapshots"]).len(), 2);
    let cat = sandbox.command().args(["cat", "home:whole"]).output().unwrap();
    assert_eq!(cat.stdout, noise(1, 100_000));

    // Without its index, the blobs are found in the packs.
    for index in fs::read_dir(restic.repository().join("index")).unwrap() {
        overwrite(&index.unwrap().path(), b"not an index");
    }
    let other = Sandbox::encrypted();
    let mut command = other.command();
    command.env("RESTIC_PASSWORD", PASSWORD).args(["import", "restic"]).arg(restic.repository());
    let run = crate::sandbox::Run::new(command.output().unwrap());
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert_eq!(other.json(["snapshots"]).len(), 2);
    let cat = other.command().args(["cat", "home:whole"]).output().unwrap();
    assert_eq!(cat.stdout, noise(1, 100_000));
}

#[test]
fn a_wrong_password_or_folder_is_refused() {
    let Some(sandbox) = sandbox() else { return };
    let restic = Restic::with_repository(&sandbox);
    let mut command = sandbox.command();
    command.env("RESTIC_PASSWORD", "wrong").args(["import", "restic"]).arg(restic.repository());
    let run = crate::sandbox::Run::new(command.output().unwrap());
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("password"), "{}", run.stderr);
    // Without a password, it is not asked for.
    let told = sandbox.fails(1, ["import", "restic", &sandbox.arg("")]);
    assert!(told.contains("not a repository") && !told.contains("password"), "{told}");
}

fn packs(repository: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(repository.join("data")).unwrap().map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()));
    files.collect()
}

/// restic gives a snapshot a new id when its tags change, and notes the first one.
#[test]
fn a_snapshot_with_a_new_id_is_known() {
    if !has_all(&PROGRAMS) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let restic = Restic::with_repository(&sandbox);
    fs::create_dir(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/a"), "content").unwrap();
    restic.ok(&["backup", "home"]);
    restic.imports(&[]);
    restic.ok(&["tag", "--add", "nightly"]);
    assert_eq!(restic.imports(&[]).trim(), "1 snapshot imported before");
    // The second new id has the first one as its origin, and so has the id that was imported.
    let other = Sandbox::encrypted();
    let import = |words: &[&str]| {
        let mut command = other.command();
        command.env("RESTIC_PASSWORD", PASSWORD).args(["import", "restic"]).arg(restic.repository());
        crate::sandbox::Run::new(command.args(words).output().unwrap())
    };
    assert_eq!(import(&[]).code, Some(0));
    restic.ok(&["tag", "--add", "weekly"]);
    assert_eq!(import(&["--dry-run"]).text().trim(), "1 snapshot imported before");
    assert_eq!(import(&[]).text().trim(), "1 snapshot imported before");
    assert_eq!(other.json(["snapshots"]).len(), 1);
}

/// The name of a series does not change when another host or path joins.
#[test]
fn a_series_goes_on_whatever_joins() {
    if !has_all(&PROGRAMS) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let restic = Restic::with_repository(&sandbox);
    fs::create_dir(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/a"), "content").unwrap();
    restic.ok(&["backup", "--host", "one", "home"]);
    restic.imports(&[]);
    restic.ok(&["backup", "--host", "two", "home"]);
    fs::write(sandbox.path("home/b"), "content").unwrap();
    restic.ok(&["backup", "--host", "one", "home"]);
    restic.imports(&[]);
    let series: Vec<_> = sandbox
        .json(["snapshots"])
        .iter()
        .map(|one| (one["host"].as_str().unwrap().to_owned(), one["name"].as_str().unwrap().to_owned()))
        .collect();
    let of =
        |host: &str| series.iter().filter(|one| one.0 == host).map(|one| one.1.clone()).collect::<Vec<_>>();
    assert_eq!(of("one"), ["home", "home"]);
    assert_eq!(of("two"), ["two-home"]);
}
