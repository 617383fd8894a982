//! `index/lost`: blocks that are known to be damaged or gone. A hint like all of `index/`: whoever archives the same data again
//! stores them anew instead of believing the directory, and so heals every snapshot that had them.
//!
//! | offset | bytes | field | meaning                                                   |
//! |-------:|------:|-------|-----------------------------------------------------------|
//! |      0 |       | rows  | a score and a type byte for each block                    |
//! |        |    32 | mac   | `BLAKE3(a key of the store's own, all before)`            |

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use varve_block::{BlockName, BlockType, Score};

use crate::hint::Hint;
use crate::store::Store;

/// More than this are not remembered: after so much damage, `repair` is what helps.
const NAMES_MAX: usize = 1 << 20;
const LOST: Hint = Hint { file: "index/lost", context: "varve 1 lost blocks" };

/// The blocks that are known to be lost.
#[derive(Default)]
pub(crate) struct LostBlocks {
    names: RwLock<Names>,
}

#[derive(Default)]
struct Names {
    lost: BTreeSet<BlockName>,
    is_saved: bool,
}

impl LostBlocks {
    pub(crate) fn contains(&self, name: &BlockName) -> bool {
        let names = self.read();
        !names.lost.is_empty() && names.lost.contains(name)
    }

    /// Notes that a block is lost.
    pub(crate) fn add(&self, name: BlockName) {
        let mut names = self.write();
        if names.lost.len() < NAMES_MAX {
            names.is_saved &= !names.lost.insert(name);
        }
    }

    /// Notes that blocks were stored anew.
    pub(crate) fn remove(&self, stored: impl Iterator<Item = BlockName>) {
        if self.read().lost.is_empty() {
            return;
        }
        let mut names = self.write();
        for name in stored {
            names.is_saved &= !names.lost.remove(&name);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// The blocks that are known to be damaged or gone.
    #[must_use]
    pub fn lost_blocks(&self) -> BTreeSet<BlockName> {
        self.lost.read().lost.clone()
    }

    /// Remembers which blocks are lost, and no others, so that they are stored anew when they are put again. That it cannot be
    /// written down costs nothing but the memory of it.
    pub fn remember_lost(&self, lost: &BTreeSet<BlockName>) {
        let mut names = self.lost.write();
        let kept: BTreeSet<_> = lost.iter().take(NAMES_MAX).copied().collect();
        let is_saved = names.is_saved && names.lost == kept;
        *names = Names { lost: kept, is_saved };
        drop(names);
        self.save_lost();
    }

    /// Reads what was remembered.
    pub(crate) fn load_lost(&self) {
        let rows = self.read_hint(&LOST, NAMES_MAX * self.row_bytes()).unwrap_or_default();
        *self.lost.write() = Names { lost: self.decode_lost(&rows).unwrap_or_default(), is_saved: true };
    }

    fn row_bytes(&self) -> usize {
        self.config.score_bytes() + 1
    }

    fn decode_lost(&self, rows: &[u8]) -> Option<BTreeSet<BlockName>> {
        let row = |row: &[u8]| {
            let (block_type, score) = row.split_last()?;
            let block_type = BlockType::from_byte(*block_type)?;
            Some(BlockName { score: Score::try_from(score).ok()?, block_type })
        };
        rows.chunks(self.row_bytes()).map(row).collect()
    }

    /// Writes down what has changed.
    pub(crate) fn save_lost(&self) {
        let mut names = self.lost.write();
        if names.is_saved {
            return;
        }
        let mut rows = Vec::new();
        for name in &names.lost {
            rows.extend_from_slice(name.score.as_bytes());
            rows.push(name.block_type.to_byte());
        }
        match self.write_hint(&LOST, rows) {
            Ok(()) => names.is_saved = true,
            Err(error) => tracing::warn!(%error, "what is lost could not be written down"),
        }
    }
}
