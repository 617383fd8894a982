//! The snapshots that belong to a source of the configuration.

use super::facts::SnapshotFact;
use crate::config::{ConfiguredSource, DailyConfig, SourceWhat};

/// Reports whether the machine `host` took a snapshot of a source.
#[must_use]
pub fn is_of_source(
    config: &DailyConfig,
    host: &str,
    (source_name, source): (&str, &ConfiguredSource),
    snapshot: &SnapshotFact,
) -> bool {
    snapshot.host == host && is_series_of(config, (source_name, source), &snapshot.name)
}

/// Reports whether the snapshots of a source have this name. Those of a machine have the names of
/// its drives after its own.
#[must_use]
pub fn is_series_of(
    config: &DailyConfig,
    (source_name, source): (&str, &ConfiguredSource),
    series: &str,
) -> bool {
    match &source.what {
        SourceWhat::Command { name, .. } => series == name,
        SourceWhat::Machine(_) => {
            let is_drive = series.strip_prefix(source_name).is_some_and(|rest| rest.starts_with('-'));
            is_drive && !config.sources.contains_key(series)
        }
        _ => series == source_name,
    }
}
