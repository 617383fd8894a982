//! Appending: the one writer of a log.
//!
//! The order of writes, and why each may be cut short anywhere, is told in `docs/durability.md`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use varve_block::LogAddress;
use varve_world::{FileName, Random};
use zeroize::Zeroizing;

use crate::arena::{ArenaId, Granule};
use crate::cipher::RecordCipher;
use crate::clump::PackedClump;
use crate::footer::{Footer, PageRow, seal};
use crate::header::{ARENA_HEADER_BYTES, ArenaHeader, NewArena};
use crate::page::{DirectoryPage, PAGE_BLOCKS_GOAL};
use crate::read::{Log, OpenedArena};
use crate::record::{RECORD_HEADER_BYTES, RecordHeader, RecordKind};
use crate::recover::Recovered;
use crate::seals::{Seal, Seals};

/// How many full arenas may wait for their seal: their data is being made durable meanwhile.
const FULL_ARENAS_MAX: usize = 2;

/// The end of a log, held by its one writer.
pub struct Appender {
    log: Arc<Log>,
    random: Arc<dyn Random>,
    session: [u8; 16],
    counter: u64,
    open: Option<OpenArena>,
    full: VecDeque<FullArena>,
    seals: Seals,
    next: ArenaId,
    /// Sealed in this session, with a footer that may not be durable yet.
    new_seals: Vec<ArenaId>,
    folder_changed: bool,
    failed: Option<String>,
}

struct OpenArena {
    arena: OpenedArena,
    clump_cipher: RecordCipher,
    page_cipher: RecordCipher,
    log_bytes: u64,
    durable_bytes: u64,
    waiting: DirectoryPage,
    pages: Vec<PageRow>,
}

struct FullArena {
    id: ArenaId,
    header: ArenaHeader,
    log_bytes: u64,
    pages: Vec<PageRow>,
}

/// A page that has been written: what it names can be found from now on.
#[derive(Debug, Clone)]
pub struct Appended {
    /// Which arena it is in.
    pub arena: ArenaId,
    /// Where.
    pub row: PageRow,
    /// What it says.
    pub page: Arc<DirectoryPage>,
}

/// Why nothing more can be appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Writing failed. The log takes nothing more until it is opened again, which cuts off what may be torn.
    #[error("arena {arena}: cannot write")]
    Storage {
        /// Which arena.
        arena: ArenaId,
        /// What went wrong below.
        source: io::Error,
    },
    /// An earlier append or sync failed.
    #[error("the store stopped taking data when an earlier write failed: {reason}")]
    Failed {
        /// That failure.
        reason: String,
    },
    /// The log has reached the end of its addresses.
    #[error("the log is full: it has reached the last address, 128 TiB")]
    LogFull,
}

/// Why what was appended may not be durable.
#[derive(Debug, thiserror::Error)]
pub enum SyncLogError {
    /// The last page could not be written.
    #[error("cannot finish what was written")]
    Append(#[from] AppendError),
    /// A file or the folder could not be made durable.
    #[error("cannot make {file} durable")]
    Sync {
        /// Which.
        file: String,
        /// What went wrong below.
        source: io::Error,
    },
}

/// What a sync has to make durable: made under the writer's lock, carried out without it.
#[derive(Debug)]
pub struct SyncPlan {
    files: Vec<FileName>,
    folder: bool,
    open: Option<(ArenaId, u64)>,
    full: Vec<ArenaId>,
    seals: Vec<ArenaId>,
}

impl Appender {
    /// Takes the end of the log. `seals` are those of all sealed arenas; `unsealed` are arenas that have no seal, in order,
    /// as [`Log::recover`] left them, or such that all of them is known to be good; `next` is a number above that of every
    /// arena that has a file. The last arena is gone on with by whoever can read it; all others get their seals.
    ///
    /// # Errors
    /// [`AppendError::Storage`] when the system gives no random bytes.
    pub fn new(
        log: Arc<Log>,
        random: Arc<dyn Random>,
        seals: Seals,
        unsealed: Vec<(OpenedArena, Recovered)>,
        next: ArenaId,
    ) -> Result<Self, AppendError> {
        let mut session = [0; 16];
        random.fill(&mut session).map_err(|source| AppendError::Storage { arena: next, source })?;
        let mut appender = Self {
            log,
            random,
            session,
            counter: 0,
            open: None,
            full: VecDeque::new(),
            seals,
            next,
            new_seals: Vec::new(),
            // Where there is no arena yet, there may be no folder to make durable.
            folder_changed: next > ArenaId(0),
            failed: None,
        };
        for (arena, recovered) in unsealed {
            appender.adopt(arena, recovered)?;
        }
        Ok(appender)
    }

