//! The program makes exactly the examples in `docs/internals/format.md`: a change of the format
//! that is missing on the page fails here. The stores are made with a fixed clock and with
//! randomness that is readable in the bytes: each draw repeats one number, 17 more than that of the
//! draw before.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use varve_archive::{Catalog, Snapshot};
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, Score, to_hex};
use varve_content::{FieldWriter, Node, NodeKind, frame};
use varve_image::FileTime;
use varve_log::LogKeys;
use varve_remote::{MemoryTarget, Object, Target};
use varve_replica::{ReplicateOptions, ReplicationPlan, ReplicationSource};
use varve_store::{
    CompareMode, Encryption, Keyring, NewKey, PassphraseCost, Role, ScoreAlgorithm, Secret, Store,
    StoreAccess, StoreConfig,
};
use varve_tree::{ContentWriter, Cutting, Entry};
use varve_world::{FileName, FixedClock, InlineWorkers, MemoryStorage, Random, Timestamp, World};
use zeroize::Zeroizing;

const FILE: &[u8] = b"hello world\n";
/// 2026-11-25T12:00:00Z.
const NOON: i64 = 1_795_608_000_000_000_000;
const ARENA: &str = "arenas/0000000000.arena";
const WRITER: StoreAccess<'_> = StoreAccess::Write { holder: "the format page" };
const KEY_FILE: &[u8; 32] = b"a key file for the format page.\n";

/// Draws that are easy to distinguish in a dump.
#[derive(Default)]
struct PlainDraws(AtomicU8);

impl Random for PlainDraws {
    fn fill(&self, into: &mut [u8]) -> std::io::Result<()> {
        into.fill(self.0.fetch_add(0x11, Ordering::Relaxed).wrapping_add(0x11));
        Ok(())
    }
}

fn world(storage: &MemoryStorage) -> World {
    World {
        storage: Arc::new(storage.clone()),
        clock: Arc::new(FixedClock(Timestamp(NOON))),
        random: Arc::new(PlainDraws::default()),
        workers: Arc::new(InlineWorkers),
    }
}

/// The bytes 0, 1, 2 and so on.
fn counting<const BYTES: usize>() -> [u8; BYTES] {
    std::array::from_fn(|n| n.to_le_bytes()[0])
}

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

fn contents(storage: &MemoryStorage, file: &str) -> Vec<u8> {
    storage.contents(&name(file)).unwrap()
}

fn passphrase() -> Secret {
    Secret::Passphrase(Zeroizing::new("correct horse".into()))
}

fn write_all(store: &Store, kind: BlockKind, cutting: Cutting, bytes: &[u8]) -> Entry {
    let mut writer = ContentWriter::new(store, kind, cutting);
    writer.write(bytes).unwrap();
    writer.finish().unwrap()
}

/// A snapshot of a folder with one file.
fn snapshot(store: &Store) -> Snapshot {
    let file = Node {
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        mtime: FileTime::from_nanoseconds(NOON),
        ctime: Some(FileTime::from_nanoseconds(NOON)),
        inode: 2,
        size: FILE.len() as u64,
        content: Some(write_all(store, BlockKind::Data, Cutting::FILE, FILE)),
        ..Node::new(b"hello".to_vec(), NodeKind::File)
    };
    let mut list = Vec::new();
    frame(&file.encode(), &mut list);
    let root = Node {
        mode: 0o755,
        uid: 1000,
        gid: 1000,
        mtime: FileTime::from_nanoseconds(NOON),
        inode: 1,
        content: Some(write_all(store, BlockKind::Directory, Cutting::DIRECTORY, &list)),
        ..Node::new(Vec::new(), NodeKind::Folder)
    };
    let fields = FieldWriter::new()
        .bytes(1, &[0xEE; 16])
        .bytes(2, b"home")
        .signed(3, NOON)
        .number(4, 2)
        .bytes(5, b"/home")
        .bytes(6, b"desk")
        .bytes(9, &root.encode())
        .number(10, FILE.len() as u64)
        .number(11, 1)
        .finish();
    Snapshot::decode(&fields, store.score_bytes()).unwrap()
}

/// Takes the snapshot, and closes the store as the program does.
fn fill(storage: &MemoryStorage, secret: Option<&Secret>) {
    let store = Store::open(world(storage), secret, WRITER, &mut |_| {}).unwrap();
    let snapshot = snapshot(&store);
    let mut catalog = match store.role().allows(varve_store::Permission::Read) {
        true => Catalog::load_of(&store, &store).unwrap(),
        false => Catalog::unread(&store.newest_catalogs()),
    };
    catalog.add(&store, snapshot).unwrap();
    store.close().unwrap();
}

