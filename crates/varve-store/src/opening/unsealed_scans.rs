//! Scans of arenas that have no seal. Each arena is scanned once while a store is opened or
//! checked.

use std::collections::BTreeMap;

use varve_log::{ArenaId, Log, OpenedArena, ReadLogError, RecoveredArena};

/// The most repeated scans of an arena until two in a row agree.
const AGAIN_MAX: usize = 3;

/// The scans made so far.
pub struct UnsealedScans<'a> {
    log: &'a Log,
    found: BTreeMap<ArenaId, RecoveredArena>,
}

impl<'a> UnsealedScans<'a> {
    /// Makes an empty set of scans.
    #[must_use]
    pub fn new(log: &'a Log) -> Self {
        Self { log, found: BTreeMap::new() }
    }

    /// Returns the scan of an arena, and makes it if there is none.
    ///
    /// # Errors
    /// [`ReadLogError`] when the arena cannot be scanned.
    pub fn of(&mut self, arena: &OpenedArena) -> Result<&RecoveredArena, ReadLogError> {
        let found = match self.found.remove(&arena.id()) {
            Some(found) => found,
            None => self.log.scan(arena)?,
        };
        Ok(self.found.entry(arena.id()).or_insert(found))
    }

    /// Like [`of`](Self::of), but moves the scan to the caller.
    pub(crate) fn take(&mut self, arena: &OpenedArena) -> Result<RecoveredArena, ReadLogError> {
        self.of(arena)?;
        Ok(self.found.remove(&arena.id()).unwrap_or_default())
    }

    /// Like [`take`](Self::take), but returns the result on which two scans in a row agree. A disk
    /// that once returns an earlier state of the file shows pages that no longer exist. If the
    /// scans never agree, returns the last one.
    pub(crate) fn take_found_twice(&mut self, arena: &OpenedArena) -> Result<RecoveredArena, ReadLogError> {
        let mut found = self.take(arena)?;
        for _ in 0..AGAIN_MAX {
            let before = std::mem::replace(&mut found, self.log.scan(arena)?);
            if before == found {
                break;
            }
        }
        Ok(found)
    }
}
