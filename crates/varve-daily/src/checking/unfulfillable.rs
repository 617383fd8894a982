//! Promises that a configuration cannot keep.

use std::time::Duration;

use crate::config::{DailyConfig, ReplicaTrigger};
use crate::timing::show_time_span;

/// Lists the promises that the configuration cannot keep, and the rules that nothing applies.
#[must_use]
pub fn unfulfillable(config: &DailyConfig) -> Vec<String> {
    let mut found = Vec::new();
    let limits = &config.promises;
    for (name, source) in &config.sources {
        let limit = source.snapshot_within.or(limits.snapshot_within);
        let longest = source.every.longest() + source.spread;
        if let Some(limit) = limit.filter(|limit| *limit < longest) {
            found.push(format!(
                "snapshot-within {} cannot hold for {name}: it runs {}; give it a snapshot-within of its own",
                show_time_span(limit),
                source.every
            ));
        }
        if !source.keep.is_empty() && config.care.reclaim.is_none() {
            found.push(format!("nothing applies the rules of keep to {name}: [care] has no reclaim"));
        }
        if limit.is_none() {
            found.push(format!(
                "nothing would notice that {name} is not archived: there is no snapshot-within"
            ));
        }
    }
    if let Some(limit) = limits.replica_within {
        if config.replicas.is_empty() {
            found.push("replica-within is about nothing: there is no [replica.NAME]".to_owned());
        }
        for (name, replica) in &config.replicas {
            if let ReplicaTrigger::Every(every) = &replica.trigger
                && every.longest() + replica.spread > limit
            {
                let limit = show_time_span(limit);
                found.push(format!("replica-within {limit} cannot hold for {name}: it is copied {every}"));
            }
        }
    }
    match (&config.care.verify, limits.verified_within) {
        (None, Some(_)) => {
            found.push(
                "verified-within cannot hold: [care] has no verify, so nothing reads the data".to_owned(),
            );
        }
        (Some(verify), Some(limit)) => {
            let whole = full_reading(verify.share.as_deref(), verify.every.longest());
            if whole > limit {
                let (whole, limit) = (show_time_span(whole), show_time_span(limit));
                found.push(format!("verified-within {limit} cannot hold: a full reading takes {whole}"));
            }
        }
        _ => {}
    }
    match (&config.care.drill, limits.drill_within) {
        (None, Some(_)) => {
            found.push("drill-within cannot hold: [care] has no drill, so nothing is restored".to_owned());
        }
        (Some(drill), Some(limit)) if drill.every.longest() + config.care.spread > limit => {
            let limit = show_time_span(limit);
            found.push(format!("drill-within {limit} cannot hold: files are restored {}", drill.every));
        }
        _ => {}
    }
    if limits.reclaimed_within.is_some() && config.care.reclaim.is_none() {
        found.push("reclaimed-within cannot hold: [care] has no reclaim, so nothing is freed".to_owned());
    }
    found
}

/// Returns the time in which all data is read, a share each time.
fn full_reading(share: Option<&str>, every: Duration) -> Duration {
    let percent = share.and_then(|share| share.trim_end_matches('%').parse::<f64>().ok()).unwrap_or(100.0);
    every.mul_f64((100.0 / percent).ceil().clamp(1.0, 1e6))
}
