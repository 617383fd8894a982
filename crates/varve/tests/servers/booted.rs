//! A machine that starts from a published disk while it is fetched, in a real QEMU. It reads its
//! whole disk, and is up only if every word of it is right.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::kinds::static_nginx;
use crate::lonely_server::Server;
use crate::sandbox::{Run, Sandbox, copy_folder, has, noise};
use crate::shaped_line::{LineShape, ShapedLine};
use crate::small_guest::{Says, bootable, reading_itself};

const QEMU: &str = "qemu-system-x86_64";
const BLOCK: usize = 128 << 10;
const DISK_BYTES: usize = 24 * BLOCK;
/// A block that is new on the second day.
const NEW_BLOCK: usize = 9;
const LINE: LineShape = LineShape { bits_per_second: 50e6, round_trip: Duration::from_millis(40) };

/// The disk of a day. A few blocks of it are zeros.
fn day(number: u64) -> Vec<u8> {
    let mut disk = noise(1, DISK_BYTES);
    disk[4 * BLOCK..6 * BLOCK].fill(0);
    if number > 1 {
        disk[NEW_BLOCK * BLOCK..(NEW_BLOCK + 1) * BLOCK].copy_from_slice(&noise(number, BLOCK));
    }
    reading_itself(&mut disk, &format!("DAY {number} IS UP"));
    disk
}

/// The machine of the publisher, with a store.
struct Office {
    sandbox: Sandbox,
    key: String,
}

impl Office {
    fn publish(&mut self, number: u64, www: &Path) -> Vec<serde_json::Value> {
        let disk = self.sandbox.path("disk");
        fs::write(&disk, day(number)).unwrap();
        let time = format!("2026-05-0{number}T23:00:00Z");
        self.sandbox.ok(["snapshot", disk.to_str().unwrap(), "--name", "disk", "--time", &time]);
        let words = ["publish", "disk", www.to_str().unwrap(), "--key", "publisher.key"];
        let lines = self.sandbox.json(words);
        lines.last().unwrap()["key"].as_str().unwrap().clone_into(&mut self.key);
        lines
    }
}

/// A machine with nothing but the address.
struct Home {
    sandbox: Sandbox,
    address: String,
}

impl Home {
    fn new(port: u16, key: &str) -> Self {
        let sandbox = Sandbox::empty();
        fs::create_dir(sandbox.path("tmp")).unwrap();
        Self { sandbox, address: format!("http://127.0.0.1:{port}/pub/#{key}") }
    }

    fn boot(&self, image: &str, text: &str, more: &[&str]) -> Run {
        let mut command = self.sandbox.command();
        command.env("TMPDIR", self.sandbox.path("tmp"));
        command.args(["attach", &self.address, image, "--boot", "--no-kvm", "--machine-memory", "128M"]);
        command.args(["--check", text]).args(more);
        let output =
            if more.contains(&"--timeout") { &mut command } else { command.args(["--timeout", "120"]) };
        let output = output.output().unwrap();
        let left = fs::read_dir(self.sandbox.path("tmp")).unwrap().count();
        assert_eq!(left, 0, "nothing is left behind");
        Run::new(output)
    }

    #[track_caller]
    fn comes_up(&self, image: &str, text: &str, more: &[&str]) -> Run {
        let run = self.boot(image, text, more);
        assert!(run.code == Some(0) && run.text().contains("yes: it is up"), "{}{}", run.text(), run.stderr);
        run
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.sandbox.path(name)).unwrap()
    }
}

fn pub_folder(server: &Server) -> PathBuf {
    server.folder.path().join("www/pub")
}

/// The object with a block of noise, which is stored as it is.
fn object_with(www: &Path, content: &[u8]) -> PathBuf {
    let folders = fs::read_dir(www.join("objects")).unwrap();
    let mut files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let is_it = |path: &PathBuf| fs::read(path).unwrap().get(1..) == Some(content);
    files.find_map(|file| Some(file.unwrap().path()).filter(is_it)).expect("the block is published")
}

