//! A replica on each kind of server, from the first snapshot to the loss of the disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::kinds::{self, Kind};
use crate::recovery_page;
use crate::sandbox::{Run, Sandbox, json_lines, manifest, noise, sample_folder};

/// A store, and a place for its replica on a server.
pub struct Second<'a> {
    pub sandbox: Sandbox,
    pub kind: &'a Kind,
    pub url: String,
    pub place: String,
    port: u16,
}

impl<'a> Second<'a> {
    pub fn new(kind: &'a Kind) -> Self {
        Self::through(kind, kind.server.port)
    }

    /// Uses another port between the program and the server.
    pub fn through(kind: &'a Kind, port: u16) -> Self {
        let place = kind.fresh_place();
        let url = kind.url_through(port, &place);
        Self { sandbox: Sandbox::encrypted(), kind, url, place, port }
    }

    /// The folder in which the server keeps the objects.
    pub fn folder(&self) -> PathBuf {
        self.kind.folder(&self.place)
    }

    /// Runs the program on the store. `URL` stands for the place of the replica.
    pub fn run(&self, words: &[&str]) -> Run {
        self.run_at(self.sandbox.store(), words)
    }

    pub fn run_at(&self, store: &Path, words: &[&str]) -> Run {
        let words = words.iter().map(|word| if *word == "URL" { self.url.as_str() } else { word });
        let mut command = self.sandbox.command_at(store);
        Run::new(command.envs(self.kind.environment(self.port)).args(words).output().unwrap())
    }

    #[track_caller]
    pub fn ok(&self, words: &[&str]) -> String {
        self.ok_at(self.sandbox.store(), words)
    }

    /// The same with the replica itself as the store.
    #[track_caller]
    pub fn ok_in_place(&self, words: &[&str]) -> String {
        self.ok_at(Path::new(&self.url), words)
    }

    #[track_caller]
    pub fn ok_at(&self, store: &Path, words: &[&str]) -> String {
        let run = self.run_at(store, words);
        assert_eq!(
            (run.code, run.stderr.as_str()),
            (Some(0), ""),
            "{}: {words:?}: {}",
            self.kind.name,
            run.text()
        );
        run.text()
    }

    #[track_caller]
    pub fn json(&self, words: &[&str]) -> Value {
        let run = self.run(&[&["--json"], words].concat());
        assert_eq!(run.code, Some(0), "{}: {words:?}: {}", self.kind.name, run.stderr);
        json_lines(&run.text()).remove(0)
    }

