//! Where the space of a store is. It is compared with a second walk of each snapshot, which shares
//! no code with it, and with the shares of all blocks in the directory pages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use varve_archive::{
    Archive, ForeignRoots, LiveRoots, MarkError, PlaceDensity, Snapshot, SnapshotContent, SpaceNeeds,
    SpaceNeedsError,
};
use varve_block::{BlockKind, BlockName};
use varve_content::{Node, NodeKind, NodeList, Progress};
use varve_log::DirectoryPage;
use varve_sim::SeededDraw;
use varve_store::{ClumpPlace, Store, StoreAccess, StoreConfig};
use varve_tree::{Entry, Visit, walk};
use varve_world::{MemoryStorage, Random, SeededRandom, Timestamp};

use super::live_blocks::{
    COST, SecondWalk, change_image, config, make_store, open, secret, take_image, world,
};

const MEMORY: u64 = 64 << 20;

/// Returns the bytes of each block by its share of its clumps, and those of all clumps.
fn shares(store: &Store) -> (BTreeMap<BlockName, f64>, u64) {
    let (mut shares, mut all) = (BTreeMap::new(), 0);
    for id in store.arenas().unwrap() {
        for page in store.pages_in_arena(id).unwrap() {
            let page = page.unwrap();
            for clump in page.clumps() {
                let clump_bytes = clump.end() - clump.granule.byte_offset();
                let blocks: Vec<_> = page.blocks_of(clump.granule).collect();
                let sizes: u64 = blocks.iter().map(|block| u64::from(block.size) + 1).sum();
                for block in &blocks {
                    let share = (f64::from(block.size) + 1.0) / sizes as f64;
                    *shares.entry(block.name).or_default() += share * clump_bytes as f64;
                }
                all += clump_bytes;
            }
        }
    }
    (shares, all)
}

/// Returns the blocks that are stored as deltas, each with its base.
fn bases(store: &Store) -> BTreeMap<BlockName, BlockName> {
    let pages = store.arenas().unwrap().into_iter().flat_map(|id| store.pages_in_arena(id).unwrap());
    let base = |page: &DirectoryPage| {
        page.blocks().filter_map(|block| Some((block.name, block.base_name()?))).collect::<Vec<_>>()
    };
    pages.flat_map(|page| base(&page.unwrap())).collect()
}

/// Returns the names that each snapshot needs.
fn needed(store: &Store, roots: &LiveRoots) -> Vec<BTreeSet<BlockName>> {
    let bases = bases(store);
    let of_one = |snapshot: &Snapshot| {
        let alone = LiveRoots { snapshots: vec![snapshot.clone()], ..LiveRoots::default() };
        let mut names = SecondWalk::of(store, &alone).names;
        let needed: Vec<_> = names.iter().filter_map(|name| bases.get(name)).copied().collect();
        names.extend(needed);
        names
    };
    roots.snapshots.iter().map(of_one).collect()
}

/// Returns the clump of each block. Every block is stored once.
fn clumps(store: &Store) -> BTreeMap<BlockName, ClumpPlace> {
    let mut clumps = BTreeMap::new();
    for arena in store.arenas().unwrap() {
        for page in store.pages_in_arena(arena).unwrap() {
            let page = page.unwrap();
            for clump in page.clumps() {
                let place = ClumpPlace { arena, bytes: clump.granule.byte_offset()..clump.end() };
                for block in page.blocks_of(clump.granule) {
                    let before = clumps.insert(block.name, place.clone());
                    assert!(before.is_none_or(|before| before == place), "{} is stored twice", block.name);
                }
            }
        }
    }
    clumps
}

/// The leaves of a snapshot's contents in the order of reading, each with its size.
fn add_contents(store: &Store, entry: &Entry, leaves: &mut Vec<(BlockName, u64)>) {
    walk(store, entry, &mut |block| {
        leaves.extend((block.level == 0).then_some((block.name, block.range.end - block.range.start)));
        Visit::Descend
    });
}

