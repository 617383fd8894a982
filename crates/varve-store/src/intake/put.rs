//! Putting: blocks are named, looked up, gathered into drafts, and drafts become clumps.

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_block::{BLOCK_BYTES_MAX, Block, BlockName, BlockType, GetError, LogAddress, PutError, Score};
use varve_log::{AppendError, Appended, Appender, ArenaId, Digest, NamedBlock, WriteFailure};

use crate::config::CompareMode;
use crate::store::{Admission, FullDraft, Pending, PendingPlace, Store, Writer};

/// What became of a block that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put {
    /// Its name.
    pub score: Score,
    /// Whether this call has stored it: it was not in the store before.
    pub is_new: bool,
}

/// What became of blocks that were put together.
struct Admitted {
    /// Drafts that became full.
    full: Vec<FullDraft>,
    /// Which blocks were new, or why one was refused.
    is_new: Result<Vec<bool>, PutError>,
}

impl Store {
    pub(crate) fn put_blocks(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        self.put_each(blocks).map(|put| put.into_iter().map(|put| put.score).collect())
    }

    /// As [`put_batch`](varve_block::BlockStore::put_batch), and says of each block whether it was new. In a store that compares by value
    /// every block counts as new.
    ///
    /// # Errors
    /// [`PutError`]
    pub fn put_each(&self, blocks: &[Block<'_>]) -> Result<Vec<Put>, PutError> {
        let writer = self.writer_for_put()?;
        self.check_nothing_withheld().map_err(|error| PutError::Failed { source: error.into() })?;
        if let Some(block) = blocks.iter().find(|block| block.bytes.len() > BLOCK_BYTES_MAX) {
            return Err(PutError::TooLarge { bytes: block.bytes.len() });
        }
        if self.config.compare == CompareMode::Value {
            let scores = self.put_by_value(writer, blocks)?;
            return Ok(scores.into_iter().map(|score| Put { score, is_new: true }).collect());
        }
        let scores = self.namer.hash_each(blocks.iter().map(|block| block.bytes));
        let named: Vec<NamedBlock<'_>> = blocks
            .iter()
            .zip(&scores)
            .map(|(block, score)| NamedBlock {
                name: BlockName { score: *score, block_type: block.block_type },
                digest: self.namer.digest(block.bytes),
                bytes: block.bytes,
            })
            .collect();
        let Admitted { full, is_new } = self.admit(&named)?;
        // Those that a refused block comes after, too: a `sync` waits for every draft that was closed.
        for full in full {
            self.append_draft(writer, &full).map_err(failed)?;
        }
        let is_new = is_new?;
        Ok(scores.into_iter().zip(is_new).map(|(score, is_new)| Put { score, is_new }).collect())
    }

    fn writer_for_put(&self) -> Result<&Writer, PutError> {
        self.writer.as_ref().ok_or_else(|| PutError::ReadOnly { reason: "it was opened to be read".into() })
    }

    /// Adds the blocks that are new to the draft, until one is refused.
    fn admit(&self, blocks: &[NamedBlock<'_>]) -> Result<Admitted, PutError> {
        let mut known = vec![false; blocks.len()];
        loop {
            let seen = self.admission().page_count;
            for (block, known) in blocks.iter().zip(&mut known) {
                *known = *known || self.is_indexed(&block.name, block.digest)?;
            }
            let mut admission = self.admission();
            if let Some(reason) = &admission.failed {
                return Err(failed(AppendError::Failed { reason: reason.clone() }));
            }
            // A page that was written meanwhile has moved blocks from `pending` to the index: look there again.
            if admission.page_count == seen {
                let mut full = Vec::new();
                let is_new = admission.add_new(blocks, &known, &mut full);
                return Ok(Admitted { full, is_new });
            }
        }
    }

    /// Whether a page names this block.
    fn is_indexed(&self, name: &BlockName, digest: Option<Digest>) -> Result<bool, PutError> {
        if self.lost.contains(name) {
            return Ok(false);
        }
        self.is_at_any_place(name, |address| {
            match self.directory.find(address, name) {
                Ok(Some(found)) if found.digest == digest => {
                    if self.is_vouched_for(address, name) {
                        return Ok(true);
                    }
                    tracing::warn!(block = %name, "a writer who may not read has named a block that is not there");
                }
                Ok(Some(_)) => return Err(PutError::Collision { name: *name }),
                Ok(None) => {}
                // What cannot be read cannot be relied on: the block is stored anew.
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, block = %name, "a directory page is damaged; storing the block again");
                }
                Err(error) => return Err(PutError::Failed { source: error.into() }),
            }
            Ok(false)
        })
    }

