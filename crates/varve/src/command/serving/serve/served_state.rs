//! The state of a served archive, for the web page.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use varve_archive::{Archive, Catalog, SpaceNeeds};
use varve_block::with_causes;
use varve_content::Progress;
use varve_daily::{DrillRecord, LoadedConfig, StatusReport, free_bytes, judge_named};
use varve_log::ArenaId;
use varve_store::{Hint, Store};
use varve_upkeep::Checker;
use varve_web::{ArchiveState, ArenaHealth, LogState};

use crate::invocation::Invocation;

/// The memory for counting who needs which bytes.
const NEEDS_BYTES: u64 = 128 << 20;
/// The names in all snapshots, for the search of the page. Without it, they are collected again.
const NAMES: Hint = Hint { file: "index/names", context: "varve 1 names of files" };

/// Reads the state of an open store.
pub(super) struct ServedState {
    /// Asks nothing at the terminal, because the state is read in the background.
    invocation: Invocation,
    store: Arc<Store>,
    config: Option<PathBuf>,
}

impl ServedState {
    pub(super) fn new(invocation: &Invocation, store: &Arc<Store>, config: Option<PathBuf>) -> Self {
        let invocation = Invocation { asks: false, ..invocation.clone() };
        // The zone of the configuration is that of the page. One with faults is reported when its
        // promises are judged.
        drop(LoadedConfig::load(config.as_deref(), invocation.frontend()));
        Self { invocation, store: Arc::clone(store), config }
    }

    fn archive(&self) -> Result<Archive> {
        self.store.follow()?;
        let catalog = Catalog::load_of(&self.store, &*self.store)?;
        Ok(Archive::with_catalog(Arc::clone(&self.store), catalog))
    }

    fn log_state(&self) -> Result<LogState> {
        let archive = self.archive()?;
        let store = archive.store();
        let checker = Checker::of(store);
        let ids: Vec<ArenaId> = store.arenas()?;
        let damaged = checker.damaged_arenas();
        let readings = checker.readings(&checker.audit(), &ids);
        let arena = |(id, read_at)| ArenaHealth {
            name: ArenaId::file_name(id).to_string(),
            read_at,
            is_damaged: damaged.contains(&id),
        };
        let stats = store.stats()?;
        let lost = archive.losses().blocks().filter(|block| block.accepted.is_none()).count();
        Ok(LogState {
            arenas: readings.into_iter().map(arena).collect(),
            lost_block_count: lost as u64,
            log_bytes: stats.log_bytes,
            parity_bytes: stats.parity_bytes,
            parity_arena_count: stats.parity_count,
            free_bytes: free_bytes(&self.invocation.session).and_then(Result::ok),
            drills: DrillRecord::read(store.vault()).drills().to_vec(),
        })
    }
}

impl ArchiveState for ServedState {
    fn status(&self) -> Result<Option<StatusReport>, String> {
        judge_named(self.config.as_deref(), self.invocation.frontend())
            .map_err(|error| with_causes(error.as_ref()))
    }

    fn log(&self) -> Result<LogState, String> {
        self.log_state().map_err(|error| with_causes(error.as_ref()))
    }

    fn space(&self) -> Result<SpaceNeeds, String> {
        let archive = self.archive().map_err(|error| with_causes(error.as_ref()))?;
        SpaceNeeds::of(&archive, NEEDS_BYTES, &Progress::new()).map_err(|error| with_causes(&error))
    }

    fn saved_names(&self) -> Option<Box<dyn Read + '_>> {
        self.store.vault().read_secret_pieces(&NAMES)
    }

    fn save_names(&self, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
        let saved = self.store.vault().write_secret_pieces(&NAMES, write);
        saved.map_err(|error| format!("cannot write {}: {error}", NAMES.file))
    }
}
