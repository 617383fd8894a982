//! Archives that are mounted (`varve mount`) in what is archived: left empty, or each night would hold all nights before it once more.

use std::fs;

use crate::node::DeviceNumber;

/// How their types and sources begin. One that root mounts has only the second.
const MARKS: [&str; 2] = ["fuse.varve ", "fuse varve:"];

/// The devices of all that are mounted now; none, where the system does not tell.
pub(super) fn devices() -> Vec<DeviceNumber> {
    fs::read("/proc/self/mountinfo")
        .map_or_else(|_| Vec::new(), |table| in_table(&String::from_utf8_lossy(&table)))
}

/// Those of a table as in `proc_pid_mountinfo(5)`: the third field is the device, and the type comes after the dash.
fn in_table(table: &str) -> Vec<DeviceNumber> {
    let device = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        MARKS.iter().find(|mark| file_system.starts_with(**mark))?;
        let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
        Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
    };
    table.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_archives_are_found() {
        let table = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
61 22 0:51 / /mnt/days ro,nosuid,nodev,noatime - fuse.varve /backup/store ro,user_id=0,group_id=0
62 22 0:52 / /mnt/fuse.varve rw - fuse.sshfs fuse.varve rw
66 22 0:54 / /mnt rw - fuse other rw
67 22 0:55 / /mnt/root ro - fuse varve:/backup/store ro,user_id=0,group_id=0,default_permissions
63 22 0:53 / /mnt/a\\040b ro shared:7 master:2 - fuse.varve s3://bucket/x ro
64 22 nonsense - fuse.varve
65 22 0:x / / - fuse.varve x
";
        let devices: Vec<_> =
            in_table(table).into_iter().map(|device| (device.major, device.minor)).collect();
        assert_eq!(devices, [(0, 51), (0, 55), (0, 53)]);
        assert!(in_table("").is_empty());
    }
}
