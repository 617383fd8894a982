//! Space: growth, what each source needs alone, how long the room lasts, and what a policy would
//! free.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use askama::Template;
use varve_archive::retention::{Dated, RetentionPolicy, RetentionRule, judge};
use varve_archive::{Snapshot, SnapshotId, SpaceNeeds};

use super::growth::{self, GrowthChart, first_snapshots};
use super::page::{Frame, PageError, PageHtml};
use crate::show;
use crate::site::PageRequest;

/// Growth is counted over these days for the forecast.
const FORECAST_DAYS: i64 = 60;
const DAY: i64 = 86_400_000_000_000;
/// Names in the table.
const NAMES_MAX: usize = 100;
/// The rules that the form offers, each with its label and its proposal.
const RULES: [(&str, &str, &str); 5] = [
    ("keep_last", "Last", "3"),
    ("keep_daily", "Days", "30"),
    ("keep_weekly", "Weeks", "26"),
    ("keep_monthly", "Months", "24"),
    ("keep_yearly", "Years", "10"),
];

struct NameNeedsRow {
    name: String,
    snapshots: String,
    size: String,
    own: String,
    shared: String,
    frees: String,
}

struct RuleField {
    key: &'static str,
    label: &'static str,
    value: String,
}

/// The effect of a policy on a source.
struct PolicyRow {
    name: String,
    kept: String,
    dropped: String,
    freed: String,
}

#[derive(Template)]
#[template(path = "space.html")]
struct SpaceTemplate {
    frame: Frame,
    facts: Vec<(&'static str, String)>,
    chart: GrowthChart,
    /// The first snapshots, which are no growth.
    firsts: String,
    width: u64,
    height: u64,
    names: Vec<NameNeedsRow>,
    names_note: String,
    sums: Vec<(&'static str, String)>,
    fields: Vec<RuleField>,
    policy: Vec<PolicyRow>,
    policy_note: String,
    policy_problem: String,
}

/// The space of the archive.
pub(crate) fn space(request: &PageRequest) -> Result<PageHtml, PageError> {
    let known = request.site.state.as_ref().map(|state| state.space.known());
    let needs: Option<&SpaceNeeds> =
        known.as_ref().and_then(Option::as_ref).and_then(|known| known.value.as_ref().ok());
    let names_note = match &known {
        None => "The archive is at a server, so the parts of its space are not known here.".to_owned(),
        Some(None) => {
            "The needs of the sources are being counted, which takes a while in a large archive. Load the page again later.".to_owned()
        }
        Some(Some(known)) => match &known.value {
            Ok(_) => format!("As of {}.", show::minute(known.at, request.zone())),
            Err(error) => format!("The needs cannot be counted: {}", show::line(error.as_bytes())),
        },
    };
    let firsts = first_snapshots(&request.view);
    let today = show::day(request.now, request.zone());
    let chart = GrowthChart::of(&request.view, &firsts, today, request.zone());
    let (fields, policy, policy_note, policy_problem) = simulated(request, needs);
    PageHtml::of(&SpaceTemplate {
        frame: Frame::new(request, "/space", "Space"),
        facts: facts(request, &firsts),
        firsts: format!(
            "{} of {}",
            show::bytes(chart.first_stored),
            match chart.first_count {
                1 => "the first snapshot".to_owned(),
                count => format!("{} first snapshots", show::grouped(count)),
            }
        ),
        width: growth::WIDTH,
        height: growth::HEIGHT,
        chart,
        names: needs.map_or_else(Vec::new, name_rows),
        names_note,
        sums: needs.map_or_else(Vec::new, sums),
        fields,
        policy,
        policy_note,
        policy_problem,
    })
}

fn facts(request: &PageRequest, firsts: &BTreeSet<SnapshotId>) -> Vec<(&'static str, String)> {
    let snapshots = request.view.snapshots();
    let sizes: u64 = snapshots.iter().map(|snapshot| snapshot.size).fold(0, u64::saturating_add);
    let mut facts = vec![
        ("Snapshots", show::grouped(snapshots.len() as u64)),
        ("Their size, each counted in full", show::bytes(sizes)),
    ];
    let known = request.site.state.as_ref().and_then(|state| state.log.soon());
    let Some(Ok(log)) = known.as_ref().map(|known| &known.value) else { return facts };
    facts.push(("On disk", show::bytes(log.log_bytes)));
    let now = request.now.0;
    let since = now.saturating_sub(FORECAST_DAYS * DAY);
    let first = snapshots.first().map_or(now, |first| first.time.0).max(since);
    let days = u64::try_from((now.saturating_sub(first) / DAY).max(1)).unwrap_or(1);
    // The first snapshot of a source comes once, so it says nothing about the days to come.
    let recent = snapshots.iter().filter(|snapshot| snapshot.time.0 >= since && snapshot.time.0 <= now);
    let recent = recent.filter(|snapshot| !firsts.contains(&snapshot.id));
    let grown: u64 = recent.filter_map(|snapshot| snapshot.growth).map(|growth| growth.stored_bytes).sum();
    facts.push(("Growth a day", format!("{} over {}", show::bytes(grown / days), show::count(days, "day"))));
    if let Some(free) = log.free_bytes {
        facts.push(("Free", show::bytes(free)));
        let lasts = free.checked_div((grown / days).max(1)).filter(|_| grown / days > 0);
        let text = match lasts {
            None => "without growth, for ever".to_owned(),
            Some(days) if days > 36_500 => "more than 100 years".to_owned(),
            Some(days) => show::span(days.saturating_mul(86_400)),
        };
        facts.push(("At this growth it lasts", text));
    }
    facts
}

fn name_rows(needs: &SpaceNeeds) -> Vec<NameNeedsRow> {
    let mut names: Vec<_> = needs.names.iter().collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.own_bytes()));
    let row = |name: &varve_archive::NameNeeds| NameNeedsRow {
        name: show::name(name.name.as_bytes()),
        snapshots: show::grouped(name.snapshot_count),
        size: show::bytes(name.size),
        own: show::bytes(name.own_bytes()),
        shared: show::bytes(name.shared_bytes),
        frees: name.freed_bytes.map_or_else(|| "\u{2013}".into(), show::bytes),
    };
    names.into_iter().take(NAMES_MAX).map(row).collect()
}

