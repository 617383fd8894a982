//! An exact set of hashes of names with tags: an open-addressing table of 12 bytes a slot.
//!
//! An entry has 93 bits of a keyed hash. Two of 2³⁰ names share them with a probability of 2⁻³⁴,
//! and nobody can choose such names. 64 bits would not do: a mark skips a block that was walked, so
//! a wrong answer here could lose live blocks.
//!
//! The set is cut into parts that grow one at a time, so that growth takes little memory beside the
//! set itself.

/// The number of parts.
const PART_COUNT: usize = 64;
/// The bits of the first word that choose the part.
const PART_SHIFT: u32 = 32 - PART_COUNT.trailing_zeros();
/// The slots of a part that has just got its first entry.
const FIRST_SLOTS: usize = 16;
/// The bits of the last word that hold the tag.
const TAG_MASK: u32 = 7;

/// The keyed hash of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameHash {
    /// For the exact set. The bits of the tag are zero.
    words: [u32; 3],
    /// For the filter.
    filter_key: (u64, u64),
}

impl NameHash {
    pub(super) fn from_hash(hash: &[u8; 32]) -> Self {
        let (words, _) = hash.as_chunks::<4>();
        let word = |place: usize| words.get(place).copied().map_or(0, u32::from_le_bytes);
        let long = |place: usize| u64::from(word(place)) << 32 | u64::from(word(place + 1));
        Self { words: [word(0), word(1), word(2) & !TAG_MASK], filter_key: (long(3), long(5)) }
    }

    pub(super) fn filter_key(self) -> (u64, u64) {
        self.filter_key
    }

    fn part(self) -> usize {
        (self.words[0] >> PART_SHIFT) as usize
    }
}

/// Tells apart several entries of one name. It is not 0, so no entry is all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameTag(u32);

impl NameTag {
    /// The name is in the set, and no more is known of it. Any other tag takes its place.
    pub(super) const PRESENT: Self = Self(1);
    pub(super) const FIXED: Self = Self(2);
    pub(super) const CONTENT_CUT: Self = Self(3);
    pub(super) const FOREIGN: Self = Self(4);
    pub(super) const FOLDER: Self = Self(5);
}

type Slot = [u32; 3];

const EMPTY: Slot = [0; 3];

/// See the module's documentation.
#[derive(Debug, Clone, Default)]
pub(super) struct NameSet {
    parts: Vec<SetPart>,
}

#[derive(Debug, Clone, Default)]
struct SetPart {
    slots: Vec<Slot>,
    count: usize,
}

impl NameSet {
    /// Adds a name with a tag. It may have several tags.
    pub(super) fn insert(&mut self, name: NameHash, tag: NameTag) {
        if self.parts.is_empty() {
            self.parts.resize(PART_COUNT, SetPart::default());
        }
        let part = &mut self.parts[name.part()];
        part.make_room();
        part.insert(with_tag(name, tag));
    }

    pub(super) fn contains(&self, name: NameHash, tag: NameTag) -> bool {
        let wanted = with_tag(name, tag);
        self.find(name, |slot| *slot == wanted)
    }

    /// Returns true if the set has the name with any tag.
    pub(super) fn contains_any(&self, name: NameHash) -> bool {
        self.find(name, |slot| without_tag(*slot) == name.words)
    }

    fn find(&self, name: NameHash, is_it: impl Fn(&Slot) -> bool) -> bool {
        let Some(part) = self.parts.get(name.part()) else { return false };
        part.run(&name.words).any(|place| is_it(&part.slots[place]))
    }

    /// Returns the number of entries.
    pub(super) fn count(&self) -> u64 {
        self.parts.iter().map(|part| part.count as u64).sum()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let bytes =
            |part: &SetPart| (size_of::<SetPart>() + part.slots.capacity() * size_of::<Slot>()) as u64;
        self.parts.iter().map(bytes).sum()
    }
}

