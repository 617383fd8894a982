//! One source: a list of its snapshots, and its days through a year, both with the newest first.

use askama::Template;
use jiff::civil::Date;
use varve_archive::Snapshot;
use varve_world::Timestamp;

use super::job_rows::JobRow;
use super::month_days::{MONTHS, SourceDays, chosen_year};
use super::page::{Frame, PageError, PageHtml};
use super::runs::jobs_of_series;
use super::snapshot_drills::SnapshotDrills;
use super::snapshot_place::address_in;
use crate::archive::snapshot_view::parse_id;
use crate::show;
use crate::site::PageRequest;

/// Snapshots in the list before the calendar, and in the list of a page that continues it.
const FIRST_ROWS_MAX: usize = 10;
const ROWS_MAX: usize = 60;
/// Past jobs of the source.
const JOBS_MAX: usize = 5;

/// A day of a month; without a number it only fills the week.
struct DayCell {
    number: Option<i8>,
    /// The newest snapshot of the day.
    address: Option<String>,
    has_gaps: bool,
    /// A snapshot of the day was restored and compared.
    is_proven: bool,
    count: u64,
}

struct MonthTable {
    number: i8,
    name: &'static str,
    /// Its days that have a snapshot.
    count: u64,
    summary: String,
    weeks: Vec<Vec<DayCell>>,
}

struct SnapshotRow {
    time: String,
    size: String,
    new: String,
    stored: String,
    files: String,
    problems: String,
    look: String,
    short_id: String,
    tags: String,
    comment: String,
    held: String,
    /// The newest drill, if it was successful, or if it failed.
    proven: String,
    failed: String,
}

#[derive(Template)]
#[template(path = "source.html")]
struct SourceTemplate {
    frame: Frame,
    name: String,
    host: String,
    path: String,
    key: String,
    year: i16,
    before: Option<i16>,
    after: Option<i16>,
    /// The newest month first, without those that have no snapshot.
    months: Vec<MonthTable>,
    /// The months between others that have no snapshot.
    without: String,
    rows: Vec<SnapshotRow>,
    next: Option<String>,
    is_continued: bool,
    count: String,
    /// The last jobs of this machine for the source.
    jobs: Vec<JobRow>,
}

/// A source through a year.
pub(crate) fn source(request: &PageRequest) -> Result<PageHtml, PageError> {
    let key = String::from_utf8_lossy(&request.rest("/source/")).into_owned();
    let series = request.view.series_of_key(&key);
    let series = series.ok_or_else(|| PageError::absent("There is no such source in the archive."))?;
    let all = request.view.series(series);
    let newest = all.clone().next_back();
    let (asked, ..) = chosen_year(request);
    // Without a year, that of the newest snapshot.
    let zone = request.zone();
    let year_of = |snapshot: &Snapshot| show::day(snapshot.time, zone).year();
    let year = match (request.value("year"), newest) {
        (None, Some(newest)) => year_of(newest),
        _ => asked,
    };
    let this = show::day(request.now, zone).year();
    let (first, last) = (all.clone().next().map_or(this, year_of), newest.map_or(this, year_of).max(this));
    let of_year = all.clone().filter(|one| year_of(one) == year);
    let drills = SnapshotDrills::known(request);
    let days = SourceDays::with_drills(of_year, zone, |one| drills.proven(&one.id).is_some());
    let (months, without) = month_tables(&days, year);
    let until = request.value("until").and_then(|id| parse_id(&id));
    let until = until.and_then(|id| request.view.snapshot(&id)).map(|snapshot| snapshot.time);
    let chosen =
        all.clone().rev().filter(|one| until.map_or(year_of(one) <= year, |until| one.time <= until));
    let mut chosen = chosen.peekable();
    let rows_max = if until.is_some() { ROWS_MAX } else { FIRST_ROWS_MAX };
    let rows: Vec<_> =
        chosen.by_ref().take(rows_max).map(|one| snapshot_row(request, one, &drills)).collect();
    let next = chosen.peek().map(|next| format!("/source/{key}?year={year}&until={}#list", next.id));
    PageHtml::of(&SourceTemplate {
        frame: Frame::new(request, "/calendar", show::name(series.name.as_bytes())),
        name: show::name(series.name.as_bytes()),
        host: show::name(series.host.as_bytes()),
        path: newest.map_or_else(String::new, |newest| show::name(&newest.source)),
        year,
        before: (year > first).then(|| year - 1),
        after: (year < last).then(|| year + 1),
        months,
        without,
        rows,
        next,
        is_continued: until.is_some(),
        jobs: jobs_of_series(request, &series.host, &series.name, JOBS_MAX),
        count: show::count(all.len() as u64, "snapshot"),
        key,
    })
}

