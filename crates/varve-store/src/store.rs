//! The store: a front over the parts that own all state, and their `BlockStore`.

mod open;
mod stats;

pub use open::StoreAccess;
pub use stats::StoreStats;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use varve_block::{Block, BlockName, BlockStore, GetError, PutError, PutHints, Score, SyncError};
use varve_index::{DiskIndexStats, IndexStats};
use varve_log::{
    AppendError, ArenaId, BaseError, DeltaBases, DirectoryPage, FrameBytes, OpenLogError, OpenedArena,
    ReadLogError,
};
use varve_world::{Timestamp, World};

use crate::cache::CacheBytes;
use crate::config::StoreConfig;
use crate::directory::ClumpPlace;
use crate::drafts::Drafts;
use crate::finder::{CandidateCounts, Finder, SaveCheckpointError};
use crate::intake::{CloseError, Intake, PutResult};
use crate::reader::{LossNotes, Reader, WholeBlocks};
use crate::role::Role;
use crate::saved_index::{IndexPlace, index_places};
use crate::tail::{Tail, WithheldError};
use crate::vault::{ArenaNames, CatalogRoot, Namer, OpenStoreError, Vault};

/// A local store, open for reading or for reading and writing. Can be used from many threads at
/// once.
pub struct Store {
    vault: Arc<Vault>,
    drafts: Arc<Drafts>,
    finder: Arc<Finder>,
    reader: Arc<Reader>,
    tail: Arc<Tail>,
    /// `Some` in a store that is open for writing.
    intake: Option<Intake>,
    /// The time at which this writer got the lock.
    locked_since: Option<Timestamp>,
}

impl Store {
    /// Returns the part with the settings, keys and log.
    #[must_use]
    pub fn vault(&self) -> &Vault {
        &self.vault
    }

    /// Returns the writer; `None` if the store was opened for reading.
    #[must_use]
    pub fn intake(&self) -> Option<&Intake> {
        self.intake.as_ref()
    }

    /// Returns the settings that were chosen when the store was made.
    #[must_use]
    pub fn config(&self) -> &StoreConfig {
        self.vault.config()
    }

    /// Returns the namer of this store's blocks.
    #[must_use]
    pub fn namer(&self) -> &Namer {
        self.vault.namer()
    }

    /// Returns the world that the store lives in.
    #[must_use]
    pub fn world(&self) -> &World {
        self.vault.world()
    }

    /// Returns the role of the key that opened the store; [`Role::Full`] if the store is not
    /// encrypted.
    #[must_use]
    pub fn role(&self) -> Role {
        self.vault.role()
    }

    /// Returns the time since which this writer holds the lock, and others wait; `None` if the
    /// store was opened for reading.
    #[must_use]
    pub fn locked_since(&self) -> Option<Timestamp> {
        self.locked_since
    }

    /// Returns true if the store was opened for writing.
    #[must_use]
    pub fn is_open_to_write(&self) -> bool {
        self.intake.is_some()
    }

    /// Returns the numbers of the arenas that exist, in order.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed.
    pub fn arenas(&self) -> Result<Vec<ArenaId>, OpenLogError> {
        self.vault.log().arenas()
    }

    /// Returns the names of all blocks that pages name in an arena. After a sync these are all its
    /// blocks.
    ///
    /// Takes about forty bytes of memory for each name.
    ///
    /// # Errors
    /// [`ReadLogError`] when nothing of the arena can be read.
    pub fn names_in_arena(&self, arena: ArenaId) -> Result<ArenaNames, ReadLogError> {
        self.vault.names_in_arena(arena)
    }

    /// Iterates over the directory pages of an arena, in order. After a sync they name all its
    /// blocks. Each is read by itself, so an unreadable page hides no other.
    ///
    /// # Errors
    /// [`ReadLogError`] when nothing of the arena can be read.
    pub fn pages_in_arena(
        &self,
        arena: ArenaId,
    ) -> Result<impl Iterator<Item = Result<Arc<DirectoryPage>, ReadLogError>>, ReadLogError> {
        self.vault.pages_in_arena(arena)
    }

