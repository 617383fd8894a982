//! Trees of real hard links, walked with and without the knowledge of the trees before.
#![expect(clippy::disallowed_methods, reason = "the clock of the file system has to move on")]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
use varve_content::folder::{HostFolder, TreeStep};
use varve_content::{Node, NodeKind};

use super::several_names::{InodesFrom, files_with_several_names};
use super::walk_ahead::StopSign;
use super::*;

/// All steps of a tree, each on a line; without the contents.
fn steps(trees: &LinkTrees, place: usize) -> Vec<String> {
    let mut tree = trees.tree(place).unwrap();
    let mut lines = Vec::new();
    while let Some(step) = tree.next(None).unwrap() {
        lines.push(match step {
            ForeignStep::Tree(TreeStep::Open(node)) => format!("open {node:?}"),
            ForeignStep::Tree(TreeStep::Close) => "close".into(),
            ForeignStep::Tree(TreeStep::Entry(node)) => format!("entry {node:?}"),
            ForeignStep::Tree(TreeStep::Link(node)) => format!("link {node:?}"),
            ForeignStep::Tree(TreeStep::File(node, _)) => format!("file {node:?}"),
            ForeignStep::Tree(TreeStep::Lost { name, error } | TreeStep::Harmed { name, error }) => {
                format!("problem of {name:?}: {error}")
            }
            ForeignStep::File { node, id, .. } => format!("content {id:?} {node:?}"),
        });
    }
    lines
}

fn nodes(trees: &LinkTrees, place: usize) -> BTreeMap<String, Node> {
    let mut tree = trees.tree(place).unwrap();
    let mut nodes = BTreeMap::new();
    while let Some(step) = tree.next(None).unwrap() {
        if let ForeignStep::Tree(TreeStep::Open(node) | TreeStep::Entry(node) | TreeStep::Link(node))
        | ForeignStep::File { node, .. } = step
        {
            nodes.insert(String::from_utf8(node.name.clone()).unwrap(), node);
        }
    }
    nodes
}

fn open(root: &Path) -> LinkTrees {
    LinkTrees::open("rsnapshot", root, TimeSource::Names, "host").unwrap()
}

fn day(root: &Path, number: usize) -> PathBuf {
    root.join(format!("2026-05-{:02}", number + 1))
}

/// Copies a folder, with hard links in place of its files.
fn link_all(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (entry, to) = (entry.as_ref().unwrap(), to.join(entry.as_ref().unwrap().file_name()));
        match entry.file_type().unwrap().is_dir() {
            true => link_all(&entry.path(), &to),
            false => fs::hard_link(entry.path(), to).unwrap(),
        }
    }
}

/// Waits until a change has another time than an earlier one.
fn next_tick() {
    std::thread::sleep(Duration::from_millis(25));
}

fn set_xattr(path: &Path, value: &[u8]) {
    // Not every file system has them. The rest of each test holds nevertheless.
    setxattr(path, "user.varve", value, XattrFlags::empty()).unwrap_or(());
}

/// A change to a tree. Some change an inode that other trees have, too.
#[derive(Debug, Clone)]
enum Deed {
    Replace(u8, u8),
    Append(u8),
    SetMode(u8, u16),
    SetXattr(u8, u8),
    /// A second name.
    Link(u8, u8),
    Remove(u8),
    Symlink(u8, u8),
    Fifo(u8),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (0..9_u8, 0..9_u8).prop_map(|(at, size)| Deed::Replace(at, size)),
        1 => (0..9_u8).prop_map(Deed::Append),
        1 => (0..9_u8, 0o400..0o777_u16).prop_map(|(at, mode)| Deed::SetMode(at, mode)),
        1 => (0..9_u8, any::<u8>()).prop_map(|(at, value)| Deed::SetXattr(at, value)),
        3 => (0..9_u8, 0..9_u8).prop_map(|(at, from)| Deed::Link(at, from)),
        1 => (0..9_u8).prop_map(Deed::Remove),
        1 => (0..9_u8, any::<u8>()).prop_map(|(at, to)| Deed::Symlink(at, to)),
        1 => (0..9_u8).prop_map(Deed::Fifo),
    ]
}

/// One of nine places, in three folders.
fn place(tree: &Path, number: u8) -> PathBuf {
    let folder = tree.join(["", "a", "b"][usize::from(number % 3)]);
    fs::create_dir_all(&folder).unwrap();
    folder.join(format!("file-{number}"))
}

