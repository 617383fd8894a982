//! `index/newest`: which page was the last one when a writer closed the store. A hint like all of `index/`: it is believed if
//! it is there, and then tells that the log's end was lost or taken back, which the log itself cannot tell. Once that was met the note
//! stays as it is until somebody says what is to count from now on: or the next night would hide what is lost.
//!
//! | offset | bytes | field | meaning                                                   |
//! |-------:|------:|-------|-----------------------------------------------------------|
//! |      0 |     8 | arena | the number of the page's arena                            |
//! |      8 |    16 | code  | the code of the page's header                             |
//! |     24 |    32 | mac   | `BLAKE3(a key of the store's own, bytes 0..24)`           |

use varve_log::{ArenaId, ArenaState, ReadLogError};
use varve_world::Storage;

use super::Vault;
use super::hint::Hint;

const BODY_BYTES: usize = 24;
const NEWEST: Hint = Hint { file: "index/newest", context: "varve 1 newest page" };

impl Vault {
    /// Notes the last page that is known to this store, of those that name anything: one that names nothing is cut off by the next writer
    /// if nothing follows it. A reader does so where `index/` may be written though the log is read only: then this machine notices if it is
    /// shown an older log later.
    ///
    /// # Errors
    /// [`ReadLogError`] when the end of the log cannot be read.
    pub fn note_newest_seen(&self) -> Result<(), ReadLogError> {
        let Ok(ids) = self.log.arenas() else { return Ok(()) };
        for id in ids.into_iter().rev() {
            if let Some(code) = self.directory.last_named_page(id)? {
                self.note_page(id, code);
                break;
            }
        }
        Ok(())
    }

    fn note_page(&self, arena: ArenaId, code: [u8; 16]) {
        let note = [&arena.0.to_le_bytes()[..], &code].concat();
        if self.read_hint(&NEWEST, BODY_BYTES).is_some_and(|now| now == note) {
            return;
        }
        if let Err(error) = self.write_hint(&NEWEST, note) {
            tracing::info!(%error, "the log's last page could not be noted");
        }
    }

    /// The page that was noted last.
    #[must_use]
    pub fn noted_page(&self) -> Option<(ArenaId, [u8; 16])> {
        self.noted_page_in(self.storage())
    }

    /// The arena of the page that was noted last.
    #[must_use]
    pub fn noted_arena(&self) -> Option<ArenaId> {
        self.noted_page().map(|(arena, _)| arena)
    }

    fn noted_page_in(&self, storage: &dyn Storage) -> Option<(ArenaId, [u8; 16])> {
        let note = self.read_hint_in(storage, &NEWEST, BODY_BYTES)?;
        let (arena, code) = note.split_first_chunk()?;
        Some((ArenaId(u64::from_le_bytes(*arena)), code.try_into().ok()?))
    }

    /// Whether a page was noted as the last one.
    #[must_use]
    pub fn has_noted_newest(&self) -> bool {
        self.noted_page().is_some()
    }

    /// Whether the page that was noted last is still in the log; true if none was noted.
    ///
    /// # Errors
    /// [`ReadLogError`] when its arena cannot be read.
    pub fn newest_is_there(&self) -> Result<bool, ReadLogError> {
        self.is_there(self.noted_page())
    }

    /// Whether the page that was noted last in another storage, for another copy of this log, is in this one too; true if none was noted.
    ///
    /// # Errors
    /// [`ReadLogError`] when its arena cannot be read.
    pub fn has_newest_noted_in(&self, storage: &dyn Storage) -> Result<bool, ReadLogError> {
        self.is_there(self.noted_page_in(storage))
    }

    /// Whether an arena has the page whose header has this code.
    ///
    /// # Errors
    /// [`ReadLogError`] when the arena cannot be read.
    pub fn has_page(&self, arena: ArenaId, code: [u8; 16]) -> Result<bool, ReadLogError> {
        self.is_there(Some((arena, code)))
    }

    fn is_there(&self, noted: Option<(ArenaId, [u8; 16])>) -> Result<bool, ReadLogError> {
        let Some((arena, code)) = noted else { return Ok(true) };
        let arena = self.directory.arena(arena)?;
        Ok(match self.log.state(&arena) {
            Ok(ArenaState::Sealed { pages, .. }) => pages.iter().any(|row| row.code == code),
            // The pages are there whatever became of the seal: a power cut may have torn it.
            Ok(ArenaState::Unsealed) | Err(ReadLogError::Seal { .. }) => {
                self.log.scan(&arena)?.pages.iter().any(|(row, _)| row.code == code)
            }
            Err(error) => return Err(error),
        })
    }
}
