//! Which of the last arenas were never begun: asked once for all arenas that cannot be opened.

use varve_log::{ArenaId, Log};

/// The answer, looked for when the first such arena is met. Whoever may write to a replica can make thousands of them up, and each look lists
/// all arenas that there are.
#[derive(Default)]
pub struct NeverBegun(Option<Vec<ArenaId>>);

impl NeverBegun {
    /// Whether this arena was never begun.
    pub fn has(&mut self, log: &Log, id: ArenaId) -> bool {
        if self.0.is_none() {
            self.0 = log.never_begun().ok();
        }
        self.0.as_ref().is_some_and(|ids| ids.contains(&id))
    }
}
