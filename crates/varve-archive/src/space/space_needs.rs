//! How much of a store each snapshot and each name needs alone, and how much it shares.
//!
//! ```text
//! walk all snapshots ─▶ who needs each block ─▶ directory pages: the bytes of each block ─▶ sums
//!                                  ▲
//!                 directory pages: the base of each delta
//! ```
//!
//! Every byte of the log is in exactly one sum, except for the shared ones, which are counted for
//! each that shares them. The bytes of a block are its share of its clump, by its size before
//! compression. A block that is stored twice counts twice. A delta counts as large as the block, so
//! in a clump that has whole blocks, too, its share is larger than its bytes.
//!
//! Memory is bounded. If the leaves do not fit, their keys are cut into slices, and everything is
//! walked once more for each slice. If there are too many different sets of snapshots that need the
//! same block, the shared bytes are counted for one group of snapshots and names after another.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use varve_block::{BlockKind, BlockName, has_kind};
use varve_content::Progress;
use varve_log::{ArenaId, ClumpRow, DirectoryPage, OpenLogError, ReadLogError};
use varve_store::{NotPermitted, Permission, Store};
use varve_upkeep::KEY_BYTES_MAX;

use super::need_rules::{Need, NeedRules, NeededBy};
use super::need_walk::{
    BlockNeeds, LeafSlice, NeedMemory, NeedRoots, NeedWalkError, OtherSlice, is_catalog_root,
};
use super::needer_sets::{NeederSet, NeederSets, SetNumber};
use super::places::PlaceDensity;
use crate::archive::Archive;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_id::SnapshotId;
use crate::reclaiming::mark_error::MarkError;
use crate::reclaiming::roots::{FindRootsError, ForeignRoots, LiveRoots};

/// The space that one snapshot needs.
#[derive(Debug, Clone)]
pub struct SnapshotNeeds {
    pub snapshot: Snapshot,
    pub is_in_trash: bool,
    /// The stored bytes that no other snapshot needs.
    pub own_bytes: u64,
    /// The stored bytes that it and at least one other snapshot need.
    pub shared_bytes: u64,
    /// The stored bytes that are free in the end if it alone is forgotten: its own ones, and those
    /// that beside it only snapshots in the trash need. `None` if it is in the trash itself.
    pub freed_bytes: Option<u64>,
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
    /// The stored bytes that its snapshots and snapshots of other names need.
    pub shared_bytes: u64,
    /// The stored bytes that are free in the end if all its listed snapshots are forgotten: those
    /// that beside them at most snapshots in the trash need. `None` if all are in the trash.
    pub freed_bytes: Option<u64>,
    /// The places that a sequential read of its newest snapshot visits. `None` if all are in the
    /// trash.
    pub newest_places: Option<PlaceDensity>,
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
    /// The blocks that are stored as deltas.
    pub delta_count: u64,
    /// How often everything was walked.
    pub pass_count: u32,
}

impl NameNeeds {
    /// Returns the stored bytes that no snapshot of another name needs.
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
    #[error("a folder contains itself, so it is not certain what the snapshots need")]
    Circle,
}

impl SpaceNeedsError {
    /// Returns true if the log could not be read as it should. Another process may have changed it
    /// meanwhile.
    fn is_doubt(&self) -> bool {
        match self {
            Self::Roots(_) | Self::List(_) | Self::Measure(_) => true,
            Self::Walk(error) => error.is_doubt(),
            _ => false,
        }
    }
}

has_kind!(SpaceNeedsError: Self::NotPermitted(_) => CannotRead, Self::Circle => Damage);

impl SpaceNeeds {
    /// Finds out who needs what. Uses at most about `memory_bytes` of memory for it.
    ///
    /// # Errors
    /// [`SpaceNeedsError`].
    pub fn of(archive: &Archive, memory_bytes: u64, progress: &Progress) -> Result<Self, SpaceNeedsError> {
        let look = |archive: &Archive| Self::look_at(archive, memory_bytes, progress);
        archive.with_second_look(SpaceNeedsError::is_doubt, look)
    }

