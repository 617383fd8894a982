//! Who is told how an operation on a folder goes.

use std::error::Error;
use std::path::Path;

use crate::progress::{Problem, Progress};

/// Who is told how an operation goes, and may end it.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// How far it is, and whether it is to end.
    pub progress: &'a Progress,
    /// Takes what goes wrong without ending it. Called from many threads.
    pub report: &'a (dyn Fn(Problem) + Sync),
}

impl Watch<'_> {
    /// Tells of a problem with this file or folder.
    pub(crate) fn report(&self, path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) {
        self.progress.add_problem();
        (self.report)(Problem { path: path.to_path_buf(), error: error.into() });
    }
}
