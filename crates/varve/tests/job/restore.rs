//! Restores with the real program: the mistakes of a tired administrator, and the losses that they
//! must not cause.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::sandbox;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::chattr::{Unlocked, chattr, letters};
use crate::sandbox::{Run, Sandbox, copy_folder, json_lines, manifest, noise, sample_folder, tool, write_at};

fn write(sandbox: &Sandbox, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = sandbox.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Returns the files below a folder, with their contents.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let all = manifest(folder).into_keys().filter(|path| folder.join(path).is_file());
    let text = |path: &PathBuf| fs::read_to_string(folder.join(path)).unwrap();
    all.map(|path| (path.display().to_string(), text(&path))).collect()
}

fn expected(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned())).collect()
}

const MODES: [&str; 4] = ["always", "if-changed", "if-newer", "never"];

/// One missing `/` must not turn a folder into a file.
#[test]
fn a_file_goes_into_a_folder_and_never_replaces_it() {
    let sandbox = Sandbox::encrypted();
    write(&sandbox, &[("etc/a", "a"), ("etc/b", "b"), ("etc/d/c", "c")]);
    symlink("a", sandbox.path("etc/link")).unwrap();
    sandbox.ok(["snapshot", "etc"]);
    let image = noise(3, 5000);
    sandbox.snapshot_bytes("disk", &image);
    fs::write(sandbox.path("etc/a"), "changed").unwrap();
    fs::write(sandbox.path("etc/b"), "mine").unwrap();
    let before = files(&sandbox.path("etc"));
    let refused = sandbox.fails(1, ["restore", "etc:a", "etc"]);
    assert!(refused.contains("etc/a exists"), "{refused}");
    assert_eq!(files(&sandbox.path("etc")), before);
    sandbox.ok(["restore", "etc:a", "etc", "--overwrite", "if-changed"]);
    sandbox.ok(["restore", "disk", "etc", "--overwrite", "always"]);
    assert_eq!(fs::read(sandbox.path("etc/disk")).unwrap(), image);
    fs::remove_file(sandbox.path("etc/disk")).unwrap();
    assert_eq!(files(&sandbox.path("etc"))["a"], "a");
    assert_eq!(files(&sandbox.path("etc"))["b"], "mine");
    // A folder in the place of a file, or a file in the place of a folder, is replaced only with an
    // option of its own.
    write(&sandbox, &[("there/a/precious", "kept"), ("there/d", "kept")]);
    for mode in MODES {
        let run = sandbox.run(["restore", "etc", "there", "--overwrite", mode, "--delete", "--yes"]);
        assert_eq!(run.code, Some(3), "{mode}: {}", run.stderr);
        assert!(run.stderr.contains("nothing was removed"), "{}", run.stderr);
        assert_eq!(files(&sandbox.path("there"))["a/precious"], "kept", "{mode}");
        assert_eq!(files(&sandbox.path("there"))["d"], "kept", "{mode}");
    }
    sandbox.ok(["restore", "etc", "there", "--overwrite", "if-changed", "--replace-types"]);
    assert_eq!(fs::read(sandbox.path("there/a")).unwrap(), b"a");
    assert_eq!(fs::read(sandbox.path("there/d/c")).unwrap(), b"c");
}

/// A restore in place keeps entries that the snapshot lacks.
#[test]
fn a_restore_into_a_folder_merges() {
    let sandbox = Sandbox::encrypted();
    write(&sandbox, &[("home/letter", "old"), ("home/deep/kept", "same"), ("home/gone", "old")]);
    sandbox.ok(["snapshot", "home"]);
    write(&sandbox, &[("home/letter", "changed"), ("home/new", "mine"), ("home/deep/new", "mine")]);
    fs::remove_file(sandbox.path("home/gone")).unwrap();
    let before = manifest(&sandbox.path("home"));
    let refused = sandbox.fails(1, ["restore", "home", "./"]);
    let lines: Vec<_> = refused.lines().collect();
    assert!(refused.contains("exists, and 2 entries in it would change"), "{refused}");
    for line in ["create      gone  (it is missing)", "replace     letter  (it differs)"] {
        assert!(lines.iter().any(|found| found.trim() == line), "{line:?} in {refused}");
    }
    let hint = lines.last().unwrap();
    assert!(hint.starts_with("hint: --dry-run shows"), "{refused}");
    assert!(!hint.contains("--delete") && !hint.contains("always"), "{hint}");
    assert_eq!(manifest(&sandbox.path("home")), before);
    for path in ["home/deep/kept", "home/new"] {
        assert!(sandbox.path(path).exists());
    }
    let said = sandbox.ok(["restore", "home", "./", "--overwrite", "if-changed"]);
    assert!(said.contains("in 2 files and 2 folders, 1 kept"), "{said}");
    let merged =
        [("deep/kept", "same"), ("deep/new", "mine"), ("gone", "old"), ("letter", "old"), ("new", "mine")];
    assert_eq!(files(&sandbox.path("home")), expected(&merged));
    // A long list is cut.
    for number in 0..30 {
        fs::write(sandbox.path(&format!("home/many-{number}")), "x").unwrap();
    }
    sandbox.ok(["snapshot", "home"]);
    fs::create_dir(sandbox.path("other")).unwrap();
    fs::write(sandbox.path("other/x"), "").unwrap();
    let refused = sandbox.fails(1, ["restore", "home", "other"]);
    assert!(refused.contains("and 16 more") && refused.lines().count() < 26, "{refused}");
}

