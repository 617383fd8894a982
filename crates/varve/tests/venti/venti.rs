//! `varve serve --venti`, and a Venti server as the store, with the real program.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::sandbox;
use crate::venti_server;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::mount_point::{Mount, PATIENCE, can_mount, wait_until};
use crate::sandbox::{Sandbox, has, manifest, noise, sample_folder, sparse_image, write_at};
use crate::venti_server::strange::Strange;
use crate::venti_server::{STORE, Server, at, bench, command_at, fails_at, make_store, measure};
use serde_json::{Value, json};
use varve_block::{Block, BlockName, BlockStore, BlockType, Score, with_causes};
use varve_content::image::ServedImage;
use varve_machine::{NbdDisk, NbdDiskOptions};
use varve_remote::{VentiOptions, VentiStore};
use varve_venti::{VentiReply, VentiRequest};

#[test]
fn nights_go_to_a_venti_server_and_come_back_after_it_was_killed() {
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    fs::create_dir_all(sandbox.path("folder/below")).unwrap();
    fs::write(sandbox.path("folder/large"), noise(1, 3_000_000)).unwrap();
    fs::write(sandbox.path("folder/below/small"), "a small file").unwrap();
    sparse_image(
        &sandbox.path("disk.raw"),
        24 << 20,
        &[(0, &noise(2, 1 << 20)), (9 << 20, &noise(3, 3 << 20))],
    );

    let mut server = Server::start(&sandbox);
    let first = at(&sandbox, server.address(), &["snapshot", &sandbox.arg("folder"), "--name", "home"]);
    assert!(first.contains("catalog:"), "{first}");
    assert!(!first.contains("B new"), "a server does not say what was new: {first}");
    at(&sandbox, server.address(), &["snapshot", &sandbox.arg("disk.raw"), "--as", "image", "--name", "vm"]);
    // The acknowledged blocks of a snapshot are durable, even if the server is killed.
    server.child.kill().unwrap();
    server.child.wait().unwrap();

    let server = Server::start(&sandbox);
    let listed = at(&sandbox, server.address(), &["ls", "-R", "home"]);
    assert!(listed.contains("below/small"), "{listed}");
    at(&sandbox, server.address(), &["restore", "home", &sandbox.arg("out")]);
    assert_eq!(fs::read(sandbox.path("out/large")).unwrap(), noise(1, 3_000_000));
    at(&sandbox, server.address(), &["restore", "vm", &sandbox.arg("out.raw")]);
    assert_eq!(fs::read(sandbox.path("out.raw")).unwrap(), fs::read(sandbox.path("disk.raw")).unwrap());
    // Only the file of roots on this machine leads to the catalog.
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.args(["-s", server.address(), "--roots", &sandbox.arg("other"), "--json", "snapshots"]);
    assert_eq!(String::from_utf8(command.output().unwrap().stdout).unwrap(), "");
    let noted = fs::read(sandbox.path("roots")).unwrap();
    fs::write(sandbox.path("roots"), format!("catalog:{}\n", "5a".repeat(20))).unwrap();
    for words in [&["snapshots"][..], &["snapshot", &sandbox.arg("folder")]] {
        let said = fails_at(&sandbox, server.address(), 5, words);
        assert!(said.contains("roots: if the server was set up anew, move that file away"), "{said}");
    }
    fs::write(sandbox.path("roots"), noted).unwrap();

    let measured = measure(server.address(), &["--count", "500"]);
    assert!(measured.contains("MB/s") && measured.contains("99.9%"), "{measured}");
    let order = ["--order", "permuted", "--action", "read", "--count", "500"];
    measure(server.address(), &order);
    // Both histograms are for people. A request for them does not end the server.
    server.signal(Signal::USR1);
    server.signal(Signal::USR2);
    at(&sandbox, server.address(), &["snapshots"]);
    server.end();
}

#[test]
fn what_is_at_a_server_is_mounted_verified_searched_and_compared() {
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    sample_folder(&sandbox.path("home"));
    let first = manifest(&sandbox.path("home"));
    let server = Server::start(&sandbox);
    let ask = |words: &[&str]| at(&sandbox, server.address(), words);
    let home = sandbox.arg("home");
    ask(&["snapshot", &home, "--time", "2026-05-01T23:00:00Z"]);
    fs::write(sandbox.path("home/letter.txt"), "Dear archive, once more\n").unwrap();
    ask(&["snapshot", &home, "--time", "2026-05-02T23:00:00Z"]);

    assert_eq!(ask(&["find", "letter.txt"]).lines().count(), 2);
    assert!(ask(&["diff", "home@2026-05-01", "home"]).contains("M letter.txt"));
    assert!(ask(&["verify"]).contains("all is well: 2 snapshots, all of their blocks exist"));
    let verified = sandbox::json_lines(&ask(&["--json", "verify", "--data"])).remove(0);
    assert!(verified["checked_bytes"].as_u64().unwrap() > 300_000, "{verified}");
    assert_eq!(verified["harm"].as_array().unwrap().len(), 0);
    if can_mount("a Venti server's snapshots are mounted") {
        let days = sandbox.path("days");
        let mut command = command_at(&sandbox, server.address());
        command.arg("mount").arg(&days);
        let mount = Mount::start(command, &days);
        assert_eq!(manifest(&mount.path("2026/05/01/home")), first);
        assert_eq!(manifest(&mount.path("latest/home/")), manifest(&sandbox.path("home")));
        // A snapshot that is taken while the file system is mounted appears.
        ask(&["snapshot", &home, "--time", "2026-05-03T23:00:00Z"]);
        wait_until("the new night is there", || mount.path("2026/05/03/home/letter.txt").is_file());
        mount.end(Signal::TERM);
    }
    server.end();
}

