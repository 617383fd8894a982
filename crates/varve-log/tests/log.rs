//! A log is written, sealed, cut short, tampered with, and opened again.
#![allow(clippy::cast_possible_truncation)]

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_block::{BlockName, BlockType, LogAddress, to_hex};
use varve_log::{
    AppendError, Appender, ArenaEnd, ArenaId, ArenaMap, ArenaState, ClumpBytes, ClumpDraft, CompressionLevel,
    FooterError, FrameBytes, Framing, Log, LogConfig, LogKeys, NamedBlock, ProvenPages, ReadLogError,
    RecoveredArena, Seal, Seals, recovery_of, wrap_secret,
};
use varve_world::{FileName, InlineWorkers, MemoryStorage, Random, SeededRandom, Storage};

struct Written {
    storage: MemoryStorage,
    keys: LogKeys,
    blocks: Vec<(LogAddress, BlockName, Vec<u8>)>,
}

const MAP_BYTES: u64 = 1 << 20;

fn config() -> LogConfig {
    LogConfig { store_id: [7; 16], map: ArenaMap::new(MAP_BYTES).unwrap(), score_bytes: 32 }
}

fn log(storage: &MemoryStorage, keys: &LogKeys) -> Arc<Log> {
    Arc::new(Log::new(Arc::new(storage.clone()), keys.clone(), config()))
}

/// Opens the log like a writer. Returns the result of the recovery of the arenas without a seal.
fn open(storage: &MemoryStorage, keys: &LogKeys, seed: u64) -> (Arc<Log>, Appender, Vec<RecoveredArena>) {
    let log = log(storage, keys);
    let (mut seals, mut unsealed) = (Seals::default(), Vec::new());
    for id in log.arenas().unwrap() {
        let arena = log.open_arena(id).unwrap();
        match log.state(&arena).unwrap() {
            ArenaState::Sealed { footer, .. } => seals.insert(id, Seal::of(arena.header(), &footer)),
            ArenaState::Unsealed => {
                let found = log.scan(&arena).unwrap();
                let recovered = log.recover(&arena, found).unwrap();
                unsealed.push((arena, recovered));
            }
        }
    }
    let found = unsealed.iter().map(|(_, recovered)| recovered.clone()).collect();
    let next = ArenaId(log.arenas().unwrap().last().map_or(0, |id| id.0 + 1));
    let appender =
        Appender::new(Arc::clone(&log), Arc::new(SeededRandom::new(seed)), (seals, 0), unsealed, next)
            .unwrap();
    (log, appender, found)
}

fn sync(log: &Log, appender: &mut Appender) {
    appender.finish_page().unwrap();
    let plan = appender.plan_sync();
    plan.carry_out(log).unwrap();
    appender.finish_sync(&plan).unwrap();
}

fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SeededRandom::new(seed).fill(&mut bytes).unwrap();
    bytes
}

fn append_block(log: &Log, appender: &mut Appender, bytes: &[u8]) -> (LogAddress, BlockName) {
    let name = BlockName { score: log.keys().blake3_score(bytes), block_type: BlockType::DATA };
    let mut draft = ClumpDraft::new(ClumpBytes::default());
    draft.push(NamedBlock { name, digest: None, bytes, base: None });
    let (address, _) = appender
        .append(draft.pack(CompressionLevel::default(), Framing::Pieces(FrameBytes::default())))
        .unwrap();
    (address, name)
}

/// The writer continues during a sync. An arena that it begins then is not made durable by that
/// sync.
#[test]
fn an_arena_that_is_begun_during_a_sync_waits_for_the_next() {
    let storage = MemoryStorage::new();
    let keys = LogKeys::from_master(&[3; 32]);
    let (log, mut appender, _) = open(&storage, &keys, 1);
    append_block(&log, &mut appender, &random_bytes(1, 100_000));
    appender.finish_page().unwrap();
    let plan = appender.plan_sync();
    plan.carry_out(&log).unwrap();
    for seed in 2..14 {
        append_block(&log, &mut appender, &random_bytes(seed, 100_000));
    }
    assert_eq!(log.arenas().unwrap().len(), 2);
    appender.finish_sync(&plan).unwrap();
    assert!(appender.has_new_names());
    sync(&log, &mut appender);
    assert!(!appender.has_new_names());
}

/// A writer that continues an arena cuts off the mark left by the previous writer, while a reader
/// reads.
#[test]
fn a_look_at_an_arena_outlives_the_cut_of_a_mark() {
    let Written { storage, keys, blocks } = written(LogKeys::from_master(&[3; 32]));
    let log = log(&storage, &keys);
    let id = *log.arenas().unwrap().last().unwrap();
    let arena = log.open_arena(id).unwrap();
    let places = blocks.iter().map(|(address, ..)| config().map.locate(*address));
    let in_it: Vec<_> = places.filter(|(arena, _)| *arena == id).map(|(_, place)| place).collect();
    let (first, last) = (*in_it.first().unwrap(), *in_it.last().unwrap());
    assert!(first < last);
    let mut window = log.window(&arena, 150_000);
    window.clump(first).unwrap();
    let found = log.scan(&arena).unwrap();
    let cut = found.pages.last().unwrap().0.granule.byte_offset();
    storage.truncate(&id.file_name(), cut).unwrap();
    window.clump(last).unwrap();
}

