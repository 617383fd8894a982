//! Holds a moment of a running machine's disks in QEMU for reading, while the machine runs.
//!
//! ```text
//! machine ─▶ drive ◀──backing── scratch ─▶ export ─▶ this process
//!              └─ before a write: the old data ─▶┘
//! ```
//!
//! Each drive gets a scratch image with the drive as its backing image. From the transaction on,
//! QEMU copies data to it before the machine overwrites it. The scratch file and the socket belong
//! to this process, have no name, and are passed as open files. So QEMU needs no permissions in our
//! folders, and a crash of either side leaves no file behind.
//!
//! All objects that are made in QEMU have a name with the store's tag as prefix, and only one
//! program at a time writes to a store. So [`dismantle`] removes the objects of this run or of a
//! killed run, and never those of others.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use varve_block::visible;

use crate::chain::{BitmapName, StoreTag, TrustedBitmap};
use crate::drives::RunningDrive;
use crate::edge::{Deadline, sleep};
use crate::private_folder::PrivateFolder;
use crate::qmp::{Qmp, QmpError};

/// The pauses between queries for the end of an operation. Most operations take less than a
/// millisecond, and each pause is twice as long as the one before.
const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(16);

/// The reason why a moment could not be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// QEMU failed.
    #[error("{0}")]
    Qmp(#[from] QmpError),
    /// There is no space for the data that the machine overwrites meanwhile.
    #[error("cannot make a scratch file in {folder}", folder = folder.display())]
    Scratch { folder: std::path::PathBuf, source: io::Error },
    /// There is no socket to read through.
    #[error("cannot make a socket to read through")]
    Socket(#[source] io::Error),
    /// A job of QEMU failed.
    #[error("QEMU did not prepare the scratch file: {said}")]
    Job {
        /// The reason that QEMU gives.
        said: String,
    },
    /// QEMU's only NBD server is in use.
    #[error(
        "this QEMU already serves block devices for another program ({said}): try again later, or end its server with nbd-server-stop"
    )]
    ServerTaken {
        /// QEMU's refusal.
        said: String,
    },
}

/// A drive to hold, and the record to begin.
pub(crate) struct DriveToHold<'a> {
    pub drive: &'a RunningDrive,
    pub since: Option<&'a TrustedBitmap>,
    /// The record that begins with this moment.
    pub record: BitmapName,
    /// True if the record outlives QEMU.
    pub is_persistent: bool,
}

/// The objects that hold a moment.
pub(crate) struct HeldMoment {
    store: StoreTag,
    /// The files for overwritten data, one for each drive.
    pub scratch: Vec<Arc<File>>,
    /// The folder of the socket.
    folder: PrivateFolder,
}

/// Prepares to hold drives. This does not affect the machine.
pub(crate) fn prepare(
    qmp: &mut Qmp,
    store: StoreTag,
    drives: &[&RunningDrive],
    scratch_folder: &Path,
) -> Result<HeldMoment, HoldError> {
    let mut scratch = Vec::new();
    for (number, drive) in drives.iter().enumerate() {
        let no_room = |source| HoldError::Scratch { folder: scratch_folder.into(), source };
        let file = tempfile::tempfile_in(scratch_folder).map_err(no_room)?;
        add_scratch(qmp, store, number, drive, &file)?;
        scratch.push(Arc::new(file));
    }
    let folder = PrivateFolder::create("varve-night-").map_err(HoldError::Socket)?;
    let listener = UnixListener::bind(folder.path().join("nbd")).map_err(HoldError::Socket)?;
    let name = format!("varve-{store}");
    qmp.execute_with("getfd", json!({ "fdname": name }), Some(listener.as_fd()))?;
    let address = json!({ "addr": { "type": "fd", "data": { "str": name } } });
    match qmp.execute("nbd-server-start", address) {
        Err(QmpError::Refused { said, .. }) => {
            let _ = qmp.execute("closefd", json!({ "fdname": name }));
            return Err(HoldError::ServerTaken { said });
        }
        started => drop(started?),
    }
    Ok(HeldMoment { store, scratch, folder })
}

fn add_scratch(
    qmp: &mut Qmp,
    store: StoreTag,
    number: usize,
    drive: &RunningDrive,
    file: &File,
) -> Result<(), HoldError> {
    let (node, file_node) = (part(store, number), format!("{}f", part(store, number)));
    let opaque = json!({ "opaque": format!("varve-{store}") });
    let set = qmp.execute_with("add-fd", opaque, Some(file.as_fd()))?;
    let number_of_set = set["fdset-id"].as_u64();
    let number_of_set =
        number_of_set.ok_or(QmpError::Lacks { command: "add-fd".into(), what: "fdset-id" })?;
    // The file has no name and disappears with its users, so it need not be flushed to the disk.
    let file_options = json!({
        "driver": "file", "node-name": file_node, "filename": format!("/dev/fdset/{number_of_set}"),
        "cache": { "no-flush": true },
    });
    let job = format!("{}c", part(store, number));
    let options = json!({ "driver": "qcow2", "file": file_node, "size": drive.size });
    let [added, begun, jobs] = qmp.execute_together([
        ("blockdev-add", file_options),
        ("blockdev-create", json!({ "job-id": job, "options": options })),
        ("query-jobs", json!({})),
    ])?;
    added?;
    begun?;
    wait_for_job(qmp, &job, jobs?)?;
    let scratch = json!({ "driver": "qcow2", "node-name": node, "file": file_node, "backing": drive.node });
    let [dismissed, added] =
        qmp.execute_together([("job-dismiss", json!({ "id": job })), ("blockdev-add", scratch)])?;
    dismissed?;
    added?;
    Ok(())
}

