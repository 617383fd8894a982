//! Files that many workers open and read ahead of the walk, and large files that they read in
//! segments: the result is that of one worker, also while the source changes.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, GetError, PutError, Score, SyncError};
use varve_content::folder::{FolderOptions, StoredFiles, Watch, archive_folder, lookup};
use varve_content::image::image_shape;
use varve_content::{Node, NodeProblem, Problem};
use varve_tree::{ContentWriter, Cutting, FixedWriter, Layout};
use varve_world::RealWorkers;

use super::sample::{Place, set_mode};
use crate::noise::noise;

fn node(place: &Place, root: &Node, path: &str) -> Node {
    lookup(&StoredFiles::new(&place.blocks), root, Path::new(path)).unwrap()
}

#[test]
fn a_file_in_segments_has_the_tree_of_one_that_is_written_in_order() {
    let place = Place::new();
    let (mib, before_hole, behind_hole) = (1 << 20, noise(1, 5 << 20), noise(2, (4 << 20) + 12_345));
    // Pages of one byte have no cut, and presumed cuts of a segment never agree with the real ones.
    let plain = vec![7; 9 * mib + 99];
    place.file("plain", &plain);
    let path = place.file("holes", &before_hole);
    let behind = (7 * mib) as u64;
    fs::File::options().write(true).open(path).unwrap().write_all_at(&behind_hole, behind).unwrap();
    let archived = place.archive(None);

    let mut writer = ContentWriter::new(&place.blocks, BlockKind::Data, Cutting::FILE);
    writer.write(&plain).unwrap();
    assert_eq!(node(&place, &archived.root, "plain").content, Some(writer.finish().unwrap()));
    let mut writer = ContentWriter::new(&place.blocks, BlockKind::Data, Cutting::FILE);
    writer.write(&before_hole).unwrap();
    writer.write_zeros(behind - before_hole.len() as u64).unwrap();
    writer.write(&behind_hole).unwrap();
    assert_eq!(node(&place, &archived.root, "holes").content, Some(writer.finish().unwrap()));
    assert_eq!(archived.counts.read_bytes, (plain.len() + before_hole.len() + behind_hole.len()) as u64);
}

/// Bytes of a database, by its signature.
fn database(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = noise(seed, length);
    bytes[..16].copy_from_slice(b"SQLite format 3\0");
    bytes
}

#[test]
fn a_disk_file_has_the_tree_of_an_image() {
    let place = Place::new();
    // Neither the end of the data nor the hole is at a border of blocks.
    let (front, behind_hole) = (database(1, (5 << 20) + 777), noise(2, (4 << 20) + 12_345));
    let path = place.file("database", &front);
    let behind = (7 << 20) + 4096_u64;
    fs::File::options().write(true).open(path).unwrap().write_all_at(&behind_hole, behind).unwrap();
    let archived = place.archive(None);

    let mut image = FixedWriter::new(&place.blocks, image_shape(place.options.disk_block_bytes));
    image.write(&front).unwrap();
    image.write_zeros(behind - front.len() as u64).unwrap();
    image.write(&behind_hole).unwrap();
    assert_eq!(node(&place, &archived.root, "database").content, Some(image.finish().unwrap()));
    let read_bytes = archived.counts.read_bytes;
    assert!(read_bytes < (front.len() + behind_hole.len() + (64 << 10)) as u64, "the hole was not read");
}

