//! Completes what a collector has committed before a crash: its note says which arenas are
//! replaced, and some of their successors still have the names of their own files.

use varve_block::BlockType;
use varve_log::{ArenaId, ArenaState, DirectoryPage, OpenedArena, PageRow, RecoverError};

use crate::notes::{LogNote, ReplacedSeal};
use crate::saved_index::remove_saved_index;
use crate::vault::{OpenStoreError, Vault};

/// Renames the successors of the newest commit, and removes all others. Returns true if arenas were
/// replaced: the newest ledger may then be one of before.
///
/// A key that cannot read cannot read the note, so it leaves the files. They are in nobody's way.
///
/// # Errors
/// [`OpenStoreError`] when the log cannot be read, or a file not be renamed or removed. The next
/// opening tries again.
pub(crate) fn finish_replacing(vault: &Vault) -> Result<bool, OpenStoreError> {
    let successors =
        vault.successors().map_err(|source| RecoverError::Look { file: ArenaId::FOLDER.into(), source })?;
    if successors.is_empty() || !vault.log().keys().can_read() {
        return Ok(false);
    }
    let committed = newest_commit(vault)?;
    let is_committed = |id: &ArenaId| {
        let seal = vault.successor_seal(*id);
        seal.is_some_and(|seal| committed.iter().any(|row| row.arena == *id && row.is_new(&seal)))
    };
    let (due, left): (Vec<_>, Vec<_>) = successors.into_iter().partition(is_committed);
    if !due.is_empty() {
        rename(vault, &due)?;
        remove_parity(vault, &committed);
    }
    for id in left {
        let file = id.successor_file_name();
        tracing::info!(%file, "removed an unfinished file that a crash has left");
        let removed = vault.storage().remove(&file);
        removed.map_err(|source| RecoverError::Remove { file, source })?;
    }
    Ok(!due.is_empty())
}

fn rename(vault: &Vault, due: &[ArenaId]) -> Result<(), OpenStoreError> {
    let storage = vault.storage();
    // An index that knows the old arenas must not outlive them.
    remove_saved_index(storage).map_err(|(file, source)| OpenStoreError::Hint { file, source })?;
    let failed = |source| OpenStoreError::Replace { source };
    for id in due {
        tracing::info!(arena = %id, "put an arena in place that a crash has left under another name");
        storage.rename(&id.successor_file_name(), &id.file_name()).map_err(failed)?;
        vault.directory().forget(*id);
    }
    storage.sync_folder(ArenaId::FOLDER).map_err(failed)
}

fn remove_parity(vault: &Vault, committed: &[ReplacedSeal]) {
    for row in committed {
        let removed = vault.parity().remove(row.arena, |generation| generation < row.new_generation);
        if let Err((file, error)) = removed {
            tracing::warn!(%file, %error, "the parity of a replaced arena could not be removed");
        }
    }
}

/// Returns the replaced arenas of the newest commit; none if something was added after it by a
/// writer that can read. Such a writer has completed the commit before.
///
/// The note's arena is durable when this returns: a later power cut must not take the note of
/// arenas that are in place.
fn newest_commit(vault: &Vault) -> Result<Vec<ReplacedSeal>, OpenStoreError> {
    let log = vault.log();
    for id in log.arenas()?.into_iter().rev() {
        let arena = match log.open_arena(id) {
            Ok(arena) => arena,
            Err(error) if error.is_damage() => continue,
            Err(error) => return Err(error.into()),
        };
        if arena.header().is_write_only() {
            continue;
        }
        let Some((row, page)) = last_named_page(vault, &arena)? else { continue };
        let Some(note) = page.last_of_type(BlockType::NOTE) else { return Ok(Vec::new()) };
        let content = match log.window(&arena, 0).clump(note.granule) {
            Ok((_, content)) => content,
            // The page has outlived its note, so nothing was renamed yet.
            Err(error) if error.is_damage() && !error.is_unreadable() => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let notes = content.blocks().filter(|(block_type, _)| *block_type == BlockType::NOTE);
        for (_, bytes) in notes {
            if let Some(LogNote::Replaced { arenas, .. }) = LogNote::decode(&bytes) {
                tracing::info!(arena = %id, offset = row.granule.byte_offset(), "found the note of an unfinished collection");
                log.write_anew(id, None)?;
                return Ok(arenas);
            }
        }
        return Ok(Vec::new());
    }
    Ok(Vec::new())
}

/// Returns the last page of an arena that names blocks.
fn last_named_page(
    vault: &Vault,
    arena: &OpenedArena,
) -> Result<Option<(PageRow, DirectoryPage)>, OpenStoreError> {
    let log = vault.log();
    let rows = match log.state(arena) {
        Ok(ArenaState::Sealed { pages, .. }) => pages,
        Ok(ArenaState::Unsealed) => log.scan(arena)?.pages.into_iter().map(|(row, _)| row).collect(),
        Err(error) if error.is_damage() => log.scan(arena)?.pages.into_iter().map(|(row, _)| row).collect(),
        Err(error) => return Err(error.into()),
    };
    for row in rows.into_iter().rev() {
        match log.read_page(arena, &row) {
            Ok(page) if page.block_count() == 0 => {}
            Ok(page) => return Ok(Some((row, page))),
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}