fn add_folder(store: &Store, folder: &Node, leaves: &mut Vec<(BlockName, u64)>) {
    for node in NodeList::new(store, folder).map(Result::unwrap) {
        match (node.kind, &node.content) {
            (NodeKind::Folder, _) => add_folder(store, &node, leaves),
            (_, Some(content)) => add_contents(store, content, leaves),
            _ => {}
        }
    }
}

/// Finds the places of a snapshot from a list of all its leaves.
fn places(store: &Store, snapshot: &Snapshot, clumps: &BTreeMap<BlockName, ClumpPlace>) -> PlaceDensity {
    let mut leaves = Vec::new();
    match &snapshot.content {
        SnapshotContent::Image(entry) => add_contents(store, entry, &mut leaves),
        SnapshotContent::Folder(root) => add_folder(store, root, &mut leaves),
    }
    let visited: Vec<&ClumpPlace> = leaves.iter().map(|(name, _)| &clumps[name]).collect();
    let far = i64::from(store.config().clump_bytes.get());
    let offset = |offset: u64| i64::try_from(offset).unwrap();
    let jumps = visited.windows(2).filter(|pair| {
        let (from, to) = (&pair[0].bytes, &pair[1].bytes);
        let is_far = offset(to.start) - offset(from.end) > far || offset(from.start) - offset(to.end) > far;
        is_far || pair[0].arena != pair[1].arena
    });
    PlaceDensity {
        place_count: jumps.count() as u64 + u64::from(!visited.is_empty()),
        content_bytes: leaves.iter().map(|(_, bytes)| bytes).sum(),
    }
}

