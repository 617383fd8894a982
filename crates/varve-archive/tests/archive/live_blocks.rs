//! A mark finds the live blocks. It is compared with a second walk that shares no code with it, on
//! small stores of all kinds.

use std::collections::BTreeSet;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use varve_archive::{
    Archive, ForeignRoots, LiveRoots, MarkError, Snapshot, SnapshotContent, SnapshotRequest, mark,
};
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, Score, with_causes};
use varve_content::folder::{FolderOptions, Watch};
use varve_content::image::ImageSource;
use varve_content::vac::{OwnerNames, VacOptions};
use varve_content::{Node, NodeKind, NodeList, Progress};
use varve_log::{ArenaMap, ClumpBytes};
use varve_sim::SeededDraw;
use varve_store::{
    CompareMode, DiskIndexConfig, Encryption, IndexKind, Keyring, NewKey, PassphraseCost, Role,
    ScoreAlgorithm, Secret, Store, StoreAccess, StoreConfig, is_structure,
};
use varve_tree::{Entry, VENTI_ENTRY_BYTES, VacShape, VentiEntry, VentiRoot, Visit, walk};
use varve_upkeep::{
    ArenaMeter, ArenaObstacle, ArenaUse, FILTER_BYTES_DEFAULT, LiveBlocks, ReclaimBudget, ReclaimPlan,
};
use varve_world::{MemoryStorage, Random, SeededRandom, World};
use zeroize::Zeroizing;

pub(super) const COST: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
const WRITER: StoreAccess<'_> = StoreAccess::Write { holder: "a test" };
const BLOCK_BYTES: u32 = 4096;
const IMAGE_BLOCKS: usize = 150;

pub(super) fn world(storage: &MemoryStorage, seed: u64) -> World {
    World::deterministic(Arc::new(storage.clone()), seed)
}

pub(super) fn secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![7; 32]))
}

pub(super) fn write_only_secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![8; 32]))
}

/// The settings of a store. The seeds cover all kinds.
pub(super) fn config(seed: u64) -> StoreConfig {
    let bit = |number: u64| (seed >> number) & 1 == 1;
    StoreConfig {
        compare: if bit(0) { CompareMode::Value } else { CompareMode::Hash },
        index: if bit(1) { IndexKind::Disk } else { IndexKind::Memory },
        score: if bit(2) && !bit(0) { ScoreAlgorithm::Sha1 } else { ScoreAlgorithm::Blake3 },
        encryption: if bit(0) { Encryption::None } else { Encryption::Aes256Gcm },
        disk_index: DiskIndexConfig {
            memory_bytes: 1 << 20,
            expected_blocks: 1000,
            ..DiskIndexConfig::default()
        },
        arena_map: ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap(),
        clump_bytes: ClumpBytes::new(64 << 10).unwrap(),
        ..StoreConfig::new([5; 16])
    }
}

pub(super) fn open(storage: &MemoryStorage, seed: u64, secret: &Secret) -> Archive {
    Archive::open(Store::open(world(storage, seed), Some(secret), WRITER, &mut |_| {}).unwrap()).unwrap()
}

fn request(name: &str) -> SnapshotRequest {
    SnapshotRequest { name: name.into(), source: name.into(), ..SnapshotRequest::default() }
}

pub(super) fn take_image(archive: &mut Archive, name: &str, image: &[u8]) {
    try_to_take_image(archive, name, image).unwrap();
}

/// Returns the message of a failure, with its causes.
pub(super) fn try_to_take_image(archive: &mut Archive, name: &str, image: &[u8]) -> Result<(), String> {
    let source = ImageSource::stream(Box::new(Cursor::new(image.to_vec())), Path::new("disk"));
    let taken = archive.take_image(&source, BLOCK_BYTES, request(name), &Progress::new());
    taken.map(drop).map_err(|error| with_causes(&error))
}

pub(super) fn take_folder(archive: &mut Archive, name: &str, source: &Path) {
    let progress = Progress::new();
    let watch = Watch { progress: &progress, report: &|problem| panic!("{problem:?}") };
    let is_for_vac = archive.store().score_bytes() == 20;
    let vac = is_for_vac.then(|| VacOptions {
        name: None,
        shape: VacShape::new(8192).unwrap(),
        owners: OwnerNames::default(),
    });
    let options = FolderOptions { vac, ..FolderOptions::default() };
    archive.take_folder(source, options, request(name), watch).unwrap();
}

