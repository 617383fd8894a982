//! Prepares memory before it is needed, a part with each insertion.
//!
//! Fresh zeroed memory costs nothing until it is written to. Then each page costs a fault: a
//! microsecond, or up to a hundred in a virtual machine whose host has to find the page first.
//! Entries come in random order, so the first few thousand of them would touch nearly as many such
//! pages. The memory of a buffer that a pass has written is cleared and reused in the same way.

use std::collections::TryReserveError;

use varve_block::to_usize;

use super::buffer::EntryBuffer;
use super::filter::{Filter, FilterLine};

/// The capacity of a filter if the memory for the expected keys is not available.
const FEW_KEYS: u64 = 1 << 20;

/// A list that is being filled with copies of one item.
pub(super) struct PreparedList<T> {
    items: Vec<T>,
    item: T,
    count: usize,
}

/// The share `part` of `whole`.
#[derive(Clone, Copy)]
pub(super) struct WorkShare {
    pub(super) part: usize,
    pub(super) whole: usize,
}

impl<T: Copy> PreparedList<T> {
    /// Makes a list that will have `count` items. None of its memory is touched yet.
    pub(super) fn new(item: T, count: usize) -> Self {
        Self { items: Vec::with_capacity(count), item, count }
    }

    /// Does the same, and fails if the memory is not available.
    fn reserve(item: T, count: usize) -> Result<Self, TryReserveError> {
        let mut items = Vec::new();
        items.try_reserve_exact(count)?;
        Ok(Self { items, item, count })
    }

    /// Does the same with used memory.
    pub(super) fn again(mut items: Vec<T>, item: T, count: usize) -> Self {
        items.clear();
        items.reserve_exact(count);
        Self { items, item, count }
    }

    /// Fills a share of the list, or the rest if that is less.
    pub(super) fn lay(&mut self, share: WorkShare) {
        let items = (self.count as u128 * share.part as u128).div_ceil(share.whole.max(1) as u128);
        let len = self.items.len().saturating_add(usize::try_from(items).unwrap_or(usize::MAX));
        self.items.resize(len.min(self.count), self.item);
    }

    pub(super) fn is_done(&self) -> bool {
        self.items.len() == self.count
    }

    /// Returns the whole list, and fills the rest now.
    pub(super) fn finish(mut self) -> Vec<T> {
        self.items.resize(self.count, self.item);
        self.items
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.items.capacity() * size_of::<T>()) as u64
    }
}

/// The memory that is being prepared.
#[derive(Default)]
pub(super) struct SpareMemory {
    pub(super) buffer: Option<SpareBuffer>,
    pub(super) filter: Option<SpareFilter>,
}

impl SpareMemory {
    /// Prepares a share of the memory.
    pub(super) fn lay(&mut self, share: WorkShare) {
        if let Some(buffer) = &mut self.buffer {
            buffer.lay(share);
        }
        if let Some(filter) = &mut self.filter {
            filter.lines.lay(share);
        }
    }

    /// Returns the memory without that of the filter.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.buffer.as_ref().map_or(0, |buffer| buffer.keys.memory_bytes() + buffer.addresses.memory_bytes())
    }
}

/// A filter to replace the one that will soon be full.
pub(super) struct SpareFilter {
    lines: PreparedList<FilterLine>,
    capacity: u64,
}

impl SpareFilter {
    /// Makes a filter for `capacity` keys.
    pub(super) fn new(capacity: u64) -> Self {
        Self { lines: PreparedList::new(FilterLine::default(), Filter::lines_for(capacity)), capacity }
    }

    /// Makes a filter for the larger of `expected` and `present` keys. `expected` comes from a file
    /// or the command line: if there is not enough memory, the filter begins small and grows.
    pub(super) fn expecting(expected: u64, present: u64) -> Self {
        let capacity = expected.max(present).max(1);
        let line_count = Filter::line_count(capacity).map(to_usize);
        match line_count.map(|count| PreparedList::reserve(FilterLine::default(), count)) {
            Some(Ok(lines)) => Self { lines, capacity },
            Some(Err(_)) | None => Self::new(present.max(FEW_KEYS)),
        }
    }

    /// Returns its capacity in keys.
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

/// The next active buffer. It is prepared while no buffer is frozen.
pub(super) struct SpareBuffer {
    keys: PreparedList<u64>,
    addresses: PreparedList<[u8; 5]>,
    entries: usize,
}

impl SpareBuffer {
    /// Makes a buffer with room for `entries` entries.
    pub(super) fn new(entries: usize) -> Self {
        let slots = EntryBuffer::slots_for(entries);
        Self { keys: PreparedList::new(0, slots), addresses: PreparedList::new([0; 5], slots), entries }
    }

    /// Does the same with the memory of a used buffer of the same size; `None` if the size differs.
    pub(super) fn again(used: EntryBuffer, entries: usize) -> Option<Self> {
        let slots = EntryBuffer::slots_for(entries);
        let (keys, addresses) = used.into_memory();
        (keys.len() == slots).then(|| Self {
            keys: PreparedList::again(keys, 0, slots),
            addresses: PreparedList::again(addresses, [0; 5], slots),
            entries,
        })
    }

    fn lay(&mut self, share: WorkShare) {
        self.keys.lay(share);
        self.addresses.lay(share);
    }

    pub(super) fn finish(self) -> EntryBuffer {
        EntryBuffer::in_memory(self.keys.finish(), self.addresses.finish(), self.entries)
    }
}

#[cfg(test)]
mod tests {
    use varve_block::LogAddress;

    use super::super::IndexEntry;
    use super::*;

    #[test]
    fn a_filter_is_ready_when_all_its_lines_are() {
        let mut spare = SpareFilter::new(1000);
        let lines = Filter::lines_for(1000);
        spare.lines.lay(WorkShare { part: lines - 1, whole: lines });
        assert!(!spare.is_done());
        spare.lines.lay(WorkShare { part: 1, whole: 1000 });
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
        let entry = |number: u64| IndexEntry {
            key: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            address: LogAddress::new(number).unwrap(),
        };
        let mut spare = SpareBuffer::new(entries);
        spare.lay(WorkShare { part: 1, whole: 100 });
        let mut buffer = spare.finish();
        let memory_bytes = buffer.memory_bytes();
        for round in 0..3 {
            let first = round * 7000;
            for number in first..first + entries as u64 {
                assert!(buffer.insert(entry(number), entries), "{round} {number}");
            }
            assert_eq!((buffer.len(), buffer.memory_bytes()), (entries, memory_bytes));
            let mut spare = SpareBuffer::again(buffer, entries).unwrap();
            (0..round).for_each(|_| spare.lay(WorkShare { part: 3, whole: 5 }));
            buffer = spare.finish();
            assert_eq!(buffer.memory_bytes(), memory_bytes);
            assert!(buffer.is_empty() && buffer.iter().next().is_none());
        }
        assert!(SpareBuffer::again(buffer, entries + 17).is_none());
    }
}
