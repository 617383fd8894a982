//! One segment: the slots of all fingerprints that share a prefix, in order, with gaps (ordered
//! linear probing, Amble and Knuth 1974).
//!
//! A slot's *key* is its remainder, with zeros in place of the address. Its *home* is the key
//! scaled to the number of home slots, so the order of homes is the order of keys. Invariants:
//! taken slots strictly ascend; no slot lies before its home; no place between a slot and its home
//! is [`EMPTY`].

use varve_block::{Fingerprint, LogAddress};

use crate::pages::{EMPTY, SlotPages};

#[derive(Debug, Clone)]
pub(crate) struct IndexSegment<const PAGE_SLOTS: usize> {
    /// The homes, then a tail for slots that are pushed past the last home.
    pages: SlotPages<PAGE_SLOTS>,
    home_slots: usize,
    len: usize,
    prefix_bits: u32,
    address_bits: u32,
}

/// The least number of bits in which a candidate's fingerprint agrees, for a log of any length: of
/// 2^32 blocks, one look-up in 64 finds a false candidate. If a log's addresses are small for its
/// count of blocks, more bits are kept.
pub const FINGERPRINT_BITS_MIN: u32 = 38;

/// Returns the number of low bits of a slot that `address` needs. Not all of them may be ones: that
/// could be [`EMPTY`].
pub(crate) fn address_bits(address: LogAddress) -> u32 {
    u64::BITS - (address.granule() + 1).leading_zeros()
}

impl<const PAGE_SLOTS: usize> IndexSegment<PAGE_SLOTS> {
    /// Slots at the end of the segment that are no home: few enough to cost little, and enough that
    /// another page for pushed slots is seldom needed.
    const TAIL_SLOTS: usize = PAGE_SLOTS / 16;

    /// Makes an empty segment, without pages.
    pub(crate) fn new(prefix_bits: u32, address_bits: u32) -> Self {
        Self { pages: SlotPages::default(), home_slots: 0, len: 0, prefix_bits, address_bits }
    }

    /// Makes a segment of untrusted `slots`. Returns `None` when they do not strictly ascend, when
    /// one of them has an invalid address, or when the number of compared fingerprint bits is out
    /// of range.
    pub(crate) fn from_slots(prefix_bits: u32, address_bits: u32, slots: &[u64]) -> Option<Self> {
        let address_bits_max = prefix_bits + u64::BITS - FINGERPRINT_BITS_MIN;
        if !(prefix_bits.max(1)..=address_bits_max).contains(&address_bits) {
            return None;
        }
        let mut segment = Self::new(prefix_bits, address_bits);
        let address_end = segment.address_mask().min(LogAddress::END);
        let are_addresses = slots.iter().all(|slot| slot & segment.address_mask() < address_end);
        if !are_addresses || !slots.is_sorted_by(|slot, next| slot < next) {
            return None;
        }
        segment.refill(slots);
        Some(segment)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn address_bits(&self) -> u32 {
        self.address_bits
    }

    /// Returns the number of fingerprint bits that this segment compares, including its prefix.
    pub(crate) fn fingerprint_bits(&self) -> u32 {
        self.prefix_bits + u64::BITS - self.address_bits
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.pages.slot_count()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.pages.heap_bytes()
    }

    /// Returns the taken slots in ascending order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u64> {
        self.pages.taken().map(|(_, slot)| slot)
    }

    /// Returns, for each taken slot, the number of slots that a search for it examines.
    pub(crate) fn probe_lengths(&self) -> impl Iterator<Item = usize> {
        self.pages.taken().map(|(place, slot)| place - self.home(self.key_of(slot)) + 1)
    }

    /// Returns, for each key, the number of slots that have it.
    pub(crate) fn candidate_counts(&self) -> impl Iterator<Item = usize> {
        let mut keys = self.slots().map(|slot| self.key_of(slot)).peekable();
        std::iter::from_fn(move || {
            let key = keys.next()?;
            let mut count = 1;
            while keys.next_if_eq(&key).is_some() {
                count += 1;
            }
            Some(count)
        })
    }

