//! One path through all snapshots of its source, and the difference of two of its versions.

use askama::Template;
use varve_block::with_causes;
use varve_content::{ContentKey, DifferenceLine, LineKind, NodeKind, as_text, text_difference};

use super::command::restore_command;
use super::harm_marks::HarmMarks;
use super::page::{Frame, PageError, PageHtml};
use super::snapshot_line::SnapshotLine;
use super::snapshot_place::{PathStep, SnapshotPlace, address_in};
use crate::archive::place::{Place, read_start};
use crate::archive::snapshot_view::parse_id;
use crate::archive::versions::{FileVersion, VersionState, file_history};
use crate::show;
use crate::site::PageRequest;

/// Larger texts are not compared.
const COMPARED_BYTES_MAX: u64 = 1 << 20;
/// The text of a difference that is shown.
const SHOWN_BYTES_MAX: usize = 64 << 10;

struct VersionRow {
    /// The state in one word, or the size.
    size: String,
    time: String,
    first: String,
    last: String,
    count: String,
    is_there: bool,
    note: String,
    /// Empty if no part of it is known to be lost.
    harm: &'static str,
    look: String,
    download: Option<String>,
    difference: Option<String>,
}

#[derive(Template)]
#[template(path = "versions.html")]
struct VersionsTemplate {
    frame: Frame,
    line: SnapshotLine,
    steps: Vec<PathStep>,
    rows: Vec<VersionRow>,
    next: Option<String>,
    is_continued: bool,
    is_in_disk: bool,
    command: String,
}

/// The versions of a path, the newest first.
pub(crate) fn versions(request: &PageRequest) -> Result<PageHtml, PageError> {
    let at = SnapshotPlace::parse(request, "/file/")?;
    let before = request.value("until").and_then(|id| parse_id(&id));
    let newest = before.and_then(|id| request.view.snapshot(&id));
    let series = request.view.series(&at.series()).rev();
    let chosen = series.skip_while(|snapshot| newest.is_some_and(|newest| newest.id != snapshot.id));
    let history = file_history(&request.site.opener, chosen, &at.path);
    let is_in_disk = history.versions.iter().any(|version| match &version.state {
        VersionState::There { files, node } => {
            files.with(|files| !matches!(files.content_key(node), ContentKey::Stored(_)))
        }
        _ => false,
    });
    let (versions, marks) = (&history.versions, HarmMarks::of(request));
    let rows = versions
        .iter()
        .enumerate()
        .map(|(number, version)| version_row(request, &at, &marks, version, versions.get(number + 1)));
    let next = history.next.map(|next| format!("{}?until={}", at.address("/file/"), next.id));
    let title = at.steps().last().map_or_else(String::new, |step| step.name.clone());
    PageHtml::with_commands(&VersionsTemplate {
        rows: rows.collect(),
        frame: Frame::new(request, "/look", format!("Versions of {title}")),
        line: SnapshotLine::of(request, &at, "/file/", &marks),
        steps: at.steps(),
        next,
        is_continued: newest.is_some(),
        is_in_disk,
        command: restore_command(request, at.snapshot, &at.path),
    })
}

