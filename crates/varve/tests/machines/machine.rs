//! Machines that are archived while they run: real ones in QEMU, and simulated ones that send wrong
//! answers.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::sandbox;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};

use crate::qemu::{Machine, has, tool, wait_for};
use crate::sandbox::{Sandbox, noise};
use serde_json::{Value, json};

const PROGRAMS: [&str; 2] = ["qemu-system-x86_64", "qemu-img"];
const MIB: u64 = 1 << 20;
const GREETING: &str = "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 0, \"minor\": 2, \"major\": 7}}, \"capabilities\": []}}\n";

/// The JSON lines that `snapshot` prints for one night.
fn night(sandbox: &Sandbox, machine: &Machine, more: &[&str]) -> Vec<Value> {
    let socket = machine.socket.to_str().unwrap();
    let scratch = sandbox.arg("");
    let words = [&["--json", "snapshot", "--qmp", socket, "--scratch", &scratch], more].concat();
    sandbox::json_lines(&sandbox.ok(words))
}

fn image(sandbox: &Sandbox, snapshot: &str) -> Vec<u8> {
    sandbox.run(["cat", snapshot]).stdout
}

/// The contents of the disks, read by QEMU's own tool. The machine must have ended.
fn disks(sandbox: &Sandbox) -> [Vec<u8>; 2] {
    let [a, b] = [("a.qcow2", "qcow2"), ("b.raw", "raw")].map(|(file, format)| {
        let raw = sandbox.arg("whole");
        tool("qemu-img", &["convert", "-f", format, "-O", "raw", &sandbox.arg(file), &raw]);
        fs::read(raw).unwrap()
    });
    [a, b]
}

#[test]
fn a_night_reads_what_has_changed_since_the_last() {
    if !has(&PROGRAMS, "a_night_reads_what_has_changed_since_the_last") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    Machine::make_disks(&sandbox.path(""), 64, 16);
    let mut machine = Machine::start(&sandbox.path(""));
    machine.write("d0", MIB, 24 * MIB, 5);
    machine.write("disk1", 0, MIB, 6);

    let first = night(&sandbox, &machine, &[]);
    let field = |lines: &[Value], key: &str| lines.iter().map(|line| line[key].clone()).collect::<Vec<_>>();
    assert_eq!(field(&first, "name"), ["web-d0", "web-disk1"]);
    assert_eq!(field(&first, "read_bytes"), [24 * MIB, MIB]);
    let reason = "QEMU has no record of the changes since an archived snapshot";
    assert_eq!(field(&first, "read_whole_because"), [reason, reason]);
    assert_eq!(first[0]["time"], first[1]["time"], "one moment");

    // Some data is written, and some is discarded. The rest is not read again.
    machine.write("d0", 20 * MIB + 512, 4096, 7);
    machine.write("d0", 40 * MIB, MIB, 8);
    machine.qmp("human-monitor-command", json!({ "command-line": "qemu-io d0 \"write -q -z 2M 1M\"" }));
    let second = night(&sandbox, &machine, &[]);
    assert_eq!(field(&second, "changed_since"), field(&first, "id"));
    assert_eq!(field(&second, "read_bytes"), [MIB + (64 << 10), 0]);
    assert_eq!((machine.parts(), machine.nameless_bytes()), (0, 0), "nothing of ours is left in QEMU");
    let records = machine.records();
    assert_eq!(records.each_ref().map(Vec::len), [1, 1]);
    assert_eq!([&records[0][0]["persistent"], &records[1][0]["persistent"]], [true, false]);

    // After a clean shutdown, the record in the qcow2 file is still there. The record in memory is
    // not.
    machine.quit();
    let mut machine = Machine::start(&sandbox.path(""));
    machine.write("d0", 50 * MIB, 1024, 9);
    machine.write("disk1", 3 * MIB, 1024, 9);
    let third = night(&sandbox, &machine, &[]);
    assert_eq!(field(&third, "changed_since"), [second[0]["id"].clone(), Value::Null]);
    assert_eq!(third[0]["read_bytes"], 64 << 10);
    let whole = night(&sandbox, &machine, &["--reread", "--drive", "disk1", "--name", "web-disk1"]);
    assert_eq!(whole[0]["read_whole_because"], "--reread was given");
    machine.quit();
    let [a, b] = disks(&sandbox);
    assert!(image(&sandbox, "web-d0") == a && image(&sandbox, "web-disk1") == b);
    sandbox.ok(["verify", "--data"]);
    machine_is_described(&sandbox, &second);
}

