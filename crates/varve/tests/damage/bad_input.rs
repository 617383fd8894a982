//! Everything that can go wrong from outside: keys, stores, sources, full disks, damage, and runs
//! that are cut short. The real program says clearly what is wrong, loses nothing, and never
//! returns wrong bytes.
#![allow(clippy::print_stderr, reason = "says what it skipped")]
#![allow(clippy::disallowed_methods, reason = "waits for another process")]

use crate::sandbox;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use crate::sandbox::{Run, Sandbox, is_root, manifest, noise, tool, write_at};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn keys_that_do_not_fit() {
    let mut sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(1, 100_000));
    let key = sandbox.path("key");
    fs::write(sandbox.path("other"), noise(99, 32)).unwrap();
    sandbox.set_key(Some(sandbox.path("other")));
    for words in [&["snapshots"][..], &["cat", "disk"], &["verify"]] {
        let run = sandbox.run(words);
        assert_eq!((run.code, run.stdout.len()), (Some(12), 0));
        assert!(run.stderr.contains("key"), "{}", run.stderr);
    }
    sandbox.set_key(Some(sandbox.path("absent")));
    assert!(sandbox.fails(1, ["snapshots"]).contains("cannot read the key file"));
    sandbox.set_key(None);
    let missing = sandbox.fails(12, ["snapshots"]);
    assert!(missing.contains("hint: set VARVE_PASSPHRASE, or name a key file"), "{missing}");
    sandbox.set_key(Some(key));
    sandbox.ok(["snapshots"]);
}

#[test]
fn folders_that_are_no_store() {
    let mut sandbox = Sandbox::encrypted();
    let store = sandbox.store().to_path_buf();
    let twice = sandbox.fails(1, ["init"]);
    assert!(twice.contains("store"), "{twice}");

    let config = store.join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("format = 1", "format = 3")).unwrap();
    let newer = sandbox.fails(13, ["snapshots"]);
    assert!(newer.contains("newer") || newer.contains("format 2"), "{newer}");
    fs::write(&config, "format = \"").unwrap();
    assert!(sandbox.fails(5, ["snapshots"]).contains("config.toml"));
    fs::write(&config, text).unwrap();
    sandbox.ok(["snapshots"]);

    sandbox.set_store(sandbox.path("nowhere"));
    assert!(sandbox.fails(10, ["snapshots"]).contains("`varve -s PATH init` makes one there"));
    fs::write(sandbox.path("file"), "mine").unwrap();
    sandbox.set_store(sandbox.path("file"));
    for words in
        [&["snapshots"][..], &["snapshot", "nowhere"], &["verify"], &["repair"], &["replicate", "replica"]]
    {
        let told = sandbox.fails(10, words.iter().copied());
        assert!(told.contains("this is not a store: it is a file, not a folder"), "{words:?}: {told}");
        assert!(!told.contains("init`"), "{told}");
    }
    fs::create_dir(sandbox.path("strange")).unwrap();
    fs::write(sandbox.path("strange/diary"), "mine").unwrap();
    sandbox.set_store(sandbox.path("strange"));
    assert!(sandbox.fails(10, ["snapshots"]).contains("`varve -s PATH init` makes one there"));
    assert!(sandbox.fails(1, ["init"]).contains("diary"));
    assert_eq!(fs::read_dir(sandbox.path("strange")).unwrap().count(), 1, "nothing was put beside it");
    sandbox.set_store(sandbox.path("strange/diary"));
    assert!(sandbox.fails(10, ["snapshots"]).contains("this is not a store"));
}

#[test]
fn a_store_does_not_archive_itself() {
    let sandbox = Sandbox::encrypted();
    let store = sandbox.store().to_str().unwrap();
    assert!(sandbox.fails(1, ["snapshot", store]).contains("is the store itself"));
    assert_eq!(sandbox.ids(), Vec::<String>::new());
}

