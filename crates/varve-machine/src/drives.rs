//! Lists the drives of a running machine.

use serde_json::{Value, json};

use crate::chain::Bitmap;
use crate::qmp::{Qmp, QmpError};

/// The part that a drive has in its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum DriveRole {
    /// A writable disk.
    #[default]
    Disk,
    /// The flash memory with the variables of the firmware.
    FirmwareVariables,
    /// The flash memory with the code of the firmware. Every host has its own.
    FirmwareCode,
    /// Not archived unless the user names it, for this reason.
    LeftOut(&'static str),
}

/// A drive of a running machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RunningDrive {
    /// Our name for it, stable across restarts as far as possible.
    pub name: String,
    /// All names that the user may use for it.
    pub names: Vec<String>,
    /// The node that the machine writes to.
    pub node: String,
    /// In bytes.
    pub size: u64,
    /// The format of the node.
    pub format: String,
    /// The file with its contents.
    pub file: String,
    /// Its device, as a path in QEMU's object tree.
    pub device_path: Option<String>,
    pub role: DriveRole,
    /// The names of the snapshots inside of its image, which are no part of the disk.
    pub inner_snapshots: Vec<String>,
    /// The records of changes that are attached to the node.
    pub bitmaps: Vec<Bitmap>,
}

/// Returns all drives with a medium, in the machine's order.
pub(crate) fn list(qmp: &mut Qmp) -> Result<Vec<RunningDrive>, QmpError> {
    let [blocks, nodes] = qmp.execute_together([
        ("query-block", json!({})),
        ("query-named-block-nodes", json!({ "flat": true })),
    ])?;
    let (blocks, nodes) = (blocks?, nodes?);
    let lacks = |what| QmpError::Lacks { command: "query-block".into(), what };
    let blocks = blocks.as_array().ok_or(lacks("list of drives"))?;
    let mut drives: Vec<RunningDrive> = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        let Some(inserted) = block.get("inserted") else { continue };
        let mut drive = read(block, inserted, number).ok_or(lacks("node, size or format of a drive"))?;
        if drives.iter().any(|other| other.name == drive.name) {
            drive.name = format!("{}-{number}", drive.name);
        }
        drive.bitmaps = bitmaps(&nodes, &drive.node).unwrap_or_else(|| bitmaps_of(inserted));
        drives.push(drive);
    }
    settle_flash(&mut drives);
    Ok(drives)
}

/// Gives the flash memories of the firmware their roles. The code is in the first one, and the
/// variables are in the last one that the machine may write to. A machine with a single one has
/// both in it.
fn settle_flash(drives: &mut [RunningDrive]) {
    let flash = |drive: &RunningDrive| drive.device_path.as_deref().and_then(flash_number);
    let is_writable = |drive: &&RunningDrive| drive.role == DriveRole::Disk;
    let variables = drives.iter().filter(is_writable).filter_map(flash).max();
    for drive in drives {
        drive.role = match flash(drive) {
            None => continue,
            number if number == variables => DriveRole::FirmwareVariables,
            Some(0) => DriveRole::FirmwareCode,
            Some(_) => DriveRole::LeftOut("flash memory of the firmware that the machine cannot write to"),
        };
    }
}

/// Returns the number of a flash memory of the firmware, whose path in QEMU's tree ends with
/// `system.flash1` or `virt.flash1`.
fn flash_number(path: &str) -> Option<u32> {
    let (_, name) = path.strip_prefix("/machine/")?.rsplit_once('.')?;
    name.strip_prefix("flash")?.parse().ok()
}