/// Each night reads what has changed, and has the other blocks of the night before.
#[test]
fn a_disk_is_cut_at_its_files_night_after_night() {
    if !has(&["qemu-system-x86_64", "qemu-img", "mke2fs"], "a_disk_is_cut_at_its_files_night_after_night") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    Machine::make_disks(&sandbox.path(""), 64, 16);
    let files = sandbox.path("files");
    fs::create_dir(&files).unwrap();
    let large = noise(3, 9_000_000);
    fs::write(files.join("large"), &large).unwrap();
    let (folder, disk) = (files.to_str().unwrap(), sandbox.arg("b.raw"));
    tool("mke2fs", &["-q", "-F", "-t", "ext4", "-d", folder, &disk, "16M"]);
    let bytes = fs::read(&disk).unwrap();
    let at = bytes.windows(64).position(|part| *part == large[5_000_000..5_000_064]).unwrap();
    let mut machine = Machine::start(&sandbox.path(""));
    let by_files = |machine: &Machine| night(&sandbox, machine, &["--cut", "files"]).remove(1);
    let first = by_files(&machine);
    assert!(first["read_bytes"].as_u64().unwrap() < 11 * MIB, "all but holes: {first}");

    machine.write("disk1", at as u64 / 4096 * 4096, 4096, 9);
    let second = by_files(&machine);
    assert_eq!(second["read_whole_because"], json!(null));
    assert!(second["read_bytes"].as_u64().unwrap() < MIB, "{second}");
    assert!(second["new_bytes"].as_u64().unwrap() < MIB, "{second}");
    // The files themselves are there already.
    let taken = sandbox.json(["snapshot", folder]).remove(0);
    assert!(taken["new_bytes"].as_u64().unwrap() < 300_000, "{taken}");
    let fixed = night(&sandbox, &machine, &[]).remove(1);
    let because = fixed["read_whole_because"].as_str().unwrap();
    assert!(because.contains("cut at other places"), "{because}");
    machine.quit();
    let disk = fs::read(disk).unwrap();
    for taken in [&second, &fixed] {
        assert!(image(&sandbox, taken["id"].as_str().unwrap()) == disk, "{taken}");
    }
}

/// The independent reader of the format finds the description of the machine.
fn machine_is_described(sandbox: &Sandbox, lines: &[Value]) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut command = sandbox::python();
    command.arg(root.join("rosetta/rosetta.py")).arg("--key-file").arg(sandbox.key().unwrap());
    let output = command.arg(sandbox.store()).args(["list", "--json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("ModuleNotFoundError") {
        eprintln!("skipped as Python lacks a module: the machine's description, in rosetta");
        return;
    }
    assert!(output.status.success(), "{said}");
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = listed.as_array().unwrap().iter().find(|one| one["id"] == lines[0]["id"]).unwrap();
    let machine = &of["machine"];
    assert_eq!([&machine["name"], &machine["architecture"]], ["web", "x86_64"]);
    assert!(machine["board"].as_str().unwrap().starts_with("pc-"), "{machine}");
    assert_eq!([&machine["cpu_count"], &machine["memory"], &machine["firmware"]], [1, 64 * MIB, 1]);
    let drives: Vec<_> = machine["drives"]
        .as_array()
        .unwrap()
        .iter()
        .map(|drive| {
            json!([drive["name"], drive["device"], drive["boot_index"], drive["format"], drive["snapshot"]])
        })
        .collect();
    let expected = [
        json!(["d0", "virtio-blk-pci", 0, "qcow2", lines[0]["id"]]),
        json!(["disk1", "ide-hd", 4, "raw", lines[1]["id"]]),
    ];
    assert_eq!(drives, expected);
}

