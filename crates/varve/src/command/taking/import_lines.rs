//! The lines that imports print besides those of their snapshots.

use serde_json::json;
use varve_import::ForeignSnapshot;

use crate::invocation::Invocation;
use crate::{moment, say, show};

/// Prints a snapshot that would be imported.
pub(super) fn print_planned(invocation: &Invocation, snapshot: &ForeignSnapshot, name: &str) {
    if invocation.json {
        let mut fields = json!({
            "id": snapshot.id,
            "name": name,
            "time": moment::rfc3339(snapshot.time),
            "host": snapshot.host,
        });
        show::put_name(&mut fields, "source", &snapshot.source);
        say::record("foreign_snapshot", fields);
    } else {
        let source = show::name(&snapshot.source);
        let id = show::name(snapshot.id.as_bytes());
        say!("{} {}: {source}, {id}", moment::show(snapshot.time), show::name(name.as_bytes()));
    }
}

/// Prints how many snapshots were imported before.
pub(super) fn say_known(invocation: &Invocation, count: usize) {
    if count > 0 && !invocation.json && !invocation.quiet {
        say!("{} imported before", show::count(count as u64, "snapshot"));
    }
}
