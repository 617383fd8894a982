//! The files of a store that are not arenas: one at a time, and all files of a store together.

use std::sync::LazyLock;

use varve_archive::{Archive, Catalog, SnapshotRequest};
use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_content::folder::{FolderOptions, Watch};
use varve_content::{Node, NodeKind, Progress};
use varve_log::{ArenaId, ArenaVersion};
use varve_store::{
    BarrenPart, Keyring, LeaseHolder, LeasedSnapshots, LogNote, ReplacedSeal, Secret, Store, StoreAccess,
    StoreConfig, held_leases, note_fingerprint, take_lease,
};
use varve_upkeep::Checker;
use varve_world::{FileName, MemoryStorage};
use zeroize::Zeroizing;

use crate::golden::{GOLDEN, Golden, WRITER, open, secret, world, writer_secret};
use crate::input::Input;

/// The file `config.toml`.
pub fn config(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(config) = StoreConfig::from_text(text) {
        assert_eq!(StoreConfig::from_text(&config.to_text()).expect("what was read can be written"), config);
    }
}

/// The configuration of a good store of each kind.
#[must_use]
pub fn config_seeds() -> Vec<Vec<u8>> {
    GOLDEN.iter().map(|golden| contents(golden, "config.toml")).collect()
}

fn contents(golden: &Golden, file: &str) -> Vec<u8> {
    golden.storage.contents(&FileName::new(file).expect("a plain name")).unwrap_or_default()
}

/// A file in `keys/`. A file that makes Argon2id expensive is skipped: a key file may ask for that
/// much work.
pub fn key_file(bytes: &[u8]) {
    if str::from_utf8(bytes).is_ok_and(works_hard) {
        return;
    }
    let storage = MemoryStorage::new();
    let config = FileName::new("config.toml").expect("a plain name");
    storage.set_contents(&config, contents(&GOLDEN[1], "config.toml"));
    storage.set_contents(&FileName::new("keys/any.toml").expect("a plain name"), bytes.to_vec());
    for secret in [secret(), Secret::Passphrase(Zeroizing::new("sesame".into()))] {
        drop(open(&storage, 30, &secret, StoreAccess::Read));
    }
}

fn works_hard(text: &str) -> bool {
    let Ok(table) = text.parse::<toml::Table>() else { return false };
    let number = |key| table.get(key).and_then(toml::Value::as_integer).unwrap_or(0);
    // The store rejects some of these values before any work. The target skips them too, which
    // loses nothing.
    number("memory_kib") > 256 || number("passes") > 3 || number("lanes") > 4
}

/// Key files of three kinds: for a restricted role, for all permissions, and with a passphrase.
#[must_use]
pub fn key_file_seeds() -> Vec<Vec<u8>> {
    let (salt, wrapped) = ("ab".repeat(16), "cd".repeat(48));
    let passphrase = format!(
        "kind = \"passphrase\"\nmemory_kib = 64\npasses = 1\nlanes = 1\nsalt = \"{salt}\"\nwrapped = \"{wrapped}\"\n"
    );
    let roles = ["append-only", "write-only"].map(|role| {
        let wrapped = "cd".repeat(80);
        format!(
            "kind = \"key-file\"\nid = \"any\"\nrole = \"{role}\"\ncreated = 5\nlabel = \"a label\"\nsalt = \"{salt}\"\nwrapped = \"{wrapped}\"\ncheck = \"0123456789abcdef\"\n"
        )
        .into_bytes()
    });
    let golden = GOLDEN[1].storage.names().into_iter().find(|name| name.as_str().starts_with("keys/"));
    let golden = golden.and_then(|name| GOLDEN[1].storage.contents(&name)).unwrap_or_default();
    roles.into_iter().chain([golden, passphrase.into_bytes()]).collect()
}

