//! Page-aligned buffers, for transfers that bypass the page cache.

use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

/// The alignment of direct transfers, in memory and in the file. No disk has larger sectors.
pub const PAGE_BYTES: usize = 4096;

/// The size of a huge page on common processors. The disk gets it as one segment instead of 512,
/// and it costs one page fault.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// From this size on, a buffer uses huge pages, even if the last one is only partly filled. Many
/// disks accept at most 256 segments per request, so small pages would need two requests.
const LARGE_BYTES: usize = 1 << 20;

/// A growable buffer like a `Vec`, whose first byte is aligned to a page.
#[derive(Debug, Default)]
pub struct PageBuffer {
    memory: BufferMemory,
    /// The offset of the first page in `memory`.
    first: usize,
    len: usize,
}

#[derive(Debug)]
enum BufferMemory {
    Heap(Vec<u8>),
    /// A mapping of its own, with huge pages if the system supports them.
    Mapped(MmapMut),
}

impl Default for BufferMemory {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl BufferMemory {
    /// Allocates zeroed memory with space for `byte_count` bytes from its first page on.
    fn zeroed(byte_count: usize) -> Self {
        if byte_count >= LARGE_BYTES
            && let Ok(map) = MmapMut::map_anon(byte_count.next_multiple_of(HUGE_PAGE_BYTES))
        {
            // Huge pages are only an optimisation.
            let _ = map.advise(Advice::HugePage);
            return Self::Mapped(map);
        }
        Self::Heap(vec![0; byte_count + PAGE_BYTES])
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

impl PageBuffer {
    /// An empty buffer with the given capacity.
    #[must_use]
    pub fn with_capacity(byte_count: usize) -> Self {
        let memory = BufferMemory::zeroed(byte_count);
        let first = memory.bytes().as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self { memory, first, len: 0 }
    }

    /// A buffer of zeros.
    #[must_use]
    pub fn zeroed(byte_count: usize) -> Self {
        let mut buffer = Self::with_capacity(byte_count);
        buffer.len = byte_count;
        buffer
    }

    /// The number of bytes that fit without reallocation.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.bytes().len() - self.first
    }

    /// Removes all bytes, and keeps the capacity.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Changes the length, adding zeros or removing bytes at the end.
    pub fn resize(&mut self, byte_count: usize) {
        self.make_room(byte_count);
        let before = std::mem::replace(&mut self.len, byte_count);
        if before < byte_count {
            self[before..].fill(0);
        }
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.advance(bytes.len());
    }

    /// Returns space for `byte_count` bytes after the current end. It holds arbitrary old bytes.
    /// Bytes that are written there become part of the buffer with [`advance`](Self::advance).
    pub fn room(&mut self, byte_count: usize) -> &mut [u8] {
        self.make_room(self.len + byte_count);
        &mut self.memory.bytes_mut()[self.first..][self.len..][..byte_count]
    }

    /// Extends the buffer over bytes that were written to the space after its end.
    ///
    /// # Panics
    /// If there is not enough space.
    pub fn advance(&mut self, byte_count: usize) {
        assert!(byte_count <= self.capacity() - self.len, "more bytes than there is room for");
        self.len += byte_count;
    }

    fn make_room(&mut self, byte_count: usize) {
        if byte_count > self.capacity() {
            let mut larger = Self::with_capacity(byte_count.max(2 * self.capacity()));
            larger.extend_from_slice(self);
            *self = larger;
        }
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.bytes()[self.first..][..self.len]
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.first..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Change {
        Extend(Vec<u8>),
        Fill(Vec<u8>),
        Resize(usize),
        Clear,
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..6000).prop_map(Change::Extend),
            proptest::collection::vec(any::<u8>(), 0..6000).prop_map(Change::Fill),
            (0_usize..20_000).prop_map(Change::Resize),
            Just(Change::Clear),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_vec_that_begins_with_a_page(changes in proptest::collection::vec(change(), 0..20)) {
            let (mut buffer, mut model) = (PageBuffer::default(), Vec::new());
            for change in changes {
                match change {
                    Change::Extend(bytes) => {
                        buffer.extend_from_slice(&bytes);
                        model.extend(bytes);
                    }
                    Change::Fill(bytes) => {
                        buffer.room(bytes.len() + 9)[..bytes.len()].copy_from_slice(&bytes);
                        buffer.advance(bytes.len());
                        model.extend(bytes);
                    }
                    Change::Resize(byte_count) => {
                        buffer.resize(byte_count);
                        model.resize(byte_count, 0);
                    }
                    Change::Clear => {
                        buffer.clear();
                        model.clear();
                    }
                }
                prop_assert_eq!(&buffer[..], &model[..]);
                prop_assert!(buffer.is_empty() || buffer.as_ptr().addr().is_multiple_of(PAGE_BYTES));
            }
        }
    }

    #[test]
    fn room_is_kept() {
        for byte_count in [10_000, LARGE_BYTES, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 1] {
            let mut buffer = PageBuffer::zeroed(byte_count);
            assert!(buffer.iter().all(|byte| *byte == 0));
            let place = buffer.as_ptr();
            assert_eq!(place.align_offset(PAGE_BYTES), 0);
            buffer.fill(1);
            buffer.clear();
            buffer.extend_from_slice(&[2]);
            buffer.resize(byte_count);
            assert_eq!((buffer.as_ptr(), buffer[0], buffer[byte_count - 1]), (place, 2, 0));
        }
    }

    #[test]
    fn what_grows_past_a_huge_page_moves_there() {
        let mut buffer = PageBuffer::default();
        let piece: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        while buffer.len() < 2 * HUGE_PAGE_BYTES {
            buffer.extend_from_slice(&piece);
        }
        assert!(buffer.chunks(piece.len()).all(|part| part == piece));
        assert_eq!(buffer.as_ptr().align_offset(PAGE_BYTES), 0);
    }
}
