//! The partition tables of the sweep.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use varve_image::{Disk, FileSystem};

use crate::sandbox::Sandbox;

pub const MIB: u64 = 1 << 20;
pub const VOLUME_BYTES: u64 = 128 * MIB;

/// The kind of a table, and the bytes of a sector; `None` for a disk without a table.
const TABLES: [Option<(&str, u64)>; 7] = [
    None,
    Some(("gpt", 512)),
    Some(("gpt", 2048)),
    Some(("gpt", 4096)),
    Some(("dos", 512)),
    Some(("dos", 2048)),
    Some(("dos", 4096)),
];

/// Runs lines of the shell, with words as `$1` and so on.
pub fn shell(line: &str, words: &[&str]) -> bool {
    // The settings remove a lower bound of 300 MB.
    let start =
        "PATH=$PATH:/usr/sbin:/sbin; export TEST_DIR=t TEST_DEV=t QA_CHECK_FS=t; XFS='mkfs.xfs -q -f'";
    let line = format!("{start}; {line}");
    Command::new("sh").args(["-c", &line, "sh"]).args(words).output().unwrap().status.success()
}

/// Returns false, and says so, if this user may not attach loop devices, which have the sectors of
/// the tables.
#[expect(clippy::print_stdout, reason = "a test that does not run says so")]
pub fn can_attach() -> bool {
    let sandbox = Sandbox::new();
    let disk = sandbox.sparse("disk", MIB);
    let line = "device=$(losetup -f --show \"$1\") && losetup -d \"$device\"";
    let can = shell(line, &[disk.to_str().unwrap()]);
    if !can {
        println!("SKIPPED: loop devices cannot be attached");
    }
    can
}

/// Puts a volume into a partition of a new disk. Returns the disk, and the start of the partition.
fn in_table(sandbox: &Sandbox, volume: &Path, table: (&str, u64)) -> (PathBuf, u64) {
    let (kind, sector_bytes) = table;
    let start = 4 * MIB;
    let disk = sandbox.sparse("in a table", VOLUME_BYTES + 8 * MIB);
    let sectors = |bytes: u64| bytes / sector_bytes;
    let script = format!("label: {kind}\nstart={}, size={}, type=L\n", sectors(start), sectors(VOLUME_BYTES));
    let line = "device=$(losetup -b $1 -f --show \"$2\") && printf '%s' \"$3\" | sfdisk -q \"$device\"; \
                status=$?; losetup -d \"$device\"; exit $status";
    let words = [&sector_bytes.to_string(), disk.to_str().unwrap(), &script];
    assert!(shell(line, &words), "{table:?}");
    let mut into = File::options().write(true).open(&disk).unwrap();
    into.seek(SeekFrom::Start(start)).unwrap();
    io::copy(&mut File::open(volume).unwrap(), &mut into).unwrap();
    (disk, start)
}

/// Opens a volume in each of the tables, or in one of them, and gives its file system to `compare`,
/// with the disk, the start of the volume on it and the name of the table.
pub fn in_each_table(
    sandbox: &Sandbox,
    volume: &Path,
    number: usize,
    what: &str,
    mut compare: impl FnMut(&dyn FileSystem, &Path, u64, &str),
) {
    let is_whole = std::env::var("VARVE_SWEEP").is_ok_and(|which| which == "all");
    let one = [TABLES[number % TABLES.len()]];
    for table in if is_whole { &TABLES[..] } else { &one } {
        let (disk, start) = match table {
            Some(table) => in_table(sandbox, volume, *table),
            None => (volume.to_owned(), 0),
        };
        let read = Disk::open(Arc::new(File::open(&disk).unwrap()));
        let name = if table.is_some() { "p1" } else { "p0" };
        let part = read.volume(name).unwrap_or_else(|| panic!("{what} in {table:?}"));
        assert_eq!((part.start(), part.size()), (start, VOLUME_BYTES), "{what} in {table:?}");
        let files = part.open_file_system().unwrap();
        assert_eq!(files.warning(), None, "{what}");
        let table = table.map_or("no table".into(), |(kind, bytes)| format!("{kind}, {bytes} bytes"));
        compare(&*files, &disk, start, &table);
    }
}