/// A paper key that was typed in.
pub fn paper_key(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let world = world(&GOLDEN[1].storage.fork(), 60);
    let keyring = Keyring::of(&world).expect("an encrypted store");
    if let Ok(opened) = keyring.unlock_paper(text) {
        let exported = keyring.export(&opened).expect("a paper key opens everything");
        let again = exported.lines().join("\n");
        assert!(keyring.unlock_paper(&again).is_ok(), "what was read can be printed and read");
        let by = keyring.unlock(&secret()).expect("its key");
        assert_eq!(keyring.export(&by).expect("full").lines(), exported.lines(), "and is the store's");
    }
}

/// The paper key of a good store, and the same with a line missing.
#[must_use]
pub fn paper_key_seeds() -> Vec<Vec<u8>> {
    let keyring = Keyring::of(&world(&GOLDEN[1].storage, 61)).expect("an encrypted store");
    let by = keyring.unlock(&secret()).expect("its key");
    let paper = keyring.export(&by).expect("full");
    vec![paper.lines().join("\n").into_bytes(), paper.lines()[1..].join("\r\n").into_bytes()]
}

/// A machine's record of its last snapshot: the body of the file, with a good code. The target then
/// archives a folder.
pub fn last_night(bytes: &[u8]) {
    static SOURCE: LazyLock<std::path::PathBuf> = LazyLock::new(|| {
        let folder = std::env::temp_dir().join(format!("varve-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for what is archived");
        std::fs::write(folder.join("file"), b"what it holds").expect("a file in it");
        folder
    });
    let storage = GOLDEN[1].storage.fork();
    let store = open(&storage, 62, &writer_secret(), WRITER).expect("a good store");
    // The mark is that of the unchanged log, so the rows are used.
    let mut contents = store.vault().mark().expect("in memory").as_bytes().to_vec();
    contents.extend_from_slice(bytes);
    store.vault().write_own(b"last night\0home\0home", &contents).expect("in memory");
    let mut archive = Archive::open(store).expect("nothing is read");
    let progress = Progress::new();
    let watch = Watch { progress: &progress, report: &|_| {} };
    let request =
        SnapshotRequest { name: "home".into(), source: b"home".to_vec(), ..SnapshotRequest::default() };
    archive.take_folder(&SOURCE, FolderOptions::default(), request, watch).expect("a good folder");
    archive.close().expect("in memory");
    let store = open(&storage, 63, &secret(), StoreAccess::Read).expect("a good store");
    let catalog = Catalog::load(&store, store.last_catalog()).expect("a good catalog");
    assert!(catalog.snapshots().len() >= 2);
}

/// Two rows in ascending order, and two in descending order.
#[must_use]
pub fn last_night_seeds() -> Vec<Vec<u8>> {
    let node = Node::new(Vec::new(), NodeKind::File).encode();
    let row = |first: u8| {
        let length = u32::try_from(node.len()).expect("small").to_le_bytes();
        [&[first; 16][..], &length, &node].concat()
    };
    vec![[vec![1; 32], row(1), row(2)].concat(), [vec![1; 32], row(2), row(1)].concat()]
}

/// The note in the index's checkpoint, with a good code. It records which part of the log the
/// checkpoint covers.
pub fn checkpoint_note(bytes: &[u8]) {
    let golden = &GOLDEN[0];
    let storage = golden.storage.fork();
    let config = StoreConfig::from_text(str::from_utf8(&contents(golden, "config.toml")).expect("text"))
        .expect("good");
    let key = varve_log::LogKeys::plain(&config.binding()).derive("varve 1 index checkpoint");
    let mut checkpoint = Vec::new();
    let mut append = |piece: &[u8]| {
        checkpoint.extend_from_slice(piece);
        Ok(())
    };
    varve_index::MemoryIndex::<512>::new().write_checkpoint(bytes, &key, &mut append).expect("in memory");
    storage.set_contents(&FileName::new("index/checkpoint").expect("a plain name"), checkpoint);
    for access in [StoreAccess::Read, WRITER] {
        if let Ok(store) = open(&storage, 40, &secret(), access) {
            nothing_is_wrong(&store, golden);
        }
    }
}

/// The note of a good store, and one that covers nothing.
#[must_use]
pub fn checkpoint_note_seeds() -> Vec<Vec<u8>> {
    let checkpoint = contents(&GOLDEN[0], "index/checkpoint");
    let note_bytes = usize::from(*checkpoint.get(24).unwrap_or(&0));
    let nothing = vec![0; 24];
    vec![checkpoint.get(64..64 + note_bytes).unwrap_or_default().to_vec(), nothing]
}

/// A note of the store about its log, put by a holder of the key. It may hide blocks, and claim
/// that arenas were replaced. No block may have other bytes for it.
pub fn log_note(bytes: &[u8]) {
    if let Some(note) = LogNote::decode(bytes) {
        assert_eq!(note.encode(), bytes, "a note is written in one way");
    }
    let golden = &GOLDEN[0];
    let storage = golden.storage.fork();
    let store = open(&storage, 70, &secret(), WRITER).expect("a good store");
    let intake = store.intake().expect("a writer");
    intake.raise_arena_version(ArenaVersion::Notes).expect("in memory");
    if store.put(Block { block_type: BlockType::NOTE, bytes }).is_err() || store.close().is_err() {
        return;
    }
    for (seed, access) in [(71, StoreAccess::Read), (72, WRITER), (73, StoreAccess::Read)] {
        if let Ok(store) = open(&storage, seed, &secret(), access) {
            nothing_is_wrong(&store, golden);
        }
    }
}

/// Notes of both kinds about blocks and arenas that are there, and about others.
#[must_use]
pub fn log_note_seeds() -> Vec<Vec<u8>> {
    let golden = &GOLDEN[0];
    let mut names: Vec<_> = golden.blocks.iter().map(|(name, _)| note_fingerprint(name)).collect();
    names.sort_unstable();
    let seals = [0_u64, 1, 7].map(|arena| ReplacedSeal {
        arena: ArenaId(arena),
        old_generation: 0,
        new_generation: 1,
        old_code: [1; 32],
        new_code: [2; 32],
    });
    let replaced = LogNote::Replaced { list: [3; 16], arenas: seals.to_vec() };
    let barren = BarrenPart::divide([4; 16], &names).into_iter().map(LogNote::Barren);
    let half = LogNote::Barren(BarrenPart { list: [5; 16], part: 0, part_count: 2, fingerprints: names });
    barren.chain([replaced, half]).map(|note| note.encode()).collect()
}

/// The file of a lease that a reader holds.
pub fn lease(bytes: &[u8]) {
    let storage = MemoryStorage::new();
    let file = FileName::new("leases/host-1-00").expect("a plain name");
    let lock = varve_world::Storage::lock(&storage, &file, "").expect("nobody has it");
    storage.set_contents(&file, bytes.to_vec());
    let found = held_leases(&storage).expect("it can be listed");
    assert_eq!(found.len(), 1, "what is locked counts");
    for lease in found {
        let is_all = lease.snapshots == LeasedSnapshots::All;
        assert!(lease.doubt.is_none() || is_all, "what is not understood protects everything");
    }
    drop(lock);
    assert!(held_leases(&storage).expect("it can be listed").is_empty(), "its reader is dead");
}

/// A lease on two snapshots, and one on all.
#[must_use]
pub fn lease_seeds() -> Vec<Vec<u8>> {
    let leases = [LeasedSnapshots::of([[1; 16], [2; 16]]), LeasedSnapshots::All];
    let contents = leases.map(|snapshots| {
        let storage = MemoryStorage::new();
        let world = world(&storage, 80);
        let held = take_lease(&world, &LeaseHolder::new("backup.example.org", 4711), &snapshots);
        let names = storage.names();
        let file = names.first().expect("its file");
        let contents = storage.contents(file).expect("it is there");
        drop(held.expect("in memory"));
        contents
    });
    contents.into()
}

/// Any files of a good store, changed in up to eight places. The input selects the kind of store.
/// Then it selects for each change the file, the place and the new bytes.
pub fn store_files(bytes: &[u8]) {
    let mut input = Input(bytes);
    let golden = &GOLDEN[input.below(GOLDEN.len())];
    let storage = golden.storage.fork();
    let files: Vec<_> = storage.names().into_iter().collect();
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        change(&storage, &files, &mut input);
    }
    if let Ok(store) = open(&storage, 50, &secret(), StoreAccess::Read) {
        nothing_is_wrong(&store, golden);
    }
    // In some inputs, a holder of the key that may only write opens the store first.
    let is_encrypted = std::ptr::eq(golden, &GOLDEN[1]) || std::ptr::eq(golden, &GOLDEN[3]);
    if is_encrypted
        && input.byte().is_multiple_of(2)
        && let Ok(store) = open(&storage, 53, &writer_secret(), WRITER)
    {
        assert!(golden.blocks.iter().all(|(name, _)| store.get(name).is_err()), "it reads nothing");
        drop(store.put(Block { block_type: BlockType::DATA, bytes: &[9; 3000] }));
        drop(store.close());
    }
    let Ok(store) = open(&storage, 51, &secret(), WRITER) else { return };
    nothing_is_wrong(&store, golden);
    let new = vec![8; 20_000];
    let put = store.put(Block { block_type: BlockType::DATA, bytes: &new }).and_then(|score| {
        store
            .sync()
            .map(|()| score)
            .map_err(|_| varve_block::PutError::ReadOnly { reason: "not durable".into() })
    });
    let Ok(score) = put else { return };
    if store.close().is_err() {
        return;
    }
    let store =
        open(&storage, 52, &secret(), StoreAccess::Read).expect("what could be written can be opened");
    let name = BlockName { score, block_type: BlockType::DATA };
    assert_eq!(store.get(&name).expect("what was synced is there"), new);
    nothing_is_wrong(&store, golden);
}

