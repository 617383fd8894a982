//! Folders of the configuration that have no entries now.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::config::{ConfiguredSource, DailyConfig, SourceWhat};

/// Returns the sources whose folder has no entries now.
#[must_use]
pub fn empty_sources(config: &DailyConfig) -> BTreeSet<String> {
    let empty = config.sources.iter().filter(|(_, source)| is_empty_folder(source));
    empty.map(|(name, _)| name.clone()).collect()
}

/// Reports whether a source is a folder that has no entries now. One that cannot be read is none.
#[must_use]
pub fn is_empty_folder(source: &ConfiguredSource) -> bool {
    let is_empty = |path: &Path| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    matches!(&source.what, SourceWhat::Folder(path) if is_empty(path))
}
