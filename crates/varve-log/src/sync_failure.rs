//! Remembers a failed sync. The system reports a failed write-back to one caller and then marks the
//! data clean. The next sync succeeds, although the caller's blocks may be among the lost data.

use std::io;

use parking_lot::Mutex;
use varve_world::is_out_of_descriptors;

use crate::append_error::WriteFailure;

/// The reason why nothing becomes durable any more, if a sync has failed.
#[derive(Debug, Default)]
pub(crate) struct SyncFailure(Mutex<Option<WriteFailure>>);

impl SyncFailure {
    /// Runs a sync, unless one has failed. Runs one at a time, so that a failure is recorded before
    /// the next call to the system.
    pub(crate) fn unless_failed(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut failure = self.0.lock();
        if let Some(reason) = &*failure {
            let kind = reason.kind().unwrap_or(io::ErrorKind::Other);
            return Err(io::Error::new(kind, format!("an earlier sync has failed: {reason}")));
        }
        sync().inspect_err(|error| {
            // Without a descriptor the system was not called, so it has not reported a failure
            // either.
            if !is_out_of_descriptors(error) {
                *failure = Some(WriteFailure::of_call(error.to_string(), error));
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
        let error = failure.unless_failed(|| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("an earlier sync has failed: "), "{error}");
    }
}
