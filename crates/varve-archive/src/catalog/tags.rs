//! Changes to the tags of a snapshot. Pure.

use crate::catalog::snapshot_filter::VAC_KEY;

/// Changes to the tags and the comment of a snapshot, made in this order: remove, set, add.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TagChanges {
    /// Tags to remove: `KEY=VALUE`, or `KEY` for every value of it.
    pub remove: Vec<String>,
    /// `KEY=VALUE`: replaces all values of the key.
    pub set: Vec<String>,
    /// `KEY=VALUE`: adds a value to those of the key.
    pub add: Vec<String>,
    /// The new comment; an empty one removes it.
    pub comment: Option<String>,
}

/// Why tags were not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// The tag is reserved for the archive itself.
    #[error("the tag {VAC_KEY} names the data for vac's tools, and cannot be changed")]
    Reserved,
    /// More tags than a snapshot can have.
    #[error("a snapshot has {TAG_COUNT_MAX} tags at most")]
    TooMany,
}

/// Upper bound on the tags of a snapshot.
const TAG_COUNT_MAX: usize = 1000;

impl TagChanges {
    /// The tags after the changes, in the order in which they were given.
    ///
    /// # Errors
    /// [`TagError`]
    pub fn tags(&self, before: &[String]) -> Result<Vec<String>, TagError> {
        let named = self.remove.iter().chain(&self.set).chain(&self.add);
        if named.into_iter().any(|tag| key(tag) == VAC_KEY) {
            return Err(TagError::Reserved);
        }
        let stays = |tag: &&String| {
            let is_removed = |gone: &String| gone == *tag || !gone.contains('=') && gone == key(tag);
            !self.remove.iter().any(is_removed) && !self.set.iter().any(|set| key(set) == key(tag))
        };
        let mut tags: Vec<String> = before.iter().filter(stays).cloned().collect();
        for tag in self.set.iter().chain(&self.add) {
            if !tags.contains(tag) {
                tags.push(tag.clone());
            }
        }
        if tags.len() > TAG_COUNT_MAX.max(before.len()) { Err(TagError::TooMany) } else { Ok(tags) }
    }
}

fn key(tag: &str) -> &str {
    tag.split_once('=').map_or(tag, |(key, _)| key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn texts(tags: &[&str]) -> Vec<String> {
        tags.iter().map(|tag| (*tag).to_owned()).collect()
    }

    #[test]
    fn tags_are_removed_set_and_added() {
        let before = texts(&["a=1", "a=2", "b=1", "vac=00"]);
        let changed = |remove: &[&str], set: &[&str], add: &[&str]| {
            let changes =
                TagChanges { remove: texts(remove), set: texts(set), add: texts(add), comment: None };
            changes.tags(&before)
        };
        assert_eq!(changed(&[], &[], &[]), Ok(before.clone()));
        assert_eq!(changed(&["a=2"], &[], &["c=3"]), Ok(texts(&["a=1", "b=1", "vac=00", "c=3"])));
        assert_eq!(changed(&["a"], &[], &[]), Ok(texts(&["b=1", "vac=00"])));
        assert_eq!(changed(&[], &["a=3"], &["a=4", "b=1"]), Ok(texts(&["b=1", "vac=00", "a=3", "a=4"])));
        assert_eq!(changed(&["b=2", "none"], &[], &[]), Ok(before.clone()), "what is not there");
        for (remove, set, add) in
            [(&["vac"][..], &[][..], &[][..]), (&[], &["vac=1"], &[]), (&[], &[], &["vac=2"])]
        {
            assert_eq!(changed(remove, set, add), Err(TagError::Reserved));
        }
        let many: Vec<String> = (0..=TAG_COUNT_MAX).map(|number| format!("k={number}")).collect();
        assert_eq!(TagChanges { add: many, ..TagChanges::default() }.tags(&[]), Err(TagError::TooMany));
    }

    fn some() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec("[abc]=[12]", 0..5)
    }

    proptest! {
        #[test]
        fn the_same_change_twice_changes_nothing_more(before in some(), remove in some(), set in some(), add in some()) {
            let changes = TagChanges { remove, set, add, comment: None };
            let once = changes.tags(&before).unwrap();
            let twice = changes.tags(&once).unwrap();
            let sorted = |mut tags: Vec<String>| { tags.sort(); tags.dedup(); tags };
            prop_assert_eq!(sorted(once.clone()), sorted(twice));
            prop_assert!(changes.add.iter().chain(&changes.set).all(|tag| once.contains(tag)));
        }
    }
}
