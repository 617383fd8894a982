//! A folder of small stores, each of which is made, filled, and dropped as a whole: how space comes back from an append-only log.
//!
//! ```text
//! segments.toml       which slots hold segments, oldest first, and how far each of them is through
//! slots/00/…          a slot: a store of SHA-1 scores, or nothing
//! slots/01/…
//! ```
//!
//! The order of writes, each step durable before the next:
//! - A segment begins: its slot is emptied, the store is made, `segments.toml` names it. Only then is anything put into it.
//! - A segment ends: `segments.toml` no longer names it, its slot is emptied.
//!
//! So what a crash leaves in a slot that is not named was never acknowledged, or is not needed any more. `segments.toml` has a code of its own. If
//! it is damaged or gone, every slot that holds a store is taken for a segment of which nothing is known to be through: that costs time, never
//! data.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use varve_log::{ArenaMap, CompressionLevel};
use varve_store::{
    Access, CreateError, Encryption, OpenError, PassphraseCost, ScoreAlgorithm, Store, StoreConfig,
};
use varve_world::{FileLock, FileName, LockError, World};
use xxhash_rust::xxh3::xxh3_64;

use crate::place::Place;
use crate::shards::ScoreRange;

/// More segments than there ever have to be.
pub(crate) const SEGMENTS_MAX: u32 = 64;

/// Since 2 a segment says which scores it can have.
const FORMAT: u32 = 2;
const LIST: &str = "segments.toml";
const LIST_BYTES_MAX: u64 = 64 << 10;
const CODE: &str = "# xxh3 ";
/// Small arenas: the names of one are held in memory.
const ARENA_BYTES: u64 = 16 << 20;
/// What is kept for a while only is not worth much work.
const COMPRESSION_LEVEL: i32 = 1;
/// Memory for what was read, in each of the stores.
const STORE_CACHE_BYTES: u64 = 8 << 20;
/// The folders of a store; the last one has what makes it a store.
const STORE_FOLDERS: [&str; 6] = ["arenas", "index", "parity", "quarantine", "keys", ""];

/// What a folder of segments is for: one must not be taken for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Purpose {
    /// What is in it is on its way, and may be nowhere else.
    WriteBuffer,
    /// What is in it is somewhere else, too.
    LookAside,
}

/// A segment, as the list has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// Counted up, never used again.
    pub(crate) number: u64,
    /// Where it is.
    pub(crate) slot: u32,
    /// How many of its blocks, in the log's order, are known to be through.
    pub(crate) through: u64,
    /// The scores that it can have.
    #[serde(default = "all_scores")]
    pub(crate) scores: ScoreRange,
}

fn all_scores() -> ScoreRange {
    ScoreRange::ALL
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    format: u32,
    purpose: Purpose,
    #[serde(default)]
    segment: Vec<Entry>,
}

/// Why a folder of segments was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenSegmentsError {
    /// Somebody else has it.
    #[error("the folder of a proxy")]
    Lock(#[from] LockError),
    /// A newer program has written it.
    #[error("{LIST} has format {format}; this program reads up to format {FORMAT}: use a newer one")]
    NewerFormat {
        /// Its format.
        format: u32,
    },
    /// It is there for something else.
    #[error("the folder holds a {actual}, and not a {expected}: give each proxy a folder of its own")]
    OtherPurpose {
        /// What it holds.
        actual: &'static str,
        /// What it was to hold.
        expected: &'static str,
    },
    /// What is in it cannot be told.
    #[error(
        "{LIST} is damaged or gone: if the folder is a look-aside, remove it, as it holds nothing but copies"
    )]
    Damaged,
    /// Something is in the way.
    #[error("the folder holds {name}, which no proxy has put there: give the proxy an empty folder")]
    NotEmpty {
        /// What is there.
        name: FileName,
    },
    /// Files cannot be read or written.
    #[error("{file}")]
    Storage {
        /// Which.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
    /// One of the stores cannot be opened.
    #[error(
        "slots/{slot:02} holds blocks that are not through, and cannot be opened: mend it as any store, or move it away and lose them"
    )]
    Segment {
        /// Where it is.
        slot: u32,
        /// Why not.
        source: Box<OpenError>,
    },
}

