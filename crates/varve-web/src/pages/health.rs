//! Health: when each part of the log was last read, damage, and copies.

use askama::Template;
use varve_daily::Drill;
use varve_daily::{PromiseKind, PromiseState};
use varve_world::Timestamp;

use super::page::{Frame, PageError, PageHtml};
use crate::show;
use crate::site::PageRequest;
use crate::state::{ArenaHealth, LogState};

/// The squares of the map. In a longer log, a square stands for several arenas, and shows the worst
/// of them.
const SQUARES_MAX: usize = 600;
const SQUARES_A_LINE: usize = 40;
/// Drills that are listed, the newest first.
const DRILLS_MAX: usize = 50;
/// Damaged arenas that are listed.
const DAMAGED_MAX: usize = 100;
const DAY: i64 = 86_400_000_000_000;
/// The upper ends of the classes of ages, in days, each with its name and its class of colour.
const AGES: [(i64, &str, &str); 4] = [
    (7, "read within a week", "age1"),
    (30, "read within 30 days", "age2"),
    (90, "read within 90 days", "age3"),
    (i64::MAX, "read longer ago", "age4"),
];

/// A class of arenas.
struct AgeRow {
    name: &'static str,
    class: &'static str,
    count: String,
    share: String,
}

struct MapSquare {
    x: usize,
    y: usize,
    class: &'static str,
}

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
    ages: Vec<AgeRow>,
    squares: Vec<MapSquare>,
    width: usize,
    height: usize,
    a_square: usize,
    damaged: Vec<String>,
    damaged_more: Option<String>,
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
    let squares = squares(&log.arenas, request.now);
    let lines = squares.1.len().div_ceil(SQUARES_A_LINE);
    let more = damaged.len().saturating_sub(DAMAGED_MAX) as u64;
    PageHtml::of(&HealthTemplate {
        frame: Frame::new(request, "/health", "Health"),
        headline,
        class,
        read,
        facts: facts(log, request.now),
        ages: ages(&log.arenas, request.now),
        width: SQUARES_A_LINE * 12,
        height: lines * 12,
        a_square: squares.0,
        squares: squares.1,
        damaged: damaged.iter().take(DAMAGED_MAX).map(|arena| show::name(arena.name.as_bytes())).collect(),
        damaged_more: (more > 0).then(|| show::count(more, "more arena")),
        copies: copies(request),
        drills: log.drills.iter().rev().take(DRILLS_MAX).map(|drill| drill_row(request, drill)).collect(),
    })
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

/// The class of an arena: 0 to 3 by its age, 4 if it was never read, 5 if it is damaged.
fn rank(arena: &ArenaHealth, now: Timestamp) -> usize {
    match arena.read_at {
        _ if arena.is_damaged => 5,
        None => 4,
        Some(at) => {
            let days = now.0.saturating_sub(at.0) / DAY;
            AGES.iter().position(|(end, ..)| days <= *end).unwrap_or(3)
        }
    }
}

const RANKS: [(&str, &str); 6] = [
    (AGES[0].1, AGES[0].2),
    (AGES[1].1, AGES[1].2),
    (AGES[2].1, AGES[2].2),
    (AGES[3].1, AGES[3].2),
    ("never read since it was written", "never"),
    ("damaged", "damaged"),
];

fn ages(arenas: &[ArenaHealth], now: Timestamp) -> Vec<AgeRow> {
    let mut counts = [0_u64; RANKS.len()];
    arenas.iter().for_each(|arena| counts[rank(arena, now)] += 1);
    let all = (arenas.len() as u64).max(1);
    let rows = RANKS.iter().zip(counts).filter(|(_, count)| *count > 0);
    rows.map(|((name, class), count)| AgeRow {
        name,
        class,
        count: show::grouped(count),
        share: format!("{} %", count * 100 / all),
    })
    .collect()
}

/// The number of arenas for a square, and the squares in the order of the log.
fn squares(arenas: &[ArenaHealth], now: Timestamp) -> (usize, Vec<MapSquare>) {
    let a_square = arenas.len().div_ceil(SQUARES_MAX).max(1);
    let squares = arenas.chunks(a_square).enumerate().map(|(number, part)| {
        let worst = part.iter().map(|arena| rank(arena, now)).max().unwrap_or(0);
        MapSquare { x: number % SQUARES_A_LINE * 12, y: number / SQUARES_A_LINE * 12, class: RANKS[worst].1 }
    });
    (a_square, squares.collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(days: Option<i64>, is_damaged: bool) -> ArenaHealth {
        let read_at = days.map(|days| Timestamp(-days * DAY));
        ArenaHealth { name: "arena".into(), read_at, is_damaged }
    }

    #[test]
    fn a_square_shows_the_worst_of_its_arenas() {
        let now = Timestamp(0);
        let mut arenas: Vec<_> = (0..1_500).map(|_| arena(Some(3), false)).collect();
        arenas[0] = arena(Some(60), false);
        arenas[4] = arena(Some(1), true);
        arenas[8] = arena(None, false);
        let (a_square, squares) = squares(&arenas, now);
        assert_eq!((a_square, squares.len()), (3, 500));
        let classes: Vec<_> = squares.iter().take(4).map(|square| square.class).collect();
        assert_eq!(classes, ["age3", "damaged", "never", "age1"]);
        assert_eq!((squares[41].x, squares[41].y), (12, 12));
        let counts: Vec<_> = ages(&arenas, now).into_iter().map(|row| (row.class, row.count)).collect();
        let count = |number: &str| number.to_owned();
        let expected =
            [("age1", count("1,497")), ("age3", count("1")), ("never", count("1")), ("damaged", count("1"))];
        assert_eq!(counts, expected);
    }
}
