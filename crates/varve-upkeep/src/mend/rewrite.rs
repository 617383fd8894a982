//! Repair by salvage: damaged arenas are written anew with their good parts.
//!
//! The repair makes nothing worse on the way. The old arena is first copied to `quarantine/`. The
//! new arena is whole and durable before it takes the old one's name. The hints that knew the old
//! arena are removed before that. A crash between two steps leaves a store that can be opened, and
//! repaired again.

use std::io;
use std::ops::AddAssign;

use varve_block::{PutError, to_usize};
use varve_log::{
    AppendError, ArenaHeader, ArenaId, NamedBlock, OpenLogError, OpenedArena, ReadLogError, Replacement,
    SalvagedClump, Seal, Successor, SyncLogError,
};
use varve_store::{NotPermitted, Permission, QUARANTINE, ReplaceError, WriteParityError};
use varve_world::FileName;

use super::Mender;
use super::from_parity::MendError;
use super::plan::MendPlan;
use crate::damage::is_finding;
use crate::generation::next_generation;
use crate::salvaged::named;

/// The bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;
/// The smallest unit that a disk loses.
const SECTOR_BYTES: usize = 512;

/// The result of a repair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The arenas that were written anew.
    pub arena_count: u64,
    /// The blocks that were still good in them.
    pub kept_block_count: u64,
}

impl AddAssign for Repaired {
    fn add_assign(&mut self, more: Self) {
        self.arena_count += more.arena_count;
        self.kept_block_count += more.kept_block_count;
    }
}

