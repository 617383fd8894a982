//! The progress of transfers to and from a target.

use std::sync::Arc;

use varve_content::Progress;
use varve_remote::Observer;

/// Shows the progress of transfers.
pub(super) struct TransferProgress(pub(super) Arc<Progress>);

impl Observer for TransferProgress {
    fn set_total(&self, bytes: u64) {
        self.0.set_total(0, bytes);
    }

    fn add_done(&self, bytes: u64) {
        self.0.add_bytes_done(bytes);
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}
