//! The use of the space that new data leaves free: for catalogs and notes.

use super::Intake;

/// While this exists, blocks that are put may use the reserved space.
#[must_use]
pub struct UsedReserve<'a>(&'a Intake);

impl Intake {
    /// Lets all that is put use the space which new data leaves free, until the result is dropped.
    /// Sync before that.
    pub fn use_reserve(&self) -> UsedReserve<'_> {
        self.appender.lock().begin_use_of_reserve();
        UsedReserve(self)
    }
}

impl Drop for UsedReserve<'_> {
    fn drop(&mut self) {
        self.0.appender.lock().end_use_of_reserve();
    }
}
