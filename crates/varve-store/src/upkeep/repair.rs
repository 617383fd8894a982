//! Repair: damaged arenas are written anew with what is still good of them.
//!
//! Nothing is made worse on the way. What is there is first copied to `quarantine/`; the new arena is whole and durable
//! before it takes the old one's name; the hints that knew the old one are removed before that. A crash between two steps
//! leaves a store that can be opened, and repaired again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::AddAssign;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use varve_block::{Block, BlockName, BlockType, PutError};
use varve_log::{
    AppendError, ArenaId, NamedBlock, OpenLogError, OpenedArena, ReadLogError, Replacement, SalvagedClump,
    Seal, SyncLogError,
};
use varve_world::FileName;

use crate::checkpoint;
use crate::config::CompareMode;
use crate::damage::{Damage, DamageKind, is_finding};
use crate::disk_index;
use crate::parity::WriteParityError;
use crate::role::{NotPermitted, Permission};
use crate::store::{Store, Writer};

/// How much is copied at a time.
const COPY_BYTES: usize = 1 << 20;
/// What a disk loses at the least.
const SECTOR_BYTES: usize = 512;

/// What is to be done, arena by arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairPlan {
    /// The arenas to be written anew, with what is wrong with each.
    pub arenas: BTreeMap<ArenaId, Vec<String>>,
    /// The arenas whose parity is to be made again.
    pub parity: BTreeSet<ArenaId>,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Arenas that were written anew.
    pub arena_count: u64,
    /// Blocks that were still good in them.
    pub kept_block_count: u64,
}

impl AddAssign for Repaired {
    fn add_assign(&mut self, more: Self) {
        self.arena_count += more.arena_count;
        self.kept_block_count += more.kept_block_count;
    }
}

