//! The index of a store, of whichever kind it is.

use parking_lot::{RwLock, RwLockReadGuard};
use varve_block::{Fingerprint, LogAddress};

use crate::{DiskIndex, Found, IndexFull, MemoryIndex, Near};

/// Where each block may be. Callable from many threads at once.
///
/// Whatever was inserted is in [`near`](Self::near), if that says that it is all, and in [`candidates`](Self::candidates), if that
/// says that it is complete.
pub enum ScoreIndex {
    /// A word of memory for each block.
    Memory(RwLock<MemoryIndex>),
    /// A fixed amount of memory, and most of it on disk.
    Disk(Box<DiskIndex>),
}

impl ScoreIndex {
    /// What is known of a fingerprint without reading the disk.
    #[must_use]
    pub fn near(&self, fingerprint: Fingerprint) -> Near {
        match self {
            Self::Memory(index) => Near::All(read(index).candidates(fingerprint).collect()),
            Self::Disk(index) => index.near(fingerprint),
        }
    }

    /// Where the block with this fingerprint may be; reads the disk if need be.
    #[must_use]
    pub fn candidates(&self, fingerprint: Fingerprint) -> Found {
        match self {
            Self::Memory(index) => {
                let addresses = read(index).candidates(fingerprint).collect();
                Found { addresses, is_complete: true, is_from_disk: false }
            }
            Self::Disk(index) => index.candidates(fingerprint),
        }
    }

    /// Adds where blocks may be. Returns how many of these were new, as far as it is known.
    ///
    /// # Errors
    /// [`IndexFull`] when an index in memory is full; some of them were added then.
    pub fn insert_all(&self, entries: &[(Fingerprint, LogAddress)]) -> Result<u64, IndexFull> {
        match self {
            Self::Memory(index) => {
                let mut index = index.write();
                let mut added = 0;
                for (fingerprint, address) in entries {
                    added += u64::from(index.insert(*fingerprint, *address)?);
                }
                Ok(added)
            }
            Self::Disk(index) => Ok(index.insert_all(entries)),
        }
    }

    /// How many pairs of fingerprint and address it holds.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory(index) => read(index).len(),
            Self::Disk(index) => index.len(),
        }
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All memory that it takes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Memory(index) => read(index).memory_bytes(),
            Self::Disk(index) => index.memory_bytes(),
        }
    }

    /// The one on disk, if it is that.
    #[must_use]
    pub fn disk(&self) -> Option<&DiskIndex> {
        match self {
            Self::Memory(_) => None,
            Self::Disk(index) => Some(index),
        }
    }

    /// The one in memory, if it is that.
    pub fn memory(&self) -> Option<RwLockReadGuard<'_, MemoryIndex>> {
        match self {
            Self::Memory(index) => Some(read(index)),
            Self::Disk(_) => None,
        }
    }
}

impl From<MemoryIndex> for ScoreIndex {
    fn from(index: MemoryIndex) -> Self {
        Self::Memory(RwLock::new(index))
    }
}

impl From<DiskIndex> for ScoreIndex {
    fn from(index: DiskIndex) -> Self {
        Self::Disk(Box::new(index))
    }
}

fn read(index: &RwLock<MemoryIndex>) -> RwLockReadGuard<'_, MemoryIndex> {
    index.read()
}
