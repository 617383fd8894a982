//! The records that the process of a job prints.

use serde::Deserialize;

/// A record of the process of a job, one JSON object a line. `docs/guide/json` describes them; a
/// run needs only these of their fields.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JobRecord {
    /// A snapshot was taken. A key that may not read does not know all figures.
    Snapshot {
        id: Option<String>,
        size: Option<u64>,
        new_bytes: Option<u64>,
        stored_bytes: Option<u64>,
        entries: Option<u64>,
    },
    /// The rules of a source were applied to a snapshot.
    ForgetVerdict {
        verdict: String,
        id: String,
        name: String,
        time: String,
        reasons: Vec<String>,
    },
    /// A drill has ended.
    Drill {
        failure: Option<String>,
    },
    /// The job has failed.
    Error {
        message: String,
        hint: Option<String>,
    },
    /// Something could not be archived or checked.
    Problem {
        path: Option<String>,
        message: String,
    },
    Warning {
        message: String,
    },
    /// The job waits for another writer.
    Waiting {
        message: String,
    },
    Hint {
        message: String,
    },
    Notice {
        message: String,
    },
    /// A record that a run passes on only.
    #[serde(other)]
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_by_their_type_and_unknown_ones_are_none() {
        let read = |line: &str| serde_json::from_str::<JobRecord>(line);
        let snapshot =
            read(r#"{"type":"snapshot","id":"ab","size":5,"new_bytes":null,"entries":3,"tags":[]}"#);
        let expected = JobRecord::Snapshot {
            id: Some("ab".into()),
            size: Some(5),
            new_bytes: None,
            stored_bytes: None,
            entries: Some(3),
        };
        assert_eq!(snapshot.unwrap(), expected);
        assert_eq!(read(r#"{"type":"arena","number":5}"#).unwrap(), JobRecord::Other);
        read(r#"{"type":"error"}"#).unwrap_err();
        read("7").unwrap_err();
    }
}
