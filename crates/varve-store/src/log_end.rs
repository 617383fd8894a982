//! The end of the log: what a crash has left is recovered, and a writer goes on from there.

use std::sync::{Arc, Mutex};

use varve_block::BlockType;
use varve_log::{
    Appender, ArenaId, ArenaState, Granule, Ledger, OpenLogError, OpenedArena, Proven, ReadLogError,
    RecoverError, Recovered, Seals, UNSEALED_MAX,
};
use varve_world::FileLock;

use crate::checkpoint::Coverage;
use crate::open::OpenError;
use crate::parity::ParityDue;
use crate::scans::Scans;
use crate::store::{Durable, Store, Writer};

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
        // If every seal that the newest page's ledger counts is there, an arena without one never had it. Else only the last
        // arenas can lack it for lack of time; an earlier one has lost it: its pages are read, and it is left for `verify`
        // to report.
        let mut counted = self.newest_ledger(ids, scans).map_or(0, |ledger| ledger.arena_count);
        self.secure_uncounted(ids, counted, &coverage.sealed)?;
        if is_damaged || !self.newest_is_there().unwrap_or(false) {
            // The ledger that held may be gone: a place without a seal is taken for lost, not for that of a seal that never was.
            let after_last = coverage.sealed.places().last().map_or(0, |(place, ..)| place.saturating_add(1));
            counted = counted.max(after_last);
        }
        let is_any_lost = coverage.sealed.missing_count(counted) > 0;
        let mut good = self.take_off_parted_seals(ids, counted, &mut coverage.sealed)?;
        for arena in unsealed {
            let place = ids.partition_point(|id| *id < arena.id());
            let header = arena.header();
            // Parity is made only of sealed arenas: it tells of a seal that no ledger has covered yet.
            let was_sealed = self.was_sealed_by_parity(arena.id(), header.generation, header.code());
            let is_tail = place + UNSEALED_MAX >= ids.len() && place as u64 >= counted;
            let is_lost = was_sealed || (is_any_lost && !is_tail);
            let covered = coverage.part.get(&arena.id()).map(|part| part.end);
            if is_lost {
                tracing::error!(arena = %arena.id(), "an arena has lost its seal");
            }
            let found = if !self.log.keys().can_read() {
                self.take_in_proven(&arena, covered, scans)?
            } else if is_lost {
                self.read_unsealed(vec![Arc::clone(&arena)], &coverage.part, scans)?;
                None
            } else {
                let found = self.log.recover(&arena, scans.take(&arena)?)?;
                self.take_in(&arena, &found, covered)?;
                Some(found).filter(|found| found.gap.is_none())
            };
            if let Some(found) = found.filter(|_| !is_lost) {
                // A second opening, since the writer's arena is the writer's own.
                good.push((self.log.open_arena(arena.id())?, found));
            }
        }
        good.sort_by_key(|(arena, _)| arena.id());
        // An arena that has parity was there, though its file may be gone: its number is not given away.
        let last = ids.last().copied();
        let known = last.max(self.last_known_by_parity(last).map_err(|source| OpenLogError { source })?);
        let next = known.map_or(ArenaId(0), |last| ArenaId(last.0 + 1));
        let random = Arc::clone(&self.world.random);
        let appender = Appender::new(Arc::clone(&self.log), random, (coverage.sealed, counted), good, next)?;
        self.writer = Some(Writer {
            appender: Mutex::new(appender),
            sync_gate: Mutex::new(Durable::default()),
            parity: ParityDue::default(),
            _lock: lock,
        });
        Ok(())
    }

    /// Makes sure that seals which no page has counted survive: they may be such that can only be read for now.
    fn secure_uncounted(&self, ids: &[ArenaId], counted: u64, seals: &Seals) -> Result<(), RecoverError> {
        for (_, id, _) in seals.places().skip_while(|(place, ..)| *place < counted) {
            // If only a checkpoint knows it, its file is gone, which `verify` reports.
            if ids.binary_search(&id).is_ok() {
                self.log.write_anew(id, None)?;
            }
        }
        Ok(())
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
        let mut unsealed = Vec::new();
        for id in parted {
            let arena = self.log.open_arena(id)?;
            let found = self.log.take_off_seal(&arena)?;
            for (row, _) in &found.pages {
                self.directory.note_unsealed(id, *row);
            }
            seals.remove(id);
            unsealed.push((arena, found));
        }
        Ok(unsealed)
    }

    /// The ledger that holds: that of the last page in the last arena that has one.
    pub(crate) fn newest_ledger(&self, ids: &[ArenaId], scans: &mut Scans<'_>) -> Option<Ledger> {
        ids.iter().rev().find_map(|id| self.last_ledger(*id, scans).ok().flatten())
    }

    fn last_ledger(&self, id: ArenaId, scans: &mut Scans<'_>) -> Result<Option<Ledger>, ReadLogError> {
        let arena = self.directory.arena(id)?;
        Ok(match self.log.state(&arena)? {
            ArenaState::Sealed { pages, .. } => match pages.last() {
                Some(row) => Some(self.log.read_page(&arena, row)?.ledger()),
                None => None,
            },
            ArenaState::Unsealed => scans.of(&arena)?.pages.last().map(|(_, page)| page.ledger()),
        })
    }

    /// Reads what is surely good in an arena without a seal, for a writer who cannot read clumps and so cannot recover it.
    /// Hands it back if that is all of it: then it needs nothing but its seal. Else it is left as it is, for somebody who can.
    fn take_in_proven(
        &mut self,
        arena: &OpenedArena,
        covered: Option<Granule>,
        scans: &mut Scans<'_>,
    ) -> Result<Option<Recovered>, OpenError> {
        let proven = Proven::of(scans.take(arena)?);
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