    /// Goes on with an arena of an earlier session if nothing comes after it; else leaves it to be sealed.
    fn adopt(&mut self, arena: OpenedArena, recovered: Recovered) -> Result<(), AppendError> {
        let pages = recovered.pages.iter().map(|(row, _)| *row).collect();
        // In an earlier one what is new would come before what is old. And what whoever may read has written must not lie among
        // what others could have forged.
        let is_last = arena.id().0.checked_add(1) == Some(self.next.0);
        if is_last && self.log.keys().can_read() && !arena.header.is_write_only() {
            let ciphers = self.ciphers(&arena)?;
            let score_bytes = self.log.config().score_bytes;
            self.open = Some(OpenArena::new(arena, ciphers, recovered.log_bytes, pages, score_bytes));
        } else {
            let (id, header) = (arena.id(), arena.header.clone());
            self.full.push_back(FullArena { id, header, log_bytes: recovered.log_bytes, pages });
        }
        Ok(())
    }

    fn ciphers(&self, arena: &OpenedArena) -> Result<(RecordCipher, RecordCipher), AppendError> {
        let encrypted = self.log.keys().is_encrypted();
        let cipher = |kind| arena.cipher(kind, &self.session, encrypted);
        cipher(RecordKind::Clump).zip(cipher(RecordKind::Page)).ok_or_else(|| AppendError::Failed {
            reason: format!("arena {} cannot be continued without the key to read it", arena.id()),
        })
    }

    /// Appends a clump, and says where it is and which pages were written on the way. A page becomes due when
    /// enough blocks wait for one, and when an arena is full.
    ///
    /// # Errors
    /// [`AppendError`]; after [`AppendError::Storage`] the log takes nothing more.
    pub fn append(&mut self, clump: PackedClump) -> Result<(LogAddress, Vec<Appended>), AppendError> {
        self.check()?;
        let appended = self.try_append(clump);
        self.remember(appended)
    }

    fn try_append(&mut self, clump: PackedClump) -> Result<(LogAddress, Vec<Appended>), AppendError> {
        let mut pages = Vec::new();
        let clump_bytes = clump.record.len() as u64;
        let arena_bytes = self.log.config().map.arena_bytes();
        if let Some(open) = &self.open
            && open.log_bytes + clump_bytes > arena_bytes
            && open.log_bytes > ARENA_HEADER_BYTES as u64
        {
            pages.extend(self.write_page()?);
            self.close_full_arena()?;
        }
        if self.open.is_none() {
            self.begin_arena()?;
        }
        let PackedClump { rows, record } = clump;
        let (header, granule) = self.write_record(RecordKind::Clump, record)?;
        let Some(open) = &mut self.open else { unreachable!("an arena was begun above") };
        open.waiting.push(granule, header.body_bytes, header.code, &rows);
        let address = self.log.config().map.address(open.arena.id(), granule).ok_or(AppendError::LogFull)?;
        if open.waiting.block_count() >= PAGE_BLOCKS_GOAL {
            pages.extend(self.write_page()?);
        }
        Ok((address, pages))
    }

    /// Writes a page for the clumps that wait for one.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn finish_page(&mut self) -> Result<Option<Appended>, AppendError> {
        self.check()?;
        let written = self.write_page();
        self.remember(written)
    }

