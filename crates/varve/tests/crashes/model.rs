//! Random snapshots, restores, crashes and reopenings, compared with a plain model. Every
//! acknowledged snapshot must exist, and restore to the byte.
#![allow(clippy::cast_possible_truncation)]

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use varve_archive::{Archive, SnapshotContent, SnapshotId, SnapshotRequest, verify};
use varve_content::Progress;
use varve_content::image::{ImagePart, ImageSource, write_image};
use varve_log::{ArenaMap, ClumpBytes};
use varve_store::{
    CompareMode, DiskIndexConfig, Encryption, IndexKind, PassphraseCost, ScoreAlgorithm, Secret, Store,
    StoreAccess, StoreConfig,
};
use varve_upkeep::AuditShare;
use varve_world::{FileName, InlineWorkers, MemoryStorage, Random, SeededRandom, Storage, World};
use zeroize::Zeroizing;

const ARENA_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u32 = 4096;
const IMAGE_BYTES_MAX: usize = 6_000_000;

/// An event in the life of an archive.
#[derive(Debug, Clone)]
enum Event {
    /// The image changes here and there, and a snapshot of it is taken.
    Snapshot { changes: Vec<Change>, length: usize },
    /// The machine stops while it takes a snapshot, after it has read `read` bytes of the image. Of
    /// the bytes of the newest arena that were not synced, `kept` of 255 parts survive.
    Crash { changes: Vec<Change>, read: usize, kept: u8, hints: Hints },
    /// The archive is opened again, after it was closed in order or dropped.
    Reopen { close: bool, hints: Hints },
    /// One of the snapshots is restored.
    Restore { which: prop::sample::Index },
}

/// A part of the image gets other contents.
#[derive(Debug, Clone)]
struct Change {
    at: usize,
    length: usize,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Zeros,
    Text,
    /// Noise from a few seeds only, so that duplicates occur.
    Noise(u8),
}

/// The state of the index before the next opening.
#[derive(Debug, Clone, Copy)]
enum Hints {
    Kept,
    Removed,
    Torn,
}

fn change() -> impl Strategy<Value = Change> {
    let content = prop_oneof![Just(Content::Zeros), Just(Content::Text), (0..40_u8).prop_map(Content::Noise)];
    (0..IMAGE_BYTES_MAX, 1..2_000_000_usize, content).prop_map(|(at, length, content)| Change {
        at,
        length,
        content,
    })
}

fn hints() -> impl Strategy<Value = Hints> {
    prop_oneof![Just(Hints::Kept), Just(Hints::Removed), Just(Hints::Torn)]
}

fn event() -> impl Strategy<Value = Event> {
    let changes = || prop::collection::vec(change(), 0..5);
    prop_oneof![
        4 => (changes(), 0..IMAGE_BYTES_MAX).prop_map(|(changes, length)| Event::Snapshot { changes, length }),
        3 => (changes(), 0..IMAGE_BYTES_MAX, any::<u8>(), hints())
            .prop_map(|(changes, read, kept, hints)| Event::Crash { changes, read, kept, hints }),
        2 => (any::<bool>(), hints()).prop_map(|(close, hints)| Event::Reopen { close, hints }),
        2 => any::<prop::sample::Index>().prop_map(|which| Event::Restore { which }),
    ]
}

fn config() -> impl Strategy<Value = StoreConfig> {
    let names = prop_oneof![
        Just((CompareMode::Hash, ScoreAlgorithm::Blake3)),
        Just((CompareMode::Hash, ScoreAlgorithm::Sha1)),
        Just((CompareMode::Value, ScoreAlgorithm::Blake3)),
    ];
    let encryption = prop_oneof![Just(Encryption::Aes256Gcm), Just(Encryption::None)];
    let index = prop_oneof![Just(IndexKind::Memory), Just(IndexKind::Disk)];
    // Small clumps put much of an image into the log before it is synced.
    let clump = prop_oneof![Just(8 << 10), Just(64 << 10), Just(1 << 20)];
    (names, encryption, index, clump).prop_map(|((compare, score), encryption, index, clump)| {
        let mut config = StoreConfig::new([5; 16]);
        (config.compare, config.score, config.encryption) = (compare, score, encryption);
        config.index = index;
        // With so little memory the index sometimes writes to disk, and its filter becomes too
        // small.
        let memory_bytes = DiskIndexConfig::MEMORY_BYTES_MIN;
        config.disk_index =
            DiskIndexConfig { memory_bytes, expected_blocks: 100, ..DiskIndexConfig::default() };
        config.clump_bytes = ClumpBytes::new(clump).unwrap();
        config.arena_map = ArenaMap::new(ARENA_BYTES).unwrap();
        config
    })
}

