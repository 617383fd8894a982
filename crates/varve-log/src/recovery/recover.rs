//! Recovery: makes the end of an arena usable after a crash. The rest after the last good page is
//! cut off, and data that may not be durable is made durable.
//!
//! [`scan`](crate::Log::scan) finds the pages, and [`judge`](crate::Log::judge) decides whether the
//! end was left by a crash or is damaged; both only read. This module writes.
//!
//! Everything up to the last good page counts. Records after it were never acknowledged.
//!
//! Bytes that can be read need not be on the disk: after a failed sync, Linux keeps the unwritten
//! data in memory and marks it clean. So data after the last durable mark is written anew, to a
//! file that takes the arena's place, before anything relies on it.

use varve_block::to_usize;
use varve_world::{FileName, Storage};

use crate::arenas::address::ArenaId;
use crate::arenas::footer::{FOOTER_BYTES, Footer};
use crate::arenas::header::ARENA_HEADER_BYTES;
use crate::reading::log::{ArenaState, Log, OpenedArena, ReadLogError, is_unreadable};
use crate::records::directory_page::DirectoryPage;
use crate::records::granule::Granule;
use crate::recovery::scan::{RecoveredArena, is_before};

/// The bytes that are copied at a time.
const PIECE_BYTES: usize = 1 << 20;
/// The most arenas that a crash may leave without a seal: the open one and those that wait for
/// theirs.
pub const UNSEALED_MAX: usize = 4;

/// The reason why an arena could not be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// A read failed; nothing was changed.
    #[error("cannot read the end of the log to recover it after a crash")]
    Read(#[from] ReadLogError),
    /// The part after the last good page could not be cut off.
    #[error("arena {arena}: cannot cut off the unfinished end that a crash has left")]
    Cut { arena: ArenaId, source: std::io::Error },
    /// Data that may not be durable could not be written to a new file. The new file takes as much
    /// space as the arena.
    #[error("arena {arena}: cannot rewrite the arena, whose data may not be durable")]
    WriteAnew { arena: ArenaId, source: std::io::Error },
    /// The disk does not return all of an arena that must be written anew. Nothing was changed.
    #[error("arena {arena}: cannot rewrite the arena, because the disk cannot read all of it")]
    NotGiven { arena: ArenaId, source: std::io::Error },
    /// The arenas that were never begun could not be determined.
    #[error("{file}: cannot look for arenas that were never begun")]
    Look {
        /// The file, or the folder.
        file: String,
        source: std::io::Error,
    },
    /// An unfinished file of a crashed writer could not be removed.
    #[error("cannot remove {file}, an unfinished file that a crash has left")]
    Remove { file: FileName, source: std::io::Error },
}

impl RecoverError {
    /// Returns true if the disk failed to return existing bytes. Nothing was changed.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::NotGiven { .. })
    }
}

impl Log {
    /// Decides which part of `found`, the result of a [`scan`](Self::scan), is good, and cuts off
    /// the rest that a crash has left. An arena with a [`gap`](RecoveredArena::gap), which means
    /// damage, is not changed.
    ///
    /// # Errors
    /// [`RecoverError`]; the arena is then unchanged.
    pub fn recover(
        &self,
        arena: &OpenedArena,
        found: RecoveredArena,
    ) -> Result<RecoveredArena, RecoverError> {
        let durable = found.durable();
        let mut found = self.judge(arena, found)?;
        if found.gap.is_some() {
            tracing::error!(arena = %arena.id(), "an arena is damaged before its end; the arena is not changed");
            return Ok(found);
        }
        // Pages without blocks at the end are the durable mark of an earlier session.
        let has_mark = found.drop_mark();
        let id = arena.id();
        if !is_durable(&found, durable) {
            tracing::info!(arena = %id, log_bytes = found.log_bytes, "rewriting an arena whose data may not be durable");
            match self.write_anew(id, Some(found.log_bytes)) {
                Err(error) if error.is_unreadable() => {
                    tracing::error!(arena = %id, %error, "the disk cannot read all of an arena; the arena is not changed");
                    let is_clump =
                        |(_, page): &(_, DirectoryPage)| page.clumps().first().map(|clump| clump.granule);
                    let first = found.pages.iter().find_map(is_clump).unwrap_or_default();
                    found.gap = Some(first.byte_offset());
                    return Ok(found);
                }
                other => other?,
            }
            found.durable_bytes = found.log_bytes;
        } else if found.cut_bytes > 0 {
            tracing::info!(arena = %id, cut_bytes = found.cut_bytes, "cut off the unfinished end that a crash has left");
            cut(self.storage().as_ref(), id, found.log_bytes)?;
        } else {
            found.has_stray_mark = has_mark;
        }
        Ok(found)
    }

