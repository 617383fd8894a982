//! Writes the successor of an arena: another file with the same number, of a later generation.
//!
//! A successor is written under another name, and takes the arena's name when it is sealed and
//! durable. [`Replacement::finish`] does both for one arena. A collector first seals all successors
//! of a batch, and renames them once the log has recorded all of them.

use std::sync::Arc;

use varve_world::{FileName, Random};

use crate::append_error::AppendError;
use crate::arenas::address::ArenaId;
use crate::arenas::header::ArenaVersion;
use crate::arenas::seals::Seal;
use crate::reading::log::Log;
use crate::records::clump::PackedClump;
use crate::records::directory_page::PAGE_BLOCKS_GOAL;
use crate::records::ledger::Ledger;
use crate::writing::appender::EARLY_BYTES;
use crate::writing::arena_writer::{AppendedPage, ArenaWriter, WriterSession};

/// The identity of an arena's successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Successor {
    pub arena: ArenaId,
    /// A generation that the arena never had.
    pub generation: u32,
    /// The place of its seal in the order of seals: that of the previous seal, or a free one.
    pub ordinal: u64,
    /// The version of its format. It may not be earlier than that of the arena.
    pub version: ArenaVersion,
}

/// The successor of an arena, while it is being written under another name.
pub struct Replacement {
    log: Arc<Log>,
    session: WriterSession,
    writer: ArenaWriter,
    file: FileName,
    ordinal: u64,
    ledger: Ledger,
    pages: Vec<AppendedPage>,
    /// The beginning of the part that the system was not asked yet to write to the disk.
    early_from: u64,
}

/// A successor that is sealed and durable.
#[derive(Debug)]
pub struct ReplacedArena {
    pub seal: Seal,
    pub pages: Vec<AppendedPage>,
    /// The length of its file in bytes.
    pub file_bytes: u64,
}

impl Replacement {
    /// Begins the successor of an arena in `file`, which is removed first if it exists. `ledger`
    /// covers the current seals.
    ///
    /// # Errors
    /// [`AppendError::Storage`]; the arena is unchanged.
    pub fn begin(
        log: &Arc<Log>,
        random: &dyn Random,
        successor: Successor,
        ledger: Ledger,
        file: FileName,
    ) -> Result<Self, AppendError> {
        let Successor { arena, generation, ordinal, version } = successor;
        let failed = |source| AppendError::Storage { arena, source };
        let session = WriterSession::new(random).map_err(failed)?;
        log.storage().remove_if_there(&file).map_err(failed)?;
        // Only arenas of this version and later ones may hold framed clumps.
        let form = (generation, version.max(ArenaVersion::Framed));
        let writer = ArenaWriter::begin(log, random, &session, arena, form, file.clone())?;
        let log = Arc::clone(log);
        Ok(Self { log, session, writer, file, ordinal, ledger, pages: Vec::new(), early_from: 0 })
    }

    /// Returns true if one more clump can be addressed. The successor of a full arena can be longer
    /// than the original, because the rest of a damaged clump is packed differently.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.writer.log_bytes < self.log.config().map.arena_bytes()
    }

    /// Returns the number of bytes that were written so far.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.writer.log_bytes
    }

    /// Appends a clump.
    ///
    /// # Errors
    /// [`AppendError`]; the arena is unchanged.
    pub fn append(&mut self, clump: PackedClump) -> Result<(), AppendError> {
        self.writer.write_clump(self.log.storage().as_ref(), &mut self.session, clump)?;
        if self.writer.log_bytes - self.early_from >= EARLY_BYTES {
            // The disk writes while the next clumps are read and encrypted.
            self.log.storage().sync_soon(&self.file);
            self.early_from = self.writer.log_bytes;
        }
        if self.writer.waiting_count() >= PAGE_BLOCKS_GOAL { self.write_page() } else { Ok(()) }
    }

    fn write_page(&mut self) -> Result<(), AppendError> {
        let score_bytes = self.log.config().score_bytes;
        let storage = self.log.storage().as_ref();
        let page = self.writer.write_page(storage, &mut self.session, self.ledger, score_bytes)?;
        self.pages.push(page);
        Ok(())
    }

    /// Seals the successor, and makes its contents durable under the name of its own file. Its name
    /// is durable once the folder is synced.
    ///
    /// One sync is enough. The seal of an arena in the log waits until all before it is durable,
    /// because it says so to whoever opens the log after a crash. Nobody opens this file: nothing
    /// refers to it before the sync has returned, and a file that a crash leaves is removed.
    ///
    /// # Errors
    /// [`AppendError::Storage`]; the arena is then unchanged.
    pub fn seal(mut self) -> Result<ReplacedArena, AppendError> {
        self.write_page()?;
        let arena = self.writer.id();
        let failed = |source| AppendError::Storage { arena, source };
        let storage = Arc::clone(self.log.storage());
        let seal = self.writer.into_full().seal(storage.as_ref(), self.log.keys(), self.ordinal)?;
        storage.sync(&self.file).map_err(failed)?;
        let file_bytes = storage.length(&self.file).map_err(failed)?;
        Ok(ReplacedArena { seal, pages: self.pages, file_bytes })
    }

    /// Seals the successor and renames it over the arena, if there is one.
    ///
    /// # Errors
    /// [`AppendError::Storage`]; the arena is then unchanged, or the successor is in its place,
    /// whole.
    pub fn finish(self) -> Result<ReplacedArena, AppendError> {
        let (arena, file, storage) = (self.writer.id(), self.file.clone(), Arc::clone(self.log.storage()));
        let replaced = self.seal()?;
        let placed =
            storage.rename(&file, &arena.file_name()).and_then(|()| storage.sync_folder(ArenaId::FOLDER));
        placed.map_err(|source| AppendError::Storage { arena, source })?;
        tracing::info!(%arena, generation = replaced.seal.generation, "replaced an arena");
        Ok(replaced)
    }
}