/// Changes some blocks. Their contents come from a small supply, so that many occur again.
pub(super) fn change_image(image: &mut Vec<u8>, draw: &mut SeededDraw) {
    image.resize(IMAGE_BLOCKS * BLOCK_BYTES as usize, 0);
    for _ in 0..1 + draw.below(60) {
        let block = draw.index(IMAGE_BLOCKS) * BLOCK_BYTES as usize;
        let random = SeededRandom::new(draw.below(300));
        random.fill(&mut image[block..block + BLOCK_BYTES as usize]).unwrap();
    }
}

/// Changes, adds and removes files. One folder has so many that its list has several leaves.
pub(super) fn change_folder(folder: &Path, draw: &mut SeededDraw) {
    for _ in 0..1 + draw.below(30) {
        let parent = folder.join(["", "a", "a/deep/er", "many"][draw.index(4)]);
        fs::create_dir_all(&parent).unwrap();
        let path = parent.join(format!("file {}", draw.below(20)));
        if draw.below(4) == 0 {
            drop(fs::remove_file(path));
            continue;
        }
        let size = [0, 10, 3000, 40_000, 300_000][draw.index(5)];
        let mut bytes = vec![0; size];
        SeededRandom::new(draw.below(50)).fill(&mut bytes).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::create_dir_all(folder.join("many")).unwrap();
    let first = draw.below(1000);
    for number in first..first + 40 {
        fs::write(folder.join(format!("many/{number} {}", "x".repeat(100))), number.to_string()).unwrap();
    }
}

/// A walk that shares no code with the mark.
pub(super) struct SecondWalk<'a> {
    store: &'a Store,
    pub(super) names: BTreeSet<BlockName>,
}

impl SecondWalk<'_> {
    pub(super) fn of<'a>(store: &'a Store, roots: &LiveRoots) -> SecondWalk<'a> {
        let mut walk = SecondWalk { store, names: roots.catalog_root.into_iter().collect() };
        roots.lists.iter().for_each(|list| walk.tree(list));
        roots.snapshots.iter().for_each(|snapshot| walk.snapshot(snapshot));
        walk
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        match &snapshot.content {
            SnapshotContent::Image(entry) => self.tree(entry),
            SnapshotContent::Folder(root) => self.folder(root),
        }
        for score in snapshot.tags.iter().filter_map(|tag| tag.strip_prefix("vac=")) {
            self.archive(Score::from_hex(score).unwrap());
        }
    }

    fn tree(&mut self, entry: &Entry) {
        let names = &mut self.names;
        walk(self.store, entry, &mut |block| {
            assert!(block.damage.is_none());
            names.insert(block.name);
            Visit::Descend
        });
    }

    fn folder(&mut self, folder: &Node) {
        folder.content.iter().for_each(|content| self.tree(content));
        for node in NodeList::new(self.store, folder) {
            let node = node.unwrap();
            match node.kind {
                NodeKind::Folder => self.folder(&node),
                _ => node.content.iter().for_each(|content| self.tree(content)),
            }
        }
    }

    fn archive(&mut self, score: Score) {
        let name = BlockName { score, block_type: BlockType::ROOT };
        self.names.insert(name);
        let root = VentiRoot::decode(&self.store.get(&name).unwrap()).unwrap();
        self.entries(BlockName { score: root.score, block_type: BlockType::DIRECTORY });
    }

    fn entries(&mut self, name: BlockName) {
        self.names.insert(name);
        let mut bytes = self.store.get(&name).unwrap().to_vec();
        bytes.resize(bytes.len().next_multiple_of(VENTI_ENTRY_BYTES), 0);
        for entry in bytes.chunks(VENTI_ENTRY_BYTES) {
            let Some(VentiEntry { tree, .. }) = VentiEntry::decode(entry).unwrap() else { continue };
            self.tree(&tree);
            if tree.leaf_kind() == BlockKind::Directory {
                let mut leaves = Vec::new();
                walk(self.store, &tree, &mut |block| {
                    leaves.extend((block.level == 0).then_some(block.name));
                    Visit::Descend
                });
                leaves.into_iter().for_each(|leaf| self.entries(leaf));
            }
        }
    }
}

fn empty_set(store: &Store, filter_bytes_max: u64) -> LiveBlocks {
    let block_count = store.stats().unwrap().block_count;
    LiveBlocks::new(store.world().random.as_ref(), block_count, filter_bytes_max).unwrap()
}

/// Returns the names of the blocks in an arena, in the order of the log.
fn names_in(store: &Store, usage: &ArenaUse) -> Vec<BlockName> {
    let found = store.names_in_arena(usage.arena).unwrap();
    assert!(found.failure.is_none());
    found.names
}

