//! `varve boot`, with the real program and a real QEMU. The machine is one sector of code. It
//! counts its starts on its disk, and prints the count on its console or its screen.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::qemu;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::loop_device::LoopMount;
use crate::sandbox::{self, Run, Sandbox, write_program};
use crate::small_guest::{Says, bootable};
use crate::venti_server::{Server, at, command_at, make_store};

/// Returns true if the programs are installed. Otherwise prints the name of the skipped test.
fn has(programs: &[&str], test: &str) -> bool {
    let is_missing = |program: &&&str| Command::new(program).arg("--version").output().is_err();
    match programs.iter().find(is_missing) {
        Some(program) => {
            eprintln!("skipped as {program} is not installed: {test}");
            false
        }
        None => true,
    }
}

const QEMU: &str = "qemu-system-x86_64";

fn archived(text: &str, says: Says) -> Sandbox {
    let sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("vm.raw"), bootable(text, says)).unwrap();
    sandbox.ok(["snapshot", &sandbox.arg("vm.raw"), "--name", "vm", "--time", "2026-05-01T23:00:00Z"]);
    fs::create_dir(sandbox.path("tmp")).unwrap();
    sandbox
}

fn command(sandbox: &Sandbox, words: &[&str]) -> Command {
    let mut command = sandbox.command();
    command.env("TMPDIR", sandbox.path("tmp")).arg("boot").args(words);
    command
}

fn boot(sandbox: &Sandbox, words: &[&str]) -> Run {
    let run = Run::new(command(sandbox, words).output().unwrap());
    assert_eq!(fs::read_dir(sandbox.path("tmp")).unwrap().count(), 0, "nothing is left behind");
    run
}

#[track_caller]
fn comes_up(sandbox: &Sandbox, words: &[&str]) {
    let run = boot(sandbox, words);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    assert!(run.text().starts_with("yes: it is up after "), "{}", run.text());
}

#[test]
fn a_machine_comes_up_again_and_again_and_the_archive_is_as_it_was() {
    if !has(&[QEMU], "a_machine_comes_up_again_and_again_and_the_archive_is_as_it_was") {
        return;
    }
    let sandbox = archived("START ? IS UP", Says::OnItsConsole);
    // The machine runs once with the acceleration of this host, and then in software.
    comes_up(&sandbox, &["vm@2026-05-01", "--check", "START 1 IS UP", "--timeout", "120"]);
    for bus in ["virtio", "ide", "sata", "scsi", "nvme"] {
        let words = ["vm", "--no-kvm", "--bus", bus, "--check", "START 1 IS UP", "--timeout", "120"];
        if bus == "ide" {
            // Some systems have no network for guests in their QEMU.
            let run = boot(&sandbox, &[&words[..], &["--network"]].concat());
            let is_missing = run.stderr.contains("network backend 'user' is not compiled");
            assert!(run.code == Some(0) || is_missing, "{}{}", run.text(), run.stderr);
            if is_missing {
                eprintln!("skipped as this QEMU has no network for guests: --network");
            }
        }
        comes_up(&sandbox, &words);
    }
    let shot = sandbox.path("shot.png");
    let words = [
        "vm",
        "--no-kvm",
        "--check",
        "NEVER SAID",
        "--timeout",
        "5",
        "--screenshot",
        &sandbox.arg("shot.png"),
    ];
    let run = boot(&sandbox, &words);
    assert_eq!(run.code, Some(1), "{}{}", run.text(), run.stderr);
    assert!(run.text().starts_with("no: after "), "{}", run.text());
    assert!(run.stderr.contains("START 1 IS UP"), "it tells what was said instead: {}", run.stderr);
    assert!(fs::read(shot).unwrap().starts_with(b"\x89PNG"), "the screen was drawn");
    let taken = sandbox.run(["cat", "vm"]);
    assert!(taken.stdout == bootable("START ? IS UP", Says::OnItsConsole));
}

#[test]
fn a_machine_whose_disk_is_at_a_venti_server_comes_up() {
    if !has(&[QEMU], "a_machine_whose_disk_is_at_a_venti_server_comes_up") {
        return;
    }
    let sandbox = Sandbox::empty();
    make_store(&sandbox);
    fs::write(sandbox.path("vm.raw"), bootable("START ? IS UP", Says::OnItsConsole)).unwrap();
    let server = Server::start(&sandbox);
    at(&sandbox, server.address(), &["snapshot", &sandbox.arg("vm.raw"), "--name", "vm"]);
    let mut command = command_at(&sandbox, server.address());
    command.args(["boot", "vm", "--no-kvm", "--check", "START 1 IS UP", "--timeout", "120"]);
    let run = Run::new(command.output().unwrap());
    assert!(run.code == Some(0) && run.text().starts_with("yes: "), "{}{}", run.text(), run.stderr);
    server.end();
}

