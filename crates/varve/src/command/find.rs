//! `varve find`

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use globset::{GlobBuilder, GlobMatcher};
use serde_json::json;
use varve_archive::{
    CachedBlocks, Files, ImageFiles, ListNext, Listed, Node, Snapshot, SnapshotContent, StoredFiles, list,
};
use varve_block::BlockStore;
use varve_replica::Healing;

use super::place::place;
use super::{Outcome, ls, place, snapshots};
use crate::arguments::{Arguments, Find, WrongWords};
use crate::{complaint, moment, session, show};

pub(super) fn run(arguments: &Arguments, words: &Find) -> Result<Outcome> {
    let archive = session::read(arguments)?;
    let pattern = GlobBuilder::new(&words.pattern)
        .literal_separator(true)
        .build()
        .map_err(|error| WrongWords(format!("{:?} is not a pattern: {}", words.pattern, error.kind())))?
        .compile_matcher();
    let search = Search { arguments, pattern, whole_path: words.pattern.contains('/') };
    let snapshots = match &words.snapshot {
        Some(text) => vec![place(&archive, text)?.snapshot],
        None => {
            let mut all: Vec<_> = archive.snapshots().iter().collect();
            all.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.time));
            all
        }
    };
    let blocks = session::healing(arguments, &archive);
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
                let outcome = self.tree(snapshot, &disk, &disk.root());
                place::warn_of(&disk);
                outcome
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
                        complaint::chain(error.as_ref())
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