#[test]
fn sources_that_cannot_be_read() {
    let sandbox = Sandbox::encrypted();
    assert!(sandbox.fails(1, ["snapshot", "absent"]).contains("absent"));
    assert!(sandbox.fails(1, ["snapshot", "/dev/null"]).contains("neither a file nor a block device"));
    if is_root() {
        eprintln!("skipped: a source that may not be read, which root always may");
    } else {
        use std::os::unix::fs::PermissionsExt;
        fs::write(sandbox.path("secret"), "s").unwrap();
        fs::set_permissions(sandbox.path("secret"), PermissionsExt::from_mode(0o000)).unwrap();
        assert!(sandbox.fails(1, ["snapshot", "secret"]).contains("ermission denied"));
    }
    assert_eq!(sandbox.ids(), Vec::<String>::new());
    sandbox.ok(["verify"]);
}

#[test]
fn a_file_that_hides_its_size_is_no_source() {
    let sandbox = Sandbox::encrypted();
    // The first file has bytes although its size is 0. The second cannot be read at its beginning.
    let mounts = sandbox.fails(1, ["snapshot", "/proc/self/status"]);
    assert!(mounts.contains("reports a size of 0"), "{mounts}");
    assert!(sandbox.fails(1, ["snapshot", "/proc/self/mem"]).contains("/proc/self/mem"));
    assert_eq!(sandbox.ids(), Vec::<String>::new());
    fs::write(sandbox.path("empty"), "").unwrap();
    sandbox.ok(["snapshot", "empty"]);
}

#[test]
fn nothing_is_restored_into_the_store() {
    let sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("folder")).unwrap();
    fs::write(sandbox.path("folder/file"), "text").unwrap();
    sandbox.ok(["snapshot", "folder"]);
    let store = sandbox.store().to_path_buf();
    std::os::unix::fs::symlink(&store, sandbox.path("link")).unwrap();
    for inside in [store.join("new"), store.join("arenas/deep/new"), sandbox.path("link/new"), store.clone()]
    {
        let refused = sandbox.fails(1, ["restore", "folder", inside.to_str().unwrap()]);
        assert!(refused.contains("the store itself"), "{refused}");
    }
    assert!(!store.join("new").exists());
    sandbox.ok(["restore", "folder", &sandbox.arg("beside")]);
}

#[test]
fn wrong_words_and_wrong_kinds_are_said() {
    let sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("folder")).unwrap();
    sandbox.ok(["snapshot", "folder", "--time", "2026-05-01T23:15:07.5Z"]);
    assert!(sandbox.fails(2, ["find", "["]).contains("is not a pattern"));
    assert!(sandbox.fails(2, ["find", "[", "folder"]).contains("is not a pattern"));
    assert!(sandbox.fails(1, ["cat", "folder"]).contains("\"folder\" is a folder"));
    // The time is given to the second, as `snapshots` shows it.
    assert_eq!(sandbox.ok(["ls", "folder@2026-05-01T23:15:07Z"]), "");
    assert!(sandbox.fails(1, ["ls", "folder@2026-05-01T23:15:06Z"]).contains("no snapshot is that old"));
    for (words, said) in [
        (["snapshot", "folder", "--exclude", "["], "a [ has no ]"),
        (["snapshot", "folder", "--name", &"n".repeat(256)], "at most 255 bytes"),
        (["snapshot", "folder", "--name", "a\tb"], "no control characters"),
    ] {
        let told = sandbox.fails(2, words);
        assert!(told.contains(said), "{told}");
    }
    fs::write(sandbox.path("patterns"), "*.o\n# [\nold[\n").unwrap();
    let told = sandbox.fails(1, ["snapshot", "folder", "--exclude-file", "patterns"]);
    assert!(told.contains("patterns, line 3: \"old[\" is not a pattern: a [ has no ]"), "{told}");
    let unset =
        [&["ls", ""][..], &["cat", ":file"], &["restore", "", "out"], &["diff", "folder", ""], &["boot", ""]];
    for words in unset {
        assert!(sandbox.fails(2, words).contains("the name of the snapshot is empty"), "{words:?}");
    }
}

#[test]
fn a_fifo_is_no_source() {
    let sandbox = Sandbox::encrypted();
    tool("mkfifo", [sandbox.path("fifo")]);
    let mut child = sandbox.command().args(["snapshot", "fifo"]).stderr(Stdio::piped()).spawn().unwrap();
    let ended = until(|| child.try_wait().unwrap().is_some());
    child.kill().unwrap();
    assert!(ended);
    assert_eq!(Run::new(child.wait_with_output().unwrap()).code, Some(1));
}

