//! The UEFI variables of a machine: archived with its disks, and there when it is booted.

use std::fs;
use std::process::Command;

use crate::qemu::{Machine, has};
use crate::sandbox::{self, Sandbox};
use crate::uefi::{OVMF, OVMF_4M, flash, has_ovmf, with_boot_entry};
use serde_json::Value;

const PROGRAMS: [&str; 2] = ["qemu-system-x86_64", "qemu-img"];
/// The title of a boot entry, which the firmware prints when it tries it.
const TITLE: &str = "VARVE-MARK";

/// Starts a machine with these options and more, archives it, and ends it.
fn archived(sandbox: &Sandbox, more: &[&str]) -> Vec<Value> {
    Machine::make_disks(&sandbox.path(""), 4, 4);
    let machine = Machine::start_with(&sandbox.path(""), more);
    let lines = night(sandbox, &machine, &[]);
    machine.quit();
    lines
}

fn night(sandbox: &Sandbox, machine: &Machine, more: &[&str]) -> Vec<Value> {
    let socket = machine.socket.to_str().unwrap();
    let words = ["--json", "snapshot", "--qmp", socket, "--scratch", &sandbox.arg("")];
    sandbox::json_lines(&sandbox.ok([&words[..], more].concat()))
}

fn field(lines: &[Value], key: &str) -> Vec<Value> {
    lines.iter().map(|line| line[key].clone()).collect()
}

fn boot(sandbox: &Sandbox, words: &[&str]) -> sandbox::Run {
    let always = ["boot", "--no-kvm", "--timeout", "180"];
    sandbox.run([&always[..], words].concat())
}

#[test]
fn a_machine_starts_with_the_variables_that_were_archived_with_it() {
    let test = "a_machine_starts_with_the_variables_that_were_archived_with_it";
    if !has(&PROGRAMS, test) || !has_ovmf(test) {
        return;
    }
    // The code that fits the variables is not the first one that is installed.
    let (code, fresh) = OVMF;
    let sandbox = Sandbox::encrypted();
    let variables = with_boot_entry(fresh, TITLE);
    fs::write(sandbox.path("vars.fd"), &variables).unwrap();
    Machine::make_disks(&sandbox.path(""), 4, 4);
    let options = flash(code, "vars.fd");
    let more: Vec<_> = options.iter().map(String::as_str).chain(["-m", "256"]).collect();
    let machine = Machine::start_with(&sandbox.path(""), &more);
    let first = night(&sandbox, &machine, &[]);
    assert_eq!(field(&first, "name"), ["web-uefi", "web-d0", "web-disk1"]);
    assert_eq!(field(&first, "firmware_variables"), [true, false, false]);
    assert_eq!(field(&first, "size")[0], variables.len());
    assert_eq!(field(&first, "left_out"), [Value::Array(vec![]), Value::Array(vec![]), Value::Array(vec![])]);
    let second = night(&sandbox, &machine, &["--drive", "d0", "--name", "alone"]);
    assert_eq!(field(&second, "name"), ["alone-uefi", "alone"]);
    assert_eq!(field(&second, "changed_since"), [first[0]["id"].clone(), first[1]["id"].clone()]);
    assert_eq!(second[0]["read_bytes"], 0);
    machine.quit();

    let listed = sandbox.ok(["snapshots", "web-uefi"]);
    assert!(listed.contains("[UEFI variables of web]"), "{listed}");
    sandbox.ok(["restore", "web-uefi", &sandbox.arg("back.fd")]);
    assert!(fs::read(sandbox.path("back.fd")).unwrap() == variables);
    assert!(sandbox.run(["cat", "latest"]).stdout != variables, "the latest snapshot is one of a disk");

    let run = boot(&sandbox, &["web-d0", "--check", TITLE]);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    assert!(!run.stderr.contains("not attached"), "{}", run.stderr);
    assert!(run.stderr.contains("UEFI with the variables of the machine, 2 drives"), "{}", run.stderr);
    let said = sandbox.fails(1, ["boot", "web-uefi", "--check", TITLE]);
    assert!(said.contains("web-uefi has the UEFI variables of web"), "{said}");

    // Kept variables begin with the archived ones, and are then the guest's own.
    let (kept, keeps) = (sandbox.arg("kept.qcow2"), sandbox.path("kept.qcow2.uefi"));
    let run = boot(&sandbox, &["web-d0", "--keep", &kept, "--check", TITLE]);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    assert_eq!(fs::metadata(&keeps).unwrap().len(), variables.len() as u64);
    fs::write(&keeps, with_boot_entry(fresh, "ANOTHER")).unwrap();
    let run = boot(&sandbox, &["--keep", &kept, "--check", "ANOTHER"]);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    fs::write(&keeps, "cut short").unwrap();
    let said = sandbox.fails(1, ["boot", "--keep", &kept, "--check", TITLE]);
    assert!(said.contains("has 9 bytes: move it away"), "{said}");
}