    /// Starts the program, and leaves it running.
    pub fn begin(&self, words: &[&str]) -> Child {
        let words = words.iter().map(|word| if *word == "URL" { self.url.as_str() } else { word });
        let mut command = self.sandbox.command();
        command.envs(self.kind.environment(self.port)).args(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The segments that the server has, in order.
    pub fn segments(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for arena in fs::read_dir(self.folder().join("arenas")).into_iter().flatten() {
            let arena = arena.unwrap().path();
            let files = fs::read_dir(arena).into_iter().flatten().map(|file| file.unwrap().path());
            found.extend(files.filter(|file| !file.file_name().unwrap().to_str().unwrap().starts_with('.')));
        }
        found.sort();
        found
    }
}

fn lives_there(kind: Option<Kind>) {
    let Some(kind) = kind else { return };
    let second = Second::new(&kind);
    let (sandbox, disk) = (&second.sandbox, noise(31, 2_300_000));
    sandbox.snapshot_bytes("disk", &disk);
    sample_folder(&sandbox.path("home"));
    sandbox.ok(["snapshot", "home"]);
    let first = second.json(&["replicate", "URL", "--segment-size", "1M"]);
    assert!(first["objects"].as_u64().unwrap() > 6, "{first}");
    assert_eq!(second.json(&["replicate", "URL"])["objects"], 0);
    sandbox.snapshot_bytes("disk", &noise(32, 200_000));
    let grown = second.json(&["replicate", "URL"]);
    assert!((200_000..300_000).contains(&grown["uploaded_bytes"].as_u64().unwrap()), "{grown}");

    for words in
        [&["verify", "--replica", "URL", "--data"][..], &["verify", "--replica", "URL", "--sample", "30%"]]
    {
        assert!(second.ok(words).contains("all is well"), "{}", kind.name);
    }
    // Only this machine knows which copies it has.
    let without_copies = |text: String| {
        let mut snapshots = json_lines(&text);
        for snapshot in &mut snapshots {
            snapshot.as_object_mut().unwrap().remove("copies").unwrap();
        }
        snapshots
    };
    let words = ["snapshots", "--json"];
    assert_eq!(without_copies(second.ok_in_place(&words)), without_copies(sandbox.ok(words)));
    for words in [&["ls", "-lR", "home"][..], &["cat", "home:letter.txt"], &["verify", "--data"]] {
        assert_eq!(second.ok_in_place(words), sandbox.ok(words), "{}: {words:?}", kind.name);
    }
    second.ok_in_place(&["restore", "home", "out"]);
    assert_eq!(manifest(&sandbox.path("out")), manifest(&sandbox.path("home")));

    second.ok(&["clone", "URL", "clone"]);
    let clone = sandbox.path("clone");
    assert!(second.ok_at(&clone, &["verify", "--data"]).contains("all is well: 3 snapshots"));
    assert!(second.run_at(&clone, &["cat", "disk"]).stdout == noise(32, 200_000));

    // A byte changes at the server.
    let mut bytes = second.segments().into_iter().map(|segment| (fs::read(&segment).unwrap(), segment));
    let (whole, victim) = bytes.find(|(whole, _)| whole.len() > 100_000).unwrap();
    fs::write(&victim, [&whole[..9000], &[whole[9000] ^ 8], &whole[9001..]].concat()).unwrap();
    let audited = second.run(&["verify", "--replica", "URL", "--data"]);
    assert_eq!(audited.code, Some(5));
    assert!(audited.text().contains(victim.file_name().unwrap().to_str().unwrap()), "{}", audited.text());
    fs::write(&victim, whole).unwrap();
    second.ok(&["verify", "--replica", "URL", "--data"]);

    // The store itself loses a file.
    fs::remove_file(&sandbox.arenas()[0]).unwrap();
    let run = second.run(&["repair", "--from", "URL"]);
    assert_eq!(run.code, Some(0), "{}: {}{}", kind.name, run.text(), run.stderr);
    assert!(sandbox.ok(["verify", "--data"]).contains("all is well"));

    recovery_page::my_disk_died(
        &kind.url_through(kind.server.port, &kind.fresh_place()),
        &kind.environment(kind.server.port),
    );
}

#[test]
fn on_s3() {
    lives_there(kinds::s3());
}

#[test]
fn on_sftp() {
    lives_there(kinds::sftp());
}

#[test]
fn on_ftp() {
    lives_there(kinds::ftp());
}

#[test]
fn on_ftps() {
    lives_there(kinds::ftps());
}

#[test]
fn on_webdav() {
    lives_there(kinds::webdav());
}

#[test]
fn on_webdavs() {
    lives_there(kinds::webdavs());
}

/// Lost blocks are read from the servers that the store remembers.
#[test]
fn lost_blocks_come_from_a_server() {
    for kind in [kinds::s3(), kinds::sftp(), kinds::webdav()].into_iter().flatten() {
        let second = Second::new(&kind);
        let disk = noise(33, 2_300_000);
        second.sandbox.snapshot_bytes("disk", &disk);
        second.ok(&["replicate", "URL", "--remember"]);
        fs::remove_file(&second.sandbox.arenas()[0]).unwrap();
        let read = second.run(&["cat", "disk"]);
        assert!(read.code == Some(0) && read.stdout == disk, "{}: {}", kind.name, read.stderr);
        assert!(read.stderr.contains("were read from a replica"), "{}: {}", kind.name, read.stderr);
    }
}
