//! The index of names proposes exactly the paths that a walk finds, each in the newest listed
//! snapshot that has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use varve_archive::{
    IndexedPath, NameIndex, NamesUpdate, OpenedSnapshot, Snapshot, SnapshotContent, SnapshotId,
};
use varve_block::MemoryBlockStore;
use varve_content::folder::{FolderOptions, ListEvent, ListNext, StoredFiles, Watch, archive_folder, list};
use varve_content::{Node, Progress};
use varve_world::{InlineWorkers, Timestamp};

/// A folder to archive, and the blocks of its archives.
struct Place {
    blocks: MemoryBlockStore,
    source: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { blocks: MemoryBlockStore::new(), source: tempfile::tempdir().unwrap() }
    }

    fn source(&self) -> &Path {
        self.source.path()
    }

    /// Makes a file of the source, and its parent folders.
    fn file(&self, path: &str, text: &str) {
        let path = self.source().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }

    /// Archives the source, and returns its root.
    fn archive(&self) -> Node {
        let progress = Progress::new();
        let watch = Watch { progress: &progress, report: &|problem| panic!("{problem}") };
        let options = FolderOptions::default();
        archive_folder(&self.blocks, &InlineWorkers, self.source(), None, &options, watch).unwrap().root
    }
}

/// A change of the source between two snapshots.
#[derive(Debug, Clone)]
enum TreeChange {
    /// Makes a file, and the folders above it.
    Add(usize),
    /// Removes a file, or a folder with everything in it.
    Remove(usize),
}

const PATHS: [&str; 9] = [
    "a",
    "notes/a",
    "notes/letter",
    "notes/old/Letter",
    "notes.txt",
    "src/notes/a",
    "src/notes/deep/er/letter",
    "notes",
    "src",
];

fn tree_change() -> impl Strategy<Value = TreeChange> {
    (0..PATHS.len(), any::<bool>())
        .prop_map(|(at, adds)| if adds { TreeChange::Add(at) } else { TreeChange::Remove(at) })
}

fn change(place: &Place, changed: &TreeChange) {
    match changed {
        TreeChange::Add(at) => {
            let path = place.source().join(PATHS[*at]);
            let blocked = path.ancestors().skip(1).any(|above| above.is_file());
            if !path.exists() && !blocked {
                place.file(PATHS[*at], "text");
            }
        }
        TreeChange::Remove(at) => {
            let path = place.source().join(PATHS[*at]);
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

fn snapshot(number: u8, root: Node) -> Snapshot {
    let (id, time) = (SnapshotId([number; 16]), Timestamp(i64::from(number)));
    let content = SnapshotContent::Folder(Box::new(root));
    Snapshot { host: "web1".into(), ..Snapshot::new(id, "home".into(), time, content) }
}

fn opened<'p>(place: &'p Place, snapshot: &Snapshot) -> OpenedSnapshot<'p> {
    let SnapshotContent::Folder(root) = &snapshot.content else { panic!("only folders are archived here") };
    OpenedSnapshot { files: Arc::new(StoredFiles::new(&place.blocks)), root: (**root).clone() }
}

/// The paths that a walk finds, each with the newest snapshot that has it.
fn walked(place: &Place, snapshots: &[&Snapshot], text: &str) -> BTreeMap<Vec<u8>, SnapshotId> {
    let files = StoredFiles::new(&place.blocks);
    let mut found = BTreeMap::new();
    for snapshot in snapshots {
        let SnapshotContent::Folder(root) = &snapshot.content else { continue };
        list(&files, root, &mut |event| {
            if let ListEvent::Node { path, node } = event
                && String::from_utf8_lossy(&node.name).to_lowercase().contains(text)
                && !path.as_os_str().is_empty()
            {
                found.insert(path.as_os_str().as_bytes().to_vec(), snapshot.id);
            }
            ListNext::Descend
        });
    }
    found
}

fn found(index: &NameIndex, listed: &BTreeSet<SnapshotId>, text: &str) -> BTreeMap<Vec<u8>, SnapshotId> {
    // The parts of a search come one after the other.
    let (mut paths, mut after): (BTreeMap<_, _>, Option<IndexedPath>) = (BTreeMap::new(), None);
    loop {
        let part = index.find(text, after.as_ref(), 2, &|_, _| true, &|id| listed.contains(id));
        after = part.paths.last().cloned();
        paths.extend(part.paths.iter().map(|found| (found.path(), found.snapshot)));
        if !part.is_cut {
            return paths;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_index_finds_what_a_walk_finds(
        days in prop::collection::vec(prop::collection::vec(tree_change(), 0..5), 1..8),
        forgotten in prop::collection::btree_set(0_usize..8, 0..4),
        imported in 0_usize..8,
    ) {
        let place = Place::new();
        let mut all = Vec::new();
        for (number, changes) in days.iter().enumerate() {
            changes.iter().for_each(|one| change(&place, one));
            all.push(snapshot(u8::try_from(number).unwrap(), place.archive()));
        }
        let open = |snapshot: &Snapshot| opened(&place, snapshot);
        let mut index = NameIndex::default();
        // One snapshot comes after all others, and may be older than they are.
        let imported = imported % all.len();
        for end in 0..all.len() {
            let known = all[..=end].iter().enumerate().filter(|(number, _)| *number != imported);
            let known: Vec<_> = known.map(|(_, snapshot)| snapshot).collect();
            index.update(&open, known.iter().copied(), usize::MAX, &|| false).unwrap();
            prop_assert!(index.has_all(known.iter().copied()));
            let mut saved = Vec::new();
            index.write(&mut saved).unwrap();
            index = NameIndex::read(&mut saved.as_slice()).unwrap();
        }
        // The rest comes one by one.
        while !index.update(&open, &all, 1, &|| false).unwrap().is_whole {}
        let nothing = NamesUpdate { is_changed: false, is_whole: true };
        prop_assert_eq!(index.update(&open, &all, 1, &|| false), Ok(nothing));
        let left: Vec<_> = all.iter().enumerate().filter(|(number, _)| !forgotten.contains(number)).map(|(_, one)| one).collect();
        let listed: BTreeSet<_> = left.iter().map(|snapshot| snapshot.id).collect();
        for text in ["", "a", "letter", "notes", "x"] {
            prop_assert_eq!(found(&index, &listed, text), walked(&place, &left, text), "{}", text);
        }
        // An update without the forgotten ones changes nothing that is found.
        index.update(&open, left.iter().copied(), usize::MAX, &|| false).unwrap();
        for text in ["", "letter"] {
            prop_assert_eq!(found(&index, &listed, text), walked(&place, &left, text), "{}", text);
        }
    }
}

#[test]
fn an_ended_update_can_be_made_again() {
    let place = Place::new();
    place.file("notes/letter", "text");
    let all = [snapshot(1, place.archive())];
    let open = |snapshot: &Snapshot| opened(&place, snapshot);
    let mut index = NameIndex::default();
    assert!(index.update(&open, &all, 1, &|| true).is_err());
    assert!(!index.has_all(&all));
    let whole = NamesUpdate { is_changed: true, is_whole: true };
    assert_eq!(index.update(&open, &all, 1, &|| false), Ok(whole));
    assert_eq!(index.find("LETTER", None, 10, &|_, _| true, &|_| true).paths.len(), 1);
    assert_eq!(index.find("letter", None, 10, &|_, name| name != "home", &|_| true).paths.len(), 0);
}
