//! The end of the log: what a crash has left is recovered, and a writer goes on from there.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use varve_block::BlockType;
use varve_log::{
    Appender, ArenaId, ArenaState, Granule, Ledger, Log, OpenLogError, OpenedArena, Proven, ReadLogError,
    RecoverError, Recovered, Seals, UNSEALED_MAX,
};
use varve_world::FileLock;

use crate::checkpoint::Coverage;
use crate::config::CompareMode;
use crate::never_begun::NeverBegun;
use crate::open::OpenError;
use crate::parity::ParityDue;
use crate::placement::Placement;
use crate::scans::Scans;
use crate::store::{Durable, Store, Writer};

/// So many numbers at most are left free for arenas that are gone: what counts them may be forged.
const NUMBERS_LEFT_MAX: u64 = 64;

/// The newest ledger that can be read.
pub(crate) struct NewestLedger {
    pub(crate) ledger: Option<Ledger>,
    /// The arena whose page has it, or that was looked at last.
    pub(crate) arena: Option<ArenaId>,
    /// Whether it is surely the newest one that there is.
    pub(crate) is_certain: bool,
}

/// What tells how many arenas were sealed before the log's end.
struct Counted {
    /// How many places in the order of seals are taken for those of seals that were durable.
    places: u64,
    /// How many of them the newest ledger counts.
    by_ledger: u64,
}

impl Store {
    /// Recovers the arenas that a crash may have left without a seal, and goes on with the last one.
    pub(crate) fn take_log_end(
        &mut self,
        ids: &[ArenaId],
        (unsealed, is_damaged): (Vec<Arc<OpenedArena>>, bool),
        mut coverage: Coverage,
        scans: &mut Scans<'_>,
        lock: Box<dyn FileLock>,
    ) -> Result<(), OpenError> {
        let counted = self.count_seals(ids, (&unsealed, is_damaged), &coverage.sealed, scans)?;
        let unsealed_count = unsealed.len() as u64;
        let is_any_lost = coverage.sealed.missing_count(counted.places) > 0;
        let mut good = self.take_off_parted_seals(ids, counted.places, &mut coverage.sealed)?;
        for arena in unsealed {
            let is_lost =
                self.has_lost_its_seal(ids, &arena, (&counted, is_any_lost), &coverage.sealed, scans)?;
            let found = self.take_in_unsealed(&arena, is_lost, &coverage, scans)?;
            if let Some(found) = found.filter(|_| !is_lost) {
                // A second opening, since the writer's arena is the writer's own.
                good.push((self.log.open_arena(arena.id())?, found));
            }
        }
        good.sort_by_key(|(arena, _)| arena.id());
        let next = self.next_number(ids, counted.places, &coverage.sealed, unsealed_count)?;
        let random = Arc::clone(&self.world.random);
        let sealed = (coverage.sealed, counted.places);
        let appender = Appender::new(Arc::clone(&self.log), random, sealed, good, next)?;
        if self.config.compare == CompareMode::Value {
            let map = self.config.arena_map;
            self.admission().placement = Some(Placement::new(appender.session_mark(), map, appender.home()));
        }
        self.writer = Some(Writer {
            appender: Mutex::new(appender),
            sync_gate: Mutex::new(Durable::default()),
            parity: ParityDue::default(),
            is_replacing: AtomicBool::new(false),
            _lock: lock,
        });
        Ok(())
    }