    /// Copies an arena's file, or its first `log_bytes` bytes, to a new file that replaces it. The
    /// new file is durable when this returns.
    ///
    /// This is for an arena whose last sync failed or never happened: later records must not rely
    /// on data that a power cut can take.
    ///
    /// # Errors
    /// [`RecoverError`]; the arena is then unchanged.
    pub fn write_anew(&self, id: ArenaId, log_bytes: Option<u64>) -> Result<(), RecoverError> {
        let (storage, file) = (self.storage().as_ref(), id.file_name());
        let failed = |source| RecoverError::WriteAnew { arena: id, source };
        let log_bytes = match log_bytes {
            Some(log_bytes) => log_bytes,
            None => storage.length(&file).map_err(failed)?,
        };
        let mut is_given = true;
        let mut read = |offset, into: &mut [u8]| {
            let read = storage.read_at(&file, offset, into);
            let read = read.or_else(|error| {
                if is_unreadable(&error) { storage.read_at(&file, offset, into) } else { Err(error) }
            });
            is_given &= !read.as_ref().is_err_and(is_unreadable);
            read
        };
        let copied = storage.replace_with(&file, |append| {
            let (mut piece, mut again) = (Vec::new(), Vec::new());
            let mut offset = 0;
            while offset < log_bytes {
                let piece_bytes = to_usize(log_bytes - offset).min(PIECE_BYTES);
                piece.resize(piece_bytes, 0);
                again.resize(piece_bytes, 0);
                read(offset, &mut piece)?;
                read(offset, &mut again)?;
                // The copy replaces its source, so a read error must not get into it.
                if piece != again {
                    return Err(std::io::Error::other(format!(
                        "{file}: two reads of it gave different bytes"
                    )));
                }
                append(&piece)?;
                offset += piece_bytes as u64;
            }
            Ok(())
        });
        match copied {
            Err(source) if !is_given => Err(RecoverError::NotGiven { arena: id, source }),
            copied => copied.map_err(failed),
        }
    }

    /// Writes a sealed arena anew without its seal. The new file is durable when this returns.
    /// Returns the places of its pages, which are needed to seal it again.
    ///
    /// # Errors
    /// [`RecoverError`]; the arena is then unchanged.
    pub fn take_off_seal(&self, arena: &OpenedArena) -> Result<RecoveredArena, RecoverError> {
        let ArenaState::Sealed { footer, pages } = self.state(arena)? else {
            let source = std::io::Error::other("two reads of its seal gave different bytes");
            return Err(RecoverError::WriteAnew { arena: arena.id(), source });
        };
        tracing::info!(arena = %arena.id(), "removing a seal that was written before the seal of an earlier arena");
        self.write_anew(arena.id(), Some(footer.log_bytes))?;
        let empty = DirectoryPage::new(self.config().score_bytes);
        Ok(RecoveredArena {
            pages: pages.into_iter().map(|row| (row, empty.clone())).collect(),
            log_bytes: footer.log_bytes,
            durable_bytes: footer.log_bytes,
            ..RecoveredArena::default()
        })
    }

