//! Names the parts of a running machine that its snapshot does not hold, so that nothing is missed
//! silently. The memory of the machine is not named: no snapshot holds it.

use serde_json::{Value, json};
use varve_archive::LeftOutRecord;

use crate::drives::{DriveRole, RunningDrive};
use crate::qmp::{Qmp, QmpError};

/// The folders of QEMU's object tree with the devices that the user has added.
const DEVICE_FOLDERS: [&str; 2] = ["/machine/peripheral", "/machine/peripheral-anon"];
/// The beginnings of the types of devices whose content is outside of QEMU's drives.
const DEVICES: [(&str, &str); 10] = [
    ("vhost-user-blk", "a disk that another program serves, and QEMU cannot read"),
    ("vhost-user-scsi", "disks that another program serves, and QEMU cannot read"),
    ("vhost-scsi", "disks that the host's kernel serves, and QEMU cannot read"),
    ("vhost-user-fs", "a folder of the host: archive it there"),
    ("virtio-9p", "a folder of the host: archive it there"),
    ("vfio-", "a device of the host that is passed through, with any disk on it"),
    ("usb-host", "a device of the host that is passed through, with any disk on it"),
    ("nvdimm", "persistent memory, which QEMU does not list as a drive"),
    ("virtio-pmem", "persistent memory, which QEMU does not list as a drive"),
    ("sd-card", "a medium in a removable drive"),
];
/// Records that are made at most; more are summed up.
const RECORD_COUNT_MAX: usize = 64;

/// Returns a record for each part that is not archived. `planned` has the nodes of the drives that
/// are, and `is_chosen` is true if the user has named the drives.
pub(crate) fn unarchived(
    qmp: &mut Qmp,
    drives: &[RunningDrive],
    planned: &[&str],
    is_chosen: bool,
) -> Result<Vec<LeftOutRecord>, QmpError> {
    let is_planned = |drive: &&RunningDrive| planned.contains(&drive.node.as_str());
    let left = drives.iter().filter(|drive| !is_planned(drive));
    let mut parts: Vec<_> = left.filter_map(|drive| of_drive(drive, is_chosen)).collect();
    parts.extend(drives.iter().filter(is_planned).filter_map(inside));
    let [tpms, added, unnamed] = qmp.execute_together([
        ("query-tpm", json!({})),
        ("qom-list", json!({ "path": DEVICE_FOLDERS[0] })),
        ("qom-list", json!({ "path": DEVICE_FOLDERS[1] })),
    ])?;
    // A QEMU without such devices does not know the command.
    let list = |answer: Result<Value, QmpError>| match answer {
        Ok(answer) => Ok(answer.as_array().cloned().unwrap_or_default()),
        Err(QmpError::Refused { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    for tpm in list(tpms)? {
        let why = "its keys are kept by another program: a disk that is sealed to it needs its recovery key";
        parts.push((format!("the TPM {}", name(&tpm["id"])), why.to_owned()));
    }
    for device in list(added)?.iter().chain(&list(unnamed)?) {
        let kind = device["type"].as_str().and_then(|kind| kind.strip_prefix("child<")?.strip_suffix('>'));
        let Some(kind) = kind else { continue };
        if let Some((_, why)) = DEVICES.iter().find(|(begins, _)| kind.starts_with(begins)) {
            parts.push((format!("{kind} {}", name(&device["name"])), (*why).to_owned()));
        }
    }
    Ok(records(parts))
}

fn of_drive(drive: &RunningDrive, is_chosen: bool) -> Option<(String, String)> {
    let RunningDrive { name, role, .. } = drive;
    let why = match role {
        DriveRole::FirmwareCode => return None,
        DriveRole::LeftOut(reason) => format!("{reason}; --drive {name} archives it"),
        DriveRole::Disk | DriveRole::FirmwareVariables if is_chosen => "--drive names other drives".into(),
        DriveRole::Disk | DriveRole::FirmwareVariables => return None,
    };
    Some((format!("drive {name}"), why))
}

/// Names the snapshots inside of a drive's image.
fn inside(drive: &RunningDrive) -> Option<(String, String)> {
    let snapshots = match drive.inner_snapshots.len() {
        0 => return None,
        1 => "1 snapshot".to_owned(),
        several => format!("{several} snapshots"),
    };
    let what = format!("{snapshots} inside drive {}: {}", drive.name, drive.inner_snapshots.join(", "));
    Some((what, "only the current state of the disk is archived".to_owned()))
}

fn name(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn records(mut parts: Vec<(String, String)>) -> Vec<LeftOutRecord> {
    let rest = parts.split_off(parts.len().min(RECORD_COUNT_MAX));
    let mut records: Vec<_> =
        parts.iter().map(|(what, why)| LeftOutRecord::beside_the_disk(what, why)).collect();
    if !rest.is_empty() {
        let what = format!("{} more parts of the machine", rest.len());
        records.push(LeftOutRecord::beside_the_disk(&what, "not listed one by one"));
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(name: &str, role: DriveRole) -> RunningDrive {
        RunningDrive { name: name.into(), role, ..RunningDrive::default() }
    }

    #[test]
    fn each_drive_that_is_left_out_says_why() {
        let said = |role, is_chosen| of_drive(&drive("d", role), is_chosen).map(|(_, why)| why);
        assert_eq!(said(DriveRole::FirmwareCode, true), None, "every host has its own");
        assert_eq!(said(DriveRole::Disk, true).as_deref(), Some("--drive names other drives"));
        assert_eq!(
            said(DriveRole::LeftOut("it is old"), true).as_deref(),
            Some("it is old; --drive d archives it")
        );
    }

    #[test]
    fn snapshots_inside_of_an_image_are_named() {
        let with = |names: &[&str]| RunningDrive {
            inner_snapshots: names.iter().map(|name| (*name).to_owned()).collect(),
            ..drive("d", DriveRole::Disk)
        };
        let said = |names| inside(&with(names)).map(|(what, _)| what);
        assert_eq!(said(&[]), None);
        assert_eq!(said(&["before"]).as_deref(), Some("1 snapshot inside drive d: before"));
        assert_eq!(said(&["a", "b"]).as_deref(), Some("2 snapshots inside drive d: a, b"));
    }

    #[test]
    fn a_machine_with_very_many_parts_makes_few_records() {
        let parts = (0..1000).map(|number| (format!("drive {number}"), "x".repeat(9999))).collect();
        let records = records(parts);
        assert_eq!((records.len(), records[64].what.as_str()), (65, "936 more parts of the machine"));
        assert!(records.iter().all(|record| record.why.len() <= 400));
    }
}
