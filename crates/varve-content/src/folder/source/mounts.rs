//! Reads the system's table of mounts, to find special file systems that are mounted in a source.

use std::fs;

use varve_image::DeviceNumber;

/// The types and sources of mounted archives (`varve mount`) begin with these. An archive that root
/// has mounted begins with the second.
const ARCHIVE_MARKS: [&str; 2] = ["fuse.varve ", "fuse varve:"];

/// The devices of file systems that are treated specially.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// Mounted archives. They are archived as empty folders; otherwise each snapshot would contain
    /// all snapshots before it.
    archives: Vec<DeviceNumber>,
    /// Folders in which access to a name mounts a file system (autofs with an indirect map). Their
    /// root is an ordinary folder.
    indirect: Vec<DeviceNumber>,
}

impl Mounts {
    /// Reads the current mounts. Empty if the system does not report them.
    pub(crate) fn read() -> Self {
        fs::read("/proc/self/mountinfo")
            .map_or_else(|_| Self::default(), |table| Self::in_table(&String::from_utf8_lossy(&table)))
    }

    /// Parses a table as in `proc_pid_mountinfo(5)`: the third field is the device, and the type
    /// comes after the dash.
    fn in_table(table: &str) -> Self {
        let mut mounts = Self::default();
        for line in table.lines() {
            let Some((mount, file_system)) = line.split_once(" - ") else { continue };
            let Some(device) = device_of(mount) else { continue };
            if ARCHIVE_MARKS.iter().any(|mark| file_system.starts_with(mark)) {
                mounts.archives.push(device);
            }
            let is_indirect = || file_system.split([' ', ',']).any(|option| option == "indirect");
            if file_system.starts_with("autofs ") && is_indirect() {
                mounts.indirect.push(device);
            }
        }
        mounts
    }

    /// Returns whether a mounted archive has this device.
    pub(super) fn is_archive(&self, device: DeviceNumber) -> bool {
        self.archives.contains(&device)
    }

    /// Returns whether this is the device of an autofs with an indirect map.
    pub(super) fn is_indirect_autofs(&self, device: DeviceNumber) -> bool {
        self.indirect.contains(&device)
    }
}

fn device_of(mount: &str) -> Option<DeviceNumber> {
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_archives_and_indirect_maps_are_found() {
        let table = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
61 22 0:51 / /mnt/days ro,nosuid,nodev,noatime - fuse.varve /backup/store ro,user_id=0,group_id=0
62 22 0:52 / /mnt/fuse.varve rw - fuse.sshfs fuse.varve rw
66 22 0:54 / /mnt rw - fuse other rw
67 22 0:55 / /mnt/root ro - fuse varve:/backup/store ro,user_id=0,group_id=0,default_permissions
63 22 0:53 / /mnt/a\\040b ro shared:7 master:2 - fuse.varve s3://bucket/x ro
70 22 0:60 / /net rw,relatime - autofs auto.net rw,fd=6,pgrp=9,timeout=300,minproto=5,maxproto=5,indirect,pipe_ino=3
71 22 0:61 / /boot/efi rw,relatime - autofs systemd-1 rw,fd=6,pgrp=1,timeout=120,minproto=5,maxproto=5,direct,pipe_ino=4
64 22 nonsense - fuse.varve
65 22 0:x / / - fuse.varve x
";
        let mounts = Mounts::in_table(table);
        let numbers = |devices: &[DeviceNumber]| {
            devices.iter().map(|device| (device.major, device.minor)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&mounts.archives), [(0, 51), (0, 55), (0, 53)]);
        assert_eq!(numbers(&mounts.indirect), [(0, 60)]);
        assert!(mounts.is_archive(mounts.archives[0]) && !mounts.is_archive(mounts.indirect[0]));
        assert!(mounts.is_indirect_autofs(mounts.indirect[0]));
        assert!(Mounts::in_table("").archives.is_empty());
    }
}
