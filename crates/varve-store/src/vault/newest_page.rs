//! `index/newest`: the last page of the log when a writer closed the store. It is a hint like all
//! of `index/`. If it is there, it shows that the log's end was lost or rolled back, which the log
//! itself cannot show. Once such a loss was found, the note stays unchanged until the user accepts
//! the log as it is. Otherwise the next snapshot would hide the loss.
//!
//! | offset | bytes | field      | meaning                                                   |
//! |-------:|------:|------------|-----------------------------------------------------------|
//! |      0 |     8 | arena      | the number of the page's arena                            |
//! |      8 |    16 | code       | the code of the page's header                             |
//! |     24 |     4 | generation | the arena's generation                                    |
//! |     28 |    32 | mac        | `BLAKE3(a key of the store's own, bytes 0..28)`           |
//!
//! Builds before `varve gc` left out the generation, which was 0 then.
//!
//! A page of an arena that was rewritten since counts as there if the log confirms the later
//! generation: see [`Vault::confirms`].

use varve_log::{ArenaId, ArenaState, ReadLogError, Seal};
use varve_world::Storage;

use super::Vault;
use super::hint::Hint;

const BODY_BYTES: usize = 28;
const NEWEST: Hint = Hint { file: "index/newest", context: "varve 1 newest page" };

/// A page of the log, as a machine remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedPage {
    pub arena: ArenaId,
    /// The generation of that arena.
    pub generation: u32,
    /// The code of the page's header.
    pub code: [u8; 16],
}

impl NotedPage {
    fn encode(self) -> Vec<u8> {
        [&self.arena.0.to_le_bytes()[..], &self.code, &self.generation.to_le_bytes()].concat()
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let (arena, rest) = body.split_first_chunk()?;
        let (code, rest) = rest.split_first_chunk()?;
        let generation = if rest.is_empty() { 0 } else { u32::from_le_bytes(rest.try_into().ok()?) };
        Some(Self { arena: ArenaId(u64::from_le_bytes(*arena)), generation, code: *code })
    }
}

impl Vault {
    /// Notes the last page of the log that names a block. A page that names nothing is not noted,
    /// since the next writer cuts it off if nothing follows it.
    ///
    /// # Errors
    /// [`ReadLogError`] when the end of the log cannot be read.
    pub fn note_newest_seen(&self) -> Result<(), ReadLogError> {
        self.note_newest_seen_in(self.storage())
    }

    /// Does the same in another storage, for another copy of this log: this machine then notices if
    /// it is shown an older one there.
    ///
    /// # Errors
    /// [`ReadLogError`] when the end of the log cannot be read.
    pub fn note_newest_seen_in(&self, storage: &dyn Storage) -> Result<(), ReadLogError> {
        let Ok(ids) = self.log.arenas() else { return Ok(()) };
        for id in ids.into_iter().rev() {
            if let Some(code) = self.directory.last_named_page(id)? {
                let generation = self.directory.arena(id)?.header().generation;
                self.note_page(storage, NotedPage { arena: id, generation, code });
                break;
            }
        }
        Ok(())
    }

    fn note_page(&self, storage: &dyn Storage, page: NotedPage) {
        let note = page.encode();
        if self.read_hint_in(storage, &NEWEST, BODY_BYTES).is_some_and(|now| now == note) {
            return;
        }
        if let Err(error) = self.write_hint_in(storage, &NEWEST, note) {
            tracing::info!(%error, "the log's last page could not be recorded");
        }
    }

    /// Returns the page that was noted last.
    #[must_use]
    pub fn noted_page(&self) -> Option<NotedPage> {
        self.noted_page_in(self.storage())
    }

    /// Returns the arena of the page that was noted last.
    #[must_use]
    pub fn noted_arena(&self) -> Option<ArenaId> {
        self.noted_page().map(|noted| noted.arena)
    }

    fn noted_page_in(&self, storage: &dyn Storage) -> Option<NotedPage> {
        NotedPage::decode(&self.read_hint_in(storage, &NEWEST, BODY_BYTES)?)
    }

    /// Returns true if a page was noted in another storage, for another copy of this log.
    #[must_use]
    pub fn has_noted_newest_in(&self, storage: &dyn Storage) -> bool {
        self.noted_page_in(storage).is_some()
    }

    /// Returns true if the page that was noted last is still in the log; also true if none was
    /// noted. Reads the log as it is now, without the caches: a collector may have replaced the
    /// page's arena since they were filled.
    ///
    /// # Errors
    /// [`ReadLogError`] when its arena cannot be read.
    pub fn newest_is_there(&self) -> Result<bool, ReadLogError> {
        self.noted_page().map_or(Ok(true), |noted| self.anew().is_there(&noted))
    }

    /// Returns true if this log has the page that was noted last in another storage, for another
    /// copy of this log; also true if no page was noted.
    ///
    /// # Errors
    /// [`ReadLogError`] when its arena cannot be read.
    pub fn has_newest_noted_in(&self, storage: &dyn Storage) -> Result<bool, ReadLogError> {
        self.noted_page_in(storage).map_or(Ok(true), |noted| self.anew().is_there(&noted))
    }

    /// Returns true if the log has this page.
    ///
    /// # Errors
    /// [`ReadLogError`] when its arena cannot be read.
    pub(crate) fn is_there(&self, noted: &NotedPage) -> Result<bool, ReadLogError> {
        let arena = self.directory.arena(noted.arena)?;
        Ok(match self.log.state(&arena) {
            Ok(ArenaState::Sealed { pages, footer }) => {
                pages.iter().any(|row| row.code == noted.code)
                    || (arena.header().generation > noted.generation
                        && self.confirms(&arena, &Seal::of(arena.header(), &footer)))
            }
            Err(error) if !error.is_broken_seal() => return Err(error),
            // A power cut may have torn the seal. The pages are there nevertheless.
            Ok(ArenaState::Unsealed) | Err(_) => {
                self.log.scan(&arena)?.pages.iter().any(|(row, _)| row.code == noted.code)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_survives_the_round_trip_and_old_notes_have_generation_0() {
        let noted = NotedPage { arena: ArenaId(7), generation: 3, code: [9; 16] };
        let body = noted.encode();
        assert_eq!(body.len(), BODY_BYTES);
        assert_eq!(NotedPage::decode(&body), Some(noted));
        let old = body.get(..24).unwrap();
        assert_eq!(NotedPage::decode(old), Some(NotedPage { generation: 0, ..noted }));
        for length in (0..BODY_BYTES).filter(|length| *length != 24) {
            assert_eq!(NotedPage::decode(&body[..length]), None, "{length}");
        }
    }
}
