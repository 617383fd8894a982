//! How much of a store each snapshot and each name needs alone, and how much is shared.
//!
//! ```text
//! walk all snapshots ─▶ who needs each block ─▶ directory pages: the bytes of each block ─▶ sums
//! ```
//!
//! Every byte of the log is in exactly one sum. The bytes of a block are its share of its clump, by
//! its size before compression. A block that is stored twice counts twice.
//!
//! Memory is bounded: if the leaves do not fit, their keys are cut into slices, and everything is
//! walked again for each slice.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use varve_block::{BlockKind, BlockName, has_kind};
use varve_log::{ArenaId, ClumpRow, DirectoryPage, OpenLogError, ReadLogError};
use varve_store::{NotPermitted, Permission, Store};

use super::need_rules::{Need, NeedRules, NeededBy, Needing};
use super::need_table::{ENTRY_BYTES_MAX, NeedTable};
use super::need_walk::{LeafSlice, NeedWalk, is_catalog_root, who_needs};
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_id::SnapshotId;
use crate::progress::Progress;
use crate::reclaiming::mark::MarkError;
use crate::reclaiming::roots::{FindRootsError, ForeignRoots, LiveRoots};
use crate::taking::take::Archive;

/// The space that one snapshot needs.
#[derive(Debug, Clone)]
pub struct SnapshotNeeds {
    pub snapshot: Snapshot,
    pub is_in_trash: bool,
    /// The stored bytes that no other snapshot needs. They are freed if it alone is forgotten.
    pub own_bytes: u64,
}

/// The space that all snapshots of one name need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameNeeds {
    pub name: String,
    /// With those in the trash.
    pub snapshot_count: u64,
    /// Their sizes.
    pub size: u64,
    /// The stored bytes that only one of its snapshots needs.
    pub of_one_bytes: u64,
    /// The stored bytes that several of its snapshots need, and no snapshot of another name.
    pub of_several_bytes: u64,
}

/// Where the space of a store is. The sums have the whole log, each byte once.
#[derive(Debug, Clone, Default)]
pub struct SpaceNeeds {
    /// In the order in which they were finished, those in the trash first.
    pub snapshots: Vec<SnapshotNeeds>,
    /// In the order of the names.
    pub names: Vec<NameNeeds>,
    /// The bytes that snapshots of several names need.
    pub several_names_bytes: u64,
    /// The bytes of the names, or of several of them, that only snapshots in the trash need.
    pub only_trash_bytes: u64,
    /// The bytes of the catalog, and of the store's own notes.
    pub catalog_bytes: u64,
    /// The bytes of blocks that nothing of this needs.
    pub unneeded_bytes: u64,
    /// The bytes of headers, directories and seals.
    pub directory_bytes: u64,
    /// The length of all arenas.
    pub log_bytes: u64,
    /// How often everything was walked.
    pub pass_count: u32,
}

impl NameNeeds {
    /// Returns the stored bytes that are freed if all snapshots of this name are forgotten.
    #[must_use]
    pub fn own_bytes(&self) -> u64 {
        self.of_one_bytes + self.of_several_bytes
    }
}

