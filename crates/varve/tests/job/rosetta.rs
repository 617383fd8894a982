//! The independent reader reads golden stores and new stores of the program, and finds the same
//! data in them.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::chattr::letters_below;
use crate::sandbox::{Sandbox, manifest, noise, python, sample_folder, sparse_image, write_at};

const MODULES: &str = "import blake3, zstandard, cryptography, argon2, xxhash";

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns true if the reader can run here.
pub fn is_ready() -> bool {
    let imported = python().args(["-c", MODULES]).output();
    let ready = imported.is_ok_and(|output| output.status.success());
    assert!(
        ready || std::env::var_os("ROSETTA_PYTHON").is_none(),
        "ROSETTA_PYTHON lacks a package of rosetta/requirements.txt"
    );
    if !ready {
        eprintln!("skipped: rosetta, which needs python3 and the packages in rosetta/requirements.txt");
    }
    ready
}

fn script(sandbox: &Sandbox, name: &str, args: &[&str]) -> Output {
    let mut command = python();
    command.arg(root().join("rosetta").join(name));
    if let Some(key) = sandbox.key().filter(|_| name != "replica.py") {
        command.arg("--key-file").arg(key);
    }
    command.args(args).env("TZ", "UTC").output().unwrap()
}

fn rosetta(sandbox: &Sandbox, words: &[&str]) -> Output {
    let store = sandbox.store().to_str().unwrap();
    script(sandbox, "rosetta.py", &[&[store], words].concat())
}

