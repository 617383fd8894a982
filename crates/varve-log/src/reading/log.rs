//! Reads arenas, records, pages and clumps. Every byte is checked before it is returned.

use std::io;
use std::sync::Arc;

use varve_block::{Score, has_kind};
use varve_world::{FileName, Storage, is_exhausted};

use crate::arenas::address::{ArenaId, ArenaMap};
use crate::arenas::footer::{FOOTER_BYTES, Footer, FooterError, PageRow};
use crate::arenas::header::{ARENA_HEADER_BYTES, ArenaHeader, ArenaHeaderError};
use crate::keys::arena_keys::LockedKey;
use crate::keys::cipher::{CODE_BYTES, CipherUnit, RecordCipher};
use crate::keys::log_keys::LogKeys;
use crate::reading::delta_bases::BaseError;
use crate::records::clump_content::OpenClumpError;
use crate::records::directory_page::DirectoryPageError;
use crate::records::granule::Granule;
use crate::records::record_header::{RecordError, RecordHeader, RecordKind};
use crate::sync_failure::SyncFailure;

/// The most times that a read begins anew. A collector replaces an arena at most once in a run.
pub(super) const TRIES_MAX: usize = 16;

/// The properties of a store that its log needs.
#[derive(Debug, Clone, Copy)]
pub struct LogConfig {
    pub store_id: [u8; 16],
    /// The size of arenas.
    pub map: ArenaMap,
    /// The width of scores: 32 bytes, 20, or 24 in a by-value store.
    pub score_bytes: usize,
}

/// A log for reading. Its only state is its keys and whether a sync has failed, so readers and a
/// writer never disagree.
pub struct Log {
    storage: Arc<dyn Storage>,
    keys: LogKeys,
    config: LogConfig,
    sync_failure: SyncFailure,
}

/// The list of arenas could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot list the folder {folder:?}", folder = ArenaId::FOLDER)]
pub struct OpenLogError {
    #[from]
    pub source: io::Error,
}

