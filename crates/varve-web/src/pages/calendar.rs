//! A year at a glance: a row for each source, a cell for each month.

use askama::Template;
use jiff::civil::Date;

use super::month_days::{MONTHS, SourceDays, chosen_year};
use super::page::{Frame, PageError, PageHtml};
use super::snapshot_place::source_address;
use crate::show;
use crate::site::PageRequest;

/// Sources on one page.
const ROWS_MAX: usize = 20;

/// A month of a source.
struct MonthCell {
    address: String,
    name: &'static str,
    days: i8,
    /// The drawings of days with whole snapshots, and of days with gaps.
    there: String,
    gaps: String,
    count: u64,
    gap_count: u64,
}

struct CalendarRow {
    name: String,
    host: String,
    address: String,
    months: Vec<MonthCell>,
}

#[derive(Template)]
#[template(path = "calendar.html")]
struct CalendarTemplate {
    frame: Frame,
    year: i16,
    before: Option<i16>,
    after: Option<i16>,
    months: [&'static str; 12],
    rows: Vec<CalendarRow>,
    next: Option<usize>,
    from: usize,
    count: String,
}

/// All sources through one year.
pub(crate) fn calendar(request: &PageRequest) -> Result<PageHtml, PageError> {
    let (year, before, after) = chosen_year(request);
    let from = request.value("from").and_then(|from| from.parse::<usize>().ok()).unwrap_or(0);
    let all = request.view.all_series().count();
    let mut rows = Vec::new();
    for (series, snapshots) in request.view.all_series().skip(from).take(ROWS_MAX) {
        let of_year = snapshots.filter(|one| show::day(one.time, request.zone()).year() == year);
        let days = SourceDays::of(of_year, request.zone());
        let address = source_address(series, Some(year));
        let months = (1..=12).zip(MONTHS).filter_map(|(month, name)| {
            let first = Date::new(year, month, 1).ok()?;
            let [there, gaps] = days.strips(first, 6);
            let (count, gap_count) = days.counts(first);
            let address = format!("{address}#m{month}");
            Some(MonthCell { address, name, days: first.days_in_month(), there, gaps, count, gap_count })
        });
        rows.push(CalendarRow {
            name: show::name(series.name.as_bytes()),
            host: show::name(series.host.as_bytes()),
            months: months.collect(),
            address,
        });
    }
    let shown = from.saturating_add(rows.len());
    PageHtml::of(&CalendarTemplate {
        frame: Frame::new(request, "/calendar", format!("Calendar {year}")),
        year,
        before,
        after,
        months: MONTHS,
        rows,
        next: (shown < all).then_some(shown),
        from,
        count: show::count(all as u64, "source"),
    })
}
