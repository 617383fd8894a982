//! The store: a front over the parts that own everything, and their block store.

mod open;
mod stats;

pub use open::Access;
pub use stats::StoreStats;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use varve_block::{Block, BlockName, BlockStore, GetError, PutError, Score, SyncError};
use varve_index::{DiskIndexStats, IndexStats};
use varve_log::{AppendError, ArenaId, OpenLogError, ReadLogError};
use varve_world::{Storage, World};
use zeroize::Zeroizing;

use crate::config::StoreConfig;
use crate::drafts::Drafts;
use crate::finder::{CandidateCounts, Finder, SaveCheckpointError};
use crate::intake::{CloseError, Intake, Put};
use crate::reader::Reader;
use crate::role::Role;
use crate::saved_index::{IndexPlace, index_places};
use crate::tail::{Tail, WithheldError};
use crate::vault::{ArenaNames, CatalogRoot, LogMark, Namer, OpenError, OwnFileError, Sessions, Vault};

/// A local store, open to be read, or to be written as well. Callable from many threads at once.
pub struct Store {
    vault: Arc<Vault>,
    drafts: Arc<Drafts>,
    finder: Arc<Finder>,
    reader: Arc<Reader>,
    tail: Arc<Tail>,
    /// Of a store that is open to be written.
    intake: Option<Intake>,
}

impl Store {
    /// The settings, keys and log.
    #[must_use]
    pub fn vault(&self) -> &Vault {
        &self.vault
    }

    /// The writer; `None` if the store was opened to be read.
    #[must_use]
    pub fn intake(&self) -> Option<&Intake> {
        self.intake.as_ref()
    }

    /// The choices that were made when the store was made.
    #[must_use]
    pub fn config(&self) -> &StoreConfig {
        self.vault.config()
    }

    /// How this store names blocks.
    #[must_use]
    pub fn namer(&self) -> &Namer {
        self.vault.namer()
    }

    /// The world that it lives in.
    #[must_use]
    pub fn world(&self) -> &World {
        self.vault.world()
    }

    /// What the key that opened it is for; everything, if the store is not encrypted.
    #[must_use]
    pub fn role(&self) -> Role {
        self.vault.role()
    }

    /// Whether it was opened to be written.
    #[must_use]
    pub fn is_open_to_write(&self) -> bool {
        self.intake.is_some()
    }

    /// The arenas that there are, in order.
    ///
    /// # Errors
    /// [`OpenLogError`] when they cannot be listed.
    pub fn arenas(&self) -> Result<Vec<ArenaId>, OpenLogError> {
        self.vault.log().arenas()
    }

    /// The names of all blocks that an arena holds, as far as pages name them: after a sync, all.
    ///
    /// Takes some forty bytes of memory for each.
    ///
    /// # Errors
    /// [`ReadLogError`] when nothing of the arena can be read.
    pub fn names_in_arena(&self, arena: ArenaId) -> Result<ArenaNames, ReadLogError> {
        self.vault.names_in_arena(arena)
    }

    /// The newest catalog root in the log, as far as pages name it: after a sync, the last one that was put.
    #[must_use]
    pub fn last_catalog(&self) -> Option<BlockName> {
        self.finder.catalogs().into_values().next_back()
    }

    /// The newest catalog root first, and, as far as this store's key cannot tell whether that is whole, those that come
    /// before it.
    #[must_use]
    pub fn newest_catalogs(&self) -> Vec<BlockName> {
        self.finder.newest_catalogs()
    }

    /// The newest catalog root of somebody who could read the one before it, and all that others have added since: the
    /// oldest first. Those others may have left out what was there, so each has to be looked at.
    #[must_use]
    pub fn catalogs(&self) -> Vec<BlockName> {
        self.finder.catalogs().into_values().collect()
    }

    /// All catalog roots that directory pages name, newest first.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed. What cannot be read is passed over.
    pub fn catalog_roots(&self) -> Result<Vec<CatalogRoot>, OpenLogError> {
        self.vault.catalog_roots()
    }

    /// The roots from which a store that is opened now reads its catalog, the oldest first: the newest one of somebody who
    /// could read the one before it, and all after it. Unlike [`catalogs`](Self::catalogs) it asks the log, and not what
    /// this session has seen.
    ///
    /// # Errors
    /// As for [`catalog_roots`](Self::catalog_roots).
    pub fn newest_catalog_roots(&self) -> Result<Vec<BlockName>, OpenLogError> {
        self.vault.newest_catalog_roots()
    }

