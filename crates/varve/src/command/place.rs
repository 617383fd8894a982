//! What `SNAPSHOT[:PATH]` names.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use varve_archive::{
    CachedBlocks, Files, ImageFiles, ImagePart, LookupError, Node, Snapshot, SnapshotContent, StoredFiles,
    lookup, select,
};
use varve_block::BlockStore;
use varve_replica::Healing;

use crate::moment;

/// A snapshot and a path in it, as `SNAPSHOT[:PATH]` names them.
pub(super) struct Place<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) path: &'a str,
}

/// Finds what `SNAPSHOT[:PATH]` names.
pub(super) fn place<'a>(snapshots: &'a [Snapshot], text: &'a str) -> Result<Place<'a>> {
    // A time of day has colons too: the path begins after the first one that is not in a time.
    let (name, path) = match text.match_indices(':').find(|(at, _)| !is_in_time(text, *at)) {
        Some((at, _)) => (&text[..at], &text[at + 1..]),
        None => (text, ""),
    };
    let snapshot = select(snapshots, name, &moment::parse_last)?;
    Ok(Place { snapshot, path: path.trim_matches('/') })
}

/// What a place holds.
pub(super) enum Content<'a> {
    /// A whole disk image.
    Disk(ImageFiles),
    /// The bytes of a disk image, or of a volume of one.
    Raw(ImagePart),
    /// A file or a folder, wherever it lies.
    Node { files: Box<dyn Files + 'a>, node: Box<Node> },
}

impl Place<'_> {
    /// Finds what is at this place.
    pub(super) fn content<'a>(&self, blocks: &'a Arc<Healing>) -> Result<Content<'a>> {
        let content = match &self.snapshot.content {
            SnapshotContent::Image(entry) => {
                let below = Arc::clone(blocks) as Arc<dyn BlockStore>;
                self.inside(ImageFiles::open(Arc::new(CachedBlocks::new(below)), entry))
            }
            SnapshotContent::Folder(root) => {
                let files = StoredFiles::new(&**blocks);
                lookup(&files, root, Path::new(self.path))
                    .map(|node| Content::Node { files: Box::new(files), node: Box::new(node) })
            }
        };
        content.with_context(|| format!("{} {}", self.snapshot.name, moment::show(self.snapshot.time)))
    }

    fn inside<'a>(&self, disk: ImageFiles) -> Result<Content<'a>, LookupError> {
        if self.path.is_empty() {
            return Ok(Content::Disk(disk));
        }
        let node = lookup(&disk, &disk.root(), Path::new(self.path))?;
        Ok(match disk.raw_of(&node) {
            Some(part) => Content::Raw(part),
            None => Content::Node { files: Box::new(disk), node: Box::new(node) },
        })
    }
}

/// Whether the colon at `at` stands between two digits, after an `@`.
fn is_in_time(text: &str, at: usize) -> bool {
    let digit = |place: Option<usize>| {
        place.and_then(|place| text.as_bytes().get(place)).is_some_and(u8::is_ascii_digit)
    };
    text[..at].contains('@') && digit(at.checked_sub(1)) && digit(Some(at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_of_times_do_not_begin_a_path() {
        for (text, path_at) in [
            ("web:etc", Some(3)),
            ("web@2026-05-01T23:15:etc/x:y", Some(20)),
            ("web@2026-05-01T23:15:07", None),
            ("12:34", Some(2)),
            ("web", None),
        ] {
            let found = text.match_indices(':').map(|(at, _)| at).find(|at| !is_in_time(text, *at));
            assert_eq!(found, path_at, "{text}");
        }
    }
}