    /// Opens those of these arenas that may hold deltas, in order. `arenas` are the numbers of all
    /// arenas, as [`arenas`](Self::arenas) returns them: a damaged one before the first with deltas
    /// has none, and is skipped.
    ///
    /// # Errors
    /// Each item may be a [`ReadLogError`]: it is not known which deltas that arena holds.
    pub fn arenas_with_deltas<'a>(
        &'a self,
        arenas: &'a [ArenaId],
    ) -> impl Iterator<Item = Result<OpenedArena, ReadLogError>> + 'a {
        self.vault.arenas_with_deltas(arenas)
    }

    /// Returns the newest catalog root that a page names. After a sync this is the last one that
    /// was put.
    #[must_use]
    pub fn last_catalog(&self) -> Option<BlockName> {
        self.finder.catalogs().into_values().next_back()
    }

    /// Returns the newest catalog root first. If this store's key cannot tell whether that root is
    /// complete, the roots before it follow.
    #[must_use]
    pub fn newest_catalogs(&self) -> Vec<BlockName> {
        self.finder.newest_catalogs()
    }

    /// Returns the newest catalog root of a writer that could read its predecessor, and all roots
    /// that others have added since, oldest first. Those others may have left out earlier
    /// snapshots, so a caller must look at each root.
    #[must_use]
    pub fn catalogs(&self) -> Vec<BlockName> {
        self.finder.catalogs().into_values().collect()
    }

    /// Returns all catalog roots that directory pages name, newest first. Skips unreadable pages.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed.
    pub fn catalog_roots(&self) -> Result<Vec<CatalogRoot>, OpenLogError> {
        self.vault.catalog_roots()
    }

    /// Returns the roots from which a store that is opened now reads its catalog, oldest first: the
    /// newest one of a writer that could read its predecessor, and all roots after it. Unlike
    /// [`catalogs`](Self::catalogs), it reads the log, and ignores what this session has seen.
    ///
    /// # Errors
    /// As for [`catalog_roots`](Self::catalog_roots).
    pub fn newest_catalog_roots(&self) -> Result<Vec<BlockName>, OpenLogError> {
        self.vault.newest_catalog_roots()
    }

    /// Returns the arena and the byte offset there of the newest catalog root of a writer that
    /// could read its predecessor. `None` if there is none.
    #[must_use]
    pub fn final_catalog_place(&self) -> Option<(ArenaId, u64)> {
        let first = self.finder.catalogs().into_keys().next()?;
        let (arena, granule) = self.vault.map().locate(first);
        self.finder.is_final(first).then_some((arena, granule.byte_offset()))
    }

    /// Returns the counts of candidates that the index has proposed per look-up since the store was
    /// opened.
    #[must_use]
    pub fn candidates_per_lookup(&self) -> CandidateCounts {
        self.finder.candidates_per_lookup()
    }

    /// Returns the fill of an index in memory; `None` if the index is on disk. Walks all blocks.
    #[must_use]
    pub fn memory_index_stats(&self) -> Option<IndexStats> {
        self.finder.memory_index_stats()
    }

    /// Returns the fill of an index on disk and its counts of look-ups; `None` if there is no such
    /// index. Cheap.
    #[must_use]
    pub fn disk_index_stats(&self) -> Option<DiskIndexStats> {
        self.finder.disk_index_stats()
    }

    /// Returns the folders over which an index on disk is spread; none if it is in the store's own
    /// folder.
    #[must_use]
    pub fn index_places(&self) -> Vec<IndexPlace> {
        index_places(self.world(), self.config())
    }

    /// Returns the number of blocks and bytes that this session has stored so far.
    #[must_use]
    pub fn session_growth(&self) -> (u64, u64) {
        self.drafts.growth()
    }

    /// Bounds the memory for cached pages and frames. Without this call the bound suits a machine
    /// with one store.
    pub fn bound_caches(&self, bytes: u64) {
        self.set_cache_bytes(CacheBytes::sharing(bytes));
    }

    /// Bounds the memory of each cache by itself, unlike [`bound_caches`](Self::bound_caches).
    pub fn set_cache_bytes(&self, bytes: CacheBytes) {
        self.reader.set_cache_bytes(bytes);
    }

    /// Advises how blocks that are put from now on will be read: in small pieces at random, as a
    /// disk image is; or many blocks together. The first costs some bytes of space. After the
    /// second, each small read takes long. This is only advice: every block can be read either way.
    pub fn expect_reads_in_pieces(&self, expected: bool) {
        self.drafts.expect_reads_in_pieces(expected);
    }

    /// Sets the size of these small pieces for blocks that are put from now on, in this session.
    pub fn set_frame_bytes(&self, bytes: FrameBytes) {
        self.drafts.set_frame_bytes(bytes);
    }

    /// Like [`put_batch`](BlockStore::put_batch), but also reports for each block whether it was
    /// new. In a store that compares by value every block counts as new.
    ///
    /// # Errors
    /// [`PutError`]
    pub fn put_each(&self, blocks: &[Block<'_>]) -> Result<Vec<PutResult>, PutError> {
        self.intake_for_put()?.put_each(blocks)
    }

    /// Stores blocks under the names that they had; see [`Intake::put_back`].
    ///
    /// # Errors
    /// [`PutError`]; some may have been stored.
    pub fn put_back(&self, blocks: &[(BlockName, Bytes)]) -> Result<u64, PutError> {
        self.intake_for_put()?.put_back(blocks)
    }

    fn intake_for_put(&self) -> Result<&Intake, PutError> {
        self.intake.as_ref().ok_or_else(|| PutError::ReadOnly { reason: "it was opened for reading".into() })
    }

    /// Writes every block put so far to the log, named by a page, and does not wait until it is
    /// durable. Afterwards the log has its full length.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn write_out(&self) -> Result<(), AppendError> {
        self.intake.as_ref().map_or(Ok(()), Intake::write_out)
    }

    /// Returns true if a page outside the given places names the block. The places are arenas and
    /// byte offsets.
    ///
    /// # Errors
    /// [`GetError::Failed`] when a directory could not be read for a reason other than damage.
    pub fn has_elsewhere(
        &self,
        name: &BlockName,
        damaged: &BTreeSet<(ArenaId, u64)>,
    ) -> Result<bool, GetError> {
        self.reader.has_elsewhere(name, damaged)
    }

    /// Returns the clump in which the directories name a block; `None` if they do not name it.
    /// Reads no clump.
    ///
    /// # Errors
    /// [`GetError::Failed`] when a directory could not be read for a reason other than damage.
    pub fn clump_of(&self, name: &BlockName) -> Result<Option<ClumpPlace>, GetError> {
        self.reader.clump_of(name)
    }

    /// Returns the arenas in which the index proposes to look for a block.
    #[must_use]
    pub fn arenas_proposed_for(&self, name: &BlockName) -> BTreeSet<ArenaId> {
        let places = self.finder.look_further(name).into_iter();
        places.map(|address| self.vault.map().locate(address).0).collect()
    }

    /// Returns the arenas that hold the file contents which this session has put, whether they were
    /// stored or found there. While these arenas stand, the contents are there. Every block must
    /// have been synced. `None` if it is not known: in a store that compares by value, and in one
    /// that is only read.
    #[must_use]
    pub fn data_arenas(&self) -> Option<BTreeSet<ArenaId>> {
        self.intake.as_ref()?.data_arenas()
    }

    /// Returns the blocks that are known to be damaged or gone.
    #[must_use]
    pub fn lost_blocks(&self) -> BTreeSet<BlockName> {
        self.reader.lost().all()
    }

    /// Replaces the set of lost blocks, so that these blocks, and no others, are stored anew when
    /// they are put again. If the set cannot be written, the only loss is the set itself.
    pub fn remember_lost(&self, lost: &BTreeSet<BlockName>) {
        self.reader.lost().replace(lost);
    }

    /// Reads the records that another process has added to the log, and returns true if there were
    /// any. If nothing was added, the cost is a look at the lengths of the files; otherwise the new
    /// part is read. A store that is open for writing has nothing to follow, since it is the only
    /// writer.
    ///
    /// An arena that a collector has replaced is read anew. A `repair` leaves no note, so an arena
    /// that it has written anew is noticed when a block is not found in its place.
    ///
    /// # Errors
    /// [`OpenStoreError`] when the log cannot be read. Damage to single arenas is no error here.
    pub fn follow(&self) -> Result<bool, OpenStoreError> {
        if self.intake.is_some() { Ok(false) } else { self.tail.follow() }
    }

    /// Returns true if the list of barren blocks has this one: it may lead to removed blocks,
    /// unless it was stored again since.
    pub(crate) fn is_listed_as_barren(&self, name: &BlockName) -> bool {
        self.reader.is_listed_as_barren(name)
    }

    /// Refuses if adding is not allowed because the disk does not return data that may matter. A
    /// store that is only read may then lack the newest snapshots.
    ///
    /// # Errors
    /// [`WithheldError`].
    pub fn check_nothing_withheld(&self) -> Result<(), WithheldError> {
        self.tail.check_nothing_withheld()
    }

    /// Returns true if the disk returned every part of the log that was read when the store was
    /// opened. A part that it did not return is missing from the index, so no index is saved then.
    #[must_use]
    pub fn is_log_given(&self) -> bool {
        self.tail.is_log_given()
    }

    /// Returns true if the log had lost its end when it was opened: the page that was noted last
    /// was missing, so the newest snapshots may be gone.
    #[must_use]
    pub fn end_is_lost(&self) -> bool {
        self.tail.end_is_lost()
    }

    /// Writes the index's checkpoint. Every block that was put must have been synced.
    ///
    /// # Errors
    /// [`SaveCheckpointError`]; the old checkpoint then remains.
    pub fn save_checkpoint(&self) -> Result<(), SaveCheckpointError> {
        self.intake.as_ref().map_or(Ok(()), Intake::save_checkpoint)
    }

    /// Syncs, saves the index if that is worth the time, and leaves a mark of durability, which
    /// saves the next opening some work.
    ///
    /// # Errors
    /// [`CloseError`].
    pub fn close(self) -> Result<(), CloseError> {
        self.intake.map_or(Ok(()), Intake::close)
    }
}

