//! Checks that an arena's parity exists and is good. While its arena is whole, parity can always be
//! made again, so no finding here harms a snapshot.

use std::io;

use varve_log::{ArenaId, ArenaState, ParityHeaderError, ReadLogError};
use varve_store::{OpenParityError, ParityFile, UnknownShard};
use varve_world::is_exhausted;

use super::Checker;
use crate::damage::{CheckParityError, ParityDamage};

/// Identifies a sealed arena.
#[derive(Clone, Copy)]
pub(crate) struct SealIdentity {
    pub(crate) generation: u32,
    pub(crate) header_code: [u8; 32],
    pub(crate) seal_code: [u8; 32],
}

impl Checker<'_> {
    /// Checks the parity of one arena: that it exists and belongs to this arena. With `data`, also
    /// checks every byte of it. Returns `None` if the parity is good, or the arena needs none.
    ///
    /// # Errors
    /// [`CheckParityError`], when it cannot be read for a reason other than damage.
    pub fn check_parity(&self, id: ArenaId, data: bool) -> Result<Option<ParityDamage>, CheckParityError> {
        let failed = |source: io::Error| CheckParityError { arena: id, source: source.into() };
        // Damage of the arena itself is reported with the arena.
        let seal = self.seal_of(id).ok().flatten();
        let generation = match seal {
            Some(seal) => Some(seal.generation),
            None => self.vault().parity().generation_of(id).map_err(failed)?,
        };
        let Some(generation) = generation else { return Ok(None) };
        let parity = match self.vault().parity().open(id, generation) {
            Ok(parity) => parity,
            Err(source @ OpenParityError::Header(ParityHeaderError::NewerVersion { .. })) => {
                return Err(CheckParityError { arena: id, source });
            }
            Err(OpenParityError::Header(error)) => return Ok(Some(ParityDamage::Unreadable(error))),
            Err(OpenParityError::Storage(error)) => match error.kind() {
                io::ErrorKind::NotFound => {
                    // An arena that was sealed since the store was last closed gets its parity from
                    // the writer at work, or from the next one.
                    let is_due = self.vault().noted_arena().is_some_and(|noted| id >= noted);
                    let wanted = seal.is_some() && self.store.config().parity_percent.is_some() && !is_due;
                    return Ok(wanted.then_some(ParityDamage::Missing));
                }
                io::ErrorKind::UnexpectedEof => {
                    return Ok(Some(ParityDamage::Unreadable(ParityHeaderError::NotParity)));
                }
                _ if is_exhausted(&error) => return Err(failed(error)),
                _ => return Ok(Some(ParityDamage::Withheld { reason: error.to_string() })),
            },
        };
        let codes = (parity.header().arena_header_code, parity.header().arena_seal_code);
        if seal.is_some_and(|seal| (seal.header_code, seal.seal_code) != codes) {
            return Ok(Some(ParityDamage::OtherArena));
        }
        Ok(self.check_parity_file(&parity, data))
    }

    fn check_parity_file(&self, parity: &ParityFile, data: bool) -> Option<ParityDamage> {
        let (storage, workers) = (self.vault().storage(), self.store.world().workers.as_ref());
        let layout = &parity.header().layout;
        let (mut bad_shards, mut shards, mut bad_blocks) = (0, 0, 0);
        for group in 0..layout.group_count() {
            let codes = parity.codes(storage, group);
            bad_blocks += codes.bad_blocks as u64;
            shards += layout.recovery_count(group) as u64;
            if data {
                let recovery = parity.recovery(storage, group, &codes, UnknownShard::IsGood, workers);
                bad_shards += recovery.is_good.iter().filter(|is_good| !**is_good).count() as u64;
            }
        }
        let bad_headers = parity.bad_headers() as u64;
        (bad_shards + bad_blocks + bad_headers > 0).then_some(ParityDamage::Damaged {
            bad_shards,
            shards,
            bad_blocks,
            bad_headers,
        })
    }

    /// Returns the generation and the codes of a sealed arena; `None` if it is not sealed.
    pub(crate) fn seal_of(&self, id: ArenaId) -> Result<Option<SealIdentity>, ReadLogError> {
        let (state, arena) = self.log().read_arena(id, |arena| Ok((self.log().state(&arena)?, arena)))?;
        Ok(match state {
            ArenaState::Sealed { footer, .. } => {
                let header = arena.header();
                let (generation, header_code) = (header.generation, *header.code());
                Some(SealIdentity { generation, header_code, seal_code: footer.seal_code })
            }
            ArenaState::Unsealed => None,
        })
    }
}
