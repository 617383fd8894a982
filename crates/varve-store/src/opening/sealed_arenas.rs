//! Reads the names in sealed arenas into the index when a store is opened. Several arenas are read
//! at a time, since the reads of each arena are small and in several places.

use std::sync::Arc;

use varve_log::{
    ArenaId, ArenaState, DirectoryPage, Granule, OpenedArena, PageRow, ReadLogError, Seal, Seals,
};
use varve_world::read_each;

use super::never_begun::NeverBegun;
use super::{Opening, RebuildProgress};
use crate::saved_index::CoveredParts;
use crate::vault::OpenStoreError;

/// At most this many bytes of pages are read at a time, or one page.
const PAGES_BYTES_MAX: u64 = 8 << 20;

/// The arenas that each worker opens before their pages are read. A store may have very many that
/// are almost empty.
const ARENAS_OF_A_WORKER: usize = 16;

/// The arenas that are not sealed, found while the sealed ones were read.
#[derive(Default)]
pub(super) struct UnsealedArenas {
    /// The arenas without a seal, in order.
    pub(super) unsealed: Vec<Arc<OpenedArena>>,
    /// True if an arena could not be read because it is damaged.
    pub(super) is_damaged: bool,
}

/// An arena with its seal and the rows of its pages, if it is sealed.
struct ArenaWithSeal {
    arena: Arc<OpenedArena>,
    seal: Option<(Seal, Vec<PageRow>)>,
}

/// A page to be read.
type PageOfArena = (Arc<OpenedArena>, PageRow);

