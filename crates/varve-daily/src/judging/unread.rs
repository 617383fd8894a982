//! Files that could not be read in several snapshots in a row.

use std::collections::BTreeMap;

use varve_archive::{Archive, SnapshotContent};
use varve_block::{BlockStore, visible};
use varve_content::NodeProblem;
use varve_content::folder::{ListEvent, ListNext, StoredFiles, list};

use super::facts::{SnapshotFact, StoreFacts};
use super::series::is_of_source;
use crate::config::DailyConfig;

/// A file that was unreadable in this many snapshots in a row breaks the promise of its source.
pub const UNREAD_NIGHTS: usize = 3;
/// The number of files that are named.
const EXAMPLES_MAX: usize = 3;
/// A snapshot with more unreadable files is looked at only so far.
const FILES_MAX: usize = 100_000;

/// Files that could not be read in the last snapshots of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnreadFiles {
    pub count: usize,
    /// The first of their paths.
    pub examples: Vec<String>,
}

/// Returns for each source of a store the files that were unreadable in each of its last snapshots.
/// Snapshots are walked only if each of the last ones has problems.
#[must_use]
pub fn unread_files(
    config: &DailyConfig,
    host: &str,
    store_name: &str,
    archive: &Archive,
    facts: &StoreFacts,
) -> BTreeMap<String, UnreadFiles> {
    let mut found = BTreeMap::new();
    for (name, source) in config.sources.iter().filter(|(_, source)| source.store == store_name) {
        let own = facts.snapshots.iter().filter(|one| is_of_source(config, host, (name, source), one));
        let mut newest: Vec<&SnapshotFact> = own.collect();
        newest.sort_by_key(|one| std::cmp::Reverse(one.time));
        newest.truncate(UNREAD_NIGHTS);
        if newest.len() < UNREAD_NIGHTS || newest.iter().any(|one| one.problem_count == 0) {
            continue;
        }
        let mut counts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for one in newest {
            for path in unread_in(archive, one) {
                *counts.entry(path).or_default() += 1;
            }
        }
        let each_time: Vec<_> =
            counts.into_iter().filter(|(_, count)| *count == UNREAD_NIGHTS).map(|(path, _)| path).collect();
        if !each_time.is_empty() {
            let shown = |path: &Vec<u8>| visible(&String::from_utf8_lossy(path));
            let examples = each_time.iter().take(EXAMPLES_MAX).map(shown).collect();
            found.insert(name.clone(), UnreadFiles { count: each_time.len(), examples });
        }
    }
    found
}

/// Lists the files that a snapshot of a folder could not read.
fn unread_in(archive: &Archive, fact: &SnapshotFact) -> Vec<Vec<u8>> {
    let snapshot = archive.snapshots().iter().find(|snapshot| snapshot.id == fact.id);
    let Some(SnapshotContent::Folder(root)) = snapshot.map(|snapshot| &snapshot.content) else {
        return Vec::new();
    };
    let blocks: &dyn BlockStore = archive.store();
    let mut unread = Vec::new();
    list(&StoredFiles::new(blocks), root, &mut |event| {
        if let ListEvent::Node { path, node } = event
            && node.problem == Some(NodeProblem::Unreadable)
        {
            unread.push(path.as_os_str().as_encoded_bytes().to_vec());
            if unread.len() >= FILES_MAX {
                return ListNext::Stop;
            }
        }
        ListNext::Descend
    });
    unread
}
