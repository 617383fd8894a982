//! A virtual machine in QEMU without a system: the test makes it write to its disks.
#![allow(dead_code, reason = "each test uses its own part of this")]
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use varve_machine::Qmp;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns true if these programs are installed. Otherwise prints the name of the skipped test.
pub fn has(programs: &[&str], test: &str) -> bool {
    let is_missing =
        |program: &&&str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_err();
    match programs.iter().find(is_missing) {
        Some(program) => {
            eprintln!("skipped as {program} is not installed: {test}");
            false
        }
        None => true,
    }
}

/// Runs a program, which must succeed. Returns its output.
#[track_caller]
pub fn tool(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until `look` finds something.
#[track_caller]
#[allow(clippy::disallowed_methods, reason = "waits for another program")]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..20_000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what} did not come");
}

/// A running machine with two disks, `d0` in `a.qcow2` and `disk1` in `b.raw`. It is killed on
/// drop.
pub struct Machine {
    child: Child,
    /// The monitor socket for the program under test.
    pub socket: PathBuf,
    /// A second monitor, for the test.
    own: Qmp,
}

impl Machine {
    /// Makes the disks, with their sizes in MiB.
    pub fn make_disks(folder: &Path, a: u32, b: u32) {
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        tool("qemu-img", &["create", "-q", "-f", "qcow2", &path("a.qcow2"), &format!("{a}M")]);
        tool("qemu-img", &["create", "-q", "-f", "raw", &path("b.raw"), &format!("{b}M")]);
    }

    /// Starts the machine, with its processor stopped.
    pub fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    /// Does the same with more devices.
    pub fn start_with(folder: &Path, more: &[&str]) -> Self {
        for name in ["qmp", "own"] {
            let _ = fs::remove_file(folder.join(name));
        }
        let words = "-nodefaults -display none -machine pc,accel=tcg -m 64 -S -name web \
            -qmp unix:qmp,server=on,wait=off -qmp unix:own,server=on,wait=off \
            -drive file=a.qcow2,if=virtio,id=d0 \
            -blockdev driver=file,filename=b.raw,node-name=file1 -blockdev driver=raw,file=file1,node-name=node1 \
            -device ide-hd,drive=node1,id=disk1,bootindex=3";
        let mut command = Command::new("qemu-system-x86_64");
        command.args(words.split_whitespace()).args(more).current_dir(folder).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let own = wait_for("the machine's monitor", || Qmp::connect(&folder.join("own"), PATIENCE).ok());
        Self { child, socket: folder.join("qmp"), own }
    }

    #[track_caller]
    pub fn qmp(&mut self, command: &str, arguments: Value) -> Value {
        self.own.execute(command, arguments).unwrap()
    }

    /// Makes the machine write bytes of one value to a disk.
    #[track_caller]
    pub fn write(&mut self, disk: &str, offset: u64, length: u64, value: u8) {
        // QEMU finds a disk whose node has a name of its own by its device.
        let disk = if disk == "disk1" { "-d disk1" } else { disk };
        let line = format!("qemu-io {disk} \"write -q -P {value} {offset} {length}\"");
        let said = self.qmp("human-monitor-command", json!({ "command-line": line }));
        assert_eq!(said.as_str().unwrap().trim(), "", "{line}");
    }

    /// Returns the number of exports, jobs and nodes in QEMU that belong to Varve.
    pub fn parts(&mut self) -> usize {
        let lists = [
            (self.qmp("query-block-exports", json!({})), "id"),
            (self.qmp("query-jobs", json!({})), "id"),
            (self.qmp("query-named-block-nodes", json!({ "flat": true })), "node-name"),
        ];
        let is_ours =
            |value: &&Value, key: &str| value[key].as_str().is_some_and(|name| name.starts_with("varve-"));
        lists
            .iter()
            .map(|(list, key)| list.as_array().unwrap().iter().filter(|part| is_ours(part, key)).count())
            .sum()
    }

    /// Returns the dirty bitmaps of the disks `d0` and `disk1`.
    pub fn records(&mut self) -> [Vec<Value>; 2] {
        let nodes = self.qmp("query-named-block-nodes", json!({ "flat": true }));
        ["a.qcow2", "b.raw"].map(|file| {
            let nodes = nodes.as_array().unwrap().iter();
            let of_file = nodes.filter(|node| node["file"] == file && node["drv"] != "file");
            of_file.flat_map(|node| node["dirty-bitmaps"].as_array().cloned().unwrap_or_default()).collect()
        })
    }

    /// Returns the size of all deleted files that QEMU has open.
    pub fn nameless_bytes(&self) -> u64 {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let files = open.filter_map(|entry| fs::metadata(entry.unwrap().path()).ok());
        files.filter(|file| file.is_file() && file.nlink() == 0).map(|file| file.len()).sum()
    }

    /// Makes QEMU quit.
    pub fn quit(mut self) {
        let _ = self.own.execute("quit", json!({}));
        self.child.wait().unwrap();
    }

    /// Kills QEMU.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
