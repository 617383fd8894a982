//! Reads the keys of a table by name and kind. Keys that nobody asked for are faults.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::config_error::FaultList;
use super::place::ConfigPlace;
use super::tree::{Item, ItemTable, Located};
use crate::timing::parse_time_span;

/// Two names are similar from this on, between 0 and 1.
const SIMILAR: f64 = 0.7;

/// Reads one table.
pub(crate) struct TableReader<'a> {
    /// The name of the table in messages; empty for the whole file.
    name: String,
    table: &'a ItemTable,
    known: Vec<&'static str>,
    faults: &'a mut FaultList,
}

impl<'a> TableReader<'a> {
    pub(crate) fn new(name: impl Into<String>, table: &'a ItemTable, faults: &'a mut FaultList) -> Self {
        Self { name: name.into(), table, known: Vec::new(), faults }
    }

    pub(crate) fn faults(&mut self) -> &mut FaultList {
        self.faults
    }

    /// Returns the value of a key.
    pub(crate) fn item(&mut self, key: &'static str) -> Option<&'a Located<Item>> {
        self.known.push(key);
        self.table.get(key)
    }

    fn read<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        read: impl FnOnce(&'a Item) -> Option<T>,
    ) -> Option<Located<T>> {
        let found = self.item(key)?;
        match read(&found.value) {
            Some(value) => Some(Located { place: found.place.clone(), value }),
            None => {
                self.faults
                    .add(&found.place, format!("{key} is {}, but must be {wanted}", found.value.kind()));
                None
            }
        }
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Option<Located<&'a str>> {
        let found = self.read(key, "a text", |item| match item {
            Item::Text(text) => Some(text.as_str()),
            _ => None,
        })?;
        if found.value.is_empty() {
            self.faults.add(&found.place, format!("{key} is empty"));
            return None;
        }
        Some(found)
    }

    /// Reads a path. One that is not absolute begins in `folder`.
    pub(crate) fn path(&mut self, key: &'static str, folder: &Path) -> Option<Located<PathBuf>> {
        self.parsed(key, |text| local_path(text, folder))
    }

    /// Reads a text and parses it.
    pub(crate) fn parsed<T, E: std::fmt::Display>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<Located<T>> {
        let Located { place, value } = self.text(key)?;
        match parse(value) {
            Ok(value) => Some(Located { place, value }),
            Err(error) => {
                self.faults.add(&place, format!("{key}: {error}"));
                None
            }
        }
    }

    pub(crate) fn span(&mut self, key: &'static str) -> Option<Located<Duration>> {
        self.parsed(key, parse_time_span)
    }

    pub(crate) fn flag(&mut self, key: &'static str) -> Option<bool> {
        let found = self.read(key, "true or false", |item| match item {
            Item::Flag(flag) => Some(*flag),
            _ => None,
        });
        found.map(|found| found.value)
    }

    /// Reads a list of texts.
    pub(crate) fn texts(&mut self, key: &'static str) -> Option<Located<Vec<String>>> {
        self.read(key, "a list of texts, such as [\"a\", \"b\"]", |item| match item {
            Item::List(list) => list
                .iter()
                .map(|item| match &item.value {
                    Item::Text(text) => Some(text.clone()),
                    _ => None,
                })
                .collect(),
            _ => None,
        })
    }

    /// Reads a program with its arguments.
    pub(crate) fn program(&mut self, key: &'static str) -> Option<Located<Vec<String>>> {
        let found = self.texts(key)?;
        if found.value.first().is_none_or(String::is_empty) {
            self.faults
                .add(&found.place, format!("{key} names no program: write [\"PROGRAM\", \"ARGUMENT\"]"));
            return None;
        }
        Some(found)
    }

    pub(crate) fn table(&mut self, key: &'static str) -> Option<Located<&'a ItemTable>> {
        self.read(key, "a table", |item| match item {
            Item::Table(table) => Some(table),
            _ => None,
        })
    }

    /// Reads a table of named tables, such as `[source.home]`.
    pub(crate) fn named_tables(
        &mut self,
        key: &'static str,
    ) -> Vec<(&'a str, &'a ConfigPlace, &'a ItemTable)> {
        let Some(all) = self.table(key) else { return Vec::new() };
        let mut tables = Vec::new();
        for (name, item) in all.value {
            match &item.value {
                Item::Table(_) if !is_name(name) => {
                    let rule = "write letters, digits, '-', '_' and '.'";
                    self.faults.add(&item.place, format!("{name:?} is not a name: {rule}"));
                }
                Item::Table(table) => tables.push((name.as_str(), &item.place, table)),
                other => self.faults.add(
                    &item.place,
                    format!("{key}.{name} is {}: a table is named [{key}.NAME]", other.kind()),
                ),
            }
        }
        tables
    }

    /// Reports the keys that nobody asked for, each with the nearest known one.
    pub(crate) fn finish(self) {
        for (key, item) in self.table {
            if self.known.contains(&key.as_str()) {
                continue;
            }
            let here = if self.name.is_empty() { String::new() } else { format!(" in [{}]", self.name) };
            let nearest = nearest(key, &self.known);
            let rest = match nearest {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => format!("known are {}", self.known.join(", ")),
            };
            self.faults.add(&item.place, format!("unknown key {key}{here}: {rest}"));
        }
    }
}

/// Makes a path absolute. A shell would expand the first characters of some paths, and here nothing
/// does, so these are refused.
pub(crate) fn local_path(text: &str, folder: &Path) -> Result<PathBuf, String> {
    if text.starts_with(['~', '$']) {
        return Err(format!("{text:?} is not expanded: write the whole path, or ./{text} for such a name"));
    }
    Ok(folder.join(text))
}

/// Reports whether a name can stand in messages, file names and on a command line.
fn is_name(name: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= 100 && !name.starts_with(['-', '.']) && name.chars().all(is_good)
}

/// Returns the most similar of the known names.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name = name.to_lowercase().replace('_', "-");
    let similarity = |known: &&str| strsim::damerau_levenshtein(&name, known);
    let best = known.iter().min_by_key(|known| similarity(known))?;
    let longest = name.chars().count().max(best.chars().count()).max(1);
    let share = 1.0 - similarity(best) as f64 / longest as f64;
    (share >= SIMILAR).then_some(*best)
}
