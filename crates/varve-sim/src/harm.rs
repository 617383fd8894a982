//! What is done to a disk behind the engine's back: damage, and copies that somebody puts back.

use std::io;

use varve_world::{FileName, Storage};

use crate::disk::Disk;
use crate::inode::Inode;
use crate::rot::Rot;

impl Disk {
    /// All files, in order of their names. No call of an engine: it is not counted, and nothing strikes it.
    #[must_use]
    pub fn files(&self) -> Vec<FileName> {
        self.inside().names.files().cloned().collect()
    }

    /// What a file holds, as a process would see it on a disk that works; `None` if it is not there. No call of an engine.
    #[must_use]
    pub fn contents(&self, file: &FileName) -> Option<Vec<u8>> {
        let inside = self.inside();
        let number = inside.names.inode(file)?;
        Some(inside.inodes[&number].bytes().to_vec())
    }

    /// Every sector can be read again, as when a cable was loose.
    pub fn heal(&self) {
        self.inside().inodes.values_mut().for_each(Inode::heal);
    }

    /// Damages a file at a place that the seed decides. Says whether it did: a file that is not there, or empty, cannot rot.
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

    /// A file is as it was before, from a copy that somebody had: whole, and durable.
    ///
    /// # Errors
    /// What a disk returns that is down or full.
    pub fn put_back(&self, file: &FileName, contents: &[u8]) -> io::Result<()> {
        let storage: &dyn Storage = self;
        storage.replace(file, contents)?;
        self.inside().tally.put_back += 1;
        Ok(())
    }
}