    fn look_at(archive: &Archive, memory_bytes: u64, progress: &Progress) -> Result<Self, SpaceNeedsError> {
        let store = archive.store();
        store.role().require(Permission::Read)?;
        let roots = LiveRoots::of(store, ForeignRoots::None, &BTreeSet::new())?;
        let in_trash = in_trash(archive);
        let names: BTreeSet<&str> = roots.snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let name_of = |snapshot: &Snapshot| names.partition_point(|other| *other < snapshot.name);
        let survey = NeedsSurvey::new(store, &roots, name_of, names.len(), &in_trash, memory_bytes)?;
        let mut found = survey.describe(&names)?;
        let member_count = survey.rules.member_count();
        let (mut needed, mut next, mut group_size) = (Vec::new(), 0, member_count);
        while next < member_count {
            let group = next..next.saturating_add(group_size).min(member_count);
            let Some(counted) = survey.count(group.clone(), progress)? else {
                if group_size == 1 {
                    return Err(SpaceNeedsError::Memory { bytes: memory_bytes });
                }
                group_size = group_size.div_ceil(2);
                continue;
            };
            if next == 0 {
                found.add_sums(&survey, &counted);
            }
            found.pass_count += counted.pass_count;
            needed.extend(counted.sets.sums_of_members());
            next = group.end;
        }
        found.set_shared(&survey, &needed);
        found.find_places(store, progress)?;
        Ok(found)
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
        let look = |archive: &Archive| Self::look_at_only(archive, snapshots, memory_bytes, progress);
        archive.with_second_look(SpaceNeedsError::is_doubt, look)
    }

    fn look_at_only(
        archive: &Archive,
        snapshots: &BTreeSet<SnapshotId>,
        memory_bytes: u64,
        progress: &Progress,
    ) -> Result<u64, SpaceNeedsError> {
        const THESE: u32 = 0;
        let store = archive.store();
        store.role().require(Permission::Read)?;
        let roots = LiveRoots::of(store, ForeignRoots::None, &BTreeSet::new())?;
        let in_trash = in_trash(archive);
        // The trash needs nothing in the end. Its blocks count if one of the snapshots needs them.
        let name_of = |snapshot: &Snapshot| usize::from(!snapshots.contains(&snapshot.id));
        let survey = NeedsSurvey::new(store, &roots, name_of, 2, &in_trash, memory_bytes)?;
        let counted = survey.count(0..0, progress)?;
        let counted = counted.ok_or(SpaceNeedsError::Memory { bytes: memory_bytes })?;
        let of_these =
            counted.sets.sums().filter(|(set, _)| survey.rules.only_name(set.listed) == Some(THESE));
        Ok(of_these.map(|(_, bytes)| bytes).sum())
    }

    /// Adds the sums that have each byte once.
    fn add_sums(&mut self, survey: &NeedsSurvey<'_>, counted: &CountedNeeds) {
        let mut counted_bytes = counted.unneeded_bytes;
        for (set, bytes) in counted.sets.sums() {
            counted_bytes += bytes;
            self.add_sum(survey, set, bytes);
        }
        self.unneeded_bytes = counted.unneeded_bytes;
        self.directory_bytes = self.log_bytes.saturating_sub(counted_bytes);
    }

