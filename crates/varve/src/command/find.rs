//! `varve find`

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use globset::{GlobBuilder, GlobMatcher};
use serde_json::json;
use varve_archive::{
    CachedBlocks, Files, ImageFiles, ListNext, Listed, Node, Snapshot, SnapshotContent, StoredFiles, list,
};
use varve_block::BlockStore;
use varve_replica::Healing;

use super::place::place;
use super::{Outcome, ls, snapshots};
use crate::arguments::{Arguments, Find};
use crate::reading::Reading;
use crate::{complaint, moment, session, show};

pub(super) fn run(arguments: &Arguments, words: &Find) -> Result<Outcome> {
    let archive = Reading::open(arguments)?;
    let pattern = GlobBuilder::new(&words.pattern)
        .literal_separator(true)
        .build()
        .with_context(|| format!("{:?} is not a pattern", words.pattern))?
        .compile_matcher();
    let search = Search { arguments, pattern, whole_path: words.pattern.contains('/') };
    let snapshots = match &words.snapshot {
        Some(text) => vec![place(archive.snapshots(), text)?.snapshot],
        None => {
            let mut all: Vec<_> = archive.snapshots().iter().collect();
            all.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.time));
            all
        }
    };
    let blocks = archive.blocks();
    let cache = Arc::new(CachedBlocks::new(Arc::clone(&blocks) as Arc<dyn BlockStore>));
    let mut outcome = Outcome::Done;
    for snapshot in snapshots {
        if search.snapshot(&blocks, &cache, snapshot) == Outcome::Found {
            outcome = Outcome::Found;
        }
    }
    session::report_lost(arguments, &blocks);
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
        match &snapshot.content {
            SnapshotContent::Folder(root) => self.tree(snapshot, &StoredFiles::new(&**blocks), root),
            SnapshotContent::Image(entry) => {
                let disk = ImageFiles::open(Arc::clone(cache), entry);
                self.tree(snapshot, &disk, &disk.root())
            }
        }
    }

    fn tree(&self, snapshot: &Snapshot, files: &dyn Files, root: &Node) -> Outcome {
        let mut outcome = Outcome::Done;
        list(files, root, &mut |listed| {
            match listed {
                Listed::Node { path, node } => {
                    if self.matches(path) {
                        self.print(snapshot, path, node);
                    }
                }
                Listed::Unreadable { path, error } => {
                    eprintln!(
                        "varve: {}: {}",
                        show::name(path.as_os_str().as_bytes()),
                        complaint::chain(&error)
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

    fn print(&self, snapshot: &Snapshot, path: &Path, node: &Node) {
        let path = path.as_os_str().as_bytes();
        if self.arguments.json {
            say!("{}", json!({ "snapshot": snapshot.id.to_string(), "node": ls::as_json(path, node) }));
            return;
        }
        say!(
            "{} {} {}  {}",
            snapshots::short_id(snapshot),
            moment::show(snapshot.time),
            show::name(snapshot.name.as_bytes()),
            show::name(path)
        );
    }
}
