//! A replica as the read-only folder of a store, so that the engine opens it unchanged.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::to_usize;
use varve_log::ArenaId;
use varve_store::{IndexKind, StoreConfig};
use varve_world::{FileLock, FileName, LockError, Storage};

use crate::objects::listing::CONFIG;
use crate::reading::arena_reader::ArenaReader;
use crate::reading::range_cache::RangeCache;
use crate::reading::read_ahead::ReadAhead;
use crate::reading::replica::{Replica, to_io};

/// The longest single read of a log. It bounds the memory for a forged length.
const READ_BYTES_MAX: usize = 64 << 20;
/// The folder of hints, which belong to this machine.
const HINTS: &str = "index";

/// A read-only store in a replica. `index/` does not come from the replica, but from a local
/// storage.
pub struct ReplicaStorage {
    reader: Arc<ArenaReader>,
    ahead: Option<ReadAhead>,
    /// The adapted `config.toml`, once it was read.
    config: Mutex<Option<Bytes>>,
    hints: Option<Arc<dyn Storage>>,
}

impl ReplicaStorage {
    /// Makes a view of `replica`. Without a cache, every command fetches again.
    #[must_use]
    pub fn new(replica: Arc<Replica>, cache: Option<RangeCache>, hints: Option<Arc<dyn Storage>>) -> Self {
        let reader = Arc::new(ArenaReader::new(replica, cache));
        Self { reader, ahead: None, config: Mutex::default(), hints }
    }

    /// Makes a view that also fetches ahead of a reader in order, on threads of its own.
    ///
    /// # Errors
    /// [`io::Error`] if the system has no thread for it.
    pub fn reading_ahead(self) -> io::Result<Self> {
        let ahead = Some(ReadAhead::start(&self.reader)?);
        Ok(Self { ahead, ..self })
    }

    fn replica(&self) -> &Replica {
        self.reader.replica()
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
        if file.as_str() != CONFIG {
            return self.replica().read_setting(file).map_err(to_io);
        }
        let mut config = self.config.lock();
        if let Some(text) = &*config {
            return Ok(text.clone());
        }
        let text = self.replica().read_setting(file).map_err(to_io)?;
        let parsed = std::str::from_utf8(&text).ok().and_then(|text| StoreConfig::from_text(text).ok());
        let text = match parsed {
            Some(config) if config.index != IndexKind::Memory => {
                StoreConfig { index: IndexKind::Memory, ..config }.to_text().into()
            }
            // The engine reports a malformed file.
            _ => text,
        };
        Ok(config.insert(text).clone())
    }
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
                let arena = self.replica().arenas().get(&id).ok_or(io::ErrorKind::NotFound)?;
                if end > arena.bytes() || into.len() > READ_BYTES_MAX {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let goes_on = |place| self.ahead.iter().for_each(|ahead| ahead.go_on(id, place));
                self.reader.read(id, offset..end, &goes_on)?
            }
            None => {
                let whole = self.read_setting(file)?;
                let part = whole.get(to_usize(offset)..to_usize(end));
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
            Some(id) => self.replica().arena_bytes(id),
            None if file.as_str() == CONFIG && self.replica().settings().contains_key(file) => {
                Some(self.read_setting(file)?.len() as u64)
            }
            None => self.replica().settings().get(file).copied(),
        };
        length.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{file}: it is not at the replica"))
        })
    }

    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        if folder == HINTS {
            return self.hints.as_ref().map_or(Ok(Vec::new()), |hints| hints.list(folder));
        }
        let settings = self.replica().settings().keys().filter(|file| file.folder() == folder).cloned();
        let visible = self.replica().arenas().iter().filter(|(_, arena)| arena.is_visible());
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
