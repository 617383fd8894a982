//! The end of the log: recovers it after a crash, and makes the appender that continues there.

use std::sync::Arc;

use varve_log::{
    Appender, ArenaId, ArenaVersion, Granule, OpenLogError, OpenedArena, ProvenPages, RecoverError,
    RecoveredArena, Seals, UNSEALED_MAX,
};

use super::Opening;
use super::ledger::{NewestLedger, counted_before, may_be_missed, newest_ledger};
use super::sealed_arenas::UnsealedArenas;
use crate::saved_index::{CoveredParts, remove_saved_index};
use crate::vault::OpenStoreError;

/// At most this many numbers are left free for arenas that are gone, since the ledger that counts
/// them may be forged.
const NUMBERS_LEFT_MAX: u64 = 64;

/// The number of arenas that were sealed before the log's end.
struct SealedCounts {
    /// The number of places in the order of seals that count as places of durable seals.
    places: u64,
    /// The number of seals that the newest ledger counts.
    by_ledger: u64,
}

impl Opening<'_> {
    /// Recovers the arenas that a crash may have left without a seal, and makes the appender that
    /// continues the last one.
    pub(super) fn take_log_end(
        &mut self,
        ids: &[ArenaId],
        left: UnsealedArenas,
        mut seals: Seals,
        covered: &CoveredParts,
    ) -> Result<Appender, OpenStoreError> {
        let counted = self.count_seals(ids, &left, &seals)?;
        let unsealed_count = left.unsealed.len() as u64;
        let is_any_lost = seals.missing_count(counted.places) > 0;
        let mut good = self.take_off_parted_seals(ids, counted.places, &mut seals)?;
        let log = self.vault.log();
        for arena in left.unsealed {
            let is_lost = self.has_lost_its_seal(ids, &arena, &counted, is_any_lost, &seals)?;
            let found = self.take_in_unsealed(&arena, is_lost, covered)?;
            if let Some(found) = found.filter(|_| !is_lost) {
                // Opened a second time, since the appender owns its arena.
                good.push((log.open_arena(arena.id())?, found));
            }
        }
        good.sort_by_key(|(arena, _)| arena.id());
        let next = self.next_number(ids, counted.places, &seals, unsealed_count)?;
        let random = Arc::clone(&self.vault.world().random);
        let mut appender = Appender::new(Arc::clone(log), random, (seals, counted.places), good, next)?;
        // An earlier version would let an older program add to a store that it does not understand.
        appender.raise_version(self.vault.newest_version()?)?;
        if appender.version() >= ArenaVersion::Notes {
            self.note_lost_pages(ids, next, &appender);
        }
        Ok(appender)
    }

    /// Tells the finder where the newest pages lay that cannot be read, because an arena is gone or
    /// damaged. `next` is the number of the next arena. Blocks that this session adds come after
    /// that place.
    fn note_lost_pages(&self, ids: &[ArenaId], next: ArenaId, appender: &Appender) {
        let gone = (0..next.0).rev().map(ArenaId).find(|id| ids.binary_search(id).is_err());
        let Some(newest) = gone.max(self.newest_damaged) else { return };
        let map = self.vault.map();
        let end = map.address(ArenaId(newest.0.saturating_add(1)), Granule(0));
        let (home, home_bytes) = appender.home();
        let home_end = Granule::at_or_after(home_bytes).and_then(|granule| map.address(home, granule));
        if let Some(end) = [end, home_end].into_iter().flatten().min() {
            self.finder.note_lost_pages(end);
        }
    }

    /// Counts the seals that were durable. If every seal that the newest page's ledger counts is
    /// present, an arena without a seal never had one. Otherwise only the last arenas can lack a
    /// seal because there was no time to write it. An earlier arena has lost its seal: its pages
    /// are read, and it is left for `verify` to report.
    fn count_seals(
        &mut self,
        ids: &[ArenaId],
        left: &UnsealedArenas,
        seals: &Seals,
    ) -> Result<SealedCounts, OpenStoreError> {
        let UnsealedArenas { unsealed, is_damaged } = left;
        let newest = newest_ledger(self.vault, ids, &mut self.scans);
        let by_ledger = newest.ledger.map_or(0, |ledger| ledger.arena_count);
        // Bytes that the disk does not return may hold the seal that a place seems to lack. In that
        // case a seal that parity shows to have been durable is not taken off.
        let mut withheld = None;
        for arena in unsealed {
            let hidden = self.scans.of(arena)?.hidden.as_ref().map(|hidden| (arena.id(), *hidden.start()));
            withheld = withheld.or(hidden);
        }
        let by_parity = if withheld.is_some() { self.count_by_parity(seals, by_ledger) } else { 0 };
        let mut places = by_ledger.max(by_parity);
        let is_secure = self.secure_uncounted(ids, places, seals)?;
        let after_last = seals.places().last().map_or(0, |(place, ..)| place.saturating_add(1));
        if *is_damaged || !is_secure || !newest.is_certain || self.may_precede_noted(&newest) {
            // The newest ledger may be gone. A place without a seal then counts as a lost seal, and
            // not as one that was never written.
            places = places.max(after_last);
        } else if let Some((arena, offset)) = withheld.filter(|_| seals.free_place(places) < after_last) {
            // Nothing shows whether the missing seal was durable. A copy may have it and the seals
            // after it, so the seals after it stay as they are. No page may say that the missing
            // seal was durable before that is known.
            self.unread.note_not_durable(arena, offset);
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
        Ok(SealedCounts { places, by_ledger })
    }

    /// Returns true if an arena without a seal had one. The writer then does not append to it.
    fn has_lost_its_seal(
        &mut self,
        ids: &[ArenaId],
        arena: &OpenedArena,
        counted: &SealedCounts,
        is_any_lost: bool,
        seals: &Seals,
    ) -> Result<bool, OpenStoreError> {
        let place = ids.partition_point(|id| *id < arena.id());
        let header = arena.header();
        // Parity is made only of sealed arenas, so it proves a seal that no ledger has covered yet.
        let was_sealed = self.vault.parity().was_sealed(arena.id(), header.generation, header.code());
        let is_tail = place + UNSEALED_MAX >= ids.len() && place as u64 >= counted.places;
        let is_missed = may_be_missed(seals, counted.by_ledger, counted_before(arena, self.scans.of(arena)?));
        let is_lost = was_sealed || is_missed || (is_any_lost && !is_tail);
        if is_lost {
            tracing::error!(arena = %arena.id(), "an arena has lost its seal");
        }
        Ok(is_lost)
    }

    /// Adds the good part of an arena without a seal to the index, and recovers the arena unless
    /// its seal is lost. Returns the recovered part if the writer may continue behind it.
    fn take_in_unsealed(
        &mut self,
        arena: &Arc<OpenedArena>,
        is_lost: bool,
        covered: &CoveredParts,
    ) -> Result<Option<RecoveredArena>, OpenStoreError> {
        let covered_end = covered.end_in(arena.id());
        if !self.vault.log().keys().can_read() {
            return self.take_in_proven(arena, covered_end);
        }
        if is_lost {
            self.read_unsealed(vec![Arc::clone(arena)], covered)?;
            return Ok(None);
        }
        let found = self.vault.log().recover(arena, self.scans.take(arena)?)?;
        self.unread.note_scan(arena.id(), &found);
        if found.gap.is_some() {
            self.note_damaged(arena.id());
            self.unread.note_left(arena.id(), &found);
        }
        self.finder.take_in(arena, &found, covered_end)?;
        Ok(Some(found).filter(|found| found.gap.is_none()))
    }

    /// Returns the number of the next arena, which no earlier arena had.
    fn next_number(
        &self,
        ids: &[ArenaId],
        counted_places: u64,
        seals: &Seals,
        unsealed_count: u64,
    ) -> Result<ArenaId, OpenStoreError> {
        // An arena that has parity existed, although its file may be gone, and so did an arena that
        // a checkpoint knows. Their numbers are not used again.
        let last = ids.last().copied();
        let by_parity =
            self.vault.parity().last_known_after(last).map_err(|source| OpenLogError { source })?;
        let by_checkpoint = seals.iter().map(|(id, _)| id).max();
        let known = last.max(by_parity).max(by_checkpoint);
        // Arenas whose seals are missing existed too. Gaps in the known numbers and arenas without
        // a seal explain some of the missing seals. The arenas of the others came last, and their
        // numbers stay free for `repair`.
        let with_seal_only = seals.places().filter(|(_, id, _)| ids.binary_search(id).is_err()).count();
        let accounted_for = (ids.len() + with_seal_only) as u64;
        let explained = known.map_or(0, |known| (known.0 + 1).saturating_sub(accounted_for)) + unsealed_count;
        let missed = seals.missing_count(counted_places).saturating_sub(explained);
        Ok(ArenaId(known.map_or(0, |last| last.0 + 1) + missed.min(NUMBERS_LEFT_MAX)))
    }

    /// Makes the seals that no page has counted durable, by writing their arenas anew: so far they
    /// may be in the page cache only. Returns true if all of them are durable. An arena that the
    /// disk does not return in full is left as it is.
    fn secure_uncounted(
        &mut self,
        ids: &[ArenaId],
        counted: u64,
        seals: &Seals,
    ) -> Result<bool, RecoverError> {
        let mut is_secure = true;
        for (_, id, _) in seals.places().skip_while(|(place, ..)| *place < counted) {
            // If only a checkpoint knows the arena, its file is gone. `verify` reports that.
            if ids.binary_search(&id).is_err() {
                continue;
            }
            match self.vault.log().write_anew(id, None) {
                Err(error) if error.is_unreadable() => {
                    tracing::error!(arena = %id, %error, "the disk cannot read all of an arena; the arena is not changed");
                    self.unread.note_not_durable(id, 0);
                    is_secure = false;
                }
                other => other?,
            }
        }
        Ok(is_secure)
    }

    /// Counts the places in the order of seals up to the last seal whose arena has parity. Parity
    /// is made only of durable arenas, so this seal and all before it were durable.
    fn count_by_parity(&self, seals: &Seals, counted: u64) -> u64 {
        let mut count = 0;
        for (place, id, _) in seals.places().skip_while(|(place, ..)| *place < counted) {
            let Ok(arena) = self.vault.directory().arena(id) else { continue };
            if self.vault.parity().was_sealed(id, arena.header().generation, arena.header().code()) {
                count = place.saturating_add(1);
            }
        }
        count
    }

    /// Takes off the seals that a power cut has separated from the counted ones, so that no place
    /// in the order stays free. Returns their arenas, which are to be sealed again.
    fn take_off_parted_seals(
        &self,
        ids: &[ArenaId],
        counted: u64,
        seals: &mut Seals,
    ) -> Result<Vec<(OpenedArena, RecoveredArena)>, OpenStoreError> {
        let free = seals.free_place(counted);
        let parted = seals.places().filter(|(place, ..)| *place >= free).map(|(_, id, _)| id);
        let parted: Vec<_> = parted.filter(|id| ids.binary_search(id).is_ok()).collect();
        if parted.iter().any(|id| self.finder.is_believed(*id)) {
            // The saved index knows one of these seals. A power cut does not cause that: the seals
            // between it and the counted ones were lost. A saved index that says that these arenas
            // are sealed must not outlive their seals.
            remove_saved_index(self.vault.storage())
                .map_err(|(file, source)| OpenStoreError::Hint { file, source })?;
        }
        let mut unsealed = Vec::new();
        for id in parted {
            let arena = self.vault.log().open_arena(id)?;
            self.vault.parity().remove_all(id)?;
            let found = self.vault.log().take_off_seal(&arena)?;
            for (row, _) in &found.pages {
                self.vault.directory().note_unsealed(id, *row);
            }
            seals.remove(id);
            unsealed.push((arena, found));
        }
        Ok(unsealed)
    }

    /// Returns true if the newest readable ledger may be older than that of the page that was noted
    /// last. If the disk merely does not return the noted page at present, a ledger in a later
    /// arena has counted everything that the noted page's ledger counts.
    fn may_precede_noted(&self, newest: &NewestLedger) -> bool {
        match self.vault.newest_is_there() {
            Ok(is_there) => !is_there,
            Err(error) => {
                !error.is_unreadable() || newest.ledger.is_none() || newest.arena <= self.vault.noted_arena()
            }
        }
    }

    /// Reads the part of an arena without a seal that is surely good, for a writer that cannot read
    /// clumps and so cannot recover the arena. Returns that part if it is everything: the arena
    /// then needs only its seal. Otherwise the arena is left as it is, for a writer that can read
    /// clumps.
    fn take_in_proven(
        &mut self,
        arena: &OpenedArena,
        covered: Option<Granule>,
    ) -> Result<Option<RecoveredArena>, OpenStoreError> {
        // No clump of the arena is read before it gets its seal, so two scans must agree.
        let proven = ProvenPages::of(self.scans.take_found_twice(arena)?);
        let is_whole = proven.is_whole();
        self.finder.take_in(arena, &proven.proven, covered)?;
        if !is_whole {
            tracing::info!(arena = %arena.id(), "an arena needs recovery after a crash, which needs a key that can read it");
        }
        for (_, page) in &proven.unproven {
            self.finder.note_uncertain_catalog(arena.id(), page);
        }
        Ok(Some(proven.proven).filter(|_| is_whole))
    }
}
