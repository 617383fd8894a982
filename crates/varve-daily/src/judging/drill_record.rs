//! `index/drills`: the newest drills of each series, as JSON. A hint like all of `index/`: without
//! it, a source counts as never drilled. It holds names, so it is encrypted for readers.

use std::io;

use serde_json::{Value, json};
use varve_store::{Hint, Vault};
use varve_world::Timestamp;

const DRILLS: Hint = Hint { file: "index/drills", context: "varve 1 drills" };
/// A longer record is ignored.
const BYTES_MAX: usize = 16 << 20;
/// The number of newest drills that are kept of each series.
const DRILLS_MAX: usize = 20;
/// A longer message is cut.
const MESSAGE_CHARS_MAX: usize = 500;

/// A drill: a part of a snapshot was restored and compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Drill {
    /// The host and the name of the snapshot.
    pub host: String,
    pub series: String,
    /// The id of the snapshot.
    pub snapshot: String,
    pub time: Timestamp,
    /// The number of restored files, or of pieces of a disk.
    pub file_count: u64,
    pub bytes: u64,
    /// The time until the restored machine had started, if it was booted.
    pub boot_seconds: Option<f64>,
    /// Why the drill failed; `None` if everything was as archived.
    pub failure: Option<String>,
}

/// The record of drills.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DrillRecord(Vec<Drill>);

impl DrillRecord {
    /// Reads the record of a store. One that cannot be read counts as empty.
    #[must_use]
    pub fn read(vault: &Vault) -> Self {
        let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
        let secret = vault.read_secret_hint(&DRILLS, BYTES_MAX).and_then(|bytes| parse(&bytes));
        // Before 0.1.0, the record was not encrypted.
        let value = secret.or_else(|| vault.read_hint(&DRILLS, BYTES_MAX).and_then(|bytes| parse(&bytes)));
        Self::from_json(&value.unwrap_or_default())
    }

    /// Returns the drills, the oldest first.
    #[must_use]
    pub fn drills(&self) -> &[Drill] {
        &self.0
    }

    /// Adds a drill, and drops the oldest ones of its series.
    pub fn add(&mut self, mut drill: Drill) {
        drill.failure =
            drill.failure.map(|failure| failure.chars().take(MESSAGE_CHARS_MAX).collect::<String>());
        self.0.push(drill);
        self.0.sort_by_key(|drill| drill.time);
        let last = self.0.len().saturating_sub(1);
        let is_newest = |number: usize, drill: &Drill| {
            let later = self
                .0
                .iter()
                .skip(number)
                .filter(|other| (&other.host, &other.series) == (&drill.host, &drill.series));
            number == last || later.count() <= DRILLS_MAX
        };
        let kept = self.0.iter().enumerate().filter(|(number, drill)| is_newest(*number, drill));
        self.0 = kept.map(|(_, drill)| drill.clone()).collect();
    }

    /// Writes the record to a store.
    ///
    /// # Errors
    /// When it cannot be written; the record of before then remains.
    pub fn save(&self, vault: &Vault) -> io::Result<()> {
        vault.write_secret_hint(&DRILLS, self.to_json().to_string().as_bytes())
    }

    fn to_json(&self) -> Value {
        let row = |drill: &Drill| {
            json!({
                "host": drill.host,
                "series": drill.series,
                "snapshot": drill.snapshot,
                "time": drill.time.0,
                "files": drill.file_count,
                "bytes": drill.bytes,
                "boot_seconds": drill.boot_seconds,
                "failure": drill.failure,
            })
        };
        self.0.iter().map(row).collect()
    }

    fn from_json(value: &Value) -> Self {
        let row = |row: &Value| {
            let text = |field: &str| row[field].as_str().map(str::to_owned);
            Some(Drill {
                host: text("host")?,
                series: text("series")?,
                snapshot: text("snapshot")?,
                time: Timestamp(row["time"].as_i64()?),
                file_count: row["files"].as_u64()?,
                bytes: row["bytes"].as_u64()?,
                boot_seconds: row["boot_seconds"].as_f64(),
                failure: text("failure"),
            })
        };
        Self(value.as_array().into_iter().flatten().filter_map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_drills_of_each_series_are_kept() {
        let drill = |series: &str, time| Drill {
            host: "web1".into(),
            series: series.into(),
            snapshot: "5c0e6d21".into(),
            time: Timestamp(time),
            file_count: 50,
            bytes: 7,
            boot_seconds: None,
            failure: None,
        };
        let mut record = DrillRecord::default();
        record.add(drill("rare", 0));
        for time in 1..=50 {
            record.add(drill("home", time));
        }
        assert_eq!(record.drills().len(), DRILLS_MAX + 1);
        assert_eq!(record.drills()[0].series, "rare");
        assert_eq!(record.drills()[1].time, Timestamp(31));
        record.add(Drill { failure: Some("x".repeat(9_000)), boot_seconds: Some(2.5), ..drill("home", 51) });
        assert_eq!(DrillRecord::from_json(&record.to_json()), record);
        assert_eq!(record.drills().last().unwrap().failure.as_ref().unwrap().len(), MESSAGE_CHARS_MAX);
        assert_eq!(DrillRecord::from_json(&json!([5, { "host": "a" }])), DrillRecord::default());
    }
}
