//! The parts of a folder that its snapshot includes: patterns, lists and sizes; the report of the
//! rest; and dry runs.
#![allow(clippy::print_stderr, reason = "says what it skipped")]
#![allow(clippy::disallowed_methods, reason = "a test waits for the system's clock")]

use crate::sandbox;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::chattr::{Unlocked, chattr, letters};
use crate::loop_device::LoopDevice;
use crate::sandbox::{Run, Sandbox, all_json_lines, is_root, json_lines, tool};
use serde_json::{Value, json};

fn sandbox_with(files: &[&str]) -> Sandbox {
    let sandbox = Sandbox::made_with(&["--plaintext"]);
    for file in files {
        let path = sandbox.path("source").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "bytes").unwrap();
    }
    sandbox
}

/// Returns the files of the newest snapshot.
fn files(sandbox: &Sandbox) -> Vec<String> {
    let listed = sandbox.json(["ls", "-R", "source"]);
    let files = listed.into_iter().filter(|node| node["kind"] != "folder");
    files.map(|node| node["path"].as_str().unwrap().to_owned()).collect()
}

fn run_with_input(mut command: Command, input: &[u8]) -> Run {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    Run::new(child.wait_with_output().unwrap())
}

#[test]
fn an_absolute_pattern_below_the_source_leaves_out_what_it_names() {
    let sandbox = sandbox_with(&["src/a", "b", "deep/src/c"]);
    let pattern = sandbox.arg("source/src");
    let run = sandbox.run(["snapshot", "source", "--exclude", &pattern]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert!(run.text().contains("left out by rules: 1 folder with its contents"), "{}", run.text());
    assert_eq!(files(&sandbox), ["b", "deep/src/c"]);
    // The pattern also matches under the target of a source that is a link.
    std::os::unix::fs::symlink("source", sandbox.path("link")).unwrap();
    sandbox.ok(["snapshot", "link", "--name", "source", "--exclude", &pattern]);
    assert_eq!(files(&sandbox), ["b", "deep/src/c"]);
}

#[test]
fn a_pattern_that_matches_nothing_is_a_warning() {
    let sandbox = sandbox_with(&["a.o", "b"]);
    let run = sandbox.run(["snapshot", "source", "--exclude", "*.o", "--exclude", "/nowhere/src"]);
    assert_eq!(run.code, Some(0));
    assert!(run.stderr.contains("the pattern \"/nowhere/src\" matched nothing"), "{}", run.stderr);
    assert!(!run.stderr.contains("*.o"), "{}", run.stderr);
    let args = ["--json", "snapshot", "source", "--exclude", "/nowhere/src", "--exclude", "b"];
    let lines = all_json_lines(&sandbox.ok(args));
    let warnings: Vec<_> = lines.iter().filter(|line| line["type"] == "warning").collect();
    assert_eq!(warnings.len(), 1, "{lines:?}");
    let taken = lines.iter().find(|line| line["id"].is_string()).unwrap();
    assert_eq!((&taken["excluded"]["files"], &taken["excluded"]["bytes"]), (&1.into(), &5.into()));
    // A file of patterns often serves many sources, so it gets one line of warning.
    fs::write(sandbox.path("list"), "# comment\n*.o\none\ntwo\nthree\nfour\n").unwrap();
    let run = sandbox.run(["snapshot", "source", "--exclude-file", &sandbox.arg("list")]);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("line 3 (\"one\")") && run.stderr.contains("and 1 more"), "{}", run.stderr);
}

#[test]
fn a_protected_space_ends_a_pattern() {
    let sandbox = sandbox_with(&["sp /f", "keep/f"]);
    fs::write(sandbox.path("list"), "sp\\ \n").unwrap();
    sandbox.ok(["snapshot", "source", "--exclude-file", &sandbox.arg("list")]);
    assert_eq!(files(&sandbox), ["keep/f"]);
}

#[test]
fn letters_sizes_and_marks_leave_files_out() {
    let sandbox = sandbox_with(&["A.JPG", "b.jpg", "c", "cache/.nobackup", "cache/x"]);
    fs::write(sandbox.path("source/large"), [0; 3000]).unwrap();
    let args = ["--iexclude", "*.jpg", "--exclude-larger-than", "2K", "--exclude-if-present", ".nobackup"];
    let text = sandbox.ok([&["snapshot", "source"][..], &args].concat());
    assert!(text.contains("left out by rules: 3 files of 2.94 KiB, 1 folder"), "{text}");
    assert_eq!(files(&sandbox), ["c", "cache/.nobackup"]);
}

