//! `varve versions`

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Result, bail};
use serde_json::json;
use varve_archive::Snapshot;
use varve_block::{BlockStore, with_causes};
use varve_content::folder::{LookupError, PathChange, compare_folders};
use varve_content::image::ImagePart;
use varve_content::{Files, Node, NodeKind, Tree};
use varve_replica::HealingStore;
use varve_session::UsageError;

use super::text_lines;
use crate::arguments::VersionsArgs;
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::choosing::place_in_snapshot::{NamedSource, PlaceContent, PlaceInSnapshot};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

pub fn run(invocation: &Invocation, args: &VersionsArgs) -> Result<CommandOutcome> {
    let archive = invocation.session.reading()?;
    let choice = ChosenSnapshots::new(invocation, archive.snapshots(), &args.which);
    let place = choice.place(&args.place)?;
    let Some(newest) = place.what.snapshot() else {
        bail!(UsageError("an archive of vac is a single version: name a snapshot".into()));
    };
    let is_of_series = |one: &&Snapshot| (&one.host, &one.name) == (&newest.host, &newest.name);
    let mut series: Vec<_> = choice.snapshots().iter().copied().filter(is_of_series).collect();
    series.retain(|one| one.time <= newest.time);
    series.sort_by_key(|one| one.time);

    let blocks = archive.blocks();
    let mut outcome = CommandOutcome::Done;
    let mut versions: Vec<PathVersion<'_>> = Vec::new();
    for snapshot in series {
        let state = state_in(snapshot, &place, &blocks, &mut outcome)?;
        match versions.last_mut() {
            Some(version) if version.state.is_same(&state, &*blocks) => {
                version.last = snapshot;
                version.count += 1;
                // The newest node is the cheapest to be compared with the next one.
                version.state = state;
            }
            _ => versions.push(PathVersion { state, first: snapshot, last: snapshot, count: 1 }),
        }
    }
    // Before its first version, there is nothing to tell of a file.
    let known = versions.iter().position(|version| !matches!(version.state, PathState::Absent));
    versions.drain(..known.unwrap_or(versions.len()));
    if versions.is_empty() {
        // The newest snapshot says which part of the path is missing.
        place.content(&blocks)?;
    }
    let outcome = outcome.max(print(invocation, args, &versions));
    invocation.session.report_lost(&blocks);
    Ok(outcome)
}

/// The same content in consecutive snapshots.
struct PathVersion<'a> {
    state: PathState<'a>,
    first: &'a Snapshot,
    last: &'a Snapshot,
    count: u64,
}

enum PathState<'a> {
    /// A file or a folder.
    There {
        files: Box<dyn Files + 'a>,
        node: Box<Node>,
    },
    /// A disk image, or a volume of it as bytes.
    Image(ImagePart),
    Absent,
    Unreadable,
}

