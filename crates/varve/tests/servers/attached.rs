//! Published disks that are attached: from real servers, through real clients, and without any of
//! them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use varve_content::image::ServedImage;
use varve_machine::{NbdDisk, NbdDiskOptions};

use crate::kinds::{static_http2, static_nginx, static_python};
use crate::lonely_server::Server;
use crate::mount_point::{Mount, can_mount};
use crate::sandbox::{Sandbox, copy_folder, has, noise, tool};

const MIB: usize = 1 << 20;
/// The default size of a published block.
const BLOCK: usize = 128 << 10;

/// A disk of noise, text and holes, which does not end with a block.
fn disk(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; 6 * MIB + 1234];
    bytes[300_000..2_500_000].copy_from_slice(&noise(seed, 2_200_000));
    let text: Vec<u8> = b"a line of a file on a disk\n".iter().copied().cycle().take(2 * MIB).collect();
    bytes[3 * MIB..5 * MIB].copy_from_slice(&text);
    let end = bytes.len();
    bytes[end - 10..].copy_from_slice(&noise(seed + 1, 10));
    bytes
}

/// A disk in a store, published in a folder that a server delivers.
struct Published {
    sandbox: Sandbox,
    server: Option<Server>,
    port: u16,
    www: PathBuf,
    key: String,
}

impl Published {
    fn at(server: Server, disk: &[u8]) -> Self {
        let (www, port) = (server.folder.path().join("www/pub"), server.port);
        let mut published =
            Self { sandbox: Sandbox::encrypted(), server: Some(server), port, www, key: String::new() };
        published.publish(disk);
        published
    }

    fn publish(&mut self, disk: &[u8]) {
        self.sandbox.snapshot_bytes("disk", disk);
        let www = self.www.to_str().unwrap();
        let edition = self.sandbox.json(["publish", "disk", www, "--key", "publisher.key"]).pop().unwrap();
        edition["key"].as_str().unwrap().clone_into(&mut self.key);
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/pub", self.port)
    }

    fn address(&self) -> String {
        format!("{}/#{}", self.url(), self.key)
    }

    /// The file of the object with the block that begins at `offset` of the disk. Blocks of noise
    /// are stored as they are.
    fn object_with(&self, content: &[u8]) -> PathBuf {
        let folders = fs::read_dir(self.www.join("objects")).unwrap();
        let mut files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
        let is_it = |path: &PathBuf| fs::read(path).unwrap().get(1..) == Some(content);
        files.find_map(|file| Some(file.unwrap().path()).filter(is_it)).expect("the block is published")
    }

    fn attach(&self, more: &[&str]) -> Attached {
        Attached::start(&self.sandbox, &[&[&self.address(), "disk"], more].concat())
    }
}

/// A running `varve attach --nbd`.
struct Attached {
    child: Child,
    stdout: BufReader<ChildStdout>,
    socket: PathBuf,
    log: PathBuf,
}

impl Attached {
    fn start(sandbox: &Sandbox, words: &[&str]) -> Self {
        Self::start_as(sandbox, sandbox.command(), words)
    }