/// Blocks that fill several arenas, synced now and then.
fn written(keys: LogKeys) -> Written {
    let storage = MemoryStorage::new();
    let (log, mut appender, _) = open(&storage, &keys, 1);
    let mut blocks = Vec::new();
    for seed in 0..45 {
        let bytes = random_bytes(seed, 100_000);
        let (address, name) = append_block(&log, &mut appender, &bytes);
        blocks.push((address, name, bytes));
        if seed % 7 == 6 {
            sync(&log, &mut appender);
        }
    }
    sync(&log, &mut appender);
    appender.mark_durable().unwrap();
    Written { storage, keys, blocks }
}

fn is_sealed(log: &Log, id: ArenaId) -> bool {
    let arena = log.open_arena(id).unwrap();
    matches!(log.state(&arena).unwrap(), ArenaState::Sealed { .. })
}

fn both_kinds() -> [LogKeys; 2] {
    [LogKeys::from_master(&[3; 32]), LogKeys::plain(&[3; 32])]
}

fn read(log: &Log, address: LogAddress) -> Result<Vec<u8>, ReadLogError> {
    let (id, granule) = config().map.locate(address);
    let arena = log.open_arena(id)?;
    let (_, content) = log.window(&arena, 0).clump(granule)?;
    Ok(content.blocks().next().unwrap().1.to_vec())
}

/// Reads all pages, sealed or not, and all blocks that they name.
fn read_all(log: &Log) -> Result<BTreeMap<BlockName, Vec<u8>>, ReadLogError> {
    let mut found = BTreeMap::new();
    for id in log.arenas().unwrap() {
        let arena = log.open_arena(id)?;
        let pages: Vec<_> = match log.state(&arena)? {
            ArenaState::Sealed { pages, .. } => {
                pages.iter().map(|row| log.read_page(&arena, row)).collect::<Result<_, _>>()?
            }
            ArenaState::Unsealed => log.scan(&arena)?.pages.into_iter().map(|(_, page)| page).collect(),
        };
        for block in pages.iter().flat_map(|page| page.blocks()) {
            let (header, content) = log.window(&arena, 0).clump(block.granule)?;
            let vouched = pages.iter().flat_map(|page| page.clumps()).any(|clump| clump.code == header.code);
            assert!(vouched, "the page names the clump by its code");
            found.insert(block.name, content.blocks().nth(block.ordinal as usize).unwrap().1.to_vec());
        }
    }
    Ok(found)
}

#[test]
fn what_was_appended_is_read_back() {
    for keys in both_kinds() {
        let written = written(keys);
        let log = log(&written.storage, &written.keys);
        for (address, _, bytes) in &written.blocks {
            assert_eq!(&read(&log, *address).unwrap(), bytes);
        }
        let all = read_all(&log).unwrap();
        assert_eq!(all.len(), written.blocks.len());
        assert!(written.blocks.iter().all(|(_, name, bytes)| all[name] == *bytes));
        let sealed_count = log.arenas().unwrap().into_iter().filter(|id| is_sealed(&log, *id)).count();
        assert_eq!(sealed_count, 4, "4 MB in arenas of 1 MiB, the last one open");
    }
}

#[test]
fn an_encrypted_log_shows_nothing() {
    let text = b"a line that nobody should find on the disk\n".repeat(300);
    let storage = MemoryStorage::new();
    let (log, mut appender, _) = open(&storage, &LogKeys::from_master(&[3; 32]), 1);
    let bytes = [random_bytes(5, 70_000), text.clone()].concat();
    let (_, name) = append_block(&log, &mut appender, &bytes);
    sync(&log, &mut appender);
    let file = storage.contents(&ArenaId(0).file_name()).unwrap();
    for secret in [&bytes[..32], &text[..32], name.score.as_bytes(), blake3::hash(&bytes).as_bytes()] {
        assert!(!file.windows(secret.len()).any(|window| window == secret), "{} is visible", to_hex(secret));
    }
}

#[test]
fn another_session_goes_on_where_the_last_one_stopped() {
    for keys in both_kinds() {
        let written = written(keys);
        let before = log(&written.storage, &written.keys).arenas().unwrap().len();
        let (log, mut appender, found) = open(&written.storage, &written.keys, 2);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].cut_bytes, 0);
        let (address, name) = append_block(&log, &mut appender, b"another night");
        sync(&log, &mut appender);
        assert_eq!(read(&log, address).unwrap(), b"another night");
        assert_eq!(log.arenas().unwrap().len(), before, "the open arena was continued");
        assert!(read_all(&log).unwrap().contains_key(&name));
    }
}

#[test]
fn opening_and_closing_writes_nothing() {
    let written = written(LogKeys::from_master(&[3; 32]));
    let last = *log(&written.storage, &written.keys).arenas().unwrap().last().unwrap();
    let before = written.storage.contents(&last.file_name());
    for seed in 2..5 {
        let (log, mut appender, _) = open(&written.storage, &written.keys, seed);
        sync(&log, &mut appender);
        appender.mark_durable().unwrap();
    }
    assert_eq!(written.storage.contents(&last.file_name()), before);
}

