//! Daily work: sources that are frozen while they are read.
#![allow(clippy::print_stderr, reason = "says what it skipped")]
#![expect(clippy::disallowed_methods, reason = "runs are killed in real time")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::daily::{configure, daily, daily_ok, home, kill_runs, names, without_figures};
use crate::loop_device::{LoopDevice, LoopMount};
use crate::sandbox::{Run, Sandbox, copy_folder, is_root, noise, tool, write_program};

fn has(program: &str) -> bool {
    let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// Makes a sandbox with a folder `disk/home` on Btrfs; `None` if this machine cannot.
fn on_btrfs(rest: &str) -> Option<(Sandbox, LoopMount)> {
    let has_kind = fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("btrfs");
    if !is_root() || !has("mkfs.btrfs") || !has_kind {
        eprintln!("skipped: a Btrfs needs root, mkfs.btrfs and a kernel that has it");
        return None;
    }
    let sandbox = Sandbox::encrypted();
    let image = sandbox.path("btrfs.img");
    fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    tool("mkfs.btrfs", ["-q", image.to_str().unwrap()]);
    let disk = LoopMount::writable(&image, 0, &sandbox.path("disk"));
    fs::create_dir(sandbox.path("disk/home")).unwrap();
    fs::write(sandbox.path("disk/home/letter"), "dear").unwrap();
    configure(&sandbox, &source(rest));
    Some((sandbox, disk))
}

fn source(rest: &str) -> String {
    format!("[defaults]\nevery = \"day\"\n[source.home]\nfolder = \"disk/home\"\nfreeze = \"btrfs\"\n{rest}")
}

/// Puts a script in front of `btrfs` that does something after a snapshot was made.
fn after_freezing(sandbox: &Sandbox, script: &str) -> String {
    let program = sandbox.path("bin/btrfs");
    let text = format!(
        "#!/bin/sh\nPATH=${{PATH#*:}}\nbtrfs \"$@\" || exit\nif [ \"$2\" = snapshot ]; then {script}; fi\n"
    );
    write_program(&program, &text);
    format!("{}:{}", sandbox.arg("bin"), std::env::var("PATH").unwrap())
}

fn views(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().contains("varve-frozen")).collect()
}

#[test]
fn a_frozen_folder_is_read_in_the_state_of_one_moment() {
    let Some((sandbox, _disk)) = on_btrfs("exclude = [\"LARGE\"]\n") else { return };
    // A pattern with the absolute path of the source applies to the view, too.
    let large = sandbox.arg("disk/home/large");
    let config = fs::read_to_string(sandbox.path("varve.toml")).unwrap();
    fs::write(sandbox.path("varve.toml"), config.replace("LARGE", &large)).unwrap();
    fs::write(&large, noise(1, 100_000)).unwrap();
    let letter = sandbox.arg("disk/home/letter");
    let path = after_freezing(&sandbox, &format!("echo later > {letter}; echo x > {letter}.new"));
    let mut command = sandbox.command();
    let run = Run::new(command.args(["run", "--config", "varve.toml"]).env("PATH", path).output().unwrap());
    assert_eq!(
        (run.code, without_figures(&run.text()).as_str()),
        (Some(0), "snapshot of home: done\n"),
        "{}",
        run.stderr
    );
    assert_eq!(fs::read_to_string(&letter).unwrap(), "later\n");
    assert_eq!(sandbox.ok(["cat", "home:letter"]), "dear");
    assert_eq!(sandbox.ok(["ls", "home"]).lines().count(), 1);
    let snapshot = &sandbox.json(["snapshots"])[0];
    assert_eq!(snapshot["source"], sandbox.arg("disk/home"));
    assert!(views(&sandbox.path("disk")).is_empty() && !sandbox.path("run-state/frozen.json").exists());
    // Files that have not changed are recognised in the next view.
    let record =
        sandbox.command().args(["--json", "run", "home", "--config", "varve.toml"]).output().unwrap();
    let records = crate::sandbox::json_lines(&String::from_utf8(record.stdout).unwrap());
    let taken = records.iter().find(|record| record["type"] == "snapshot").unwrap();
    assert_eq!((&taken["new_files"], &taken["changed_files"]), (&1.into(), &1.into()), "{taken}");
}

