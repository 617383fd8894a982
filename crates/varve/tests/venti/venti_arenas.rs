//! Disks of the real Venti, intact and damaged, and copies from one store to another.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::sandbox;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sandbox::Sandbox;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// `None` if there is no `gzip` to unpack the file with.
fn unpacked(name: &str) -> Option<Vec<u8>> {
    if !sandbox::has("gzip") {
        eprintln!("SKIPPED {name}: there is no gzip");
        return None;
    }
    let output = Command::new("gzip").arg("-dc").arg(fixture(name)).output().unwrap();
    assert!(output.status.success(), "{name}");
    Some(output.stdout)
}

fn sha1_store() -> Sandbox {
    Sandbox::made_with(&["--plaintext", "--score", "sha1"])
}

/// The results of an import for each arena of a file.
fn imported(sandbox: &Sandbox, code: i32, file: &str) -> (Vec<Value>, String) {
    let run = sandbox.run(["--json", "import", "--venti-arenas", file]);
    assert_eq!(run.code, Some(code), "{}", run.stderr);
    (sandbox::json_lines(&run.text()), run.complaints())
}

/// The range of arena 0 in the partitions. The constant after it is the position of the first
/// clump.
const ARENA: std::ops::Range<usize> = 794_624..1_843_200;
const CLUMPS: usize = ARENA.start + 8192;

#[test]
fn all_blocks_of_old_arenas_come_over_and_only_once() {
    for version in [4, 5] {
        let Some(disk) = unpacked(&format!("venti-arenas/partition-v{version}.img.gz")) else { return };
        let sandbox = sha1_store();
        fs::write(sandbox.path("disk"), &disk).unwrap();
        fs::write(sandbox.path("arena"), &disk[ARENA]).unwrap();
        let (alone, _) = imported(&sandbox, 0, "arena");
        assert_eq!((&alone[0]["clumps"], &alone[0]["seal"]), (&161.into(), &"seal good".into()));
        // The blocks of the same arena in its partition are known already. The open arena is new.
        let (both, _) = imported(&sandbox, 0, "disk");
        assert_eq!(both.len(), 2);
        assert_eq!(
            (&both[0]["known"], &both[0]["blocks"], &both[0]["seal"]),
            (&161.into(), &0.into(), &"seal good".into())
        );
        assert_eq!((&both[1]["blocks"], &both[1]["seal"]), (&25.into(), &"no seal yet".into()));
        assert_eq!(both[1]["version"], version);
        let (again, _) = imported(&sandbox, 0, "disk");
        assert_eq!((&again[1]["known"], &again[1]["blocks"]), (&25.into(), &0.into()));
        sandbox.ok(["verify", "--data"]);
    }
}

#[test]
fn an_arena_that_has_grown_is_read_from_where_it_ended() {
    let Some(disk) = unpacked("venti-arenas/partition-v5.img.gz") else { return };
    let sandbox = sha1_store();
    // The partition as it was before its last clump. The second arena begins after the first, and
    // its log ends at 183,531.
    let mut earlier = disk.clone();
    let end = ARENA.end + 8192 + 183_531;
    let second = &disk[ARENA.end + 8192..end];
    let magic = &second[..4];
    let last = second.windows(4).rposition(|window| window == magic).unwrap();
    earlier[ARENA.end + 8192 + last..end].fill(0);
    let trailer = disk.len() - 8192;
    earlier[trailer + 72..trailer + 76].copy_from_slice(&24_u32.to_be_bytes());
    earlier[trailer + 92..trailer + 100].copy_from_slice(&(last as u64).to_be_bytes());
    fs::write(sandbox.path("disk"), &earlier).unwrap();
    let (first, _) = imported(&sandbox, 0, "disk");
    assert_eq!(first[1]["blocks"], 24);
    fs::write(sandbox.path("disk"), &disk).unwrap();
    let (then, _) = imported(&sandbox, 0, "disk");
    assert_eq!((&then[1]["known"], &then[1]["blocks"]), (&24.into(), &1.into()));
}

