//! The rules of a policy, and their text forms.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::str::FromStr;

use crate::retention::amounts::{KeepCount, KeepSpan, ParseCountError, ParseSpanError};
use crate::retention::calendar::RetentionPeriod;

/// A rule that keeps snapshots. Its text form is a line of a policy file: `keep_daily = 7`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetentionRule {
    /// `keep_last`: the newest snapshots.
    Last(KeepCount),
    /// `keep_daily` and the like: the newest snapshot of each of the newest days. Days without
    /// snapshots do not count.
    Periods(RetentionPeriod, KeepCount),
    /// `keep_within`: the snapshots that are newer than the newest one less the span.
    Within(KeepSpan),
    /// `keep_within_daily` and the like: the newest snapshot of each day among them.
    PeriodsWithin(RetentionPeriod, KeepSpan),
    /// `keep_tags`: the snapshots with these tags.
    Tags(KeepTags),
}

/// Why a line of a policy is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseRuleError {
    #[error("{key} is not a rule")]
    UnknownKey { key: String },
    #[error("the value of {key} is malformed")]
    Count {
        key: String,
        #[source]
        source: ParseCountError,
    },
    #[error("the value of {key} is malformed")]
    Span {
        key: String,
        #[source]
        source: ParseSpanError,
    },
    #[error("{key}: {text:?} has an empty tag")]
    Tags { key: String, text: String },
}

impl RetentionRule {
    /// The key of the rules for tags.
    pub(super) const TAGS: &str = "keep_tags";

    /// The keys of all rules, in the order in which a policy file lists them.
    pub fn keys() -> impl Iterator<Item = String> {
        let counted = RetentionPeriod::ALL.into_iter().map(|period| format!("keep_{}", period.word()));
        let within = RetentionPeriod::ALL.into_iter().map(|period| format!("keep_within_{}", period.word()));
        let last = std::iter::once("keep_last".to_owned());
        last.chain(counted).chain(["keep_within".to_owned()]).chain(within).chain([Self::TAGS.to_owned()])
    }

    /// The key of the rule, such as `keep_daily`.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Last(_) => "keep_last".to_owned(),
            Self::Periods(period, _) => format!("keep_{}", period.word()),
            Self::Within(_) => "keep_within".to_owned(),
            Self::PeriodsWithin(period, _) => format!("keep_within_{}", period.word()),
            Self::Tags(_) => Self::TAGS.to_owned(),
        }
    }

    /// The value of the rule, such as `7`.
    #[must_use]
    pub fn value(&self) -> String {
        match self {
            Self::Last(count) | Self::Periods(_, count) => count.to_string(),
            Self::Within(span) | Self::PeriodsWithin(_, span) => span.to_string(),
            Self::Tags(tags) => tags.to_string(),
        }
    }

    /// Parses the value of the rule with this key.
    ///
    /// # Errors
    /// [`ParseRuleError`].
    pub fn parse(key: &str, value: &str) -> Result<Self, ParseRuleError> {
        let count = || value.parse().map_err(|source| ParseRuleError::Count { key: key.to_owned(), source });
        let span = || value.parse().map_err(|source| ParseRuleError::Span { key: key.to_owned(), source });
        let period_of = |prefix: &str| {
            let word = key.strip_prefix(prefix)?;
            RetentionPeriod::ALL.into_iter().find(|period| period.word() == word)
        };
        if key == "keep_last" {
            Ok(Self::Last(count()?))
        } else if key == "keep_within" {
            Ok(Self::Within(span()?))
        } else if key == Self::TAGS {
            let tags = value.parse();
            tags.map(Self::Tags)
                .map_err(|EmptyTag| ParseRuleError::Tags { key: key.to_owned(), text: value.to_owned() })
        } else if let Some(period) = period_of("keep_within_") {
            Ok(Self::PeriodsWithin(period, span()?))
        } else if let Some(period) = period_of("keep_") {
            Ok(Self::Periods(period, count()?))
        } else {
            Err(ParseRuleError::UnknownKey { key: key.to_owned() })
        }
    }
}

impl fmt::Display for RetentionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key(), self.value())
    }
}

/// Tags that a snapshot has, all of them: `KEY=VALUE`, or `KEY` for any value. The text form
/// separates them by commas.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeepTags(Vec<String>);

/// A list of tags has an empty one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tag is empty")]
pub struct EmptyTag;

impl KeepTags {
    /// Returns whether a snapshot with these tags has all that are required.
    #[must_use]
    pub fn matches(&self, tags: &[String]) -> bool {
        let is_value_of = |own: &str, key: &str| own.split_once('=').is_some_and(|(own, _)| own == key);
        self.0.iter().all(|tag| tags.iter().any(|own| own == tag || is_value_of(own, tag)))
    }
}

impl FromStr for KeepTags {
    type Err = EmptyTag;

    fn from_str(text: &str) -> Result<Self, EmptyTag> {
        let tags: Vec<_> = text.split(',').map(|tag| tag.trim().to_owned()).collect();
        if tags.iter().any(String::is_empty) { Err(EmptyTag) } else { Ok(Self(tags)) }
    }
}

impl fmt::Display for KeepTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}