/// The months of a year that have snapshots, the newest first, and the names of the months between
/// them that have none.
fn month_tables(days: &SourceDays<'_>, year: i16) -> (Vec<MonthTable>, String) {
    let all = (1..=12).zip(MONTHS);
    let tables: Vec<_> =
        all.rev().filter_map(|(number, name)| month_table(days, year, number, name)).collect();
    let is_there = |table: &MonthTable| table.count > 0;
    let first = tables.iter().rposition(is_there).map_or(0, |place| place + 1);
    let last = tables.iter().position(is_there).unwrap_or(0);
    let (there, without): (Vec<_>, Vec<_>) = tables.into_iter().take(first).skip(last).partition(is_there);
    let names: Vec<_> = without.iter().rev().map(|table| table.name).collect();
    (there, names.join(", "))
}

fn month_table(days: &SourceDays<'_>, year: i16, number: i8, name: &'static str) -> Option<MonthTable> {
    let first = Date::new(year, number, 1).ok()?;
    let blank = || DayCell { number: None, address: None, has_gaps: false, is_proven: false, count: 0 };
    let lead = usize::try_from(first.weekday().to_monday_zero_offset()).unwrap_or(0);
    let mut cells: Vec<DayCell> = std::iter::repeat_with(blank).take(lead).collect();
    for day in 1..=first.days_in_month() {
        let found = Date::new(year, number, day).ok().and_then(|date| days.day(date));
        cells.push(DayCell {
            number: Some(day),
            address: found.map(|found| address_in("/look/", found.newest, b"")),
            has_gaps: found.is_some_and(|found| found.has_gaps),
            is_proven: found.is_some_and(|found| found.is_proven),
            count: found.map_or(0, |found| found.count),
        });
    }
    while !cells.len().is_multiple_of(7) {
        cells.push(blank());
    }
    let mut weeks = Vec::new();
    let mut left = cells.into_iter().peekable();
    while left.peek().is_some() {
        weeks.push(left.by_ref().take(7).collect());
    }
    let (count, gaps) = days.counts(first);
    let with_gaps = if gaps > 0 { format!(", {gaps} with gaps") } else { String::new() };
    let summary =
        format!("{count} of {}{with_gaps}", show::count(first.days_in_month().unsigned_abs().into(), "day"));
    Some(MonthTable { number, name, count, summary, weeks })
}

fn snapshot_row(request: &PageRequest, snapshot: &Snapshot, drills: &SnapshotDrills) -> SnapshotRow {
    let growth = |of: fn(varve_archive::Growth) -> u64| {
        snapshot.growth.map_or_else(|| "\u{2013}".to_owned(), |growth| show::bytes(of(growth)))
    };
    let holds: Vec<_> = snapshot.holds.iter().map(|hold| show::name(hold.label.as_bytes())).collect();
    let tags: Vec<_> = snapshot.tags.iter().map(|tag| show::name(tag.as_bytes())).collect();
    let day_of = |time: Option<Timestamp>| {
        time.map_or_else(String::new, |time| show::day(time, request.zone()).to_string())
    };
    SnapshotRow {
        time: show::minute(snapshot.time, request.zone()),
        size: show::bytes(snapshot.size),
        new: growth(|growth| growth.new_bytes),
        stored: growth(|growth| growth.stored_bytes),
        files: if snapshot.file_count == 0 { "\u{2013}".into() } else { show::grouped(snapshot.file_count) },
        problems: if snapshot.problem_count == 0 {
            String::new()
        } else {
            show::count(snapshot.problem_count, "problem")
        },
        look: address_in("/look/", snapshot, b""),
        short_id: snapshot.id.to_string().chars().take(8).collect(),
        tags: tags.join(", "),
        comment: show::line(snapshot.comment.as_bytes()),
        held: holds.join(", "),
        proven: day_of(drills.proven(&snapshot.id)),
        failed: day_of(drills.failed(&snapshot.id)),
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use varve_archive::{SnapshotContent, SnapshotId};
    use varve_content::{Node, NodeKind};

    use super::*;

    #[test]
    fn the_newest_month_comes_first_and_empty_ones_are_left_out() {
        // Days of 1970: 2 February, 4 May and 5 May.
        let taken = [32, 123, 124].map(|day| {
            let root = SnapshotContent::Folder(Box::new(Node::new(Vec::new(), NodeKind::Folder)));
            let time = Timestamp(day * 86_400_000_000_000);
            Snapshot::new(SnapshotId([0; 16]), "home".into(), time, root)
        });
        let days = SourceDays::of(taken.iter(), &TimeZone::UTC);
        let (months, without) = month_tables(&days, 1970);
        let names: Vec<_> = months.iter().map(|month| (month.name, month.count)).collect();
        assert_eq!(names, [("May", 2), ("February", 1)]);
        assert_eq!(without, "March, April");
        let (months, without) = month_tables(&days, 1971);
        assert!(months.is_empty() && without.is_empty());
    }
}
