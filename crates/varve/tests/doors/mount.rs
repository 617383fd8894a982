//! The file system of days, mounted by the real program: every file of every night as it was, and
//! the behaviour on errors.
#![allow(clippy::print_stderr, reason = "says what it skipped")]
#![allow(clippy::disallowed_methods, reason = "it waits for another process")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::mount_point::{Mount, can_mount, is_mounted, wait_until};
use crate::sandbox::{Sandbox, has, is_root, manifest, noise, sample_folder, sparse_image, tool, write_at};

const NIGHTS: [&str; 2] = ["2026-05-01T23:00:00Z", "2026-05-02T23:00:00Z"];

fn mounted(sandbox: &Sandbox, words: &[&str]) -> Mount {
    mounted_at(sandbox, sandbox.store(), words)
}

fn mounted_at(sandbox: &Sandbox, store: &Path, words: &[&str]) -> Mount {
    let at = sandbox.path("days");
    let mut command = sandbox.command_at(store);
    command.arg("mount").arg(&at).args(words);
    Mount::start(command, &at)
}

fn names(folder: &Path) -> Vec<String> {
    let listed = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        listed.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_file_of_every_night_is_as_it_was() {
    if !can_mount("every file of every night") {
        return;
    }
    for kind in [&[][..], &["--score", "sha1", "--plaintext"]] {
        let sandbox = Sandbox::made_with(kind);
        let source = sandbox.path("home");
        sample_folder(&source);
        let mut nights = Vec::new();
        for time in NIGHTS {
            nights.push(manifest(&source));
            sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", time]);
            fs::write(source.join("letter.txt"), "Dear archive, once more\n").unwrap();
            fs::remove_file(source.join("deep/link")).unwrap_or_default();
        }
        let mount = mounted(&sandbox, &[]);
        assert_eq!(names(&mount.at), ["2026", "by-id", "latest"]);
        assert_eq!(names(&mount.path("2026/05")), ["01", "02"]);
        for (day, wanted) in ["01", "02"].into_iter().zip(&nights) {
            assert_eq!(&manifest(&mount.path(&format!("2026/05/{day}/home"))), wanted, "day {day}");
        }
        // The links lead to the same places.
        assert_eq!(fs::read_link(mount.path("latest/home")).unwrap(), Path::new("../2026/05/02/home"));
        let ids = sandbox.ids();
        assert_eq!(
            names(&mount.path("by-id")),
            BTreeSet::from_iter(ids.clone()).into_iter().collect::<Vec<_>>()
        );
        let first = fs::canonicalize(mount.path(&format!("by-id/{}", ids[0]))).unwrap();
        assert_eq!(first, mount.path("2026/05/01/home").canonicalize().unwrap());
        // Every mount gives a file the same inode number.
        let number = |mount: &Mount| fs::metadata(mount.path("2026/05/01/home/letter.txt")).unwrap().ino();
        let before = number(&mount);
        assert_ne!(before, fs::metadata(mount.path("latest/home/letter.txt")).unwrap().ino());
        mount.end(Signal::INT);
        let mount = mounted(&sandbox, &[]);
        assert_eq!(number(&mount), before);
        mount.end(Signal::TERM);
    }
}

#[test]
fn nothing_can_be_changed_and_holes_stay_holes() {
    if !can_mount("holes in a mount") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let source = sandbox.path("home");
    fs::create_dir_all(&source).unwrap();
    let pieces: [(u64, &[u8]); 2] = [(20 << 20, &noise(3, 100_000)), (50 << 20, b"the end")];
    sparse_image(&source.join("sparse"), 60 << 20, &pieces);
    sandbox.ok(["snapshot", &sandbox.arg("home")]);
    sandbox.ok(["snapshot", &sandbox.arg("home/sparse"), "--as", "image", "--name", "disk"]);
    let mount = mounted(&sandbox, &[]);
    let wanted = fs::read(source.join("sparse")).unwrap();
    for path in ["latest/home/sparse", "latest/disk/disk.raw", "latest/disk/p0.raw"] {
        let path = mount.path(path);
        assert!(fs::metadata(&path).unwrap().blocks() * 512 < 1 << 20, "it is shown as sparse");
        assert!(fs::read(&path).unwrap() == wanted);
        let file = File::open(&path).unwrap();
        let data = |from| rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(from)).ok();
        let hole = |from| rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(from)).ok();
        let begin = data(0).unwrap();
        assert!(begin <= 20 << 20 && begin + (1 << 20) > 20 << 20, "{begin}");
        let end = hole(begin).unwrap();
        assert!(((20 << 20) + 100_000..22 << 20).contains(&end), "{end}");
        assert!(data(end).unwrap() > 49 << 20);
        assert_eq!(hole(0), Some(0));
        assert_eq!(data((55 << 20) + (1 << 19)), None);
        // Reads at two places, and across the end.
        let mut piece = [0; 7];
        file.read_exact_at(&mut piece, 50 << 20).unwrap();
        assert_eq!(&piece, b"the end");
        assert_eq!(file.read_at(&mut piece, (60 << 20) - 3).unwrap(), 3);
        assert_eq!(file.read_at(&mut piece, 60 << 20).unwrap(), 0);
    }
    let refused = fs::write(mount.path("latest/home/new"), b"").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(fs::remove_file(mount.path("latest/home/sparse")).is_err());
    assert!(fs::remove_dir(mount.path("2026")).is_err());
    assert!(fs::metadata(mount.path("latest/home/absent")).is_err());
    mount.end(Signal::TERM);
}

