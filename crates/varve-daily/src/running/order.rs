//! The order of a job: what a process of its own does for a run.
//!
//! The order is in memory, because all users of the machine can see a command line. A password is
//! in neither: it is in the environment of the process.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::{ReadingOptions, SourceWhat};

/// The order of a job. The store, its key and the host are in the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOrder {
    /// The time to wait for another writer of the store.
    pub wait: Duration,
    pub work: OrderedWork,
}

/// The work of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderedWork {
    Snapshot(SnapshotOrder),
    Replicate(ReplicateOrder),
    /// Reads the log; of its data this share, such as `3%`, or all of it.
    Verify {
        share: Option<String>,
    },
    Forget(ForgetOrder),
    /// Frees space, for at most this time.
    Reclaim {
        at_most: Option<Duration>,
    },
    Drill(DrillOrder),
    /// Judges the promises of a configuration, and sends what has changed.
    Notify {
        config: PathBuf,
    },
}

/// Takes a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotOrder {
    pub what: SourceWhat,
    /// The name of the source. The output of a program has its own.
    pub name: String,
    pub options: ReadingOptions,
    /// The frozen view that has the contents of the source.
    pub read_from: Option<PathBuf>,
}

/// Brings a replica up to date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicateOrder {
    /// The folder or URL, without a password.
    pub target: String,
    /// The upload rates, in their text form.
    pub upload: Option<String>,
}

/// Applies the rules of a source to its snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetOrder {
    pub host: String,
    /// The names that its snapshots have.
    pub series: Vec<String>,
    /// The rules as lines of a policy file, such as `keep_daily = 7`.
    pub rules: Vec<String>,
    /// The time zone of days; `None` for that of the machine.
    pub zone: Option<String>,
}

/// Restores a few files of a snapshot, to see that it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillOrder {
    /// The id of the snapshot.
    pub snapshot: String,
    pub file_count: u32,
    /// True if a machine is started from the archived disk.
    pub boot: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_back_as_they_were_given() {
        let command =
            SourceWhat::Command { program: vec!["pg_dump".into(), "--all".into()], name: "db".into() };
        let options = ReadingOptions { exclude: vec!["*.tmp".into()], ..ReadingOptions::default() };
        let snapshot = |what, read_from| {
            OrderedWork::Snapshot(SnapshotOrder {
                what,
                name: "home".into(),
                options: options.clone(),
                read_from,
            })
        };
        let works = [
            snapshot(SourceWhat::Folder("/home".into()), Some("/var/lib/varve/view".into())),
            snapshot(command, None),
            OrderedWork::Replicate(ReplicateOrder { target: "/mnt/usb".into(), upload: Some("2M".into()) }),
            OrderedWork::Verify { share: Some("3%".into()) },
            OrderedWork::Reclaim { at_most: Some(Duration::from_secs(90)) },
            OrderedWork::Notify { config: "/etc/varve/varve.toml".into() },
            OrderedWork::Drill(DrillOrder { snapshot: "ab".into(), file_count: 50, boot: true }),
        ];
        for work in works {
            let order = JobOrder { wait: Duration::from_secs(7200), work };
            let text = serde_json::to_string(&order).unwrap();
            assert_eq!(serde_json::from_str::<JobOrder>(&text).unwrap(), order, "{text}");
        }
    }
}
