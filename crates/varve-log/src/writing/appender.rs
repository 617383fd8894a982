//! Appending: the one writer of a log.
//!
//! Clumps go to the open arena. A page is written when enough blocks wait for one, and at every
//! sync. A full arena is left behind and the next one is begun; it is sealed once everything in it
//! is durable. A sync has two steps, [`Appender::plan_sync`] and [`Appender::finish_sync`]; the
//! slow part runs between them, without the appender's lock. After a failed write or sync the
//! appender refuses everything.
//!
//! `docs/internals/durability.md` has the order of writes, and what a crash after each step leaves.

use std::collections::VecDeque;
use std::sync::Arc;

use varve_block::{LogAddress, SESSION_MARK_BYTES};
use varve_world::Random;

use crate::append_error::{AppendError, WriteFailure};
use crate::arenas::address::ArenaId;
use crate::arenas::header::{ARENA_HEADER_BYTES, ArenaVersion};
use crate::arenas::seals::{Seal, Seals};
use crate::reading::log::{Log, OpenedArena};
use crate::records::clump::PackedClump;
use crate::records::directory_page::PAGE_BLOCKS_GOAL;
use crate::records::granule::Granule;
use crate::records::ledger::Ledger;
use crate::recovery::scan::RecoveredArena;
use crate::writing::arena_writer::{AppendedPage, ArenaWriter, FullArena, WriterSession};
use crate::writing::reserved_space::ReservedSpace;
use crate::writing::sync::SyncPlan;

/// The most full arenas that may wait for their seal while their data is made durable.
const FULL_ARENAS_MAX: usize = 2;

/// While no full arena waits, the disk is asked to start writing after this many bytes. Otherwise
/// it would be idle until the first arena is full.
pub(crate) const EARLY_BYTES: u64 = 8 << 20;

/// The end of a log, held by its one writer.
pub struct Appender {
    log: Arc<Log>,
    random: Arc<dyn Random>,
    session: WriterSession,
    open: Option<ArenaWriter>,
    full: VecDeque<FullArena>,
    seals: Seals,
    /// The number of ordinals that the ledger had counted when the log was opened. An ordinal among
    /// them that has no seal was lost. It is not given again, so that the loss stays visible.
    counted: u64,
    next: ArenaId,
    /// The version of arenas that are begun.
    version: ArenaVersion,
    /// Arenas sealed in this session, with a footer that may not be durable yet.
    new_seals: Vec<ArenaId>,
    /// Arenas sealed in this session, and not yet reported by [`Self::take_newly_sealed`].
    untold_seals: Vec<ArenaId>,
    /// The number of arena files that were created, and the number of those whose names are durable
    /// in the folder.
    names_given: u64,
    names_durable: u64,
    reserve: ReservedSpace,
    failed: Option<WriteFailure>,
}

impl Appender {
    /// Takes over the end of the log.
    ///
    /// - `seals` are the seals of all sealed arenas. The newest ledger covers the first `counted`
    ///   of them; after these, no ordinal is missing.
    /// - `unsealed` are the arenas without a seal, in order. Each was recovered by
    ///   [`Log::recover`], or is known to be good as a whole.
    /// - `next` is larger than the number of every arena that has a file.
    ///
    /// A writer that can read continues the last arena. All others are sealed.
    ///
    /// # Errors
    /// [`AppendError::Storage`] when the system gives no random bytes.
    pub fn new(
        log: Arc<Log>,
        random: Arc<dyn Random>,
        (seals, counted): (Seals, u64),
        unsealed: Vec<(OpenedArena, RecoveredArena)>,
        next: ArenaId,
    ) -> Result<Self, AppendError> {
        let session = WriterSession::new(random.as_ref())
            .map_err(|source| AppendError::Storage { arena: next, source })?;
        let reserve = ReservedSpace::new(log.config().map);
        let mut appender = Self {
            log,
            random,
            session,
            open: None,
            full: VecDeque::new(),
            seals,
            counted,
            next,
            version: ArenaVersion::default(),
            new_seals: Vec::new(),
            untold_seals: Vec::new(),
            // Changes of the folder by an earlier session may not be durable. Without an arena
            // there is no folder yet.
            names_given: u64::from(next != ArenaId(0)),
            names_durable: 0,
            reserve,
            failed: None,
        };
        for (arena, recovered) in unsealed {
            appender.adopt(arena, recovered)?;
        }
        Ok(appender)
    }

