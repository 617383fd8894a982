//! The count of blocks that no sync covers yet.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Counts of acknowledged blocks, and of those that a sync has covered.
#[derive(Debug, Default)]
pub(super) struct UnsyncedCounts {
    acknowledged: AtomicU64,
    durable: AtomicU64,
    appeared: Notify,
    writer_left: Notify,
}

impl UnsyncedCounts {
    /// Counts a block that is in the store. Called before its writer gets the answer.
    pub(super) fn acknowledge(&self) {
        let before = self.acknowledged.fetch_add(1, Ordering::SeqCst);
        if before == self.durable.load(Ordering::SeqCst) {
            self.appeared.notify_one();
        }
    }

    /// The number of blocks that a sync covers if it starts now.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Records the success of a sync that covers this many blocks.
    pub(super) fn note_durable(&self, count: u64) {
        self.durable.fetch_max(count, Ordering::SeqCst);
    }

    pub(super) fn is_any(&self) -> bool {
        self.acknowledged() > self.durable.load(Ordering::SeqCst)
    }

    /// Waits until a client that wrote has closed its connection.
    pub(super) async fn writer_left(&self) {
        self.writer_left.notified().await;
    }

    /// Signals that a client that wrote has closed its connection.
    pub(super) fn note_writer_left(&self) {
        if self.is_any() {
            self.writer_left.notify_one();
        }
    }

    pub(super) async fn any(&self) {
        while !self.is_any() {
            self.appeared.notified().await;
        }
    }
}
