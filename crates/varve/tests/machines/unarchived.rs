//! The parts of a running machine that its snapshot does not hold: each has a line in the output,
//! for programs, and in the record of the snapshot.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::qemu::{Machine, has, tool, wait_for};
use crate::sandbox::Sandbox;

const PROGRAMS: [&str; 2] = ["qemu-system-x86_64", "qemu-img"];

/// A program that plays a TPM. It is killed on drop.
struct Tpm(Child);

impl Tpm {
    fn start(sandbox: &Sandbox) -> Self {
        fs::create_dir(sandbox.path("tpm")).unwrap();
        let mut command = Command::new("swtpm");
        command.args(["socket", "--tpm2", "--tpmstate", "dir=tpm", "--ctrl", "type=unixio,path=tpm.socket"]);
        let child = command.current_dir(sandbox.path("")).stdin(Stdio::null()).spawn().unwrap();
        wait_for("the TPM's socket", || sandbox.path("tpm.socket").exists().then_some(()));
        Self(child)
    }
}

impl Drop for Tpm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_part_that_is_not_archived_is_named() {
    let test = "each_part_that_is_not_archived_is_named";
    if !has(&PROGRAMS, test) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    Machine::make_disks(&sandbox.path(""), 4, 4);
    tool("qemu-img", &["snapshot", "-c", "before-upgrade", &sandbox.arg("a.qcow2")]);
    for name in ["fixed.raw", "disc.raw", "loose.raw"] {
        fs::write(sandbox.path(name), vec![7; 1 << 20]).unwrap();
    }
    fs::write(sandbox.path("floppy.raw"), vec![0; 1_474_560]).unwrap();
    let mut more = vec![
        "-drive",
        "if=none,id=fixed,format=raw,readonly=on,file=fixed.raw",
        "-device",
        "virtio-blk-pci,drive=fixed",
        "-drive",
        "if=none,id=disc,format=raw,media=cdrom,file=disc.raw",
        "-device",
        "ide-cd,drive=disc,bus=ide.1",
        "-drive",
        "if=none,id=fd,format=raw,file=floppy.raw",
        "-device",
        "floppy,drive=fd",
        "-drive",
        "if=none,id=loose,format=raw,file=loose.raw",
        "-fsdev",
        "local,id=fs,path=.,security_model=none",
        "-device",
        "virtio-9p-pci,id=shared,fsdev=fs,mount_tag=t",
    ];
    let mut expected = vec![
        ("drive fixed", "the machine cannot write to it; --drive fixed archives it"),
        ("drive disc", "a medium in a removable drive; --drive disc archives it"),
        ("drive fd", "a medium in a removable drive; --drive fd archives it"),
        ("drive loose", "no device of the machine uses it; --drive loose archives it"),
    ];
    let inside =
        ("1 snapshot inside drive d0: before-upgrade", "only the current state of the disk is archived");
    expected.push(inside);
    let tpm = has(&["swtpm"], "the TPM in each_part_that_is_not_archived_is_named").then(|| {
        let tpm = Tpm::start(&sandbox);
        more.extend(["-chardev", "socket,id=tpm-socket,path=tpm.socket"]);
        more.extend(["-tpmdev", "emulator,id=tpm0,chardev=tpm-socket", "-device", "tpm-tis,tpmdev=tpm0"]);
        expected.push(("the TPM tpm0", "its keys are kept by another program"));
        tpm
    });
    expected.push(("virtio-9p-pci shared", "a folder of the host: archive it there"));
    let machine = Machine::start_with(&sandbox.path(""), &more);
    let socket = machine.socket.to_str().unwrap();
    let words = ["snapshot", "--qmp", socket, "--scratch", &sandbox.arg("")];

    let lines = sandbox.json(words);
    assert_eq!(lines.len(), 2, "two disks: {lines:?}");
    for line in &lines {
        let left_out = line["left_out"].as_array().unwrap();
        let said: Vec<_> = left_out.iter().map(|part| part["what"].as_str().unwrap()).collect();
        assert_eq!(said, expected.iter().map(|(what, _)| *what).collect::<Vec<_>>());
        for (part, (_, why)) in left_out.iter().zip(&expected) {
            assert!(part["why"].as_str().unwrap().starts_with(why), "{part}");
        }
    }
    let (said, recorded) = (sandbox.ok(words), sandbox.ok(["snapshots", "-v", "web-d0"]));
    for (what, why) in &expected {
        let line = format!("  left out: {what}: {why}");
        assert_eq!(said.matches(&line).count(), 1, "once for the machine: {said}");
        assert_eq!(recorded.matches(&line).count(), 2, "in the record of both snapshots: {recorded}");
    }

    // A drive that is asked for is archived; the disks that were not asked for are then named.
    let lines = sandbox.json([&words[..], &["--drive", "fixed"]].concat());
    assert_eq!((lines.len(), &lines[0]["drive"]), (1, &"fixed".into()));
    let left_out = lines[0]["left_out"].as_array().unwrap();
    let of = |what: &str| left_out.iter().find(|part| part["what"] == what);
    assert_eq!(of("drive d0").unwrap()["why"], "--drive names other drives");
    assert!(of("drive fixed").is_none() && of("drive disc").is_some());
    machine.quit();
    assert!(sandbox.run(["cat", "web-fixed"]).stdout == vec![7; 1 << 20]);
    drop(tpm);
}
