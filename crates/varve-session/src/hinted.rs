//! Hints: an error says what failed and why, its hint says what the user can do next. A hint is
//! added where the error is handled, because only that place knows the next command.

use std::error::Error;
use std::fmt;

use anyhow::Result;

/// An error with a hint. It has the text of the error, and the error as its source.
#[derive(Debug)]
pub struct Hinted {
    error: anyhow::Error,
    hint: &'static str,
}

impl Hinted {
    /// Adds a hint to an error.
    pub fn new(error: impl Into<anyhow::Error>, hint: &'static str) -> Self {
        Self { error: error.into(), hint }
    }

    /// Returns the hint.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for Hinted {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.error.as_ref())
    }
}

/// Adds hints to the errors of results.
pub trait WithHint<T, E> {
    /// Adds the hint that `choose` has for the error, if it has one.
    ///
    /// # Errors
    /// The error of this result, with the hint.
    fn with_hint(self, choose: impl FnOnce(&E) -> Option<&'static str>) -> Result<T>;
}

impl<T, E: Error + Send + Sync + 'static> WithHint<T, E> for Result<T, E> {
    fn with_hint(self, choose: impl FnOnce(&E) -> Option<&'static str>) -> Result<T> {
        self.map_err(|error| hinted(error, choose))
    }
}

/// Adds the hint that `choose` has for an error, if it has one.
pub(crate) fn hinted<E: Error + Send + Sync + 'static>(
    error: E,
    choose: impl FnOnce(&E) -> Option<&'static str>,
) -> anyhow::Error {
    match choose(&error) {
        Some(hint) => Hinted::new(error, hint).into(),
        None => error.into(),
    }
}
