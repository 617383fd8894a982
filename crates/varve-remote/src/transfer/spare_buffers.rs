//! Reuses buffers: the first touch of fresh memory costs more than copying the data of a fast line.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use varve_world::PageBuffer;

/// The most memory that is kept. Readers return a buffer for each that they take, so a few buffers
/// serve many readers.
const SPARE_BYTES_MAX: usize = 64 << 20;
/// A shorter answer uses no spare buffer.
const SHORT_BYTES_MAX: usize = 256 << 10;

/// The unused buffers.
#[derive(Default)]
pub(crate) struct SpareBuffers(Mutex<Vec<PageBuffer>>);

/// A buffer in use.
pub(crate) struct BorrowedBuffer {
    pub bytes: PageBuffer,
    home: Option<Arc<SpareBuffers>>,
}

impl SpareBuffers {
    /// Returns an empty buffer. Its capacity may be less than `byte_count`.
    pub fn take(self: &Arc<Self>, byte_count: usize) -> BorrowedBuffer {
        if byte_count <= SHORT_BYTES_MAX {
            return BorrowedBuffer { bytes: PageBuffer::with_capacity(byte_count), home: None };
        }
        let spare = self.0.lock().pop();
        let bytes = spare.unwrap_or_else(|| PageBuffer::with_capacity(byte_count));
        BorrowedBuffer { bytes, home: Some(Arc::clone(self)) }
    }
}

impl BorrowedBuffer {
    /// Returns the contents. The buffer is reused when they are dropped.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for BorrowedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for BorrowedBuffer {
    fn drop(&mut self) {
        let Some(home) = &self.home else { return };
        let mut spare = home.0.lock();
        let kept: usize = spare.iter().map(PageBuffer::capacity).sum();
        if kept + self.bytes.capacity() <= SPARE_BYTES_MAX {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.clear();
            spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_once_nobody_reads_it() {
        let home = Arc::new(SpareBuffers::default());
        let mut first = home.take(1 << 20);
        first.bytes.extend_from_slice(b"what came");
        let place = first.bytes.as_ptr();
        let (one, other) = (first.freeze(), home.take(1 << 20));
        assert_ne!(other.bytes.as_ptr(), place);
        let part = one.slice(5..);
        drop(one);
        assert_eq!(part, &b"came"[..]);
        drop(part);
        let again = home.take(1 << 20);
        assert_eq!((again.bytes.as_ptr(), again.bytes.len()), (place, 0));
    }

    #[test]
    fn no_more_are_kept_than_a_few() {
        let home = Arc::new(SpareBuffers::default());
        let kept = || home.0.lock().iter().map(PageBuffer::capacity).sum::<usize>();
        let used: Vec<_> = (0..9).map(|_| home.take(10 << 20)).collect();
        drop(used);
        assert_eq!(kept(), 60 << 20);
        drop(home.take(10));
        assert_eq!(kept(), 60 << 20);
    }
}