#[test]
fn what_a_server_has_lost_is_named_by_what_it_harms() {
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    for (name, seed) in [("good", 1), ("harmed", 2)] {
        fs::create_dir(sandbox.path(name)).unwrap();
        fs::write(sandbox.path(&format!("{name}/file")), noise(seed, 6_000_000)).unwrap();
    }
    let server = Server::start(&sandbox);
    for name in ["good", "harmed"] {
        at(&sandbox, server.address(), &["snapshot", &sandbox.arg(name)]);
    }
    server.end();
    let wanted = &noise(2, 4_000_064)[4_000_000..];
    let mut place = None;
    for arena in fs::read_dir(sandbox.path(STORE).join("arenas")).unwrap() {
        let path = arena.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let at = bytes.windows(wanted.len()).position(|window| window == wanted);
        place = place.or(at.map(|at| (path, at as u64)));
    }
    let (arena, offset) = place.unwrap();
    write_at(&arena, offset, b"damage");

    let server = Server::start(&sandbox);
    for words in [&["verify"][..], &["verify", "--data"]] {
        let output = command_at(&sandbox, server.address()).args(words).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let complaints = String::from_utf8(output.stderr).unwrap();
        if words.len() == 1 && output.status.code() == Some(0) {
            // Without `--data`, `verify` checks that a block exists, and not that it is intact.
            continue;
        }
        assert_eq!(output.status.code(), Some(5), "{said}{complaints}");
        assert!(said.contains("harms: ") && said.contains("harmed:file (bytes "), "{said}{complaints}");
        assert!(said.contains("the Venti server says") && !said.contains("good:"), "{said}{complaints}");
    }
    let refused = fails_at(&sandbox, server.address(), 5, &["restore", "harmed", &sandbox.arg("out")]);
    assert!(refused.contains("the Venti server says"), "{refused}");
    at(&sandbox, server.address(), &["restore", "good", &sandbox.arg("whole")]);
    server.end();
}

/// The messages of a server to the service manager, and the address of its metrics.
struct Watched {
    manager: UnixDatagram,
    metrics: String,
}

impl Watched {
    /// Makes the socket of a service manager, and passes its path to a command.
    fn manager(sandbox: &Sandbox, command: &mut Command) -> UnixDatagram {
        let manager = UnixDatagram::bind(sandbox.path("notify")).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        command.env("NOTIFY_SOCKET", sandbox.path("notify"));
        manager
    }

