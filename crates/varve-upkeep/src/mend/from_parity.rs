//! Mends an arena from its parity: finds the damaged parts, computes them again, writes a whole new
//! file, checks every code in it, and only then puts it in the old one's place.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use varve_block::to_usize;
use varve_log::{
    AppendError, ArenaId, ParityHeaderError, ParityLayout, ReadLogError, ShardCode, WholeArena, rebuild,
};
use varve_store::{OpenParityError, ParityFile, UnfinishedFile, UnknownShard, padded_bytes, read_shards};
use varve_world::FileName;

use super::Mender;
use crate::check::Checker;

/// The result of mending an arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MendedArena {
    pub arena: ArenaId,
    /// The parts of its file that were damaged or missing, and are now as they were sealed. If
    /// there are none, the arena was good and nothing was written, unless `cut` is true.
    pub ranges: Vec<Range<u64>>,
    /// True if the file had grown beyond its seal. The excess was removed.
    pub cut: bool,
}

/// An arena was not mended. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum MendError {
    #[error("arena {arena} has no parity")]
    NoParity { arena: ArenaId },
    #[error("the parity of arena {arena} cannot be read")]
    Header { arena: ArenaId, source: ParityHeaderError },
    #[error("arena {arena} is being written: it has no parity yet")]
    Open { arena: ArenaId },
    /// The parity belongs to another arena.
    #[error(
        "the parity of arena {arena} belongs to the arena that was in its place before: it cannot mend this one"
    )]
    OtherArena { arena: ArenaId },
    /// The arena has pages that its parity does not know.
    #[error("arena {arena} holds blocks that its parity does not cover: mending would lose them")]
    WouldLose { arena: ArenaId },
    /// More is damaged than the parity can mend.
    #[error(
        "arena {arena}: {lost} parts of {shard_bytes} bytes are damaged, but its parity can mend only {good} of them: take the arena from a replica, or archive the same data again"
    )]
    TooMuchLost {
        arena: ArenaId,
        /// The lost shards of the group that has lost too many.
        lost: usize,
        /// The good recovery shards of that group.
        good: usize,
        /// The length of a shard in bytes.
        shard_bytes: usize,
    },
    /// A part that was good at the first reading is bad at the second.
    #[error("arena {arena}, offset {offset}: two reads gave different bytes: try again")]
    Unsteady {
        arena: ArenaId,
        /// The place in bytes.
        offset: u64,
    },
    /// The result is not the arena that was sealed.
    #[error("arena {arena}: the mended arena is not whole")]
    NotWhole { arena: ArenaId, source: ReadLogError },
    /// The remains of the arena could not be read, for a reason that may be temporary.
    #[error("{0}")]
    Read(#[from] ReadLogError),
    /// The arena was mended, but its names could not be added to the index: open the store again.
    #[error("the arena is mended, but its blocks could not be added to the index: open the store again")]
    Index(#[from] AppendError),
    /// The source of the repair could not be read.
    #[error("cannot read the source for mending arena {arena}")]
    Storage { arena: ArenaId, source: io::Error },
    /// The mended arena could not be written.
    #[error("cannot write the mended arena {arena}")]
    Write { arena: ArenaId, source: io::Error },
}

impl MendError {
    /// Returns true if the disk does not accept the mended arena: it is full, read-only, or fails.
    /// The arena may be mended once that is solved.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Write { .. })
    }

    /// Returns the number of further attempts that are worth making after this error. A fault may
    /// be temporary, and a read that shows damage may have been wrong.
    #[must_use]
    pub fn tries_left(&self) -> u32 {
        match self {
            Self::NoParity { .. } | Self::Open { .. } | Self::Index(_) => 0,
            Self::Header { .. }
            | Self::OtherArena { .. }
            | Self::WouldLose { .. }
            | Self::TooMuchLost { .. } => 1,
            Self::Unsteady { .. }
            | Self::NotWhole { .. }
            | Self::Read(_)
            | Self::Storage { .. }
            | Self::Write { .. } => 2,
        }
    }
}

/// The lost shards of an arena, computed again.
struct RebuiltShards {
    /// The place of each shard in the file of rebuilt shards.
    places: BTreeMap<u64, u64>,
    /// The codes of all data shards, by group.
    codes: Vec<Vec<Option<ShardCode>>>,
}

