//! Memory for transfers past the system's memory of files, which want it to begin where a page does.

use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

/// Where such transfers begin and end, in memory and in the file. No disk has larger sectors.
pub const PAGE_BYTES: usize = 4096;

/// The length of a huge page, where a processor has some: one piece for the disk, where as many small pages are 512, and touched once.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// From so many bytes on it is worth a huge page, even one that is not filled: a disk that takes no more than 256 pieces at a time, as many
/// do, would have to be asked twice.
const LARGE_BYTES: usize = 1 << 20;

/// Bytes that grow as a `Vec` does and whose first is the first of a page.
#[derive(Debug, Default)]
pub struct PageBuffer {
    memory: Memory,
    /// Where in it the first page begins.
    first: usize,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Heap(Vec<u8>),
    /// Of its own, with huge pages where the system has some.
    Mapped(MmapMut),
}

impl Default for Memory {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Memory {
    /// With room for so many bytes from the first page in it on.
    fn zeroed(byte_count: usize) -> Self {
        if byte_count >= LARGE_BYTES
            && let Ok(map) = MmapMut::map_anon(byte_count.next_multiple_of(HUGE_PAGE_BYTES))
        {
            // Without them it is only slower.
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
    /// No bytes yet, and room for so many.
    #[must_use]
    pub fn with_capacity(byte_count: usize) -> Self {
        let memory = Memory::zeroed(byte_count);
        let first = memory.bytes().as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self { memory, first, len: 0 }
    }

    /// So many zeros.
    #[must_use]
    pub fn zeroed(byte_count: usize) -> Self {
        let mut buffer = Self::with_capacity(byte_count);
        buffer.len = byte_count;
        buffer
    }

    /// For how many bytes there is room before they have to move.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.bytes().len() - self.first
    }

    /// Forgets the bytes and keeps the room.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Makes it so long, by zeros at its end or by letting go of some.
    pub fn resize(&mut self, byte_count: usize) {
        self.make_room(byte_count);
        let before = std::mem::replace(&mut self.len, byte_count);
        if before < byte_count {
            self[before..].fill(0);
        }
    }

    /// Adds bytes at its end.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.advance(bytes.len());
    }

    /// Room for so many bytes behind those that are there, with whatever was in it before: what is written there counts once it is
    /// [taken in](Self::advance).
    pub fn room(&mut self, byte_count: usize) -> &mut [u8] {
        self.make_room(self.len + byte_count);
        &mut self.memory.bytes_mut()[self.first..][self.len..][..byte_count]
    }

    /// Adds so many bytes at its end, which are in the room behind it.
    ///
    /// # Panics
    /// If there is no room for so many.
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