fn read(block: &Value, inserted: &Value, number: usize) -> Option<RunningDrive> {
    let text = |of: &Value, key: &str| of[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let node = text(inserted, "node-name")?;
    let device = text(block, "qdev").map(|path| match path.strip_suffix("/virtio-backend") {
        Some(device) => device.to_owned(),
        None => path,
    });
    let size = inserted["image"]["virtual-size"].as_u64()?;
    // A path in QEMU's tree begins with a slash if the user gave the device no name. A node's name
    // then begins with #.
    let own_names = [
        text(block, "device"),
        device.as_deref().and_then(own_name),
        (!node.starts_with('#')).then(|| node.clone()),
    ];
    let names: Vec<String> = own_names.into_iter().flatten().collect();
    // QEMU reports the id of a device that has one, which is a path only if no other object in the
    // tree has that name.
    let device_path = device.map(|device| match device.starts_with('/') {
        true => device,
        false => format!("/machine/peripheral/{device}"),
    });
    let is = |of: &Value, key: &str| of[key].as_bool() == Some(true);
    let role = match () {
        () if device_path.is_none() => DriveRole::LeftOut("no device of the machine uses it"),
        () if is(block, "removable") => DriveRole::LeftOut("a medium in a removable drive"),
        () if is(inserted, "ro") => DriveRole::LeftOut("the machine cannot write to it"),
        () if size == 0 => DriveRole::LeftOut("it has no bytes"),
        () => DriveRole::Disk,
    };
    let inner = inserted["image"]["snapshots"].as_array().into_iter().flatten();
    let inner_snapshots = inner.map(|snapshot| text(snapshot, "name").unwrap_or_default()).collect();
    Some(RunningDrive {
        name: names.first().cloned().unwrap_or_else(|| format!("disk{number}")),
        names,
        size,
        format: text(inserted, "drv")?,
        file: text(inserted, "file").unwrap_or_default(),
        role,
        inner_snapshots,
        device_path,
        node,
        bitmaps: Vec::new(),
    })
}

/// Returns the name that the user gave to a device.
fn own_name(path: &str) -> Option<String> {
    let name = match path.strip_prefix("/machine/peripheral/") {
        Some(rest) => rest.split('/').next()?,
        None if path.starts_with('/') => return None,
        None => path,
    };
    Some(name.to_owned())
}

fn bitmaps(nodes: &Value, name: &str) -> Option<Vec<Bitmap>> {
    let node = nodes.as_array()?.iter().find(|node| node["node-name"].as_str() == Some(name))?;
    Some(bitmaps_of(node))
}

fn bitmaps_of(node: &Value) -> Vec<Bitmap> {
    let is = |bitmap: &Value, key: &str| bitmap[key].as_bool() == Some(true);
    let read = |bitmap: &Value| {
        Some(Bitmap {
            name: bitmap["name"].as_str()?.to_owned(),
            is_recording: is(bitmap, "recording"),
            is_inconsistent: is(bitmap, "inconsistent"),
            is_busy: is(bitmap, "busy"),
        })
    };
    node["dirty-bitmaps"].as_array().map(|list| list.iter().filter_map(read).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_called_what_their_owner_calls_them() {
        let block = |device: &str, qdev: &str| json!({"device": device, "qdev": qdev, "removable": false});
        let inserted = |node: &str| json!({"node-name": node, "drv": "raw", "ro": false, "file": "a", "image": {"virtual-size": 5}});
        let name = |device, qdev, node| read(&block(device, qdev), &inserted(node), 3).unwrap().name;
        assert_eq!(name("drive0", "/machine/peripheral-anon/device[0]/virtio-backend", "#block1"), "drive0");
        assert_eq!(name("", "/machine/peripheral/vda/virtio-backend", "libvirt-1-format"), "vda");
        assert_eq!(name("", "disk1", "b"), "disk1");
        assert_eq!(name("", "/machine/unattached/device[1]", "root"), "root");
        assert_eq!(name("", "/machine/unattached/device[1]", "#block1"), "disk3");
    }

    #[test]
    fn what_is_no_disk_is_known() {
        let inserted =
            |ro: bool| json!({"node-name": "n", "drv": "raw", "ro": ro, "image": {"virtual-size": 5}});
        let role = |block: Value, ro| read(&block, &inserted(ro), 0).unwrap().role;
        assert_eq!(role(json!({"qdev": "d", "removable": false}), false), DriveRole::Disk);
        for (block, ro) in [
            (json!({"qdev": "d", "removable": true}), false),
            (json!({"qdev": "d", "removable": false}), true),
            (json!({"device": "d"}), false),
        ] {
            assert!(matches!(role(block.clone(), ro), DriveRole::LeftOut(_)), "{block}");
        }
        assert!(read(&json!({}), &json!({"node-name": "n"}), 0).is_none(), "no size");
    }

    /// The roles of flash memories with these names of the drive and of the node, as QEMU itself,
    /// libvirt and Proxmox give them.
    #[test]
    fn the_firmware_is_found_whoever_has_named_it() {
        let roles = |flash: &[(&str, &str, &str, bool)]| {
            let of = |(device, qdev, node, ro): &(&str, &str, &str, bool)| {
                let block = json!({"device": device, "qdev": qdev, "removable": false});
                let image = json!({"virtual-size": 131_072});
                read(&block, &json!({"node-name": node, "drv": "raw", "ro": ro, "image": image}), 0).unwrap()
            };
            let mut drives: Vec<_> = flash.iter().map(of).collect();
            settle_flash(&mut drives);
            drives.iter().map(|drive| drive.role).collect::<Vec<_>>()
        };
        let (code, variables) = (DriveRole::FirmwareCode, DriveRole::FirmwareVariables);
        let [flash0, flash1] = ["/machine/system.flash0", "/machine/system.flash1"];
        let plain = [("pflash0", flash0, "#block1", true), ("pflash1", flash1, "#block3", false)];
        assert_eq!(roles(&plain), [code, variables]);
        let libvirt = [
            ("", "/machine/peripheral/virtio-disk0/virtio-backend", "libvirt-1-format", false),
            ("", flash1, "libvirt-pflash1-format", false),
            ("", flash0, "libvirt-pflash0-format", true),
        ];
        assert_eq!(roles(&libvirt), [DriveRole::Disk, variables, code]);
        let proxmox = [("pflash0", flash0, "#block1", true), ("drive-efidisk0", flash1, "#block2", false)];
        assert_eq!(roles(&proxmox), [code, variables]);
        let arm = [("", "/machine/virt.flash0", "a", true), ("", "/machine/virt.flash1", "b", false)];
        assert_eq!(roles(&arm), [code, variables]);
        // The code was not protected from writes, and code and variables in one.
        let writable = [("pflash0", flash0, "a", false), ("pflash1", flash1, "b", false)];
        assert_eq!(roles(&writable), [code, variables]);
        assert_eq!(roles(&[("pflash0", flash0, "a", false)]), [variables]);
        assert_eq!(roles(&[("pflash0", flash0, "a", true)]), [code]);
        let [first, second] = roles(&[("", flash0, "a", true), ("", flash1, "b", true)])[..] else {
            panic!()
        };
        assert!(first == code && matches!(second, DriveRole::LeftOut(_)));
        // A disk whose owner calls it so.
        assert_eq!(roles(&[("pflash1", "/machine/peripheral/pflash1", "pflash1", false)]), [DriveRole::Disk]);
    }

    #[test]
    fn a_device_with_an_id_is_found_by_its_whole_path() {
        let inserted = json!({"node-name": "n", "drv": "raw", "ro": false, "image": {"virtual-size": 5}});
        let path = |qdev: &str| read(&json!({"qdev": qdev}), &inserted, 0).unwrap().device_path.unwrap();
        assert_eq!(path("nvme0"), "/machine/peripheral/nvme0");
        assert_eq!(path("/machine/peripheral/vda/virtio-backend"), "/machine/peripheral/vda");
        assert_eq!(path("/machine/unattached/device[1]"), "/machine/unattached/device[1]");
    }
}
