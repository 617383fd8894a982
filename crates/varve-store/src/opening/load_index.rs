//! Loads the saved index, if the log still confirms it.

use varve_index::{MemoryIndex, ScoreIndex};
use varve_log::{ArenaId, ArenaState, Granule, Log, OpenedArena, PageRow, ReadLogError, Seal, Seals};

use super::ledger::last_ledger;
use super::unsealed_scans::UnsealedScans;
use crate::config::IndexKind;
use crate::saved_index::{
    Coverage, LoadCheckpointError, checkpoint_key, empty_disk_index, load_checkpoint, load_disk_index,
};
use crate::vault::Vault;

/// Loads the index as it was saved last, with the part of the log that it covers. Returns an empty
/// index if that fails.
pub(crate) fn load_index(
    vault: &Vault,
    scans: &mut UnsealedScans<'_>,
    session: Option<[u8; 16]>,
) -> (ScoreIndex, Coverage) {
    let (world, config, log) = (vault.world(), vault.config(), vault.log());
    let loaded = match config.index {
        IndexKind::Memory => load_checkpoint(vault.storage(), &checkpoint_key(log.keys()))
            .map(|(index, coverage)| (ScoreIndex::from(index), coverage)),
        IndexKind::Disk => load_disk_index(world, config, log.keys(), session),
    };
    let loaded = loaded.and_then(|loaded| {
        if covers(log, scans, &loaded.1) { Ok(loaded) } else { Err(LoadCheckpointError::Stale) }
    });
    loaded.unwrap_or_else(|error| {
        if !error.is_missing() {
            tracing::info!(%error, "the index is rebuilt from the log's directory pages");
        }
        let index = match config.index {
            IndexKind::Memory => MemoryIndex::new().into(),
            IndexKind::Disk => empty_disk_index(world, config, log.keys(), session),
        };
        (index, Coverage::default())
    })
}

/// Returns true if the log still has the part that a checkpoint covers.
fn covers(log: &Log, scans: &mut UnsealedScans<'_>, coverage: &Coverage) -> bool {
    let has_parts = coverage.has_last_pages(|id, end| last_page_before(log, scans, id, end).ok());
    has_parts && has_seals(log, scans, coverage.seals())
}

/// Returns true if these are the seals of the arenas. They are not if somebody put back an old
/// checkpoint after a repair had written an arena anew. The newest ledger decides. If it does not
/// confirm the seals, the arenas are read.
fn has_seals(log: &Log, scans: &mut UnsealedScans<'_>, known: &Seals) -> bool {
    if known.is_empty() {
        return true;
    }
    let (mut seals, mut ledger) = (known.clone(), None);
    for id in log.arenas().unwrap_or_default().into_iter().rev() {
        if ledger.is_some() && known.contains(id) {
            continue;
        }
        let Ok(arena) = log.open_arena(id) else { continue };
        ledger = ledger.or_else(|| last_ledger(log, &arena, scans).ok()?.ledger);
        if !known.contains(id)
            && let Some(seal) = seal_of(log, &arena)
        {
            seals.insert(id, seal);
        }
    }
    let is_vouched_for = ledger.is_none_or(|ledger| seals.ledger(log.keys(), ledger.arena_count) == ledger);
    // An arena that is gone or unreadable is no reason to reject the checkpoint.
    let now = |id| seal_of(log, &log.open_arena(id).ok()?);
    is_vouched_for || known.iter().all(|(id, known)| now(id).is_none_or(|seal| seal == *known))
}

fn seal_of(log: &Log, arena: &OpenedArena) -> Option<Seal> {
    match log.state(arena).ok()? {
        ArenaState::Sealed { footer, .. } => Some(Seal::of(arena.header(), &footer)),
        ArenaState::Unsealed => None,
    }
}

/// Returns the code of the last page before `end` in an arena; zeros if there is none.
fn last_page_before(
    log: &Log,
    scans: &mut UnsealedScans<'_>,
    id: ArenaId,
    end: Granule,
) -> Result<[u8; 16], ReadLogError> {
    let arena = log.open_arena(id)?;
    let is_before = |row: &&PageRow| row.granule < end;
    let last = match log.state(&arena)? {
        ArenaState::Sealed { pages, .. } => pages.iter().rfind(is_before).map(|row| row.code),
        ArenaState::Unsealed => {
            scans.of(&arena)?.pages.iter().map(|(row, _)| row).rfind(is_before).map(|row| row.code)
        }
    };
    Ok(last.unwrap_or_default())
}
