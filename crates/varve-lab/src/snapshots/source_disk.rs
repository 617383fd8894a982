//! The disk that snapshots are taken of. It is read from its first changed block to its last,
//! while the log is written.

use std::collections::VecDeque;

use varve_sim::{AccessKind, AccessPattern, DeviceProfile};

use super::workload::BLOCK_BYTES;

/// Blocks that are read ahead of the engine.
const AHEAD_BLOCKS: u64 = 256;

/// A disk that reads ahead, in virtual time.
pub(super) struct SourceDisk {
    nanoseconds_per_block: u64,
    free_at: u64,
    /// The moments at which the engine has taken the last batches, and their numbers of blocks.
    taken: VecDeque<(u64, u64)>,
    waiting_blocks: u64,
}

impl SourceDisk {
    /// Makes a disk that begins to read at the moment `now`, in nanoseconds.
    pub(super) fn new(device: &DeviceProfile, now: u64) -> Self {
        let bytes = u64::from(BLOCK_BYTES);
        let pattern = AccessPattern {
            action: AccessKind::Read,
            is_random: false,
            bytes,
            depth: 1,
            span_bytes: bytes << 20,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
        let nanoseconds_per_block = (device.time_of(&pattern) * 1e6) as u64;
        Self { nanoseconds_per_block, free_at: now, taken: VecDeque::new(), waiting_blocks: 0 }
    }

    /// Returns the moment at which the next `blocks` are in memory.
    pub(super) fn read(&mut self, blocks: u64) -> u64 {
        self.waiting_blocks += blocks;
        while self.waiting_blocks > AHEAD_BLOCKS.max(blocks) {
            let Some((moment, taken)) = self.taken.pop_front() else { break };
            self.free_at = self.free_at.max(moment);
            self.waiting_blocks -= taken;
        }
        self.free_at += blocks * self.nanoseconds_per_block;
        self.free_at
    }

    /// Records that the engine is done with `blocks`.
    pub(super) fn note_taken(&mut self, now: u64, blocks: u64) {
        self.taken.push_back((now, blocks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_reads_ahead_as_far_as_memory_goes() {
        let device = crate::simulated::device("foundation-hitachi").unwrap();
        let mut disk = SourceDisk::new(&device, 0);
        let one = disk.nanoseconds_per_block;
        assert_eq!(disk.read(128), 128 * one);
        disk.note_taken(1_000_000_000_000, 128);
        assert_eq!(disk.read(128), 256 * one, "there is room for both");
        disk.note_taken(2_000_000_000_000, 128);
        assert_eq!(disk.read(128), 1_000_000_000_000 + 128 * one, "there is room now");
    }
}
