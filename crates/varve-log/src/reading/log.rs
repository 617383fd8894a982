//! Reading: arenas, records, pages, clumps. Every byte is checked on its way out.

use std::io;
use std::sync::Arc;

use varve_world::{FileName, Storage, is_exhausted};

use crate::arenas::address::{ArenaId, ArenaMap, Granule};
use crate::arenas::footer::{FOOTER_BYTES, Footer, FooterError, PageRow};
use crate::arenas::header::{ARENA_HEADER_BYTES, ArenaHeader, ArenaHeaderError};
use crate::keys::arena_keys::KeptKey;
use crate::keys::cipher::{CODE_BYTES, Message, RecordCipher};
use crate::keys::log_keys::LogKeys;
use crate::records::clump_content::OpenClumpError;
use crate::records::directory_page::DirectoryPageError;
use crate::records::record_header::{RecordError, RecordHeader, RecordKind};
use crate::writing::sync_failure::SyncFailure;

/// What a log must know of its store.
#[derive(Debug, Clone, Copy)]
pub struct LogConfig {
    /// The store's identity.
    pub store_id: [u8; 16],
    /// How large arenas become.
    pub map: ArenaMap,
    /// How wide scores are: 32 bytes, 20, or 24 in a by-value store.
    pub score_bytes: usize,
}

/// A log that can be read. Holds no state but its keys and whether a sync has failed, so that readers and a writer never disagree.
pub struct Log {
    storage: Arc<dyn Storage>,
    keys: LogKeys,
    config: LogConfig,
    sync_failure: SyncFailure,
}

/// Why the list of arenas could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot list the folder {folder:?}", folder = ArenaId::FOLDER)]
pub struct OpenLogError {
    /// What went wrong below.
    #[from]
    pub source: io::Error,
}

/// Why something could not be read from the log, and where.
#[derive(Debug, thiserror::Error)]
pub enum ReadLogError {
    /// The arena's header.
    #[error("arena {arena}")]
    Header {
        /// Which arena.
        arena: ArenaId,
        /// What was found.
        source: ArenaHeaderError,
    },
    /// The arena's seal.
    #[error("arena {arena}")]
    Seal {
        /// Which arena.
        arena: ArenaId,
        /// What was found.
        source: FooterError,
    },
    /// No record, or not the expected one.
    #[error("arena {arena}, offset {offset}")]
    Record {
        /// Which arena.
        arena: ArenaId,
        /// Where, in bytes.
        offset: u64,
        /// What was found.
        source: RecordError,
    },
    /// The code does not match: damaged, or not written by this store.
    #[error("arena {arena}, offset {offset}: the {what} does not match its authentication code")]
    Forged {
        /// Which arena.
        arena: ArenaId,
        /// Where, in bytes.
        offset: u64,
        /// What kind of record.
        what: &'static str,
    },
    /// A clump's inside.
    #[error("arena {arena}, offset {offset}: the clump is malformed")]
    Clump {
        /// Which arena.
        arena: ArenaId,
        /// Where, in bytes.
        offset: u64,
        /// What was found.
        source: OpenClumpError,
    },
    /// A page's inside.
    #[error("arena {arena}, offset {offset}: the directory page is malformed")]
    Page {
        /// Which arena.
        arena: ArenaId,
        /// Where, in bytes.
        offset: u64,
        /// What was found.
        source: DirectoryPageError,
    },
    /// The key at hand can write but not read.
    #[error("arena {arena}: this key may add to the store, and cannot read what is in it")]
    NoReadKey {
        /// Which arena.
        arena: ArenaId,
    },
    /// The file could not be read.
    #[error("arena {arena}, offset {offset}: cannot read {bytes} bytes")]
    Storage {
        /// Which arena.
        arena: ArenaId,
        /// Where, in bytes.
        offset: u64,
        /// How many bytes were wanted.
        bytes: usize,
        /// What went wrong below.
        source: io::Error,
    },
}

impl ReadLogError {
    /// Whether what was read is wrong, or the disk does not give it (true), or could not be read for a reason that is not in the log
    /// (false).
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::NoReadKey { .. } => false,
            Self::Storage { source, .. } => {
                matches!(source.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound)
                    || self.is_unreadable()
            }
            _ => true,
        }
    }

    /// Whether the disk did not give what is there, though it was asked again. It may be good, and may come back when a cable is plugged
    /// in; so nothing may be concluded from it, and nothing written over it.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        // Without bytes it was the length that could not be told: that is no sector.
        matches!(self, Self::Storage { bytes: 1.., source, .. } if is_unreadable(source))
    }

    /// Whether a newer program wrote it. An older one can do nothing for it, and must leave it as it is.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(
            self,
            Self::Header { source: ArenaHeaderError::NewerVersion { .. }, .. }
                | Self::Seal { source: FooterError::NewerVersion { .. }, .. }
        )
    }

    /// Whether an arena's header says that it belongs in another place, or to another store.
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

    /// Whether it says something of this machine at this moment, or of who asks, and nothing of what is in the log: too many open files, no
    /// permission, a server that does not answer.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        use io::ErrorKind::{OutOfMemory, PermissionDenied, StaleNetworkFileHandle, TimedOut};
        match self {
            Self::Storage { source, .. } => {
                is_exhausted(source)
                    || [OutOfMemory, PermissionDenied, StaleNetworkFileHandle, TimedOut]
                        .contains(&source.kind())
            }
            _ => false,
        }
    }

    /// Whether what could not be read may be there all the same, for who asks again or with another key: whoever keeps what is whole must
    /// not pass over it.
    pub(crate) fn is_no_loss(&self) -> bool {
        self.is_passing() || matches!(self, Self::NoReadKey { .. })
    }

    /// The arena that it is about.
    #[must_use]
    pub fn arena(&self) -> ArenaId {
        match self {
            Self::Header { arena, .. }
            | Self::Seal { arena, .. }
            | Self::Record { arena, .. }
            | Self::Forged { arena, .. }
            | Self::Clump { arena, .. }
            | Self::Page { arena, .. }
            | Self::NoReadKey { arena }
            | Self::Storage { arena, .. } => *arena,
        }
    }
}

