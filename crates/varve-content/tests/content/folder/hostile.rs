//! Malicious trees cause errors, and nothing outside of the destination changes.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use varve_block::{BlockKind, BlockStore};
use varve_content::folder::{
    ListEvent, ListNext, LookupError, PathChange, StoredFiles, compare_folders, list, lookup,
};
use varve_content::{Node, NodeKind, NodeList, Problem, ReadFolderError, Tree, frame};
use varve_tree::{ContentWriter, Cutting};

use super::sample::Place;

/// Makes a folder with exactly these nodes.
fn folder(blocks: &dyn BlockStore, name: &str, nodes: &[Node]) -> Node {
    let mut content = Vec::new();
    nodes.iter().for_each(|node| frame(&node.encode(), &mut content));
    folder_of_bytes(blocks, name, &content)
}

fn folder_of_bytes(blocks: &dyn BlockStore, name: &str, content: &[u8]) -> Node {
    let mut writer = ContentWriter::new(blocks, BlockKind::Directory, Cutting::DIRECTORY);
    writer.write(content).unwrap();
    let mut folder = Node::new(name.into(), NodeKind::Folder);
    folder.mode = 0o755;
    folder.content = Some(writer.finish().unwrap());
    folder
}

/// Stores the content of a file.
fn content(blocks: &dyn BlockStore, bytes: &[u8]) -> varve_tree::Entry {
    let mut writer = ContentWriter::new(blocks, BlockKind::Data, Cutting::FILE);
    writer.write(bytes).unwrap();
    writer.finish().unwrap()
}

fn link(name: &str, target: &Path) -> Node {
    let mut node = Node::new(name.into(), NodeKind::SymbolicLink);
    node.target = target.to_str().unwrap().into();
    node
}

fn file(name: &str) -> Node {
    Node { mode: 0o644, ..Node::new(name.into(), NodeKind::File) }
}

fn paths(problems: &[Problem]) -> Vec<PathBuf> {
    problems.iter().map(|problem| problem.path.clone()).collect()
}

#[test]
fn names_do_not_lead_out() {
    for name in ["../escaped", "/tmp/varve escaped", "..", ".", "", "a/b"] {
        let place = Place::new();
        let root = folder(&place.blocks, "", &[file(name)]);
        let (counts, problems) = place.restore_with_problems(&root);
        assert_eq!((counts.file_count, paths(&problems)), (0, vec![PathBuf::new()]), "{name:?}");
        assert_eq!(fs::read_dir(place.destination()).unwrap().count(), 0);
        assert_eq!(place.leftovers(), [""; 0]);
    }
}

#[test]
fn a_link_cannot_be_passed_through() {
    let place = Place::new();
    let outside = place.source();
    let inner = folder(&place.blocks, "a", &[file("escaped")]);
    let root = folder(&place.blocks, "", &[link("a", &outside), inner]);
    let (_, problems) = place.restore_with_problems(&root);
    assert_eq!(paths(&problems), [PathBuf::new()], "a name comes once");
    assert!(fs::symlink_metadata(place.destination().join("a")).unwrap().is_symlink());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    let found = lookup(&StoredFiles::new(&place.blocks), &root, Path::new("a/escaped"));
    assert!(matches!(found, Err(LookupError::NotAFolder { .. })), "{found:?}");
}

#[test]
fn names_out_of_order_are_refused() {
    let place = Place::new();
    let root = folder(&place.blocks, "", &[file("b"), file("a")]);
    let nodes: Vec<_> = NodeList::new(&place.blocks, &root).collect();
    assert_eq!(nodes.len(), 2);
    assert!(matches!(nodes[1], Err(ReadFolderError::Order { .. })), "{:?}", nodes[1]);
}

#[test]
fn link_groups_that_contradict_each_other_do_no_harm() {
    let place = Place::new();
    let grouped = |node: Node| Node { link_group: Some(1), ..node };
    let inner = folder(&place.blocks, "z", &[grouped(file("a")), grouped(link("b", Path::new("/")))]);
    let nodes = [grouped(link("a", &place.source())), grouped(file("b")), grouped(inner)];
    let root = folder(&place.blocks, "", &nodes);
    place.restore_with_problems(&root);
    for path in ["a", "b", "z/a", "z/b"] {
        let target = fs::read_link(place.destination().join(path)).unwrap();
        assert_eq!(target, place.source(), "all are the first of the group");
    }
    assert_eq!(fs::read_dir(place.source()).unwrap().count(), 0);
}

#[test]
fn owners_that_are_nobody_are_left_out() {
    let place = Place::new();
    let nobody = Node { uid: u32::MAX, gid: u32::MAX, ..file("a") };
    let root = folder(&place.blocks, "", &[nobody]);
    assert_eq!(place.restore(&root).file_count, 1);
}