/// The machine writes increasing numbers around a ring of places. So an image shows which number
/// was the last.
struct Ring;

impl Ring {
    const PLACES: u64 = 97;
    const APART: u64 = 512 << 10;

    fn write(machine: &mut Machine, number: u64) {
        let place = (number % Self::PLACES) * Self::APART;
        machine.write("d0", place, 4096, Self::value(number));
        machine.write("disk1", 0, 512, Self::value(number));
    }

    fn value(number: u64) -> u8 {
        u8::try_from(number % 251).unwrap() + 1
    }

    /// The last number that was written. `None` if the image shows no single moment.
    fn last(a: &[u8], b: &[u8], up_to: u64) -> Option<u64> {
        let at = |number: u64| a[usize::try_from((number % Self::PLACES) * Self::APART).unwrap()];
        let shows =
            |last: &u64| (last - (Self::PLACES - 1)..=*last).all(|number| at(number) == Self::value(number));
        let last = (Self::PLACES..=up_to).rev().find(shows)?;
        // The other disk is of the same moment if it has this number, or still the one before.
        [Self::value(last), Self::value(last - 1)].contains(&b[0]).then_some(last)
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the machine writes while it is archived")]
fn a_night_shows_one_moment_of_a_machine_that_goes_on_writing() {
    if !has(&PROGRAMS, "a_night_shows_one_moment_of_a_machine_that_goes_on_writing") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    Machine::make_disks(&sandbox.path(""), 64, 16);
    fs::write(sandbox.path("noise"), sandbox::noise(7, 64 << 20)).unwrap();
    let noise = sandbox.arg("noise");
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &noise, &sandbox.arg("a.qcow2")]);
    let mut machine = Machine::start(&sandbox.path(""));
    let mut number = 0;
    while number < 2 * Ring::PLACES {
        number += 1;
        Ring::write(&mut machine, number);
    }
    for is_first in [true, false] {
        let before = number;
        let socket = machine.socket.clone();
        let is_over = AtomicBool::new(false);
        let lines = std::thread::scope(|threads| {
            let archiving = threads.spawn(|| {
                let words =
                    ["--json", "snapshot", "--scratch", &sandbox.arg(""), "--qmp", socket.to_str().unwrap()];
                let run = sandbox.run(words);
                is_over.store(true, Ordering::Relaxed);
                run
            });
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                Ring::write(&mut machine, number);
            }
            archiving.join().unwrap()
        });
        assert_eq!(lines.code, Some(0), "{}", lines.stderr);
        let line = sandbox::json_lines(&lines.text()).remove(0);
        assert_eq!(line["changed_since"].is_null(), is_first);
        let (a, b) = (image(&sandbox, "web-d0"), image(&sandbox, "web-disk1"));
        let last = Ring::last(&a, &b, number).expect("the image shows one moment");
        assert!((before..number).contains(&last), "{last} was written last, of {before}..{number}");
    }
    machine.quit();
}

/// Begins a snapshot. Returns when QEMU holds the moment, or when the snapshot has ended already.
fn begin(sandbox: &Sandbox, machine: &mut Machine, more: &[&str]) -> std::process::Child {
    let mut command = sandbox.command();
    command.args(["snapshot", "--scratch", &sandbox.arg(""), "--qmp"]).arg(&machine.socket).args(more);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("a moment that is held", || {
        if child.try_wait().unwrap().is_some() {
            return Some(());
        }
        let jobs = machine.qmp("query-jobs", json!({}));
        jobs.as_array().unwrap().iter().any(|job| job["type"] == "backup").then_some(())
    });
    child
}

/// Begins a snapshot with much changed data, which `end` ends while it is being read. If the
/// snapshot was faster, another one is begun.
fn cut_short(
    sandbox: &Sandbox,
    machine: &mut Machine,
    more: &[&str],
    end: impl Fn(&mut std::process::Child),
) -> std::process::ExitStatus {
    for seed in 2..12 {
        machine.write("d0", 64 * MIB, 128 * MIB, seed);
        let mut run = begin(sandbox, machine, more);
        end(&mut run);
        let status = run.wait().unwrap();
        if !status.success() {
            return status;
        }
    }
    panic!("every night was faster than what was to end it");
}

