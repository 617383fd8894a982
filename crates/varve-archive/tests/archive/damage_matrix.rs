//! Each kind of damage to each part of a store: what is lost, and what a repair brings back.
//!
//! The store has four snapshots in three arenas. Arena 1, which is sealed, is struck in a record, a
//! directory page, its header and its seal; the open arena in the newest catalog's root. Each
//! record holds one block. A harm strikes one part of a file, or a whole file:
//!
//! - *flip*: one bit in its middle
//! - *truncate*: the file ends in the middle of the part
//! - *zero*: the part reads as zeros
//! - *remove*: the part is cut out, and the rest of the file moves up; a whole file is missing
//!
//! The cells from *lost* on say which blocks cannot be read, and after the colon which snapshots
//! that harms. All other blocks and snapshots read back as they were stored. In the cells,
//!
//! - *whole*: nothing is lost, and the log is what it was, to the byte
//! - *nothing*: nothing is lost, and the log has other bytes than before
//! - *same*: as lost as before the repair, and the log is sound: `verify` finds no damage in it
//! - *refused*: the archive does not open
//!
//! The parity is 30 %. The copy is the store as it was before the harm. The table is also in
//! `docs/internals/reliability.md`.
#![allow(clippy::cast_possible_truncation, reason = "offsets in files of a MiB")]

const MATRIX: &str = "\
| part    | harm     | the program says                  | lost                        | repair alone             | with parity              | with a copy |
|---------|----------|-----------------------------------|-----------------------------|--------------------------|--------------------------|-------------|
| record  | flip     | does not match its authentication | its block: three            | same                     | whole                    | nothing     |
| record  | truncate | seal is gone: the arena was cut   | the rest: three, four       | same                     | same                     | whole       |
| record  | zero     | no record begins here             | its block: three            | same                     | whole                    | nothing     |
| record  | remove   | seal is gone: the arena was cut   | the rest: three, four       | same                     | same                     | whole       |
| page    | flip     | the directory page does not match | nothing                     | same                     | whole                    | whole       |
| page    | truncate | seal is gone: the arena was cut   | the rest: four              | same                     | whole                    | whole       |
| page    | zero     | no record begins here             | nothing                     | same                     | whole                    | whole       |
| page    | remove   | seal is gone: the arena was cut   | the rest: four              | same                     | whole                    | whole       |
| header  | flip     | its header is damaged             | the arena: two, three, four | same                     | whole                    | whole       |
| header  | truncate | seal is gone: the arena was cut   | the arena: two, three, four | same                     | same                     | whole       |
| header  | zero     | this is not an arena              | the arena: two, three, four | same                     | whole                    | whole       |
| header  | remove   | this is not an arena              | the arena: two, three, four | same                     | same                     | whole       |
| seal    | flip     | its seal is damaged               | nothing                     | same                     | whole                    | whole       |
| seal    | truncate | seal is gone: the arena was cut   | nothing                     | same                     | whole                    | whole       |
| seal    | zero     | seal is gone: the arena was cut   | nothing                     | same                     | whole                    | whole       |
| seal    | remove   | seal is gone: the arena was cut   | nothing                     | same                     | whole                    | whole       |
| catalog | flip     | the catalog's root cannot be read | refused                     | its block: four unlisted | its block: four unlisted | nothing     |
| catalog | truncate | the end of the log is gone        | its block: four unlisted    | same                     | same                     | its block   |
| catalog | zero     | the catalog's root cannot be read | refused                     | its block: four unlisted | its block: four unlisted | nothing     |
| catalog | remove   | the end of the log is gone        | its block: four unlisted    | same                     | same                     | its block   |
| index   | flip     |                                   | whole                       | whole                    | whole                    | whole       |
| index   | truncate |                                   | whole                       | whole                    | whole                    | whole       |
| index   | zero     |                                   | whole                       | whole                    | whole                    | whole       |
| index   | remove   |                                   | whole                       | whole                    | whole                    | whole       |
| key     | flip     | this key is damaged               | refused                     | same                     | same                     | whole       |
| key     | truncate | this key is damaged               | refused                     | same                     | same                     | whole       |
| key     | zero     | this key is damaged               | refused                     | same                     | same                     | whole       |
| key     | remove   | has no key: without one           | refused                     | same                     | same                     | whole       |
| config  | flip     | config.toml cannot be parsed      | refused                     | same                     | same                     | whole       |
| config  | truncate | config.toml cannot be parsed      | refused                     | same                     | same                     | whole       |
| config  | zero     | config.toml cannot be parsed      | refused                     | same                     | same                     | whole       |
| config  | remove   | the config.toml of this store is  | refused                     | same                     | same                     | whole       |
| parity  | flip     | its parity is damaged             | nothing                     |                          | whole                    | whole       |
| parity  | truncate | its parity is damaged             | nothing                     |                          | whole                    | whole       |
| parity  | zero     | its parity cannot be read         | nothing                     |                          | whole                    | whole       |
| parity  | remove   | an arena without parity yet       | nothing                     |                          | whole                    | whole       |
";

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use varve_archive::{
    Archive, RepairScope, Snapshot, SnapshotContent, SnapshotRequest, plan_repair, repair, verify,
};
use varve_block::{BlockName, BlockStore, BlockType, with_causes};
use varve_content::folder::StreamOwner;
use varve_content::image::{ImagePart, ImageSource, write_image};
use varve_content::{NodeList, Progress};
use varve_log::{ARENA_HEADER_BYTES, ArenaId, ArenaMap, ClumpBytes, ParityPercent};
use varve_store::{
    CompareMode, Encryption, PassphraseCost, ScoreAlgorithm, Secret, Store, StoreAccess, StoreConfig,
    bring_back_settings,
};
use varve_tree::{StreamPiece, TreeReader};
use varve_upkeep::AuditShare;
use varve_world::{FileName, MemoryStorage, Random, SeededRandom, Storage, Timestamp, World};
use zeroize::Zeroizing;

