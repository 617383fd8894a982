//! What the real vac and vbackup wrote, looked into and restored; and folders archived for vac's tools.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

mod sandbox;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use sandbox::Sandbox;
use serde_json::Value;
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, from_hex};
use varve_store::{Access, Store};
use varve_world::{RealClock, RealRandom, RealStorage, RealWorkers, World};

const ARCHIVES: [&str; 7] =
    ["dated", "full", "incremental", "large-blocks", "merged", "small-blocks", "stdin"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/vac").join(name)
}

/// Whether the programs are there that these tests need; says which is not.
fn has(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| Command::new(program).arg("--version").output().is_err());
    if let Some(program) = missing {
        eprintln!("SKIPPED: there is no {program}");
    }
    missing.is_none()
}

fn unpacked(name: &str) -> Vec<u8> {
    let output = Command::new("gzip").arg("-dc").arg(fixture(name)).output().unwrap();
    assert!(output.status.success(), "{name}");
    output.stdout
}

fn opened(sandbox: &Sandbox) -> Store {
    let world = World {
        storage: std::sync::Arc::new(RealStorage::new(sandbox.store())),
        clock: std::sync::Arc::new(RealClock),
        random: std::sync::Arc::new(RealRandom),
        workers: std::sync::Arc::new(RealWorkers::new(1)),
    };
    Store::open(world, None, Access::Write { holder: "a test" }, &mut |_| {}).unwrap()
}

/// A store of SHA-1 scores, with the blocks of these archives.
fn store_with(archives: &[&str]) -> Sandbox {
    let sandbox = Sandbox::made_with(&["--plaintext", "--score", "sha1"]);
    let store = opened(&sandbox);
    for archive in archives {
        for block in blocks(archive) {
            let score = store.put(Block { block_type: block.0.block_type, bytes: &block.1 }).unwrap();
            assert_eq!(score, block.0.score);
        }
    }
    store.close().unwrap();
    sandbox
}

fn blocks(archive: &str) -> Vec<(BlockName, Vec<u8>)> {
    let text = String::from_utf8(unpacked(&format!("{archive}/blocks.gz"))).unwrap();
    let block = |line: &str| {
        let fields: Vec<_> = line.split(' ').collect();
        let block_type = match fields[0].parse().unwrap() {
            1 => BlockType::ROOT,
            2 => BlockType::DIRECTORY,
            13 => BlockType::DATA,
            pointer => BlockType::at_depth(BlockKind::Data, pointer - 2).unwrap(),
        };
        let score = varve_block::Score::from_hex(fields[1]).unwrap();
        (BlockName { score, block_type }, from_hex(fields[2]).unwrap())
    };
    text.lines().map(block).collect()
}

/// What the independent reader found: each file by its path.
fn expected(archive: &str) -> BTreeMap<String, Value> {
    let tree: Value = serde_json::from_slice(&unpacked(&format!("{archive}/tree.json.gz"))).unwrap();
    let files = tree["files"].as_array().unwrap().iter().cloned();
    files.map(|file| (file["path"].as_str().unwrap().to_owned(), file)).collect()
}

fn vac_file(archive: &str) -> String {
    fixture(archive).join("archive.vac").to_str().unwrap().to_owned()
}