    /// Does the same with a command of the sandbox.
    fn start_as(sandbox: &Sandbox, mut command: Command, words: &[&str]) -> Self {
        let (socket, log) = (sandbox.path("nbd"), sandbox.path("attach.log"));
        // A killed server leaves its socket behind.
        drop(fs::remove_file(&socket));
        let complaints = fs::File::create(&log).unwrap();
        command.arg("attach").args(words).args(["--nbd", &format!("unix:{}", socket.display())]);
        let mut child = command.stdout(Stdio::piped()).stderr(complaints).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("serving at ") {
            line.clear();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "{}", fs::read_to_string(&log).unwrap());
        }
        Self { child, stdout, socket, log }
    }

    fn read(&self, offset: usize, length: usize) -> Result<Vec<u8>, String> {
        let options = NbdDiskOptions {
            connection_count: 1,
            patience: Duration::from_secs(60),
            ..NbdDiskOptions::default()
        };
        let disk = NbdDisk::connect(&self.socket, &options).map_err(|error| error.to_string())?;
        let mut bytes = vec![0; length];
        disk.read_at(offset as u64, &mut bytes).map(|()| bytes).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check(&self, disk: &[u8]) {
        for (place, expected) in (0..).zip(disk.chunks(MIB)) {
            let read = self.read(place * MIB, expected.len());
            assert!(read.as_deref() == Ok(expected), "MiB {place}: {:?}", read.err());
        }
    }

    fn complaints(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Ends it, and returns its summary.
    fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{}", self.complaints());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_disk_streams_from_each_kind_of_server() {
    for server in [static_nginx(), static_python()].into_iter().flatten() {
        let disk = disk(1);
        let published = Published::at(server, &disk);
        let checked = published.sandbox.json(["verify", "--publication", &published.address()]).remove(0);
        assert_eq!(checked["damaged"], 0, "{checked}");

        let attached = published.attach(&["--log", "accesses"]);
        attached.check(&disk);
        attached.check(&disk);
        if has("qemu-img") {
            fs::write(published.sandbox.path("disk.raw"), &disk).unwrap();
            let url = format!("nbd+unix:///disk?socket={}", attached.socket.display());
            tool("qemu-img", ["compare", "-f", "raw", "-F", "raw", &published.sandbox.arg("disk.raw"), &url]);
        } else {
            println!("skipped: qemu-img, which is not installed");
        }
        if has("nbdcopy") {
            let url = format!("nbd+unix:///?socket={}", attached.socket.display());
            tool("nbdcopy", [&url, &published.sandbox.arg("copy.raw")]);
            assert!(fs::read(published.sandbox.path("copy.raw")).unwrap() == disk);
        } else {
            println!("skipped: nbdcopy, which is not installed");
        }
        let summary = attached.end();
        assert!(summary.contains("fetched; ") && !summary.contains("failed"), "{summary}");
        let log = fs::read_to_string(published.sandbox.path("accesses")).unwrap();
        for origin in [" fetched ", " memory ", &published.url()] {
            assert!(log.contains(origin), "{origin}: {log}");
        }

        // The next time, everything comes from the cache.
        let attached = published.attach(&["--log", "again"]);
        attached.check(&disk);
        attached.end();
        let log = fs::read_to_string(published.sandbox.path("again")).unwrap();
        assert!(
            log.contains(" storage ") && !log.contains(" fetched ") && !log.contains(" waited "),
            "{log}"
        );
    }
}

#[test]
fn a_disk_streams_over_http2() {
    // The server ends its connection in the middle.
    let Some((server, options)) = static_http2(20) else { return };
    let disk = disk(13);
    let requests = server.folder.path().join("requests");
    let published = Published::at(server, &disk);
    let mut command = published.sandbox.command();
    command.env("SSL_CERT_FILE", options.authorities.unwrap());
    let address = published.address().replace("http://", "https://");
    let attached = Attached::start_as(&published.sandbox, command, &[&address, "disk"]);
    attached.check(&disk);
    let summary = attached.end();
    assert!(!summary.contains("failed"), "{summary}");
    let requests = fs::read_to_string(requests).unwrap();
    assert!(requests.lines().count() > 30, "{requests}");
    assert!(requests.lines().all(|line| line.contains(" HTTP/2.0 ")), "{requests}");
}

#[test]
fn a_falsified_block_is_named_and_taken_from_the_mirror() {
    let Some(server) = static_python() else { return };
    let disk = disk(3);
    let published = Published::at(server, &disk);
    let mirror = published.sandbox.path("mirror");
    copy_folder(&published.www, &mirror);
    let object = published.object_with(&disk[8 * BLOCK..9 * BLOCK]);
    let name = object.file_name().unwrap().to_str().unwrap().to_owned();
    let mut bytes = fs::read(&object).unwrap();
    bytes[1000] ^= 1;
    fs::write(&object, bytes).unwrap();

    let attached = published.attach(&["--no-cache"]);
    let refused = attached.read(8 * BLOCK, 10).unwrap_err();
    assert!(refused.contains(&name) && refused.contains("other bytes"), "{refused}");
    assert!(
        attached.read(9 * BLOCK, BLOCK).as_deref() == Ok(&disk[9 * BLOCK..10 * BLOCK]),
        "all else goes on"
    );
    assert!(attached.complaints().contains(&name), "{}", attached.complaints());
    assert!(attached.end().contains("falsified block"));

    let attached = published.attach(&["--mirror", mirror.to_str().unwrap(), "--log", "accesses"]);
    assert!(attached.read(8 * BLOCK, 10).as_deref() == Ok(&disk[8 * BLOCK..8 * BLOCK + 10]));
    attached.check(&disk);
    attached.end();
    let log = fs::read_to_string(published.sandbox.path("accesses")).unwrap();
    assert!(log.contains(&format!("falsified object {name} from {}", published.url())), "{log}");
    assert!(
        log.lines().any(|line| line.contains("block 8 ") && line.ends_with(mirror.to_str().unwrap())),
        "{log}"
    );
}

#[test]
fn without_its_server_a_disk_is_read_from_the_cache() {
    let Some(server) = static_python() else { return };
    let (first, second) = (disk(5), disk(7));
    let mut published = Published::at(server, &first);
    let old_head = fs::read(published.www.join("head")).unwrap();
    let filled = published.sandbox.json(["attach", &published.address(), "--fill"]);
    assert_eq!((&filled[0]["type"], &filled[0]["complete"]), (&"filled".into(), &true.into()), "{filled:?}");
    // The folder of the server ends with it.
    let kept = published.sandbox.path("kept");
    copy_folder(&published.www, &kept);
    published.www = kept;
    published.server = None;
    let attached = published.attach(&[]);
    attached.check(&first);
    assert!(attached.complaints().contains("comes from the cache"), "{}", attached.complaints());
    attached.end();
    let attached = published.attach(&["--offline", "--log", "accesses"]);
    attached.check(&first);
    attached.end();
    assert!(!fs::read_to_string(published.sandbox.path("accesses")).unwrap().contains("fetched"));

    // From now on a folder stands for the server.
    published.publish(&second);
    let www = format!("{}/#{}", published.www.display(), published.key);
    let attached = Attached::start(&published.sandbox, &[&www, "disk"]);
    attached.check(&second);
    attached.end();
    fs::write(published.www.join("head"), &old_head).unwrap();
    let stderr = published.sandbox.fails(1, ["attach", &www, "disk", "--nbd", "unix:nbd"]);
    assert!(stderr.contains("this is edition 1, but edition 2 was seen"), "{stderr}");
    let attached = Attached::start(&published.sandbox, &[&www, "disk", "--allow-older"]);
    attached.check(&first);
    assert!(attached.complaints().contains("edition 1 is older than edition 2"), "{}", attached.complaints());
    attached.end();
    let stderr = published.sandbox.fails(1, ["attach", &published.url(), "--offline", "--nbd", "unix:other"]);
    assert!(stderr.contains("was never attached") || stderr.contains("edition"), "{stderr}");
}

#[test]
fn a_killed_reader_leaves_a_good_cache() {
    let Some(server) = static_python() else { return };
    let disk = disk(9);
    let published = Published::at(server, &disk);
    for megabytes in [1, 3, 5] {
        let mut attached = published.attach(&[]);
        for place in 0..megabytes {
            attached.read(place * MIB, MIB).unwrap();
        }
        attached.child.kill().unwrap();
        attached.child.wait().unwrap();
        // The machine may have lost what the process has written last.
        let blocks = published.sandbox.path("cache/varve/attach/blocks");
        let newest = fs::read_dir(blocks).unwrap().map(|file| file.unwrap().path()).max().unwrap();
        let length = fs::metadata(&newest).unwrap().len();
        fs::File::options().write(true).open(&newest).unwrap().set_len(length - 777).unwrap();
    }
    let first = published.attach(&[]);
    first.check(&disk);
    // Only one process uses a cache.
    let other = published.sandbox.path("other");
    let mut command = published.sandbox.command();
    command.args(["attach", &published.address(), "--nbd", &format!("unix:{}", other.display())]);
    let mut second = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(second.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("serving at ")));
    kill_process(Pid::from_child(&second), Signal::TERM).unwrap();
    let said = String::from_utf8(second.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("used by another process"), "{said}");
    first.end();
}

