//! The store behind the page, and the configuration with its promises.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use varve_archive::{Archive, Catalog, SpaceNeeds};
use varve_content::Progress;
use varve_daily::{StatusReport, judge_named};
use varve_session::UserInterface;
use varve_store::Store;

/// The memory for counting who needs which bytes.
const NEEDS_BYTES: u64 = 128 << 20;

/// A store whose state the page shows.
pub struct ServedStore {
    /// The open store.
    pub store: Arc<Store>,
    /// The configuration; `None` for the one at its usual place.
    pub config: Option<PathBuf>,
    /// Gets the notices while the stores of the configuration are opened. It cannot be asked for a
    /// passphrase, because the state is read in the background.
    pub user: Arc<dyn UserInterface>,
}

impl ServedStore {
    /// The archive with its newest catalog.
    pub(crate) fn archive(&self) -> Result<Archive> {
        self.store.follow()?;
        let catalog = Catalog::load_of(&self.store, &*self.store)?;
        Ok(Archive::with_catalog(Arc::clone(&self.store), catalog))
    }

    /// Judges the promises; `None` if there is no configuration.
    pub(crate) fn status(&self) -> Result<Option<StatusReport>> {
        judge_named(self.config.as_deref(), Arc::clone(&self.user))
    }

    /// Counts the bytes that snapshots need alone and together. Walks all snapshots.
    pub(crate) fn space(&self) -> Result<SpaceNeeds> {
        Ok(SpaceNeeds::of(&self.archive()?, NEEDS_BYTES, &Progress::new())?)
    }
}
