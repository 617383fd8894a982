//! Marks of the log at one moment. A hint about stored blocks carries a mark, and is used only
//! while the log still has everything that it had at the mark.
//!
//! | offset | bytes | field  | meaning                                                                                       |
//! |-------:|------:|--------|-----------------------------------------------------------------------------------------------|
//! |      0 |     8 | arenas | the arenas below this number                                                                  |
//! |      8 |     8 | pages  | the number of directory pages that the last of them had; it may have more by now              |
//! |     16 |    32 | code   | BLAKE3 of all of them in order: number, generation, uid, number of pages, the codes of these   |

use std::io;

use varve_block::to_usize;
use varve_log::ArenaId;

use super::Vault;

/// The extent of the log at one moment, with a hash of its pages' codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogExtent([u8; Self::BYTES]);

impl LogExtent {
    /// The length of the encoding.
    pub const BYTES: usize = 48;

    /// Makes a mark from the result of [`as_bytes`](Self::as_bytes). Arbitrary bytes do no harm: no
    /// log matches them.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the encoding.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    fn new(arenas: u64, pages: u64, code: [u8; 32]) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&arenas.to_le_bytes());
        bytes[8..16].copy_from_slice(&pages.to_le_bytes());
        bytes[16..].copy_from_slice(&code);
        Self(bytes)
    }

    fn place(&self) -> (u64, u64) {
        let number = |at: usize| u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"));
        (number(0), number(8))
    }
}

impl Vault {
    /// Returns the mark of the log as it is now. Every block that was put must be durable.
    ///
    /// # Errors
    /// [`io::Error`] when an arena cannot be read.
    pub fn mark(&self) -> io::Result<LogExtent> {
        self.mark_of(u64::MAX, u64::MAX)
    }

    /// Returns true if the log still has everything that it had at the mark. An arena that was
    /// rewritten since counts as missing. Damage within a page or a clump is not detected.
    #[must_use]
    pub fn holds(&self, mark: &LogExtent) -> bool {
        let (arenas, pages) = mark.place();
        self.mark_of(arenas, pages).is_ok_and(|now| now == *mark)
    }

    /// Computes the mark of the arenas below `arenas`, counting only the first `pages` pages of the
    /// last of them. Arenas and pages that are missing are not counted.
    fn mark_of(&self, arenas: u64, pages: u64) -> io::Result<LogExtent> {
        let mut hasher = blake3::Hasher::new();
        let mut end = (0, 0);
        let ids = self.log.arenas().map_err(|error| error.source)?;
        for id in ids.into_iter().take_while(|id| id.0 < arenas) {
            let next = id.0.saturating_add(1);
            let pages_max = if next == arenas { pages } else { u64::MAX };
            end = (next, self.hash_arena(&mut hasher, id, pages_max)?);
        }
        Ok(LogExtent::new(end.0, end.1, *hasher.finalize().as_bytes()))
    }

    /// Hashes the identity of an arena and the codes of its first pages. Returns their number.
    pub(super) fn hash_arena(
        &self,
        hasher: &mut blake3::Hasher,
        id: ArenaId,
        pages_max: u64,
    ) -> io::Result<u64> {
        let arena = self.directory.arena(id).map_err(io::Error::other)?;
        let rows = self.directory.all_rows(id).map_err(io::Error::other)?;
        let count = rows.len().min(to_usize(pages_max));
        hasher.update(&id.0.to_le_bytes());
        hasher.update(&arena.header().generation.to_le_bytes());
        hasher.update(&arena.header().uid);
        hasher.update(&(count as u64).to_le_bytes());
        for row in rows.iter().take(count) {
            hasher.update(&row.code);
        }
        Ok(count as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use varve_block::{Block, BlockStore, BlockType};
    use varve_log::ArenaMap;
    use varve_world::{FileName, MemoryStorage, Storage, World};

    use super::*;
    use crate::{Encryption, PassphraseCost, Store, StoreAccess, StoreConfig};

    fn world(storage: &MemoryStorage, seed: u64) -> World {
        World::deterministic(Arc::new(storage.clone()), seed)
    }

    fn open(storage: &MemoryStorage, seed: u64, access: StoreAccess<'_>) -> Store {
        Store::open(world(storage, seed), None, access, &mut |_| {}).unwrap()
    }

    /// Puts `count` blocks, closes the store, and returns the mark.
    fn grown(storage: &MemoryStorage, seed: u64, count: u8) -> LogExtent {
        let store = open(storage, seed, StoreAccess::Write { holder: "a test" });
        for _ in 0..count {
            let mut bytes = vec![0; 60_000];
            store.world().random.fill(&mut bytes).unwrap();
            store.put(Block { block_type: BlockType::DATA, bytes: &bytes }).unwrap();
        }
        store.sync().unwrap();
        let mark = store.vault().mark().unwrap();
        assert!(store.vault().holds(&mark));
        store.close().unwrap();
        mark
    }

    #[test]
    fn a_log_holds_what_it_held_until_something_of_it_is_gone() {
        let storage = MemoryStorage::new();
        let mut config = StoreConfig::new([5; 16]);
        config.encryption = Encryption::None;
        config.arena_map = ArenaMap::new(1 << 20).unwrap();
        Store::create(&world(&storage, 1), &config, None, PassphraseCost::default()).unwrap();
        let marks =
            [grown(&storage, 2, 0), grown(&storage, 3, 3), grown(&storage, 4, 3), grown(&storage, 5, 20)];
        let holds = |storage: &MemoryStorage| {
            let store = open(storage, 9, StoreAccess::Read);
            marks.map(|mark| store.vault().holds(&LogExtent::from_bytes(*mark.as_bytes())))
        };
        assert_eq!(holds(&storage), [true; 4]);
        let last =
            storage.names().into_iter().filter(|name| name.as_str().starts_with("arenas/")).max().unwrap();
        assert_ne!(last, FileName::new("arenas/0000000000.arena").unwrap(), "several arenas");
        storage.remove(&last).unwrap();
        assert_eq!(holds(&storage), [true, true, true, false]);
        for bad in 0..LogExtent::BYTES {
            let mut bytes = *marks[2].as_bytes();
            bytes[bad] ^= 0x80;
            assert!(
                !open(&storage, 9, StoreAccess::Read).vault().holds(&LogExtent::from_bytes(bytes)),
                "byte {bad}"
            );
        }
    }
}