    fn write_page(&mut self) -> Result<Option<Appended>, AppendError> {
        match &self.open {
            Some(open) if open.waiting.block_count() > 0 => self.write_waiting_page().map(Some),
            _ => Ok(None),
        }
    }

    fn write_waiting_page(&mut self) -> Result<Appended, AppendError> {
        let score_bytes = self.log.config().score_bytes;
        // A seal that a power cut may still take is not counted, or its loss would look like an attack.
        let durable_count = self.seals.len().saturating_sub(self.new_seals.len());
        let ledger = self.seals.ledger(self.log.keys(), durable_count as u64);
        let Some(open) = &mut self.open else { unreachable!("the caller has seen an open arena") };
        let mut page = std::mem::replace(&mut open.waiting, DirectoryPage::new(score_bytes));
        // Rounded down: a mark may be too careful, never too bold.
        let durable = open.durable_bytes / crate::GRANULE_BYTES * crate::GRANULE_BYTES;
        page.finish(Granule::at_or_after(durable).unwrap_or_default(), ledger);
        let mut record = vec![0; RECORD_HEADER_BYTES];
        page.encode(&mut record);
        let (header, granule) = self.write_record(RecordKind::Page, record)?;
        let row = PageRow { granule, body_bytes: header.body_bytes, code: header.code };
        let Some(open) = &mut self.open else { unreachable!("the page was written to it") };
        open.pages.push(row);
        Ok(Appended { arena: open.arena.id(), row, page: Arc::new(page) })
    }

    /// Encrypts and appends a record, which comes with room for its header.
    fn write_record(
        &mut self,
        kind: RecordKind,
        mut record: Vec<u8>,
    ) -> Result<(RecordHeader, Granule), AppendError> {
        let Some(open) = &mut self.open else { unreachable!("records are written to an open arena") };
        let granule = Granule::at_or_after(open.log_bytes).ok_or(AppendError::LogFull)?;
        let (place, body) = record.split_at_mut(RECORD_HEADER_BYTES);
        let body_bytes = u32::try_from(body.len()).expect("bodies are bounded");
        let (counter, session) = (self.counter, self.session);
        // Moved on before anything can fail: a nonce is never used twice.
        self.counter += 1;
        let mut header = RecordHeader { kind, body_bytes, counter, session, granule, code: [0; 16] };
        let cipher = match kind {
            RecordKind::Clump => &open.clump_cipher,
            RecordKind::Page => &open.page_cipher,
        };
        header.code = cipher.seal(counter, &open.arena.associated(&header), body);
        place.copy_from_slice(&header.encode());
        let record_bytes = usize::try_from(header.record_bytes()).expect("bodies are bounded");
        record.resize(record_bytes, 0);
        let arena = open.arena.id();
        let storage = self.log.storage();
        let offset = storage
            .append(&arena.file_name(), &record)
            .map_err(|source| AppendError::Storage { arena, source })?;
        if offset != open.log_bytes {
            let reason = format!("arena {arena} has grown to {offset} bytes behind this writer's back");
            return Err(AppendError::Failed { reason });
        }
        open.log_bytes += record_bytes as u64;
        Ok((header, granule))
    }

