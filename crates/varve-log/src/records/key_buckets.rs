//! Which entries of a list may have a key, without going through all of it: their numbers, in buckets by the leading bits of their keys. A
//! list whose keys are all alike is gone through as before: whoever chooses keys gains no more than that.

/// A list with no more entries is gone through.
pub(crate) const SCAN_MAX: usize = 256;
/// About so many entries share a bucket.
const BUCKET_ENTRIES: usize = 4;
const BUCKETS_MAX: usize = 1 << 12;

/// The numbers of a list's entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buckets {
    /// Where each bucket ends among the numbers.
    ends: Vec<u16>,
    /// Bucket by bucket, and in order within each.
    numbers: Vec<u16>,
    /// The bits of a key that are below those that choose its bucket.
    lower_bits: u32,
}

impl Buckets {
    /// Those of a list with these keys. Costs about as much as going through the list twice.
    ///
    /// # Panics
    /// When it has 65,536 or more.
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
        // Each beginning moves on to the end of its bucket.
        let mut numbers = vec![0; keys.len()];
        for (number, key) in (0..count).zip(keys) {
            let place = &mut begins[bucket_of(key)];
            numbers[usize::from(*place)] = number;
            *place += 1;
        }
        Self { ends: begins, numbers, lower_bits }
    }

    /// The numbers of all entries with this key, in order, and of a few others.
    pub(crate) fn like(&self, key: u16) -> &[u16] {
        let bucket = (u32::from(key) >> self.lower_bits) as usize;
        let begin = bucket.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.numbers[usize::from(begin)..usize::from(self.ends[bucket])]
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        Self::bytes_of(self.numbers.len())
    }

    /// How much memory those of so many entries take.
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
                // Many that are alike.
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
