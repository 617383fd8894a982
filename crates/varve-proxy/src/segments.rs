//! A folder of small stores, the segments. Each is made, filled and removed as a whole, which frees
//! space although logs are append-only.
//!
//! ```text
//! segments.toml       the slots with segments, oldest first, and the progress of their delivery
//! slots/00/…          a slot: a store of SHA-1 scores, or nothing
//! slots/01/…
//! ```
//!
//! The order of writes, each step durable before the next:
//! - Beginning a segment: empty its slot, make the store, add it to `segments.toml`. Blocks are put
//!   into it only after that.
//! - Removing a segment: remove it from `segments.toml`, empty its slot.
//!
//! The contents of a slot that is not listed were therefore never acknowledged, or are not needed
//! any more. `segments.toml` contains a checksum of itself. If it is damaged or missing, every slot
//! that holds a store is taken for a segment of which nothing has been delivered. That costs time,
//! but loses no data.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use varve_block::has_kind;
use varve_log::{ArenaMap, CompressionLevel};
use varve_store::{
    CreateError, Encryption, OpenStoreError, PassphraseCost, ScoreAlgorithm, Store, StoreAccess, StoreConfig,
};
use varve_world::{FileLock, FileName, LockError, World};
use xxhash_rust::xxh3::xxh3_64;

use crate::shards::ScoreRange;
use crate::subfolder_storage::SubfolderStorage;

/// The maximum number of segments.
pub(crate) const SEGMENTS_MAX: u32 = 64;

/// The format version. Version 2 added the range of scores of a segment.
const FORMAT: u32 = 2;
const LIST: &str = "segments.toml";
const LIST_BYTES_MAX: u64 = 64 << 10;
const CODE: &str = "# xxh3 ";
/// Arenas are small, because the names of one are held in memory.
const ARENA_BYTES: u64 = 16 << 20;
/// Segments are short-lived, so compression is cheap and fast.
const COMPRESSION_LEVEL: i32 = 1;
/// The size of each store's read cache.
const STORE_CACHE_BYTES: u64 = 8 << 20;
/// The folders of a store. The root is last: it holds the file that makes the folder a store.
const STORE_FOLDERS: [&str; 6] = ["arenas", "index", "parity", "quarantine", "keys", ""];

/// The purpose of a folder of segments. A folder of one purpose is refused for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SegmentPurpose {
    /// Its blocks wait to be delivered, and may exist nowhere else.
    WriteBuffer,
    /// Its blocks are copies.
    LookAside,
}

/// A segment in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentEntry {
    /// Ascending; never reused.
    pub(crate) number: u64,
    /// The slot that it occupies.
    pub(crate) slot: u32,
    /// The number of its blocks, in the log's order, that are known to be delivered.
    pub(crate) through: u64,
    /// The range of its scores.
    #[serde(default = "all_scores")]
    pub(crate) scores: ScoreRange,
}

fn all_scores() -> ScoreRange {
    ScoreRange::ALL
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SegmentList {
    format: u32,
    purpose: SegmentPurpose,
    #[serde(default)]
    segment: Vec<SegmentEntry>,
}

/// Why a folder of segments could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenSegmentsError {
    /// Another process uses the folder.
    #[error("cannot lock the folder of a proxy")]
    Lock(#[from] LockError),
    /// A newer version of the program has written the list.
    #[error(
        "{LIST} has format {format}; this program reads formats up to {FORMAT}: use a newer version of it"
    )]
    NewerFormat { format: u32 },
    /// The folder has another purpose.
    #[error("the folder holds a {actual}, not a {expected}: give each proxy a folder of its own")]
    OtherPurpose { actual: &'static str, expected: &'static str },
    /// The list is damaged or missing, and the folder's purpose is therefore unknown.
    #[error(
        "{LIST} is damaged or missing: if the folder is a look-aside, remove it, because it holds only copies"
    )]
    Damaged,
    /// The folder holds a foreign file.
    #[error("the folder holds {name}, which is not a file of a proxy: give the proxy an empty folder")]
    NotEmpty { name: FileName },
    #[error("{file}")]
    Storage { file: FileName, source: io::Error },
    /// A segment with undelivered blocks cannot be opened.
    #[error(
        "slots/{slot:02} holds undelivered blocks, and cannot be opened: repair it like any store, or move it away and lose them"
    )]
    Segment { slot: u32, source: Box<OpenStoreError> },
}

has_kind!(OpenSegmentsError: Self::NewerFormat { .. } => NewerVersion);

/// Why a segment could not be begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    #[error("slots/{slot:02} cannot be emptied")]
    Clear { slot: u32, source: io::Error },
    #[error("no store can be made in slots/{slot:02}")]
    Create { slot: u32, source: Box<CreateError> },
    #[error("the store that was made in slots/{slot:02} cannot be opened")]
    Open { slot: u32, source: Box<OpenStoreError> },
}

