//! A replica as the read-only folder of a store, so that the engine opens it unchanged.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use varve_log::ArenaId;
use varve_store::{IndexKind, StoreConfig};
use varve_world::{FileLock, FileName, LockError, Storage};

use crate::objects::listing::CONFIG;
use crate::reading::range_cache::{BLOCK_BYTES, RangeCache};
use crate::reading::replica::{Replica, to_io};

/// The most read-ahead of a sequential reader.
const AHEAD_BLOCKS_MAX: u64 = 32;
/// The most blocks of one request.
const FETCH_BLOCKS_MAX: u64 = 64;
/// The longest single read of a log. It bounds the memory for a forged length.
const READ_BYTES_MAX: usize = 64 << 20;
/// The most objects whose readers are tracked.
const READERS_MAX: usize = 256;
/// The folder of hints, which belong to this machine.
const HINTS: &str = "index";

/// A read-only store in a replica. `index/` does not come from the replica, but from a local
/// storage.
pub struct ReplicaStorage {
    replica: Arc<Replica>,
    cache: Option<RangeCache>,
    hints: Option<Arc<dyn Storage>>,
    readers: Mutex<BTreeMap<FileName, SequentialReader>>,
}

/// The position at which a sequential reader of an object continues.
#[derive(Clone, Copy)]
struct SequentialReader {
    next_block: u64,
    ahead_blocks: u64,
}

impl ReplicaStorage {
    /// Makes a view of `replica`. Without a cache, every read fetches again.
    #[must_use]
    pub fn new(replica: Arc<Replica>, cache: Option<RangeCache>, hints: Option<Arc<dyn Storage>>) -> Self {
        Self { replica, cache, hints, readers: Mutex::default() }
    }

    fn hints(&self, file: &FileName) -> Option<&dyn Storage> {
        self.hints.as_deref().filter(|_| file.folder() == HINTS)
    }

    fn own(&self, file: &FileName) -> io::Result<&dyn Storage> {
        self.hints(file).ok_or_else(read_only)
    }

    /// Reads a small file, adapted for the reader.
    ///
    /// The index of the store is in memory, whatever `config.toml` says. No key authenticates that
    /// setting, so a malicious target could demand any amount of memory. Also, a setting for the
    /// store's machine need not fit this one.
    fn read_setting(&self, file: &FileName) -> io::Result<Bytes> {
        let text = self.replica.read_setting(file).map_err(to_io)?;
        if file.as_str() != CONFIG {
            return Ok(text);
        }
        let parsed = std::str::from_utf8(&text).ok().and_then(|text| StoreConfig::from_text(text).ok());
        Ok(match parsed {
            Some(config) if config.index != IndexKind::Memory => {
                StoreConfig { index: IndexKind::Memory, ..config }.to_text().into()
            }
            // The engine reports a malformed file.
            _ => text,
        })
    }

    /// Reads a part of an object through the cache.
    fn read_object(&self, object: &FileName, range: Range<u64>, object_bytes: u64) -> io::Result<Bytes> {
        let target = self.replica.target();
        let Some(cache) = &self.cache else { return target.get(object, range).map_err(to_io) };
        let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let mut found: BTreeMap<u64, Bytes> = BTreeMap::new();
        for block in blocks.clone() {
            found.extend(cache.get(object, block).map(|bytes| (block, bytes)));
        }
        let mut block = blocks.start;
        while block < blocks.end {
            if found.contains_key(&block) {
                block += 1;
                continue;
            }
            // One request for all neighbouring missing blocks, with read-ahead if the reader seems
            // sequential.
            let missing = (block..blocks.end).take_while(|block| !found.contains_key(block)).count() as u64;
            let reaches_end = block + missing == blocks.end;
            let ahead = if reaches_end { self.ahead_blocks(object, block, missing) } else { 0 };
            let count = (missing + ahead).min(FETCH_BLOCKS_MAX);
            let start = block * BLOCK_BYTES;
            let end = ((block + count) * BLOCK_BYTES).min(object_bytes);
            let fetched = target.get(object, start..end).map_err(to_io)?;
            for (number, piece) in (block..).zip(fetched.chunks(usize::try_from(BLOCK_BYTES).unwrap_or(1))) {
                cache.put(object, number, piece);
                found.insert(number, fetched.slice_ref(piece));
            }
            block += count;
        }
        join(&found, &range)
    }