/// A machine whose first night is archived, with one change since.
fn machine_after_a_night(sandbox: &Sandbox) -> Machine {
    Machine::make_disks(&sandbox.path(""), 256, 1);
    fs::write(sandbox.path("noise"), sandbox::noise(7, 256 << 20)).unwrap();
    let noise = sandbox.arg("noise");
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &noise, &sandbox.arg("a.qcow2")]);
    let mut machine = Machine::start(&sandbox.path(""));
    night(sandbox, &machine, &[]);
    machine.write("d0", 0, 512, 1);
    machine
}

#[test]
fn a_killed_run_costs_the_next_one_nothing() {
    if !has(&PROGRAMS, "a_killed_run_costs_the_next_one_nothing") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let mut machine = machine_after_a_night(&sandbox);
    cut_short(&sandbox, &mut machine, &[], |run| run.kill().unwrap());
    assert!(machine.parts() > 0, "it was killed too late to leave anything behind");
    machine.write("d0", 200 * MIB, 512, 3);
    let run =
        sandbox.run(["snapshot", "--scratch", &sandbox.arg(""), "--qmp", machine.socket.to_str().unwrap()]);
    assert!(run.stderr.contains("an earlier run was killed"), "{}", run.stderr);
    assert!(run.text().contains("the changes since"), "{}", run.text());
    assert_eq!((machine.parts(), machine.records().map(|records| records.len())), (0, [1, 1]));
    // The next snapshot reads only the changes since this one.
    machine.write("d0", 201 * MIB, 512, 4);
    assert_eq!(night(&sandbox, &machine, &["--drive", "d0", "--name", "web-d0"])[0]["read_bytes"], 64 << 10);
    machine.quit();
    assert!(image(&sandbox, "web-d0") == disks(&sandbox)[0]);
}

#[test]
fn a_machine_that_dies_loses_the_night_and_the_next_one_reads_everything() {
    if !has(&PROGRAMS, "a_machine_that_dies_loses_the_night_and_the_next_one_reads_everything") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    // The record is in the file now, and marked as in use.
    machine_after_a_night(&sandbox).quit();
    let mut nights = 1;
    let said = loop {
        let mut machine = Machine::start(&sandbox.path(""));
        machine.write("d0", 64 * MIB, 128 * MIB, 2);
        // The whole disk is read, which mostly takes long enough for the kill to come in time.
        let run = begin(&sandbox, &mut machine, &["--reread"]);
        machine.kill();
        let output = run.wait_with_output().unwrap();
        if !output.status.success() {
            assert_eq!(output.status.code(), Some(1));
            break String::from_utf8_lossy(&output.stderr).into_owned();
        }
        nights += 1;
        assert!(nights < 10, "every night was faster than the machine's end");
    };
    assert!(said.contains("was not archived") && !said.contains("panicked"), "{said}");
    let listed = sandbox.json(["snapshots"]);
    assert_eq!(listed.len(), 2 * nights, "{listed:?}");
    let machine = Machine::start(&sandbox.path(""));
    let lines = night(&sandbox, &machine, &[]);
    let reason = "QEMU was not shut down cleanly, and did not save its record of changes";
    assert_eq!(lines[0]["read_whole_because"], reason);
    machine.quit();
    assert!(image(&sandbox, "web-d0") == disks(&sandbox)[0]);
}