impl Opening<'_> {
    /// Reads the pages of the sealed arenas among `ids` into the index, except those that are
    /// `covered`. Returns the arenas without a seal.
    pub(super) fn read_sealed(
        &mut self,
        ids: &[ArenaId],
        covered: &CoveredParts,
        seals: &mut Seals,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<UnsealedArenas, OpenStoreError> {
        let workers = Arc::clone(&self.vault.world().workers);
        let arenas_total = ids.len() as u64;
        let mut arenas_done = 0;
        let (mut found, mut never_begun) = (UnsealedArenas::default(), NeverBegun::default());
        for group in ids.chunks(workers.reading_width() * ARENAS_OF_A_WORKER) {
            let mut due = Vec::new();
            for (id, opened) in
                group.iter().zip(read_each(workers.as_ref(), group, |id| self.open_with_seal(*id)))
            {
                progress(RebuildProgress { arenas_done, arenas_total });
                arenas_done += 1;
                // Another process may have begun the arena since it was read.
                let is_begun = || !self.is_writer && self.vault.log().open_arena(*id).is_ok();
                let opened = match opened {
                    Err(error) if error.is_damage() && is_begun() => self.open_with_seal(*id),
                    other => other,
                };
                match opened {
                    Ok(ArenaWithSeal { arena, seal: Some((seal, pages)) }) => {
                        seals.insert(*id, seal);
                        self.finder.note_taken(&arena);
                        let from = covered.end_in(*id);
                        let is_new = |row: &PageRow| from.is_none_or(|from| row.granule >= from);
                        let pages = pages.into_iter().filter(is_new).map(|row| (Arc::clone(&arena), row));
                        if !self.finder.has_no_index() {
                            due.extend(pages);
                        } else if !self.finder.has_catalog() {
                            // Only the newest catalog is needed from the pages, and the newest
                            // arena comes first.
                            self.read_pages(&pages.collect::<Vec<_>>())?;
                        }
                    }
                    Ok(ArenaWithSeal { arena, seal: None }) => found.unsealed.push(arena),
                    // Another process has removed an arena that was never begun.
                    Err(_) if !self.is_writer && self.vault.log().is_gone(*id) => {}
                    // An opening for writing has removed such arenas before.
                    Err(error) if error.is_damage() && never_begun.has(self.vault.log(), *id) => {
                        tracing::info!(arena = %id, "an arena was never begun");
                    }
                    Err(error) if error.is_damage() => {
                        self.note_damaged_arena(*id, &error);
                        found.is_damaged = true;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            self.read_pages(&due)?;
            for id in std::mem::take(&mut self.replaced) {
                found.is_damaged |= !self.read_replaced(id, seals)?;
            }
        }
        found.unsealed.sort_by_key(|arena| arena.id());
        progress(RebuildProgress { arenas_done, arenas_total });
        Ok(found)
    }

    /// Reads an arena anew that another process has replaced while it was read. Returns false if it
    /// is damaged.
    fn read_replaced(&mut self, id: ArenaId, seals: &mut Seals) -> Result<bool, OpenStoreError> {
        tracing::info!(arena = %id, "an arena was replaced while its directory was read");
        self.vault.directory().forget(id);
        let log = self.vault.log();
        let followed = self.finder.follow_arena(id, Granule::default());
        let read = followed.and_then(|_| Ok(log.read_arena(id, |arena| Ok((log.state(&arena)?, arena)))?));
        match read {
            Ok((ArenaState::Sealed { footer, .. }, arena)) => {
                seals.replace(id, Seal::of(arena.header(), &footer));
                Ok(true)
            }
            Ok((ArenaState::Unsealed, _)) => {
                seals.remove(id);
                Ok(true)
            }
            Err(OpenStoreError::Read(error)) if error.is_damage() => {
                self.note_damaged_arena(id, &error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn note_damaged_arena(&mut self, id: ArenaId, error: &ReadLogError) {
        tracing::error!(arena = %id, %error, "an arena is damaged; all others can be read");
        // The whole range, whatever an earlier opening has seen of the arena: there may be more
        // pages.
        self.unread.note_error(error, 0..=u64::MAX);
        self.note_damaged(id);
    }

    /// Opens an arena, and reads its seal if it has one.
    fn open_with_seal(&self, id: ArenaId) -> Result<ArenaWithSeal, ReadLogError> {
        // The seal seems broken with a header that was read from an earlier state of the disk, or
        // before the arena was replaced.
        let (arena, state) = self.vault.directory().read(id, || {
            let arena = self.vault.directory().arena(id)?;
            let state = self.vault.log().state(&arena);
            match state {
                Err(error) if error.is_broken_seal() && !self.vault.log().is_replaced(&arena) => {
                    Ok((arena, Err(error)))
                }
                state => Ok((arena, Ok(state?))),
            }
        })?;
        let seal = match state {
            Ok(ArenaState::Sealed { footer, pages }) => Some((Seal::of(arena.header(), &footer), pages)),
            // The arena has no seal, or a power cut has torn it, or it is damaged. The pages are
            // there nevertheless.
            Ok(ArenaState::Unsealed) => None,
            Err(error) if error.is_broken_seal() => None,
            Err(error) => return Err(error),
        };
        Ok(ArenaWithSeal { arena, seal })
    }

    /// Reads pages into the index, in order.
    fn read_pages(&mut self, mut due: &[PageOfArena]) -> Result<(), ReadLogError> {
        let workers = Arc::clone(&self.vault.world().workers);
        while !due.is_empty() {
            let mut bytes = 0;
            let within = |(_, row): &&PageOfArena| {
                bytes += u64::from(row.body_bytes);
                bytes <= PAGES_BYTES_MAX
            };
            let count = due.iter().take(workers.reading_width()).take_while(within).count().max(1);
            let (now, later) = due.split_at(count);
            let pages =
                read_each(workers.as_ref(), now, |(arena, row)| self.vault.log().read_page(arena, row));
            for ((arena, row), page) in now.iter().zip(pages) {
                self.take_page(arena, row, page)?;
            }
            due = later;
        }
        Ok(())
    }

    fn take_page(
        &mut self,
        arena: &OpenedArena,
        row: &PageRow,
        page: Result<DirectoryPage, ReadLogError>,
    ) -> Result<(), ReadLogError> {
        match page {
            Ok(page) => {
                self.finder.insert_page(arena.id(), &page).unwrap_or_else(|error| tracing::error!(%error));
            }
            Err(error) if error.is_damage() && self.vault.log().is_replaced(arena) => {
                tracing::info!(arena = %arena.id(), %error, "a directory page is of an earlier generation");
                self.replaced.insert(arena.id());
            }
            Err(error) if error.is_damage() => {
                tracing::error!(%error, "a directory page is damaged");
                let place = row.granule.byte_offset();
                self.unread.note_error(&error, place..=place);
                self.note_damaged(arena.id());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