#[test]
fn a_night_boots_over_a_slow_line_and_from_the_cache_alone() {
    let name = "a_night_boots_over_a_slow_line_and_from_the_cache_alone";
    if !has(QEMU) {
        println!("skipped as {QEMU} is not installed: {name}");
        return;
    }
    let Some(server) = static_nginx() else { return };
    let mut office = Office { sandbox: Sandbox::encrypted(), key: String::new() };
    let www = pub_folder(&server);
    office.publish(1, &www);
    let line = ShapedLine::to(server.port, LINE);
    let home = Home::new(line.port, &office.key);

    // It boots over the line, from a machine that has nothing but the address.
    home.comes_up("disk", "DAY 1 IS UP", &["--log", "first", "--record", "start.profile"]);
    assert!(home.log("first").contains(" fetched "), "{}", home.log("first"));
    let data_bytes = (DISK_BYTES - 2 * BLOCK) as u64;
    let received = line.received_bytes();
    assert!(received >= data_bytes && received < data_bytes + data_bytes / 10, "{received}");
    let profile = fs::read_to_string(home.sandbox.path("start.profile")).unwrap();
    assert!(profile.starts_with("varve profile 1\n") && profile.lines().count() > 2, "{profile}");

    // It boots again with the server stopped, and nothing is fetched.
    let kept = office.sandbox.path("kept");
    copy_folder(&www, &kept);
    drop(server);
    let run = home.comes_up("disk", "DAY 1 IS UP", &["--log", "second"]);
    assert!(run.stderr.contains("comes from the cache"), "{}", run.stderr);
    assert!(home.log("second").contains(" storage ") && !home.log("second").contains(" fetched "));
    home.comes_up("disk", "DAY 1 IS UP", &["--offline"]);
    assert_eq!(line.received_bytes(), received);

    // A falsified block is refused, named, and fetched from the mirror.
    let server = static_nginx().unwrap();
    let www = pub_folder(&server);
    copy_folder(&kept, &www);
    line.lead_to(server.port);
    let object = object_with(&www, &day(1)[NEW_BLOCK * BLOCK..(NEW_BLOCK + 1) * BLOCK]);
    let good = fs::read(&object).unwrap();
    let mut bad = good.clone();
    bad[77] ^= 1;
    fs::write(&object, bad).unwrap();
    let object_name = object.file_name().unwrap().to_str().unwrap();
    let mirror = kept.to_str().unwrap();
    let words = ["--no-cache", "--mirror", mirror, "--log", "third"];
    let run = home.comes_up("disk", "DAY 1 IS UP", &words);
    assert!(run.stderr.contains(object_name), "{}", run.stderr);
    let expected = format!("falsified object {object_name} from http://127.0.0.1:{}/pub", line.port);
    assert!(home.log("third").contains(&expected), "{}", home.log("third"));
    // Without a mirror, only a machine that does not need this block would come up.
    let run = home.boot("disk", "BROKEN", &["--no-cache", "--patience", "1s"]);
    assert!(run.stderr.contains(object_name), "{}{}", run.text(), run.stderr);
    assert!(run.text().contains("yes: it is up"), "the machine reads an error: {}", run.text());
    fs::write(&object, good).unwrap();

    // The next night uploads the blocks that have changed, the page and the root of the map.
    let lines = office.publish(2, &www);
    let (image, edition) = (&lines[0], &lines[1]);
    assert_eq!((&image["read_blocks"], &edition["objects"]), (&2.into(), &4.into()), "{lines:?}");
    let uploaded = edition["bytes"].as_u64().unwrap();
    assert!(uploaded < 2 * BLOCK as u64 + 4096, "{uploaded}");
    let before = line.received_bytes();
    home.comes_up("disk", "DAY 2 IS UP", &[]);
    let fetched = line.received_bytes() - before;
    assert!(fetched < 3 * BLOCK as u64, "only what has changed is fetched: {fetched}");

    // The older day still boots.
    home.comes_up("disk@2026-05-01", "DAY 1 IS UP", &[]);
}