    fn begin_arena(&mut self) -> Result<(), AppendError> {
        let id = self.next;
        let failed = |source| AppendError::Storage { arena: id, source };
        let (mut uid, mut data_key, mut ephemeral) =
            ([0; 16], Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
        self.random.fill(&mut uid).map_err(failed)?;
        self.random.fill(&mut *data_key).map_err(failed)?;
        if !self.log.keys().can_read() {
            self.random.fill(&mut *ephemeral).map_err(failed)?;
        }
        let store_id = self.log.config().store_id;
        let new = NewArena { store_id, arena: id, uid, data_key: &data_key, ephemeral: &ephemeral };
        let (header, bytes) = ArenaHeader::create(&new, self.log.keys()).map_err(|_| {
            AppendError::Failed { reason: "nothing can be sealed to the write key of this store".into() }
        })?;
        let storage = self.log.storage();
        storage.create(&id.file_name()).map_err(failed)?;
        self.next = ArenaId(id.0 + 1);
        self.folder_changed = true;
        storage.append(&id.file_name(), &bytes).map_err(failed)?;
        let directory_key = Zeroizing::new(self.log.keys().directory_key(&uid));
        let data_key = self.log.keys().is_encrypted().then_some(data_key);
        let arena = OpenedArena { id, header, data_key, directory_key };
        let ciphers = self.ciphers(&arena)?;
        let score_bytes = self.log.config().score_bytes;
        self.open = Some(OpenArena::new(arena, ciphers, bytes.len() as u64, Vec::new(), score_bytes));
        tracing::debug!(arena = %id, "began an arena");
        Ok(())
    }

    fn close_full_arena(&mut self) -> Result<(), AppendError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        self.log.storage().sync_soon(&open.arena.id().file_name());
        self.full.push_back(open.into_full());
        while self.full.len() > FULL_ARENAS_MAX {
            let Some(oldest) = self.full.pop_front() else { break };
            let file = oldest.id.file_name();
            let failed = |source| AppendError::Storage { arena: oldest.id, source };
            self.log.storage().sync(&file).map_err(failed)?;
            self.seal(oldest)?;
        }
        Ok(())
    }

    /// Writes the seal of an arena that is durable.
    fn seal(&mut self, full: FullArena) -> Result<(), AppendError> {
        let (footer, bytes): (Footer, _) =
            seal(self.log.keys(), full.header.code(), &full.pages, full.log_bytes, self.seals.next_ordinal());
        let file = full.id.file_name();
        let failed = |source| AppendError::Storage { arena: full.id, source };
        self.log.storage().append(&file, &bytes).map_err(failed)?;
        self.log.storage().sync_soon(&file);
        self.seals.insert(full.id, Seal::of(&full.header, &footer));
        self.new_seals.push(full.id);
        tracing::debug!(arena = %full.id, log_bytes = full.log_bytes, page_count = full.pages.len(), "sealed an arena");
        Ok(())
    }

    /// What has to be made durable so that everything appended so far is. Write the last page first, by
    /// [`finish_page`](Self::finish_page).
    #[must_use]
    pub fn plan_sync(&self) -> SyncPlan {
        let open = self.open.as_ref().filter(|open| open.durable_bytes < open.log_bytes);
        let full: Vec<_> = self.full.iter().map(|full| full.id).collect();
        let seals = self.new_seals.clone();
        let open = open.map(|open| (open.arena.id(), open.log_bytes));
        let arenas = seals.iter().chain(&full).copied().chain(open.map(|(id, _)| id));
        SyncPlan {
            files: arenas.map(ArenaId::file_name).collect(),
            folder: self.folder_changed,
            open,
            full,
            seals,
        }
    }