    fn add_sum(&mut self, survey: &NeedsSurvey<'_>, set: &NeederSet, bytes: u64) {
        let rules = &survey.rules;
        if set.listed == NeededBy::NOBODY {
            self.only_trash_bytes += bytes;
        }
        // The number of the catalog's name is that of no other.
        let of_name = rules.only_name(set.all).map(|name| self.names.get_mut(name as usize));
        match (of_name, rules.meaning(set.all)) {
            (None, _) => self.several_names_bytes += bytes,
            (Some(None), _) => self.catalog_bytes += bytes,
            (Some(Some(of_name)), Need::One(_)) => of_name.of_one_bytes += bytes,
            (Some(Some(of_name)), _) => of_name.of_several_bytes += bytes,
        }
        if let Need::One(number) = rules.meaning(set.all)
            && let Some(needs) = survey.place_of(number).and_then(|place| self.snapshots.get_mut(place))
        {
            needs.own_bytes += bytes;
        }
        if let Need::One(number) = rules.meaning(set.listed)
            && let Some(needs) = survey.place_of(number).and_then(|place| self.snapshots.get_mut(place))
        {
            *needs.freed_bytes.get_or_insert_default() += bytes;
        }
        let of_listed = rules.only_name(set.listed).and_then(|name| self.names.get_mut(name as usize));
        if let Some(of_name) = of_listed {
            *of_name.freed_bytes.get_or_insert_default() += bytes;
        }
    }

    /// `needed` has the bytes that each member needs.
    fn set_shared(&mut self, survey: &NeedsSurvey<'_>, needed: &[u64]) {
        for (number, bytes) in (0..survey.rules.snapshot_count()).zip(needed) {
            if let Some(needs) = survey.place_of(number).and_then(|place| self.snapshots.get_mut(place)) {
                needs.shared_bytes = bytes.saturating_sub(needs.own_bytes);
            }
        }
        let of_names = needed.iter().skip(survey.rules.snapshot_count() as usize);
        for (of_name, bytes) in self.names.iter_mut().zip(of_names) {
            of_name.shared_bytes = bytes.saturating_sub(of_name.own_bytes());
        }
    }

    /// Counts the places of the newest snapshot of each name.
    fn find_places(&mut self, store: &Store, progress: &Progress) -> Result<(), SpaceNeedsError> {
        let mut newest = BTreeMap::<&str, &Snapshot>::new();
        for SnapshotNeeds { snapshot, .. } in self.snapshots.iter().filter(|needs| !needs.is_in_trash) {
            let of_name = newest.entry(&snapshot.name).or_insert(snapshot);
            if of_name.time <= snapshot.time {
                *of_name = snapshot;
            }
        }
        for of_name in &mut self.names {
            let Some(newest) = newest.get(of_name.name.as_str()) else { continue };
            let found = PlaceDensity::of(store, newest, progress).map_err(|source| {
                let (id, name) = (newest.id, newest.name.clone());
                source.into_mark(|source| MarkError::Snapshot { id, name, path: Vec::new(), source })
            });
            of_name.newest_places = Some(found?);
        }
        Ok(())
    }
}

fn in_trash(archive: &Archive) -> BTreeSet<SnapshotId> {
    archive.trash().iter().map(|trashed| trashed.snapshot.id).collect()
}

/// Returns the number of slices into which the leaves are cut, so that those of one slice take half
/// of the memory. The other half is for what leads to others, and for the sets. A delta takes two
/// more entries in the slice of its base.
fn slice_count(block_count: u64, delta_count: u64, memory_bytes: u64) -> u32 {
    let entries = block_count.saturating_add(delta_count.saturating_mul(2));
    let slices = entries.saturating_mul(KEY_BYTES_MAX).div_ceil((memory_bytes / 2).max(1));
    u32::try_from(slices).unwrap_or(u32::MAX - 2).max(1)
}

/// The snapshots, and the way in which they are counted.
struct NeedsSurvey<'a> {
    store: &'a Store,
    roots: &'a LiveRoots,
    in_trash: &'a BTreeSet<SnapshotId>,
    /// The last snapshot of the rules stands for the catalog, and the last name as well.
    rules: NeedRules,
    /// The places of the snapshots among the roots, in the order of their numbers: by name, and in
    /// the order in which they were finished. So most sets are a few ranges of numbers.
    places: Vec<usize>,
    /// The blocks that are stored as deltas.
    delta_count: u64,
    memory_bytes: u64,
}

/// The bytes of the log by the sets of those that need them.
struct CountedNeeds {
    sets: NeederSets,
    unneeded_bytes: u64,
    pass_count: u32,
}