/// An image that grows, shrinks and changes.
#[derive(Default)]
struct Image(Vec<u8>);

impl Image {
    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            let end = (change.at + change.length).min(IMAGE_BYTES_MAX);
            if self.0.len() < end {
                self.0.resize(end, 0);
            }
            let piece = &mut self.0[change.at..end];
            match change.content {
                Content::Zeros => piece.fill(0),
                Content::Text => {
                    piece.iter_mut().enumerate().for_each(|(at, byte)| *byte = b'a' + (at % 23) as u8)
                }
                Content::Noise(seed) => SeededRandom::new(seed.into()).fill(piece).unwrap(),
            }
        }
    }
}

/// A source that copies the storage after a number of its bytes were read: the state that a crash
/// at this moment would leave.
struct Watched {
    bytes: io::Cursor<Vec<u8>>,
    picture_at: u64,
    storage: MemoryStorage,
    picture: Arc<Mutex<Option<MemoryStorage>>>,
}

impl Read for Watched {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut picture = self.picture.lock();
        if picture.is_none() && self.bytes.position() >= self.picture_at {
            *picture = Some(self.storage.fork());
        }
        let step = into.len().min(10_000);
        self.bytes.read(&mut into[..step])
    }
}

/// The archive, and the plain model of its contents.
struct Case {
    storage: MemoryStorage,
    archive: Option<Archive>,
    image: Image,
    acknowledged: Vec<(SnapshotId, Vec<u8>)>,
    /// The lengths of the arenas when the last snapshot was acknowledged.
    synced: BTreeMap<FileName, usize>,
    seed: u64,
}

fn world(storage: &MemoryStorage, seed: u64) -> World {
    World::deterministic(Arc::new(storage.clone()), seed)
}

fn secret(config: &StoreConfig) -> Option<Secret> {
    (config.encryption != Encryption::None).then(|| Secret::KeyFile(Zeroizing::new(vec![7; 32])))
}

impl Case {
    fn new(config: &StoreConfig) -> Self {
        let storage = MemoryStorage::new();
        Store::create(&world(&storage, 1), config, secret(config).as_ref(), PassphraseCost::default())
            .unwrap();
        let mut case = Self {
            storage,
            archive: None,
            image: Image::default(),
            acknowledged: Vec::new(),
            synced: BTreeMap::new(),
            seed: 1,
        };
        case.open(config);
        case
    }

    fn open(&mut self, config: &StoreConfig) {
        self.seed += 1;
        let access = StoreAccess::Write { holder: "the model" };
        let world = world(&self.storage, self.seed);
        let store = Store::open(world, secret(config).as_ref(), access, &mut |_| {}).unwrap();
        self.archive = Some(Archive::open(store).unwrap());
        self.check_list();
    }

    fn archive(&self) -> &Archive {
        self.archive.as_ref().unwrap()
    }

    /// The archive lists exactly the acknowledged snapshots. After a crash these may include the
    /// snapshot that was being taken.
    fn check_list(&self) {
        let listed: Vec<_> = self.archive().snapshots().iter().map(|snapshot| snapshot.id).collect();
        let wanted: Vec<_> = self.acknowledged.iter().map(|(id, _)| *id).collect();
        assert_eq!(listed, wanted);
    }

    fn check_all(&self) {
        for which in 0..self.acknowledged.len() {
            self.restore(which);
        }
        let archive = self.archive();
        let verified = verify(archive, Some(AuditShare::ALL), &Progress::new()).unwrap();
        assert!(verified.damage.is_empty() && verified.harm.is_empty(), "{verified:?}");
    }

