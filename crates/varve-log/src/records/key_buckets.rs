//! Finds the entries of a list that may have a key, without a scan of the list: entry numbers in
//! buckets by the leading bits of their keys. A list whose keys are all alike is still scanned, so
//! an attacker who chooses the keys gains no more than that.

/// A list with at most this many entries is scanned.
pub(crate) const SCAN_MAX: usize = 256;
/// The average number of entries in a bucket.
const BUCKET_ENTRIES: usize = 4;
const BUCKETS_MAX: usize = 1 << 12;

/// The numbers of a list's entries, in buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buckets {
    /// The end of each bucket among the numbers.
    ends: Vec<u16>,
    /// Grouped by bucket, and in order within each.
    numbers: Vec<u16>,
    /// The number of low bits of a key that do not choose its bucket.
    lower_bits: u32,
}

impl Buckets {
    /// Makes the buckets of a list with these keys. Costs about as much as two scans of the list.
    ///
    /// # Panics
    /// When there are 65,536 keys or more.
    pub(crate) fn new(keys: impl ExactSizeIterator<Item = u16> + Clone) -> Self {
        let count = u16::try_from(keys.len()).expect("a clump and a page have fewer blocks");
        let bucket_count = (keys.len() / BUCKET_ENTRIES).next_power_of_two().min(BUCKETS_MAX);
        let lower_bits = u16::BITS - bucket_count.ilog2();
        let bucket_of = |key: u16| (u32::from(key) >> lower_bits) as usize;
        let mut begins = vec![0_u16; bucket_count];
        keys.clone().for_each(|key| begins[bucket_of(key)] += 1);
        let mut begin = 0;
        for place in &mut begins {
            begin += std::mem::replace(place, begin);
        }
        // Each beginning advances to the end of its bucket.
        let mut numbers = vec![0; keys.len()];
        for (number, key) in (0..count).zip(keys) {
            let place = &mut begins[bucket_of(key)];
            numbers[usize::from(*place)] = number;
            *place += 1;
        }
        Self { ends: begins, numbers, lower_bits }
    }

    /// Returns the numbers of all entries with this key, in order, and of a few others.
    pub(crate) fn like(&self, key: u16) -> &[u16] {
        let bucket = (u32::from(key) >> self.lower_bits) as usize;
        let begin = bucket.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.numbers[usize::from(begin)..usize::from(self.ends[bucket])]
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        Self::bytes_of(self.numbers.len())
    }

    /// Returns the memory of the buckets for this many entries.
    pub(crate) fn bytes_of(entries: usize) -> usize {
        (entries + (entries / BUCKET_ENTRIES).next_power_of_two().min(BUCKETS_MAX)) * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_agree_with_going_through_the_list(
            keys in prop_oneof![
                prop::collection::vec(any::<u16>(), 0..5000),
                // Few distinct keys.
                prop::collection::vec(0_u16..40, 0..5000),
            ],
            absent in any::<u16>(),
        ) {
            let buckets = Buckets::new(keys.iter().copied());
            let scan = |wanted| (0..).zip(&keys).filter(move |(_, key)| **key == wanted).map(|(number, _)| number);
            for wanted in keys.iter().copied().take(200).chain([absent, 0, u16::MAX]) {
                let like = buckets.like(wanted);
                prop_assert!(like.is_sorted());
                let found: Vec<u16> =
                    like.iter().copied().filter(|number| keys[usize::from(*number)] == wanted).collect();
                prop_assert_eq!(found, scan(wanted).collect::<Vec<_>>());
            }
            prop_assert_eq!(buckets.memory_bytes(), (buckets.ends.len() + keys.len()) * 2);
        }
    }

    #[test]
    fn few_share_a_bucket() {
        let keys = (0..4096_u32).map(|number| number.wrapping_mul(0x9e37_79b9).to_be_bytes());
        let keys: Vec<u16> = keys.map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]])).collect();
        let buckets = Buckets::new(keys.iter().copied());
        assert!(keys.iter().all(|key| buckets.like(*key).len() < 20));
    }
}
