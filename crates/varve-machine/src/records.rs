//! The records of changes that stay on a drive between snapshots: QEMU's dirty bitmaps. Begins,
//! merges and removes them.

use serde_json::{Value, json};

use crate::chain::{BitmapName, TrustedBitmap};
use crate::drives::RunningDrive;
use crate::held_moment::refused_is_well;
use crate::qmp::{Qmp, QmpError};

/// Returns true if a record on this drive can outlive QEMU.
pub(crate) fn can_persist(qmp: &mut Qmp, drive: &RunningDrive, name: BitmapName) -> Result<bool, QmpError> {
    if drive.format != "qcow2" {
        return Ok(false);
    }
    let name = name.to_string();
    let trial = json!({ "node": drive.node, "name": name, "persistent": true, "disabled": true });
    // The name is unique: if the addition is refused, there is nothing to remove.
    let [added, removed] = qmp.execute_together([
        ("block-dirty-bitmap-add", trial),
        ("block-dirty-bitmap-remove", json!({ "node": drive.node, "name": name })),
    ])?;
    refused_is_well(removed)?;
    Ok(refused_is_well(added)?.is_some())
}

/// Merges a stopped record and the one that continues it.
pub(crate) fn join(
    qmp: &mut Qmp,
    drive: &RunningDrive,
    stopped: &str,
    goes_on: &str,
) -> Result<(), QmpError> {
    let action = |kind: &str, data: Value| json!({ "type": kind, "data": data });
    // The order ensures that a concurrent write is in at least one of the two records when they are
    // merged.
    let actions = [
        action("block-dirty-bitmap-enable", json!({ "node": drive.node, "name": stopped })),
        action(
            "block-dirty-bitmap-merge",
            json!({ "node": drive.node, "target": stopped, "bitmaps": [goes_on] }),
        ),
        action("block-dirty-bitmap-remove", json!({ "node": drive.node, "name": goes_on })),
    ];
    qmp.execute("transaction", json!({ "actions": actions })).map(drop)
}

/// Removes a record. A missing record is not an error.
pub(crate) fn remove(qmp: &mut Qmp, drive: &RunningDrive, name: &str) -> Result<(), QmpError> {
    let record = json!({ "node": drive.node, "name": name });
    refused_is_well(qmp.execute("block-dirty-bitmap-remove", record)).map(drop)
}

/// Tidies the records after a run: an archived drive keeps its new record, any other drive its old
/// one.
pub(crate) fn settle(
    qmp: &mut Qmp,
    drive: &RunningDrive,
    since: Option<&TrustedBitmap>,
    new: BitmapName,
    is_archived: bool,
) -> Result<(), QmpError> {
    match since {
        Some(since) if is_archived => remove(qmp, drive, &since.record),
        Some(since) => join(qmp, drive, &since.record, &new.to_string()),
        None if is_archived => Ok(()),
        None => remove(qmp, drive, &new.to_string()),
    }
}
