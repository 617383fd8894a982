//! Making parity: soon after an arena is sealed, while it is still in the machine's memory; and for those that have none,
//! a bounded share whenever the store is closed.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError, TryLockError};

use varve_log::{
    ArenaId, ParityHeader, ParityLayout, ParityPercent, ReadLogError, RecoverError, WholeArena, WriteFailure,
    recovery_of,
};
use varve_world::{FileName, Storage};

use crate::parity::{ParityDamage, file_name, of_file, shards};
use crate::store::{Store, Writer};

/// How much of the log is read at one closing to make up for parity that is missing: some seconds' worth.
const CATCH_UP_BYTES: u64 = 4 << 30;

/// What a writer knows of parity that is still to be made.
#[derive(Default)]
pub(crate) struct ParityDue {
    /// In the order of their seals: what has parity was durable, and so must be all seals before it.
    arenas: Mutex<VecDeque<ArenaId>>,
    /// Held by the one who makes it, so that it takes the memory of one group.
    gate: Mutex<()>,
}

/// Why an arena has got no parity.
#[derive(Debug, thiserror::Error)]
pub enum WriteParityError {
    /// The store has none: `parity_percent` is 0.
    #[error("the store has no parity: `parity_percent` in config.toml is 0")]
    Off,
    /// The store was opened to be read.
    #[error("the store was opened to be read only")]
    ReadOnly,
    /// The arena is not sealed, or not whole: parity of it would keep the damage.
    #[error("parity can be made only of a whole arena")]
    NotWhole(#[from] ReadLogError),
    /// The arena's seal could not be made durable; the store takes nothing more until it is opened again.
    #[error("cannot make {file} durable")]
    Sync {
        /// The arena's file.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
    /// The parity file could not be written.
    #[error("cannot write {file}")]
    Storage {
        /// The parity file.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
}

impl Store {
    /// Makes the parity file of a sealed arena, in place of the one that it may have.
    ///
    /// # Errors
    /// [`WriteParityError`].
    pub fn write_parity(&self, id: ArenaId) -> Result<(), WriteParityError> {
        let writer = self.writer.as_ref().ok_or(WriteParityError::ReadOnly)?;
        let percent = self.config.parity_percent.ok_or(WriteParityError::Off)?;
        let _alone = writer.parity.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_parity_alone(writer, id, percent)
    }

    /// Makes parity for arenas that have none, of at most about `bytes_max` of the log, and says how many still have none. An arena that
    /// is not whole is left out: parity of it would keep the damage.
    ///
    /// # Errors
    /// [`WriteParityError`].
    pub fn write_missing_parity(&self, bytes_max: u64) -> Result<u64, WriteParityError> {
        let writer = self.writer.as_ref().ok_or(WriteParityError::ReadOnly)?;
        if self.config.parity_percent.is_none() {
            return Err(WriteParityError::Off);
        }
        let storage = self.world.storage.as_ref();
        let seals = writer.appender().seals().clone();
        let mut missing = Vec::new();
        for (id, seal) in seals.iter() {
            let file = file_name(id, seal.generation);
            match storage.length(&file) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(id),
                Err(source) => return Err(WriteParityError::Storage { file, source }),
            }
        }
        let (mut left, mut read_bytes) = (missing.len() as u64, 0);
        for id in missing {
            if read_bytes >= bytes_max {
                break;
            }
            read_bytes += storage.length(&id.file_name()).unwrap_or_default();
            match self.write_parity(id) {
                Ok(()) => left -= 1,
                Err(WriteParityError::NotWhole(error)) => {
                    tracing::warn!(arena = %id, %error, "an arena that is not whole gets no parity");
                }
                Err(other) => return Err(other),
            }
        }
        Ok(left)
    }

    /// Notes the arenas that the writer has sealed, in that order.
    pub(crate) fn note_parity_due(&self, writer: &Writer, sealed: Vec<ArenaId>) {
        if self.config.parity_percent.is_some() {
            writer.parity.arenas().extend(sealed);
        }
    }

    /// Makes the parity that is due, unless somebody else does and `wait` is not asked for. What cannot be made now is made up for when
    /// the store is closed again; nothing depends on it.
    pub(crate) fn write_due_parity(&self, writer: &Writer, wait: bool) {
        let Some(percent) = self.config.parity_percent else { return };
        let _alone = match writer.parity.gate.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::WouldBlock) if !wait => return,
            _ => writer.parity.gate.lock().unwrap_or_else(PoisonError::into_inner),
        };
        while let Some(id) = writer.parity.first() {
            if let Err(error) = self.write_parity_alone(writer, id, percent) {
                tracing::warn!(arena = %id, error = &error as &dyn std::error::Error, "an arena has got no parity yet");
                if matches!(error, WriteParityError::Sync { .. }) {
                    // A power cut may take this seal, and those after it must not be vouched for then.
                    writer.parity.arenas().clear();
                }
            }
        }
    }

