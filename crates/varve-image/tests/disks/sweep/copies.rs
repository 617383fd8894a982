//! File systems that another program fills and reads: each file is the same in the copy that this
//! program makes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use varve_image::FileKind;

use super::tables::{VOLUME_BYTES, can_attach, in_each_table};
use crate::sandbox::{Sandbox, missing};
use crate::walk::{Seen, of_folder, sample, walk, without};

/// The lines that fill a volume, and those that copy everything in it.
struct Copied {
    fill: &'static str,
    copy: &'static str,
    /// True if the file system and the copy have modes, and times of folders.
    is_unix: bool,
}

const fn copied(fill: &'static str, copy: &'static str) -> Copied {
    Copied { fill, copy, is_unix: false }
}

const ROWS: [Copied; 18] = [
    copied("fat -F 12 -s 128", "fat_copy"),
    copied("fat -F 16 -s 4", "fat_copy"),
    copied("fat -F 16 -S 2048 -f 1 -r 1024", "fat_copy"),
    copied("fat -F 32 -s 1", "fat_copy"),
    copied("fat -F 32 -S 1024 -s 1", "fat_copy"),
    copied("fat -F 16 -S 4096 -s 4", "fat_copy"),
    copied("exfat 512 -c 4096", "exfat_copy 512"),
    copied("exfat 512 -c 65536", "exfat_copy 512"),
    copied("exfat 4096", "exfat_copy 4096"),
    copied("ntfs 512 -c 512", "ntfs_copy 512"),
    copied("ntfs 512 -c 4096 -C", "ntfs_copy 512"),
    copied("ntfs 512 -c 65536", "ntfs_copy 512"),
    copied("ntfs 4096", "ntfs_copy 4096"),
    Copied { fill: "iso genisoimage -R", copy: "iso_copy", is_unix: true },
    Copied { fill: "iso xorriso -as mkisofs -R", copy: "iso_copy", is_unix: true },
    copied("iso genisoimage -J -joliet-long", "iso_copy -read_fs norock"),
    copied("iso xorriso -as mkisofs -J -joliet-long --norock -iso-level 3", "iso_copy -read_fs norock"),
    Copied { fill: "iso genisoimage -R -J -joliet-long", copy: "iso_copy", is_unix: true },
];

/// The words of the rows. `$volume` is the disk, `$files` the folder that is copied to it or from
/// it, and `$mount` an empty folder. Removed files leave holes, and the next files are put into
/// these.
const WORDS: &str = r#"
set -e
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C.UTF-8 TZ=UTC
volume=$1 files=$2 mount=$3

fat() {
    mkfs.fat "$@" "$volume"
    cd "$files"
    mcopy -s -m -i "$volume" many ::
    mdel -i "$volume" '::many/file number 1[0-9]*'
    mcopy -s -m -i "$volume" large.bin [!lm]* ::
    mcopy -D o -m -i "$volume" many/*\ 1[0-9]*.txt ::many
}
fat_copy() { mcopy -s -m -n -i "$volume" '::*' "$files"; }

# Drivers of FUSE take a device with sectors of $1 bytes. The line ends once they have written all.
device() {
    device=$(losetup -b "$1" -f --show "$volume")
    trap 'umount "$mount" || true; losetup -d "$device"' EXIT
}
age() {
    cp -r --preserve=timestamps "$files/many" "$mount"
    rm "$mount/many/file number 1"[0-9]*
    cp -r --preserve=timestamps "$files/." "$mount"
    for turn in $(seq 40); do
        for name in one other; do
            head -c 5000 "$files/large.bin" >> "$mount/$name in turns"
        done
    done
    truncate -s 100000 "$mount/one byte"
}
copy() { cp -r --preserve=timestamps "$mount/." "$files"; }

exfat() {
    device "$1"
    shift
    mkfs.exfat "$@" "$device"
    mount.exfat-fuse "$device" "$mount"
    age
}
exfat_copy() {
    device "$1"
    mount.exfat-fuse -o ro "$device" "$mount"
    copy
}

ntfs() {
    device "$1"
    shift
    mkfs.ntfs -Q "$@" "$device"
    ntfs-3g -o compression "$device" "$mount"
    age
    for number in $(seq 800); do
        echo $number > "$mount/deep/a file that makes the folder and the table longer $number"
    done
    rm "$mount"/deep/a*[369]
}
ntfs_copy() {
    device "$1"
    ntfs-3g -o ro "$device" "$mount"
    copy
}

iso() {
    ln -s ../large.bin "$files/deep/link" || true
    "$@" -quiet -o "$volume" "$files"
    truncate -s "$volume_bytes" "$volume"
}
iso_copy() { xorriso "$@" -osirrox on -indev "$volume" -extract / "$files"; }
"#;

/// Runs the words of a row. Returns false, and says why, if they fail.
#[expect(clippy::print_stdout, reason = "a test that does not run says so")]
fn run(line: &str, words: [&Path; 3]) -> bool {
    let script = format!("volume_bytes={VOLUME_BYTES}\n{WORDS}\n{line}");
    let output = Command::new("sh").args(["-c", &script, "sh"]).args(words).output().unwrap();
    let is_done = output.status.success();
    if !is_done {
        println!("{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    is_done
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the table tells how long each comparison takes")]
fn every_file_is_that_of_a_copy_in_every_table() {
    let programs = ["mkfs.fat", "mcopy", "mkfs.exfat", "mount.exfat-fuse", "mkfs.ntfs", "ntfs-3g"];
    if missing(&programs) || missing(&["genisoimage", "xorriso", "sfdisk", "losetup"]) || !can_attach() {
        return;
    }
    let mut compared = 0;
    for (number, row) in ROWS.into_iter().enumerate() {
        let sandbox = Sandbox::new();
        let volume = sandbox.sparse("volume", VOLUME_BYTES);
        let (source, copy, mount) = (sandbox.path("source"), sandbox.path("copy"), sandbox.path("mount"));
        sample(&source);
        fs::create_dir(&copy).unwrap();
        fs::create_dir(&mount).unwrap();
        if !run(row.fill, [&volume, &source, &mount]) || !run(row.copy, [&volume, &copy, &mount]) {
            println!("SKIPPED: {}", row.fill);
            continue;
        }
        // FAT has no modes, and the times of its folders and of all links are those of the copy.
        let forget = |seen: &mut Seen| {
            if !row.is_unix {
                seen.mode = 0;
            }
            let is_of_the_copy =
                seen.kind == FileKind::SymbolicLink || !row.is_unix && seen.kind == FileKind::Folder;
            if is_of_the_copy {
                seen.modified = 0;
            }
        };
        let expected = without(of_folder(&copy), forget);
        in_each_table(&sandbox, &volume, number, row.fill, |files, _, _, table| {
            let started = Instant::now();
            let found = without(walk(files), forget);
            let names = found.keys().collect::<Vec<_>>();
            assert_eq!(names, expected.keys().collect::<Vec<_>>(), "{} in {table}", row.fill);
            for (path, seen) in &expected {
                let (ours, theirs) = (&found[path], seen);
                let shown = |it: &Seen| (it.kind, it.size, it.mode, it.modified);
                assert!(
                    ours == theirs,
                    "{} in {table}: {path}: {:?}, {:?}",
                    row.fill,
                    shown(ours),
                    shown(theirs)
                );
            }
            assert!(found.len() > 150, "{}: {}", row.fill, found.len());
            compared += 1;
            println!("{:55} | {table:15} | {} files | {:.1?}", row.fill, found.len(), started.elapsed());
        });
    }
    assert!(compared > 8, "{compared}");
}
