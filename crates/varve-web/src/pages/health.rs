//! Health: when each part of the log was last read, damage, and copies.

use std::fmt::Write;

use askama::Template;
use varve_daily::Drill;
use varve_daily::{PromiseKind, PromiseState};
use varve_world::Timestamp;

use super::harm_marks::HarmMarks;
use super::harmed_files::{HarmedFile, harmed_files};
use super::log_map::LogMap;
use super::page::{Frame, PageError, PageHtml};
use crate::show;
use crate::site::PageRequest;
use crate::state::log_state::LogState;

/// Drills that are listed, the newest first.
const DRILLS_MAX: usize = 50;
/// Damaged arenas that are listed.
const DAMAGED_MAX: usize = 100;
/// A restore that was tried.
struct DrillRow {
    name: String,
    time: String,
    age: String,
    state: &'static str,
    class: &'static str,
    restored: String,
    boot: String,
    failure: String,
}

struct CopyRow {
    name: String,
    state: &'static str,
    class: &'static str,
    text: String,
}

#[derive(Template)]
#[template(path = "health.html")]
struct HealthTemplate {
    frame: Frame,
    headline: String,
    class: &'static str,
    read: String,
    facts: Vec<(&'static str, String)>,
    map: LogMap,
    damaged: Vec<String>,
    damaged_more: Option<String>,
    /// The files that lost blocks harm, and what is known about them.
    harmed: Vec<HarmedFile>,
    harm_note: String,
    copies: Vec<CopyRow>,
    drills: Vec<DrillRow>,
}

/// The state of the log and of its copies.
pub(crate) fn health(request: &PageRequest) -> Result<PageHtml, PageError> {
    let known = request.site.state.as_ref().map(|state| state.log.soon());
    let empty = LogState::default();
    let (log, read, problem) = match &known {
        None => {
            (&empty, String::new(), Some("The archive is at a server, which has its own log.".to_owned()))
        }
        Some(None) => {
            (&empty, String::new(), Some("The log is being looked at. Load the page again.".to_owned()))
        }
        Some(Some(known)) => match &known.value {
            Ok(log) => (log, show::minute(known.at, request.zone()), None),
            Err(error) => {
                let text = format!("The log cannot be read: {}", show::line(error.as_bytes()));
                (&empty, String::new(), Some(text))
            }
        },
    };
    let damaged: Vec<_> = log.arenas.iter().filter(|arena| arena.is_damaged).collect();
    let (headline, class) = match (problem, damaged.len() as u64, log.lost_block_count) {
        (Some(problem), _, _) => (problem, "warn"),
        (None, 0, 0) => ("No damage is known.".to_owned(), "good"),
        (None, damaged, 0) => (format!("{} damaged.", are(damaged, "arena")), "bad"),
        (None, 0, lost) => (format!("{} lost.", are(lost, "block")), "bad"),
        (None, damaged, lost) => {
            (format!("{} damaged, and {} lost.", are(damaged, "arena"), are(lost, "block")), "bad")
        }
    };
    let more = damaged.len().saturating_sub(DAMAGED_MAX) as u64;
    let (harmed, harm_note) = harm(request);
    PageHtml::of(&HealthTemplate {
        frame: Frame::new(request, "/health", "Health"),
        headline,
        class,
        read,
        facts: facts(log, request.now),
        map: LogMap::of(&log.arenas, request.now, request.zone()),
        damaged: damaged.iter().take(DAMAGED_MAX).map(|arena| show::name(arena.name.as_bytes())).collect(),
        damaged_more: (more > 0).then(|| show::count(more, "more arena")),
        harmed,
        harm_note,
        copies: copies(request),
        drills: log.drills.iter().rev().take(DRILLS_MAX).map(|drill| drill_row(request, drill)).collect(),
    })
}

/// The files that lost blocks harm, with a note about them; without a loss, nothing.
fn harm(request: &PageRequest) -> (Vec<HarmedFile>, String) {
    match HarmMarks::of(request) {
        HarmMarks::None => (Vec::new(), String::new()),
        HarmMarks::Unknown => {
            let note =
                "The harmed files are being looked for, or cannot be found. Load the page again later.";
            (Vec::new(), note.into())
        }
        HarmMarks::Known(harm, at) => {
            let (files, left_out) = harmed_files(request, &harm);
            let not_yet = request.view.snapshots().iter().filter(|one| !harm.has_looked_at(&one.id)).count();
            let mut note = format!("As of {at}.");
            if files.is_empty() {
                note.push_str(" No snapshot needs the lost blocks.");
            }
            if left_out > 0 {
                let _ = write!(note, " {} are not listed.", show::count(left_out as u64, "more file"));
            }
            if not_yet > 0 {
                let _ = write!(note, " {} were not looked at.", show::count(not_yet as u64, "snapshot"));
            }
            (files, note)
        }
    }
}

fn are(count: u64, noun: &str) -> String {
    format!("{} {}", show::count(count, noun), if count == 1 { "is" } else { "are" })
}

fn facts(log: &LogState, now: Timestamp) -> Vec<(&'static str, String)> {
    if log.arenas.is_empty() {
        return Vec::new();
    }
    let mut facts = vec![(
        "Log",
        format!("{} in {}", show::bytes(log.log_bytes), show::count(log.arenas.len() as u64, "arena")),
    )];
    let never = log.arenas.iter().filter(|arena| arena.read_at.is_none()).count() as u64;
    let oldest = log.arenas.iter().filter_map(|arena| arena.read_at).min();
    facts.push((
        "Oldest reading",
        match oldest {
            Some(oldest) => format!("{} ago", show::age(oldest, now)),
            None => "never".into(),
        },
    ));
    facts.push(("Never read since it was written", show::count(never, "arena")));
    facts.push((
        "Recovery data",
        match log.parity_arena_count {
            0 => "none".into(),
            count => format!("{} for {}", show::bytes(log.parity_bytes), show::count(count, "arena")),
        },
    ));
    facts
}

/// The copies that the configuration promises.
fn copies(request: &PageRequest) -> Vec<CopyRow> {
    let known = request.site.state.as_ref().and_then(|state| state.status.known());
    let Some(Ok(Some(report))) = known.as_ref().map(|known| &known.value) else { return Vec::new() };
    let copies = report.promises.iter().filter(|promise| promise.kind == PromiseKind::ReplicaWithin);
    copies
        .map(|promise| {
            let (state, class) = match promise.state {
                PromiseState::Broken => ("broken", "bad"),
                PromiseState::Unknown => ("unknown", "warn"),
                PromiseState::Kept => ("kept", "good"),
            };
            let detail = promise.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
            CopyRow {
                name: show::name(promise.subject.as_bytes()),
                state,
                class,
                text: show::line(format!("{}{detail}", promise.text).as_bytes()),
            }
        })
        .collect()
}

fn drill_row(request: &PageRequest, drill: &Drill) -> DrillRow {
    let host = if drill.host.is_empty() {
        String::new()
    } else {
        format!(" on {}", show::name(drill.host.as_bytes()))
    };
    let (state, class) = if drill.failure.is_some() { ("failed", "bad") } else { ("passed", "good") };
    DrillRow {
        name: format!("{}{host}", show::name(drill.series.as_bytes())),
        time: show::minute(drill.time, request.zone()),
        age: show::age(drill.time, request.now),
        state,
        class,
        restored: format!("{}, {}", show::count(drill.file_count, "file"), show::bytes(drill.bytes)),
        boot: drill.boot_seconds.map_or_else(String::new, |seconds| format!("booted in {seconds:.0} s")),
        failure: drill.failure.as_ref().map_or_else(String::new, |failure| show::line(failure.as_bytes())),
    }
}
