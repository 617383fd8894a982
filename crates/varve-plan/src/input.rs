//! Reading of input files, whatever they hold: TOML, unknown keys refused, figures within ranges.

use serde::de::DeserializeOwned;

/// The reason why an input is not usable.
#[derive(Debug, thiserror::Error)]
pub enum PlanInputError {
    /// The text is no TOML, or has an unknown or missing key.
    #[error("it is not such a file")]
    Toml(#[source] Box<toml::de::Error>),
    /// A value is out of range.
    #[error("{place}: {problem}")]
    Value { place: String, problem: String },
}

/// The smallest figure that counts as positive, and the largest that is sensible anywhere.
pub(crate) const POSITIVE: f64 = 1e-9;
pub(crate) const LARGEST: f64 = 1e24;

/// Reads a file of some kind.
pub(crate) fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, PlanInputError> {
    toml::from_str(text).map_err(|error| PlanInputError::Toml(Box::new(error)))
}

/// Checks that a figure lies in a range, both ends included.
pub(crate) fn check(place: &str, value: f64, least: f64, most: f64) -> Result<(), PlanInputError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let problem = format!("{value} is not between {least} and {most}");
    Err(PlanInputError::Value { place: place.to_owned(), problem })
}