    /// Whether a page may be believed that names this block. Whoever has a write-only key can name what they never stored: their
    /// arenas are looked into by whoever can.
    fn is_vouched_for(&self, address: LogAddress, name: &BlockName) -> bool {
        let (arena, _) = self.log.config().map.locate(address);
        let is_foreign = self.directory.arena(arena).is_ok_and(|arena| arena.header().is_write_only());
        !is_foreign || !self.log.keys().can_read() || self.get_blocks(&[*name]).iter().all(Result::is_ok)
    }

    /// Whether a block is stored, by the directories.
    pub(crate) fn has(&self, name: &BlockName) -> Result<bool, GetError> {
        if self.namer.is_everywhere(&name.score) {
            return Ok(true);
        }
        // Looked at first: a page that is written in between takes the block to the index, never back.
        if self.admission().pending.contains_key(name) {
            return Ok(true);
        }
        self.has_elsewhere(name, &BTreeSet::new())
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
        self.is_at_any_place(name, |address| {
            let (arena, granule) = self.log.config().map.locate(address);
            if damaged.contains(&(arena, granule.byte_offset())) {
                return Ok(false);
            }
            match self.directory.find(address, name) {
                Ok(found) => Ok(found.is_some()),
                Err(error) if error.is_damage() => Ok(false),
                Err(error) => Err(GetError::Failed { name: *name, source: error.into() }),
            }
        })
    }

    /// Packs a draft and appends it.
    pub(crate) fn append_draft(&self, writer: &Writer, full: &FullDraft) -> Result<(), AppendError> {
        let _others_hear = OthersHear { store: self };
        let packed = full.draft.pack(self.config.compression_level, self.framing());
        if let Some(home) = full.home {
            self.wait_for_drafts_before(home.arena);
        }
        let mut appender = writer.appender();
        let appended = match full.home {
            None => appender.append(packed),
            Some(home) => appender.append_in(home.arena, packed),
        };
        self.note_end(&appender);
        let mut admission = self.admission();
        match appended {
            Ok((address, pages)) => {
                admission.note_clump(full, address);
                drop(admission);
                for page in &pages {
                    self.index_page(page)?;
                }
                if !pages.is_empty() {
                    self.begin_index_pass(writer, &appender);
                    self.directory.note_sealed(|arena| appender.seals().contains(arena));
                    self.note_parity_due(writer, appender.take_newly_sealed());
                }
                drop(appender);
                self.drained.notify_all();
                self.write_due_parity(writer, false);
                Ok(())
            }
            Err(error) => {
                // The draft stays where it is, so that what was put can still be read; but nothing more is taken.
                admission.failed.get_or_insert_with(|| WriteFailure::of(&error));
                drop(admission);
                self.drained.notify_all();
                Err(error)
            }
        }
    }

    /// Waits until all that belongs in earlier arenas is there: what follows ends them.
    fn wait_for_drafts_before(&self, arena: ArenaId) {
        let waiting = |admission: &mut Admission| {
            let is_before = |full: &FullDraft| full.home.is_some_and(|home| home.arena < arena);
            admission.failed.is_none() && admission.in_flight.values().any(is_before)
        };
        drop(self.drained.wait_while(self.admission(), waiting));
    }

    /// Notes how far the log has come, for what is given a place in it beforehand.
    pub(crate) fn note_end(&self, appender: &Appender) {
        if let Some(placement) = &mut self.admission().placement {
            placement.note_end(appender.home());
        }
    }