const WRITER: StoreAccess<'_> = StoreAccess::Write { holder: "a test" };
const BLOCK_BYTES: u32 = 16 << 10;
const NAMES: [&str; 4] = ["one", "two", "three", "four"];
/// A snapshot that is taken in the damaged store.
const LATE: &str = "late";

/// Returns random bytes, so that two snapshots share no block.
fn content(name: &str) -> Vec<u8> {
    let mut bytes = vec![0; 36 * BLOCK_BYTES as usize];
    let seed = name.bytes().fold(0, |seed, byte| seed * 256 + u64::from(byte));
    SeededRandom::new(seed).fill(&mut bytes).unwrap();
    bytes
}

fn world(storage: &MemoryStorage, session: u64) -> World {
    World::deterministic(Arc::new(storage.clone()), session)
}

fn secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![7; 32]))
}

fn open_store(storage: &MemoryStorage, session: u64, access: StoreAccess<'_>) -> Result<Store, String> {
    let opened = Store::open(world(storage, session), Some(&secret()), access, &mut |_| {});
    opened.map_err(|error| with_causes(&error))
}

fn open(storage: &MemoryStorage, session: u64, access: StoreAccess<'_>) -> Result<Archive, String> {
    Archive::open(open_store(storage, session, access)?).map_err(|error| with_causes(&error))
}

/// Takes snapshots: `two` as a file that is cut by its content, all others as images.
fn take(storage: &MemoryStorage, session: u64, names: &[&str]) -> Result<(), String> {
    let mut archive = open(storage, session, WRITER)?;
    for name in names {
        let request = SnapshotRequest { name: (*name).into(), ..SnapshotRequest::default() };
        let (mut bytes, progress) = (Cursor::new(content(name)), Progress::new());
        let taken = if *name == "two" {
            let owner = StreamOwner { uid: 0, gid: 0, time: Timestamp(0) };
            archive.take_stream(&mut bytes, owner, request, &progress)
        } else {
            let source = ImageSource::stream(Box::new(bytes), Path::new("image"));
            archive.take_image(&source, BLOCK_BYTES, request, &progress)
        };
        taken.map_err(|error| with_causes(&error))?;
    }
    archive.close().map_err(|error| with_causes(&error))
}

