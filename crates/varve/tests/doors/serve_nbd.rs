//! `varve serve --nbd`, with the real program and common clients: nbdinfo and nbdcopy of libnbd,
//! and QEMU's tools.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::sandbox;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::{Sandbox, noise, sparse_image, write_at};
use serde_json::Value;
use varve_content::image::ServedImage;
use varve_machine::{NbdDisk, NbdDiskOptions};

/// Returns true if these programs are installed. Otherwise prints the name of the skipped test.
fn has(programs: &[&str], test: &str) -> bool {
    let is_missing = |program: &&&str| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    };
    if let Some(program) = programs.iter().find(is_missing) {
        eprintln!("skipped as {program} is not installed: {test}");
        return false;
    }
    true
}

/// Runs a program that must succeed.
#[track_caller]
fn tool(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A running server, which is killed if the test ends first.
struct Server {
    child: Child,
    uri: String,
}

impl Server {
    fn start(sandbox: &Sandbox, words: &[&str]) -> Self {
        let mut command = sandbox.command();
        let complaints = fs::File::create(sandbox.path("serve.log")).unwrap();
        command.arg("serve").args(words).stdout(Stdio::piped()).stderr(complaints);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let uri = line.trim().strip_prefix("serving at ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, uri }
    }

    fn unix(sandbox: &Sandbox, words: &[&str]) -> Self {
        let address = format!("unix:{}", sandbox.arg("nbd"));
        Self::start(sandbox, &[&["--nbd", &address], words].concat())
    }

    /// The address of an export, in the syntax of libnbd and QEMU.
    fn export(&self, name: &str) -> String {
        let (before, after) = self.uri.split_once('?').unwrap_or((&self.uri, ""));
        if after.is_empty() { format!("{before}{name}") } else { format!("{before}{name}?{after}") }
    }

    /// Sends SIGTERM to the server, and waits until it has ended.
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

/// Snapshots of two nights of a disk of 24 MiB with holes, and the bytes of each.
fn two_nights() -> (Sandbox, PathBuf, [Vec<u8>; 2]) {
    let sandbox = Sandbox::encrypted();
    let image = sandbox.path("disk.raw");
    sparse_image(&image, 24 << 20, &[(0, &noise(2, 1 << 20)), (9 << 20, &noise(3, 3 << 20))]);
    sandbox.ok([
        "snapshot",
        &sandbox.arg("disk.raw"),
        "--as",
        "image",
        "--name",
        "vm",
        "--time",
        "2026-05-01T23:00:00Z",
    ]);
    let first = fs::read(&image).unwrap();
    write_at(&image, 10 << 20, &noise(4, 100_000));
    sandbox.ok([
        "snapshot",
        &sandbox.arg("disk.raw"),
        "--as",
        "image",
        "--name",
        "vm",
        "--time",
        "2026-05-02T23:00:00Z",
    ]);
    let second = fs::read(&image).unwrap();
    (sandbox, image, [first, second])
}

#[test]
fn every_night_is_an_export_and_new_ones_appear() {
    if !has(&["nbdinfo"], "every_night_is_an_export_and_new_ones_appear") {
        return;
    }
    let (sandbox, _, _) = two_nights();
    sandbox.ok([
        "snapshot",
        &sandbox.arg("key"),
        "--as",
        "image",
        "--name",
        "secret",
        "--time",
        "2026-05-02T23:30:00Z",
    ]);
    fs::create_dir(sandbox.path("folder")).unwrap();
    sandbox.ok(["snapshot", &sandbox.arg("folder"), "--name", "home"]);
    let server = Server::unix(&sandbox, &[]);
    let listed = || -> Vec<String> {
        let text = tool("nbdinfo", &["--list", "--json", &server.export("")]);
        let list: Value = serde_json::from_str(&text).unwrap();
        let exports = list["exports"].as_array().unwrap().iter();
        exports.map(|export| export["export-name"].as_str().unwrap().to_owned()).collect()
    };
    // A snapshot that was asked for by its plain name is listed by a name that still means this
    // snapshot later.
    let secret = "secret@2026-05-02";
    assert_eq!(listed(), [secret, secret, "vm@2026-05-02", "vm@2026-05-01", "vm@2026-05-02"]);
    for (name, size) in [("vm@2026-05-01", "25165824"), ("latest", "32"), ("", "32"), ("vm", "25165824")] {
        assert_eq!(tool("nbdinfo", &["--size", &server.export(name)]).trim(), size, "{name:?}");
    }
    for (name, complaint) in
        [("wm", "similar names: vm"), ("vm@2020-01-01", "no snapshot is that old"), ("home", "home")]
    {
        let output = Command::new("nbdinfo").arg(server.export(name)).output().unwrap();
        assert!(!output.status.success(), "{name}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("export") || said.contains(complaint), "{name}: {said}");
    }
    sandbox.ok([
        "snapshot",
        &sandbox.arg("disk.raw"),
        "--as",
        "image",
        "--name",
        "vm",
        "--time",
        "2026-05-03T23:00:00Z",
    ]);
    assert!(listed().contains(&"vm@2026-05-03".to_owned()));
    server.end();
    assert!(!sandbox.path("nbd").exists(), "its socket is gone");
}

#[test]
fn clients_read_exactly_what_was_archived() {
    if !has(&["nbdcopy", "nbdinfo", "qemu-img"], "clients_read_exactly_what_was_archived") {
        return;
    }
    let (sandbox, image, nights) = two_nights();
    let server = Server::start(&sandbox, &["--nbd", "127.0.0.1:0"]);
    for (night, bytes) in ["vm@2026-05-01", "vm@2026-05-02"].iter().zip(&nights) {
        let copy = sandbox.arg("copy");
        for way in [&["--requests=64"][..], &["--connections=4"], &["--synchronous"], &["--no-extents"]] {
            tool("nbdcopy", &[way, &[&server.export(night), &copy]].concat());
            assert!(fs::read(&copy).unwrap() == *bytes, "{night} {way:?}");
        }
    }
    let newest = server.export("vm");
    let disk = image.to_str().unwrap();
    let said = tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", &newest, disk]);
    assert!(said.contains("identical"), "{said}");

    let map: Value =
        serde_json::from_str(&tool("nbdinfo", &["--map", "--json", &server.export("vm@2026-05-01")]))
            .unwrap();
    let extent = |extent: &Value| {
        let number = |key: &str| extent[key].as_u64().unwrap();
        (number("offset") >> 20, number("length") >> 20, number("type"))
    };
    let map: Vec<_> = map.as_array().unwrap().iter().map(extent).collect();
    assert_eq!(map, [(0, 1, 0), (1, 8, 3), (9, 3, 0), (12, 12, 3)], "MiB of data (0) and holes (3)");
    server.end();
}

#[test]
fn what_is_written_is_kept_in_an_overlay_or_thrown_away() {
    if !has(&["qemu-io", "nbdcopy"], "what_is_written_is_kept_in_an_overlay_or_thrown_away") {
        return;
    }
    let (sandbox, _, nights) = two_nights();
    let overlay = sandbox.arg("overlay");
    let kept = ["--export", "vm@2026-05-01", "--overlay", &overlay];
    let mut expected = nights[0].clone();
    expected[4000..9000].fill(0x11);
    expected[2 << 20..3 << 20].fill(0x22);
    expected[9 << 20..10 << 20].fill(0);
    let server = Server::unix(&sandbox, &kept);
    let commands =
        ["write -P 0x11 4000 5000", "write -P 0x22 2M 1M", "write -z 9M 1M", "flush", "discard 20M 1M"];
    let words = commands.iter().flat_map(|command| ["-c", command]);
    tool("qemu-io", &words.chain(["-f", "raw", &server.export("")]).collect::<Vec<_>>());
    let copy = sandbox.arg("copy");
    tool("nbdcopy", &[&server.export("vm"), &copy]);
    assert!(fs::read(&copy).unwrap() == expected);
    server.end();

    let server = Server::unix(&sandbox, &kept);
    tool("nbdcopy", &[&server.export(""), &copy]);
    assert!(fs::read(&copy).unwrap() == expected, "it is there the next time");
    let address = format!("unix:{}", sandbox.arg("other"));
    let also = ["serve", "--nbd", &address, "--export", "vm@2026-05-01", "--overlay", &overlay];
    assert!(sandbox.fails(1, also).contains("in use by another program"));
    server.end();
    let other_night = ["serve", "--nbd", &address, "--export", "vm@2026-05-02", "--overlay", &overlay];
    assert!(sandbox.fails(1, other_night).contains("belongs to"));

    let server = Server::unix(&sandbox, &["--export", "vm@2026-05-01", "--writable"]);
    tool(
        "qemu-io",
        &["-c", "write -P 0x33 0 64k", "-c", "read -P 0x33 0 64k", "-f", "raw", &server.export("")],
    );
    server.end();
    let server = Server::unix(&sandbox, &[]);
    tool("nbdcopy", &[&server.export("vm@2026-05-01"), &copy]);
    assert!(fs::read(&copy).unwrap() == nights[0], "the archive is as it was");
    let writes = ["-c", "write 0 512", "-f", "raw", &server.export("vm")];
    let output = Command::new("qemu-io").args(writes).output().unwrap();
    assert!(!output.status.success(), "what has no overlay is only read");
    server.end();
}

/// The reads of a client become a profile, and `publish` packs the blocks that it lists.
#[test]
fn the_reads_of_a_start_are_published_together() {
    if !has(&["qemu-io"], "the_reads_of_a_start_are_published_together") {
        return;
    }
    let (sandbox, image, _) = two_nights();
    let profile = sandbox.arg("start.profile");
    let server = Server::unix(&sandbox, &["--export", "vm@2026-05-01", "--writable", "--profile", &profile]);
    let commands = ["read 10M 4k", "read 0 64k", "write 64k 4k", "read 64k 4k", "read 11M 4k", "read 20M 4k"];
    let words = commands.iter().flat_map(|command| ["-c", command]);
    tool("qemu-io", &words.chain(["-f", "raw", &server.export("")]).collect::<Vec<_>>());
    server.end();
    let serve = ["serve", "--nbd", "127.0.0.1:0", "--export", "vm", "--profile", &profile];
    assert!(sandbox.fails(1, serve).contains("name a new file"), "a profile is never replaced");
    let unread = sandbox.arg("unread.profile");
    Server::unix(&sandbox, &["--export", "vm", "--profile", &unread]).end();
    assert!(!sandbox.path("unread.profile").exists(), "nothing was read");
    let reads = sandbox.json(["profile", "show", &profile]);
    let offsets: Vec<_> = reads.iter().map(|read| read["offset"].as_u64().unwrap()).collect();
    for (first, later) in [(10 << 20, 0), (0, 11 << 20), (11 << 20, 20 << 20)] {
        let place = |offset| {
            offsets
                .iter()
                .position(|found| *found == offset)
                .unwrap_or_else(|| panic!("{offset} of {offsets:?}"))
        };
        assert!(place(first) < place(later), "{offsets:?}");
    }

    let publish = |night: &str, more: &[&str]| {
        let words = [&["publish", night, "www", "--key", "publisher.key"], more].concat();
        sandbox.json(words)
    };
    let first = publish("vm@2026-05-01", &["--profile", &profile]);
    // 32 blocks of 4 MiB of noise: three are packed. Blocks of zeros are not stored.
    assert_eq!(first[0]["profile_blocks"], 4, "{first:?}");
    assert_eq!(first[1]["objects"], 32 - 3 + 1 + 1 + 1 + 1, "{first:?}");
    let second = publish("vm@2026-05-02", &[]);
    assert_eq!((&second[0]["profile_blocks"], &second[0]["read_blocks"]), (&4.into(), &1.into()));
    let address = format!("www#{}", second[1]["key"].as_str().unwrap());
    let checked = sandbox.json(["verify", "--publication", &address]).pop().unwrap();
    assert_eq!(checked["damaged"], 0, "{checked}");

    let merged = sandbox.arg("merged.profile");
    sandbox.ok(["profile", "merge", &profile, &profile, "-o", &merged]);
    assert_eq!(fs::read(&merged).unwrap(), fs::read(&profile).unwrap());
    let traced = "  8,0    3        2     0.001507758   697  Q   R 2048 + 8 [qemu]\n";
    fs::write(sandbox.path("trace"), traced).unwrap();
    let from_trace = ["profile", "from-blktrace", "trace", "--size", "24M", "-o", "traced.profile"];
    sandbox.ok(from_trace);
    let text = fs::read_to_string(sandbox.path("traced.profile")).unwrap();
    assert_eq!(text, "varve profile 1\nsize = 25165824\n1 1048576 4096\n");
    let no_profile = ["publish", "vm", "www", "--key", "publisher.key", "--profile", image.to_str().unwrap()];
    assert!(sandbox.fails(1, no_profile).contains("longer than"), "a disk is no profile");
}

#[test]
fn with_tls_nobody_is_served_without() {
    if !has(&["nbdinfo", "openssl"], "with_tls_nobody_is_served_without") {
        return;
    }
    let (sandbox, _, nights) = two_nights();
    let [ca_key, ca, key, request, certificate] =
        ["ca-key.pem", "ca-cert.pem", "key.pem", "request.pem", "cert.pem"].map(|name| sandbox.arg(name));
    let subject = ["-days", "2", "-nodes", "-newkey", "rsa:2048"];
    tool(
        "openssl",
        &[&["req", "-x509", "-subj", "/CN=ca", "-keyout", &ca_key, "-out", &ca], &subject[..]].concat(),
    );
    let extension = "subjectAltName=DNS:localhost";
    let asked = ["req", "-subj", "/CN=localhost", "-addext", extension, "-keyout", &key, "-out", &request];
    tool("openssl", &[&asked, &subject[2..]].concat());
    let signed =
        ["x509", "-req", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial", "-days", "2"];
    tool("openssl", &[&signed[..], &["-copy_extensions", "copy", "-out", &certificate]].concat());

    let server =
        Server::start(&sandbox, &["--nbd", "localhost:0", "--nbd-tls", &format!("{certificate},{key}")]);
    let plain = server.export("vm");
    let output = Command::new("nbdinfo").arg(&plain).output().unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let folder = sandbox.path("").display().to_string();
    let encrypted = format!("{}?tls-certificates={folder}", plain.replace("nbd://", "nbds://"));
    if !tool("nbdinfo", &["--can", "connect", &encrypted]).is_empty() {
        unreachable!("it says nothing");
    }
    let copy = sandbox.arg("copy");
    tool("nbdcopy", &[&encrypted, &copy]);
    assert!(fs::read(&copy).unwrap() == nights[1]);
    server.end();
}

#[test]
fn who_says_nothing_keeps_nobody_from_ending() {
    let (sandbox, _, _) = two_nights();
    let server = Server::unix(&sandbox, &["--nbd-clients", "2"]);
    let connect = || UnixStream::connect(sandbox.path("nbd")).unwrap();
    let mut greeting = [0; 18];
    let mut greeted = || {
        let mut client = connect();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..8], b"NBDMAGIC");
        client
    };
    let (mut first, second) = (greeted(), greeted());
    // Two are enough: the one that has been silent for longest gives way to a third.
    let mut silent = [second, greeted()];
    assert_eq!(first.read(&mut [0; 18]).unwrap_or(0), 0);
    // The server closes the connection of a client that breaks the protocol.
    silent[0].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(silent[0].read(&mut [0; 18]).unwrap_or(0), 0);
    server.end();
}

#[test]
fn a_damaged_block_is_an_error_for_the_reads_that_it_hits_alone() {
    let (sandbox, _, nights) = two_nights();
    // The damage is in the middle of an arena that holds only blocks of this disk.
    let arena = &sandbox.arenas()[1];
    write_at(arena, fs::metadata(arena).unwrap().len() / 2, &[0x55; 64]);
    let server = Server::unix(&sandbox, &[]);
    let options = NbdDiskOptions {
        export: "vm@2026-05-01".into(),
        connection_count: 1,
        patience: Duration::from_secs(60),
        ..NbdDiskOptions::default()
    };
    let (mut good, mut bad) = (0, Vec::new());
    let mut bytes = vec![0; 64 << 10];
    for (place, wanted) in nights[0].chunks(bytes.len()).enumerate() {
        // Each read has a connection of its own, because a client disconnects after an error.
        let disk = NbdDisk::connect(&sandbox.path("nbd"), &options).unwrap();
        match disk.read_at((place * bytes.len()) as u64, &mut bytes) {
            Ok(()) => {
                assert!(bytes == wanted, "{place}");
                good += 1;
            }
            Err(error) => bad.push(error.to_string()),
        }
    }
    assert!(!bad.is_empty() && bad.len() < 40 && good > 300, "{good} are good, and {bad:?} are not");
    let log = fs::read_to_string(sandbox.path("serve.log")).unwrap();
    assert!(log.contains("a read failed") && log.contains("arena 1"), "{log}");
    for said in &bad {
        assert!(said.contains("arena 1"), "the client is told where: {said}");
    }
    server.end();
}

#[test]
fn an_overlay_whose_disk_is_full_refuses_what_finds_no_room_and_keeps_the_rest() {
    let name = "an_overlay_whose_disk_is_full_refuses_what_finds_no_room_and_keeps_the_rest";
    if !has(&["qemu-io"], name) {
        return;
    }
    let (sandbox, _, _) = two_nights();
    let small = sandbox.arg("small");
    fs::create_dir(&small).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=2M", "tmpfs", &small]).stderr(Stdio::null());
    if !mount.status().is_ok_and(|status| status.success()) {
        eprintln!("skipped as nothing can be mounted: {name}");
        return;
    }
    let overlay = format!("{small}/overlay");
    let kept = ["--export", "vm@2026-05-01", "--overlay", &overlay];
    let qemu_io = |server: &Server, commands: &[&str]| {
        let words = commands.iter().flat_map(|command| ["-c", command]);
        let uri = server.export("");
        Command::new("qemu-io").args(words).args(["-f", "raw", &uri]).output().unwrap()
    };
    let server = Server::unix(&sandbox, &kept);
    let first = qemu_io(&server, &["write -P 0x11 0 64k", "flush"]);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let second = qemu_io(&server, &["write -P 0x22 4M 4M"]);
    let said = String::from_utf8_lossy(&[second.stdout, second.stderr].concat()).into_owned();
    assert!(!second.status.success() && said.contains("No space left on device"), "{said}");
    let read = qemu_io(&server, &["read -P 0x11 0 64k", "read -P 0 20M 1M"]);
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    server.end();
    let server = Server::unix(&sandbox, &kept);
    let read = qemu_io(&server, &["read -P 0x11 0 64k"]);
    assert!(read.status.success(), "it is there the next time: {}", String::from_utf8_lossy(&read.stderr));
    server.end();
    tool("umount", &[&small]);
}

#[test]
fn the_kernel_reads_exactly_what_was_archived() {
    let name = "the_kernel_reads_exactly_what_was_archived";
    let is_free = |number: &u32| {
        PathBuf::from(format!("/dev/nbd{number}")).exists()
            && !PathBuf::from(format!("/sys/block/nbd{number}/pid")).exists()
    };
    let Some(number) = (0..16).find(is_free) else {
        eprintln!("skipped as the kernel has no network block devices: {name}");
        return;
    };
    if !has(&["nbd-client"], name) || !sandbox::is_root() {
        eprintln!("skipped as it needs root, and nbd-client: {name}");
        return;
    }
    let (sandbox, _, nights) = two_nights();
    let server = Server::unix(&sandbox, &[]);
    let (device, socket) = (format!("/dev/nbd{number}"), sandbox.arg("nbd"));
    tool("nbd-client", &["-unix", &socket, &device, "-N", "vm@2026-05-01", "-readonly"]);
    let read = fs::read(&device);
    tool("nbd-client", &["-d", &device]);
    assert!(read.unwrap() == nights[0]);
    server.end();
}
