//! `varve find`

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use globset::{GlobBuilder, GlobMatcher};
use serde_json::json;
use varve_archive::{
    CachedBlocks, Files, ImageFiles, ListNext, Listed, Node, Snapshot, SnapshotContent, StoredFiles,
    VacArchive, VacContent, VacFiles, VacLine, list,
};
use varve_block::{BlockStore, with_causes};
use varve_replica::Healing;
use varve_tree::Entry;

use super::place::{What, place};
use super::{Outcome, ls, place, snapshots};
use crate::arguments::{Arguments, Find, WrongWords};
use crate::reading::Reading;
use crate::{healing, moment, session, show};

pub(super) fn run(arguments: &Arguments, words: &Find) -> Result<Outcome> {
    let archive = Reading::open(arguments)?;
    let pattern = GlobBuilder::new(&words.pattern)
        .literal_separator(true)
        .build()
        .map_err(|error| WrongWords(format!("{:?} is not a pattern: {}", words.pattern, error.kind())))?
        .compile_matcher();
    let search = Search { arguments, pattern, whole_path: words.pattern.contains('/') };
    let places: Vec<What<'_>> = match &words.snapshot {
        Some(text) => vec![place(archive.snapshots(), text)?.what],
        None => {
            let mut all: Vec<_> = archive.snapshots().iter().collect();
            all.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.time));
            all.into_iter().map(What::Snapshot).collect()
        }
    };
    let blocks = archive.blocks();
    let cache = Arc::new(CachedBlocks::new(Arc::clone(&blocks) as Arc<dyn BlockStore>));
    let mut outcome = Outcome::Done;
    for what in places {
        let found = match what {
            What::Snapshot(snapshot) => search.snapshot(&blocks, &cache, snapshot),
            What::Vac(line) => search.vac(&blocks, &cache, &line)?,
        };
        if found == Outcome::Found {
            outcome = Outcome::Found;
        }
    }
    healing::report_lost(arguments, &blocks);
    Ok(outcome)
}

struct Search<'a> {
    arguments: &'a Arguments,
    pattern: GlobMatcher,
    whole_path: bool,
}

impl Search<'_> {
    /// Prints what matches in one snapshot. [`Outcome::Found`]: something could not be read.
    fn snapshot(&self, blocks: &Arc<Healing>, cache: &Arc<CachedBlocks>, snapshot: &Snapshot) -> Outcome {
        let what = What::Snapshot(snapshot);
        match &snapshot.content {
            SnapshotContent::Folder(root) => self.tree(what, &StoredFiles::new(&**blocks), root),
            SnapshotContent::Image(entry) => self.image(what, cache, entry),
        }
    }

    /// The same in what vac or vbackup wrote.
    fn vac(&self, blocks: &Arc<Healing>, cache: &Arc<CachedBlocks>, line: &VacLine) -> Result<Outcome> {
        let (what, owners) = (What::Vac(*line), session::owner_names());
        let found = VacArchive::open(&**blocks, line, &owners).with_context(|| line.to_string())?;
        Ok(match found.content {
            VacContent::Folder(root) => self.tree(what, &VacFiles::new(&**blocks, owners), &root),
            VacContent::Image(entry) => self.image(what, cache, &entry),
        })
    }

    fn image(&self, what: What<'_>, cache: &Arc<CachedBlocks>, entry: &Entry) -> Outcome {
        let disk = ImageFiles::open(Arc::clone(cache), entry);
        let outcome = self.tree(what, &disk, &disk.root());
        place::warn_of(&disk);
        outcome
    }

    fn tree(&self, what: What<'_>, files: &dyn Files, root: &Node) -> Outcome {
        let mut outcome = Outcome::Done;
        list(files, root, &mut |listed| {
            match listed {
                Listed::Node { path, node } => {
                    if self.matches(path) {
                        self.print(what, path, node);
                    }
                }
                Listed::Unreadable { path, error } => {
                    remark!(
                        "varve: {}: {}",
                        show::name(path.as_os_str().as_bytes()),
                        with_causes(error.as_ref())
                    );
                    outcome = Outcome::Found;
                }
            }
            ListNext::Descend
        });
        outcome
    }

    fn matches(&self, path: &Path) -> bool {
        if self.whole_path {
            return self.pattern.is_match(path);
        }
        path.file_name().is_some_and(|name| self.pattern.is_match(Path::new(name)))
    }

    fn print(&self, what: What<'_>, path: &Path, node: &Node) {
        let path = path.as_os_str().as_bytes();
        if self.arguments.json {
            let snapshot = match what {
                What::Snapshot(snapshot) => snapshot.id.to_string(),
                What::Vac(line) => line.to_string(),
            };
            list!("{}", json!({ "snapshot": snapshot, "node": ls::as_json(path, node) }));
            return;
        }
        match what {
            What::Snapshot(snapshot) => list!(
                "{} {} {}  {}",
                snapshots::short_id(snapshot),
                moment::show(snapshot.time),
                show::name(snapshot.name.as_bytes()),
                show::name(path)
            ),
            What::Vac(line) => list!("{line}  {}", show::name(path)),
        }
    }
}
