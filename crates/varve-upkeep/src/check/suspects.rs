//! `index/damaged`: the arenas in which damage was found that is not mended yet, so that a repair
//! need not search for it again. A hint like all of `index/`: damage that is not in it is found by
//! reading everything.
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
/// The most arenas of a log.
const ROWS_BYTES_MAX: usize = 32 << 20;
const DAMAGED: Hint = Hint { file: "index/damaged", context: "varve 1 damaged arenas" };

impl Checker<'_> {
    /// Returns the arenas that were found to be damaged, and are not known to be mended.
    #[must_use]
    pub fn damaged_arenas(&self) -> BTreeSet<ArenaId> {
        let rows = self.vault().read_hint(&DAMAGED, ROWS_BYTES_MAX).unwrap_or_default();
        let (rows, _) = rows.as_chunks::<ROW_BYTES>();
        rows.iter().map(|row| ArenaId(u64::from_le_bytes(*row))).collect()
    }

    /// Replaces the set of damaged arenas. If it cannot be written, only the set is lost.
    pub fn note_damaged(&self, arenas: &BTreeSet<ArenaId>) {
        if *arenas == self.damaged_arenas() {
            return;
        }
        let rows = arenas.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        if let Err(error) = self.vault().write_hint(&DAMAGED, rows) {
            tracing::info!(%error, "the list of damaged arenas could not be saved");
        }
    }

    /// Returns the existing arenas that are suspected of damage: arenas with recorded damage,
    /// arenas that may hold lost blocks, and arenas whose headers or seals are bad. Reads both ends
    /// of each arena, and no data.
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

    /// Returns the arenas that have no seal, or whose seal cannot be read.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed.
    pub fn unsealed_arenas(&self) -> Result<BTreeSet<ArenaId>, OpenLogError> {
        let ids = self.log().arenas()?.into_iter();
        Ok(ids.filter(|id| !matches!(self.seal_of(*id), Ok(Some(_)))).collect())
    }
}
