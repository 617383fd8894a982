//! Archives of the real vac and vbackup, listed and restored, and folders archived for vac's tools.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::sandbox;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sandbox::{Sandbox, is_root};
use serde_json::Value;
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, from_hex};
use varve_store::{Store, StoreAccess};
use varve_tree::{
    Entry, FixedWriter, VENTI_ENTRY_BYTES, VacFolderBuilder, VacMode, VacRecord, VacShape, VentiEntry,
    put_vac_root,
};
use varve_world::{RealWorkers, World};

const ARCHIVES: [&str; 7] =
    ["dated", "full", "incremental", "large-blocks", "merged", "small-blocks", "stdin"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/vac").join(name)
}

/// Returns true if the programs are installed. Otherwise prints the missing one.
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
    let workers = std::sync::Arc::new(RealWorkers::new(1));
    let world = World { workers, ..World::real(sandbox.store()) };
    Store::open(world, None, StoreAccess::Write { holder: "a test" }, &mut |_| {}).unwrap()
}

/// The record of a child in a vac folder, or of the root in an archive.
fn record(name: &str, entry: u32, mode: u32) -> VacRecord {
    VacRecord {
        name: name.into(),
        entry,
        meta_entry: entry + 1,
        mode: VacMode(mode),
        mtime: 1,
        ..VacRecord::default()
    }
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

/// The files that the independent reader found, by their paths.
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
        for found in sandbox::json_lines(&listed.text()) {
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
            // A block device differs from a character device only in its text.
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
        // vac itself cut the target of one link short, and only root can make devices.
        let is_whole = !["full", "incremental"].contains(&archive);
        assert_eq!(restored.code, Some(if is_whole { 0 } else { 3 }), "{archive}: {}", restored.stderr);
        if !is_whole {
            assert!(
                restored
                    .stderr
                    .contains("special/dirlink: the link's target is cut short: the archive has 8 of 12")
            );
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
            // Root may read all files.
            if metadata.is_file() && (is_root() || metadata.mode() & 0o400 != 0) {
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
    let mut told: Vec<_> =
        sandbox::json_lines(&told).iter().map(|change| change["path"].as_str().unwrap().to_owned()).collect();
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

/// Stores an archive whose folder has files with these names, all with the same bytes. Returns its
/// line.
fn archive_of(sandbox: &Sandbox, names: &[&[u8]], missing: bool) -> String {
    let store = opened(sandbox);
    let shape = VacShape::default();
    let mut builder = VacFolderBuilder::new(&store, shape);
    for name in names {
        let record = VacRecord {
            name: name.to_vec(),
            entry: builder.next_entry(),
            mode: VacMode(0o644),
            mtime: 1,
            ..VacRecord::default()
        };
        let bytes = record.encode().unwrap();
        assert!(builder.push_record(name, &bytes, bytes.len()).unwrap());
        let mut file = FixedWriter::new(&store, shape.data());
        file.write(b"hostile").unwrap();
        // A record whose entry is missing, or a good one.
        if !missing {
            assert!(builder.push_file(&file.finish().unwrap()).unwrap());
        }
    }
    let folder = builder.finish().unwrap();
    let root = VacRecord {
        name: b"/".to_vec(),
        meta_entry: 1,
        mode: VacMode(0x8000 | 0o755),
        ..VacRecord::default()
    };
    let score = put_vac_root(&store, shape, &folder, &root, None).unwrap().unwrap();
    store.close().unwrap();
    format!("vac:{score}")
}

#[test]
fn names_that_lead_elsewhere_are_left_out() {
    let sandbox = store_with(&[]);
    let bad: [&[u8]; 7] = [b"", b".", b"..", b"../escaped", b"/escaped", b"in/side", b"nul\0byte"];
    let names = [&bad[..], &[b"good", b"good", b"other"]].concat();
    let line = archive_of(&sandbox, &names, false);
    let before: Vec<_> =
        fs::read_dir(sandbox.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let restored = sandbox.run(["restore", &line, "out"]);
    assert_eq!(restored.code, Some(3), "{}", restored.stderr);
    for said in ["is not a valid name", "occurs twice"] {
        assert!(restored.stderr.contains(said), "{}", restored.stderr);
    }
    let found: Vec<_> = sandbox::manifest(&sandbox.path("out")).into_keys().collect();
    assert_eq!(found, ["", "good", "other"].map(PathBuf::from));
    assert_eq!(fs::read(sandbox.path("out/good")).unwrap(), b"hostile");
    let after = fs::read_dir(sandbox.path("")).unwrap().count();
    assert_eq!(after, before.len() + 1, "nothing but the destination has come into being");
    // Of this file, the archive has only the name.
    let line = archive_of(&sandbox, &[b"gone"], true);
    let listed = sandbox.run(["ls", &line]);
    assert_eq!((listed.code, listed.text().as_str()), (Some(3), ""));
    assert!(listed.stderr.contains("was removed, or never written"), "{}", listed.stderr);
}

#[test]
fn a_block_that_is_lost_takes_one_file_with_it() {
    if !has(&["gzip"]) {
        return;
    }
    let sandbox = Sandbox::made_with(&["--plaintext", "--score", "sha1"]);
    let lost = expected("full")["tree/README"]["ventry"]["score"].as_str().unwrap().to_owned();
    let store = opened(&sandbox);
    for (name, bytes) in blocks("full") {
        if name.score.to_string() != lost {
            store.put(Block { block_type: name.block_type, bytes: &bytes }).unwrap();
        }
    }
    store.close().unwrap();
    let restored = sandbox.run(["restore", &vac_file("full"), "out"]);
    assert_eq!(restored.code, Some(5));
    assert!(restored.stderr.contains("tree/README: its content cannot be read"), "{}", restored.stderr);
    assert!(!sandbox.path("out/tree/README").exists());
    assert_eq!(fs::metadata(sandbox.path("out/tree/big/two-levels")).unwrap().len(), 3_448_840);
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
    // Others than root may not read it.
    fs::set_permissions(folder.join("tree/modes/none"), PermissionsExt::from_mode(0o400)).unwrap();
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
    // Change times that are too recent are not kept, so the next snapshot would add them.
    std::thread::park_timeout(std::time::Duration::from_millis(2100));
    let taken = sandbox.ok(["snapshot", "--vac", &file, &words]);
    let line = fs::read_to_string(&file).unwrap();
    assert_eq!(line.len(), 45);
    assert!(taken.contains(line.trim()), "{taken}");
    // All blocks of files that the real vac wrote are in the store.
    let store = opened(&sandbox);
    let real: Vec<_> = blocks("full").into_iter().map(|block| block.0).collect();
    let there = store.has_batch(&real).unwrap();
    drop(store);
    let shared = there.iter().filter(|there| **there).count();
    // Only the trees of files are so deep, and they are the same from the top.
    let deep = |name: &BlockName| name.block_type.depth() > 1;
    assert!(real.iter().zip(&there).filter(|(name, _)| deep(name)).all(|(_, there)| *there));
    eprintln!("{shared} of {} blocks are those of the real vac", real.len());
    assert!(shared * 10 > real.len() * 7, "{shared} of {}", real.len());
    // The archive has everything that the snapshot has, and also what vac itself cannot express.
    let same = sandbox.ok(["diff", "tree", &format!("{file}:tree")]);
    assert_eq!(same, "");
    let out = sandbox.path("out");
    sandbox.ok(["restore", &format!("{file}:tree"), out.to_str().unwrap()]);
    assert_eq!(sandbox::manifest(&source), sandbox::manifest(&out));
    // Nothing has changed, so nothing is read again, and the archive is the same.
    let again = sandbox.ok(["--json", "snapshot", "--vac", &file, &words]);
    let again = sandbox::json_lines(&again).remove(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), line);
    // Only the snapshot and the catalog are new.
    assert!(again["new_bytes"].as_u64().unwrap() < 8000, "{again}");
}

#[test]
fn an_unchanged_folder_has_the_same_archive_at_any_time() {
    let sandbox = store_with(&[]);
    let source = sandbox.path("source");
    sandbox::sample_folder(&source);
    let file = sandbox.path("source.vac");
    let archive = || {
        sandbox.ok(["snapshot", "-q", "--vac", file.to_str().unwrap(), source.to_str().unwrap()]);
        fs::read_to_string(&file).unwrap()
    };
    // An old file with a very recent change of another kind. Its change time is not reliable yet,
    // and is archived as it is.
    let letter = source.join("letter.txt");
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    File::options().write(true).open(&letter).unwrap().set_modified(old).unwrap();
    let first = archive();
    // The clock shows a later second, and the pause is longer than the time resolution of any file
    // system.
    std::thread::park_timeout(std::time::Duration::from_millis(2100));
    assert_eq!(archive(), first);
    fs::set_permissions(&letter, fs::Permissions::from_mode(0o600)).unwrap();
    assert_ne!(archive(), first, "a change is archived");
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

/// A tree that only an attacker or a fault makes: the 40 bytes of an entry as they are on the disk.
fn raw_entry(depth: u8, size: u64, score: &[u8]) -> Entry {
    let mut bytes = [0; VENTI_ENTRY_BYTES];
    bytes[4..8].copy_from_slice(&[0x1f, 0xf4, 0x20, 0x00]);
    bytes[8] = 1 | depth << 2;
    bytes[14..20].copy_from_slice(&size.to_be_bytes()[2..]);
    bytes[20..].copy_from_slice(score);
    VentiEntry::decode(&bytes).unwrap().unwrap().tree
}

#[test]
fn trees_that_make_no_sense_take_nothing_with_them() {
    let sandbox = store_with(&[]);
    let store = opened(&sandbox);
    let put = |depth: u8, bytes: &[u8]| {
        let block_type = BlockType::at_depth(BlockKind::Data, depth).unwrap();
        store.put(Block { block_type, bytes }).unwrap().as_bytes().to_vec()
    };
    let (missing, leaf) = (vec![0x55; 20], put(0, &[b'x'; 8192]));
    let pointers = |count: usize, score: &[u8]| score.repeat(count);
    // Each pointer in a block of 409 leads to the same block below, and so on down.
    let mut bomb = leaf.clone();
    for depth in 1..=4 {
        bomb = put(depth, &pointers(409, &bomb));
    }
    let mut chain = put(0, b"deep");
    for depth in 1..=6 {
        chain = put(depth, &chain);
    }
    let zeros = put(0, b"");
    let long = put(0, &[b'y'; 9000]);
    let trees = [
        ("a missing block", raw_entry(0, 100, &missing)),
        ("missing blocks below", raw_entry(1, 3 * 8192, &put(1, &pointers(3, &missing)))),
        ("a leaf that is too long", raw_entry(1, 2 * 8192, &put(1, &[long, leaf.clone()].concat()))),
        ("a pointer block that is too long", raw_entry(1, 20 * 8192, &put(1, &pointers(500, &leaf)))),
        ("a pointer block that is too short", raw_entry(1, 20 * 8192, &put(1, &pointers(3, &leaf)))),
        ("a part of a pointer", raw_entry(1, 3 * 8192, &put(1, &pointers(3, &leaf)[..50]))),
        ("a pointer block for a leaf", raw_entry(2, 3 * 8192, &put(1, &pointers(3, &leaf)))),
        ("deeper than it has to be", raw_entry(6, 4, &chain)),
        ("the largest hole", raw_entry(4, 1 << 47, &zeros)),
        ("the same everywhere", raw_entry(4, 8192 * 409_u64.pow(4), &bomb)),
    ];
    let shape = VacShape::default();
    let mut builder = VacFolderBuilder::new(&store, shape);
    let push = |builder: &mut VacFolderBuilder<'_>, name: &str, tree: &Entry| {
        let bytes = record(name, builder.next_entry(), 0o644).encode().unwrap();
        assert!(builder.push_record(name.as_bytes(), &bytes, bytes.len()).unwrap());
        assert!(builder.push_file(tree).unwrap(), "{name}");
    };
    let mut file = FixedWriter::new(&store, shape.data());
    file.write(b"as it was").unwrap();
    let good = file.finish().unwrap();
    let mut named: Vec<(&str, Entry)> = trees.to_vec();
    named.extend([("a good one", good), ("zzz, the last one, is good", good)]);
    named.sort_by_key(|(name, _)| *name);
    for (name, tree) in &named {
        push(&mut builder, name, tree);
    }
    let folder = builder.finish().unwrap();
    let root = record("/", 0, 0x8000 | 0o755);
    let score = put_vac_root(&store, shape, &folder, &root, None).unwrap().unwrap();
    store.close().unwrap();
    let line = format!("vac:{score}");

    let listed = sandbox.run(["ls", &line]);
    assert!(listed.text().contains("the same everywhere"), "{}{}", listed.text(), listed.stderr);
    // A good file is read in full. A bad file gives only the data that exists, and never other
    // bytes. No read goes on without an end.
    let allowed = 1 << 20;
    for (name, _) in &named {
        let words = format!("ulimit -v 4000000; exec \"$0\" \"$@\" | head -c {allowed}");
        let mut command = Command::new("sh");
        let own = sandbox.command();
        command.args(["-c", &words]).arg(own.get_program()).args(own.get_args());
        let read = command.args(["cat", &format!("{line}:{name}")]).output().unwrap();
        let said = String::from_utf8_lossy(&read.stderr).into_owned();
        assert!(!said.contains("panicked"), "{name}: {said}");
        match *name {
            "a good one" | "zzz, the last one, is good" => assert_eq!(read.stdout, b"as it was", "{said}"),
            "deeper than it has to be" => {
                assert!(read.stdout == b"deep" || said.contains("deeper"), "{said}")
            }
            // The bytes beyond the end of a leaf do not cover the next leaf.
            "a leaf that is too long" => {
                let cut = [[b'y'; 8192], [b'x'; 8192]].concat();
                assert!(read.stdout == cut || !said.is_empty(), "{} bytes", read.stdout.len());
            }
            "a pointer block that is too long" => {
                assert!(read.stdout == vec![b'x'; 20 * 8192] || !said.is_empty(), "{}", read.stdout.len());
            }
            "the largest hole" => assert!(read.stdout == vec![0; allowed], "{said}"),
            "the same everywhere" => assert!(read.stdout == vec![b'x'; allowed], "{said}"),
            "a pointer block that is too short" | "a part of a pointer" => {
                // A range that no whole pointer leads to is zeros. Venti's trees are cut in this
                // way, and plan9port reads them so.
                let (there, zeros) = if name.contains("part") { (2, 1) } else { (3, 17) };
                let whole = [vec![b'x'; there * 8192], vec![0; zeros * 8192]].concat();
                assert!(read.stdout == whole, "{} bytes, {said}", read.stdout.len());
            }
            _ => assert!(!said.is_empty(), "{name}: {} bytes, and no complaint", read.stdout.len()),
        }
    }
}

#[test]
fn folders_within_folders_without_end_are_an_error_of_what_lies_too_deep() {
    let sandbox = store_with(&[]);
    let store = opened(&sandbox);
    let shape = VacShape::default();
    let mut folder = VacFolderBuilder::new(&store, shape).finish().unwrap();
    for _ in 0..1000 {
        let mut above = VacFolderBuilder::new(&store, shape);
        let bytes = record("below", above.next_entry(), 0x8000 | 0o755).encode().unwrap();
        assert!(above.push_record(b"below", &bytes, bytes.len()).unwrap());
        assert!(above.push_folder(&folder.0, &folder.1).unwrap());
        folder = above.finish().unwrap();
    }
    let root = record("/", 0, 0x8000 | 0o755);
    let score = put_vac_root(&store, shape, &folder, &root, None).unwrap().unwrap();
    store.close().unwrap();
    let line = format!("vac:{score}");
    for words in [&["ls", "-R", &line][..], &["restore", &line, &sandbox.arg("out")]] {
        let run = sandbox.run(words);
        assert!(matches!(run.code, Some(0 | 1)), "{words:?}: {:?} {}", run.code, run.stderr);
        assert!(!run.stderr.contains("panicked"), "{words:?}: {}", run.stderr);
    }
    // The restore went as deep as a path may be, and no deeper.
    let mut at = sandbox.path("out");
    let mut depth = 0;
    while at.join("below").is_dir() {
        at = at.join("below");
        depth += 1;
    }
    assert!(depth > 100, "{depth}");
    sandbox::tool("rm", ["-rf", &sandbox.arg("out")]);
}