#[test]
fn a_second_writer_is_told_of_the_first() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("old", b"old");
    let (first, mut input) = writer(&sandbox, "slow");
    input.write_all(&noise(3, 100_000)).unwrap();
    let holder = format!("process {} ", first.id());
    let lock = sandbox.store().join("lock");
    assert!(until(|| fs::read_to_string(&lock).is_ok_and(|text| text.contains(&holder))));
    let refused = sandbox.fails(11, ["snapshot", "/etc/hostname", "--name", "second"]);
    assert!(refused.contains(&holder) && refused.contains("hint: --wait 10m waits"), "{refused}");
    assert_eq!(sandbox.ok(["cat", "old"]), "old", "readers are not kept out");
    sandbox.ok(["verify"]);
    drop(input);
    assert_eq!(Run::new(first.wait_with_output().unwrap()).code, Some(0));
    assert_eq!(sandbox.ids().len(), 2);
    sandbox.snapshot_bytes("second", b"now");
}

#[test]
fn a_run_that_is_cut_short_leaves_what_was_there() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let sandbox = Sandbox::encrypted();
        let (old, new) = (noise(4, 500_000), noise(5, 8 << 20));
        sandbox.snapshot_bytes("disk", &old);
        let arenas_before = sandbox.arenas().len();
        let (child, mut input) = writer(&sandbox, "disk");
        input.write_all(&new[..7 << 20]).unwrap();
        assert!(until(|| sandbox.arenas().len() >= arenas_before + 3), "it writes while it reads");
        kill_process(Pid::from_child(&child), signal).unwrap();
        // A separate thread receives the signal, and may have to wait for a processor. So the rest
        // of the input comes slowly. A process that was killed reads no more.
        for piece in new[7 << 20..].chunks(16 << 10) {
            if input.write_all(piece).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(input);
        let run = Run::new(child.wait_with_output().unwrap());
        assert_ne!(run.code, Some(0), "{signal:?}: {}", run.stderr);
        if signal != Signal::KILL {
            assert_eq!(run.code, Some(130));
            assert!(run.stderr.contains("interrupted"), "{}", run.stderr);
        }
        assert_eq!(sandbox.ids().len(), 1, "{signal:?}");
        assert!(sandbox.run(["cat", "disk"]).stdout == old);
        harms_nothing(&sandbox);
        let again = sandbox.snapshot_bytes("disk", &new);
        let new_bytes = again["new_bytes"].as_u64().unwrap();
        assert!(new_bytes < 7 << 20, "{signal:?}: {new_bytes} bytes were stored again");
        assert!(sandbox.run(["cat", "disk"]).stdout == new);
        sandbox.ok(["verify", "--data"]);
    }
}

