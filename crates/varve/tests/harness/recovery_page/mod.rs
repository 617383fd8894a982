//! Makes `docs/guide/recovery.md` executable: its commands, its table, and the output that it
//! quotes.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::sandbox::{Run, Sandbox, manifest, noise, sample_folder};

const PAGE: &str = include_str!("../../../../../docs/guide/recovery.md");

/// A row of the page's table.
#[derive(Debug)]
pub struct Row {
    pub what: String,
    /// The quoted messages of the program.
    pub quotes: Vec<String>,
    pub says_nothing: bool,
    /// The way back, and the commands in it.
    pub way: String,
    pub commands: Vec<String>,
}

/// Returns the texts between pairs of a mark such as `"`.
fn between(text: &str, mark: char) -> Vec<String> {
    text.split(mark)
        .skip(1)
        .step_by(2)
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

fn section(title: &str) -> &'static str {
    let (_, rest) =
        PAGE.split_once(&format!("## {title}\n")).unwrap_or_else(|| panic!("no section {title:?}"));
    rest.split("\n## ").next().unwrap()
}

/// Returns the rows of a section's table.
pub fn rows_of(title: &str) -> Vec<Row> {
    let lines = section(title).lines().filter(|line| line.starts_with('|')).skip(2);
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [what, says, way] = cells[..] else { panic!("not three cells: {line}") };
        let commands = between(way, '`').into_iter().filter(|code| code.starts_with("varve ")).collect();
        Row {
            what: what.into(),
            quotes: between(says, '"'),
            says_nothing: says.starts_with("nothing"),
            way: way.into(),
            commands,
        }
    };
    lines.map(row).collect()
}

/// Returns the messages of the program that a section quotes.
pub fn quotes_of(title: &str) -> Vec<String> {
    between(section(title), '"')
}

/// Returns the lines of a section that begin with a prompt.
pub fn commands_of(title: &str) -> Vec<&'static str> {
    section(title).lines().filter_map(|line| line.strip_prefix("$ ")).collect()
}

/// Makes the sources of the page, replicates them to `place`, and removes the store. Then runs each
/// command of the page with the names of this machine. `environment` has the settings for the
/// place.
pub fn my_disk_died(place: &str, environment: &[(String, String)]) {
    let sandbox = Sandbox::encrypted();
    let disk = noise(71, 2_500_000);
    sandbox.snapshot_bytes("web", &disk);
    fs::create_dir(sandbox.path("home")).unwrap();
    sample_folder(&sandbox.path("home/letters"));
    sandbox.ok(["snapshot", "home"]);
    let expected = manifest(&sandbox.path("home/letters"));
    let mut replicate = sandbox.command();
    let done = Run::new(replicate.args(["replicate", place]).envs(pairs(environment)).output().unwrap());
    assert_eq!(done.code, Some(0), "{}", done.stderr);

    // The machine is gone. Only the replica and the key are left.
    fs::remove_dir_all(sandbox.store()).unwrap();
    fs::remove_dir_all(sandbox.path("home")).unwrap();
    drop(fs::remove_dir_all(sandbox.path("cache")));
    let new_machine = sandbox.path("new");
    fs::create_dir_all(new_machine.join("backup")).unwrap();
    fs::write(new_machine.join("vdb"), noise(5, disk.len())).unwrap();
    let mut snapshots = String::new();
    for line in commands_of("My disk died") {
        let line = line
            .replace("sftp://backup.example/varve", place)
            .replace("/backup/store", new_machine.join("backup/store").to_str().unwrap())
            .replace("/dev/vdb", new_machine.join("vdb").to_str().unwrap());
        let run = follow(&sandbox, &new_machine, &line, environment);
        assert_eq!(run.code, Some(0), "{line}: {}{}", run.text(), run.stderr);
        if line.ends_with(" snapshots") {
            snapshots = run.text();
        }
    }
    assert!(snapshots.contains("web") && snapshots.contains("home"), "{snapshots}");
    assert!(fs::read(new_machine.join("vdb")).unwrap() == disk, "the disk is back");
    assert_eq!(manifest(&new_machine.join("letters")), expected, "the letters are back");
}

fn pairs(environment: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    environment.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// Runs a line as a person would type it.
fn follow(sandbox: &Sandbox, folder: &Path, line: &str, environment: &[(String, String)]) -> Run {
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("varve"), "{line}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    for variable in ["VARVE_STORE", "VARVE_PASSPHRASE", "VARVE_LOG", "VARVE_CACHE"] {
        command.env_remove(variable);
    }
    command.env("VARVE_KEY_FILE", sandbox.key().unwrap()).env("XDG_CACHE_HOME", folder.join("cache"));
    command.envs(pairs(environment)).env("TZ", "UTC").stdin(std::process::Stdio::null()).current_dir(folder);
    Run::new(command.args(words).output().unwrap())
}
