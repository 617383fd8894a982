//! A store of which most arenas are stubs: they had blocks, and nothing needs them any more.
//!
//! ```sh
//! VARVE_STUBS=100000 cargo test -p varve-archive --test archive -- --ignored --nocapture stubs
//! ```
//!
//! prints the times that `docs/decisions/0028-stubs-stay-files.md` is about.

use std::path::Path;

use varve_archive::{Archive, verify};
use varve_block::{Block, BlockStore, BlockType};
use varve_content::Progress;
use varve_log::ArenaId;
use varve_store::{IndexKind, Store, StoreAccess, StoreConfig};
use varve_upkeep::{BatchLimits, Reclaimer};
use varve_world::{Clock, RealClock, Timestamp, World};

use crate::live_blocks::{COST, config, secret, take_image};

const WRITER: StoreAccess<'_> = StoreAccess::Write { holder: "a test" };

fn open(folder: &Path, access: StoreAccess<'_>) -> Archive {
    let store = Store::open(World::real(folder), Some(&secret()), access, &mut |_| {});
    Archive::open(store.unwrap()).unwrap()
}

/// Makes a store of so many stubs, and a snapshot.
fn make(folder: &Path, index: IndexKind, stub_count: u64) {
    let config = StoreConfig { index, ..config(0) };
    Store::create(&World::real(folder), &config, Some(&secret()), COST).unwrap();
    let archive = open(folder, WRITER);
    let (store, intake) = (archive.store(), archive.store().intake().unwrap());
    for number in 0..stub_count {
        store.put(Block { block_type: BlockType::DATA, bytes: &number.to_le_bytes() }).unwrap();
        intake.begin_replacing().unwrap();
    }
    archive.close().unwrap();
    let mut archive = open(folder, WRITER);
    take_image(&mut archive, "kept", &[7; 100_000]);
    let reclaimer = Reclaimer::of(archive.store()).unwrap();
    let limits = BatchLimits { written_bytes: u64::MAX, until: Timestamp(i64::MAX) };
    let all: Vec<ArenaId> = (0..stub_count).map(ArenaId).collect();
    for arenas in all.chunks(500) {
        let batch = reclaimer.replace(arenas, &|_| false, limits, &|| false).unwrap();
        assert_eq!(batch.replaced.len(), arenas.len(), "{:?}", batch.failed);
        assert!(batch.replaced.iter().all(|arena| arena.new_bytes <= 1024));
    }
    archive.close().unwrap();
}

#[test]
#[ignore = "it prints times; it takes minutes with many stubs"]
fn stubs_cost_little() {
    let stub_count = std::env::var("VARVE_STUBS").map_or(2000, |text| text.parse().unwrap());
    for index in [IndexKind::Memory, IndexKind::Disk] {
        let folder = tempfile::tempdir().unwrap();
        let timed = |what: &str, work: &mut dyn FnMut()| {
            let begun = RealClock.now();
            work();
            let millis = (RealClock.now().0 - begun.0) / 1_000_000;
            println!("{index:?}, {stub_count} stubs, {what}: {millis} ms");
        };
        timed("made", &mut || make(folder.path(), index, stub_count));
        for round in ["first", "second"] {
            timed(&format!("opened for reading, {round}"), &mut || {
                drop(open(folder.path(), StoreAccess::Read))
            });
            timed(&format!("opened for writing and closed, {round}"), &mut || {
                open(folder.path(), WRITER).close().unwrap();
            });
        }
        let archive = open(folder.path(), StoreAccess::Read);
        timed("verify without data", &mut || {
            let verified = verify(&archive, None, &Progress::new()).unwrap();
            assert!(verified.damage.is_empty() && verified.harm.is_empty(), "{verified:?}");
        });
        timed("all roots found", &mut || {
            assert_eq!(archive.store().newest_catalog_roots().unwrap().len(), 1);
        });
    }
}