#[test]
fn each_mode_replaces_what_it_says() {
    let sandbox = Sandbox::encrypted();
    let time = |path: &str, seconds: u64| {
        let file = fs::File::options().write(true).open(sandbox.path(path)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    write(
        &sandbox,
        &[
            ("src/older", "snapshot"),
            ("src/newer", "snapshot"),
            ("src/same", "snapshot"),
            ("src/lost", "snapshot"),
        ],
    );
    for name in ["older", "newer", "same"] {
        time(&format!("src/{name}"), 1_000_000);
    }
    sandbox.ok(["snapshot", "src"]);
    for (mode, replaced) in [
        ("always", &["lost", "newer", "older", "same"][..]),
        ("if-changed", &["lost", "newer", "older"]),
        ("if-newer", &["lost", "newer"]),
        ("never", &["lost"]),
    ] {
        let _ = fs::remove_dir_all(sandbox.path("there"));
        // The files have the same size, so only their times show a difference.
        write(
            &sandbox,
            &[("there/older", "here...."), ("there/newer", "here...."), ("there/same", "here....")],
        );
        for (name, seconds) in [("older", 2_000_000), ("newer", 500_000), ("same", 1_000_000)] {
            time(&format!("there/{name}"), seconds);
        }
        sandbox.ok(["restore", "src", "there", "--overwrite", mode]);
        let is_replaced = |(_, text): &(String, String)| text == "snapshot";
        let found: Vec<_> =
            files(&sandbox.path("there")).into_iter().filter(is_replaced).map(|(name, _)| name).collect();
        assert_eq!(found, replaced, "{mode}");
    }
    for words in [&["--overwrite"][..], &["--overwrite", "sometimes"], &["--delete"], &["--replace-types"]] {
        sandbox.fails(2, [&["restore", "src", "there"], words].concat());
    }
}

#[test]
fn what_is_removed_is_shown_first_and_needs_consent() {
    let sandbox = Sandbox::encrypted();
    write(&sandbox, &[("home/letter", "text")]);
    sandbox.ok(["snapshot", "home"]);
    write(&sandbox, &[("home/old/one", "x"), ("home/two", "x"), ("home/kept.log", "x")]);
    let mirror = ["restore", "home", "home", "--overwrite", "if-changed", "--delete", "--exclude", "*.log"];
    let before = manifest(&sandbox.path("home"));
    let refused = sandbox.fails(1, mirror);
    for line in [
        "delete      home/old/one",
        "delete      home/old ",
        "delete      home/two",
        "--yes gives the consent",
    ] {
        assert!(refused.contains(line), "{line:?} in {refused}");
    }
    assert!(!refused.contains("kept.log"), "{refused}");
    assert_eq!(manifest(&sandbox.path("home")), before);
    let plan = sandbox.ok([&mirror[..], &["--dry-run"]].concat());
    assert!(plan.contains("delete      home/two  (it is not in the snapshot)"), "{plan}");
    assert!(plan.ends_with("3 to delete, 3 kept; 0 B to write; nothing was changed\n"), "{plan}");
    assert_eq!(manifest(&sandbox.path("home")), before);
    let said = sandbox.ok([&mirror[..], &["--yes"]].concat());
    assert!(said.contains("3 deleted"), "{said}");
    assert_eq!(files(&sandbox.path("home")), expected(&[("kept.log", "x"), ("letter", "text")]));
    // Nothing is removed, so the program does not ask.
    sandbox.ok(mirror);
}

/// The open store stays, and so does any other store inside the folder.
#[test]
fn another_store_in_the_folder_stays() {
    let sandbox = Sandbox::encrypted();
    write(&sandbox, &[("home/letter", "text")]);
    sandbox.ok(["snapshot", "home"]);
    let other = Sandbox::encrypted();
    other.snapshot_bytes("theirs", b"precious");
    copy_folder(other.store(), &sandbox.path("home/backup/other"));
    let before = manifest(&sandbox.path("home/backup/other"));
    let all = ["--overwrite", "always", "--delete", "--yes", "--replace-types"];
    let told = sandbox.fails(3, [&["restore", "home", "home"], &all[..]].concat());
    assert!(told.contains("home/backup/other: ") || told.contains("backup/other: "), "{told}");
    assert!(told.contains("a Varve store"), "{told}");
    assert_eq!(manifest(&sandbox.path("home/backup/other")), before);
    // A folder that contains a store is not replaced by a file.
    write(&sandbox, &[("x/backup", "a file")]);
    sandbox.ok(["snapshot", "x"]);
    let told = sandbox.fails(3, [&["restore", "x", "home"], &all[..]].concat());
    assert!(told.contains("a Varve store"), "{told}");
    let into = sandbox.fails(1, [&["restore", "home"], &["home/backup/other"][..], &all].concat());
    assert!(into.contains("is a Varve store"), "{into}");
    assert_eq!(manifest(&sandbox.path("home/backup/other")), before);
}

#[test]
fn a_plan_is_shown_and_nothing_is_done() {
    let sandbox = Sandbox::encrypted();
    write(&sandbox, &[("home/a", "text"), ("home/b", "text"), ("home/kind", "text")]);
    sandbox.ok(["snapshot", "home"]);
    sandbox.snapshot_bytes("disk", b"an image");
    write(&sandbox, &[("there/b", "old"), ("there/kind/x", "mine"), ("there/extra", "mine")]);
    let before = manifest(&sandbox.path("there"));
    let words = ["restore", "home", "there", "-n", "--overwrite", "always", "--delete"];
    let text = sandbox.ok(words);
    let wanted = "\
keep        there  (it exists)
create      there/a  (it is missing)
replace     there/b  (everything is replaced)
skip        there/kind  (a folder is there)
delete      there/extra  (it is not in the snapshot)
1 to create, 1 to replace, 1 to delete, 1 kept, 1 skipped; 8 B to write; nothing was changed
";
    assert_eq!(text, wanted);
    let lines = sandbox.json(words);
    let actions: Vec<_> = lines.iter().filter_map(|line| line["action"].as_str()).collect();
    assert_eq!(actions, ["keep", "create", "replace", "skip", "delete"]);
    assert!(lines[..5].iter().all(|line| line["type"] == "restore_plan" && line["destination"] == "there"));
    assert_eq!(
        (&lines[1]["path"], &lines[1]["bytes"], &lines[1]["kind"]),
        (&"a".into(), &4.into(), &"file".into())
    );
    let summary = &lines[5];
    assert_eq!(
        (&summary["type"], &summary["delete"], &summary["bytes"]),
        (&"restore_plan_summary".into(), &1.into(), &8.into())
    );
    assert_eq!(manifest(&sandbox.path("there")), before);
    let new = sandbox.ok(["restore", "home", "new", "--dry-run"]);
    assert!(new.contains("create      new/kind") && !sandbox.path("new").exists(), "{new}");
    for (mode, action) in [("always", "replace"), ("if-changed", "replace"), ("never", "keep")] {
        let plan = sandbox.json(["restore", "disk", "there/extra", "-n", "--overwrite", mode]);
        assert_eq!(plan[0]["action"], action, "{mode}");
    }
}

#[test]
fn images_are_replaced_as_the_mode_says() {
    let sandbox = Sandbox::encrypted();
    let bytes = noise(7, 700_000);
    sandbox.snapshot_bytes("disk", &bytes);
    let out = sandbox.path("out");
    let inode = || fs::metadata(&out).unwrap().ino();
    sandbox.ok(["restore", "disk", "out", "--overwrite", "if-changed"]);
    let first = inode();
    assert!(sandbox.ok(["restore", "disk", "out", "--overwrite", "if-changed"]).contains("1 kept"));
    sandbox.ok(["restore", "disk", "out", "--overwrite", "never"]);
    sandbox.ok(["restore", "disk", "out", "--overwrite", "if-newer"]);
    assert_eq!(inode(), first, "it is as it was");
    write_at(&out, 300_000, b"changed");
    sandbox.ok(["restore", "disk", "out", "--overwrite", "never"]);
    assert!(fs::read(&out).unwrap() != bytes);
    sandbox.ok(["restore", "disk", "out", "--overwrite", "if-changed", "--verify"]);
    assert!(fs::read(&out).unwrap() == bytes && inode() != first);
    let told = sandbox.fails(2, ["restore", "disk", "out", "--include", "x"]);
    assert!(told.contains("this is an image"), "{told}");
}

#[test]
fn several_things_go_into_a_folder_under_their_own_names() {
    let sandbox = Sandbox::encrypted();
    write(
        &sandbox,
        &[("home/letter", "text"), ("home/deep/x", "x"), ("home/deep/y.log", "y"), ("etc/deep/z", "z")],
    );
    sandbox.ok(["snapshot", "home", "etc"]);
    sandbox.snapshot_bytes("disk", b"an image");
    sandbox.ok(["restore", "home:letter", "home:deep", "disk", "out"]);
    assert_eq!(
        files(&sandbox.path("out")),
        expected(&[("deep/x", "x"), ("deep/y.log", "y"), ("disk", "an image"), ("letter", "text")])
    );
    let clash = sandbox.fails(2, ["restore", "home:deep", "etc:deep", "both"]);
    assert!(clash.contains("two of them are called deep") && !sandbox.path("both").exists(), "{clash}");
    sandbox.fails(2, ["restore", "home", "etc", "-"]);
    sandbox.fails(2, ["restore", "home:letter", "-", "--dry-run"]);
    sandbox.fails(2, ["restore", "home:letter", "-", "--verify"]);
    sandbox.fails(2, ["restore", "home"]);
    sandbox.ok(["restore", "home", "etc", "picked", "--include", "deep", "--exclude", "*.log"]);
    assert_eq!(files(&sandbox.path("picked")), expected(&[("etc/deep/z", "z"), ("home/deep/x", "x")]));
}

#[test]
fn an_empty_folder_is_no_hindrance() {
    let sandbox = Sandbox::encrypted();
    sample_folder(&sandbox.path("work"));
    sandbox.ok(["snapshot", "work"]);
    fs::create_dir(sandbox.path("out")).unwrap();
    sandbox.ok(["restore", "work", "out", "--verify"]);
    assert_eq!(manifest(&sandbox.path("out")), manifest(&sandbox.path("work")));
}

/// A restore that is killed several times still completes, and its result is whole.
#[test]
fn a_restore_that_is_killed_is_continued() {
    let sandbox = Sandbox::encrypted();
    sample_folder(&sandbox.path("work"));
    for number in 0..300 {
        fs::write(sandbox.path(&format!("work/{number}")), noise(number, 20_000)).unwrap();
    }
    sandbox.ok(["snapshot", "work"]);
    let wanted = manifest(&sandbox.path("work"));
    for signal in [Signal::TERM, Signal::KILL] {
        let mut ended = 0;
        for tries in 1..40 {
            let child = sandbox
                .command()
                .args(["restore", "work", "out"])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            #[expect(clippy::disallowed_methods, reason = "another program is given time")]
            std::thread::sleep(Duration::from_millis(20 * tries));
            let _ = kill_process(Pid::from_child(&child), signal);
            let run = Run::new(child.wait_with_output().unwrap());
            if run.code == Some(0) {
                break;
            }
            ended += 1;
            if sandbox.path("out").exists() {
                // The kill came after the rename and before the end of the process.
                assert_eq!(manifest(&sandbox.path("out")), wanted, "it has its name only when it is whole");
                break;
            }
            if signal == Signal::TERM && run.code == Some(130) {
                assert!(
                    run.stderr.contains("out.varve-partial-0, and the same command continues"),
                    "{}",
                    run.stderr
                );
            }
        }
        sandbox.run(["restore", "work", "out"]);
        assert_eq!(manifest(&sandbox.path("out")), wanted, "{signal:?}, after {ended} ends");
        let left: Vec<_> = fs::read_dir(sandbox.path(""))
            .unwrap()
            .map(|left| left.unwrap().file_name())
            .filter(|name| name.to_string_lossy().contains("partial"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        fs::remove_dir_all(sandbox.path("out")).unwrap();
    }
}

/// A small tmpfs, unmounted at the end of the test.
struct Disk(PathBuf);

impl Disk {
    fn new(at: &Path, size: &str) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let options = format!("size={size}");
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "none"])
            .arg(at)
            .status();
        let made = mount.is_ok_and(|status| status.success());
        if !made {
            eprintln!("skipped: a small disk, which needs the right to mount a tmpfs");
        }
        made.then(|| Self(at.to_path_buf()))
    }

    fn grow(&self, size: &str) {
        tool("mount", ["-o", &format!("remount,size={size}"), self.0.to_str().unwrap()]);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// The hint after a full disk is correct: the same command continues.
#[test]
fn after_a_full_disk_the_same_command_goes_on() {
    let sandbox = Sandbox::encrypted();
    for number in 0..10 {
        write(&sandbox, &[(format!("home/{number}").as_str(), "")]);
        fs::write(sandbox.path(&format!("home/{number}")), noise(number, 300_000)).unwrap();
    }
    sandbox.ok(["snapshot", "home"]);
    sandbox.snapshot_bytes("disk", &noise(77, 3_000_000));
    let Some(disk) = Disk::new(&sandbox.path("small"), "2M") else { return };
    for (what, to) in
        [("home", "small"), ("home", "small/new"), ("disk", "small/image"), ("home:3", "small/one")]
    {
        disk.grow("2M");
        let fill = noise(5, if what == "home:3" { 1_900_000 } else { 1 });
        fs::write(sandbox.path("small/.fill"), &fill).unwrap();
        let is_mount = to == "small";
        if is_mount {
            fs::remove_file(sandbox.path("small/.fill")).unwrap();
        }
        for _ in 0..2 {
            let full = sandbox.fails(1, ["restore", what, to]);
            assert!(full.contains("No space left") && full.contains("varve-partial-0"), "{full}");
            assert!(full.contains("hint: the archive is unchanged; make space"), "{full}");
            assert!(is_mount || !sandbox.path(to).exists());
        }
        disk.grow("16M");
        sandbox.ok(["restore", what, to]);
        match what {
            "home" => assert_eq!(manifest(&sandbox.path(to)), manifest(&sandbox.path("home"))),
            "disk" => assert!(fs::read(sandbox.path(to)).unwrap() == noise(77, 3_000_000)),
            _ => assert!(fs::read(sandbox.path(to)).unwrap() == noise(3, 300_000)),
        }
        for left in fs::read_dir(sandbox.path("small")).unwrap().map(|left| left.unwrap().path()) {
            assert!(!left.to_string_lossy().contains("partial"), "{left:?}");
            if left.is_dir() { fs::remove_dir_all(left).unwrap() } else { fs::remove_file(left).unwrap() }
        }
    }
}

/// Immutable files get their flag last, so they do not block the run that continues the restore.
#[test]
fn an_interrupted_restore_of_immutable_files_is_continued() {
    let sandbox = Sandbox::encrypted();
    let _unlocked = Unlocked(sandbox.path("home"));
    fs::create_dir_all(sandbox.path("home/2")).unwrap();
    for name in ["0", "1", "2/in", "8", "9"] {
        fs::write(sandbox.path("home").join(name), noise(name.len() as u64 + 7, 500_000)).unwrap();
    }
    fs::hard_link(sandbox.path("home/0"), sandbox.path("home/twin")).unwrap();
    let expected = [("", "i"), ("0", "i"), ("1", "d"), ("2", "a"), ("2/in", "a"), ("9", "i"), ("twin", "i")];
    let Some(disk) = Disk::new(&sandbox.path("small"), "1500k") else { return };
    fs::write(sandbox.path("small/probe"), "").unwrap();
    let can_lock = chattr("+i", &sandbox.path("small/probe")) && chattr("-i", &sandbox.path("small/probe"));
    fs::remove_file(sandbox.path("small/probe")).unwrap();
    let set = |(path, flag): &(&str, &str)| chattr(&format!("+{flag}"), &sandbox.path("home").join(path));
    if !can_lock || !expected.iter().all(set) {
        eprintln!(
            "skipped as flags cannot be set here: an_interrupted_restore_of_immutable_files_is_continued"
        );
        return;
    }
    sandbox.ok(["snapshot", "home"]);
    for to in ["small/new", "small"] {
        disk.grow("1500k");
        for _ in 0..2 {
            let full = sandbox.fails(1, ["restore", "home", to]);
            assert!(full.contains("No space left"), "{full}");
        }
        disk.grow("16M");
        let run = sandbox.run(["restore", "home", to]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        assert!(run.text().contains("kept"), "{}", run.text());
        assert_eq!(manifest(&sandbox.path(to)), manifest(&sandbox.path("home")));
        for (path, flag) in expected {
            assert_eq!(letters(&sandbox.path(to).join(path)), flag, "{to}/{path}");
        }
        drop(Unlocked(sandbox.path("small")));
        if to == "small/new" {
            fs::remove_dir_all(sandbox.path(to)).unwrap();
        }
    }
}

/// Nobody can change an immutable file: the program names the remedy, and restores everything else.
#[test]
fn immutable_files_are_neither_replaced_nor_removed() {
    let sandbox = Sandbox::encrypted();
    let snapshot =
        [("home/fixed", "old"), ("home/free", "old"), ("home/shut/a", "old"), ("home/shut/b", "old")];
    write(&sandbox, &snapshot);
    sandbox.ok(["snapshot", "home"]);
    let _unlocked = Unlocked(sandbox.path("home"));
    write(&sandbox, &[("home/fixed", "changed"), ("home/free", "changed"), ("home/shut/a", "changed")]);
    write(&sandbox, &[("home/extra", "x"), ("home/shut/extra", "x"), ("home/more/extra", "x")]);
    fs::remove_file(sandbox.path("home/shut/b")).unwrap();
    let locks = [("+i", "fixed"), ("+a", "extra"), ("+i", "more"), ("+i", "shut")];
    if !locks.iter().all(|(flag, path)| chattr(flag, &sandbox.path("home").join(path))) {
        eprintln!("skipped as flags cannot be set here: immutable_files_are_neither_replaced_nor_removed");
        return;
    }
    let before = files(&sandbox.path("home"));
    let restore = ["restore", "home", "home", "--overwrite", "always", "--delete", "--yes"];
    // The dry run gives the same reasons.
    let plan = sandbox.ok([&restore[..], &["--dry-run"]].concat());
    for line in [
        "skip        home/fixed  (it is immutable: `chattr -i` allows changes again)",
        "skip        home/extra  (it is append-only: `chattr -a` allows changes again)",
        "skip        home/more  (it is immutable: `chattr -i` allows changes again)",
        "skip        home/shut/a  (shut is immutable: `chattr -i` allows changes again)",
        "skip        home/shut/b  (shut is immutable: `chattr -i` allows changes again)",
        "skip        home/shut/extra  (shut is immutable: `chattr -i` allows changes again)",
        "replace     home/free  (everything is replaced)",
    ] {
        assert!(plan.contains(line), "{line}\n{plan}");
    }
    assert_eq!(files(&sandbox.path("home")), before);
    let run = sandbox.run(restore);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    for line in [
        "varve: fixed: it is not restored: it is immutable: `chattr -i` allows changes again",
        "varve: shut/b: it is not restored: shut is immutable: `chattr -i` allows changes again",
        "varve: nothing was removed, because not everything is restored",
    ] {
        assert!(run.stderr.contains(line), "{line}\n{}", run.stderr);
    }
    assert_eq!(files(&sandbox.path("home"))["free"], "old");
    assert_eq!(files(&sandbox.path("home"))["fixed"], "changed");
    // All files are restored, and some of the extra entries cannot be removed.
    assert!(chattr("-i", &sandbox.path("home/fixed")) && chattr("-i", &sandbox.path("home/shut")));
    let run = sandbox.run(restore);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    let kept = "varve: extra: it is not in the snapshot, but is not removed: it is append-only: `chattr -a` allows changes again";
    assert!(run.stderr.contains(kept), "{}", run.stderr);
    let left = expected(&[
        ("extra", "x"),
        ("fixed", "old"),
        ("free", "old"),
        ("more/extra", "x"),
        ("shut/a", "old"),
        ("shut/b", "old"),
    ]);
    assert_eq!(files(&sandbox.path("home")), left);
    // A single file, a folder that is replaced as a whole, and an immutable destination.
    assert!(chattr("+i", &sandbox.path("home/fixed")));
    let one = sandbox.fails(1, ["restore", "home:fixed", "home/fixed", "--overwrite", "always"]);
    assert!(one.contains("home/fixed cannot be restored to: it is immutable: `chattr -i`"), "{one}");
    write(&sandbox, &[("typed/free/below", "x")]);
    assert!(chattr("+i", &sandbox.path("typed/free/below")));
    let _unlocked = [Unlocked(sandbox.path("typed")), Unlocked(sandbox.path("shut"))];
    let run = sandbox.run(["restore", "home", "typed", "--overwrite", "always", "--replace-types"]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    let line = "varve: free: it is not restored: free/below is immutable: `chattr -i` allows changes again";
    assert!(run.stderr.contains(line), "{}", run.stderr);
    fs::create_dir(sandbox.path("shut")).unwrap();
    assert!(chattr("+i", &sandbox.path("shut")));
    for to in ["shut", "shut/new"] {
        let shut = sandbox.fails(1, ["restore", "home", to]);
        assert!(shut.contains("is immutable: `chattr -i` allows changes again"), "{shut}");
    }
}

/// A restore in place needs extra space for one file at a time, not for all of them.
#[test]
fn a_merge_needs_the_room_of_one_file_more() {
    let sandbox = Sandbox::encrypted();
    let Some(_disk) = Disk::new(&sandbox.path("small"), "5M") else { return };
    fs::create_dir(sandbox.path("small/home")).unwrap();
    for number in 0..6 {
        fs::write(sandbox.path(&format!("small/home/{number}")), noise(number, 500_000)).unwrap();
    }
    sandbox.ok(["snapshot", "small/home"]);
    let wanted = manifest(&sandbox.path("small/home"));
    for number in 0..6 {
        fs::write(sandbox.path(&format!("small/home/{number}")), noise(number + 50, 500_000)).unwrap();
    }
    sandbox.ok(["restore", "home", "small/home", "--overwrite", "always"]);
    assert_eq!(manifest(&sandbox.path("small/home")), wanted);
}

/// Overwrites some bytes at this percentage of an arena.
fn rot(sandbox: &Sandbox, share: u64) {
    let arena = sandbox.arenas().remove(0);
    let bytes = fs::metadata(&arena).unwrap().len();
    write_at(&arena, bytes * share / 100, b"rotten");
}

/// One damaged block costs only its own part of a disk.
#[test]
fn a_damaged_image_is_restored_with_a_hole() {
    let sandbox = Sandbox::made_with(&["--clump-size", "64K"]);
    let bytes = noise(21, 900_000);
    sandbox.snapshot_bytes("disk", &bytes);
    rot(&sandbox, 50);
    let refused = sandbox.fails(5, ["restore", "disk", "x.img"]);
    assert!(refused.contains("hint: --keep-damaged"), "{refused}");
    assert!(!sandbox.path("x.img").exists());
    let run = sandbox.run(["restore", "disk", "x.img", "--keep-damaged", "--verify"]);
    assert_eq!(run.code, Some(5), "{}", run.stderr);
    let back = fs::read(sandbox.path("x.img")).unwrap();
    assert_eq!(back.len(), bytes.len());
    let list = fs::read_to_string(sandbox.path("x.img.damaged")).unwrap();
    let ranges: Vec<_> = list
        .lines()
        .skip(1)
        .map(|line| {
            let mut words = line.split(' ').map(|word| word.parse::<usize>());
            words.next().unwrap().unwrap()..words.next().unwrap().unwrap()
        })
        .collect();
    let mut expected = bytes.clone();
    ranges.iter().for_each(|range| expected[range.clone()].fill(0));
    assert!(back == expected && !ranges.is_empty(), "{ranges:?}");
    assert!(ranges.iter().map(ExactSizeIterator::len).sum::<usize>() <= 3 * 65536, "{ranges:?}");
    assert!(
        run.stderr.contains(&format!("bytes {}..{} cannot be read", ranges[0].start, ranges[0].end)),
        "{}",
        run.stderr
    );
    // The same with `--json`, and to standard output.
    let run = sandbox.run(["--json", "restore", "disk", "x.img", "--keep-damaged", "--overwrite", "always"]);
    assert_eq!(run.code, Some(5));
    let lines = json_lines(&run.text());
    assert_eq!(
        (&lines[0]["type"], &lines[0]["start"], &lines[0]["end"]),
        (&"damaged".into(), &ranges[0].start.into(), &ranges[0].end.into())
    );
    assert_eq!(lines.last().unwrap()["type"], "restored");
    let streamed = sandbox.run(["restore", "disk", "-", "--keep-damaged"]);
    assert_eq!(streamed.code, Some(5));
    assert!(streamed.stdout == expected);
    assert!(!sandbox.path("-.damaged").exists(), "{}", streamed.stderr);
    // If standard output carries content, the JSON lines go to standard error.
    let streamed = sandbox.run(["--json", "restore", "disk", "-", "--keep-damaged"]);
    assert!(streamed.stdout == expected);
    assert_eq!(json_lines(&streamed.stderr)[0]["type"], "damaged");
    // An existing file with the name of the list stays.
    fs::write(sandbox.path("y.img.damaged"), "mine").unwrap();
    let run = sandbox.run(["restore", "disk", "y.img", "--keep-damaged"]);
    assert!(run.stderr.contains("was not written") && run.code == Some(5), "{}", run.stderr);
    assert_eq!(fs::read(sandbox.path("y.img.damaged")).unwrap(), b"mine");
    if sandbox::has("qemu-img") && sandbox::has("qemu-nbd") {
        let run = sandbox.run(["restore", "disk", "x.qcow2", "--format", "qcow2", "--keep-damaged"]);
        assert_eq!(run.code, Some(5), "{}", run.stderr);
        tool(
            "qemu-img",
            ["convert", "-f", "qcow2", "-O", "raw", &sandbox.arg("x.qcow2"), &sandbox.arg("x.raw")],
        );
        assert!(fs::read(sandbox.path("x.raw")).unwrap()[..expected.len()] == expected);
    }
}

#[test]
fn damage_takes_no_whole_file_with_it() {
    let sandbox = Sandbox::made_with(&["--clump-size", "64K"]);
    fs::create_dir(sandbox.path("home")).unwrap();
    let large = noise(22, 900_000);
    fs::write(sandbox.path("home/large"), &large).unwrap();
    fs::write(sandbox.path("home/letter"), "text").unwrap();
    sandbox.ok(["snapshot", "home"]);
    rot(&sandbox, 40);
    let without = sandbox.run(["restore", "home", "out"]);
    assert_eq!(without.code, Some(5), "{}", without.stderr);
    assert!(
        without.stderr.contains("large: ") && without.stderr.contains("hint: --keep-damaged"),
        "{}",
        without.stderr
    );
    assert!(!sandbox.path("out/large").exists() && sandbox.path("out/letter").exists());
    // This run restores only the entry that is missing.
    let run = sandbox.run(["restore", "home", "out", "--overwrite", "never", "--keep-damaged"]);
    assert_eq!(run.code, Some(5), "{}", run.stderr);
    let list = fs::read_to_string(sandbox.path("out.damaged")).unwrap();
    assert!(list.lines().skip(1).all(|line| line.ends_with(" large")), "{list}");
    let back = fs::read(sandbox.path("out/large")).unwrap();
    let differing = back.iter().zip(&large).filter(|(back, good)| back != good).count();
    assert!(back.len() == large.len() && (1..=3 * 65536).contains(&differing), "{differing} bytes differ");
    let alone = sandbox.fails(5, ["restore", "home:large", "alone"]);
    assert!(alone.contains("hint: --keep-damaged") && !sandbox.path("alone").exists(), "{alone}");
    assert_eq!(sandbox.run(["restore", "home:large", "alone", "--keep-damaged"]).code, Some(5));
    assert!(fs::read(sandbox.path("alone")).unwrap() == back);
    assert!(sandbox.path("alone.damaged").exists());
    assert!(sandbox.run(["restore", "home:large", "-", "--keep-damaged"]).stdout == back);
}

/// The same for a file in a file system on a disk.
#[test]
fn a_damaged_file_in_a_volume_is_restored_with_a_hole() {
    if !sandbox::has("mkfs.ext4") || !sandbox::has("debugfs") {
        eprintln!("skipped: a file in a volume, which needs mkfs.ext4 and debugfs");
        return;
    }
    let sandbox = Sandbox::made_with(&["--clump-size", "64K"]);
    let disk = sandbox.path("disk.img");
    fs::File::create(&disk).unwrap().set_len(16 << 20).unwrap();
    tool("mkfs.ext4", ["-q", "-F", disk.to_str().unwrap()]);
    let large = noise(23, 900_000);
    fs::write(sandbox.path("large"), &large).unwrap();
    tool("debugfs", ["-w", "-R", &format!("write {} large", sandbox.arg("large")), disk.to_str().unwrap()]);
    sandbox.ok(["snapshot", "disk.img"]);
    rot(&sandbox, 50);
    let refused = sandbox.run(["restore", "disk.img:p0/large", "back"]);
    assert!(refused.stderr.contains("--keep-damaged"), "{}", refused.stderr);
    let run = sandbox.run(["restore", "disk.img:p0/large", "back", "--keep-damaged"]);
    assert_eq!(run.code, Some(5), "{}", run.stderr);
    let back = fs::read(sandbox.path("back")).unwrap();
    let differing = back.iter().zip(&large).filter(|(back, good)| back != good).count();
    assert!(back.len() == large.len() && (1..=3 * 65536).contains(&differing), "{differing} bytes differ");
    assert!(sandbox.path("back.damaged").exists());
}

#[test]
fn what_the_disk_has_kept_otherwise_is_found() {
    let sandbox = Sandbox::encrypted();
    sample_folder(&sandbox.path("work"));
    sandbox.ok(["snapshot", "work"]);
    let said = sandbox.ok(["restore", "work", "out", "--verify"]);
    assert!(said.contains(" to out: "), "{said}");
    // Nothing is written, so the wrong byte stays and `--verify` finds it.
    let time = fs::metadata(sandbox.path("out/deep/noise.bin")).unwrap().modified().unwrap();
    write_at(&sandbox.path("out/deep/noise.bin"), 7000, b"x");
    fs::File::options()
        .write(true)
        .open(sandbox.path("out/deep/noise.bin"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    let found = sandbox.fails(3, ["restore", "work", "out", "--overwrite", "if-changed", "--verify"]);
    assert!(
        found.contains("deep/noise.bin: read back, it differs from the snapshot at byte 7000"),
        "{found}"
    );
}

/// The program asks only at a terminal, and accepts only `yes`.
#[test]
fn consent_is_given_at_a_terminal() {
    if !sandbox::has("script") {
        eprintln!("skipped: consent at a terminal, which needs script");
        return;
    }
    let sandbox = Sandbox::encrypted();
    write(&sandbox, &[("home/letter", "text")]);
    sandbox.ok(["snapshot", "home"]);
    let varve = env!("CARGO_BIN_EXE_varve");
    let line = format!(
        "'{varve}' --store '{}' --key-file '{}' restore home home --overwrite if-changed --delete",
        sandbox.store().display(),
        sandbox.arg("key"),
    );
    for (answer, is_removed) in [("\n", false), ("no\n", false), ("yes\n", true)] {
        fs::write(sandbox.path("home/extra"), "x").unwrap();
        let mut child = std::process::Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .current_dir(sandbox.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("remove 1 file or folder? [y/N]"), "{said}");
        assert_eq!(!sandbox.path("home/extra").exists(), is_removed, "{answer:?}: {said}");
    }
}

/// Only the owner can read an unfinished restore.
#[test]
fn what_is_unfinished_is_private() {
    let sandbox = Sandbox::made_with(&["--clump-size", "64K"]);
    sandbox.snapshot_bytes("disk", &noise(21, 900_000));
    rot(&sandbox, 50);
    sandbox.fails(5, ["restore", "disk", "x.img"]);
    for name in [".x.img.varve-partial-0", ".x.img.varve-partial-0.state"] {
        let mode = fs::metadata(sandbox.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
