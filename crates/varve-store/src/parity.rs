//! Parity: for each sealed arena a file beside the log, from which damaged parts of the arena can
//! be computed again.
//!
//! It owns the files in `parity/`: their names, and how to open, read and write them.
//! `docs/internals/format.md`, appendix A, describes their bytes.
//!
//! Always true:
//! - A file is written whole once the arena's seal is durable, and a missing one is made up for
//!   later. So a crash leaves either none or a good one.
//! - Parity is never trusted: bytes that are computed from it are checked as the log is.

mod shards;
mod write;

use std::collections::BTreeSet;
use std::io;

use varve_log::{ArenaId, Log, PARITY_HEADER_BYTES, ParityHeader, ParityHeaderError, ParityKey, ShardCode};
use varve_world::{FileName, Storage};

pub use shards::{GroupCodes, ParityShards, UnknownShard, padded_bytes, read_shards};

const FOLDER: &str = "parity";

/// Returns the name of an arena's parity file.
fn file_name(arena: ArenaId, generation: u32) -> FileName {
    FileName::new(&format!("{FOLDER}/{:010}.{generation}.parity", arena.0)).expect("digits make a good name")
}

/// Returns the arena and the generation of a parity file; `None` for any other file.
fn of_file(file: &FileName) -> Option<(ArenaId, u32)> {
    let name = file.as_str().strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".parity")?;
    let (arena, generation) = name.split_once('.')?;
    let (arena, generation) = (ArenaId(arena.parse().ok()?), generation.parse().ok()?);
    (file_name(arena, generation) == *file).then_some((arena, generation))
}

/// A parity file with a good header.
pub struct ParityFile {
    name: FileName,
    header: ParityHeader,
    key: ParityKey,
    bad_headers: usize,
}

/// A parity file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenParityError {
    /// Neither of its headers is good.
    #[error("{0}")]
    Header(#[from] ParityHeaderError),
    #[error("{0}")]
    Storage(#[from] io::Error),
}

impl ParityFile {
    fn open(
        log: &Log,
        storage: &dyn Storage,
        arena: ArenaId,
        generation: u32,
    ) -> Result<Self, OpenParityError> {
        let name = file_name(arena, generation);
        let file_bytes = storage.length(&name)?;
        let read = |offset| -> Result<_, OpenParityError> {
            let mut bytes = vec![0; PARITY_HEADER_BYTES];
            storage.read_at(&name, offset, &mut bytes)?;
            Ok(ParityHeader::decode(&bytes, log.keys(), log.config().store_id, arena, generation)?)
        };
        let first = read(0);
        let last = read(file_bytes.saturating_sub(PARITY_HEADER_BYTES as u64));
        let bad_headers = usize::from(first.is_err()) + usize::from(last.is_err());
        let (header, key) = first.or_else(|error| last.map_err(|_| error))?;
        Ok(Self { name, header, key, bad_headers })
    }

    /// Returns the file's header.
    #[must_use]
    pub fn header(&self) -> &ParityHeader {
        &self.header
    }

    /// Returns the number of bad headers, of two.
    #[must_use]
    pub fn bad_headers(&self) -> usize {
        self.bad_headers
    }

    /// Returns true if a shard has this code.
    #[must_use]
    pub fn is_good(&self, shard: &[u8], code: &ShardCode) -> bool {
        self.key.is_good(shard, code)
    }
}

/// The parity files of a store.
#[derive(Clone, Copy)]
pub struct ParityFiles<'a> {
    log: &'a Log,
    storage: &'a dyn Storage,
}

impl<'a> ParityFiles<'a> {
    pub(crate) fn new(log: &'a Log, storage: &'a dyn Storage) -> Self {
        Self { log, storage }
    }

    /// Lists the arenas that have a parity file, each with its generation, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self) -> io::Result<Vec<(ArenaId, u32)>> {
        Ok(self.storage.list(FOLDER)?.iter().filter_map(of_file).collect())
    }

    /// Opens the parity of one generation of an arena.
    ///
    /// # Errors
    /// [`OpenParityError`].
    pub fn open(&self, arena: ArenaId, generation: u32) -> Result<ParityFile, OpenParityError> {
        ParityFile::open(self.log, self.storage, arena, generation)
    }

    /// Returns true if an arena of this generation has a parity file, good or not.
    ///
    /// # Errors
    /// The file that cannot be examined, and the reason.
    pub(crate) fn is_there(&self, arena: ArenaId, generation: u32) -> Result<bool, (FileName, io::Error)> {
        let file = file_name(arena, generation);
        match self.storage.length(&file) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err((file, source)),
        }
    }

    /// Returns the last arena after `last` that has a good parity file.
    pub(crate) fn last_known_after(&self, last: Option<ArenaId>) -> io::Result<Option<ArenaId>> {
        let mut later = self.list()?.into_iter().rev().filter(|(arena, _)| Some(*arena) > last);
        let known = later.find(|(arena, generation)| self.open(*arena, *generation).is_ok());
        Ok(known.map(|(arena, _)| arena))
    }

    /// Returns the arenas that have a good parity file and are not among `ids`.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn gone(&self, ids: &[ArenaId]) -> io::Result<BTreeSet<ArenaId>> {
        let gone = self.list()?.into_iter().filter(|(id, _)| ids.binary_search(id).is_err());
        Ok(gone.filter(|of| self.open(of.0, of.1).is_ok()).map(|(id, _)| id).collect())
    }

    /// Returns true if there is a parity file of the arena whose header has this code: the arena
    /// was sealed then.
    #[must_use]
    pub fn was_sealed(&self, arena: ArenaId, generation: u32, header_code: &[u8; 32]) -> bool {
        self.open(arena, generation).is_ok_and(|parity| parity.header.arena_header_code == *header_code)
    }

    /// Returns the generation of this arena's parity to use: that of the arena in place, or else
    /// the newest one.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn generation_of(&self, id: ArenaId) -> io::Result<Option<u32>> {
        let files = self.list()?.into_iter().filter(|(arena, _)| *arena == id);
        let generations: Vec<u32> = files.map(|(_, generation)| generation).collect();
        let in_place = self.log.open_arena(id).ok().map(|arena| arena.header().generation);
        Ok(in_place.filter(|one| generations.contains(one)).or_else(|| generations.into_iter().max()))
    }

    /// Returns the number of parity files and their total length in bytes.
    pub(crate) fn size(&self) -> io::Result<(u64, u64)> {
        let files = self.storage.list(FOLDER)?;
        let mut size = (0, 0);
        for file in files.iter().filter(|file| of_file(file).is_some()) {
            match self.storage.length(file) {
                Ok(length) => size = (size.0 + 1, size.1 + length),
                // A collector has removed the parity of an arena that it has replaced.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lead_to_arenas_and_back() {
        assert_eq!(file_name(ArenaId(7), 2).as_str(), "parity/0000000007.2.parity");
        assert_eq!(of_file(&file_name(ArenaId(12_345_678_901), 3)), Some((ArenaId(12_345_678_901), 3)));
        for foreign in [
            "parity/7.0.parity",
            "parity/0000000007.parity",
            "parity/0000000007.00.parity",
            "parity/0000000007.0.parity.new",
            "arenas/0000000007.0.parity",
        ] {
            assert_eq!(of_file(&FileName::new(foreign).unwrap()), None, "{foreign}");
        }
    }
}
