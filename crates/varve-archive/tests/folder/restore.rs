//! Restoring into place, or not at all.

use std::fs;
use std::path::Path;

use varve_archive::{
    Progress, RestoreFolderError, RestoreOptions, StoredFiles, Watch, lookup, restore_folder,
};
use varve_block::{BlockKind, BlockName, BlockType};
use varve_world::{InlineWorkers, RealWorkers};

use super::sample::{Place, describe};

fn restore(place: &Place, destination: &Path, overwrite: bool) -> Result<(), RestoreFolderError> {
    let root = place.archive(None).root;
    let watch = Watch { progress: &place.progress, report: &|problem| panic!("{problem}") };
    let options = RestoreOptions { overwrite, ..RestoreOptions::default() };
    restore_folder(&StoredFiles::new(&place.blocks), &InlineWorkers, &root, destination, options, watch)
        .map(|_| ())
}

#[test]
fn what_exists_is_replaced_only_when_asked() {
    let place = Place::new();
    place.file("folder/file", "new");
    for make_old in [
        (|path| fs::write(path, "old").unwrap()) as fn(&Path),
        |path| fs::create_dir(path).unwrap(),
        |path| {
            fs::create_dir(path).unwrap();
            fs::write(path.join("old"), "old").unwrap();
        },
        |path| std::os::unix::fs::symlink("/nowhere", path).unwrap(),
    ] {
        make_old(&place.destination());
        let before = describe(&place.destination());
        let refused = restore(&place, &place.destination(), false);
        assert!(matches!(refused, Err(RestoreFolderError::Exists { .. })), "{refused:?}");
        assert_eq!(describe(&place.destination()), before);
        restore(&place, &place.destination(), true).unwrap();
        assert_eq!(describe(&place.destination()), describe(&place.source()));
        assert_eq!(place.leftovers(), [""; 0]);
        fs::remove_dir_all(place.destination()).unwrap();
    }
}

#[test]
fn a_destination_that_cannot_be_made_is_an_error() {
    let place = Place::new();
    place.file("file", "");
    let missing = restore(&place, &place.folder.path().join("missing/destination"), false);
    assert!(matches!(missing, Err(RestoreFolderError::Destination { .. })), "{missing:?}");
    for unnamed in ["/", "..", "a/.."] {
        let refused = restore(&place, Path::new(unnamed), true);
        assert!(matches!(refused, Err(RestoreFolderError::NoName { .. })), "{unnamed}: {refused:?}");
    }
    assert_eq!(place.leftovers(), [""; 0]);
}

#[test]
fn any_node_can_be_restored() {
    let place = Place::new();
    place.file("folder/below/file", "bytes");
    std::os::unix::fs::symlink("target", place.source().join("link")).unwrap();
    let root = place.archive(None).root;
    for path in ["folder", "folder/below/file", "link"] {
        let node = lookup(&StoredFiles::new(&place.blocks), &root, Path::new(path)).unwrap();
        place.restore(&node);
        assert_eq!(describe(&place.destination()), describe(&place.source().join(path)), "{path}");
        match fs::symlink_metadata(place.destination()).unwrap().is_dir() {
            true => fs::remove_dir_all(place.destination()).unwrap(),
            false => fs::remove_file(place.destination()).unwrap(),
        }
    }
}

#[test]
fn what_is_lost_is_left_out_and_named() {
    let place = Place::new();
    let noise: Vec<u8> =
        (0..10_000_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    place.file("large", &noise);
    place.file("small", "lost");
    place.file("kept", "bytes");
    let other_name = place.source().join("small, again");
    fs::hard_link(place.source().join("small"), &other_name).unwrap();
    let root = place.archive(None).root;
    let small = lookup(&StoredFiles::new(&place.blocks), &root, Path::new("small")).unwrap().content.unwrap();
    assert!(place.blocks.lose(&BlockName { score: small.root(), block_type: BlockType::DATA }));
    let leaf_of_large = varve_tree::TreeReader::new(
        &place.blocks,
        &lookup(&StoredFiles::new(&place.blocks), &root, Path::new("large")).unwrap().content.unwrap(),
    )
    .extents(30_000_000..30_000_001)
    .next()
    .unwrap()
    .unwrap();
    let block_type = BlockType::leaf(BlockKind::Data);
    assert!(place.blocks.lose(&BlockName { score: leaf_of_large.leaf.unwrap(), block_type }));
    let (counts, problems) = place.restore_with_problems(&root);
    let mut named: Vec<_> = problems.iter().map(|problem| problem.path.to_str().unwrap()).collect();
    named.sort_unstable();
    assert_eq!(named, ["large", "small", "small, again"]);
    assert_eq!((counts.file_count, counts.problem_count), (1, 3));
    let restored: Vec<_> = describe(&place.destination()).into_keys().collect();
    assert_eq!(restored, ["", "kept"].map(std::path::PathBuf::from));
}

#[test]
fn a_cancelled_restore_leaves_nothing() {
    let place = Place::new();
    place.file("folder/file", "bytes");
    let root = place.archive(None).root;
    let progress = Progress::new();
    progress.cancel();
    let watch = Watch { progress: &progress, report: &|problem| panic!("{problem}") };
    let options = RestoreOptions::default();
    let workers = RealWorkers::new(3);
    let cancelled = restore_folder(
        &StoredFiles::new(&place.blocks),
        &workers,
        &root,
        &place.destination(),
        options,
        watch,
    );
    assert!(matches!(cancelled, Err(RestoreFolderError::Cancelled)), "{cancelled:?}");
    assert!(!place.destination().exists());
    assert_eq!(place.leftovers(), [""; 0]);
}