/// Compares a mark with the second walk, and the use of the arenas with both. Returns the number of
/// dead blocks.
fn check(store: &Store, roots: &LiveRoots, live: &LiveBlocks, expected: &BTreeSet<BlockName>) -> u64 {
    for name in expected {
        assert!(live.contains(name), "{name} is live");
    }
    let (mut uses, mut barren, mut dead_structure, mut dead_count) =
        (Vec::new(), BTreeSet::new(), BTreeSet::new(), 0);
    let meter = ArenaMeter::new(store, live);
    for id in store.arenas().unwrap() {
        let measured = meter.measure(id).unwrap();
        barren.extend(measured.barren);
        uses.push(measured.usage);
    }
    for usage in &uses {
        let names = names_in(store, usage);
        let dead: Vec<_> = names.iter().filter(|name| !live.contains(name)).collect();
        assert_eq!(usage.block_count, names.len() as u64);
        assert_eq!(usage.block_count - usage.live_count, dead.len() as u64);
        for name in names.iter().filter(|name| is_structure(name)) {
            assert_eq!(live.contains(name), expected.contains(name), "{name}");
        }
        assert!(usage.live_bytes <= usage.block_bytes && usage.dead_bytes() <= usage.file_bytes);
        let is_unsealed = usage.obstacle == Some(ArenaObstacle::Unsealed);
        assert!(is_unsealed || usage.obstacle.is_none(), "{:?}", usage.obstacle);
        if usage.live_count == usage.block_count && !is_unsealed {
            let estimate = usage.kept_bytes.abs_diff(usage.file_bytes);
            assert!(estimate <= 1024 + usage.file_bytes / 50, "{usage:?}");
        }
        if usage.live_count == 0 && !is_unsealed {
            assert_eq!(usage.kept_bytes, 1024);
        }
        let leads = dead.iter().filter(|name| is_structure(name) && name.block_type != BlockType::CATALOG);
        dead_structure.extend(leads.copied());
        dead_count += dead.len() as u64;
    }
    assert_eq!(barren, dead_structure);
    let plan = ReclaimPlan::new(&uses, &ReclaimBudget { least_dead: 0.0, ..ReclaimBudget::default() });
    assert_eq!(plan.totals.arena_count, uses.len() as u64);
    assert_eq!(plan.totals.left_bytes(), 0, "no arena has an obstacle but the open one");
    assert_eq!(roots.catalog_root.is_some(), live.contains(&roots.catalog_root.unwrap()));
    dead_count
}

/// Makes a store with images and folders. Some nights may be by a write-only key.
pub(super) fn make_store(seed: u64) -> (MemoryStorage, tempfile::TempDir) {
    let (storage, folder) = (MemoryStorage::new(), tempfile::tempdir().unwrap());
    let config = config(seed);
    Store::create(&world(&storage, 1), &config, Some(&secret()), COST).unwrap();
    let takes_write_only = config.encryption != Encryption::None;
    if takes_write_only {
        let keyring = Keyring::of(&world(&storage, 2)).unwrap();
        let by = keyring.unlock(&secret()).unwrap();
        let key = NewKey { secret: &write_only_secret(), cost: COST, label: "", role: Role::WriteOnly };
        keyring.add(&by, &key).unwrap();
    }
    let (mut draw, mut image) = (SeededDraw::new(seed), Vec::new());
    for night in 0..6 {
        let by = if takes_write_only && draw.below(3) == 0 { write_only_secret() } else { secret() };
        let mut archive = open(&storage, 100 * seed + night, &by);
        change_image(&mut image, &mut draw);
        take_image(&mut archive, "disk", &image);
        change_folder(folder.path(), &mut draw);
        // With a write-only key there is no archive for vac.
        if archive.store().score_bytes() != 20 || archive.store().role().allows(varve_store::Permission::Read)
        {
            take_folder(&mut archive, "home", folder.path());
        }
        archive.close().unwrap();
    }
    (storage, folder)
}

