//! What is wrong with a disk.

use std::fmt;

/// Something that is wrong with a disk, though not so wrong that nothing else can be shown.
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

/// A sentence: `the second copy of the GPT is missing`.
impl fmt::Display for DiskProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.problem)
    }
}