fn check(archive: &Archive, found: &SpaceNeeds) {
    let store = archive.store();
    let roots = LiveRoots::of(store, ForeignRoots::None, &BTreeSet::new()).unwrap();
    let (needed, (shares, clump_bytes)) = (needed(store, &roots), shares(store));
    let trash: BTreeSet<_> = archive.trash().iter().map(|trashed| trashed.snapshot.id).collect();
    let without = LiveRoots { snapshots: Vec::new(), ..roots.clone() };
    let mut catalog = SecondWalk::of(store, &without).names;
    catalog.extend(shares.keys().filter(|name| name.block_type.kind() == BlockKind::Note));

    // Shared and freed bytes count for each that shares or frees them.
    let is_listed = |number: &usize| !trash.contains(&roots.snapshots[*number].id);
    let name_of = |number: &usize| roots.snapshots[*number].name.as_str();
    let (mut shared, mut freed) = (vec![0.0; needed.len()], vec![0.0; needed.len()]);
    let (mut name_shared, mut name_freed) = (BTreeMap::<&str, f64>::new(), BTreeMap::<&str, f64>::new());
    for (name, bytes) in &shares {
        let by: Vec<usize> = (0..needed.len()).filter(|number| needed[*number].contains(name)).collect();
        let listed: Vec<usize> = by.iter().copied().filter(is_listed).collect();
        let (names, listed_names): (BTreeSet<_>, BTreeSet<_>) =
            (by.iter().map(name_of).collect(), listed.iter().map(name_of).collect());
        let is_of_catalog = catalog.contains(name);
        for number in &by {
            shared[*number] += if by.len() > 1 || is_of_catalog { *bytes } else { 0.0 };
        }
        for name in &names {
            *name_shared.entry(name).or_default() +=
                if names.len() > 1 || is_of_catalog { *bytes } else { 0.0 };
        }
        if let ([only], false) = (listed.as_slice(), is_of_catalog) {
            freed[*only] += bytes;
        }
        if listed_names.len() == 1 && !is_of_catalog {
            *name_freed.entry(listed_names.first().unwrap()).or_default() += bytes;
        }
    }

    // Each block goes to one sum.
    let (mut own, mut of_several) = (vec![0.0; needed.len()], BTreeMap::<&str, f64>::new());
    let (mut names_several, mut of_catalog, mut unneeded, mut only_trash) = (0.0, 0.0, 0.0, 0.0);
    for (name, bytes) in &shares {
        let by: Vec<usize> = (0..needed.len()).filter(|number| needed[*number].contains(name)).collect();
        let names: BTreeSet<_> = by.iter().map(|number| roots.snapshots[*number].name.as_str()).collect();
        let is_of_catalog = catalog.contains(name);
        if !by.is_empty() && !is_of_catalog && by.iter().all(|by| trash.contains(&roots.snapshots[*by].id)) {
            only_trash += bytes;
        }
        match (by.as_slice(), names.len(), is_of_catalog) {
            ([], _, true) => of_catalog += bytes,
            ([], ..) => unneeded += bytes,
            ([one], _, false) => own[*one] += bytes,
            (_, 1, false) => *of_several.entry(names.first().unwrap()).or_default() += bytes,
            _ => names_several += bytes,
        }
    }
    let is_near = |found: u64, expected: f64| (found as f64 - expected).abs() <= 1.0 + shares.len() as f64;
    assert_eq!(found.snapshots.len(), needed.len());
    for (number, of_one) in found.snapshots.iter().enumerate() {
        assert!(is_near(of_one.shared_bytes, shared[number]), "{of_one:?} and {}", shared[number]);
        match of_one.freed_bytes {
            None => assert!(of_one.is_in_trash),
            Some(bytes) => assert!(is_near(bytes, freed[number]), "{of_one:?} and {}", freed[number]),
        }
    }
    let clumps = clumps(store);
    for of_name in &found.names {
        let (name, of) =
            (of_name.name.as_str(), |sums: &BTreeMap<&str, f64>| sums.get(of_name.name.as_str()).copied());
        assert!(is_near(of_name.shared_bytes, of(&name_shared).unwrap_or_default()), "{of_name:?}");
        let newest =
            roots.snapshots.iter().enumerate().filter(|(number, one)| is_listed(number) && one.name == name);
        let newest = newest.max_by_key(|(_, one)| one.time).map(|(_, one)| one);
        assert_eq!(of_name.freed_bytes.is_some(), newest.is_some());
        let freed = of_name.freed_bytes.unwrap_or_default();
        assert!(is_near(freed, of(&name_freed).unwrap_or_default()), "{of_name:?}");
        assert_eq!(of_name.newest_places, newest.map(|newest| places(store, newest, &clumps)));
    }
    for ((snapshot, of_roots), own) in found.snapshots.iter().zip(&roots.snapshots).zip(&own) {
        assert_eq!(snapshot.snapshot.id, of_roots.id);
        assert_eq!(snapshot.is_in_trash, trash.contains(&of_roots.id));
        assert!(is_near(snapshot.own_bytes, *own), "{} and {own}", snapshot.own_bytes);
    }
    for name in &found.names {
        let of_one = found.snapshots.iter().filter(|one| one.snapshot.name == name.name);
        assert_eq!(name.of_one_bytes, of_one.clone().map(|one| one.own_bytes).sum::<u64>());
        assert_eq!(name.size, of_one.clone().map(|one| one.snapshot.size).sum::<u64>());
        assert_eq!(name.snapshot_count, of_one.count() as u64);
        let expected = of_several.get(name.name.as_str()).copied().unwrap_or_default();
        assert!(is_near(name.of_several_bytes, expected), "{name:?} and {expected}");
    }
    assert!(is_near(found.several_names_bytes, names_several), "{found:?} and {names_several}");
    assert!(is_near(found.catalog_bytes, of_catalog), "{found:?} and {of_catalog}");
    assert!(is_near(found.unneeded_bytes, unneeded), "{found:?} and {unneeded}");
    assert!(is_near(found.only_trash_bytes, only_trash), "{found:?} and {only_trash}");
    // No byte is lost.
    assert_eq!(found.directory_bytes, found.log_bytes - clump_bytes);
    let sums = found.several_names_bytes + found.catalog_bytes + found.unneeded_bytes + found.directory_bytes;
    assert_eq!(found.names.iter().map(|name| name.own_bytes()).sum::<u64>() + sums, found.log_bytes);

    // Of every second listed snapshot, together.
    let listed = roots.snapshots.iter().map(|snapshot| snapshot.id).filter(|id| !trash.contains(id));
    let these: BTreeSet<_> = listed.step_by(2).collect();
    let expected: f64 = shares
        .iter()
        .filter(|(name, _)| !catalog.contains(name))
        .filter(|(name, _)| {
            let by = (0..needed.len()).filter(|number| needed[*number].contains(name));
            let by: Vec<_> = by.map(|number| roots.snapshots[number].id).collect();
            let is_of_these = by.iter().any(|id| these.contains(id));
            is_of_these && by.iter().all(|id| these.contains(id) || trash.contains(id))
        })
        .map(|(_, bytes)| bytes)
        .sum();
    let of_these = SpaceNeeds::bytes_of_only(archive, &these, MEMORY, &Progress::new()).unwrap();
    assert!(expected > 0.0 && is_near(of_these, expected), "{of_these} and {expected}");
}

