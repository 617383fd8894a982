//! Determines the parts of a running machine's disk that are left out, across several snapshots.
//!
//! A dirty bitmap tells what has changed on the disk. A part that was left out of a snapshot is not
//! in that snapshot as it was on the disk, so it is never treated as unchanged: it is left out
//! again, or read. So the following holds for every snapshot: the parts that it leaves out are all
//! zeros, and the rest is as the disk was.
//!
//! The earlier image tells where such parts may be: the headers that identify swap are stored in
//! it. The search returns every range that any version of this program may have left out, proven or
//! not, instead of the ranges that this version would leave out.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_content::image::{ContentRun, ImageReader, ReadRequest, ReadRequestError, RunContent, ServedImage};
use varve_image::{LeftOut, Ranges, ReadAt};

/// Returns the ranges that may differ between an earlier snapshot and the disk, because the
/// snapshot left them out.
///
/// # Errors
/// The earlier snapshot cannot be read at a place that matters.
pub(crate) fn left_out_before(earlier: ImageReader, block_bytes: u32) -> io::Result<Ranges> {
    let earlier = Arc::new(FailureReader { reader: earlier, failure: Mutex::default() });
    let possible = LeftOut::ever_possible(Arc::clone(&earlier) as _);
    // The search treats unreadable bytes as content that is never left out.
    if let Some(failure) = earlier.failure.lock().take() {
        return Err(failure);
    }
    let mut left_out = Ranges::default();
    for range in possible {
        if !was_kept(&earlier.reader, &range, u64::from(block_bytes))? {
            left_out.add(range);
        }
    }
    Ok(left_out)
}

/// Returns true if a candidate range was archived: then blocks that lie entirely within it have
/// data.
fn was_kept(earlier: &ImageReader, range: &Range<u64>, block_bytes: u64) -> io::Result<bool> {
    let blocks = range.start.next_multiple_of(block_bytes)..range.end / block_bytes * block_bytes;
    if blocks.is_empty() {
        return Ok(false);
    }
    Ok(earlier.next_data_in(blocks).map_err(io::Error::other)?.is_some())
}

/// A reader that remembers its first read error.
struct FailureReader {
    reader: ImageReader,
    failure: Mutex<Option<io::Error>>,
}

impl ReadAt for FailureReader {
    fn size(&self) -> u64 {
        ReadAt::size(&self.reader)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let read = self.reader.read_at(offset, into);
        if let Err(error) = &read
            && error.kind() != io::ErrorKind::UnexpectedEof
        {
            let again = io::Error::new(error.kind(), error.to_string());
            self.failure.lock().get_or_insert(again);
        }
        read
    }
}

/// A disk on which some ranges never count as unchanged.
pub(crate) struct NeverUnchanged<D> {
    pub(crate) disk: D,
    pub(crate) places: Ranges,
}

impl<D: ServedImage> ServedImage for NeverUnchanged<D> {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn content_at(&self, offset: u64) -> io::Result<ContentRun> {
        let run = self.disk.content_at(offset)?;
        let place = self.places.next_after(offset).filter(|place| place.start < run.end);
        Ok(match place {
            Some(place) if run.content == RunContent::Unchanged && place.start <= offset => {
                ContentRun { content: RunContent::Data, end: place.end.min(run.end) }
            }
            Some(place) if run.content == RunContent::Unchanged => ContentRun { end: place.start, ..run },
            _ => run,
        })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, into)
    }

    fn read_all(&self, places: &mut [ReadRequest<'_>]) -> Result<(), ReadRequestError> {
        self.disk.read_all(places)
    }

    fn held_still(&self) -> io::Result<bool> {
        self.disk.held_still()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk of 100 bytes, of which only the first 20 have changed.
    struct Disk;

    impl ServedImage for Disk {
        fn size(&self) -> u64 {
            100
        }

        fn content_at(&self, offset: u64) -> io::Result<ContentRun> {
            let has_changed = offset < 20;
            let content = if has_changed { RunContent::Data } else { RunContent::Unchanged };
            Ok(ContentRun { content, end: if has_changed { 20 } else { 100 } })
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn what_was_left_out_is_never_unchanged() {
        let places: Ranges = [10..30, 40..50, 90..200].into_iter().collect();
        let disk = NeverUnchanged { disk: Disk, places };
        let mut runs = Vec::new();
        let mut at = 0;
        while at < 100 {
            let run = disk.content_at(at).unwrap();
            runs.push((run.content, run.end));
            at = run.end;
        }
        let (data, unchanged) = (RunContent::Data, RunContent::Unchanged);
        assert_eq!(runs, [(data, 20), (data, 30), (unchanged, 40), (data, 50), (unchanged, 90), (data, 100)]);
    }
}