/// Reads a snapshot back; `None` if a part of it cannot be read.
fn read_back(archive: &Archive, snapshot: &Snapshot) -> Option<Vec<u8>> {
    let (store, mut bytes) = (archive.store(), Vec::new());
    match &snapshot.content {
        SnapshotContent::Image(entry) => {
            let part = ImagePart::whole(entry);
            write_image(store, &*store.world().workers, &part, &mut bytes, &Progress::new()).ok()?;
        }
        SnapshotContent::Folder(root) => {
            let file = NodeList::new(store, root).next()?.ok()?;
            let mut keep = |piece: StreamPiece<'_>| {
                match piece {
                    StreamPiece::Bytes(piece) => bytes.extend_from_slice(piece),
                    StreamPiece::Zeros(count) => bytes.resize(bytes.len() + count as usize, 0),
                }
                Ok(())
            };
            TreeReader::new(store, &file.content?).stream(&mut keep).ok()?;
        }
    }
    Some(bytes)
}

/// A block's bytes, and the places of its clump and of the page that names it.
struct Placed {
    arena: ArenaId,
    record: Range<u64>,
    page: Range<u64>,
    bytes: Bytes,
}

/// An undamaged store, with the place of each of its blocks.
struct Sample {
    storage: MemoryStorage,
    blocks: BTreeMap<BlockName, Placed>,
}

impl Sample {
    fn new(config: StoreConfig) -> Self {
        let storage = MemoryStorage::new();
        let config = StoreConfig {
            arena_map: ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap(),
            clump_bytes: ClumpBytes::new(BLOCK_BYTES).unwrap(),
            ..config
        };
        Store::create(&world(&storage, 1), &config, Some(&secret()), PassphraseCost::default()).unwrap();
        (10..).zip(NAMES).for_each(|(session, name)| take(&storage, session, &[name]).unwrap());
        open_store(&storage, 20, WRITER).unwrap().save_checkpoint().unwrap();
        let store = open_store(&storage, 21, StoreAccess::Read).unwrap();
        let (_, log) = Store::unlock(&world(&storage, 22), Some(&secret())).unwrap();
        let mut blocks = BTreeMap::new();
        for arena in log.arenas().unwrap() {
            for (row, page) in log.scan(&log.open_arena(arena).unwrap()).unwrap().pages {
                for clump in page.clumps() {
                    let record = clump.granule.byte_offset()..clump.end();
                    for block in page.blocks_of(clump.granule) {
                        let (page, record) = (row.granule.byte_offset()..row.end(), record.clone());
                        let bytes = store.get(&block.name).unwrap();
                        blocks.insert(block.name, Placed { arena, record, page, bytes });
                    }
                }
            }
        }
        Self { storage, blocks }
    }

    fn bytes(&self, file: &FileName) -> u64 {
        self.storage.contents(file).unwrap().len() as u64
    }

    /// Returns the files that have a part, and its place in each.
    fn part(&self, part: &str) -> Vec<(FileName, Range<u64>)> {
        let sealed = ArenaId(1).file_name();
        let is_struck = |(name, placed): &(&BlockName, &Placed)| {
            placed.arena == ArenaId(1) && name.block_type == BlockType::DATA && placed.record.start > 400_000
        };
        let middle = || self.blocks.iter().filter(is_struck).min_by_key(|(_, placed)| placed.record.start);
        match part {
            "record" => vec![(sealed, middle().unwrap().1.record.clone())],
            "page" => vec![(sealed, middle().unwrap().1.page.clone())],
            "header" => vec![(sealed, 0..ARENA_HEADER_BYTES as u64)],
            "seal" => {
                let (_, log) = Store::unlock(&world(&self.storage, 23), Some(&secret())).unwrap();
                let seal = log.check_whole(ArenaId(1)).unwrap().footer.log_bytes..self.bytes(&sealed);
                vec![(sealed, seal)]
            }
            "catalog" => {
                let root = open_store(&self.storage, 24, StoreAccess::Read).unwrap().last_catalog().unwrap();
                let placed = &self.blocks[&root];
                vec![(placed.arena.file_name(), placed.record.clone())]
            }
            "parity" => self.whole(FileName::new("parity/0000000001.0.parity").unwrap()),
            "config" => self.whole(FileName::new("config.toml").unwrap()),
            "key" => self.whole(self.storage.list("keys").unwrap().remove(0)),
            "index" => {
                let files = self.storage.list("index").unwrap();
                files.into_iter().flat_map(|file| self.whole(file)).collect()
            }
            unknown => panic!("no such part: {unknown}"),
        }
    }