/// A store was not repaired, or not completely. The unrepaired parts are as they were.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error("the store was opened for reading")]
    ReadOnly,
    /// The key that the store was opened with lacks the permission.
    #[error("{0}")]
    NotPermitted(#[from] NotPermitted),
    /// An arena could be mended from its parity or from a copy, but the disk refuses the write.
    #[error("a damaged arena can be mended, but the disk does not accept the write; the arena is unchanged")]
    Mend(#[source] MendError),
    /// An arena could not be read, or its replacement not written.
    #[error("cannot salvage an arena")]
    Append(#[from] AppendError),
    /// An arena could not be read with this key.
    #[error("cannot read a damaged arena")]
    Read(#[from] ReadLogError),
    #[error("{0}")]
    List(#[from] OpenLogError),
    /// A damaged arena could not be copied to the quarantine.
    #[error("cannot copy {file} to the quarantine")]
    Quarantine { file: FileName, source: io::Error },
    /// The log could not record the replaced arenas.
    #[error("{0}")]
    Replace(#[from] ReplaceError),
    /// An arena's parity could not be made again.
    #[error("the parity of an arena cannot be made again")]
    Parity(#[from] WriteParityError),
    /// A block without room in the new arena could not be stored in another one.
    #[error("cannot store the blocks that do not fit into the salvaged arena")]
    Put(#[from] PutError),
    /// The parity files could not be listed.
    #[error("the parity files cannot be listed")]
    ListParity(#[source] io::Error),
    /// The end of the log could not be made durable.
    #[error("{0}")]
    Sync(#[from] SyncLogError),
}

impl Mender<'_> {
    /// Carries out the rest of a plan, after [`mend`](Self::mend): accepts a lost end, makes parity
    /// again, and writes damaged arenas anew. The result is durable when this returns. Until the
    /// store is opened again, the index still proposes places that no longer exist.
    ///
    /// # Errors
    /// [`RepairError`]: the arenas before the failed one are repaired, the others are as they were.
    pub fn rewrite(&self, plan: &MendPlan) -> Result<Repaired, RepairError> {
        self.store.role().require(Permission::Destroy)?;
        if plan.accepts_end {
            // The notes about the lost parts are removed. The end of the log is noted anew when the
            // store is closed.
            self.intake.accept_end()?;
        }
        let mut repaired = Repaired::default();
        for id in plan.parity.iter().filter(|id| !plan.arenas.contains_key(id)) {
            self.intake.write_parity(*id)?;
        }
        if plan.arenas.is_empty() {
            self.note_repaired(plan.parity.iter());
            return Ok(repaired);
        }
        self.intake.begin_replacing()?;
        let (mut seals, mut all) = (Vec::new(), self.intake.seals());
        for id in plan.arenas.keys() {
            // An arena that has lost its seal takes the first free place in the order. Mostly that
            // was its own.
            let ordinal = all.get(*id).map_or_else(|| all.free_place(0), |seal| seal.ordinal);
            match self.write_anew(*id, ordinal, &mut repaired) {
                Ok(seal) => {
                    all.replace(*id, seal);
                    seals.push((*id, seal));
                }
                Err(error) => {
                    self.intake.note_replaced(&seals)?;
                    return Err(error);
                }
            }
        }
        self.intake.note_replaced(&seals)?;
        self.intake.end_replacing();
        self.note_repaired(plan.arenas.keys().chain(&plan.parity));
        Ok(repaired)
    }

    fn write_anew(&self, id: ArenaId, ordinal: u64, repaired: &mut Repaired) -> Result<Seal, RepairError> {
        self.quarantine(id)?;
        let log = self.log();
        let arena = match log.open_arena(id) {
            Ok(arena) => Some(arena),
            // Without its header nothing in the arena can be read, so the new arena is empty.
            Err(error) if is_finding(&error) => None,
            Err(error) => return Err(error.into()),
        };
        let generation = next_generation(self.store, self.intake, id, arena.as_ref());
        let generation = generation.map_err(RepairError::ListParity)?;
        let random = self.store.world().random.as_ref();
        let ledger = self.intake.ledger();
        let version = arena.as_ref().map(OpenedArena::header).map(ArenaHeader::version).unwrap_or_default();
        let successor = Successor { arena: id, generation, ordinal, version };
        let file = id.file_name().unfinished();
        let mut replacement = Replacement::begin(log, random, successor, ledger, file)?;
        if let Some(arena) = &arena {
            let (namer, level) = (self.store.namer(), self.store.config().compression_level);
            let mut take = |clump: SalvagedClump| -> Result<(), RepairError> {
                let blocks = named(self.store, &clump);
                repaired.kept_block_count += blocks.len() as u64;
                if blocks.is_empty() {
                    return Ok(());
                }
                if !replacement.has_room() {
                    return Ok(self.intake.put_elsewhere(&blocks)?);
                }
                let named = blocks.iter().map(|(name, bytes)| NamedBlock {
                    name: *name,
                    digest: namer.digest(bytes),
                    bytes,
                    base: None,
                });
                Ok(replacement.append(clump.pack(level, named))?)
            };
            log.salvage(arena, self.store, &mut take)?;
            self.intake.make_durable()?;
        }
        let replaced = replacement.finish()?;
        self.intake.take_in_rewritten(id, &replaced.pages)?;
        repaired.arena_count += 1;
        Ok(replaced.seal)
    }

    /// Copies an arena to the quarantine. Unreadable sectors are zeros in the copy.
    fn quarantine(&self, id: ArenaId) -> Result<(), RepairError> {
        let storage = self.store.vault().storage();
        let file = id.file_name();
        let failed = |source| RepairError::Quarantine { file: file.clone(), source };
        let length = match storage.length(&file) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let taken = storage.list(QUARANTINE).map_err(failed)?;
        let name = |number: u32| {
            let text = format!("{QUARANTINE}/{:010}.{number}.arena", id.0);
            FileName::new(&text).expect("digits make a good name")
        };
        let free = (1..).map(name).find(|name| !taken.contains(name)).expect("numbers do not end");
        let copied = storage.replace_with(&free, |append| {
            let mut piece = vec![0; COPY_BYTES];
            for offset in (0..length).step_by(COPY_BYTES) {
                piece.truncate(to_usize(length - offset));
                if storage.read_at(&file, offset, &mut piece).is_err() {
                    let sectors = piece.chunks_mut(SECTOR_BYTES);
                    for (sector, at) in sectors.zip((offset..).step_by(SECTOR_BYTES)) {
                        if storage.read_at(&file, at, sector).is_err() {
                            sector.fill(0);
                        }
                    }
                }
                append(&piece)?;
            }
            Ok(())
        });
        copied.map_err(failed)
    }
}
