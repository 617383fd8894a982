//! All help texts, and the output of the ten main commands, compared with golden files.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::golden_text::{Scrubber, check, check_names};
use crate::sandbox::{Run, Sandbox, noise, write_at};

/// Groups, whose commands have their own names, too.
const GROUPS: [&str; 5] = ["daily", "mark", "store", "disk", "tools"];

/// Checks the help of a command and of each of its subcommands.
fn helps(sandbox: &Sandbox, program: &str, command: &[String], found: &mut Vec<String>) {
    let mut words = command.to_vec();
    words.push("--help".into());
    let help = sandbox.ok(&words);
    let name = format!("{}.txt", [&[program.to_owned()], command].concat().join("-"));
    check(&format!("help/{name}"), &help);
    found.push(name);
    if matches!(command, [group] if GROUPS.contains(&group.as_str())) {
        return;
    }
    // The commands of the archive stand under several headings.
    let first = if command.is_empty() && program == "varve" { "Daily work:" } else { "Commands:" };
    let listed = help.lines().skip_while(|line| *line != first).skip(1);
    let is_command = |line: &&str| line.starts_with("  ") && !line[2..].starts_with([' ', '-']);
    for line in listed.take_while(|line| *line != "Options:").filter(is_command) {
        let own = line.split_whitespace().next().unwrap();
        if own != "help" {
            helps(sandbox, program, &[command, &[own.to_owned()]].concat(), found);
        }
    }
}

#[test]
fn the_help_of_every_command() {
    let mut found = Vec::new();
    helps(&Sandbox::empty(), "varve", &[], &mut found);
    helps(&Sandbox::empty().planner(), "varve-plan", &[], &mut found);
    assert!(found.len() > 25, "{found:?}");
    check_names("help", &found);
}

/// Writes a file whose mode and times are the same in each run.
fn write(path: &Path, contents: &[u8], hours: u64) {
    fs::write(path, contents).unwrap();
    settle(path, 0o644, hours);
}

fn settle(path: &Path, mode: u32, hours: u64) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    // 1 May 2026.
    let time = UNIX_EPOCH + Duration::from_secs(1_777_593_600 + hours * 3600);
    File::open(path).unwrap().set_modified(time).unwrap();
}

struct Transcript {
    sandbox: Sandbox,
    scrubber: Scrubber,
    text: String,
}

impl Transcript {
    fn run(&mut self, command: &str) {
        let mut all = self.sandbox.command();
        let Run { code, stdout, stderr } = Run::new(all.args(command.split(' ')).output().unwrap());
        let printed = String::from_utf8(stdout).unwrap() + &stderr;
        let status = if code == Some(0) { String::new() } else { format!("(status {})\n", code.unwrap()) };
        let text = format!("$ varve {command}\n{printed}{status}\n");
        self.text += &self.scrubber.scrub(&text);
    }
}

#[test]
fn the_output_of_the_main_commands() {
    let mut sandbox = Sandbox::empty();
    sandbox.set_key(None);
    let names = Scrubber::default().replace(sandbox.arg(""), "/SANDBOX/");
    let folder = fs::metadata(sandbox.path("")).unwrap();
    let owner = format!(" {:>5} {:>5} ", folder.uid(), folder.gid());
    let host = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    let names = names.replace(owner, " UID GID ").replace(format!("  {host}  "), "  HOST  ");
    let mut transcript = Transcript { sandbox, scrubber: names, text: String::new() };
    let at = |name: &str| transcript.sandbox.path(name);
    let (home, deep, notes, arena) = (at("home"), at("home/deep"), at("home/notes.txt"), at("store/arenas"));
    fs::create_dir_all(&deep).unwrap();
    let data = noise(1, 300_000);
    write(&deep.join("data.bin"), &data, 1);
    write(&notes, b"buy milk\n", 1);
    settle(&deep, 0o755, 1);
    settle(&home, 0o755, 1);
    transcript.run("init --plaintext --arena-size 1M --parity 0");
    transcript.run("snapshot home --time 2026-05-01T23:00:00Z");
    write(&notes, b"buy bread\n", 24);
    write(&home.join("new.txt"), b"x", 24);
    settle(&home, 0o755, 24);
    transcript.run("snapshot home --dry-run");
    transcript.run("snapshot home --time 2026-05-02T23:00:00Z --tag kind=weekly -v");
    for command in [
        "snapshots",
        "snapshots --tag kind",
        "snapshots nonesuch",
        "ls home",
        "ls -l home",
        "ls home:deep",
        "find notes.txt",
        "find nonesuch",
        "diff home@2026-05-01 home",
        "restore home back --dry-run",
        "restore home back",
        "restore home back",
        "restore home:notes.txt missing/",
        "restore home back --overwrite if-changed",
        "stats",
        "verify",
        "verify --data",
        "repair",
    ] {
        transcript.run(command);
    }
    let arena = fs::read_dir(arena).unwrap().next().unwrap().unwrap().path();
    let stored = fs::read(&arena).unwrap();
    let place = stored.windows(64).position(|found| *found == data[1000..1064]).unwrap();
    write_at(&arena, place as u64, &[data[1000] ^ 1]);
    for command in [
        "verify --data",
        "restore home damaged",
        "restore home kept --keep-damaged",
        "repair --plan --data",
        "repair --data",
        "verify",
    ] {
        transcript.run(command);
    }
    check("output.txt", &transcript.text);
}