#[test]
fn a_large_folder_is_listed_whole() {
    if !can_mount("a large folder in a mount") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let source = sandbox.path("many");
    fs::create_dir_all(&source).unwrap();
    for number in 0..5000 {
        fs::write(source.join(format!("a file with some name, number {number}")), format!("{number}"))
            .unwrap();
    }
    sandbox.ok(["snapshot", &sandbox.arg("many")]);
    let mount = mounted(&sandbox, &[]);
    let folder = mount.path("latest/many");
    for _ in 0..2 {
        assert_eq!(names(&folder), names(&source));
    }
    for number in (0..5000).step_by(97) {
        let text =
            fs::read_to_string(folder.join(format!("a file with some name, number {number}"))).unwrap();
        assert_eq!(text, number.to_string());
    }
    mount.end(Signal::TERM);
}

/// Namespaces of containers and services have copies of mounts.
#[test]
fn a_copy_of_the_mount_elsewhere_keeps_nobody() {
    if !can_mount("a copy of a mount") || !is_root() || !has("unshare") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let mount = mounted(&sandbox, &[]);
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["-m", "sh", "-c", "echo; exec sleep 300"]).stdout(Stdio::piped());
    let mut elsewhere = elsewhere.spawn().unwrap();
    elsewhere.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    mount.end(Signal::TERM);
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
}

#[test]
fn a_new_night_appears_and_takes_the_name() {
    if !can_mount("a new night in a mount") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let mount = mounted(&sandbox, &[]);
    assert_eq!(names(&mount.at), ["by-id", "latest"]);
    let source = sandbox.path("home");
    sample_folder(&source);
    let first = manifest(&source);
    sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", "2026-05-01T10:20:30Z"]);
    wait_until("the first night appears", || mount.path("latest/home/letter.txt").exists());
    assert_eq!(manifest(&mount.path("2026/05/01/home")), first);
    let mut open = File::open(mount.path("2026/05/01/home/deep/noise.bin")).unwrap();

    // A second snapshot of the same day takes the name of the older one, which gets a suffix. The
    // link to the older one changes too, although the kernel caches links.
    let by_id = mount.path("by-id").join(&names(&mount.path("by-id"))[0]);
    let leads_to = |path: &str| fs::read_link(&by_id).is_ok_and(|target| target == Path::new(path));
    assert!(leads_to("../2026/05/01/home"));
    fs::write(source.join("deep/noise.bin"), noise(9, 300_000)).unwrap();
    let second = manifest(&source);
    sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", "2026-05-01T22:00:00Z"]);
    wait_until("the second night appears", || mount.path("2026/05/01/home.102030").exists());
    wait_until("it has the name", || {
        fs::read(mount.path("2026/05/01/home/deep/noise.bin")).is_ok_and(|bytes| bytes == noise(9, 300_000))
    });
    wait_until("its link leads to where it is now", || leads_to("../2026/05/01/home.102030"));
    assert_eq!(names(&mount.path("2026/05/01")), ["home", "home.102030"]);
    assert_eq!(manifest(&mount.path("2026/05/01/home")), second);
    assert_eq!(manifest(&mount.path("2026/05/01/home.102030")), first);
    assert_eq!(manifest(&mount.path("latest/home/")), second);
    // A file that was opened before still has its old contents.
    let mut bytes = Vec::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_end(&mut bytes).unwrap();
    assert!(bytes == noise(2, 300_000));
    drop(open);
    mount.end(Signal::TERM);
}