#[test]
fn a_file_keeps_its_layout() {
    let place = Place::new();
    let (plain, large) = (noise(1, 9 << 20), database(2, 9 << 20));
    let layout = |root: &Node, path| node(&place, root, path).content.unwrap().layout();
    place.file("plain", &plain);
    place.file("database", &large);
    place.file("small", &large[..100_000]);
    let first = place.archive(None).root;
    assert_eq!(layout(&first, "plain"), Layout::ContentCut);
    assert_eq!(layout(&first, "database"), Layout::Fixed);
    assert_eq!(layout(&first, "small"), Layout::ContentCut);

    // Their beginnings change places, and a small file becomes a disk file.
    place.file("plain", [&large[..16], &plain[16..]].concat());
    place.file("database", [&plain[..16], &large[16..]].concat());
    place.file("small", &large);
    place.file("copy of database", [&plain[..16], &large[16..]].concat());
    let second = place.archive(Some(&first)).root;
    assert_eq!(layout(&second, "plain"), Layout::ContentCut);
    assert_eq!(layout(&second, "database"), Layout::Fixed);
    assert_eq!(layout(&second, "small"), Layout::Fixed);
    assert_eq!(layout(&second, "copy of database"), Layout::ContentCut);
}

/// A store that calls `meddle` once, at a certain block of file data.
struct Meddling<'a> {
    place: &'a Place,
    /// The data blocks before that one.
    left: Mutex<usize>,
    meddle: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

impl BlockStore for Meddling<'_> {
    fn score_bytes(&self) -> usize {
        self.place.blocks.score_bytes()
    }

    fn empty_score(&self) -> Score {
        self.place.blocks.empty_score()
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.place.blocks.get(name)
    }

    fn sync(&self) -> Result<(), SyncError> {
        Ok(())
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        if block.block_type == BlockType::DATA {
            let mut left = self.left.lock();
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => self.meddle.lock().take().into_iter().for_each(|meddle| meddle()),
            }
        }
        self.place.blocks.put(block)
    }
}

/// Archives with many workers while `meddle` interferes at data block `number`.
fn archive_while(place: &Place, number: usize, meddle: impl FnOnce() + Send) -> (Node, Vec<Problem>) {
    let (left, meddle) = (Mutex::new(number), Mutex::new(Some(Box::new(meddle) as Box<dyn FnOnce() + Send>)));
    let blocks = Meddling { place, left, meddle };
    let problems = Mutex::new(Vec::new());
    let watch = Watch { progress: &place.progress, report: &|problem| problems.lock().push(problem) };
    let options = FolderOptions::default();
    let workers = RealWorkers::new(4);
    let archived = archive_folder(&blocks, &workers, &place.source(), None, &options, watch).unwrap();
    (archived.root, problems.into_inner())
}

#[test]
fn a_large_file_may_change_at_any_segment() {
    type Change = fn(&Path);
    let shrink: Change = |path| fs::File::options().write(true).open(path).unwrap().set_len(5 << 20).unwrap();
    let grow: Change = |path| fs::File::options().write(true).open(path).unwrap().set_len(20 << 20).unwrap();
    let overwrite: Change =
        |path| fs::File::options().write(true).open(path).unwrap().write_all_at(b"other", 0).unwrap();
    for (bytes, change) in [noise(3, 13 << 20), database(3, 13 << 20)]
        .iter()
        .flat_map(|bytes| [shrink, grow, overwrite].map(|change| (bytes, change)))
    {
        for number in [0, 90] {
            let place = Place::new();
            let path = place.file("large", bytes);
            let (root, problems) = archive_while(&place, number, || change(&path));
            let node = node(&place, &root, "large");
            assert_eq!(node.problem, Some(NodeProblem::Changed), "{number}");
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(Some(node.size), node.content.map(|content| content.size()));
            assert!(node.size <= bytes.len() as u64, "no more is read than there was at first");
            place.restore(&root);
            let restored = fs::read(place.destination().join("large")).unwrap();
            assert_eq!(restored.len() as u64, node.size);
            let differing = restored.iter().zip(bytes).filter(|(restored, byte)| restored != byte).count();
            assert!(differing <= 5, "{differing} bytes are neither old nor new");
        }
    }
}