#[test]
fn a_list_says_all_that_goes_in() {
    let sandbox = sandbox_with(&["a/b", "a/c", "d e", "not"]);
    let command = |args: &[&str]| {
        let mut command = sandbox.command();
        command.args(["snapshot", "source"]).args(args);
        command
    };
    let absolute = sandbox.arg("source/d e");
    let run = run_with_input(command(&["--files-from", "-"]), format!("a/b\n./a\n\n{absolute}\n").as_bytes());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(files(&sandbox), ["a/b", "a/c", "d e"]);
    let run = run_with_input(command(&["--files-from0", "-"]), b"a/c\0gone\0");
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("gone"), "{}", run.stderr);
    for (list, said) in [("/etc/passwd\n", "is not below"), ("../x\n", "is not below"), ("\n", "is empty")] {
        let run = run_with_input(command(&["--files-from", "-"]), list.as_bytes());
        assert_eq!(run.code, Some(2), "{list:?}");
        assert!(run.stderr.contains(said), "{}", run.stderr);
    }
    fs::create_dir(sandbox.path("other")).unwrap();
    let run = run_with_input(command(&["other", "--files-from", "-"]), b"a\n");
    assert_eq!(run.code, Some(2), "of two sources none is meant");
}

#[test]
fn a_dry_run_tells_all_and_writes_nothing() {
    let sandbox = sandbox_with(&["keep", "src/a.o"]);
    fs::write(sandbox.path("disk.img"), [1; 100_000]).unwrap();
    let nowhere = sandbox.arg("nowhere");
    let run = |args: &[&str]| {
        let mut command = sandbox.command_at(nowhere.as_ref());
        Run::new(
            command
                .args(["snapshot", "--dry-run", "--exclude", "*.o", "source", "disk.img"])
                .args(args)
                .output()
                .unwrap(),
        )
    };
    let text = run(&[]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    let expected = "\
        source: source\n+ keep\n+ src/\n- src/a.o of 5 B (the pattern \"*.o\")\nsource: would archive 1 file and 2 folders, 5 B\n\
        source: would leave out by rules 1 file of 5 B\n";
    assert!(text.text().starts_with(expected), "{}", text.text());
    assert!(
        text.text().contains("disk.img: would archive disk.img as a file of 97.7 KiB: no partition"),
        "{}",
        text.text()
    );
    let text = run(&["--as", "image"]).text();
    assert!(text.contains("disk.img: would archive disk.img as a disk image of 97.7 KiB\n"), "{text}");
    let lines = json_lines(&run(&["--json"]).text());
    let of_type = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<&Value>>();
    assert_eq!(of_type("would_archive").len(), 3);
    assert_eq!(of_type("left_out")[0]["rule"]["pattern"], "*.o");
    assert_eq!(
        (&of_type("dry_run")[0]["files"], &of_type("dry_run")[1]["bytes"]),
        (&1.into(), &100_000.into())
    );
    assert_eq!(
        (&of_type("dry_run")[0]["kind"], &of_type("dry_run")[1]["kind"]),
        (&"folder".into(), &"file".into())
    );
    assert_eq!(lines.len(), 3 + 1 + 2);
    // A dry run does not start the program.
    let mut command = sandbox.command_at(nowhere.as_ref());
    command.args(["snapshot", "-n", "--command", "dump", "--", "touch"]).arg(sandbox.arg("started"));
    let text = Run::new(command.output().unwrap()).text();
    assert_eq!(text, "dump: would archive the output of touch, which is not started, as a file\n");
    assert!(!sandbox.path("nowhere").exists() && !sandbox.path("started").exists());
}

#[test]
fn the_store_in_the_source_is_left_out_and_told() {
    let mut sandbox = Sandbox::empty();
    sandbox.set_key(None);
    fs::create_dir_all(sandbox.path("source")).unwrap();
    fs::write(sandbox.path("source/file"), "bytes").unwrap();
    sandbox.set_store(sandbox.path("source/store"));
    sandbox.ok(["init", "--plaintext"]);
    let text = sandbox.ok(["snapshot", "source"]);
    assert!(text.contains("  left out: store of ") && text.contains("(the store itself)"), "{text}");
    let lines = sandbox.json(["snapshot", "source"]);
    let told = lines.iter().find(|line| line["type"] == "left_out").unwrap();
    assert_eq!((&told["path"], &told["reason"]), (&"store".into(), &"own_store".into()));
    assert!(told["bytes"].as_u64() > Some(1000), "{told}");
    assert_eq!(files(&sandbox), ["file"]);
}

/// Takes a snapshot of `source` after a script that mounts and unmounts, in a mount namespace of
/// its own, so that nothing of it stays.
fn snapshot_after(sandbox: &Sandbox, script: &str) -> Run {
    let inner = sandbox.command();
    let mut command = Command::new("unshare");
    let script = format!("{script} && exec \"$@\"");
    command.args(["-m", "sh", "-ec", &script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(inner.get_current_dir().unwrap()).args(["snapshot", "source"]);
    Run::new(command.output().unwrap())
}

/// Reports whether a test can mount in a namespace of its own.
fn can_mount() -> bool {
    let unshared = || Command::new("unshare").args(["-m", "true"]).status();
    is_root() && unshared().is_ok_and(|status| status.success())
}

/// In a new root folder, `/proc` is easily forgotten.
#[test]
fn without_proc_links_are_kept_and_the_error_says_what_to_mount() {
    if !can_mount() {
        eprintln!(
            "skipped as nothing can be unmounted: without_proc_links_are_kept_and_the_error_says_what_to_mount"
        );
        return;
    }
    let sandbox = sandbox_with(&["file"]);
    std::os::unix::fs::symlink("file", sandbox.path("source/link")).unwrap();
    let run = snapshot_after(&sandbox, "umount -l /proc");
    assert_eq!(run.code, Some(3), "{}{}", run.text(), run.stderr);
    assert!(run.stderr.contains("link: its extended attributes are reached through /proc"), "{}", run.stderr);
    assert!(run.stderr.contains("`mount -t proc proc /proc`"), "{}", run.stderr);
    let restored = sandbox.run(["restore", "source:link", &sandbox.arg("link")]);
    assert_eq!(restored.code, Some(3), "its attributes are missing: {}", restored.stderr);
    assert_eq!(fs::read_link(sandbox.path("link")).unwrap(), Path::new("file"));
}

#[test]
fn file_systems_of_the_kernel_are_left_empty_and_told() {
    let sandbox = sandbox_with(&["file", "proc/below", "sys/below"]);
    if !can_mount() {
        eprintln!("skipped as nothing can be mounted: file_systems_of_the_kernel_are_left_empty_and_told");
        return;
    }
    let run = snapshot_after(&sandbox, "mount -t proc none source/proc && mount -t sysfs none source/sys");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{}", run.text());
    for name in ["proc", "sys"] {
        assert!(run.text().contains(&format!("left out: the contents of {name}")), "{}", run.text());
    }
    assert_eq!(files(&sandbox), ["file"]);
}

/// Times beyond 64 bits of nanoseconds are restored exactly where the file system can keep them.
#[test]
fn a_file_from_the_year_2400_comes_back() {
    use std::os::unix::fs::MetadataExt;
    let sandbox = sandbox_with(&["file"]);
    let time = |name: &str| {
        let found = fs::metadata(sandbox.path(name)).unwrap();
        (found.mtime(), found.mtime_nsec())
    };
    tool("touch", ["-d", "2400-01-01 00:00:00.000000005 UTC", &sandbox.arg("source/file")]);
    if time("source/file") != (13_569_465_600, 5) {
        eprintln!("skipped as this file system does not keep it: a_file_from_the_year_2400_comes_back");
        return;
    }
    sandbox.ok(["snapshot", "source"]);
    sandbox.ok(["restore", "source", &sandbox.arg("out")]);
    assert_eq!(time("out/file"), (13_569_465_600, 5));
}

/// Returns the lines of a result that report new entries and entries that were left out.
fn news(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| ["+ ", "M ", "  files: ", "  - "].iter().any(|it| line.starts_with(it)))
        .collect()
}

#[test]
fn new_and_changed_files_are_counted_and_listed() {
    let sandbox = sandbox_with(&["a.o", "below/b", "c", "d", "e", "gone"]);
    fs::hard_link(sandbox.path("source/c"), sandbox.path("source/c too")).unwrap();
    std::os::unix::fs::symlink("c", sandbox.path("source/link")).unwrap();
    let exclude = ["--exclude", "*.o"];
    let first = sandbox.json([&["snapshot", "source"], &exclude[..]].concat()).remove(0);
    let counts = |line: &Value| {
        let names =
            ["files", "folders", "new_files", "changed_files", "new_or_changed_files", "unchanged_files"];
        names.map(|name| line[name].as_u64())
    };
    assert_eq!(counts(&first), [7, 2, 7, 0, 7, 0].map(Some), "{first}");
    // A file gets other bytes, another a new mode, a link a new target; one file is removed and one
    // added.
    fs::write(sandbox.path("source/below/b"), "others").unwrap();
    fs::set_permissions(sandbox.path("source/d"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::remove_file(sandbox.path("source/link")).unwrap();
    std::os::unix::fs::symlink("d", sandbox.path("source/link")).unwrap();
    fs::remove_file(sandbox.path("source/gone")).unwrap();
    fs::write(sandbox.path("source/new"), "bytes").unwrap();
    let text = sandbox.ok([&["-v", "snapshot", "source"], &exclude[..]].concat());
    let mut lines = news(&text);
    lines.sort_unstable();
    let rule = "  - a.o of 5 B (the pattern \"*.o\")";
    let counted = "  files: 1 new, 3 changed, 3 unchanged";
    assert_eq!(lines, [rule, counted, "+ new", "M below/b", "M d", "M link"], "{text}");
    // Reading a file again does not count as a change, and without `-v` nothing is listed.
    let text = sandbox.ok([&["snapshot", "--reread", "source"], &exclude[..]].concat());
    assert_eq!(news(&text), ["  files: 0 new, 0 changed, 7 unchanged"]);
    fs::write(sandbox.path("source/e"), "other bytes").unwrap();
    let lines = sandbox.json([&["-v", "snapshot", "source"], &exclude[..]].concat());
    let listed: Vec<_> = lines.iter().filter(|line| line["type"] == "archived").collect();
    assert_eq!(listed.len(), 1, "{lines:?}");
    assert_eq!((&listed[0]["change"], &listed[0]["path"]), (&"changed".into(), &"e".into()));
    assert_eq!(lines.iter().filter(|line| line["type"] == "left_out").count(), 1, "{lines:?}");
}

/// A key that cannot read the previous snapshot knows which files it has read, but not which of
/// them are new.
#[test]
fn who_may_not_read_is_told_no_more_than_is_known() {
    let mut sandbox = Sandbox::encrypted();
    sandbox::write_secret(&sandbox.path("machine"), &sandbox::noise(5, 32));
    sandbox.ok(["key", "add", "--write-only", "--new-key-file", "machine"]);
    sandbox.set_key(Some(sandbox.path("machine")));
    for name in ["a", "b"] {
        fs::create_dir_all(sandbox.path("source")).unwrap();
        fs::write(sandbox.path("source").join(name), "bytes").unwrap();
    }
    // A file that changes right before it is archived is read again the next time.
    std::thread::sleep(Duration::from_millis(2100));
    let line = sandbox.json(["snapshot", "source"]).remove(0);
    assert_eq!((&line["new_files"], &line["new_or_changed_files"]), (&Value::Null, &2.into()), "{line}");
    fs::write(sandbox.path("source/b"), "others").unwrap();
    let text = sandbox.ok(["-v", "snapshot", "source"]);
    assert_eq!(news(&text), ["+ b", "  files: 1 new or changed, 1 unchanged"], "{text}");
}

#[test]
fn flags_of_files_come_back() {
    let sandbox = sandbox_with(&["fixed", "log", "quiet", "plain", "folder/inside"]);
    let _unlocked = Unlocked(sandbox.path(""));
    fs::hard_link(sandbox.path("source/fixed"), sandbox.path("source/twin")).unwrap();
    let set = |flags: &str, path: &str| chattr(flags, &sandbox.path("source").join(path));
    let all = [("+dA", "quiet"), ("+a", "log"), ("+iA", "fixed"), ("+i", "folder"), ("+di", "")];
    if !all.iter().all(|(flags, path)| set(flags, path)) {
        eprintln!("skipped as flags cannot be set here: flags_of_files_come_back");
        return;
    }
    sandbox.ok(["snapshot", "source"]);
    let nodes = sandbox.json(["ls", "-R", "source"]);
    let flags = |path: &str| nodes.iter().find(|node| node["path"] == path).unwrap()["flags"].clone();
    assert_eq!(flags("quiet"), json!(["no_dump", "no_access_time"]));
    assert_eq!(flags("twin"), json!(["immutable", "no_access_time"]));
    assert_eq!(flags("plain"), json!([]));
    // The destinations are a new folder, an empty folder, and a single file.
    let restored = sandbox.json(["restore", "source", "out"]).remove(0);
    assert_eq!((&restored["lacking_flags"], &restored["problems"]), (&0.into(), &0.into()));
    fs::create_dir(sandbox.path("empty")).unwrap();
    assert_eq!(sandbox.run(["restore", "source", "empty"]).stderr, "");
    let expected = [
        ("", "id"),
        ("fixed", "iA"),
        ("twin", "iA"),
        ("log", "a"),
        ("quiet", "dA"),
        ("plain", ""),
        ("folder", "i"),
        ("folder/inside", ""),
    ];
    for (path, wanted) in expected {
        for out in ["out", "empty"] {
            assert_eq!(letters(&sandbox.path(out).join(path)), wanted, "{out}/{path}");
        }
    }
    sandbox.ok(["restore", "source:fixed", "one"]);
    assert_eq!(letters(&sandbox.path("one")), "iA");
    // All flags are set: another restore has nothing to do, and meets no problem.
    let again = sandbox.json(["restore", "source", "out", "--overwrite", "if-changed"]).remove(0);
    let counts = ["files", "attributes", "problems", "lacking_flags"].map(|name| again[name].clone());
    assert_eq!(counts, [0, 0, 0, 0].map(Value::from), "{again}");
    // A file that lacks a flag gets it.
    assert!(chattr("-i", &sandbox.path("out/fixed")) && chattr("-d", &sandbox.path("out/quiet")));
    let plan = sandbox.ok(["restore", "source", "out", "--overwrite", "if-changed", "--dry-run"]);
    assert!(plan.contains("attributes  out/quiet  (owner, mode, times or attributes differ)"), "{plan}");
    sandbox.ok(["restore", "source:quiet", "out/quiet", "--overwrite", "if-changed"]);
    assert_eq!(letters(&sandbox.path("out/quiet")), "dA");
}

/// A user who may not set flags gets everything else, and a count of the files that lack flags.
#[test]
fn a_flag_that_cannot_be_given_is_no_failure() {
    let sandbox = sandbox_with(&["fixed", "log", "quiet", "folder/inside"]);
    let _unlocked = Unlocked(sandbox.path(""));
    let set = |flags: &str, path: &str| chattr(flags, &sandbox.path("source").join(path));
    if !(set("+iA", "fixed") && set("+a", "log") && set("+d", "quiet") && set("+i", "folder")) {
        eprintln!("skipped as flags cannot be set here: a_flag_that_cannot_be_given_is_no_failure");
        return;
    }
    sandbox.ok(["snapshot", "source"]);
    let unprivileged = |args: &[&str]| {
        let mut inner = sandbox.command();
        inner.args(args);
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-linux_immutable", "--inh-caps=-linux_immutable"]);
        command.arg(inner.get_program()).args(inner.get_args()).current_dir(inner.get_current_dir().unwrap());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Run::new(command.output().unwrap())
    };
    let first = unprivileged(&["restore", "source", "out"]);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert!(
        first.stderr.contains("varve: 3 files or folders lack flags that chattr sets"),
        "{}",
        first.stderr
    );
    assert_eq!(letters(&sandbox.path("out/fixed")), "A");
    assert_eq!(letters(&sandbox.path("out/quiet")), "d");
    // A missing flag is not a difference for this user, who could never set it, but is still
    // counted.
    let again = unprivileged(&["--json", "restore", "source", "out", "--overwrite", "if-changed"]);
    let line = json_lines(&again.text()).into_iter().find(|line| line["type"] == "restored").unwrap();
    assert_eq!((&line["attributes"], &line["lacking_flags"]), (&0.into(), &3.into()), "{line}");
    // It is a difference for root, who sets it.
    let line = sandbox.json(["restore", "source", "out", "--overwrite", "if-changed"]).remove(0);
    assert_eq!((&line["attributes"], &line["lacking_flags"]), (&2.into(), &0.into()), "{line}");
    assert_eq!(letters(&sandbox.path("out/fixed")), "iA");
    assert_eq!(letters(&sandbox.path("out/folder")), "i");
}

#[test]
fn a_change_of_flags_is_a_change() {
    let sandbox = sandbox_with(&["file", "folder/inside"]);
    let first = sandbox.json(["snapshot", "source"])[0]["id"].as_str().unwrap().to_owned();
    if !(chattr("+d", &sandbox.path("source/file")) && chattr("+A", &sandbox.path("source/folder"))) {
        eprintln!("skipped as flags cannot be set here: a_change_of_flags_is_a_change");
        return;
    }
    let second = sandbox.json(["snapshot", "source"]).remove(0);
    assert_eq!((&second["changed_files"], &second["unchanged_files"]), (&1.into(), &1.into()), "{second}");
    let changes = sandbox.json(["diff", &first, "source"]);
    let changed: Vec<_> = changes.iter().map(|change| change["path"].as_str().unwrap()).collect();
    assert_eq!(changed, ["file", "folder"], "{changes:?}");
    assert!(changes.iter().all(|change| change["change"] == "metadata"), "{changes:?}");
    assert_eq!(sandbox.ok(["diff", "source", "source"]), "");
    // The next snapshot records the same flags, and does not read the file again.
    std::thread::sleep(Duration::from_millis(2100));
    sandbox.ok(["snapshot", "source"]);
    let node = sandbox.json(["ls", "source:file"]).remove(0);
    assert_eq!(node["flags"], json!(["no_dump"]));
    let second = second["id"].as_str().unwrap();
    assert_eq!(sandbox.ok(["diff", second, "source"]), "");
}

/// Each file system has flags of its own. Flags that a file system lacks are counted, and cause no
/// failure.
#[test]
fn each_file_system_gives_back_the_flags_that_it_has() {
    let can_mount = is_root() && std::path::Path::new("/dev/loop-control").exists();
    for (kind, options, flags) in [
        ("ext4", &["-q"][..], &["d", "A", "S", "c", "i", "a"][..]),
        ("btrfs", &["-q"], &["C", "c", "m", "A"]),
        ("xfs", &["-q"], &["d", "A", "S", "i", "a"]),
    ] {
        let mkfs = format!("/usr/sbin/mkfs.{kind}");
        if !can_mount || !std::path::Path::new(&mkfs).exists() {
            eprintln!(
                "skipped as there is no {kind} here: each_file_system_gives_back_the_flags_that_it_has"
            );
            continue;
        }
        let sandbox = sandbox_with(&[]);
        let image = sandbox.path("image");
        fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
        tool(&mkfs, options.iter().map(std::ffi::OsStr::new).chain([image.as_os_str()]));
        let device = LoopDevice::writable(&image, 0);
        fs::create_dir(sandbox.path("disk")).unwrap();
        let mount = Command::new("mount").arg(device.path()).arg(sandbox.path("disk")).status().unwrap();
        if !mount.success() {
            eprintln!(
                "skipped as no {kind} is mounted here: each_file_system_gives_back_the_flags_that_it_has"
            );
            continue;
        }
        let _mounted = Mounted(sandbox.path("disk"));
        let _unlocked = Unlocked(sandbox.path("disk"));
        fs::create_dir(sandbox.path("disk/source")).unwrap();
        let path = |folder: &str, flag: &str| sandbox.path("disk").join(folder).join(flag);
        for flag in flags {
            // Some flags can only be set on an empty file.
            fs::write(path("source", flag), "").unwrap();
            assert!(
                matches!(*flag, "i" | "a") || chattr(&format!("+{flag}"), &path("source", flag)),
                "{kind} {flag}"
            );
            fs::write(path("source", flag), [b'x'; 100_000]).unwrap();
            assert!(chattr(&format!("+{flag}"), &path("source", flag)), "{kind} {flag}");
            assert_eq!(letters(&path("source", flag)), *flag, "{kind}");
        }
        sandbox.ok(["snapshot", "disk/source"]);
        let run = sandbox.run(["restore", "source", "disk/out"]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{kind}");
        for flag in flags {
            assert_eq!(letters(&path("out", flag)), *flag, "{kind}");
            assert_eq!(fs::read(path("out", flag)).unwrap(), [b'x'; 100_000], "{kind} {flag}");
        }
        // The destination is on the file system of the sandbox, which lacks some of these flags.
        let run = sandbox.run(["--json", "restore", "source", "elsewhere"]);
        // Btrfs also keeps `c` in an extended attribute, which other file systems refuse.
        assert_eq!(run.code, Some(if kind == "btrfs" { 3 } else { 0 }), "{kind}");
        let elsewhere =
            all_json_lines(&run.text()).into_iter().find(|line| line["type"] == "restored").unwrap();
        let lacking = flags.iter().filter(|flag| letters(&sandbox.path("elsewhere").join(flag)) != **flag);
        assert_eq!(elsewhere["lacking_flags"], lacking.count(), "{kind}: {elsewhere}");
        let _unlocked = Unlocked(sandbox.path("elsewhere"));
    }
}

struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
