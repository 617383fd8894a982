//! The number of entries below a folder, and their bytes, counted for a short time only.

use std::time::Duration;

use tokio::time::Instant;
use varve_content::{Files, Node, NodeKind, Nodes};

/// The entries that are counted, and the time for it.
const ENTRIES_MAX: u64 = 20_000;
const TIME_MAX: Duration = Duration::from_millis(40);
/// Deeper folders are not entered.
const DEPTH_MAX: usize = 64;

/// The sums of a folder, or the least that they can be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FolderTotal {
    pub(crate) entries: u64,
    /// The sizes of the files. A file with several names counts with each.
    pub(crate) bytes: u64,
    /// True if there is more, or a part cannot be read.
    pub(crate) is_least: bool,
}

impl FolderTotal {
    /// Counts what is below a folder.
    pub(crate) fn of(files: &dyn Files, folder: &Node) -> Self {
        Self::up_to(|folder| files.nodes(folder), folder, ENTRIES_MAX, Instant::now() + TIME_MAX)
    }

    /// Counts so many entries until a moment. `nodes` lists a folder.
    fn up_to<'f>(
        nodes: impl Fn(&Node) -> Nodes<'f>,
        folder: &Node,
        entries_max: u64,
        until: Instant,
    ) -> Self {
        let mut total = Self::default();
        let mut open = vec![nodes(folder)];
        while let Some(last) = open.last_mut() {
            let Some(node) = last.next() else {
                open.pop();
                continue;
            };
            if total.entries >= entries_max || Instant::now() >= until {
                return Self { is_least: true, ..total };
            }
            let Ok(node) = node else {
                total.is_least = true;
                open.pop();
                continue;
            };
            total.entries += 1;
            match node.kind {
                NodeKind::File => total.bytes = total.bytes.saturating_add(node.size),
                NodeKind::Folder if open.len() < DEPTH_MAX => open.push(nodes(&node)),
                NodeKind::Folder => total.is_least = true,
                _ => {}
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten files of five bytes and a link; in folders called `deep`, also such a folder.
    fn nodes(folder: &Node) -> Nodes<'static> {
        let file = |number: u8| Node { size: 5, ..Node::new(vec![number], NodeKind::File) };
        let link = Node { size: 7, ..Node::new(b"link".to_vec(), NodeKind::SymbolicLink) };
        let below = (folder.name == b"deep").then(|| Node::new(b"deep".to_vec(), NodeKind::Folder));
        Box::new((0..10).map(file).chain([link]).chain(below).map(Ok))
    }

    fn total(folder: &[u8], entries_max: u64) -> FolderTotal {
        let folder = Node::new(folder.to_vec(), NodeKind::Folder);
        FolderTotal::up_to(nodes, &folder, entries_max, Instant::now() + Duration::from_secs(600))
    }

    #[test]
    fn a_total_is_exact_or_the_least() {
        assert_eq!(total(b"flat", 100), FolderTotal { entries: 11, bytes: 50, is_least: false });
        assert_eq!(total(b"flat", 11), FolderTotal { entries: 11, bytes: 50, is_least: false });
        assert_eq!(total(b"flat", 3), FolderTotal { entries: 3, bytes: 15, is_least: true });
        // It ends in folders without an end.
        let deep = total(b"deep", 10_000);
        assert!(deep.is_least && deep.entries == 12 * DEPTH_MAX as u64, "{deep:?}");
        let late = FolderTotal::up_to(nodes, &Node::new(Vec::new(), NodeKind::Folder), 100, Instant::now());
        assert_eq!(late, FolderTotal { entries: 0, bytes: 0, is_least: true });
    }
}