fn sums(needs: &SpaceNeeds) -> Vec<(&'static str, String)> {
    [
        ("Shared by several names", needs.several_names_bytes),
        ("Only for snapshots in the trash", needs.only_trash_bytes),
        ("Catalog and notes", needs.catalog_bytes),
        ("Needed by no snapshot", needs.unneeded_bytes),
        ("Directories of the log", needs.directory_bytes),
        ("All arenas", needs.log_bytes),
    ]
    .map(|(what, bytes)| (what, show::bytes(bytes)))
    .into()
}

/// The fields of the policy form, and the result of the policy in it.
fn simulated(
    request: &PageRequest,
    needs: Option<&SpaceNeeds>,
) -> (Vec<RuleField>, Vec<PolicyRow>, String, String) {
    let is_asked = RULES.iter().any(|(key, ..)| request.value(key).is_some());
    let (mut policy, mut problem) = (RetentionPolicy::default(), String::new());
    let mut fields = Vec::new();
    for (key, label, proposal) in RULES {
        let value: String = request.value(key).unwrap_or_default().trim().chars().take(8).collect();
        let value = if is_asked { value } else { proposal.to_owned() };
        if !value.is_empty() && is_asked {
            match RetentionRule::parse(key, &value) {
                Ok(rule) => policy = policy.with_rule(rule),
                Err(_) => {
                    let _ = write!(problem, "{label} must be a number, or \u{201c}all\u{201d}. ");
                }
            }
        }
        fields.push(RuleField { key, label, value });
    }
    if !is_asked || !problem.is_empty() {
        return (fields, Vec::new(), String::new(), problem);
    }
    if let Some(name) = request.zone().iana_name()
        && let Ok(zone) = name.parse()
    {
        policy.zone = zone;
    }
    let (rows, note) = applied(request, &policy, needs);
    (fields, rows, note, problem)
}

fn applied(
    request: &PageRequest,
    policy: &RetentionPolicy,
    needs: Option<&SpaceNeeds>,
) -> (Vec<PolicyRow>, String) {
    let snapshots = request.view.snapshots();
    let labels = |snapshot: &Snapshot| snapshot.holds.iter().map(|hold| hold.label.clone()).collect();
    let dated: Vec<Dated> = snapshots.iter().map(|one| Dated::of(one, labels(one), one.keep_until)).collect();
    let verdicts = judge(&dated, policy, request.now);
    let dropped: BTreeSet<_> = snapshots
        .iter()
        .zip(&verdicts)
        .filter(|(_, verdict)| !verdict.is_kept())
        .map(|(snapshot, _)| snapshot.id)
        .collect();
    let own: BTreeMap<_, _> = needs
        .iter()
        .flat_map(|needs| &needs.snapshots)
        .map(|needs| (needs.snapshot.id, needs.own_bytes))
        .collect();
    let mut rows = Vec::new();
    let mut all_freed = 0_u64;
    for (series, of_series) in request.view.all_series().take(NAMES_MAX) {
        let (mut kept, mut gone, mut freed) = (0_u64, 0_u64, 0_u64);
        for snapshot in of_series {
            if dropped.contains(&snapshot.id) {
                gone += 1;
                freed = freed.saturating_add(own.get(&snapshot.id).copied().unwrap_or(0));
            } else {
                kept += 1;
            }
        }
        all_freed = all_freed.saturating_add(freed);
        let host = if series.host.is_empty() {
            String::new()
        } else {
            format!(" on {}", show::name(series.host.as_bytes()))
        };
        rows.push(PolicyRow {
            name: format!("{}{host}", show::name(series.name.as_bytes())),
            kept: show::grouped(kept),
            dropped: show::grouped(gone),
            freed: if needs.is_some() { show::bytes(freed) } else { "\u{2013}".into() },
        });
    }
    let count = show::count(dropped.len() as u64, "snapshot");
    let note = match needs {
        Some(_) => format!(
            "This policy would forget {count}, and free at least {}: the bytes that one of them alone needs. Bytes that several of them share come on top.",
            show::bytes(all_freed)
        ),
        None => format!("This policy would forget {count}. The bytes are not counted yet."),
    };
    (rows, note)
}
