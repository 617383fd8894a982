//! What a server has acknowledged, and not made durable as far as is known.

use bytes::Bytes;
use varve_venti::WireType;

/// Blocks, and how many connections there had been when the first of them was sent. A connection that is as old has been open all the
/// time: then the server has not been started again since.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    blocks: Vec<(WireType, Bytes)>,
    byte_count: usize,
    first_connection: Option<u64>,
}

impl Unsynced {
    pub(super) fn add(&mut self, blocks: Vec<(WireType, Bytes)>, connection_count: u64) {
        if blocks.is_empty() {
            return;
        }
        self.byte_count += blocks.iter().map(|(_, data)| data.len()).sum::<usize>();
        self.blocks.extend(blocks);
        self.first_connection =
            Some(self.first_connection.map_or(connection_count, |first| first.min(connection_count)));
    }

    /// Blocks whose sync has failed come before those that were added meanwhile.
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

    /// A connection with this number, or an earlier one, was there before the first of them was sent.
    pub(super) fn first_connection(&self) -> u64 {
        self.first_connection.unwrap_or(u64::MAX)
    }
}