/// The reason why something could not be read from the log, and its place.
#[derive(Debug, thiserror::Error)]
pub enum ReadLogError {
    #[error("arena {arena}")]
    Header { arena: ArenaId, source: ArenaHeaderError },
    #[error("arena {arena}")]
    Seal { arena: ArenaId, source: FooterError },
    /// There is no record, or not the expected one.
    #[error("arena {arena}, offset {offset}")]
    Record { arena: ArenaId, offset: u64, source: RecordError },
    /// The code does not match: the record is damaged, or this store did not write it.
    #[error("arena {arena}, offset {offset}: the {what} does not match its authentication code")]
    Forged { arena: ArenaId, offset: u64, what: &'static str },
    /// The body of a clump is malformed.
    #[error("arena {arena}, offset {offset}: the clump is malformed")]
    Clump { arena: ArenaId, offset: u64, source: OpenClumpError },
    /// A block is stored as a delta of another one, which could not be supplied.
    #[error("arena {arena}, offset {offset}: the block is stored as a delta of {base}")]
    Base { arena: ArenaId, offset: u64, base: Score, source: BaseError },
    /// The body of a page is malformed.
    #[error("arena {arena}, offset {offset}: the directory page is malformed")]
    Page { arena: ArenaId, offset: u64, source: DirectoryPageError },
    /// The key can write but not read.
    #[error("arena {arena}: this key may add to the store, but cannot read from it")]
    NoReadKey { arena: ArenaId },
    #[error("arena {arena}, offset {offset}: cannot read {bytes} bytes")]
    Storage {
        arena: ArenaId,
        offset: u64,
        /// The number of requested bytes.
        bytes: usize,
        source: io::Error,
    },
}

has_kind!(ReadLogError: error if error.is_newer() => NewerVersion);

impl ReadLogError {
    /// Returns true if the bytes are wrong or the disk does not return them. Returns false if the
    /// read failed for a reason outside the log, or if a newer program wrote the bytes.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::NoReadKey { .. } => false,
            _ if self.is_newer() => false,
            Self::Base { source, .. } => matches!(source, BaseError::Lost(_)),
            Self::Storage { source, .. } => {
                matches!(source.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound)
                    || self.is_unreadable()
            }
            _ => true,
        }
    }

    /// Returns true if the disk failed to return existing bytes, also on the retry. They may be
    /// good and may be readable again, for example after a cable is plugged in. So nothing may be
    /// concluded from it, and nothing written over them.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        // A read without bytes is a failed query of the file's length, not a bad sector.
        matches!(self, Self::Storage { bytes: 1.., source, .. } if is_unreadable(source))
    }

    /// Returns true if the file ends before the end of the read. If the length was asked for just
    /// before, another process has cut the file since.
    pub(crate) fn is_end_of_file(&self) -> bool {
        let is_end = |source: &io::Error| source.kind() == io::ErrorKind::UnexpectedEof;
        matches!(self, Self::Storage { source, .. } if is_end(source))
    }

    /// Returns true if a newer program wrote the bytes. An older program must leave them unchanged.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(
            self,
            Self::Header { source: ArenaHeaderError::NewerVersion { .. }, .. }
                | Self::Seal { source: FooterError::NewerVersion { .. }, .. }
        )
    }

    /// Returns true if the end of an arena is a damaged or torn seal.
    #[must_use]
    pub fn is_broken_seal(&self) -> bool {
        matches!(self, Self::Seal { .. }) && !self.is_newer()
    }

    /// Returns true if an arena's header claims another place or another store.
    #[must_use]
    pub fn is_of_another_place(&self) -> bool {
        matches!(
            self,
            Self::Header {
                source: ArenaHeaderError::ForeignStore { .. } | ArenaHeaderError::Swapped { .. },
                ..
            }
        )
    }

    /// Returns true if the error is about this machine at this moment, or about the caller, and not
    /// about the log: too many open files, no permission, a server that does not answer.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        use io::ErrorKind::{OutOfMemory, PermissionDenied, StaleNetworkFileHandle, TimedOut};
        match self {
            Self::Storage { source, .. } => {
                is_exhausted(source)
                    || [OutOfMemory, PermissionDenied, StaleNetworkFileHandle, TimedOut]
                        .contains(&source.kind())
            }
            Self::Base { source, .. } => !matches!(source, BaseError::Lost(_)),
            _ => false,
        }
    }

    /// Returns true if the bytes may still be readable later or with another key. A copy of the
    /// whole parts must not skip them.
    pub(crate) fn is_no_loss(&self) -> bool {
        self.is_passing() || self.is_newer() || matches!(self, Self::NoReadKey { .. })
    }

    /// Returns the arena of the error.
    #[must_use]
    pub fn arena(&self) -> ArenaId {
        match self {
            Self::Header { arena, .. }
            | Self::Seal { arena, .. }
            | Self::Record { arena, .. }
            | Self::Forged { arena, .. }
            | Self::Clump { arena, .. }
            | Self::Base { arena, .. }
            | Self::Page { arena, .. }
            | Self::NoReadKey { arena }
            | Self::Storage { arena, .. } => *arena,
        }
    }
}

/// An arena with a checked header and its keys.
pub struct OpenedArena {
    pub(crate) id: ArenaId,
    pub(crate) header: ArenaHeader,
    data_key: Option<LockedKey>,
    directory_key: LockedKey,
}

impl OpenedArena {
    pub(crate) fn new(id: ArenaId, header: ArenaHeader, data_key: Option<&[u8; 32]>, keys: &LogKeys) -> Self {
        let directory_key = keys.keep(&keys.directory_key(&header.uid));
        Self { id, header, data_key: data_key.map(|key| keys.keep(key)), directory_key }
    }

    /// Returns the arena's number.
    #[must_use]
    pub fn id(&self) -> ArenaId {
        self.id
    }

    /// Returns the arena's header.
    #[must_use]
    pub fn header(&self) -> &ArenaHeader {
        &self.header
    }

    pub(crate) fn cipher(
        &self,
        kind: RecordKind,
        session: &[u8; 16],
        encrypted: bool,
    ) -> Option<RecordCipher> {
        let aes_256_gcm = |key: &[u8; 32]| RecordCipher::aes_256_gcm(key, session);
        Some(match (encrypted, kind) {
            (false, _) => self.directory_key.with(|key| RecordCipher::Plain(*key)),
            (true, RecordKind::Page) => self.directory_key.with(aes_256_gcm),
            (true, RecordKind::Clump) => self.data_key.as_ref()?.with(aes_256_gcm),
        })
    }

    pub(crate) fn associated(&self, header: &RecordHeader) -> Vec<u8> {
        [&header.authenticated()[..], &self.header.uid].concat()
    }
}

