//! How far an arena was read, and all of that is durable: a hint, noted in a file of the store's own.
//!
//! ```text
//! mark 48 │ address 8, little-endian
//! ```
//!
//! It holds as long as the store's own log holds what it did then.

use varve_store::{LogMark, Store};

const BYTES: usize = LogMark::BYTES + 8;

/// Which arena it is: its head, and the header of its first clump, which has a time and a score.
pub(super) struct ArenaIdentity(Vec<u8>);

impl ArenaIdentity {
    pub(super) fn new(head: &[u8], first_clump: &[u8]) -> Self {
        Self([b"venti arena\0", head, first_clump].concat())
    }

    /// The address up to which it was read; 0 where nothing is known, or it holds no longer.
    pub(super) fn noted(&self, store: &Store) -> u64 {
        let read = || {
            let note = store.read_own(&self.0)?;
            let whole: &[u8; BYTES] = note.as_slice().try_into().ok()?;
            let (mark, address) = whole.split_first_chunk()?;
            let holds = store.holds(&LogMark::from_bytes(*mark));
            holds.then_some(u64::from_le_bytes(address.try_into().ok()?))
        };
        read().unwrap_or(0)
    }

    /// Notes an address, all before which is durable. Where that fails, more is read the next time.
    pub(super) fn note(&self, store: &Store, address: u64) {
        let Ok(mark) = store.mark() else { return };
        let note = [&mark.as_bytes()[..], &address.to_le_bytes()].concat();
        if let Err(error) = store.write_own(&self.0, &note) {
            tracing::warn!(%error, "how far the arena was read is not remembered");
        }
    }
}
