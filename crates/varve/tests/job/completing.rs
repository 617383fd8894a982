//! Completion: the program is called as a shell calls it at each TAB.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use crate::sandbox::{Sandbox, has, sample_folder, write_program};

/// A store with two series, one of them on two hosts.
fn archived() -> Sandbox {
    let sandbox = Sandbox::encrypted();
    fs::create_dir_all(sandbox.path("home/anna/my files")).unwrap();
    fs::write(sandbox.path("home/anna/thesis.txt"), "text").unwrap();
    fs::write(sandbox.path("home/anna/control \u{1b}[2J"), "").unwrap();
    sample_folder(&sandbox.path("etc"));
    sandbox.ok(["snapshot", "home", "--time", "2026-05-01T20:00:00Z", "--tag", "why=test"]);
    sandbox.ok(["snapshot", "home", "--time", "2026-05-02T20:00:00Z"]);
    for host in ["web1", "web2"] {
        let mut command = sandbox.command();
        command.env("VARVE_HOST", host).args(["snapshot", "etc", "--time", "2026-05-03"]);
        assert!(command.status().unwrap().success());
    }
    sandbox
}

/// Returns the words `varve --store S --key-file K` and then these.
fn line(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let store = ["varve", "--store", sandbox.store().to_str().unwrap()].map(str::to_owned);
    let key = sandbox.key().map(|key| ["--key-file".to_owned(), key.to_str().unwrap().to_owned()]);
    let words = words.iter().map(|word| (*word).to_owned());
    store.into_iter().chain(key.into_iter().flatten()).chain(words).collect()
}

/// Returns the candidates for the last word, without their descriptions.
fn candidates(sandbox: &Sandbox, shell: &str, words: &[&str]) -> Vec<String> {
    completed(sandbox.command_without_store(), shell, &line(sandbox, words))
}

