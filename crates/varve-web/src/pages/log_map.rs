//! A map of the log: each arena is a small cell, by the age of its last reading.
//!
//! The height of a cell tells the same as its colour, and a list tells it in words.

use std::fmt::Write;
use std::time::Duration;

use jiff::tz::TimeZone;
use varve_world::Timestamp;

use crate::show;
use crate::state::log_state::ArenaHealth;

/// The cells of the map. In a longer log, a cell stands for several arenas, and shows the worst of
/// them.
const CELLS_MAX: usize = 10_000;
/// The cells of a line: at least, and at most.
const LINE_CELLS: [usize; 2] = [24, 100];
/// Parts of the log that are listed in words.
const PARTS_MAX: usize = 100;
const DAY: Duration = Duration::from_hours(24);

/// A state of arenas: its upper end in days since the last reading, its name, its class of colour,
/// and the height of its cells in percent.
struct ArenaClass {
    days_max: u64,
    name: &'static str,
    class: &'static str,
    height: u32,
}

/// The states, the best first.
const CLASSES: [ArenaClass; 6] = [
    ArenaClass { days_max: 7, name: "read within a week", class: "age1", height: 85 },
    ArenaClass { days_max: 30, name: "read within 30 days", class: "age2", height: 65 },
    ArenaClass { days_max: 90, name: "read within 90 days", class: "age3", height: 45 },
    ArenaClass { days_max: u64::MAX, name: "read longer ago", class: "age4", height: 28 },
    ArenaClass { days_max: u64::MAX, name: "never read since it was written", class: "never", height: 12 },
    ArenaClass { days_max: u64::MAX, name: "damaged", class: "damaged", height: 85 },
];
const NEVER: usize = 4;
const DAMAGED: usize = 5;

/// Arenas in the same state, counted.
pub(crate) struct AgeRow {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    pub(crate) height: u32,
    pub(crate) count: String,
    pub(crate) share: String,
}

/// All cells of a state, as the strokes of one SVG path.
pub(crate) struct MapStrokes {
    pub(crate) class: &'static str,
    /// The width of the strokes, in hundredths of a cell.
    pub(crate) height: u32,
    pub(crate) path: String,
}

/// Neighbouring arenas in the same state, in words.
pub(crate) struct LogPart {
    pub(crate) first: String,
    pub(crate) last: String,
    pub(crate) count: String,
    pub(crate) state: &'static str,
    /// The oldest reading of them.
    pub(crate) read: String,
}

/// The map of a log.
#[derive(Default)]
pub(crate) struct LogMap {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) strokes: Vec<MapStrokes>,
    /// The crosses of damaged cells.
    pub(crate) crosses: String,
    /// The number of arenas for a cell.
    pub(crate) a_cell: usize,
    pub(crate) ages: Vec<AgeRow>,
    pub(crate) parts: Vec<LogPart>,
    pub(crate) more_parts: String,
}

impl LogMap {
    /// Draws the arenas in the order of the log.
    pub(crate) fn of(arenas: &[ArenaHealth], now: Timestamp, zone: &TimeZone) -> Self {
        let ranks: Vec<_> = arenas.iter().map(|arena| rank(arena, now)).collect();
        let a_cell = arenas.len().div_ceil(CELLS_MAX).max(1);
        let cells: Vec<_> = ranks.chunks(a_cell).filter_map(|part| part.iter().copied().max()).collect();
        let width = square_width(cells.len());
        let (parts, more) = parts(arenas, &ranks, zone);
        Self {
            width,
            height: cells.len().div_ceil(width),
            strokes: strokes(&cells, width),
            crosses: crosses(&cells, width),
            a_cell,
            ages: ages(&ranks),
            parts,
            more_parts: if more > 0 { show::count(more as u64, "more part") } else { String::new() },
        }
    }
}

/// The class of an arena.
fn rank(arena: &ArenaHealth, now: Timestamp) -> usize {
    match arena.read_at {
        _ if arena.is_damaged => DAMAGED,
        None => NEVER,
        Some(at) => {
            let days = now.since(at).as_secs() / DAY.as_secs();
            CLASSES.iter().position(|class| days <= class.days_max).unwrap_or(NEVER)
        }
    }
}

/// The cells of a line, so that the map is about twice as wide as high.
fn square_width(cells: usize) -> usize {
    (cells * 2).isqrt().clamp(LINE_CELLS[0], LINE_CELLS[1])
}

/// Draws equal neighbours of a line as one stroke, which a pattern of dashes divides into cells.
fn strokes(cells: &[usize], width: usize) -> Vec<MapStrokes> {
    let mut paths: [String; CLASSES.len()] = Default::default();
    for (y, line) in cells.chunks(width).enumerate() {
        let mut x = 0;
        for run in line.chunk_by(|one, other| one == other) {
            // Writing to a String cannot fail.
            let _ = write!(paths[run[0]], "M{x} {y}h{}", run.len());
            x += run.len();
        }
    }
    let drawn = CLASSES.iter().zip(paths).filter(|(_, path)| !path.is_empty());
    drawn.map(|(class, path)| MapStrokes { class: class.class, height: class.height, path }).collect()
}