    /// Continues an arena of an earlier session if it is the last one; otherwise queues it for
    /// sealing.
    fn adopt(&mut self, arena: OpenedArena, recovered: RecoveredArena) -> Result<(), AppendError> {
        // In an earlier arena, new data would come before old data. And an arena that a write-only
        // key could have forged must not hold data of a writer that can read.
        let is_last = arena.id().0.checked_add(1) == Some(self.next.0);
        if is_last && self.log.keys().can_read() && arena.header().takes_more(self.version) {
            self.version = self.version.max(arena.header().version());
            let pages = recovered.pages.iter().map(|(row, _)| *row).collect();
            self.open = Some(ArenaWriter::adopt(&self.log, &self.session, arena, &recovered, pages)?);
        } else {
            self.full.push_back(FullArena::left(&arena, &recovered));
        }
        Ok(())
    }

    /// Appends a clump. Returns its address and the pages that were written on the way. A page is
    /// due when enough blocks wait for one, and when an arena is full.
    ///
    /// # Errors
    /// [`AppendError`]; after [`AppendError::Storage`] the log refuses everything.
    pub fn append(&mut self, clump: PackedClump) -> Result<(LogAddress, Vec<AppendedPage>), AppendError> {
        self.check()?;
        let closed = self.raise_for(&clump)?;
        let appended = self.require_room(&clump).and_then(|()| self.try_append(clump, closed));
        self.remember(appended)
    }

    /// Makes sure that the next clump comes into an arena that may hold it. Returns a page that was
    /// written on the way.
    fn raise_for(&mut self, clump: &PackedClump) -> Result<Option<AppendedPage>, AppendError> {
        if clump.has_deltas() && self.version < ArenaVersion::Deltas {
            return self.raise_version(ArenaVersion::Deltas);
        }
        Ok(None)
    }

    /// Appends a clump to the arena `home`: the open one, or the next one if the open arena is an
    /// earlier one. For a by-value store, whose block names contain the place. So the arena is
    /// chosen before the clump is made.
    ///
    /// # Errors
    /// As [`append`](Self::append). Every other arena is refused.
    ///
    /// # Panics
    /// When a block of the clump is a delta: no arena could be chosen before the clump is made.
    pub fn append_in(
        &mut self,
        home: ArenaId,
        clump: PackedClump,
    ) -> Result<(LogAddress, Vec<AppendedPage>), AppendError> {
        assert!(!clump.has_deltas(), "a by-value store makes no deltas");
        self.check()?;
        let appended = self.require_room(&clump).and_then(|()| self.try_append_in(home, clump));
        self.remember(appended)
    }

    fn try_append_in(
        &mut self,
        home: ArenaId,
        clump: PackedClump,
    ) -> Result<(LogAddress, Vec<AppendedPage>), AppendError> {
        let mut pages = Vec::new();
        if self.open.as_ref().is_some_and(|open| open.id() < home) {
            pages.extend(self.write_page()?);
            self.close_full_arena()?;
        }
        if self.open.is_none() && self.next == home {
            self.begin_arena()?;
        }
        if self.open.as_ref().is_none_or(|open| open.id() != home) {
            let reason = format!("arena {home} no longer takes the clumps that belong in it");
            return Err(AppendError::Failed { reason: WriteFailure::new(reason) });
        }
        self.write_to_open(clump, pages)
    }

