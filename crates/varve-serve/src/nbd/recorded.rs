//! A disk that records its reads: the profile of a machine's start comes from them.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::disk::{DiskExtent, ServedDisk};

/// At most this many reads are recorded. The later ones are not part of a start.
const READS_MAX: usize = 1 << 20;

/// A read of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRead {
    /// The time since the first read.
    pub since: Duration,
    pub range: Range<u64>,
}

/// A read-only disk that records the range of each read and its time.
pub struct RecordedDisk {
    below: Arc<dyn ServedDisk>,
    reads: Mutex<TimedReads>,
}

#[derive(Default)]
struct TimedReads {
    first: Option<Instant>,
    reads: Vec<RecordedRead>,
}

impl RecordedDisk {
    /// Records the reads of a disk. A disk that takes writes is recorded below its overlay: what
    /// was written is not read from the archive.
    #[must_use]
    pub fn new(below: Arc<dyn ServedDisk>) -> Self {
        Self { below, reads: Mutex::default() }
    }

    /// Returns the reads so far, in order.
    #[must_use]
    pub fn reads(&self) -> Vec<RecordedRead> {
        self.reads.lock().reads.clone()
    }

    /// Drops the reads so far: another start begins.
    pub fn begin_again(&self) {
        *self.reads.lock() = TimedReads::default();
    }
}

impl ServedDisk for RecordedDisk {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        {
            let mut recorded = self.reads.lock();
            let now = Instant::now();
            let first = *recorded.first.get_or_insert(now);
            let range = offset..offset.saturating_add(into.len() as u64);
            if recorded.reads.len() < READS_MAX {
                recorded.reads.push(RecordedRead { since: now - first, range });
            }
        }
        self.below.read_at(offset, into)
    }

    fn map(&self, range: Range<u64>) -> io::Result<Vec<DiskExtent>> {
        self.below.map(range)
    }

    fn read_ahead(&self) {
        self.below.read_ahead();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zeros;

    impl ServedDisk for Zeros {
        fn size(&self) -> u64 {
            1 << 20
        }

        fn read_at(&self, _: u64, into: &mut [u8]) -> io::Result<()> {
            into.fill(0);
            Ok(())
        }

        fn map(&self, range: Range<u64>) -> io::Result<Vec<DiskExtent>> {
            Ok(vec![DiskExtent { length: range.end - range.start, is_hole: true }])
        }
    }

    #[test]
    fn reads_are_recorded_in_order() {
        let disk = RecordedDisk::new(Arc::new(Zeros));
        for offset in [8192, 0, 4096] {
            disk.read_at(offset, &mut [1; 512]).unwrap();
        }
        let reads = disk.reads();
        assert_eq!(reads.iter().map(|read| read.range.start).collect::<Vec<_>>(), [8192, 0, 4096]);
        assert_eq!(reads[0].since, Duration::ZERO);
        assert!(reads.is_sorted_by_key(|read| read.since));
        disk.begin_again();
        assert_eq!(disk.reads(), []);
    }
}
