//! Faults of a configuration, each with its place.

use std::fmt;

use super::place::ConfigPlace;

/// One fault of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    pub place: ConfigPlace,
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// All faults of a configuration, in the order of files and lines. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(Vec<ConfigFault>);

impl ConfigErrors {
    /// Returns the faults.
    #[must_use]
    pub fn faults(&self) -> &[ConfigFault] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// The faults that were found so far.
#[derive(Debug, Default)]
pub(crate) struct FaultList(Vec<ConfigFault>);

impl FaultList {
    pub(crate) fn add(&mut self, place: &ConfigPlace, message: impl Into<String>) {
        self.0.push(ConfigFault { place: place.clone(), message: message.into() });
    }

    /// Returns the faults, or `Ok` if there are none.
    pub(crate) fn into_result(mut self) -> Result<(), ConfigErrors> {
        self.0.sort_by(|a, b| a.place.cmp(&b.place));
        if self.0.is_empty() { Ok(()) } else { Err(ConfigErrors(self.0)) }
    }
}