    /// Returns the arena that takes the next clump, and its length. A by-value store needs it to
    /// name the blocks of a draft.
    #[must_use]
    pub fn home(&self) -> (ArenaId, u64) {
        self.open.as_ref().map_or((self.next, ARENA_HEADER_BYTES as u64), |open| (open.id(), open.log_bytes))
    }

    /// Returns the part of this session's salt that goes into block names.
    #[must_use]
    pub fn session_mark(&self) -> [u8; SESSION_MARK_BYTES] {
        self.session.mark()
    }

    fn try_append(
        &mut self,
        clump: PackedClump,
        closed: Option<AppendedPage>,
    ) -> Result<(LogAddress, Vec<AppendedPage>), AppendError> {
        let mut pages = Vec::from_iter(closed);
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
        self.write_to_open(clump, pages)
    }

    fn write_to_open(
        &mut self,
        clump: PackedClump,
        mut pages: Vec<AppendedPage>,
    ) -> Result<(LogAddress, Vec<AppendedPage>), AppendError> {
        let Some(open) = &mut self.open else { unreachable!("the caller has begun one") };
        let before = open.log_bytes;
        let granule = open.write_clump(self.log.storage().as_ref(), &mut self.session, clump)?;
        if self.full.is_empty() && before / EARLY_BYTES != open.log_bytes / EARLY_BYTES {
            self.log.storage().sync_soon(&open.id().file_name());
        }
        let address = self.log.config().map.address(open.id(), granule).ok_or(AppendError::LogFull)?;
        if open.waiting_count() >= PAGE_BLOCKS_GOAL {
            pages.extend(self.write_page()?);
        }
        Ok((address, pages))
    }

    /// Requires that a clump leaves the reserve free, before an arena is begun for it.
    fn require_room(&mut self, clump: &PackedClump) -> Result<(), AppendError> {
        let required = self.reserve.require(self.log.storage().as_ref(), clump.record.len() as u64);
        required.map_err(|source| AppendError::Storage { arena: self.home().0, source })
    }

    /// Lets appends use the space that is reserved for forgetting and freeing, until
    /// [`end_use_of_reserve`](Self::end_use_of_reserve) was called as often as this.
    pub fn begin_use_of_reserve(&mut self) {
        self.reserve.begin_use();
    }

    /// See [`begin_use_of_reserve`](Self::begin_use_of_reserve).
    pub fn end_use_of_reserve(&mut self) {
        self.reserve.end_use();
    }