#[test]
fn a_full_disk_loses_nothing() {
    let sandbox = Sandbox::empty();
    let disk = sandbox.path("disk");
    fs::create_dir(&disk).unwrap();
    let Some(_mounted) = Mounted::tmpfs(&disk, "6M") else {
        eprintln!("skipped: a full disk, which needs the right to mount a tmpfs");
        return;
    };
    let mut sandbox = sandbox;
    sandbox.set_store(disk.join("store"));
    sandbox.ok(["init", "--arena-size", "1M"]);
    let (old, new) = (noise(6, 1_000_000), noise(7, 12_000_000));
    sandbox.snapshot_bytes("disk", &old);
    fs::write(sandbox.path("big.img"), &new).unwrap();
    for _ in 0..2 {
        let full = sandbox.fails(1, ["snapshot", "big.img"]);
        assert!(full.contains("No space left"), "{full}");
        assert!(full.contains("hint: nothing that was archived"), "{full}");
        assert!(sandbox.run(["cat", "disk"]).stdout == old);
        assert_eq!(sandbox.ids().len(), 1);
        harms_nothing(&sandbox);
    }
    tool("mount", ["-o", "remount,size=64M", disk.to_str().unwrap()]);
    sandbox.ok(["snapshot", "big.img"]);
    assert!(sandbox.run(["cat", "big.img"]).stdout == new);
    assert!(sandbox.run(["cat", "disk"]).stdout == old);
    sandbox.ok(["verify", "--data"]);

    fs::create_dir(sandbox.path("small")).unwrap();
    let _small = Mounted::tmpfs(&sandbox.path("small"), "2M").unwrap();
    let full = sandbox.fails(1, ["restore", "big.img", "small/out"]);
    assert!(full.contains("No space left"), "{full}");
    assert!(full.contains("hint: the archive is unchanged; make space at the destination"), "{full}");
    assert!(full.contains("small/.out.varve-partial-0"), "where what is done lies: {full}");
    assert!(!sandbox.path("small/out").exists(), "no half of it has the name");
    fs::remove_file(sandbox.path("small/.out.varve-partial-0")).unwrap();

    fs::create_dir(sandbox.path("folder")).unwrap();
    fs::write(sandbox.path("folder/big"), noise(8, 4_000_000)).unwrap();
    sandbox.ok(["snapshot", "folder"]);
    let alone = sandbox.fails(1, ["restore", "folder:big", "small/out"]);
    assert!(alone.contains("No space left") && !alone.contains("No such file"), "{alone}");
    let among = sandbox.fails(1, ["restore", "folder", "small/out"]);
    assert!(among.contains("No space left") && among.contains("hint: the archive is"), "{among}");
    assert!(!sandbox.path("small/out").exists(), "nothing that lacks something has the name");
    for left in fs::read_dir(sandbox.path("small")).unwrap().map(|left| left.unwrap().path()) {
        if left.is_dir() { fs::remove_dir_all(left).unwrap() } else { fs::remove_file(left).unwrap() }
    }
    fs::write(sandbox.path("small/fill"), noise(9, 1 << 20)).unwrap();
    let mut small = sandbox;
    small.set_store(small.path("small/store"));
    while OpenOptions::new().append(true).open(small.path("small/fill")).unwrap().write(&[0; 4096]).is_ok() {}
    let made = small.fails(1, ["init"]);
    assert!(made.contains("hint: make space, and run") && !made.contains("archived before"), "{made}");
}

