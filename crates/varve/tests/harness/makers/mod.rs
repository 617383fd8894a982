//! Makers of file systems, swap, containers and partition tables, each of which a user may put over
//! the remains of another.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

pub mod pair;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::sandbox::{has, is_root};

/// The size of all volumes. ZFS and F2FS need 64 MiB, and Btrfs has a second superblock there.
pub const VOLUME_BYTES: u64 = 72 << 20;

/// Makes one kind of content.
pub struct Maker {
    pub name: &'static str,
    needs: &'static [&'static str],
    how: How,
}

enum How {
    /// Makes nothing.
    Nothing,
    /// A shell command: `$1` is the volume, `$2` a folder for its work.
    Shell(&'static str),
    /// A shell command that only root can run.
    RootShell(&'static str),
    /// Writes bytes from this test, because this kernel may lack the driver that would write them.
    Written(fn(&File)),
}

const fn shell(name: &'static str, needs: &'static [&'static str], line: &'static str) -> Maker {
    Maker { name, needs, how: How::Shell(line) }
}

/// All makers. Every kind of content that is left out by default occurs: swap itself, swap in a
/// logical volume, a swap file of 8 MiB in ext4, and `pagefile.sys` in NTFS.
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
    // Data and metadata are mixed, because the volume is small.
    shell("btrfs", &["mkfs.btrfs", "btrfs"], "mkfs.btrfs -q -f --mixed $1"),
    // The three settings remove a lower bound of 300 MB.
    shell("xfs", &["mkfs.xfs", "xfs_db", "xfs_repair"], "TEST_DIR=t TEST_DEV=t QA_CHECK_FS=t mkfs.xfs -q -f $1"),
    shell("f2fs", &["mkfs.f2fs"], "mkfs.f2fs -q -f $1"),
    shell(
        "ntfs",
        &["mkfs.ntfs", "ntfscp", "ntfsinfo", "ntfsfix"],
        "yes memory | head -c 4194304 > $2/memory && mkfs.ntfs -q -F -f $1 && ntfscp -q $1 $2/memory pagefile.sys",
    ),
    shell("vfat", &["mkfs.fat"], "mkfs.fat -I $1"),
    shell("exfat", &["mkfs.exfat"], "mkfs.exfat $1"),
    // In a namespace of its own, without the daemon of anybody else.
    Maker {
        name: "zfs-fuse",
        needs: &["zfs-fuse", "zpool", "unshare"],
        how: How::RootShell(
            "unshare --mount sh -c 'mount -t tmpfs tmpfs /run && mkdir -p /run/lock /run/zfs && { zfs-fuse --no-daemon & pid=$!; }
             for try in $(seq 50); do test -S /run/zfs/zfs_socket && break; sleep 0.1; done
             zpool create -f -m none -o cachefile=none varvepairs \"$1\" && zpool export varvepairs
             status=$?; kill $pid; wait $pid; exit $status' sh $1",
        ),
    },
    Maker { name: "zfs (its labels)", needs: &[], how: How::Written(zfs_labels) },
    Maker { name: "md 0.90", needs: &[], how: How::Written(|file| put(file, VOLUME_BYTES - (64 << 10), MD_0_90)) },
    Maker { name: "md 1.0", needs: &[], how: How::Written(|file| put(file, VOLUME_BYTES - (8 << 10), MD_1_0)) },
    Maker { name: "md 1.1", needs: &[], how: How::Written(|file| put(file, 0, MD_1_1)) },
    Maker { name: "md 1.2", needs: &[], how: How::Written(|file| put(file, 4096, MD_1_2)) },
    Maker { name: "LVM", needs: &["pvcreate", "vgcfgrestore", "losetup", "mkswap"], how: How::RootShell(LVM) },
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
    shell("bcache", &["make-bcache", "wipefs"], "wipefs -q -a -f $1 && make-bcache -B $1"),
    // drbdmeta refuses a volume whose file system it would truncate. A user then shrinks or wipes
    // that file system. Here the metadata of an empty volume is written to the end of the volume: a
    // bitmap, a log and a superblock, 40 KiB together.
    shell("DRBD 8", &["drbdmeta"], DRBD_8),
    shell("DRBD 9", &["drbdmeta"], DRBD_9),
    // These tools write a file of their own. On a device they would write only the blocks that are
    // not zeros.
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
    shell("nilfs2", &["mkfs.nilfs2"], "mkfs.nilfs2 -q -f -B 256 $1"),
    shell("reiserfs", &["mkfs.reiserfs"], "mkfs.reiserfs -q -f -f $1"),
    shell("udf", &["mkudffs"], "mkudffs $1"),
    // An image is written to a disk unchanged, including its zeros.
    shell(
        "iso9660",
        &["genisoimage"],
        "mkdir -p $2/e && genisoimage -quiet -o $2/made $2/e && dd if=$2/made of=$1 bs=4K conv=notrunc",
    ),
    shell(
        "squashfs",
        &["mksquashfs"],
        "mkdir -p $2/e && rm -f $2/made && mksquashfs $2/e $2/made -quiet && dd if=$2/made of=$1 bs=4K conv=notrunc",
    ),
    shell("GPT", &["sfdisk"], "echo 'start=2048, size=8192, type=L' | sfdisk -q --wipe never --label gpt $1"),
    shell("MBR", &["sfdisk"], "echo 'start=2048, size=8192, type=L' | sfdisk -q --wipe never --label dos $1"),
];

/// The bytes that mdadm 4.2 and Linux 6.1 wrote to a loop device of `VOLUME_BYTES`, by `mdadm
/// --create /dev/md0 --run --force --assume-clean --level=1 --raid-devices=2 --metadata=VERSION
/// LOOP missing`. Nothing else was written there. Many kernels have no driver of Linux RAID. On
/// those that have one, a test must not start arrays, because the whole machine would see them.
const MD_0_90: &[u8] = include_bytes!("md/0.90");
const MD_1_0: &[u8] = include_bytes!("md/1.0");
const MD_1_1: &[u8] = include_bytes!("md/1.1");
const MD_1_2: &[u8] = include_bytes!("md/1.2");

/// A group with one logical volume, which holds swap. The group is restored from a description,
/// because `lvcreate` needs the device mapper in the kernel.
const LVM: &str = concat!(
    "cat > $2/group <<'END'\n",
    include_str!("lvm-group"),
    "END
     settings='backup { backup=0 archive=0 } devices { use_devicesfile=0 md_component_detection=0 }'
     uuid=hhhhhh-iiii-jjjj-kkkk-llll-mmmm-nnnnnn
     device=$(losetup --find --show $1); trap 'losetup --detach $device' EXIT
     pvcreate -q -ff -y --config \"$settings\" --devices $device --uuid $uuid --restorefile $2/group $device
     vgcfgrestore -q --config \"$settings\" --devices $device -f $2/group varvepairs
     yes memory | head -c 16777216 > $2/swap && mkswap -q $2/swap && dd if=$2/swap of=$1 bs=1M seek=13 conv=notrunc",
);
/// The range of that volume: behind 1 MiB of metadata and three extents of 4 MiB.
pub const LVM_SWAP: Range<u64> = 13 << 20..29 << 20;

/// `-` is not a DRBD device, so drbdmeta locks nothing.
const DRBD_8: &str = "rm -f $2/made && truncate -s $(stat -c %s $1) $2/made && \
     drbdmeta --force - v08 $2/made internal create-md && at=$(($(stat -c %s $1) / 4096 - 10)) && \
     dd if=$2/made of=$1 bs=4K skip=$at seek=$at conv=notrunc";
const DRBD_9: &str = "rm -f $2/made && truncate -s $(stat -c %s $1) $2/made && \
     drbdmeta --force - v09 $2/made internal create-md 1 && at=$(($(stat -c %s $1) / 4096 - 10)) && \
     dd if=$2/made of=$1 bs=4K skip=$at seek=$at conv=notrunc";

pub fn maker(name: &str) -> &'static Maker {
    MAKERS.iter().find(|maker| maker.name == name).unwrap()
}

impl Maker {
    /// Returns the reason if this maker cannot be used here.
    pub fn missing(&self) -> Option<String> {
        if matches!(self.how, How::RootShell(_)) && !is_root() {
            return Some("it needs root".into());
        }
        self.needs.iter().find(|program| !has(program)).map(|program| format!("{program} is not there"))
    }

    /// Writes the content over the present contents of a volume. Returns the output of its tools if
    /// they fail.
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

/// Runs a tool, which must succeed, and returns its output.
pub fn output(program: &str, args: &[&str]) -> String {
    let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(args).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Writes the four labels of a vdev: the list of names, and uberblocks in each slot. The first 8
/// KiB of each label stay unchanged.
fn zfs_labels(file: &File) {
    for label in [0, 256 << 10, VOLUME_BYTES - (512 << 10), VOLUME_BYTES - (256 << 10)] {
        put(file, label + (16 << 10), &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x24]);
        for slot in 0..128_u64 {
            let words = [0x00ba_b10c, 5000, 40 + slot].map(u64::to_le_bytes).concat();
            put(file, label + (128 << 10) + slot * 1024, &words);
        }
    }
}

fn put(file: &File, place: u64, bytes: &[u8]) {
    file.write_all_at(bytes, place).unwrap();
}
