//! Makes appended data durable. The writer may continue meanwhile.

use std::io;

use varve_world::FileName;

use crate::append_error::AppendError;
use crate::arenas::address::ArenaId;
use crate::reading::log::Log;

/// The reason why appended data may not be durable.
#[derive(Debug, thiserror::Error)]
pub enum SyncLogError {
    /// The last page could not be written.
    #[error("cannot write the last directory page")]
    Append(#[from] AppendError),
    /// A file or the folder could not be made durable.
    #[error("cannot make {file} durable")]
    Sync { file: String, source: io::Error },
}

/// The files that a sync must make durable. The plan is made with the writer's lock, and carried
/// out without it.
#[derive(Debug)]
pub struct SyncPlan {
    pub(crate) files: Vec<FileName>,
    /// The number of names given when the plan was made, if some of them may not be durable.
    pub(crate) new_names: Option<u64>,
    pub(crate) open: Option<(ArenaId, u64)>,
    pub(crate) full: Vec<ArenaId>,
    pub(crate) seals: Vec<ArenaId>,
}

impl SyncPlan {
    /// Syncs the files of the plan.
    ///
    /// # Errors
    /// [`SyncLogError::Sync`]; the log must then refuse everything.
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
    /// Makes durable everything that was appended to one of the log's files.
    ///
    /// # Errors
    /// [`io::Error`]; every later call fails as well, for every file.
    pub fn sync_file(&self, file: &FileName) -> io::Result<()> {
        self.sync_failure().unless_failed(|| self.storage().sync(file))
    }

    /// Makes the names of all arenas durable.
    ///
    /// # Errors
    /// As [`sync_file`](Self::sync_file).
    pub fn sync_names(&self) -> io::Result<()> {
        self.sync_failure().unless_failed(|| self.storage().sync_folder(ArenaId::FOLDER))
    }
}
