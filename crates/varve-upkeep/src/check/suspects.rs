//! `index/damaged`: the arenas in which damage was found and not mended yet, so that a repair need not look for it again. A hint like
//! all of `index/`: what is not in it is found by reading everything.
//!
//! | offset | bytes | field | meaning                                             |
//! |-------:|------:|-------|-----------------------------------------------------|
//! |      0 |       | rows  | the number of each such arena (8 bytes each)        |
//! |        |    32 | mac   | `BLAKE3(a key of the store's own, all before)`      |

use std::collections::BTreeSet;

use varve_log::{ArenaId, OpenLogError};
use varve_store::Hint;

use super::Checker;

const ROW_BYTES: usize = 8;
/// As many arenas as a log can have.
const ROWS_BYTES_MAX: usize = 32 << 20;
const DAMAGED: Hint = Hint { file: "index/damaged", context: "varve 1 damaged arenas" };

impl Checker<'_> {
    /// The arenas that were found to be damaged, and are not known to be mended.
    #[must_use]
    pub fn damaged_arenas(&self) -> BTreeSet<ArenaId> {
        let rows = self.vault().read_hint(&DAMAGED, ROWS_BYTES_MAX).unwrap_or_default();
        let (rows, _) = rows.as_chunks::<ROW_BYTES>();
        rows.iter().map(|row| ArenaId(u64::from_le_bytes(*row))).collect()
    }

    /// Notes which arenas are damaged: these and no others. That it cannot be noted costs nothing but the note.
    pub fn note_damaged(&self, arenas: &BTreeSet<ArenaId>) {
        if *arenas == self.damaged_arenas() {
            return;
        }
        let rows = arenas.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        if let Err(error) = self.vault().write_hint(&DAMAGED, rows) {
            tracing::info!(%error, "what is damaged could not be noted");
        }
    }

    /// The arenas that are there and that something speaks against: what was noted, blocks that could not be read, and what their
    /// headers and seals show. Costs a look at the ends of each arena, and reads no data.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed.
    pub fn suspected_arenas(&self) -> Result<BTreeSet<ArenaId>, OpenLogError> {
        let ids = self.log().arenas()?;
        let mut suspected = self.damaged_arenas();
        for name in self.store.lost_blocks() {
            suspected.extend(self.store.arenas_proposed_for(&name));
        }
        let opens =
            |id: ArenaId| self.log().open_arena(id).and_then(|arena| self.log().state(&arena)).is_ok();
        Ok(ids.into_iter().filter(|id| suspected.contains(id) || !opens(*id)).collect())
    }

    /// The arenas that have no seal, or do not tell.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed.
    pub fn unsealed_arenas(&self) -> Result<BTreeSet<ArenaId>, OpenLogError> {
        let ids = self.log().arenas()?.into_iter();
        Ok(ids.filter(|id| !matches!(self.seal_of(*id), Ok(Some(_)))).collect())
    }
}
