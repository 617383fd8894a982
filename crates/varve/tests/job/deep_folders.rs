//! Folders that are deeper than any path: Linux makes them, one name at a time. Any user can, and
//! all others must have their backups.

use crate::sandbox;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags};
use sandbox::Sandbox;

/// Deeper than a recursive walk can be on the stack of a thread, and than 4,096 bytes of path.
const DEPTH: usize = 3000;

/// A folder with a chain of folders in it, and a file at its end.
struct DeepFolder(PathBuf);

fn open(at: &OwnedFd, name: &str) -> OwnedFd {
    rustix::fs::openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

impl DeepFolder {
    fn make(root: PathBuf, name: &str, depth: usize) -> Self {
        fs::create_dir_all(&root).unwrap();
        let mut folder = rustix::fs::openat(CWD, &root, OFlags::RDONLY, Mode::empty()).unwrap();
        for _ in 0..depth {
            rustix::fs::mkdirat(&folder, name, Mode::RWXU).unwrap();
            folder = open(&folder, name);
        }
        let file = OFlags::WRONLY | OFlags::CREATE;
        let file = rustix::fs::openat(&folder, "leaf", file, Mode::RWXU).unwrap();
        rustix::io::write(&file, b"leaf").unwrap();
        Self(root)
    }

    /// The depth of the chain, and the content of the file at its end.
    fn look(root: &Path, name: &str) -> (usize, Vec<u8>) {
        let mut folder = rustix::fs::openat(CWD, root, OFlags::RDONLY, Mode::empty()).unwrap();
        let mut depth = 0;
        while let Ok(below) = rustix::fs::openat(&folder, name, OFlags::RDONLY, Mode::empty()) {
            (folder, depth) = (below, depth + 1);
        }
        let mut bytes = [0; 9];
        let file = rustix::fs::openat(&folder, "leaf", OFlags::RDONLY, Mode::empty()).unwrap();
        let count = rustix::io::read(file, &mut bytes).unwrap();
        (depth, bytes[..count].to_vec())
    }
}

impl Drop for DeepFolder {
    /// The standard library would need a descriptor for each folder.
    fn drop(&mut self) {
        let names =
            |folder: &Path| fs::read_dir(folder).map(|all| all.flatten().collect()).unwrap_or_default();
        let mut waiting = vec![self.0.clone()];
        let mut number = 0;
        while let Some(folder) = waiting.pop() {
            let entries: Vec<fs::DirEntry> = names(&folder);
            for entry in entries {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    number += 1;
                    let up = self.0.with_extension(format!("gone-{number}"));
                    if fs::rename(entry.path(), &up).is_ok() {
                        waiting.push(up);
                    }
                } else {
                    drop(fs::remove_file(entry.path()));
                }
            }
            drop(fs::remove_dir(&folder));
        }
    }
}

#[test]
fn a_deep_folder_is_archived_and_stops_nobody() {
    let sandbox = Sandbox::encrypted();
    let folder = DeepFolder::make(sandbox.path("home"), "d", DEPTH);
    fs::write(folder.0.join("work"), "of another user").unwrap();
    sandbox.ok(["snapshot", "home"]);
    sandbox.ok(["snapshot", "home"]);
    for args in [
        &["verify"][..],
        &["verify", "--data"],
        &["stats", "--snapshots"],
        &["forget", "--keep-last", "1"],
        &["gc"],
        &["verify"],
        &["drill", "home"],
        &["diff", "home", "home"],
        &["find", "work", "home"],
        &["repair", "--plan"],
    ] {
        let run = sandbox.run(args);
        assert_eq!(run.code, Some(0), "{args:?}: {}", run.stderr.chars().take(500).collect::<String>());
    }
    sandbox.ok(["restore", "home", "out"]);
    let _out = DeepFolder(sandbox.path("out"));
    assert_eq!(DeepFolder::look(&sandbox.path("out"), "d"), (DEPTH, b"leaf".to_vec()));
    // Another store takes it, too.
    let other = Sandbox::encrypted();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (from, to) = (text(sandbox.store()), text(other.store()));
    other.ok(["copy", "--from-key-file", &text(sandbox.key().unwrap()), &from, "home", &to]);
    assert_eq!(other.run(["verify"]).code, Some(0));
}

#[test]
fn a_path_beyond_the_limit_is_named_and_the_rest_is_archived() {
    let sandbox = Sandbox::encrypted();
    let name = "n".repeat(250);
    let folder = DeepFolder::make(sandbox.path("home"), &name, 100);
    fs::write(folder.0.join("work"), "of another user").unwrap();
    let run = sandbox.run(["snapshot", "home"]);
    assert_eq!(run.code, Some(3));
    assert_eq!(run.stderr.matches("those that are archived have at most 16128").count(), 1);
    let planned = sandbox.run(["snapshot", "--dry-run", "home"]);
    assert_eq!(planned.code, Some(3));
    assert_eq!(planned.stderr.matches("have at most 16128").count(), 1, "{}", planned.stderr.len());
    for args in [&["verify"][..], &["gc"], &["drill", "home"]] {
        assert_eq!(sandbox.run(args).code, Some(0), "{args:?}");
    }
    assert_eq!(sandbox.run(["cat", "home:work"]).stdout, b"of another user");
}

#[test]
fn a_folder_deeper_than_the_open_files_leaves_some_for_the_rest() {
    let sandbox = Sandbox::encrypted();
    let folder = DeepFolder::make(sandbox.path("home"), "d", 400);
    fs::write(folder.0.join("work"), "of another user").unwrap();
    let mut snapshot = sandbox.command();
    snapshot.args(["snapshot", "home"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 300; exec \"$0\" \"$@\""]).arg(snapshot.get_program());
    limited.args(snapshot.get_args());
    for (key, value) in snapshot.get_envs() {
        match value {
            Some(value) => limited.env(key, value),
            None => limited.env_remove(key),
        };
    }
    limited.current_dir(snapshot.get_current_dir().unwrap());
    let run = sandbox::Run::new(limited.output().unwrap());
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert_eq!(run.stderr.matches("`ulimit -n`").count(), 1, "{}", run.stderr);
    assert_eq!(sandbox.run(["cat", "home:work"]).stdout, b"of another user");
    assert_eq!(sandbox.run(["verify"]).code, Some(0));
}