#[track_caller]
fn rosetta_ok(sandbox: &Sandbox, words: &[&str]) -> Vec<u8> {
    let output = rosetta(sandbox, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn ids_in(listed: &[u8]) -> Vec<String> {
    let listed: serde_json::Value = serde_json::from_slice(listed).unwrap();
    listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

/// Both readers list the same snapshots and restore the same data.
pub fn agree(sandbox: &Sandbox) {
    let ids = sandbox.ids();
    let listed = rosetta_ok(sandbox, &["list", "--json"]);
    assert_eq!(their_origins(&listed), our_origins(sandbox));
    assert_eq!(their_sectors(&listed), our_sectors(sandbox));
    let mut theirs = ids_in(&listed);
    let mut ours = ids.clone();
    ours.sort();
    theirs.sort();
    assert_eq!(theirs, ours);
    assert!(String::from_utf8_lossy(&rosetta_ok(sandbox, &["check"])).contains("sound"));
    for id in &ids {
        let (ours, theirs) = (sandbox.arg(&format!("ours-{id}")), sandbox.arg(&format!("theirs-{id}")));
        sandbox.run(["restore", id, &ours]);
        rosetta(sandbox, &["restore", id, &theirs]);
        same(Path::new(&ours), Path::new(&theirs), id);
    }
}

/// The role and the id of the key that each snapshot was added with; empty if they are not known.
type Origins = BTreeMap<String, (String, String)>;

fn our_origins(sandbox: &Sandbox) -> Origins {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |one: &Value| (text(&one["added_with"]["role"]), text(&one["added_with"]["key"]));
    sandbox.json(["snapshots"]).iter().map(|one| (text(&one["id"]), of(one))).collect()
}

fn their_origins(listed: &[u8]) -> Origins {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |one: &Value| (text(&one["origin"]["role"]), text(&one["origin"]["key"]));
    let listed: Value = serde_json::from_slice(listed).unwrap();
    listed.as_array().unwrap().iter().map(|one| (text(&one["id"]), of(one))).collect()
}

/// The sizes of the sectors of each snapshot; 0 if they are not known.
type Sectors = BTreeMap<String, [u64; 2]>;

fn sectors(line: &Value) -> (String, [u64; 2]) {
    let sizes = ["sector_bytes", "physical_sector_bytes"].map(|field| line[field].as_u64().unwrap_or(0));
    (line["id"].as_str().unwrap().to_owned(), sizes)
}

fn our_sectors(sandbox: &Sandbox) -> Sectors {
    sandbox.json(["snapshots"]).iter().map(sectors).collect()
}

fn their_sectors(listed: &[u8]) -> Sectors {
    let listed: Value = serde_json::from_slice(listed).unwrap();
    listed.as_array().unwrap().iter().map(sectors).collect()
}

/// Both readers report the same blocks and places as lost. The independent reader also lists
/// accepted losses.
fn agree_on_losses(sandbox: &Sandbox) {
    let theirs: serde_json::Value =
        serde_json::from_slice(&rosetta_ok(sandbox, &["lost", "--json"])).unwrap();
    let theirs = theirs.as_array().unwrap();
    assert_eq!(theirs.iter().filter(|loss| loss["accepted"] != 0).count(), 1, "{theirs:?}");
    let open: Vec<_> = theirs.iter().filter(|loss| loss["accepted"] == 0).collect();
    let lost = sandbox.run(["--json", "verify"]).result()["lost"].clone();
    let ours = lost["places"].as_array().unwrap().iter().chain(lost["blocks"].as_array().unwrap());
    let ours: Vec<_> = ours.collect();
    assert_eq!(open.len(), ours.len());
    let checked = rosetta(sandbox, &["check"]);
    assert!(!checked.status.success());
    for (theirs, ours) in open.into_iter().zip(ours) {
        for field in ["score", "size", "arena", "first", "last"] {
            assert!(ours.get(field).is_none_or(|value| *value == theirs[field]), "{theirs} {ours}");
        }
        let name = ours["score"].as_str().map_or_else(|| format!("arena {}", ours["arena"]), str::to_owned);
        assert!(String::from_utf8_lossy(&checked.stderr).contains(&name), "{name}");
    }
}

fn same(ours: &Path, theirs: &Path, id: &str) {
    if ours.is_dir() {
        assert_eq!(format!("{:#?}", manifest(theirs)), format!("{:#?}", manifest(ours)), "{id}");
        assert_eq!(letters_below(theirs), letters_below(ours), "{id}");
    } else {
        assert!(fs::read(theirs).unwrap() == fs::read(ours).unwrap(), "{id}");
    }
}

#[test]
fn golden_stores_are_read_alike() {
    if !is_ready() {
        return;
    }
    let mut count = 0;
    for version in ["store-v1", "store-v2", "store-v3", "store-v4"] {
        let golden = root().join("fixtures").join(version);
        let key = golden.join("key");
        let mut stores: Vec<_> = fs::read_dir(&golden).unwrap().map(|entry| entry.unwrap().path()).collect();
        stores.retain(|path| path.is_dir());
        for store in stores {
            let is_plain = store.to_str().unwrap().ends_with("plain");
            let sandbox = Sandbox::copy_of(&store, (!is_plain).then_some(key.as_path()));
            match store.to_str().unwrap().contains("-lost-") {
                true => agree_on_losses(&sandbox),
                false => agree(&sandbox),
            }
            count += 1;
        }
    }
    assert!(count >= 24, "{count} golden stores");
}

#[test]
fn fresh_stores_are_read_alike() {
    if !is_ready() {
        return;
    }
    for kind in [
        &["--plaintext"][..],
        &[],
        &["--score", "sha1"],
        &["--score", "sha1", "--plaintext"],
        &["--plaintext", "--block-size", "512"],
        &["--parity", "20%", "--clump-size", "128K"],
        &["--compare", "value"],
        &["--compare", "value", "--plaintext"],
        &["--index", "disk", "--index-memory", "1M"],
        &["--index", "disk", "--index-memory", "1M", "--plaintext"],
        &["--index", "disk", "--index-memory", "1M", "--score", "sha1"],
        &["--index", "disk", "--index-memory", "1M", "--score", "sha1", "--plaintext"],
        &["--index", "disk", "--index-memory", "1M", "--compare", "value"],
        &["--index", "disk", "--index-memory", "1M", "--compare", "value", "--plaintext"],
    ] {
        let sandbox = Sandbox::made_with(kind);
        let (image, folder) = (sandbox.path("disk.img"), sandbox.path("home"));
        sparse_image(&image, (3 << 20) + 5, &[(70_000, &noise(50, 900_000)), (2 << 20, &[b'x'; 300_000])]);
        sample_folder(&folder);
        sandbox.ok(["snapshot", "disk.img", "home", "--as", "image"]);
        // The place of the index does not affect the log, so one night is enough.
        if !kind.contains(&"--index") {
            write_at(&image, 1 << 20, &noise(51, 200_000));
            fs::write(folder.join("letter.txt"), "changed").unwrap();
            sandbox.ok(["snapshot", "disk.img", "home", "--as", "image"]);
        }
        agree(&sandbox);
    }
}

#[test]
fn what_a_machine_that_may_not_read_has_written_is_read_alike() {
    if !is_ready() {
        return;
    }
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(54, 300_000));
    for (name, role) in [("writer", "--write-only"), ("reader", "--append-only")] {
        fs::write(sandbox.path(name), noise(name.len() as u64 * 7 + role.len() as u64, 32)).unwrap();
        sandbox.ok(["key", "add", role, "--new-key-file", name, "--label", "a \"machine\" – ünd"]);
    }
    let mut writer = Sandbox::empty();
    writer.set_store(sandbox.store().into());
    writer.set_key(Some(sandbox.path("writer")));
    sample_folder(&writer.path("home"));
    for night in 0..3 {
        writer.ok(["snapshot", "home"]);
        writer.snapshot_bytes("disk", &noise(55 + night, 2_000_000));
    }
    agree(&sandbox);
    let refused = rosetta(&writer, &["list"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("write-only"));
    let mut reader = Sandbox::empty();
    reader.set_store(sandbox.store().into());
    reader.set_key(Some(sandbox.path("reader")));
    agree(&reader);
    // The next snapshot of a full key adds these snapshots to the catalog.
    sandbox.snapshot_bytes("disk", &noise(60, 1000));
    agree(&sandbox);
}

#[test]
fn a_wrong_key_and_damage_are_noticed() {
    if !is_ready() {
        return;
    }
    let mut sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(52, 600_000));
    let arena = sandbox.arenas().remove(0);
    let byte = fs::read(&arena).unwrap()[300_000] ^ 1;
    write_at(&arena, 300_000, &[byte]);
    assert_eq!(rosetta(&sandbox, &["check"]).status.code(), Some(1));
    fs::write(sandbox.path("other"), noise(53, 32)).unwrap();
    sandbox.set_key(Some(sandbox.path("other")));
    assert_eq!(rosetta(&sandbox, &["list"]).status.code(), Some(1));
}

/// A record of an arena.
struct Record {
    is_page: bool,
    offset: u64,
    body_bytes: u64,
    table_bytes: u64,
}

/// Returns the records of an arena's file in order. It follows them as the page of the format says.
fn records(arena: &Path) -> Vec<Record> {
    let bytes = fs::read(arena).unwrap();
    let number = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
    let (mut found, mut at) = (Vec::new(), 512);
    while bytes.get(at..at + 4).is_some_and(|magic| [b"clmp", b"page"].contains(&magic.try_into().unwrap())) {
        let (body_bytes, table_bytes) = (number(at + 4), number(at + 36));
        found.push(Record {
            is_page: &bytes[at..at + 4] == b"page",
            offset: at as u64,
            body_bytes,
            table_bytes,
        });
        at += (64 + usize::try_from(body_bytes).unwrap()).next_multiple_of(128);
    }
    found
}

fn flip(file: &Path, offset: u64) {
    let byte = fs::read(file).unwrap()[usize::try_from(offset).unwrap()] ^ 1;
    write_at(file, offset, &[byte]);
}

/// Archives three nights into several arenas. The last arena has no seal.
fn three_nights(words: &[&str]) -> Sandbox {
    let sandbox = Sandbox::made_with(words);
    let (image, folder) = (sandbox.path("disk.img"), sandbox.path("home"));
    sparse_image(&image, 3 << 20, &[(0, &noise(70, 1_500_000)), (2 << 20, &[b'x'; 300_000])]);
    sample_folder(&folder);
    for night in 0..3 {
        write_at(&image, 1 << 20, &noise(71 + night, 200_000));
        fs::write(folder.join("letter.txt"), format!("night {night}")).unwrap();
        sandbox.ok(["snapshot", "disk.img", "home", "--as", "image"]);
    }
    sandbox
}

/// A name, the damage, and the number of snapshots that it costs.
type Harm = (&'static str, fn(&[PathBuf]), usize);

const HARMS: [Harm; 5] = [
    (
        "a directory page of a sealed arena",
        |arenas| {
            let page = records(&arenas[0]).into_iter().find(|record| record.is_page).unwrap();
            flip(&arenas[0], page.offset + 64 + page.body_bytes / 2);
        },
        0,
    ),
    (
        "the header of a directory page of a sealed arena",
        |arenas| {
            let page = records(&arenas[0]).into_iter().find(|record| record.is_page).unwrap();
            flip(&arenas[0], page.offset + 5);
        },
        0,
    ),
    (
        "a seal code beside a good checksum",
        |arenas| {
            let forge = "import sys, xxhash; data = bytearray(open(sys.argv[1], 'rb').read()); data[-36] ^= 1; \
                         data[-8:] = xxhash.xxh3_64_digest(bytes(data[-96:-8]))[::-1]; open(sys.argv[1], 'wb').write(data)";
            assert!(python().args(["-c", forge]).arg(&arenas[0]).status().unwrap().success());
        },
        0,
    ),
    (
        "a page in the middle of an arena without a seal",
        |arenas| {
            let last = arenas.last().unwrap();
            let pages: Vec<_> = records(last).into_iter().filter(|record| record.is_page).collect();
            flip(last, pages[pages.len() - 4].offset + 70);
        },
        0,
    ),
    (
        "the last root of the catalog",
        |arenas| {
            let last = arenas.last().unwrap();
            let root = records(last).into_iter().rfind(|record| !record.is_page).unwrap();
            flip(last, root.offset + 64);
        },
        1,
    ),
];

/// The independent reader finds the same in a damaged store as the program finds after a repair.
#[test]
fn damage_costs_both_readers_the_same() {
    if !is_ready() {
        return;
    }
    for kind in [&[][..], &["--compare", "value", "--plaintext"]] {
        let whole = three_nights(kind);
        for (what, harm, lost_count) in HARMS {
            let sandbox = Sandbox::copy_of(whole.store(), whole.key());
            let arenas = sandbox.arenas();
            assert!(arenas.len() >= 2, "{} arenas", arenas.len());
            harm(&arenas);
            let listed = rosetta(&sandbox, &["list", "--json"]);
            let said = String::from_utf8_lossy(&listed.stderr).into_owned();
            assert!(listed.status.code() == Some(1) && said.contains("damage: "), "{what}: {said}");
            let theirs = ids_in(&listed.stdout);
            assert_eq!(theirs.len(), 6 - lost_count, "{what}: {said}");
            for id in &theirs {
                rosetta(&sandbox, &["restore", id, &sandbox.arg(&format!("theirs-{id}"))]);
            }
            sandbox.run(["repair", "--data"]);
            assert_eq!(sandbox.ids(), theirs, "{what}");
            for id in &theirs {
                let (ours, theirs) =
                    (sandbox.arg(&format!("ours-{id}")), sandbox.arg(&format!("theirs-{id}")));
                sandbox.run(["restore", id, &ours]);
                same(Path::new(&ours), Path::new(&theirs), &format!("{what}: {id}"));
            }
        }
    }
}

/// A power cut keeps a page and loses the root that the page names. That root was never
/// acknowledged, so both readers ignore it.
#[test]
fn a_root_that_a_power_cut_took_was_never_there() {
    if !is_ready() {
        return;
    }
    let sandbox = three_nights(&[]);
    let (ids, last) = (sandbox.ids(), sandbox.arenas().pop().unwrap());
    let found = records(&last);
    let root = found.iter().rposition(|record| !record.is_page).unwrap();
    // The page that declares the root durable is cut off.
    let end = found[root + 2].offset;
    fs::File::options().write(true).open(&last).unwrap().set_len(end).unwrap();
    let length = usize::try_from(found[root + 1].offset - found[root].offset).unwrap();
    write_at(&last, found[root].offset, &vec![0; length]);
    fs::remove_dir_all(sandbox.store().join("index")).unwrap();
    let listed = rosetta(&sandbox, &["list", "--json"]);
    let said = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success() && said.contains("note: a page outlived the catalog's root"), "{said}");
    assert_eq!(ids_in(&listed.stdout), ids[..5]);
    assert_eq!(sandbox.ids(), ids[..5]);
}

/// A damaged frame costs only its own blocks.
#[test]
fn a_damaged_frame_costs_only_its_own_blocks() {
    if !is_ready() {
        return;
    }
    let sandbox = three_nights(&[]);
    let id = &sandbox.ids()[0];
    sandbox.run(["restore", id, &sandbox.arg("whole")]);
    let arena = &sandbox.arenas()[0];
    let framed = records(arena).into_iter().find(|record| record.table_bytes > 0).unwrap();
    flip(arena, framed.offset + 64 + framed.table_bytes + 10);
    let restored = rosetta(&sandbox, &["restore", id, &sandbox.arg("left")]);
    let said = String::from_utf8_lossy(&restored.stderr);
    assert!(restored.status.code() == Some(1) && said.contains("are lost"), "{said}");
    let [whole, left] = ["whole", "left"].map(|name| fs::read(sandbox.path(name)).unwrap());
    assert_eq!(whole.len(), left.len());
    let lost: Vec<_> = (0..whole.len()).filter(|at| whole[*at] != left[*at]).collect();
    let extent = lost.last().unwrap() - lost[0];
    assert!(lost.iter().all(|at| left[*at] == 0) && extent <= 64 << 10, "{extent} bytes");
}

/// The script uses the formula of the page of the format, and not the program's library.
#[test]
fn an_arena_is_mended_from_its_parity() {
    if !is_ready() {
        return;
    }
    for kind in [&["--parity", "20%"][..], &["--parity", "3%", "--plaintext", "--compare", "value"]] {
        let sandbox = three_nights(kind);
        let (store, arena) = (sandbox.store().to_str().unwrap().to_owned(), sandbox.arenas().remove(0));
        let good = fs::read(&arena).unwrap();
        // Damage in the middle, and damage to the header and the seal.
        for (name, places) in
            [("middle", vec![(300_000, 9000)]), ("ends", vec![(0, 100), (good.len() - 50, 50)])]
        {
            for (at, length) in places {
                write_at(&arena, at as u64, &vec![0xAA; length]);
            }
            let mended = sandbox.arg(name);
            let run = script(&sandbox, "parity.py", &[&store, "0", &mended]);
            let said = String::from_utf8_lossy(&run.stderr);
            assert!(run.status.success(), "{said}");
            assert!(fs::read(&mended).unwrap() == good, "{name}: other bytes");
            fs::write(&arena, &good).unwrap();
        }
        // The header and the tables of the parity file exist twice.
        let parity = fs::read_dir(sandbox.store().join("parity")).unwrap().map(|entry| entry.unwrap().path());
        let parity = parity.min().unwrap();
        write_at(&parity, 0, &[0xAA; 4096 + 600]);
        write_at(&arena, 300_000, &[0xAA; 100]);
        let run = script(&sandbox, "parity.py", &[&store, "0", &sandbox.arg("from-copies")]);
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        assert!(fs::read(sandbox.path("from-copies")).unwrap() == good);
        // More damage than the parity can repair.
        write_at(&arena, 100_000, &vec![0xAA; 700_000]);
        let run = script(&sandbox, "parity.py", &[&store, "0", &sandbox.arg("never")]);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && said.contains("shards are lost"), "{said}");
        assert!(!sandbox.path("never").exists());
    }
}

#[test]
fn a_store_is_put_together_from_its_replica() {
    if !is_ready() {
        return;
    }
    let mut sandbox = three_nights(&[]);
    sandbox.ok(["replicate", "replica", "--segment-size", "1M"]);
    fs::write(sandbox.path("home/letter.txt"), "one more night").unwrap();
    sandbox.ok(["snapshot", "home"]);
    sandbox.ok(["replicate", "replica", "--segment-size", "1M"]);
    let (replica, together) = (sandbox.arg("replica"), sandbox.path("together"));
    let run = script(&sandbox, "replica.py", &[&replica, together.to_str().unwrap()]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    for arena in sandbox.arenas() {
        let there = together.join("arenas").join(arena.file_name().unwrap());
        let (arena, there) = (fs::read(&arena).unwrap(), fs::read(&there).unwrap());
        // A page without blocks at the end of the log is not replicated.
        assert!(arena.starts_with(&there) && arena.len() - there.len() <= 128, "{} bytes", there.len());
    }
    sandbox.set_store(together);
    agree(&sandbox);
}
