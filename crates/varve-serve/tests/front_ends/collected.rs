//! A snapshot that is collected while clients use it is gone, and not damaged.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use varve_archive::{Archive, Snapshot, SnapshotFilter, SnapshotId, SnapshotList, SnapshotRequest};
use varve_block::{BlockKind, BlockName, BlockStore, GetError};
use varve_content::Progress;
use varve_content::folder::StreamOwner;
use varve_content::image::{CachedBlocks, ImageSource};
use varve_image::{FileId, FileSystem, FileSystemError};
use varve_serve::days::{CivilTime, Days};
use varve_serve::nbd::{SnapshotDisks, TimeText};
use varve_serve::webdav;
use varve_store::{Encryption, PassphraseCost, Store, StoreAccess, StoreConfig};
use varve_world::{Clock, FixedClock, MemoryStorage, Timestamp, World};

/// Blocks whose file contents are gone, once that is set.
struct EmptiedStore {
    below: Arc<Store>,
    is_emptied: Arc<AtomicBool>,
}

impl BlockStore for EmptiedStore {
    varve_block::forward_block_store!(below: score_bytes, empty_score, put, sync);

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        if self.is_emptied.load(Ordering::Relaxed) && name.block_type.kind() == BlockKind::Data {
            return Err(GetError::NotFound { name: *name });
        }
        self.below.get(name)
    }
}

/// The snapshots that were not forgotten.
struct Remaining {
    listed: Vec<Snapshot>,
    forgotten: Arc<Mutex<Vec<SnapshotId>>>,
}

impl SnapshotList for Remaining {
    fn snapshots(&self) -> &[Snapshot] {
        &self.listed
    }

    fn follow(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let forgotten = self.forgotten.lock();
        let count = self.listed.len();
        self.listed.retain(|snapshot| !forgotten.contains(&snapshot.id));
        Ok(self.listed.len() < count)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(FixedClock(Timestamp(0)))
    }
}

struct ServedArchive {
    blocks: Arc<EmptiedStore>,
    snapshots: Vec<Snapshot>,
    forgotten: Arc<Mutex<Vec<SnapshotId>>>,
}

impl ServedArchive {
    /// An archive with a file `file` and a disk `disk`.
    fn new() -> Self {
        let world = World::deterministic(Arc::new(MemoryStorage::new()), 7);
        let config = StoreConfig { encryption: Encryption::None, ..StoreConfig::new([5; 16]) };
        Store::create(&world, &config, None, PassphraseCost::default()).unwrap();
        let access = StoreAccess::Write { holder: "a test" };
        let mut archive = Archive::open(Store::open(world, None, access, &mut |_| {}).unwrap()).unwrap();
        let contents: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let request = |name: &str| SnapshotRequest { name: name.into(), ..SnapshotRequest::default() };
        let owner = StreamOwner { uid: 0, gid: 0, time: Timestamp(0) };
        let progress = Progress::new();
        archive.take_stream(&mut &contents[..], owner, request("file"), &progress).unwrap();
        let image = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(image.path(), &contents).unwrap();
        let source = ImageSource::open(image.path()).unwrap();
        archive.take_image(&source, 16 << 10, request("disk"), &progress).unwrap();
        let snapshots = archive.snapshots().to_vec();
        let blocks = EmptiedStore { below: archive.blocks(), is_emptied: Arc::default() };
        Self { blocks: Arc::new(blocks), snapshots, forgotten: Arc::default() }
    }

    fn list(&self) -> Remaining {
        Remaining { listed: self.snapshots.clone(), forgotten: Arc::clone(&self.forgotten) }
    }

    fn days(&self) -> Days {
        let civil = CivilTime { year: 2026, month: 5, day: 1, hour: 0, minute: 0, second: 0 };
        Days::new(self.list(), Arc::clone(&self.blocks) as _, Box::new(move |_| civil), (0, 0))
    }

