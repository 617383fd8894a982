//! Disks whose sectors do not have 512 bytes: archived with that size, booted with it, and restored
//! where it is the same.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use std::fs;
use std::process::{Command, Stdio};

use crate::loop_device::LoopDevice;
use crate::qemu::{Machine, wait_for};
use crate::sandbox::{self, Run, Sandbox};
use crate::uefi;

const TEXT: &str = "VARVE GUEST IS UP";

/// Returns true if a program is not installed, and prints the name of the skipped test.
fn lacks(programs: &[&str], test: &str) -> bool {
    let missing = programs.iter().find(|program| !sandbox::has(program));
    if let Some(missing) = missing {
        eprintln!("skipped as {missing} is not installed: {test}");
    }
    missing.is_some()
}

fn boot(sandbox: &Sandbox, words: &[&str]) -> Run {
    let always = ["boot", "--no-kvm", "--check", TEXT];
    sandbox.run([&always[..], words].concat())
}

/// Makes `native.raw`, from which UEFI starts if its sectors have this size.
fn make_disk(sandbox: &Sandbox, sector_bytes: u32) {
    let partition = uefi::system_partition(&sandbox.path(""), sector_bytes, &uefi::program(TEXT));
    let disk = uefi::gpt_disk(sector_bytes.into(), &fs::read(partition).unwrap());
    fs::write(sandbox.path("native.raw"), disk).unwrap();
}

#[test]
fn a_disk_with_large_sectors_comes_up_again() {
    let test = "a_disk_with_large_sectors_comes_up_again";
    let programs = ["qemu-system-x86_64", "qemu-img", "mkfs.fat", "mcopy"];
    if lacks(&programs, test) || !uefi::has_ovmf(test) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    Machine::make_disks(&sandbox.path(""), 4, 4);
    make_disk(&sandbox, 4096);
    fs::write(sandbox.path("empty.raw"), [0; 1 << 20]).unwrap();
    let options = uefi::flash(uefi::OVMF.0, "vars.fd");
    fs::copy(uefi::OVMF.1, sandbox.path("vars.fd")).unwrap();
    let sectors = "logical_block_size=4096,physical_block_size=4096";
    let emulated = "logical_block_size=512,physical_block_size=4096";
    let devices = [
        format!("virtio-blk-pci,drive=native,bootindex=0,addr=0x10,{sectors}"),
        format!("nvme,serial=1,id=nvme0,drive=empty,{emulated}"),
    ];
    let mut more = vec!["-m", "256", "-drive", "if=none,id=native,format=raw,file=native.raw"];
    more.extend(["-drive", "if=none,id=empty,format=raw,file=empty.raw"]);
    more.extend(options.iter().map(String::as_str));
    devices.iter().for_each(|device| more.extend(["-device", device]));
    let machine = Machine::start_with(&sandbox.path(""), &more);
    let socket = machine.socket.to_str().unwrap();
    let lines = sandbox.ok(["--json", "snapshot", "--qmp", socket, "--scratch", &sandbox.arg("")]);
    machine.quit();
    let sizes: Vec<_> = sandbox::json_lines(&lines)
        .iter()
        .map(|line| {
            (line["name"].clone(), line["sector_bytes"].clone(), line["physical_sector_bytes"].clone())
        })
        .collect();
    let expected = [
        ("web-uefi".into(), serde_json::Value::Null, serde_json::Value::Null),
        ("web-d0".into(), 512.into(), 512.into()),
        ("web-native".into(), 4096.into(), 4096.into()),
        ("web-empty".into(), 512.into(), 4096.into()),
        ("web-disk1".into(), 512.into(), 512.into()),
    ];
    assert_eq!(sizes, expected);

    // The size that was recorded, and the size that the partition table shows.
    sandbox.ok(["snapshot", &sandbox.arg("native.raw"), "--as", "image", "--name", "file"]);
    for words in [&["web-native"][..], &["file"], &["file", "--bus", "scsi"], &["file", "--bus", "nvme"]] {
        let run = boot(&sandbox, &[words, &["--timeout", "180"]].concat());
        assert_eq!(run.code, Some(0), "{words:?}: {}{}", run.text(), run.stderr);
        assert!(!run.stderr.contains("sectors"), "{words:?}: {}", run.stderr);
    }
    // The firmware finds the disk where it was: a boot entry may name the place.
    let words =
        ["boot", "web-native", "--no-kvm", "--check", "PciRoot(0x0)/Pci(0x10,0x0)", "--timeout", "180"];
    let run = sandbox.run(words);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    // An attachment that cannot work is reported at once.
    let run = boot(&sandbox, &["file", "--bus", "sata", "--timeout", "1"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("its bus has no others"), "{}", run.stderr);
    let run = boot(&sandbox, &["file", "--firmware", "bios", "--timeout", "1"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("from which no BIOS starts"), "{}", run.stderr);
}

/// Checks the description of an export, which QEMU's program lists.
fn is_described(sandbox: &Sandbox, export: &str, ending: &str) {
    if lacks(&["qemu-nbd"], "the description of an export") {
        return;
    }
    let (socket, address) = (sandbox.path("nbd.socket"), format!("unix:{}", sandbox.arg("nbd.socket")));
    let mut server = sandbox.command();
    server.args(["serve", "--nbd", &address, "--export", export]).stdout(Stdio::null());
    let mut server = server.spawn().unwrap();
    wait_for("the server's socket", || socket.exists().then_some(()));
    let listed = Command::new("qemu-nbd").args(["--list", "-k"]).arg(&socket).output();
    server.kill().unwrap();
    server.wait().unwrap();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let mut lines = listed.lines().map(|line| line.trim().trim_end_matches('\''));
    assert!(lines.any(|line| line.starts_with("description:") && line.ends_with(ending)), "{listed}");
}

#[test]
fn a_device_with_other_sectors_is_named_before_it_is_written_to() {
    let test = "a_device_with_other_sectors_is_named_before_it_is_written_to";
    if !sandbox::is_root() {
        eprintln!("skipped as it needs root: {test}");
        return;
    }
    if lacks(&["mkfs.fat", "mcopy", "losetup"], test) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    make_disk(&sandbox, 4096);
    fs::copy(sandbox.path("native.raw"), sandbox.path("small.raw")).unwrap();
    let native = LoopDevice::with_sectors(&sandbox.path("native.raw"), 4096);
    let small = LoopDevice::with_sectors(&sandbox.path("small.raw"), 512);
    let line = sandbox.json(["snapshot", native.path(), "--name", "device"]).remove(0);
    assert_eq!((&line["sector_bytes"], &line["physical_sector_bytes"]), (&4096.into(), &4096.into()));
    sandbox.ok(["snapshot", &sandbox.arg("native.raw"), "--as", "image", "--name", "file"]);
    is_described(&sandbox, "device", ", sectors of 4096 bytes");
    for name in ["device", "file"] {
        let restore = |to: &str, more: &[&str]| {
            let run = sandbox.run([&["restore", name, to, "--overwrite", "always"], more].concat());
            assert_eq!(run.code, Some(0), "{}", run.stderr);
            run.stderr.contains("has sectors of 512 bytes, and the archived disk had sectors of 4096")
        };
        assert!(restore(small.path(), &["--dry-run"]), "{name}");
        assert!(restore(small.path(), &[]), "{name}");
        assert!(!restore(native.path(), &[]), "{name}");
        assert!(!restore(&sandbox.arg("a-file"), &[]), "{name}");
    }
}