#[test]
fn a_torn_end_is_cut_at_any_byte() {
    let keys = LogKeys::from_master(&[3; 32]);
    let storage = MemoryStorage::new();
    let (log, mut appender, _) = open(&storage, &keys, 1);
    let kept = append_block(&log, &mut appender, &random_bytes(1, 3000));
    sync(&log, &mut appender);
    let file = ArenaId(0).file_name();
    let synced_bytes = storage.length(&file).unwrap();
    append_block(&log, &mut appender, &random_bytes(2, 2000));
    appender.finish_page().unwrap();
    let whole_bytes = storage.length(&file).unwrap();
    for length in synced_bytes..=whole_bytes {
        for zeros in [false, true] {
            let torn = storage.fork();
            torn.truncate(&file, length).unwrap();
            if zeros {
                torn.append(&file, &[0; 5000]).unwrap();
            }
            let (log, mut appender, found) = open(&torn, &keys, 2);
            let expected = if length == whole_bytes { whole_bytes } else { synced_bytes };
            // Zeros in place of the zeros of the last gap are no loss.
            assert!(
                found[0].log_bytes == expected || (zeros && length + 128 > whole_bytes),
                "cut to {length}"
            );
            assert_eq!(torn.length(&file).unwrap(), found[0].log_bytes);
            assert_eq!(read(&log, kept.0).unwrap(), random_bytes(1, 3000));
            append_block(&log, &mut appender, b"and on it goes");
            sync(&log, &mut appender);
            assert!(read_all(&log).unwrap().len() >= 2);
        }
    }
}

/// The kind of end of the first arena, if its pages name everything in it.
fn end(storage: &MemoryStorage, keys: &LogKeys) -> ArenaEnd {
    let log = log(storage, keys);
    let arena = log.open_arena(ArenaId(0)).unwrap();
    let found = log.scan(&arena).unwrap();
    assert_eq!(found.gap, None);
    log.end(&arena, &found).unwrap()
}

#[test]
fn a_torn_end_is_told_from_a_damaged_one() {
    for keys in both_kinds() {
        let storage = MemoryStorage::new();
        let (log, mut appender, _) = open(&storage, &keys, 1);
        append_block(&log, &mut appender, &random_bytes(1, 3000));
        sync(&log, &mut appender);
        let file = ArenaId(0).file_name();
        let first_page_end = storage.length(&file).unwrap() as usize;
        append_block(&log, &mut appender, &random_bytes(2, 2000));
        let clump_end = storage.length(&file).unwrap() as usize;
        sync(&log, &mut appender);
        let whole = storage.contents(&file).unwrap();
        assert_eq!(end(&storage, &keys), ArenaEnd::Whole);

        for length in first_page_end..whole.len() {
            let cut = storage.fork();
            cut.truncate(&file, length as u64).unwrap();
            // A record that lacks only a part of the gap after it is complete.
            let gap = [clump_end, whole.len()].iter().any(|end| (1..128).contains(&(end - length.min(*end))));
            let expected = [ArenaEnd::Torn, ArenaEnd::Whole];
            let found = end(&cut, &keys);
            let at_border = length == first_page_end || length == clump_end;
            assert!(
                found == expected[usize::from(at_border)] || (gap && expected.contains(&found)),
                "cut to {length}"
            );
        }
        for sector in first_page_end / 512..whole.len().div_ceil(512) {
            let range = (sector * 512).max(first_page_end)..((sector + 1) * 512).min(whole.len());
            if whole[range.clone()].iter().all(|byte| *byte == 0) {
                continue;
            }
            let mut bytes = whole.clone();
            bytes[range.clone()].fill(0);
            storage.set_contents(&file, bytes);
            let log = self::log(&storage, &keys);
            let arena = log.open_arena(ArenaId(0)).unwrap();
            let found = log.scan(&arena).unwrap();
            // A page that has survived without its clump is a different case.
            if range.end > clump_end {
                assert_eq!(log.end(&arena, &found).unwrap(), ArenaEnd::Torn, "lost {range:?}");
            }
        }
        // Every bit of the last page counts, except in the gap after it.
        let body_bytes = u32::from_le_bytes(whole[clump_end + 4..clump_end + 8].try_into().unwrap()) as usize;
        for bit in clump_end * 8..(clump_end + 64 + body_bytes) * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            storage.set_contents(&file, bytes);
            assert_eq!(end(&storage, &keys), ArenaEnd::Damaged, "bit {bit}");
        }
    }
}