/// A folder of segments; see the module.
pub(crate) struct SegmentFolder {
    world: World,
    purpose: SegmentPurpose,
    holder: String,
    _lock: Box<dyn FileLock>,
}

impl SegmentPurpose {
    fn text(self) -> &'static str {
        match self {
            Self::WriteBuffer => "write buffer",
            Self::LookAside => "look-aside",
        }
    }
}

fn name(text: &str) -> FileName {
    FileName::new(text).expect("a plain name")
}

fn failed(file: &FileName) -> impl FnOnce(io::Error) -> OpenSegmentsError + use<> {
    let file = file.clone();
    move |source| OpenSegmentsError::Storage { file, source }
}

/// Parses a list, or returns its format as an error if that is newer. Returns `None` for a damaged
/// list.
fn parse(text: &[u8]) -> Option<Result<SegmentList, u32>> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let text = std::str::from_utf8(text).ok()?;
    let (body, code) = text.rsplit_once(CODE)?;
    let code = u64::from_str_radix(code.trim_end(), 16).ok()?;
    if xxh3_64(body.as_bytes()) != code {
        return None;
    }
    let Format { format } = toml::from_str(body).ok()?;
    if format > FORMAT {
        return Some(Err(format));
    }
    toml::from_str(body).ok().map(Ok)
}