/// Waits until a job that ends by itself has ended. `jobs` is the last known list of jobs. The job
/// must then be dismissed; [`dismantle`] does that after a failure.
fn wait_for_job(qmp: &mut Qmp, id: &str, mut jobs: Value) -> Result<(), HoldError> {
    let (deadline, mut pauses) = (Deadline::after(Duration::from_secs(60)), Pauses::default());
    loop {
        let job = find(&jobs, id);
        match job.as_ref().and_then(|job| job["status"].as_str()) {
            Some("concluded") => {
                let said = job.as_ref().and_then(|job| job["error"].as_str());
                return said.map_or(Ok(()), |said| Err(HoldError::Job { said: visible(said) }));
            }
            Some(_) if deadline.left().is_some() => pauses.wait(),
            Some(status) => return Err(HoldError::Job { said: format!("it is still {}", visible(status)) }),
            None => return Err(HoldError::Job { said: "the job has disappeared".into() }),
        }
        jobs = qmp.execute("query-jobs", json!({}))?;
    }
}

/// The pauses between queries for the end of an operation.
struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(PAUSE_MIN)
    }
}

impl Pauses {
    fn wait(&mut self) {
        sleep(self.0);
        self.0 = (2 * self.0).min(PAUSE_MAX);
    }
}

fn find(list: &Value, id: &str) -> Option<Value> {
    list.as_array()?.iter().find(|job| job["id"].as_str() == Some(id)).cloned()
}

/// Returns the name of one of our objects in QEMU: a node, a job, an export. Nodes allow 31 bytes.
pub(crate) fn part(store: StoreTag, number: usize) -> String {
    format!("varve-{store}-{number}")
}

