//! Search: names in all snapshots.

use askama::Template;
use varve_archive::NodeKind;

use super::page::{Frame, PageError, PageHtml};
use super::snapshot_place::address_in;
use crate::archive::name_search::find_names;
use crate::archive::snapshot_view::{SeriesName, parse_id};
use crate::show;
use crate::site::PageRequest;

const TEXT_CHARS_MAX: usize = 200;

struct FoundRow {
    name: String,
    folder: String,
    is_folder: bool,
    look: String,
    history: String,
    source: String,
    time: String,
    size: String,
}

struct SourceChoice {
    key: String,
    name: String,
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchTemplate {
    frame: Frame,
    text: String,
    sources: Vec<SourceChoice>,
    rows: Vec<FoundRow>,
    /// A sentence about the result.
    summary: String,
    note: String,
    next: Option<String>,
}

/// Finds a part of a name.
pub(crate) fn search(request: &PageRequest) -> Result<PageHtml, PageError> {
    let text: String = request.value("text").unwrap_or_default().chars().take(TEXT_CHARS_MAX).collect();
    let key = request.value("source").unwrap_or_default();
    let chosen = request.view.series_of_key(&key);
    let sources = request.view.all_series().map(|(series, _)| SourceChoice {
        key: series.key(),
        name: source_name(series),
        is_chosen: Some(series) == chosen,
    });
    let mut page = SearchTemplate {
        frame: Frame::new(request, "/search", "Search"),
        sources: sources.collect(),
        rows: Vec::new(),
        summary: String::new(),
        note: String::new(),
        next: None,
        text,
    };
    if page.text.trim().is_empty() {
        return PageHtml::of(&page);
    }
    let until = request.value("until").and_then(|id| parse_id(&id));
    let until = until.and_then(|id| request.view.snapshot(&id)).map(|snapshot| snapshot.time);
    let snapshots = request.view.snapshots().iter().rev();
    let snapshots = snapshots
        .filter(|one| chosen.is_none_or(|chosen| SeriesName::of(one) == *chosen))
        .filter(|one| until.is_none_or(|until| one.time <= until));
    let result = find_names(&request.site.opener, snapshots, page.text.trim());
    page.rows = result
        .found
        .iter()
        .map(|found| {
            let (folder, name) = match found.path.iter().rposition(|byte| *byte == b'/') {
                Some(at) => (&found.path[..at], &found.path[at + 1..]),
                None => (&[][..], found.path.as_slice()),
            };
            FoundRow {
                name: show::name(name),
                folder: show::name(folder),
                is_folder: found.node.kind == NodeKind::Folder,
                look: address_in("/look/", found.snapshot, &found.path),
                history: address_in("/file/", found.snapshot, &found.path),
                source: source_name(&SeriesName::of(found.snapshot)),
                time: show::minute(found.snapshot.time, request.zone()),
                size: if found.node.kind == NodeKind::File {
                    show::bytes(found.node.size)
                } else {
                    String::new()
                },
            }
        })
        .collect();
    page.summary = format!(
        "{} in {}",
        show::count(result.found.len() as u64, "path"),
        show::count(result.snapshot_count, "snapshot")
    );
    let mut notes = Vec::new();
    if let Some(cut) = result.cut {
        let time = show::minute(cut.time, request.zone());
        notes.push(format!("The snapshot of {time} was searched only in part: search for a longer text."));
    }
    if result.has_gaps {
        notes.push("Some folders could not be read.".to_owned());
    }
    page.note = notes.join(" ");
    page.next = result.next.map(|next| {
        let text = show::query_value(&page.text);
        format!("/search?text={text}&source={}&until={}", show::query_value(&key), next.id)
    });
    PageHtml::of(&page)
}

fn source_name(series: &SeriesName) -> String {
    let name = show::name(series.name.as_bytes());
    match series.host.as_str() {
        "" => name,
        host => format!("{name} on {}", show::name(host.as_bytes())),
    }
}