impl SegmentFolder {
    /// Opens the folder, or initialises an empty one. Returns its segments.
    pub(crate) fn open(
        world: World,
        purpose: SegmentPurpose,
        holder: &str,
    ) -> Result<(Self, Vec<SegmentEntry>), OpenSegmentsError> {
        let storage = Arc::clone(&world.storage);
        let (lock_file, list_file) = (name("lock"), name(LIST));
        // Creates the folder, too, if necessary.
        match storage.create(&lock_file) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(&lock_file)(error));
            }
            _ => {}
        }
        let lock = storage.lock(&lock_file, holder)?;
        let folder = Self { world, purpose, holder: holder.to_owned(), _lock: lock };
        let text = match storage.read_whole(&list_file, LIST_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Some(Vec::new()),
            other => Some(other.map_err(failed(&list_file))?),
        };
        let entries = match text.as_deref().map(parse) {
            Some(Some(Err(format))) => return Err(OpenSegmentsError::NewerFormat { format }),
            Some(Some(Ok(list))) if list.purpose != purpose => {
                return Err(OpenSegmentsError::OtherPurpose {
                    actual: list.purpose.text(),
                    expected: purpose.text(),
                });
            }
            Some(Some(Ok(list))) if is_sound(&list.segment) => list.segment,
            damaged => {
                let entries = folder.found_in_slots()?;
                let is_damaged = damaged.is_some() || !entries.is_empty();
                if is_damaged && purpose == SegmentPurpose::LookAside {
                    // The folder may be anything, even a write buffer. A look-aside only holds
                    // copies, so it can be remade.
                    return Err(OpenSegmentsError::Damaged);
                }
                if is_damaged {
                    tracing::warn!(
                        segments = entries.len(),
                        "{LIST} is damaged or missing: all blocks in the slots are treated as undelivered"
                    );
                } else {
                    folder.check_empty()?;
                }
                folder.note(&entries).map_err(failed(&list_file))?;
                entries
            }
        };
        for slot in (0..SEGMENTS_MAX).filter(|slot| entries.iter().all(|entry| entry.slot != *slot)) {
            folder.clear(slot).map_err(failed(&name(&slot_folder(slot))))?;
        }
        Ok((folder, entries))
    }

    /// Refuses a folder that holds foreign files.
    fn check_empty(&self) -> Result<(), OpenSegmentsError> {
        let listed = self.world.storage.list("").map_err(failed(&name(LIST)))?;
        let ours = ["lock", LIST, "segments.toml.new"];
        match listed.into_iter().find(|file| !ours.contains(&file.as_str())) {
            Some(name) => Err(OpenSegmentsError::NotEmpty { name }),
            None => Ok(()),
        }
    }

    /// Makes a list entry for each slot that holds a store.
    fn found_in_slots(&self) -> Result<Vec<SegmentEntry>, OpenSegmentsError> {
        let mut entries = Vec::new();
        for slot in 0..SEGMENTS_MAX {
            let files = self.world.storage.list(&slot_folder(slot)).map_err(failed(&name(LIST)))?;
            if files.iter().any(|file| file.as_str().ends_with("/config.toml")) {
                let number = entries.len() as u64 + 1;
                entries.push(SegmentEntry { number, slot, through: 0, scores: ScoreRange::ALL });
            }
        }
        Ok(entries)
    }

    /// Replaces the list. It is durable on return. After an error, the list may be the old or the
    /// new one.
    pub(crate) fn note(&self, entries: &[SegmentEntry]) -> io::Result<()> {
        let list = SegmentList { format: FORMAT, purpose: self.purpose, segment: entries.to_vec() };
        let body = toml::to_string(&list).map_err(io::Error::other)?;
        let body = format!("# The {} of a proxy of Varve's.\n{body}", self.purpose.text());
        let text = format!("{body}{CODE}{:016x}\n", xxh3_64(body.as_bytes()));
        self.world.storage.replace(&name(LIST), text.as_bytes())
    }

    fn world_of(&self, slot: u32) -> World {
        let storage = Arc::new(SubfolderStorage::new(Arc::clone(&self.world.storage), slot_folder(slot)));
        World { storage, ..self.world.clone() }
    }

    /// Opens the store in a slot for writing, and recovers it from a crash.
    pub(crate) fn open_store(&self, slot: u32) -> Result<Store, OpenStoreError> {
        let access = StoreAccess::Write { holder: &self.holder };
        let store = Store::open(self.world_of(slot), None, access, &mut |_| {})?;
        store.bound_caches(STORE_CACHE_BYTES);
        Ok(store)
    }

    /// Empties a slot and makes a store in it. The caller adds it to the list.
    pub(crate) fn begin_store(&self, slot: u32) -> Result<Store, BeginError> {
        self.clear(slot).map_err(|source| BeginError::Clear { slot, source })?;
        let mut id = [0; 16];
        self.world.random.fill(&mut id).map_err(|source| BeginError::Clear { slot, source })?;
        let mut config = StoreConfig::new(id);
        config.score = ScoreAlgorithm::Sha1;
        config.encryption = Encryption::None;
        config.arena_map = ArenaMap::new(ARENA_BYTES).expect("between the bounds");
        config.compression_level = CompressionLevel::new(COMPRESSION_LEVEL).expect("between the bounds");
        Store::create(&self.world_of(slot), &config, None, PassphraseCost::default())
            .map_err(|source| BeginError::Create { slot, source: Box::new(source) })?;
        self.open_store(slot).map_err(|source| BeginError::Open { slot, source: Box::new(source) })
    }

    /// Removes the contents of a slot. The removal is durable on return.
    pub(crate) fn clear(&self, slot: u32) -> io::Result<()> {
        let storage = &self.world.storage;
        let whole = slot_folder(slot);
        let mut changed = false;
        for folder in STORE_FOLDERS {
            let folder = if folder.is_empty() { whole.clone() } else { format!("{whole}/{folder}") };
            let files = storage.list(&folder)?;
            for file in &files {
                storage.remove(file)?;
            }
            if !files.is_empty() {
                storage.sync_folder(&folder)?;
                changed = true;
            }
        }
        if changed {
            storage.sync_folder(&whole)?;
        }
        Ok(())
    }

    /// Empties the slots of the segments that nobody reads any more. The others stay in the list,
    /// and so does their space.
    pub(crate) fn clear_unread<S>(&self, gone: &mut Vec<Arc<S>>, into_store: fn(S) -> (u32, Store)) {
        for segment in std::mem::take(gone) {
            match Arc::try_unwrap(segment) {
                Ok(segment) => {
                    let (slot, store) = into_store(segment);
                    drop(store);
                    // Remaining files are removed before the slot is used again, or when the folder
                    // is opened again.
                    if let Err(error) = self.clear(slot) {
                        tracing::warn!(%error, slot, "a segment that is not needed could not be removed yet");
                    }
                }
                Err(in_use) => gone.push(in_use),
            }
        }
    }

    /// The bytes of the arenas in a slot.
    pub(crate) fn bytes_in(&self, slot: u32) -> io::Result<u64> {
        let storage = &self.world.storage;
        let files = storage.list(&format!("{}/arenas", slot_folder(slot)))?;
        files.iter().map(|file| storage.length(file)).sum()
    }
}

fn slot_folder(slot: u32) -> String {
    format!("slots/{slot:02}")
}

/// Reports whether a list is consistent.
fn is_sound(entries: &[SegmentEntry]) -> bool {
    let ascending = entries.is_sorted_by(|one, next| one.number < next.number);
    let ranges = entries.iter().all(|entry| entry.scores.first <= entry.scores.last);
    let mut slots: Vec<u32> = entries.iter().map(|entry| entry.slot).collect();
    slots.sort_unstable();
    slots.dedup();
    ascending && ranges && slots.len() == entries.len() && slots.iter().all(|slot| *slot < SEGMENTS_MAX)
}