    /// Writes a page for the clumps that wait for one.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn finish_page(&mut self) -> Result<Option<AppendedPage>, AppendError> {
        self.check()?;
        let written = self.write_page();
        self.remember(written)
    }

    fn write_page(&mut self) -> Result<Option<AppendedPage>, AppendError> {
        match &self.open {
            Some(open) if open.waiting_count() > 0 => self.write_waiting_page().map(Some),
            _ => Ok(None),
        }
    }

    fn write_waiting_page(&mut self) -> Result<AppendedPage, AppendError> {
        let ledger = self.ledger();
        let Some(open) = &mut self.open else { unreachable!("the caller has seen an open arena") };
        let score_bytes = self.log.config().score_bytes;
        open.write_page(self.log.storage().as_ref(), &mut self.session, ledger, score_bytes)
    }

    /// Returns the ledger over the current seals.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.seals.ledger(self.log.keys(), self.durable_count())
    }

    fn begin_arena(&mut self) -> Result<(), AppendError> {
        let id = self.next;
        // Incremented first: a file that was created but could not be written stays behind.
        self.next = ArenaId(id.0 + 1);
        self.names_given += 1;
        let random = self.random.as_ref();
        let form = (0, self.version);
        let writer = ArenaWriter::begin(&self.log, random, &self.session, id, form, id.file_name())?;
        self.open = Some(writer);
        tracing::debug!(arena = %id, "began an arena");
        Ok(())
    }

    fn close_full_arena(&mut self) -> Result<(), AppendError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let file = open.id().file_name();
        self.full.push_back(open.into_full());
        self.log.storage().sync_soon(&file);
        while self.full.len() > FULL_ARENAS_MAX {
            let Some(oldest) = self.full.pop_front() else { break };
            let failed = |source| AppendError::Storage { arena: oldest.id, source };
            self.log.sync_file(oldest.file()).map_err(failed)?;
            self.seal(&oldest)?;
        }
        Ok(())
    }

    /// Writes the seal of a durable arena.
    fn seal(&mut self, full: &FullArena) -> Result<(), AppendError> {
        let storage = self.log.storage().as_ref();
        let seal = full.seal(storage, self.log.keys(), self.seals.free_place(self.counted))?;
        storage.sync_soon(full.file());
        self.seals.insert(full.id, seal);
        self.new_seals.push(full.id);
        self.untold_seals.push(full.id);
        Ok(())
    }

    /// Closes the open arena. It gets its seal by the next sync, even if it is not full.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn close_arena(&mut self) -> Result<Option<AppendedPage>, AppendError> {
        let page = self.finish_page()?;
        let closed = self.close_full_arena();
        self.remember(closed)?;
        Ok(page)
    }

    /// Returns the version of arenas that are begun.
    #[must_use]
    pub fn version(&self) -> ArenaVersion {
        self.version
    }

    /// Begins arenas of this version or a later one from now on. Closes an open arena of an earlier
    /// version.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn raise_version(&mut self, version: ArenaVersion) -> Result<Option<AppendedPage>, AppendError> {
        self.version = self.version.max(version);
        if self.open.as_ref().is_some_and(|open| open.version() < version) {
            return self.close_arena();
        }
        Ok(None)
    }

    /// Records that arenas were written anew, and writes a page with the new ledger.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn note_replaced(&mut self, seals: &[(ArenaId, Seal)]) -> Result<AppendedPage, AppendError> {
        self.check()?;
        for (arena, seal) in seals {
            self.seals.replace(*arena, *seal);
        }
        let begun = if self.open.is_none() { self.begin_arena() } else { Ok(()) };
        let written = begun.and_then(|()| self.write_waiting_page());
        self.remember(written)
    }

    /// Plans a sync of everything appended so far. Write the last page first, with
    /// [`finish_page`](Self::finish_page).
    #[must_use]
    pub fn plan_sync(&self) -> SyncPlan {
        let open = self.open.as_ref().filter(|open| open.durable_bytes < open.log_bytes);
        let full: Vec<_> = self.full.iter().map(|full| full.id).collect();
        let seals = self.new_seals.clone();
        let open = open.map(|open| (open.id(), open.log_bytes));
        let arenas = seals.iter().chain(&full).copied().chain(open.map(|(id, _)| id));
        SyncPlan {
            files: arenas.map(ArenaId::file_name).collect(),
            new_names: self.has_new_names().then_some(self.names_given),
            open,
            full,
            seals,
        }
    }

    /// Records that a plan has been carried out, and seals the arenas that were waiting for it.
    ///
    /// # Errors
    /// As [`append`](Self::append). The data of the plan is durable all the same.
    pub fn finish_sync(&mut self, plan: &SyncPlan) -> Result<(), AppendError> {
        self.check()?;
        if let (Some(open), Some((id, log_bytes))) = (&mut self.open, plan.open)
            && open.id() == id
        {
            open.durable_bytes = open.durable_bytes.max(log_bytes);
        }
        if let Some(names) = plan.new_names {
            // More names may have been given since the plan was made.
            self.names_durable = self.names_durable.max(names);
        }
        self.new_seals.retain(|arena| !plan.seals.contains(arena));
        let (durable, waiting): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.full).into_iter().partition(|full| plan.full.contains(&full.id));
        self.full = waiting;
        let sealed = durable.iter().try_for_each(|full| self.seal(full));
        self.remember(sealed)
    }

    /// Refuses everything from now on: a sync has failed, and the state of the data written before
    /// it is unknown.
    pub fn fail(&mut self, reason: WriteFailure) {
        self.failed.get_or_insert(reason);
    }

    /// Writes a page without blocks, whose durable mark says that everything before it is durable.
    /// The next opening then need not read the end of the log. Call it after a sync. The page
    /// itself need not be durable.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn mark_durable(&mut self) -> Result<(), AppendError> {
        self.check()?;
        let unmarked = self.open.as_ref().is_some_and(|open| {
            let all_durable = open.durable_bytes == open.log_bytes;
            all_durable && open.waiting_count() == 0
        });
        // A session that wrote nothing has nothing to mark.
        if unmarked && self.session.has_written() {
            let written = self.write_waiting_page();
            self.remember(written)?;
            if let Some(open) = &mut self.open {
                // This page counts as durable. Otherwise it would need another one after it.
                open.durable_bytes = open.log_bytes;
            }
        }
        Ok(())
    }

    /// Seals the open arena, for a writer that cannot continue it in a later session. Everything
    /// must have been synced. The seal is durable when this returns.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn seal_open(&mut self) -> Result<(), AppendError> {
        self.check()?;
        let is_durable =
            |open: &ArenaWriter| open.durable_bytes == open.log_bytes && open.waiting_count() == 0;
        if !self.open.as_ref().is_some_and(is_durable) {
            return Ok(());
        }
        let sealed = self.open.take().map_or(Ok(()), |open| self.seal_durably(&open.into_full()));
        self.remember(sealed)
    }

    fn seal_durably(&mut self, full: &FullArena) -> Result<(), AppendError> {
        self.seal(full)?;
        let failed = |source| AppendError::Storage { arena: full.id, source };
        self.log.sync_file(full.file()).map_err(failed)?;
        self.new_seals.retain(|arena| *arena != full.id);
        Ok(())
    }

    /// Returns the seals of all sealed arenas.
    #[must_use]
    pub fn seals(&self) -> &Seals {
        &self.seals
    }

    /// Iterates over the durable seals. A page or a checkpoint must not count others: it could
    /// survive a crash that loses them.
    pub fn durable_seals(&self) -> impl Iterator<Item = (ArenaId, &Seal)> {
        self.seals.iter().filter(|(arena, _)| !self.new_seals.contains(arena))
    }

    /// Returns true if a crash may undo the creation of arenas since the last sync.
    #[must_use]
    pub fn has_new_names(&self) -> bool {
        self.names_durable < self.names_given
    }

    /// Returns the arenas that this session has sealed since the last call. Their seals may not be
    /// durable yet.
    pub fn take_newly_sealed(&mut self) -> Vec<ArenaId> {
        std::mem::take(&mut self.untold_seals)
    }

    /// Records the seal of an arena that was damaged when the log was opened and has been mended.
    pub fn note_mended(&mut self, arena: ArenaId, seal: Seal) {
        self.seals.replace(arena, seal);
    }

    /// Returns the number of ordinals whose seals are durable or were counted before.
    fn durable_count(&self) -> u64 {
        let durable = self.seals.places().take_while(|(_, arena, _)| !self.new_seals.contains(arena));
        durable.last().map_or(0, |(place, ..)| place.saturating_add(1)).max(self.counted)
    }

    /// Iterates over the unsealed arenas, each with the place of its next record and the code of
    /// its last page.
    pub fn unsealed(&self) -> impl Iterator<Item = (ArenaId, Granule, Option<[u8; 16]>)> + '_ {
        let full = self.full.iter().map(|full| (full.id, full.log_bytes, full.pages.as_slice()));
        let open = self.open.iter().map(|open| (open.id(), open.log_bytes, open.pages()));
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
            self.fail(WriteFailure::of(error));
        }
        result
    }
}
