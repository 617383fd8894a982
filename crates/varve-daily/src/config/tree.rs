//! The values of a configuration file, each with its line.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::config_error::FaultList;
use super::place::ConfigPlace;
use super::source_text::ConfigText;

/// A longer file is refused.
const FILE_BYTES_MAX: usize = 1 << 20;

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Located<T> {
    pub(crate) place: ConfigPlace,
    pub(crate) value: T,
}

/// A value of a configuration file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Table(ItemTable),
    List(Vec<Located<Item>>),
    Text(String),
    Number(i64),
    Flag(bool),
    /// A kind of value that no setting has.
    Other(&'static str),
}

/// The keys of a table, each with the place of the key.
pub(crate) type ItemTable = BTreeMap<String, Located<Item>>;

impl Item {
    /// Names the kind of value in a message.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Table(_) => "a table",
            Self::List(_) => "a list",
            Self::Text(_) => "a text",
            Self::Number(_) => "a number",
            Self::Flag(_) => "true or false",
            Self::Other(kind) => kind,
        }
    }
}

/// Parses a file. Returns `None` if it is no TOML.
pub(crate) fn parse(file: &ConfigText, faults: &mut FaultList) -> Option<ItemTable> {
    let name: Arc<str> = file.name.as_str().into();
    let first = ConfigPlace { file: Arc::clone(&name), line: 1 };
    if file.text.len() > FILE_BYTES_MAX {
        faults.add(&first, "the file is longer than 1 MiB");
        return None;
    }
    let lines = LineNumbers::new(name, &file.text);
    match DeTable::parse(&file.text) {
        Ok(table) => Some(items(table.get_ref(), &lines)),
        Err(error) => {
            let place = error.span().map_or(first, |span| lines.place(&span));
            faults.add(&place, error.message().trim_end());
            None
        }
    }
}

/// Finds the line of a byte.
struct LineNumbers {
    file: Arc<str>,
    /// The offset of each line break.
    breaks: Vec<usize>,
}

impl LineNumbers {
    fn new(file: Arc<str>, text: &str) -> Self {
        Self {
            file,
            breaks: text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect(),
        }
    }

    fn place(&self, span: &Range<usize>) -> ConfigPlace {
        let before = self.breaks.partition_point(|at| *at < span.start);
        ConfigPlace { file: Arc::clone(&self.file), line: before.saturating_add(1) }
    }
}

fn items(table: &DeTable<'_>, lines: &LineNumbers) -> ItemTable {
    let located = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let key: &Spanned<std::borrow::Cow<'_, str>> = key;
        let item = Located { place: lines.place(&key.span()), value: item(value.get_ref(), lines) };
        (key.get_ref().to_string(), item)
    };
    table.iter().map(located).collect()
}

fn item(value: &DeValue<'_>, lines: &LineNumbers) -> Item {
    match value {
        DeValue::String(text) => Item::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Item::Number(number),
            Err(_) => Item::Other("a number that is too large"),
        },
        DeValue::Boolean(flag) => Item::Flag(*flag),
        DeValue::Float(_) => Item::Other("a fraction"),
        DeValue::Datetime(_) => Item::Other("a date or a time"),
        DeValue::Array(list) => Item::List(
            list.iter()
                .map(|value| Located {
                    place: lines.place(&value.span()),
                    value: item(value.get_ref(), lines),
                })
                .collect(),
        ),
        DeValue::Table(table) => Item::Table(items(table, lines)),
    }
}
