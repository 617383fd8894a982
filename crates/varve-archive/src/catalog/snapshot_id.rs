//! The id of a snapshot.

use std::io;

use varve_block::to_hex;
use varve_world::Random;

/// A random id that identifies a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub [u8; 16]);

/// The minimum number of digits that select a snapshot by its id.
pub(crate) const ID_DIGITS_MIN: usize = 4;

impl SnapshotId {
    /// Returns true if `digits` is a beginning of the id that is long enough to choose it by.
    #[must_use]
    pub fn begins_with(&self, digits: &str) -> bool {
        digits.len() >= ID_DIGITS_MIN && self.to_string().starts_with(&digits.to_ascii_lowercase())
    }

    /// Draws a random id.
    ///
    /// # Errors
    /// Any error of the random source.
    pub(crate) fn draw(random: &dyn Random) -> io::Result<Self> {
        let mut id = [0; 16];
        random.fill(&mut id)?;
        Ok(Self(id))
    }
}

impl std::fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl std::fmt::Debug for SnapshotId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SnapshotId({self})")
    }
}