    /// How many seals there were. If every seal that the newest page's ledger counts is there, an arena without one never had it. Else only
    /// the last arenas can lack it for lack of time; an earlier one has lost it: its pages are read, and it is left for `verify` to report.
    fn count_seals(
        &mut self,
        ids: &[ArenaId],
        (unsealed, is_damaged): (&[Arc<OpenedArena>], bool),
        seals: &Seals,
        scans: &mut Scans<'_>,
    ) -> Result<Counted, OpenError> {
        let newest = self.newest_ledger(ids, scans);
        let by_ledger = newest.ledger.map_or(0, |ledger| ledger.arena_count);
        // What the disk does not give may hold the seal that a place seems to lack: then one that surely was durable is not taken off.
        let mut withheld = None;
        for arena in unsealed {
            let hidden = scans.of(arena)?.hidden.as_ref().map(|hidden| (arena.id(), *hidden.start()));
            withheld = withheld.or(hidden);
        }
        let by_parity = if withheld.is_some() { self.count_by_parity(seals, by_ledger) } else { 0 };
        let mut places = by_ledger.max(by_parity);
        let is_secure = self.secure_uncounted(ids, places, seals)?;
        let after_last = seals.places().last().map_or(0, |(place, ..)| place.saturating_add(1));
        if is_damaged || !is_secure || !newest.is_certain || self.may_precede_noted(&newest) {
            // The ledger that held may be gone: a place without a seal is taken for lost, not for that of a seal that never was.
            places = places.max(after_last);
        } else if let Some((arena, offset)) = withheld.filter(|_| seals.free_place(places) < after_last) {
            // Nothing tells whether the seal that is missed was durable. A copy may have it and those after it, so they stay as they are;
            // and no page says that it was, before that is known.
            self.withheld.note_not_durable(arena, offset);
            places = after_last;
        }
        tracing::debug!(
            places,
            by_ledger,
            newest.is_certain,
            is_damaged,
            is_secure,
            seals = ?seals.places().map(|(place, id, _)| (place, id.0)).skip_while(|(place, _)| *place < places).collect::<Vec<_>>(),
            unsealed = ?unsealed.iter().map(|arena| arena.id().0).collect::<Vec<_>>(),
            "the end of the log"
        );
        Ok(Counted { places, by_ledger })
    }

    /// Whether an arena without a seal had one: then it is not written to.
    fn has_lost_its_seal(
        &self,
        ids: &[ArenaId],
        arena: &OpenedArena,
        (counted, is_any_lost): (&Counted, bool),
        seals: &Seals,
        scans: &mut Scans<'_>,
    ) -> Result<bool, OpenError> {
        let place = ids.partition_point(|id| *id < arena.id());
        let header = arena.header();
        // Parity is made only of sealed arenas: it tells of a seal that no ledger has covered yet.
        let was_sealed = self.was_sealed_by_parity(arena.id(), header.generation, header.code());
        let is_tail = place + UNSEALED_MAX >= ids.len() && place as u64 >= counted.places;
        let is_missed = may_be_missed(seals, counted.by_ledger, counted_before(arena, scans.of(arena)?));
        let is_lost = was_sealed || is_missed || (is_any_lost && !is_tail);
        if is_lost {
            tracing::error!(arena = %arena.id(), "an arena has lost its seal");
        }
        Ok(is_lost)
    }

    /// Takes in what is good of an arena without a seal, and recovers it unless its seal is lost. What was found is handed back where the
    /// writer may go on behind it.
    fn take_in_unsealed(
        &mut self,
        arena: &Arc<OpenedArena>,
        is_lost: bool,
        coverage: &Coverage,
        scans: &mut Scans<'_>,
    ) -> Result<Option<Recovered>, OpenError> {
        let covered = coverage.part.get(&arena.id()).map(|part| part.end);
        if !self.log.keys().can_read() {
            return self.take_in_proven(arena, covered, scans);
        }
        if is_lost {
            self.read_unsealed(vec![Arc::clone(arena)], &coverage.part, scans)?;
            return Ok(None);
        }
        let found = self.log.recover(arena, scans.take(arena)?)?;
        self.withheld.note_scan(arena.id(), &found);
        if found.gap.is_some() {
            self.withheld.note_left(arena.id(), &found);
        }
        self.take_in(arena, &found, covered)?;
        Ok(Some(found).filter(|found| found.gap.is_none()))
    }

