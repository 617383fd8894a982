//! `varve find`

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use globset::{GlobBuilder, GlobMatcher};
use serde_json::Value;
use varve_archive::{Snapshot, SnapshotContent};
use varve_block::{BlockStore, with_causes};
use varve_content::folder::{ListEvent, ListNext, StoredFiles, list, lookup};
use varve_content::image::CachedBlocks;
use varve_content::vac::{VacArchive, VacContent, VacFiles, VacLine};
use varve_content::{Files, ImageFiles, Node};
use varve_replica::HealingStore;
use varve_session::UsageError;
use varve_tree::Entry;

use super::ls;
use super::snapshot_list;
use crate::arguments::FindArgs;
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::choosing::place_in_snapshot;
use crate::command::choosing::place_in_snapshot::{NamedSource, PlaceInSnapshot};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

pub fn run(invocation: &Invocation, args: &FindArgs) -> Result<CommandOutcome> {
    let archive = invocation.session.reading()?;
    let whole_path = args.pattern.contains('/');
    // A pattern with a slash matches at any depth, unless it begins with one.
    let glob = match args.pattern.strip_prefix('/') {
        Some(from_root) => from_root.to_owned(),
        None if whole_path => format!("**/{}", args.pattern),
        None => args.pattern.clone(),
    };
    let pattern = GlobBuilder::new(&glob)
        .literal_separator(true)
        .build()
        .map_err(|error| UsageError(format!("{:?} is not a pattern: {}", args.pattern, error.kind())))?
        .compile_matcher();
    let search = PatternSearch { invocation, pattern, whole_path, long: args.long };
    let choice = ChosenSnapshots::new(invocation, archive.snapshots(), &args.which);
    let places: Vec<PlaceInSnapshot<'_>> = match &args.snapshot {
        Some(text) => vec![choice.place(text)?],
        None => choice.places(),
    };
    let blocks = archive.blocks();
    let cache = Arc::new(CachedBlocks::new(Arc::clone(&blocks) as Arc<dyn BlockStore>));
    let mut outcome = CommandOutcome::Done;
    for place in places {
        let found = match place.what {
            NamedSource::Snapshot(snapshot) => search.snapshot(&blocks, &cache, &place, snapshot),
            NamedSource::Vac(line) => search.vac(&blocks, &cache, &place, &line),
        };
        let found = found.with_context(|| place.name())?;
        outcome = outcome.max(found);
    }
    invocation.session.report_lost(&blocks);
    Ok(outcome)
}

/// Returns a path in a snapshot, given a path below the start of the search.
fn below<'a>(start: &Path, path: &'a Path) -> Cow<'a, Path> {
    match (start.as_os_str().is_empty(), path.as_os_str().is_empty()) {
        (true, _) => Cow::Borrowed(path),
        (false, true) => Cow::Owned(start.to_owned()),
        (false, false) => Cow::Owned(start.join(path)),
    }
}

struct PatternSearch<'a> {
    invocation: &'a Invocation,
    pattern: GlobMatcher,
    whole_path: bool,
    /// Print modes, owners, sizes and times.
    long: bool,
}

impl PatternSearch<'_> {
    /// Prints the matches in one snapshot, or below a path in it. Returns [`CommandOutcome::Gaps`]
    /// or [`CommandOutcome::Damage`] if something was unreadable.
    fn snapshot(
        &self,
        blocks: &Arc<HealingStore>,
        cache: &Arc<CachedBlocks>,
        place: &PlaceInSnapshot<'_>,
        snapshot: &Snapshot,
    ) -> Result<CommandOutcome> {
        match &snapshot.content {
            SnapshotContent::Folder(root) => self.tree(place, &StoredFiles::new(&**blocks), root),
            SnapshotContent::Image(entry) => self.image(place, cache, entry),
        }
    }

    /// Prints the matches in an archive of vac or vbackup.
    fn vac(
        &self,
        blocks: &Arc<HealingStore>,
        cache: &Arc<CachedBlocks>,
        place: &PlaceInSnapshot<'_>,
        line: &VacLine,
    ) -> Result<CommandOutcome> {
        let owners = varve_session::owner_names();
        match VacArchive::open(&**blocks, line, &owners)?.content {
            VacContent::Folder(root) => self.tree(place, &VacFiles::new(&**blocks, owners), &root),
            VacContent::Image(entry) => self.image(place, cache, &entry),
        }
    }

    fn image(
        &self,
        place: &PlaceInSnapshot<'_>,
        cache: &Arc<CachedBlocks>,
        entry: &Entry,
    ) -> Result<CommandOutcome> {
        let disk = ImageFiles::open(Arc::clone(cache), entry);
        let outcome = self.tree(place, &disk, &disk.root());
        place_in_snapshot::warn_of(&disk);
        outcome
    }

    fn tree(&self, place: &PlaceInSnapshot<'_>, files: &dyn Files, root: &Node) -> Result<CommandOutcome> {
        let from = match place.what {
            NamedSource::Snapshot(snapshot) => snapshot.path_within(place.path),
            NamedSource::Vac(_) => Cow::Borrowed(place.path),
        };
        let start = lookup(files, root, &from)?;
        let mut outcome = CommandOutcome::Done;
        list(files, &start, &mut |listed| {
            match listed {
                ListEvent::Node { path, node } => {
                    let path = &below(&from, path);
                    if self.matches(path) {
                        self.print(place.what, path, node);
                    }
                }
                ListEvent::Unreadable { path, error } => {
                    let path = below(&from, path);
                    warning!("{}: {}", show::name(path.as_os_str().as_bytes()), with_causes(error.as_ref()));
                    outcome = outcome.max(CommandOutcome::of_problem(error.as_ref()));
                }
            }
            ListNext::Descend
        });
        Ok(outcome)
    }

    fn matches(&self, path: &Path) -> bool {
        if self.whole_path {
            return self.pattern.is_match(path);
        }
        path.file_name().is_some_and(|name| self.pattern.is_match(Path::new(name)))
    }

    fn print(&self, what: NamedSource<'_>, path: &Path, node: &Node) {
        let path = path.as_os_str().as_bytes();
        if self.invocation.json {
            return say::item("found", found(what, path, node));
        }
        let shown = if self.long { show::long_line(node, path) } else { show::name(path) };
        match what {
            NamedSource::Snapshot(snapshot) => list!(
                "{} {} {}  {shown}",
                snapshot_list::short_id(snapshot),
                moment::show(snapshot.time),
                show::name(snapshot.name.as_bytes()),
            ),
            NamedSource::Vac(line) => list!("{line}  {shown}"),
        }
    }
}

/// Formats a node for programs, with the snapshot in which it was found.
fn found(what: NamedSource<'_>, path: &[u8], node: &Node) -> Value {
    let mut fields = ls::as_json(path, node);
    fields["snapshot"] = what.id().into();
    if let NamedSource::Snapshot(snapshot) = what {
        fields["name"] = snapshot.name.as_str().into();
        fields["time"] = moment::rfc3339(snapshot.time).into();
        fields["host"] = snapshot.host.as_str().into();
        show::put_name(&mut fields, "source", &snapshot.source);
    }
    fields
}
