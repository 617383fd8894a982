//! Progress and cancellation of a long operation with a target.

/// Observes an operation. All threads of the operation may call it.
pub trait Observer: Sync {
    /// Sets the total of bytes.
    fn set_total(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Adds to the bytes that are done.
    fn add_done(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Returns true if the operation should stop as soon as possible.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Ignores the progress.
impl Observer for () {}