#[test]
fn every_archive_is_listed_as_another_reader_found_it() {
    if !has(&["gzip"]) {
        return;
    }
    let sandbox = store_with(&ARCHIVES);
    for archive in ARCHIVES {
        let listed = sandbox.run(["--json", "ls", "-R", &vac_file(archive)]);
        assert_eq!(listed.code, Some(0), "{archive}: {}", listed.stderr);
        let mut left = expected(archive);
        for line in listed.text().lines() {
            let found: Value = serde_json::from_str(line).unwrap();
            let path = found["path"].as_str().unwrap();
            let file = left.remove(path).unwrap_or_else(|| panic!("{archive}: {path}"));
            let mode = file["mode"].as_u64().unwrap();
            assert_eq!(found["mode"], format!("{:04o}", mode & 0o777), "{archive}: {path}");
            let kind = match mode {
                mode if mode & 0x8000 != 0 => "folder",
                mode if mode & 0x4000 != 0 => "symbolic link",
                mode if mode & 0x20_0000 != 0 => "character device",
                mode if mode & 0x40_0000 != 0 => "fifo",
                _ => "file",
            };
            // A block device differs from one of characters in its text alone.
            let found_kind = found["kind"].as_str().unwrap();
            assert!(
                found_kind == kind || found_kind == "block device",
                "{archive}: {path} is a {found_kind}"
            );
            if kind == "file" {
                assert_eq!(found["size"], file["size"], "{archive}: {path}");
            }
            let seconds: i64 =
                found["mtime"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
            assert_eq!(Some(seconds), file["mtime"].as_i64(), "{archive}: {path}");
        }
        assert!(left.is_empty(), "{archive} lacks {:?}", left.keys());
    }
}

#[test]
fn every_archive_is_restored() {
    if !has(&["gzip", "sha256sum"]) {
        return;
    }
    let sandbox = store_with(&ARCHIVES);
    for archive in ARCHIVES {
        let out = sandbox.path(archive);
        let restored = sandbox.run(["restore", &vac_file(archive), out.to_str().unwrap()]);
        // The target of one link was cut short by vac itself; and only root makes devices.
        let is_whole = !["full", "incremental"].contains(&archive);
        assert_eq!(restored.code, Some(if is_whole { 0 } else { 1 }), "{archive}: {}", restored.stderr);
        if !is_whole {
            assert!(restored.stderr.contains("special/dirlink: the archive has only the first 8 of 12"));
        }
        let mut files = Vec::new();
        for (path, file) in expected(archive) {
            let at = out.join(&path);
            let Ok(metadata) = at.symlink_metadata() else {
                let is_device = file["mode"].as_u64().unwrap() & 0x20_0000 != 0;
                assert!(is_device, "{archive}: {path} is missing");
                continue;
            };
            if metadata.is_dir() || metadata.is_file() {
                let mode = file["mode"].as_u64().unwrap() & 0o777;
                assert_eq!(u64::from(metadata.mode() & 0o7777), mode, "{archive}: {path}");
            }
            assert_eq!(Some(metadata.mtime()), file["mtime"].as_i64(), "{archive}: {path}");
            assert_eq!(metadata.file_type().is_fifo(), file["mode"].as_u64().unwrap() & 0x40_0000 != 0);
            if metadata.is_file() {
                files.push((at, file["sha256"].as_str().unwrap().to_owned()));
            }
        }
        assert!(!files.is_empty());
        let sums =
            Command::new("sha256sum").arg("-z").args(files.iter().map(|file| &file.0)).output().unwrap();
        let sums = String::from_utf8(sums.stdout).unwrap();
        for (sum, (path, expected)) in sums.split('\0').zip(&files) {
            assert!(sum.starts_with(expected), "{archive}: {}", path.display());
        }
    }
    let text = sandbox.ok(["cat", &format!("{}:tree/special/target", vac_file("full"))]);
    assert_eq!(fs::read(sandbox.path("full").join("tree/special/target")).unwrap(), text.as_bytes());
}

#[test]
fn archives_are_compared_and_searched() {
    if !has(&["gzip"]) {
        return;
    }
    let sandbox = store_with(&["full", "incremental"]);
    let (old, new) = (expected("full"), expected("incremental"));
    let differing = |path: &&String| {
        let fields = ["mode", "mtime", "uid", "gid", "sha256"];
        match (old.get(*path), new.get(*path)) {
            (Some(old), Some(new)) => fields.iter().any(|field| old[field] != new[field]),
            _ => true,
        }
    };
    let mut paths: Vec<_> = old.keys().chain(new.keys()).filter(differing).cloned().collect();
    paths.sort();
    paths.dedup();
    assert!(!paths.is_empty());
    let told = sandbox.ok(["--json", "diff", &vac_file("full"), &vac_file("incremental")]);
    let mut told: Vec<_> = told
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["path"].as_str().unwrap().to_owned())
        .collect();
    told.sort();
    assert_eq!(told, paths);
    let found = sandbox.ok(["find", "f22*", &vac_file("full")]);
    assert_eq!(found.lines().count(), 10);
    assert!(found.ends_with("tree/many/f229\n"));
}

#[test]
fn an_image_that_vbackup_wrote_is_restored() {
    if !has(&["gzip"]) {
        return;
    }
    let sandbox = store_with(&["vbackup"]);
    let line = fs::read_to_string(fixture("vbackup/archive")).unwrap();
    let out = sandbox.path("disk.img");
    sandbox.ok(["restore", line.trim(), out.to_str().unwrap()]);
    assert!(fs::read(&out).unwrap() == unpacked("vbackup/restored.img.gz"));
    let listed = sandbox.ok(["ls", "-R", line.trim()]);
    assert!(listed.contains("p0/lost+found"), "{listed}");
    let other = sandbox.run(["ls", &line.trim().replace("ext2", "vac")]);
    assert_eq!(other.code, Some(1));
    assert!(other.stderr.contains("another kind: ext2"), "{}", other.stderr);
}

