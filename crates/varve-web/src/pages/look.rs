//! Looking into snapshots: the sources, the folders, and the files in them.

use askama::Template;
use jiff::civil::Date;
use varve_archive::{Snapshot, SnapshotContent};
use varve_block::with_causes;
use varve_content::{ContentKey, Node, NodeKind, as_text};

use super::command::{id_of, restore_command, varve_command};
use super::harm_marks::HarmMarks;
use super::page::{Frame, PageError, PageHtml};
use super::snapshot_line::SnapshotLine;
use super::snapshot_place::{PathStep, SnapshotPlace, address_in, source_address};
use super::unarchived::{UnarchivedSource, unarchived_sources};
use crate::archive::folder_changes::{FolderOf, FolderPart, FolderRow, RowChange, folder_part};
use crate::archive::folder_total::FolderTotal;
use crate::archive::open_files::OpenFiles;
use crate::archive::picture::Picture;
use crate::archive::place::{Place, read_start};
use crate::archive::snapshot_view::SeriesName;
use crate::show;
use crate::site::PageRequest;

/// The names of a folder on one page.
const ROWS_MAX: usize = 200;
/// The bytes of a file that are shown.
const PREVIEW_BYTES: u64 = 64 << 10;
/// The lines and the characters that are shown of them.
const PREVIEW_LINES: usize = 1_000;
const PREVIEW_CHARS: usize = 48 << 10;

/// The newest snapshot of a source, up to a day.
struct SourceRow {
    name: String,
    host: String,
    kind: &'static str,
    time: String,
    age: String,
    size: String,
    count: String,
    look: String,
    all: String,
    has_problems: bool,
}

#[derive(Template)]
#[template(path = "sources.html")]
struct SourcesTemplate {
    frame: Frame,
    rows: Vec<SourceRow>,
    /// The sources of the configuration that have no snapshot.
    without: Vec<UnarchivedSource>,
    /// The chosen day, or nothing.
    day: String,
    today: String,
}

/// All sources, each with its newest snapshot, or with the newest of a day.
pub(crate) fn sources(request: &PageRequest) -> Result<PageHtml, PageError> {
    let day = request.value("day").and_then(|day| day.parse::<Date>().ok());
    let is_until =
        |snapshot: &&Snapshot| day.is_none_or(|day| show::day(snapshot.time, request.zone()) <= day);
    let mut rows = Vec::new();
    for (series, snapshots) in request.view.all_series() {
        let count = snapshots.len() as u64;
        if let Some(newest) = snapshots.rev().find(is_until) {
            rows.push(source_row(request, series, newest, count));
        }
    }
    let frame = Frame::new(request, "/look", "Look");
    let day = day.map_or_else(String::new, |day| day.to_string());
    let today = show::day(request.now, request.zone()).to_string();
    let without = if day.is_empty() { unarchived_sources(request) } else { Vec::new() };
    PageHtml::of(&SourcesTemplate { frame, rows, without, day, today })
}

fn source_row(request: &PageRequest, series: &SeriesName, newest: &Snapshot, count: u64) -> SourceRow {
    SourceRow {
        name: show::name(series.name.as_bytes()),
        host: show::name(series.host.as_bytes()),
        kind: kind_of(newest),
        time: show::minute(newest.time, request.zone()),
        age: show::age(newest.time, request.now),
        size: show::bytes(newest.size),
        count: show::count(count, "snapshot"),
        look: address_in("/look/", newest, b""),
        all: source_address(series, None),
        has_problems: newest.problem_count > 0,
    }
}

fn kind_of(snapshot: &Snapshot) -> &'static str {
    match (&snapshot.content, &snapshot.file) {
        (SnapshotContent::Image(_), _) => "disk",
        (SnapshotContent::Folder(_), Some(_)) => "file",
        (SnapshotContent::Folder(_), None) => "folder",
    }
}

/// A name in a folder.
struct NameRow {
    name: String,
    address: String,
    is_folder: bool,
    /// The kind, if it is no file and no folder, with the target of a link.
    about: String,
    size: String,
    time: String,
    change: &'static str,
    change_class: &'static str,
    problem: Option<String>,
    /// Empty if no part of it is known to be lost.
    harm: &'static str,
}

