//! The parts of a disk that its snapshot left out, as text and for programs.

use serde_json::{Value, json};
use varve_archive::LeftOutRecord;
use varve_block::visible;

use crate::show;

/// Returns the lines about left-out parts for people. With `kept`, it includes the parts that were
/// kept against the rule.
pub fn left_out_lines<'a>(records: impl IntoIterator<Item = &'a LeftOutRecord>, kept: bool) -> Vec<String> {
    let of = |record: &LeftOutRecord| {
        let what = visible(&record.what);
        if record.volume.is_empty() { what } else { format!("{what} of {}", visible(&record.volume)) }
    };
    let line = |record: &'a LeftOutRecord| match &record.kept_because {
        Some(reason) => kept.then(|| format!("  kept: {}: {}", of(record), visible(reason))),
        None if record.is_beside_the_disk() => {
            Some(format!("  left out: {}: {}", of(record), visible(&record.why)))
        }
        None if record.bytes == 0 => None,
        None => {
            let bytes = show::bytes(record.bytes);
            Some(format!("  left out: {}, {bytes}: {}", of(record), visible(&record.why)))
        }
    };
    records.into_iter().filter_map(line).collect()
}

/// Prints the left-out parts for people.
pub fn say_left_out<'a>(records: impl IntoIterator<Item = &'a LeftOutRecord>) {
    for line in left_out_lines(records, false) {
        say!("{line}");
    }
}

/// Formats the left-out parts for programs, including those that were kept against the rule.
pub fn left_out_json<'a>(records: impl IntoIterator<Item = &'a LeftOutRecord>) -> Value {
    let one = |record: &LeftOutRecord| {
        json!({
            "volume": record.volume,
            "what": record.what,
            "bytes": record.bytes,
            "why": record.kept_because.is_none().then_some(&record.why),
            "kept_because": record.kept_because,
        })
    };
    records.into_iter().map(one).collect()
}

/// Returns the number of bytes that were archived as zeros.
pub fn left_out_bytes(records: &[LeftOutRecord]) -> u64 {
    records.iter().map(|record| record.bytes).fold(0, u64::saturating_add)
}
