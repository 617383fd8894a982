//! The position up to which an arena was read and everything is durable. It is a hint in a file of
//! the store.
//!
//! ```text
//! mark 48 │ address 8, little-endian
//! ```
//!
//! It is valid as long as the store's log still has everything that it had then.

use varve_store::{LogExtent, Store};

const BYTES: usize = LogExtent::BYTES + 8;

/// Identifies an arena by its head and the header of its first clump, which has a time and a score.
pub(super) struct ArenaIdentity(Vec<u8>);

impl ArenaIdentity {
    pub(super) fn new(head: &[u8], first_clump: &[u8]) -> Self {
        Self([b"venti arena\0", head, first_clump].concat())
    }

    /// The address up to which it was read; 0 if unknown, or no longer valid.
    pub(super) fn noted(&self, store: &Store) -> u64 {
        let read = || {
            let note = store.vault().read_own(&self.0)?;
            let whole: &[u8; BYTES] = note.as_slice().try_into().ok()?;
            let (mark, address) = whole.split_first_chunk()?;
            let holds = store.vault().holds(&LogExtent::from_bytes(*mark));
            holds.then_some(u64::from_le_bytes(address.try_into().ok()?))
        };
        read().unwrap_or(0)
    }

    /// Records an address. Everything before it must be durable. If this fails, the next run reads
    /// more.
    pub(super) fn note(&self, store: &Store, address: u64) {
        let Ok(mark) = store.vault().mark() else { return };
        let note = [&mark.as_bytes()[..], &address.to_le_bytes()].concat();
        if let Err(error) = store.vault().write_own(&self.0, &note) {
            tracing::warn!(%error, "the position in the arena could not be saved; the next run starts earlier");
        }
    }
}