#[test]
fn a_night_that_is_interrupted_or_has_no_room_leaves_everything_as_it_was() {
    let name = "a_night_that_is_interrupted_or_has_no_room_leaves_everything_as_it_was";
    if !has(&PROGRAMS, name) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let mut machine = machine_after_a_night(&sandbox);
    for more in [&[][..], &["--reread"]] {
        let interrupt =
            |run: &mut std::process::Child| kill_process(Pid::from_child(run), Signal::INT).unwrap();
        assert_eq!(cut_short(&sandbox, &mut machine, more, interrupt).code(), Some(130));
        assert_eq!((machine.parts(), machine.records().map(|records| records.len())), (0, [1, 1]));
    }

    fs::create_dir(sandbox.path("small")).unwrap();
    let small = sandbox.arg("small");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16M", "tmpfs", &small]).status();
    if mounted.is_ok_and(|status| status.success()) {
        let socket = machine.socket.to_str().unwrap().to_owned();
        let run = sandbox.run(["snapshot", "--qmp", &socket, "--scratch", &small]);
        // A paused machine keeps the file that it was given open until it continues.
        tool("umount", &["-l", &small]);
        assert!(run.code == Some(1) && run.stderr.contains("--scratch"), "{}", run.stderr);
        assert_eq!((machine.parts(), machine.records().map(|records| records.len())), (0, [1, 1]));
    } else {
        eprintln!("skipped as nothing can be mounted: {name}: no room");
    }
    // The record of the last good night is still there after both failures.
    let line = &night(&sandbox, &machine, &["--drive", "d0", "--name", "web-d0"])[0];
    assert_eq!(line["read_bytes"], 128 * MIB + (64 << 10), "{line}");
    machine.quit();
    assert!(image(&sandbox, "web-d0") == disks(&sandbox)[0]);
}

#[test]
fn whoever_may_not_read_reads_everything_every_night() {
    if !has(&PROGRAMS, "whoever_may_not_read_reads_everything_every_night") {
        return;
    }
    let mut sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("second"), sandbox::noise(3, 32)).unwrap();
    sandbox.ok(["key", "add", "--write-only", "--new-key-file", &sandbox.arg("second")]);
    let first = sandbox.key().map(Into::into);
    sandbox.set_key(Some(sandbox.path("second")));
    Machine::make_disks(&sandbox.path(""), 8, 8);
    let mut machine = Machine::start(&sandbox.path(""));
    machine.write("d0", 0, 4096, 1);
    for _ in 0..2 {
        let line = &night(&sandbox, &machine, &["--drive", "d0"])[0];
        assert_eq!(line["read_whole_because"], "the key may not read the previous snapshot");
        assert_eq!(machine.records()[0].len(), 1);
    }
    machine.quit();
    sandbox.set_key(first);
    assert!(image(&sandbox, "web-d0") == disks(&sandbox)[0]);
}

#[test]
fn what_belongs_to_others_is_left_alone() {
    if !has(&PROGRAMS, "what_belongs_to_others_is_left_alone") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    Machine::make_disks(&sandbox.path(""), 8, 8);
    let mut machine = Machine::start(&sandbox.path(""));
    let address = json!({ "type": "unix", "data": { "path": sandbox.arg("theirs") } });
    machine.qmp("nbd-server-start", json!({ "addr": address }));
    machine.qmp("block-export-add", json!({ "type": "nbd", "id": "theirs", "node-name": "node1" }));
    machine.qmp("block-dirty-bitmap-add", json!({ "node": "node1", "name": "theirs" }));
    let socket = machine.socket.to_str().unwrap().to_owned();
    let words = ["snapshot", "--scratch", &sandbox.arg(""), "--qmp", &socket];
    let said = sandbox.fails(1, words);
    assert!(said.contains("serves block devices for another program"), "{said}");
    let exports = machine.qmp("query-block-exports", json!({}));
    assert_eq!((exports.as_array().unwrap().len(), machine.parts()), (1, 0));
    let [a, b] = machine.records();
    assert_eq!((a.len(), b.len(), b[0]["name"].as_str()), (0, 1, Some("theirs")));

    // Two stores archive one machine, each with its own records.
    machine.qmp("block-export-del", json!({ "id": "theirs" }));
    machine.qmp("nbd-server-stop", json!({}));
    let other = Sandbox::encrypted();
    assert!(night(&sandbox, &machine, &[])[0]["changed_since"].is_null());
    assert!(night(&other, &machine, &[])[0]["changed_since"].is_null());
    machine.write("d0", 0, 512, 1);
    assert_eq!(night(&sandbox, &machine, &[])[0]["read_bytes"], 64 << 10);
    assert_eq!(night(&other, &machine, &[])[0]["read_bytes"], 64 << 10);

    let said = sandbox.fails(1, [&words[..], &["--drive", "sda"]].concat());
    assert!(said.contains("has no drive sda; it has d0, disk1"), "{said}");
    machine.quit();
}

