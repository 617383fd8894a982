//! The snapshots that need a block, in four bytes: one, several of one name, or several of several
//! names.
//!
//! More is not recorded, so that every block is visited a few times at most, however many snapshots
//! need it. Knowledge of a block only grows: [`NeedRules::join`] is a least upper bound. All
//! blocks below a block are needed by everybody who needs that block. So if a further snapshot
//! changes nothing of this knowledge, it changes nothing below it either.

/// The snapshots that need a block, as far as they are told apart. The rules tell what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NeededBy(u32);

/// A snapshot, for these rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needing {
    /// The number of its name.
    pub name: u32,
    /// False if it is in the trash.
    pub is_listed: bool,
}

/// The meaning of a [`NeededBy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Only the snapshot with this number.
    One(usize),
    /// Several snapshots.
    Several {
        /// The number of their name; `None` if there are several.
        name: Option<u32>,
        /// True if one of them is not in the trash.
        is_listed: bool,
    },
}

/// See the module's documentation.
#[derive(Debug, Clone)]
pub(crate) struct NeedRules {
    snapshots: Vec<Needing>,
    name_count: u32,
}

impl NeedRules {
    /// Makes the rules for these snapshots; `None` if there are too many of them.
    pub(crate) fn new(snapshots: Vec<Needing>) -> Option<Self> {
        let name_count = snapshots.iter().map(|snapshot| snapshot.name).max()?.checked_add(1)?;
        let rules = Self { snapshots, name_count };
        (rules.count() < u32::MAX as usize).then_some(rules)
    }

    /// Returns the number of different values.
    pub(crate) fn count(&self) -> usize {
        self.snapshots.len() + 2 * (self.name_count as usize + 1)
    }

    /// Returns the number of a value, below [`count`](Self::count).
    pub(crate) fn number(needed_by: NeededBy) -> u32 {
        needed_by.0
    }

    pub(crate) fn from_number(number: u32) -> NeededBy {
        NeededBy(number)
    }

    /// Returns the value for a snapshot alone.
    #[expect(clippy::cast_possible_truncation, reason = "less than the count of values")]
    pub(crate) fn one(&self, snapshot: usize) -> NeededBy {
        debug_assert!(snapshot < self.snapshots.len());
        NeededBy(snapshot as u32)
    }

    pub(crate) fn meaning(&self, needed_by: NeededBy) -> Need {
        let number = needed_by.0 as usize;
        match number.checked_sub(self.snapshots.len()) {
            None => Need::One(number),
            Some(rest) => {
                let name = u32::try_from(rest / 2).ok().filter(|name| *name < self.name_count);
                Need::Several { name, is_listed: rest % 2 == 1 }
            }
        }
    }

    /// Returns who needs a block that both of these need.
    #[expect(clippy::cast_possible_truncation, reason = "less than the count of values")]
    pub(crate) fn join(&self, one: NeededBy, other: NeededBy) -> NeededBy {
        if one == other {
            return one;
        }
        let ((name, is_listed), (other_name, is_other_listed)) = (self.parts(one), self.parts(other));
        let name = name.filter(|_| name == other_name).unwrap_or(self.name_count);
        let rest = 2 * name + u32::from(is_listed || is_other_listed);
        NeededBy(self.snapshots.len() as u32 + rest)
    }

    /// Returns the name, if there is only one, and whether a listed snapshot is among them.
    pub(crate) fn parts(&self, needed_by: NeededBy) -> (Option<u32>, bool) {
        match self.meaning(needed_by) {
            Need::One(number) => {
                let snapshot = self.snapshots.get(number);
                (snapshot.map(|snapshot| snapshot.name), snapshot.is_some_and(|one| one.is_listed))
            }
            Need::Several { name, is_listed } => (name, is_listed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A join of any snapshots in any order tells exactly what is to be told of their set.
        #[test]
        fn a_join_depends_on_the_set_alone(
            snapshots in prop::collection::vec((0_u32..4, any::<bool>()), 1..12),
            picked in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
        ) {
            let needing = |(name, is_listed): &(u32, bool)| Needing { name: *name, is_listed: *is_listed };
            let rules = NeedRules::new(snapshots.iter().map(needing).collect()).unwrap();
            let picked: Vec<usize> = picked.iter().map(|index| index.index(snapshots.len())).collect();
            let values = picked.iter().map(|number| rules.one(*number));
            let joined = values.reduce(|one, other| rules.join(one, other)).unwrap();
            let set: BTreeSet<usize> = picked.iter().copied().collect();
            let names: BTreeSet<u32> = set.iter().map(|number| snapshots[*number].0).collect();
            let name = names.first().copied().filter(|_| names.len() == 1);
            let is_listed = set.iter().any(|number| snapshots[*number].1);
            let expected = match set.first() {
                Some(only) if set.len() == 1 => Need::One(*only),
                _ => Need::Several { name, is_listed },
            };
            prop_assert_eq!(rules.meaning(joined), expected);
            prop_assert_eq!(rules.parts(joined), (name, is_listed));
            prop_assert!((NeedRules::number(joined) as usize) < rules.count());
            // Nothing new comes of one that is in it.
            prop_assert!(set.iter().all(|number| rules.join(joined, rules.one(*number)) == joined));
        }
    }
}
