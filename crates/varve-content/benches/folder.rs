//! Measures how fast a folder of many small files, and one large file, are archived, archived
//! again, compared and restored. The store is in memory.
//!
//! Run with `cargo bench -p varve-archive`. `cargo test --benches` runs it at a tiny size, so that
//! it keeps working.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a bench takes the time and says so")]

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use varve_block::MemoryBlockStore;
use varve_content::folder::{
    FolderOptions, RestoreOptions, StoredFiles, Watch, archive_folder, compare_folders, restore_folder,
};
use varve_content::{Progress, Tree};
use varve_world::RealWorkers;

const FOLDER_FILE_COUNT: usize = 100;

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (file_count, large_bytes) = if is_bench { (100_000, 1 << 30) } else { (300, 1 << 20) };
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("source");
    make_files(&source.join("small"), file_count);
    measure_folder("small files", &source.join("small"), &place.path().join("small"));
    std::fs::create_dir_all(source.join("large")).unwrap();
    std::fs::write(source.join("large/file"), noise(large_bytes, 1)).unwrap();
    measure_folder("one large file", &source.join("large"), &place.path().join("large"));
}

fn measure_folder(name: &str, source: &Path, destination: &Path) {
    let (blocks, workers, progress) = (MemoryBlockStore::new(), RealWorkers::one_a_core(), Progress::new());
    let watch = Watch { progress: &progress, report: &|problem| panic!("{problem}") };
    let options = FolderOptions::default();
    let archive = |previous| archive_folder(&blocks, &workers, source, previous, &options, watch).unwrap();
    let first = measure(&format!("{name}: fresh"), || archive(None));
    let second = measure(&format!("{name}: unchanged"), || archive(Some(&first.root)));
    assert_eq!(second.counts.read_count, 0);
    assert_eq!(first.root.content, second.root.content);
    measure(&format!("{name}: the same again"), || archive(None));
    measure(&format!("{name}: restore"), || {
        restore_folder(
            &StoredFiles::new(&blocks),
            &workers,
            &first.root,
            destination,
            RestoreOptions::default(),
            watch,
        )
        .unwrap()
    });
    let restored = archive_folder(&blocks, &workers, destination, None, &options, watch).unwrap();
    let mut change_count = 0;
    measure(&format!("{name}: compare"), || {
        compare_folders(
            Tree { files: &StoredFiles::new(&blocks), root: &first.root },
            Tree { files: &StoredFiles::new(&blocks), root: &restored.root },
            &mut |_, _| {
                change_count += 1;
                ControlFlow::Continue(())
            },
        );
    });
    println!("  {change_count} changes, content {}", first.root.content.unwrap().root());
}

fn make_files(folder: &Path, file_count: usize) {
    for number in 0..file_count {
        let parent = folder.join(format!("{:04}", number / FOLDER_FILE_COUNT));
        if number % FOLDER_FILE_COUNT == 0 {
            std::fs::create_dir_all(&parent).unwrap();
        }
        let bytes = noise(1 + number * 7919 % 8191, number as u64 + 2);
        std::fs::write(parent.join(format!("file-{number:06}")), bytes).unwrap();
    }
}

/// Bytes that do not repeat: xorshift (Marsaglia 2003).
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(length.div_ceil(8)).flatten().take(length).collect()
}

fn measure<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    println!("{name}: {:.3} s", begun.elapsed().as_secs_f64());
    result
}
