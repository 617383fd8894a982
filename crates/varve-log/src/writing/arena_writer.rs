//! Writes one arena: its records, its pages, its seal. Does not know other arenas.

use std::io;
use std::sync::Arc;

use varve_block::{SESSION_MARK_BYTES, to_usize};
use varve_world::{FileName, Random, Storage};
use zeroize::Zeroizing;

use crate::append_error::{AppendError, WriteFailure};
use crate::arenas::address::ArenaId;
use crate::arenas::footer::{Footer, PageRow, seal};
use crate::arenas::header::{ArenaHeader, ArenaVersion, NewArena};
use crate::arenas::seals::Seal;
use crate::keys::cipher::{CipherUnit, RecordCipher};
use crate::keys::log_keys::LogKeys;
use crate::reading::log::{Log, OpenedArena};
use crate::records::clump::PackedClump;
use crate::records::directory_page::DirectoryPage;
use crate::records::frame_table::FrameTable;
use crate::records::granule::Granule;
use crate::records::ledger::Ledger;
use crate::records::record_header::{RecordHeader, RecordKind};
use crate::records::record_sizes::RECORD_HEADER_BYTES;
use crate::recovery::scan::RecoveredArena;

/// A written page. The blocks that it names can be found from now on.
#[derive(Debug, Clone)]
pub struct AppendedPage {
    pub arena: ArenaId,
    pub row: PageRow,
    pub page: Arc<DirectoryPage>,
}

/// The salt of a writer, and the counter of its records.
pub(crate) struct WriterSession {
    id: [u8; 16],
    counter: u64,
}

impl WriterSession {
    pub(crate) fn new(random: &dyn Random) -> io::Result<Self> {
        let mut id = [0; 16];
        random.fill(&mut id)?;
        Ok(Self { id, counter: 0 })
    }

    /// Returns the part of the salt that goes into block names.
    pub(crate) fn mark(&self) -> [u8; SESSION_MARK_BYTES] {
        self.id.first_chunk().copied().unwrap_or_default()
    }

    /// Returns true if the session has made a record.
    pub(crate) fn has_written(&self) -> bool {
        self.counter > 0
    }

    /// Returns the number of the next record. Increments the counter before anything can fail, so
    /// that a nonce is never used twice.
    fn next(&mut self) -> u64 {
        let counter = self.counter;
        self.counter += 1;
        counter
    }
}

/// An arena that is being written.
pub(crate) struct ArenaWriter {
    file: FileName,
    arena: OpenedArena,
    is_encrypted: bool,
    pub(crate) log_bytes: u64,
    pub(crate) durable_bytes: u64,
    /// True if the file continues after `log_bytes` with a mark that was never made durable.
    has_stray_mark: bool,
    waiting: DirectoryPage,
    pages: Vec<PageRow>,
}

/// A closed arena that waits for its seal.
pub(crate) struct FullArena {
    pub(crate) id: ArenaId,
    pub(crate) log_bytes: u64,
    pub(crate) pages: Vec<PageRow>,
    has_stray_mark: bool,
    file: FileName,
    header: ArenaHeader,
}

