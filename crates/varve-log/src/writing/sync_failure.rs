//! Whether a sync has failed. The system tells of what it could not write to one caller, and takes it for written from then on. Whoever
//! syncs next is told that all is well, though their blocks may have been among it.

use std::io;

use parking_lot::Mutex;
use varve_world::is_out_of_descriptors;

/// Why nothing becomes durable any more, if that is so.
#[derive(Debug, Default)]
pub(crate) struct SyncFailure(Mutex<Option<String>>);

impl SyncFailure {
    /// Carries out a sync, unless one has failed. One at a time: a failure is known here before anybody else may ask the system.
    pub(crate) fn unless_failed(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut failure = self.0.lock();
        if let Some(reason) = &*failure {
            return Err(io::Error::other(format!("an earlier sync has failed: {reason}")));
        }
        sync().inspect_err(|error| {
            // Then the system was asked for nothing, and has not told of anything either.
            if !is_out_of_descriptors(error) {
                *failure = Some(error.to_string());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_to_everybody() {
        let failure = SyncFailure::default();
        assert!(failure.unless_failed(|| Ok(())).is_ok());
        // EMFILE, on every system that has it.
        let too_many_files = || Err(io::Error::from_raw_os_error(24));
        assert!(failure.unless_failed(too_many_files).is_err());
        assert!(failure.unless_failed(|| Ok(())).is_ok(), "nothing was asked of the disk");
        let error = failure.unless_failed(|| Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let said = failure.unless_failed(|| Ok(())).unwrap_err().to_string();
        assert!(said.starts_with("an earlier sync has failed: "), "{said}");
    }
}
