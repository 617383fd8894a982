//! The records of changes that stay on a drive from night to night: QEMU's dirty bitmaps, begun, joined and removed.

use serde_json::{Value, json};

use crate::chain::{RecordName, Since};
use crate::drives::Drive;
use crate::point::refused_is_well;
use crate::qmp::{Qmp, QmpError};

/// Whether a record on this drive can outlive QEMU.
pub(crate) fn can_persist(qmp: &mut Qmp, drive: &Drive, name: RecordName) -> Result<bool, QmpError> {
    if drive.format != "qcow2" {
        return Ok(false);
    }
    let name = name.to_string();
    let trial = json!({ "node": drive.node, "name": name, "persistent": true, "disabled": true });
    // Nothing else has this name: so if the first is refused, the other finds nothing to remove.
    let [added, removed] = qmp.execute_together([
        ("block-dirty-bitmap-add", trial),
        ("block-dirty-bitmap-remove", json!({ "node": drive.node, "name": name })),
    ])?;
    refused_is_well(removed)?;
    Ok(refused_is_well(added)?.is_some())
}

/// Makes one record of the one that was stopped and the one that goes on from it.
pub(crate) fn join(qmp: &mut Qmp, drive: &Drive, stopped: &str, goes_on: &str) -> Result<(), QmpError> {
    let action = |kind: &str, data: Value| json!({ "type": kind, "data": data });
    // In this order: what is written meanwhile is in one of the two at least when they are joined.
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

/// Removes a record. One that is not there is no error.
pub(crate) fn remove(qmp: &mut Qmp, drive: &Drive, name: &str) -> Result<(), QmpError> {
    let record = json!({ "node": drive.node, "name": name });
    refused_is_well(qmp.execute("block-dirty-bitmap-remove", record)).map(drop)
}

/// After a night: of a drive that was archived the new record stays, of one that was not the old one.
pub(crate) fn settle(
    qmp: &mut Qmp,
    drive: &Drive,
    since: Option<&Since>,
    new: RecordName,
    is_archived: bool,
) -> Result<(), QmpError> {
    match since {
        Some(since) if is_archived => remove(qmp, drive, &since.record),
        Some(since) => join(qmp, drive, &since.record, &new.to_string()),
        None if is_archived => Ok(()),
        None => remove(qmp, drive, &new.to_string()),
    }
}