fn empty(compare: CompareMode) -> MemoryStorage {
    let storage = MemoryStorage::new();
    let mut config = StoreConfig::new(counting());
    config.encryption = Encryption::None;
    config.compare = compare;
    Store::create(&world(&storage), &config, None, PassphraseCost::default()).unwrap();
    storage
}

fn plain() -> MemoryStorage {
    let storage = empty(CompareMode::Hash);
    fill(&storage, None);
    storage
}

/// The encrypted store whose settings and key are on the page.
fn encrypted() -> MemoryStorage {
    let storage = MemoryStorage::new();
    for file in ["config.toml", "keys/0011223344556677.toml"] {
        storage.set_contents(&name(file), page().text(&format!("encrypted/{file}")).into_bytes());
    }
    fill(&storage, Some(&passphrase()));
    storage
}

// ---- the page

struct Page(String);

fn page() -> Page {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/format.md");
    Page(std::fs::read_to_string(path).unwrap())
}

impl Page {
    /// Returns the lines of the block that is fenced under this name.
    fn lines(&self, called: &str) -> Vec<&str> {
        let fence = format!("```text {called}");
        let lines: Vec<_> = self.0.lines().skip_while(|line| *line != fence).skip(1).collect();
        lines.into_iter().take_while(|line| *line != "```").collect()
    }

    fn text(&self, called: &str) -> String {
        self.lines(called).iter().fold(String::new(), |text, line| text + line + "\n")
    }

    /// Returns the bytes of a dump. A line has an offset, then pairs of digits, and a remark after
    /// two blanks. A pair may be repeated: `00 ×24` is 24 bytes.
    fn bytes(&self, called: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in self.lines(called) {
            let (_, rest) = line.split_once("  ").unwrap();
            let mut last = 0;
            for word in rest.split("  ").next().unwrap().split_ascii_whitespace() {
                match word.strip_prefix('×') {
                    Some(count) => bytes.resize(bytes.len() + count.parse::<usize>().unwrap() - 1, last),
                    None => {
                        last = u8::from_str_radix(word, 16).unwrap();
                        bytes.push(last);
                    }
                }
            }
        }
        bytes
    }

    fn vector(&self, called: &str) -> String {
        let begin = format!("{called} = ");
        let value = self.0.lines().find_map(|line| line.strip_prefix(&begin));
        value.unwrap_or_else(|| panic!("the page has no vector {called:?}")).into()
    }
}

/// A dump without remarks, for changes to the page.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (number, line) in bytes.chunks(16).enumerate() {
        let digits: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = writeln!(text, "{:04x}  {}", number * 16, digits.join(" "));
    }
    text
}

#[track_caller]
fn is_printed(called: &str, made: &[u8]) {
    let printed = page().bytes(called);
    assert!(
        printed == made,
        "docs/internals/format.md has other bytes under {called:?} than these:\n{}",
        dump(made)
    );
}

// ---- the tests

#[test]
fn the_plain_store_is_the_one_that_is_printed() {
    let storage = plain();
    let config = String::from_utf8(contents(&storage, "config.toml")).unwrap();
    assert_eq!(config, page().text("plain/config.toml"));
    is_printed("plain/arenas/0000000000.arena", &contents(&storage, ARENA));
}

#[test]
fn the_framed_clump_is_the_one_that_is_printed() {
    let storage = empty(CompareMode::Value);
    let store = Store::open(world(&storage), None, WRITER, &mut |_| {}).unwrap();
    store.put(Block { block_type: BlockType::DATA, bytes: FILE }).unwrap();
    store.close().unwrap();
    let arena = contents(&storage, ARENA);
    assert_eq!(to_hex(&arena[48..64]), page().vector("uid of the framed clump"));
    assert_eq!(arena[512..516], *b"clmp");
    let body_bytes = u32::from_le_bytes(arena[516..520].try_into().unwrap()) as usize;
    is_printed("by-value/clump", &arena[512..512 + 64 + body_bytes]);
}

#[test]
fn the_encrypted_store_is_the_one_that_is_printed() {
    let storage = encrypted();
    is_printed("encrypted/arenas/0000000000.arena", &contents(&storage, ARENA));
    let vector = |called: &str| page().vector(called);
    let keyring = Keyring::of(&world(&storage)).unwrap();
    let opened = keyring.unlock(&passphrase()).unwrap();
    assert_eq!(
        keyring.export(&opened).unwrap().lines().join("\n") + "\n",
        page().text("encrypted/paper key")
    );
    let config = Store::read_config(&world(&storage)).unwrap();
    assert_eq!(to_hex(&config.binding()), vector("binding"));
    let keys = LogKeys::from_master(&counting());
    assert_eq!(to_hex(&*keys.read_and_names().unwrap()), vector("read key") + &vector("names key"));
    assert_eq!(to_hex(&keys.names_and_write().unwrap()[32..]), vector("write key"));
    let store = Store::open(world(&storage), Some(&passphrase()), StoreAccess::Read, &mut |_| {}).unwrap();
    let score = |bytes: &[u8]| store.namer().score(bytes).unwrap();
    assert_eq!(score(FILE).to_string(), vector("score of hello world, encrypted"));
    assert_eq!(store.empty_score().to_string(), vector("score of the empty block, encrypted"));
    let found = store.get(&BlockName { score: score(FILE), block_type: BlockType::DATA }).unwrap();
    assert_eq!(found, FILE);
}

