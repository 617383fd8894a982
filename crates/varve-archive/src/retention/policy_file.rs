//! A retention policy as a text in TOML.
//!
//! ```toml
//! keep_last = 3
//! keep_daily = 7
//! keep_yearly = "unlimited"
//! keep_within = "1m15d"
//! keep_tags = ["release=final", "legal,finance"]
//! zone = "Europe/Berlin"
//! group_by = ["host", "name", "kind"]
//! count_like = "union"
//! ```
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::str::FromStr;

use toml::{Table, Value};

use crate::nearest_key::nearest_key_hint;
use crate::retention::policy::{ParseCountLikeError, ParseGroupByError, RetentionGroupBy, RetentionPolicy};
use crate::retention::rules::{ParseRuleError, RetentionRule};
use crate::retention::zone::{RetentionZone, UnknownZone};

const ZONE: &str = "zone";
const GROUP_BY: &str = "group_by";
const COUNT_LIKE: &str = "count_like";

/// Why a text is not a [`RetentionPolicy`].
#[derive(Debug, thiserror::Error)]
pub enum ParsePolicyError {
    #[error("the policy is not TOML")]
    Toml(#[from] toml::de::Error),
    #[error("{key} is not a key of a policy{hint}")]
    UnknownKey {
        key: String,
        /// The key that was probably meant.
        hint: String,
    },
    #[error("{key}: expected {expected}, found {found}")]
    Type { key: String, expected: &'static str, found: &'static str },
    #[error(transparent)]
    Rule(#[from] ParseRuleError),
    #[error("the value of {ZONE} is malformed")]
    Zone(#[from] UnknownZone),
    #[error("the value of {GROUP_BY} is malformed")]
    GroupBy(#[from] ParseGroupByError),
    #[error("the value of {COUNT_LIKE} is malformed")]
    CountLike(#[from] ParseCountLikeError),
}

impl RetentionPolicy {
    /// Parses a policy. If it names no zone, its days are those of `zone`.
    ///
    /// # Errors
    /// [`ParsePolicyError`].
    pub fn parse(text: &str, zone: RetentionZone) -> Result<Self, ParsePolicyError> {
        let mut policy = Self::in_zone(zone);
        for (key, value) in &text.parse::<Table>()? {
            match key.as_str() {
                ZONE => policy.zone = word(key, value)?.parse()?,
                GROUP_BY => policy.group_by = RetentionGroupBy::of_words(words(key, value)?.into_iter())?,
                COUNT_LIKE => policy.count_like = word(key, value)?.parse()?,
                RetentionRule::TAGS => {
                    for tags in words(key, value)? {
                        policy = policy.with_rule(RetentionRule::parse(key, tags)?);
                    }
                }
                _ if RetentionRule::keys().any(|known| known == *key) => {
                    policy = policy.with_rule(RetentionRule::parse(key, &word_or_number(key, value)?)?);
                }
                _ => return Err(unknown(key)),
            }
        }
        Ok(policy)
    }
}

impl FromStr for RetentionPolicy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        Self::parse(text, RetentionZone::default())
    }
}

fn unknown(key: &str) -> ParsePolicyError {
    let others = [ZONE, GROUP_BY, COUNT_LIKE].map(str::to_owned);
    let hint = nearest_key_hint(key, RetentionRule::keys().chain(others), 3);
    ParsePolicyError::UnknownKey { key: key.to_owned(), hint }
}

fn type_error(key: &str, expected: &'static str, value: &Value) -> ParsePolicyError {
    ParsePolicyError::Type { key: key.to_owned(), expected, found: value.type_str() }
}

fn word<'a>(key: &str, value: &'a Value) -> Result<&'a str, ParsePolicyError> {
    value.as_str().ok_or_else(|| type_error(key, "a text in quotes", value))
}

fn words<'a>(key: &str, value: &'a Value) -> Result<Vec<&'a str>, ParsePolicyError> {
    let list = value.as_array().ok_or_else(|| type_error(key, "a list of texts", value))?;
    list.iter().map(|value| word(key, value)).collect()
}

fn word_or_number(key: &str, value: &Value) -> Result<String, ParsePolicyError> {
    match value {
        Value::Integer(number) => Ok(number.to_string()),
        Value::String(text) => Ok(text.clone()),
        _ => Err(type_error(key, "a number, or a text in quotes", value)),
    }
}

impl fmt::Display for RetentionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tags = Vec::new();
        for rule in self.rules() {
            match rule {
                RetentionRule::Tags(some) => tags.push(Value::from(some.to_string())),
                _ => writeln!(f, "{} = {}", rule.key(), number_or_word(rule.value()))?,
            }
        }
        if !tags.is_empty() {
            writeln!(f, "{} = {}", RetentionRule::TAGS, Value::from(tags))?;
        }
        let groups: Vec<_> = self.group_by.words().map(Value::from).collect();
        writeln!(f, "{ZONE} = {}", Value::from(self.zone.name()))?;
        writeln!(f, "{GROUP_BY} = {}", Value::from(groups))?;
        writeln!(f, "{COUNT_LIKE} = {}", Value::from(self.count_like.to_string()))
    }
}

fn number_or_word(value: String) -> Value {
    value.parse::<i64>().map_or_else(|_| Value::from(value), Value::from)
}
