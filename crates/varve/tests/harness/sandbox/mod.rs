//! A temporary folder for the real program: its arguments, its output, and sample sources.
#![allow(dead_code, reason = "each test uses its own part of this")]
#![allow(clippy::print_stderr, reason = "says what it skipped")]

pub mod schema;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

/// The exit status and the output of a run.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Run {
    pub fn new(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "{stderr}");
        Self { code: output.status.code(), stdout: output.stdout, stderr }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the only result of a run with `--json`.
    #[track_caller]
    pub fn result(&self) -> Value {
        let mut results = json_lines(&self.text());
        assert_eq!(results.len(), 1, "{}{}", self.text(), self.stderr);
        results.remove(0)
    }

    /// Returns the messages of a run with `--json`: those of all lines that are not results.
    #[track_caller]
    pub fn complaints(&self) -> String {
        let lines = all_json_lines(&self.text());
        let asides = lines.iter().filter(|line| is_aside(line));
        asides.map(|line| format!("{}: {}\n", line["path"], line["message"].as_str().unwrap())).collect()
    }
}

/// A temporary folder, with a key and a store in it.
#[derive(Clone)]
pub struct Sandbox {
    folder: Arc<TempDir>,
    program: PathBuf,
    store: PathBuf,
    key: Option<PathBuf>,
}

