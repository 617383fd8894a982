//! The blocks that a server has acknowledged but may not have made durable.

use bytes::Bytes;
use varve_venti::WireType;

/// Blocks, and the number of connections at the time when the first of them was sent. If a
/// connection at least that old is still open, the server has not been restarted since.
#[derive(Debug, Default)]
pub(super) struct UnsyncedBlocks {
    blocks: Vec<(WireType, Bytes)>,
    byte_count: usize,
    first_connection: Option<u64>,
}

impl UnsyncedBlocks {
    pub(super) fn add(&mut self, blocks: Vec<(WireType, Bytes)>, connection_count: u64) {
        if blocks.is_empty() {
            return;
        }
        self.byte_count += blocks.iter().map(|(_, data)| data.len()).sum::<usize>();
        self.blocks.extend(blocks);
        self.first_connection =
            Some(self.first_connection.map_or(connection_count, |first| first.min(connection_count)));
    }

    /// Puts blocks whose sync has failed before those that were added meanwhile.
    pub(super) fn put_back(&mut self, mut earlier: Self) {
        earlier.add(std::mem::take(&mut self.blocks), self.first_connection.unwrap_or(u64::MAX));
        *self = earlier;
    }

    pub(super) fn blocks(&self) -> &[(WireType, Bytes)] {
        &self.blocks
    }

    pub(super) fn byte_count(&self) -> usize {
        self.byte_count
    }

    /// Returns the number of the newest connection that existed before the first of the blocks was
    /// sent.
    pub(super) fn first_connection(&self) -> u64 {
        self.first_connection.unwrap_or(u64::MAX)
    }
}