impl<'a> NeedsSurvey<'a> {
    fn new(
        store: &'a Store,
        roots: &'a LiveRoots,
        name_of: impl Fn(&Snapshot) -> usize,
        name_count: usize,
        in_trash: &'a BTreeSet<SnapshotId>,
        memory_bytes: u64,
    ) -> Result<Self, SpaceNeedsError> {
        let mut named: Vec<(usize, usize)> =
            roots.snapshots.iter().map(name_of).enumerate().map(|(place, name)| (name, place)).collect();
        named.sort_unstable();
        let names = named.iter().map(|(name, _)| *name).chain([name_count]);
        let names = names.map(u32::try_from).collect::<Result<_, _>>().ok();
        let rules = names.and_then(NeedRules::new).ok_or(SpaceNeedsError::Memory { bytes: memory_bytes })?;
        let places = named.into_iter().map(|(_, place)| place).collect();
        let mut survey = Self { store, roots, in_trash, rules, places, delta_count: 0, memory_bytes };
        let mut delta_count = 0;
        survey.each_delta(|_, _| delta_count += 1)?;
        survey.delta_count = delta_count;
        Ok(survey)
    }

    /// Shows each delta of the log, and its base.
    fn each_delta(&self, mut show: impl FnMut(&BlockName, &BlockName)) -> Result<(), SpaceNeedsError> {
        for arena in self.store.arenas_with_deltas(&self.store.arenas()?) {
            for page in self.store.pages_in_arena(arena?.id())? {
                for block in page?.blocks() {
                    block.base_name().iter().for_each(|base| show(&block.name, base));
                }
            }
        }
        Ok(())
    }

    /// Returns the place of a snapshot among the roots; `None` for the catalog.
    fn place_of(&self, snapshot: u32) -> Option<usize> {
        self.places.get(snapshot as usize).copied()
    }

    /// Returns the snapshots and names, without any byte.
    fn describe(&self, names: &[String]) -> Result<SpaceNeeds, SpaceNeedsError> {
        let is_in_trash = |snapshot: &Snapshot| self.in_trash.contains(&snapshot.id);
        let of_snapshot = |snapshot: &Snapshot| SnapshotNeeds {
            snapshot: snapshot.clone(),
            is_in_trash: is_in_trash(snapshot),
            own_bytes: 0,
            shared_bytes: 0,
            freed_bytes: (!is_in_trash(snapshot)).then_some(0),
        };
        let of_name = |name: &String| NameNeeds { name: name.clone(), ..NameNeeds::default() };
        let mut of_names: Vec<NameNeeds> = names.iter().map(of_name).collect();
        for (number, place) in (0..).zip(&self.places) {
            let snapshot = &self.roots.snapshots[*place];
            if let Some(of_name) = of_names.get_mut(self.rules.name_of(number) as usize) {
                of_name.snapshot_count += 1;
                of_name.size += snapshot.size;
                of_name.freed_bytes = of_name.freed_bytes.or((!is_in_trash(snapshot)).then_some(0));
            }
        }
        Ok(SpaceNeeds {
            snapshots: self.roots.snapshots.iter().map(of_snapshot).collect(),
            names: of_names,
            log_bytes: self.store.stats()?.log_bytes,
            delta_count: self.delta_count,
            ..SpaceNeeds::default()
        })
    }

