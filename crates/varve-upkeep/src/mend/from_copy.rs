//! Mends an arena from another copy of the store. A sealed arena is the same in each copy. So the
//! file is copied, every code in it is checked, and it is put in place. The log is then the same as
//! before, to the byte.

use varve_block::to_usize;
use varve_log::{ArenaId, ArenaState, WholeArena};
use varve_store::Store;
use varve_world::FileName;

use super::Mender;
use super::from_parity::MendError;
use crate::check::Checker;
use crate::damage::ParityDamage;

/// The bytes that are copied at a time.
const PIECE_BYTES: u64 = 4 << 20;

impl Mender<'_> {
    /// Takes a sealed arena from `copy`, which is opened with the same key. It must be the arena
    /// that was in this place, as far as the remains of the old one show, and it must have all
    /// pages of the old one that can still be read. The old file stays until the new one is whole,
    /// checked and durable. Returns the length of the arena in bytes.
    ///
    /// # Errors
    /// [`MendError`]; except for [`MendError::Index`] the arena is as it was.
    pub fn mend_arena_from_copy(&self, id: ArenaId, copy: &Store) -> Result<u64, MendError> {
        if self.intake.is_open(id) {
            return Err(MendError::Open { arena: id });
        }
        let theirs =
            copy.vault().log().open_arena(id).map_err(|source| MendError::NotWhole { arena: id, source })?;
        let (footer, rows) = match copy.vault().log().state(&theirs) {
            Ok(ArenaState::Sealed { footer, pages }) => (footer, pages),
            Ok(ArenaState::Unsealed) => return Err(MendError::Open { arena: id }),
            Err(source) => return Err(MendError::NotWhole { arena: id, source }),
        };
        let codes = (*theirs.header().code(), footer.seal_code);
        let is_other_header = match self.log().open_arena(id) {
            Ok(ours) => *ours.header().code() != codes.0,
            // The file says that it is another arena, so it shows nothing about the one that was
            // here.
            Err(error) if error.is_of_another_place() => false,
            // The remains of the arena still show whether the copy has the same history.
            Err(_) => self.log().unopened_end(id).is_ok_and(|end| {
                let has = |code: [u8; 16]| rows.iter().any(|row| row.code == code);
                end.page.is_some_and(|code| !has(code)) || end.seal.is_some_and(|code| code != codes.1)
            }),
        };
        let is_other_seal = Checker::of(self.store)
            .seal_of(id)
            .is_ok_and(|seal| seal.is_some_and(|seal| seal.seal_code != codes.1));
        if is_other_header || is_other_seal {
            return Err(MendError::OtherArena { arena: id });
        }
        let new_file = id.file_name().unfinished();
        let taken = self.take_copy(id, copy, codes, &new_file);
        let cleared = self.vault().storage().remove_if_there(&new_file);
        cleared.map_err(|source| MendError::Write { arena: id, source })?;
        let (bytes, whole) = taken?;
        self.intake.take_in_sealed::<MendError>(&whole.arena, &whole.footer, &whole.pages)?;
        self.keep_parity_only_of(id, whole.arena.header().generation);
        Ok(bytes)
    }

    fn take_copy(
        &self,
        id: ArenaId,
        copy: &Store,
        codes: ([u8; 32], [u8; 32]),
        new_file: &FileName,
    ) -> Result<(u64, WholeArena), MendError> {
        let (here, there) = (self.vault().storage(), copy.vault().storage());
        let unread = |source| MendError::Storage { arena: id, source };
        let failed = |source| MendError::Write { arena: id, source };
        let file = id.file_name();
        here.create_anew(new_file).map_err(failed)?;
        let total = there.length(&file).map_err(unread)?;
        let mut place = 0;
        while place < total {
            let count = (total - place).min(PIECE_BYTES);
            let mut piece = vec![0; to_usize(count)];
            there.read_at(&file, place, &mut piece).map_err(unread)?;
            here.append(new_file, &piece).map_err(failed)?;
            place += count;
        }
        here.sync(new_file).map_err(failed)?;
        let whole = self.check_new_arena(id, codes, new_file)?;
        self.intake.put_in_place(&whole, new_file).map_err(failed)?;
        tracing::info!(arena = %id, bytes = total, "took an arena from a copy");
        Ok((total, whole))
    }

    /// Removes the parity of the arena that was in this place, if the copy is of another
    /// generation, or of another history: the lost arena and the copy may both have continued from
    /// the same earlier state.
    fn keep_parity_only_of(&self, id: ArenaId, generation: u32) {
        let parity = Checker::of(self.store).check_parity(id, false);
        let is_of_another = matches!(parity, Ok(Some(ParityDamage::OtherArena)));
        let removed = self.vault().parity().remove(id, |other| is_of_another || other != generation);
        if let Err((file, error)) = removed {
            tracing::warn!(%file, %error, "old parity could not be removed");
        }
    }
}
