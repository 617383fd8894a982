//! ISO 9660, as `genisoimage` and `xorriso` write it, and with damage.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::sandbox::{Sandbox, missing};
use crate::walk::{Files, Seen, of_folder, open, sample, wade_damaged, walk, without};
use varve_image::FileKind;

fn source(sandbox: &Sandbox) -> std::path::PathBuf {
    let source = sandbox.path("source");
    sample(&source);
    source
}

/// The source with more files of the kinds that Rock Ridge keeps.
fn unix_source(sandbox: &Sandbox) -> std::path::PathBuf {
    let source = source(sandbox);
    symlink("../one byte", source.join("deep/link")).unwrap();
    symlink("/an/absolute/../path/./of/some/length", source.join("absolute")).unwrap();
    // With a longer target, genisoimage loses the times.
    let long = "component/".repeat(10) + "end";
    symlink(&long, source.join("long link")).unwrap();
    let deep = source.join("1/2/3/4/5/6/7/8/9/10");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("far down"), b"here").unwrap();
    fs::write(source.join("n".repeat(200)), b"a long name").unwrap();
    std::fs::set_permissions(source.join("one byte"), std::os::unix::fs::PermissionsExt::from_mode(0o4751))
        .unwrap();
    source
}

fn made(sandbox: &Sandbox, program: &str, options: &[&str], source: &Path) -> Vec<u8> {
    let disk = sandbox.path("disk.iso");
    let mut words = vec![program];
    if program == "xorriso" {
        words.extend(["-as", "mkisofs"]);
    }
    words.extend(["-quiet", "-o", disk.to_str().unwrap()]);
    words.extend(options);
    words.push(source.to_str().unwrap());
    sandbox.run(&words, "");
    fs::read(disk).unwrap()
}

fn assert_same(found: &Files, expected: &Files, what: &str) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for (path, seen) in expected {
        let Seen { kind, size, mode, modified, content } = &found[path];
        let shown = (kind, size, mode, modified, String::from_utf8_lossy(&content[..content.len().min(60)]));
        assert!(
            found[path] == *seen,
            "{what} {path}: {shown:?}, not {:?}",
            (seen.kind, seen.size, seen.mode, seen.modified)
        );
    }
}

#[test]
fn rock_ridge_shows_what_was_there() {
    for program in ["genisoimage", "xorriso"] {
        if missing(&[program]) {
            continue;
        }
        let sandbox = Sandbox::new();
        let source = unix_source(&sandbox);
        let mut found = walk(&*open(made(&sandbox, program, &["-R"], &source)));
        // The folder into which deep folders were moved is empty: each of them is shown at its
        // original place.
        found.remove("/rr_moved");
        found.remove("/.rr_moved");
        let mut expected = of_folder(&source);
        // In some programs, a moved folder has the time at which it was made.
        let forget = |seen: &mut Seen| {
            if seen.kind == FileKind::Folder {
                seen.modified = 0;
                seen.mode = 0;
            }
        };
        expected = without(expected, forget);
        assert_same(&without(found, forget), &expected, program);
    }
}

#[test]
fn joliet_shows_names_and_bytes() {
    if missing(&["genisoimage"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let source = source(&sandbox);
    let disk = made(&sandbox, "genisoimage", &["-J", "-joliet-long"], &source);
    let forget = |seen: &mut Seen| {
        seen.mode = 0;
        if seen.kind == FileKind::Folder {
            seen.modified = 0;
        }
    };
    let found = without(walk(&*open(disk)), forget);
    assert_same(&found, &without(of_folder(&source), forget), "Joliet");
}

#[test]
fn plain_names_are_small() {
    if missing(&["genisoimage"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let source = sandbox.path("plain");
    fs::create_dir_all(source.join("FOLDER")).unwrap();
    fs::write(source.join("FOLDER/README.TXT"), b"read me").unwrap();
    fs::write(source.join("NOEND"), b"no end").unwrap();
    let files = open(made(&sandbox, "genisoimage", &[], &source));
    let found = walk(&*files);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["/folder", "/folder/readme.txt", "/noend"]);
    assert_eq!(found["/folder/readme.txt"].content, b"read me");
    let root = files.status(files.root()).unwrap();
    assert_eq!((root.kind, root.mode), (FileKind::Folder, 0o555));
}

#[test]
fn damage_does_no_harm() {
    if missing(&["genisoimage"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let source = unix_source(&sandbox);
    for options in [&["-R"][..], &["-J", "-joliet-long"], &[]] {
        let disk = made(&sandbox, "genisoimage", options, &source);
        let end = disk.len().min(40 * 2048 + (128 << 10));
        wade_damaged(&disk, &[32768..20 * 2048, 18 * 2048..end], 150);
    }
}

#[test]
fn a_disc_that_also_has_udf_is_named() {
    if missing(&["genisoimage"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let source = source(&sandbox);
    for (options, expected) in [
        (&["-R"][..], &[][..]),
        (
            &["-udf"],
            &["p0 has ISO 9660 and UDF: only the files of ISO 9660 are shown, and UDF may have more"],
        ),
    ] {
        let disc = made(&sandbox, "genisoimage", options, &source);
        let disk = varve_image::Disk::open(std::sync::Arc::new(disc));
        let problems: Vec<_> = disk.problems().iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected, "{options:?}");
    }
}