/// A disk with a partition for files and one for swap with a valid header. The contents of the swap
/// are noise.
fn disk_with_swap(swap_at: u64, swap_bytes: u64) -> Vec<u8> {
    let at = |place: u64| usize::try_from(place).unwrap();
    let mut disk = sandbox::noise(11, 64 << 20);
    disk[..512].fill(0);
    for (number, kind, start, length) in [(0, 0x83, MIB, swap_at - MIB), (1, 0x82, swap_at, swap_bytes)] {
        let entry = &mut disk[446 + 16 * number..][..16];
        let sectors = |bytes: u64| u32::try_from(bytes / 512).unwrap().to_le_bytes();
        entry[4] = kind;
        entry[8..12].copy_from_slice(&sectors(start));
        entry[12..].copy_from_slice(&sectors(length));
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let header = &mut disk[at(swap_at)..][..4096];
    header.fill(0);
    header[1024] = 1;
    header[1028..1032].copy_from_slice(&u32::try_from(swap_bytes / 4096 - 1).unwrap().to_le_bytes());
    header[4086..].copy_from_slice(b"SWAPSPACE2");
    disk
}

#[test]
fn swap_is_left_out_night_after_night_and_comes_back_when_it_is_swap_no_more() {
    if !has(&PROGRAMS, "swap_is_left_out_night_after_night_and_comes_back_when_it_is_swap_no_more") {
        return;
    }
    const SWAP_AT: u64 = 16 * MIB;
    const SWAP_BYTES: u64 = 16 * MIB;
    const PAGE: u64 = 4096;
    let sandbox = Sandbox::encrypted();
    Machine::make_disks(&sandbox.path(""), 64, 1);
    let mut disk = disk_with_swap(SWAP_AT, SWAP_BYTES);
    fs::write(sandbox.path("whole"), &disk).unwrap();
    let whole = sandbox.arg("whole");
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &whole, &sandbox.arg("a.qcow2")]);
    let mut machine = Machine::start(&sandbox.path(""));
    let write = |machine: &mut Machine, disk: &mut [u8], offset: u64, length: u64, value: u8| {
        machine.write("d0", offset, length, value);
        disk[usize::try_from(offset).unwrap()..][..usize::try_from(length).unwrap()].fill(value);
    };
    let take = |machine: &Machine, disk: &[u8], more: &[&str], left_out: u64| -> u64 {
        let words = [&["--drive", "d0", "--name", "web"], more].concat();
        let line = night(&sandbox, machine, &words).remove(0);
        assert_eq!(line["left_out_bytes"], left_out, "{line}");
        let mut expected = disk.to_vec();
        if left_out > 0 {
            expected[usize::try_from(SWAP_AT + PAGE).unwrap()..][..usize::try_from(left_out).unwrap()]
                .fill(0);
        }
        assert!(image(&sandbox, "web") == expected, "{line}");
        line["read_bytes"].as_u64().unwrap()
    };
    let (swap, none) = (SWAP_BYTES - PAGE, 0);
    // A block that has both the header of the swap and swap data is read every night.
    let few = 64 << 10;

    assert!(take(&machine, &disk, &[], swap) <= 48 * MIB + few);
    write(&mut machine, &mut disk, SWAP_AT + 3 * MIB, MIB, 7);
    write(&mut machine, &mut disk, 40 * MIB, 64 << 10, 8);
    assert!(take(&machine, &disk, &[], swap) <= (64 << 10) + few, "what has changed in swap is not read");
    // QEMU reports most of the swap as unchanged, but the previous snapshot does not have it.
    assert!(take(&machine, &disk, &["--keep-swap"], none) >= swap);
    write(&mut machine, &mut disk, SWAP_AT + 5 * MIB, 64 << 10, 9);
    let read = take(&machine, &disk, &["--keep-swap"], none);
    assert!(read <= (64 << 10) + few, "{read}: what the night before kept is not read again");
    write(&mut machine, &mut disk, SWAP_AT + 6 * MIB, 64 << 10, 10);
    assert!(take(&machine, &disk, &[], swap) <= few);
    write(&mut machine, &mut disk, SWAP_AT + 7 * MIB, 64 << 10, 11);
    assert!(take(&machine, &disk, &["--keep-swap"], none) >= swap);
    assert!(take(&machine, &disk, &[], swap) <= few);
    // The partition table is removed, so there is no swap any more. The former swap is not written
    // to.
    write(&mut machine, &mut disk, 0, 512, 0);
    assert!(take(&machine, &disk, &[], none) >= swap);
    assert_eq!(take(&machine, &disk, &[], none), 0);
    machine.quit();
    assert!(image(&sandbox, "web") == disks(&sandbox)[0]);
    sandbox.ok(["verify", "--data"]);
}

