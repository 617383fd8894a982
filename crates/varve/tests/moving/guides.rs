//! `docs/guide/from-restic.md`, `from-borg.md`, and the habits in `moving-in.md`: each command in
//! their tables is run, in the order of the page. A command that mounts shows the file, and is
//! ended.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::changing_folder::{has_all, text};
use crate::mount_point::{Mount, can_mount, is_mounted, wait_until};
use crate::sandbox::{Sandbox, tool};

const FROM_RESTIC: &str = include_str!("../../../../docs/guide/from-restic.md");
const FROM_BORG: &str = include_str!("../../../../docs/guide/from-borg.md");
const MOVING_IN: &str = include_str!("../../../../docs/guide/moving-in.md");
const PASSPHRASE: &str = "a pass phrase";

/// The commands in each row of a page's table: theirs, and ours.
fn rows(page: &'static str) -> Vec<[Vec<&'static str>; 2]> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let cells = rows.map(|row| row.split('|').collect::<Vec<_>>());
    cells.map(|cells| [commands(cells[2]), commands(cells[3])]).collect()
}

/// The texts in code font that are commands, and neither options nor variables.
fn commands(cell: &str) -> Vec<&str> {
    let is_command = |text: &&str| text.starts_with(|c: char| c.is_ascii_lowercase());
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
        let words = self.words(line);
        let output = command.args(&words).stdin(input).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {told}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn words(&mut self, line: &str) -> Vec<String> {
        words(line).iter().map(|word| self.word(word)).collect()
    }

    fn run_ours(&mut self, line: &str) {
        let command = self.sandbox.command();
        if line.starts_with("mount") {
            self.mount(command, line, "", "home/a");
        } else {
            self.run(command, line);
        }
    }

    /// Runs a command of a page that stays until it is ended. The mounted folder, its last word,
    /// has the file at this place in one of the folders of `snapshots`.
    #[track_caller]
    fn mount(&mut self, mut command: Command, line: &str, snapshots: &str, file: &str) {
        if !can_mount(line) {
            return;
        }
        let words = self.words(line);
        let at = PathBuf::from(words.last().unwrap());
        let mut mount = Mount::start(
            {
                command.args(words);
                command
            },
            &at,
        );
        // An open folder would keep the mount busy.
        let shown = std::fs::read_dir(mount.path(snapshots)).unwrap().map(|one| one.unwrap().path());
        let shown: Vec<PathBuf> = shown.collect();
        let has_file = |one: &PathBuf| std::fs::read(one.join(file)).is_ok_and(|text| text == b"a file");
        assert!(shown.iter().any(has_file), "{line}");
        tool("fusermount3", [OsStr::new("-u"), at.as_os_str()]);
        assert!(mount.running.wait().success(), "{line}: {}", mount.running.complaints());
    }
}

#[test]
fn the_lines_of_habits() {
    let (_, habits) = MOVING_IN.split_once("## Habits at the terminal").unwrap();
    let mut stage = Stage::new();
    let rows = rows(habits);
    assert!(rows.len() >= 25, "{rows:?}");
    let lines = rows.iter().flat_map(|[lines, _]| lines).filter(|line| !line.starts_with("varve "));
    lines.for_each(|line| stage.run_ours(line));
}

#[test]
fn the_commands_beside_those_of_restic() {
    if !has_all(&["restic"]) {
        return;
    }
    let mut stage = Stage::new();
    let restic = |stage: &mut Stage, line: &str| stage.run(restic_command(stage), line);
    let rows = rows(FROM_RESTIC);
    assert!(rows.len() >= 18, "{rows:?}");
    for (number, [theirs, ours]) in rows.iter().enumerate() {
        for line in theirs {
            let mut line = (*line).to_owned();
            if line.contains("ID ID") {
                line = line.replace("ID ID", &two_ids(&restic(&mut stage, "snapshots --json")));
            }
            match line.split(' ').next() {
                Some("mount") => {
                    let (command, home) = (restic_command(&stage), stage.path("home"));
                    let file = format!("{}/a", home.trim_start_matches('/'));
                    stage.mount(command, &line, "snapshots", &file);
                }
                // The name of this command depends on the version.
                Some("repair") => {}
                _ => drop(restic(&mut stage, &line)),
            }
        }
        ours.iter().for_each(|line| stage.run_ours(line));
        if number == 0 {
            restic(&mut stage, "backup /home");
            stage.run_ours("snapshot /home --time 2026-05-01");
        }
    }
}

fn restic_command(stage: &Stage) -> Command {
    let mut command = Command::new("restic");
    command.env("RESTIC_PASSWORD", PASSPHRASE).args(["--no-cache", "-r"]).arg(stage.sandbox.path("R"));
    command
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
        for line in theirs {
            let is_mount = line.starts_with("mount");
            if is_mount && !(can_mount(line) && borg_can_mount()) {
                continue;
            }
            borg(&mut stage, line);
            if is_mount {
                // It goes on in the background.
                let at = stage.sandbox.path(&format!("made-{}", stage.made));
                wait_until("borg has mounted", || is_mounted(&at));
                let file = at.join("A").join(stage.path("home").trim_start_matches('/')).join("a");
                assert_eq!(std::fs::read(file).unwrap(), b"a file", "{line}");
                borg(&mut stage, &format!("umount {}", text(at.clone())));
                wait_until("borg has unmounted", || !is_mounted(&at));
            }
        }
        ours.iter().for_each(|line| stage.run_ours(line));
        if number == 0 {
            borg(&mut stage, "create R::A /home");
            borg(&mut stage, "create R::B /home");
            stage.run_ours("snapshot /home --time 2026-05-01");
        }
    }
}

/// Returns true if borg has a library that mounts. Otherwise prints that the row is skipped.
fn borg_can_mount() -> bool {
    let help = Command::new("borg").args(["mount", "R", "no folder"]).output().unwrap();
    let can = !String::from_utf8_lossy(&help.stderr).contains("not available");
    if !can {
        println!("skipped: borg mount, which needs pyfuse3 or llfuse");
    }
    can
}
