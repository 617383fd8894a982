//! Search: names in all snapshots.

use askama::Template;
use varve_archive::{IndexedPath, Snapshot, SnapshotId};
use varve_content::{Node, NodeKind};

use super::page::{Frame, PageError, PageHtml};
use super::snapshot_place::address_in;
use crate::archive::known_names::KnownPaths;
use crate::archive::name_search::find_names;
use crate::archive::place::{Place, PlaceError};
use crate::archive::snapshot_view::{SeriesName, parse_id};
use crate::show;
use crate::site::PageRequest;

const TEXT_CHARS_MAX: usize = 200;
/// Paths on one page.
const FOUND_MAX: usize = 100;
const UNREADABLE_FOLDERS: &str = "Some folders could not be read.";

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
    let after = continued_after(request, chosen);
    let known = match request.value("until") {
        // This search was begun without an index.
        Some(_) => None,
        None => request.site.names.find(
            &request.site.opener,
            &request.view,
            page.text.trim(),
            after.as_ref(),
            FOUND_MAX,
            chosen,
        ),
    };
    match known {
        Some(known) => fill_from_index(request, &mut page, &key, known),
        None => fill_from_walk(request, &mut page, &key, chosen),
    }
    PageHtml::of(&page)
}

/// The last path of the part before, in an address that [`fill_from_index`] made.
fn continued_after(request: &PageRequest, chosen: Option<&SeriesName>) -> Option<IndexedPath> {
    let series = request.value("in").and_then(|key| request.view.series_of_key(&key)).or(chosen)?;
    let path = request.path_value("after")?;
    let (folder, name) = folder_and_name(&path);
    Some(IndexedPath {
        host: series.host.clone(),
        series: series.name.clone(),
        folder: folder.to_vec(),
        name: name.to_vec(),
        snapshot: SnapshotId([0; 16]),
    })
}

/// Shows the paths that the index proposes, after a look at each.
fn fill_from_index(request: &PageRequest, page: &mut SearchTemplate, key: &str, known: KnownPaths) {
    let KnownPaths { found, lacks_newest } = known;
    let mut has_gaps = found.has_gaps;
    for path in &found.paths {
        let Some(snapshot) = request.view.snapshot(&path.snapshot) else { continue };
        let whole = path.path();
        match Place::find(&request.site.opener, snapshot, &whole) {
            Ok(place) => page.rows.push(found_row(request, snapshot, &whole, &place.node)),
            Err(PlaceError::Unreadable(_)) => has_gaps = true,
            // A saved index that was changed proposes paths that are not there.
            Err(PlaceError::Absent(_) | PlaceError::Depth) => {}
        }
    }
    let snapshots = request.view.snapshots().iter();
    let is_searched = |one: &&Snapshot| {
        page.sources.iter().all(|source| !source.is_chosen)
            || page.sources.iter().any(|source| source.is_chosen && source.key == SeriesName::of(one).key())
    };
    page.summary = format!(
        "{} in {}",
        show::count(page.rows.len() as u64, "path"),
        show::count(snapshots.filter(is_searched).count() as u64, "snapshot")
    );
    let mut notes = Vec::new();
    if lacks_newest {
        notes.push("The newest snapshots are not searched yet.");
    }
    if has_gaps {
        notes.push(UNREADABLE_FOLDERS);
    }
    page.note = notes.join(" ");
    page.next = found.paths.last().filter(|_| found.is_cut).map(|last| {
        let series = SeriesName { host: last.host.clone(), name: last.series.clone() };
        let (text, key) = (show::query_value(&page.text), show::query_value(key));
        format!(
            "/search?text={text}&source={key}&in={}&after={}",
            series.key(),
            show::path_link(&last.path())
        )
    });
}

/// Shows the paths that a walk through the snapshots finds in a few seconds.
fn fill_from_walk(request: &PageRequest, page: &mut SearchTemplate, key: &str, chosen: Option<&SeriesName>) {
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
        .map(|found| found_row(request, found.snapshot, &found.path, &found.node))
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
        notes.push(UNREADABLE_FOLDERS.to_owned());
    }
    page.note = notes.join(" ");
    page.next = result.next.map(|next| {
        let text = show::query_value(&page.text);
        format!("/search?text={text}&source={}&until={}", show::query_value(key), next.id)
    });
}

fn found_row(request: &PageRequest, snapshot: &Snapshot, path: &[u8], node: &Node) -> FoundRow {
    let (folder, name) = folder_and_name(path);
    FoundRow {
        name: show::name(name),
        folder: show::name(folder),
        is_folder: node.kind == NodeKind::Folder,
        look: address_in("/look/", snapshot, path),
        history: address_in("/file/", snapshot, path),
        source: source_name(&SeriesName::of(snapshot)),
        time: show::minute(snapshot.time, request.zone()),
        size: if node.kind == NodeKind::File { show::bytes(node.size) } else { String::new() },
    }
}

fn folder_and_name(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

fn source_name(series: &SeriesName) -> String {
    let name = show::name(series.name.as_bytes());
    match series.host.as_str() {
        "" => name,
        host => format!("{name} on {}", show::name(host.as_bytes())),
    }
}