/// A server that receives lines, and answers each with the result of `answer`. The commands that it
/// received come out of the channel.
#[allow(clippy::disallowed_methods, reason = "the other end of a connection needs a thread")]
fn serve(
    path: &std::path::Path,
    greeting: &str,
    answer: impl Fn(&str, &Value) -> Option<Value> + Send + 'static,
) -> mpsc::Receiver<String> {
    let listener = UnixListener::bind(path).unwrap();
    let greeting = greeting.to_owned();
    let (asked, questions) = mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let _ = socket.write_all(greeting.as_bytes());
            let mut lines = BufReader::new(socket.try_clone().unwrap());
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                let text = String::from_utf8_lossy(&line).trim_start_matches('\u{fffd}').to_owned();
                let question: Value = serde_json::from_str(&text).unwrap_or_default();
                let command = question["execute"].as_str().unwrap_or_default().to_owned();
                let _ = asked.send(command.clone());
                let Some(answer) = answer(&command, &question) else { break };
                let _ = writeln!(socket, "{answer}");
                line.clear();
            }
        }
    });
    questions
}

/// The broken pipe is the machine's, and not the standard output of the program.
#[test]
#[allow(clippy::disallowed_methods, reason = "the monitor is another program")]
fn a_monitor_that_goes_away_is_a_failure() {
    let sandbox = Sandbox::encrypted();
    let socket = sandbox.path("goes");
    let listener = UnixListener::bind(&socket).unwrap();
    let monitor = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(GREETING.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(&socket).read_line(&mut line).unwrap();
        let question: Value = serde_json::from_str(&line).unwrap();
        // A write to the monitor fails from now on.
        socket.shutdown(Shutdown::Read).unwrap();
        writeln!(socket, "{}", json!({ "return": {}, "id": question["id"] })).unwrap();
    });
    let said = sandbox.fails(1, ["snapshot", "--qmp", socket.to_str().unwrap()]);
    assert!(said.contains("was not archived") && said.contains("Broken pipe"), "{said}");
    monitor.join().unwrap();
}

#[test]
fn a_guest_that_was_frozen_is_thawed() {
    if !has(&PROGRAMS, "a_guest_that_was_frozen_is_thawed") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    Machine::make_disks(&sandbox.path(""), 8, 8);
    let machine = Machine::start(&sandbox.path(""));
    let agent = |name: &str, refuses: bool| {
        serve(&sandbox.path(name), "", move |command, question| {
            Some(match command {
                "guest-sync-delimited" => json!({ "return": question["arguments"]["id"] }),
                "guest-fsfreeze-status" => json!({ "return": "thawed" }),
                "guest-fsfreeze-freeze" if refuses => json!({ "error": { "desc": "busy" } }),
                _ => json!({ "return": 1 }),
            })
        })
    };
    let good = agent("good", false);
    night(&sandbox, &machine, &["--agent", &sandbox.arg("good")]);
    let asked: Vec<_> = good.try_iter().skip(2).collect();
    assert_eq!(asked, ["guest-fsfreeze-freeze", "guest-fsfreeze-thaw"]);

    let bad = agent("bad", true);
    let socket = machine.socket.to_str().unwrap().to_owned();
    let words = ["snapshot", "--scratch", &sandbox.arg(""), "--qmp", &socket, "--agent", &sandbox.arg("bad")];
    let said = sandbox.fails(1, words);
    assert!(said.contains("refused guest-fsfreeze-freeze: busy"), "{said}");
    let asked: Vec<_> = bad.try_iter().skip(2).collect();
    assert_eq!(
        asked,
        ["guest-fsfreeze-freeze", "guest-fsfreeze-thaw"],
        "whoever refuses may have frozen half of it"
    );
    // The failed snapshot has left the previous record as it was.
    assert_eq!(night(&sandbox, &machine, &[])[0]["changed_since"].as_str().map(str::len), Some(32));
    machine.quit();
}