fn apply(tree: &Path, deed: &Deed) {
    let is_file = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    let fresh = |at: u8| {
        let path = place(tree, at);
        drop(fs::remove_file(&path));
        path
    };
    match deed {
        Deed::Replace(at, size) => fs::write(fresh(*at), vec![*size; usize::from(*size)]).unwrap(),
        Deed::Append(at) if is_file(&place(tree, *at)) => {
            let text = [&fs::read(place(tree, *at)).unwrap()[..], b"more"].concat();
            fs::write(place(tree, *at), text).unwrap();
        }
        Deed::SetMode(at, mode) if is_file(&place(tree, *at)) => {
            fs::set_permissions(place(tree, *at), Permissions::from_mode(u32::from(*mode | 0o600))).unwrap();
        }
        Deed::SetXattr(at, value) if is_file(&place(tree, *at)) => set_xattr(&place(tree, *at), &[*value; 3]),
        Deed::Link(at, from) if at != from && fs::symlink_metadata(place(tree, *from)).is_ok() => {
            fs::hard_link(place(tree, *from), fresh(*at)).unwrap();
        }
        Deed::Remove(at) => drop(fresh(*at)),
        Deed::Symlink(at, to) => symlink(format!("to-{to}"), fresh(*at)).unwrap(),
        Deed::Fifo(at) => mknodat(CWD, fresh(*at), FileType::Fifo, Mode::RUSR, 0).unwrap(),
        Deed::Append(_) | Deed::SetMode(..) | Deed::SetXattr(..) | Deed::Link(..) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A run that knows the trees before describes each tree as one that knows nothing, and finds
    /// the same files with several names as the numbers of `stat`.
    #[test]
    fn a_tree_is_described_as_if_it_were_the_first(days in prop::collection::vec(prop::collection::vec(deed(), 0..8), 1..6)) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(day(root.path(), 0)).unwrap();
        // The folder must not be empty for the run that will see all days.
        for number in 1..days.len() {
            fs::create_dir(day(root.path(), number)).unwrap();
        }
        let knowing = open(root.path());
        for (number, deeds) in days.iter().enumerate() {
            let tree = day(root.path(), number);
            if number > 0 {
                // The walk of this tree may have begun.
                knowing.next.lock().take();
                fs::remove_dir(&tree).unwrap();
                link_all(&day(root.path(), number - 1), &tree);
            }
            next_tick();
            deeds.iter().for_each(|deed| apply(&tree, deed));
            prop_assert_eq!(steps(&knowing, number), steps(&open(root.path()), number));
            let (folder, _) = HostFolder::open(&tree).unwrap();
            let found = |from| files_with_several_names(&folder, from, &StopSign::default()).unwrap();
            prop_assert_eq!(found(InodesFrom::Listings).unwrap_or_default(), found(InodesFrom::Statuses).unwrap());
        }
    }
}

#[test]
fn a_change_of_a_known_inode_is_seen() {
    let root = tempfile::tempdir().unwrap();
    let first = day(root.path(), 0);
    fs::create_dir(&first).unwrap();
    for name in ["grows", "gets an attribute", "gets a mode", "gets a time", "stays"] {
        fs::write(first.join(name), "text").unwrap();
        set_xattr(&first.join(name), b"before");
    }
    for number in 1..3 {
        link_all(&first, &day(root.path(), number));
    }
    let trees = open(root.path());
    let before = nodes(&trees, 0);
    trees.next.lock().take();
    next_tick();
    let second = day(root.path(), 1);
    fs::write(second.join("grows"), "a longer text").unwrap();
    set_xattr(&second.join("gets an attribute"), b"after");
    fs::set_permissions(second.join("gets a mode"), Permissions::from_mode(0o604)).unwrap();
    let file = fs::File::options().write(true).open(second.join("gets a time")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let after = nodes(&trees, 1);
    assert_eq!((before["grows"].size, after["grows"].size), (4, 13));
    assert_eq!(after["gets a mode"].mode, 0o604);
    assert_eq!(after["gets a time"].mtime.seconds(), 0);
    let value = |node: &Node| node.xattrs.iter().map(|xattr| xattr.value.clone()).next();
    if value(&before["stays"]).is_some() {
        assert_eq!(value(&after["gets an attribute"]).unwrap(), b"after");
        assert_eq!(value(&after["gets a mode"]).unwrap(), b"before");
    }
    assert_eq!(before["stays"], after["stays"]);
    assert_eq!(nodes(&trees, 2)["grows"].size, 13, "it is the same file");
}

#[test]
fn names_in_one_tree_are_one_file_and_those_in_several_trees_are_not() {
    let root = tempfile::tempdir().unwrap();
    let first = day(root.path(), 0);
    fs::create_dir_all(first.join("folder")).unwrap();
    fs::write(first.join("alone"), "text").unwrap();
    fs::write(first.join("one"), "text").unwrap();
    symlink("nowhere", first.join("symlink")).unwrap();
    let socket = UnixListener::bind(first.join("socket")).unwrap();
    for name in ["one", "symlink", "socket"] {
        fs::hard_link(first.join(name), first.join(format!("folder/{name}-again"))).unwrap();
    }
    link_all(&first, &day(root.path(), 1));
    let trees = open(root.path());
    for number in 0..2 {
        let nodes = nodes(&trees, number);
        assert_eq!(nodes["alone"].link_group, None);
        for (name, kind) in
            [("one", NodeKind::File), ("symlink", NodeKind::SymbolicLink), ("socket", NodeKind::Socket)]
        {
            let (one, again) = (&nodes[name], &nodes[&format!("{name}-again")]);
            assert_eq!((one.kind, again.kind), (kind, kind));
            assert_eq!(one.link_group, Some(fs::symlink_metadata(first.join(name)).unwrap().ino()));
            assert_eq!(one.link_group, again.link_group, "{name}");
        }
        assert_eq!(nodes["symlink-again"].target, b"nowhere");
        let links = steps(&trees, number).iter().filter(|line| line.starts_with("link ")).count();
        assert_eq!(links, 3, "folder/ is before the others, which are the further names");
    }
    drop(socket);
}

#[test]
fn a_walk_that_nobody_wants_ends_and_an_unreadable_folder_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    for number in 0..3 {
        let tree = day(root.path(), number);
        fs::create_dir(&tree).unwrap();
        (0..20_000).for_each(|file| drop(fs::File::create(tree.join(file.to_string())).unwrap()));
    }
    let trees = open(root.path());
    let mut first = trees.tree(0).unwrap();
    assert!(first.next(None).unwrap().is_some());
    drop(first);
    assert_eq!(steps(&trees, 1).len(), 20_002);
    // Another tree is requested than the one that was begun.
    assert_eq!(steps(&trees, 0).len(), 20_002);
    drop(trees.tree(1).unwrap());
    fs::rename(day(root.path(), 2), root.path().join("gone")).unwrap();
    trees.next.lock().take();
    assert!(trees.tree(2).is_err());
    assert!(trees.tree(3).is_err());
}
