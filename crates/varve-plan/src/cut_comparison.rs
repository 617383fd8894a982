//! The blocks that disks and folders would have in a store, if the disks were cut in blocks of one
//! size, and if they were cut where their files begin.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_block::{Block, BlockKind, BlockName, BlockStore, Bytes, GetError, PutError, Score, SyncError};
use varve_content::Progress;
use varve_content::image::{
    ArchiveImageError, ImageSource, OpenSourceError, archive_image, archive_image_by_files,
};
use varve_image::{FilePlaces, ReadAt};
use varve_tree::{ContentWriter, Cutting};
use varve_world::Workers;

/// Bytes of a file that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Different blocks, and their bytes before compression.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct CutCount {
    pub blocks: u64,
    pub bytes: u64,
}

/// The same sources in both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct CutCounts {
    pub fixed: CutCount,
    pub at_files: CutCount,
}

/// Cuts sources in both ways with the code of snapshots, and counts what is different. Takes
/// some twenty bytes of memory a block.
pub struct CutComparison {
    workers: Arc<dyn Workers>,
    block_bytes: u32,
    fixed: NamesOnly,
    at_files: NamesOnly,
}

/// A source could not be cut.
#[derive(Debug, thiserror::Error)]
pub enum CompareCutsError {
    #[error("{0}")]
    Open(#[from] OpenSourceError),
    #[error("{0}")]
    Archive(#[from] ArchiveImageError),
    #[error("{0}")]
    Read(#[from] std::io::Error),
    #[error("{0}")]
    Put(#[from] PutError),
}

impl CutComparison {
    /// Compares with blocks of this size.
    #[must_use]
    pub fn new(workers: Arc<dyn Workers>, block_bytes: u32) -> Self {
        Self { workers, block_bytes, fixed: NamesOnly::default(), at_files: NamesOnly::default() }
    }

    /// Adds a disk. Returns the number of places at which its files begin, which is 0 if none are
    /// known.
    ///
    /// # Errors
    /// [`CompareCutsError`].
    pub fn add_disk(&self, path: &Path) -> Result<usize, CompareCutsError> {
        let source = ImageSource::open(path)?;
        let disk = source.reader()?;
        let places = disk.map(|disk: Arc<dyn ReadAt>| FilePlaces::find(disk, &|| false)).unwrap_or_default();
        let (workers, progress) = (self.workers.as_ref(), Progress::new());
        archive_image(&self.fixed, workers, &source, self.block_bytes, None, &progress)?;
        let sizes = (Cutting::FILE, self.block_bytes);
        archive_image_by_files(&self.at_files, workers, &source, &places, sizes, &progress)?;
        Ok(places.run_count())
    }

    /// Adds a file of a folder, which is cut by its content in both ways.
    ///
    /// # Errors
    /// [`CompareCutsError`].
    pub fn add_file(&self, file: &mut dyn Read) -> Result<(), CompareCutsError> {
        let stores = [&self.fixed, &self.at_files];
        let mut writers = stores.map(|store| ContentWriter::new(store, BlockKind::Data, Cutting::FILE));
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            for writer in &mut writers {
                writer.write(&buffer[..count])?;
            }
        }
        for writer in writers {
            writer.finish()?;
        }
        Ok(())
    }

    /// Returns what was counted so far.
    #[must_use]
    pub fn counts(&self) -> CutCounts {
        CutCounts { fixed: self.fixed.seen.lock().1, at_files: self.at_files.seen.lock().1 }
    }
}

/// A store that forgets the bytes of its blocks.
#[derive(Default)]
struct NamesOnly {
    /// The first eight bytes of each name, and the sums.
    seen: Mutex<(BTreeSet<[u8; 8]>, CutCount)>,
}

impl BlockStore for NamesOnly {
    fn score_bytes(&self) -> usize {
        32
    }

    fn empty_score(&self) -> Score {
        score(&[])
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let score = score(block.bytes);
        let key = score.as_bytes().first_chunk().copied().unwrap_or_default();
        let mut seen = self.seen.lock();
        if seen.0.insert(key) {
            seen.1.blocks += 1;
            seen.1.bytes += block.bytes.len() as u64;
        }
        Ok(score)
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        Err(GetError::NotFound { name: *name })
    }

    fn sync(&self) -> Result<(), SyncError> {
        Ok(())
    }
}

fn score(bytes: &[u8]) -> Score {
    let (low, high) = (xxhash_rust::xxh3::xxh3_128(bytes), xxhash_rust::xxh3::xxh3_128_with_seed(bytes, 1));
    let mut score = [0; 32];
    score[..16].copy_from_slice(&low.to_le_bytes());
    score[16..].copy_from_slice(&high.to_le_bytes());
    Score::from(score)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use varve_world::InlineWorkers;

    use super::*;

    #[test]
    fn a_file_in_two_folders_is_counted_once() {
        let comparison = CutComparison::new(Arc::new(InlineWorkers), 16 << 10);
        let text: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        for _ in 0..2 {
            comparison.add_file(&mut text.as_slice()).unwrap();
        }
        let CutCounts { fixed, at_files } = comparison.counts();
        assert_eq!(fixed, at_files);
        assert!(fixed.bytes > 1_200_000 && fixed.bytes < 1_210_000, "{fixed:?}");
    }

    #[test]
    fn a_disk_without_files_is_the_same_in_both_ways() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(&path, &bytes).unwrap();
        let comparison = CutComparison::new(Arc::new(InlineWorkers), 4 << 10);
        assert_eq!(comparison.add_disk(&path).unwrap(), 0);
        let CutCounts { fixed, at_files } = comparison.counts();
        let leaves = bytes.len() as u64;
        assert!([fixed, at_files].iter().all(|count| (leaves..leaves + 10_000).contains(&count.bytes)));
    }
}
