//! How a long operation tells how far it is, and is told to stop.

/// Watches an operation, from any of its threads.
pub trait Observer: Sync {
    /// How many bytes there are to do in all.
    fn set_total(&self, bytes: u64) {
        let _ = bytes;
    }

    /// So many bytes more are done.
    fn add_done(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Whether the operation is to stop as soon as it can.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Nobody watches.
impl Observer for () {}