#[derive(Template)]
#[template(path = "folder.html")]
struct FolderTemplate {
    frame: Frame,
    line: SnapshotLine,
    steps: Vec<PathStep>,
    rows: Vec<NameRow>,
    /// The address of the next names.
    next: Option<String>,
    is_continued: bool,
    first: String,
    problem: Option<String>,
    notes: Vec<String>,
    /// The entries in the folder and below it, and their bytes.
    total: String,
    tar: String,
    zip: String,
    history: Option<String>,
    compares: bool,
    /// Restores this folder.
    command: String,
    /// Commands that use a whole disk, with a sentence about each.
    disk_uses: Vec<(&'static str, String)>,
}

#[derive(Template)]
#[template(path = "file.html")]
struct FileTemplate {
    frame: Frame,
    line: SnapshotLine,
    steps: Vec<PathStep>,
    facts: Vec<(&'static str, String)>,
    problem: Option<String>,
    harm: Option<String>,
    preview: Option<String>,
    preview_note: String,
    picture: Option<(String, Picture)>,
    download: Option<String>,
    history: String,
    inside: Option<String>,
    command: String,
}

/// A folder or a file in a snapshot.
pub(crate) fn place(request: &PageRequest) -> Result<PageHtml, PageError> {
    let at = SnapshotPlace::parse(request, "/look/")?;
    let place = at.find(request)?;
    match place.node.kind {
        NodeKind::Folder => folder(request, &at, &place),
        _ => file(request, &at, &place),
    }
}

fn folder(request: &PageRequest, at: &SnapshotPlace<'_>, place: &Place) -> Result<PageHtml, PageError> {
    let first = request.path_value("from").unwrap_or_default();
    let earlier = earlier_folder(request, at, place);
    let part = place.files.with(|files| {
        let now = FolderOf { files, node: &place.node };
        match &earlier {
            Some((_, before)) => before.files.with(|files| {
                folder_part(now, Some(FolderOf { files, node: &before.node }), &first, ROWS_MAX)
            }),
            None => folder_part(now, None, &first, ROWS_MAX),
        }
    });
    let FolderPart { rows, next, problem } = part;
    if let (Some(problem), true) = (&problem, rows.is_empty()) {
        return Err(at.unreadable(request, problem));
    }
    let here = at.path.strip_suffix(b"/").unwrap_or(&at.path);
    let marks = HarmMarks::of(request);
    let row = |row: &FolderRow| {
        let slash: &[u8] = if here.is_empty() { b"" } else { b"/" };
        let path = [here, slash, &row.node.name].concat();
        let of = match (row.change, &earlier) {
            (RowChange::Removed, Some((snapshot, _))) => snapshot,
            _ => at.snapshot,
        };
        let harm = if place.is_in_disk { "" } else { marks.of_name(of, &path, row.node.kind) };
        NameRow { harm, ..name_row(request, place, &row.node, row.change, address_in("/look/", of, &path)) }
    };
    let mut shown: Vec<NameRow> = rows.iter().map(row).collect();
    let mut notes = disk_notes(place, at, &mut shown, &first);
    notes.extend(marks.warning(at.snapshot, here, place.is_in_disk));
    let title = at.steps().last().map_or_else(String::new, |step| step.name.clone());
    let next = next.map(|name| format!("{}?from={}", at.address("/look/"), show::path_link(&name)));
    PageHtml::with_commands(&FolderTemplate {
        frame: Frame::new(request, "/look", title),
        line: SnapshotLine::of(request, at, "/look/", &marks),
        steps: at.steps(),
        total: total(place, here, first.is_empty()),
        rows: shown,
        next,
        is_continued: !first.is_empty(),
        first: show::name(&first),
        problem: problem.map(|problem| show::line(problem.as_bytes())),
        notes,
        tar: at.address("/tar/"),
        zip: at.address("/zip/"),
        history: (!here.is_empty()).then(|| at.address("/file/")),
        compares: earlier.is_some(),
        command: restore_command(request, at.snapshot, &at.path),
        disk_uses: disk_uses(request, at),
    })
}

/// The entries in a folder and below it, and their bytes. At the top of a snapshot, the line about
/// it has them.
fn total(place: &Place, path: &[u8], is_first: bool) -> String {
    if path.is_empty() || !is_first {
        return String::new();
    }
    let FolderTotal { entries, bytes, is_least } =
        place.files.with(|files| FolderTotal::of(files, &place.node));
    let least = if is_least { "at least " } else { "" };
    format!("{least}{}, {}", show::count(entries, "entry"), show::bytes(bytes))
}

/// The commands that use the disk of a snapshot, to be pasted into a shell.
fn disk_uses(request: &PageRequest, at: &SnapshotPlace<'_>) -> Vec<(&'static str, String)> {
    let SnapshotContent::Image(_) = at.snapshot.content else { return Vec::new() };
    if !at.path.is_empty() {
        return Vec::new();
    }
    let id = id_of(at.snapshot);
    let id = id.as_bytes();
    vec![
        ("Boot it in an emulator, without changing it:", varve_command(request, &[b"boot", id])),
        (
            "Serve it as a network block device, read-only:",
            varve_command(request, &[b"serve", b"--nbd", b"127.0.0.1:10809", b"--export", id]),
        ),
        ("Restore all its bytes:", varve_command(request, &[b"restore", id, b"./disk.raw"])),
    ]
}

/// The same folder in the snapshot before. Disks are not compared: to open one takes long.
fn earlier_folder<'a>(
    request: &'a PageRequest,
    at: &SnapshotPlace<'_>,
    place: &Place,
) -> Option<(&'a Snapshot, Place)> {
    if place.is_in_disk {
        return None;
    }
    let (before, _) = request.view.neighbours(at.snapshot);
    let before = before?;
    let earlier = SnapshotPlace { snapshot: before, path: at.path.clone() }.find(request).ok()?;
    (earlier.node.kind == NodeKind::Folder && !earlier.is_in_disk).then_some((before, earlier))
}

fn name_row(
    request: &PageRequest,
    place: &Place,
    node: &Node,
    change: RowChange,
    address: String,
) -> NameRow {
    let about = match node.kind {
        NodeKind::File | NodeKind::Folder => String::new(),
        NodeKind::SymbolicLink => format!("\u{2192} {}", show::name(&node.target)),
        kind => kind.to_string(),
    };
    let problem = place
        .files
        .with(|files| files.problem(node))
        .map(|problem| show::line(with_causes(problem.error.as_ref()).as_bytes()));
    let (change, change_class) = match change {
        RowChange::New => ("new", "new"),
        RowChange::Changed => ("changed", "changed"),
        RowChange::Removed => ("removed", "removed"),
        RowChange::Same | RowChange::Unknown => ("", ""),
    };
    NameRow {
        name: show::name(&node.name),
        address,
        is_folder: node.kind == NodeKind::Folder,
        about,
        size: if node.kind == NodeKind::File { show::bytes(node.size) } else { String::new() },
        time: show::file_time(node.mtime, request.zone()),
        change,
        change_class,
        problem,
        harm: "",
    }
}

/// Adds the bytes of the whole disk to the volumes of a disk, and returns notes about them.
fn disk_notes(place: &Place, at: &SnapshotPlace<'_>, rows: &mut Vec<NameRow>, first: &[u8]) -> Vec<String> {
    let OpenFiles::Disk(disk) = &place.files else { return Vec::new() };
    if place.node != disk.root() || !first.is_empty() {
        return Vec::new();
    }
    let volumes: Vec<_> = disk.volumes().collect();
    for row in rows.iter_mut() {
        row.time.clear();
        if let Some(found) = volumes.iter().find(|found| found.volume.name() == row.name) {
            let label = found.volume.label().unwrap_or_default();
            let quoted = if label.is_empty() {
                String::new()
            } else {
                format!(" \u{201c}{}\u{201d}", show::name(label.as_bytes()))
            };
            row.about = format!("{}{quoted}", found.volume.content());
            row.size = show::bytes(found.volume.size());
        }
    }
    let slash: &[u8] = if at.path.is_empty() || at.path.ends_with(b"/") { b"" } else { b"/" };
    rows.push(NameRow {
        name: "disk.raw".into(),
        address: address_in("/look/", at.snapshot, &[&at.path, slash, &b"disk.raw"[..]].concat()),
        is_folder: false,
        about: "all bytes of the disk".into(),
        size: show::bytes(disk.raw().size()),
        time: String::new(),
        change: "",
        change_class: "",
        problem: None,
        harm: "",
    });
    let problems = disk.problems().iter().map(|problem| show::line(problem.to_string().as_bytes()));
    let warnings =
        disk.warnings().map(|(volume, warning)| show::line(format!("{volume}: {warning}").as_bytes()));
    problems.chain(warnings).collect()
}

fn file(request: &PageRequest, at: &SnapshotPlace<'_>, place: &Place) -> Result<PageHtml, PageError> {
    let node = &place.node;
    let zone = request.zone();
    let mut facts = vec![("Kind", node.kind.to_string())];
    if node.kind == NodeKind::File {
        facts.push(("Size", format!("{} ({})", show::bytes(node.size), show::count(node.size, "byte"))));
    }
    if node.kind == NodeKind::SymbolicLink {
        facts.push(("Target", show::name(&node.target)));
    }
    facts.push(("Changed", show::file_time(node.mtime, zone)));
    facts.push(("Mode", format!("{} ({:04o})", node.symbolic_mode(), node.mode)));
    // A snapshot has no names of users, and those of this machine may be other ones.
    facts.push(("Owner", format!("uid {}, gid {}", node.uid, node.gid)));
    if !node.xattrs.is_empty() {
        let names: Vec<_> = node.xattrs.iter().map(|xattr| show::name(&xattr.name)).collect();
        facts.push(("Attributes", names.join(", ")));
    }
    let problem = place
        .files
        .with(|files| files.problem(node))
        .map(|problem| show::line(with_causes(problem.error.as_ref()).as_bytes()));
    let is_file = node.kind == NodeKind::File;
    let picture = place.picture();
    let (preview, preview_note) = match picture {
        None if is_file => preview(place),
        _ => (None, String::new()),
    };
    let marks = HarmMarks::of(request);
    let title = at.steps().last().map_or_else(String::new, |step| step.name.clone());
    PageHtml::with_commands(&FileTemplate {
        frame: Frame::new(request, "/look", title),
        line: SnapshotLine::of(request, at, "/look/", &marks),
        harm: marks.warning(at.snapshot, &at.path, place.is_in_disk),
        steps: at.steps(),
        facts,
        problem,
        preview,
        preview_note,
        picture: picture.map(|picture| (at.address("/picture/"), picture)),
        download: is_file.then(|| at.address("/download/")),
        history: at.address("/file/"),
        command: restore_command(request, at.snapshot, &at.path),
        inside: place.disk(&request.site.opener).map(|_| format!("{}/", at.address("/look/"))),
    })
}

/// The beginning of a file, if it is text, and a note about it.
fn preview(place: &Place) -> (Option<String>, String) {
    let node = &place.node;
    if node.size == 0 {
        return (None, "The file is empty.".into());
    }
    let is_raw = place.files.with(|files| matches!(files.content_key(node), ContentKey::Image(_)));
    if is_raw {
        return (None, "These are the bytes of a disk.".into());
    }
    let start = match place.files.with(|files| read_start(files, node, PREVIEW_BYTES)) {
        Ok(start) => start,
        Err(error) => {
            let reason = show::line(with_causes(error.as_ref()).as_bytes());
            return (None, format!("The file cannot be read: {reason}"));
        }
    };
    let Some(text) = as_text(&start) else {
        return (None, "The file is neither text nor a picture that this page shows.".into());
    };
    let (mut shown, mut is_cut) = (String::new(), node.size > start.len() as u64);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let line = show::text_line(line);
        if number >= PREVIEW_LINES || shown.len() + line.len() > PREVIEW_CHARS {
            is_cut = true;
            break;
        }
        shown.push_str(&line);
        shown.push('\n');
    }
    let note = if is_cut { "This is the beginning of the file." } else { "" };
    (Some(shown), note.into())
}
