//! The name of a block in a by-value store: the place where the block was first written, and a
//! fingerprint as a check.
//!
//! | offset | bytes | field       | meaning                                                                       |
//! |-------:|------:|-------------|-------------------------------------------------------------------------------|
//! |      0 |     8 | fingerprint | the first bytes of a keyed hash of the block: a check, and the key of an index   |
//! |      8 |     2 | slot        | the number of the block in its first clump                                    |
//! |     10 |     6 | session     | random: the first bytes of the salt of the session that wrote it              |
//! |     16 |     4 | clump       | the number of the clump in that session                                       |
//! |     20 |     4 | arena       | the arena in which it was first written                                       |
//!
//! No two blocks have the same last 16 bytes: a session gives each of its places once, and no other
//! session draws its salt. So the name of a block that was lost in a crash is never assigned again,
//! even if its place is. The fingerprint is used only for refusals: it shows that a name is not
//! from this store, or was tampered with. It never serves as proof that two blocks are equal.

use crate::score::Score;

/// The bytes of a block's name in a by-value store.
pub const PLACED_SCORE_BYTES: usize = 24;
/// The bytes of it that differ between the blocks of one clump: fingerprint and slot.
pub const PLACED_MARK_BYTES: usize = 10;
/// The bytes of it that all blocks of a clump share.
pub const CLUMP_NAME_BYTES: usize = PLACED_SCORE_BYTES - PLACED_MARK_BYTES;
/// The bytes of a session's salt that names contain.
pub const SESSION_MARK_BYTES: usize = 6;

/// The common end of the names of all blocks of a clump. It identifies the clump wherever it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClumpName {
    /// The first bytes of the salt of the session that wrote it.
    pub session: [u8; SESSION_MARK_BYTES],
    /// The number of the clump in that session.
    pub clump: u32,
    /// The arena in which it was first written.
    pub arena: u32,
}

/// The parts of a block's name in a by-value store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedName {
    /// The first bytes of the keyed hash of the block.
    pub fingerprint: [u8; 8],
    /// The number of the block in the clump in which it was first written.
    pub slot: u16,
    pub clump: ClumpName,
}

impl ClumpName {
    /// Encodes the name as stored.
    #[must_use]
    pub fn to_bytes(self) -> [u8; CLUMP_NAME_BYTES] {
        let mut bytes = [0; CLUMP_NAME_BYTES];
        let (session, rest) = bytes.split_at_mut(SESSION_MARK_BYTES);
        session.copy_from_slice(&self.session);
        let (clump, arena) = rest.split_at_mut(4);
        clump.copy_from_slice(&self.clump.to_le_bytes());
        arena.copy_from_slice(&self.arena.to_le_bytes());
        bytes
    }

    /// Decodes a stored name.
    #[must_use]
    pub fn from_bytes(bytes: [u8; CLUMP_NAME_BYTES]) -> Self {
        let [s0, s1, s2, s3, s4, s5, c0, c1, c2, c3, a0, a1, a2, a3] = bytes;
        Self {
            session: [s0, s1, s2, s3, s4, s5],
            clump: u32::from_le_bytes([c0, c1, c2, c3]),
            arena: u32::from_le_bytes([a0, a1, a2, a3]),
        }
    }

    /// Returns the name of the block with this mark.
    #[must_use]
    pub fn score(self, mark: [u8; PLACED_MARK_BYTES]) -> Score {
        let mut bytes = [0; PLACED_SCORE_BYTES];
        let (first, last) = bytes.split_at_mut(PLACED_MARK_BYTES);
        first.copy_from_slice(&mark);
        last.copy_from_slice(&self.to_bytes());
        Score::try_from(bytes.as_slice()).expect("24 bytes can be a score")
    }
}

impl PlacedName {
    /// The name of the empty block, which every by-value store has, and which lies nowhere. No slot
    /// has its number.
    pub const EMPTY: [u8; PLACED_SCORE_BYTES] = [0xff; PLACED_SCORE_BYTES];

    /// Returns the parts of a name; `None` if it has another width, or is that of the empty block.
    #[must_use]
    pub fn of(score: &Score) -> Option<Self> {
        let bytes: &[u8; PLACED_SCORE_BYTES] = score.as_bytes().try_into().ok()?;
        if *bytes == Self::EMPTY {
            return None;
        }
        let (fingerprint, rest) = bytes.split_first_chunk::<8>()?;
        let (slot, clump) = rest.split_first_chunk::<2>()?;
        Some(Self {
            fingerprint: *fingerprint,
            slot: u16::from_le_bytes(*slot),
            clump: ClumpName::from_bytes(clump.try_into().ok()?),
        })
    }

    /// Returns the name as a score.
    #[must_use]
    pub fn score(self) -> Score {
        self.clump.score(self.mark())
    }

    /// Returns the part that distinguishes it from the other blocks of its clump.
    #[must_use]
    pub fn mark(self) -> [u8; PLACED_MARK_BYTES] {
        let mut mark = [0; PLACED_MARK_BYTES];
        let (fingerprint, slot) = mark.split_at_mut(8);
        fingerprint.copy_from_slice(&self.fingerprint);
        slot.copy_from_slice(&self.slot.to_le_bytes());
        mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_the_round_trip() {
        let clump = ClumpName { session: [1, 2, 3, 4, 5, 6], clump: 0x0708_090a, arena: 0x0b0c_0d0e };
        let name = PlacedName { fingerprint: [9; 8], slot: 0x1234, clump };
        let score = name.score();
        assert_eq!(score.as_bytes().len(), PLACED_SCORE_BYTES);
        assert_eq!(PlacedName::of(&score), Some(name));
        assert_eq!(ClumpName::from_bytes(clump.to_bytes()), clump);
        assert_eq!(
            score.to_string(),
            ["0909090909090909", "3412", "010203040506", "0a090807", "0e0d0c0b"].concat(),
            "as the table says"
        );
    }

    #[test]
    fn hashes_and_the_empty_block_have_no_place() {
        assert_eq!(PlacedName::of(&Score::from([7; 32])), None);
        assert_eq!(PlacedName::of(&Score::try_from([7; 20].as_slice()).unwrap()), None);
        assert_eq!(PlacedName::of(&Score::try_from(PlacedName::EMPTY.as_slice()).unwrap()), None);
    }
}