/// A small disk that is unmounted when the value is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: &Path, size: &str) -> Option<Self> {
        let options = format!("size={size}");
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(at)
            .output();
        mount.is_ok_and(|output| output.status.success()).then(|| Self(at.into()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

/// Starts a snapshot of standard input. It lasts until the input is closed.
fn writer(sandbox: &Sandbox, name: &str) -> (Child, ChildStdin) {
    let mut child = sandbox
        .command()
        .args(["snapshot", "-", "--name", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    (child, input)
}

/// A run that was cut short may leave an unfinished end of the log. The next writer cuts it off, so
/// it is no damage.
fn harms_nothing(sandbox: &Sandbox) {
    sandbox.ok(["verify", "--data"]);
}

fn until(mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// `varve-archive/tests/archive/damage_matrix.rs` damages each part of a store, and knows which
/// data is lost. This test runs the commands on a damaged store: they agree, return no wrong byte,
/// and each ends with a documented exit status.
#[test]
fn commands_on_a_damaged_store_agree() {
    let whole = Sandbox::made_with(&["--clump-size", "64K"]);
    let image = noise(8, 1_600_000);
    whole.snapshot_bytes("disk", &image);
    fs::create_dir(whole.path("home")).unwrap();
    for number in 0..4 {
        fs::write(whole.path(&format!("home/{number}")), noise(20 + number, 60_000)).unwrap();
    }
    whole.ok(["snapshot", "home"]);
    let wanted = manifest(&whole.path("home"));
    let harm = |arena: &Path, way: &str| {
        let half = fs::metadata(arena).unwrap().len() / 2;
        match way {
            "rotten" => write_at(arena, half, b"rotten"),
            "cut" => OpenOptions::new().write(true).open(arena).unwrap().set_len(half).unwrap(),
            _ => fs::remove_file(arena).unwrap(),
        }
    };
    for arena in whole.arenas() {
        for way in ["rotten", "cut", "removed"] {
            let what = format!("{}, {way}", arena.display());
            let harmed = Sandbox::copy_of(whole.store(), whole.key());
            harm(&harmed.store().join("arenas").join(arena.file_name().unwrap()), way);
            let [cat, restored, home, verify] = [
                &["cat", "disk"][..],
                &["restore", "disk", "out"],
                &["restore", "home", "back"],
                &["verify", "--data"],
            ]
            .map(|words| harmed.run(words));
            for run in [&cat, &restored, &home, &verify] {
                assert!(matches!(run.code, Some(0 | 1 | 5 | 10 | 12)), "{what}: {:?}", run.code);
            }
            assert!(image.starts_with(&cat.stdout), "{what}: wrong bytes");
            assert_eq!(cat.code == Some(0), cat.stdout == image, "{what}: cut short without an error");
            assert_eq!(cat.code == Some(0), restored.code == Some(0), "{what}: cat and restore disagree");
            if home.code == Some(0) {
                assert_eq!(manifest(&harmed.path("back")), wanted, "{what}");
            }
            for path in wanted.keys().filter(|path| harmed.path("back").join(path).is_file()) {
                let [back, source] = [harmed.path("back"), whole.path("home")].map(|at| at.join(path));
                assert!(fs::read(back).unwrap() == fs::read(source).unwrap(), "{what}: {path:?}");
            }
            let is_whole = cat.code == Some(0) && home.code == Some(0);
            assert!(is_whole || verify.code == Some(5), "{what}: verify {:?}", verify.code);
        }
    }
}

/// No request removes, replaces or writes into the store, its key files, or any other part of it.
#[test]
fn nothing_is_replaced_that_holds_the_store() {
    let sandbox = Sandbox::encrypted();
    for folder in ["folder", "bare"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
    }
    fs::write(sandbox.path("folder/file"), "text").unwrap();
    sandbox.ok(["snapshot", "folder", "bare"]);
    sandbox.snapshot_bytes("disk", b"an image");
    let replica = sandbox.path("usb/replica");
    fs::create_dir(sandbox.path("usb")).unwrap();
    sandbox.ok(["replicate", replica.to_str().unwrap(), "--remember"]);
    fs::create_dir_all(sandbox.path("cache/varve")).unwrap();
    fs::write(sandbox.path("cache/varve/seen"), "what was seen").unwrap();
    let ids = sandbox.ids();
    let all = ["--overwrite", "always", "--delete", "--yes", "--replace-types"];
    let refused = |what: &str, place: &str, code: i32| {
        sandbox.fails(code, [&["restore"][..], &all, &[what, place]].concat())
    };
    let [store, key] = [sandbox.store(), &sandbox.path("key")].map(|path| path.canonicalize().unwrap());
    for (place, what) in [(&store, "the store itself"), (&replica, "a replica"), (&key, "the key")] {
        for from in ["folder", "folder:file", "disk"] {
            let told = refused(from, place.to_str().unwrap(), 1);
            assert!(told.contains(what), "{told}");
        }
    }
    // The replica is reached by another path.
    std::os::unix::fs::symlink(sandbox.path("."), sandbox.path("usb/link")).unwrap();
    let by_link = sandbox.arg("usb/link/usb/replica/x");
    assert!(refused("folder", &by_link, 1).contains("a replica"));
    // A restore of an empty snapshot into a folder above would remove everything there.
    for (place, kept) in [("usb", "usb/replica"), ("cache", "cache/varve"), ("", "key")] {
        fs::write(sandbox.path(place).join("old"), "removed").unwrap();
        let told = refused("bare", &sandbox.path(place).canonicalize().unwrap().to_string_lossy(), 3);
        assert!(told.contains("must stay"), "{told}");
        assert!(sandbox.path(kept).exists() && !sandbox.path(place).join("old").exists(), "{place}");
    }
    assert!(key.is_file() && replica.is_dir() && sandbox.path("cache/varve/seen").is_file());
    assert_eq!(sandbox.ids(), ids);
    sandbox.ok(["verify", "--data"]);
    // `--overwrite` needs a value.
    let around = store.parent().unwrap().to_str().unwrap().to_owned();
    assert!(sandbox.fails(2, ["restore", "folder", &around, "--overwrite"]).contains("--overwrite"));
}

/// The pipe stands for `--exclude-file <(...)` of a shell: its text can be read only once.
#[test]
fn patterns_may_come_through_a_pipe() {
    let sandbox = Sandbox::encrypted();
    for folder in ["one", "other"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
        fs::write(sandbox.path(folder).join("kept"), "").unwrap();
        fs::write(sandbox.path(folder).join("left.o"), "").unwrap();
    }
    let mut command = sandbox.command();
    command.args(["-q", "snapshot", "--exclude-file", "/dev/stdin", "one", "other"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"# objects\n*.o\n").unwrap();
    assert!(child.wait().unwrap().success());
    for folder in ["one", "other"] {
        assert_eq!(sandbox.ok(["ls", folder]), "kept\n", "{folder}");
    }
}

#[test]
fn nothing_that_is_said_works_on_a_terminal_or_looks_like_a_line_of_ours() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(1, 1000));
    let evil = "\u{1b}[31mEVIL\u{7}\nvarve: all is well";
    for words in [&["ls", evil][..], &["snapshot", evil], &["restore", evil, "to"], &["clone", evil, "to"]] {
        let said = sandbox.run(words).stderr;
        assert!(said.contains("EVIL"), "{words:?}: {said}");
        assert!(!said.contains(['\u{1b}', '\u{7}']), "{words:?}: {said:?}");
        assert!(!said.lines().any(|line| line.starts_with("varve: all is well")), "{words:?}: {said}");
    }
}

/// Every exit status that `docs/guide/exit-status.md` promises, each with a command that ends with
/// it.
#[test]
fn each_end_has_its_exit_status() {
    let mut sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("folder")).unwrap();
    fs::write(sandbox.path("folder/file"), noise(71, 400_000)).unwrap();
    sandbox.ok(["snapshot", "folder"]);
    assert!(sandbox.fails(1, ["snapshot", "absent"]).contains("absent"));
    assert!(sandbox.fails(2, ["snapshot", "-"]).contains("--name"));
    sandbox.fails(2, ["no-such-command"]);
    fs::write(sandbox.path("folder/other"), noise(72, 1000)).unwrap();
    sandbox.ok(["snapshot", "folder"]);
    let ids = sandbox.ids();
    assert_eq!(
        sandbox.ok(["diff", &ids[0], &ids[1]]),
        "m .\n+ other  0.98 KiB\n",
        "differences are no failure"
    );

    let key = sandbox.key().unwrap().to_path_buf();
    sandbox.set_key(None);
    sandbox.fails(12, ["snapshots"]);
    fs::write(sandbox.path("other"), noise(73, 32)).unwrap();
    sandbox.set_key(Some(sandbox.path("other")));
    assert!(sandbox.fails(12, ["snapshots"]).contains("does not open this store"));
    sandbox.set_key(Some(key));

    let store = sandbox.store().to_path_buf();
    sandbox.set_store(sandbox.path("nowhere"));
    for words in [&["snapshots"][..], &["snapshot", "folder"], &["verify"], &["key", "list"], &["stats"]] {
        sandbox.fails(10, words.iter().copied());
    }
    sandbox.set_store(store.clone());
    sandbox.fails(10, ["clone", "folder", "clone"]);

    let (first, mut input) = writer(&sandbox, "slow");
    let holder = format!("process {} ", first.id());
    assert!(until(|| fs::read_to_string(store.join("lock")).is_ok_and(|text| text.contains(&holder))));
    for words in [&["snapshot", "folder"][..], &["repair"], &["reindex"]] {
        assert!(sandbox.fails(11, words.iter().copied()).contains(&holder), "{words:?}");
    }
    kill_process(Pid::from_child(&first), Signal::INT).unwrap();
    // A separate thread receives the signal, and the input must not end before that.
    while input.write_all(&noise(74, 16 << 10)).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(Run::new(first.wait_with_output().unwrap()).code, Some(130));

    let arena = sandbox.arenas().remove(0);
    write_at(&arena, 200_000, &[0x55; 64]);
    for words in [
        &["verify", "--data"][..],
        &["cat", "folder:file"],
        &["restore", "folder", "out"],
        &["repair", "--plan", "--data"],
        &["repair", "--data"],
    ] {
        sandbox.fails(5, words.iter().copied());
    }
    sandbox.ok(["snapshots"]);
}

/// A snapshot without some of the files is no failure, but it is no full success either.
#[test]
fn a_snapshot_with_gaps_has_a_status_of_its_own() {
    use std::os::unix::fs::PermissionsExt;
    let mut sandbox = Sandbox::empty();
    sandbox.set_key(None);
    fs::create_dir(sandbox.path("folder")).unwrap();
    for name in ["folder/good", "folder/closed"] {
        fs::write(sandbox.path(name), name).unwrap();
    }
    fs::set_permissions(sandbox.path("folder/closed"), PermissionsExt::from_mode(0o000)).unwrap();
    fs::set_permissions(sandbox.path(""), PermissionsExt::from_mode(0o777)).unwrap();
    // Root can read every file, so the test uses another user.
    let run = |words: &[&str]| {
        let mut command = if is_root() { sandbox.command_as(65_534) } else { sandbox.command() };
        Run::new(command.args(words).output().unwrap())
    };
    assert_eq!(run(&["init", "--plaintext"]).code, Some(0));
    let gaps = run(&["snapshot", "folder"]);
    assert_eq!(gaps.code, Some(3), "{}{}", gaps.text(), gaps.stderr);
    assert!(gaps.stderr.contains("closed: ") && gaps.stderr.contains("lacks 1 file"), "{}", gaps.stderr);
    assert_eq!(run(&["cat", "folder:good"]).text(), "folder/good");
    assert_eq!(run(&["restore", "folder", "out"]).code, Some(3), "what it lacks is missing again");
    assert_eq!(run(&["verify", "--data"]).code, Some(0), "nothing that was stored is lost");
}

/// `--wait` names the process that holds the lock, continues as soon as the lock is free, ends at
/// once at a signal, and gives up with the exit status of the refusal.
#[test]
fn another_writer_is_waited_for() {
    let sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("file"), "x").unwrap();
    let (first, mut input) = writer(&sandbox, "slow");
    let holder = format!("process {} ", first.id());
    let lock = sandbox.store().join("lock");
    assert!(until(|| fs::read_to_string(&lock).is_ok_and(|text| text.contains(&holder))));

    let begun = Instant::now();
    let refused = sandbox.fails(11, ["--wait", "1s", "snapshot", "file"]);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert!(refused.contains(&holder) && refused.contains("waiting for up to 1.0 s"), "{refused}");
    assert_eq!(sandbox.fails(11, ["--wait", "0", "snapshot", "file"]).matches("waiting").count(), 0);

    let waiting = |words: &[&str]| {
        let mut command = sandbox.command();
        command.args(["--wait", "5m"]).args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let announced = |child: &mut Child| {
        use std::io::{BufRead, BufReader};
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(&holder) && line.contains("waiting for up to 5m"), "{line}");
    };
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = waiting(&["snapshot", "file"]);
        announced(&mut child);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
    let mut children = [waiting(&["snapshot", "file"]), waiting(&["repair"]), waiting(&["reindex"])];
    children.iter_mut().for_each(announced);
    input.write_all(b"done").unwrap();
    drop(input);
    assert_eq!(Run::new(first.wait_with_output().unwrap()).code, Some(0));
    for child in children {
        let run = Run::new(child.wait_with_output().unwrap());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
    }
    assert_eq!(sandbox.ids().len(), 2);
    // With `--json`, an object reports the wait.
    let (first, input) = writer(&sandbox, "slow");
    let holder = format!("process {} ", first.id());
    assert!(until(|| fs::read_to_string(&lock).is_ok_and(|text| text.contains(&holder))));
    let run = sandbox.run(["--json", "--wait", "1", "snapshot", "file"]);
    let lines = sandbox::all_json_lines(&run.text());
    assert_eq!((&lines[0]["type"], &lines[1]["status"]), (&"waiting".into(), &11.into()), "{lines:?}");
    drop(input);
    first.wait_with_output().unwrap();
}