#[test]
fn writes_are_kept_beside_the_edition() {
    let Some(server) = static_python() else { return };
    if !has("qemu-io") {
        println!("skipped: writes to an attached disk, which need qemu-io");
        return;
    }
    let first = disk(11);
    let mut published = Published::at(server, &first);
    let write = |attached: &Attached| {
        let url = format!("nbd+unix:///disk?socket={}", attached.socket.display());
        tool("qemu-io", ["-f", "raw", "-c", "write -P 7 1M 4096", "-c", "flush", &url]);
    };
    let attached = published.attach(&["--overlay", "changes"]);
    write(&attached);
    attached.end();
    let attached = published.attach(&["--overlay", "changes"]);
    assert_eq!(attached.read(MIB, 4096), Ok(vec![7; 4096]));
    assert!(attached.read(MIB + 4096, 4096).as_deref() == Ok(&first[MIB + 4096..MIB + 8192]));
    attached.end();
    let attached = published.attach(&["--writable"]);
    write(&attached);
    attached.end();
    published.attach(&[]).check(&first);
    published.publish(&disk(12));
    let stderr = published
        .sandbox
        .fails(1, ["attach", &published.address(), "disk", "--nbd", "unix:nbd", "--overlay", "changes"]);
    assert!(stderr.contains("belongs to"), "{stderr}");
}

