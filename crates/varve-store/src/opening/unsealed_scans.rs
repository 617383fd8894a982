//! What is in the arenas that have no seal, each scanned once while a store is opened or checked.

use std::collections::BTreeMap;

use varve_log::{ArenaId, Log, OpenedArena, ReadLogError, Recovered};

/// How often an arena is scanned again until two scans in a row agree.
const AGAIN_MAX: usize = 3;

/// The scans made so far.
pub struct UnsealedScans<'a> {
    log: &'a Log,
    found: BTreeMap<ArenaId, Recovered>,
}

impl<'a> UnsealedScans<'a> {
    /// No scans yet.
    #[must_use]
    pub fn new(log: &'a Log) -> Self {
        Self { log, found: BTreeMap::new() }
    }

    /// What a scan of this arena finds.
    ///
    /// # Errors
    /// [`ReadLogError`] when the arena cannot be scanned.
    pub fn of(&mut self, arena: &OpenedArena) -> Result<&Recovered, ReadLogError> {
        let found = match self.found.remove(&arena.id()) {
            Some(found) => found,
            None => self.log.scan(arena)?,
        };
        Ok(self.found.entry(arena.id()).or_insert(found))
    }

    /// As [`of`](Self::of), to be kept by the caller.
    pub(crate) fn take(&mut self, arena: &OpenedArena) -> Result<Recovered, ReadLogError> {
        self.of(arena)?;
        Ok(self.found.remove(&arena.id()).unwrap_or_default())
    }

    /// As [`take`](Self::take), of what two scans in a row have found: a disk that once returns an earlier state of the file shows pages that
    /// are none any more. If they never agree, what the last one has found.
    pub(crate) fn take_found_twice(&mut self, arena: &OpenedArena) -> Result<Recovered, ReadLogError> {
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