    /// Removes empty files that a crash has left: unfinished copies of arenas, and those of the
    /// last arenas whose header was never written. Nothing was acknowledged in them, because a sync
    /// makes every earlier arena durable.
    ///
    /// # Errors
    /// [`RecoverError`] when a file could not be read or removed.
    pub fn remove_never_begun(&self) -> Result<(), RecoverError> {
        let remove = |file: FileName| {
            tracing::info!(%file, "removed an unfinished file that a crash has left");
            self.storage().remove(&file).map_err(|source| RecoverError::Remove { file, source })
        };
        let files = self.storage().list(ArenaId::FOLDER).map_err(cannot_look(ArenaId::FOLDER))?;
        files.into_iter().filter(|file| file.as_str().ends_with(".arena.new")).try_for_each(remove)?;
        // After a removal, others are among the last ones. The loop ends when there are none.
        loop {
            let never_begun = self.never_begun()?;
            if never_begun.is_empty() {
                return Ok(());
            }
            never_begun.into_iter().map(ArenaId::file_name).try_for_each(remove)?;
        }
    }

    /// Returns those of the last arenas that have no header: a crash has lost it, or a writer is
    /// about to write it.
    ///
    /// # Errors
    /// [`RecoverError`] when they could not be listed or read.
    pub fn never_begun(&self) -> Result<Vec<ArenaId>, RecoverError> {
        let ids = self.arenas().map_err(|error| cannot_look(ArenaId::FOLDER)(error.source))?;
        let mut never_begun = Vec::new();
        for id in ids.into_iter().rev().take(UNSEALED_MAX) {
            let file = id.file_name();
            if !self.is_begun(&file).map_err(cannot_look(file.as_str()))? {
                never_begun.push(id);
            }
        }
        Ok(never_begun)
    }

    /// Returns true if [`never_begun`](Self::never_begun) includes this arena. Lists the arenas
    /// only if it has no header.
    ///
    /// # Errors
    /// [`RecoverError`] when the arena does not exist or could not be read.
    pub fn was_never_begun(&self, id: ArenaId) -> Result<bool, RecoverError> {
        let file = id.file_name();
        let is_begun = self.is_begun(&file).map_err(cannot_look(file.as_str()))?;
        Ok(!is_begun && self.never_begun()?.contains(&id))
    }

    /// Returns true if an arena's file has a header, or has a footer, which implies that it had a
    /// header.
    fn is_begun(&self, file: &FileName) -> std::io::Result<bool> {
        let storage = self.storage();
        let file_bytes = storage.length(file)?;
        let mut header = [0; ARENA_HEADER_BYTES];
        if file_bytes < header.len() as u64 {
            return Ok(false);
        }
        // Read twice: one read may wrongly return zeros for an arena that is whole.
        for _ in 0..2 {
            match storage.read_at(file, 0, &mut header) {
                // The disk does not return this place, so it was once written.
                Err(error) if is_unreadable(&error) => return Ok(true),
                read => read?,
            }
            if header.iter().any(|byte| *byte != 0) {
                return Ok(true);
            }
        }
        let mut footer = [0; FOOTER_BYTES];
        match storage.read_at(file, file_bytes - footer.len() as u64, &mut footer) {
            Err(error) if is_unreadable(&error) => Ok(true),
            read => read.map(|()| Footer::decode(&footer, file_bytes, self.config().map).is_ok()),
        }
    }
}

fn cannot_look(file: &str) -> impl FnOnce(std::io::Error) -> RecoverError + use<> {
    let file = file.to_owned();
    |source| RecoverError::Look { file, source }
}

/// Returns true if the header, and all clumps that the pages name, are before the durable mark.
fn is_durable(found: &RecoveredArena, durable: Granule) -> bool {
    if durable == Granule::default() {
        return false;
    }
    found.pages.iter().all(|(_, page)| is_before(page, durable))
}

fn cut(storage: &dyn Storage, arena: ArenaId, log_bytes: u64) -> Result<(), RecoverError> {
    let file = arena.file_name();
    storage
        .truncate(&file, log_bytes)
        .and_then(|()| storage.sync(&file))
        .map_err(|source| RecoverError::Cut { arena, source })
}