#[test]
fn a_mounted_disk_shows_its_files() {
    if !can_mount("a published disk as a folder") {
        return;
    }
    let Some(server) = static_python() else { return };
    let sandbox = Sandbox::empty();
    let image = sandbox.path("disk.raw");
    let has_files = has("mke2fs");
    if has_files {
        fs::create_dir_all(sandbox.path("files/etc")).unwrap();
        fs::write(sandbox.path("files/etc/motd"), "welcome\n").unwrap();
        fs::write(sandbox.path("files/large"), noise(4, 3 * MIB)).unwrap();
        let files = sandbox.arg("files");
        tool("mke2fs", ["-q", "-t", "ext4", "-d", &files, image.to_str().unwrap(), "16M"]);
    } else {
        println!("skipped: the files of a published disk, which need mke2fs");
        fs::write(&image, disk(13)).unwrap();
    }
    let disk = fs::read(&image).unwrap();
    let published = Published::at(server, &disk);
    let at = published.sandbox.path("mounted");
    for content_key in [&[][..], &["--content-key", "disk.content"]] {
        if !content_key.is_empty() {
            let www = published.www.to_str().unwrap();
            let encrypt = ["--key", "publisher.key", "--encrypt", "disk.content"];
            published.sandbox.ok([&["-q", "publish", "disk", www][..], &encrypt].concat());
        }
        let mut command = published.sandbox.command();
        command.args(["attach", &published.address(), "disk"]).args(content_key).arg("--mount").arg(&at);
        let mount = Mount::start(command, &at);
        assert!(fs::read(mount.path("disk.raw")).unwrap() == disk);
        if has_files {
            assert_eq!(fs::read_to_string(mount.path("p0/etc/motd")).unwrap(), "welcome\n");
            assert!(fs::read(mount.path("p0/large")).unwrap() == noise(4, 3 * MIB));
        }
        mount.end(Signal::TERM);
    }
}

#[test]
fn trust_needs_a_key() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &disk(15));
    let publish = |folder: &str, key: &str| {
        let edition = sandbox.json(["publish", "disk", folder, "--key", key]).pop().unwrap();
        edition["key"].as_str().unwrap().to_owned()
    };
    let key = publish("www", "publisher.key");
    let fill = |words: &[&'static str]| [&["attach", "www", "--fill"], words].concat();
    let stderr = sandbox.fails(1, fill(&[]));
    assert!(stderr.contains("no key is known") && stderr.contains("--trust-first-use"), "{stderr}");
    fs::write(sandbox.path("public"), format!("{key}\n")).unwrap();
    sandbox.ok(fill(&["--publisher", "public"]));
    // The place is known from now on.
    sandbox.ok(fill(&[]));
    publish("elsewhere", "other.key");
    fs::copy(sandbox.path("elsewhere/head"), sandbox.path("www/head")).unwrap();
    let stderr = sandbox.fails(1, fill(&["--trust-first-use"]));
    assert!(stderr.contains("signed with other keys"), "{stderr}");
    let run = sandbox.run(["attach", "elsewhere", "--fill", "--trust-first-use"]);
    assert!(run.code == Some(0) && run.stderr.contains("is trusted from now on"), "{}", run.stderr);
    let stderr = sandbox.fails(2, ["attach", "www"]);
    assert!(stderr.contains("--nbd"), "{stderr}");
}