#[test]
fn what_a_power_cut_leaves_of_a_seal_is_no_damage() {
    for keys in both_kinds() {
        let storage = MemoryStorage::new();
        let (log, mut appender, _) = open(&storage, &keys, 1);
        for seed in 0..120 {
            append_block(&log, &mut appender, &random_bytes(seed, 30_000));
            sync(&log, &mut appender);
        }
        let mut crossing = 0;
        for id in log.arenas().unwrap().into_iter().filter(|id| is_sealed(&log, *id)) {
            let (file, arena) = (id.file_name(), log.open_arena(id).unwrap());
            let whole = storage.contents(&file).unwrap();
            let ArenaState::Sealed { footer, pages } = log.state(&arena).unwrap() else { unreachable!() };
            let left_as_torn = |what: &str, bytes: Vec<u8>| {
                storage.set_contents(&file, bytes);
                assert_eq!(log.state_as_left(&arena).unwrap(), ArenaState::Unsealed, "{what}");
                let found = log.scan(&arena).unwrap();
                assert_eq!(found.pages.iter().map(|(row, _)| *row).collect::<Vec<_>>(), pages, "{what}");
                assert_eq!(log.end(&arena, &found).unwrap(), ArenaEnd::Torn, "{what}");
            };
            let start = footer.log_bytes as usize;
            for length in (start + 1..whole.len()).step_by(7) {
                left_as_torn(&format!("arena {id} cut to {length}"), whole[..length].to_vec());
            }
            let sectors = start / 512..whole.len().div_ceil(512);
            crossing += usize::from(sectors.len() > 1);
            for sector in sectors {
                let mut bytes = whole.clone();
                bytes[(sector * 512).max(start)..((sector + 1) * 512).min(whole.len())].fill(0);
                left_as_torn(&format!("arena {id} without sector {sector}"), bytes);
            }
            for (place, is_footer) in [(start, false), (start + 20, false), (whole.len() - 20, true)] {
                let mut bytes = whole.clone();
                bytes[place] ^= 1;
                storage.set_contents(&file, bytes);
                let state = log.state_as_left(&arena);
                if is_footer {
                    assert_eq!(state.unwrap(), ArenaState::Unsealed);
                } else {
                    assert!(matches!(state, Err(ReadLogError::Seal { .. })), "{state:?}");
                }
                let found = log.scan(&arena).unwrap();
                assert_eq!(log.end(&arena, &found).unwrap(), ArenaEnd::Damaged, "arena {id}, byte {place}");
            }
            storage.set_contents(&file, whole);
        }
        assert!(crossing > 0, "no seal lies in two sectors");
    }
}

#[test]
fn a_page_that_outlived_its_clump_is_not_believed() {
    let keys = LogKeys::from_master(&[3; 32]);
    let storage = MemoryStorage::new();
    let (log, mut appender, _) = open(&storage, &keys, 1);
    append_block(&log, &mut appender, &random_bytes(1, 3000));
    sync(&log, &mut appender);
    let (lost, _) = append_block(&log, &mut appender, &random_bytes(2, 3000));
    appender.finish_page().unwrap();
    let file = ArenaId(0).file_name();
    let mut contents = storage.contents(&file).unwrap();
    let place = config().map.locate(lost).1.byte_offset() as usize;
    contents[place + 1000..place + 2000].fill(0);
    storage.set_contents(&file, contents);
    let (_, _, found) = open(&storage, &keys, 2);
    assert_eq!(found[0].log_bytes, place as u64);
    assert_eq!(found[0].pages.len(), 1, "what was synced is still there");
}

/// A power cut may keep any sector: for example, of two pages without a later sync, only the second
/// one with all its clumps.
#[test]
fn what_a_power_cut_reordered_is_cut() {
    let keys = LogKeys::from_master(&[3; 32]);
    for lost_bytes in [128, 3000] {
        let storage = MemoryStorage::new();
        let (log, mut appender, _) = open(&storage, &keys, 1);
        append_block(&log, &mut appender, &random_bytes(1, 3000));
        sync(&log, &mut appender);
        let (lost, _) = append_block(&log, &mut appender, &random_bytes(2, 3000));
        appender.finish_page().unwrap();
        append_block(&log, &mut appender, &random_bytes(3, 3000));
        appender.finish_page().unwrap();
        let file = ArenaId(0).file_name();
        let mut contents = storage.contents(&file).unwrap();
        let place = config().map.locate(lost).1.byte_offset() as usize;
        contents[place..place + lost_bytes].fill(0);
        storage.set_contents(&file, contents);
        let (_, _, found) = open(&storage, &keys, 2);
        assert_eq!((found[0].log_bytes, found[0].gap), (place as u64, None));
        assert_eq!(found[0].pages.len(), 1, "what was synced is still there");
        assert_eq!(storage.length(&file).unwrap(), place as u64);
    }
}

#[test]
fn an_arena_before_the_last_may_lack_its_header() {
    let keys = LogKeys::from_master(&[3; 32]);
    let storage = MemoryStorage::new();
    for arena in 0..2 {
        storage.create(&ArenaId(arena).file_name()).unwrap();
        storage.append(&ArenaId(arena).file_name(), &[0; 5000]).unwrap();
    }
    storage.create(&FileName::new("arenas/0000000000.arena.new").unwrap()).unwrap();
    log(&storage, &keys).remove_never_begun().unwrap();
    assert!(storage.names().is_empty(), "no sync had returned since they were begun");
    // No arena is left that a later opening would take for one that was never begun.
    for arena in [1, 3, 4, 5, 7] {
        storage.create(&ArenaId(arena).file_name()).unwrap();
        let byte = u8::from(arena == 3 || arena == 4);
        storage.append(&ArenaId(arena).file_name(), &[byte; 600]).unwrap();
    }
    log(&storage, &keys).remove_never_begun().unwrap();
    assert_eq!(log(&storage, &keys).arenas().unwrap(), [ArenaId(3), ArenaId(4)]);
    let written = written(keys);
    let file = ArenaId(1).file_name();
    let mut rotten = written.storage.contents(&file).unwrap();
    rotten[..512].fill(0);
    written.storage.set_contents(&file, rotten);
    log(&written.storage, &written.keys).remove_never_begun().unwrap();
    assert!(written.storage.contents(&file).is_some(), "it has a seal: it was begun");
}