/// Checks that the store returns for each block the bytes that were put, or an error.
fn nothing_is_wrong(store: &Store, golden: &Golden) {
    for (name, bytes) in &golden.blocks {
        if let Ok(got) = store.get(name) {
            assert!(got == bytes, "{name}: other bytes than were put");
        }
    }
    for id in store.arenas().expect("in memory") {
        drop(Checker::of(store).check_arena(id, true));
    }
    drop(Checker::of(store).check_order());
    drop(Catalog::load(store, store.last_catalog()));
}

fn change(storage: &MemoryStorage, files: &[FileName], input: &mut Input<'_>) {
    let file = &files[input.below(files.len())];
    let Some(mut contents) = storage.contents(file) else { return };
    let place = u32::from_le_bytes(input.array()) as usize % (contents.len() + 1);
    let place = match input.byte() % 4 {
        // Most structures are at the beginning of a file, at its end, and where records begin.
        0 => place.min(600) % (contents.len() + 1),
        1 => contents.len().saturating_sub(place % 300),
        2 => place / 128 * 128,
        _ => place,
    };
    let end = (place + 1 + input.below(200)).min(contents.len());
    match input.byte() % 8 {
        0..=2 if place < contents.len() => contents[place] ^= 1 << (input.byte() % 8),
        3 => contents[place..end].fill(0),
        4 => contents.truncate(place),
        5 => contents.extend(input.take(100)),
        6 => {
            // The contents of another file under this name: swapped arenas, or an old arena that
            // was put back.
            let other = &files[input.below(files.len())];
            contents = storage.contents(other).unwrap_or_default();
        }
        7 if input.byte().is_multiple_of(4) => {
            return varve_world::Storage::remove(storage, file).unwrap_or(());
        }
        _ => {
            let from = input.take(end - place);
            contents[place..place + from.len()].copy_from_slice(from);
        }
    }
    storage.set_contents(file, contents);
}

/// Each kind of change once in each kind of store.
#[must_use]
pub fn store_files_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for store in 0..7_u8 {
        for what in 0..8_u8 {
            let file = what % 6;
            seeds.push(vec![store, 0, file, 0, 0x10, 0x27, what, 0, what % 4, 100, 0, what, 1, 0, 0, 0, 0]);
        }
    }
    seeds
}
