//! Decides if the time is known well enough to forget snapshots and to free space.

use anyhow::Result;
use varve_archive::retention::RetentionRule;
use varve_world::{Clock, RealClock};

use super::daily_job::{DailyJob, JobKind};
use crate::config::ConfiguredSource;
use crate::judging::{clock_behind_text, clock_leap_text, server_clock_fault};
use crate::loaded_config::LoadedConfig;
use crate::stores::{ask_clocks, read_facts};

/// Says why retention waits: a server has another time, or the snapshots do not bear out the clock.
/// `None` for other jobs.
///
/// # Errors
/// When the store does not open.
pub fn clock_obstacle(loaded: &LoadedConfig, job: &DailyJob<'_>) -> Result<Option<String>> {
    if job.kind != JobKind::Reclaim {
        return Ok(None);
    }
    let clocks = ask_clocks(loaded, job.store_name);
    let session = loaded.session(job.store)?;
    let found = read_facts(&session, job.store)?;
    if let Some(fault) = server_clock_fault(&clocks.wait()) {
        return Ok(Some(fault));
    }
    let (Some(found), now) = (found, RealClock.now()) else { return Ok(None) };
    if found.nights.are_mostly_after(now) {
        return Ok(Some(clock_behind_text(now)));
    }
    let has_spans = |source: &ConfiguredSource| {
        source.store == job.store_name
            && source.keep.iter().any(|rule| matches!(rule, RetentionRule::Within(_)))
    };
    let leap = found.nights.leap(now).filter(|_| loaded.config.sources.values().any(has_spans));
    Ok(leap.map(clock_leap_text))
}
