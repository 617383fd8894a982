//! What is in the arenas that have no seal, each scanned once while a store is opened or checked.

use std::collections::BTreeMap;

use varve_log::{ArenaId, Log, OpenedArena, ReadLogError, Recovered};

/// The scans made so far.
pub(crate) struct Scans<'a> {
    log: &'a Log,
    found: BTreeMap<ArenaId, Recovered>,
}

impl<'a> Scans<'a> {
    pub(crate) fn new(log: &'a Log) -> Self {
        Self { log, found: BTreeMap::new() }
    }

    /// What a scan of this arena finds.
    pub(crate) fn of(&mut self, arena: &OpenedArena) -> Result<&Recovered, ReadLogError> {
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
}
