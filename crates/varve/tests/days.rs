//! Three nights of a real Debian machine, from its disks to its console. It is archived, listed,
//! checked, served and booted, and then archived again while it runs. VARVE_DAYS names the folder
//! with `day1.raw`, `day2.raw` and `day3.raw`, as the shared workload `make-days` makes them.
//! `script/test days` makes them if needed.
#![allow(clippy::print_stderr, reason = "says what it skipped, and what it does")]

#[path = "harness/guest/mod.rs"]
mod guest;
#[path = "harness/loop_device/mod.rs"]
mod loop_device;
#[path = "harness/mount_point/mod.rs"]
mod mount_point;
#[path = "harness/qemu/mod.rs"]
mod qemu;
#[path = "harness/sandbox/mod.rs"]
mod sandbox;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use guest::Guest;
use loop_device::{LoopDevice, LoopMount};
use mount_point::{Mount, can_mount};
use qemu::tool;
use rustix::process::{Pid, Signal, kill_process};
use sandbox::Sandbox;
use serde_json::Value;

const NIGHTS: [u32; 3] = [1, 2, 3];
/// The positions of the file system and of the swap, in bytes.
const FILES_AT: u64 = 1 << 20;
const SWAP_AT: u64 = 1920 << 20;
const SWAP_BYTES: u64 = 128 << 20;
/// The page with the header of the swap. It is archived, so a restored machine has its swap again.
const SWAP_HEADER_BYTES: u64 = 4096;
/// A time-out for a guest with an emulated processor, on a busy machine.
const BOOT_SECONDS: &str = "900";

/// The folder of the nights. Prints the name of the test if something that it needs is missing.
fn days() -> Option<PathBuf> {
    let name = "three_nights_of_a_real_machine";
    let Some(folder) = std::env::var_os("VARVE_DAYS").map(PathBuf::from) else {
        eprintln!("skipped as VARVE_DAYS names no folder of nights: {name}");
        return None;
    };
    let is_there = |night: &u32| folder.join(format!("day{night}.raw")).is_file();
    if !NIGHTS.iter().all(is_there) {
        eprintln!("skipped as {} has no day1.raw, day2.raw and day3.raw: {name}", folder.display());
        return None;
    }
    if !sandbox::is_root() || !Path::new("/dev/loop-control").exists() {
        eprintln!("skipped as only root can mount the originals, on loop devices: {name}");
        return None;
    }
    let programs = [
        "qemu-system-x86_64",
        "qemu-img",
        "qemu-io",
        "losetup",
        "mount",
        "mkswap",
        "e2fsck",
        "python3",
        "nfs-ls",
    ];
    if let Some(missing) = programs.iter().find(|program| !sandbox::has(program)) {
        eprintln!("skipped as {missing} is not installed: {name}");
        return None;
    }
    can_mount(name).then_some(folder)
}

#[test]
#[allow(clippy::disallowed_methods, reason = "tells how long it takes")]
fn three_nights_of_a_real_machine() {
    let Some(days) = days() else { return };
    let begun = Instant::now();
    let step = |what: &str| eprintln!("{:5.0} s  {what}", begun.elapsed().as_secs_f64());
    let original = |night: u32| days.join(format!("day{night}.raw"));
    let sandbox = Sandbox::empty();
    sandbox.ok(["init"]);
    for night in NIGHTS {
        step(&format!("night {night} is archived"));
        let (image, time) = (original(night), time_of(night));
        let words = ["snapshot".as_ref(), image.as_os_str(), "--name".as_ref(), "day".as_ref()];
        let line = sandbox.json(words.into_iter().chain(["--time".as_ref(), time.as_ref()])).remove(0);
        // The partition has the type of swap and old bytes of swap, but no swap header, so it is
        // kept.
        assert_eq!(line["left_out_bytes"], 0, "{line}");
        assert!(line["left_out"].to_string().contains("no swap header"), "{line}");
    }

    let server = Server::start(&sandbox);
    let mount = {
        let at = sandbox.path("days");
        let mut command = sandbox.command();
        command.arg("mount").arg(&at);
        Mount::start(command, &at)
    };
    for night in NIGHTS {
        let shown = mount.path(&format!("2026/05/0{night}/day"));
        {
            let root = LoopMount::read_only(&original(night), FILES_AT, &sandbox.path("original"));
            step(&format!("night {night}: every file in the mount"));
            let files = root.at.to_str().unwrap();
            let wanted = listed(&[files, "--xattrs"]);
            assert!(wanted.lines().count() > 1000, "this is a whole system");
            assert_same(&wanted, &listed(&[shown.join("p1").to_str().unwrap(), "--xattrs"]));
            step(&format!("night {night}: every file by NFS"));
            assert_same(&listed(&[files]), &listed(&[&server.folder(&format!("2026/05/0{night}/day/p1"))]));
        }
        step(&format!("night {night}: e2fsck"));
        let device = LoopDevice::read_only(&shown.join("disk.raw"), FILES_AT);
        sandbox::tool("e2fsck", ["-f", "-n", device.path()]);
        drop(device);
        step(&format!("night {night}: qemu-img compare"));
        let export = server.export(&format!("day@2026-05-0{night}"));
        assert_identical("raw", original(night).to_str().unwrap(), &export);
    }
    mount.end(Signal::TERM);
    for night in NIGHTS {
        step(&format!("night {night} is booted from the archive"));
        let (day, profile) = (format!("day@2026-05-0{night}"), sandbox.arg(&format!("start-{night}")));
        comes_up(&sandbox, &[&day, "--profile", &profile], night);
    }
    with_its_start_together(&sandbox, &original(2), &step);
    step("a night with a valid swap is archived without it, and with it to the byte");
    let last = with_swap(&sandbox, &original(3));
    let image = last.to_str().unwrap();
    let line = sandbox.json(["snapshot", "--name", "no-swap", image]).remove(0);
    assert_eq!(line["left_out_bytes"], SWAP_BYTES - SWAP_HEADER_BYTES, "{line}");
    sandbox.ok(["snapshot", "--keep-swap", "--name", "whole", image]);
    without_swap(&sandbox, &last);
    assert_identical("qcow2", &sandbox.arg("without-swap"), &server.export("no-swap"));
    assert_identical("raw", image, &server.export("whole"));
    server.end();

    a_running_machine(&sandbox, &last, &step);
    step("done");
}