/// A machine as libvirt starts it: the nodes have the names, and the drives have none.
#[test]
fn variables_are_found_under_other_names_and_with_the_larger_size() {
    let test = "variables_are_found_under_other_names_and_with_the_larger_size";
    if !has(&PROGRAMS, test) || !has_ovmf(test) {
        return;
    }
    let (code, fresh) = OVMF_4M;
    let sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("vars.fd"), with_boot_entry(fresh, TITLE)).unwrap();
    let node = |number: u8, read_only: &str, file: &str| {
        let storage = format!("libvirt-pflash{number}-storage");
        [
            "-blockdev".to_owned(),
            format!("driver=file,filename={file},node-name={storage},read-only={read_only}"),
            "-blockdev".to_owned(),
            format!(
                "driver=raw,file={storage},node-name=libvirt-pflash{number}-format,read-only={read_only}"
            ),
        ]
    };
    let nodes = [node(0, "on", code), node(1, "off", "vars.fd")].concat();
    let machine = ["-machine", "pflash0=libvirt-pflash0-format,pflash1=libvirt-pflash1-format", "-m", "256"];
    let more: Vec<_> = machine.into_iter().chain(nodes.iter().map(String::as_str)).collect();
    let lines = archived(&sandbox, &more);
    assert_eq!(field(&lines, "name"), ["web-uefi", "web-d0", "web-disk1"]);
    let run = boot(&sandbox, &["web-disk1", "--check", TITLE]);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
}

#[test]
fn variables_that_fit_no_firmware_are_named_and_fresh_ones_are_used() {
    let test = "variables_that_fit_no_firmware_are_named_and_fresh_ones_are_used";
    if !has(&PROGRAMS, test) || !has_ovmf(test) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let mut variables = fs::read(OVMF.1).unwrap();
    variables.truncate(65_536);
    variables[32..40].copy_from_slice(&65_536_u64.to_le_bytes());
    fs::write(sandbox.path("vars.fd"), &variables).unwrap();
    let options = flash(OVMF.0, "vars.fd");
    let more: Vec<_> = options.iter().map(String::as_str).chain(["-m", "256"]).collect();
    archived(&sandbox, &more);
    let run = boot(&sandbox, &["web-d0", "--check", "EFI Internal Shell"]);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    let said = "they have 65536 bytes, and those of the UEFI for QEMU that is installed here have 131072 or 540672; it starts with fresh ones";
    assert!(run.stderr.contains(said), "{}", run.stderr);
}

/// The folder of UEFI for QEMU is empty in a world of mounts of its own, as before Debian's package
/// is installed.
#[test]
fn a_missing_firmware_is_named_with_its_package() {
    let test = "a_missing_firmware_is_named_with_its_package";
    if !has(&["qemu-system-x86_64", "unshare"], test) || !has_ovmf(test) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped, as only root can mount: {test}");
        return;
    }
    let sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("disk.img"), vec![1; 1 << 20]).unwrap();
    sandbox.ok(["snapshot", &sandbox.arg("disk.img"), "--as", "image"]);
    let mut boot = sandbox.command();
    boot.args(["boot", "disk.img", "--no-kvm", "--firmware", "uefi", "--check", "never"]);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", "mount -t tmpfs none /usr/share/OVMF && exec \"$@\"", "sh"]);
    command.arg(boot.get_program()).args(boot.get_args());
    let run = sandbox::Run::new(command.output().unwrap());
    assert_eq!(run.code, Some(1), "{}{}", run.text(), run.stderr);
    assert!(run.stderr.contains("UEFI for QEMU is not installed: install ovmf"), "{}", run.stderr);
}