impl HeldMoment {
    /// Takes the moment, which is the same for all drives.
    ///
    /// The order matters if a drive has an I/O thread. A write between two of these steps is
    /// recorded in both records, so that neither snapshot lacks it.
    pub(crate) fn hold(&self, qmp: &mut Qmp, drives: &[DriveToHold<'_>]) -> Result<(), QmpError> {
        // If QEMU supports this option, a full scratch file fails the snapshot and not the
        // machine's write.
        match self.transact(qmp, drives, &json!({ "on-cbw-error": "break-snapshot" })) {
            Err(QmpError::Refused { said, .. }) if said.contains("on-cbw-error") => {
                self.transact(qmp, drives, &json!({}))
            }
            done => done,
        }
    }

    fn transact(&self, qmp: &mut Qmp, drives: &[DriveToHold<'_>], more: &Value) -> Result<(), QmpError> {
        let mut actions = Vec::new();
        for held in drives {
            let data = json!({
                "node": held.drive.node, "name": held.record.to_string(), "persistent": held.is_persistent,
            });
            actions.push(json!({ "type": "block-dirty-bitmap-add", "data": data }));
        }
        for (number, held) in drives.iter().enumerate() {
            let name = part(self.store, number);
            let mut data =
                json!({ "device": held.drive.node, "target": name, "sync": "none", "job-id": name });
            for (key, value) in more.as_object().into_iter().flatten() {
                data[key] = value.clone();
            }
            actions.push(json!({ "type": "blockdev-backup", "data": data }));
        }
        for held in drives {
            if let Some(since) = held.since {
                let data = json!({ "node": held.drive.node, "name": since.record });
                actions.push(json!({ "type": "block-dirty-bitmap-disable", "data": data }));
            }
        }
        qmp.execute("transaction", json!({ "actions": actions })).map(drop)
    }

    /// Exports a held drive. The export has the name of the node.
    pub(crate) fn export(&self, qmp: &mut Qmp, number: usize, record: Option<&str>) -> Result<(), QmpError> {
        let name = part(self.store, number);
        let mut export =
            json!({ "type": "nbd", "id": name, "node-name": name, "name": name, "writable": false });
        if let Some(record) = record {
            export["bitmaps"] = json!([record]);
        }
        qmp.execute("block-export-add", export).map(drop)
    }

    /// Returns the path of the socket for reading.
    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("nbd")
    }

    /// Returns true if every drive is still held: a job that has ended holds nothing.
    pub(crate) fn is_held(store: StoreTag, qmp: &mut Qmp, count: usize) -> Result<bool, QmpError> {
        let jobs = qmp.execute("query-jobs", json!({}))?;
        let is_held = |number: usize| {
            let job = find(&jobs, &part(store, number));
            let job = job.as_ref();
            job.is_some_and(|job| job["error"].is_null())
                && job.and_then(|job| job["status"].as_str()).is_some_and(|status| status == "running")
        };
        Ok((0..count).all(is_held))
    }
}

/// Removes all our objects from QEMU, except the records of changes. Returns their number.
pub(crate) fn dismantle(qmp: &mut Qmp, store: StoreTag) -> Result<usize, QmpError> {
    let (mut count, mut left_before) = (0, usize::MAX);
    let (deadline, mut pauses) = (Deadline::after(Duration::from_secs(60)), Pauses::default());
    let sets = loop {
        let [exports, jobs, nodes, sets] = qmp.execute_together([
            ("query-block-exports", json!({})),
            ("query-jobs", json!({})),
            ("query-named-block-nodes", json!({ "flat": true })),
            ("query-fdsets", json!({})),
        ])?;
        let found = OwnObjects::find(store, &exports?, &jobs?, &nodes?);
        let left = found.count();
        if left == 0 {
            break refused_is_well(sets)?.unwrap_or_default();
        }
        count = count.max(left);
        if deadline.left().is_none() {
            let said = format!("{left} objects of an earlier run are in use, and cannot be removed");
            return Err(QmpError::Refused { command: "blockdev-del".into(), said });
        }
        // There is no pause as long as objects disappear. After a pause, the earlier count is not
        // compared.
        if left >= left_before {
            pauses.wait();
            left_before = usize::MAX;
            continue;
        }
        left_before = left;
        for done in qmp.execute_all(&found.removals())? {
            refused_is_well(done)?;
        }
    };
    remove_files(qmp, store, &sets)?;
    Ok(count)
}

fn is_ours(store: StoreTag, name: &str) -> bool {
    name == format!("varve-{store}") || name.starts_with(&format!("varve-{store}-"))
}

/// Our objects in QEMU.
struct OwnObjects {
    exports: Vec<String>,
    /// The jobs, each with whether it is over.
    jobs: Vec<(String, bool)>,
    nodes: Vec<String>,
    /// True if nothing is exported, not even for others.
    is_server_idle: bool,
}

impl OwnObjects {
    /// Finds them in QEMU's lists.
    fn find(store: StoreTag, exports: &Value, jobs: &Value, nodes: &Value) -> Self {
        let ours = |list: &Value, key: &str| -> Vec<String> {
            let names = list.as_array().into_iter().flatten().filter_map(|part| part[key].as_str());
            names.filter(|name| is_ours(store, name)).map(str::to_owned).collect()
        };
        let with_state = |name: String| {
            let is_over = find(jobs, &name).is_some_and(|job| job["status"].as_str() == Some("concluded"));
            (name, is_over)
        };
        let mut nodes = ours(nodes, "node-name");
        // A node is removed before its file node, whose name is longer.
        nodes.sort_by_key(String::len);
        Self {
            exports: ours(exports, "id"),
            jobs: ours(jobs, "id").into_iter().map(with_state).collect(),
            nodes,
            is_server_idle: exports.as_array().is_none_or(Vec::is_empty),
        }
    }

    fn count(&self) -> usize {
        self.exports.len() + self.jobs.len() + self.nodes.len()
    }

    /// Returns the commands that remove what can be removed now: nodes only once nobody uses them.
    fn removals(&self) -> Vec<(&'static str, Value)> {
        let mut commands = Vec::new();
        for export in &self.exports {
            commands.push(("block-export-del", json!({ "id": export, "mode": "hard" })));
        }
        for (job, is_over) in &self.jobs {
            commands.push((if *is_over { "job-dismiss" } else { "job-cancel" }, json!({ "id": job })));
        }
        if commands.is_empty() {
            // The server may be stopped once nothing is exported; if it serves others, it stays.
            if self.is_server_idle {
                commands.push(("nbd-server-stop", json!({})));
            }
            commands.extend(self.nodes.iter().map(|node| ("blockdev-del", json!({ "node-name": node }))));
        }
        commands
    }
}

/// Removes the sets of open files that are ours alone.
fn remove_files(qmp: &mut Qmp, store: StoreTag, sets: &Value) -> Result<(), QmpError> {
    let is_our_file = |file: &Value| file["opaque"].as_str().is_some_and(|name| is_ours(store, name));
    let is_ours_alone = |set: &&Value| {
        let mut files = set["fds"].as_array().into_iter().flatten().peekable();
        files.peek().is_some() && files.all(is_our_file)
    };
    let sets = sets.as_array().into_iter().flatten().filter(is_ours_alone);
    let removals: Vec<_> = sets.map(|set| ("remove-fd", json!({ "fdset-id": set["fdset-id"] }))).collect();
    for done in qmp.execute_all(&removals)? {
        refused_is_well(done)?;
    }
    Ok(())
}

/// Ignores a refusal: the object is gone already, or the command is repeated.
pub(crate) fn refused_is_well(done: Result<Value, QmpError>) -> Result<Option<Value>, QmpError> {
    match done {
        Ok(answer) => Ok(Some(answer)),
        Err(QmpError::Refused { command, said }) => {
            tracing::debug!(command, said, "refused");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
