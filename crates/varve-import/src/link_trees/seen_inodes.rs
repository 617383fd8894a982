//! The inodes that were seen in this run, with the attributes that a status does not show.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_content::folder::{HostAttributes, HostState};

/// The device and the inode of a file.
pub(super) type LinkedFileId = (u32, u32, u64);

/// Upper bound on the memory: about two million inodes without extended attributes.
const BYTES_MAX: usize = 256 << 20;
/// The memory of an inode, in bytes, with its part of the map, which is not full.
const INODE_BYTES: usize = 128;

/// Inodes, with what is known of them while their state is the same.
#[derive(Debug)]
pub(super) struct SeenInodes {
    inodes: BTreeMap<LinkedFileId, SeenInode>,
    bytes: usize,
    bytes_max: usize,
    /// The number of the current tree.
    tree: u32,
    /// The tree in which old inodes were forgotten last.
    forgot_in: u32,
}

#[derive(Debug)]
struct SeenInode {
    state: HostState,
    /// `None` if there are none.
    attributes: Option<Arc<HostAttributes>>,
    /// The last tree that has it.
    tree: u32,
}

impl SeenInode {
    fn bytes(&self) -> usize {
        let attributes = self.attributes.as_ref();
        INODE_BYTES + attributes.map_or(0, |one| size_of::<HostAttributes>() + one.memory_bytes())
    }
}

impl Default for SeenInodes {
    fn default() -> Self {
        Self { inodes: BTreeMap::new(), bytes: 0, bytes_max: BYTES_MAX, tree: 0, forgot_in: 0 }
    }
}

impl SeenInodes {
    pub(super) fn begin_tree(&mut self) {
        self.tree = self.tree.saturating_add(1);
    }

    /// The attributes of an inode, if it was seen in this state.
    pub(super) fn find(&mut self, id: &LinkedFileId, state: &HostState) -> Option<Arc<HostAttributes>> {
        let seen = self.inodes.get_mut(id).filter(|seen| seen.state == *state)?;
        seen.tree = self.tree;
        Some(seen.attributes.clone().unwrap_or_default())
    }

    /// Adds an inode, or replaces what is known of it. When the memory is used up, inodes that are
    /// in neither this tree nor the one before are forgotten. If that does not help, the inode is
    /// not added.
    pub(super) fn add(&mut self, id: LinkedFileId, state: HostState, attributes: &Arc<HostAttributes>) {
        if let Some(old) = self.inodes.remove(&id) {
            self.bytes -= old.bytes();
        }
        let is_plain = **attributes == HostAttributes::default();
        let attributes = (!is_plain).then(|| Arc::clone(attributes));
        let seen = SeenInode { state, attributes, tree: self.tree };
        if self.bytes + seen.bytes() > self.bytes_max && self.forgot_in != self.tree {
            self.forgot_in = self.tree;
            self.inodes.retain(|_, seen| seen.tree.saturating_add(1) >= self.tree);
            self.bytes = self.inodes.values().map(SeenInode::bytes).sum();
        }
        if self.bytes + seen.bytes() <= self.bytes_max {
            self.bytes += seen.bytes();
            self.inodes.insert(id, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use varve_image::FileTime;

    use super::*;

    fn state(number: u8) -> HostState {
        let time = |seconds: u8| FileTime::new(i64::from(seconds), 7);
        HostState { size: u64::from(number & 1), mtime: time(number >> 1 & 1), ctime: time(number >> 2 & 1) }
    }

    #[derive(Debug, Clone)]
    enum Deed {
        BeginTree,
        /// An inode in a state, in the order of a walk.
        Look(u64, u8),
    }

    fn deed() -> impl Strategy<Value = Deed> {
        prop_oneof![1 => Just(Deed::BeginTree), 8 => (0..12_u64, 0..8_u8).prop_map(|(inode, at)| Deed::Look(inode, at))]
    }

    proptest! {
        /// A map without a limit is the model: all that is found is in it, in the same state, and
        /// with enough memory all of it is found.
        #[test]
        fn nothing_is_found_in_another_state(deeds in prop::collection::vec(deed(), 0..200), room in 0..20_usize) {
            let bytes_max = room * INODE_BYTES;
            let mut seen = SeenInodes { bytes_max, ..SeenInodes::default() };
            let mut model: BTreeMap<u64, u8> = BTreeMap::new();
            for deed in deeds {
                match deed {
                    Deed::BeginTree => seen.begin_tree(),
                    Deed::Look(inode, at) => {
                        let id = (8, 1, inode);
                        let found = seen.find(&id, &state(at));
                        let is_known = model.get(&inode) == Some(&at);
                        prop_assert!(is_known || found.is_none());
                        prop_assert!(!is_known || found.is_some() || room < 12);
                        if found.is_none() {
                            seen.add(id, state(at), &Arc::default());
                            model.insert(inode, at);
                        }
                        prop_assert!(seen.bytes <= bytes_max);
                        prop_assert_eq!(seen.bytes, seen.inodes.len() * INODE_BYTES);
                    }
                }
            }
        }
    }

    #[test]
    fn inodes_of_older_trees_make_room() {
        let mut seen = SeenInodes { bytes_max: 2 * INODE_BYTES, ..SeenInodes::default() };
        let look = |seen: &mut SeenInodes, inode| {
            let is_known = seen.find(&(8, 1, inode), &state(0)).is_some();
            if !is_known {
                seen.add((8, 1, inode), state(0), &Arc::default());
            }
            is_known
        };
        seen.begin_tree();
        assert!(!look(&mut seen, 1) && !look(&mut seen, 2) && !look(&mut seen, 3));
        seen.begin_tree();
        assert!(look(&mut seen, 1), "the first ones are kept");
        assert!(!look(&mut seen, 3), "and 2 is of the tree before");
        seen.begin_tree();
        assert!(look(&mut seen, 1) && !look(&mut seen, 3));
        assert!(look(&mut seen, 3), "2 was forgotten");
    }
}