#[test]
fn a_view_that_a_killed_run_has_left_is_removed_by_the_next_one() {
    let Some((sandbox, _disk)) = on_btrfs("") else { return };
    for has_note in [true, false] {
        let made = sandbox.path("made");
        let path = after_freezing(&sandbox, &format!("echo $$ > {}; exec sleep 300", sandbox.arg("made")));
        let mut command = sandbox.command();
        command.args(["run", "home", "--config", "varve.toml"]).env("PATH", path);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while fs::read_to_string(&made).unwrap_or_default().trim().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60), "no view was made");
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let freezing = Pid::from_raw(fs::read_to_string(&made).unwrap().trim().parse().unwrap()).unwrap();
        kill_process(freezing, Signal::KILL).unwrap();
        fs::remove_file(&made).unwrap();
        assert_eq!(views(&sandbox.path("disk")).len(), 1);
        assert!(sandbox.path("run-state/frozen.json").exists());
        let before = names(&sandbox).len();
        if has_note {
            // Any run removes it, even if nothing else is to be done.
            daily_ok(&sandbox, &["pause", "1d"]);
            daily_ok(&sandbox, &["run"]);
            assert!(views(&sandbox.path("disk")).is_empty());
            daily_ok(&sandbox, &["pause", "--end"]);
        } else {
            fs::remove_dir_all(sandbox.path("run-state")).unwrap();
        }
        daily_ok(&sandbox, &["run", "home"]);
        assert_eq!(names(&sandbox).len(), before + 1);
        assert!(views(&sandbox.path("disk")).is_empty() && !sandbox.path("run-state/frozen.json").exists());
    }
}

/// Whenever a run is killed, one more run leaves no view.
#[test]
fn no_moment_of_a_kill_leaves_a_view() {
    let Some((sandbox, _disk)) = on_btrfs("") else { return };
    kill_runs(&sandbox, &sandbox.path("disk/home/letter"), 12, Duration::from_millis(200));
    assert!(views(&sandbox.path("disk")).is_empty() && !sandbox.path("run-state/frozen.json").exists());
    sandbox.ok(["verify", "--data"]);
}