/// The state of an arena: sealed, or still growing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArenaState {
    /// The arena ends with a good seal over these pages.
    Sealed { footer: Footer, pages: Vec<PageRow> },
    /// The arena has no seal: it is the open arena, or a crash has cut off its end.
    Unsealed,
}

impl Log {
    /// Makes a log in `storage`.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, keys: LogKeys, config: LogConfig) -> Self {
        Self { storage, keys, config, sync_failure: SyncFailure::default() }
    }

    /// Makes the same log, read from another storage.
    #[must_use]
    pub fn over(&self, storage: Arc<dyn Storage>) -> Self {
        Self::new(storage, self.keys.clone(), self.config)
    }

    /// Returns the keys.
    #[must_use]
    pub fn keys(&self) -> &LogKeys {
        &self.keys
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    pub(crate) fn sync_failure(&self) -> &SyncFailure {
        &self.sync_failure
    }

    /// Lists the arenas that have a file, in order.
    ///
    /// # Errors
    /// [`OpenLogError`] when the folder cannot be read.
    pub fn arenas(&self) -> Result<Vec<ArenaId>, OpenLogError> {
        Ok(self.storage.list(ArenaId::FOLDER)?.iter().filter_map(ArenaId::of_file).collect())
    }

    /// Reads and checks an arena's header.
    ///
    /// # Errors
    /// [`ReadLogError`]; nothing of that arena can be read then.
    pub fn open_arena(&self, id: ArenaId) -> Result<OpenedArena, ReadLogError> {
        twice(|| self.read_header(id))
    }

    fn read_header(&self, id: ArenaId) -> Result<OpenedArena, ReadLogError> {
        let mut bytes = [0; ARENA_HEADER_BYTES];
        self.read_at(id, 0, &mut bytes)?;
        let damaged = |source| ReadLogError::Header { arena: id, source };
        let header = ArenaHeader::decode(&bytes, &self.keys, self.config.store_id, id).map_err(damaged)?;
        let data_key = header.data_key(&bytes, &self.keys).map_err(damaged)?;
        Ok(OpenedArena::new(id, header, data_key.as_deref(), &self.keys))
    }

    /// Reads and checks an arena's seal, if it has one.
    ///
    /// # Errors
    /// [`ReadLogError`] when the seal is broken, or the file cannot be read.
    pub fn state(&self, arena: &OpenedArena) -> Result<ArenaState, ReadLogError> {
        // An arena without a seal may be cut. So a missing seal is confirmed by a second read.
        let mut read = match self.read_state(arena) {
            Ok(ArenaState::Unsealed) => self.read_state(arena),
            other => other,
        };
        // A writer seals an arena, and cuts off what its predecessor has left. So damage is
        // confirmed by another read of a file that keeps its length.
        for _ in 1..TRIES_MAX {
            let Err(error) = &read else { break };
            if !error.is_damage() {
                break;
            }
            let file_bytes = self.file_bytes(arena.id)?;
            read = self.read_state(arena);
            let was_cut = read.as_ref().is_err_and(ReadLogError::is_end_of_file);
            if !was_cut && self.file_bytes(arena.id)? == file_bytes {
                break;
            }
        }
        read
    }

    fn read_state(&self, arena: &OpenedArena) -> Result<ArenaState, ReadLogError> {
        let file_bytes = self.file_bytes(arena.id)?;
        let Some(footer_start) = file_bytes.checked_sub(FOOTER_BYTES as u64) else {
            return Ok(ArenaState::Unsealed);
        };
        let mut bytes = [0; FOOTER_BYTES];
        // If the disk does not return this place, the seal cannot be checked. The arena is then
        // treated as unsealed. A scan meets the same place, so nothing of the arena is cut.
        let given = |read: Result<(), ReadLogError>| match read {
            Err(error) if error.is_unreadable() => {
                tracing::error!(%error, "the disk does not give the end of an arena");
                Ok(false)
            }
            other => other.map(|()| true),
        };
        if !given(self.read_at(arena.id, footer_start, &mut bytes))? {
            return Ok(ArenaState::Unsealed);
        }
        let broken = |source| ReadLogError::Seal { arena: arena.id, source };
        let footer = match Footer::decode(&bytes, file_bytes, self.config.map) {
            Ok(footer) => footer,
            Err(FooterError::NotSealed) => return Ok(ArenaState::Unsealed),
            Err(other) => return Err(broken(other)),
        };
        let mut rows = vec![0; footer.rows_bytes()];
        if !given(self.read_at(arena.id, footer.log_bytes, &mut rows))? {
            return Ok(ArenaState::Unsealed);
        }
        let pages = footer.open(&self.keys, arena.header.code(), &rows).map_err(broken)?;
        Ok(ArenaState::Sealed { footer, pages })
    }

    /// Checks and decrypts a part of a record: its body, or the table or a frame of a framed clump.
    pub(crate) fn open_in_place(
        &self,
        arena: &OpenedArena,
        header: &RecordHeader,
        message: CipherUnit,
        code: &[u8; CODE_BYTES],
        bytes: &mut [u8],
    ) -> Result<(), ReadLogError> {
        let opened = self.cipher(arena, header)?.open(message, &arena.associated(header), code, bytes);
        opened.map_err(|_| self.forged(arena, header.granule, named(header.kind)))
    }

    /// Does the same without changing the bytes. `scratch` is temporary memory.
    pub(crate) fn check(
        &self,
        arena: &OpenedArena,
        header: &RecordHeader,
        message: CipherUnit,
        code: &[u8; CODE_BYTES],
        bytes: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), ReadLogError> {
        let cipher = self.cipher(arena, header)?;
        let checked = cipher.check(message, &arena.associated(header), code, bytes, scratch);
        checked.map_err(|_| self.forged(arena, header.granule, named(header.kind)))
    }

    fn cipher(&self, arena: &OpenedArena, header: &RecordHeader) -> Result<RecordCipher, ReadLogError> {
        let cipher = arena.cipher(header.kind, &header.session, self.keys.is_encrypted());
        cipher.ok_or(ReadLogError::NoReadKey { arena: arena.id })
    }

    pub(crate) fn forged(&self, arena: &OpenedArena, granule: Granule, what: &'static str) -> ReadLogError {
        ReadLogError::Forged { arena: arena.id, offset: granule.byte_offset(), what }
    }

    /// Returns the length of an arena's file.
    ///
    /// # Errors
    /// [`ReadLogError::Storage`].
    pub fn file_bytes(&self, arena: ArenaId) -> Result<u64, ReadLogError> {
        let failed = |source| ReadLogError::Storage { arena, offset: 0, bytes: 0, source };
        self.storage.length(&arena.file_name()).map_err(failed)
    }

    pub(crate) fn read_at(&self, arena: ArenaId, offset: u64, into: &mut [u8]) -> Result<(), ReadLogError> {
        read_twice(arena, offset, into, |file, into| self.storage.read_at(file, offset, into))
    }

    /// Does the same without the system's page cache.
    pub(crate) fn read_uncached_at(
        &self,
        arena: ArenaId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), ReadLogError> {
        read_twice(arena, offset, into, |file, into| self.storage.read_uncached_at(file, offset, into))
    }
}

