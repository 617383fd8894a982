//! Forgetting snapshots: into the trash, back, and for ever; and holds, which prevent it.
//!
//! ```text
//! listed ──forget──▶ trash ──expire──▶ gone
//!    ▲                 │                 │
//!    └──────undo───────┘                 │
//!    └──────────copy from elsewhere──────┘
//! ```
//!
//! Each step writes one final root of the catalog, and frees nothing by itself. The blocks of a
//! snapshot in the trash are kept. Blocks to which only snapshots lead that are gone are garbage.

pub mod expiry;
pub mod forget;
pub mod holding;
pub mod listed;
pub mod protection;
pub mod undo;
pub mod work_days;

#[cfg(test)]
mod tests {
    use varve_block::{BlockName, BlockType, MemoryBlockStore};
    use varve_store::CatalogRoot;

    use crate::catalog::catalog_root::{Catalog, SaveCatalogError};
    use crate::catalog::removed::tests::trashed;
    use crate::catalog::root_record::LoadCatalogError;
    use crate::catalog::snapshot::tests::snapshot;
    use crate::catalog::snapshot_id::SnapshotId;

    /// Roots of which the first is final.
    fn final_first(names: &[BlockName]) -> Vec<CatalogRoot> {
        let root = |(place, name): (usize, &BlockName)| CatalogRoot { name: *name, is_final: place == 0 };
        names.iter().enumerate().map(root).collect()
    }

    fn id(number: u8) -> SnapshotId {
        SnapshotId([number; 16])
    }

    fn listed(catalog: &Catalog) -> Vec<u8> {
        catalog.snapshots().iter().map(|one| one.id.0[0]).collect()
    }

    /// The catalog with these snapshots in the trash.
    fn forget(catalog: &Catalog, numbers: &[u8]) -> Catalog {
        catalog.with(|known| known.forget(numbers.iter().map(|number| trashed(*number, 9)).collect()))
    }

    /// A catalog of five snapshots of which 1 is in the trash and 2 is gone, with its root and the
    /// roots before it, newest first.
    fn with_forgotten(store: &MemoryBlockStore) -> (Catalog, Vec<BlockName>) {
        let (mut catalog, mut roots) = (Catalog::default(), Vec::new());
        for number in 0..5 {
            roots.insert(0, catalog.add(store, snapshot(number, "web", number.into())).unwrap());
        }
        assert!(!catalog.needs_arena_version_3());
        let next = forget(&catalog, &[1, 2]);
        roots.insert(0, catalog.replace(store, next).unwrap());
        let next = catalog.with(|known| known.expire(&[id(2)].into()));
        roots.insert(0, catalog.replace(store, next).unwrap());
        assert!(catalog.needs_arena_version_3());
        (catalog, roots)
    }

    fn finals(roots: &[BlockName]) -> Vec<CatalogRoot> {
        roots.iter().map(|name| CatalogRoot { name: *name, is_final: true }).collect()
    }

    #[test]
    fn no_other_root_lists_what_is_forgotten() {
        let store = MemoryBlockStore::new();
        let (catalog, roots) = with_forgotten(&store);
        assert_eq!(Catalog::load(&store, Some(roots[0])).unwrap(), catalog);
        assert_eq!((listed(&catalog), catalog.trash().len(), catalog.gone().len()), (vec![0, 3, 4], 1, 1));
        // A root of a write-only key that goes on from an older root, and one that adds the
        // snapshots again.
        let mut added = Catalog::unread(&[roots[2]]);
        let older = added.add(&store, snapshot(7, "web", 7)).unwrap();
        added.add(&store, snapshot(1, "web", 1)).unwrap();
        let again = added.add(&store, snapshot(2, "web", 2)).unwrap();
        for added in [older, again] {
            let mut joined = Catalog::load_all(&store, &final_first(&[roots[0], added])).unwrap();
            assert_eq!(listed(&joined), [0, 3, 4, 7]);
            assert!(joined.is_forgotten(id(1)) && joined.is_forgotten(id(2)));
            let folded = joined.replace(&store, joined.clone()).unwrap();
            assert_eq!(Catalog::load(&store, Some(folded)).unwrap(), joined);
        }
        // Such a root forgets nothing itself.
        let mut forger = Catalog::default();
        for number in 3..5 {
            forger.add(&store, snapshot(number, "web", 3)).unwrap();
        }
        let next = forget(&forger, &[3]);
        let forged = forger.replace(&store, next).unwrap();
        let roots = final_first(&[roots[0], forged]);
        assert_eq!(listed(&Catalog::load_all(&store, &roots).unwrap()), [0, 3, 4]);
        let alone = [CatalogRoot { name: forged, is_final: false }];
        let alone = Catalog::load_all(&store, &alone).unwrap();
        assert_eq!((listed(&alone), alone.trash().len(), alone.sequence()), (vec![4], 0, 0));
    }