/// Three pages that were never synced, after one that was.
fn unsynced_pages(keys: &LogKeys) -> (MemoryStorage, Vec<usize>) {
    let storage = MemoryStorage::new();
    let (log, mut appender, _) = open(&storage, keys, 1);
    append_block(&log, &mut appender, &random_bytes(1, 3000));
    sync(&log, &mut appender);
    let length = || storage.length(&ArenaId(0).file_name()).unwrap() as usize;
    let mut page_ends = vec![length()];
    for seed in 2..5 {
        append_block(&log, &mut appender, &random_bytes(seed, 3000));
        append_block(&log, &mut appender, &random_bytes(seed + 10, 3000));
        appender.finish_page().unwrap();
        page_ends.push(length());
    }
    (storage, page_ends)
}

#[test]
fn whatever_a_power_cut_took_what_follows_is_cut() {
    for keys in both_kinds() {
        let (storage, page_ends) = unsynced_pages(&keys);
        let file = ArenaId(0).file_name();
        let whole = storage.contents(&file).unwrap();
        for sector in page_ends[0].div_ceil(512)..page_ends[3] / 512 {
            let range = sector * 512..(sector + 1) * 512;
            if whole[range.clone()].iter().all(|byte| *byte == 0) {
                continue;
            }
            let crashed = storage.fork();
            let mut bytes = whole.clone();
            bytes[range.clone()].fill(0);
            crashed.set_contents(&file, bytes);
            let (log, mut appender, found) = open(&crashed, &keys, 2);
            // A sector may hold the end of one page's part and the beginning of the next one's.
            let kept = page_ends.iter().filter(|end| **end <= range.start).count();
            assert_eq!(found[0].gap, None, "lost {range:?}");
            assert!(
                found[0].pages.len() == kept
                    || whole[range.start..page_ends[kept]].iter().all(|byte| *byte == 0),
                "lost {range:?}"
            );
            append_block(&log, &mut appender, b"and on it goes");
            sync(&log, &mut appender);
            assert!(read_all(&log).unwrap().len() >= kept);
        }
    }
}

#[test]
fn a_changed_record_that_pages_follow_is_never_cut() {
    for keys in both_kinds() {
        let (storage, page_ends) = unsynced_pages(&keys);
        let file = ArenaId(0).file_name();
        let whole = storage.contents(&file).unwrap();
        for place in (page_ends[0] + 70..page_ends[1] - 200).step_by(101) {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            if bytes[place..place + 2] == [1, 0] {
                continue;
            }
            let changed = storage.fork();
            changed.set_contents(&file, bytes);
            let (_, _, found) = open(&changed, &keys, 2);
            assert!(found[0].gap.is_some(), "byte {place}");
            assert_eq!(changed.length(&file).unwrap(), whole.len() as u64);
        }
    }
}

#[test]
fn damage_to_what_is_marked_durable_cuts_nothing() {
    let keys = LogKeys::from_master(&[3; 32]);
    let storage = MemoryStorage::new();
    let (log, mut appender, _) = open(&storage, &keys, 1);
    let (rotten, _) = append_block(&log, &mut appender, &random_bytes(1, 3000));
    append_block(&log, &mut appender, &random_bytes(2, 3000));
    sync(&log, &mut appender);
    appender.mark_durable().unwrap();
    let file = ArenaId(0).file_name();
    let mut contents = storage.contents(&file).unwrap();
    contents[config().map.locate(rotten).1.byte_offset() as usize + 100] ^= 1;
    storage.set_contents(&file, contents.clone());
    let (log, _, found) = open(&storage, &keys, 2);
    assert!(found[0].has_stray_mark, "the mark is not part of what is durable");
    assert_eq!(storage.contents(&file).unwrap(), contents, "nothing was cut");
    assert!(matches!(read(&log, rotten), Err(ReadLogError::Forged { what: "clump", .. })));
}