    fn heard(&self) -> String {
        let mut bytes = [0; 256];
        let length = self.manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    fn number(&self, name: &str) -> u64 {
        number_at(&self.metrics, name)
    }
}

/// A value from the metrics page of a server.
fn number_at(metrics: &str, name: &str) -> u64 {
    let (_, url) = metrics.split_once("http://").unwrap();
    let page = String::from_utf8(fetched(&format!("http://{url}"))).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap()
}

/// The body of an HTTP resource.
#[track_caller]
fn fetched(url: &str) -> Vec<u8> {
    found_at(url).unwrap_or_else(|head| panic!("{url}: {head}"))
}

/// The body of an HTTP resource, or the head of the answer if the status is not 200.
fn found_at(url: &str) -> Result<Vec<u8>, String> {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    if head.starts_with("HTTP/1.1 200 ") { Ok(answer.split_off(end + 4)) } else { Err(head) }
}

/// All bytes of an export.
fn disk_at(socket: &Path, export: &str, length: usize) -> Vec<u8> {
    let options = NbdDiskOptions { export: export.into(), patience: PATIENCE, ..NbdDiskOptions::default() };
    let disk = NbdDisk::connect(socket, &options).unwrap();
    let mut bytes = vec![0; length];
    disk.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_is_at_a_server_is_served_by_every_other_door() {
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    sample_folder(&sandbox.path("home"));
    let letter = fs::read(sandbox.path("home/letter.txt")).unwrap();
    let length = 6 << 20;
    sparse_image(
        &sandbox.path("disk.raw"),
        length,
        &[(0, &noise(2, 1 << 20)), (4 << 20, &noise(3, 1 << 20))],
    );
    let disk = fs::read(sandbox.path("disk.raw")).unwrap();
    let far = Server::start(&sandbox);
    let ask = |words: &[&str]| at(&sandbox, far.address(), words);
    ask(&["snapshot", &sandbox.arg("home"), "--time", "2026-05-01T23:00:00Z"]);
    ask(&[
        "snapshot",
        &sandbox.arg("disk.raw"),
        "--as",
        "image",
        "--name",
        "vm",
        "--time",
        "2026-05-01T23:00:00Z",
    ]);

    // All front ends run at once, directly at the Venti server. The second time, they have a
    // look-aside cache.
    let socket = sandbox.path("nbd");
    let nbd = format!("unix:{}", sandbox.arg("nbd"));
    let doors = ["serve", "--nbd", &nbd, "--nfs", "127.0.0.1:0", "--webdav", "127.0.0.1:0"];
    let near = ["--look-aside", &sandbox.arg("near"), "--venti", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    for more in [&[][..], &near] {
        let mut command = command_at(&sandbox, far.address());
        command.args(doors).args(more);
        let server = Server::run(&sandbox, command, if more.is_empty() { 3 } else { 5 });
        assert_eq!(disk_at(&socket, "vm@2026-05-01", disk.len()), disk);
        let url = |path: &str| format!("{}{path}", server.addresses[2]);
        assert_eq!(fetched(&url("2026/05/01/home/letter.txt")), letter);
        if has("nfs-cat") {
            let (host, ports) = server.addresses[1].split_once("/?").unwrap();
            let place = format!("{host}/2026/05/01/home/letter.txt?{ports}");
            let read = Command::new("nfs-cat").arg(place).output().unwrap();
            assert_eq!(read.stdout, letter, "{}", String::from_utf8_lossy(&read.stderr));
        } else {
            eprintln!("skipped: a Venti server's snapshots by NFS, which needs nfs-cat of libnfs-utils");
        }
        if let Some(metrics) = server.addresses.get(4) {
            let from = |from: &str| {
                number_at(metrics, &format!("varve_cache_reads_total{{store=\"cache\",from=\"{from}\"}}"))
            };
            assert!(from("source") > 10, "all of it was far away");
            assert!(number_at(metrics, "varve_look_aside_bytes{store=\"look-aside\"}") > 1_000_000);
            // The blocks themselves are served as well.
            at(&sandbox, &server.addresses[3], &["ls", "home"]);
            assert!(number_at(metrics, "varve_venti_reads_total") > 0);
        } else {
            // A snapshot that is taken in the meantime appears, as a day and as an export.
            ask(&[
                "snapshot",
                &sandbox.arg("disk.raw"),
                "--as",
                "image",
                "--name",
                "vm",
                "--time",
                "2026-05-02T23:00:00Z",
            ]);
            assert_eq!(disk_at(&socket, "vm@2026-05-02", disk.len()), disk);
            wait_until("the new night is there", || found_at(&url("2026/05/02/vm/disk.raw")).is_ok());
            assert_eq!(fetched(&url("2026/05/02/vm/disk.raw")), disk);
        }
        server.end();
    }
    // Proxies serve only blocks. Without a list of roots, no snapshots are known.
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.env_remove("VARVE_STORE").args(["serve", "--nfs", "127.0.0.1:0", "--shard", far.address()]);
    let refused = command.output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("--roots"), "{said}");
    // With a list of roots, shards serve snapshots as well.
    let list = sandbox.arg("roots");
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.args(["--roots", &list, "serve", "--webdav", "127.0.0.1:0", "--shard", far.address()]);
    let server = Server::run(&sandbox, command, 1);
    assert_eq!(fetched(&format!("{}latest/home/letter.txt", server.address())), letter);
    server.end();
    far.end();
}

#[test]
fn the_numbers_of_proxies_tell_what_waits_and_which_shard_is_away() {
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    let far = Server::start(&sandbox);
    // No server is at the address of the second shard.
    let nowhere = format!("unix!{}", sandbox.arg("nobody"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.args(["serve", "--venti", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--shard", far.address()]);
    command.args(["--shard", &nowhere, "--write-buffer", &sandbox.arg("buffer")]);
    let proxy = Server::run(&sandbox, command, 2);
    let number = |name: &str| number_at(&proxy.addresses[1], name);
    measure(proxy.address(), &["--count", "400", "--action", "write", "--block-size", "8192"]);
    let shard = |name: &str, title: String| number(&format!("{name}{{store=\"shards\",shard=\"{title}\"}}"));
    wait_until("it is found to be away, and the rest has gone on", || {
        number("varve_buffer_blocked_ways{store=\"write-buffer\"}") == 1
            && number("varve_buffer_sent_blocks_total{store=\"write-buffer\"}") > 100
            && shard("varve_shard_failing", format!("shard-2 ({nowhere})")) == 1
    });
    assert_eq!(shard("varve_shard_failing", format!("shard-1 ({})", far.address())), 0);
    assert!(shard("varve_shard_failures_total", format!("shard-2 ({nowhere})")) > 0);
    let waiting = number("varve_buffer_waiting_bytes{store=\"write-buffer\"}");
    assert!(waiting > 100 * 8192, "{waiting}");
    assert_eq!(number("varve_buffer_room_bytes{store=\"write-buffer\"}"), 1 << 30);
    proxy.end();
    far.end();
}

/// Returns the traces in a folder, the oldest first: each file, and its records as `varve --json
/// trace show` prints them.
fn shown_traces(sandbox: &Sandbox, folder: &str) -> Vec<(String, Vec<Value>)> {
    let entries = fs::read_dir(sandbox.path(folder)).unwrap();
    let mut files: Vec<_> = entries.map(|file| file.unwrap().path().to_str().unwrap().to_owned()).collect();
    files.sort();
    let shown = |file: String| {
        let records = sandbox.planner().json(["trace", "show", &file]);
        (file, records)
    };
    files.into_iter().map(shown).collect()
}

/// Returns the bytes of data that records of one kind put or get.
fn traced_data(records: &[Value], kind: &str) -> u64 {
    let runs = records.iter().filter(|run| run["record"] == kind && run["block_type"] == "data");
    runs.map(|run| run["block_count"].as_u64().unwrap() * run["block_bytes"].as_u64().unwrap()).sum()
}

/// A recorder stands between a client and a served store: before the store itself, and before a
/// server in the front of it.
#[test]
fn a_recorder_behind_a_server_leaves_a_trace_of_its_clients() {
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    fs::create_dir(sandbox.path("folder")).unwrap();
    let secret = noise(5, 600_000);
    fs::write(sandbox.path("folder/HiddenName"), &secret).unwrap();
    let serve = |front: &str, behind: &str| {
        let text = format!(
            "serve = \"front\"\n[store.front]\nkind = \"record\"\nsource = \"back\"\nfolder = \"{}\"\n\
             [store.back]\n{behind}\n",
            sandbox.arg(&format!("{front}-traces"))
        );
        let file = format!("{front}.toml");
        fs::write(sandbox.path(&file), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
        command.args(["serve", "--venti", "127.0.0.1:0", "--proxies", &sandbox.arg(&file)]);
        Server::run(&sandbox, command, 1)
    };
    let near = serve("near", &format!("kind = \"folder\"\npath = \"{}\"", sandbox.arg(STORE)));
    let behind = format!("kind = \"server\"\naddress = \"{}\"\nattempts = 1", near.address());
    let far = serve("far", &behind);
    at(&sandbox, far.address(), &["snapshot", &sandbox.arg("folder"), "--name", "home"]);
    far.end();
    // A server that is started again has no blocks in its memory, and begins a new trace.
    let far = serve("far", &behind);
    at(&sandbox, far.address(), &["restore", "home", &sandbox.arg("out")]);
    assert_eq!(fs::read(sandbox.path("out/HiddenName")).unwrap(), secret);
    far.end();
    near.end();

    let of_far = shown_traces(&sandbox, "far-traces");
    let [(file, taken), (_, restored)] = &of_far[..] else { panic!("{of_far:?}") };
    // The lists of the folder are data, too.
    let file_and_lists = 600_000..602_000;
    assert!(file_and_lists.contains(&traced_data(taken, "put")), "{taken:?}");
    assert!(file_and_lists.contains(&traced_data(restored, "get")), "{restored:?}");
    assert_eq!(traced_data(restored, "put"), 0);
    assert!(taken.iter().any(|record| record["record"] == "sync"), "{taken:?}");
    for (_, records) in &of_far {
        let end = records.last().unwrap();
        assert_eq!((&end["type"], &end["complete"]), (&json!("trace_end"), &json!(true)));
    }
    let bytes = fs::read(file).unwrap();
    let has_part = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    assert!(!has_part(b"HiddenName") && secret.windows(8).step_by(997).all(|part| !has_part(part)));
    // The recorder before the store has seen the same puts.
    let of_near = shown_traces(&sandbox, "near-traces");
    let [(_, records)] = &of_near[..] else { panic!("{of_near:?}") };
    assert_eq!(traced_data(records, "put"), traced_data(taken, "put"));

    let profile = sandbox.planner().json(["trace", "profile", file])[0]["profile"].clone();
    let sum = |histogram: &Value| -> u64 {
        histogram.as_array().unwrap().iter().map(|bucket| bucket["sum"].as_u64().unwrap()).sum()
    };
    assert_eq!(sum(&profile["first"]["new_bytes"]), traced_data(taken, "put"), "{profile:#}");
    let classes = &profile["first"]["size_classes"];
    assert!(classes[0] == 0 && classes[8].as_u64() >= Some(600_000), "noise does not compress: {profile:#}");
}

#[test]
fn a_disk_that_cannot_be_written_turns_the_server_read_only_and_everybody_is_told() {
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    // No file of the server can grow beyond this limit. The effect is that of a full disk.
    let mut command = Command::new("sh");
    let own = venti_server::command(&sandbox, &["--venti", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    command.args(["-c", "trap '' XFSZ; ulimit -f 8192; exec \"$@\"", "sh"]).arg(own.get_program());
    command.args(own.get_args());
    let manager = Watched::manager(&sandbox, &mut command);
    let server = Server::run(&sandbox, command, 2);
    let watched = Watched { manager, metrics: server.addresses[1].clone() };
    assert_eq!(watched.heard(), "READY=1\n");
    assert_eq!(watched.number("varve_venti_read_only"), 0);

    let refused = |words: &[&str]| {
        let output = bench(server.address(), words).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    measure(server.address(), &["--depth", "8", "--count", "64", "--seed", "1"]);
    let said = refused(&["--depth", "8", "--count", "8192", "--seed", "2"]);
    assert!(said.contains("File too large"), "{said}");
    assert_eq!(watched.heard(), "STATUS=read-only, because a write to the store failed\n");
    assert_eq!(watched.number("varve_venti_read_only"), 1);
    let log = Server::complaints(&sandbox);
    assert!(
        log.contains("the server is read-only until it is restarted") && log.contains("File too large"),
        "{log}"
    );
    // Later writes are refused, too, although their blocks would fit.
    let said = refused(&["--depth", "8", "--count", "1", "--seed", "3"]);
    assert!(said.contains("read only") && said.contains("File too large"), "{said}");
    // All clients can read the blocks that were durable before.
    measure(server.address(), &["--depth", "8", "--count", "64", "--seed", "1", "--action", "read"]);
    assert!(watched.number("varve_venti_reads_total") >= 64);
    server.signal(Signal::TERM);
    assert_eq!(watched.heard(), "STOPPING=1\n");
}

#[test]
fn a_store_that_cannot_be_written_when_it_is_served_is_read_through_the_same_door() {
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    let limited = |blocks: u64| {
        let own = venti_server::command(&sandbox, &["--venti", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        let mut command = Command::new("sh");
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
        command.args(["-c", &script, "sh"]).arg(own.get_program()).args(own.get_args());
        command
    };
    let bench = |server: &Server, words: &[&str]| {
        bench(server.address(), &[&["--count", "64"], words].concat()).output().unwrap()
    };
    let mut server = Server::run(&sandbox, limited(8192), 2);
    assert!(bench(&server, &["--seed", "1"]).status.success());
    server.child.kill().unwrap();
    server.child.wait().unwrap();

    // The end of the log has to be written again, and the limit does not allow its file to grow so
    // far.
    let manager = UnixDatagram::bind(sandbox.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = limited(64);
    command.env("NOTIFY_SOCKET", sandbox.path("notify"));
    let server = Server::run(&sandbox, command, 2);
    let watched = Watched { manager, metrics: server.addresses[1].clone() };
    let log = Server::complaints(&sandbox);
    assert!(log.contains("served read-only") && log.contains("File too large"), "{log}");
    assert_eq!(watched.heard(), "READY=1\n");
    assert_eq!(watched.heard(), "STATUS=read-only, because a write to the store failed\n");
    assert_eq!(watched.number("varve_venti_read_only"), 1);
    assert!(bench(&server, &["--seed", "1", "--action", "read"]).status.success());
    let refused = bench(&server, &["--seed", "2"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("read only"), "{said}");
    server.end();

    // There is room again.
    let server = Server::start(&sandbox);
    assert!(bench(&server, &["--seed", "1", "--action", "read"]).status.success());
    assert!(bench(&server, &["--seed", "2"]).status.success());
    server.end();
}

#[test]
fn a_block_is_durable_soon_after_it_was_acknowledged_though_nobody_syncs() {
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    for (number, (is_left_open, sync_after)) in [(false, "3600"), (true, "1")].into_iter().enumerate() {
        let words = ["--venti", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--sync-after", sync_after];
        let mut server = Server::run(&sandbox, venti_server::command(&sandbox, &words), 2);
        let flushes = || number_at(&server.addresses[1], "varve_venti_flushes_total");
        let address = server.address().parse().unwrap();
        let client = VentiStore::connect(address, VentiOptions::default()).unwrap();
        let bytes = noise(number as u64 + 1, 3000);
        let score = client.put(Block { block_type: BlockType::DATA, bytes: &bytes }).unwrap();
        let client = is_left_open.then_some(client);
        wait_until("the server has synced by itself", || flushes() == 1);
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        drop(client);

        let server = Server::start(&sandbox);
        let client = VentiStore::connect(server.address().parse().unwrap(), VentiOptions::default()).unwrap();
        let name = BlockName { score, block_type: BlockType::DATA };
        assert!(client.get(&name).unwrap() == bytes, "left open: {is_left_open}");
        drop(client);
        server.end();
    }
}

/// A client with several connections writes a block once. Its oldest connection shows that the
/// server was not restarted.
#[test]
#[expect(clippy::disallowed_methods, reason = "clients of a real socket, at the same time")]
fn a_sync_writes_nothing_again_while_the_first_connection_stands() {
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let server = Strange::start(move |request, _| {
        if matches!(request, VentiRequest::Write { .. }) {
            counted.fetch_add(1, Ordering::SeqCst);
            // Others open connections meanwhile.
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    });
    let store = VentiStore::connect(server.address.parse().unwrap(), VentiOptions::default()).unwrap();
    for round in 0..3_u8 {
        std::thread::scope(|scope| {
            for client in 0..4_u8 {
                let store = &store;
                scope.spawn(move || {
                    for block in 0..5_u8 {
                        let bytes = [round, client, block];
                        store.put(Block { block_type: BlockType::DATA, bytes: &bytes }).unwrap();
                    }
                });
            }
        });
        store.sync().unwrap();
    }
    assert!(server.connections() > 1, "one connection proves nothing");
    assert_eq!(written.load(Ordering::SeqCst), 60);
}

#[test]
fn what_one_client_wrote_is_listed_and_set_aside_and_put_back() {
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    let store = |words: &[&str], code: i32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
        let output = command.args(["-s", &sandbox.arg(STORE)]).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap() + &said
    };
    let serve = |more: &[&str]| {
        let words = [&["--venti", "127.0.0.1:0", "--venti-read-only", "127.0.0.1:0"], more].concat();
        Server::run(&sandbox, venti_server::command(&sandbox, &words), 2)
    };
    let client = |address: &str| {
        let address = address.trim_end_matches(" (read-only)").parse().unwrap();
        VentiStore::connect(address, VentiOptions::default()).unwrap()
    };
    let data = |bytes: &'static [u8]| Block { block_type: BlockType::DATA, bytes };
    let name = |bytes: &[u8]| BlockName { score: Score::sha1(bytes), block_type: BlockType::DATA };
    assert!(store(&["venti", "sessions"], 0).contains("--sessions`"));

    let mut server = serve(&["--sessions"]);
    for blocks in [&[&b"shared"[..], b"good"][..], &[b"shared", b"bad", b"bad as well"]] {
        let client = client(server.address());
        blocks.iter().for_each(|bytes| assert!(client.put(data(bytes)).is_ok()));
        client.sync().unwrap();
    }
    // A sync that was answered has recorded the session, even if the server is killed.
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let listed = store(&["--json", "venti", "sessions"], 0);
    let sessions = sandbox::json_lines(&listed);
    let counts =
        |session: &serde_json::Value| (session["new_blocks"].clone(), session["known_blocks"].clone());
    assert_eq!(sessions.iter().map(counts).collect::<Vec<_>>(), [(2.into(), 0.into()), (2.into(), 1.into())]);
    assert!(sessions[1]["from"].as_str().unwrap().starts_with("tcp!127.0.0.1!"), "{listed}");
    let number = sessions[1]["session"].to_string();

    assert!(store(&["venti", "set-aside", "99"], 2).contains("there is no session 99"));
    assert!(store(&["venti", "set-aside", "--dry-run", &number], 0).contains("2 blocks would be set aside"));
    let bad = [&b"bad"[..], b"bad as well"];
    let refusals = |address: &str| {
        let client = client(address);
        for bytes in [&b"shared"[..], b"good"] {
            assert_eq!(client.get(&name(bytes)).unwrap(), bytes);
        }
        bad.map(|bytes| client.get(&name(bytes)).map_err(|error| with_causes(&error)))
    };
    // The server runs without the option now. The sessions stay recorded.
    let server = serve(&[]);
    assert!(refusals(server.address()).iter().all(Result::is_ok));
    assert!(store(&["venti", "set-aside", &number], 11).contains("in use"));
    server.end();

    assert!(store(&["venti", "set-aside", &number], 0).contains("2 blocks set aside"));
    let server = serve(&[]);
    for address in &server.addresses {
        for refused in refusals(address) {
            assert!(refused.unwrap_err().contains("the administrator has set this block aside"));
        }
    }
    // Another client stores one of the blocks again, and can read it from then on.
    let other = client(server.address());
    other.put(data(b"bad")).unwrap();
    assert_eq!(other.get(&name(b"bad")).unwrap(), b"bad".as_slice());
    other.sync().unwrap();
    drop(other);
    server.end();
    assert!(store(&["venti", "set-aside", "--dry-run", &number], 0).contains("0 blocks"));
    let server = serve(&[]);
    let found = refusals(server.address());
    assert!(found[0].is_ok() && found[1].is_err());
    server.end();

    assert!(store(&["venti", "put-back", &number], 0).contains("1 block put back"));
    let server = serve(&[]);
    assert!(refusals(server.address()).iter().all(Result::is_ok));
    server.end();
    // A server behind proxies could not record which client writes.
    let refused =
        venti_server::command(&sandbox, &["--venti", "127.0.0.1:0", "--read-ahead"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("proxies cannot do"), "{refused:?}");
}

/// Makes a certificate authority and certificates that it has signed. Each is NAME.pem with its key
/// in NAME-key.pem.
fn sign(sandbox: &Sandbox, names: &[&str]) {
    let openssl = |args: &[&str]| {
        let output = Command::new("openssl").args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let path = |name: &str| sandbox.arg(name);
    let new = ["-nodes", "-newkey", "rsa:2048"];
    let (ca, ca_key) = (path("ca.pem"), path("ca-key.pem"));
    openssl(
        &[&["req", "-x509", "-subj", "/CN=ca", "-days", "2", "-keyout", &ca_key, "-out", &ca], &new[..]]
            .concat(),
    );
    for name in names {
        let (request, key) = (path("request.pem"), path(&format!("{name}-key.pem")));
        let extension = "subjectAltName=DNS:localhost";
        openssl(
            &[
                &["req", "-subj", "/CN=localhost", "-addext", extension, "-keyout", &key, "-out", &request],
                &new[..],
            ]
            .concat(),
        );
        let out = path(&format!("{name}.pem"));
        let sign =
            ["x509", "-req", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial", "-days", "2"];
        openssl(&[&sign[..], &["-copy_extensions", "copy", "-out", &out]].concat());
    }
}

#[test]
fn over_tls_each_side_knows_the_other() {
    if !has("openssl") {
        eprintln!("skipped: over_tls_each_side_knows_the_other, which needs openssl");
        return;
    }
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    sample_folder(&sandbox.path("home"));
    sign(&sandbox, &["server", "client"]);
    let [certificate, key, ca] = ["server.pem", "server-key.pem", "ca.pem"].map(|name| sandbox.arg(name));
    let own = format!("{certificate},{key}");
    let both = format!("{own},{ca}");
    // Clients with a certificate may connect from other machines.
    let server = Server::run(
        &sandbox,
        venti_server::command(&sandbox, &["--venti", "tls!*!0", "--venti-tls", &both]),
        1,
    );
    let port = server.address().rsplit('!').next().unwrap();
    let address = format!("venti+tls://localhost:{port}");
    let run = |mut command: Command, ca: Option<&str>, client: Option<&str>| {
        command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR").env_remove("VARVE_VENTI_CERTIFICATE");
        command
            .envs(ca.map(|ca| ("SSL_CERT_FILE", ca)))
            .envs(client.map(|client| ("VARVE_VENTI_CERTIFICATE", client)));
        command.output().unwrap()
    };
    let ask = |address: &str, ca: Option<&str>, client: Option<&str>, args: &[&str]| {
        let mut command = command_at(&sandbox, address);
        command.args(args);
        run(command, ca, client)
    };
    let client = format!("{},{}", sandbox.arg("client.pem"), sandbox.arg("client-key.pem"));
    let good = |args: &[&str]| {
        let output = ask(&address, Some(&ca), Some(&client), args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    good(&["snapshot", &sandbox.arg("home")]);
    good(&["restore", "home", &sandbox.arg("out")]);
    assert_eq!(manifest(&sandbox.path("out")), manifest(&sandbox.path("home")));
    // The data is far larger than any buffer on the way, in both directions.
    for action in ["write", "read"] {
        let command = bench(&address, &["--count", "2000", "--depth", "200", "--action", action]);
        let output = run(command, Some(&ca), Some(&client));
        assert!(output.status.success(), "{action}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for (what, address, ca, client) in [
        ("the server is not believed", address.as_str(), None, Some(client.as_str())),
        ("the client is not known", &address, Some(ca.as_str()), None),
        ("no TLS", &address.replace("venti+tls", "venti"), None, None),
    ] {
        let output = ask(address, ca, client, &["snapshots"]);
        let output = if output.status.success() {
            ask(address, ca, client, &["ls", &format!("vac:{}", "4".repeat(40))])
        } else {
            output
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{what}: {said}");
        assert!(!said.contains("is not in the store"), "{what}: {said}");
    }
    server.end();

    for (args, said) in [
        (&["--venti", "tls!localhost!0"][..], "TLS needs a certificate"),
        (&["--venti", "tls!*!0", "--venti-tls", &own], "--expose"),
    ] {
        let refused = venti_server::command(&sandbox, args).output().unwrap();
        assert!(String::from_utf8_lossy(&refused.stderr).contains(said), "{refused:?}");
    }
}

/// Archives a folder for vac's tools in the sandbox's own store. Returns the file that names the
/// archive.
fn archived_for_vac(sandbox: &Sandbox) -> String {
    let (store, source, file) = (sandbox.arg(STORE), sandbox.path("source"), sandbox.arg("source.vac"));
    make_store(sandbox);
    sample_folder(&source);
    let words = ["-s", &store, "snapshot", "-q", "--vac", &file, source.to_str().unwrap()];
    assert!(Command::new(env!("CARGO_BIN_EXE_varve")).args(words).status().unwrap().success());
    file
}

fn copy(sandbox: &Sandbox, from: &str, file: &str, to: &str) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command.args(["copy", from, file, to]).env("HOME", sandbox.path("home-of-nobody")).output().unwrap()
}

#[test]
fn a_destination_that_does_not_say_that_a_block_is_there_is_given_it() {
    let sandbox = Sandbox::encrypted();
    let file = archived_for_vac(&sandbox);
    let store = sandbox.arg(STORE);
    let says = |text: &str| Some((0, VentiReply::Error(text.into())));
    let destinations: [(&str, Strange); 5] = [
        ("none", Strange::start(|_, _| None)),
        (
            "other words",
            Strange::start(move |request, found| match (request, found) {
                (VentiRequest::Read { .. }, None) => says("no such score/type"),
                _ => None,
            }),
        ),
        (
            "no small reads",
            Strange::start(move |request, found| match (request, found) {
                (VentiRequest::Read { count, .. }, Some(block)) if block.len() > *count as usize => {
                    says("bad count")
                }
                _ => None,
            }),
        ),
        (
            "nothing is read",
            Strange::start(move |request, _| match request {
                VentiRequest::Read { .. } => says("no such block"),
                _ => None,
            }),
        ),
        (
            "reads fail",
            Strange::start(move |request, _| match request {
                VentiRequest::Read { .. } => says("i/o error"),
                _ => None,
            }),
        ),
    ];
    let mut counts = Vec::new();
    for (what, destination) in &destinations {
        // The second copy finds the existing blocks, or writes them again.
        for _ in 0..2 {
            let output = copy(&sandbox, &store, &file, &destination.address);
            assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        }
        counts.push(destination.block_count());
    }
    assert!(counts[0] > 10 && counts.iter().all(|count| *count == counts[0]), "{counts:?}");

    // A score that is nowhere counts as missing, and not as damaged, whatever the server's message
    // is.
    for (what, server) in &destinations[..4] {
        let said = fails_at(&sandbox, &server.address, 1, &["ls", &format!("vac:{}", "4".repeat(40))]);
        assert!(said.contains("is not in the store") && !said.contains("damaged"), "{what}: {said}");
    }
}

#[test]
fn an_error_of_a_copy_names_the_side_that_failed() {
    let sandbox = Sandbox::encrypted();
    let file = archived_for_vac(&sandbox);
    let store = sandbox.arg(STORE);
    let good = Strange::start(|_, _| None);
    assert!(copy(&sandbox, &store, &file, &good.address).status.success());
    let says = |text: &str| Some((0, VentiReply::Error(text.into())));
    let takes_nothing = Strange::start(move |request, _| match request {
        VentiRequest::Write { .. } => says("out of paper"),
        _ => None,
    });
    let gives_nothing = Strange::start(move |request, _| match request {
        VentiRequest::Read { .. } => says("out of paper"),
        _ => None,
    });
    for (from, to, side, code) in [
        (&good.address, &takes_nothing.address, "the destination cannot be written", 1),
        (&gives_nothing.address, &good.address, "the source cannot be read", 5),
    ] {
        let output = copy(&sandbox, from, &file, to);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        let at = if side.contains("source") { from } else { to };
        assert!(said.contains(side) && said.contains(at.as_str()) && said.contains("out of paper"), "{said}");
    }
}

#[test]
fn a_server_that_breaks_the_protocol_ends_the_work_at_once() {
    let sandbox = Sandbox::encrypted();
    sample_folder(&sandbox.path("home"));
    let is_probe = |request: &VentiRequest| matches!(request, VentiRequest::Read { count: 0, .. });
    let servers: [(&str, Strange); 3] = [
        (
            "count is ignored",
            Strange::start(move |request, found| match found {
                Some(block) if is_probe(request) => Some((0, VentiReply::Read(block.clone()))),
                _ => None,
            }),
        ),
        (
            "another tag",
            Strange::start(move |request, _| {
                is_probe(request).then(|| (7, VentiReply::Error("no block with score x".into())))
            }),
        ),
        (
            "another kind",
            Strange::start(move |request, _| is_probe(request).then_some((0, VentiReply::Sync))),
        ),
    ];
    for (number, (what, server)) in servers.iter().enumerate() {
        let ask = |words: &[&str]| {
            let roots = sandbox.arg(&format!("roots-{number}"));
            let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
            command.args(["-s", &server.address, "--roots", &roots]).args(words).output().unwrap()
        };
        assert!(ask(&["snapshot", &sandbox.arg("home")]).status.success(), "{what}");
        let before = server.connections();
        let verified = ask(&["verify"]);
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert_eq!(verified.status.code(), Some(1), "{what}: {said}");
        assert!(said.contains("breaks the protocol") && said.contains(&server.address), "{what}: {said}");
        assert_eq!(server.connections(), before + 1, "{what}: no other connection is tried");
    }
    // Bytes that do not match their score are never accepted as the block.
    let liar = Strange::start(|request, found| match (request, found) {
        (VentiRequest::Read { .. }, Some(block)) if !block.is_empty() => {
            let mut other = block.to_vec();
            other[0] ^= 1;
            Some((0, VentiReply::Read(other.into())))
        }
        _ => None,
    });
    let client = VentiStore::connect(liar.address.parse().unwrap(), VentiOptions::default()).unwrap();
    let score = client.put(Block { block_type: BlockType::DATA, bytes: b"a block" }).unwrap();
    assert_eq!(score, Score::sha1(b"a block"));
    let asked = liar.asked();
    assert!(client.get(&BlockName { score, block_type: BlockType::DATA }).is_err());
    assert_eq!(liar.asked(), asked + 1);
}

#[test]
fn a_socket_that_somebody_else_has_opened_is_taken_over() {
    let sandbox = Sandbox::encrypted();
    make_store(&sandbox);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // A client that connects before the server has started waits for it.
    let early = TcpStream::connect(address).unwrap();
    let own = venti_server::command(&sandbox, &["--venti", "systemd:blocks"]);
    let mut command = Command::new("sh");
    let hand_over = "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=blocks exec \"$@\" 3<&0 </dev/null";
    command.args(["-c", hand_over, "sh"]).arg(own.get_program()).args(own.get_args());
    command.stdin(OwnedFd::from(listener));
    let server = Server::run(&sandbox, command, 1);
    assert_eq!(server.address(), format!("tcp!127.0.0.1!{}", address.port()));
    let mut line = String::new();
    BufReader::new(early).read_line(&mut line).unwrap();
    assert!(line.starts_with("venti-04:02"), "{line:?}");
    measure(server.address(), &["--count", "10"]);
    server.end();
    // An error names a socket that was not passed.
    let output = venti_server::command(&sandbox, &["--venti", "systemd:files"]).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("has passed no such socket"));
}
