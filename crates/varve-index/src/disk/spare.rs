//! Memory that is made ready before it is needed, a piece with each insertion.
//!
//! A large piece of zeros from the system costs nothing until it is written to; then each of its pages costs a fault: a microsecond, and in a
//! virtual machine whose host has to find the page first up to a hundred. Entries come in no order, so the first few thousand of them
//! would meet nearly as many such pages. What a pass has written is cleared and used again, in the same way.

use std::collections::TryReserveError;

use super::buffer::Buffer;
use super::filter::{Filter, Line};

/// What a filter is made for where there is no memory for as many keys as are expected.
const FEW_KEYS: u64 = 1 << 20;

/// A list of one item over and over, as far as it was laid out.
pub(super) struct Laid<T> {
    items: Vec<T>,
    item: T,
    count: usize,
}

impl<T: Copy> Laid<T> {
    /// One that will have so many items. No memory of it has been touched.
    pub(super) fn new(item: T, count: usize) -> Self {
        Self { items: Vec::with_capacity(count), item, count }
    }

    /// The same, if there is so much memory.
    fn reserve(item: T, count: usize) -> Result<Self, TryReserveError> {
        let mut items = Vec::new();
        items.try_reserve_exact(count)?;
        Ok(Self { items, item, count })
    }

    /// The same in memory that was used before.
    pub(super) fn again(mut items: Vec<T>, item: T, count: usize) -> Self {
        items.clear();
        items.reserve_exact(count);
        Self { items, item, count }
    }

    /// Lays out a share of all, or what is missing.
    pub(super) fn lay(&mut self, (share, of): (usize, usize)) {
        let items = (self.count as u128 * share as u128).div_ceil(of.max(1) as u128);
        let len = self.items.len().saturating_add(usize::try_from(items).unwrap_or(usize::MAX));
        self.items.resize(len.min(self.count), self.item);
    }

    pub(super) fn is_done(&self) -> bool {
        self.items.len() == self.count
    }

    /// All of it; what is missing is laid out now.
    pub(super) fn finish(mut self) -> Vec<T> {
        self.items.resize(self.count, self.item);
        self.items
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.items.capacity() * size_of::<T>()) as u64
    }
}

/// What is being made ready.
#[derive(Default)]
pub(super) struct Spare {
    pub(super) buffer: Option<SpareBuffer>,
    pub(super) filter: Option<SpareFilter>,
}

impl Spare {
    /// Makes a share of all ready.
    pub(super) fn lay(&mut self, share: (usize, usize)) {
        if let Some(buffer) = &mut self.buffer {
            buffer.lay(share);
        }
        if let Some(filter) = &mut self.filter {
            filter.lines.lay(share);
        }
    }

    /// Without the filter's.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.buffer.as_ref().map_or(0, |buffer| buffer.keys.memory_bytes() + buffer.addresses.memory_bytes())
    }
}

/// A filter that is larger than the one that will be full soon.
pub(super) struct SpareFilter {
    lines: Laid<Line>,
    capacity: u64,
}

impl SpareFilter {
    /// A filter for so many keys.
    pub(super) fn new(capacity: u64) -> Self {
        Self { lines: Laid::new(Line::default(), Filter::lines_for(capacity)), capacity }
    }

    /// A filter for as many keys as are expected, and no fewer than there are. What is expected is a number out of a file or off a command
    /// line: where there is no memory for so many, the filter is made for a few, and grows.
    pub(super) fn expecting(expected: u64, present: u64) -> Self {
        let capacity = expected.max(present).max(1);
        let line_count = Filter::line_count(capacity).and_then(|count| usize::try_from(count).ok());
        match line_count.map(|count| Laid::reserve(Line::default(), count)) {
            Some(Ok(lines)) => Self { lines, capacity },
            Some(Err(_)) | None => Self::new(present.max(FEW_KEYS)),
        }
    }

    /// For how many keys it is.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn is_done(&self) -> bool {
        self.lines.is_done()
    }

    pub(super) fn finish(self) -> Filter {
        Filter::in_memory(self.lines.finish(), self.capacity)
    }
}

/// The buffer that comes after the active one, while there is none on its way into a run.
pub(super) struct SpareBuffer {
    keys: Laid<u64>,
    addresses: Laid<[u8; 5]>,
    entries: usize,
}

impl SpareBuffer {
    /// A buffer with room for so many entries.
    pub(super) fn new(entries: usize) -> Self {
        let slots = Buffer::slots_for(entries);
        Self { keys: Laid::new(0, slots), addresses: Laid::new([0; 5], slots), entries }
    }

    /// The same in the memory of one that has had as much room; `None` if it has not.
    pub(super) fn again(used: Buffer, entries: usize) -> Option<Self> {
        let slots = Buffer::slots_for(entries);
        let (keys, addresses) = used.into_memory();
        (keys.len() == slots).then(|| Self {
            keys: Laid::again(keys, 0, slots),
            addresses: Laid::again(addresses, [0; 5], slots),
            entries,
        })
    }

    fn lay(&mut self, share: (usize, usize)) {
        self.keys.lay(share);
        self.addresses.lay(share);
    }

    pub(super) fn finish(self) -> Buffer {
        Buffer::in_memory(self.keys.finish(), self.addresses.finish(), self.entries)
    }
}

#[cfg(test)]
mod tests {
    use varve_block::LogAddress;

    use super::super::Entry;
    use super::*;

    #[test]
    fn a_filter_is_ready_when_all_its_lines_are() {
        let mut spare = SpareFilter::new(1000);
        let lines = Filter::lines_for(1000);
        spare.lines.lay((lines - 1, lines));
        assert!(!spare.is_done());
        spare.lines.lay((1, 1000));
        assert!(spare.is_done());
        let filter = spare.finish();
        assert_eq!((filter.capacity(), filter.memory_bytes()), (1000, lines as u64 * 64));
        assert!(!filter.may_contain(77 << 50));
    }

    #[test]
    fn what_no_memory_can_hold_is_not_asked_of_it() {
        for expected in [u64::MAX, u64::MAX / 16, 1 << 59] {
            for present in [0, 3000, 2 << 20] {
                assert_eq!(SpareFilter::expecting(expected, present).capacity(), present.max(FEW_KEYS));
            }
        }
        assert_eq!(SpareFilter::expecting(5000, 3000).capacity(), 5000);
        assert_eq!(SpareFilter::expecting(5000, 8000).capacity(), 8000);
    }

    #[test]
    fn a_buffer_that_was_used_is_as_good_as_a_new_one() {
        let entries = 5000;
        let entry = |number: u64| Entry {
            key: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            address: LogAddress::new(number).unwrap(),
        };
        let mut spare = SpareBuffer::new(entries);
        spare.lay((1, 100));
        let mut buffer = spare.finish();
        let memory_bytes = buffer.memory_bytes();
        for round in 0..3 {
            let first = round * 7000;
            for number in first..first + entries as u64 {
                assert!(buffer.insert(entry(number), entries), "{round} {number}");
            }
            assert_eq!((buffer.len(), buffer.memory_bytes()), (entries, memory_bytes));
            let mut spare = SpareBuffer::again(buffer, entries).unwrap();
            (0..round).for_each(|_| spare.lay((3, 5)));
            buffer = spare.finish();
            assert_eq!(buffer.memory_bytes(), memory_bytes);
            assert!(buffer.is_empty() && buffer.iter().next().is_none());
        }
        assert!(SpareBuffer::again(buffer, entries + 17).is_none());
    }
}
