//! Listing, finding and comparing in archived folders.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use varve_content::folder::{
    ListEvent, ListNext, LookupError, PathChange, StoredFiles, compare_folders, list, lookup,
};
use varve_content::{NodeKind, Tree};

use super::sample::{Place, set_mode};

#[test]
fn a_path_leads_to_its_node() {
    let place = Place::new();
    place.file("a/b/c", "bytes");
    for number in 0..2000 {
        place.file(&format!("a/many/{number}"), "");
    }
    let root = place.archive(None).root;
    let find = |path: &str| lookup(&StoredFiles::new(&place.blocks), &root, Path::new(path));
    assert_eq!(find("a/b/c").unwrap().size, 5);
    assert_eq!(find("/a//./b/c/").unwrap().name, b"c");
    assert_eq!(find("").unwrap(), root);
    assert_eq!(find("a/many/1234").unwrap().name, b"1234");
    assert_eq!(find("a/x/c").unwrap_err().to_string(), "there is no a/x");
    assert_eq!(find("a/b/c/d").unwrap_err().to_string(), "a/b/c is a file, not a folder");
    assert!(matches!(find("a/../b"), Err(LookupError::Upward { .. })));
}

#[test]
fn a_listing_goes_only_where_it_is_wanted() {
    let place = Place::new();
    for path in ["a/1", "b/2", "c/3", "d/4"] {
        place.file(path, "");
    }
    let root = place.archive(None).root;
    let mut seen = Vec::new();
    list(&StoredFiles::new(&place.blocks), &root, &mut |listed| {
        let ListEvent::Node { path, node } = listed else { panic!("{listed:?}") };
        seen.push(path.to_path_buf());
        match path.to_str().unwrap() {
            "b" => ListNext::Skip,
            "c/3" => ListNext::Stop,
            _ => {
                assert_eq!(node.kind == NodeKind::File, path == Path::new("a/1"));
                ListNext::Descend
            }
        }
    });
    assert_eq!(seen, ["", "a", "a/1", "b", "c", "c/3"].map(PathBuf::from));
}

#[test]
fn a_comparison_tells_what_differs() {
    let place = Place::new();
    for path in ["same/file", "changed/content", "changed/mode", "gone/file", "kind"] {
        place.file(path, path);
    }
    let old = place.archive(None).root;
    set_mode(&place.source().join("changed/mode"), 0o600);
    fs::remove_dir_all(place.source().join("gone")).unwrap();
    fs::remove_file(place.source().join("kind")).unwrap();
    place.file("kind/below", "");
    place.file("new/file", "");
    let modified = fs::metadata(place.source().join("changed/content")).unwrap().modified().unwrap();
    let path = place.file("changed/content", "other");
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    let mut new = place.archive(None).root;
    new.mtime = old.mtime;
    let read_before = place.blocks.get_count();
    let mut changes = Vec::new();
    compare_folders(
        Tree { files: &StoredFiles::new(&place.blocks), root: &old },
        Tree { files: &StoredFiles::new(&place.blocks), root: &new },
        &mut |path, change| {
            let what = match change {
                PathChange::Added(_) => "added",
                PathChange::Removed(_) => "removed",
                PathChange::Changed { content: true, metadata: false, .. } => "content",
                PathChange::Changed { content: false, metadata: true, .. } => "metadata",
                other => panic!("{other:?}"),
            };
            changes.push((path.to_str().unwrap().to_owned(), what));
            ControlFlow::Continue(())
        },
    );
    let expected = [
        ("changed/content", "content"),
        ("changed/mode", "metadata"),
        ("gone", "removed"),
        ("gone/file", "removed"),
        ("kind", "removed"),
        ("kind", "added"),
        ("kind/below", "added"),
        ("new", "added"),
        ("new/file", "added"),
    ];
    assert_eq!(changes, expected.map(|(path, what)| (path.to_owned(), what)));
    // Both roots and both versions of `changed` are read, and each folder that was added or removed
    // as a whole. `same` is not read.
    assert_eq!(place.blocks.get_count() - read_before, 2 + 2 + 3);
    // A visitor that has seen enough hears nothing more.
    for count in 1..=changes.len() {
        let mut told = 0;
        compare_folders(
            Tree { files: &StoredFiles::new(&place.blocks), root: &old },
            Tree { files: &StoredFiles::new(&place.blocks), root: &new },
            &mut |_, _| {
                told += 1;
                if told == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(told, count);
    }
}