/// A boot loader reads its configuration, its second part and the system from files whose blocks
/// have moved. Its first part finds another file by a list of blocks, and that file stays.
#[test]
fn a_machine_comes_up_from_moved_blocks() {
    let test = "a_machine_comes_up_from_moved_blocks";
    if !has(&[QEMU], test) {
        return;
    }
    if !["mkfs.ext4", "e2fsck", "extlinux", "chattr", "mount", "losetup"].into_iter().all(sandbox::has) {
        eprintln!("skipped as e2fsprogs, extlinux, mount or losetup is not installed: {test}");
        return;
    }
    if !sandbox::is_root() || !Path::new("/dev/loop-control").exists() {
        eprintln!("skipped as only root can install a boot loader, on a loop device: {test}");
        return;
    }
    let sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("tmp")).unwrap();
    let image = sandbox.path("vm.raw");
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    // extlinux does not read file systems with these features.
    let words = ["-q", "-F", "-b", "4096", "-O", "^64bit,^metadata_csum", image.to_str().unwrap()];
    sandbox::tool("mkfs.ext4", words);
    let mount = LoopMount::writable(&image, 0, &sandbox.path("mounted"));
    let boot_folder = mount.at.join("boot");
    fs::create_dir(&boot_folder).unwrap();
    for number in 0..8 {
        fs::write(boot_folder.join(format!("unread-{number}")), sandbox::noise(number, 100_000)).unwrap();
    }
    fs::write(boot_folder.join("extlinux.conf"), "DEFAULT start\nLABEL start\nBOOT /boot/start.bs\n")
        .unwrap();
    fs::write(boot_folder.join("start.bs"), &bootable("START ? IS UP", Says::OnItsConsole)[..512]).unwrap();
    sandbox::tool("extlinux", ["--install", boot_folder.to_str().unwrap()]);
    // Its name alone has to be enough.
    sandbox::tool("chattr", ["-i", boot_folder.join("ldlinux.sys").to_str().unwrap()]);
    drop(mount);
    sandbox.ok(["snapshot", &sandbox.arg("vm.raw"), "--name", "vm", "--as", "image"]);
    let profile = sandbox.arg("start.profile");
    let check = ["--no-kvm", "--check", "START 1 IS UP", "--timeout", "120"];
    comes_up(&sandbox, &[&["vm", "--profile", &profile][..], &check].concat());

    let lines = sandbox.json(["optimize", "vm", "--profile", &profile, "--name", "vm-fast"]);
    let moved = lines.iter().find(|line| line["type"] == "relocated_volume").unwrap();
    // The folders, ldlinux.c32, extlinux.conf and start.bs.
    assert!(
        moved["files"].as_u64().unwrap() >= 4 && moved["moved_bytes"].as_u64().unwrap() > 100_000,
        "{moved}"
    );
    assert!(moved["left"].to_string().contains("a boot loader finds it by a list of blocks"), "{moved}");
    comes_up(&sandbox, &[&["vm-fast"][..], &check].concat());
}

#[test]
fn what_a_machine_writes_can_be_kept_and_gone_on_with() {
    if !has(&[QEMU, "qemu-img"], "what_a_machine_writes_can_be_kept_and_gone_on_with") {
        return;
    }
    let sandbox = archived("START ? IS UP", Says::OnItsConsole);
    let kept = sandbox.arg("kept.qcow2");
    for (number, with_name) in [(1, true), (2, false), (3, true)] {
        let text = format!("START {number} IS UP");
        let words = ["--keep", &kept, "--no-kvm", "--check", &text, "--timeout", "120"];
        let named = if with_name { &["vm"][..] } else { &[] };
        comes_up(&sandbox, &[named, &words].concat());
    }
    comes_up(&sandbox, &["vm", "--no-kvm", "--check", "START 1 IS UP", "--timeout", "120"]);

    sandbox.ok(["snapshot", &sandbox.arg("vm.raw"), "--name", "vm", "--time", "2026-05-02T23:00:00Z"]);
    let run = boot(&sandbox, &["vm@2026-05-02", "--keep", &kept, "--check"]);
    assert!(run.code == Some(1) && run.stderr.contains("keeps the writes over"), "{}", run.stderr);
    fs::write(sandbox.path("text"), "my thesis").unwrap();
    let run = boot(&sandbox, &["vm", "--keep", &sandbox.arg("text"), "--check"]);
    assert!(run.code == Some(1) && run.stderr.contains("it is not a qcow2 image"), "{}", run.stderr);
    assert_eq!(fs::read(sandbox.path("text")).unwrap(), b"my thesis");
    let run = boot(&sandbox, &["--keep", &sandbox.arg("absent"), "--check"]);
    assert!(run.code == Some(2) && run.stderr.contains("no snapshot is given"), "{}", run.stderr);
}

