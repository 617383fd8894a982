//! `docs/guide/from-restic.md` and `from-borg.md`: each command in their tables is run, in the
//! order of the page. Commands that mount are left out: other tests mount.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::changing_folder::{has_all, text};
use crate::sandbox::Sandbox;

const FROM_RESTIC: &str = include_str!("../../../../docs/guide/from-restic.md");
const FROM_BORG: &str = include_str!("../../../../docs/guide/from-borg.md");
const PASSPHRASE: &str = "a pass phrase";

/// The commands in each row of a page's table: theirs, and ours.
fn rows(page: &'static str) -> Vec<[Vec<&'static str>; 2]> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let cells = rows.map(|row| row.split('|').collect::<Vec<_>>());
    cells.map(|cells| [commands(cells[2]), commands(cells[3])]).collect()
}

/// The texts in code font that are commands, and neither options nor variables.
fn commands(cell: &str) -> Vec<&str> {
    let is_command =
        |text: &&str| text.starts_with(|c: char| c.is_ascii_lowercase()) && !text.starts_with("mount");
    cell.split('`').skip(1).step_by(2).filter(is_command).collect()
}

/// The words of a command. Quotation marks hold words together.
fn words(command: &str) -> Vec<String> {
    let parts = command.split('\'').enumerate();
    let words = parts.flat_map(|(number, part)| match number % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

/// The files of a page.
struct Stage {
    sandbox: Sandbox,
    made: u32,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { sandbox: Sandbox::empty(), made: 0 };
        std::fs::create_dir(stage.sandbox.path("home")).unwrap();
        std::fs::write(stage.sandbox.path("home/a"), b"a file").unwrap();
        std::fs::write(stage.sandbox.path("file"), b"more than thirty-two bytes for a key").unwrap();
        std::fs::set_permissions(stage.sandbox.path("file"), PermissionsExt::from_mode(0o600)).unwrap();
        stage
    }

    fn path(&self, name: &str) -> String {
        text(self.sandbox.path(name))
    }

    /// A word of the page, with the names of this test's files.
    fn word(&mut self, word: &str) -> String {
        let home = self.path("home");
        match word {
            "DIR" => {
                self.made += 1;
                let folder: PathBuf = self.sandbox.path(&format!("made-{}", self.made));
                std::fs::create_dir(&folder).unwrap();
                text(folder)
            }
            "FILE" => self.path("file"),
            "COPY" => self.path("copy"),
            "R" => self.path("R"),
            "home/a" => format!("{}/a", home.trim_start_matches('/')),
            word if word.starts_with("R::") => format!("{}{}", self.path("R"), &word[1..]),
            word if word == "/home" || word.starts_with("/home/") => format!("{home}{}", &word[5..]),
            word => word.to_owned(),
        }
    }

    /// Runs a command of a page, which must succeed.
    #[track_caller]
    fn run(&mut self, mut command: Command, line: &str) -> String {
        let input = File::open(self.sandbox.path("home/a")).unwrap();
        let words: Vec<String> = words(line).iter().map(|word| self.word(word)).collect();
        let output = command.args(&words).stdin(input).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {told}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn run_ours(&mut self, line: &str) {
        let command = self.sandbox.command();
        self.run(command, line);
    }
}

#[test]
fn the_commands_beside_those_of_restic() {
    if !has_all(&["restic"]) {
        return;
    }
    let mut stage = Stage::new();
    let restic = |stage: &mut Stage, line: &str| {
        let mut command = Command::new("restic");
        command.env("RESTIC_PASSWORD", PASSPHRASE).args(["--no-cache", "-r"]).arg(stage.sandbox.path("R"));
        stage.run(command, line)
    };
    let rows = rows(FROM_RESTIC);
    assert!(rows.len() >= 18, "{rows:?}");
    for (number, [theirs, ours]) in rows.iter().enumerate() {
        for line in theirs {
            let mut line = (*line).to_owned();
            if line.contains("ID ID") {
                line = line.replace("ID ID", &two_ids(&restic(&mut stage, "snapshots --json")));
            }
            // The name of this command depends on the version.
            if !line.starts_with("repair") {
                restic(&mut stage, &line);
            }
        }
        ours.iter().for_each(|line| stage.run_ours(line));
        if number == 0 {
            restic(&mut stage, "backup /home");
            stage.run_ours("snapshot /home --time 2026-05-01");
        }
    }
}

/// Two ids in restic's list of snapshots.
fn two_ids(list: &str) -> String {
    let list: serde_json::Value = serde_json::from_str(list).unwrap();
    let id = |place: usize| list[place]["short_id"].as_str().unwrap();
    format!("{} {}", id(0), id(1))
}

#[test]
fn the_commands_beside_those_of_borg() {
    if !has_all(&["borg"]) {
        return;
    }
    let mut stage = Stage::new();
    let borg = |stage: &mut Stage, line: &str| {
        let mut command = Command::new("borg");
        command.env("BORG_BASE_DIR", stage.sandbox.path("borg-base")).env("BORG_PASSPHRASE", PASSPHRASE);
        command.env("BORG_CHECK_I_KNOW_WHAT_I_AM_DOING", "YES");
        command.env("BORG_NEW_PASSPHRASE", PASSPHRASE).current_dir(stage.sandbox.path(""));
        stage.run(command, line)
    };
    let rows = rows(FROM_BORG);
    assert!(rows.len() >= 15, "{rows:?}");
    for (number, [theirs, ours]) in rows.iter().enumerate() {
        theirs.iter().for_each(|line| drop(borg(&mut stage, line)));
        ours.iter().for_each(|line| stage.run_ours(line));
        if number == 0 {
            borg(&mut stage, "create R::A /home");
            borg(&mut stage, "create R::B /home");
            stage.run_ours("snapshot /home --time 2026-05-01");
        }
    }
}
