//! `README.md`: the commands that it gives to a new user work as they are written, in their order.

use std::fs;
use std::process::Command;

use crate::sandbox::{Run, Sandbox};

const PAGE: &str = include_str!("../../../../README.md");
/// The day of a past snapshot, which the page names.
const PAST: &str = "2026-05-01";

/// The commands outside of sessions, without their comments.
fn commands() -> Vec<&'static str> {
    let blocks = PAGE.split("```text\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).filter(|line| line.starts_with("varve "));
    lines.map(|line| line.split(" #").next().unwrap().trim_end()).collect()
}

#[test]
fn the_commands_of_the_readme_work() {
    let sandbox = Sandbox::empty();
    fs::create_dir_all(sandbox.path("home/work")).unwrap();
    fs::create_dir(sandbox.path("mnt")).unwrap();
    fs::write(sandbox.path("home/work/notes.txt"), "buy milk\n").unwrap();
    fs::write(sandbox.path("vda"), vec![7; 1 << 20]).unwrap();
    let program = sandbox.command_without_store();
    // The places of the page lie in the sandbox.
    let placed = |command: &str| {
        let command = command.replace("/backup", &sandbox.arg("backup"));
        command.replace("/mnt/usb", &sandbox.arg("mnt/usb")).replace("/dev/vda", &sandbox.arg("vda"))
    };
    let run = |command: &str| {
        let mut shell = Command::new("sh");
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.env("PROGRAM", program.get_program()).env("HOME", sandbox.path("home"));
        shell.env("VARVE_PASSPHRASE", "correct horse battery staple").current_dir(sandbox.path(""));
        let script = format!("varve() {{ \"$PROGRAM\" \"$@\"; }}\n{}", placed(command));
        let run = Run::new(shell.args(["-c", &script]).output().unwrap());
        assert_eq!(run.code, Some(0), "{command}: {}{}", run.text(), run.stderr);
        run.text()
    };
    let commands = commands();
    assert!(commands.len() >= 9, "{commands:?}");
    for command in commands {
        match command {
            // The store is lost when it is made again from its copy.
            command if command.contains(" clone ") => fs::remove_dir_all(sandbox.path("backup")).unwrap(),
            command if command.contains(&format!("@{PAST}")) => {
                run(&format!("varve -s /backup/store snapshot ~/work --time {PAST}T02:00"));
            }
            _ => {}
        }
        let text = run(command);
        match command {
            command if command.ends_with("snapshots") => assert!(text.contains(" work "), "{text}"),
            command if command.contains(" ls ") => assert!(text.contains("notes.txt"), "{text}"),
            command if command.contains(" restore ") => {
                assert_eq!(fs::read(sandbox.path("notes.txt")).unwrap(), b"buy milk\n");
            }
            _ => {}
        }
    }
}