fn time_of(night: u32) -> String {
    format!("2026-05-0{night}T23:00:00Z")
}

/// A listing of everything in a folder. The lister reads folders of this machine and of NFS.
#[track_caller]
fn listed(words: &[&str]) -> String {
    let lister = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/days/tree.py");
    let output = Command::new("python3").arg(lister).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn assert_same(wanted: &str, found: &str) {
    for (wanted, found) in wanted.lines().zip(found.lines()) {
        assert_eq!(wanted, found);
    }
    assert_eq!(wanted.lines().count(), found.lines().count());
}

#[track_caller]
fn assert_identical(format: &str, wanted: &str, export: &str) {
    let said = tool("qemu-img", &["compare", "-f", format, "-F", "raw", wanted, export]);
    assert!(said.contains("identical"), "{said}");
}

/// A copy of the disk in which `mkswap` has made the swap partition.
fn with_swap(sandbox: &Sandbox, image: &Path) -> PathBuf {
    let copy = sandbox.path("with-swap.raw");
    sandbox::tool("cp", ["--sparse=always", image.to_str().unwrap(), copy.to_str().unwrap()]);
    let device = LoopDevice::writable(&copy, SWAP_AT);
    sandbox::tool("mkswap", [device.path(), &(SWAP_BYTES / 1024).to_string()]);
    drop(device);
    copy
}

/// The disk as it is archived: an overlay image with zeros in place of the swap.
fn without_swap(sandbox: &Sandbox, image: &Path) {
    let overlay = sandbox.arg("without-swap");
    tool("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", image.to_str().unwrap(), &overlay]);
    let (start, length) = (SWAP_AT + SWAP_HEADER_BYTES, SWAP_BYTES - SWAP_HEADER_BYTES);
    tool("qemu-io", &["-f", "qcow2", "-c", &format!("write -z {start} {length}"), &overlay]);
}

#[track_caller]
fn comes_up(sandbox: &Sandbox, snapshot: &[&str], night: u32) {
    fs::create_dir_all(sandbox.path("tmp")).unwrap();
    let text = format!("DAY-{night} IS UP");
    let boot = || {
        let mut command = sandbox.command();
        command.env("TMPDIR", sandbox.path("tmp")).arg("boot").args(snapshot);
        command.args(["--check", &text, "--timeout", BOOT_SECONDS]);
        sandbox::Run::new(command.output().unwrap())
    };
    let mut run = boot();
    if run.code == Some(1) && run.stderr.contains("login:") {
        eprintln!("         its line was hung up for the login before the text had left: once more");
        run = boot();
    }
    assert!(run.code == Some(0) && run.text().starts_with("yes: "), "{}{}", run.text(), run.stderr);
    assert_eq!(fs::read_dir(sandbox.path("tmp")).unwrap().count(), 0, "nothing is left behind");
    eprintln!("         {}", run.text().trim());
}

/// Moves the blocks of the start of night 2 together. Every file is as before for the kernel, and
/// the machine starts from the new places.
fn with_its_start_together(sandbox: &Sandbox, image: &Path, step: &dyn Fn(&str)) {
    step("night 2 with the blocks of its start together: every file in a mount by the kernel");
    let (profile, new) = (sandbox.arg("start-2"), sandbox.path("together.raw"));
    let old = image.to_str().unwrap();
    let lines = sandbox.json(["optimize", old, "--profile", &profile, "-o", new.to_str().unwrap()]);
    let found = |name: &str| lines.iter().find(|line| line["type"] == name).unwrap();
    assert_eq!(found("relocation_checked")["e2fsck"], serde_json::json!(["p1"]));
    let units = |name: &str| found("relocation")[name].as_u64().unwrap();
    assert!(units("units_after") * 10 < units("units_before") * 9, "{}", found("relocation"));
    let files = |image: &Path, at: &str| {
        let root = LoopMount::read_only(image, FILES_AT, &sandbox.path(at));
        listed(&[root.at.to_str().unwrap(), "--xattrs"])
    };
    assert_same(&files(image, "original"), &files(&new, "together"));
    step("night 2 with the blocks of its start together is booted");
    sandbox.ok(["optimize", "day@2026-05-02", "--profile", &profile, "--name", "together"]);
    comes_up(sandbox, &["together"], 2);
}