/// The reason why it is not known who needs what.
#[derive(Debug, thiserror::Error)]
pub enum SpaceNeedsError {
    #[error("{0}")]
    NotPermitted(#[from] NotPermitted),
    #[error("the snapshots of the store cannot all be found")]
    Roots(#[from] FindRootsError),
    #[error("what the snapshots need is not certain")]
    Walk(#[from] MarkError),
    #[error("{0}")]
    List(#[from] OpenLogError),
    #[error("an arena cannot be measured")]
    Measure(#[from] ReadLogError),
    #[error("the system provides no random bytes")]
    Random(#[source] io::Error),
    #[error("the folders and pointer blocks of the snapshots do not fit in {bytes} bytes of memory")]
    Memory { bytes: u64 },
}

has_kind!(SpaceNeedsError: Self::NotPermitted(_) => CannotRead);

impl SpaceNeeds {
    /// Finds out who needs what. Uses at most about `memory_bytes` of memory for it.
    ///
    /// # Errors
    /// [`SpaceNeedsError`].
    pub fn of(archive: &Archive, memory_bytes: u64, progress: &Progress) -> Result<Self, SpaceNeedsError> {
        let store = archive.store();
        store.role().require(Permission::Read)?;
        let roots = LiveRoots::of(store, ForeignRoots::None, &BTreeSet::new())?;
        let in_trash = in_trash(archive);
        let names: BTreeSet<&str> = roots.snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let number = |name: &String| u32::try_from(names.partition_point(|other| other < name));
        let needing = |snapshot: &Snapshot| Needing {
            name: number(&snapshot.name).unwrap_or(u32::MAX),
            is_listed: !in_trash.contains(&snapshot.id),
        };
        let needing = roots.snapshots.iter().map(needing).collect();
        let catalog = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let mut survey = NeedsSurvey::new(store, roots, needing, catalog, memory_bytes)?;
        let pass_count = survey.pass_all(progress)?;
        survey.finish(&names, &in_trash, pass_count)
    }

    /// Returns the stored bytes that only these snapshots and the trash need. If the snapshots are
    /// forgotten, the bytes are free in the end.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn bytes_of_only(
        archive: &Archive,
        snapshots: &BTreeSet<SnapshotId>,
        memory_bytes: u64,
        progress: &Progress,
    ) -> Result<u64, SpaceNeedsError> {
        const THESE: u32 = 0;
        const OTHERS: u32 = 1;
        const CATALOG: u32 = 2;
        let store = archive.store();
        store.role().require(Permission::Read)?;
        let roots = LiveRoots::of(store, ForeignRoots::None, &BTreeSet::new())?;
        let in_trash = in_trash(archive);
        // The trash needs nothing in the end. Its blocks count if one of the snapshots needs them.
        let needing = |snapshot: &Snapshot| {
            let is_listed = !in_trash.contains(&snapshot.id);
            let is_one = !is_listed || snapshots.contains(&snapshot.id);
            Needing { name: if is_one { THESE } else { OTHERS }, is_listed }
        };
        let needing = roots.snapshots.iter().map(needing).collect();
        let mut survey = NeedsSurvey::new(store, roots, needing, CATALOG, memory_bytes)?;
        survey.pass_all(progress)?;
        Ok(survey.sum_of(|name, is_listed| name == Some(THESE) && is_listed))
    }
}

fn in_trash(archive: &Archive) -> BTreeSet<SnapshotId> {
    archive.trash().iter().map(|trashed| trashed.snapshot.id).collect()
}

/// Returns the number of slices into which the leaves are cut, so that those of one slice take half
/// of the memory. The other half is for what leads to others.
fn slice_count(block_count: u64, memory_bytes: u64) -> u32 {
    let slices = block_count.saturating_mul(ENTRY_BYTES_MAX).div_ceil((memory_bytes / 2).max(1));
    u32::try_from(slices).unwrap_or(u32::MAX).max(1)
}

fn walk_all(walk: &mut NeedWalk<'_>, roots: &LiveRoots, catalog: NeededBy) -> Result<(), MarkError> {
    for list in &roots.lists {
        walk.list(list, catalog)?;
    }
    // The newest snapshot comes first: its blocks are most likely to be in memory.
    for (number, snapshot) in roots.snapshots.iter().enumerate().rev() {
        walk.snapshot(snapshot, walk.rules.one(number))?;
    }
    Ok(())
}

/// The work that is not finished.
struct NeedsSurvey<'a> {
    store: &'a Store,
    roots: LiveRoots,
    rules: NeedRules,
    table: NeedTable,
    memory_bytes: u64,
    /// The bytes for each value of the rules.
    sums: Vec<u64>,
    unneeded_bytes: u64,
}

impl<'a> NeedsSurvey<'a> {
    /// `needing` tells the names of the snapshots, and `catalog` is the name of the catalog.
    fn new(
        store: &'a Store,
        roots: LiveRoots,
        mut needing: Vec<Needing>,
        catalog: u32,
        memory_bytes: u64,
    ) -> Result<Self, SpaceNeedsError> {
        needing.push(Needing { name: catalog, is_listed: true });
        let rules = NeedRules::new(needing).ok_or(SpaceNeedsError::Memory { bytes: memory_bytes })?;
        let table = NeedTable::new(store.world().random.as_ref()).map_err(SpaceNeedsError::Random)?;
        let sums = vec![0; rules.count()];
        Ok(Self { store, roots, rules, table, memory_bytes, sums, unneeded_bytes: 0 })
    }

    /// Walks and measures everything. Returns the number of passes.
    fn pass_all(&mut self, progress: &Progress) -> Result<u32, SpaceNeedsError> {
        let slices = slice_count(self.store.stats()?.block_count, self.memory_bytes);
        for number in 0..slices {
            self.pass(LeafSlice { number, count: slices }, progress)?;
        }
        Ok(slices)
    }

    /// Returns the bytes of the blocks whose name, if it is only one, and whether a listed snapshot
    /// needs them, are as `is_meant` says.
    fn sum_of(&self, is_meant: impl Fn(Option<u32>, bool) -> bool) -> u64 {
        let meant = (0..).zip(&self.sums).filter(|(number, _)| {
            let (name, is_listed) = self.rules.parts(NeedRules::from_number(*number));
            is_meant(name, is_listed)
        });
        meant.map(|(_, bytes)| bytes).sum()
    }

    /// Returns the number that stands for the catalog.
    fn catalog(&self) -> NeededBy {
        self.rules.one(self.roots.snapshots.len())
    }

    fn pass(&mut self, slice: LeafSlice, progress: &Progress) -> Result<(), SpaceNeedsError> {
        self.table.clear();
        let catalog = self.catalog();
        let mut walk = NeedWalk {
            blocks: self.store,
            rules: &self.rules,
            table: &mut self.table,
            slice,
            memory_bytes: self.memory_bytes,
            progress,
        };
        let walked = walk_all(&mut walk, &self.roots, catalog);
        if walk.is_beyond_memory() {
            return Err(SpaceNeedsError::Memory { bytes: self.memory_bytes });
        }
        walked?;
        for id in self.store.arenas()? {
            self.measure(id, slice, progress)?;
        }
        Ok(())
    }

    fn measure(&mut self, id: ArenaId, slice: LeafSlice, progress: &Progress) -> Result<(), SpaceNeedsError> {
        if progress.is_cancelled() {
            return Err(MarkError::Cancelled.into());
        }
        if self.store.vault().log().was_never_begun(id).unwrap_or(false) {
            return Ok(());
        }
        let store = self.store;
        for page in store.pages_in_arena(id)? {
            let page = page?;
            for clump in page.clumps() {
                self.measure_clump(&page, clump, slice);
            }
        }
        Ok(())
    }

    fn measure_clump(&mut self, page: &DirectoryPage, clump: &ClumpRow, slice: LeafSlice) {
        let clump_bytes = u128::from(clump.end() - clump.granule.byte_offset());
        // Empty blocks need their rows, too.
        let weight = |size: u32| u128::from(size) + 1;
        let all = page.blocks_of(clump.granule).map(|block| weight(block.size)).sum::<u128>().max(1);
        let (mut before, mut before_bytes) = (0, 0);
        for block in page.blocks_of(clump.granule) {
            before += weight(block.size);
            let end = u64::try_from(clump_bytes * before / all).unwrap_or(u64::MAX);
            self.count(&block.name, end - before_bytes, slice);
            before_bytes = end;
        }
    }

    fn count(&mut self, name: &BlockName, bytes: u64, slice: LeafSlice) {
        let needed_by = if is_catalog_root(name) || name.block_type.kind() == BlockKind::Note {
            let is_needed = !is_catalog_root(name) || self.roots.catalog_root == Some(*name);
            let is_counted_here = slice.number == 0;
            is_counted_here.then(|| is_needed.then(|| self.catalog()))
        } else {
            who_needs(&self.table, &self.rules, slice, name).ok()
        };
        match needed_by {
            None => {}
            Some(None) => self.unneeded_bytes += bytes,
            Some(Some(needed_by)) => {
                if let Some(sum) = self.sums.get_mut(NeedRules::number(needed_by) as usize) {
                    *sum += bytes;
                }
            }
        }
    }

    fn finish(
        self,
        names: &[String],
        in_trash: &BTreeSet<SnapshotId>,
        pass_count: u32,
    ) -> Result<SpaceNeeds, SpaceNeedsError> {
        let mut found = SpaceNeeds {
            unneeded_bytes: self.unneeded_bytes,
            log_bytes: self.store.stats()?.log_bytes,
            pass_count,
            names: names
                .iter()
                .map(|name| NameNeeds { name: name.clone(), ..NameNeeds::default() })
                .collect(),
            ..SpaceNeeds::default()
        };
        for (number, bytes) in (0..).zip(&self.sums) {
            let needed_by = NeedRules::from_number(number);
            let (name, is_listed) = self.rules.parts(needed_by);
            found.only_trash_bytes += if is_listed { 0 } else { *bytes };
            let of_name = name.map(|name| found.names.get_mut(name as usize));
            match (of_name, self.rules.meaning(needed_by)) {
                (None, _) => found.several_names_bytes += bytes,
                (Some(None), _) => found.catalog_bytes += bytes,
                (Some(Some(of_name)), Need::One(_)) => of_name.of_one_bytes += bytes,
                (Some(Some(of_name)), Need::Several { .. }) => of_name.of_several_bytes += bytes,
            }
        }
        let counted = self.sums.iter().sum::<u64>() + self.unneeded_bytes;
        found.directory_bytes = found.log_bytes.saturating_sub(counted);
        let by_name: BTreeMap<&str, usize> =
            names.iter().enumerate().map(|(number, name)| (name.as_str(), number)).collect();
        for (snapshot, own_bytes) in self.roots.snapshots.iter().zip(&self.sums) {
            let of_name = by_name.get(snapshot.name.as_str()).and_then(|number| found.names.get_mut(*number));
            if let Some(of_name) = of_name {
                of_name.snapshot_count += 1;
                of_name.size += snapshot.size;
            }
            found.snapshots.push(SnapshotNeeds {
                snapshot: snapshot.clone(),
                is_in_trash: in_trash.contains(&snapshot.id),
                own_bytes: *own_bytes,
            });
        }
        Ok(found)
    }
}