    fn whole(&self, file: FileName) -> Vec<(FileName, Range<u64>)> {
        let bytes = self.bytes(&file);
        vec![(file, 0..bytes)]
    }
}

/// Harms a part of a file, or all of it.
fn strike(storage: &MemoryStorage, file: &FileName, part: &Range<u64>, harm: &str) {
    let mut bytes = storage.contents(file).unwrap();
    let part = part.start as usize..part.end as usize;
    let middle = part.start.midpoint(part.end);
    match harm {
        "flip" => bytes[middle] ^= 0x10,
        "truncate" => bytes.truncate(middle),
        "zero" => bytes[part].fill(0),
        "remove" if part == (0..bytes.len()) => return storage.remove(file).unwrap(),
        "remove" => drop(bytes.drain(part)),
        unknown => panic!("no such harm: {unknown}"),
    }
    storage.set_contents(file, bytes);
}

/// The places that were harmed.
type Struck = [(FileName, Range<u64>)];

/// A store after a harm, or after a repair.
struct Seen {
    /// A cell of the table.
    cell: String,
    /// The error of the opening, or the damage that `verify` has found.
    said: String,
    /// True if an end of the log is unfinished.
    is_unfinished: bool,
    /// The lost blocks that `verify` reports.
    reported: Vec<BlockName>,
}

/// Reads every block and every snapshot, and verifies the archive. Panics if something is given
/// that was never stored, or if a snapshot cannot be read and `verify` does not name it.
fn look(whole: &Sample, storage: &MemoryStorage, struck: &Struck, session: u64) -> Seen {
    let archive = match open(storage, session, StoreAccess::Read) {
        Ok(archive) => archive,
        Err(said) => {
            return Seen { cell: "refused".into(), said, is_unfinished: false, reported: Vec::new() };
        }
    };
    let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new()).unwrap();
    let mut lost = BTreeSet::new();
    for (name, placed) in &whole.blocks {
        match archive.store().get(name) {
            Ok(bytes) => assert!(bytes == placed.bytes, "{name}: wrong bytes"),
            Err(_) => drop(lost.insert(*name)),
        }
    }
    let mut harmed = Vec::new();
    for snapshot in archive.snapshots() {
        match read_back(&archive, snapshot) {
            Some(bytes) => assert!(bytes == content(&snapshot.name), "{}: wrong bytes", snapshot.name),
            None => {
                let is_named = verified.harm.iter().any(|harm| harm.snapshot == snapshot.id);
                assert!(is_named, "{} cannot be read, and verify does not say so", snapshot.name);
                harmed.push(snapshot.name.clone());
            }
        }
    }
    let is_listed = |name: &&str| archive.snapshots().iter().any(|snapshot| snapshot.name == **name);
    harmed.extend(NAMES.iter().filter(|name| !is_listed(name)).map(|name| format!("{name} unlisted")));
    let said = verified.damage.iter().map(|damage| with_causes(&damage.kind));
    let due = verified.without_parity.iter().map(|_| "an arena without parity yet".to_owned());
    let said = said.chain(due).collect::<Vec<_>>().join("; ");
    let is_as_before = said.is_empty() && log_of(storage) == log_of(&whole.storage);
    let what = match lost.is_empty() {
        true if is_as_before => "whole".to_owned(),
        true => "nothing".to_owned(),
        false => name_of(whole, &lost, struck),
    };
    let cell = if harmed.is_empty() { what } else { format!("{what}: {}", harmed.join(", ")) };
    let reported = verified.losses.blocks().map(|block| block.name).collect();
    Seen { cell, said, is_unfinished: !verified.unfinished.is_empty(), reported }
}

/// All files but hints.
fn log_of(storage: &MemoryStorage) -> BTreeMap<FileName, Vec<u8>> {
    let names = storage.names().into_iter();
    let is_log = |name: &FileName| !["index", "quarantine"].contains(&name.folder());
    names.filter(is_log).map(|name| (name.clone(), storage.contents(&name).unwrap())).collect()
}