#[cfg(test)]
mod tests {
    use varve_world::{MemoryStorage, Storage};

    use super::*;

    fn open(
        storage: &MemoryStorage,
        purpose: SegmentPurpose,
    ) -> Result<(SegmentFolder, Vec<SegmentEntry>), OpenSegmentsError> {
        SegmentFolder::open(World::deterministic(Arc::new(storage.clone()), 7), purpose, "a test")
    }

    #[test]
    fn what_the_list_does_not_name_is_removed_and_the_rest_stays() {
        let storage = MemoryStorage::new();
        let kept = SegmentEntry { number: 9, slot: 3, through: 41, scores: ScoreRange { first: 5, last: 7 } };
        {
            let (folder, entries) = open(&storage, SegmentPurpose::WriteBuffer).unwrap();
            assert_eq!(entries, []);
            drop(folder.begin_store(3).unwrap());
            drop(folder.begin_store(4).unwrap());
            folder.note(&[kept]).unwrap();
        }
        let (folder, entries) = open(&storage, SegmentPurpose::WriteBuffer).unwrap();
        assert_eq!(entries, [kept]);
        folder.open_store(3).unwrap();
        assert_eq!(storage.list("slots/04").unwrap(), [], "nobody has been told of it");
    }

    #[test]
    fn a_list_that_is_damaged_or_gone_loses_nothing() {
        let storage = MemoryStorage::new();
        {
            let (folder, _) = open(&storage, SegmentPurpose::WriteBuffer).unwrap();
            drop(folder.begin_store(3).unwrap());
            folder
                .note(&[SegmentEntry {
                    number: 9,
                    slot: 3,
                    through: 41,
                    scores: ScoreRange { first: 5, last: 7 },
                }])
                .unwrap();
        }
        let list = storage.read_whole_of(LIST);
        let found = [SegmentEntry { number: 1, slot: 3, through: 0, scores: ScoreRange::ALL }];
        // A 4 that has turned into a 5 would mark an undelivered block as delivered.
        let changed = String::from_utf8(list.clone()).unwrap().replace("41", "51").into_bytes();
        for damaged in [changed, list[..list.len() / 2].to_vec(), Vec::new(), vec![0xff; 100_000]] {
            storage.set_contents(&name(LIST), damaged);
            assert_eq!(open(&storage, SegmentPurpose::WriteBuffer).unwrap().1, found);
        }
        storage.remove(&name(LIST)).unwrap();
        assert_eq!(open(&storage, SegmentPurpose::WriteBuffer).unwrap().1, found);
    }

    #[test]
    fn a_list_of_the_first_format_is_read() {
        let storage = MemoryStorage::new();
        {
            let (folder, _) = open(&storage, SegmentPurpose::WriteBuffer).unwrap();
            drop(folder.begin_store(3).unwrap());
        }
        let body =
            "format = 1\npurpose = \"write-buffer\"\n\n[[segment]]\nnumber = 9\nslot = 3\nthrough = 41\n";
        let text = format!("{body}{CODE}{:016x}\n", xxh3_64(body.as_bytes()));
        storage.set_contents(&name(LIST), text.into_bytes());
        let expected = [SegmentEntry { number: 9, slot: 3, through: 41, scores: ScoreRange::ALL }];
        assert_eq!(open(&storage, SegmentPurpose::WriteBuffer).unwrap().1, expected);
    }

    #[test]
    fn a_folder_is_not_taken_for_another_kind_or_over_from_somebody() {
        let storage = MemoryStorage::new();
        drop(open(&storage, SegmentPurpose::WriteBuffer).unwrap());
        let other = open(&storage, SegmentPurpose::LookAside).map(drop).unwrap_err();
        assert!(matches!(other, OpenSegmentsError::OtherPurpose { .. }), "{other}");
        let foreign = MemoryStorage::new();
        foreign.create(&name("diary.txt")).unwrap();
        let refused = open(&foreign, SegmentPurpose::LookAside).map(drop).unwrap_err();
        assert!(matches!(refused, OpenSegmentsError::NotEmpty { .. }), "{refused}");
        let held = open(&storage, SegmentPurpose::WriteBuffer).unwrap();
        let second = open(&storage, SegmentPurpose::WriteBuffer).map(drop).unwrap_err();
        assert!(matches!(second, OpenSegmentsError::Lock(_)), "{second}");
        drop(held);
    }

    trait ReadWholeOf {
        fn read_whole_of(&self, file: &str) -> Vec<u8>;
    }

    impl ReadWholeOf for MemoryStorage {
        fn read_whole_of(&self, file: &str) -> Vec<u8> {
            let storage: &dyn Storage = self;
            storage.read_whole(&name(file), LIST_BYTES_MAX).unwrap()
        }
    }
}