fn version_row(
    request: &PageRequest,
    at: &SnapshotPlace<'_>,
    marks: &HarmMarks,
    version: &FileVersion<'_>,
    older: Option<&FileVersion<'_>>,
) -> VersionRow {
    let zone = request.zone();
    let (size, time, note, kind) = match &version.state {
        VersionState::There { node, .. } => {
            let size = match node.kind {
                NodeKind::File => show::bytes(node.size),
                kind => kind.to_string(),
            };
            (size, show::file_time(node.mtime, zone), String::new(), Some(node.kind))
        }
        VersionState::Absent => ("not there".into(), String::new(), String::new(), None),
        VersionState::Unreadable(reason) => {
            ("unreadable".into(), String::new(), show::line(reason.as_bytes()), None)
        }
    };
    let is_file = |version: &FileVersion<'_>| matches!(&version.state, VersionState::There { node, .. } if node.kind == NodeKind::File);
    let difference = older.filter(|older| is_file(version) && is_file(older)).map(|older| {
        format!("{}?from={}", address_in("/difference/", version.last, &at.path), older.last.id)
    });
    VersionRow {
        size,
        time,
        first: show::minute(version.first.time, zone),
        last: show::minute(version.last.time, zone),
        count: show::count(version.snapshot_count, "snapshot"),
        is_there: kind.is_some(),
        note,
        harm: kind.map_or("", |kind| marks.of_name(version.last, &at.path, kind)),
        look: address_in("/look/", version.last, &at.path),
        download: (kind == Some(NodeKind::File)).then(|| address_in("/download/", version.last, &at.path)),
        difference,
    }
}

struct ShownLine {
    class: &'static str,
    sign: &'static str,
    text: String,
}

#[derive(Template)]
#[template(path = "difference.html")]
struct DifferenceTemplate {
    frame: Frame,
    steps: Vec<PathStep>,
    old: String,
    new: String,
    versions: String,
    note: String,
    lines: Vec<ShownLine>,
}

/// The lines in which a file differs from an older version.
pub(crate) fn difference(request: &PageRequest) -> Result<PageHtml, PageError> {
    let at = SnapshotPlace::parse(request, "/difference/")?;
    let from = request.value("from").and_then(|id| parse_id(&id));
    let older = from.and_then(|id| request.view.snapshot(&id));
    let older = older.ok_or_else(|| PageError::absent("There is no such older snapshot."))?;
    let older = SnapshotPlace { snapshot: older, path: at.path.clone() };
    let new = text_at(request, &at)?;
    let old = text_at(request, &older)?;
    let (lines, note) = match (&old, &new) {
        (Some(old), Some(new)) => {
            let (lines, is_cut) = text_difference(old, new, SHOWN_BYTES_MAX, &show::text_line);
            let note = match (lines.is_empty(), is_cut) {
                (true, _) => "The two versions have the same text.",
                (false, true) => "These are the first differences. There are more.",
                (false, false) => "",
            };
            (lines, note.to_owned())
        }
        _ => {
            let limit = show::bytes(COMPARED_BYTES_MAX);
            (
                Vec::new(),
                format!("Only texts of at most {limit} are compared. Download both versions instead."),
            )
        }
    };
    let title = at.steps().last().map_or_else(String::new, |step| step.name.clone());
    PageHtml::of(&DifferenceTemplate {
        frame: Frame::new(request, "/look", format!("Difference of {title}")),
        old: show::minute(older.snapshot.time, request.zone()),
        new: show::minute(at.snapshot.time, request.zone()),
        versions: at.address("/file/"),
        steps: at.steps(),
        note,
        lines: lines.into_iter().map(shown).collect(),
    })
}

fn shown(line: DifferenceLine) -> ShownLine {
    let (class, sign) = match line.kind {
        LineKind::Same => ("", " "),
        LineKind::Removed => ("del", "\u{2212}"),
        LineKind::Added => ("ins", "+"),
        LineKind::Gap => ("gap", "\u{22ef}"),
    };
    ShownLine { class, sign, text: line.text }
}

/// The text of a file; `None` if it is not a short text.
fn text_at(request: &PageRequest, at: &SnapshotPlace<'_>) -> Result<Option<String>, PageError> {
    let place: Place = at.find(request)?;
    if place.node.kind != NodeKind::File {
        return Err(PageError::absent("Only files can be compared."));
    }
    if place.node.size > COMPARED_BYTES_MAX {
        return Ok(None);
    }
    let bytes = place.files.with(|files| read_start(files, &place.node, COMPARED_BYTES_MAX));
    let bytes = bytes.map_err(|error| at.unreadable(request, &with_causes(error.as_ref())))?;
    Ok(as_text(&bytes).map(str::to_owned))
}
