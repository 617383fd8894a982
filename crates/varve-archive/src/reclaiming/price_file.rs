//! `targets.toml` in the folder of a store: the prices of its targets. The user writes it.
//!
//! ```toml
//! horizon_days = 365
//!
//! ["s3://bucket/folder"]
//! storage_gb_month = 0.00099
//! put_1000 = 0.05
//! get_1000 = 0.0004
//! read_gb = 0.0025
//! minimum_days = 180
//! ```
//!
//! The file has no code of its own: whoever can write into the folder can change it. So it can only
//! spare arenas, and never make a collection remove more.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;

use toml::{Table, Value};
use varve_upkeep::TargetPrices;
use varve_world::{FileName, Storage};

use crate::nearest_key::nearest_key_hint;

/// The name of the file.
pub const PRICE_FILE: &str = "targets.toml";
const FILE_BYTES_MAX: u64 = 64 << 10;
const HORIZON: &str = "horizon_days";
const HORIZON_DAYS_DEFAULT: u32 = 365;
const DAYS_MAX: u32 = 36_500;
const STORAGE: &str = "storage_gb_month";
const PUT: &str = "put_1000";
const GET: &str = "get_1000";
const READ: &str = "read_gb";
const MINIMUM: &str = "minimum_days";

/// The prices of all targets.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceFile {
    pub targets: Vec<TargetPrices>,
    /// A rewriting must have paid after this time.
    pub horizon_days: u32,
}

/// Why the prices are not known.
#[derive(Debug, thiserror::Error)]
pub enum ReadPricesError {
    #[error("{PRICE_FILE} cannot be read")]
    Storage(#[source] io::Error),
    #[error("{PRICE_FILE} is not TOML")]
    Toml(#[from] toml::de::Error),
    #[error("{PRICE_FILE}: {key} is not known here{hint}")]
    UnknownKey {
        key: String,
        /// The key that was probably meant.
        hint: String,
    },
    #[error("{PRICE_FILE}: {key} must be {expected}")]
    Value { key: String, expected: &'static str },
}

impl Default for PriceFile {
    fn default() -> Self {
        Self { targets: Vec::new(), horizon_days: HORIZON_DAYS_DEFAULT }
    }
}

impl PriceFile {
    /// Reads the prices in the folder of a store; none if it has no such file.
    ///
    /// # Errors
    /// [`ReadPricesError`].
    pub fn read(storage: &dyn Storage) -> Result<Self, ReadPricesError> {
        let Ok(file) = FileName::new(PRICE_FILE) else { return Ok(Self::default()) };
        match storage.read_whole(&file, FILE_BYTES_MAX) {
            Ok(text) => Self::parse(&String::from_utf8_lossy(&text)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(Self::default())
            }
            Err(error) => Err(ReadPricesError::Storage(error)),
        }
    }

    fn parse(text: &str) -> Result<Self, ReadPricesError> {
        let mut found = Self::default();
        for (key, value) in &text.parse::<Table>()? {
            match value {
                Value::Table(prices) => found.targets.push(prices_of(key, prices)?),
                _ if key == HORIZON => found.horizon_days = days(key, value)?,
                _ => return Err(unknown(key, &[HORIZON])),
            }
        }
        Ok(found)
    }
}

fn prices_of(target: &str, table: &Table) -> Result<TargetPrices, ReadPricesError> {
    let mut prices = TargetPrices { target: target.to_owned(), ..TargetPrices::default() };
    for (key, value) in table {
        match key.as_str() {
            STORAGE => prices.storage_gb_month = price(key, value)?,
            PUT => prices.put_1000 = price(key, value)?,
            GET => prices.get_1000 = price(key, value)?,
            READ => prices.read_gb = price(key, value)?,
            MINIMUM => prices.minimum_days = days(key, value)?,
            _ => return Err(unknown(key, &[STORAGE, PUT, GET, READ, MINIMUM])),
        }
    }
    if !table.contains_key(STORAGE) {
        let key = format!("{STORAGE} of {target}");
        return Err(ReadPricesError::Value { key, expected: "given" });
    }
    Ok(prices)
}

fn unknown(key: &str, known: &[&str]) -> ReadPricesError {
    // Keys end with a number or a unit, which is easily left out.
    let hint = nearest_key_hint(key, known.iter(), 5);
    ReadPricesError::UnknownKey { key: key.to_owned(), hint }
}

fn price(key: &str, value: &Value) -> Result<f64, ReadPricesError> {
    let number = match value {
        Value::Float(number) => Some(*number),
        Value::Integer(number) => u32::try_from(*number).ok().map(f64::from),
        _ => None,
    };
    let expected = "a price of 0 or more";
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| ReadPricesError::Value { key: key.to_owned(), expected })
}

fn days(key: &str, value: &Value) -> Result<u32, ReadPricesError> {
    let days = value.as_integer().and_then(|days| u32::try_from(days).ok()).filter(|days| *days <= DAYS_MAX);
    let expected = "a number of days from 0 to 36500";
    days.ok_or_else(|| ReadPricesError::Value { key: key.to_owned(), expected })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use varve_world::MemoryStorage;

    use super::*;

    #[test]
    fn prices_are_read() {
        let storage = MemoryStorage::new();
        assert_eq!(PriceFile::read(&storage).unwrap(), PriceFile::default());
        let text = "horizon_days = 90\n[\"s3://b/f\"]\nstorage_gb_month = 1\nput_1000 = 0.05\nget_1000 = 0.0004\n\
            read_gb = 0.09\nminimum_days = 180\n[local]\nstorage_gb_month = 0.5";
        storage.set_contents(&FileName::new(PRICE_FILE).unwrap(), text.into());
        let found = PriceFile::read(&storage).unwrap();
        let cloud = TargetPrices {
            target: "s3://b/f".into(),
            storage_gb_month: 1.0,
            put_1000: 0.05,
            get_1000: 0.0004,
            read_gb: 0.09,
            minimum_days: 180,
        };
        let local = TargetPrices { target: "local".into(), storage_gb_month: 0.5, ..TargetPrices::default() };
        let by_name = |one: &TargetPrices| one.target.clone();
        let mut targets = found.targets;
        targets.sort_by_key(by_name);
        assert_eq!((targets, found.horizon_days), (vec![local, cloud], 90));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("= 5", "not TOML"),
            ("horizon_day = 5", "horizon_day is not known here: did you mean horizon_days?"),
            ("[t]\nstorage_gb_month = 1\nput = 5", "put is not known here: did you mean put_1000?"),
            ("[t]\nstorage_gb_month = 1\nsomething_else = 5", "something_else is not known here"),
            ("[t]\nput_1000 = 1", "storage_gb_month of t must be given"),
            ("[t]\nstorage_gb_month = -1", "storage_gb_month must be a price of 0 or more"),
            ("[t]\nstorage_gb_month = nan", "a price of 0 or more"),
            ("[t]\nstorage_gb_month = \"1\"", "a price of 0 or more"),
            ("[t]\nstorage_gb_month = 1\nminimum_days = 1.5", "minimum_days must be a number of days"),
            ("horizon_days = 36501", "from 0 to 36500"),
        ] {
            let error = PriceFile::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z_0-9=.\\[\\]\"\n -]{0,80}") {
            drop(PriceFile::parse(&text));
        }
    }
}