#[test]
fn the_recorded_start_is_prefetched_the_next_time() {
    let Some(server) = static_python() else { return };
    let disk = disk(11);
    let published = Published::at(server, &disk);
    let start = [16 * BLOCK, 4 * BLOCK, 10 * BLOCK];
    let attached = published.attach(&["--no-cache", "--record", "start.profile", "--profile", "auto"]);
    for offset in start {
        assert!(attached.read(offset, 4096).as_deref() == Ok(&disk[offset..offset + 4096]));
    }
    let complaints = attached.complaints();
    assert!(complaints.contains("the edition has no profile"), "{complaints}");
    attached.end();
    let sandbox = &published.sandbox;
    let reads = sandbox.json(["profile", "show", "start.profile"]);
    let offsets: Vec<_> = reads.iter().map(|read| read["offset"].as_u64().unwrap()).collect();
    for offset in start {
        assert!(offsets.contains(&(offset as u64)), "{offset}: {offsets:?}");
    }
    // A profile is never written over another one.
    let again = ["attach", &published.address(), "--nbd", "unix:other", "--record", "start.profile"];
    assert!(sandbox.fails(1, again).contains("start.profile"));

    let www = published.www.to_str().unwrap();
    sandbox.json(["publish", "disk", www, "--key", "publisher.key", "--profile", "start.profile"]);
    for profile in ["auto", "start.profile"] {
        let metrics = free_address();
        let attached = published.attach(&["--no-cache", "--profile", profile, "--metrics", &metrics]);
        // All blocks of the start come before anybody reads one.
        let received = wait_for_metric(&metrics, "varve_attach_received_bytes_total{purpose=\"ahead\"}");
        assert!(received > 0);
        std::thread::sleep(Duration::from_millis(500));
        for offset in start {
            assert!(attached.read(offset, 4096).as_deref() == Ok(&disk[offset..offset + 4096]));
        }
        assert_eq!(wait_for_metric(&metrics, "varve_attach_blocks_total{origin=\"memory\"}"), 3, "{profile}");
        attached.end();
    }
    fs::write(sandbox.path("no.profile"), "something else\n").unwrap();
    let none = ["attach", &published.address(), "--nbd", "unix:other", "--profile", "no.profile"];
    assert!(sandbox.fails(1, none).contains("no.profile is no profile"));
}

/// The disk stays as it is, and the newer edition is announced once.
#[test]
fn a_newer_edition_is_announced() {
    let Some(server) = static_python() else { return };
    let (first, second) = (disk(17), disk(18));
    let mut published = Published::at(server, &first);
    let metrics = free_address();
    let attached = published.attach(&["--look-every", "1s", "--metrics", &metrics, "--log", "accesses"]);
    assert_eq!(wait_for_metric(&metrics, "varve_attach_newest_edition"), 1);
    published.publish(&second);
    let newest = || metrics_page(&metrics).contains("varve_attach_newest_edition 2\n");
    wait_until(newest, || metrics_page(&metrics));
    assert!(metrics_page(&metrics).contains("varve_attach_edition 1\n"));
    // Some more looks find the same edition.
    std::thread::sleep(Duration::from_millis(2500));
    attached.check(&first);
    let complaints = attached.complaints();
    let told = "is published with disk@";
    assert_eq!(complaints.matches(told).count(), 1, "{complaints}");
    assert!(complaints.contains("edition 2 of ") && complaints.contains("stays that of edition 1"));
    attached.end();
    let log = fs::read_to_string(published.sandbox.path("accesses")).unwrap();
    assert_eq!(log.matches(" edition 2 is published\n").count(), 1, "{log}");
    // Without a server, the edition that was attached is still there, and so are its blocks.
    let attached = published.attach(&["--offline"]);
    attached.check(&first);
    attached.end();
    let attached = published.attach(&["--look-every", "never"]);
    attached.check(&second);
    attached.end();
}