    /// Takes what a page names from `pending` into the index.
    pub(crate) fn index_page(&self, appended: &Appended) -> Result<(), AppendError> {
        self.directory.note_appended(appended);
        self.insert_names(appended.arena, &appended.page)?;
        self.note_catalog(appended.arena, &appended.page, true);
        self.lost.remove(appended.page.blocks().map(|block| block.name));
        let mut admission = self.admission();
        for block in appended.page.blocks() {
            admission.pending.remove(&block.name);
        }
        admission.page_count += 1;
        Ok(())
    }

    /// Closes the draft, full or not, and appends it; then waits for every other draft that was closed before.
    pub(crate) fn append_all_drafts(&self, writer: &Writer) -> Result<(), AppendError> {
        let (closed, number) = {
            let mut admission = self.admission();
            let closed: Vec<_> =
                (0..admission.drafts.len()).filter_map(|kind| admission.close_draft(kind)).collect();
            (closed, admission.next_draft_number)
        };
        for full in closed {
            self.append_draft(writer, &full)?;
        }
        let waiting = |admission: &mut Admission| {
            admission.failed.is_none()
                && admission.in_flight.keys().next().is_some_and(|first| *first < number)
        };
        let admission = self.drained.wait_while(self.admission(), waiting);
        match &admission.unwrap_or_else(std::sync::PoisonError::into_inner).failed {
            Some(reason) => Err(AppendError::Failed { reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

/// Whoever waits for a draft hears of it if the thread that was to append it dies: the draft never comes.
struct OthersHear<'a> {
    store: &'a Store,
}

impl Drop for OthersHear<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = || WriteFailure::new("a thread that was writing has died");
            self.store.admission().failed.get_or_insert_with(reason);
            self.store.drained.notify_all();
        }
    }
}

impl Admission {
    fn add_new(
        &mut self,
        blocks: &[NamedBlock<'_>],
        known: &[bool],
        full: &mut Vec<FullDraft>,
    ) -> Result<Vec<bool>, PutError> {
        let mut is_new = vec![false; blocks.len()];
        for (number, (block, _)) in blocks.iter().zip(known).enumerate().filter(|(_, (_, known))| !**known) {
            if let Some(pending) = self.pending.get(&block.name) {
                if pending.digest != block.digest {
                    return Err(PutError::Collision { name: block.name });
                }
                continue;
            }
            let kind = usize::from(block.name.block_type != BlockType::DATA);
            if self.drafts[kind].draft.should_close_before(block.bytes.len()) {
                full.extend(self.close_draft(kind));
            }
            let open = &mut self.drafts[kind];
            let place = PendingPlace::Draft { number: open.number, ordinal: open.draft.push(*block) };
            self.pending.insert(block.name, Pending { place, digest: block.digest });
            is_new[number] = true;
            self.new_block_count += 1;
            self.new_block_bytes += block.bytes.len() as u64;
            if self.drafts[kind].draft.is_full() {
                full.extend(self.close_draft(kind));
            }
        }
        Ok(is_new)
    }

    pub(crate) fn close_draft(&mut self, kind: usize) -> Option<FullDraft> {
        let open = &mut self.drafts[kind];
        if open.draft.is_empty() {
            return None;
        }
        let draft = Arc::new(open.draft.take());
        let number = std::mem::replace(&mut open.number, self.next_draft_number);
        self.next_draft_number += 1;
        let full = FullDraft { number, home: open.home.take(), draft };
        self.in_flight.insert(number, full.clone());
        Some(full)
    }

    fn note_clump(&mut self, full: &FullDraft, address: LogAddress) {
        self.in_flight.remove(&full.number);
        if let Some(placement) = &mut self.placement {
            placement.note_written(full.number);
        }
        self.clump_count += 1;
        for name in full.draft.names() {
            if let Some(pending) = self.pending.get_mut(&name) {
                pending.place = PendingPlace::Clump(address);
            }
        }
    }
}

pub(crate) fn failed(error: AppendError) -> PutError {
    PutError::Failed { source: error.into() }
}