    /// Counts the bytes of the log. Only the members in `group` are told apart; who needs a byte
    /// alone is counted in any case. Returns `None` if there are too many different sets.
    fn count(&self, group: Range<u32>, progress: &Progress) -> Result<Option<CountedNeeds>, SpaceNeedsError> {
        let random = self.store.world().random.as_ref();
        let new_sets = NeederSets::new(self.rules.clone(), group, random);
        let mut sets = new_sets.map_err(SpaceNeedsError::Random)?;
        let mut needs = BlockNeeds::new(random).map_err(SpaceNeedsError::Random)?;
        let catalog = sets.one(self.rules.snapshot_count() - 1, true);
        let mut of_snapshots = vec![catalog; self.places.len()];
        for (number, place) in (0..).zip(&self.places) {
            let is_listed = !self.in_trash.contains(&self.roots.snapshots[*place].id);
            of_snapshots[*place] = sets.one(number, is_listed);
        }
        let from = NeedRoots { roots: self.roots, sets: of_snapshots, catalog };
        let memory = NeedMemory { all_bytes: self.memory_bytes, sets_bytes: self.memory_bytes / 4 };
        let slices = slice_count(self.store.stats()?.block_count, self.delta_count, self.memory_bytes);
        let mut unneeded_bytes = 0;
        for number in 0..slices {
            needs.begin(LeafSlice { number, count: slices });
            if slices > 1 {
                self.each_delta(|delta, base| needs.expect_delta(delta, base))?;
            }
            match needs.find(self.store, &from, &mut sets, memory, progress) {
                Err(NeedWalkError::Sets) => return Ok(None),
                Err(NeedWalkError::Memory) => {
                    return Err(SpaceNeedsError::Memory { bytes: self.memory_bytes });
                }
                Err(NeedWalkError::Circle) => return Err(SpaceNeedsError::Circle),
                Err(NeedWalkError::Walk(error)) => return Err(error.into()),
                Ok(()) => {}
            }
            if self.delta_count > 0 {
                self.each_delta(|delta, base| needs.add_to_base(delta, base, &mut sets))?;
            }
            for id in self.store.arenas()? {
                unneeded_bytes += self.measure(id, &from, &needs, &mut sets, progress)?;
            }
        }
        Ok(Some(CountedNeeds { sets, unneeded_bytes, pass_count: slices }))
    }

    /// Adds the bytes of an arena's blocks to the sums of the sets. Returns those of the blocks
    /// that nothing needs.
    fn measure(
        &self,
        id: ArenaId,
        from: &NeedRoots<'_>,
        needs: &BlockNeeds,
        sets: &mut NeederSets,
        progress: &Progress,
    ) -> Result<u64, SpaceNeedsError> {
        if progress.is_cancelled() {
            return Err(MarkError::Cancelled.into());
        }
        let mut unneeded_bytes = 0;
        if self.store.vault().log().was_never_begun(id).unwrap_or(false) {
            return Ok(unneeded_bytes);
        }
        for page in self.store.pages_in_arena(id)? {
            let page = page?;
            for clump in page.clumps() {
                each_share(&page, clump, |name, bytes| match self.needed_by(name, from, needs, sets) {
                    Err(OtherSlice) => {}
                    Ok(None) => unneeded_bytes += bytes,
                    Ok(Some(set)) => sets.add(set, bytes),
                });
            }
        }
        Ok(unneeded_bytes)
    }

    fn needed_by(
        &self,
        name: &BlockName,
        from: &NeedRoots<'_>,
        needs: &BlockNeeds,
        sets: &mut NeederSets,
    ) -> Result<Option<SetNumber>, OtherSlice> {
        if !is_catalog_root(name) && name.block_type.kind() != BlockKind::Note {
            return needs.of(name, sets);
        }
        let is_needed = !is_catalog_root(name) || self.roots.catalog_root == Some(*name);
        if needs.is_first_slice() { Ok(is_needed.then_some(from.catalog)) } else { Err(OtherSlice) }
    }
}

/// Shows each block of a clump with its share of the clump's bytes.
fn each_share(page: &DirectoryPage, clump: &ClumpRow, mut show: impl FnMut(&BlockName, u64)) {
    let clump_bytes = u128::from(clump.end() - clump.granule.byte_offset());
    // Empty blocks need their rows, too.
    let weight = |size: u32| u128::from(size) + 1;
    let all = page.blocks_of(clump.granule).map(|block| weight(block.size)).sum::<u128>().max(1);
    let (mut before, mut before_bytes) = (0, 0);
    for block in page.blocks_of(clump.granule) {
        before += weight(block.size);
        let end = u64::try_from(clump_bytes * before / all).unwrap_or(u64::MAX);
        show(&block.name, end - before_bytes);
        before_bytes = end;
    }
}
