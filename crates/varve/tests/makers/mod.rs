//! Makers of file systems, swap and containers: what a user may put on a disk, over what was there before.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::sandbox::{has, is_root};

/// All volumes have this size: what the makers ask for at least.
pub const VOLUME_BYTES: u64 = 128 << 20;

/// Makes one kind of content.
pub struct Maker {
    pub name: &'static str,
    needs: &'static [&'static str],
    how: How,
}

enum How {
    /// Nothing is made.
    Nothing,
    /// A shell's command: the volume is `$1`, and `$2` is a folder to work in.
    Shell(&'static str),
    /// The same, which only root can do.
    RootShell(&'static str),
    /// The bytes that a kernel would write, as its documentation has them.
    Written(fn(&File)),
}

const fn shell(name: &'static str, needs: &'static [&'static str], line: &'static str) -> Maker {
    Maker { name, needs, how: How::Shell(line) }
}

/// All of them. An ext4 file system has a swap file of 8 MiB, so that both kinds of swap are met.
pub const MAKERS: &[Maker] = &[
    Maker { name: "nothing", needs: &[], how: How::Nothing },
    shell("swap", &["mkswap"], "mkswap -q -U 01234567-89ab-cdef-0123-456789abcdef $1"),
    shell("ext2", &["mke2fs"], "mke2fs -q -F -t ext2 $1"),
    shell("ext3", &["mke2fs"], "mke2fs -q -F -t ext3 $1"),
    shell(
        "ext4",
        &["mke2fs", "debugfs", "mkswap"],
        "mkdir -p $2/tree && yes memory | head -c 8388608 > $2/tree/swapfile && mkswap -q $2/tree/swapfile && \
         mke2fs -q -F -t ext4 -b 4096 -d $2/tree $1 && \
         for set in 'mode 0100600' 'uid 0'; do debugfs -w -R \"set_inode_field swapfile $set\" $1; done",
    ),
    shell("btrfs", &["mkfs.btrfs"], "mkfs.btrfs -q -f $1"),
    // The three settings take away a limit of 300 MB.
    shell("xfs", &["mkfs.xfs"], "TEST_DIR=t TEST_DEV=t QA_CHECK_FS=t mkfs.xfs -q -f $1"),
    shell("f2fs", &["mkfs.f2fs"], "mkfs.f2fs -q -f $1"),
    shell("ntfs", &["mkfs.ntfs"], "mkfs.ntfs -q -F -f $1"),
    shell("vfat", &["mkfs.fat"], "mkfs.fat -I $1"),
    shell("exfat", &["mkfs.exfat"], "mkfs.exfat $1"),
    // In a namespace of its own, where nobody else's daemon is.
    Maker {
        name: "zfs-fuse",
        needs: &["zfs-fuse", "zpool", "unshare"],
        how: How::RootShell(
            "unshare --mount sh -c 'mount -t tmpfs tmpfs /run && mkdir -p /run/lock /run/zfs && { zfs-fuse --no-daemon & pid=$!; }
             for try in $(seq 50); do test -S /run/zfs/zfs_socket && break; sleep 0.1; done
             zpool create -f -m none -o cachefile=none varvepairs \"$1\" && sync && zpool export varvepairs
             status=$?; kill $pid; wait $pid; exit $status' sh $1",
        ),
    },
    Maker { name: "zfs (its labels)", needs: &[], how: How::Written(zfs_labels) },
    Maker { name: "md 0.90 (its superblock)", needs: &[], how: How::Written(md_old) },
    Maker {
        name: "md 1.0 (its superblock)",
        needs: &[],
        how: How::Written(|file| md(file, VOLUME_BYTES - (8 << 10))),
    },
    Maker { name: "md 1.1 (its superblock)", needs: &[], how: How::Written(|file| md(file, 0)) },
    Maker { name: "md 1.2 (its superblock)", needs: &[], how: How::Written(|file| md(file, 4096)) },
    Maker {
        name: "LVM",
        needs: &["pvcreate", "losetup"],
        how: How::RootShell(
            "device=$(losetup --find --show $1) && pvcreate -q -ff -y --devices $device $device; status=$?
             losetup --detach $device; exit $status",
        ),
    },
    shell(
        "LUKS 1",
        &["cryptsetup"],
        "echo pass > $2/key; cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 $1 $2/key",
    ),
    shell(
        "LUKS 2",
        &["cryptsetup"],
        "echo pass > $2/key
         cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 $1 $2/key",
    ),
    shell("gfs2", &["mkfs.gfs2"], "mkfs.gfs2 -q -O -p lock_nolock -J 8 $1"),
    shell("ocfs2", &["mkfs.ocfs2"], "mkfs.ocfs2 -q -F -x -M local -J size=4M $1"),
    shell("bcache", &["make-bcache", "wipefs"], "wipefs -q -a $1 && make-bcache -B $1"),
    shell("DRBD 8", &["drbdmeta"], "drbdmeta --force 0 v08 $1 internal create-md"),
    shell("DRBD 9", &["drbdmeta"], "drbdmeta --force 0 v09 $1 internal create-md 1"),
    // These write a file of their own; a real one writes no other blocks than those that are not zeros.
    shell(
        "ufs1",
        &["makefs"],
        "mkdir -p $2/e && makefs -t ffs -o version=1 -s 64m $2/made $2/e && dd if=$2/made of=$1 bs=4K conv=notrunc,sparse",
    ),
    shell(
        "ufs2",
        &["makefs"],
        "mkdir -p $2/e && makefs -t ffs -o version=2 -s 64m $2/made $2/e && dd if=$2/made of=$1 bs=4K conv=notrunc,sparse",
    ),
    shell("jfs", &["mkfs.jfs"], "mkfs.jfs -q $1"),
    shell("nilfs2", &["mkfs.nilfs2"], "mkfs.nilfs2 -q -f -B 1024 $1"),
    shell("reiserfs", &["mkfs.reiserfs"], "mkfs.reiserfs -q -f -f $1"),
    shell("udf", &["mkudffs"], "mkudffs $1"),
];

pub fn maker(name: &str) -> &'static Maker {
    MAKERS.iter().find(|maker| maker.name == name).unwrap()
}

impl Maker {
    /// What keeps it from being used here.
    pub fn missing(&self) -> Option<String> {
        if matches!(self.how, How::RootShell(_)) && !is_root() {
            return Some("it needs root".into());
        }
        self.needs.iter().find(|program| !has(program)).map(|program| format!("{program} is not there"))
    }

    /// Makes it over what is in a volume. Returns what went wrong.
    pub fn make(&self, volume: &Path, work: &Path) -> Result<(), String> {
        let line = match &self.how {
            How::Nothing => return Ok(()),
            How::Written(write) => {
                write(&File::options().write(true).open(volume).unwrap());
                return Ok(());
            }
            How::Shell(line) | How::RootShell(line) => line,
        };
        let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let output = Command::new("sh")
            .args(["-ec", line, "sh"])
            .args([volume, work])
            .env("PATH", path)
            .current_dir(work)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

/// The four labels of a vdev: the list of names, and uberblocks in each slot. The first 8 KiB stay as they were.
fn zfs_labels(file: &File) {
    for label in [0, 256 << 10, VOLUME_BYTES - (512 << 10), VOLUME_BYTES - (256 << 10)] {
        file.write_all_at(&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x24], label + (16 << 10)).unwrap();
        for slot in 0..128_u64 {
            let words = [0x00ba_b10c, 5000, 40 + slot].map(u64::to_le_bytes).concat();
            file.write_all_at(&words, label + (128 << 10) + slot * 1024).unwrap();
        }
    }
}

/// The superblock of version 0.90: 32-bit words, 64 KiB before the end.
fn md_old(file: &File) {
    let size_kib = u32::try_from((VOLUME_BYTES - (64 << 10)) >> 10).unwrap();
    let words: [u32; 16] =
        [0xa92b_4efc, 0, 90, 0, 0, 0x1234, 1_700_000_000, 1, size_kib, 2, 2, 0, 0, 5, 6, 7];
    file.write_all_at(&words.map(u32::to_le_bytes).concat(), VOLUME_BYTES - (64 << 10)).unwrap();
}

/// The superblock of version 1, wherever it lies.
fn md(file: &File, place: u64) {
    let mut block = [0; 256];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xfc, 0x4e, 0x2b, 0xa9, 1]);
    put(16, b"an array's UUID.here:pairs");
    put(72, &1_u32.to_le_bytes());
    put(80, &((VOLUME_BYTES >> 9) - 4096).to_le_bytes());
    put(92, &2_u32.to_le_bytes());
    put(128, &2048_u64.to_le_bytes());
    put(144, &(place >> 9).to_le_bytes());
    let sum: u64 =
        block.chunks_exact(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
    let sum = u32::try_from((sum & 0xffff_ffff) + (sum >> 32)).unwrap();
    block[216..220].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&block, place).unwrap();
}