    /// The blocks are gone.
    fn empty(&self) {
        self.blocks.is_emptied.store(true, Ordering::Relaxed);
    }

    fn forget_all(&self) {
        self.forgotten.lock().extend(self.snapshots.iter().map(|snapshot| snapshot.id));
    }
}

fn found(files: &dyn FileSystem, path: &[&str]) -> FileId {
    path.iter().fold(files.root(), |folder, name| {
        files.child(folder, name.as_bytes()).unwrap().unwrap_or_else(|| panic!("there is no {name}")).id
    })
}

/// The kind of the error below the failure to read a file.
fn refusal(files: &dyn FileSystem, file: FileId) -> (ErrorKind, String) {
    match files.read_at(file, 500_000, &mut [0; 100]) {
        Err(FileSystemError::Read { source, .. }) => (source.kind(), source.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_open_file_of_a_collected_snapshot_is_stale() {
    let archive = ServedArchive::new();
    let days = archive.days();
    let file = found(&days, &["2026", "05", "01", "file"]);
    let disk = found(&days, &["2026", "05", "01", "disk", "disk.raw"]);
    archive.empty();
    for part in [file, disk] {
        assert_ne!(refusal(&days, part).0, ErrorKind::StaleNetworkFileHandle, "it is damaged");
    }
    archive.forget_all();
    for part in [file, disk] {
        let (kind, text) = refusal(&days, part);
        assert_eq!(kind, ErrorKind::StaleNetworkFileHandle);
        assert!(text.contains("was forgotten, and its data may have been collected"), "{text}");
    }
    assert!(days.child(days.root(), b"2026").unwrap().is_none(), "it is no longer shown");
}

#[test]
fn a_disk_in_use_of_a_collected_snapshot_is_stale() {
    let archive = ServedArchive::new();
    let cached = Arc::new(CachedBlocks::new(Arc::clone(&archive.blocks) as _));
    let moments = TimeText { parse_last: |_| None, show: |_| "2026-05-01 00:00:00".into() };
    let disks = SnapshotDisks::new(archive.list(), cached, moments);
    let (_, found) = disks.find_snapshot("disk", &SnapshotFilter::default()).unwrap();
    archive.empty();
    let refused = || found.disk.read_at(500_000, &mut [0; 100]).unwrap_err().kind();
    assert_ne!(refused(), ErrorKind::StaleNetworkFileHandle, "it is damaged");
    archive.forget_all();
    assert_eq!(refused(), ErrorKind::StaleNetworkFileHandle);
    assert_eq!(found.disk.map(500_000..600_000).unwrap_err().kind(), ErrorKind::StaleNetworkFileHandle);
    assert!(disks.find_snapshot("disk", &SnapshotFilter::default()).is_err());
}

#[test]
fn a_collected_file_is_not_sent_as_zeros() {
    let archive = ServedArchive::new();
    let server = webdav::serve("127.0.0.1:0".parse().unwrap(), false, Arc::new(archive.days())).unwrap();
    let address = server.address();
    let ask = |offset: u32| {
        let mut socket = TcpStream::connect(address).unwrap();
        let range = format!("bytes={offset}-{}", offset + 7);
        let head = format!("Host: {address}\r\nRange: {range}\r\nConnection: close");
        write!(socket, "GET /2026/05/01/file HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        // The server may end the connection within an answer.
        drop(socket.read_to_end(&mut answer));
        answer
    };
    let expected = |offset: u32| [offset / 4, offset / 4 + 1].map(u32::to_le_bytes).concat();
    assert!(ask(600_000).ends_with(&expected(600_000)));
    archive.empty();
    archive.forget_all();
    // Another part of the file, which is in no cache.
    let answer = ask(1_100_000);
    assert!(!answer.ends_with(&expected(1_100_000)) && !answer.ends_with(&[0; 8]), "{answer:?}");
    drop(server);
}