#[test]
fn the_header_of_a_write_only_key_is_the_one_that_is_printed() {
    let storage = MemoryStorage::new();
    for file in ["config.toml", "keys/0011223344556677.toml"] {
        storage.set_contents(&name(file), page().text(&format!("encrypted/{file}")).into_bytes());
    }
    let keyring = Keyring::of(&world(&storage)).unwrap();
    let by = keyring.unlock(&passphrase()).unwrap();
    let secret = Secret::KeyFile(Zeroizing::new(KEY_FILE.to_vec()));
    let new = NewKey { secret: &secret, cost: PassphraseCost::default(), label: "", role: Role::WriteOnly };
    let key = keyring.add(&by, &new).unwrap();
    let file = format!("keys/{}.toml", key.id);
    assert_eq!(
        String::from_utf8(contents(&storage, &file)).unwrap(),
        page().text(&format!("write-only/{file}"))
    );
    let opened = keyring.unlock(&secret).unwrap();
    assert_eq!(opened.entry, key);
    let holder = format!("write-only {}", key.id);
    let writer = LogKeys::from_master(&counting()).writer_keys(&holder).unwrap();
    assert_eq!(to_hex(&writer[64..]), page().vector("origin key of the write-only key"));
    let origin = FieldWriter::new().bytes(1, key.id.as_bytes()).bytes(2, b"write-only").finish();
    let code = LogKeys::from_writer_keys(&writer).origin_code(&holder, &[&[0xEE; 16], &origin]).unwrap();
    assert_eq!(to_hex(&code), page().vector("code of the origin"));
    fill(&storage, Some(&secret));
    is_printed("write-only/header", &contents(&storage, ARENA)[..512]);
}

#[test]
fn the_replica_has_the_objects_that_are_printed() {
    let storage = plain();
    let world = world(&storage);
    let (config, log) = Store::unlock(&world, None).unwrap();
    let source = ReplicationSource { world: &world, config: &config, log: &log };
    let target: Arc<dyn Target> = Arc::new(MemoryTarget::new());
    let options = ReplicateOptions::default();
    let plan = ReplicationPlan::new(source, &target, &options).unwrap();
    plan.apply(source, &target, &options, &InlineWorkers, &()).unwrap();
    let listed = |object: Object| {
        // The page cannot contain its own length.
        let bytes =
            if object.name.as_str() == "FORMAT.md" { String::new() } else { object.bytes.to_string() };
        format!("{bytes:>4}  {}", object.name)
    };
    let objects: Vec<_> = target.survey().unwrap().objects.into_iter().map(listed).collect();
    assert_eq!(objects, page().lines("replica"));
    let mark = name("replica.toml");
    let bytes = target.survey().unwrap().objects.iter().find(|object| object.name == mark).unwrap().bytes;
    assert_eq!(target.get(&mark, 0..bytes).unwrap(), page().text("replica/replica.toml"));
}

#[test]
fn scores_of_other_stores_are_those_that_are_printed() {
    for (called, algorithm) in [("blake3", ScoreAlgorithm::Blake3), ("sha1", ScoreAlgorithm::Sha1)] {
        let storage = MemoryStorage::new();
        let mut config = StoreConfig::new([5; 16]);
        (config.score, config.encryption) = (algorithm, Encryption::None);
        Store::create(&world(&storage), &config, None, PassphraseCost::default()).unwrap();
        let store = Store::open(world(&storage), None, StoreAccess::Read, &mut |_| {}).unwrap();
        let hello = store.namer().score(FILE).unwrap();
        assert_eq!(hello.to_string(), page().vector(&format!("score of hello world, {called}")));
        assert_eq!(
            store.empty_score().to_string(),
            page().vector(&format!("score of the empty block, {called}"))
        );
    }
    let by_value = empty(CompareMode::Value);
    let store = Store::open(world(&by_value), None, StoreAccess::Read, &mut |_| {}).unwrap();
    assert_eq!(store.empty_score(), Score::try_from([0xff; 24].as_slice()).unwrap());
}