fn completed(mut command: Command, shell: &str, words: &[String]) -> Vec<String> {
    command.env("VARVE_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    command.env("_CLAP_IFS", "\n").arg("--").args(words);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn snapshots_and_paths_complete() {
    let sandbox = archived();
    let found = |words: &[&str]| candidates(&sandbox, "fish", words);
    assert_eq!(found(&["snapshots", "h"]), ["home"]);
    assert_eq!(found(&["ls", "h"]), ["home", "home:"], "a path may follow");
    assert_eq!(found(&["ls", "home:"]), ["home:anna/"]);
    assert_eq!(found(&["cat", "home:anna/"]), ["home:anna/my files/", "home:anna/thesis.txt"]);
    assert_eq!(found(&["ls", "home@2026-05-01:anna/t"]), ["home@2026-05-01:anna/thesis.txt"]);
    assert_eq!(found(&["diff", "home@", ""])[..2], ["etc", "home"], "only the last word is completed");
    assert_eq!(found(&["diff", "home@"]), ["home@2026-05-02", "home@2026-05-01"]);
    assert_eq!(found(&["tag", "e"]), ["etc"]);
    assert_eq!(found(&["ls", "web1:"]), ["web1:etc"]);
    assert!(found(&["ls", "web1:etc:l"]).contains(&"web1:etc:letter.txt".to_owned()));
    assert_eq!(found(&["snapshots", "--host", "web"]), ["web1", "web2"]);
    assert_eq!(found(&["snapshots", "--tag", ""]), ["why=test"]);
    assert_eq!(found(&["prune", "--name", "h"]), ["home"]);
    assert_eq!(found(&["forget", "--path", "/"]).len(), 2);
    let id = &sandbox.ids()[0][..8];
    assert!(found(&["hold", &id[..4]]).contains(&id.to_owned()));
    // The destination of a restore is a path of this machine.
    assert_eq!(found(&["restore", "ho"]), ["home", "home:"]);
    assert!(
        found(&["restore", "home", "ho"]).iter().any(|one| one.starts_with("home") && one.ends_with('/'))
    );
    // Options and commands complete as before.
    assert_eq!(found(&["snapshots", "--gro"]), ["--group-by"]);
    assert!(found(&["sna"]).contains(&"snapshots".to_owned()));
    // A command has its own name, and that of another program only if nothing else is meant.
    let commands = found(&[""]);
    for (name, alias) in [("snapshot", "backup"), ("snapshots", "list"), ("verify", "check")] {
        assert!(commands.contains(&name.to_owned()) && !commands.contains(&alias.to_owned()), "{commands:?}");
    }
    assert_eq!(found(&["backu"]), ["backup"]);
    assert!(found(&["list", "h"]).contains(&"home".to_owned()));
}

#[test]
fn nothing_is_asked_written_or_started() {
    let mut sandbox = archived();
    let state = |path: &Path| -> Vec<(String, u64, SystemTime)> {
        let mut found: Vec<_> = ["", "arenas", "index", "keys"]
            .iter()
            .flat_map(|folder| fs::read_dir(path.join(folder)).unwrap())
            .map(|entry| {
                let (name, facts) = (entry.as_ref().unwrap().path(), entry.unwrap().metadata().unwrap());
                (name.display().to_string(), facts.len(), facts.modified().unwrap())
            })
            .collect();
        found.sort();
        found
    };
    let before = state(sandbox.store());
    assert_eq!(candidates(&sandbox, "fish", &["ls", "home:anna/th"]), ["home:anna/thesis.txt"]);
    assert_eq!(state(sandbox.store()), before);
    assert!(!sandbox.path("cache").exists() && !sandbox.path("state").exists());
    // A program with the key may ask, too.
    let program = sandbox.path("ask");
    write_program(&program, "#!/bin/sh\ntouch asked\ncat key\n");
    let command = format!("--key-file-command={}", program.display());
    let key = sandbox.key().map(Path::to_path_buf);
    sandbox.set_key(None);
    for words in [&["ls", "h"][..], &[&command, "ls", "h"], &["--passphrase-command=touch asked", "ls", "h"]]
    {
        assert_eq!(candidates(&sandbox, "fish", words), [""; 0]);
    }
    assert!(!sandbox.path("asked").exists());
    // A wrong key, no store, or a line that cannot be parsed has no candidates.
    fs::write(sandbox.path("key"), "another key of at least thirty-two bytes").unwrap();
    sandbox.set_key(key);
    assert_eq!(candidates(&sandbox, "fish", &["ls", "h"]), [""; 0]);
    sandbox.set_store(sandbox.path("none"));
    assert_eq!(candidates(&sandbox, "fish", &["ls", "h"]), [""; 0]);
    assert_eq!(candidates(&sandbox, "fish", &["--jsn", "--wait", "x", "ls", "h"]), [""; 0]);
}

/// Bash splits words at `:`, `@` and `=`, so its script is run in bash itself.
#[test]
fn bash_completes_whole_words() {
    if !has("bash") {
        return;
    }
    let sandbox = archived();
    let completed = |typed: &str| {
        let script = sandbox.ok(["completions", "bash"]);
        let parts = bash_words(typed);
        let test = format!(
            "{script}\nPATH={}:$PATH\ncompopt() {{ :; }}\nCOMP_LINE={line} COMP_POINT=${{#COMP_LINE}}\n\
             COMP_WORDS=({words}) COMP_CWORD={last}\n_varve varve {word}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
            Path::new(env!("CARGO_BIN_EXE_varve")).parent().unwrap().display(),
            line = quoted(typed),
            words = parts.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(" "),
            last = parts.len() - 1,
            word = quoted(parts.last().unwrap().trim_matches([':', '@', '='])),
        );
        let mut command = Command::new("bash");
        command.arg("-c").arg(test).env("VARVE_STORE", sandbox.store());
        command.env("VARVE_KEY_FILE", sandbox.key().unwrap()).env("TZ", "UTC").current_dir(sandbox.path(""));
        let output = command.output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completed("varve ls ho"), ["home", "home:"]);
    assert_eq!(completed("varve ls home:"), ["anna/"]);
    assert_eq!(completed("varve ls home:anna/m"), [r"anna/my\ files/"]);
    assert_eq!(completed(r"varve ls home:anna/my\ f"), [r"anna/my\ files/"]);
    assert_eq!(completed("varve ls \"home:anna/my f"), ["home:anna/my files/"]);
    assert_eq!(completed("varve ls home@2026-05-02:anna/t"), ["anna/thesis.txt"]);
    assert_eq!(completed("varve  diff home@"), ["2026-05-02", "2026-05-01"]);
    assert_eq!(completed("varve snapshots --host=we"), ["web1", "web2"]);
    assert_eq!(completed("varve snapshots --group"), ["--group-by"]);
    assert!(completed("varve ls ").contains(&"etc".to_owned()));
}

/// Splits a line as bash does: at blanks, and around its other separators, unless they are quoted.
fn bash_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quote, mut is_escaped) = (false, false);
    for one in line.chars() {
        match one {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => quote = !quote,
            ' ' if !quote => {
                if !words.last().unwrap().is_empty() {
                    words.push(String::new());
                }
                continue;
            }
            ':' | '@' | '=' if !quote => {
                if !words.last().unwrap().is_empty() {
                    words.push(String::new());
                }
                words.last_mut().unwrap().push(one);
                words.push(String::new());
                continue;
            }
            _ => {}
        }
        words.last_mut().unwrap().push(one);
    }
    // After a separator, the word to complete is the separator itself.
    if words.len() > 1 && words.last().unwrap().is_empty() && line.ends_with([':', '@', '=']) {
        words.pop();
    }
    words
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