#[test]
fn every_change_to_a_sealed_arena_is_noticed() {
    for keys in both_kinds() {
        let written = written(keys);
        let file = ArenaId(1).file_name();
        let good = written.storage.contents(&file).unwrap();
        let log = log(&written.storage, &written.keys);
        let offsets = (0..1200).chain((1200..good.len()).step_by(9973)).chain(good.len() - 300..good.len());
        for offset in offsets {
            let mut bad = good.clone();
            bad[offset] ^= 0x10;
            written.storage.set_contents(&file, bad);
            let unread = read_all(&log).map(|all| all.len());
            // A flip in a gap between records changes no byte that is ever read.
            let harmless = matches!(unread, Ok(count) if count == written.blocks.len()) && good[offset] == 0;
            // With a damaged footer everything can still be read, but the arena is not sealed. The
            // ledger shows that it was.
            assert!(
                unread.is_err() || harmless || !is_sealed(&log, ArenaId(1)),
                "offset {offset}: {unread:?}"
            );
        }
        for length in [0, 100, 512, 5000, good.len() / 2, good.len() - 1] {
            written.storage.set_contents(&file, good[..length].to_vec());
            let lost = read_all(&log).map_or(true, |all| all.len() < written.blocks.len());
            assert!(lost || !is_sealed(&log, ArenaId(1)), "cut to {length}");
        }
    }
}

/// Without its header, nothing in an arena can be decrypted. The record headers still show the
/// length of the arena, and the page that ended it.
#[test]
fn without_a_header_an_arena_tells_how_far_it_went() {
    for keys in both_kinds() {
        let Written { storage, keys, .. } = written(keys);
        let log = log(&storage, &keys);
        let ids = log.arenas().unwrap();
        let sealed = log.open_arena(ids[0]).unwrap();
        let ArenaState::Sealed { footer, pages } = log.state(&sealed).unwrap() else { panic!("not sealed") };
        let last = *ids.last().unwrap();
        let found = log.scan(&log.open_arena(last).unwrap()).unwrap();
        let [.., (named, _), (mark, page)] = &found.pages[..] else { panic!("no mark: {found:?}") };
        assert!(page.block_count() == 0 && mark.names_nothing() && !named.names_nothing());
        assert!(pages.iter().filter(|row| !row.names_nothing()).count() > 1);

        let lose = |id: ArenaId, place: usize, count: usize| {
            let mut bytes = storage.contents(&id.file_name()).unwrap();
            bytes[place..place + count].fill(0xa5);
            storage.set_contents(&id.file_name(), bytes);
        };
        [ids[0], last].into_iter().for_each(|id| lose(id, 0, 512));
        assert!(log.open_arena(last).is_err());
        let end = log.unopened_end(last).unwrap();
        assert_eq!((end.log_bytes, end.page, end.seal), (named.end(), Some(named.code), None));
        let end = log.unopened_end(ids[0]).unwrap();
        let names = pages.iter().rfind(|row| !row.names_nothing()).unwrap();
        assert_eq!((end.log_bytes, end.page), (names.end(), Some(names.code)));
        assert_eq!(end.seal, Some(footer.seal_code));

        // Damage in front of a readable page hides nothing behind it.
        lose(last, 600, 5000);
        assert_eq!(log.unopened_end(last).unwrap().page, Some(named.code));
        // The lost page may have named anything.
        lose(last, named.granule.byte_offset() as usize, 64);
        let file_bytes = storage.length(&last.file_name()).unwrap();
        let end = log.unopened_end(last).unwrap();
        assert_eq!((end.log_bytes, end.page, end.seal), (file_bytes, None, None));
        for length in [600, 512, 100, 0] {
            storage.truncate(&last.file_name(), length).unwrap();
            let end = log.unopened_end(last).unwrap();
            assert_eq!((end.log_bytes, end.page), (length, None), "cut to {length}");
        }
    }
}

#[test]
fn a_sealed_arena_is_whole_or_it_is_not() {
    for keys in both_kinds() {
        let Written { storage, keys, .. } = written(keys);
        let log = log(&storage, &keys);
        let whole = log.check_whole(ArenaId(0)).unwrap();
        let file = ArenaId(0).file_name();
        let good = storage.contents(&file).unwrap();
        assert_eq!(whole.footer.file_bytes(), Some(good.len() as u64));
        // Header, a clump's header and its body, the seal.
        for place in [20, 520, 5_000, good.len() - 50] {
            let mut bad = good.clone();
            bad[place] ^= 1;
            storage.set_contents(&file, bad);
            assert!(log.check_whole(ArenaId(0)).is_err(), "byte {place}");
        }
        let open = *log.arenas().unwrap().last().unwrap();
        let unsealed = log.check_whole(open).err().unwrap();
        assert!(matches!(unsealed, ReadLogError::Seal { source: FooterError::NotSealed, .. }));
    }
}

#[test]
fn swapped_and_rolled_back_arenas_are_noticed() {
    let written = written(LogKeys::from_master(&[3; 32]));
    let log = log(&written.storage, &written.keys);
    let (one, other) = (ArenaId(1).file_name(), ArenaId(2).file_name());
    let [first, second] = [&one, &other].map(|file| written.storage.contents(file).unwrap());
    written.storage.set_contents(&one, second.clone());
    written.storage.set_contents(&other, first.clone());
    assert!(matches!(log.open_arena(ArenaId(1)), Err(ReadLogError::Header { .. })));

    written.storage.set_contents(&one, first.clone());
    written.storage.set_contents(&other, second);
    let seals = || {
        let mut seals = Seals::default();
        for id in log.arenas().unwrap() {
            let arena = log.open_arena(id).unwrap();
            if let ArenaState::Sealed { footer, .. } = log.state(&arena).unwrap() {
                seals.insert(id, Seal::of(arena.header(), &footer));
            }
        }
        seals
    };
    let newest = log.open_arena(ArenaId(4)).unwrap();
    let ledger = log.scan(&newest).unwrap().pages.last().unwrap().1.ledger();
    assert_eq!(ledger.arena_count, 4);
    let holds = || seals().ledger(log.keys(), ledger.arena_count) == ledger;
    assert!(holds());
    // Arena 1 in its state before the seal: every code in it is right, and only the ledger shows
    // the difference.
    let unsealed_bytes = first.len() - 96 - 24 * 2;
    written.storage.set_contents(&one, first[..unsealed_bytes].to_vec());
    assert!(!holds());
}