    /// Returns the addresses of all slots that agree with `fingerprint`.
    pub(crate) fn candidates(&self, fingerprint: Fingerprint) -> impl Iterator<Item = LogAddress> {
        let key = self.key(fingerprint);
        let mut place = self.search(key);
        std::iter::from_fn(move || {
            let slot = self.pages.get(place);
            place += 1;
            if slot == EMPTY || self.key_of(slot) != key {
                return None;
            }
            LogAddress::new(slot & self.address_mask())
        })
    }

    pub(crate) fn contains(&self, fingerprint: Fingerprint, address: LogAddress) -> bool {
        let packed = self.pack(fingerprint, address);
        packed.is_some_and(|packed| self.pages.get(self.search(packed)) == packed)
    }

    /// Adds a slot for an address that fits, see [`widen`](Self::widen). Returns true if it was not
    /// there before.
    pub(crate) fn insert(
        &mut self,
        fingerprint: Fingerprint,
        address: LogAddress,
        scratch: &mut Vec<u64>,
    ) -> bool {
        let packed = self.pack(fingerprint, address).expect("the caller has widened the segment");
        let place = self.search(packed);
        if self.pages.get(place) == packed {
            return false;
        }
        self.pages.put_before(place, packed);
        self.len += 1;
        if self.len * 13 > self.home_slots * 12 {
            self.rebuild(scratch);
        }
        true
    }

    /// Removes a slot, and moves the slots back that it had pushed. Returns true if it was there.
    pub(crate) fn remove(
        &mut self,
        fingerprint: Fingerprint,
        address: LogAddress,
        scratch: &mut Vec<u64>,
    ) -> bool {
        let Some(packed) = self.pack(fingerprint, address) else { return false };
        let mut place = self.search(packed);
        if self.pages.get(place) != packed {
            return false;
        }
        loop {
            let next = self.pages.get(place + 1);
            if next == EMPTY || self.home(self.key_of(next)) > place {
                break;
            }
            self.pages.set(place, next);
            place += 1;
        }
        self.pages.set(place, EMPTY);
        self.len -= 1;
        if self.len * 4 < self.home_slots * 3 && self.pages.page_count() > Self::pages_for(self.len) {
            self.rebuild(scratch);
        }
        true
    }

    /// Extends the address to `address_bits` bits of each slot, unless it has as many. The
    /// remainders lose as many low bits. Slots that become equal are merged.
    pub(crate) fn widen(&mut self, address_bits: u32, scratch: &mut Vec<u64>) {
        if address_bits <= self.address_bits {
            return;
        }
        self.copy_slots(scratch);
        let (old_mask, new_mask) = (self.address_mask(), (1 << address_bits) - 1);
        for slot in &mut *scratch {
            let address = *slot & old_mask;
            *slot = *slot & !new_mask | address;
        }
        scratch.sort_unstable();
        scratch.dedup();
        self.address_bits = address_bits;
        self.refill(scratch);
    }

    /// Lengthens the prefix by one bit, and returns the slots with a one there as a new segment.
    /// The bit that becomes free in each slot goes to the address.
    pub(crate) fn split(&mut self, scratch: &mut Vec<u64>) -> Self {
        self.copy_slots(scratch);
        let boundary = scratch.partition_point(|slot| *slot < 1 << (u64::BITS - 1));
        let address_mask = self.address_mask();
        for slot in &mut *scratch {
            *slot = (*slot & !address_mask) << 1 | *slot & address_mask;
        }
        let (zeros, ones) = scratch.split_at(boundary);
        self.prefix_bits += 1;
        self.address_bits += 1;
        self.refill(zeros);
        let mut split_off = Self::new(self.prefix_bits, self.address_bits);
        split_off.refill(ones);
        split_off
    }

