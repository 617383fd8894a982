//! Lists the drives of a running machine.

use serde_json::{Value, json};

use crate::chain::Bitmap;
use crate::qmp::{Qmp, QmpError};

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
    /// True for a writable fixed disk; false for removable media and firmware.
    pub is_disk: bool,
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
    Ok(drives)
}

fn read(block: &Value, inserted: &Value, number: usize) -> Option<RunningDrive> {
    let text = |of: &Value, key: &str| of[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let node = text(inserted, "node-name")?;
    let device_path = text(block, "qdev").map(|path| match path.strip_suffix("/virtio-backend") {
        Some(device) => device.to_owned(),
        None => path,
    });
    let size = inserted["image"]["virtual-size"].as_u64()?;
    // A path in QEMU's tree begins with a slash if the user gave the device no name. A node's name
    // then begins with #.
    let own_names = [
        text(block, "device"),
        device_path.as_deref().and_then(own_name),
        (!node.starts_with('#')).then(|| node.clone()),
    ];
    let names: Vec<String> = own_names.into_iter().flatten().collect();
    let is_read_only = inserted["ro"].as_bool() == Some(true);
    let is_removable = block["removable"].as_bool() == Some(true);
    Some(RunningDrive {
        name: names.first().cloned().unwrap_or_else(|| format!("disk{number}")),
        names,
        size,
        format: text(inserted, "drv")?,
        file: text(inserted, "file").unwrap_or_default(),
        is_disk: !is_read_only && !is_removable && size > 0 && device_path.is_some(),
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
        let is_disk = |removable, ro| {
            read(&json!({"qdev": "d", "removable": removable}), &inserted(ro), 0).unwrap().is_disk
        };
        assert!(is_disk(false, false));
        assert!(!is_disk(true, false) && !is_disk(false, true));
        assert!(read(&json!({}), &json!({"node-name": "n"}), 0).is_none(), "no size");
    }
}