    /// The number of the next arena: that of none that was there.
    fn next_number(
        &self,
        ids: &[ArenaId],
        counted_places: u64,
        seals: &Seals,
        unsealed_count: u64,
    ) -> Result<ArenaId, OpenError> {
        // An arena that has parity was there, though its file may be gone, and so was one that a checkpoint knows: its number is not
        // given away.
        let last = ids.last().copied();
        let by_parity = self.last_known_by_parity(last).map_err(|source| OpenLogError { source })?;
        let by_checkpoint = seals.iter().map(|(id, _)| id).max();
        let known = last.max(by_parity).max(by_checkpoint);
        // So were those whose seals are missed, and for which there is neither a number of which nothing is known nor an arena without a
        // seal: they came last. Their numbers stay free for `repair`.
        let with_seal_only = seals.places().filter(|(_, id, _)| ids.binary_search(id).is_err()).count();
        let accounted_for = (ids.len() + with_seal_only) as u64;
        let explained = known.map_or(0, |known| (known.0 + 1).saturating_sub(accounted_for)) + unsealed_count;
        let missed = seals.missing_count(counted_places).saturating_sub(explained);
        Ok(ArenaId(known.map_or(0, |last| last.0 + 1) + missed.min(NUMBERS_LEFT_MAX)))
    }

    /// Makes sure that seals which no page has counted survive: they may be such that can only be read for now. Says whether all of
    /// them do; one that the disk does not give all of is left as it is.
    fn secure_uncounted(
        &mut self,
        ids: &[ArenaId],
        counted: u64,
        seals: &Seals,
    ) -> Result<bool, RecoverError> {
        let mut is_secure = true;
        for (_, id, _) in seals.places().skip_while(|(place, ..)| *place < counted) {
            // If only a checkpoint knows it, its file is gone, which `verify` reports.
            if ids.binary_search(&id).is_err() {
                continue;
            }
            match self.log.write_anew(id, None) {
                Err(error) if error.is_unreadable() => {
                    tracing::error!(arena = %id, %error, "the disk does not give all of an arena; it is left as it is");
                    self.withheld.note_not_durable(id, 0);
                    is_secure = false;
                }
                other => other?,
            }
        }
        Ok(is_secure)
    }

    /// How many places in the order of seals come before the last one that has parity: that is made of what is durable.
    fn count_by_parity(&self, seals: &Seals, counted: u64) -> u64 {
        let mut count = 0;
        for (place, id, _) in seals.places().skip_while(|(place, ..)| *place < counted) {
            let Ok(arena) = self.directory.arena(id) else { continue };
            if self.was_sealed_by_parity(id, arena.header().generation, arena.header().code()) {
                count = place.saturating_add(1);
            }
        }
        count
    }

    /// Takes off the seals that a power cut has parted from those that are counted, so that no place stays free, and hands back
    /// their arenas, to be sealed again.
    fn take_off_parted_seals(
        &self,
        ids: &[ArenaId],
        counted: u64,
        seals: &mut Seals,
    ) -> Result<Vec<(OpenedArena, Recovered)>, OpenError> {
        let free = seals.free_place(counted);
        let parted = seals.places().filter(|(place, ..)| *place >= free).map(|(_, id, _)| id);
        let parted: Vec<_> = parted.filter(|id| ids.binary_search(id).is_ok()).collect();
        let believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_any_saved = parted.iter().any(|id| believed.contains(*id));
        drop(believed);
        if is_any_saved {
            // A power cut does not do this, but what was between them is lost. An index that says that they are sealed must not outlive it.
            self.remove_saved_index().map_err(|(file, source)| OpenError::Hint { file, source })?;
        }
        let mut unsealed = Vec::new();
        for id in parted {
            let arena = self.log.open_arena(id)?;
            self.remove_parity(id)?;
            let found = self.log.take_off_seal(&arena)?;
            for (row, _) in &found.pages {
                self.directory.note_unsealed(id, *row);
            }
            seals.remove(id);
            unsealed.push((arena, found));
        }
        Ok(unsealed)
    }

    /// The ledger that holds: that of the last page in the last arena that has one. An arena that cannot be read, a second time neither,
    /// is passed over: the ledger before it holds, too, and counts fewer seals.
    pub(crate) fn newest_ledger(&self, ids: &[ArenaId], scans: &mut Scans<'_>) -> NewestLedger {
        let (mut is_certain, mut never_begun) = (true, NeverBegun::default());
        for id in ids.iter().rev() {
            let mut look = || last_ledger(&self.log, &*self.directory.arena(*id)?, scans);
            match look().or_else(|_| look()) {
                Ok(last) => {
                    is_certain &= last.is_certain;
                    if last.ledger.is_some() {
                        return NewestLedger { is_certain, ..last };
                    }
                }
                Err(_) if never_begun.has(&self.log, *id) => {}
                Err(error) => {
                    tracing::warn!(arena = %id, %error, "an arena's last page cannot be read");
                    is_certain = false;
                }
            }
        }
        NewestLedger { ledger: None, arena: ids.first().copied(), is_certain }
    }

