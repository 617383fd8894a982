//! Reads of a snapshot that was forgotten and collected while a client used it.

use std::error::Error;

use varve_archive::CollectedError;
use varve_block::with_causes;

/// Reports whether a read failed because its snapshot was collected. Then it also tells the log:
/// this is no damage, and a client gets an answer that means "gone".
pub(crate) fn is_collected(error: &(dyn Error + 'static)) -> bool {
    let is_collected = CollectedError::is_cause_of(error);
    if is_collected {
        let error = with_causes(error);
        tracing::warn!(error, hint = CollectedError::HINT, "a client still uses a snapshot that is gone");
    }
    is_collected
}
