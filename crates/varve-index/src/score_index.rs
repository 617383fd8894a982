//! The index of a store, of either kind.

use parking_lot::{RwLock, RwLockReadGuard};
use varve_block::{Fingerprint, LogAddress};

use crate::disk::{DiskIndex, FoundAddresses, NearAddresses};
use crate::memory_index::{IndexFull, MemoryIndex};

/// Maps fingerprints to candidates. May be used from several threads at once.
///
/// Every inserted address is in [`near`](Self::near), if that returns all, and in
/// [`candidates`](Self::candidates), if that is complete.
pub enum ScoreIndex {
    /// One word of memory for each block.
    Memory(RwLock<MemoryIndex>),
    /// A fixed amount of memory, and most of the index on disk.
    Disk(Box<DiskIndex>),
}

impl ScoreIndex {
    /// Returns the candidates of a fingerprint that are known without a disk read.
    #[must_use]
    pub fn near(&self, fingerprint: Fingerprint) -> NearAddresses {
        match self {
            Self::Memory(index) => NearAddresses::All(read(index).candidates(fingerprint).collect()),
            Self::Disk(index) => index.near(fingerprint),
        }
    }

    /// Returns the candidates of a fingerprint. Reads the disk if necessary.
    #[must_use]
    pub fn candidates(&self, fingerprint: Fingerprint) -> FoundAddresses {
        match self {
            Self::Memory(index) => {
                let addresses = read(index).candidates(fingerprint).collect();
                FoundAddresses { addresses, is_complete: true, is_from_disk: false }
            }
            Self::Disk(index) => index.candidates(fingerprint),
        }
    }

    /// Adds entries. Returns the number of new ones, as far as it is known.
    ///
    /// # Errors
    /// [`IndexFull`] when an index in memory is full; some entries may have been added.
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

    /// Removes pairs from an index in memory, and returns the number of those that were there. An
    /// index on disk keeps them.
    pub fn remove_all(&self, entries: &[(Fingerprint, LogAddress)]) -> u64 {
        let Self::Memory(index) = self else { return 0 };
        let mut index = index.write();
        let removed = entries.iter().filter(|(fingerprint, address)| index.remove(*fingerprint, *address));
        removed.count() as u64
    }

    /// Returns the number of pairs of fingerprint and address.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory(index) => read(index).len(),
            Self::Disk(index) => index.len(),
        }
    }

    /// Returns true if it holds no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns its memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Memory(index) => read(index).memory_bytes(),
            Self::Disk(index) => index.memory_bytes(),
        }
    }

    /// Returns the index on disk, if it is of that kind.
    #[must_use]
    pub fn disk(&self) -> Option<&DiskIndex> {
        match self {
            Self::Memory(_) => None,
            Self::Disk(index) => Some(index),
        }
    }

    /// Returns the index in memory, if it is of that kind.
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