/// Starts the machine of one night, archives it twice while it goes on writing, and restores it
/// from the archive.
fn a_running_machine(sandbox: &Sandbox, image: &Path, step: &dyn Fn(&str)) {
    let disk = sandbox.arg("run.qcow2");
    tool("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", image.to_str().unwrap(), &disk]);
    step("a machine starts");
    let mut guest =
        Guest::start(&sandbox.path(""), &["-drive", "file=run.qcow2,format=qcow2,if=virtio,id=d0"]);
    guest.log_in();
    guest.is_of_night(3);
    // Each line is on the disk before the next one is written.
    guest.say("(i=0; while :; do i=$((i+1)); echo tick $i >>/srv/ticks; head -c 300000 /dev/urandom >/srv/busy; sync; done) &");
    guest.until_lines("/srv/ticks", 3);
    let socket = sandbox.arg("qmp");
    let night = |step_name: &str| -> (Value, usize) {
        step(step_name);
        let scratch = sandbox.arg("");
        let line =
            sandbox.json(["snapshot", "--qmp", &socket, "--scratch", &scratch, "--name", "vm"]).remove(0);
        (line, ticks(sandbox))
    };
    let (first, before) = night("it is archived while it writes");
    assert!(before >= 2, "{before}");
    assert_eq!(first["left_out_bytes"], SWAP_BYTES - SWAP_HEADER_BYTES, "{first}");
    assert!(first["changed_since"].is_null(), "{first}");
    guest.until_lines("/srv/ticks", before + 3);
    let (second, after) = night("it is archived again");
    assert!(after >= before + 2, "{before}, {after}");
    assert_eq!(
        (&second["changed_since"], &second["left_out_bytes"]),
        (&first["id"], &first["left_out_bytes"])
    );
    let read = |line: &Value| line["read_bytes"].as_u64().unwrap();
    eprintln!("         {} and {} bytes were read, of {}", read(&first), read(&second), first["size"]);
    assert!(read(&second) < read(&first) / 4, "only what has changed is read");
    guest.end();

    step("its second night is restored");
    let restored = sandbox.path("restored.raw");
    sandbox.ok(["restore", "vm", restored.to_str().unwrap()]);
    {
        // The disk is in the state after a power cut: the journal is replayed, and then it is
        // consistent.
        let device = LoopDevice::writable(&restored, FILES_AT);
        let replayed =
            Command::new("e2fsck").args(["-f", "-p", device.path()]).env("PATH", path()).output().unwrap();
        let said = String::from_utf8_lossy(&replayed.stdout);
        assert!(replayed.status.code().is_some_and(|code| code <= 1), "{said}");
        sandbox::tool("e2fsck", ["-f", "-n", device.path()]);
    }
    step("what was restored is booted");
    let mut guest =
        Guest::start(&sandbox.path(""), &["-drive", "file=restored.raw,format=raw,if=virtio,id=d0"]);
    guest.log_in();
    guest.is_of_night(3);
    guest.end();
}

fn path() -> String {
    format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default())
}

/// The count of lines that the machine has written by the newest night. Asserts that all of them
/// are complete and in order.
fn ticks(sandbox: &Sandbox) -> usize {
    let text = sandbox.ok(["cat", "vm:p1/srv/ticks"]);
    for (number, line) in text.lines().enumerate() {
        assert_eq!(line, format!("tick {}", number + 1));
    }
    text.lines().count()
}

/// The program, which serves all nights by NBD and by NFS.
struct Server {
    child: Child,
    nbd: String,
    nfs: String,
}

impl Server {
    fn start(sandbox: &Sandbox) -> Self {
        let socket = format!("unix:{}", sandbox.arg("nbd"));
        let mut command = sandbox.command();
        command.args(["serve", "--nbd", &socket, "--nfs", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut nbd, mut nfs) = (String::new(), String::new());
        while nbd.is_empty() || nfs.is_empty() {
            let line = lines.next().expect("it says where it serves").unwrap();
            let address =
                line.trim().strip_prefix("serving at ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
            let of = if address.starts_with("nfs") { &mut nfs } else { &mut nbd };
            *of = address;
        }
        Self { child, nbd, nfs }
    }

    fn export(&self, name: &str) -> String {
        let (before, after) = self.nbd.split_once('?').unwrap();
        format!("{before}{name}?{after}")
    }

    fn folder(&self, path: &str) -> String {
        let (host, ports) = self.nfs.split_once("/?").unwrap();
        format!("{host}/{path}?{ports}")
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
