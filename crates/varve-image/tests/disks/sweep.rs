//! File systems of many features, in partition tables of many kinds: each file is the same as in a
//! mount by the kernel, or in a copy by another program. `VARVE_SWEEP=all` tries each file system
//! in each table (`script/soak --disks`); without it, each is in one of the tables.

mod copies;
mod tables;
mod volume_groups;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use tables::{MIB, VOLUME_BYTES, in_each_table, shell};

use crate::kernel_view::compare;
use crate::sandbox::{Sandbox, missing, unmount};
use crate::walk::sample;

/// The type of a mount, and the command that makes the file system on `$1`.
type Maker = (&'static str, &'static str);

const MAKERS: [Maker; 21] = [
    ("ext2", "mkfs.ext2 -q -F $1"),
    ("ext2", "mkfs.ext2 -q -F -b 1024 -I 128 -O ^dir_index,^resize_inode $1"),
    ("ext3", "mkfs.ext3 -q -F -b 2048 $1"),
    ("ext4", "mkfs.ext4 -q -F $1"),
    ("ext4", "mkfs.ext4 -q -F -b 1024 -O ^64bit,^metadata_csum $1"),
    ("ext4", "mkfs.ext4 -q -F -O bigalloc -C 65536 $1"),
    ("ext4", "mkfs.ext4 -q -F -I 512 -O inline_data $1"),
    ("ext4", "mkfs.ext4 -q -F -O ^extent,^64bit,^flex_bg,^huge_file $1"),
    ("ext4", "mkfs.ext4 -q -F -O ^has_journal,uninit_bg,^metadata_csum $1"),
    ("ext4", "mkfs.ext4 -q -F -O meta_bg,^resize_inode,sparse_super2 $1"),
    ("ext4", "mkfs.ext4 -q -F -O ea_inode,large_dir $1"),
    ("ext4", "mkfs.ext4 -q -F -O encrypt,verity,metadata_csum_seed $1"),
    ("ext4", "mkfs.ext4 -q -F -O orphan_file,fast_commit,mmp $1"),
    ("xfs", "$XFS $1"),
    ("xfs", "$XFS -b size=1024 -m reflink=0,rmapbt=0,bigtime=0 $1"),
    ("xfs", "$XFS -s size=4096 -n size=16384 -m rmapbt=1 -i nrext64=1 $1"),
    ("btrfs", "mkfs.btrfs -q $1"),
    ("btrfs", "mkfs.btrfs -q --mixed -n 4096 $1"),
    ("btrfs", "mkfs.btrfs -q -n 65536 -m single -O ^no-holes $1"),
    ("btrfs", "mkfs.btrfs -q --csum sha256 -m dup $1"),
    ("btrfs", "mkfs.btrfs -q --csum xxhash -R quota,^free-space-tree $1"),
];

/// A mounted part of a file. It is unmounted at the end, also of a test that fails.
struct Mounted(PathBuf);

impl Mounted {
    fn new(sandbox: &Sandbox, kind: &str, disk: &Path, start: u64, options: &str) -> Option<Self> {
        let mount = sandbox.path("mount");
        fs::create_dir_all(&mount).unwrap();
        let line = "mount -t $1 -o loop,noatime,offset=$2,sizelimit=$3,$4 \"$5\" \"$6\"";
        let (start, size) = (start.to_string(), VOLUME_BYTES.to_string());
        let words = [kind, &start, &size, options, disk.to_str().unwrap(), mount.to_str().unwrap()];
        shell(line, &words).then_some(Self(mount))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

fn fill(folder: &Path) {
    let content = folder.join("content");
    fs::create_dir(&content).unwrap();
    sample(&content);
    fs::hard_link(content.join("large.bin"), folder.join("the same")).unwrap();
    symlink("content/one byte", folder.join("link")).unwrap();
    symlink("t".repeat(900), folder.join("long link")).unwrap();
    let sparse = File::create(folder.join("sparse")).unwrap();
    sparse.set_len(9 * MIB).unwrap();
    sparse.write_all_at(b"in the middle", 5 * MIB + 77).unwrap();
    let words = [folder.to_str().unwrap()];
    let line = "cd \"$1\" && setfattr -n user.note -v 'a note' link content/ROUND.BIN; setfattr -n user.note -v \
                'a note' content/ROUND.BIN content && setfacl -m u:1234:rw content/EMPTY && chmod 4711 sparse && \
                chown 7:4000000000 sparse && mkfifo fifo && mknod null c 1 3 && fallocate -l 300000 ahead";
    // Ext2 and ext3 allocate nothing ahead.
    let _ = shell(line, &words);
    for number in 0..700 {
        fs::write(folder.join(format!("a name of a file {number}")), vec![7; number]).unwrap();
    }
    (0..700)
        .step_by(3)
        .for_each(|number| fs::remove_file(folder.join(format!("a name of a file {number}"))).unwrap());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the table tells how long each comparison takes")]
fn every_file_is_that_of_a_mount_in_every_table() {
    let tools =
        ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "sfdisk", "losetup", "setfattr", "setfacl", "getfattr"];
    if missing(&tools) {
        return;
    }
    let mut compared = 0;
    for (number, (kind, make)) in MAKERS.into_iter().enumerate() {
        let sandbox = Sandbox::new();
        let volume = sandbox.sparse("volume", VOLUME_BYTES);
        let is_made = shell(&make.replace("$1", "\"$1\""), &[volume.to_str().unwrap()]);
        let mounted = Some(()).filter(|()| is_made);
        let mounted = mounted.and_then(|()| Mounted::new(&sandbox, kind, &volume, 0, "rw"));
        let Some(mount) = mounted else {
            let problem = if is_made { "the kernel does not mount it" } else { "mkfs does not make it" };
            println!("SKIPPED: {make}: {problem}");
            continue;
        };
        fill(&mount.0);
        drop(mount);
        in_each_table(&sandbox, &volume, number, make, |files, disk, start, table| {
            let started = Instant::now();
            let mount = Mounted::new(&sandbox, kind, disk, start, "ro").unwrap();
            // The kernel counts the space of content in inodes, and rounds on Btrfs.
            let is_exact = kind != "btrfs" && !make.contains("inline_data");
            let count = compare(files, &mount.0, is_exact);
            assert!(count > 600, "{make}: {count}");
            compared += 1;
            println!("{make:75} | {table:15} | {count} files | {:.1?}", started.elapsed());
        });
    }
    assert!(compared > 10 || compared == 0, "{compared}");
}
