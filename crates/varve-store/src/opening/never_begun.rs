//! The last arenas that were never begun. They are looked for once for all arenas that cannot be
//! opened.

use varve_log::{ArenaId, Log};

/// The arenas that were never begun, looked for when the first arena cannot be opened. An attacker
/// with write access to a replica can make up thousands of such arenas, and each search lists all
/// arenas.
#[derive(Default)]
pub struct NeverBegun(Option<Vec<ArenaId>>);

impl NeverBegun {
    /// Returns true if this arena was never begun.
    pub fn has(&mut self, log: &Log, id: ArenaId) -> bool {
        if self.0.is_none() {
            self.0 = log.never_begun().ok();
        }
        self.0.as_ref().is_some_and(|ids| ids.contains(&id))
    }
}
