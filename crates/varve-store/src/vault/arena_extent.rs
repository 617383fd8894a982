//! Marks of one arena at one moment. A hint about blocks in some arenas carries a mark of each, and
//! is used while these arenas stand, whatever becomes of the others.
//!
//! | offset | bytes | field | meaning                                                                   |
//! |-------:|------:|-------|---------------------------------------------------------------------------|
//! |      0 |     8 | arena | its number                                                                |
//! |      8 |     8 | pages | the number of directory pages that it had; it may have more by now        |
//! |     16 |    32 | code  | BLAKE3 of the number, generation, uid, number of pages, the codes of these |

use std::io;

use varve_log::ArenaId;

use super::Vault;

/// The extent of one arena at one moment, with a hash of its pages' codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaExtent([u8; Self::BYTES]);

impl ArenaExtent {
    /// The length of the encoding.
    pub const BYTES: usize = 48;

    /// Makes a mark from the result of [`as_bytes`](Self::as_bytes). Arbitrary bytes do no harm: no
    /// arena matches them.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the encoding.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Returns the arena.
    #[must_use]
    pub fn arena(&self) -> ArenaId {
        ArenaId(self.number(0))
    }

    fn number(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }
}

impl Vault {
    /// Returns the mark of an arena as it is now. Every block in it must be durable.
    ///
    /// # Errors
    /// [`io::Error`] when the arena cannot be read.
    pub fn mark_arena(&self, id: ArenaId) -> io::Result<ArenaExtent> {
        self.mark_first_pages(id, u64::MAX)
    }

    /// Returns true if an arena still has everything that it had at the mark. An arena that was
    /// rewritten since does not stand. Damage within a page or a clump is not detected.
    #[must_use]
    pub fn stands(&self, mark: &ArenaExtent) -> bool {
        self.mark_first_pages(mark.arena(), mark.number(8)).is_ok_and(|now| now == *mark)
    }

    fn mark_first_pages(&self, id: ArenaId, pages_max: u64) -> io::Result<ArenaExtent> {
        let mut hasher = blake3::Hasher::new();
        let pages = self.hash_arena(&mut hasher, id, pages_max)?;
        let mut bytes = [0; ArenaExtent::BYTES];
        bytes[..8].copy_from_slice(&id.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&pages.to_le_bytes());
        bytes[16..].copy_from_slice(hasher.finalize().as_bytes());
        Ok(ArenaExtent(bytes))
    }
}
