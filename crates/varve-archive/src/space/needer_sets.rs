//! The sets of snapshots that need the same block, each with a number. There are far fewer sets
//! than blocks.
//!
//! A set tells who needs a block only as far as that is asked: which snapshot or name alone, the
//! same without the trash, and which *members of a group*. Members are the snapshots, in the order
//! of their numbers, and after them their names. A group of all members says everything; with a
//! smaller one there are fewer different sets, so they take less memory.

use std::io;
use std::ops::Range;

use varve_upkeep::{Key, KeySalt, KeyTable};
use varve_world::Random;

use super::need_rules::{NeedRules, NeededBy};

/// The number of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetNumber(u32);

/// The snapshots that need a block. See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NeederSet {
    pub all: NeededBy,
    /// Without the trash.
    pub listed: NeededBy,
    /// The members of the group, as ranges in ascending order with gaps between them.
    pub members: Box<[Range<u32>]>,
}

/// The joins that are remembered.
const JOINS_MAX: usize = 1 << JOIN_BITS;
const JOIN_BITS: u32 = 10;

#[derive(Debug, Clone, Copy)]
struct KnownJoin {
    one: SetNumber,
    other: SetNumber,
    joined: SetNumber,
}

/// All sets of snapshots that occurred. See the module's documentation.
pub(crate) struct NeederSets {
    rules: NeedRules,
    group: Range<u32>,
    salt: KeySalt,
    numbers: KeyTable,
    sets: Vec<NeederSet>,
    /// The bytes of the log that belong to each set.
    sums: Vec<u64>,
    members_bytes: u64,
    joins: Vec<Option<KnownJoin>>,
}

impl SetNumber {
    pub(crate) fn get(self) -> u32 {
        self.0
    }

    pub(crate) fn from_number(number: u32) -> Self {
        Self(number)
    }
}

impl NeederSets {
    /// Makes no sets. Only the members in `group` are told apart.
    ///
    /// # Errors
    /// The system cannot supply random bytes.
    pub(crate) fn new(rules: NeedRules, group: Range<u32>, random: &dyn Random) -> io::Result<Self> {
        Ok(Self {
            rules,
            group,
            salt: KeySalt::new(random)?,
            numbers: KeyTable::default(),
            sets: Vec::new(),
            sums: Vec::new(),
            members_bytes: 0,
            joins: vec![None; JOINS_MAX],
        })
    }

    /// Returns the set of one snapshot.
    pub(crate) fn one(&mut self, snapshot: u32, is_listed: bool) -> SetNumber {
        let all = self.rules.one(snapshot);
        let listed = if is_listed { all } else { NeededBy::NOBODY };
        let name = self.rules.snapshot_count() + self.rules.name_of(snapshot);
        let members = [snapshot, name].into_iter().filter(|member| self.group.contains(member));
        let members = members.map(|member| member..member + 1).collect();
        self.number(NeederSet { all, listed, members })
    }

    /// Returns the set of those that are in one of these sets.
    pub(crate) fn join(&mut self, one: SetNumber, other: SetNumber) -> SetNumber {
        if one == other {
            return one;
        }
        let place =
            (one.0.wrapping_mul(0x9E37_79B1) ^ other.0.wrapping_mul(0x85EB_CA6B)) >> (u32::BITS - JOIN_BITS);
        let known = self.joins[place as usize].filter(|known| known.one == one && known.other == other);
        if let Some(known) = known {
            return known.joined;
        }
        let (first, second) = (&self.sets[one.0 as usize], &self.sets[other.0 as usize]);
        let joined = NeederSet {
            all: self.rules.join(first.all, second.all),
            listed: self.rules.join(first.listed, second.listed),
            members: union(&first.members, &second.members),
        };
        let joined = self.number(joined);
        self.joins[place as usize] = Some(KnownJoin { one, other, joined });
        joined
    }

    /// Adds bytes to the sum of a set.
    pub(crate) fn add(&mut self, set: SetNumber, bytes: u64) {
        self.sums[set.0 as usize] += bytes;
    }

