//! Parity: for each sealed arena a file beside the log, from which its damaged parts can be computed again.
//!
//! The file is written whole once the arena's seal is durable, and a missing one is made up for later: so a crash leaves none or
//! a good one. It is never trusted: what comes out of it is checked as the log is. `docs/format.md`, appendix A, has its bytes.

mod check;
mod mend;
mod shards;
mod unfinished;
mod write;

use std::collections::BTreeSet;
use std::io;

use varve_log::{ArenaId, Log, PARITY_HEADER_BYTES, ParityHeader, ParityHeaderError, ParityKey};
use varve_world::{FileName, Storage};

pub use check::{CheckParityError, ParityDamage};
pub use mend::{MendError, Mended};
pub(crate) use write::ParityDue;
pub use write::WriteParityError;

use crate::store::Store;

const FOLDER: &str = "parity";

/// The parity file of one arena.
fn file_name(arena: ArenaId, generation: u32) -> FileName {
    FileName::new(&format!("{FOLDER}/{:010}.{generation}.parity", arena.0)).expect("digits make a good name")
}

/// The arena whose parity file this is; `None` for any other file.
fn of_file(file: &FileName) -> Option<(ArenaId, u32)> {
    let name = file.as_str().strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".parity")?;
    let (arena, generation) = name.split_once('.')?;
    let (arena, generation) = (ArenaId(arena.parse().ok()?), generation.parse().ok()?);
    (file_name(arena, generation) == *file).then_some((arena, generation))
}

/// A parity file with a good header.
struct ParityFile {
    name: FileName,
    header: ParityHeader,
    key: ParityKey,
    /// How many of its two headers are bad.
    bad_headers: usize,
}

/// Why a parity file says nothing.
#[derive(Debug, thiserror::Error)]
enum OpenParityError {
    #[error(transparent)]
    Header(#[from] ParityHeaderError),
    #[error(transparent)]
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
}

impl Store {
    /// The arenas that have a parity file, each with its generation, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn parity_files(&self) -> io::Result<Vec<(ArenaId, u32)>> {
        Ok(self.world.storage.list(FOLDER)?.iter().filter_map(of_file).collect())
    }

    /// The last arena after this one that has a good parity file.
    pub(crate) fn last_known_by_parity(&self, last: Option<ArenaId>) -> io::Result<Option<ArenaId>> {
        let storage = self.world.storage.as_ref();
        let mut later = self.parity_files()?.into_iter().rev().filter(|(arena, _)| Some(*arena) > last);
        let known = later
            .find(|(arena, generation)| ParityFile::open(&self.log, storage, *arena, *generation).is_ok());
        Ok(known.map(|(arena, _)| arena))
    }

    /// The arenas that have a good parity file and are not among `ids`.
    pub(crate) fn gone_by_parity(&self, ids: &[ArenaId]) -> io::Result<BTreeSet<ArenaId>> {
        let storage = self.world.storage.as_ref();
        let gone = self.parity_files()?.into_iter().filter(|(id, _)| ids.binary_search(id).is_err());
        let is_good = |of: &(ArenaId, u32)| ParityFile::open(&self.log, storage, of.0, of.1).is_ok();
        Ok(gone.filter(is_good).map(|(id, _)| id).collect())
    }

    /// Whether there is a parity file of the arena whose header has this code: it was sealed then.
    pub(crate) fn was_sealed_by_parity(
        &self,
        arena: ArenaId,
        generation: u32,
        header_code: &[u8; 32],
    ) -> bool {
        ParityFile::open(&self.log, self.world.storage.as_ref(), arena, generation)
            .is_ok_and(|parity| parity.header.arena_header_code == *header_code)
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
