//! Whether an arena's parity is there and good. It can always be made again while its arena is whole, so nothing that is found here
//! harms a snapshot.

use std::io;

use varve_log::{ArenaId, ArenaState, ParityHeaderError, ReadLogError};
use varve_world::is_exhausted;

use crate::parity::shards::Unknown;
use crate::parity::{OpenParityError, ParityFile};
use crate::store::Store;

/// What is wrong with an arena's parity. [`Store::write_parity`] makes it anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParityDamage {
    /// A sealed arena has none, though the store is to have parity.
    #[error("its parity is missing")]
    Missing,
    /// Neither of its headers is good.
    #[error("its parity cannot be read")]
    Unreadable(#[source] ParityHeaderError),
    /// The disk gives neither of its headers.
    #[error("the disk does not give its parity: {reason}")]
    Withheld {
        /// What the disk says.
        reason: String,
    },
    /// It is of what was in the arena's place before.
    #[error("its parity is of another arena")]
    OtherArena,
    /// Parts of it are bad. The others can still mend the arena.
    #[error(
        "its parity is damaged: {bad_shards} of {shards} recovery shards, {bad_blocks} blocks of tables and {bad_headers} headers"
    )]
    Damaged {
        /// Recovery shards that are bad.
        bad_shards: u64,
        /// All recovery shards.
        shards: u64,
        /// Blocks of its tables that are bad, of both copies.
        bad_blocks: u64,
        /// Headers that are bad: one of two.
        bad_headers: u64,
    },
}

/// Why an arena's parity could not be checked, which says nothing of the parity.
#[derive(Debug, thiserror::Error)]
#[error("the parity of arena {arena} cannot be read")]
pub struct CheckParityError {
    /// Which arena.
    pub arena: ArenaId,
    /// What went wrong below.
    pub source: io::Error,
}

/// What tells a sealed arena from every other one.
#[derive(Clone, Copy)]
pub(crate) struct SealedAs {
    pub(crate) generation: u32,
    pub(crate) header_code: [u8; 32],
    pub(crate) seal_code: [u8; 32],
}

impl Store {
    /// Checks the parity of one arena: that it is there, and of this arena; with `data` every byte of it. `None` is good, or an arena that
    /// needs none.
    ///
    /// # Errors
    /// [`CheckParityError`], when it cannot be read for a reason that is no damage.
    pub fn check_parity(&self, id: ArenaId, data: bool) -> Result<Option<ParityDamage>, CheckParityError> {
        let failed = |source| CheckParityError { arena: id, source };
        // What is wrong with the arena itself is reported with the arena.
        let seal = self.seal_of(id).ok().flatten();
        let generation = match seal {
            Some(seal) => Some(seal.generation),
            None => self.parity_generation(id).map_err(failed)?,
        };
        let Some(generation) = generation else { return Ok(None) };
        let parity = match ParityFile::open(&self.log, self.world.storage.as_ref(), id, generation) {
            Ok(parity) => parity,
            Err(OpenParityError::Header(error)) => return Ok(Some(ParityDamage::Unreadable(error))),
            Err(OpenParityError::Storage(error)) => match error.kind() {
                io::ErrorKind::NotFound => {
                    // What was sealed since the store was last closed gets its parity from the writer that is at work, or from the next one.
                    let is_due = self.noted_arena().is_some_and(|noted| id >= noted);
                    let wanted = seal.is_some() && self.config.parity_percent.is_some() && !is_due;
                    return Ok(wanted.then_some(ParityDamage::Missing));
                }
                io::ErrorKind::UnexpectedEof => {
                    return Ok(Some(ParityDamage::Unreadable(ParityHeaderError::NotParity)));
                }
                _ if is_exhausted(&error) => return Err(failed(error)),
                _ => return Ok(Some(ParityDamage::Withheld { reason: error.to_string() })),
            },
        };
        let codes = (parity.header.arena_header_code, parity.header.arena_seal_code);
        if seal.is_some_and(|seal| (seal.header_code, seal.seal_code) != codes) {
            return Ok(Some(ParityDamage::OtherArena));
        }
        Ok(self.check_parity_file(&parity, data))
    }

    fn check_parity_file(&self, parity: &ParityFile, data: bool) -> Option<ParityDamage> {
        let (storage, workers) = (self.world.storage.as_ref(), self.world.workers.as_ref());
        let layout = &parity.header.layout;
        let (mut bad_shards, mut shards, mut bad_blocks) = (0, 0, 0);
        for group in 0..layout.group_count() {
            let codes = parity.codes(storage, group);
            bad_blocks += codes.bad_blocks as u64;
            shards += layout.recovery_count(group) as u64;
            if data {
                let recovery = parity.recovery(storage, group, &codes, Unknown::IsGood, workers);
                bad_shards += recovery.is_good.iter().filter(|is_good| !**is_good).count() as u64;
            }
        }
        let bad_headers = parity.bad_headers as u64;
        (bad_shards + bad_blocks + bad_headers > 0).then_some(ParityDamage::Damaged {
            bad_shards,
            shards,
            bad_blocks,
            bad_headers,
        })
    }

    /// What a sealed arena was sealed as; `None` if it is not.
    pub(crate) fn seal_of(&self, id: ArenaId) -> Result<Option<SealedAs>, ReadLogError> {
        let arena = self.log.open_arena(id)?;
        Ok(match self.log.state(&arena)? {
            ArenaState::Sealed { footer, .. } => {
                let header = arena.header();
                let (generation, header_code) = (header.generation, *header.code());
                Some(SealedAs { generation, header_code, seal_code: footer.seal_code })
            }
            ArenaState::Unsealed => None,
        })
    }

    /// The generation of this arena's parity: that of the arena which is in place, or else the newest of which there is any.
    pub(super) fn parity_generation(&self, id: ArenaId) -> io::Result<Option<u32>> {
        let files = self.parity_files()?.into_iter().filter(|(arena, _)| *arena == id);
        let generations: Vec<u32> = files.map(|(_, generation)| generation).collect();
        let in_place = self.log.open_arena(id).ok().map(|arena| arena.header().generation);
        Ok(in_place.filter(|one| generations.contains(one)).or_else(|| generations.into_iter().max()))
    }
}
