//! A snapshot that is recorded as a trace is stored as one that is not, byte for byte.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_archive::{Archive, SnapshotRequest};
use varve_content::Progress;
use varve_content::folder::{FolderOptions, Watch};
use varve_content::image::ImageSource;
use varve_log::ArenaMap;
use varve_proxy::RecordingStore;
use varve_store::{Encryption, PassphraseCost, Store, StoreAccess, StoreConfig};
use varve_trace::{SourceKind, TraceReader, TraceRecord};
use varve_world::{FileName, MemoryStorage, Random, SeededRandom, Storage as _, Timestamp, World};

#[derive(Clone, Default)]
struct TraceBytes(Arc<Mutex<Vec<u8>>>);

impl Write for TraceBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SeededRandom::new(seed).fill(&mut bytes).unwrap();
    bytes
}

/// Archives a folder and an image into a new store. Returns all files of the store.
fn archived(sources: &Path, trace: Option<&TraceBytes>) -> Vec<(FileName, Vec<u8>)> {
    let storage = MemoryStorage::new();
    let world = World::deterministic(Arc::new(storage.clone()), 3);
    let arena_map = ArenaMap::new(1 << 20).unwrap();
    let config = StoreConfig { encryption: Encryption::None, arena_map, ..StoreConfig::new([5; 16]) };
    Store::create(&world, &config, None, PassphraseCost::default()).unwrap();
    let access = StoreAccess::Write { holder: "a test" };
    let store = Store::open(world.clone(), None, access, &mut |_| ()).unwrap();
    let mut archive = Archive::open(store).unwrap();
    let recording = trace.map(|trace| {
        let random = SeededRandom::new(9);
        let clock = Arc::clone(&world.clock);
        let output = Box::new(trace.clone());
        let recording = RecordingStore::new(archive.blocks(), output, "test 1", None, &random, clock);
        let recording = Arc::new(recording.unwrap());
        archive.set_front(Arc::clone(&recording) as _);
        recording
    });
    let progress = Progress::new();
    for name in ["home", "disk", "home", "disk"] {
        let source = sources.join(name);
        let request = SnapshotRequest {
            name: name.into(),
            source: name.into(),
            time: Some(Timestamp(1)),
            ..SnapshotRequest::default()
        };
        let kind = if name == "home" { SourceKind::Folder } else { SourceKind::Image };
        if let Some(recording) = &recording {
            recording.begin_snapshot(name, kind);
        }
        if name == "home" {
            let watch = Watch { progress: &progress, report: &|problem| panic!("{problem:?}") };
            archive.take_folder(&source, FolderOptions::default(), request, watch).unwrap();
        } else {
            archive.take_image(&ImageSource::open(&source).unwrap(), 16 << 10, request, &progress).unwrap();
        }
    }
    if let Some(recording) = recording {
        recording.finish().unwrap();
    }
    archive.close().unwrap();
    let folders = ["", "arenas", "index"];
    let files = folders.into_iter().flat_map(|folder| storage.list(folder).unwrap());
    files
        .map(|file| {
            let mut bytes = vec![0; usize::try_from(storage.length(&file).unwrap()).unwrap()];
            storage.read_at(&file, 0, &mut bytes).unwrap();
            (file, bytes)
        })
        .collect()
}

#[test]
fn a_traced_snapshot_is_stored_as_any_other() {
    let sources = tempfile::tempdir().unwrap();
    let home = sources.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("SecretName.txt"), noise(1, 300_000)).unwrap();
    fs::write(home.join("copy"), noise(1, 300_000)).unwrap();
    let disk = [noise(2, 1 << 20), vec![0; 1 << 20], noise(2, 1 << 20)].concat();
    fs::write(sources.path().join("disk"), disk).unwrap();
    let trace = TraceBytes::default();
    let plain = archived(sources.path(), None);
    assert_eq!(archived(sources.path(), Some(&trace)), plain);
    assert!(plain.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > 1_300_000);
    let bytes = trace.0.lock().clone();
    let records: Vec<_> = TraceReader::new(&bytes[..]).unwrap().map(Result::unwrap).collect();
    let count = records.iter().filter(|record| matches!(record, TraceRecord::Snapshot(_))).count();
    assert_eq!(count, 4);
    // The disk has the same MiB twice, and the second day is all known.
    let new_bytes: u64 = {
        let mut next = 0;
        let mut new = 0;
        for record in &records {
            if let TraceRecord::Put(run) = record {
                new += if run.first_id >= next { run.bytes() } else { 0 };
                next = next.max(run.end_id());
            }
        }
        new
    };
    assert!((1_300_000..1_500_000).contains(&new_bytes), "{new_bytes}");
    let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    assert!(!has(b"SecretName") && !has(b"home") && !has(b"disk"));
    assert!(noise(1, 300_000).windows(6).step_by(1009).all(|part| !has(part)));
}
