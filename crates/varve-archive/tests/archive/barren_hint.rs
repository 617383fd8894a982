//! After a collection a machine with a write-only key stores nothing again that is there.

use std::fs;
use std::path::Path;
use std::time::Duration;

use varve_archive::{Collection, verify};
use varve_content::Progress;
use varve_store::StoreAccess;
use varve_upkeep::AuditShare;
use varve_world::{FileName, MemoryStorage, Storage, Timestamp};

use crate::collecting::options;
use crate::write_only::{one_night, open, shared};

const HINT: &str = "index/barren";

/// Folders of small files: most of what a night stores of them is structure.
fn source() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in 0..60 {
        fs::create_dir(folder.path().join(format!("{name}"))).unwrap();
        for file in 0..30 {
            write(folder.path(), name, file, 0);
        }
    }
    folder
}

fn write(source: &Path, folder: u32, file: u32, version: u32) {
    let text = format!("the text {version} of file {file} in folder {folder}");
    fs::write(source.join(format!("{folder}/{file}")), text).unwrap();
}

fn log_bytes(storage: &MemoryStorage) -> u64 {
    let is_arena = |name: &&FileName| name.as_str().starts_with("arenas/");
    storage.names().iter().filter(is_arena).map(|name| storage.length(name).unwrap()).sum()
}

/// Takes a night with a write-only key, and returns the bytes that it has added to the log.
fn growth(storage: &MemoryStorage, seed: u64, source: &Path) -> u64 {
    let before = log_bytes(storage);
    one_night(storage, seed, 2, source, false);
    log_bytes(storage) - before
}

fn collect(storage: &MemoryStorage, seed: u64) {
    let mut archive = open(storage, seed, 1, StoreAccess::Write { holder: "a test" });
    let snapshots = archive.snapshots();
    let old: Vec<_> = snapshots[..snapshots.len() - 1].iter().map(|snapshot| snapshot.id).collect();
    archive.forget(&old, Timestamp(-100), Duration::ZERO, "a test").unwrap();
    let mut collection = Collection::plan(&archive, options(), &Progress::new()).unwrap();
    assert!(!collection.is_done());
    while !collection.is_done() {
        let batch = collection.apply(&mut archive, Timestamp(i64::MAX), &Progress::new()).unwrap();
        assert!(batch.failed.is_empty() && !batch.is_disk_full, "{:?}", batch.failed);
    }
    archive.close().unwrap();
}

fn must_be_whole(storage: &MemoryStorage) {
    let archive = open(storage, 90, 1, StoreAccess::Read);
    let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new()).unwrap();
    assert!(verified.damage.is_empty() && verified.harm.is_empty(), "{verified:?}");
}

#[test]
fn a_collection_makes_no_machine_store_its_structure_again() {
    let (storage, source) = (shared(), source());
    let whole = growth(&storage, 10, source.path());
    for night in 1..5 {
        (0..60).for_each(|folder| write(source.path(), folder, night, night));
        one_night(&storage, 10 + u64::from(night), 2, source.path(), false);
    }
    let unchanged = growth(&storage, 20, source.path());
    collect(&storage, 30);
    let without_hint = storage.fork();
    without_hint.remove(&FileName::new(HINT).unwrap()).unwrap();

    let hinted = growth(&storage, 40, source.path());
    assert!(
        hinted < 2 * unchanged,
        "{hinted} bytes; {unchanged} before the collection, {whole} in the first night"
    );
    must_be_whole(&storage);
    // Without the hint nothing old is built upon, as it was before there was one.
    let unhinted = growth(&without_hint, 40, source.path());
    assert!(unhinted > 3 * hinted, "{unhinted} bytes, and {hinted} with the hint");
    must_be_whole(&without_hint);

    // The next collection replaces the hint.
    (0..60).for_each(|folder| write(source.path(), folder, 9, 9));
    one_night(&storage, 41, 2, source.path(), false);
    collect(&storage, 50);
    assert!(growth(&storage, 60, source.path()) < 2 * unchanged);
    must_be_whole(&storage);
}