/// Retries an unreadable place once: a cable fault may pass, a bad sector fails again.
fn read_twice(
    arena: ArenaId,
    offset: u64,
    into: &mut [u8],
    read: impl Fn(&FileName, &mut [u8]) -> io::Result<()>,
) -> Result<(), ReadLogError> {
    let (bytes, file) = (into.len(), arena.file_name());
    let read = match read(&file, into) {
        Err(error) if is_unreadable(&error) => read(&file, into),
        other => other,
    };
    read.map_err(|source| ReadLogError::Storage { arena, offset, bytes, source })
}

/// Returns the name of a record kind for messages.
fn named(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Clump => "clump",
        RecordKind::Page => "directory page",
    }
}

/// Returns true if the error means that a disk cannot return its data: a medium error, or a wrong
/// checksum of the file system.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    // EIO, ENODATA, EBADMSG, EILSEQ, EUCLEAN. The numbers are the same on all but a few old Linux
    // architectures.
    matches!(error.raw_os_error(), Some(5 | 61 | 74 | 84 | 117))
}

/// Reads, and retries once on damage. A disk, a cable or memory may be wrong once; nothing may be
/// cut, skipped or reported for that.
pub(crate) fn twice<T>(mut read: impl FnMut() -> Result<T, ReadLogError>) -> Result<T, ReadLogError> {
    match read() {
        Err(error) if error.is_damage() => read(),
        other => other,
    }
}
