//! A sequence of slots in equal pages. It grows and shrinks by whole pages, so a freed page fits
//! the next allocation, and the memory of a process that runs for years does not fragment.

/// An empty slot. It is above every other value, so a search ends at it; no address packs to it.
pub(crate) const EMPTY: u64 = u64::MAX;

/// The slots beyond the last page are empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotPages<const PAGE_SLOTS: usize>(Vec<Box<[u64; PAGE_SLOTS]>>);

impl<const PAGE_SLOTS: usize> SlotPages<PAGE_SLOTS> {
    /// Returns its heap memory, assuming that the allocator adds two words to each allocation.
    pub(crate) fn heap_bytes(&self) -> usize {
        const ALLOCATION_BYTES: usize = 16;
        let page_bytes = size_of::<[u64; PAGE_SLOTS]>() + ALLOCATION_BYTES;
        self.0.len() * page_bytes + self.0.capacity() * size_of::<Box<[u64; PAGE_SLOTS]>>() + ALLOCATION_BYTES
    }

    pub(crate) fn page_count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.0.len() * PAGE_SLOTS
    }

    /// Returns the slots that are not empty, each with its place.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (usize, u64)> {
        let slots = self.0.iter().flat_map(|page| page.iter()).copied().enumerate();
        slots.filter(|(_, slot)| *slot != EMPTY)
    }

    pub(crate) fn get(&self, place: usize) -> u64 {
        self.0.get(place / PAGE_SLOTS).map_or(EMPTY, |page| page[place % PAGE_SLOTS])
    }

    pub(crate) fn set(&mut self, place: usize, slot: u64) {
        while place >= self.slot_count() {
            self.0.push(Self::empty_page());
        }
        self.0[place / PAGE_SLOTS][place % PAGE_SLOTS] = slot;
    }

    /// Puts `slot` at `place`, and shifts the slots up to the next empty one by one place.
    pub(crate) fn put_before(&mut self, place: usize, slot: u64) {
        let (mut number, mut first) = (place / PAGE_SLOTS, place % PAGE_SLOTS);
        let mut carried = slot;
        while carried != EMPTY {
            if number == self.0.len() {
                self.0.push(Self::empty_page());
            }
            let rest = &mut self.0[number][first..];
            let last = rest.iter().position(|slot| *slot == EMPTY).unwrap_or(rest.len() - 1);
            rest[..=last].rotate_right(1);
            carried = std::mem::replace(&mut rest[0], carried);
            (number, first) = (number + 1, 0);
        }
    }

    /// Replaces all slots by `page_count` pages of empty slots.
    pub(crate) fn reset(&mut self, page_count: usize) {
        self.0.truncate(page_count);
        for page in &mut self.0 {
            page.fill(EMPTY);
        }
        self.0.reserve_exact(page_count - self.0.len());
        self.0.resize_with(page_count, Self::empty_page);
    }

    fn empty_page() -> Box<[u64; PAGE_SLOTS]> {
        Box::new([EMPTY; PAGE_SLOTS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_on_goes_over_the_ends_of_pages() {
        let mut pages = SlotPages::<2>::default();
        assert_eq!((pages.get(0), pages.get(1000), pages.slot_count()), (EMPTY, EMPTY, 0));
        for slot in (0..5).rev() {
            pages.put_before(0, slot);
        }
        assert_eq!(pages.taken().collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
        pages.set(2, EMPTY);
        pages.put_before(1, 9);
        assert_eq!(pages.taken().collect::<Vec<_>>(), [(0, 0), (1, 9), (2, 1), (3, 3), (4, 4)]);
        pages.reset(2);
        assert_eq!((pages.taken().count(), pages.page_count(), pages.slot_count()), (0, 2, 4));
    }
}