#[test]
fn lists_that_are_no_lists_end_with_an_error() {
    let blocks = Place::new().blocks;
    let good = {
        let mut bytes = Vec::new();
        frame(&file("a").encode(), &mut bytes);
        bytes
    };
    let cases: [&[u8]; 5] =
        [&[0], &[5, 1, 1], &[0x80], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], &[0xff; 20]];
    for case in cases {
        let root = folder_of_bytes(&blocks, "", &[good.as_slice(), case].concat());
        let nodes: Vec<_> = NodeList::new(&blocks, &root).collect();
        assert_eq!(nodes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false], "{case:?}");
    }
}

#[test]
fn a_list_that_is_one_long_hole_ends() {
    let blocks = Place::new().blocks;
    let mut writer = ContentWriter::new(&blocks, BlockKind::Directory, Cutting::DIRECTORY);
    writer.write_zeros(1 << 60).unwrap();
    let mut root = Node::new(Vec::new(), NodeKind::Folder);
    root.content = Some(writer.finish().unwrap());
    let nodes: Vec<_> = NodeList::new(&blocks, &root).collect();
    assert!(matches!(nodes[..], [Err(_)]), "{nodes:?}");
}

#[test]
fn zeros_within_an_attribute_come_back() {
    let blocks = Place::new().blocks;
    let xattr = varve_image::Xattr { name: b"user.zeros".to_vec(), value: vec![0; 3 << 20] };
    let node = Node { xattrs: vec![xattr], ..file("a") };
    let root = folder(&blocks, "", &[node.clone(), file("b")]);
    let nodes: Vec<_> = NodeList::new(&blocks, &root).map(|node| node.unwrap()).collect();
    assert_eq!(nodes, [node, file("b")]);
}

#[test]
fn damage_hides_only_what_is_below() {
    let place = Place::new();
    let lost = folder(&place.blocks, "b", &[file("hidden")]);
    let root = folder(&place.blocks, "", &[file("a"), lost.clone(), file("c")]);
    let name = varve_block::BlockName {
        score: lost.content.unwrap().root(),
        block_type: varve_block::BlockType::DIRECTORY,
    };
    assert!(place.blocks.lose(&name));
    let (mut seen, mut unreadable) = (Vec::new(), Vec::new());
    list(&StoredFiles::new(&place.blocks), &root, &mut |listed| {
        match listed {
            ListEvent::Node { path, .. } => seen.push(path.to_path_buf()),
            ListEvent::Unreadable { path, .. } => unreadable.push(path.to_path_buf()),
        }
        ListNext::Descend
    });
    assert_eq!(seen, ["", "a", "b", "c"].map(PathBuf::from));
    assert_eq!(unreadable, [PathBuf::from("b")]);
    let other = folder(&place.blocks, "", &[file("a"), folder(&place.blocks, "b", &[]), file("d")]);
    let mut changes = Vec::new();
    compare_folders(
        Tree { files: &StoredFiles::new(&place.blocks), root: &root },
        Tree { files: &StoredFiles::new(&place.blocks), root: &other },
        &mut |path, change| {
            let what = match change {
                PathChange::Added(_) => "added",
                PathChange::Removed(_) => "removed",
                PathChange::Changed { .. } => "changed",
                PathChange::Unreadable(_) => "unreadable",
            };
            changes.push((path.to_str().unwrap().to_owned(), what));
            ControlFlow::Continue(())
        },
    );
    let expected = [("b", "unreadable"), ("c", "removed"), ("d", "added")];
    assert_eq!(changes, expected.map(|(path, what)| (path.to_owned(), what)));
    let (counts, problems) = place.restore_with_problems(&root);
    assert_eq!((counts.file_count, counts.problem_count), (2, 1));
    assert_eq!(paths(&problems), [PathBuf::from("b")]);
}

/// A file has more names than most file systems allow. The remaining names are names of a copy.
#[test]
fn names_that_cannot_be_links_are_copies() {
    const NAME_COUNT: usize = 65_100;
    let place = Place::new();
    let node = |name: &str| {
        let content = Some(content(&place.blocks, b"the same"));
        Node { link_group: Some(1), size: 8, content, ..file(name) }
    };
    let nodes: Vec<_> = (0..NAME_COUNT).map(|number| node(&format!("{number:06}"))).collect();
    let root = folder(&place.blocks, "", &nodes);
    let (counts, problems) = place.restore_with_problems(&root);
    assert_eq!(counts.file_count, NAME_COUNT as u64);
    assert!(counts.problem_count <= 1, "{problems:?}");
    for problem in problems {
        assert!(problem.error.to_string().contains("is a copy"), "{}", problem.error);
    }
    for name in ["000000", "064999", "065000", "065001", "065099"] {
        assert_eq!(fs::read(place.destination().join(name)).unwrap(), b"the same", "{name}");
    }
}