    /// Whether a ledger may be older than that of the page that was noted last. Where the disk just does not give that page for now, one in
    /// a later arena has counted all that it counts.
    fn may_precede_noted(&self, newest: &NewestLedger) -> bool {
        match self.newest_is_there() {
            Ok(is_there) => !is_there,
            Err(error) => {
                !error.is_unreadable() || newest.ledger.is_none() || newest.arena <= self.noted_arena()
            }
        }
    }

    /// Whether an arena has nothing, since a crash came before its header was durable, or a writer is about to write it.
    pub(crate) fn was_never_begun(&self, id: ArenaId) -> bool {
        self.log.was_never_begun(id).unwrap_or(false)
    }

    /// Reads what is surely good in an arena without a seal, for a writer who cannot read clumps and so cannot recover it.
    /// Hands it back if that is all of it: then it needs nothing but its seal. Else it is left as it is, for somebody who can.
    fn take_in_proven(
        &mut self,
        arena: &OpenedArena,
        covered: Option<Granule>,
        scans: &mut Scans<'_>,
    ) -> Result<Option<Recovered>, OpenError> {
        // Nobody reads its clumps before it gets its seal.
        let proven = Proven::of(scans.take_found_twice(arena)?);
        let is_whole = proven.is_whole();
        self.take_in(arena, &proven.proven, covered)?;
        if !is_whole {
            tracing::info!(arena = %arena.id(), "an arena that a crash has left waits for a key that can read it");
        }
        for (_, page) in &proven.unproven {
            if let Some(root) = page.last_of_type(BlockType::CATALOG) {
                let address = self.log.config().map.address(arena.id(), root.granule);
                self.uncertain_catalogs.extend(address.map(|address| (address, root.name)));
            }
        }
        Ok(Some(proven.proven).filter(|_| is_whole))
    }
}

/// The ledger of an arena's last page.
pub(crate) fn last_ledger(
    log: &Log,
    arena: &OpenedArena,
    scans: &mut Scans<'_>,
) -> Result<NewestLedger, ReadLogError> {
    let id = Some(arena.id());
    let certain = |ledger| NewestLedger { ledger, arena: id, is_certain: true };
    Ok(match log.state(arena) {
        Ok(ArenaState::Sealed { pages, .. }) => match pages.last() {
            Some(row) => certain(Some(log.read_page(arena, row)?.ledger())),
            None => certain(None),
        },
        Ok(ArenaState::Unsealed) => {
            let found = scans.of(arena)?;
            let last = found.pages.last();
            let after = last.map_or(0, |(row, _)| row.granule.byte_offset());
            // What the disk does not give after the last page may be a later one.
            let is_certain = found.hidden.as_ref().is_none_or(|hidden| *hidden.end() < after);
            NewestLedger { ledger: last.map(|(_, page)| page.ledger()), arena: id, is_certain }
        }
        // A seal that a power cut has torn counts as none. That no page was lost with it has to be seen.
        Err(error @ ReadLogError::Seal { .. }) => match scans.of(arena)? {
            found if found.ends_at_seal() => certain(found.pages.last().map(|(_, page)| page.ledger())),
            _ => return Err(error),
        },
        Err(error) => return Err(error),
    })
}

/// How many places in the order of seals surely come before that of an arena without a seal: those that its last page has counted, unless
/// it was written anew, in a place that had been counted before.
pub(crate) fn counted_before(arena: &OpenedArena, found: &Recovered) -> u64 {
    match found.pages.last() {
        Some((_, page)) if arena.header().generation == 0 => page.ledger().arena_count,
        _ => 0,
    }
}

/// Whether an arena without a seal may be one of those that are missed among the first `counted`. It is not if all of those are among the
/// places [`counted_before`] its own.
pub(crate) fn may_be_missed(seals: &Seals, counted: u64, before: u64) -> bool {
    seals.missing_count(counted) > seals.missing_count(before.min(counted))
}
