//! Today: the promises, the rhythm of each source, and the things that need attention.

use askama::Template;
use varve_archive::Snapshot;
use varve_daily::{JudgedPromise, PromiseKind, PromiseState, show_time_span};

use super::job_rows::JobRow;
use super::page::{Frame, PageError, PageHtml};
use super::rhythm::{PERIODS, PeriodState, Rhythm};
use super::runs::failing_jobs;
use super::snapshot_place::{address_in, source_address};
use super::unarchived::{UnarchivedSource, unarchived_sources};
use crate::archive::snapshot_view::SeriesName;
use crate::show;
use crate::site::PageRequest;

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

/// A source with its last periods.
struct SourceLine {
    name: String,
    host: String,
    /// Empty if the configuration names the source, and it has no snapshot.
    address: String,
    periods: Vec<PeriodCell>,
    summary: String,
    newest: String,
    age: String,
    look: String,
    new: String,
    problems: String,
}

struct PeriodCell {
    class: &'static str,
    x: usize,
}

#[derive(Template)]
#[template(path = "today.html")]
struct TodayTemplate {
    frame: Frame,
    /// The state of all promises in a sentence, and its class.
    headline: String,
    class: &'static str,
    attention: Vec<PromiseRow>,
    /// The promises that could not be judged because a store cannot be read.
    consequences: Vec<PromiseRow>,
    kept: Vec<PromiseRow>,
    kept_count: String,
    notes: Vec<String>,
    /// The last runs of jobs that failed.
    jobs: Vec<JobRow>,
    judged: String,
    rows: Vec<SourceLine>,
    more: Option<String>,
    periods: usize,
    width: usize,
}

/// The first page.
pub(crate) fn today(request: &PageRequest) -> Result<PageHtml, PageError> {
    let known = request.site.state.as_ref().map(|state| state.status.soon());
    let (mut attention, mut consequences, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    let (mut notes, mut judged) = (Vec::new(), String::new());
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
                        let rows = match (promise.state, &promise.depends_on) {
                            (PromiseState::Kept, _) => &mut kept,
                            (_, Some(_)) => &mut consequences,
                            (_, None) => &mut attention,
                        };
                        rows.push(promise_row(promise));
                    }
                    headline(&report.promises)
                }
            }
        }
    };
    let (rows, more) = source_lines(request);
    PageHtml::of(&TodayTemplate {
        frame: Frame::new(request, "/", "Today"),
        headline,
        class,
        attention,
        consequences,
        jobs: failing_jobs(request),
        kept_count: show::count(kept.len() as u64, "promise"),
        kept,
        notes,
        judged,
        rows,
        more,
        periods: PERIODS,
        width: PERIODS * 10 - 2,
    })
}

fn headline(promises: &[JudgedPromise]) -> (String, &'static str) {
    // One store that cannot be read is one cause, and not as many as its promises.
    let own = || promises.iter().filter(|promise| promise.depends_on.is_none());
    let count = |state| own().filter(|promise| promise.state == state).count() as u64;
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

/// The sources with their last periods: those without a snapshot, and then the one whose newest
/// snapshot is oldest.
fn source_lines(request: &PageRequest) -> (Vec<SourceLine>, Option<String>) {
    let mut all: Vec<_> = request.view.all_series().collect();
    all.sort_by_key(|(_, snapshots)| snapshots.clone().next_back().map(|newest| newest.time));
    let mut rows: Vec<_> = unarchived_sources(request).into_iter().map(SourceLine::unarchived).collect();
    let count = rows.len() + all.len();
    rows.truncate(ROWS_MAX);
    let left = ROWS_MAX - rows.len();
    rows.extend(
        all.into_iter().take(left).filter_map(|(series, snapshots)| source_line(request, series, snapshots)),
    );
    let more = (count > rows.len()).then(|| show::count((count - rows.len()) as u64, "more source"));
    (rows, more)
}

fn source_line<'a>(
    request: &PageRequest,
    series: &SeriesName,
    snapshots: impl DoubleEndedIterator<Item = &'a Snapshot> + Clone,
) -> Option<SourceLine> {
    let zone = request.zone();
    let newest = snapshots.clone().next_back()?;
    let rhythm = Rhythm::of(snapshots.clone().rev().map(|snapshot| snapshot.time));
    let states = rhythm.states(snapshots.rev(), show::day(request.now, zone), zone);
    let period = |(number, state): (usize, &PeriodState)| PeriodCell {
        class: match state {
            PeriodState::Before => "before",
            PeriodState::There => "there",
            PeriodState::Gaps => "gaps",
            PeriodState::Missed | PeriodState::Open => "none",
        },
        x: number * 10,
    };
    Some(SourceLine {
        name: show::name(series.name.as_bytes()),
        host: show::name(series.host.as_bytes()),
        address: source_address(series, None),
        summary: rhythm.summary(&states),
        periods: states.iter().enumerate().map(period).collect(),
        newest: show::minute(newest.time, zone),
        age: show::age(newest.time, request.now),
        look: address_in("/look/", newest, b""),
        new: newest.growth.map_or_else(|| "\u{2013}".into(), |growth| show::bytes(growth.stored_bytes)),
        problems: match newest.problem_count {
            0 => String::new(),
            problems => show::count(problems, "problem"),
        },
    })
}

impl SourceLine {
    fn unarchived(source: UnarchivedSource) -> Self {
        let none = String::new;
        Self {
            name: source.name,
            host: none(),
            address: none(),
            periods: Vec::new(),
            summary: none(),
            newest: none(),
            age: none(),
            look: none(),
            new: none(),
            problems: none(),
        }
    }
}