#[test]
fn what_is_no_archive_is_told() {
    let sandbox = Sandbox::made_with(&["--plaintext", "--score", "sha1"]);
    let absent = sandbox.run(["ls", "vac:4a88b8d2d3472284cf60e0d27cf6e61ee670c531"]);
    assert_eq!(absent.code, Some(1));
    assert!(absent.stderr.contains("is not in the store"), "{}", absent.stderr);
    let other = Sandbox::made_with(&["--plaintext"]);
    let other = other.run(["ls", "vac:4a88b8d2d3472284cf60e0d27cf6e61ee670c531"]);
    assert!(other.stderr.contains("init --score sha1"), "{}", other.stderr);
}

/// The source of the real archive, in a folder.
fn source(sandbox: &Sandbox) -> PathBuf {
    let folder = sandbox.path("source");
    fs::create_dir(&folder).unwrap();
    let mut tar = Command::new("tar");
    // Only root may make devices.
    tar.arg("-xzf").arg(fixture("source.tar.gz")).arg("-C").arg(&folder);
    tar.args(["--exclude=tree/special/null", "--exclude=tree/special/loop"]);
    assert!(tar.output().unwrap().status.success());
    folder.join("tree")
}

#[test]
fn a_folder_is_archived_for_vac_as_vac_would() {
    if !has(&["gzip", "tar"]) {
        return;
    }
    let sandbox = store_with(&[]);
    let source = source(&sandbox);
    let (file, words) = (sandbox.arg("tree.vac"), source.to_str().unwrap().to_owned());
    let taken = sandbox.ok(["snapshot", "--vac", &file, &words]);
    let line = fs::read_to_string(&file).unwrap();
    assert_eq!(line.len(), 45);
    assert!(taken.contains(line.trim()), "{taken}");
    // All blocks of files that the real vac wrote are there.
    let store = opened(&sandbox);
    let real: Vec<_> = blocks("full").into_iter().map(|block| block.0).collect();
    let there = store.has_batch(&real).unwrap();
    drop(store);
    let shared = there.iter().filter(|there| **there).count();
    // Only files are so deep: their trees are the same from the top.
    let deep = |name: &BlockName| name.block_type.depth() > 1;
    assert!(real.iter().zip(&there).filter(|(name, _)| deep(name)).all(|(_, there)| *there));
    eprintln!("{shared} of {} blocks are those of the real vac", real.len());
    assert!(shared * 10 > real.len() * 7, "{shared} of {}", real.len());
    // The archive has all that the snapshot has, and what vac cannot say as well.
    let same = sandbox.ok(["diff", "tree", &format!("{file}:tree")]);
    assert_eq!(same, "");
    let out = sandbox.path("out");
    sandbox.ok(["restore", &format!("{file}:tree"), out.to_str().unwrap()]);
    assert_eq!(sandbox::manifest(&source), sandbox::manifest(&out));
    // Nothing has changed: nothing is read again, and nothing but the time of archiving differs.
    let again = sandbox.ok(["--json", "snapshot", "--vac", &file, &words]);
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(format!("vac:{}\n", again["vac"].as_str().unwrap()), fs::read_to_string(&file).unwrap());
    assert!(again["new_bytes"].as_u64().unwrap() < 200_000, "{again}");
}

#[test]
fn vac_needs_its_own_scores_and_one_folder() {
    let sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("a")).unwrap();
    fs::write(sandbox.path("b"), "x").unwrap();
    let file = sandbox.arg("a.vac");
    let other = sandbox.run(["snapshot", "--vac", &file, &sandbox.arg("a")]);
    assert_eq!(other.code, Some(1));
    assert!(other.stderr.contains("init --score sha1"), "{}", other.stderr);
    for sources in [vec![sandbox.arg("a"), sandbox.arg("a")], vec![sandbox.arg("b")]] {
        let words: Vec<_> =
            ["snapshot", "--vac", &file].into_iter().map(String::from).chain(sources).collect();
        assert_eq!(sandbox.run(words).code, Some(2));
    }
    assert!(!Path::new(&file).exists());
}