/// The metrics of a disk agree with what was done to it.
#[test]
fn metrics_count_what_was_done() {
    let Some(server) = static_python() else { return };
    let disk = disk(19);
    let published = Published::at(server, &disk);
    let metrics = free_address();
    let attached = published.attach(&["--metrics", &metrics, "--profile", "none"]);
    let value = |name: &str| {
        let page = metrics_page(&metrics);
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        line.unwrap_or_else(|| panic!("{name}: {page}"))
    };
    let blocks = |origin: &str| value(&format!("varve_attach_blocks_total{{origin=\"{origin}\"}}"));
    let received =
        |purpose: &str| value(&format!("varve_attach_received_bytes_total{{purpose=\"{purpose}\"}}"));
    assert_eq!((blocks("fetched"), blocks("memory"), value("varve_attach_falsified_total")), (0, 0, 0));
    // A block of noise, twice; a block of zeros; nothing is read ahead for them.
    for block in [8, 8, 0] {
        assert!(
            attached.read(block * BLOCK, 512).as_deref() == Ok(&disk[block * BLOCK..block * BLOCK + 512])
        );
    }
    assert_eq!((blocks("fetched"), blocks("memory"), blocks("zeros")), (1, 1, 1));
    let opening = metrics_page(&metrics)
        .lines()
        .find_map(|line| line.strip_prefix("varve_attach_opening_seconds_total ")?.parse::<f64>().ok());
    assert!(opening.is_some_and(|seconds| 0.0 < seconds && seconds < 60.0), "{opening:?}");
    assert!(received("reader") > BLOCK as u64, "the block, the page and the root");
    assert_eq!((received("ahead"), received("fill"), blocks("failed")), (0, 0, 0));
    attached.check(&disk);
    let (cached, in_cache) = (value("varve_attach_cache_blocks"), value("varve_attach_cache_bytes"));
    assert!(cached > 20 && in_cache > 2 * MIB as u64, "{cached} blocks of {in_cache} bytes");
    assert_eq!(value("varve_attach_cache_damaged_total"), 0);
    let page = metrics_page(&metrics);
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(
            page.contains(&format!("# HELP {name} ")) && page.contains(&format!("# TYPE {name} ")),
            "{name}"
        );
    }
    attached.end();
    // The second time, the blocks come from the cache on disk.
    let attached = published.attach(&["--metrics", &metrics]);
    attached.check(&disk);
    assert!(blocks("storage") > 20 && blocks("fetched") == 0, "{}", metrics_page(&metrics));
    assert_eq!(received("reader"), 0);
    attached.end();
    // The address is in use, which is a mistake of the user.
    let taken = std::net::TcpListener::bind(&metrics).unwrap();
    let words = ["attach", &published.address(), "disk", "--nbd", "unix:other", "--metrics", &metrics];
    let complaint = published.sandbox.fails(1, words);
    assert!(complaint.contains(&metrics), "{complaint}");
    drop(taken);
}

/// A fill takes as long as its rate says, and readers beside it do not wait for it.
#[test]
fn a_fill_keeps_its_rate_and_readers_go_first() {
    let Some(server) = static_python() else { return };
    let disk = noise(21, 6 * MIB);
    let published = Published::at(server, &disk);
    let fill = |rate: &str, cache: &str| {
        let begun = std::time::Instant::now();
        let words = ["attach", &published.address(), "--fill", "--fill-rate", rate, "--cache", cache];
        let filled = published.sandbox.json(words).remove(0);
        assert_eq!(filled["complete"], true, "{filled}");
        (begun.elapsed(), filled["bytes"].as_u64().unwrap())
    };
    let (slow, bytes) = fill("2M", "slow");
    assert!(bytes > 6 * MIB as u64);
    // The last blocks on their way are not waited for.
    let least = Duration::from_millis((bytes - 16 * BLOCK as u64) * 1000 / (2 * MIB as u64));
    assert!(slow >= least, "{slow:?} for {bytes} bytes, at least {least:?}");
    assert!(slow < least * 2 + Duration::from_secs(10), "{slow:?}");
    let (fast, _) = fill("1G", "fast");
    assert!(fast < slow, "{fast:?}, {slow:?}");

    // Beside a reader: at this rate the fill alone would need a minute.
    let metrics = free_address();
    let attached =
        published.attach(&["--fill", "--fill-rate", "100K", "--cache", "beside", "--metrics", &metrics]);
    assert!(wait_for_metric(&metrics, "varve_attach_received_bytes_total{purpose=\"fill\"}") > 0);
    let begun = std::time::Instant::now();
    attached.check(&disk);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    attached.end();
    let usage =
        published.sandbox.fails(2, ["attach", &published.address(), "--nbd", "unix:x", "--fill-rate", "1M"]);
    assert!(usage.contains("--fill"), "{usage}");
}

#[track_caller]
fn wait_until(is_so: impl Fn() -> bool, told: impl Fn() -> String) {
    for _ in 0..200 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{}", told());
}

fn metrics_page(address: &str) -> String {
    let mut page = String::new();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: varve\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_to_string(&mut page).unwrap();
    page.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
}

/// An address of this machine that nobody listens at.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Waits until a metric is not zero, and returns it.
#[track_caller]
fn wait_for_metric(address: &str, name: &str) -> u64 {
    let mut page = String::new();
    for _ in 0..100 {
        page = metrics_page(address);
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        if let Some(value) = value.filter(|value| *value > 0) {
            return value;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{name} stays zero: {page}");
}
