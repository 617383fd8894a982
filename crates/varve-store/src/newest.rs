//! `index/newest`: which page was the last one when a writer closed the store. A hint like all of `index/`: it is believed if
//! it is there, and then tells `verify` that the log's end was lost or taken back, which the log itself cannot tell.
//!
//! | offset | bytes | field | meaning                                                   |
//! |-------:|------:|-------|-----------------------------------------------------------|
//! |      0 |     8 | arena | the number of the page's arena                            |
//! |      8 |    16 | code  | the code of the page's header                             |
//! |     24 |    32 | mac   | `BLAKE3(a key of the store's own, bytes 0..24)`           |

use varve_log::{ArenaId, ArenaState, ReadLogError};
use varve_world::FileName;

use crate::store::{Store, Writer};

const FILE_BYTES: usize = 56;

fn file() -> FileName {
    FileName::new("index/newest").expect("a plain name")
}

impl Store {
    /// Notes the log's last page. Everything must have been synced. That it cannot be noted costs nothing but the note.
    pub(crate) fn note_newest(&self, writer: &Writer) {
        let last = writer.appender().unsealed().filter_map(|(id, _, code)| Some((id, code?))).last();
        if let Some((arena, code)) = last {
            self.note_page(arena, code);
        }
    }

    /// Notes the last page that a reader has seen, where `index/` may be written though the log is read only: so that
    /// this machine notices if it is shown an older log later.
    ///
    /// # Errors
    /// [`ReadLogError`] when the end of the log cannot be read.
    pub fn note_newest_seen(&self) -> Result<(), ReadLogError> {
        let Ok(ids) = self.log.arenas() else { return Ok(()) };
        for id in ids.into_iter().rev() {
            let arena = self.directory.arena(id)?;
            let last = match self.log.state(&arena)? {
                ArenaState::Sealed { pages, .. } => pages.last().map(|row| row.code),
                ArenaState::Unsealed => self.log.scan(&arena)?.pages.last().map(|(row, _)| row.code),
            };
            if let Some(code) = last {
                self.note_page(id, code);
                break;
            }
        }
        Ok(())
    }

    fn note_page(&self, arena: ArenaId, code: [u8; 16]) {
        let mut note = [&arena.0.to_le_bytes()[..], &code].concat();
        note.extend_from_slice(self.newest_mac(&note).as_bytes());
        let storage = self.world.storage.as_ref();
        if storage.read_whole(&file(), FILE_BYTES as u64).is_ok_and(|now| now == note) {
            return;
        }
        if let Err(error) = storage.replace(&file(), &note) {
            tracing::warn!(%error, "the log's last page could not be noted");
        }
    }

    /// Whether the page that was noted last is still in the log; true if none was noted.
    ///
    /// # Errors
    /// [`ReadLogError`] when its arena cannot be read.
    pub fn newest_is_there(&self) -> Result<bool, ReadLogError> {
        let Ok(note) = self.world.storage.read_whole(&file(), FILE_BYTES as u64) else { return Ok(true) };
        let Some((body, mac)) = note.split_at_checked(24) else { return Ok(true) };
        let (Some(arena), Some(code)) = (body.first_chunk(), body.last_chunk::<16>()) else {
            return Ok(true);
        };
        if self.newest_mac(body).as_bytes() != mac {
            return Ok(true);
        }
        let arena = self.directory.arena(ArenaId(u64::from_le_bytes(*arena)))?;
        Ok(match self.log.state(&arena)? {
            ArenaState::Sealed { pages, .. } => pages.iter().any(|row| row.code == *code),
            ArenaState::Unsealed => self.log.scan(&arena)?.pages.iter().any(|(row, _)| row.code == *code),
        })
    }

    fn newest_mac(&self, body: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.log.keys().derive("varve 1 newest page"), body)
    }
}
