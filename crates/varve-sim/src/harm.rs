//! Changes to the disk from outside the engine: damage, and files restored from copies.

use std::io;

use varve_world::{FileName, Storage};

use crate::disk::SimDisk;
use crate::inode::SimInode;
use crate::rot::Rot;

impl SimDisk {
    /// All files, in order of their names. Not counted as a call, and never hit by a fault.
    #[must_use]
    pub fn files(&self) -> Vec<FileName> {
        self.inside().names.files().cloned().collect()
    }

    /// The contents of a file as a process sees them on a working disk; `None` if the file does not
    /// exist. Not counted as a call.
    #[must_use]
    pub fn contents(&self, file: &FileName) -> Option<Vec<u8>> {
        let inside = self.inside();
        let number = inside.names.inode(file)?;
        Some(inside.inodes[&number].bytes().to_vec())
    }

    /// Makes all sectors readable again, as after fixing a loose cable.
    pub fn heal(&self) {
        self.inside().inodes.values_mut().for_each(SimInode::heal);
    }

    /// Damages a file at a random position. Returns false if the file does not exist or is empty.
    pub fn rot(&self, file: &FileName, rot: Rot) -> bool {
        let mut inside = self.inside();
        let inside = &mut *inside;
        let Some(number) = inside.names.inode(file) else { return false };
        let Some(inode) = inside.inodes.get_mut(&number).filter(|inode| !inode.bytes().is_empty()) else {
            return false;
        };
        match rot {
            Rot::LostFile => inside.names.lose(file),
            _ => inode.rot(rot, &mut inside.draw),
        }
        *inside.tally.rotted.entry(rot).or_default() += 1;
        inside.tally.note(rot as u64);
        inside.tally.note_bytes(file.as_str().as_bytes());
        true
    }

    /// Restores a file from a copy, completely and durably.
    ///
    /// # Errors
    /// The error of a disk that is down or full.
    pub fn put_back(&self, file: &FileName, contents: &[u8]) -> io::Result<()> {
        let storage: &dyn Storage = self;
        storage.replace(file, contents)?;
        self.inside().tally.put_back += 1;
        Ok(())
    }
}