#[test]
fn whoever_may_only_write_adds_and_reads_nothing() {
    let full = LogKeys::from_master(&[3; 32]);
    let written = written(full.clone());
    let writer = LogKeys::from_names_and_write(&full.names_and_write().unwrap());
    // The arena of another writer is whole, but only that writer or a reader can continue it.
    let log = log(&written.storage, &writer);
    let (mut seals, mut whole) = (Seals::default(), Vec::new());
    for id in log.arenas().unwrap() {
        let arena = log.open_arena(id).unwrap();
        match log.state(&arena).unwrap() {
            ArenaState::Sealed { footer, .. } => seals.insert(id, Seal::of(arena.header(), &footer)),
            ArenaState::Unsealed => {
                let proven = ProvenPages::of(log.scan(&arena).unwrap());
                assert!(proven.is_whole(), "its writer has left a mark");
                whole.push((arena, proven.proven));
            }
        }
    }
    let random = Arc::new(SeededRandom::new(9));
    let mut appender = Appender::new(Arc::clone(&log), random, (seals, 0), whole, ArenaId(5)).unwrap();
    let (address, _) = append_block(&log, &mut appender, b"of the night");
    sync(&log, &mut appender);
    appender.seal_open().unwrap();
    assert!(log.arenas().unwrap().into_iter().all(|id| is_sealed(&log, id)));
    assert_eq!(config().map.locate(address).0, ArenaId(5), "in an arena of its own");
    for place in written.blocks.iter().map(|(address, ..)| *address).chain([address]) {
        assert!(matches!(read(&log, place), Err(ReadLogError::NoReadKey { .. })));
    }
    let (reader, _, _) = open(&written.storage, &full, 10);
    assert_eq!(read(&reader, address).unwrap(), b"of the night");
}

#[test]
fn what_a_crash_may_have_taken_is_not_proven_without_reading() {
    let full = LogKeys::from_master(&[3; 32]);
    let writer = LogKeys::from_names_and_write(&full.names_and_write().unwrap());
    let storage = MemoryStorage::new();
    let (log, mut appender, _) = open(&storage, &writer, 1);
    append_block(&log, &mut appender, b"first");
    sync(&log, &mut appender);
    append_block(&log, &mut appender, b"second");
    sync(&log, &mut appender);
    append_block(&log, &mut appender, b"third, of which no page tells");
    drop(appender);
    let proven = ProvenPages::of(log.scan(&log.open_arena(ArenaId(0)).unwrap()).unwrap());
    assert!(!proven.is_whole());
    assert_eq!((proven.proven.pages.len(), proven.unproven.len()), (1, 1));
    assert!(proven.proven.cut_bytes > 0);
    // A writer that can also read finds the second page good, and seals the arena.
    let (log, mut appender, found) = open(&storage, &full, 2);
    assert_eq!(found[0].pages.len(), 2);
    let (address, _) = append_block(&log, &mut appender, b"by another hand");
    sync(&log, &mut appender);
    assert_eq!(config().map.locate(address).0, ArenaId(1));
    assert!(is_sealed(&log, ArenaId(0)));
    assert_eq!(read(&log, address).unwrap(), b"by another hand");
}

#[test]
fn an_arena_that_others_follow_is_sealed_and_not_continued() {
    let full = LogKeys::from_master(&[3; 32]);
    let writer = LogKeys::from_names_and_write(&full.names_and_write().unwrap());
    let storage = MemoryStorage::new();
    let (log, mut appender, _) = open(&storage, &full, 1);
    append_block(&log, &mut appender, b"a crash follows");
    sync(&log, &mut appender);
    append_block(&log, &mut appender, b"lost");
    drop((log, appender));
    // Two nights of a machine with a write-only key: arena 0 is not whole, and the machine cannot
    // read it.
    for night in 1..3 {
        let log = self::log(&storage, &writer);
        let mut seals = Seals::default();
        for id in (1..night).map(ArenaId) {
            let arena = log.open_arena(id).unwrap();
            let ArenaState::Sealed { footer, .. } = log.state(&arena).unwrap() else { panic!("sealed") };
            seals.insert(id, Seal::of(arena.header(), &footer));
        }
        let random = Arc::new(SeededRandom::new(night));
        let mut appender =
            Appender::new(Arc::clone(&log), random, (seals, 0), Vec::new(), ArenaId(night)).unwrap();
        append_block(&log, &mut appender, &random_bytes(night, 1000));
        sync(&log, &mut appender);
        appender.seal_open().unwrap();
    }
    let (log, mut appender, found) = open(&storage, &full, 3);
    assert!(found[0].cut_bytes > 0);
    sync(&log, &mut appender);
    let (address, _) = append_block(&log, &mut appender, b"after all of them");
    sync(&log, &mut appender);
    assert_eq!(config().map.locate(address).0, ArenaId(3), "what is new comes after what is old");
    assert!((0..3).all(|id| is_sealed(&log, ArenaId(id))));
    let order: Vec<_> = appender.seals().iter().map(|(id, _)| id.0).collect();
    assert_eq!(order, [1, 2, 0], "sealed late, and earlier ledgers hold");
    assert_eq!(read_all(&log).unwrap().len(), 4);
}

