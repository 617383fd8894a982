//! FAT, as `mkfs.fat` and mtools write it, and with damage.

use std::fs;

use crate::sandbox::{Sandbox, missing};
use crate::walk::{Seen, of_folder, open, sample, wade_damaged, walk, without};
use varve_image::FileKind;

const MIB: u64 = 1 << 20;

/// A disk of `bits`, with the sample in it, some files in many pieces.
fn disk(sandbox: &Sandbox, bits: &str, size: u64) -> Vec<u8> {
    let disk = sandbox.sparse("disk", size);
    let disk_name = disk.to_str().unwrap();
    let source = sandbox.path("source");
    sample(&source);
    sandbox.run(&["mkfs.fat", "-F", bits, "-n", "A LABEL", disk_name], "");
    // Removed files leave holes, and the next files are put into these.
    let copy = |names: &str| {
        let line = format!("mcopy -s -m -i '{disk_name}' {names} ::");
        sandbox.run(&["sh", "-c", &line], "");
    };
    copy("source/many");
    sandbox.run(&["sh", "-c", &format!("mdel -i '{disk_name}' '::many/file number 1[0-9]*'")], "");
    copy("source/large.bin source/[!lm]*");
    sandbox.run(
        &["sh", "-c", &format!("mcopy -D o -m -i '{disk_name}' source/many/*\\ 1[0-9]*.txt ::many")],
        "",
    );
    fs::read(disk).unwrap()
}

#[test]
fn files_are_those_that_were_put() {
    if missing(&["mkfs.fat", "mcopy"]) {
        return;
    }
    for (bits, size) in [("12", 2 * MIB), ("16", 32 * MIB), ("32", 64 * MIB)] {
        let sandbox = Sandbox::new();
        let found = walk(&*open(disk(&sandbox, bits, size)));
        let forget = |seen: &mut Seen| {
            seen.mode = 0;
            // mtools gives a folder the time at which it was made.
            if seen.kind == FileKind::Folder {
                seen.modified = 0;
            }
        };
        let expected = without(of_folder(&sandbox.path("source")), forget);
        let found = without(found, forget);
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "FAT{bits}");
        for (path, seen) in &expected {
            assert!(found[path] == *seen, "FAT{bits} {path}: {:?}", found[path].modified);
        }
    }
}

/// OS/2 and Windows NT keep a reference to a file's extended attributes in these two bytes, unless
/// the table has 32 bits.
#[test]
fn extended_attributes_are_no_part_of_a_cluster_number() {
    if missing(&["mkfs.fat", "mcopy"]) {
        return;
    }
    for (bits, size) in [("12", 2 * MIB), ("16", 32 * MIB)] {
        let mut disk = disk(&Sandbox::new(), bits, size);
        let expected = walk(&*open(disk.clone()));
        for name in [b"ROUND   BIN", b"MANY       "] {
            let is_there =
                |at: &usize| disk[*at..].starts_with(name) || disk[*at..].starts_with(b"LARGE   BIN");
            let places: Vec<_> = (0..disk.len()).step_by(32).filter(is_there).collect();
            assert!(!places.is_empty());
            places.into_iter().for_each(|at| disk[at + 20..at + 22].copy_from_slice(&[7, 0]));
        }
        assert!(walk(&*open(disk)) == expected, "FAT{bits}");
    }
}

#[test]
fn damage_does_no_harm() {
    if missing(&["mkfs.fat", "mcopy"]) {
        return;
    }
    for (bits, size) in [("12", 2 * MIB), ("16", 32 * MIB), ("32", 64 * MIB)] {
        let mut disk = disk(&Sandbox::new(), bits, size);
        let used = disk.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let whole = disk.len();
        disk.truncate((used + 65536).min(whole));
        wade_damaged(&disk, &[0..96, 512..8192, 16384..40960, 0..used.min(1 << 20)], 150);
    }
}