/// Why a segment was not begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    #[error("slots/{slot:02} cannot be emptied")]
    Clear { slot: u32, source: io::Error },
    #[error("no store can be made in slots/{slot:02}")]
    Create { slot: u32, source: Box<CreateError> },
    #[error("the store that was made in slots/{slot:02} cannot be opened")]
    Open { slot: u32, source: Box<OpenError> },
}

/// See above.
pub(crate) struct SegmentFolder {
    world: World,
    purpose: Purpose,
    holder: String,
    _lock: Box<dyn FileLock>,
}

impl Purpose {
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

/// What the list says, or its format if that is a newer one; `None` if it is damaged.
fn parse(text: &[u8]) -> Option<Result<List, u32>> {
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
    /// Opens the folder, or begins one in an empty one, and says which segments there are.
    pub(crate) fn open(
        world: World,
        purpose: Purpose,
        holder: &str,
    ) -> Result<(Self, Vec<Entry>), OpenSegmentsError> {
        let storage = Arc::clone(&world.storage);
        let (lock_file, list_file) = (name("lock"), name(LIST));
        // The folder may not be there yet.
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
                if is_damaged && purpose == Purpose::LookAside {
                    // It may be anything, a write buffer too; and a look-aside holds nothing but copies.
                    return Err(OpenSegmentsError::Damaged);
                }
                if is_damaged {
                    tracing::warn!(
                        segments = entries.len(),
                        "{LIST} is damaged or gone: all that is in the slots is taken for not yet through"
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

    /// Nothing of somebody else's is taken over.
    fn check_empty(&self) -> Result<(), OpenSegmentsError> {
        let listed = self.world.storage.list("").map_err(failed(&name(LIST)))?;
        let ours = ["lock", LIST, "segments.toml.new"];
        match listed.into_iter().find(|file| !ours.contains(&file.as_str())) {
            Some(name) => Err(OpenSegmentsError::NotEmpty { name }),
            None => Ok(()),
        }
    }

    /// A segment for each slot that holds a store.
    fn found_in_slots(&self) -> Result<Vec<Entry>, OpenSegmentsError> {
        let mut entries = Vec::new();
        for slot in 0..SEGMENTS_MAX {
            let files = self.world.storage.list(&slot_folder(slot)).map_err(failed(&name(LIST)))?;
            if files.iter().any(|file| file.as_str().ends_with("/config.toml")) {
                let number = entries.len() as u64 + 1;
                entries.push(Entry { number, slot, through: 0, scores: ScoreRange::ALL });
            }
        }
        Ok(entries)
    }

    /// Makes the list say this. Durable when it returns; if it fails, the list may say either.
    pub(crate) fn note(&self, entries: &[Entry]) -> io::Result<()> {
        let list = List { format: FORMAT, purpose: self.purpose, segment: entries.to_vec() };
        let body = toml::to_string(&list).map_err(io::Error::other)?;
        let body = format!("# The {} of a proxy of Varve's.\n{body}", self.purpose.text());
        let text = format!("{body}{CODE}{:016x}\n", xxh3_64(body.as_bytes()));
        self.world.storage.replace(&name(LIST), text.as_bytes())
    }

    fn world_of(&self, slot: u32) -> World {
        let storage = Arc::new(Place::new(Arc::clone(&self.world.storage), slot_folder(slot)));
        World { storage, ..self.world.clone() }
    }

    /// Opens the store in a slot to be written, as a crash has left it.
    pub(crate) fn open_store(&self, slot: u32) -> Result<Store, OpenError> {
        let access = Access::Write { holder: &self.holder };
        let store = Store::open(self.world_of(slot), None, access, &mut |_| {})?;
        store.bound_caches(STORE_CACHE_BYTES);
        Ok(store)
    }

    /// Empties a slot and makes a store in it. The list does not name it yet.
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

    /// Removes all that is in a slot. That nothing of it comes back is durable when this returns.
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

    /// How much room a slot takes, in bytes.
    pub(crate) fn bytes_in(&self, slot: u32) -> io::Result<u64> {
        let storage = &self.world.storage;
        let files = storage.list(&format!("{}/arenas", slot_folder(slot)))?;
        files.iter().map(|file| storage.length(file)).sum()
    }
}

fn slot_folder(slot: u32) -> String {
    format!("slots/{slot:02}")
}

/// Whether a list can be what this program has written.
fn is_sound(entries: &[Entry]) -> bool {
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
        purpose: Purpose,
    ) -> Result<(SegmentFolder, Vec<Entry>), OpenSegmentsError> {
        SegmentFolder::open(World::deterministic(Arc::new(storage.clone()), 7), purpose, "a test")
    }

    #[test]
    fn what_the_list_does_not_name_is_removed_and_the_rest_stays() {
        let storage = MemoryStorage::new();
        let kept = Entry { number: 9, slot: 3, through: 41, scores: ScoreRange { first: 5, last: 7 } };
        {
            let (folder, entries) = open(&storage, Purpose::WriteBuffer).unwrap();
            assert_eq!(entries, []);
            drop(folder.begin_store(3).unwrap());
            drop(folder.begin_store(4).unwrap());
            folder.note(&[kept]).unwrap();
        }
        let (folder, entries) = open(&storage, Purpose::WriteBuffer).unwrap();
        assert_eq!(entries, [kept]);
        folder.open_store(3).unwrap();
        assert_eq!(storage.list("slots/04").unwrap(), [], "nobody has been told of it");
    }

    #[test]
    fn a_list_that_is_damaged_or_gone_loses_nothing() {
        let storage = MemoryStorage::new();
        {
            let (folder, _) = open(&storage, Purpose::WriteBuffer).unwrap();
            drop(folder.begin_store(3).unwrap());
            folder
                .note(&[Entry { number: 9, slot: 3, through: 41, scores: ScoreRange { first: 5, last: 7 } }])
                .unwrap();
        }
        let list = storage.read_whole_of(LIST);
        let found = [Entry { number: 1, slot: 3, through: 0, scores: ScoreRange::ALL }];
        // A 4 that has become a 5 would pass for a block that is through.
        let changed = String::from_utf8(list.clone()).unwrap().replace("41", "51").into_bytes();
        for damaged in [changed, list[..list.len() / 2].to_vec(), Vec::new(), vec![0xff; 100_000]] {
            storage.set_contents(&name(LIST), damaged);
            assert_eq!(open(&storage, Purpose::WriteBuffer).unwrap().1, found);
        }
        storage.remove(&name(LIST)).unwrap();
        assert_eq!(open(&storage, Purpose::WriteBuffer).unwrap().1, found);
    }

    #[test]
    fn a_list_of_the_first_format_is_read() {
        let storage = MemoryStorage::new();
        {
            let (folder, _) = open(&storage, Purpose::WriteBuffer).unwrap();
            drop(folder.begin_store(3).unwrap());
        }
        let body =
            "format = 1\npurpose = \"write-buffer\"\n\n[[segment]]\nnumber = 9\nslot = 3\nthrough = 41\n";
        let text = format!("{body}{CODE}{:016x}\n", xxh3_64(body.as_bytes()));
        storage.set_contents(&name(LIST), text.into_bytes());
        let expected = [Entry { number: 9, slot: 3, through: 41, scores: ScoreRange::ALL }];
        assert_eq!(open(&storage, Purpose::WriteBuffer).unwrap().1, expected);
    }

    #[test]
    fn a_folder_is_not_taken_for_another_kind_or_over_from_somebody() {
        let storage = MemoryStorage::new();
        drop(open(&storage, Purpose::WriteBuffer).unwrap());
        let other = open(&storage, Purpose::LookAside).map(drop).unwrap_err();
        assert!(matches!(other, OpenSegmentsError::OtherPurpose { .. }), "{other}");
        let foreign = MemoryStorage::new();
        foreign.create(&name("diary.txt")).unwrap();
        let refused = open(&foreign, Purpose::LookAside).map(drop).unwrap_err();
        assert!(matches!(refused, OpenSegmentsError::NotEmpty { .. }), "{refused}");
        let held = open(&storage, Purpose::WriteBuffer).unwrap();
        let second = open(&storage, Purpose::WriteBuffer).map(drop).unwrap_err();
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
