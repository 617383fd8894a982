//! Machines: the hosts whose sources are in the archive.

use std::collections::BTreeMap;
use std::time::Duration;

use askama::Template;
use varve_archive::Snapshot;

use super::page::{Frame, PageError, PageHtml};
use super::snapshot_place::{address_in, source_address};
use crate::archive::snapshot_view::SeriesName;
use crate::show;
use crate::site::PageRequest;

const DAY: Duration = Duration::from_hours(24);
/// The time over which growth is counted.
const GROWTH_DAYS: u32 = 30;
/// Sources on one page.
const ROWS_MAX: usize = 150;

struct MachineSourceRow {
    name: String,
    address: String,
    look: String,
    newest: String,
    age: String,
    path: String,
    size: String,
    grown: String,
    count: String,
}

/// A host with its sources.
struct MachineCard {
    host: String,
    /// The age of its newest snapshot.
    silent: String,
    grown: String,
    count: String,
    sources: Vec<MachineSourceRow>,
}

#[derive(Template)]
#[template(path = "machines.html")]
struct MachinesTemplate {
    frame: Frame,
    machines: Vec<MachineCard>,
    days: u32,
    next: Option<usize>,
}

/// The hosts by their names, each with its sources.
pub(crate) fn machines(request: &PageRequest) -> Result<PageHtml, PageError> {
    let from = request.value("from").and_then(|from| from.parse::<usize>().ok()).unwrap_or(0);
    let all = request.view.all_series().count();
    let mut by_host: BTreeMap<&str, Vec<(&SeriesName, Vec<&Snapshot>)>> = BTreeMap::new();
    for (series, snapshots) in request.view.all_series().skip(from).take(ROWS_MAX) {
        by_host.entry(&series.host).or_default().push((series, snapshots.collect()));
    }
    let machines = by_host.into_iter().map(|(host, series)| machine(request, host, &series));
    let shown = from.saturating_add(ROWS_MAX);
    PageHtml::of(&MachinesTemplate {
        frame: Frame::new(request, "/machines", "Machines"),
        machines: machines.collect(),
        days: GROWTH_DAYS,
        next: (shown < all).then_some(shown),
    })
}

fn machine(request: &PageRequest, host: &str, series: &[(&SeriesName, Vec<&Snapshot>)]) -> MachineCard {
    let newest =
        series.iter().flat_map(|(_, snapshots)| snapshots.last()).map(|snapshot| snapshot.time).max();
    let grown: u64 = series.iter().map(|(_, snapshots)| grown(request, snapshots)).sum();
    let count = series.iter().map(|(_, snapshots)| snapshots.len() as u64).sum();
    MachineCard {
        host: if host.is_empty() { "no host".into() } else { show::name(host.as_bytes()) },
        silent: newest.map_or_else(String::new, |newest| show::age(newest, request.now)),
        grown: show::bytes(grown),
        count: show::count(count, "snapshot"),
        sources: series.iter().filter_map(|(name, snapshots)| source(request, name, snapshots)).collect(),
    }
}

/// The bytes that recent snapshots have added to the log.
fn grown(request: &PageRequest, snapshots: &[&Snapshot]) -> u64 {
    let since = request.now.minus(DAY * GROWTH_DAYS);
    let recent = snapshots.iter().filter(|snapshot| snapshot.time >= since);
    recent.filter_map(|snapshot| snapshot.growth).map(|growth| growth.stored_bytes).sum()
}

fn source(request: &PageRequest, name: &SeriesName, snapshots: &[&Snapshot]) -> Option<MachineSourceRow> {
    let newest = *snapshots.last()?;
    Some(MachineSourceRow {
        name: show::name(name.name.as_bytes()),
        address: source_address(name, None),
        look: address_in("/look/", newest, b""),
        newest: show::minute(newest.time, request.zone()),
        age: show::age(newest.time, request.now),
        path: show::name(&newest.source),
        size: show::bytes(newest.size),
        grown: show::bytes(grown(request, snapshots)),
        count: show::grouped(snapshots.len() as u64),
    })
}