impl ArenaWriter {
    /// Begins an arena in a new file.
    pub(crate) fn begin(
        log: &Log,
        random: &dyn Random,
        session: &WriterSession,
        id: ArenaId,
        (generation, version): (u32, ArenaVersion),
        file: FileName,
    ) -> Result<Self, AppendError> {
        let failed = |source| AppendError::Storage { arena: id, source };
        let (mut uid, mut data_key, mut ephemeral) =
            ([0; 16], Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
        random.fill(&mut uid).map_err(failed)?;
        random.fill(&mut *data_key).map_err(failed)?;
        if !log.keys().can_read() {
            random.fill(&mut *ephemeral).map_err(failed)?;
        }
        let store_id = log.config().store_id;
        let new = NewArena {
            store_id,
            arena: id,
            generation,
            version,
            uid,
            data_key: &data_key,
            ephemeral: &ephemeral,
        };
        let (header, bytes) = ArenaHeader::create(&new, log.keys()).map_err(|_| AppendError::Failed {
            reason: WriteFailure::new("the write key of this store cannot encrypt a data key"),
        })?;
        log.storage().create(&file).map_err(failed)?;
        log.storage().append(&file, &bytes).map_err(failed)?;
        let data_key = log.keys().is_encrypted().then_some(&*data_key);
        let arena = OpenedArena::new(id, header, data_key, log.keys());
        Self::new(log, session, arena, file, bytes.len() as u64, Vec::new())
    }

    /// Continues an arena of an earlier session.
    pub(crate) fn adopt(
        log: &Log,
        session: &WriterSession,
        arena: OpenedArena,
        recovered: &RecoveredArena,
        pages: Vec<PageRow>,
    ) -> Result<Self, AppendError> {
        let file = arena.id().file_name();
        let mut writer = Self::new(log, session, arena, file, recovered.log_bytes, pages)?;
        writer.durable_bytes = recovered.durable_bytes;
        writer.has_stray_mark = recovered.has_stray_mark;
        Ok(writer)
    }

    fn new(
        log: &Log,
        session: &WriterSession,
        arena: OpenedArena,
        file: FileName,
        log_bytes: u64,
        pages: Vec<PageRow>,
    ) -> Result<Self, AppendError> {
        let waiting = DirectoryPage::new(log.config().score_bytes);
        let writer = Self {
            file,
            arena,
            is_encrypted: log.keys().is_encrypted(),
            log_bytes,
            durable_bytes: 0,
            has_stray_mark: false,
            waiting,
            pages,
        };
        for kind in [RecordKind::Clump, RecordKind::Page] {
            writer.cipher(kind, session)?;
        }
        Ok(writer)
    }

    /// Makes the cipher for one record. It is dropped after the record: the key schedule of AES is
    /// then wiped, but cannot be locked in memory.
    fn cipher(&self, kind: RecordKind, session: &WriterSession) -> Result<RecordCipher, AppendError> {
        self.arena.cipher(kind, &session.id, self.is_encrypted).ok_or_else(|| AppendError::Failed {
            reason: WriteFailure::new(format!(
                "arena {} cannot be continued without a key that can read it",
                self.id()
            )),
        })
    }

    pub(crate) fn id(&self) -> ArenaId {
        self.arena.id()
    }

    pub(crate) fn version(&self) -> ArenaVersion {
        self.arena.header.version()
    }

    /// Returns the places of its pages.
    pub(crate) fn pages(&self) -> &[PageRow] {
        &self.pages
    }

    /// Returns the number of blocks that no page names yet.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.block_count()
    }

    /// Appends a clump. Its blocks then wait for a page.
    pub(crate) fn write_clump(
        &mut self,
        storage: &dyn Storage,
        session: &mut WriterSession,
        clump: PackedClump,
    ) -> Result<Granule, AppendError> {
        let PackedClump { rows, record, table_bytes } = clump;
        let header = self.write_record(storage, session, RecordKind::Clump, table_bytes, record)?;
        self.waiting.push(header.granule, header.body_bytes, header.code, &rows);
        Ok(header.granule)
    }

    /// Appends a page for the waiting blocks, if any.
    pub(crate) fn write_page(
        &mut self,
        storage: &dyn Storage,
        session: &mut WriterSession,
        ledger: Ledger,
        score_bytes: usize,
    ) -> Result<AppendedPage, AppendError> {
        let mut page = std::mem::replace(&mut self.waiting, DirectoryPage::new(score_bytes));
        // Rounded down: a mark may be too low, never too high.
        let durable = self.durable_bytes / crate::records::granule::GRANULE_BYTES
            * crate::records::granule::GRANULE_BYTES;
        page.finish(Granule::at_or_after(durable).unwrap_or_default(), ledger);
        let mut record = vec![0; RECORD_HEADER_BYTES];
        page.encode(&mut record);
        let header = self.write_record(storage, session, RecordKind::Page, 0, record)?;
        let row = PageRow { granule: header.granule, body_bytes: header.body_bytes, code: header.code };
        self.pages.push(row);
        Ok(AppendedPage { arena: self.id(), row, page: Arc::new(page) })
    }

