//! `index/newest`: the last page of the log when a writer closed the store. It is a hint like all
//! of `index/`. If it is there, it shows that the log's end was lost or rolled back, which the log
//! itself cannot show. Once such a loss was found, the note stays unchanged until the user accepts
//! the log as it is. Otherwise the next snapshot would hide the loss.
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
    /// Notes the last page of the log that names a block. A page that names nothing is not noted,
    /// since the next writer cuts it off if nothing follows it. A reader notes a page too, if it
    /// may write to `index/` although it opened the log for reading: this machine then notices if
    /// it is shown an older log later.
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
            tracing::info!(%error, "the log's last page could not be recorded");
        }
    }

    /// Returns the page that was noted last: its arena and its code.
    #[must_use]
    pub fn noted_page(&self) -> Option<(ArenaId, [u8; 16])> {
        self.noted_page_in(self.storage())
    }

    /// Returns the arena of the page that was noted last.
    #[must_use]
    pub fn noted_arena(&self) -> Option<ArenaId> {
        self.noted_page().map(|(arena, _)| arena)
    }

    fn noted_page_in(&self, storage: &dyn Storage) -> Option<(ArenaId, [u8; 16])> {
        let note = self.read_hint_in(storage, &NEWEST, BODY_BYTES)?;
        let (arena, code) = note.split_first_chunk()?;
        Some((ArenaId(u64::from_le_bytes(*arena)), code.try_into().ok()?))
    }

    /// Returns true if a page was noted.
    #[must_use]
    pub fn has_noted_newest(&self) -> bool {
        self.noted_page().is_some()
    }

    /// Returns true if the page that was noted last is still in the log; also true if none was
    /// noted.
    ///
    /// # Errors
    /// [`ReadLogError`] when its arena cannot be read.
    pub fn newest_is_there(&self) -> Result<bool, ReadLogError> {
        self.is_there(self.noted_page())
    }

    /// Returns true if this log has the page that was noted last in another storage, for another
    /// copy of this log; also true if no page was noted.
    ///
    /// # Errors
    /// [`ReadLogError`] when its arena cannot be read.
    pub fn has_newest_noted_in(&self, storage: &dyn Storage) -> Result<bool, ReadLogError> {
        self.is_there(self.noted_page_in(storage))
    }

    fn is_there(&self, noted: Option<(ArenaId, [u8; 16])>) -> Result<bool, ReadLogError> {
        let Some((arena, code)) = noted else { return Ok(true) };
        let arena = self.directory.arena(arena)?;
        Ok(match self.log.state(&arena) {
            Ok(ArenaState::Sealed { pages, .. }) => pages.iter().any(|row| row.code == code),
            // A power cut may have torn the seal. The pages are there nevertheless.
            Ok(ArenaState::Unsealed) | Err(ReadLogError::Seal { .. }) => {
                self.log.scan(&arena)?.pages.iter().any(|(row, _)| row.code == code)
            }
            Err(error) => return Err(error),
        })
    }
}
