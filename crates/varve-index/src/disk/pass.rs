//! A pass merges the present run and the full buffer into the next run, with one sequential read
//! and one sequential write, in steps of bounded size. Look-ups use both inputs until it ends.

use std::io;
use std::sync::Arc;

use varve_block::to_usize;
use varve_world::{FileName, Storage, is_exhausted};

use super::IndexEntry;
use super::buffer::EntryBuffer;
use super::outdated::OutdatedPlaces;
use super::page::PageCodes;
use super::run::{IndexRun, ReadRunError, RunReader, RunWriter};
use super::state::FrozenBuffer;
use super::summary::RunIdentity;

/// The reason why a pass failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PassError {
    #[error("{0}")]
    Read(#[from] ReadRunError),
    #[error("cannot write {file}")]
    Write { file: FileName, source: io::Error },
}

impl PassError {
    /// Returns true if the disk does not return written bytes.
    pub(super) fn is_unreadable(&self) -> bool {
        matches!(self, Self::Read(ReadRunError::Storage { source, .. }) if !is_exhausted(source))
    }
}

/// A pass in progress.
pub(super) struct MergePass {
    old: Option<RunReader>,
    /// The places whose entries in the old run are left out.
    outdated: OutdatedPlaces,
    frozen: Arc<EntryBuffer>,
    /// The position in the frozen buffer: in its table, and in its tree.
    in_table: usize,
    next_in_table: Option<IndexEntry>,
    next_crowded: Option<IndexEntry>,
    writer: RunWriter,
    file: FileName,
    last: Option<IndexEntry>,
    /// The keys that were processed, if a larger filter needs them.
    keys: Option<Vec<u64>>,
    pub(super) generation: u64,
    /// The number of entries to read in total.
    pub(super) entries_total: u64,
}

/// The result of a pass.
pub(super) struct MergeResult {
    pub(super) run: IndexRun,
    pub(super) generation: u64,
}

impl MergePass {
    pub(super) fn begin(
        storage: Arc<dyn Storage>,
        identity: &RunIdentity,
        codes: PageCodes,
        old: Option<Arc<IndexRun>>,
        FrozenBuffer { buffer: frozen, outdated, .. }: FrozenBuffer,
        fills_filter: bool,
    ) -> Result<Self, PassError> {
        let entries_total = old.as_ref().map_or(0, |run| run.entry_count) + frozen.len() as u64;
        let file = identity.file();
        let writer = RunWriter::create(storage, file.clone(), codes)
            .map_err(|source| PassError::Write { file: file.clone(), source })?;
        let first = frozen.next_in_table(0);
        Ok(Self {
            old: old.map(RunReader::new),
            outdated,
            in_table: first.map_or(0, |(_, next)| next),
            next_in_table: first.map(|(entry, _)| entry),
            next_crowded: frozen.next_crowded(None),
            frozen,
            writer,
            file,
            last: None,
            keys: fills_filter.then(Vec::new),
            generation: identity.generation,
            entries_total,
        })
    }

    pub(super) fn file(&self) -> &FileName {
        &self.file
    }

    /// Processes up to `entries` entries. Returns true if there are more.
    pub(super) fn step(&mut self, entries: u64) -> Result<bool, PassError> {
        let mut left = entries;
        while left > 0 {
            let buffered = [self.next_in_table, self.next_crowded].into_iter().flatten().min();
            let Self { old, outdated, last, keys, writer, file, .. } = self;
            let mut take = |entry: IndexEntry| {
                // An opening after a crash may insert an entry again that is already present.
                if *last == Some(entry) {
                    return Ok(());
                }
                *last = Some(entry);
                if let Some(keys) = keys {
                    keys.push(entry.key);
                }
                writer.push(entry).map_err(|source| PassError::Write { file: file.clone(), source })
            };
            // There are many entries of the run between two of the buffer.
            let mut taken = 0;
            if let Some(reader) = old {
                let ready = reader.ready()?;
                let most = to_usize(left).min(ready.len());
                let is_before = |entry: &IndexEntry| buffered.is_none_or(|buffered| *entry <= buffered);
                for entry in ready.iter().take(most).take_while(|entry| is_before(entry)) {
                    if outdated.is_empty() || !outdated.contains(entry.address) {
                        take(*entry)?;
                    }
                    taken += 1;
                }
                reader.take(taken);
            }
            if taken > 0 {
                left -= taken as u64;
                continue;
            }
            let Some(entry) = buffered else { return Ok(false) };
            take(entry)?;
            left -= 1;
            self.go_on_behind(entry);
        }
        Ok(true)
    }

    /// Returns the keys processed since the last call, for a larger filter; none if there is no
    /// such filter.
    pub(super) fn take_keys(&mut self) -> Vec<u64> {
        self.keys.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn finish(self) -> Result<MergeResult, PassError> {
        let Self { writer, file, generation, .. } = self;
        let run = writer.finish().map_err(|source| PassError::Write { file, source })?;
        Ok(MergeResult { run, generation })
    }

    /// Advances past the least entry of the buffer.
    fn go_on_behind(&mut self, least: IndexEntry) {
        if self.next_in_table == Some(least) {
            let next = self.frozen.next_in_table(self.in_table);
            (self.next_in_table, self.in_table) =
                next.map_or((None, self.in_table), |(entry, next)| (Some(entry), next));
        } else {
            self.next_crowded = self.frozen.next_crowded(Some(least));
        }
    }
}