    /// Encrypts and appends a record. `record` has space for its header. `table_bytes` is the
    /// length of a framed clump's table.
    fn write_record(
        &mut self,
        storage: &dyn Storage,
        session: &mut WriterSession,
        kind: RecordKind,
        table_bytes: u32,
        mut record: Vec<u8>,
    ) -> Result<RecordHeader, AppendError> {
        let granule = Granule::at_or_after(self.log_bytes).ok_or(AppendError::LogFull)?;
        let (place, body) = record.split_at_mut(RECORD_HEADER_BYTES);
        let body_bytes = u32::try_from(body.len()).expect("bodies are bounded");
        let counter = session.next();
        let mut header = RecordHeader {
            kind,
            body_bytes,
            counter,
            session: session.id,
            granule,
            table_bytes,
            code: [0; 16],
        };
        let cipher = self.cipher(kind, session)?;
        let associated = self.arena.associated(&header);
        let sealed_last = match kind {
            RecordKind::Clump if table_bytes > 0 => {
                FrameTable::seal_frames(body, &header, |at, frame| cipher.seal(at, &associated, frame))
            }
            _ => body,
        };
        header.code = cipher.seal(CipherUnit::body(counter), &associated, sealed_last);
        place.copy_from_slice(&header.encode());
        let record_bytes = to_usize(header.record_bytes());
        record.resize(record_bytes, 0);
        let arena = self.id();
        if std::mem::take(&mut self.has_stray_mark) {
            cut_mark(storage, &self.file, self.log_bytes)
                .map_err(|source| AppendError::Storage { arena, source })?;
        }
        let offset =
            storage.append(&self.file, &record).map_err(|source| AppendError::Storage { arena, source })?;
        if offset != self.log_bytes {
            let reason = format!("arena {arena} has grown to {offset} bytes: another program writes to it");
            return Err(AppendError::Failed { reason: WriteFailure::new(reason) });
        }
        self.log_bytes += record_bytes as u64;
        Ok(header)
    }

    /// Closes the arena.
    pub(crate) fn into_full(self) -> FullArena {
        let (id, header) = (self.id(), self.arena.header.clone());
        let Self { file, log_bytes, has_stray_mark, pages, .. } = self;
        FullArena { id, log_bytes, pages, has_stray_mark, file, header }
    }
}

impl FullArena {
    /// Makes a closed arena from one of an earlier session.
    pub(crate) fn left(arena: &OpenedArena, recovered: &RecoveredArena) -> Self {
        Self {
            id: arena.id(),
            log_bytes: recovered.log_bytes,
            pages: recovered.pages.iter().map(|(row, _)| *row).collect(),
            has_stray_mark: recovered.has_stray_mark,
            file: arena.id().file_name(),
            header: arena.header.clone(),
        }
    }

    pub(crate) fn file(&self) -> &FileName {
        &self.file
    }

    /// Writes the seal. `ordinal` is its place in the order of seals. Everything in the arena must
    /// be durable.
    pub(crate) fn seal(
        &self,
        storage: &dyn Storage,
        keys: &LogKeys,
        ordinal: u64,
    ) -> Result<Seal, AppendError> {
        let (footer, bytes): (Footer, _) =
            seal(keys, self.header.code(), &self.pages, self.log_bytes, ordinal);
        let failed = |source| AppendError::Storage { arena: self.id, source };
        if self.has_stray_mark {
            cut_mark(storage, &self.file, self.log_bytes).map_err(failed)?;
        }
        storage.append(&self.file, &bytes).map_err(failed)?;
        tracing::debug!(arena = %self.id, log_bytes = self.log_bytes, page_count = self.pages.len(), "sealed an arena");
        Ok(Seal::of(&self.header, &footer))
    }
}

/// Cuts off a mark, durably, before anything takes its place. Otherwise a crash could leave sectors
/// of both, which looks like damage.
fn cut_mark(storage: &dyn Storage, file: &FileName, log_bytes: u64) -> io::Result<()> {
    storage.truncate(file, log_bytes)?;
    storage.sync(file)
}
