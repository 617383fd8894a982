//! Retention: vectors made by restic and borg, hand-made vectors, properties, and text forms.

mod by_hand;
mod over_time;
mod properties;
mod text;
mod vectors;

use varve_archive::SnapshotId;
use varve_archive::retention::{ContentKind, Dated, RetentionPolicy, Verdict, judge};
use varve_world::Timestamp;

const HOUR: i64 = 3_600_000_000_000;
/// Later than every snapshot of these tests.
const LATE: Timestamp = Timestamp(i64::MAX);

fn at(text: &str) -> Timestamp {
    let time: jiff::Timestamp = text.parse().unwrap();
    Timestamp(i64::try_from(time.as_nanosecond()).unwrap())
}

/// A snapshot whose id has this number.
fn dated(number: usize, time: Timestamp) -> Dated {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&(number as u64).to_be_bytes());
    Dated {
        id: SnapshotId(id),
        time,
        host: "h".into(),
        name: "n".into(),
        kind: ContentKind::Folder,
        tags: Vec::new(),
        holds: Vec::new(),
        keep_until: None,
        has_gaps: false,
        lesser_key: None,
        is_backdated: false,
    }
}

fn number_of(id: SnapshotId) -> usize {
    let bytes: [u8; 8] = id.0[8..].try_into().unwrap();
    usize::try_from(u64::from_be_bytes(bytes)).unwrap()
}

/// Snapshots of one group at these times.
fn series(times: &[&str]) -> Vec<Dated> {
    times.iter().enumerate().map(|(number, time)| dated(number, at(time))).collect()
}

fn policy(text: &str) -> RetentionPolicy {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The places of the snapshots that are kept.
fn kept(snapshots: &[Dated], policy: &RetentionPolicy, now: Timestamp) -> Vec<usize> {
    let verdicts = judge(snapshots, policy, now);
    (0..verdicts.len()).filter(|place| verdicts[*place].is_kept()).collect()
}

/// The snapshots that are kept.
fn thinned(snapshots: Vec<Dated>, policy: &RetentionPolicy, now: Timestamp) -> Vec<Dated> {
    let verdicts = judge(&snapshots, policy, now);
    snapshots
        .into_iter()
        .zip(verdicts)
        .filter(|(_, verdict)| verdict.is_kept())
        .map(|(kept, _)| kept)
        .collect()
}

/// The reasons to keep a snapshot, as texts.
fn reasons(verdict: &Verdict) -> Vec<String> {
    verdict.kept_by().iter().map(ToString::to_string).collect()
}