/// An arena whose header has been checked and whose keys are at hand.
pub struct OpenedArena {
    pub(crate) id: ArenaId,
    pub(crate) header: ArenaHeader,
    data_key: Option<KeptKey>,
    directory_key: KeptKey,
}

impl OpenedArena {
    pub(crate) fn new(id: ArenaId, header: ArenaHeader, data_key: Option<&[u8; 32]>, keys: &LogKeys) -> Self {
        let directory_key = keys.keep(&keys.directory_key(&header.uid));
        Self { id, header, data_key: data_key.map(|key| keys.keep(key)), directory_key }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ArenaId {
        self.id
    }

    /// Its header.
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

/// Whether an arena can still grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArenaState {
    /// It ends with a good seal, over these pages.
    Sealed {
        /// Its end.
        footer: Footer,
        /// Its pages.
        pages: Vec<PageRow>,
    },
    /// It has no seal: the open arena, or one whose end a crash has cut off.
    Unsealed,
}

impl Log {
    /// A log in `storage`.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, keys: LogKeys, config: LogConfig) -> Self {
        Self { storage, keys, config, sync_failure: SyncFailure::default() }
    }

    /// The same log, read from another storage.
    #[must_use]
    pub fn over(&self, storage: Arc<dyn Storage>) -> Self {
        Self::new(storage, self.keys.clone(), self.config)
    }

    /// Its keys.
    #[must_use]
    pub fn keys(&self) -> &LogKeys {
        &self.keys
    }

    /// What it knows of its store.
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

    /// The arenas that have a file, in order.
    ///
    /// # Errors
    /// [`OpenLogError`] when the folder cannot be read.
    pub fn arenas(&self) -> Result<Vec<ArenaId>, OpenLogError> {
        Ok(self.storage.list(ArenaId::FOLDER)?.iter().filter_map(ArenaId::of_file).collect())
    }

    /// Reads and checks an arena's header.
    ///
    /// # Errors
    /// [`ReadLogError`]: nothing of that arena can be read then.
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
    /// [`ReadLogError`] when there is a seal and it is broken, or the file cannot be read.
    pub fn state(&self, arena: &OpenedArena) -> Result<ArenaState, ReadLogError> {
        // That there is no seal is believed only when it was seen twice, like damage: what has none may be cut.
        match self.read_state(arena) {
            Ok(ArenaState::Unsealed) => self.read_state(arena),
            Err(error) if error.is_damage() => self.read_state(arena),
            other => other,
        }
    }

    fn read_state(&self, arena: &OpenedArena) -> Result<ArenaState, ReadLogError> {
        let file_bytes = self.file_bytes(arena.id)?;
        let Some(footer_start) = file_bytes.checked_sub(FOOTER_BYTES as u64) else {
            return Ok(ArenaState::Unsealed);
        };
        let mut bytes = [0; FOOTER_BYTES];
        // Whether there is a seal cannot be told if the disk does not give this place. The arena is then read as one without; a scan meets
        // the same place, and so nothing of it is cut.
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

    /// Checks and decrypts part of a record: its body, or of a framed clump the table or a frame.
    pub(crate) fn open_in_place(
        &self,
        arena: &OpenedArena,
        header: &RecordHeader,
        message: Message,
        code: &[u8; CODE_BYTES],
        bytes: &mut [u8],
    ) -> Result<(), ReadLogError> {
        let opened = self.cipher(arena, header)?.open(message, &arena.associated(header), code, bytes);
        opened.map_err(|_| self.forged(arena, header.granule, named(header.kind)))
    }

    /// The same with bytes that stay as they are. `scratch` is for whatever is needed meanwhile.
    pub(crate) fn check(
        &self,
        arena: &OpenedArena,
        header: &RecordHeader,
        message: Message,
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

    /// The length of an arena's file.
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

    /// The same past the system's memory of files.
    pub(crate) fn read_uncached_at(
        &self,
        arena: ArenaId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), ReadLogError> {
        read_twice(arena, offset, into, |file, into| self.storage.read_uncached_at(file, offset, into))
    }
}

/// Once may be a cable; a sector that is gone fails again.
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

/// What a record is called where it is complained of.
fn named(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Clump => "clump",
        RecordKind::Page => "directory page",
    }
}

/// Whether a disk says with this that it cannot give what it holds: an error of the medium, or a checksum of its own that is wrong.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    // EIO, ENODATA, EBADMSG, EILSEQ, EUCLEAN: the same numbers on every Linux but a few old machines.
    matches!(error.raw_os_error(), Some(5 | 61 | 74 | 84 | 117))
}

/// Reads, and reads again what seems damaged: a disk, a cable or a memory may lie once, and nothing may be cut, left out or
/// reported for that.
pub(crate) fn twice<T>(mut read: impl FnMut() -> Result<T, ReadLogError>) -> Result<T, ReadLogError> {
    match read() {
        Err(error) if error.is_damage() => read(),
        other => other,
    }
}
