//! File systems that hold no data: the kernel makes up what they show.
//!
//! Their files change with each look, say sizes that are not theirs, block, or act when they are read. So what is mounted in a source is
//! left empty if it is one of them, unless asked otherwise. Which one it is follows from the magic number that the system gives for the
//! open folder (`statfs(2)`), and not from a table of mounts, which may be another one by then.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// Their magic numbers and names: `linux/magic.h`, and the file systems' own sources for those that it lacks.
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

/// What an open file or folder says of its file system: its name, if it is one of these.
pub(super) fn name_of(file: impl AsFd) -> Option<&'static str> {
    name(magic(file)?)
}

fn magic(file: impl AsFd) -> Option<u32> {
    let status = rustix::fs::fstatfs(file).ok()?;
    // The number has 32 bits; the field is wider on some machines, and signed on some.
    #[allow(clippy::unnecessary_cast, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Some(status.f_type as u32)
}

fn name(magic: u32) -> Option<&'static str> {
    VIRTUAL.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

/// Looks at what has this name in `folder` without opening it: a folder where something would be mounted by being opened stays as it is.
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
        // tmpfs, ramfs, devtmpfs (which is one of both), ext4, XFS, btrfs, overlay, NFS, FUSE, ZFS, squashfs, 9p, CIFS.
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