/// Why a store was not repaired, or not wholly. What was not repaired is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// It was opened to be read.
    #[error("the store was opened to be read")]
    ReadOnly,
    /// The key that it was opened with may not do that.
    #[error(transparent)]
    NotPermitted(#[from] NotPermitted),
    /// An arena could not be read, or its replacement not written.
    #[error("cannot write an arena anew")]
    Append(#[from] AppendError),
    /// An arena could not be read with this key.
    #[error("cannot read a damaged arena")]
    Read(#[from] ReadLogError),
    /// The arenas could not be listed.
    #[error(transparent)]
    List(#[from] OpenLogError),
    /// A damaged arena could not be set aside.
    #[error("cannot copy {file} to the quarantine")]
    Quarantine {
        /// Which file.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
    /// A hint could not be removed.
    #[error("cannot remove {file}")]
    Hint {
        /// Which file.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
    /// An arena's parity could not be made again.
    #[error("the parity of an arena cannot be made again")]
    Parity(#[from] WriteParityError),
    /// A block that has no room where it was could not be stored elsewhere.
    #[error("cannot store what has no room in the arena that is written anew")]
    Put(#[from] PutError),
    /// The files of parity could not be listed.
    #[error("the files of parity cannot be listed")]
    ListParity(#[source] io::Error),
    /// The end of the log could not be made durable.
    #[error(transparent)]
    Sync(#[from] SyncLogError),
}

impl RepairPlan {
    /// Which arenas have to be written anew because of this damage. What a writer mends by itself (a torn end, a ledger that is
    /// behind) is not in it.
    #[must_use]
    pub fn new(damage: &[Damage]) -> Self {
        let mut plan = Self::default();
        // What it holds only a newer program knows: written anew by this one, it would be empty.
        let newer: BTreeSet<_> =
            damage.iter().filter(|damage| damage.kind.is_newer()).map(|damage| damage.arena).collect();
        for damage in damage.iter().filter(|damage| !newer.contains(&damage.arena)) {
            let demands_it = match damage.kind {
                DamageKind::Unreadable(_)
                | DamageKind::SealLost
                | DamageKind::Missing
                | DamageKind::Withheld
                | DamageKind::Gap
                | DamageKind::OtherClump
                | DamageKind::OtherBlock { .. } => true,
                DamageKind::Parity(_) => {
                    plan.parity.insert(damage.arena);
                    false
                }
                DamageKind::Ledger | DamageKind::EndLost | DamageKind::TornEnd => false,
            };
            if demands_it {
                plan.arenas.entry(damage.arena).or_default().push(damage.kind.to_string());
            }
        }
        plan
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arenas.is_empty() && self.parity.is_empty()
    }
}

impl Store {
    /// Carries out a plan. Durable when this returns; the index still proposes places that are no more, until the store is
    /// opened again.
    ///
    /// # Errors
    /// [`RepairError`]: the arenas before the one at fault are repaired, the others are as they were.
    pub fn repair(&self, plan: &RepairPlan) -> Result<Repaired, RepairError> {
        self.role.require(Permission::Destroy)?;
        let writer = self.writer.as_ref().ok_or(RepairError::ReadOnly)?;
        let mut repaired = Repaired::default();
        for id in plan.parity.iter().filter(|id| !plan.arenas.contains_key(id)) {
            self.write_parity(*id)?;
        }
        if plan.arenas.is_empty() {
            return Ok(repaired);
        }
        self.end_open_arena(writer)?;
        self.stop_saving_index(writer);
        self.remove_hints()?;
        let (mut seals, mut all) = (Vec::new(), writer.appender().seals().clone());
        for id in plan.arenas.keys() {
            // What has lost its seal takes the first place that has none: mostly that was its own.
            let ordinal = all.get(*id).map_or_else(|| all.free_place(0), |seal| seal.ordinal);
            let replaced = self.write_anew(writer, (*id, ordinal), &mut repaired);
            match replaced {
                Ok(seal) => {
                    all.replace(*id, seal);
                    seals.push((*id, seal));
                }
                Err(error) => {
                    self.note_replaced(writer, &seals)?;
                    return Err(error);
                }
            }
        }
        self.note_replaced(writer, &seals)?;
        writer.is_replacing.store(false, Ordering::Relaxed);
        Ok(repaired)
    }

    /// Seals the arena that is being written: it may be one of those that are written anew.
    fn end_open_arena(&self, writer: &Writer) -> Result<(), RepairError> {
        self.make_durable()?;
        let mut appender = writer.appender();
        if let Some(page) = appender.close_arena()? {
            self.index_page(&page)?;
        }
        self.note_end(&appender);
        drop(appender);
        Ok(self.make_log_durable(writer)?)
    }

    /// What is there now counts as all there is: nothing is believed any more that was noted of what is lost. The end of the log is noted
    /// anew when the store is closed.
    ///
    /// # Errors
    /// [`RepairError::Hint`] when a note cannot be removed.
    pub fn accept_end(&self) -> Result<(), RepairError> {
        let writer = self.writer.as_ref().ok_or(RepairError::ReadOnly)?;
        self.forget_index_notes(writer);
        self.remove_hints()?;
        self.is_end_lost.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// What is being written of the index is not saved, nor is what comes before the repair is done.
    pub(crate) fn stop_saving_index(&self, writer: &Writer) {
        writer.is_replacing.store(true, Ordering::Relaxed);
        self.forget_index_notes(writer);
    }

    fn forget_index_notes(&self, writer: &Writer) {
        // Held so that nobody else notes now what is known until now.
        let _appender = writer.appender();
        if let Some(index) = self.index.disk() {
            index.forget_notes();
        }
    }

    /// Nothing that was noted of the log is believed any more.
    fn remove_hints(&self) -> Result<(), RepairError> {
        let newest = FileName::new("index/newest").expect("a plain name");
        let removed = self.remove_saved_index().and_then(|()| self.remove_hint(newest));
        removed.map_err(|(file, source)| RepairError::Hint { file, source })
    }

    /// A saved index that knows what was in an arena must not outlive it. Or the file that cannot be removed, and why.
    pub(crate) fn remove_saved_index(&self) -> Result<(), (FileName, io::Error)> {
        self.remove_hint(checkpoint::file())?;
        self.remove_hint(disk_index::summary_file())
    }

    fn remove_hint(&self, file: FileName) -> Result<(), (FileName, io::Error)> {
        let storage = self.world.storage.as_ref();
        let removed = storage.remove_if_there(&file);
        let durable = removed.and_then(|was| if was { storage.sync_folder(file.folder()) } else { Ok(()) });
        durable.map_err(|error| (file, error))
    }

    fn note_replaced(&self, writer: &Writer, seals: &[(ArenaId, Seal)]) -> Result<(), RepairError> {
        let mut appender = writer.appender();
        appender.note_replaced(seals)?;
        self.note_end(&appender);
        drop(appender);
        Ok(self.make_log_durable(writer)?)
    }

    fn write_anew(
        &self,
        writer: &Writer,
        (id, ordinal): (ArenaId, u64),
        repaired: &mut Repaired,
    ) -> Result<Seal, RepairError> {
        self.quarantine(id)?;
        let arena = match self.log.open_arena(id) {
            Ok(arena) => Some(arena),
            // Without its header nothing in it can be read: what takes its place is empty.
            Err(error) if is_finding(&error) && !error.is_newer() => None,
            Err(error) => return Err(error.into()),
        };
        let generation = self.next_generation(writer, id, arena.as_ref())?;
        let ledger = writer.appender().ledger();
        let mut replacement =
            Replacement::begin(&self.log, self.world.random.as_ref(), id, (generation, ordinal), ledger)?;
        if let Some(arena) = &arena {
            let mut take = |clump: SalvagedClump| -> Result<(), RepairError> {
                let blocks = self.named(&clump);
                repaired.kept_block_count += blocks.len() as u64;
                if blocks.is_empty() {
                    return Ok(());
                }
                if !replacement.has_room() {
                    return self.put_elsewhere(writer, &blocks);
                }
                let named = blocks.iter().map(|(name, bytes)| NamedBlock {
                    name: *name,
                    digest: self.namer.digest(bytes),
                    bytes,
                });
                Ok(replacement.append(clump.pack(self.config.compression_level, named))?)
            };
            self.log.salvage(arena, &mut take)?;
            self.make_durable()?;
        }
        let replaced = replacement.finish()?;
        self.directory.forget(id);
        self.frames.forget(self.log.config().map, id);
        for page in &replaced.pages {
            self.insert_page(id, &page.page)?;
        }
        repaired.arena_count += 1;
        Ok(replaced.seal)
    }

    /// Stores blocks for which the arena that is written anew has no room in the one that is being written.
    fn put_elsewhere(&self, writer: &Writer, blocks: &[(BlockName, Bytes)]) -> Result<(), RepairError> {
        let kept: Vec<_> = blocks.iter().filter(|(name, _)| self.hides_nothing(name)).cloned().collect();
        for (name, _) in &kept {
            // Where the directory says that it is, it is not for long.
            self.lost.add(*name);
        }
        Ok(self.put_named(writer, &kept)?)
    }

    fn put_named(&self, writer: &Writer, blocks: &[(BlockName, Bytes)]) -> Result<(), PutError> {
        match self.config.compare {
            CompareMode::Hash => {
                let blocks: Vec<_> =
                    blocks.iter().map(|(name, bytes)| Block { block_type: name.block_type, bytes }).collect();
                self.put_blocks(&blocks).map(drop)
            }
            CompareMode::Value => {
                let blocks: Vec<_> = blocks.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
                self.put_again(writer, &blocks)
            }
        }
    }

    /// Stores blocks under the names that they have had, which they have lost their places for, and says how many it has stored. `blocks` come from a
    /// copy of this very store: in a by-value store, what a name says of their bytes is too little to believe anybody else.
    ///
    /// Roots of the catalog are passed over, but for the newest if it is alone. The last one in the log is the newest one: an old one that
    /// comes after it would hide what was listed since. Who misses one writes the catalog again, as a whole.
    ///
    /// # Errors
    /// [`PutError`]; some may have been stored.
    pub fn put_back(&self, blocks: &[(BlockName, Bytes)]) -> Result<u64, PutError> {
        let reason = || PutError::ReadOnly { reason: "it was opened to be read".into() };
        let writer = self.writer.as_ref().ok_or_else(reason)?;
        let blocks: Vec<_> = blocks.iter().filter(|(name, _)| self.hides_nothing(name)).cloned().collect();
        if !blocks.is_empty() {
            self.put_named(writer, &blocks)?;
        }
        Ok(blocks.len() as u64)
    }

    /// Whether a block may be stored once more, at the end of the log: anything but a root of the catalog, and that too if there is no other
    /// that counts.
    fn hides_nothing(&self, name: &BlockName) -> bool {
        name.block_type != BlockType::CATALOG || self.catalogs() == [*name]
    }

    /// What is whole of a clump, with the names that it had.
    pub(crate) fn named(&self, clump: &SalvagedClump) -> Vec<(BlockName, Bytes)> {
        let blocks = clump.content.blocks();
        match (self.config.compare, &clump.names) {
            (CompareMode::Hash, _) => blocks
                .map(|(block_type, bytes)| (BlockName { score: self.namer.hash(&bytes), block_type }, bytes))
                .collect(),
            (CompareMode::Value, Some(names)) => blocks
                .zip(names)
                .map(|((block_type, bytes), score)| (BlockName { score: *score, block_type }, bytes))
                .collect(),
            // No writer of such a store leaves a clump that does not name its blocks.
            (CompareMode::Value, None) => Vec::new(),
        }
    }

    /// A generation that this arena never had: what cannot be read any more had one, too, and there may be parity of it.
    fn next_generation(
        &self,
        writer: &Writer,
        id: ArenaId,
        arena: Option<&OpenedArena>,
    ) -> Result<u32, RepairError> {
        let of_parity = self.parity_files().map_err(RepairError::ListParity)?;
        let of_parity = of_parity.into_iter().filter(|(of, _)| *of == id).map(|(_, generation)| generation);
        let of_seal = writer.appender().seals().get(id).map(|seal| seal.generation);
        let of_header = arena.map(|arena| arena.header().generation);
        let last = of_parity.chain(of_seal).chain(of_header).max();
        Ok(last.unwrap_or_default().saturating_add(1))
    }

    /// Copies an arena to the quarantine, as far as it can be read; what cannot be is zeros there.
    fn quarantine(&self, id: ArenaId) -> Result<(), RepairError> {
        let storage = self.world.storage.as_ref();
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
                piece.truncate(usize::try_from(length - offset).unwrap_or(COPY_BYTES));
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

/// Where damaged arenas are kept. A reader ignores it; nothing refers to it.
pub(crate) const QUARANTINE: &str = "quarantine";

#[cfg(test)]
mod tests {
    use varve_log::ArenaHeaderError;

    use super::*;

    #[test]
    fn what_a_newer_program_wrote_is_left_as_it_is() {
        let damage = |arena, kind| Damage { arena, offset: 0, kind, blocks: Vec::new() };
        let newer =
            ReadLogError::Header { arena: ArenaId(1), source: ArenaHeaderError::NewerVersion { version: 3 } };
        let found = [
            damage(ArenaId(1), DamageKind::SealLost),
            damage(ArenaId(1), newer.into()),
            damage(ArenaId(2), DamageKind::Missing),
        ];
        assert_eq!(RepairPlan::new(&found).arenas.into_keys().collect::<Vec<_>>(), [ArenaId(2)]);
    }
}
