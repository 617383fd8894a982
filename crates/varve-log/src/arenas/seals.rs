//! The seals of all arenas, in the order in which they were made.
//!
//! Each seal has a place in that order: its ordinal. In older stores, which have no ordinals, its
//! place is the one after the previous seal. A place without a seal that a ledger has counted means
//! that a seal was lost. A place that no ledger has counted means that a power cut took the seal
//! before it was durable. Such a place is given again.

use std::collections::BTreeMap;

use crate::arenas::address::ArenaId;
use crate::arenas::footer::{Footer, SEAL_CODE_BYTES};
use crate::arenas::header::ArenaHeader;
use crate::keys::log_keys::LogKeys;
use crate::records::ledger::Ledger;

/// The seal of one arena, as the ledgers of later pages cover it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// The number of arenas that were sealed before this one.
    pub ordinal: u64,
    /// The number of times that the arena was rewritten.
    pub generation: u32,
    /// The code over the whole arena.
    pub code: [u8; SEAL_CODE_BYTES],
}

impl Seal {
    /// Makes the seal of an arena from its header and footer.
    #[must_use]
    pub fn of(header: &ArenaHeader, footer: &Footer) -> Self {
        Self { ordinal: footer.ordinal, generation: header.generation, code: footer.seal_code }
    }
}

/// The seals of arenas. Arenas are mostly sealed in the order of their numbers. An arena that a
/// crash left behind, and that the next writer could not read, is sealed after others that were
/// begun later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seals {
    by_order: BTreeMap<(u64, ArenaId), Seal>,
    ordinals: BTreeMap<ArenaId, u64>,
}

impl Seals {
    /// Adds the seal of an arena, unless the arena has one.
    pub fn insert(&mut self, arena: ArenaId, seal: Seal) {
        if !self.contains(arena) {
            self.replace(arena, seal);
        }
    }

    /// Sets the seal of an arena, and drops the one that it had.
    pub fn replace(&mut self, arena: ArenaId, seal: Seal) {
        self.remove(arena);
        self.ordinals.insert(arena, seal.ordinal);
        self.by_order.insert((seal.ordinal, arena), seal);
    }

    /// Removes the seal of an arena, if it has one.
    pub fn remove(&mut self, arena: ArenaId) {
        if let Some(ordinal) = self.ordinals.remove(&arena) {
            self.by_order.remove(&(ordinal, arena));
        }
    }

    /// Returns the seal of an arena.
    #[must_use]
    pub fn get(&self, arena: ArenaId) -> Option<&Seal> {
        self.by_order.get(&(*self.ordinals.get(&arena)?, arena))
    }

    /// Returns true if an arena is sealed.
    #[must_use]
    pub fn contains(&self, arena: ArenaId) -> bool {
        self.ordinals.contains_key(&arena)
    }

    /// Returns the number of sealed arenas.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ordinals.len()
    }

    /// Returns true if no arena is sealed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ordinals.is_empty()
    }

    /// Iterates over all seals in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = (ArenaId, &Seal)> {
        self.by_order.iter().map(|((_, arena), seal)| (*arena, seal))
    }

    /// Iterates over all seals with their places in that order.
    pub fn places(&self) -> impl Iterator<Item = (u64, ArenaId, &Seal)> {
        self.iter().scan(0_u64, |next, (arena, seal)| {
            let place = seal.ordinal.max(*next);
            *next = place.saturating_add(1);
            Some((place, arena, seal))
        })
    }

    /// Returns the first place at or after `from` that has no seal.
    #[must_use]
    pub fn free_place(&self, from: u64) -> u64 {
        let mut free = from;
        for (place, ..) in self.places().skip_while(|(place, ..)| *place < from) {
            if place > free {
                break;
            }
            free = place.saturating_add(1);
        }
        free
    }

    /// Returns the number of places without a seal among the first `count`.
    #[must_use]
    pub fn missing_count(&self, count: u64) -> u64 {
        count.saturating_sub(self.places().take_while(|(place, ..)| *place < count).count() as u64)
    }

    /// Returns the ledger over the seals in the first `count` places.
    #[must_use]
    pub fn ledger(&self, keys: &LogKeys, count: u64) -> Ledger {
        let counted = self.places().take_while(|(place, ..)| *place < count);
        ledger_over(keys, counted.map(|(_, arena, seal)| (arena, seal)), count)
    }
}