/// Another program has made the files for `--keep`. Only a file of the right form is accepted, and
/// none leads QEMU to another file.
#[test]
fn a_kept_file_leads_to_no_other_file() {
    if !has(&[QEMU, "qemu-img"], "a_kept_file_leads_to_no_other_file") {
        return;
    }
    let sandbox = archived("START ? IS UP", Says::OnItsConsole);
    let id = sandbox.ids().remove(0);
    let below = format!("nbd+unix:///{id}?socket=varve.sock");
    let make = |name: &str, below: &str, more: &[&str]| {
        let path = sandbox.arg(name);
        let words = ["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", below];
        let output = Command::new("qemu-img").args(words).args(more).args([&path, "4M"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        path
    };
    let refused = |path: &str, why: &str| {
        let run = boot(&sandbox, &["vm", "--keep", path, "--no-kvm", "--check", "START", "--timeout", "60"]);
        assert!(run.code == Some(1) && run.stderr.contains(why), "{path}: {}{}", run.text(), run.stderr);
    };
    // The guest would have a file of the host as its disk, and would write to it.
    let elsewhere = make("evil", &below, &["-o", &format!("data_file={}", sandbox.arg("made"))]);
    let secret = bootable("START ? IS UP", Says::OnItsConsole);
    fs::write(sandbox.path("made"), &secret).unwrap();
    refused(&elsewhere, "its data is in another file");
    assert!(fs::read(sandbox.path("made")).unwrap() == secret);
    // The feature flag of a data file alone leads to a refusal, and so does the flag of a corrupt
    // image.
    let mut mark = fs::read(make("mark", &below, &[])).unwrap();
    mark[79] |= 4;
    fs::write(sandbox.path("mark"), &mark).unwrap();
    refused(&sandbox.arg("mark"), "its data is in another file");
    mark[79] = 2;
    fs::write(sandbox.path("mark"), &mark).unwrap();
    refused(&sandbox.arg("mark"), "qemu-img check -r");
    refused(&make("lazy", &below, &["-o", "lazy_refcounts=on"]), "features");
    refused(&make("fork", &below, &["-o", "extended_l2=on"]), "features");
    for other in ["nbd+unix:///00?socket=varve.sock", &format!("{below}2"), &sandbox.arg("vm.raw")] {
        refused(&make("other", other, &[]), "it is not based on a snapshot");
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, sandbox.path("fifo"), rustix::fs::Mode::RWXU).unwrap();
    refused(&sandbox.arg("fifo"), "neither a file nor a block device");
    // A file of the right form is accepted.
    let plain = make("plain", &below, &[]);
    comes_up(&sandbox, &["--keep", &plain, "--no-kvm", "--check", "START 1 IS UP", "--timeout", "120"]);

    // The file is replaced between our check and QEMU's opening: the guest does not start.
    let (path, bin) = (std::env::var("PATH").unwrap(), sandbox.path("bin").join(QEMU));
    let script = format!("#!/bin/sh\ncp {elsewhere} {plain}\nPATH={path}\nexec {QEMU} \"$@\"\n");
    write_program(&bin, &script);
    let words = ["--keep", &plain, "--no-kvm", "--check", "IS UP", "--timeout", "60"];
    let mut command = command(&sandbox, &words);
    let run = Run::new(command.env("PATH", format!("{}:{path}", sandbox.arg("bin"))).output().unwrap());
    assert!(run.code == Some(1) && run.stderr.contains("in another file"), "{}{}", run.text(), run.stderr);
    assert!(fs::read(sandbox.path("made")).unwrap() == secret, "and has written nothing");
}

#[test]
fn all_drives_of_a_machine_are_there_and_kept_together() {
    if !has(&[QEMU, "qemu-img"], "all_drives_of_a_machine_are_there_and_kept_together") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("tmp")).unwrap();
    qemu::Machine::make_disks(&sandbox.path(""), 4, 4);
    fs::write(sandbox.path("b.raw"), bootable("START ? IS UP", Says::OnItsConsole)).unwrap();
    let machine = qemu::Machine::start(&sandbox.path(""));
    let words = ["snapshot", "--qmp", machine.socket.to_str().unwrap(), "--scratch", &sandbox.arg("")];
    sandbox.ok(words);
    machine.quit();
    // The machine boots from its original boot drive, whichever drive the command names.
    let up = |number: u32| format!("START {number} IS UP");
    for name in ["web-d0", "web-disk1"] {
        comes_up(&sandbox, &[name, "--no-kvm", "--check", &up(1), "--timeout", "120"]);
    }
    let kept = sandbox.arg("kept.qcow2");
    for number in [1, 2, 3] {
        let named = if number == 1 { &["web-d0"][..] } else { &[] };
        let words = ["--keep", &kept, "--no-kvm", "--check", &up(number), "--timeout", "120"];
        comes_up(&sandbox, &[named, &words].concat());
    }
    assert!(sandbox.path("kept.qcow2.disk-disk1").is_file());
    // A drive that was not archived is named, and the others start without it.
    let machine = qemu::Machine::start(&sandbox.path(""));
    let alone = ["--drive", "disk1", "--name", "alone"];
    sandbox.ok([
        &["snapshot", "--qmp", machine.socket.to_str().unwrap(), "--scratch", &sandbox.arg("")][..],
        &alone,
    ]
    .concat());
    machine.quit();
    let run = boot(&sandbox, &["alone", "--no-kvm", "--check", &up(1), "--timeout", "120"]);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    assert!(run.stderr.contains("d0 is not attached: it was not archived"), "{}", run.stderr);
}

#[test]
fn a_machine_without_a_serial_line_is_seen_on_its_screen() {
    if !has(&[QEMU], "a_machine_without_a_serial_line_is_seen_on_its_screen") {
        return;
    }
    let sandbox = archived("start ? login:", Says::OnItsScreen);
    comes_up(&sandbox, &["vm", "--no-kvm", "--check", "--timeout", "120"]);
}

/// The child processes of a process.
fn children(process: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    listed.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

#[track_caller]
#[allow(clippy::disallowed_methods, reason = "waits for other programs")]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("waited too long until {what}");
}

#[test]
fn a_machine_ends_with_the_program() {
    if !has(&[QEMU], "a_machine_ends_with_the_program") {
        return;
    }
    let sandbox = archived("?", Says::Nowhere);
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        if signal == Signal::KILL
            && !has(&["setpriv"], "a_machine_ends_with_the_program, when that is killed")
        {
            continue;
        }
        let mut program = command(&sandbox, &["vm", "--no-kvm", "--check", "--timeout", "600"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let emulator = || children(program.id()).into_iter().find(|id| is_running(*id, QEMU));
        wait_until("the machine runs", || emulator().is_some());
        let emulator = emulator().unwrap();
        kill_process(Pid::from_child(&program), signal).unwrap();
        program.wait().unwrap();
        wait_until("the machine has ended, too", || !is_running(emulator, QEMU));
        let left = fs::read_dir(sandbox.path("tmp")).unwrap().count();
        assert_eq!(left, usize::from(signal == Signal::KILL), "{signal:?} leaves something behind");
    }
    // The next run removes the files that the killed one left.
    boot(&sandbox, &["vm", "--no-kvm", "--check", "--timeout", "1"]);
}

#[test]
fn a_machine_whose_writes_find_no_room_waits_until_there_is_some() {
    let name = "a_machine_whose_writes_find_no_room_waits_until_there_is_some";
    if !has(&[QEMU, "qemu-img"], name) {
        return;
    }
    let sandbox = archived("START ? IS UP", Says::OnItsConsole);
    let small = sandbox.arg("small");
    fs::create_dir(&small).unwrap();
    let mount = |options: &str| {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs", &small]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    // Space for an image without any writes, which has three clusters of 64 KiB, and for no cluster
    // more.
    const ROOM_BYTES: u64 = 240 << 10;
    if !mount(&format!("size={ROOM_BYTES}")) {
        eprintln!("skipped as nothing can be mounted: {name}");
        return;
    }
    let kept = format!("{small}/kept.qcow2");
    let run =
        boot(&sandbox, &["vm", "--keep", &kept, "--no-kvm", "--check", "START 1 IS UP", "--timeout", "600"]);
    let said = format!("{}{}", run.text(), run.stderr);
    assert!(run.code == Some(1) && said.contains("no space for its writes"), "{said}");

    let mut program = command(&sandbox, &["--keep", &kept, "--no-kvm", "--vnc"]);
    let mut shown = Shown(program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let mut complaints = BufReader::new(shown.0.stderr.take().unwrap()).lines();
    let is_told = complaints.any(|line| line.unwrap().contains("it continues as soon as there is some"));
    assert!(is_told, "it ends without a word");
    let used = || fs::metadata(&kept).unwrap().blocks() * 512;
    assert!(used() <= ROOM_BYTES);
    assert!(mount("remount,size=8m"));
    wait_until("the machine goes on", || used() > ROOM_BYTES);
    kill_process(Pid::from_child(&shown.0), Signal::TERM).unwrap();
    assert_eq!(shown.0.wait().unwrap().code(), Some(0));
    // The first start was still under way.
    comes_up(&sandbox, &["--keep", &kept, "--no-kvm", "--check", "START 2 IS UP", "--timeout", "120"]);
    qemu::tool("umount", &[&small]);
}

/// The program while it shows the screen of a machine. It is killed when the value is dropped.
struct Shown(std::process::Child);

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn its_screen_is_shown_with_vnc() {
    if !has(&[QEMU], "its_screen_is_shown_with_vnc") {
        return;
    }
    let sandbox = archived("?", Says::OnItsScreen);
    let mut program = command(&sandbox, &["vm", "--no-kvm", "--vnc"]);
    let mut shown = Shown(program.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(shown.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let at = line.strip_prefix("its screen is at ").and_then(|rest| rest.split(' ').next());
    let mut screen = TcpStream::connect(at.unwrap_or_else(|| panic!("{line:?}"))).unwrap();
    let mut banner = [0; 12];
    screen.read_exact(&mut banner).unwrap();
    assert_eq!(&banner[..7], b"RFB 003");
    kill_process(Pid::from_child(&shown.0), Signal::TERM).unwrap();
    assert_eq!(shown.0.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read_dir(sandbox.path("tmp")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn where_there_are_no_windows_it_is_said_what_does_without() {
    if !has(&[QEMU], "where_there_are_no_windows_it_is_said_what_does_without") {
        return;
    }
    let sandbox = archived("?", Says::OnItsScreen);
    let mut program = command(&sandbox, &["vm", "--no-kvm"]);
    let output = program.env("DISPLAY", ":9999").env_remove("WAYLAND_DISPLAY").output().unwrap();
    let run = Run::new(output);
    assert_eq!(run.code, Some(1), "{}{}", run.text(), run.stderr);
    assert!(run.stderr.contains("--vnc") && run.stderr.contains("--console"), "{}", run.stderr);
}

fn is_running(process: u32, program: &str) -> bool {
    let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).next().is_some_and(|word| word == program.as_bytes())
}

#[test]
fn it_is_said_what_is_missing() {
    let sandbox = archived("?", Says::Nowhere);
    let output = command(&sandbox, &["vm", "--check"]).env("PATH", sandbox.path("nowhere")).output().unwrap();
    let run = Run::new(output);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains("is not installed") && run.stderr.contains("qemu-system-x86"),
        "{}",
        run.stderr
    );
    let run = boot(&sandbox, &["wm", "--check"]);
    assert!(run.code == Some(1) && run.stderr.contains("no snapshot is called \"wm\""), "{}", run.stderr);
}

/// The nights of a real machine, in the folder that VARVE_DAYS names.
#[test]
fn a_real_night_comes_up() {
    let days = std::env::var_os("VARVE_DAYS").map(PathBuf::from);
    let Some(day) = days.map(|folder| folder.join("day1.raw")).filter(|day| day.is_file()) else {
        eprintln!("skipped as VARVE_DAYS names no folder with a day1.raw: a_real_night_comes_up");
        return;
    };
    if !has(&[QEMU], "a_real_night_comes_up") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("tmp")).unwrap();
    sandbox.ok([Path::new("snapshot"), &day, Path::new("--name"), Path::new("day")]);
    comes_up(&sandbox, &["day", "--check", "DAY-1 IS UP", "--timeout", "600"]);
}
