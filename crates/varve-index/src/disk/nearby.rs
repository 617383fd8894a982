//! The cache of entries that are likely to be requested next, because they are neighbours of the
//! last found ones in the log. It has two tables: when the young one is full, it becomes the old
//! one, and the former old one is dropped. An entry that is found in the old table is copied to the
//! young one.

use varve_block::{Fingerprint, LogAddress};

use crate::memory_index::MemoryIndex;

/// The approximate memory of an entry.
const ENTRY_BYTES: u64 = 10;

pub(super) struct NearbyEntries {
    young: MemoryIndex,
    old: MemoryIndex,
    /// The entries of one table.
    capacity: u64,
}

impl NearbyEntries {
    pub(super) fn new(memory_bytes: u64) -> Self {
        let capacity = (memory_bytes / ENTRY_BYTES / 2).max(64);
        Self { young: MemoryIndex::new(), old: MemoryIndex::new(), capacity }
    }

    /// Returns the largest number of entries.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity * 2
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.young.memory_bytes() + self.old.memory_bytes()
    }

    pub(super) fn clear(&mut self) {
        (self.young, self.old) = (MemoryIndex::new(), MemoryIndex::new());
    }

    pub(super) fn insert(&mut self, fingerprint: Fingerprint, address: LogAddress) {
        if self.young.len() >= self.capacity {
            self.old = std::mem::take(&mut self.young);
        }
        // The table cannot be full at this size, and a cache may lose entries.
        let _ = self.young.insert(fingerprint, address);
    }

    pub(super) fn find(&mut self, fingerprint: Fingerprint, into: &mut Vec<LogAddress>) {
        let before = into.len();
        into.extend(self.young.candidates(fingerprint));
        if into.len() == before {
            into.extend(self.old.candidates(fingerprint));
            for address in into.get(before..).unwrap_or_default() {
                self.insert(fingerprint, *address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut nearby = NearbyEntries::new(0);
        let address = |number| LogAddress::new(number).unwrap();
        let fingerprint = |number: u64| Fingerprint(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let find = |nearby: &mut NearbyEntries, number| {
            let mut found = Vec::new();
            nearby.find(fingerprint(number), &mut found);
            found
        };
        for number in 0..1000 {
            nearby.insert(fingerprint(number), address(number));
            assert_eq!(find(&mut nearby, 0), [address(0)], "{number}");
            assert!(nearby.young.len() + nearby.old.len() <= nearby.capacity());
        }
        assert_eq!(find(&mut nearby, 999), [address(999)]);
        assert_eq!(find(&mut nearby, 500), []);
    }
}