/// Names this set of blocks by its relation to the part that was struck.
fn name_of(whole: &Sample, lost: &BTreeSet<BlockName>, struck: &Struck) -> String {
    let (file, part) = &struck[0];
    let is_there = |name: &BlockName| whole.blocks[name].arena.file_name() == *file;
    assert!(lost.iter().all(is_there), "{file} was harmed, and blocks elsewhere are lost");
    let in_arena = |is_in: &dyn Fn(&Placed) -> bool| -> BTreeSet<BlockName> {
        let blocks = whole.blocks.iter().filter(|(_, placed)| placed.arena.file_name() == *file);
        blocks.filter(|(_, placed)| is_in(placed)).map(|(name, _)| *name).collect()
    };
    let sets = [
        ("its block", in_arena(&|placed| placed.record == *part)),
        ("the arena", in_arena(&|_| true)),
        ("the rest", in_arena(&|placed| placed.record.end > part.start)),
    ];
    let found = sets.into_iter().find(|(_, set)| set == lost);
    found.map_or_else(|| format!("{} blocks", lost.len()), |(name, _)| name.to_owned())
}

/// Repairs a store as the program does, with a copy or without one. Returns true if it had damage.
fn mend(storage: &MemoryStorage, copy: Option<&MemoryStorage>, session: u64) -> Result<bool, String> {
    if let Some(copy) = copy {
        let put_back = bring_back_settings(&world(storage, session), copy, Some(&secret()));
        put_back.map_err(|error| with_causes(&error))?;
    }
    let store = open_store(storage, session + 1, WRITER)?;
    let copy = copy.map(|copy| open_store(copy, session + 2, StoreAccess::Read).unwrap());
    let copies: Vec<_> = copy.iter().collect();
    let report = repair(&store, &copies, RepairScope::All, &Progress::new()).unwrap();
    store.close().unwrap();
    Ok(!report.plan.before.damage.is_empty())
}

/// Looks at a damaged store. A snapshot taken there afterwards is complete, and changes nothing
/// else.
fn look_and_write_on(whole: &Sample, storage: &MemoryStorage, struck: &Struck, what: &str) -> Seen {
    let seen = look(whole, storage, struck, 30);
    let later = storage.fork();
    let taken = take(&later, 40, &[LATE]);
    assert_eq!(taken.is_err(), seen.cell == "refused", "{what}: {taken:?}");
    let after = look(whole, &later, struck, 50);
    let is_same = after.cell == seen.cell.replace("whole", "nothing");
    assert!(is_same, "{what}: {}, and after one more snapshot {}", seen.cell, after.cell);
    seen
}

/// Repairs a damaged store, and looks at it. A repair leaves a sound log, and does not change
/// undamaged arenas.
fn look_repaired(whole: &Sample, hurt: &MemoryStorage, struck: &Struck, is_copied: bool, what: &str) -> Seen {
    let repaired = hurt.fork();
    let copy = is_copied.then_some(&whole.storage);
    let is_repaired = mend(&repaired, copy, 60);
    let seen = look(whole, &repaired, struck, 70);
    if is_repaired.is_err() {
        assert_eq!(seen.cell, "refused", "{what}: {is_repaired:?}");
        return seen;
    }
    assert_eq!(seen.said, "", "{what}: a repaired log is sound");
    let neighbour = ArenaId(0).file_name();
    assert!(repaired.contents(&neighbour) == hurt.contents(&neighbour), "{what}: a whole arena has changed");
    assert_eq!(mend(&repaired, copy, 80), Ok(false), "{what}: a second repair has nothing to do");
    // The next night stores the remaining lost blocks again, except older roots of the catalog.
    take(&repaired, 90, &NAMES).unwrap();
    let healed = look(whole, &repaired, struck, 95);
    let is_root = |name: &BlockName| name.block_type == BlockType::CATALOG;
    let is_healed = !healed.cell.contains(':') && healed.reported.iter().all(is_root);
    assert!(is_healed, "{what}: after the next night {}, {:?}", healed.cell, healed.reported);
    seen
}

