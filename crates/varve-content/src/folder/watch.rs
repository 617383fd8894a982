//! Reporting and cancellation for an operation on a folder.

use std::error::Error;
use std::path::Path;

use crate::progress::{Problem, Progress};

/// Receives progress and problems of an operation, and may cancel it.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// The progress, and the request to end.
    pub progress: &'a Progress,
    /// Receives problems that do not end the operation. Called from many threads.
    pub report: &'a (dyn Fn(Problem) + Sync),
}

impl Watch<'_> {
    /// Reports a problem with this file or folder.
    pub(crate) fn report(&self, path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) {
        self.progress.add_problem();
        (self.report)(Problem { path: path.to_path_buf(), error: error.into() });
    }
}