/// The machine counts its starts on its disk.
#[test]
fn writes_of_a_machine_are_discarded_or_kept_in_an_overlay() {
    if !has(QEMU) {
        println!(
            "skipped as {QEMU} is not installed: writes_of_a_machine_are_discarded_or_kept_in_an_overlay"
        );
        return;
    }
    let office = Sandbox::encrypted();
    let disk = bootable("START ? IS UP", Says::OnItsConsole);
    office.snapshot_bytes("disk", &disk);
    let www = office.path("www");
    let published = office.json(["publish", "disk", www.to_str().unwrap(), "--key", "publisher.key"]);
    let mut home = Home::new(0, "");
    home.address = format!("{}/#{}", www.display(), published[1]["key"].as_str().unwrap());
    for _ in 0..2 {
        home.comes_up("disk", "START 1 IS UP", &[]);
    }
    for number in 1..=2 {
        home.comes_up("disk", &format!("START {number} IS UP"), &["--overlay", "changes"]);
    }
    let run = home.boot("disk", "NEVER SAID", &["--timeout", "2"]);
    assert!(run.code == Some(1) && run.text().contains("no: after "), "{}{}", run.text(), run.stderr);

    // The choices for the machine need one, and a machine has the disk for itself.
    let usage = |words: &[&str]| {
        let words = [&["attach", &home.address, "disk"], words].concat();
        home.sandbox.fails(2, words)
    };
    assert!(usage(&["--nbd", "unix:nbd", "--cpus", "2"]).contains("--boot"));
    assert!(usage(&["--nbd", "unix:nbd", "--boot"]).contains("cannot be used with --nbd"));
    assert!(usage(&["--fill", "--overlay", "changes"]).contains("--boot"));
}

#[test]
fn an_encrypted_disk_starts_as_the_machine_that_its_edition_describes() {
    let name = "an_encrypted_disk_starts_as_the_machine_that_its_edition_describes";
    if !has(QEMU) {
        println!("skipped as {QEMU} is not installed: {name}");
        return;
    }
    let office = Sandbox::encrypted();
    office.snapshot_bytes("disk", &bootable("START ? IS UP", Says::OnItsConsole));
    let www = office.arg("www");
    let publish = ["publish", "disk", &www, "--key", "publisher.key", "--encrypt", "disk.content"];
    let describe = |text: &str| {
        fs::write(office.path("machine"), text).unwrap();
        [&publish[..], &["--machine", "machine"]].concat()
    };
    let hostile = describe("varve machine 1\nboard = q35 -drive file=/etc/shadow\n");
    let stderr = office.fails(1, hostile);
    assert!(stderr.contains("a board is pc or q35"), "{stderr}");
    let small = describe("varve machine 1\nmemory = 100663296\ncpus = 2\nbus = ide\n");
    let published = office.json(small);
    let address = format!("{www}/#{}", published[1]["key"].as_str().unwrap());
    let boot = |more: &[&str]| {
        let mut command = office.command();
        command.args(["attach", &address, "disk", "--content-key", "disk.content", "--no-cache", "--boot"]);
        command.args(["--no-kvm", "--check", "START 1 IS UP", "--timeout", "120"]).args(more);
        let run = Run::new(command.output().unwrap());
        assert!(run.code == Some(0), "{}{}", run.text(), run.stderr);
        run
    };
    let run = boot(&[]);
    assert!(run.stderr.contains(": 96.0 MiB of memory, BIOS"), "{}", run.stderr);
    let run = boot(&["--machine-memory", "160M", "--bus", "virtio"]);
    assert!(run.stderr.contains(": 160 MiB of memory"), "{}", run.stderr);
    // The next image has the same machine without a word about it.
    office.snapshot_bytes("disk", &bootable("START ? IS UP", Says::OnItsConsole));
    office.json(publish);
    assert!(boot(&[]).stderr.contains(": 96.0 MiB of memory"));
}
