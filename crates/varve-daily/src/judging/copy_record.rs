//! `index/copies`: the snapshots that each copy of a store held when it was last brought up to date
//! or verified, as JSON. A hint like all of `index/`: without it, no copy is known. It holds
//! addresses, so it is encrypted for readers.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Map, Value, json};
use varve_archive::SnapshotId;
use varve_store::{Hint, Vault};
use varve_world::Timestamp;

const COPIES: Hint = Hint { file: "index/copies", context: "varve 1 copies" };
/// A longer record is ignored.
const BYTES_MAX: usize = 64 << 20;

/// The copies of a store, by their addresses without passwords.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CopyRecord(BTreeMap<String, KnownCopy>);

/// A copy, as it was last seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KnownCopy {
    /// The last verification has found something.
    pub is_damaged: bool,
    /// By the ids of the snapshots.
    snapshots: BTreeMap<String, CopiedSnapshot>,
}

/// A snapshot in a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopiedSnapshot {
    /// The last time when the copy was found complete.
    pub verified: Option<Timestamp>,
    /// The last time when every byte of the copy was read.
    pub read: Option<Timestamp>,
}

impl CopyRecord {
    /// Reads the record of a store. One that cannot be read counts as empty.
    #[must_use]
    pub fn read(vault: &Vault) -> Self {
        let bytes = vault.read_secret_hint(&COPIES, BYTES_MAX);
        Self::from_json(&bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
    }

    /// Returns the copies with their addresses.
    pub fn copies(&self) -> impl Iterator<Item = (&str, &KnownCopy)> {
        self.0.iter().map(|(address, copy)| (address.as_str(), copy))
    }

    /// Notes the snapshots that a copy holds now. The times of their verifications stay.
    pub fn note_held(&mut self, address: &str, held: impl IntoIterator<Item = SnapshotId>) {
        let copy = self.0.entry(address.to_owned()).or_default();
        let known = std::mem::take(&mut copy.snapshots);
        let ids = held.into_iter().map(|id| id.to_string());
        copy.snapshots = ids
            .map(|id| {
                let state = known.get(&id).copied().unwrap_or_default();
                (id, state)
            })
            .collect();
    }

    /// Notes that a copy was verified, and holds these snapshots.
    pub fn note_verified(
        &mut self,
        address: &str,
        held: impl IntoIterator<Item = SnapshotId>,
        time: Timestamp,
        has_read_all: bool,
    ) {
        self.note_held(address, held);
        let copy = self.0.entry(address.to_owned()).or_default();
        copy.is_damaged = false;
        for snapshot in copy.snapshots.values_mut() {
            snapshot.verified = Some(time);
            snapshot.read = if has_read_all { Some(time) } else { snapshot.read };
        }
    }

    /// Notes that the verification of a copy has found something. It counts as verified again when
    /// a later one finds nothing.
    pub fn note_damaged(&mut self, address: &str) {
        if let Some(copy) = self.0.get_mut(address) {
            copy.is_damaged = true;
            copy.snapshots.values_mut().for_each(|snapshot| *snapshot = CopiedSnapshot::default());
        }
    }

    /// Writes the record to a store.
    ///
    /// # Errors
    /// When it cannot be written; the record of before then remains.
    pub fn save(&self, vault: &Vault) -> io::Result<()> {
        vault.write_secret_hint(&COPIES, self.to_json().to_string().as_bytes())
    }

    fn to_json(&self) -> Value {
        let nanoseconds = |time: Option<Timestamp>| time.map(|time| time.0);
        let snapshot = |(id, one): (&String, &CopiedSnapshot)| {
            (id.clone(), json!([nanoseconds(one.verified), nanoseconds(one.read)]))
        };
        let copy = |(address, copy): (&String, &KnownCopy)| {
            let snapshots: Map<_, _> = copy.snapshots.iter().map(snapshot).collect();
            (address.clone(), json!({ "damaged": copy.is_damaged, "snapshots": snapshots }))
        };
        self.0.iter().map(copy).collect::<Map<_, _>>().into()
    }

    fn from_json(value: &Value) -> Self {
        let snapshot = |(id, times): (&String, &Value)| {
            let time = |at: usize| times.get(at).and_then(Value::as_i64).map(Timestamp);
            (id.clone(), CopiedSnapshot { verified: time(0), read: time(1) })
        };
        let copy = |(address, copy): (&String, &Value)| {
            let is_damaged = copy.get("damaged")?.as_bool()?;
            let snapshots = copy.get("snapshots")?.as_object()?.iter().map(snapshot).collect();
            Some((address.clone(), KnownCopy { is_damaged, snapshots }))
        };
        Self(value.as_object().into_iter().flatten().filter_map(copy).collect())
    }
}

impl KnownCopy {
    /// Returns what is known of a snapshot in this copy; `None` if the copy does not hold it.
    #[must_use]
    pub fn snapshot(&self, id: &SnapshotId) -> Option<CopiedSnapshot> {
        self.snapshots.get(&id.to_string()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_as_it_was_last_seen() {
        let [one, two, three] = [1, 2, 3].map(|number| SnapshotId([number; 16]));
        let states = |record: &CopyRecord| {
            let copy = &record.0["/mnt/usb"];
            [one, two, three].map(|id| copy.snapshot(&id).map(|known| (known.verified, known.read)))
        };
        let at = |time| Some(Timestamp(time));
        let mut record = CopyRecord::default();
        record.note_damaged("/mnt/usb");
        assert_eq!(record, CopyRecord::default(), "it is no known copy");
        record.note_held("/mnt/usb", [one]);
        assert_eq!(states(&record), [Some((None, None)), None, None]);
        record.note_verified("/mnt/usb", [one, two], Timestamp(5), true);
        record.note_verified("/mnt/usb", [one, two], Timestamp(7), false);
        record.note_held("/mnt/usb", [two, three]);
        assert_eq!(states(&record), [None, Some((at(7), at(5))), Some((None, None))]);
        assert_eq!(CopyRecord::from_json(&record.to_json()), record);
        record.note_damaged("/mnt/usb");
        record.note_held("/mnt/usb", [two]);
        assert_eq!(states(&record), [None, Some((None, None)), None]);
        assert!(record.0["/mnt/usb"].is_damaged, "another upload does not mend it");
        record.note_verified("/mnt/usb", [two], Timestamp(9), false);
        assert!(!record.0["/mnt/usb"].is_damaged);
        assert_eq!(CopyRecord::from_json(&json!({ "a": 5, "b": {} })), CopyRecord::default());
    }
}