impl FromIterator<(ArenaId, Seal)> for Seals {
    fn from_iter<T: IntoIterator<Item = (ArenaId, Seal)>>(seals: T) -> Self {
        let mut all = Self::default();
        for (arena, seal) in seals {
            all.insert(arena, seal);
        }
        all
    }
}

/// Makes the ledger over the first `arena_count` seals. `seals` are in the order in which they were
/// made.
fn ledger_over<'a>(
    keys: &LogKeys,
    seals: impl Iterator<Item = (ArenaId, &'a Seal)>,
    arena_count: u64,
) -> Ledger {
    let mut rows = Vec::new();
    for (arena, seal) in seals {
        rows.extend_from_slice(&arena.0.to_le_bytes());
        rows.extend_from_slice(&seal.generation.to_le_bytes());
        rows.extend_from_slice(&seal.code);
    }
    Ledger { arena_count, code: keys.seal_code(&[b"ledger", &rows]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seals(seals: &[(u64, u64)]) -> Seals {
        let mut all = Seals::default();
        for (arena, ordinal) in seals {
            let code = [u8::try_from(*arena).unwrap(); 32];
            all.insert(ArenaId(*arena), Seal { ordinal: *ordinal, generation: 0, code });
        }
        all
    }

    #[test]
    fn a_seal_that_comes_late_leaves_earlier_ledgers_as_they_were() {
        let keys = LogKeys::from_master(&[9; 32]);
        let before = seals(&[(0, 0), (2, 1), (3, 2)]);
        let after = seals(&[(1, before.free_place(0)), (0, 0), (2, 1), (3, 2)]);
        assert_eq!(after.ledger(&keys, 3), before.ledger(&keys, 3));
        assert_ne!(after.ledger(&keys, 4), before.ledger(&keys, 3));
        assert_eq!(after.iter().map(|(arena, _)| arena.0).collect::<Vec<_>>(), [0, 2, 3, 1]);
        assert_eq!(after.free_place(0), 4);
    }

    #[test]
    fn seals_without_an_ordinal_are_in_the_order_of_their_arenas() {
        let old = seals(&[(2, 0), (0, 0), (1, 0)]);
        assert_eq!(old.iter().map(|(arena, _)| arena.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(old.free_place(0), 3);
        let newer = seals(&[(2, 0), (0, 0), (1, 0), (3, 3)]);
        assert_eq!((newer.free_place(0), newer.missing_count(4)), (4, 0));
    }

    #[test]
    fn a_place_without_a_seal_is_found_and_given_again() {
        let keys = LogKeys::from_master(&[9; 32]);
        let whole = seals(&[(0, 0), (1, 1), (2, 2), (3, 3)]);
        let mut some = seals(&[(0, 0), (2, 2), (3, 3)]);
        assert_eq!((whole.missing_count(4), some.missing_count(4), some.missing_count(1)), (0, 1, 0));
        assert_ne!(some.ledger(&keys, 4), whole.ledger(&keys, 4));
        assert_eq!((some.free_place(0), some.free_place(2), some.free_place(9)), (1, 4, 9));
        some.replace(ArenaId(1), Seal { ordinal: 1, ..*whole.get(ArenaId(1)).unwrap() });
        assert_eq!(some, whole);
        some.replace(ArenaId(3), Seal { ordinal: 3, generation: 1, code: [8; 32] });
        assert_eq!((some.len(), some.get(ArenaId(3)).unwrap().generation), (4, 1));
    }
}