#[test]
fn a_mark_finds_the_blocks_that_a_second_walk_finds() {
    for seed in 0..8 {
        let (storage, _folder) = make_store(seed);
        let store =
            Store::open(world(&storage, 9000 + seed), Some(&secret()), StoreAccess::Read, &mut |_| {});
        let store = store.unwrap();
        let all = LiveRoots::of(&store, ForeignRoots::None, &BTreeSet::new()).unwrap();
        assert!(all.snapshots.len() >= 6);
        let mut draw = SeededDraw::new(seed);
        for part in 0..4 {
            let mut roots = all.clone();
            // In the first round nothing is forgotten, and in the last round everything.
            roots.snapshots.retain(|_| draw.below(3) >= part);
            let expected = SecondWalk::of(&store, &roots).names;
            let mut live = empty_set(&store, FILTER_BYTES_DEFAULT);
            let report = mark(&store, &roots, &mut live, &Progress::new()).unwrap();
            assert_eq!(report.snapshot_count, roots.snapshots.len() as u64);
            let dead_count = check(&store, &roots, &live, &expected);
            assert!(part < 3 || dead_count > 100, "{dead_count} blocks are dead");
            // A second mark reads only what it cannot skip.
            let again = mark(&store, &roots, &mut live, &Progress::new()).unwrap();
            assert_eq!((again.walked.read_count, again.folder_count), (0, 0));
            // A filter that is too small keeps more, and never loses a live block.
            let mut small = empty_set(&store, 100);
            mark(&store, &roots, &mut small, &Progress::new()).unwrap();
            check(&store, &roots, &small, &expected);
        }
    }
}

