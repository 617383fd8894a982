//! The knowledge of which snapshots need a block, in one number: nobody, one snapshot, several of
//! one name, or several of several names.

/// See the module's documentation. The rules tell what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NeededBy(u32);

/// The meaning of a [`NeededBy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Nobody,
    /// Only the snapshot with this number.
    One(u32),
    /// Several snapshots of the name with this number.
    OfName(u32),
    /// Snapshots of several names.
    OfNames,
}

/// The numbers that are used for a [`NeededBy`].
#[derive(Debug, Clone)]
pub(crate) struct NeedRules {
    /// The number of the name of each snapshot.
    names: Vec<u32>,
    name_count: u32,
}

impl NeededBy {
    pub(crate) const NOBODY: Self = Self(0);

    pub(crate) fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

impl NeedRules {
    /// Makes the rules for snapshots with these names; `None` if there are too many of them.
    pub(crate) fn new(names: Vec<u32>) -> Option<Self> {
        let name_count = names.iter().max().map_or(Some(0), |name| name.checked_add(1))?;
        let snapshot_count = u32::try_from(names.len()).ok()?;
        // All numbers are less than this one.
        snapshot_count.checked_add(name_count)?.checked_add(2)?;
        Some(Self { names, name_count })
    }

    #[expect(clippy::cast_possible_truncation, reason = "checked when the rules were made")]
    pub(crate) fn snapshot_count(&self) -> u32 {
        self.names.len() as u32
    }

    /// Returns the number of snapshots and names.
    pub(crate) fn member_count(&self) -> u32 {
        self.snapshot_count() + self.name_count
    }

    /// Returns the name of a snapshot.
    pub(crate) fn name_of(&self, snapshot: u32) -> u32 {
        self.names.get(snapshot as usize).copied().unwrap_or(self.name_count)
    }

    /// Returns the knowledge that a snapshot alone needs something.
    pub(crate) fn one(&self, snapshot: u32) -> NeededBy {
        debug_assert!(snapshot < self.snapshot_count());
        NeededBy(1 + snapshot)
    }

    pub(crate) fn meaning(&self, needed_by: NeededBy) -> Need {
        let Some(snapshot) = needed_by.0.checked_sub(1) else { return Need::Nobody };
        match snapshot.checked_sub(self.snapshot_count()) {
            None => Need::One(snapshot),
            Some(name) if name < self.name_count => Need::OfName(name),
            Some(_) => Need::OfNames,
        }
    }

    /// Returns the only name whose snapshots need it.
    pub(crate) fn only_name(&self, needed_by: NeededBy) -> Option<u32> {
        match self.meaning(needed_by) {
            Need::One(snapshot) => Some(self.name_of(snapshot)),
            Need::OfName(name) => Some(name),
            Need::Nobody | Need::OfNames => None,
        }
    }

    /// Returns who needs a block that both of these need.
    pub(crate) fn join(&self, one: NeededBy, other: NeededBy) -> NeededBy {
        if one == other || other == NeededBy::NOBODY {
            return one;
        }
        if one == NeededBy::NOBODY {
            return other;
        }
        let name = self.only_name(one).filter(|name| self.only_name(other) == Some(*name));
        NeededBy(1 + self.snapshot_count() + name.unwrap_or(self.name_count))
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
            names in prop::collection::vec(0_u32..4, 1..12),
            picked in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let rules = NeedRules::new(names.clone()).unwrap();
            let picked = picked.iter().map(|index| u32::try_from(index.index(names.len())).unwrap());
            let set: BTreeSet<u32> = picked.clone().collect();
            let joined = picked.fold(NeededBy::NOBODY, |all, one| rules.join(all, rules.one(one)));
            let of_set: BTreeSet<u32> = set.iter().map(|number| names[*number as usize]).collect();
            let name = of_set.first().copied().filter(|_| of_set.len() == 1);
            let expected = match (set.first(), name) {
                (None, _) => Need::Nobody,
                (Some(only), _) if set.len() == 1 => Need::One(*only),
                (_, Some(name)) => Need::OfName(name),
                (_, None) => Need::OfNames,
            };
            prop_assert_eq!(rules.meaning(joined), expected);
            prop_assert_eq!(rules.only_name(joined), name);
            // Nothing new comes of one that is in it.
            prop_assert!(set.iter().all(|number| rules.join(joined, rules.one(*number)) == joined));
        }
    }
}