    fn address_mask(&self) -> u64 {
        (1 << self.address_bits) - 1
    }

    fn key(&self, fingerprint: Fingerprint) -> u64 {
        self.key_of(fingerprint.0 << self.prefix_bits)
    }

    fn key_of(&self, slot: u64) -> u64 {
        slot & !self.address_mask()
    }

    /// Returns `None` when the address does not fit into a slot.
    fn pack(&self, fingerprint: Fingerprint, address: LogAddress) -> Option<u64> {
        (address.granule() < self.address_mask()).then(|| self.key(fingerprint) | address.granule())
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than `home_slots`")]
    fn home(&self, key: u64) -> usize {
        ((u128::from(key) * self.home_slots as u128) >> u64::BITS) as usize
    }

    /// Returns the place of the first slot that is not below `slot`: its place, or the place where
    /// it belongs.
    fn search(&self, slot: u64) -> usize {
        let mut place = self.home(self.key_of(slot));
        while self.pages.get(place) < slot {
            place += 1;
        }
        place
    }

    /// Returns the number of pages for `len` slots, so that 8 of 9 slots or somewhat fewer are
    /// taken.
    fn pages_for(len: usize) -> usize {
        match len {
            0 => 0,
            _ => (len + len.div_ceil(8) + Self::TAIL_SLOTS).div_ceil(PAGE_SLOTS),
        }
    }

    fn rebuild(&mut self, scratch: &mut Vec<u64>) {
        self.copy_slots(scratch);
        self.refill(scratch);
    }

    fn copy_slots(&self, into: &mut Vec<u64>) {
        into.clear();
        into.extend(self.slots());
    }

    /// Replaces all slots by `slots`, which strictly ascend, in as many pages as they need.
    fn refill(&mut self, slots: &[u64]) {
        self.pages.reset(Self::pages_for(slots.len()));
        self.home_slots = self.slot_count().saturating_sub(Self::TAIL_SLOTS);
        self.len = slots.len();
        let mut free = 0;
        for &slot in slots {
            let place = free.max(self.home(self.key_of(slot)));
            self.pages.set(place, slot);
            free = place + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS_BITS: u32 = 16;

    fn address(granule: u64) -> LogAddress {
        LogAddress::new(granule).unwrap()
    }

    /// Checks the invariants of the module.
    fn check(segment: &IndexSegment<4>) {
        let slots: Vec<u64> = segment.slots().collect();
        assert_eq!(slots.len(), segment.len());
        assert!(slots.is_sorted_by(|slot, next| slot < next), "{slots:x?}");
        for slot in slots {
            assert_eq!(segment.pages.get(segment.search(slot)), slot, "{slot:x} is not where a search ends");
        }
    }

    fn segment_of(fingerprints: impl Iterator<Item = u64>) -> IndexSegment<4> {
        let mut segment = IndexSegment::new(0, ADDRESS_BITS);
        for (number, fingerprint) in (0..).zip(fingerprints) {
            assert!(segment.insert(Fingerprint(fingerprint), address(number), &mut Vec::new()));
            check(&segment);
        }
        segment
    }

    fn spread(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn slots_stay_in_order_while_the_segment_grows_and_shrinks() {
        let mut segment = segment_of(spread(500));
        for (number, fingerprint) in (0..).zip(spread(500)) {
            assert!(segment.remove(Fingerprint(fingerprint), address(number), &mut Vec::new()));
            assert!(!segment.remove(Fingerprint(fingerprint), address(number), &mut Vec::new()));
            check(&segment);
        }
        assert_eq!((segment.len(), segment.slot_count()), (0, 0));
    }

    #[test]
    fn what_the_last_homes_push_out_goes_to_more_pages() {
        let segment = segment_of((0..100).map(|number| u64::MAX - number % 2));
        assert_eq!(
            segment.candidates(Fingerprint(u64::MAX)).count(),
            100,
            "they differ in bits that are not kept"
        );
        assert!(segment.slot_count() > segment.home_slots);
    }

    #[test]
    fn an_address_of_ones_is_not_taken_for_an_empty_slot() {
        let last = address((1 << ADDRESS_BITS) - 1);
        assert_eq!(address_bits(last), ADDRESS_BITS + 1);
        let mut segment = IndexSegment::<4>::new(0, ADDRESS_BITS);
        assert!(!segment.contains(Fingerprint(u64::MAX), last));
        assert_eq!(segment.candidates(Fingerprint(u64::MAX)).count(), 0);
        segment.widen(address_bits(last), &mut Vec::new());
        assert!(segment.insert(Fingerprint(u64::MAX), last, &mut Vec::new()));
        assert_eq!(segment.candidates(Fingerprint(u64::MAX)).collect::<Vec<_>>(), [last]);
    }

    #[test]
    fn widening_keeps_addresses_and_the_first_bits_of_fingerprints() {
        let mut segment = segment_of((0..100).rev().map(|fingerprint| fingerprint << 30));
        segment.widen(36, &mut Vec::new());
        check(&segment);
        assert_eq!(segment.fingerprint_bits(), 28);
        for fingerprint in 0..100u64 {
            let alike = (0..100).filter(|granule| (99 - granule) >> 6 == fingerprint >> 6);
            let found = segment.candidates(Fingerprint(fingerprint << 30)).map(LogAddress::granule);
            assert_eq!(found.collect::<Vec<_>>(), alike.collect::<Vec<_>>());
        }
    }

    #[test]
    fn slots_that_become_the_same_are_one() {
        let mut segment = IndexSegment::<4>::new(0, ADDRESS_BITS);
        for fingerprint in [0, 1 << 20, 1 << 40] {
            segment.insert(Fingerprint(fingerprint), address(7), &mut Vec::new());
        }
        segment.widen(30, &mut Vec::new());
        check(&segment);
        assert_eq!(segment.len(), 2);
    }

    #[test]
    fn a_split_parts_by_the_next_bit_and_loses_none() {
        let fingerprints = || [1 << 63, (1 << 63) - 1].into_iter().chain(spread(198));
        let mut zeros = segment_of(fingerprints());
        let ones = zeros.split(&mut Vec::new());
        check(&zeros);
        check(&ones);
        assert_eq!(zeros.len() + ones.len(), 200);
        assert_eq!(
            (zeros.fingerprint_bits(), ones.fingerprint_bits()),
            (64 - ADDRESS_BITS, 64 - ADDRESS_BITS)
        );
        for (number, fingerprint) in (0..).zip(fingerprints()) {
            let half = if fingerprint >> 63 == 0 { &zeros } else { &ones };
            assert!(half.contains(Fingerprint(fingerprint), address(number)));
        }
    }

    #[test]
    fn slots_from_outside_are_not_believed() {
        let taken = |prefix_bits, address_bits, slots: &[u64]| {
            IndexSegment::<4>::from_slots(prefix_bits, address_bits, slots).is_some()
        };
        assert!(taken(0, 16, &[]));
        assert!(taken(16, 16, &[0, 1, 1 << 16]));
        assert!(!taken(17, 16, &[0]), "prefix and remainder are longer than a fingerprint");
        assert!(!taken(0, 0, &[0]), "no bits for addresses");
        assert!(!taken(3, 30, &[0]), "37 bits for fingerprints");
        assert!(!taken(0, 16, &[1, 1]), "the same slot twice");
        assert!(!taken(0, 16, &[2, 1]), "descending");
        assert!(!taken(0, 16, &[0xffff]), "an address of ones");
        assert!(taken(19, 45, &[LogAddress::END - 1]));
        assert!(!taken(19, 45, &[LogAddress::END]), "beyond the end of any log");
    }
}