    /// What closing does for the arenas of earlier sessions.
    pub(crate) fn catch_up_parity(&self) {
        if self.config.parity_percent.is_none() {
            return;
        }
        match self.write_missing_parity(CATCH_UP_BYTES) {
            Ok(0) => {}
            Ok(left) => tracing::info!(left, "arenas without parity are left for the next time"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "parity is still missing");
            }
        }
    }

    fn write_parity_alone(
        &self,
        writer: &Writer,
        id: ArenaId,
        percent: ParityPercent,
    ) -> Result<(), WriteParityError> {
        let storage = self.world.storage.as_ref();
        // A crash must not leave parity of a seal that it takes back, or of an arena whose name it takes: the arena would grow on, and its
        // parity be of another one; or it would seem to be lost.
        let arena_file = id.file_name();
        let has_new_names = writer.appender().has_new_names();
        let named = || if has_new_names { self.log.sync_names() } else { Ok(()) };
        if let Err(source) = self.log.sync_file(&arena_file).and_then(|()| named()) {
            // The system tells this only once: without a word here the writer would believe what is lost.
            let reason =
                WriteFailure::of_call(format!("cannot make {arena_file} durable: {source}"), &source);
            writer.appender().fail(reason.clone());
            self.admission().failed.get_or_insert(reason);
            return Err(WriteParityError::Sync { file: arena_file, source });
        }
        // What an arena holds is checked before: parity of damage would bring the damage back.
        let whole = self.log.check_whole(id)?;
        let (arena_bytes, generation) = (whole.footer.file_bytes(), whole.arena.header().generation);
        let file = file_name(id, generation);
        let layout = arena_bytes.and_then(|bytes| ParityLayout::plan(bytes, percent));
        let failed = |source| WriteParityError::Storage { file: file.clone(), source };
        let layout = layout.ok_or_else(|| failed(io::ErrorKind::FileTooLarge.into()))?;
        let header = self.parity_header(&whole, layout);
        storage.replace_with(&file, |append| self.write_parity_file(&header, append)).map_err(failed)?;
        tracing::debug!(arena = %id, bytes = layout.file_bytes(), "made parity");
        self.remove_superseded(id, generation);
        Ok(())
    }

    fn parity_header(&self, whole: &WholeArena, layout: ParityLayout) -> ParityHeader {
        let header = whole.arena.header();
        ParityHeader {
            store_id: header.store_id,
            arena: header.arena,
            generation: header.generation,
            arena_header_code: *header.code(),
            arena_seal_code: whole.footer.seal_code,
            layout,
        }
    }

    fn write_parity_file(
        &self,
        header: &ParityHeader,
        append: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (storage, workers) = (self.world.storage.as_ref(), self.world.workers.as_ref());
        let (layout, arena_file) = (&header.layout, header.arena.file_name());
        let shard_bytes = layout.shard_bytes();
        let (head, key) = header.encode(self.log.keys());
        append(&head)?;
        let mut tables = Vec::new();
        for group in 0..layout.group_count() {
            let data = read_group(storage, &arena_file, layout, group)?;
            let recovery = recovery_of(&data, shard_bytes, layout.recovery_count(group), workers);
            let mut codes = key.shard_codes(&data, shard_bytes, workers);
            drop(data);
            codes.extend(key.shard_codes(&recovery, shard_bytes, workers));
            let table = key.encode_table(group, &codes);
            append(&table)?;
            append(&recovery)?;
            tables.extend_from_slice(&table);
        }
        append(&tables)?;
        append(&head)
    }

    /// Removes the parity of an arena whose seal is about to be taken off, for good: it would tell that the seal was lost.
    pub(crate) fn remove_parity(&self, id: ArenaId) -> Result<(), RecoverError> {
        let failed = |(file, source)| RecoverError::Remove { file, source };
        self.remove_parity_of(id, |_| true).map_err(failed)
    }

    /// Removes the parity of what was in an arena's place, once a copy of another generation has come there, or of another history: what was
    /// lost had gone on from a state that the copy had gone on from, too.
    pub(crate) fn keep_parity_only_of(&self, id: ArenaId, generation: u32) {
        let is_of_another = matches!(self.check_parity(id, false), Ok(Some(ParityDamage::OtherArena)));
        if let Err((file, error)) = self.remove_parity_of(id, |other| is_of_another || other != generation) {
            tracing::warn!(%file, %error, "old parity could not be removed");
        }
    }

    fn remove_parity_of(
        &self,
        id: ArenaId,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Result<(), (FileName, io::Error)> {
        let storage = self.world.storage.as_ref();
        let files = self.parity_files().map_err(|error| (file_name(id, 0), error))?.into_iter();
        for (_, generation) in files.filter(|(arena, generation)| *arena == id && is_wanted(*generation)) {
            let file = file_name(id, generation);
            let removed = storage.remove(&file).and_then(|()| storage.sync_folder(super::FOLDER));
            removed.map_err(|error| (file, error))?;
        }
        Ok(())
    }

    /// Removes parity of what the arena was before it was rewritten.
    fn remove_superseded(&self, id: ArenaId, generation: u32) {
        let storage = self.world.storage.as_ref();
        for older in 0..generation {
            if let Err(error) = storage.remove_if_there(&file_name(id, older)) {
                tracing::warn!(arena = %id, %error, "old parity could not be removed");
            }
        }
    }

    /// How many parity files there are, and the bytes in them.
    pub(crate) fn parity_size(&self) -> io::Result<(u64, u64)> {
        let storage = self.world.storage.as_ref();
        let files = storage.list(super::FOLDER)?;
        let lengths = files.iter().filter(|file| of_file(file).is_some()).map(|file| storage.length(file));
        lengths.into_iter().try_fold((0, 0), |(count, bytes), length| Ok((count + 1, bytes + length?)))
    }
}

impl ParityDue {
    fn arenas(&self) -> std::sync::MutexGuard<'_, VecDeque<ArenaId>> {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first(&self) -> Option<ArenaId> {
        self.arenas().pop_front()
    }
}

/// A group's data shards, all of which must be there.
fn read_group(
    storage: &dyn Storage,
    arena_file: &FileName,
    layout: &ParityLayout,
    group: u32,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; layout.data_count(group) * layout.shard_bytes()];
    let mut rest = &mut bytes[..];
    for piece in layout.pieces(group) {
        let (into, after) = std::mem::take(&mut rest).split_at_mut(shards::padded_bytes(layout, &piece));
        let present = usize::try_from(piece.end - piece.start).map_err(io::Error::other)?;
        storage.read_at(arena_file, piece.start, &mut into[..present])?;
        rest = after;
    }
    Ok(bytes)
}