impl Sandbox {
    /// Makes a sandbox without a store.
    pub fn empty() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let (store, key) = (folder.path().join("store"), folder.path().join("key"));
        write_secret(&key, &noise(1, 32));
        Self { folder, program: env!("CARGO_BIN_EXE_varve").into(), store, key: Some(key) }
    }

    /// Makes an encrypted store of small arenas.
    pub fn encrypted() -> Self {
        let sandbox = Self::empty();
        sandbox.ok(["init", "--arena-size", "1M"]);
        sandbox
    }

    /// Returns the same sandbox for the program `varve-plan`.
    pub fn planner(&self) -> Self {
        Self { program: env!("CARGO_BIN_EXE_varve-plan").into(), ..self.clone() }
    }

    /// Adds a write-only key in the file `writer`, and an append-only one in the file `adder`.
    pub fn add_limited_keys(&self) {
        for (key, role) in [("writer", "--write-only"), ("adder", "--append-only")] {
            fs::write(self.path(key), noise(key.len() as u64, 32)).unwrap();
            self.ok(["key", "add", role, "--new-key-file", key]);
        }
    }

    /// Makes a store of small arenas with these arguments.
    pub fn made_with(words: &[&str]) -> Self {
        let mut sandbox = Self::empty();
        if words.contains(&"--plaintext") {
            sandbox.key = None;
        }
        sandbox.ok([&["init", "--arena-size", "1M"], words].concat());
        sandbox
    }

    /// Copies a store from another folder, with its key if it has one.
    pub fn copy_of(store: &Path, key: Option<&Path>) -> Self {
        let mut sandbox = Self::empty();
        sandbox.set_key(key.map(Path::to_path_buf));
        copy_folder(store, &sandbox.store);
        sandbox
    }

    pub fn key(&self) -> Option<&Path> {
        self.key.as_deref()
    }

    /// Keeps the store and the sources, and takes another key, or none. A key outside the sandbox
    /// is copied: other users may read it there, and the program then refuses it.
    pub fn set_key(&mut self, key: Option<PathBuf>) {
        self.key = key.map(|key| match fs::read(&key) {
            Ok(contents) if !key.starts_with(self.folder.path()) => {
                let copy = self.path("key of elsewhere");
                write_secret(&copy, &contents);
                copy
            }
            Ok(_) => {
                close_to_others(&key);
                key
            }
            Err(_) => key,
        });
    }

    /// Changes the place of the store.
    pub fn set_store(&mut self, store: PathBuf) {
        self.store = store;
    }

    pub fn store(&self) -> &Path {
        &self.store
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().into()
    }

    /// Gives the folder and all its contents to a user.
    pub fn give_to(&self, user: u32) {
        tool("chown", ["-R", &format!("{user}:{user}"), self.path("").to_str().unwrap()]);
    }

    /// Returns the program's command with store and key, and without environment variables that
    /// would change its output.
    pub fn command(&self) -> Command {
        self.command_at(&self.store)
    }

    /// Does the same for a store at another place, or a replica.
    pub fn command_at(&self, store: &Path) -> Command {
        self.command_of(&self.program, store)
    }

    /// Returns the command of another user, who may not reach the folder in which the program was
    /// built. So it is a copy in the folder of the sandbox.
    pub fn command_as(&self, user: u32) -> Command {
        let copy = self.path("program");
        if !copy.exists() {
            // Not `fs::copy`, for the reason that is given at `write_program`.
            tool("cp", [&self.program, &copy]);
        }
        let mut command = self.command_of(&copy, &self.store);
        command.uid(user).gid(user);
        command
    }

    fn command_of(&self, program: &Path, store: &Path) -> Command {
        let mut command = self.bare_command(program);
        command.arg("--store").arg(store);
        if let Some(key) = &self.key {
            command.arg("--key-file").arg(key);
        }
        command
    }

    /// Returns the command without store and key.
    pub fn command_without_store(&self) -> Command {
        self.bare_command(&self.program)
    }

    fn bare_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("VARVE_") {
                command.env_remove(variable);
            }
        }
        command.env("XDG_CACHE_HOME", self.path("cache")).env("XDG_STATE_HOME", self.path("state"));
        command.env("TZ", "UTC").stdin(Stdio::null()).current_dir(self.folder.path());
        command
    }

    /// Runs the program. Before that, new key files in the arguments become private to their owner.
    pub fn run<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Run {
        let words: Vec<_> = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        for pair in
            words.windows(2).filter(|pair| pair[0] == "--new-key-file" || pair[0] == "--from-key-file")
        {
            close_to_others(&self.path("").join(&pair[1]));
        }
        Run::new(self.command().args(words).output().unwrap())
    }

    /// Runs the program, which must succeed. Returns its output.
    #[track_caller]
    pub fn ok<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> String {
        let run = self.run(words);
        assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
        run.text()
    }

    /// Runs the program, which must fail with this exit status. Returns its error output.
    #[track_caller]
    pub fn fails<S: AsRef<OsStr>>(&self, code: i32, words: impl IntoIterator<Item = S>) -> String {
        let run = self.run(words);
        assert_eq!(run.code, Some(code), "{}{}", run.text(), run.stderr);
        assert!(!run.stderr.is_empty(), "a failure says why");
        run.stderr
    }

    /// Runs the program, which must print JSON, one object on each line. Returns the results,
    /// without warnings and other messages.
    #[track_caller]
    pub fn json<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Vec<Value> {
        let run = Run::new(self.command().arg("--json").args(words).output().unwrap());
        assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
        json_lines(&run.text())
    }

    /// Returns the ids of all snapshots, oldest first.
    pub fn ids(&self) -> Vec<String> {
        self.json(["snapshots"]).iter().map(|one| one["id"].as_str().unwrap().into()).collect()
    }

    /// Archives bytes from standard input.
    #[track_caller]
    pub fn snapshot_bytes(&self, name: &str, bytes: &[u8]) -> Value {
        let mut child = self
            .command()
            .args(["--json", "snapshot", "-", "--name", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        let run = Run::new(child.wait_with_output().unwrap());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        json_lines(&run.text()).remove(0)
    }

    /// Returns the files of the log, in order.
    pub fn arenas(&self) -> Vec<PathBuf> {
        let listed = fs::read_dir(self.store.join("arenas")).unwrap();
        let mut arenas: Vec<_> = listed.map(|file| file.unwrap().path()).collect();
        arenas.sort();
        arenas
    }
}

/// Returns the results among lines of JSON. Each line must match the schema.
#[track_caller]
pub fn json_lines(text: &str) -> Vec<Value> {
    let mut lines = all_json_lines(text);
    lines.retain(|line| !is_aside(line));
    lines
}

/// Parses all lines of JSON. Each line must match the schema.
#[track_caller]
pub fn all_json_lines(text: &str) -> Vec<Value> {
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    lines.iter().for_each(schema::check_line);
    lines
}

/// Returns true if a line is not a result.
fn is_aside(line: &Value) -> bool {
    ["error", "warning", "hint", "notice", "problem", "waiting"].iter().any(|kind| line["type"] == *kind)
}

/// Returns incompressible bytes, which are the same for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Writes a file that only its owner may read.
pub fn write_secret(path: &Path, contents: &[u8]) {
    fs::write(path, contents).unwrap();
    close_to_others(path);
}

/// Writes an executable script, and the folder that it is in.
///
/// Another process writes it: a file that this process has open for writing is inherited by every
/// child that another thread starts, and until that child has started its own program, the kernel
/// refuses to execute the file ("Text file busy").
#[track_caller]
pub fn write_program(path: &Path, script: &str) {
    let mut install = Command::new("install")
        .args(["-D", "-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    install.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(install.wait().unwrap().success());
}

fn close_to_others(path: &Path) {
    // If the file is missing, the program has to report it.
    drop(fs::set_permissions(path, PermissionsExt::from_mode(0o600)));
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the Python with the packages of `rosetta/`: that of `script/test`, or else the system's.
pub fn python() -> Command {
    Command::new(std::env::var_os("ROSETTA_PYTHON").unwrap_or_else(|| "python3".into()))
}

/// Returns true if a program is installed.
pub fn has(program: &str) -> bool {
    let folders = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Runs another program, which must succeed.
#[track_caller]
pub fn tool<S: AsRef<OsStr>>(program: &str, words: impl IntoIterator<Item = S>) {
    let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(words).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Writes a sparse image of `size` bytes that has only these pieces.
pub fn sparse_image(path: &Path, size: u64, pieces: &[(u64, &[u8])]) {
    let mut file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for (offset, bytes) in pieces {
        file.seek(SeekFrom::Start(*offset)).unwrap();
        file.write_all(bytes).unwrap();
    }
    file.sync_all().unwrap();
}

/// Overwrites some bytes of a file.
pub fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}

/// Returns the size that a file takes on the disk.
pub fn bytes_on_disk(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Makes a folder with every kind of node that this user can make.
pub fn sample_folder(root: &Path) {
    fs::create_dir_all(root.join("deep/er/still")).unwrap();
    fs::create_dir(root.join("nothing")).unwrap();
    fs::write(root.join("empty"), []).unwrap();
    fs::write(root.join("letter.txt"), "Dear archive,\n").unwrap();
    fs::write(root.join("deep/noise.bin"), noise(2, 300_000)).unwrap();
    fs::write(root.join("deep/er/still/text.conf"), "a = 1\n".repeat(9000)).unwrap();
    sparse_image(&root.join("sparse"), 3 << 20, &[(1 << 20, b"in the middle")]);
    fs::hard_link(root.join("letter.txt"), root.join("deep/the same letter")).unwrap();
    symlink("../letter.txt", root.join("deep/link")).unwrap();
    symlink("/nowhere/at all", root.join("dangling")).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"not utf-8 \xff\xfe")), "bytes").unwrap();
    fs::write(root.join("new\nline"), "tricky").unwrap();
    fs::set_permissions(root.join("letter.txt"), PermissionsExt::from_mode(0o4751)).unwrap();
    fs::set_permissions(root.join("nothing"), PermissionsExt::from_mode(0o1700)).unwrap();
    drop(UnixListener::bind(root.join("socket")).unwrap());
    tool("mkfifo", [root.join("fifo")]);
    if is_root()
        && Command::new("mknod").arg(root.join("null")).args(["c", "1", "3"]).status().unwrap().success()
    {
        std::os::unix::fs::lchown(root.join("dangling"), Some(1234), Some(5678)).unwrap();
    }
    let xattr = rustix::fs::XattrFlags::empty();
    if rustix::fs::lsetxattr(root.join("empty"), "user.note", b"kept\0whole", xattr).is_err() {
        eprintln!("skipped: extended attributes, which this file system does not keep");
    }
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(981_173_106, 123_456_789);
    File::options().write(true).open(root.join("empty")).unwrap().set_modified(time).unwrap();
}

/// Describes everything that a restore must bring back: for every path its kind, owner, times and
/// bytes.
pub fn manifest(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut links = BTreeMap::new();
    describe(root, Path::new(""), &mut found, &mut links);
    found
}

fn describe(
    root: &Path,
    below: &Path,
    found: &mut BTreeMap<PathBuf, String>,
    links: &mut BTreeMap<u64, PathBuf>,
) {
    let path = if below.as_os_str().is_empty() { root.to_path_buf() } else { root.join(below) };
    let meta = fs::symlink_metadata(&path).unwrap();
    let kind = meta.file_type();
    let mut text = format!(
        "mode {:o} owner {}:{} time {}.{:09}",
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.mtime(),
        meta.mtime_nsec()
    );
    if kind.is_file() {
        let first = links.entry(meta.ino()).or_insert_with(|| below.to_path_buf());
        let same = if meta.nlink() > 1 { first.clone() } else { PathBuf::new() };
        text += &format!(" size {} hash {:x} links {same:?}", meta.len(), hash(&fs::read(&path).unwrap()));
    }
    if kind.is_symlink() {
        text += &format!(" target {:?}", fs::read_link(&path).unwrap());
    }
    if kind.is_char_device() || kind.is_block_device() {
        text += &format!(" device {:x}", meta.rdev());
    }
    text += &xattrs(&path);
    found.insert(below.into(), text);
    if kind.is_dir() {
        let mut names: Vec<_> =
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names {
            describe(root, &below.join(name), found, links);
        }
    }
}

fn xattrs(path: &Path) -> String {
    let mut names = vec![0; 4096];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names) else { return String::new() };
    let mut text = String::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        text += &format!(" {}={:?}", String::from_utf8_lossy(name), &value[..length]);
    }
    text
}

fn hash(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
