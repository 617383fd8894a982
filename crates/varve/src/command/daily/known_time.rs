//! Decides if the time is known well enough to forget snapshots and to free space.

use anyhow::Result;
use varve_daily::server_clock_fault;
use varve_watch::ConfiguredSource;
use varve_world::{Clock, RealClock};

use super::config_file::LoadedConfig;
use super::jobs::{DailyJob, JobKind};
use super::open_store;
use super::server_clocks;
use crate::command::keeping::forget::{behind_text, leap_text};
use crate::invocation::Invocation;

/// Says why retention waits: a server has another time, or the snapshots do not bear out the clock.
/// `None` for other jobs.
///
/// # Errors
/// When the store does not open.
pub fn obstacle(
    invocation: &Invocation,
    loaded: &LoadedConfig,
    job: &DailyJob<'_>,
) -> Result<Option<String>> {
    if job.kind != JobKind::Reclaim {
        return Ok(None);
    }
    let clocks = server_clocks::ask(loaded, job.store_name);
    let session = loaded.session(invocation, job.store)?;
    let found = open_store::read(&session, job.store)?;
    if let Some(fault) = server_clock_fault(&clocks.wait()) {
        return Ok(Some(fault));
    }
    let (Some(found), now) = (found, RealClock.now()) else { return Ok(None) };
    if found.nights.are_mostly_after(now) {
        return Ok(Some(behind_text(now)));
    }
    let has_spans = |source: &ConfiguredSource| {
        source.store == job.store_name && source.keep.iter().any(|(rule, _)| *rule == "keep-within")
    };
    let leap = found.nights.leap(now).filter(|_| loaded.config.sources.values().any(has_spans));
    Ok(leap.map(leap_text))
}
