//! A line of a configuration file.

use std::fmt;
use std::sync::Arc;

/// A line of a configuration file, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigPlace {
    pub file: Arc<str>,
    pub line: usize,
}

impl fmt::Display for ConfigPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
