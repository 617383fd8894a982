//! The seals of all arenas, in the order in which they were made.

use std::collections::{BTreeMap, BTreeSet};

use crate::arena::ArenaId;
use crate::footer::{Footer, SEAL_CODE_BYTES};
use crate::header::ArenaHeader;
use crate::keys::LogKeys;
use crate::page::Ledger;

/// The seal of one arena, as the ledger of later pages remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// How many arenas had been sealed when this one was.
    pub ordinal: u64,
    /// How often the arena has been rewritten.
    pub generation: u32,
    /// The code over the whole arena.
    pub code: [u8; SEAL_CODE_BYTES],
}

impl Seal {
    /// The seal that ends an arena.
    #[must_use]
    pub fn of(header: &ArenaHeader, footer: &Footer) -> Self {
        Self { ordinal: footer.ordinal, generation: header.generation, code: footer.seal_code }
    }
}

/// The seals of arenas. Mostly arenas are sealed in the order of their numbers; but one that a crash has left, and that its
/// finder could not read, is sealed after others that were begun later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seals {
    by_order: BTreeMap<(u64, ArenaId), Seal>,
    arenas: BTreeSet<ArenaId>,
}

impl Seals {
    /// Adds the seal of an arena.
    pub fn insert(&mut self, arena: ArenaId, seal: Seal) {
        if self.arenas.insert(arena) {
            self.by_order.insert((seal.ordinal, arena), seal);
        }
    }

    /// Whether an arena is sealed.
    #[must_use]
    pub fn contains(&self, arena: ArenaId) -> bool {
        self.arenas.contains(&arena)
    }

    /// How many arenas are sealed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arenas.len()
    }

    /// Whether no arena is sealed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arenas.is_empty()
    }

    /// All seals, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = (ArenaId, &Seal)> {
        self.by_order.iter().map(|((_, arena), seal)| (*arena, seal))
    }

    /// What the next seal's ordinal is.
    #[must_use]
    pub fn next_ordinal(&self) -> u64 {
        let after_last = self.by_order.keys().next_back().map_or(0, |(ordinal, _)| ordinal.saturating_add(1));
        after_last.max(self.len() as u64)
    }

    /// The ledger over the first `count` of them.
    #[must_use]
    pub fn ledger(&self, keys: &LogKeys, count: u64) -> Ledger {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Ledger::new(keys, self.iter().take(count))
    }
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
        let after = seals(&[(1, before.next_ordinal()), (0, 0), (2, 1), (3, 2)]);
        assert_eq!(after.ledger(&keys, 3), before.ledger(&keys, 3));
        assert_ne!(after.ledger(&keys, 4), before.ledger(&keys, 3));
        assert_eq!(after.iter().map(|(arena, _)| arena.0).collect::<Vec<_>>(), [0, 2, 3, 1]);
        assert_eq!(after.next_ordinal(), 4);
    }

    #[test]
    fn seals_without_an_ordinal_are_in_the_order_of_their_arenas() {
        let old = seals(&[(2, 0), (0, 0), (1, 0)]);
        assert_eq!(old.iter().map(|(arena, _)| arena.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(old.next_ordinal(), 3);
    }
}