    #[test]
    fn only_an_explicit_addition_brings_back() {
        let store = MemoryBlockStore::new();
        let (mut catalog, roots) = with_forgotten(&store);
        catalog.add(&store, snapshot(2, "web", 2)).unwrap();
        let root = catalog.add(&store, snapshot(1, "web", 1)).unwrap();
        let loaded = Catalog::load(&store, Some(root)).unwrap();
        assert_eq!(listed(&loaded), [0, 3, 4, 2, 1]);
        assert!(!loaded.needs_arena_version_3());
        // Older roots, whose lists of forgotten snapshots have them, change nothing.
        let mut joined = loaded.clone();
        joined.join(&Catalog::load(&store, Some(roots[0])).unwrap(), loaded.sequence());
        assert_eq!(listed(&joined), [0, 3, 4, 2, 1]);
    }

    #[test]
    fn unreadable_lists_of_forgotten_snapshots_stop_writers() {
        for is_trash in [true, false] {
            let store = MemoryBlockStore::new();
            let (catalog, roots) = with_forgotten(&store);
            let lists = catalog.live_entries().lists;
            let entry = &lists[if is_trash { 1 } else { 2 }];
            assert_eq!(lists.len(), 3);
            let name = BlockName { score: entry.root(), block_type: BlockType::DATA };
            assert!(store.lose(&name));
            let mut loaded = Catalog::load(&store, Some(roots[0])).unwrap();
            assert_eq!(listed(&loaded), [0, 3, 4], "a reader goes on");
            assert!(loaded.lacks_forgotten());
            let error = loaded.add(&store, snapshot(9, "web", 9)).unwrap_err();
            assert!(matches!(error, SaveCatalogError::LacksForgotten));
            assert!(matches!(loaded.require_all(), Err(LoadCatalogError::LacksForgotten)));
            // A repair finds the rest in older roots: nothing is lost, and what is known to be gone
            // stays gone.
            let mut salvaged = Catalog::salvage(&store, &finals(&roots));
            let (trash, gone) = (salvaged.trash().len(), salvaged.gone().len());
            assert_eq!(listed(&salvaged), [0, 3, 4]);
            assert_eq!((trash, gone), if is_trash { (1, 1) } else { (2, 0) });
            let root = salvaged.replace(&store, salvaged.clone()).unwrap();
            assert_eq!(Catalog::load(&store, Some(root)).unwrap().require_all().unwrap(), salvaged);
        }
    }

    #[test]
    fn a_salvaged_catalog_lists_nothing_that_is_forgotten() {
        let store = MemoryBlockStore::new();
        let (mut catalog, mut roots) = with_forgotten(&store);
        roots.insert(0, catalog.add(&store, snapshot(5, "web", 5)).unwrap());
        let entry = catalog.live_entries().lists[0];
        assert!(store.lose(&BlockName { score: entry.root(), block_type: BlockType::DATA }));
        let added = Catalog::unread(&[roots[3]]).add(&store, snapshot(2, "web", 2)).unwrap();
        let added = CatalogRoot { name: added, is_final: false };
        let salvaged = Catalog::salvage(&store, &[&[added], &finals(&roots)[..]].concat());
        assert_eq!(listed(&salvaged), [0, 3, 4], "5 was in the lost list only");
        assert_eq!((salvaged.trash().len(), salvaged.gone().len()), (1, 1));
        // A root that is found later joins in by its number.
        let mut older = Catalog::load(&store, Some(roots[3])).unwrap();
        assert_eq!(listed(&older), [0, 1, 2, 3, 4]);
        let sequence = older.sequence();
        older.join(&Catalog::load(&store, Some(roots[1])).unwrap(), sequence);
        assert_eq!(listed(&older), [0, 3, 4]);
        assert!(older.covers(&salvaged) && salvaged.covers(&older));
    }
}
