//! Disks with random damage are read to an end, in bounded time and memory.
#![allow(clippy::cast_possible_truncation, reason = "numbers that the test itself has made")]

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use crate::sandbox::{Sandbox, missing};
use varve_image::{
    BlockOwners, Disk, ExtFileSystem, FileId, FileKind, FileSystem, LeaveOut, LeftOut, ReadAt,
};

/// The number of damaged copies of each disk.
const COPIES: u64 = 150;
/// The bound on the files visited: a malicious file system can name each file again and again.
const STEPS_MAX: usize = 400;

const SHAPES: [&[&str]; 6] = [
    &["mkfs.ext2", "-b", "1024", "-I", "128"],
    &["mkfs.ext3", "-b", "1024", "-O", "^metadata_csum", "-J", "size=1"],
    &["mkfs.ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^has_journal"],
    &["mkfs.ext4", "-b", "1024", "-O", "^metadata_csum,inline_data,^has_journal,meta_bg,^resize_inode"],
    &["mkfs.ext4", "-b", "1024", "-O", "^metadata_csum,bigalloc,^has_journal", "-C", "4096"],
    &["mkfs.ext4", "-b", "1024", "-J", "size=1"],
];

/// The same seed gives the same numbers.
pub struct Draws(pub u64);

impl Draws {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 20
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Changes some bytes that are not zero, and some shortly after them: those are the bytes that are
/// read.
pub fn damage(bytes: &mut [u8], used: &[usize], draws: &mut Draws) {
    for _ in 0..=draws.below(12) {
        let at = (used[draws.below(used.len())] + draws.below(8)).min(bytes.len() - 8);
        match draws.below(5) {
            0 => bytes[at] ^= 1 << draws.below(8),
            1 => bytes[at] = draws.next() as u8,
            2 => bytes[at..at + 4].fill([0, 0xff, 0x7f][draws.below(3)]),
            3 => bytes[at..at + 4].copy_from_slice(&(draws.below(64) as u32).to_le_bytes()),
            _ => {
                let from = used[draws.below(used.len())].min(bytes.len() - 64);
                let to = at.min(bytes.len() - 64);
                bytes.copy_within(from..from + 60, to);
            }
        }
    }
}

fn tree(folder: &Path) {
    fs::create_dir_all(folder.join("a/b/c")).unwrap();
    for number in 0..60 {
        fs::write(folder.join(format!("a/a file with quite a long name {number}")), [b'x'; 40]).unwrap();
    }
    fs::write(
        folder.join("big"),
        (0..400_000_u32).flat_map(u32::to_le_bytes).take(500_000).collect::<Vec<_>>(),
    )
    .unwrap();
    symlink("a/b", folder.join("short")).unwrap();
    symlink("x".repeat(200), folder.join("long")).unwrap();
}

/// Visits everything once, and returns the number of steps.
fn look(files: &dyn FileSystem) -> usize {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![files.root()];
    let mut steps = 0;
    while let Some(id) = waiting.pop().filter(|_| steps < STEPS_MAX) {
        steps += 1;
        if !seen.insert(id) {
            continue;
        }
        let _ = files.xattrs(id);
        let _ = files.places(id);
        let Ok(status) = files.status(id) else { continue };
        match status.kind {
            FileKind::Folder => {
                let mut count = 0;
                let _ = files.children(id, 0, &mut |child| {
                    assert!(!child.name.is_empty() && child.name != b"." && child.name != b"..");
                    assert!(!child.name.iter().any(|byte| [b'/', 0].contains(byte)));
                    waiting.push(child.id);
                    count += 1;
                    if count < STEPS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
            }
            FileKind::SymbolicLink => drop(files.link_target(id)),
            FileKind::File => {
                let mut bytes = vec![0; 20_000];
                for place in [0, 11_111, status.size.saturating_sub(10_000), status.size / 2, u64::MAX - 5] {
                    let _ = files.read_at(id, place, &mut bytes);
                }
                let mut place = 0;
                for _ in 0..50 {
                    let Ok(Some(range)) = files.next_data(id, place) else { break };
                    assert!(range.start >= place && range.end > range.start && range.end <= status.size);
                    place = range.end;
                }
            }
            _ => {}
        }
    }
    steps
}

#[test]
fn damaged_file_systems_are_read_to_an_end() {
    if missing(&["mkfs.ext4"]) {
        return;
    }
    let sandbox = Sandbox::new();
    tree(&sandbox.path("tree"));
    for (number, shape) in SHAPES.into_iter().enumerate() {
        let image = sandbox.sparse("image", 4 << 20);
        let folder = sandbox.path("tree");
        let words = ["-q", "-F", "-N", "128", "-d", folder.to_str().unwrap(), image.to_str().unwrap()];
        sandbox.run(&[shape, &words].concat(), "");
        if shape.contains(&"-J") && !missing(&["debugfs"]) {
            // The journal holds a pending block of the file `big`, three times.
            let files = ExtFileSystem::open(Arc::new(fs::read(&image).unwrap())).unwrap();
            let big = files.child(files.root(), b"big").unwrap().unwrap().id;
            let block = files.runs(big).unwrap()[0].physical.unwrap();
            fs::write(sandbox.path("block"), [b'j'; 1024]).unwrap();
            let write = format!("jw -b {block} block\n").repeat(3);
            let script = format!("jo\n{write}jw -r {block}\njc\n");
            sandbox.run(&["debugfs", "-w", "-f", "/dev/stdin", image.to_str().unwrap()], &script);
        }
        let whole = fs::read(&image).unwrap();
        // The content of files can do no harm.
        let files = ExtFileSystem::open(Arc::new(whole.clone())).unwrap();
        assert_eq!(look(&files), 68, "{shape:?}");
        let owners = BlockOwners::scan(&files).unwrap();
        let is_content = |at: usize| {
            let owner = owners.of(at as u64 / 1024);
            owner.is_some_and(|owner| files.status(owner.file).unwrap().kind == FileKind::File)
        };
        let used: Vec<_> = (0..whole.len()).filter(|at| whole[*at] != 0 && !is_content(*at)).collect();
        let mut draws = Draws(number as u64);
        let mut opened = 0;
        for _ in 0..COPIES {
            let mut bytes = whole.clone();
            damage(&mut bytes, &used, &mut draws);
            let disk: Arc<dyn ReadAt> = Arc::new(bytes);
            let _ = LeftOut::find(Arc::clone(&disk), LeaveOut { swap: true, free: true });
            let Ok(files) = ExtFileSystem::open(disk) else { continue };
            opened += 1;
            look(&files);
            let _ = files.free_blocks();
            let _ = BlockOwners::scan(&files);
            let _ = files.status(FileId(draws.next()));
        }
        assert!(opened > COPIES / 3, "{shape:?}: {opened}");
    }
}

#[test]
fn damaged_tables_are_read_to_an_end() {
    if missing(&["sfdisk"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let tables = [
        "label: gpt\nstart=2048, size=2048\nstart=4096, size=2048, name=\"x\"",
        "label: dos\nstart=2048, size=512, type=83\nstart=4096, size=4096, type=5\nstart=4608, size=512\nstart=6144, size=512",
    ];
    for table in tables {
        let whole = sandbox.table(table, 5 << 20);
        let used: Vec<_> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
        let mut draws = Draws(7);
        for _ in 0..COPIES {
            let mut bytes = whole.clone();
            damage(&mut bytes, &used, &mut draws);
            let disk = Disk::open(Arc::new(bytes));
            assert!(!disk.volumes().is_empty() || !disk.problems().is_empty());
            let mut names: Vec<_> = disk.volumes().iter().map(|volume| volume.name()).collect();
            names.sort_unstable();
            assert!(names.is_sorted_by(|one, two| one < two), "every name is one volume's: {names:?}");
            for volume in disk.volumes() {
                let mut bytes = [0; 512];
                assert!(
                    volume.size() < 512 || volume.read().read_at(volume.size() - 512, &mut bytes).is_ok()
                );
            }
        }
    }
}