    /// Returns the sets, each with its sum.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (&NeederSet, u64)> {
        self.sets.iter().zip(self.sums.iter().copied())
    }

    /// Returns the sums of all sets that have a member, for each member of the group.
    pub(crate) fn sums_of_members(&self) -> Vec<u64> {
        let mut steps = vec![(0_u64, 0_u64); self.group.len() + 1];
        for (set, bytes) in self.sums() {
            for range in &set.members {
                steps[(range.start - self.group.start) as usize].0 += bytes;
                steps[(range.end - self.group.start) as usize].1 += bytes;
            }
        }
        let sum = |sum: &mut u64, (more, less): (u64, u64)| {
            *sum = *sum + more - less;
            Some(*sum)
        };
        steps.into_iter().scan(0, sum).take(self.group.len()).collect()
    }

    /// Returns the memory that the sets take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let sets = self.sets.capacity() * size_of::<NeederSet>() + self.sums.capacity() * size_of::<u64>();
        let joins = self.joins.len() * size_of::<Option<KnownJoin>>();
        self.numbers.memory_bytes() + self.members_bytes + (sets + joins) as u64
    }

    fn number(&mut self, set: NeederSet) -> SetNumber {
        let key = self.key_of(&set);
        if let Some(number) = self.numbers.get(key) {
            return SetNumber(number);
        }
        let number = u32::try_from(self.sets.len()).unwrap_or(u32::MAX);
        self.numbers.set(key, number);
        self.members_bytes += (set.members.len() * size_of::<Range<u32>>()) as u64;
        self.sets.push(set);
        self.sums.push(0);
        SetNumber(number)
    }

    fn key_of(&self, set: &NeederSet) -> Key {
        let mut bytes = Vec::with_capacity(8 + 8 * set.members.len());
        bytes.extend([set.all, set.listed].map(NeededBy::to_bytes).concat());
        for range in &set.members {
            bytes.extend([range.start.to_le_bytes(), range.end.to_le_bytes()].concat());
        }
        self.salt.key(&bytes)
    }
}

/// Returns the numbers that are in one of these lists of ranges.
fn union(one: &[Range<u32>], other: &[Range<u32>]) -> Box<[Range<u32>]> {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut joined: Vec<Range<u32>> = Vec::new();
    loop {
        let is_first = match (one.peek(), other.peek()) {
            (None, None) => return joined.into(),
            (Some(first), Some(second)) => first.start <= second.start,
            (first, _) => first.is_some(),
        };
        let Some(next) = (if is_first { one.next() } else { other.next() }) else { return joined.into() };
        match joined.last_mut() {
            Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
            _ => joined.push(next.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use varve_world::SeededRandom;

    use super::*;

    proptest! {
        #[test]
        fn sums_of_members_agree_with_plain_sets(
            snapshots in prop::collection::vec((0_u32..4, any::<bool>()), 1..12),
            blocks in prop::collection::vec(
                (prop::collection::vec(any::<prop::sample::Index>(), 1..9), 0_u64..1000),
                0..40,
            ),
            group in (0_u32..16, 0_u32..17),
        ) {
            let rules = NeedRules::new(snapshots.iter().map(|(name, _)| *name).collect()).unwrap();
            let count = u32::try_from(snapshots.len()).unwrap();
            let end = rules.member_count().min(group.0 + group.1);
            let group = group.0.min(end)..end;
            let mut sets = NeederSets::new(rules.clone(), group.clone(), &SeededRandom::new(1)).unwrap();
            let mut expected = vec![0_u64; group.len()];
            for (picked, bytes) in &blocks {
                let picked: Vec<usize> = picked.iter().map(|index| index.index(snapshots.len())).collect();
                let mut set = None;
                for number in &picked {
                    let one = sets.one(u32::try_from(*number).unwrap(), snapshots[*number].1);
                    set = Some(set.map_or(one, |set| sets.join(set, one)));
                }
                let set = set.unwrap();
                sets.add(set, *bytes);
                let members: BTreeSet<u32> = picked
                    .iter()
                    .flat_map(|number| [u32::try_from(*number).unwrap(), count + snapshots[*number].0])
                    .collect();
                for member in members.iter().filter(|member| group.contains(member)) {
                    expected[(member - group.start) as usize] += bytes;
                }
                let of = |is_meant: &dyn Fn(usize) -> bool| {
                    let these = picked.iter().filter(|number| is_meant(**number));
                    these.fold(NeededBy::NOBODY, |all, number| {
                        rules.join(all, rules.one(u32::try_from(*number).unwrap()))
                    })
                };
                let found = &sets.sets[set.get() as usize];
                prop_assert_eq!(found.all, of(&|_| true));
                prop_assert_eq!(found.listed, of(&|number| snapshots[number].1));
                let ranges: Vec<u32> = found.members.iter().cloned().flatten().collect();
                let in_group: Vec<u32> =
                    members.into_iter().filter(|member| group.contains(member)).collect();
                prop_assert_eq!(ranges, in_group);
            }
            prop_assert_eq!(sets.sums_of_members(), expected);
            let distinct = sets.sets.iter().map(|set| format!("{set:?}")).collect::<BTreeSet<_>>();
            prop_assert_eq!(distinct.len(), sets.sets.len());
        }
    }
}
