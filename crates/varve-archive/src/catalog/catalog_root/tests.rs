use varve_block::{GetError, MemoryBlockStore};
use varve_content::{FieldReader, split_record};
use varve_world::Timestamp;

use super::*;
use crate::catalog::losses::LostBlock;
use crate::catalog::removed::tests::trashed;
use crate::catalog::snapshot::tests::snapshot;

/// Roots of which the first is final.
fn final_first(names: &[BlockName]) -> Vec<CatalogRoot> {
    let root = |(place, name): (usize, &BlockName)| CatalogRoot { name: *name, is_final: place == 0 };
    names.iter().enumerate().map(root).collect()
}

#[test]
fn a_catalog_grows_and_comes_back() {
    let store = MemoryBlockStore::new();
    let mut catalog = Catalog::load(&store, None).unwrap();
    let mut root = None;
    for number in 0..200 {
        root = Some(catalog.add(&store, snapshot(number, "web", i64::from(number))).unwrap());
        assert_eq!(Catalog::load(&store, root).unwrap(), catalog);
    }
    assert_eq!(catalog.snapshots().len(), 200);
    let written: usize = store.stored_bytes();
    assert!(written < 200 * 40_000, "adding one does not rewrite all: {written} bytes");
    assert!(store.lose(&root.unwrap()));
    assert!(matches!(Catalog::load(&store, root), Err(LoadCatalogError::Root(_))));
}

#[test]
fn snapshots_change_and_the_catalog_before_stays() {
    let store = MemoryBlockStore::new();
    let mut catalog = Catalog::default();
    let mut before = None;
    for number in 0..3 {
        before = Some(catalog.add(&store, snapshot(number, "web", i64::from(number))).unwrap());
    }
    let old = catalog.clone();
    let changed = Snapshot { tags: vec!["keep=always".into()], ..catalog.snapshots()[1].clone() };
    let unknown = Snapshot { id: crate::catalog::snapshot_id::SnapshotId([77; 16]), ..changed.clone() };
    let next = catalog.with(|known| known.change(&[changed.clone(), unknown]));
    let root = catalog.replace(&store, next).unwrap();
    let expected = [old.snapshots()[0].clone(), changed, old.snapshots()[2].clone()];
    assert_eq!(catalog.snapshots(), expected);
    assert_eq!(Catalog::load(&store, Some(root)).unwrap(), catalog);
    assert_eq!(Catalog::load(&store, before).unwrap(), old);
}

