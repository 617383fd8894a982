//! Virtual file systems, which hold no data: the kernel generates their contents.
//!
//! Their files change with each look, report wrong sizes, block, or act when they are read. A
//! virtual file system that is mounted in a source is therefore archived as an empty folder, unless
//! an option demands otherwise. It is detected by the magic number that the system returns for the
//! open folder (`statfs(2)`). A table of mounts could be outdated by then.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// The magic numbers and names: from `linux/magic.h`, or from the sources of the file system if the
/// number is missing there.
const VIRTUAL: [(u32, &str); 33] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x1cd1, "devpts"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x7472_6163, "tracefs"),
    (0x6462_6720, "debugfs"),
    (0x7363_6673, "securityfs"),
    (0xcafe_4a11, "bpf"),
    (0x1980_0202, "mqueue"),
    (0xde5e_81e4, "efivarfs"),
    (0x6165_676c, "pstore"),
    (0x6265_6570, "configfs"),
    (0x6573_5543, "fusectl"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x9584_58f6, "hugetlbfs"),
    (0x6759_6969, "rpc_pipefs"),
    (0x6e66_7364, "nfsd"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4341_5d53, "smackfs"),
    (0x5a3c_69f0, "apparmorfs"),
    (AUTOFS, "autofs"),
    (0x6e73_6673, "nsfs"),
    (0x5049_4446, "pidfs"),
    (0x0765_5821, "resctrl"),
    (0xabba_1974, "xenfs"),
    (0x9fa1, "openpromfs"),
    (0x9fa2, "usbdevfs"),
    (0x6c6f_6f70, "binder"),
    (0x0a64_7361, "functionfs"),
    (0xaee7_1ee7, "gadgetfs"),
    (0x6f70_726f, "oprofilefs"),
    (0x76a9_f425, "ocfs2_dlmfs"),
];
const AUTOFS: u32 = 0x0187;

/// The name of the file system of an open file or folder, if it is a virtual one.
pub(crate) fn name_of(file: impl AsFd) -> Option<&'static str> {
    name(magic(file)?)
}

fn magic(file: impl AsFd) -> Option<u32> {
    let status = rustix::fs::fstatfs(file).ok()?;
    // The number has 32 bits. The field is wider on some machines, and signed on some.
    #[allow(clippy::unnecessary_cast, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Some(status.f_type as u32)
}

fn name(magic: u32) -> Option<&'static str> {
    VIRTUAL.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

/// Checks the entry with this name in `folder` without opening it, so that an automount point stays
/// unmounted.
pub(super) fn name_of_unopened(folder: impl AsFd, name: &[u8]) -> Option<&'static str> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place: OwnedFd = rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?;
    name_of(place)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::File;

    use super::*;

    #[test]
    fn each_is_there_once() {
        let numbers: BTreeSet<_> = VIRTUAL.iter().map(|(number, _)| number).collect();
        let names: BTreeSet<_> = VIRTUAL.iter().map(|(_, name)| name).collect();
        assert_eq!((numbers.len(), names.len()), (VIRTUAL.len(), VIRTUAL.len()));
    }

    #[test]
    fn file_systems_with_data_are_none_of_them() {
        // tmpfs, ramfs, devtmpfs (which is one of both), ext4, XFS, btrfs, overlay, NFS, FUSE, ZFS,
        // squashfs, 9p, CIFS.
        for magic in [
            0x0102_1994,
            0x8584_58f6,
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x794c_7630,
            0x6969,
            0x6573_5546,
            0x2fc1_2fc1,
            0x7371_7368,
            0x0102_1997,
            0xff53_4d42,
        ] {
            assert_eq!(name(magic), None, "{magic:x}");
        }
    }

    #[test]
    fn the_running_system_says_so_itself() {
        assert_eq!(name_of(File::open("/proc/self").unwrap()), Some("proc"));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(name_of(File::open(folder.path()).unwrap()), None);
        assert_eq!(name_of_unopened(File::open("/").unwrap(), b"proc"), Some("proc"));
    }
}