impl Mender<'_> {
    /// Mends an arena from its parity, byte for byte as it was sealed. It mends flipped bits,
    /// unreadable sectors, a lost end, or a file that is gone altogether, as far as the parity
    /// reaches. The old file stays until the new one is whole, checked and durable.
    ///
    /// # Errors
    /// [`MendError`]; except for [`MendError::Index`] the arena is as it was.
    pub fn mend_arena_from_parity(&self, id: ArenaId) -> Result<MendedArena, MendError> {
        if self.intake.is_open(id) {
            return Err(MendError::Open { arena: id });
        }
        let failed = |source| MendError::Write { arena: id, source };
        let parity = self.parity_for(id)?;
        let storage = self.vault().storage();
        let new_file = id.file_name().unfinished();
        let rebuilt_file = FileName::new(&format!("{}.rebuilt.new", id.file_name())).expect("a good name");
        let mended = self.mend_with(&parity, &rebuilt_file, &new_file);
        // Removes the remains of this attempt, or of an earlier one. They have no meaning to
        // anybody.
        for file in [&rebuilt_file, &new_file] {
            storage.remove_if_there(file).map_err(failed)?;
        }
        let (mended, whole) = mended?;
        if let Some(whole) = whole {
            self.intake.take_in_sealed::<MendError>(&whole.arena, &whole.footer, &whole.pages)?;
        }
        Ok(mended)
    }

    /// Opens the arena's parity, if it belongs to the arena in place.
    fn parity_for(&self, id: ArenaId) -> Result<ParityFile, MendError> {
        let failed = |source| MendError::Storage { arena: id, source };
        let generation = self.vault().parity().generation_of(id).map_err(failed)?;
        let generation = generation.ok_or(MendError::NoParity { arena: id })?;
        let parity = self.vault().parity().open(id, generation);
        let parity = parity.map_err(|error| match error {
            OpenParityError::Header(source) => MendError::Header { arena: id, source },
            OpenParityError::Storage(source) => failed(source),
        })?;
        if let Ok(arena) = self.log().open_arena(id)
            && *arena.header().code() != parity.header().arena_header_code
        {
            return Err(MendError::OtherArena { arena: id });
        }
        if let Ok(Some(seal)) = Checker::of(self.store).seal_of(id)
            && seal.seal_code != parity.header().arena_seal_code
        {
            return Err(MendError::OtherArena { arena: id });
        }
        Ok(parity)
    }

    fn mend_with(
        &self,
        parity: &ParityFile,
        rebuilt_file: &FileName,
        new_file: &FileName,
    ) -> Result<(MendedArena, Option<WholeArena>), MendError> {
        let (storage, id) = (self.vault().storage(), parity.header().arena);
        let failed = |source| MendError::Write { arena: id, source };
        let layout = &parity.header().layout;
        storage.create_anew(rebuilt_file).map_err(failed)?;
        let rebuilt = match self.rebuild_lost(parity, rebuilt_file, UnknownShard::IsLost) {
            // With parts of both tables gone, shards of unknown state are tried: the arena's own
            // codes decide.
            Err(too_much @ MendError::TooMuchLost { .. }) => {
                storage.create_anew(rebuilt_file).map_err(failed)?;
                let tried = self.rebuild_lost(parity, rebuilt_file, UnknownShard::IsGood)?;
                if tried.places.is_empty() {
                    return Err(too_much);
                }
                tried
            }
            other => other?,
        };
        let ranges = ranges_of(rebuilt.places.keys().copied(), layout);
        let cut = storage.length(&id.file_name()).is_ok_and(|bytes| bytes > layout.arena_bytes());
        let mended = MendedArena { arena: id, ranges, cut };
        if mended.ranges.is_empty() && !cut {
            return Ok((mended, None));
        }
        storage.create_anew(new_file).map_err(failed)?;
        self.write_new_arena(parity, &rebuilt, rebuilt_file, new_file)?;
        storage.sync(new_file).map_err(failed)?;
        let codes = (parity.header().arena_header_code, parity.header().arena_seal_code);
        let whole = self.check_new_arena(id, codes, new_file)?;
        self.intake.put_in_place(&whole, new_file).map_err(failed)?;
        tracing::info!(arena = %id, parts = mended.ranges.len(), "mended an arena from its parity");
        Ok((mended, Some(whole)))
    }

    /// Computes all lost shards again, group by group, and writes them to a file: an arena of 16
    /// GiB may have lost more than fits into memory.
    fn rebuild_lost(
        &self,
        parity: &ParityFile,
        rebuilt_file: &FileName,
        unknown: UnknownShard,
    ) -> Result<RebuiltShards, MendError> {
        let (storage, workers) = (self.vault().storage(), self.store.world().workers.as_ref());
        let (layout, arena) = (&parity.header().layout, parity.header().arena);
        let (arena_file, shard_bytes) = (arena.file_name(), layout.shard_bytes());
        let failed = |source| MendError::Write { arena, source };
        let mut rebuilt = RebuiltShards { places: BTreeMap::new(), codes: Vec::new() };
        for group in 0..layout.group_count() {
            let codes = parity.codes(storage, group);
            let mut data = parity.data(storage, &arena_file, group, &codes, unknown, workers);
            let lost: Vec<_> = (0..data.is_good.len()).filter(|number| !data.is_good[*number]).collect();
            if !lost.is_empty() {
                let recovery = parity.recovery(storage, group, &codes, unknown, workers);
                let (is_good, recovery_is_good) = (&data.is_good, &recovery.is_good);
                let mended = rebuild(
                    &mut data.bytes,
                    is_good,
                    &recovery.bytes,
                    recovery_is_good,
                    shard_bytes,
                    workers,
                );
                mended.map_err(|few| MendError::TooMuchLost {
                    arena,
                    lost: few.lost,
                    good: few.good,
                    shard_bytes,
                })?;
                let numbers: Vec<_> = numbers_of(layout, group).collect();
                for number in lost {
                    let shard = &data.bytes[number * shard_bytes..][..shard_bytes];
                    let place = storage.append(rebuilt_file, shard).map_err(failed)?;
                    rebuilt.places.insert(numbers[number], place);
                }
            }
            rebuilt.codes.push(codes.data);
        }
        Ok(rebuilt)
    }

    /// Writes the new arena in order: good parts from the old one, the others from the rebuilt
    /// shards. Every shard is checked with its code.
    fn write_new_arena(
        &self,
        parity: &ParityFile,
        rebuilt: &RebuiltShards,
        rebuilt_file: &FileName,
        new_file: &FileName,
    ) -> Result<(), MendError> {
        let storage = self.vault().storage();
        let (layout, arena) = (&parity.header().layout, parity.header().arena);
        let (arena_file, shard_bytes) = (arena.file_name(), layout.shard_bytes());
        let failed = |source| MendError::Write { arena, source };
        let mut shard_number = 0;
        for piece in all_pieces(layout) {
            let mut bytes = vec![0; padded_bytes(layout, &piece)];
            let present = to_usize(piece.end - piece.start);
            read_shards(storage, &arena_file, piece.clone(), shard_bytes, &mut bytes);
            // Bytes beyond the arena's end are no part of its last shard.
            bytes[present..].fill(0);
            for shard in bytes.chunks_mut(shard_bytes) {
                if let Some(place) = rebuilt.places.get(&shard_number) {
                    storage.read_at(rebuilt_file, *place, shard).map_err(failed)?;
                }
                let (group, number) = layout.locate(shard_number);
                let code = rebuilt.codes[group as usize][number];
                // A shard whose code is lost is confirmed only by the codes of the arena, which are
                // checked below.
                if code.is_some_and(|code| !parity.is_good(shard, &code)) {
                    let offset = shard_number * shard_bytes as u64;
                    return Err(MendError::Unsteady { arena, offset });
                }
                shard_number += 1;
            }
            storage.append(new_file, &bytes[..present]).map_err(failed)?;
        }
        Ok(())
    }

    /// Checks that the new file is the arena that was sealed with these codes of its header and
    /// seal, and that it has every page that can still be read of the old one.
    pub(super) fn check_new_arena(
        &self,
        id: ArenaId,
        expected: ([u8; 32], [u8; 32]),
        new_file: &FileName,
    ) -> Result<WholeArena, MendError> {
        let look_at = |file: FileName| {
            let look = UnfinishedFile { storage: Arc::clone(&self.store.world().storage), arena: id, file };
            self.log().over(Arc::new(look))
        };
        let whole = look_at(new_file.clone())
            .check_whole(id)
            .map_err(|source| MendError::NotWhole { arena: id, source })?;
        if (*whole.arena.header().code(), whole.footer.seal_code) != expected {
            return Err(MendError::OtherArena { arena: id });
        }
        let old_log = look_at(id.file_name());
        if let Ok(old) = old_log.open_arena(id) {
            let found = old_log.scan(&old)?;
            let is_kept = |code| whole.pages.iter().any(|row| row.code == code);
            if !found.pages.iter().all(|(row, _)| is_kept(row.code)) {
                return Err(MendError::WouldLose { arena: id });
            }
        }
        Ok(whole)
    }
}

/// Iterates over all pieces of the arena, in order.
fn all_pieces(layout: &ParityLayout) -> impl Iterator<Item = Range<u64>> {
    let mut groups: Vec<_> = (0..layout.group_count()).map(|group| layout.pieces(group)).collect();
    let mut turn = 0;
    std::iter::from_fn(move || {
        let piece = groups[turn].next();
        turn = (turn + 1) % groups.len();
        piece
    })
}

/// Returns the numbers in the arena of a group's shards, in order.
fn numbers_of(layout: &ParityLayout, group: u32) -> impl Iterator<Item = u64> {
    let shard_bytes = layout.shard_bytes() as u64;
    layout.pieces(group).flat_map(move |piece| piece.start / shard_bytes..piece.end.div_ceil(shard_bytes))
}

/// Returns the parts of the arena's file that these shards are. Neighbours are joined.
fn ranges_of(shards: impl Iterator<Item = u64>, layout: &ParityLayout) -> Vec<Range<u64>> {
    let shard_bytes = layout.shard_bytes() as u64;
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for shard in shards {
        let range = shard * shard_bytes..layout.arena_bytes().min((shard + 1) * shard_bytes);
        match ranges.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => ranges.push(range),
        }
    }
    ranges
}