#[test]
fn a_view_without_a_part_of_the_source_is_refused() {
    let Some((sandbox, disk)) = on_btrfs("") else { return };
    let inner = sandbox.arg("disk/home/inner");
    tool("btrfs", ["subvolume", "create", &inner]);
    fs::write(format!("{inner}/photo"), "x").unwrap();
    let run = daily(&sandbox, &["run", "home"]);
    assert_eq!(run.code, Some(1), "{}", run.text());
    assert!(run.stderr.contains("disk/home/inner is a file system of its own"), "{}", run.stderr);
    assert!(run.stderr.contains("set one-file-system = true"), "{}", run.stderr);
    // A subvolume beside the source is no part of it.
    tool("btrfs", ["subvolume", "delete", &inner]);
    tool("btrfs", ["subvolume", "create", &sandbox.arg("disk/beside")]);
    daily_ok(&sandbox, &["run", "home"]);
    // So is another disk in the source.
    let other = sandbox.path("other.img");
    fs::File::create(&other).unwrap().set_len(16 << 20).unwrap();
    tool("mkfs.ext4", ["-q", other.to_str().unwrap()]);
    let mounted = LoopMount::writable(&other, 0, &sandbox.path("disk/home/mounted"));
    let run = daily(&sandbox, &["run", "home"]);
    assert!(run.stderr.contains("disk/home/mounted is a file system of its own"), "{}", run.stderr);
    configure(&sandbox, &source("one-file-system = true\n"));
    daily_ok(&sandbox, &["run", "home"]);
    assert!(views(&disk.at).is_empty());
    drop(mounted);
    drop(disk);
    // Nothing is on Btrfs now.
    fs::create_dir_all(sandbox.path("disk/home")).unwrap();
    let run = daily(&sandbox, &["run", "home"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("is not on Btrfs"), "{}", run.stderr);
}

#[test]
fn a_folder_and_a_disk_on_lvm_are_frozen() {
    let has_mapper = Command::new("dmsetup").arg("version").output().is_ok_and(|run| run.status.success());
    if !is_root() || !has("lvcreate") || !has_mapper {
        eprintln!("skipped: LVM needs root, lvm2 and a kernel with the device mapper");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let image = sandbox.path("lvm.img");
    fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let device = LoopDevice::writable(&image, 0);
    let group = format!("varve-test-{}", std::process::id());
    tool("vgcreate", ["--yes", &group, device.path()]);
    struct Group(String);
    impl Drop for Group {
        fn drop(&mut self) {
            drop(Command::new("vgremove").args(["--yes", "--force", &self.0]).output());
        }
    }
    let _group = Group(group.clone());
    tool("lvcreate", ["--yes", "--name", "data", "--size", "64M", &group]);
    let volume = format!("/dev/{group}/data");
    tool("mkfs.ext4", ["-q", &volume]);
    let at = sandbox.path("disk");
    fs::create_dir(&at).unwrap();
    tool("mount", [volume.as_str(), at.to_str().unwrap()]);
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            drop(Command::new("umount").arg(&self.0).output());
        }
    }
    let _mounted = Mounted(at.clone());
    fs::create_dir(at.join("home")).unwrap();
    fs::write(at.join("home/letter"), "dear").unwrap();
    configure(
        &sandbox,
        &format!(
            "[defaults]\nevery = \"day\"\n[source.home]\nfolder = \"disk/home\"\nfreeze = \"lvm\"\n\
             [source.data]\ndisk = \"{volume}\"\nfreeze = \"lvm\"\n"
        ),
    );
    assert_eq!(daily_ok(&sandbox, &["run"]), "snapshot of data: done\nsnapshot of home: done\n");
    assert_eq!(sandbox.ok(["cat", "home:letter"]), "dear");
    assert_eq!(sandbox.json(["snapshots"]).len(), 2);
    let volumes = Command::new("lvs").args(["--noheadings", "-o", "lv_name", &group]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&volumes.stdout).trim(), "data", "no view is left");
    assert!(views(&sandbox.path("run-state")).is_empty());
}

#[test]
fn another_path_is_archived_as_the_source() {
    let mut sandbox = home("");
    fs::rename(sandbox.store(), sandbox.path("home/store")).unwrap();
    sandbox.set_store(sandbox.path("home/store"));
    fs::create_dir(sandbox.path("home/more")).unwrap();
    fs::write(sandbox.path("home/more/secret"), "x").unwrap();
    copy_folder(&sandbox.path("home"), &sandbox.path("view"));
    fs::write(sandbox.path("view/letter"), "frozen").unwrap();
    let exclude = sandbox.arg("home/more/secret");
    sandbox.ok(["snapshot", "home", "--read-from", "view", "--exclude", &exclude]);
    let snapshot = &sandbox.json(["snapshots"])[0];
    assert_eq!((&snapshot["name"], &snapshot["source"]), (&"home".into(), &sandbox.arg("home").into()));
    assert_eq!(sandbox.ok(["cat", "home:letter"]), "frozen");
    assert_eq!(sandbox.ok(["ls", "home:more"]), "");
    // The copy of the store in the view is left out as the store itself would be.
    assert!(!sandbox.ok(["ls", "home"]).contains("store"));
    // A disk and a file have other paths, too.
    fs::write(sandbox.path("disk.img"), noise(1, 1 << 20)).unwrap();
    fs::write(sandbox.path("other.img"), noise(2, 1 << 20)).unwrap();
    sandbox.ok(["snapshot", "disk.img", "--as", "image", "--read-from", "other.img"]);
    assert!(sandbox.run(["cat", "disk.img"]).stdout == noise(2, 1 << 20));
    sandbox.ok(["snapshot", "home/letter", "--as", "file", "--read-from", "view/letter"]);
    assert_eq!(sandbox.ok(["cat", "letter:letter"]), "frozen");
    sandbox.fails(2, ["snapshot", "home", "disk.img", "--read-from", "view"]);
    sandbox.fails(2, ["snapshot", "-", "--read-from", "view"]);
    assert!(
        sandbox.fails(1, ["snapshot", "home", "--read-from", "nowhere"]).contains("home was not archived")
    );
}