#[test]
fn a_full_disk_stops_the_log_and_loses_nothing() {
    let keys = LogKeys::from_master(&[3; 32]);
    let storage = MemoryStorage::new();
    let (log, mut appender, _) = open(&storage, &keys, 1);
    let (kept, _) = append_block(&log, &mut appender, b"kept");
    sync(&log, &mut appender);
    storage.set_bytes_max(Some(5000));
    // Otherwise the record would be refused before its first byte is written.
    appender.begin_use_of_reserve();
    let name = BlockName { score: log.keys().blake3_score(b"x"), block_type: BlockType::DATA };
    let mut draft = ClumpDraft::new(ClumpBytes::default());
    draft.push(NamedBlock { name, digest: None, bytes: &random_bytes(1, 50_000), base: None });
    let packed = draft.pack(CompressionLevel::default(), Framing::Pieces(FrameBytes::default()));
    assert!(matches!(appender.append(packed.clone()), Err(AppendError::Storage { .. })));
    assert!(
        matches!(appender.append(packed.clone()), Err(AppendError::Failed { .. })),
        "until it is opened again"
    );
    storage.set_bytes_max(None);
    let (log, mut appender, found) = open(&storage, &keys, 2);
    assert!(found[0].cut_bytes > 0);
    appender.append(packed).unwrap();
    sync(&log, &mut appender);
    assert_eq!(read(&log, kept).unwrap(), b"kept");
}

#[test]
fn two_sessions_share_no_nonce() {
    let keys = LogKeys::from_master(&[3; 32]);
    let storage = MemoryStorage::new();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..4 {
        let (log, mut appender, _) = open(&storage, &keys, seed);
        append_block(&log, &mut appender, &random_bytes(seed, 500));
        sync(&log, &mut appender);
        let file: FileName = ArenaId(0).file_name();
        let contents = storage.contents(&file).unwrap();
        for record in contents.windows(40).filter(|window| matches!(&window[..4], b"clmp" | b"page")) {
            seen.insert((record[32..36].to_vec(), record[8..32].to_vec()));
        }
    }
    let mut nonces: Vec<_> = seen.iter().map(|(_, nonce)| nonce.clone()).collect();
    nonces.sort();
    nonces.dedup();
    assert_eq!(nonces.len(), seen.len(), "each record has a nonce of its own");
    assert_eq!(seen.len(), 8);
}

/// An implementer of the format can compare with these vectors. `rosetta/tests` computes them too.
#[test]
fn the_vectors_in_the_format_page_are_what_the_log_computes() {
    let vector = |called: &str| {
        let begin = format!("{called} = ");
        let value = include_str!("../../../docs/internals/format.md")
            .lines()
            .find_map(|line| line.strip_prefix(&begin));
        value.unwrap_or_else(|| panic!("docs/internals/format.md has no vector {called:?}"))
    };
    let counting: [u8; 32] = std::array::from_fn(|n| n as u8);
    assert_eq!(vector("BLAKE3 of abc"), blake3::hash(b"abc").to_hex().as_str());
    assert_eq!(vector("BLAKE3 of abc, keyed"), blake3::keyed_hash(&counting, b"abc").to_hex().as_str());
    assert_eq!(vector("XXH3 of abc, as stored"), to_hex(&xxhash_rust::xxh3::xxh3_64(b"abc").to_le_bytes()));
    assert_eq!(vector("AES-256-GCM"), to_hex(&wrap_secret(&counting, b"varve", b"abc")));
    let frame = varve_block::from_hex(vector("zstd frame")).unwrap();
    let mut decompressed = [0; 300];
    assert_eq!(zstd_safe::decompress(&mut decompressed[..], &frame), Ok(300));
    assert_eq!(decompressed.as_slice(), b"abc".repeat(100));
    let keys = LogKeys::from_master(&counting);
    for name in ["score", "digest", "fingerprint", "seal"] {
        assert_eq!(vector(&format!("{name} key")), to_hex(&keys.derive(&format!("varve 1 {name}"))));
    }
    assert_eq!(vector("score of hello world, encrypted"), keys.blake3_score(b"hello world\n").to_string());
    let data: Vec<u8> = (0..5 * 4096_usize).map(|n| (n * 7 + n / 256).to_le_bytes()[0]).collect();
    let recovery = recovery_of(&data, 4096, 2, &InlineWorkers);
    assert_eq!(vector("BLAKE3 of the recovery shards"), blake3::hash(&recovery).to_hex().as_str());
}