#[test]
fn a_machine_that_lies_is_left() {
    let drive = json!([{ "device": "d0", "qdev": "d0", "inserted":
        { "node-name": "n", "drv": "raw", "ro": false, "image": { "virtual-size": u64::MAX } } }]);
    let liars: [(&str, Value); 7] = [
        ("null", Value::Null),
        ("text", json!("x")),
        ("number", json!(-1)),
        ("list", json!([[], {}, null, 5])),
        ("keys", json!({ "name": 5, "fdset-id": -7, "UUID": [] })),
        ("drives", drive),
        ("inserted", json!([{ "inserted": {} }])),
    ];
    let sandbox = Sandbox::encrypted();
    for (name, lie) in liars {
        let _asked = serve(&sandbox.path(name), GREETING, move |command, question| {
            let answer = if command.starts_with("query-block-exports") { Value::Null } else { lie.clone() };
            Some(json!({ "return": answer, "id": question["id"] }))
        });
        let said = sandbox.fails(1, ["snapshot", "--qmp", &sandbox.arg(name), "--name", "x"]);
        assert!(said.contains("was not archived"), "{name}: {said}");
    }
    let _asked = serve(&sandbox.path("gone"), GREETING, |command, question| {
        (command == "qmp_capabilities").then(|| json!({ "return": {}, "id": question["id"] }))
    });
    let said = sandbox.fails(1, ["snapshot", "--qmp", &sandbox.arg("gone")]);
    assert!(said.contains("the other end has closed"), "{said}");
    let said = sandbox.fails(1, ["snapshot", "--qmp", &sandbox.arg("nobody")]);
    assert!(said.contains("cannot connect"), "{said}");
}

#[test]
fn a_drive_that_old_versions_crash_on_is_not_touched() {
    if !has(&PROGRAMS, "a_drive_that_old_versions_crash_on_is_not_touched") {
        return;
    }
    let sandbox = Sandbox::encrypted();
    Machine::make_disks(&sandbox.path(""), 8, 8);
    let (disk, scsi) =
        ("virtio-blk-pci,drive=file2,iothread=thread,id=disk2", "virtio-scsi-pci,iothread=thread,id=scsi");
    for devices in [vec![disk], vec![scsi, "scsi-hd,drive=file2,id=disk2"]] {
        fs::write(sandbox.path("c.raw"), [0; 4096]).unwrap();
        let mut more =
            vec!["-object", "iothread,id=thread", "-blockdev", "driver=file,filename=c.raw,node-name=file2"];
        devices.iter().for_each(|device| more.extend(["-device", device]));
        let mut machine = Machine::start_with(&sandbox.path(""), &more);
        let version = machine.qmp("query-version", json!({}));
        let number = |name: &str| version["qemu"][name].as_u64().unwrap();
        let is_old = (number("major"), number("minor"), number("micro")) < (8, 2, 1);
        let socket = machine.socket.to_str().unwrap().to_owned();
        let run = sandbox.run(["snapshot", "--qmp", &socket, "--scratch", &sandbox.arg("")]);
        assert_eq!(run.code, Some(i32::from(is_old)), "{}", run.stderr);
        assert_eq!(run.stderr.contains("disk2 has an I/O thread"), is_old, "{}", run.stderr);
        assert_eq!(machine.parts(), 0);
        night(&sandbox, &machine, &["--drive", "d0"]);
        machine.quit();
    }
}