/// Checks one row. The error is the row that the table should have.
fn check_row(samples: &[Sample; 2], row: &[&str]) -> Result<(), String> {
    let [part, harm, said, lost, rest @ ..] = row else { panic!("{row:?}") };
    let [without_parity, with_parity] = samples;
    let harmed = |whole: &Sample| {
        let (hurt, struck) = (whole.storage.fork(), whole.part(part));
        struck.iter().for_each(|(file, place)| strike(&hurt, file, place, harm));
        (hurt, struck)
    };
    let first = if *part == "parity" { with_parity } else { without_parity };
    let (hurt, struck) = harmed(first);
    let seen = look_and_write_on(first, &hurt, &struck, &format!("{part} {harm}"));
    if let Ok(store) = open_store(&hurt, 55, StoreAccess::Read) {
        let before = log_of(&hurt);
        plan_repair(&store, &[], RepairScope::All, &Progress::new()).unwrap();
        assert!(log_of(&hurt) == before, "{part} {harm}: a plan has changed the log");
    }
    let repaired = |whole: &Sample, is_copied: bool, way: &str| {
        let (hurt, struck) = harmed(whole);
        let cell = look_repaired(whole, &hurt, &struck, is_copied, &format!("{part} {harm}, {way}")).cell;
        if cell == seen.cell && cell != "whole" { "same".into() } else { cell }
    };
    let alone = if *part == "parity" { String::new() } else { repaired(first, false, "repair alone") };
    let found = [alone, repaired(with_parity, false, "parity"), repaired(first, true, "a copy")];
    let is_said = if said.is_empty() { seen.said.is_empty() } else { seen.said.contains(said) };
    let is_right = is_said && seen.cell == *lost && found.iter().eq(rest);
    if is_right { Ok(()) } else { Err(format!("{part} {harm} | {} | {} | {found:?}", seen.said, seen.cell)) }
}

#[test]
fn each_harm_to_each_part_takes_what_the_table_says() {
    let samples = [0, 30].map(|percent| {
        let parity_percent = ParityPercent::new(percent);
        Sample::new(StoreConfig { parity_percent, ..StoreConfig::new([5; 16]) })
    });
    let rows = MATRIX.lines().skip(2);
    let rows: Vec<Vec<_>> =
        rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.len(), 9 * 4);
    let wrong: Vec<_> = rows.iter().filter_map(|row| check_row(&samples, row).err()).collect();
    assert!(wrong.is_empty(), "the table should say:\n{}", wrong.join("\n"));
}

#[test]
fn the_page_has_the_same_table() {
    let page = include_str!("../../../../docs/internals/reliability.md");
    assert!(page.contains(MATRIX), "docs/internals/reliability.md should have:\n{MATRIX}");
}

/// Stores of each kind are harmed at many places, without regard to where a part begins.
#[test]
fn a_harm_anywhere_in_the_log_is_noticed() {
    let kinds = [
        (ScoreAlgorithm::Blake3, CompareMode::Hash),
        (ScoreAlgorithm::Sha1, CompareMode::Hash),
        (ScoreAlgorithm::Blake3, CompareMode::Value),
    ];
    let with = |encryption| kinds.map(|(score, compare)| (score, compare, encryption));
    for (score, compare, encryption) in [Encryption::Aes256Gcm, Encryption::None].into_iter().flat_map(with) {
        let whole = Sample::new(StoreConfig { score, compare, encryption, ..StoreConfig::new([5; 16]) });
        let arenas = whole.storage.list(ArenaId::FOLDER).unwrap();
        for file in &arenas {
            let bytes = whole.bytes(file);
            let is_newest = Some(file) == arenas.last();
            // The zeros in the gaps between records have no meaning.
            let contents = whole.storage.contents(file).unwrap();
            let with_meaning = |place: u64| (place..bytes).find(|at| contents[*at as usize] != 0);
            let flips = (0..9).filter_map(|part| with_meaning(bytes * part / 9 + part % 5));
            let flips = flips.chain([64, 300, bytes - 40, bytes - 1]);
            let flips = flips.map(|place| ("flip", place..place + 1));
            let cuts = [0, 1, bytes / 2, bytes - 1].map(|left| ("truncate", left..left));
            for (harm, place) in flips.chain(cuts).chain([("remove", 0..bytes)]) {
                let what =
                    format!("{score:?}, {compare:?}, {encryption:?}: {file}, {harm} at {}", place.start);
                let hurt = whole.storage.fork();
                strike(&hurt, file, &place, harm);
                let seen = look_and_write_on(&whole, &hurt, &[(file.clone(), place)], &what);
                // The mark at the end need not be durable. A crash may cut into it, and takes
                // nothing.
                let is_cut_mark =
                    is_newest && harm == "truncate" && seen.is_unfinished && seen.cell == "nothing";
                assert!(!seen.said.is_empty() || is_cut_mark, "{what}: {}", seen.cell);
            }
        }
    }
}
