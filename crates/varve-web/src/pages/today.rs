//! Today: the promises, the last days of each source, and the things that need attention.

use askama::Template;
use jiff::civil::Date;
use varve_archive::Snapshot;
use varve_daily::{JudgedPromise, PromiseKind, PromiseState, show_time_span};

use super::page::{Frame, PageError, PageHtml};
use super::snapshot_place::{address_in, source_address};
use crate::show;
use crate::site::PageRequest;

/// The days that are shown.
const DAYS: i32 = 14;
/// Sources on the page. Those with the oldest snapshots come first.
const ROWS_MAX: usize = 50;

/// A promise as a sentence.
struct PromiseRow {
    state: &'static str,
    class: &'static str,
    what: &'static str,
    subject: String,
    text: String,
    limit: String,
}

/// The last days of a source.
struct LastDays {
    name: String,
    address: String,
    days: Vec<LastDay>,
    summary: String,
    newest: String,
    age: String,
    look: String,
    new: String,
    problems: String,
}

struct LastDay {
    class: &'static str,
    x: i32,
}

#[derive(Template)]
#[template(path = "today.html")]
struct TodayTemplate {
    frame: Frame,
    /// The state of all promises in a sentence, and its class.
    headline: String,
    class: &'static str,
    attention: Vec<PromiseRow>,
    kept: Vec<PromiseRow>,
    kept_count: String,
    notes: Vec<String>,
    judged: String,
    rows: Vec<LastDays>,
    more: Option<String>,
    first_day: String,
    last_day: String,
    width: i32,
}

/// The first page.
pub(crate) fn today(request: &PageRequest) -> Result<PageHtml, PageError> {
    let known = request.site.state.as_ref().map(|state| state.status.soon());
    let (mut attention, mut kept, mut notes, mut judged) =
        (Vec::new(), Vec::new(), Vec::new(), String::new());
    let (headline, class) = match known {
        None => ("This archive has no promises: it is at a server.".to_owned(), "plain"),
        Some(None) => ("The promises are being judged. Load the page again.".to_owned(), "plain"),
        Some(Some(known)) => {
            judged = show::minute(known.at, request.zone());
            match &known.value {
                Ok(None) => {
                    let text = "There is no configuration on this machine, so nothing is promised.";
                    (text.to_owned(), "plain")
                }
                Err(error) => {
                    (format!("The promises cannot be judged: {}", show::line(error.as_bytes())), "bad")
                }
                Ok(Some(report)) => {
                    notes = report.notes.iter().map(|note| show::line(note.as_bytes())).collect();
                    for promise in &report.promises {
                        let is_kept = promise.state == PromiseState::Kept;
                        (if is_kept { &mut kept } else { &mut attention }).push(promise_row(promise));
                    }
                    headline(&report.promises)
                }
            }
        }
    };
    let (rows, more) = last_days(request);
    let today = show::day(request.now, request.zone());
    PageHtml::of(&TodayTemplate {
        frame: Frame::new(request, "/", "Today"),
        headline,
        class,
        attention,
        kept_count: show::count(kept.len() as u64, "promise"),
        kept,
        notes,
        judged,
        rows,
        more,
        first_day: day_before(today, DAYS - 1).to_string(),
        last_day: today.to_string(),
        width: DAYS * 10 - 2,
    })
}

fn headline(promises: &[JudgedPromise]) -> (String, &'static str) {
    let count = |state| promises.iter().filter(|promise| promise.state == state).count() as u64;
    let (broken, unknown) = (count(PromiseState::Broken), count(PromiseState::Unknown));
    let are = |count| if count == 1 { "is" } else { "are" };
    match (broken, unknown) {
        _ if promises.is_empty() => ("The configuration promises nothing.".into(), "plain"),
        (0, 0) => ("All promises are kept.".into(), "good"),
        (0, unknown) => (format!("{} cannot be judged here.", show::count(unknown, "promise")), "warn"),
        (broken, _) => (format!("{} {} broken.", show::count(broken, "promise"), are(broken)), "bad"),
    }
}

fn promise_row(promise: &JudgedPromise) -> PromiseRow {
    let (state, class) = match promise.state {
        PromiseState::Broken => ("broken", "bad"),
        PromiseState::Unknown => ("unknown", "warn"),
        PromiseState::Kept => ("kept", "good"),
    };
    let what = match promise.kind {
        PromiseKind::SnapshotWithin => "a snapshot",
        PromiseKind::ReplicaWithin => "a copy",
        PromiseKind::VerifiedWithin => "verified",
        PromiseKind::ReclaimedWithin => "space freed",
        PromiseKind::DrillWithin => "a drill",
        PromiseKind::RoomFor => "room",
        PromiseKind::Continued => "work goes on",
        PromiseKind::Clock => "the clock",
        PromiseKind::Store => "the store",
    };
    let detail = promise.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    let limit = match (promise.kind, promise.limit) {
        (_, None) => String::new(),
        (PromiseKind::RoomFor, Some(limit)) => format!("for {}", show_time_span(limit)),
        (_, Some(limit)) => format!("within {}", show_time_span(limit)),
    };
    PromiseRow {
        state,
        class,
        what,
        subject: show::name(promise.subject.as_bytes()),
        text: show::line(format!("{}{detail}", promise.text).as_bytes()),
        limit,
    }
}

fn day_before(day: Date, count: i32) -> Date {
    day.saturating_sub(jiff::Span::new().days(count))
}

/// The sources with their last days, those without a recent snapshot first.
fn last_days(request: &PageRequest) -> (Vec<LastDays>, Option<String>) {
    let zone = request.zone();
    let today = show::day(request.now, zone);
    let mut all: Vec<_> = request.view.all_series().collect();
    all.sort_by_key(|(_, snapshots)| snapshots.clone().next_back().map(|newest| newest.time));
    let count = all.len();
    let mut rows = Vec::new();
    for (series, snapshots) in all.into_iter().take(ROWS_MAX) {
        let Some(newest) = snapshots.clone().next_back() else { continue };
        let first = day_before(today, DAYS - 1);
        let recent: Vec<(Date, &Snapshot)> = snapshots
            .rev()
            .map(|snapshot| (show::day(snapshot.time, zone), snapshot))
            .take_while(|(day, _)| *day >= first)
            .collect();
        let days: Vec<LastDay> = (0..DAYS)
            .map(|number| {
                let day = day_before(today, DAYS - 1 - number);
                let own = || recent.iter().filter(|(one, _)| *one == day);
                let class = match own().count() {
                    0 => "none",
                    _ if own().all(|(_, snapshot)| snapshot.problem_count > 0) => "gaps",
                    _ => "there",
                };
                LastDay { class, x: number * 10 }
            })
            .collect();
        let there = days.iter().filter(|day| day.class != "none").count();
        let gaps = days.iter().filter(|day| day.class == "gaps").count();
        let with_gaps = if gaps > 0 { format!(", {gaps} with gaps") } else { String::new() };
        rows.push(LastDays {
            name: show::name(series.name.as_bytes()),
            address: source_address(series, None),
            summary: format!("{there} of {DAYS} days{with_gaps}"),
            days,
            newest: show::minute(newest.time, zone),
            age: show::age(newest.time, request.now),
            look: address_in("/look/", newest, b""),
            new: newest.growth.map_or_else(|| "\u{2013}".into(), |growth| show::bytes(growth.stored_bytes)),
            problems: match newest.problem_count {
                0 => String::new(),
                problems => show::count(problems, "problem"),
            },
        });
    }
    let more = (count > rows.len()).then(|| show::count((count - rows.len()) as u64, "more source"));
    (rows, more)
}