#[test]
fn whoever_cannot_read_adds_and_whoever_can_folds_it_in() {
    let store = MemoryBlockStore::new();
    let mut full = Catalog::default();
    let mut root = full.add(&store, snapshot(0, "web", 0)).unwrap();
    // Three rounds of two snapshots each, by a writer that sees only its own.
    for night in 0..3 {
        let mut unread = Catalog::unread(&[root]);
        for number in [2 * night + 1, 2 * night + 2] {
            root = unread.add(&store, snapshot(number, "web", i64::from(number))).unwrap();
        }
        assert_eq!(unread.snapshots().len(), 2);
    }
    let mut full = Catalog::load(&store, Some(root)).unwrap();
    let ids = |catalog: &Catalog| catalog.snapshots().iter().map(|one| one.id.0[0]).collect::<Vec<_>>();
    assert_eq!(ids(&full), [0, 1, 2, 3, 4, 5, 6]);
    let root = full.add(&store, snapshot(7, "web", 7)).unwrap();
    let read = store.get_count();
    assert_eq!(ids(&Catalog::load(&store, Some(root)).unwrap()), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(store.get_count() - read <= 3, "folded: a root and its list");
    // The first snapshot in a store.
    let first = Catalog::unread(&[]).add(&store, snapshot(9, "web", 9)).unwrap();
    assert_eq!(ids(&Catalog::load(&store, Some(first)).unwrap()), [9]);
}

#[test]
fn nobody_who_may_not_read_hides_what_others_have_listed() {
    let store = MemoryBlockStore::new();
    let base = Catalog::default().add(&store, snapshot(1, "web", 1)).unwrap();
    let honest = Catalog::unread(&[base]).add(&store, snapshot(2, "web", 2)).unwrap();
    // One root that omits all roots before it, and some that are malformed.
    let forged = Catalog::unread(&[]).add(&store, snapshot(3, "web", 3)).unwrap();
    let mut roots = vec![base, honest, forged];
    for bytes in [&b"rubbish"[..], b"", &[0]] {
        let block = Block { block_type: BlockType::CATALOG, bytes };
        roots.push(BlockName { score: store.put(block).unwrap(), block_type: BlockType::CATALOG });
    }
    let loaded = Catalog::load_all(&store, &final_first(&roots)).unwrap();
    assert_eq!(loaded.snapshots().iter().map(|one| one.id.0[0]).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(loaded.require_all().is_ok(), "what makes no sense was never there");
    // A lost catalog is different: its contents are unknown, and the next catalog would lack
    // them.
    assert!(store.lose(&honest));
    let loaded = Catalog::load_all(&store, &final_first(&roots)).unwrap();
    assert_eq!(loaded.snapshots().iter().map(|one| one.id.0[0]).collect::<Vec<_>>(), [1, 3]);
    assert!(matches!(loaded.require_all(), Err(LoadCatalogError::LacksAdded)));
    assert!(store.lose(&base));
    assert!(Catalog::load(&store, Some(base)).is_err());
    assert!(
        Catalog::load_all(&store, &final_first(&roots)).is_err(),
        "those that were added tell nothing of the first"
    );
}

#[test]
fn a_root_that_a_crash_took_is_passed() {
    let store = MemoryBlockStore::new();
    let base = Catalog::default().add(&store, snapshot(1, "web", 1)).unwrap();
    let lost = Catalog::unread(&[base]).add(&store, snapshot(2, "web", 2)).unwrap();
    let root = Catalog::unread(&[lost, base]).add(&store, snapshot(3, "web", 3)).unwrap();
    let ids = || {
        Catalog::load(&store, Some(root))
            .map(|catalog| catalog.snapshots().iter().map(|one| one.id.0[0]).collect::<Vec<_>>())
    };
    assert_eq!(ids().unwrap(), [1, 2, 3], "it was not lost after all");
    assert!(store.lose(&lost));
    assert_eq!(ids().unwrap(), [1, 3]);
    assert!(store.lose(&base));
    assert!(matches!(ids(), Err(LoadCatalogError::Root(GetError::NotFound { .. }))));
}

#[test]
fn what_older_catalogs_know_is_found_again() {
    let store = MemoryBlockStore::new();
    let (mut catalog, mut roots) = (Catalog::default(), Vec::new());
    for number in 0..5 {
        roots.insert(0, catalog.add(&store, snapshot(number, "web", i64::from(number))).unwrap());
    }
    assert!(store.lose(&roots[0]));
    assert!(store.lose(&roots[1]));
    let finals: Vec<_> = roots.iter().map(|name| CatalogRoot { name: *name, is_final: true }).collect();
    let mut salvaged = Catalog::salvage(&store, &finals);
    assert_eq!(salvaged.snapshots(), &catalog.snapshots()[..3]);
    let root = salvaged.replace(&store, salvaged.clone()).unwrap();
    assert_eq!(Catalog::load(&store, Some(root)).unwrap(), salvaged);
    assert_eq!(Catalog::salvage(&store, &[]), Catalog::default());
    // A catalog that a write-only key has added hides no earlier snapshot.
    let added = Catalog::unread(&[roots[2]]).add(&store, snapshot(9, "web", 9)).unwrap();
    let added = CatalogRoot { name: added, is_final: false };
    let with_added = Catalog::salvage(&store, &[&[added], &finals[..]].concat());
    assert_eq!(with_added.snapshots().len(), 4);
}

/// Puts a root again with one more field, as a later version would write it.
fn add_field(store: &MemoryBlockStore, root: &BlockName, field: (u8, &[u8])) -> BlockName {
    let block = store.get(root).unwrap();
    let added = FieldWriter::new().bytes(field.0, field.1).finish();
    let mut bytes = Vec::new();
    frame(&[split_record(&block).unwrap().0, &added].concat(), &mut bytes);
    let block = Block { block_type: BlockType::CATALOG, bytes: &bytes };
    BlockName { score: store.put(block).unwrap(), block_type: BlockType::CATALOG }
}

fn later_fields_of(store: &MemoryBlockStore, root: &BlockName) -> Vec<(u8, Vec<u8>)> {
    let block = store.get(root).unwrap();
    let (fields, _) = split_record(&block).unwrap();
    let fields = FieldReader::new(fields).map(Result::unwrap);
    fields.filter(|field| field.number > 3).map(|field| (field.number, field.bytes.to_vec())).collect()
}

proptest::proptest! {
    #[test]
    fn fields_of_later_versions_stay_in_the_root(
        (number, bytes, other) in proptest::arbitrary::any::<(u8, Vec<u8>, Vec<u8>)>(),
    ) {
        let number = number.max(7);
        let store = MemoryBlockStore::new();
        let mut catalog = Catalog::default();
        let root = catalog.add(&store, snapshot(1, "web", 1)).unwrap();
        let root = add_field(&store, &root, (number, &bytes));
        let loaded = Catalog::load(&store, Some(root)).unwrap();
        let finals = [CatalogRoot { name: root, is_final: true }];
        // The fields survive in every way to write the next catalog.
        let mut copied = Catalog::default();
        copied.join(&loaded, 0);
        let ways = [Catalog::salvage(&store, &finals), copied, loaded];
        for mut next in ways {
            let added = next.add(&store, snapshot(2, "web", 2)).unwrap();
            proptest::prop_assert_eq!(later_fields_of(&store, &added), vec![(number, bytes.clone())]);
            let again = next.replace(&store, next.clone()).unwrap();
            proptest::prop_assert_eq!(later_fields_of(&store, &again), vec![(number, bytes.clone())]);
        }
        // A root that a write-only key has added has more such fields. The later root comes
        // last.
        let added = Catalog::unread(&[root]).add(&store, snapshot(3, "web", 3)).unwrap();
        let added = add_field(&store, &added, (number, &other));
        let mut both = Catalog::load_all(&store, &final_first(&[root, added])).unwrap();
        let folded = both.replace(&store, both.clone()).unwrap();
        let mut expected = vec![(number, bytes.clone()), (number, other.clone())];
        expected.dedup();
        proptest::prop_assert_eq!(later_fields_of(&store, &folded), expected);
        let mut chained = Catalog::load(&store, Some(added)).unwrap();
        let folded = chained.replace(&store, chained.clone()).unwrap();
        proptest::prop_assert_eq!(later_fields_of(&store, &folded).pop(), Some((number, other)));
    }
}

fn a_loss() -> Losses {
    let score = Score::try_from([9; 32].as_slice()).unwrap();
    let name = BlockName { score, block_type: BlockType::DATA };
    let mut losses = Losses::default();
    losses.add_block(LostBlock { name, size: Some(7), noticed: Timestamp(1), accepted: None });
    losses
}

#[test]
fn what_is_lost_goes_from_root_to_root() {
    let store = MemoryBlockStore::new();
    let mut catalog = Catalog::default();
    assert!(!catalog.set_losses(&store, &Losses::default()).unwrap());
    assert!(catalog.set_losses(&store, &a_loss()).unwrap());
    let first = catalog.replace(&store, catalog.clone()).unwrap();
    // A store may have losses and no snapshot.
    let mut next = Catalog::load(&store, Some(first)).unwrap();
    assert_eq!((next.losses(&store), next.snapshots().len()), (a_loss(), 0));
    let second = next.add(&store, snapshot(1, "web", 1)).unwrap();
    // A write-only key reports no losses, and removes none.
    let added = Catalog::unread(&[second]).add(&store, snapshot(2, "web", 2)).unwrap();
    for roots in [&[second, added][..], &[added]] {
        let mut folded = Catalog::load_all(&store, &final_first(roots)).unwrap();
        assert_eq!(folded.losses(&store), a_loss());
        let root = folded.add(&store, snapshot(3, "web", 3)).unwrap();
        assert_eq!(Catalog::load(&store, Some(root)).unwrap().losses(&store), a_loss());
    }
    // Losses in the root of a write-only key are ignored.
    let mut forged = Catalog::default();
    forged.set_losses(&store, &a_loss()).unwrap();
    let forged = forged.replace(&store, forged.clone()).unwrap();
    let plain = Catalog::default().add(&store, snapshot(4, "web", 4)).unwrap();
    assert!(Catalog::load_all(&store, &final_first(&[plain, forged])).unwrap().losses(&store).is_empty());
    let finals = [second, first].map(|name| CatalogRoot { name, is_final: true });
    assert!(store.lose(&second));
    assert_eq!(Catalog::losses_of_any(&store, &finals), a_loss());
}

#[test]
fn no_root_panics() {
    let store = MemoryBlockStore::new();
    let mut catalog = Catalog::default();
    let root = catalog.add(&store, snapshot(1, "web", 1)).unwrap();
    let added = Catalog::unread(&[root]).add(&store, snapshot(2, "web", 2)).unwrap();
    let next = catalog.with(|known| known.forget(vec![trashed(1, 9), trashed(2, 9)]));
    let next = next.with(|known| known.expire(&[trashed(2, 9).snapshot.id].into()));
    let forgotten = catalog.replace(&store, next).unwrap();
    for root in [added, forgotten] {
        let good = store.get(&root).unwrap();
        for (place, bit) in (0..good.len()).flat_map(|place| (0..8).map(move |bit| (place, bit))) {
            let mut bad = good.to_vec();
            bad[place] ^= 1 << bit;
            let score = store.put(Block { block_type: BlockType::CATALOG, bytes: &bad }).unwrap();
            drop(Catalog::load(&store, Some(BlockName { score, block_type: BlockType::CATALOG })));
        }
    }
}