#[test]
fn small_files_may_change_while_they_are_open_or_queued() {
    const COUNT: usize = 600;
    let contents = |number: usize| noise(number as u64 + 10, 100 + number * 25);
    for number in [0, 40] {
        let place = Place::new();
        let paths: Vec<PathBuf> = (0..COUNT)
            .map(|number| place.file(&format!("{:02}/{number}", number / 50), contents(number)))
            .collect();
        let (root, problems) = archive_while(&place, number, || {
            for (number, path) in paths.iter().enumerate() {
                let open = || fs::File::options().write(true).open(path).unwrap();
                match number % 6 {
                    0 => fs::remove_file(path).unwrap(),
                    1 => open().set_len(7).unwrap(),
                    2 => open().set_len(50_000).unwrap(),
                    3 => set_mode(path, 0),
                    4 => {
                        fs::remove_file(path).unwrap();
                        fs::create_dir(path).unwrap();
                    }
                    _ => {}
                }
            }
        });
        for number in 0..COUNT {
            let node = node(&place, &root, &format!("{:02}/{number}", number / 50));
            let name = String::from_utf8(node.name.clone()).unwrap();
            let is_reported = problems.iter().any(|problem| problem.path.ends_with(&name));
            assert_eq!(node.problem.is_some(), is_reported, "{name}: {:?}", node.problem);
            // The removal of an open file changes its status.
            match (number % 6, node.problem) {
                (5, problem) => assert_eq!(problem, None, "{name} was not touched"),
                (0, problem) => assert_ne!(problem, Some(NodeProblem::Unreadable), "{name}"),
                (1..=3, problem) => assert_ne!(problem, Some(NodeProblem::Vanished), "{name}"),
                _ => {}
            }
            if let Some(content) = node.content {
                assert_eq!(content.size(), node.size, "{name}");
            }
        }
        let (_, problems) = place.restore_with_problems(&root);
        let lacking = (0..COUNT).filter(|number| {
            let path = format!("{:02}/{number}", number / 50);
            let expected = contents(*number);
            match fs::read(place.destination().join(&path)) {
                // Shortened, lengthened by zeros, or as it was.
                Ok(bytes) => {
                    let common = bytes.len().min(expected.len());
                    assert!(bytes[..common] == expected[..common], "{path}");
                    assert!(bytes[common..].iter().all(|byte| *byte == 0), "{path}");
                    false
                }
                Err(_) => node(&place, &root, &path).kind == varve_content::NodeKind::File,
            }
        });
        assert_eq!(lacking.count(), problems.len(), "{problems:?}");
    }
}

#[test]
fn folders_may_vanish_after_they_were_listed_ahead() {
    let place = Place::new();
    for number in 0..200 {
        place.file(&format!("{number:03}/below/file"), noise(number, 3000));
    }
    let (root, problems) = archive_while(&place, 20, || {
        for number in (0..200).step_by(2) {
            fs::remove_dir_all(place.source().join(format!("{number:03}"))).unwrap();
        }
    });
    for number in 0..200 {
        let node = node(&place, &root, &format!("{number:03}"));
        if number % 2 == 1 {
            assert_eq!(node.problem, None, "{number}");
            let file = lookup(&StoredFiles::new(&place.blocks), &node, Path::new("below/file")).unwrap();
            assert_eq!((file.problem, file.size), (None, 3000), "{number}");
        }
    }
    assert!(problems.iter().all(|problem| !problem.path.as_os_str().is_empty()), "{problems:?}");
}

#[test]
fn many_workers_give_the_snapshot_of_one() {
    let mut roots = Vec::new();
    let folder = Place::new();
    for number in 0..400_usize {
        folder.file(&format!("{}/{}/{number}", number % 7, number % 31), noise(number as u64, number * 97));
    }
    folder.file("large", noise(1, 9 << 20));
    for inline in [true, false] {
        let place = Place { inline, ..Place::new() };
        let (archived, problems) = place.try_archive_of(&folder.source(), None);
        assert!(problems.is_empty(), "{problems:?}");
        roots.push(archived.unwrap().root.content);
    }
    assert_eq!(roots[0], roots[1]);
}
