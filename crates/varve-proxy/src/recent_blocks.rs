//! A cache of blocks in memory, bounded in bytes, with eviction of the least recently used block.
//!
//! Eviction depends only on the sequence of requests.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::BlockName;

/// Memory per cached block in addition to its bytes.
const OVERHEAD_BYTES: u64 = 200;

/// A cache of blocks; see the module.
#[derive(Debug)]
pub(crate) struct RecentBlocks {
    bytes_max: u64,
    kept: Mutex<KeptBlocks>,
}

#[derive(Debug, Default)]
struct KeptBlocks {
    blocks: BTreeMap<BlockName, (Bytes, u64)>,
    /// The names, the least recently used first.
    by_use: BTreeMap<u64, BlockName>,
    use_count: u64,
    bytes: u64,
}

fn weight(block: &Bytes) -> u64 {
    block.len() as u64 + OVERHEAD_BYTES
}

impl RecentBlocks {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, kept: Mutex::default() }
    }

    pub(crate) fn get(&self, name: &BlockName) -> Option<Bytes> {
        let mut kept = self.kept.lock();
        let KeptBlocks { blocks, by_use, use_count, .. } = &mut *kept;
        let (block, last_use) = blocks.get_mut(name)?;
        by_use.remove(last_use);
        *use_count += 1;
        *last_use = *use_count;
        by_use.insert(*use_count, *name);
        Some(block.clone())
    }

    pub(crate) fn has(&self, name: &BlockName) -> bool {
        self.kept.lock().blocks.contains_key(name)
    }

    pub(crate) fn insert(&self, name: BlockName, block: &Bytes) {
        if weight(block) > self.bytes_max {
            return;
        }
        // Copy the block: a slice would keep the whole buffer that it is a part of.
        let block = Bytes::copy_from_slice(block);
        let mut kept = self.kept.lock();
        kept.use_count += 1;
        let now = kept.use_count;
        kept.bytes += weight(&block);
        if let Some((before, last_use)) = kept.blocks.insert(name, (block, now)) {
            kept.bytes -= weight(&before);
            kept.by_use.remove(&last_use);
        }
        kept.by_use.insert(now, name);
        while kept.bytes > self.bytes_max {
            let Some((_, oldest)) = kept.by_use.pop_first() else { break };
            if let Some((gone, _)) = kept.blocks.remove(&oldest) {
                kept.bytes -= weight(&gone);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{BlockType, Score};

    use super::*;

    fn name(number: u8) -> BlockName {
        BlockName { score: Score::from([number; 32]), block_type: BlockType::DATA }
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let block = Bytes::from(vec![7; 800]);
        let recent = RecentBlocks::new(3000);
        for number in 0..3 {
            recent.insert(name(number), &block);
        }
        assert_eq!(recent.get(&name(0)), Some(block.clone()));
        // Inserting the same block again takes no more space.
        recent.insert(name(2), &block);
        recent.insert(name(3), &block);
        let left: Vec<bool> = (0..4).map(|number| recent.has(&name(number))).collect();
        assert_eq!(left, [true, false, true, true]);
        recent.insert(name(4), &Bytes::from(vec![0; 3000]));
        assert!(!recent.has(&name(4)) && recent.has(&name(3)), "what never fits drives nothing out");
    }
}
