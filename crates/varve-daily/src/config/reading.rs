//! Reads a configuration from the text of its files.

use std::path::Path;

use super::config_error::{ConfigErrors, FaultList};
use super::daily_config::DailyConfig;
use super::entries;
use super::merge::merge;
use super::reader::TableReader;
use super::source_text::ConfigText;
use super::tree::{self, ItemTable};

impl DailyConfig {
    /// Reads the settings in `files`, which are merged. Relative paths begin at `folder`.
    ///
    /// # Errors
    /// [`ConfigErrors`] with every fault that was found.
    pub fn read(files: &[ConfigText], folder: &Path) -> Result<Self, ConfigErrors> {
        let mut faults = FaultList::default();
        let trees: Vec<_> = files.iter().filter_map(|file| tree::parse(file, &mut faults)).collect();
        // The keys of a file that is no TOML would be reported as missing.
        faults.into_result()?;
        let mut faults = FaultList::default();
        let mut merged = ItemTable::new();
        for table in trees {
            merge(&mut merged, table, &mut faults);
        }
        let first = files.first().map_or("", |file| file.name.as_str());
        let reader = TableReader::new("", &merged, &mut faults);
        let config = entries::read_config(reader, folder, first);
        faults.into_result()?;
        Ok(config)
    }
}
