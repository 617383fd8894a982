//! Changes to the items of a tree, in memory. All readers of the tree see the changed items.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::sync::Arc;

use super::key::TreeKey;

/// The memory that an entry needs beside its data.
const ENTRY_BYTES: u64 = 64;

/// Items that replace those of a tree, are added to them, or are removed.
#[derive(Default)]
pub(super) struct TreePatch {
    /// The data of an item; `None` if it is removed.
    items: BTreeMap<TreeKey, Option<Arc<[u8]>>>,
    bytes: u64,
}

/// The changed items between two keys.
pub(super) type PatchRange<'a> = Range<'a, TreeKey, Option<Arc<[u8]>>>;

fn bytes_of(data: Option<&[u8]>) -> u64 {
    ENTRY_BYTES.saturating_add(data.map_or(0, |data| data.len() as u64))
}

impl TreePatch {
    pub(super) fn set(&mut self, key: TreeKey, data: Option<Arc<[u8]>>) {
        self.bytes = self.bytes.saturating_add(bytes_of(data.as_deref()));
        if let Some(before) = self.items.insert(key, data) {
            self.bytes = self.bytes.saturating_sub(bytes_of(before.as_deref()));
        }
    }

    /// Returns the memory that all items need.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the data of the item with this key, or `Some(None)` if it is removed. The tree's own
    /// item with this key no longer counts then. `None` if there is no change.
    pub(super) fn get(&self, key: &TreeKey) -> Option<Option<&Arc<[u8]>>> {
        self.items.get(key).map(Option::as_ref)
    }

    /// Returns the last added item whose key is not greater.
    pub(super) fn last_up_to(&self, key: &TreeKey) -> Option<(TreeKey, Arc<[u8]>)> {
        let mut before = self.items.range(..=key).rev();
        before.find_map(|(key, data)| Some((*key, Arc::clone(data.as_ref()?))))
    }

    /// Iterates over the changes from `first` to `last`.
    pub(super) fn range(&self, first: TreeKey, last: TreeKey) -> PatchRange<'_> {
        // A map panics if a range begins after its end.
        self.items.range(first.min(last)..=last)
    }
}