/// The part of what was searched that was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missed {
    Nothing,
    /// No place is known for some of it.
    Absent,
    /// Some of it could not be read.
    Damaged,
}

/// The most searches for a block that other processes move all the time.
const SEARCHES_MAX: usize = 16;

impl Store {
    /// Searches for something. If a reader misses it, follows the writers of other processes, and
    /// searches again if there was anything new: a collector may have moved it meanwhile. Something
    /// damaged is searched again in any case. It is damaged if two searches in a row say so, and
    /// nothing was new between them. Only the second one records losses.
    fn until_settled<T>(&self, search: impl Fn(LossNotes) -> T, missed: impl Fn(&T) -> Missed) -> T {
        if self.is_open_to_write() {
            return search(LossNotes::Final);
        }
        let mut notes = LossNotes::LookAgain;
        for _ in 1..SEARCHES_MAX {
            let news_before = self.tail.news_count();
            let found = search(notes);
            let missed = missed(&found);
            let is_over = match missed {
                Missed::Nothing => true,
                _ if self.tail.look_again(news_before, missed == Missed::Damaged) => {
                    notes = LossNotes::LookAgain;
                    false
                }
                Missed::Absent => true,
                Missed::Damaged => std::mem::replace(&mut notes, LossNotes::Final) == LossNotes::Final,
            };
            if is_over {
                return found;
            }
        }
        search(LossNotes::Final)
    }