impl PathState<'_> {
    fn is_same(&self, other: &Self, blocks: &dyn BlockStore) -> bool {
        match (self, other) {
            (Self::There { files: old, node: one }, Self::There { files: new, node: other }) => {
                let (old, new) = (Tree { files: &**old, root: one }, Tree { files: &**new, root: other });
                let mut is_same = true;
                compare_folders(old, new, &mut |_, change| {
                    is_same = matches!(change, PathChange::Changed { content: false, .. });
                    if is_same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
                is_same
            }
            (Self::Image(one), Self::Image(other)) => {
                let mut is_same = one.size() == other.size();
                // Bytes that cannot be read may differ.
                let compared = one.differences(blocks, other, &mut |_| is_same = false);
                is_same && compared.is_ok()
            }
            (Self::Absent, Self::Absent) | (Self::Unreadable, Self::Unreadable) => true,
            _ => false,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::There { .. } | Self::Image(_) => "there",
            Self::Absent => "absent",
            Self::Unreadable => "unreadable",
        }
    }

    fn size(&self) -> Option<u64> {
        match self {
            Self::There { node, .. } => (node.kind == NodeKind::File).then_some(node.size),
            Self::Image(part) => Some(part.size()),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// Looks up the place in another snapshot of its series. If it cannot be read there, the reason is
/// printed.
fn state_in<'a>(
    snapshot: &Snapshot,
    place: &PlaceInSnapshot<'_>,
    blocks: &'a Arc<HealingStore>,
    outcome: &mut CommandOutcome,
) -> Result<PathState<'a>> {
    let place = PlaceInSnapshot { what: NamedSource::Snapshot(snapshot), path: place.path };
    match place.content_if_there(blocks) {
        Ok(PlaceContent::Node { files, node }) => Ok(PathState::There { files, node }),
        Ok(PlaceContent::Disk(disk)) => Ok(PathState::Image(disk.raw())),
        Ok(PlaceContent::Raw(part)) => Ok(PathState::Image(part)),
        Err(error) => {
            match error.downcast_ref() {
                Some(LookupError::NotFound { .. } | LookupError::NotAFolder { .. }) => Ok(PathState::Absent),
                // No snapshot has such a path.
                Some(LookupError::Upward { .. }) => Err(error),
                _ => {
                    warning!("{}", with_causes(error.as_ref()));
                    *outcome = (*outcome).max(CommandOutcome::of_problem(error.as_ref()));
                    Ok(PathState::Unreadable)
                }
            }
        }
    }
}

fn print(invocation: &Invocation, args: &VersionsArgs, versions: &[PathVersion<'_>]) -> CommandOutcome {
    let mut outcome = CommandOutcome::Done;
    if invocation.json {
        versions.iter().for_each(print_json);
        return outcome;
    }
    let mut table =
        show::table(&["first", "last", "snapshots", "size", "modified", "last snapshot"], &[2, 3]);
    for version in versions {
        let size = match &version.state {
            PathState::Absent => "not there".to_owned(),
            PathState::Unreadable => "unreadable".to_owned(),
            state => state.size().map(show::bytes).unwrap_or_default(),
        };
        let modified = match &version.state {
            PathState::There { node, .. } => moment::show_file_time(node.mtime),
            _ => String::new(),
        };
        table.add_row([
            moment::show(version.first.time),
            moment::show(version.last.time),
            version.count.to_string(),
            size,
            modified,
            show::short_id(&version.last.id.to_string()).to_owned(),
        ]);
    }
    let (heading, rows) = show::heading_and_rows(&table);
    list!("{heading}");
    let before = std::iter::once(None).chain(versions.iter().map(Some));
    for ((row, version), before) in rows.iter().zip(versions).zip(before) {
        list!("{row}");
        let states = before.filter(|_| args.diff).map(|before| (&before.state, &version.state));
        if let Some((
            PathState::There { files: old, node: one },
            PathState::There { files: new, node: other },
        )) = states
        {
            let (old, new) = (Tree { files: &**old, root: one }, Tree { files: &**new, root: other });
            match text_lines::print(old, new) {
                Ok(true) => {}
                Ok(false) => list!("  ~ no text, or too large for a comparison by lines"),
                Err(error) => {
                    warning!("{}", with_causes(error.as_ref()));
                    outcome = outcome.max(CommandOutcome::of_problem(error.as_ref()));
                }
            }
        }
    }
    outcome
}

fn print_json(version: &PathVersion<'_>) {
    let mtime = match &version.state {
        PathState::There { node, .. } => Some(moment::file_time_rfc3339(node.mtime)),
        _ => None,
    };
    say::item(
        "version",
        json!({
            "state": version.state.word(),
            "first": moment::rfc3339(version.first.time),
            "last": moment::rfc3339(version.last.time),
            "first_snapshot": version.first.id.to_string(),
            "last_snapshot": version.last.id.to_string(),
            "snapshots": version.count,
            "size": version.state.size(),
            "mtime": mtime,
        }),
    );
}
