//! Making durable what was appended. The writer may go on meanwhile.

use std::io;

use varve_world::FileName;

use crate::arenas::address::ArenaId;
use crate::reading::log::Log;
use crate::writing::arena_writer::AppendError;

/// Why what was appended may not be durable.
#[derive(Debug, thiserror::Error)]
pub enum SyncLogError {
    /// The last page could not be written.
    #[error("cannot finish what was written")]
    Append(#[from] AppendError),
    /// A file or the folder could not be made durable.
    #[error("cannot make {file} durable")]
    Sync {
        /// Which.
        file: String,
        /// What went wrong below.
        source: io::Error,
    },
}

/// What a sync has to make durable: made under the writer's lock, carried out without it.
#[derive(Debug)]
pub struct SyncPlan {
    pub(crate) files: Vec<FileName>,
    /// How many names had been given when it was made, if some of them may not be durable.
    pub(crate) new_names: Option<u64>,
    pub(crate) open: Option<(ArenaId, u64)>,
    pub(crate) full: Vec<ArenaId>,
    pub(crate) seals: Vec<ArenaId>,
}

impl SyncPlan {
    /// Makes durable what the plan names.
    ///
    /// # Errors
    /// [`SyncLogError::Sync`]; the log must then take nothing more.
    pub fn carry_out(&self, log: &Log) -> Result<(), SyncLogError> {
        for file in &self.files {
            let failed = |source| SyncLogError::Sync { file: file.to_string(), source };
            log.sync_file(file).map_err(failed)?;
        }
        if self.new_names.is_some() {
            let failed = |source| SyncLogError::Sync { file: ArenaId::FOLDER.into(), source };
            log.sync_names().map_err(failed)?;
        }
        Ok(())
    }
}

impl Log {
    /// Returns when all that was appended to one of the log's files is durable.
    ///
    /// # Errors
    /// [`io::Error`]; every later call fails as well, of whatever file.
    pub fn sync_file(&self, file: &FileName) -> io::Result<()> {
        self.sync_failure().unless_failed(|| self.storage().sync(file))
    }

    /// Returns when the names of all arenas are durable.
    ///
    /// # Errors
    /// As [`sync_file`](Self::sync_file).
    pub fn sync_names(&self) -> io::Result<()> {
        self.sync_failure().unless_failed(|| self.storage().sync_folder(ArenaId::FOLDER))
    }
}