    fn restore(&self, which: usize) {
        let (id, bytes) = &self.acknowledged[which];
        let archive = self.archive();
        let snapshot = archive.snapshots().iter().find(|snapshot| snapshot.id == *id).unwrap();
        let SnapshotContent::Image(entry) = &snapshot.content else { panic!("an image was archived") };
        let mut restored = Vec::new();
        write_image(
            archive.store(),
            &InlineWorkers,
            &ImagePart::whole(entry),
            &mut restored,
            &Progress::new(),
        )
        .unwrap();
        assert!(restored == *bytes, "snapshot {which} comes back as something else");
    }

    fn snapshot(&mut self, picture_at: u64) -> Option<MemoryStorage> {
        let picture = Arc::new(Mutex::new(None));
        let watched = Watched {
            bytes: io::Cursor::new(self.image.0.clone()),
            picture_at,
            storage: self.storage.clone(),
            picture: Arc::clone(&picture),
        };
        let source = ImageSource::stream(Box::new(watched), Path::new("image"));
        let request = SnapshotRequest { name: "image".into(), ..SnapshotRequest::default() };
        let archive = self.archive.as_mut().unwrap();
        let taken = archive.take_image(&source, BLOCK_BYTES, request, &Progress::new()).unwrap();
        self.acknowledged.push((taken.snapshot.id, self.image.0.clone()));
        picture.lock().take()
    }

    fn arenas(storage: &MemoryStorage) -> BTreeMap<FileName, usize> {
        let names = storage.list("arenas").unwrap();
        names.into_iter().map(|name| (name.clone(), storage.contents(&name).unwrap().len())).collect()
    }

    /// Drops the archive. The disk returns to its copied state, without a part of the unsynced
    /// bytes.
    fn crash(&mut self, read: usize, kept: u8) {
        let acknowledged = self.acknowledged.len();
        let after = self.snapshot(read as u64).unwrap_or_else(|| self.storage.fork());
        // The snapshot was never acknowledged, because the machine had stopped before.
        if read <= self.image.0.len() {
            self.acknowledged.truncate(acknowledged);
        } else {
            self.synced = Self::arenas(&after);
        }
        self.archive = None;
        self.storage = after;
        if let Some((newest, length)) = Self::arenas(&self.storage).pop_last() {
            let synced = self.synced.get(&newest).copied().unwrap_or(0);
            let cut = synced + (length - synced) * usize::from(kept) / 255;
            self.storage.truncate(&newest, cut as u64).unwrap();
        }
    }

    fn spoil(&self, hints: Hints) {
        for file in self.storage.list("index").unwrap() {
            match hints {
                Hints::Kept => {}
                Hints::Removed => self.storage.remove(&file).unwrap(),
                Hints::Torn => {
                    let length = self.storage.length(&file).unwrap();
                    self.storage.truncate(&file, length * 2 / 3).unwrap();
                }
            }
        }
    }

    fn apply(&mut self, config: &StoreConfig, event: &Event) {
        match event {
            Event::Snapshot { changes, length } => {
                self.image.apply(changes);
                self.image.0.truncate((*length).max(IMAGE_BYTES_MAX / 4));
                self.snapshot(u64::MAX);
                self.synced = Self::arenas(&self.storage);
                self.check_list();
            }
            Event::Crash { changes, read, kept, hints } => {
                self.image.apply(changes);
                self.crash(*read, *kept);
                self.spoil(*hints);
                self.open(config);
                self.check_all();
            }
            Event::Reopen { close, hints } => {
                let archive = self.archive.take().unwrap();
                if *close {
                    archive.close().unwrap();
                } else {
                    drop(archive);
                }
                self.spoil(*hints);
                self.open(config);
            }
            Event::Restore { which } => {
                if !self.acknowledged.is_empty() {
                    self.restore(which.index(self.acknowledged.len()));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_time: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_acknowledged_snapshot_is_there(config in config(), events in prop::collection::vec(event(), 1..14)) {
        let mut case = Case::new(&config);
        for event in &events {
            case.apply(&config, event);
        }
        case.check_all();
    }
}