/// The contents of all leases in a store.
fn leases(store: &Path) -> Vec<String> {
    let files = fs::read_dir(store.join("leases")).into_iter().flatten();
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn a_mount_leases_what_it_shows() {
    if !can_mount("the lease of a mount") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let snapshot = |time| {
        sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", time]);
    };
    fs::create_dir_all(sandbox.path("home")).unwrap();
    snapshot(NIGHTS[0]);
    let mount = mounted(&sandbox, &[]);
    let is_leased = |ids: &[String]| {
        let leases = leases(sandbox.store());
        leases.len() == 1 && ids.iter().all(|id| leases[0].contains(&format!("snapshot {id}\n")))
    };
    assert!(is_leased(&sandbox.ids()), "{:?}", leases(sandbox.store()));
    // A writer removes the leases of dead readers only.
    fs::write(sandbox.store().join("leases/here-1-0011"), "half of a lease").unwrap();
    snapshot(NIGHTS[1]);
    wait_until("the new night is leased", || {
        fs::read_dir(mount.path("latest")).unwrap().count();
        is_leased(&sandbox.ids())
    });
    mount.end(Signal::INT);
    assert_eq!(leases(sandbox.store()), [""; 0]);
    // Where no lease can be written, a mount goes without one.
    fs::remove_dir(sandbox.store().join("leases")).unwrap();
    fs::write(sandbox.store().join("leases"), "").unwrap();
    let mount = mounted(&sandbox, &[]);
    assert_eq!(names(&mount.path("2026/05")), ["01", "02"]);
    mount.end(Signal::INT);
}

/// Arenas are rewritten while a mount reads from them. Each file is read once, so that the kernel
/// has no page of it: many before, many while, and the rest after the space is freed.
#[test]
fn a_mount_reads_on_while_space_is_freed() {
    if !can_mount("a mount reads on while space is freed") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let source = sandbox.path("home");
    fs::create_dir(&source).unwrap();
    let contents = |night: u64, file: u64| noise(1000 * night + file, 30_000);
    // Files of nights that are kept lie between files of nights that are forgotten.
    for night in 0..6 {
        for file in 0..40 {
            fs::write(source.join(format!("{night}-{file}")), contents(night, file)).unwrap();
        }
        sandbox.ok([
            "snapshot",
            &sandbox.arg("home"),
            "--time",
            &format!("2026-05-0{}T12:00:00Z", night + 1),
        ]);
        (0..40).for_each(|file| fs::remove_file(source.join(format!("{night}-{file}"))).unwrap());
    }
    let ids = sandbox.ids();
    sandbox.ok(["forget", "--undo-days", "0", &ids[0], &ids[2], &ids[4]]);
    let mount = mounted(&sandbox, &[]);
    let read = |number: u64| {
        let (night, file) = (1 + number % 3 * 2, number / 3);
        let path = mount.path(&format!("2026/05/0{}/home/{night}-{file}", night + 1));
        assert!(fs::read(&path).unwrap() == contents(night, file), "{}", path.display());
    };
    let bytes = || sandbox.arenas().iter().map(|arena| arena.metadata().unwrap().len()).sum::<u64>();
    let (before, mut next) = (bytes(), 0);
    let mut read_some = |count: u64| {
        let end = (next + count).min(120);
        (next..end).for_each(read);
        next = end;
    };
    read_some(20);
    for _ in 0..4 {
        let mut gc = sandbox.command();
        gc.args(["gc", "--least-dead", "0%", "--max-written", "500K"]).stdout(Stdio::null());
        let mut gc = gc.spawn().unwrap();
        while gc.try_wait().unwrap().is_none() {
            read_some(1);
        }
        assert!(gc.wait().unwrap().success());
        read_some(5);
    }
    assert!(bytes() < before * 2 / 3, "{} of {before} bytes are left", bytes());
    read_some(120);
    mount.end(Signal::INT);
    sandbox.ok(["verify", "--data"]);
}

#[test]
fn an_archive_that_is_mounted_in_what_is_archived_is_left_empty() {
    if !can_mount("an archive mounted in what is archived") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    sample_folder(&sandbox.path("home"));
    fs::create_dir(sandbox.path("home/days")).unwrap();
    let night = |number: u32| {
        let time = format!("2026-05-0{number}T23:00:00Z");
        let lines = sandbox.json(["snapshot", &sandbox.arg("home"), "--time", &time]);
        // From the second night on, an earlier line names the mounted archive.
        assert_eq!(lines.len(), if number == 1 { 1 } else { 2 }, "{lines:?}");
        lines.iter().find(|line| line["type"] == "snapshot").unwrap()["entries"].clone()
    };
    let before = night(1);
    let at = sandbox.path("home/days");
    let mut command = sandbox.command();
    command.arg("mount").arg(&at);
    let mount = Mount::start(command, &at);
    wait_until("the first night appears", || mount.path("latest/home/letter.txt").exists());
    // The added entry is the file in which the test keeps the program's messages.
    assert_eq!(night(2), before.as_u64().unwrap() + 1);
    assert_eq!(night(3), before.as_u64().unwrap() + 1);
    assert_eq!(sandbox.json(["ls", "home:days"]).len(), 0, "the folder is there, and empty");
    // A mounted archive is archived if it is itself the source: the user asked for it.
    let day = mount.path("2026/05/01/home");
    assert_eq!(sandbox.json(["snapshot", day.to_str().unwrap(), "--name", "day"])[0]["entries"], before);
    mount.end(Signal::TERM);
}

#[test]
fn a_damaged_block_is_an_error_of_its_file_alone() {
    if !can_mount("damage under a mount") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let source = sandbox.path("home");
    fs::create_dir_all(&source).unwrap();
    let files: Vec<_> =
        (0..8_u64).map(|number| (format!("file-{number}"), noise(20 + number, 600_000))).collect();
    for (name, bytes) in &files {
        fs::write(source.join(name), bytes).unwrap();
    }
    sandbox.ok(["snapshot", &sandbox.arg("home")]);
    // The damage is in the middle of an arena that holds only blocks of these files.
    let arena = &sandbox.arenas()[2];
    write_at(arena, fs::metadata(arena).unwrap().len() / 2, &[0x55; 64]);
    let mount = mounted(&sandbox, &[]);
    let (mut good, mut bad) = (0, Vec::new());
    for (name, bytes) in &files {
        match fs::read(mount.path("latest/home").join(name)) {
            Ok(read) => {
                assert!(read == *bytes, "{name}");
                good += 1;
            }
            Err(error) => {
                assert_eq!(
                    error.raw_os_error(),
                    Some(rustix::io::Errno::IO.raw_os_error()),
                    "{name}: {error}"
                );
                bad.push(name.clone());
            }
        }
    }
    assert!(good >= 4 && !bad.is_empty(), "{good} are good, and {bad:?} are not");
    let complaints = mount.running.complaints();
    for name in &bad {
        assert!(complaints.contains(&format!("file {name} in snapshot home")), "{complaints}");
        assert!(complaints.contains("damaged"), "{complaints}");
    }
    assert_eq!(names(&mount.path("latest/home")).len(), 8);
    mount.end(Signal::TERM);
}

#[test]
fn a_damaged_block_of_a_disk_is_an_error_of_the_reads_that_it_hits_alone() {
    let name = "a damaged block of a disk under a mount";
    if !can_mount(name) {
        return;
    }
    if !has("mkfs.ext4") {
        eprintln!("skipped: {name}, which needs mkfs.ext4");
        return;
    }
    const PIECE: usize = 4096;
    let sandbox = Sandbox::encrypted();
    let (tree, image) = (sandbox.arg("tree"), sandbox.arg("vm.img"));
    fs::create_dir(&tree).unwrap();
    let files: Vec<_> =
        (0..8_u64).map(|number| (format!("file-{number}"), noise(40 + number, 150 * PIECE))).collect();
    for (name, bytes) in &files {
        fs::write(Path::new(&tree).join(name), bytes).unwrap();
    }
    tool("mkfs.ext4", ["-q", "-F", "-d", &tree, &image, "16M"]);
    sandbox.ok(["snapshot", &image]);
    // The damage is in the middle of an arena that holds only blocks of these files.
    let arena = &sandbox.arenas()[2];
    write_at(arena, fs::metadata(arena).unwrap().len() / 2, &[0x55; 64]);
    let mount = mounted(&sandbox, &[]);
    let mut bad = BTreeSet::new();
    let mut piece = [0; PIECE];
    for (name, bytes) in &files {
        let file = File::open(mount.path("latest/vm.img/p0").join(name)).unwrap();
        for (number, wanted) in bytes.chunks(PIECE).enumerate() {
            match file.read_exact_at(&mut piece, (number * PIECE) as u64) {
                Ok(()) => assert!(piece == wanted, "{name}, {number}"),
                Err(error) => {
                    let is_damage = error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
                    assert!(is_damage, "{name}, {number}: {error}");
                    bad.insert((name, number));
                }
            }
        }
    }
    // Only the blocks that were packed together with the damaged bytes are lost.
    assert!((1..=16).contains(&bad.len()), "{bad:?}");
    let complaints = mount.running.complaints();
    for said in ["a file cannot be read", "in snapshot vm.img (", " p0", "arena 2"] {
        assert!(complaints.contains(said), "{said}: {complaints}");
    }
    mount.end(Signal::TERM);
}

#[test]
fn a_file_by_itself_is_shown_as_a_file() {
    if !can_mount("a file in a mount") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let bytes = noise(8, 300_000);
    fs::write(sandbox.path("notes.txt"), &bytes).unwrap();
    fs::set_permissions(sandbox.path("notes.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    sandbox.ok(["snapshot", "notes.txt", "--time", NIGHTS[0]]);
    fs::create_dir(sandbox.path("home")).unwrap();
    sandbox.ok(["snapshot", "home", "--time", NIGHTS[0]]);
    let mount = mounted(&sandbox, &[]);
    for path in ["latest/notes.txt", "2026/05/01/notes.txt"] {
        let shown = mount.path(path);
        assert!(fs::read(&shown).unwrap() == bytes, "{path}");
        let status = fs::metadata(&shown).unwrap();
        assert!(status.is_file() && status.permissions().mode() & 0o777 == 0o640, "{path}");
    }
    let kinds: Vec<_> = fs::read_dir(mount.path("2026/05/01"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), entry.file_type().unwrap().is_file()))
        .collect();
    assert!(
        kinds.contains(&("notes.txt".into(), true)) && kinds.contains(&("home".into(), false)),
        "{kinds:?}"
    );
    mount.end(Signal::TERM);
    // A file that a filter leaves out is not shown.
    let mount = mounted(&sandbox, &["--path", "home"]);
    assert_eq!(names(&mount.path("latest")), ["home"]);
    mount.end(Signal::TERM);
}

#[test]
fn a_disk_is_shown_by_its_volumes() {
    if !can_mount("a disk in a mount") {
        return;
    }
    if !has("mkfs.ext4") || !has("sfdisk") {
        eprintln!("skipped: a disk in a mount, which needs mkfs.ext4 and sfdisk");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let (tree, image) = (sandbox.path("tree"), sandbox.path("vm.img"));
    sample_folder(&tree);
    // A file with two names has both of them in the volume, too.
    let volume = sandbox.path("volume");
    tool("mkfs.ext4", ["-q", "-F", "-d", tree.to_str().unwrap(), volume.to_str().unwrap(), "24M"]);
    // The first partition holds files, and the second has no known file system.
    sparse_image(&image, 40 << 20, &[(1 << 20, &fs::read(&volume).unwrap()), (30 << 20, &noise(5, 10_000))]);
    let table = sandbox.path("table");
    fs::write(&table, "label: dos\nstart=2048, size=49152, type=83\nstart=61440, size=4096, type=da\n")
        .unwrap();
    let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let mut sfdisk = Command::new("sfdisk");
    sfdisk.arg("-q").arg(&image).stdin(File::open(&table).unwrap()).env("PATH", path);
    assert!(sfdisk.status().unwrap().success());
    let bytes = fs::read(&image).unwrap();
    sandbox.ok(["snapshot", image.to_str().unwrap(), "--time", NIGHTS[0]]);

    let mount = mounted(&sandbox, &[]);
    let night = mount.path("2026/05/01/vm.img");
    assert!(fs::read(night.join("disk.raw")).unwrap() == bytes);
    assert_eq!(names(&night), ["disk.raw", "p1", "p2.raw"]);
    assert!(fs::read(night.join("p2.raw")).unwrap() == bytes[30 << 20..32 << 20]);
    // A volume inside an image has the holes of the image at its own offsets.
    let volume = File::open(night.join("p2.raw")).unwrap();
    let end = rustix::fs::seek(&volume, rustix::fs::SeekFrom::Hole(0)).unwrap();
    assert!((10_000..200_000).contains(&end), "{end}");
    assert_eq!(rustix::fs::seek(&volume, rustix::fs::SeekFrom::Data(end)).ok(), None);
    assert!((10_000..200_000).contains(&(volume.metadata().unwrap().blocks() * 512)));
    let mut shown = manifest(&night.join("p1"));
    shown.retain(|path, _| !path.starts_with("lost+found"));
    let wanted = manifest(&tree);
    let without_times = |text: &str| {
        // mkfs.ext4 keeps times to the second or finer, depending on its build.
        let (before, after) = text.split_once(" time ").unwrap();
        let rest = after.split_once(' ').map_or("", |(_, rest)| rest);
        (before.to_owned(), after.split('.').next().unwrap().to_owned(), rest.to_owned())
    };
    assert_eq!(shown.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (path, text) in wanted.iter().filter(|(path, _)| !path.as_os_str().is_empty()) {
        assert_eq!(without_times(&shown[path]), without_times(text), "{}", path.display());
    }
    mount.end(Signal::TERM);
}

#[test]
fn a_replica_is_mounted_where_it_is() {
    if !can_mount("a replica, mounted") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let source = sandbox.path("home");
    sample_folder(&source);
    let wanted = manifest(&source);
    sandbox.ok(["snapshot", &sandbox.arg("home")]);
    sandbox.ok(["replicate", &sandbox.arg("replica")]);
    let mount = mounted_at(&sandbox, &sandbox.path("replica"), &[]);
    assert_eq!(manifest(&mount.path("latest/home/")), wanted);
    mount.end(Signal::TERM);
}

#[test]
fn somebody_who_works_in_it_does_not_keep_it() {
    if !can_mount("a busy mount") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let source = sandbox.path("home");
    sample_folder(&source);
    sandbox.ok(["snapshot", &sandbox.arg("home")]);
    let mount = mounted(&sandbox, &[]);
    let open = File::open(mount.path("latest/home/letter.txt")).unwrap();
    // The signal comes twice, as when a whole process group is ended.
    mount.running.signal(Signal::TERM);
    mount.end(Signal::TERM);
    drop(open);

    // The program ends when another process unmounts the file system.
    let mut mount = mounted(&sandbox, &[]);
    tool("fusermount3", ["-u".as_ref(), mount.at.as_os_str()]);
    assert_eq!(mount.running.wait().code(), Some(0));
    assert!(!is_mounted(&mount.at));
}

#[test]
fn what_cannot_be_mounted_is_said() {
    let sandbox = Sandbox::encrypted();
    assert!(sandbox.fails(1, ["mount", &sandbox.arg("absent")]).contains("absent does not exist"));
    assert!(sandbox.fails(1, ["mount", &sandbox.arg("key")]).contains("key is not a folder"));
    sandbox.fails(2, ["mount"]);
}

#[test]
fn an_ordinary_user_sees_all_and_others_nothing() {
    if !can_mount("an ordinary user's mount") {
        return;
    }
    if !is_root() || !has("setpriv") || !has("unshare") || !has("fusermount3") {
        eprintln!("skipped: an ordinary user's mount, which needs root, setpriv, unshare and fusermount3");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let source = sandbox.path("home");
    sample_folder(&source);
    fs::write(source.join("secret"), "of root alone").unwrap();
    fs::set_permissions(source.join("secret"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    sandbox.ok(["snapshot", &sandbox.arg("home")]);
    fs::create_dir(sandbox.path("days")).unwrap();
    let script = r#"
set -e
# In a world of mounts of its own, where every user may use the device, as on most machines.
mknod -m 666 "$ROOM/fuse" c 10 229
mount --bind "$ROOM/fuse" /dev/fuse
chown -R 65534:65534 "$ROOM/days" "$ROOM/store" "$ROOM/key"
chmod 755 "$ROOM"
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
# Without the helper, the program says which package has it.
! as_user env FUSERMOUNT_PATH=/nowhere/fusermount3 "$@" mount "$ROOM/days" > "$ROOM/user.log" 2>&1
grep -q "fusermount3, which is not installed: install fuse3" "$ROOM/user.log"
setpriv --reuid=65534 --regid=65534 --clear-groups "$@" mount "$ROOM/days" > "$ROOM/user.log" 2>&1 &
pid=$!
trap 'kill $pid' EXIT
for i in $(seq 200); do as_user test -e "$ROOM/days/latest/home/letter.txt" && break; sleep 0.1; done
test "$(as_user cat "$ROOM/days/latest/home/secret")" = "of root alone"
as_user diff -r --no-dereference -x fifo -x null -x socket "$ROOM/home" "$ROOM/days/latest/home/"
# Nobody else, not even root.
! ls "$ROOM/days/latest" 2> /dev/null
kill -TERM $pid
wait $pid
trap - EXIT
! grep -q "$ROOM/days" /proc/self/mounts
# Where the helper cannot unmount, the program says so, and ends.
printf '#!/bin/sh\ncase $1 in -u) echo no table of mounts >&2; exit 1 ;; esac\nexec %s "$@"\n' \
    "$(command -v fusermount3)" > "$ROOM/fusermount3"
chmod 755 "$ROOM/fusermount3"
setpriv --reuid=65534 --regid=65534 --clear-groups env PATH="$ROOM:$PATH" "$@" mount "$ROOM/days" > "$ROOM/user.log" 2>&1 &
pid=$!
trap 'kill $pid' EXIT
for i in $(seq 200); do as_user test -e "$ROOM/days/latest/home/letter.txt" && break; sleep 0.1; done
kill -TERM $pid
! wait $pid
trap - EXIT
grep -q "is still mounted" "$ROOM/user.log"
grep -q "no table of mounts" "$ROOM/user.log"
umount "$ROOM/days"
"#;
    let given = sandbox.command_as(65_534);
    let room = sandbox.path("");
    let program = std::iter::once(given.get_program()).chain(given.get_args());
    // `diff` must be able to read the files that it compares with.
    for (path, mode) in [("home/secret", 0o644), ("home/nothing", 0o755), ("home/letter.txt", 0o755)] {
        fs::set_permissions(sandbox.path(path), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .args(program)
        .env("ROOM", room.to_str().unwrap().trim_end_matches('/'))
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    let complaints = fs::read_to_string(sandbox.path("user.log")).unwrap_or_default();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{errors}{complaints}");
}
