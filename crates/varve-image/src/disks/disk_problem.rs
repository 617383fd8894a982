//! Problems of a disk.

use std::fmt;

/// A problem of a disk that does not prevent the rest of the disk from being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskProblem {
    what: String,
    problem: String,
}

impl DiskProblem {
    pub(crate) fn new(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { what: what.into(), problem: problem.into() }
    }
}

/// One sentence: `the second copy of the GPT is missing`.
impl fmt::Display for DiskProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.problem)
    }
}