    /// Notes that a plan has been carried out, and seals the arenas that were waiting for it.
    ///
    /// # Errors
    /// As [`append`](Self::append). What the plan made durable is durable all the same.
    pub fn finish_sync(&mut self, plan: &SyncPlan) -> Result<(), AppendError> {
        self.check()?;
        if let (Some(open), Some((id, log_bytes))) = (&mut self.open, plan.open)
            && open.arena.id() == id
        {
            open.durable_bytes = open.durable_bytes.max(log_bytes);
        }
        if plan.folder {
            self.folder_changed = false;
        }
        self.new_seals.retain(|arena| !plan.seals.contains(arena));
        let (durable, waiting): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.full).into_iter().partition(|full| plan.full.contains(&full.id));
        self.full = waiting;
        let sealed = durable.into_iter().try_for_each(|full| self.seal(full));
        self.remember(sealed)
    }

    /// Refuses everything from now on: a sync has failed, and what was written before it is unknown.
    pub fn fail(&mut self, reason: String) {
        self.failed.get_or_insert(reason);
    }

    /// Leaves a mark that all is durable, so that the next opening need not read the end of the log to know. Call it
    /// after a sync; the mark itself need not be durable.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn mark_durable(&mut self) -> Result<(), AppendError> {
        self.check()?;
        let unmarked = self.open.as_ref().is_some_and(|open| {
            let all_durable = open.durable_bytes == open.log_bytes;
            all_durable && open.waiting.block_count() == 0
        });
        // A session that wrote nothing has nothing to mark.
        if unmarked && self.counter > 0 {
            let written = self.write_waiting_page();
            self.remember(written)?;
            if let Some(open) = &mut self.open {
                // The mark does not count: leaving one more mark for it would never end.
                open.durable_bytes = open.log_bytes;
            }
        }
        Ok(())
    }

    /// Seals the open arena: for a writer who could not go on with it another time. Everything must have been synced; the
    /// seal is durable when this returns.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn seal_open(&mut self) -> Result<(), AppendError> {
        self.check()?;
        let is_durable =
            |open: &OpenArena| open.durable_bytes == open.log_bytes && open.waiting.block_count() == 0;
        if !self.open.as_ref().is_some_and(is_durable) {
            return Ok(());
        }
        let sealed = self.open.take().map_or(Ok(()), |open| self.seal_durably(open.into_full()));
        self.remember(sealed)
    }

    fn seal_durably(&mut self, full: FullArena) -> Result<(), AppendError> {
        let id = full.id;
        self.seal(full)?;
        let failed = |source| AppendError::Storage { arena: id, source };
        self.log.storage().sync(&id.file_name()).map_err(failed)?;
        self.new_seals.retain(|arena| *arena != id);
        Ok(())
    }

    /// The seals of all sealed arenas.
    #[must_use]
    pub fn seals(&self) -> &Seals {
        &self.seals
    }

    /// The arenas that are not sealed yet, each with the place that the next record would have, and the code of its last page.
    pub fn unsealed(&self) -> impl Iterator<Item = (ArenaId, Granule, Option<[u8; 16]>)> + '_ {
        let full = self.full.iter().map(|full| (full.id, full.log_bytes, &full.pages));
        let open = self.open.iter().map(|open| (open.arena.id(), open.log_bytes, &open.pages));
        full.chain(open).filter_map(|(id, log_bytes, pages)| {
            Some((id, Granule::at_or_after(log_bytes)?, pages.last().map(|row| row.code)))
        })
    }

    fn check(&self) -> Result<(), AppendError> {
        match &self.failed {
            Some(reason) => Err(AppendError::Failed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn remember<T>(&mut self, result: Result<T, AppendError>) -> Result<T, AppendError> {
        if let Err(error) = &result {
            let reason = match error {
                AppendError::Storage { source, .. } => format!("{error}: {source}"),
                other => other.to_string(),
            };
            self.fail(reason);
        }
        result
    }
}

impl OpenArena {
    fn new(
        arena: OpenedArena,
        (clump_cipher, page_cipher): (RecordCipher, RecordCipher),
        log_bytes: u64,
        pages: Vec<PageRow>,
        score_bytes: usize,
    ) -> Self {
        let waiting = DirectoryPage::new(score_bytes);
        Self { arena, clump_cipher, page_cipher, log_bytes, durable_bytes: 0, waiting, pages }
    }

    fn into_full(self) -> FullArena {
        let header = self.arena.header.clone();
        FullArena { id: self.arena.id(), header, log_bytes: self.log_bytes, pages: self.pages }
    }
}

impl SyncPlan {
    /// Makes durable what the plan names. The writer may go on meanwhile.
    ///
    /// # Errors
    /// [`SyncLogError::Sync`]; the log must then take nothing more.
    pub fn carry_out(&self, log: &Log) -> Result<(), SyncLogError> {
        for file in &self.files {
            let failed = |source| SyncLogError::Sync { file: file.to_string(), source };
            log.storage().sync(file).map_err(failed)?;
        }
        if self.folder {
            let failed = |source| SyncLogError::Sync { file: ArenaId::FOLDER.into(), source };
            log.storage().sync_folder(ArenaId::FOLDER).map_err(failed)?;
        }
        Ok(())
    }
}