#[test]
fn damage_is_told_and_hides_nothing_else() {
    let Some(disk) = unpacked("venti-arenas/partition-v5.img.gz") else { return };
    let first = u16::from_be_bytes([disk[CLUMPS + 5], disk[CLUMPS + 6]]);
    let second = CLUMPS + 38 + usize::from(first);
    for (what, at, lost) in [
        // The damaged byte is in a block, in the magic of a header, in the score of a header, or
        // outside of the clumps.
        ("a block", second + 38, 1),
        ("a magic", second, 1),
        ("a score", second + 9, 1),
        ("the head's unused bytes", ARENA.start + 4000, 0),
        ("the directory", ARENA.end - 8192 - 8192 + 30, 0),
    ] {
        let sandbox = sha1_store();
        let mut bad = disk.clone();
        bad[at] ^= 0x55;
        fs::write(sandbox.path("disk"), &bad).unwrap();
        let (told, stderr) = imported(&sandbox, 5, "disk");
        assert_eq!(told[0]["seal"], "seal broken", "{what}");
        assert_eq!(told[0]["blocks"], 161 - lost, "{what}: {stderr}");
        assert_eq!(told[0]["damaged"], lost, "{what}: {stderr}");
        assert_eq!(told[1]["blocks"], 25, "{what}");
        assert!(stderr.contains("do not match its seal"), "{what}: {stderr}");
        // An import of a good copy brings the damaged blocks.
        fs::write(sandbox.path("disk"), &disk).unwrap();
        let (good, _) = imported(&sandbox, 0, "disk");
        assert_eq!(good[0]["damaged"], 0, "{what}");
    }
}

#[test]
fn what_ends_early_or_is_none_is_told() {
    let Some(disk) = unpacked("venti-arenas/partition-v5.img.gz") else { return };
    let sandbox = sha1_store();
    fs::write(sandbox.path("short"), &disk[..ARENA.start + 500_000]).unwrap();
    let run = sandbox.run(["--json", "import", "--venti-arenas", "short"]);
    assert_eq!(run.code, Some(5));
    assert!(run.complaints().contains("the trailer of the arena is malformed"), "{}", run.text());
    let found = &sandbox::json_lines(&run.text())[0];
    assert!(found["blocks"].as_u64().unwrap() > 10, "{found}");
    for (name, bytes) in [("none", &b"not a disk"[..]), ("zeros", &[0; 400_000])] {
        fs::write(sandbox.path(name), bytes).unwrap();
        let told = sandbox.fails(1, ["import", "--venti-arenas", name]);
        assert!(told.contains("neither a partition of Venti arenas nor a Venti arena"), "{told}");
    }
    let other = Sandbox::made_with(&["--plaintext"]);
    fs::write(other.path("disk"), &disk).unwrap();
    let told = other.fails(1, ["import", "--venti-arenas", "disk"]);
    assert!(told.contains("init --score sha1"), "{told}");
}

#[test]
fn an_archive_is_copied_with_all_that_it_leads_to() {
    let sandbox = sha1_store();
    let folder = sandbox.path("folder");
    fs::create_dir(&folder).unwrap();
    for number in 0..300 {
        fs::write(folder.join(format!("file-{number}")), sandbox::noise(number, 3000)).unwrap();
    }
    fs::write(folder.join("large"), sandbox::noise(7, 4_000_000)).unwrap();
    sandbox.ok(["snapshot", "--vac", "a.vac", "folder"]);
    let other = sandbox.arg("other");
    let init =
        sandbox.command_at(Path::new(&other)).args(["init", "--plaintext", "--score", "sha1"]).output();
    assert!(init.unwrap().status.success());
    let from = sandbox.store().to_str().unwrap().to_owned();
    let copy = |words: &[&str]| -> Value {
        let copied = sandbox.ok([&["--json", "copy"], words, &[&from, "a.vac", &other]].concat());
        sandbox::json_lines(&copied).remove(0)
    };
    let first = copy(&[]);
    assert!(first["blocks"].as_u64().unwrap() > 780, "{first}");
    let whole = copy(&[]);
    assert_eq!(whole["blocks"], 0);
    assert!(whole["present"].as_u64() > Some(780), "all of it was looked for: {whole}");
    let fast = copy(&["--fast"]);
    assert_eq!((&fast["blocks"], &fast["present"]), (&0.into(), &1.into()), "the root stands for all");
    let out = sandbox.arg("out");
    let restored =
        sandbox.command_at(Path::new(&other)).args(["restore", "a.vac:folder", &out]).output().unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    assert_eq!(sandbox::manifest(&folder), sandbox::manifest(Path::new(&out)));
    let blake = sandbox.arg("blake");
    let init = sandbox.command_at(Path::new(&blake)).args(["init", "--plaintext"]).output();
    assert!(init.unwrap().status.success());
    let told = sandbox.fails(1, ["copy", &from, "a.vac", &blake]);
    assert!(told.contains("both stores must have SHA-1 scores"), "{told}");
}