    /// Where the newest catalog root lies of somebody who could read the one before it: its arena, and its place there in
    /// bytes. `None` if there is none.
    #[must_use]
    pub fn final_catalog_place(&self) -> Option<(ArenaId, u64)> {
        let first = self.finder.catalogs().into_keys().next()?;
        let (arena, granule) = self.vault.map().locate(first);
        self.finder.is_final(first).then_some((arena, granule.byte_offset()))
    }

    /// The log as it is now, in 48 bytes. All that was put must be durable.
    ///
    /// # Errors
    /// [`std::io::Error`] when an arena cannot be read.
    pub fn mark(&self) -> std::io::Result<LogMark> {
        self.vault.mark()
    }

    /// Whether all is there that the log held at the mark. What was rewritten is another thing; damage within a page or a
    /// clump is not looked for.
    #[must_use]
    pub fn holds(&self, mark: &LogMark) -> bool {
        self.vault.holds(mark)
    }

    /// The record of which client of the Venti door wrote which blocks.
    #[must_use]
    pub fn sessions(&self) -> Sessions<'_> {
        self.vault.sessions()
    }

    /// Writes a file that only the holder of this key can read; `about` says which.
    ///
    /// # Errors
    /// [`OwnFileError`]; what was there before is then there still.
    pub fn write_own(&self, about: &[u8], contents: &[u8]) -> Result<(), OwnFileError> {
        self.vault.write_own(about, contents)
    }

    /// Reads what [`write_own`](Self::write_own) has written; `None` if it is not there, damaged, or another key's.
    #[must_use]
    pub fn read_own(&self, about: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.vault.read_own(about)
    }

    /// How many candidates the index has proposed, look-up by look-up, since the store was opened.
    #[must_use]
    pub fn candidates_per_lookup(&self) -> CandidateCounts {
        self.finder.candidates_per_lookup()
    }

    /// How an index in memory is filled. Walks all blocks.
    #[must_use]
    pub fn memory_index_stats(&self) -> Option<IndexStats> {
        self.finder.memory_index_stats()
    }

    /// How an index on disk is filled, and how often it was asked. Cheap; `None` if there is no such index.
    #[must_use]
    pub fn disk_index_stats(&self) -> Option<DiskIndexStats> {
        self.finder.disk_index_stats()
    }

    /// The folders that an index on disk is spread over; none if it is in the store's own.
    #[must_use]
    pub fn index_places(&self) -> Vec<IndexPlace> {
        index_places(self.world(), self.config())
    }

    /// Blocks and bytes that this session has stored so far.
    #[must_use]
    pub fn session_growth(&self) -> (u64, u64) {
        self.drafts.growth()
    }

    /// Bounds the memory that this store takes for what it has read. Without this call that is what suits the one store of
    /// a machine.
    pub fn bound_caches(&self, bytes: u64) {
        self.reader.bound_caches(bytes);
    }

    /// Says how what is put from now on is expected to be read: in small pieces, here and there, as a disk image is; or many
    /// blocks together. The first costs some bytes, the second much time for each small piece. It is no more than advice.
    pub fn expect_reads_in_pieces(&self, expected: bool) {
        self.drafts.expect_reads_in_pieces(expected);
    }

    /// As [`put_batch`](BlockStore::put_batch), and says of each block whether it was new. In a store that compares by value
    /// every block counts as new.
    ///
    /// # Errors
    /// [`PutError`]
    pub fn put_each(&self, blocks: &[Block<'_>]) -> Result<Vec<Put>, PutError> {
        self.intake_for_put()?.put_each(blocks)
    }

    /// Stores blocks under the names that they have had; see [`Intake::put_back`].
    ///
    /// # Errors
    /// [`PutError`]; some may have been stored.
    pub fn put_back(&self, blocks: &[(BlockName, Bytes)]) -> Result<u64, PutError> {
        self.intake_for_put()?.put_back(blocks)
    }

    fn intake_for_put(&self) -> Result<&Intake, PutError> {
        self.intake.as_ref().ok_or_else(|| PutError::ReadOnly { reason: "it was opened to be read".into() })
    }

    /// Hands everything put so far to the log, named by a page, and does not wait until it is durable. Afterwards the log is as
    /// long as all of that makes it.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn write_out(&self) -> Result<(), AppendError> {
        self.intake.as_ref().map_or(Ok(()), Intake::write_out)
    }

    /// Whether a block is named anywhere but in these places, given by arena and offset in bytes.
    ///
    /// # Errors
    /// [`GetError::Failed`] when a directory could not be read for a reason that is no damage.
    pub fn has_elsewhere(
        &self,
        name: &BlockName,
        damaged: &BTreeSet<(ArenaId, u64)>,
    ) -> Result<bool, GetError> {
        self.reader.has_elsewhere(name, damaged)
    }

    /// The arenas in which the index proposes to look for a block.
    #[must_use]
    pub fn arenas_proposed_for(&self, name: &BlockName) -> BTreeSet<ArenaId> {
        let places = self.finder.look_further(name).into_iter();
        places.map(|address| self.vault.map().locate(address).0).collect()
    }

    /// The blocks that are known to be damaged or gone.
    #[must_use]
    pub fn lost_blocks(&self) -> BTreeSet<BlockName> {
        self.reader.lost().all()
    }

    /// Remembers which blocks are lost, and no others, so that they are stored anew when they are put again. That it cannot be
    /// written down costs nothing but the memory of it.
    pub fn remember_lost(&self, lost: &BTreeSet<BlockName>) {
        self.reader.lost().replace(lost);
    }

    /// Takes in what another process has added to the log, and says whether there was anything. Costs a look at the lengths
    /// of the files where nothing was added, and else the reading of what grew. A store that is open for writing is the
    /// writer itself, and has nothing to follow.
    ///
    /// What a `repair` has written anew is not noticed: whoever reads it from then on has to open the store again.
    ///
    /// # Errors
    /// [`OpenError`] for what keeps the log from being read. Damage to single arenas is no error here.
    pub fn follow(&self) -> Result<bool, OpenError> {
        if self.intake.is_some() { Ok(false) } else { self.tail.follow() }
    }

    /// Why nothing may be added, if that is so: the disk does not give something that may matter. A store that is only read
    /// may lack the newest snapshots then.
    ///
    /// # Errors
    /// [`WithheldError`].
    pub fn check_nothing_withheld(&self) -> Result<(), WithheldError> {
        self.tail.check_nothing_withheld()
    }

    /// Whether the disk gave all of the log that was read when the store was opened. What it did not give is in no index, and
    /// no index is saved then.
    #[must_use]
    pub fn is_log_given(&self) -> bool {
        self.tail.is_log_given()
    }

    /// Whether the log had lost its end when it was opened: the page that was noted last was not there, and with it the newest
    /// snapshots may be gone.
    #[must_use]
    pub fn end_is_lost(&self) -> bool {
        self.tail.end_is_lost()
    }

    /// Whether the page that was noted last in another storage, for another copy of this log, is in this one too; true if none
    /// was noted.
    ///
    /// # Errors
    /// [`ReadLogError`] when its arena cannot be read.
    pub fn has_newest_noted_in(&self, storage: &dyn Storage) -> Result<bool, ReadLogError> {
        self.vault.has_newest_noted_in(storage)
    }

    /// Writes the index's checkpoint. Everything put must have been synced.
    ///
    /// # Errors
    /// [`SaveCheckpointError`]; the old checkpoint is then there still.
    pub fn save_checkpoint(&self) -> Result<(), SaveCheckpointError> {
        self.intake.as_ref().map_or(Ok(()), Intake::save_checkpoint)
    }

    /// Syncs, saves the index if that is worth it, and leaves a mark that spares the next opening some work.
    ///
    /// # Errors
    /// [`CloseError`].
    pub fn close(self) -> Result<(), CloseError> {
        self.intake.map_or(Ok(()), Intake::close)
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
        self.reader.get_blocks(names).pop().unwrap_or(Err(GetError::NotFound { name: *name }))
    }

    fn sync(&self) -> Result<(), SyncError> {
        let Some(intake) = &self.intake else { return Ok(()) };
        intake.make_durable().map_err(|error| SyncError { source: error.into() })
    }

    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        self.intake_for_put()?.put_blocks(blocks)
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        self.reader.get_blocks(names)
    }

    fn expect(&self, names: &[BlockName]) {
        self.reader.expect_blocks(names);
    }

    fn has_batch(&self, names: &[BlockName]) -> Result<Vec<bool>, GetError> {
        names.iter().map(|name| self.reader.has(name)).collect()
    }
}