#[test]
fn the_second_mark_brings_in_what_was_added_since() {
    for seed in [0, 1, 4] {
        let (storage, folder) = make_store(seed);
        let reader =
            Store::open(world(&storage, 9000), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap();
        let mut roots = LiveRoots::of(&reader, ForeignRoots::None, &BTreeSet::new()).unwrap();
        // Everything but the first snapshot is forgotten, and its blocks are dead.
        roots.snapshots.truncate(1);
        let mut live = empty_set(&reader, FILTER_BYTES_DEFAULT);
        mark(&reader, &roots, &mut live, &Progress::new()).unwrap();
        // A new snapshot rests on blocks that were dead then.
        let mut archive = open(&storage, 9001, &secret());
        take_folder(&mut archive, "home", folder.path());
        let newer = LiveRoots::of(archive.store(), ForeignRoots::None, &BTreeSet::new()).unwrap();
        let last = newer.snapshots.last().unwrap().clone();
        let roots = LiveRoots { snapshots: vec![roots.snapshots[0].clone(), last], ..newer };
        let report = mark(archive.store(), &roots, &mut live, &Progress::new()).unwrap();
        assert!(report.folder_count > 0);
        let expected = SecondWalk::of(archive.store(), &roots).names;
        check(archive.store(), &roots, &live, &expected);
    }
}

#[test]
fn a_block_that_was_stored_again_is_live_at_both_places() {
    let (storage, _folder) = make_store(0);
    let archive = open(&storage, 9000, &secret());
    let store = archive.store();
    let roots = LiveRoots::of(store, ForeignRoots::None, &BTreeSet::new()).unwrap();
    let before = SecondWalk::of(store, &roots).names;
    // The leaves lie behind the blocks that lead to them now, and a part of them twice.
    let again: Vec<_> = before.iter().step_by(3).map(|name| (*name, store.get(name).unwrap())).collect();
    store.put_back(&again).unwrap();
    store.sync().unwrap();
    let mut live = empty_set(store, FILTER_BYTES_DEFAULT);
    mark(store, &roots, &mut live, &Progress::new()).unwrap();
    check(store, &roots, &live, &before);
}

#[test]
fn nothing_is_marked_to_its_end_if_a_block_is_lost() {
    let (storage, _folder) = make_store(0);
    let archive = open(&storage, 9000, &secret());
    let roots = LiveRoots::of(archive.store(), ForeignRoots::None, &BTreeSet::new()).unwrap();
    let SnapshotContent::Image(entry) = &roots.snapshots[0].content else { panic!("an image comes first") };
    // An entry with a root that does not exist.
    let mut lie = entry.encode();
    let end = lie.len();
    lie[end - 4..].fill(0x55);
    let lie = Entry::decode(&lie, archive.store().score_bytes()).unwrap();
    let mut bad = roots.clone();
    bad.snapshots[0].content = SnapshotContent::Image(lie);
    let mut live = empty_set(archive.store(), FILTER_BYTES_DEFAULT);
    let failed = mark(archive.store(), &bad, &mut live, &Progress::new()).unwrap_err();
    let MarkError::Snapshot { id, name, .. } = &failed else { panic!("{failed}") };
    assert_eq!((*id, name.as_str()), (roots.snapshots[0].id, "disk"));
    // The same set can still be completed.
    mark(archive.store(), &roots, &mut live, &Progress::new()).unwrap();
    let expected = SecondWalk::of(archive.store(), &roots).names;
    check(archive.store(), &roots, &live, &expected);
}

/// Everybody who may add a snapshot can make one that leads to a root of the catalog.
#[test]
fn a_snapshot_does_not_keep_a_root_of_the_catalog() {
    let (storage, _folder) = make_store(0);
    let archive = open(&storage, 9000, &secret());
    let mut roots = LiveRoots::of(archive.store(), ForeignRoots::None, &BTreeSet::new()).unwrap();
    let older = archive.store().catalog_roots().unwrap();
    let older = older.iter().map(|root| root.name).find(|name| Some(*name) != roots.catalog_root).unwrap();
    let SnapshotContent::Image(entry) = &roots.snapshots[0].content else { panic!("an image comes first") };
    let mut lie = entry.encode();
    // One leaf of the type of catalogs.
    lie[..4].copy_from_slice(&[BlockType::CATALOG.to_byte(), 0, 0, 0]);
    lie[12..20].copy_from_slice(&100_u64.to_le_bytes());
    lie[20..].copy_from_slice(older.score.as_bytes());
    let lie = Entry::decode(&lie, archive.store().score_bytes()).unwrap();
    roots.snapshots[0].content = SnapshotContent::Image(lie);
    let mut live = empty_set(archive.store(), FILTER_BYTES_DEFAULT);
    mark(archive.store(), &roots, &mut live, &Progress::new()).unwrap();
    assert!(!live.contains(&older) && live.contains(&roots.catalog_root.unwrap()));
}

#[test]
fn archives_of_other_programs_are_live_if_they_are_named() {
    let (storage, _folder) = make_store(4);
    let archive = open(&storage, 9000, &secret());
    let store = archive.store();
    assert_eq!(store.score_bytes(), 20);
    let all = LiveRoots::of(store, ForeignRoots::None, &BTreeSet::new()).unwrap();
    let score_of = |snapshot: &Snapshot| {
        snapshot
            .tags
            .iter()
            .find_map(|tag| tag.strip_prefix("vac="))
            .map(|score| Score::from_hex(score).unwrap())
    };
    let archives: BTreeSet<_> = all.snapshots.iter().filter_map(score_of).collect();
    let first = *archives.first().unwrap();
    assert!(archives.len() > 1);
    // A root that leads to nothing, and one that names the first archive as the one before it.
    store.put(Block { block_type: BlockType::ROOT, bytes: b"not an archive" }).unwrap();
    let name = BlockName { score: first, block_type: BlockType::ROOT };
    let root = VentiRoot::decode(&store.get(&name).unwrap()).unwrap();
    let later = VentiRoot { previous: Some(first), name: b"later".to_vec(), ..root };
    let later = store.put(Block { block_type: BlockType::ROOT, bytes: &later.encode().unwrap() }).unwrap();
    store.sync().unwrap();
    let of = |foreign| {
        let roots = LiveRoots { snapshots: Vec::new(), foreign, ..all.clone() };
        let mut live = empty_set(store, FILTER_BYTES_DEFAULT);
        let report = mark(store, &roots, &mut live, &Progress::new()).map(|report| report.archive_count);
        (report, live)
    };
    let expected = |scores: &mut dyn Iterator<Item = Score>| {
        let mut walk = SecondWalk { store, names: BTreeSet::new() };
        scores.for_each(|score| walk.archive(score));
        walk.names
    };
    let (found, live) = of(ForeignRoots::Named(vec![later]));
    assert_eq!(found.unwrap(), 2);
    assert!(expected(&mut [later, first].into_iter()).iter().all(|name| live.contains(name)));
    let others = archives.iter().filter(|score| **score != first);
    assert!(others.map(|score| BlockName { score: *score, ..name }).all(|root| !live.contains(&root)));
    let (found, live) = of(ForeignRoots::All);
    assert_eq!(found.unwrap(), archives.len() as u64 + 1);
    assert!(expected(&mut archives.iter().copied().chain([later])).iter().all(|name| live.contains(name)));
    let (found, _) = of(ForeignRoots::Named(vec![Score::from([1; 32])]));
    assert!(matches!(found, Err(MarkError::OtherScores { .. })));
    let missing = Score::try_from([1; 20].as_slice()).unwrap();
    let (found, _) = of(ForeignRoots::Named(vec![missing]));
    assert!(matches!(found, Err(MarkError::Archive { score, .. }) if score == missing));
    let (found, live) = of(ForeignRoots::None);
    assert_eq!((found.unwrap(), live.contains(&name)), (0, false));
}