#[test]
fn every_byte_is_needed_by_those_that_a_second_walk_finds() {
    for seed in 0..8 {
        let (storage, _folder) = make_store(seed);
        let mut archive = open(&storage, 9000 + seed, &secret());
        let mut draw = SeededDraw::new(seed);
        // Another name shares blocks with the first.
        let mut image = Vec::new();
        change_image(&mut image, &mut draw);
        take_image(&mut archive, "other disk", &image);
        if seed % 2 == 1 {
            let ids: Vec<_> = archive.snapshots().iter().map(|snapshot| snapshot.id).collect();
            let forgotten = BTreeSet::from([ids[draw.index(ids.len())], ids[0]]);
            let forgotten: Vec<_> = forgotten.into_iter().collect();
            archive.forget(&forgotten, Timestamp(100), Duration::from_secs(1000), "").unwrap();
        }
        archive.close().unwrap();
        let store = Store::open(world(&storage, 1), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap();
        let archive = Archive::open(store).unwrap();
        let found = SpaceNeeds::of(&archive, MEMORY, &Progress::new()).unwrap();
        assert_eq!(found.pass_count, 1);
        assert!(found.names.iter().any(|name| name.of_several_bytes > 0));
        check(&archive, &found);
    }
}

#[test]
fn memory_is_bounded_and_changes_nothing() {
    let (storage, _folder) = make_store(2);
    let mut archive = open(&storage, 9000, &secret());
    // Far more leaves than blocks that lead to others.
    let mut image = vec![0; 24 << 20];
    SeededRandom::new(5).fill(&mut image).unwrap();
    take_image(&mut archive, "large", &image);
    let with = |memory| SpaceNeeds::of(&archive, memory, &Progress::new());
    let whole = with(MEMORY).unwrap();
    let (mut most_passes, mut refused_count) = (1, 0);
    for memory in (10..22).map(|power| 1 << power) {
        match with(memory) {
            Ok(found) => {
                most_passes = most_passes.max(found.pass_count);
                assert_eq!(format!("{:?}", found.names), format!("{:?}", whole.names));
                assert_eq!(format!("{:?}", found.snapshots), format!("{:?}", whole.snapshots));
                let sums =
                    |found: &SpaceNeeds| [found.catalog_bytes, found.unneeded_bytes, found.directory_bytes];
                assert_eq!(sums(&found), sums(&whole));
            }
            Err(SpaceNeedsError::Memory { bytes }) => {
                assert_eq!(bytes, memory);
                refused_count += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(most_passes > 1 && refused_count > 0, "{most_passes} passes, {refused_count} refused");
}

#[test]
fn many_different_sets_are_counted_group_by_group() {
    let (storage, _folder) = make_store(2);
    let mut archive = open(&storage, 9000, &secret());
    let (mut image, mut draw) = (Vec::new(), SeededDraw::new(7));
    for number in 0..30 {
        change_image(&mut image, &mut draw);
        take_image(&mut archive, ["one", "two", "three"][number % 3], &image);
    }
    let whole = SpaceNeeds::of(&archive, MEMORY, &Progress::new()).unwrap();
    assert_eq!(whole.pass_count, 1);
    check(&archive, &whole);
    // Its blocks fit into half of the memory at once.
    let found = SpaceNeeds::of(&archive, 1 << 18, &Progress::new()).unwrap();
    assert!(found.pass_count > 1, "{}", found.pass_count);
    assert_eq!(format!("{:?}", found.names), format!("{:?}", whole.names));
    assert_eq!(format!("{:?}", found.snapshots), format!("{:?}", whole.snapshots));
}

/// Makes a store in which most blocks are deltas: all blocks of one place differ in a few bytes.
/// The third snapshot is in the trash.
fn make_store_of_deltas(seed: u64) -> MemoryStorage {
    // Stores by value have no deltas.
    let (storage, config) = (MemoryStorage::new(), StoreConfig { deltas: true, ..config(2 * seed) });
    Store::create(&world(&storage, 1), &config, Some(&secret()), COST).unwrap();
    let mut archive = open(&storage, 9000 + seed, &secret());
    let mut draw = SeededDraw::new(seed);
    let mut image = vec![0; 1500 * 4096];
    SeededRandom::new(seed).fill(&mut image).unwrap();
    for day in 0..9 {
        for _ in 0..700 {
            let place = draw.index(1500) * 4096 + draw.index(4000);
            image[place] = image[place].wrapping_add(1);
        }
        take_image(&mut archive, ["one", "two"][usize::from(day % 3 == 2)], &image);
    }
    let third = archive.snapshots()[2].id;
    archive.forget(&[third], Timestamp(100), Duration::from_secs(1000), "").unwrap();
    archive.close().unwrap();
    storage
}

#[test]
fn who_needs_a_delta_needs_its_base() {
    for seed in 0..4 {
        let storage = make_store_of_deltas(seed);
        let archive = open(&storage, 1, &secret());
        let bases = bases(archive.store());
        let found = SpaceNeeds::of(&archive, MEMORY, &Progress::new()).unwrap();
        assert!(found.delta_count > 3000, "{} deltas", found.delta_count);
        assert_eq!(found.delta_count, bases.len() as u64);
        check(&archive, &found);
        // The walk of a snapshot alone does not reach the bases that another one has.
        let mut last = LiveRoots::of(archive.store(), ForeignRoots::None, &BTreeSet::new()).unwrap();
        last.snapshots = last.snapshots.split_off(last.snapshots.len() - 1);
        let walked = SecondWalk::of(archive.store(), &last).names;
        assert!(bases.iter().any(|(delta, base)| walked.contains(delta) && !walked.contains(base)));
        // Deltas and their bases are in different slices.
        let sliced = (14..20).map(|power| SpaceNeeds::of(&archive, 1 << power, &Progress::new()));
        let sliced: Vec<_> = sliced.filter_map(Result::ok).filter(|found| found.pass_count > 1).collect();
        assert!(!sliced.is_empty());
        for of_slices in sliced {
            assert_eq!(format!("{:?}", of_slices.names), format!("{:?}", found.names));
            assert_eq!(format!("{:?}", of_slices.snapshots), format!("{:?}", found.snapshots));
        }
    }
}

#[test]
fn a_cancellation_ends_it() {
    let (storage, _folder) = make_store(0);
    let archive = open(&storage, 9000, &secret());
    let progress = Progress::new();
    progress.cancel();
    let cancelled = SpaceNeeds::of(&archive, MEMORY, &progress).unwrap_err();
    assert!(matches!(cancelled, SpaceNeedsError::Walk(MarkError::Cancelled)), "{cancelled}");
}
