//! Writes and removes parity files.

use std::io;

use varve_block::to_usize;
use varve_log::{ArenaId, ParityHeader, ParityLayout, ParityPercent, RecoverError, WholeArena, recovery_of};
use varve_world::{FileName, Storage, Workers};

use super::{FOLDER, ParityFiles, file_name, shards};

impl ParityFiles<'_> {
    /// Makes the parity file of a sealed arena whose seal is durable, and removes those of earlier
    /// generations.
    ///
    /// # Errors
    /// The file that cannot be written, and the reason.
    pub(crate) fn write(
        &self,
        whole: &WholeArena,
        percent: ParityPercent,
        workers: &dyn Workers,
    ) -> Result<(), (FileName, io::Error)> {
        let (arena, generation) = (whole.arena.id(), whole.arena.header().generation);
        let file = file_name(arena, generation);
        let layout = whole.footer.file_bytes().and_then(|bytes| ParityLayout::plan(bytes, percent));
        let layout = layout.ok_or_else(|| (file.clone(), io::ErrorKind::FileTooLarge.into()))?;
        let header = parity_header(whole, layout);
        let written = self.storage.replace_with(&file, |append| self.write_file(&header, workers, append));
        written.map_err(|source| (file, source))?;
        tracing::debug!(%arena, bytes = header.layout.file_bytes(), "made parity");
        self.remove_superseded(arena, generation);
        Ok(())
    }

    fn write_file(
        &self,
        header: &ParityHeader,
        workers: &dyn Workers,
        append: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (layout, arena_file) = (&header.layout, header.arena.file_name());
        let shard_bytes = layout.shard_bytes();
        let (head, key) = header.encode(self.log.keys());
        append(&head)?;
        let mut tables = Vec::new();
        for group in 0..layout.group_count() {
            let data = read_group(self.storage, &arena_file, layout, group)?;
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

    /// Removes the parity of an arena whose seal is about to be taken off, durably. Otherwise the
    /// parity would prove that a seal was lost.
    pub(crate) fn remove_all(&self, id: ArenaId) -> Result<(), RecoverError> {
        self.remove(id, |_| true).map_err(|(file, source)| RecoverError::Remove { file, source })
    }

    /// Removes the parity of some generations of an arena, durably.
    ///
    /// # Errors
    /// The file that cannot be removed, and the reason.
    pub fn remove(
        &self,
        id: ArenaId,
        is_unwanted: impl Fn(u32) -> bool,
    ) -> Result<(), (FileName, io::Error)> {
        let files = self.list().map_err(|error| (file_name(id, 0), error))?.into_iter();
        for (_, generation) in files.filter(|(arena, generation)| *arena == id && is_unwanted(*generation)) {
            let file = file_name(id, generation);
            let removed = self.storage.remove(&file).and_then(|()| self.storage.sync_folder(FOLDER));
            removed.map_err(|error| (file, error))?;
        }
        Ok(())
    }

    /// Removes the parity of earlier generations of an arena that was rewritten.
    fn remove_superseded(&self, id: ArenaId, generation: u32) {
        for older in 0..generation {
            if let Err(error) = self.storage.remove_if_there(&file_name(id, older)) {
                tracing::warn!(arena = %id, %error, "old parity could not be removed");
            }
        }
    }
}

fn parity_header(whole: &WholeArena, layout: ParityLayout) -> ParityHeader {
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

/// Reads a group's data shards, all of which must be present.
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
        let present = to_usize(piece.end - piece.start);
        storage.read_at(arena_file, piece.start, &mut into[..present])?;
        rest = after;
    }
    Ok(bytes)
}