    /// Returns the read-ahead after the missing blocks from `block` on.
    fn ahead_blocks(&self, object: &FileName, block: u64, missing: u64) -> u64 {
        let mut readers = self.readers.lock();
        if readers.len() >= READERS_MAX && !readers.contains_key(object) {
            readers.pop_first();
        }
        let reader =
            readers.entry(object.clone()).or_insert(SequentialReader { next_block: 0, ahead_blocks: 0 });
        let goes_on = block > 0 && block == reader.next_block;
        reader.ahead_blocks = if goes_on { (reader.ahead_blocks * 2).clamp(1, AHEAD_BLOCKS_MAX) } else { 0 };
        reader.next_block = block + missing + reader.ahead_blocks;
        reader.ahead_blocks
    }
}

/// Joins blocks to the requested range.
fn join(blocks: &BTreeMap<u64, Bytes>, range: &Range<u64>) -> io::Result<Bytes> {
    let mut joined = Vec::with_capacity(usize::try_from(range.end - range.start).unwrap_or(0));
    let mut place = range.start;
    while place < range.end {
        let block = place / BLOCK_BYTES;
        let start = block * BLOCK_BYTES;
        let inside = usize::try_from(place - start).unwrap_or(usize::MAX);
        let wanted = usize::try_from(range.end.min(start + BLOCK_BYTES) - start).unwrap_or(usize::MAX);
        let piece = blocks.get(&block).and_then(|bytes| bytes.get(inside..wanted));
        let piece = piece.ok_or(io::ErrorKind::UnexpectedEof)?;
        joined.extend_from_slice(piece);
        place += piece.len() as u64;
    }
    Ok(joined.into())
}

fn read_only() -> io::Error {
    io::Error::new(
        io::ErrorKind::ReadOnlyFilesystem,
        "a replica cannot be written; `varve clone` makes a store of it",
    )
}

impl Storage for ReplicaStorage {
    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if let Some(hints) = self.hints(file) {
            return hints.read_at(file, offset, into);
        }
        let end = offset.checked_add(into.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        let bytes = match ArenaId::of_file(file) {
            Some(id) => {
                let arena = self.replica.arenas().get(&id).ok_or(io::ErrorKind::NotFound)?;
                if end > arena.bytes() || into.len() > READ_BYTES_MAX {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.replica.read_parts(id, offset..end, |segment, part| {
                    self.read_object(&segment.name.file_name(), part, segment.bytes)
                })?
            }
            None => {
                let whole = self.read_setting(file)?;
                let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
                let part = range.and_then(|(start, end)| whole.get(start..end));
                whole.slice_ref(part.ok_or(io::ErrorKind::UnexpectedEof)?)
            }
        };
        into.copy_from_slice(&bytes);
        Ok(())
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        if let Some(hints) = self.hints(file) {
            return hints.length(file);
        }
        let length = match ArenaId::of_file(file) {
            Some(id) => self.replica.arena_bytes(id),
            None if file.as_str() == CONFIG && self.replica.settings().contains_key(file) => {
                Some(self.read_setting(file)?.len() as u64)
            }
            None => self.replica.settings().get(file).copied(),
        };
        length.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{file}: it is not at the replica"))
        })
    }

    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        if folder == HINTS {
            return self.hints.as_ref().map_or(Ok(Vec::new()), |hints| hints.list(folder));
        }
        let settings = self.replica.settings().keys().filter(|file| file.folder() == folder).cloned();
        let visible = self.replica.arenas().iter().filter(|(_, arena)| arena.is_visible());
        let arenas = visible.map(|(id, _)| id.file_name()).filter(|file| file.folder() == folder);
        Ok(settings.chain(arenas).collect())
    }

    fn create(&self, file: &FileName) -> io::Result<()> {
        self.own(file)?.create(file)
    }

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        self.own(file)?.append(file, bytes)
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        self.own(file)?.truncate(file, length)
    }

    fn sync_soon(&self, file: &FileName) {
        if let Some(hints) = self.hints(file) {
            hints.sync_soon(file);
        }
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        self.own(file)?.sync(file)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        let hints = self.hints.as_ref().filter(|_| folder == HINTS).ok_or_else(read_only)?;
        hints.sync_folder(folder)
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        self.own(from)?.rename(from, to)
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.own(file)?.remove(file)
    }

    fn lock(&self, file: &FileName, _holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        Err(LockError::Storage { file: file.clone(), source: read_only() })
    }
}
