//! Archived folders are restored as they were.

use std::fs;
use std::os::unix::fs::MetadataExt;

use varve_content::NodeKind;
use varve_content::folder::{ListEvent, ListNext, StoredFiles, list};

use super::sample::{Place, describe, is_root, make_everything};

fn everything_comes_back(inline: bool) -> varve_content::Node {
    let place = Place { inline, ..Place::new() };
    make_everything(&place.source());
    let archived = place.archive(None);
    let counts = place.restore(&archived.root);
    assert_eq!(describe(&place.destination()), describe(&place.source()));
    assert_eq!(counts.file_count, archived.counts.file_count);
    assert_eq!(counts.folder_count, archived.counts.folder_count);
    assert_eq!(counts.bytes, archived.counts.bytes);
    for sparse in ["sparse", "zeros"] {
        let blocks = |root: std::path::PathBuf| fs::metadata(root.join(sparse)).unwrap().blocks();
        assert!(blocks(place.destination()) <= blocks(place.source()), "{sparse}");
        assert!(blocks(place.destination()) < 400, "{sparse}");
    }
    assert_eq!(place.leftovers(), [""; 0]);
    archived.root
}

#[test]
fn everything_comes_back_by_many_workers() {
    if !is_root() {
        eprintln!("skipped as not root: devices, the files of others, capabilities");
    }
    everything_comes_back(false);
}

#[test]
fn everything_comes_back_by_one_worker() {
    everything_comes_back(true);
}

#[test]
fn whoever_works_the_tree_is_the_same() {
    let mut place = Place::new();
    make_everything(&place.source());
    for number in 0..3000 {
        place.file(&format!("many/{}/{number}", number % 7), vec![7; number * 11]);
    }
    let many = place.archive(None);
    place.inline = true;
    assert_eq!(place.archive(None), many);
}

#[test]
fn holes_are_not_read() {
    let place = Place::new();
    let file = fs::File::create(place.source().join("hole")).unwrap();
    file.set_len(1 << 40).unwrap();
    let archived = place.archive(None);
    assert_eq!((archived.counts.bytes, archived.counts.read_bytes), (1 << 40, 0));
    place.restore(&archived.root);
    let restored = fs::metadata(place.destination().join("hole")).unwrap();
    assert_eq!((restored.size(), restored.blocks()), (1 << 40, 0));
}

#[test]
fn a_folder_of_ten_thousand_files_comes_back() {
    let place = Place::new();
    for number in 0..10_000 {
        fs::write(place.source().join(format!("file {number}")), format!("content {number}")).unwrap();
    }
    let archived = place.archive(None);
    assert_eq!(archived.counts.file_count, 10_000);
    assert!(archived.root.content.unwrap().depth() > 0);
    place.restore(&archived.root);
    assert_eq!(describe(&place.destination()), describe(&place.source()));
}

#[test]
fn an_empty_folder_and_a_deep_one_come_back() {
    let place = Place::new();
    let archived = place.archive(None);
    assert_eq!(archived.root.content, None);
    let mut deep = place.source();
    for _ in 0..300 {
        deep.push("deeper");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "below").unwrap();
    let archived = place.archive(None);
    assert_eq!(archived.counts.folder_count, 301);
    place.restore(&archived.root);
    assert_eq!(describe(&place.destination()), describe(&place.source()));
}

#[test]
fn more_open_folders_than_a_process_may_have_come_back() {
    let place = Place::new();
    for number in 0..3000 {
        place.file(&format!("{number}/file"), number.to_string());
    }
    let archived = place.archive(None);
    place.restore(&archived.root);
    assert_eq!(describe(&place.destination()), describe(&place.source()));
}

#[test]
fn each_node_of_a_link_group_has_the_content() {
    let place = Place::new();
    let first = place.file("b/first", vec![5; 100_000]);
    fs::create_dir(place.source().join("a")).unwrap();
    fs::hard_link(&first, place.source().join("a/other")).unwrap();
    let archived = place.archive(None);
    assert_eq!((archived.counts.read_count, archived.counts.file_count), (1, 2));
    assert_eq!(archived.counts.bytes, 100_000);
    let mut contents = Vec::new();
    list(&StoredFiles::new(&place.blocks), &archived.root, &mut |listed| {
        if let ListEvent::Node { node, .. } = listed
            && node.kind == NodeKind::File
        {
            contents.push((node.content.unwrap(), node.link_group.unwrap()));
        }
        ListNext::Descend
    });
    assert_eq!(contents.len(), 2);
    assert_eq!(contents[0], contents[1]);
}