    fn get_blocks(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        // Blocks that were found are not read again.
        let found: Vec<OnceLock<Bytes>> = names.iter().map(|_| OnceLock::new()).collect();
        let search = |notes| {
            let missed: Vec<_> = (0..names.len()).filter(|number| found[*number].get().is_none()).collect();
            let wanted: Vec<_> = missed.iter().map(|number| names[*number]).collect();
            let mut errors = Vec::new();
            for (number, got) in missed.into_iter().zip(self.reader.get_blocks(&wanted, notes)) {
                match got {
                    Ok(bytes) => drop(found[number].set(bytes)),
                    Err(error) => errors.push(error),
                }
            }
            errors
        };
        let missed = |errors: &Vec<GetError>| match errors
            .iter()
            .any(|error| !matches!(error, GetError::NotFound { .. }))
        {
            true => Missed::Damaged,
            false if errors.is_empty() => Missed::Nothing,
            false => Missed::Absent,
        };
        let mut errors = self.until_settled(search, missed).into_iter();
        let mut missing = |name: &BlockName| errors.next().unwrap_or(GetError::NotFound { name: *name });
        found
            .into_iter()
            .zip(names)
            .map(|(found, name)| found.into_inner().ok_or_else(|| missing(name)))
            .collect()
    }
}

impl DeltaBases for Store {
    fn base(&self, score: &Score) -> Result<Bytes, BaseError> {
        let missed = |found: &Result<_, _>| if found.is_ok() { Missed::Nothing } else { Missed::Damaged };
        self.until_settled(|notes| WholeBlocks(&self.reader, notes).base(score), missed)
    }
}

impl BlockStore for Store {
    fn score_bytes(&self) -> usize {
        self.config().score_bytes()
    }

    fn empty_score(&self) -> Score {
        self.namer().empty_score()
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let scores = self.put_batch(&[block])?;
        Ok(scores[0])
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        let names = std::slice::from_ref(name);
        self.get_blocks(names).pop().unwrap_or(Err(GetError::NotFound { name: *name }))
    }

    fn sync(&self) -> Result<(), SyncError> {
        let Some(intake) = &self.intake else { return Ok(()) };
        intake.make_durable().map_err(|error| SyncError { source: error.into() })
    }

    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        self.intake_for_put()?.put_blocks(blocks)
    }

    fn put_batch_with(&self, blocks: &[Block<'_>], hints: PutHints<'_>) -> Result<Vec<Score>, PutError> {
        self.intake_for_put()?.put_with(blocks, hints)
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        self.get_blocks(names)
    }

    fn expect(&self, names: &[BlockName]) {
        self.reader.expect_blocks(names);
    }

    fn has_batch(&self, names: &[BlockName]) -> Result<Vec<bool>, GetError> {
        names.iter().map(|name| self.reader.has(name)).collect()
    }
}