fn crosses(cells: &[usize], width: usize) -> String {
    let mut path = String::new();
    for at in cells.iter().enumerate().filter(|(_, rank)| **rank == DAMAGED).map(|(at, _)| at) {
        let _ = write!(path, "M{}.2 {}m0-.2l.4 .4m0-.4l-.4 .4", at % width, at / width);
    }
    path
}

fn ages(ranks: &[usize]) -> Vec<AgeRow> {
    let mut counts = [0_usize; CLASSES.len()];
    ranks.iter().for_each(|rank| counts[*rank] += 1);
    let all = ranks.len().max(1);
    let rows = CLASSES.iter().zip(counts).filter(|(_, count)| *count > 0);
    rows.map(|(class, count)| AgeRow {
        name: class.name,
        class: class.class,
        height: class.height,
        count: show::grouped(count as u64),
        share: format!("{} %", count * 100 / all),
    })
    .collect()
}

/// The parts of the log in words, and the number of those that are left out.
fn parts(arenas: &[ArenaHealth], ranks: &[usize], zone: &TimeZone) -> (Vec<LogPart>, usize) {
    let mut shown = Vec::new();
    let (mut left, mut count) = (arenas, 0);
    for run in ranks.chunk_by(|one, other| one == other) {
        let (part, rest) = left.split_at(run.len().min(left.len()));
        left = rest;
        count += 1;
        if let (true, [first, ..], [.., last]) = (count <= PARTS_MAX, part, part) {
            let oldest = part.iter().filter_map(|arena| arena.read_at).min();
            shown.push(LogPart {
                first: show::name(first.name.as_bytes()),
                last: if part.len() > 1 { show::name(last.name.as_bytes()) } else { String::new() },
                count: show::count(part.len() as u64, "arena"),
                state: CLASSES[run[0]].name,
                read: oldest.map_or_else(String::new, |oldest| show::minute(oldest, zone)),
            });
        }
    }
    (shown, count.saturating_sub(PARTS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(number: usize, days: Option<u32>, is_damaged: bool) -> ArenaHealth {
        let read_at = days.map(|days| Timestamp(0).minus(DAY * days));
        ArenaHealth { name: format!("arena {number}"), read_at, is_damaged }
    }

    fn map_of(arenas: &[ArenaHealth]) -> LogMap {
        LogMap::of(arenas, Timestamp(0), &TimeZone::UTC)
    }

    #[test]
    fn each_arena_is_a_cell() {
        let days = [Some(3), Some(3), Some(60), Some(1), None, Some(400)];
        let mut arenas: Vec<_> =
            days.iter().enumerate().map(|(number, days)| arena(number, *days, false)).collect();
        arenas[3].is_damaged = true;
        let map = map_of(&arenas);
        assert_eq!((map.width, map.height, map.a_cell), (24, 1, 1));
        let strokes: Vec<_> = map.strokes.iter().map(|one| (one.class, one.path.as_str())).collect();
        let expected = [
            ("age1", "M0 0h2"),
            ("age3", "M2 0h1"),
            ("age4", "M5 0h1"),
            ("never", "M4 0h1"),
            ("damaged", "M3 0h1"),
        ];
        assert_eq!(strokes, expected);
        assert_eq!(map.crosses, "M3.2 0m0-.2l.4 .4m0-.4l-.4 .4");
        let words: Vec<_> =
            map.parts.iter().map(|part| (part.first.as_str(), part.last.as_str(), part.state)).collect();
        assert_eq!(
            words[..2],
            [("arena 0", "arena 1", "read within a week"), ("arena 2", "", "read within 90 days")]
        );
        assert_eq!((words.len(), map.more_parts.as_str()), (5, ""));
        assert_eq!(
            map.ages.iter().map(|row| row.count.as_str()).collect::<Vec<_>>(),
            ["2", "1", "1", "1", "1"]
        );
    }

    #[test]
    fn a_cell_of_a_long_log_shows_the_worst_of_its_arenas() {
        let mut arenas: Vec<_> = (0..30_000).map(|number| arena(number, Some(3), false)).collect();
        arenas[4] = arena(4, Some(1), true);
        let map = map_of(&arenas);
        assert_eq!((map.a_cell, map.width, map.height), (3, 100, 100));
        assert_eq!(map.strokes.last().map(|one| one.path.as_str()), Some("M1 0h1"));
    }

    #[test]
    fn the_map_is_bounded() {
        // The worst log: each arena is in another state than its neighbours.
        let arenas: Vec<_> =
            (0..10_000).map(|number| arena(number, [Some(3), None][number % 2], false)).collect();
        let map = map_of(&arenas);
        let bytes: usize = map.strokes.iter().map(|one| one.path.len()).sum();
        assert!(bytes < 90_000, "{bytes}");
        assert_eq!((map.parts.len(), map.more_parts.as_str()), (PARTS_MAX, "9,900 more parts"));
        let none = map_of(&[]);
        assert!(none.strokes.is_empty() && none.ages.is_empty() && none.height == 0);
    }
}