impl SetPart {
    /// Grows so that at most four fifths of the slots are taken after one more insertion.
    fn make_room(&mut self) {
        if (self.count + 1) * 5 <= self.slots.len() * 4 {
            return;
        }
        let slot_count = (self.slots.len() + self.slots.len() / 2).max(FIRST_SLOTS);
        let before = std::mem::replace(&mut self.slots, vec![EMPTY; slot_count]);
        self.count = 0;
        for slot in before.into_iter().filter(|slot| *slot != EMPTY) {
            self.insert(slot);
        }
    }

    /// Adds a slot. There must be room.
    fn insert(&mut self, new: Slot) {
        let present = with_tag_word(without_tag(new), NameTag::PRESENT);
        let same = self.run(&new).find(|place| {
            let slot = self.slots[*place];
            slot == new || slot == present
        });
        if let Some(place) = same {
            self.slots[place] = new;
            return;
        }
        let free = self.probe(&new).find(|place| self.slots[*place] == EMPTY);
        self.slots[free.expect("a fifth of the slots is free")] = new;
        self.count += 1;
    }

    /// Returns the places of the taken slots at which an entry may be.
    fn run(&self, words: &Slot) -> impl Iterator<Item = usize> + '_ {
        self.probe(words).take_while(|place| self.slots[*place] != EMPTY)
    }

    /// Returns all places, from the first one of an entry on.
    fn probe(&self, words: &Slot) -> impl Iterator<Item = usize> + use<> {
        let slot_count = self.slots.len();
        let first = ((u64::from(words[1]) * slot_count as u64) >> 32) as usize;
        (first..slot_count).chain(0..first)
    }
}

fn with_tag(name: NameHash, tag: NameTag) -> Slot {
    with_tag_word(name.words, tag)
}

fn with_tag_word([one, two, three]: Slot, NameTag(tag): NameTag) -> Slot {
    [one, two, three | tag]
}

fn without_tag([one, two, three]: Slot) -> Slot {
    [one, two, three & !TAG_MASK]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const TAGS: [NameTag; 4] = [NameTag::PRESENT, NameTag::FIXED, NameTag::CONTENT_CUT, NameTag::FOLDER];

    fn hash(number: u32) -> NameHash {
        NameHash::from_hash(blake3::hash(&number.to_le_bytes()).as_bytes())
    }

    proptest! {
        #[test]
        fn the_set_agrees_with_a_map(steps in proptest::collection::vec((0_u32..300, 0_usize..4), 0..1000)) {
            let (mut set, mut model) = (NameSet::default(), BTreeMap::<u32, Vec<usize>>::new());
            for (number, tag) in steps {
                set.insert(hash(number), TAGS[tag]);
                let tags = model.entry(number).or_default();
                // Any other tag takes the place of the first.
                tags.retain(|known| *known != 0);
                if tags.is_empty() || tag != 0 {
                    tags.retain(|known| *known != tag);
                    tags.push(tag);
                }
                prop_assert!(set.contains_any(hash(number)));
            }
            for number in 0..300 {
                let tags = model.get(&number).cloned().unwrap_or_default();
                prop_assert_eq!(set.contains_any(hash(number)), !tags.is_empty());
                for (place, tag) in TAGS.iter().enumerate().skip(1) {
                    prop_assert_eq!(set.contains(hash(number), *tag), tags.contains(&place));
                }
            }
        }
    }

    #[test]
    fn an_entry_takes_at_most_24_bytes() {
        let mut set = NameSet::default();
        for number in 0..200_000 {
            set.insert(hash(number), NameTag::FIXED);
        }
        assert!((0..200_000).all(|number| set.contains(hash(number), NameTag::FIXED)));
        assert!((200_000..400_000).all(|number| !set.contains_any(hash(number))));
        assert_eq!(set.count(), 200_000);
        assert!(set.memory_bytes() <= 24 * set.count(), "{}", set.memory_bytes());
    }
}
