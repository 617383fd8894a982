//! Plans a replication: the existing and the missing objects, and whether the target may be written
//! at all.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use varve_block::to_hex;
use varve_log::{ArenaId, ArenaState, ReadLogError, Seal};
use varve_remote::{Object, Target};
use varve_store::FormatPage;
use varve_world::FileName;

use crate::objects::listing::{
    ArenaAssembly, CONFIG, FORMAT_PAGE, ListedSegment, MARK, ReplicaListing, plain,
};
use crate::objects::object_name::{KEYS, SegmentEnd};
use crate::objects::record_ends::{ArenaRecords, RecordsDamage};
use crate::reading::replica::{Replica, mark_text, read_config, read_mark, read_setting};
use crate::replication::error::ReplicateError;
use crate::replication::history::{CountedSeals, require_place, take_out_strays, tell_apart};
use crate::replication::planned_segments::{EarlierGeneration, PlannedSegment, order_of_upload, plan_arena};
use crate::replication::replaced_objects::require_planned;
use crate::replication::replica_end::ReplicaEnd;
use crate::replication::replication_plan::{
    DamagedInStore, PlannedSetting, ReplicationPlan, SupersededGeneration,
};
use crate::replication::replication_source::ReplicationSource;

const SETTING_BYTES_MAX: u64 = 1 << 20;
/// The most reads of an arena that another process changes meanwhile.
const READS_MAX: usize = 16;

/// The options of a replication.
#[derive(Debug, Clone)]
pub struct ReplicateOptions {
    /// The most bytes of an object, unless it holds a single longer record.
    pub segment_bytes: u64,
    /// The objects to be put again. The store must have each of them.
    pub replace: BTreeSet<FileName>,
    /// Removes keys from the target that the store no longer has.
    pub delete_extra_keys: bool,
    /// Makes a new copy at a target that had one before and has none now.
    pub recreate: bool,
}

impl Default for ReplicateOptions {
    fn default() -> Self {
        Self { segment_bytes: 16 << 20, replace: BTreeSet::new(), delete_extra_keys: false, recreate: false }
    }
}

impl ReplicationPlan {
    /// Compares the store with the target's listing.
    ///
    /// # Errors
    /// [`ReplicateError`] for another store's replica, another history, a replica that is gone, or
    /// a failed read.
    pub fn new(
        source: ReplicationSource<'_>,
        target: &Arc<dyn Target>,
        options: &ReplicateOptions,
    ) -> Result<Self, ReplicateError> {
        let listing = ReplicaListing::read(target.as_ref())?.within(source.config.arena_map);
        Self::of_listing(source, target, listing, options)
    }

    /// Compares the store with a listing of the target.
    pub(crate) fn of_listing(
        source: ReplicationSource<'_>,
        target: &Arc<dyn Target>,
        mut listing: ReplicaListing,
        options: &ReplicateOptions,
    ) -> Result<Self, ReplicateError> {
        check_identity(source, target.as_ref(), &listing, &options.replace)?;
        listing.require_clear()?;
        let seen = ReplicaEnd::read(source.world.storage.as_ref(), source.log.keys(), target.as_ref());
        if seen.is_some() && listing.is_empty() && !options.recreate {
            let hidden = target.hidden().unwrap_or_default();
            return Err(hidden.map_or(ReplicateError::Emptied, ReplicateError::Hidden));
        }
        let mut plan = Self::default();
        let (mut unknown, mut counted) = plan.arenas(source, &listing, options)?;
        if plan.damaged.iter().any(|damage| matches!(damage.reason, RecordsDamage::SealLost { .. })) {
            // Confirmed by a second read: a writer may have sealed an arena, and counted it in the
            // next one, between the two reads.
            plan = Self::default();
            (unknown, counted) = plan.arenas(source, &listing, options)?;
        }
        plan.settings(source, target.as_ref(), &listing, &options.replace)?;
        let unknown = take_out_strays(source, target, &mut listing, unknown)?;
        if let Some(first) = unknown.into_iter().next() {
            let replica = Replica::of(Arc::clone(target), listing);
            return Err(tell_apart(source, &replica, &first)?);
        }
        order_of_upload(&mut plan.segments, &counted.seals, &plan.succeeding);
        require_place(source, target, &listing, &plan.missing_here, counted)?;
        require_planned(&options.replace, &plan, &listing)?;
        let arenas = listing.assemble();
        plan.lost_there = seen.filter(|seen| !seen.is_reached_by(ReplicaEnd::of(arenas.iter())));
        plan.strangers = listing.strangers.iter().map(|object| object.name.clone()).collect();
        plan.listing = listing;
        Ok(plan)
    }

    /// Returns the bytes of the log to be uploaded.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(PlannedSegment::bytes).sum()
    }

    fn settings(
        &mut self,
        source: ReplicationSource<'_>,
        target: &dyn Target,
        listing: &ReplicaListing,
        replace: &BTreeSet<FileName>,
    ) -> Result<(), ReplicateError> {
        let storage = source.world.storage.as_ref();
        let read = |file: &FileName| {
            let failed = |error| ReplicateError::Storage { file: file.clone(), source: error };
            let read = || storage.read_whole(file, SETTING_BYTES_MAX).map(Bytes::from);
            let contents = read().map_err(failed)?;
            // The small files have no code that could be checked here, and a wrong copy would stay
            // wrong.
            if read().map_err(failed)? == contents {
                return Ok(contents);
            }
            Err(failed(io::Error::other("two reads of it gave different bytes")))
        };
        let is_there = |file: &FileName| listing.settings.contains_key(file);
        let is_wanted = |file: &FileName| !is_there(file) || replace.contains(file);
        // An existing object is put again only if it is to be replaced.
        let planned = |file: FileName, contents| PlannedSetting { replaces: is_there(&file), file, contents };
        let [mark, page, config] = [MARK, FORMAT_PAGE, CONFIG].map(plain);
        if is_wanted(&mark) {
            self.settings.push(planned(mark, Bytes::from(mark_text(&source.config.id))));
        }
        if let Some(contents) = due_page(source, target, listing, replace.contains(&page)) {
            self.settings.push(planned(page, contents));
        }
        let mut there = Vec::new();
        for file in listing.keys() {
            let bytes = listing.settings.get(file).copied().unwrap_or_default();
            there.push((file.clone(), read_setting(target, file, bytes)?));
        }
        let failed = |error| ReplicateError::Storage { file: plain(KEYS), source: error };
        let here = storage.list(KEYS).map_err(failed)?;
        let mut known = BTreeSet::new();
        for file in here.into_iter().filter(|file| file.as_str().ends_with(".toml")) {
            let contents = read(&file)?;
            if replace.contains(&file) || !there.iter().any(|(_, other)| *other == contents) {
                let other = renamed(&file, &contents);
                if is_wanted(&file) {
                    self.settings.push(planned(file, contents.clone()));
                } else if varve_store::is_sound_key(&other, &contents) {
                    // Old keys are named by numbers, and are valid under any name.
                    let contents = contents.clone();
                    self.settings.push(PlannedSetting { file: other, contents, replaces: false });
                } else if read_setting(target, &file, listing.settings[&file])? != contents {
                    // A key has a name that only its maker gives. So the object was this key. A
                    // second read confirms that it is wrong.
                    self.wrong_settings.push(file);
                }
            }
            known.insert(contents);
        }
        let is_own = |file: &FileName| {
            self.wrong_settings.contains(file) || self.settings.iter().any(|setting| setting.file == *file)
        };
        self.extra_keys = there
            .into_iter()
            .filter(|(file, contents)| !known.contains(contents) && !is_own(file))
            .map(|(file, _)| file)
            .collect();
        if is_wanted(&config) {
            let contents = read(&config)?;
            self.settings.push(planned(config, contents));
        }
        Ok(())
    }

    /// Plans all arenas. Returns the segments that this log lacks, and the seals that it has.
    fn arenas(
        &mut self,
        source: ReplicationSource<'_>,
        listing: &ReplicaListing,
        options: &ReplicateOptions,
    ) -> Result<(Vec<ListedSegment>, CountedSeals), ReplicateError> {
        let ids = source.log.arenas()?;
        let never_begun = source.log.never_begun()?;
        let mut unknown = self.arenas_not_here(listing, &ids);
        let (mut unsealed, mut counted) = (Vec::new(), CountedSeals::default());
        for (place, id) in (0_u64..).zip(ids) {
            let generations = listing.arenas.get(&id);
            let local = match read_local(source, id, generations, options) {
                Ok(LocalState::Complete { bytes, seal }) => {
                    self.note_superseded(id, seal.generation, generations);
                    counted.seals.insert(id, seal);
                    self.present_bytes += bytes;
                    continue;
                }
                Ok(LocalState::Records(records)) => *records,
                // A crash left it before its header was written. The next writer removes it.
                Err(error) if error.is_damage() && never_begun.contains(&id) => {
                    self.unfinished.push((id, 0));
                    continue;
                }
                Err(error) if error.is_damage() => {
                    self.damaged.push(DamagedInStore { arena: id, offset: 0, reason: error.into() });
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            unknown.extend(self.arena_of_records(id, &local, generations, options));
            counted.count = local.sealed_count.unwrap_or(counted.count);
            if let Some(end) = &local.seal {
                counted.seals.insert(id, end.seal);
            } else if local.damage.is_none() {
                unsealed.push((place, id, local.log_bytes()));
            }
            if let Some(reason) = local.damage {
                self.damaged.push(DamagedInStore { arena: id, offset: reason.offset(), reason });
            }
        }
        self.note_lost_seals(&unsealed, &counted);
        Ok((unknown, counted))
    }

    /// Looks at the arenas that only the replica has. If the log has later arenas, such an arena
    /// was lost. Otherwise the replica is ahead, and the segments of the arena are returned.
    fn arenas_not_here(&mut self, listing: &ReplicaListing, ids: &[ArenaId]) -> Vec<ListedSegment> {
        let mut unknown = Vec::new();
        for (id, generations) in listing.arenas.iter().filter(|(id, _)| !ids.contains(id)) {
            if ids.last().is_some_and(|last| last > id) {
                self.missing_here.push(*id);
            } else {
                unknown.extend(generations.values().flatten().cloned());
            }
        }
        unknown
    }

    /// Plans one arena. Returns the segments that the arena lacks.
    fn arena_of_records(
        &mut self,
        id: ArenaId,
        local: &ArenaRecords,
        generations: Option<&Generations>,
        options: &ReplicateOptions,
    ) -> Vec<ListedSegment> {
        let later = generations.into_iter().flatten().filter(|(other, _)| **other > local.generation);
        let mut unknown: Vec<_> = later.flat_map(|(_, segments)| segments).cloned().collect();
        let earlier = self.note_superseded(id, local.generation, generations);
        self.succeeding.extend(earlier.map(|earlier| (id, earlier)));
        let segments = generations.and_then(|all| all.get(&local.generation));
        let segments = segments.map_or(&[][..], Vec::as_slice);
        let arena = plan_arena(local, segments, options.segment_bytes, &options.replace);
        self.segments.extend(arena.puts);
        self.wrong.extend(arena.wrong);
        self.present_bytes += arena.present_bytes;
        self.unfinished.extend(local.unfinished.map(|offset| (id, offset)));
        let offset = local.damage.as_ref().map(RecordsDamage::offset);
        // A damaged part of this log is no evidence against a segment.
        let judged = |segment: &ListedSegment| offset.is_none_or(|offset| segment.range().end <= offset);
        unknown.extend(arena.unknown.into_iter().filter(judged));
        unknown
    }

    /// Notes the arenas that have lost their seals. `unsealed` has the place, the id and the end of
    /// each sound arena without a seal.
    ///
    /// Arenas are sealed in any order: an arena that a crash has left may wait for its seal while
    /// later ones get theirs. An arena without a seal has lost it only if a counted seal is
    /// missing.
    fn note_lost_seals(&mut self, unsealed: &[(u64, ArenaId, u64)], counted: &CountedSeals) {
        if counted.missing_count() == 0 {
            return;
        }
        for &(_, arena, offset) in unsealed.iter().filter(|(place, ..)| *place < counted.count) {
            let reason = RecordsDamage::SealLost { arena, offset };
            self.damaged.push(DamagedInStore { arena, offset, reason });
        }
    }

    /// Adds the generations of an arena that are earlier than `present`. Returns the state of the
    /// one that readers use now.
    fn note_superseded(
        &mut self,
        arena: ArenaId,
        present: u32,
        generations: Option<&Generations>,
    ) -> Option<EarlierGeneration> {
        let mut used = None;
        for (generation, segments) in generations.into_iter().flat_map(|all| all.range(..present)) {
            let assembly = ArenaAssembly::of(segments);
            let state = if assembly.is_whole() { EarlierGeneration::Whole } else { EarlierGeneration::Cut };
            used = used.max(Some(state).filter(|_| assembly.is_visible()));
            let object =
                |segment: &ListedSegment| Object { name: segment.name.file_name(), bytes: segment.bytes };
            let objects = segments.iter().map(object).collect();
            self.superseded.push(SupersededGeneration { arena, generation: *generation, objects });
        }
        used
    }
}

/// The segments of an arena at the target, by generation.
type Generations = BTreeMap<u32, Vec<ListedSegment>>;

/// The local state of an arena.
enum LocalState {
    /// The arena is sealed, and the target lists all of it.
    Complete {
        bytes: u64,
        seal: Seal,
    },
    Records(Box<ArenaRecords>),
}

/// Reads an arena of this log. Damage counts only in a file that was the same before and after the
/// read: a collector may replace the arena meanwhile, and a writer may change its end.
fn read_local(
    source: ReplicationSource<'_>,
    id: ArenaId,
    generations: Option<&Generations>,
    options: &ReplicateOptions,
) -> Result<LocalState, ReadLogError> {
    let mut before = source.log.arena_file(id);
    for _ in 1..READS_MAX {
        let local = read_local_once(source, id, generations, options);
        let is_damaged = match &local {
            Ok(LocalState::Complete { .. }) => false,
            Ok(LocalState::Records(records)) => records.damage.is_some(),
            Err(error) => error.is_damage(),
        };
        if !is_damaged {
            return local;
        }
        let now = source.log.arena_file(id);
        if now == before {
            return local;
        }
        before = now;
    }
    read_local_once(source, id, generations, options)
}

fn read_local_once(
    source: ReplicationSource<'_>,
    id: ArenaId,
    generations: Option<&Generations>,
    options: &ReplicateOptions,
) -> Result<LocalState, ReadLogError> {
    let opened = source.log.open_arena(id)?;
    let there =
        generations.and_then(|all| all.get(&opened.header().generation)).map(|all| ArenaAssembly::of(all));
    let newest = generations.and_then(|all| all.keys().next_back());
    let is_newest = newest == Some(&opened.header().generation);
    if let Some(there) = there.filter(|there| is_newest && there.is_whole() && there.spare.is_empty())
        && !there.parts.iter().any(|part| options.replace.contains(&part.name.file_name()))
        && let Ok(ArenaState::Sealed { footer, .. }) = source.log.state(&opened)
        && there.parts.last().is_some_and(|last| last.name.end == SegmentEnd::Seal(footer.seal_code))
        && footer.file_bytes() == Some(there.bytes())
    {
        let seal = Seal::of(opened.header(), &footer);
        return Ok(LocalState::Complete { bytes: there.bytes(), seal });
    }
    let records = ArenaRecords::read_left(source.log, &opened)?;
    Ok(LocalState::Records(Box::new(records)))
}

/// Returns the page of the format, if the target has none, or one that does not describe what is
/// about to be uploaded. A store without a good page is replicated all the same.
fn due_page(
    source: ReplicationSource<'_>,
    target: &dyn Target,
    listing: &ReplicaListing,
    is_replaced: bool,
) -> Option<Bytes> {
    let (page, keys) = (plain(FORMAT_PAGE), source.log.keys());
    let here = source.world.storage.read_whole(&page, SETTING_BYTES_MAX).ok();
    let own = here.filter(|here| FormatPage::of(keys, here) == FormatPage::Current);
    let own = own.unwrap_or_else(|| FormatPage::text(keys));
    let is_due = match listing.settings.get(&page) {
        None => true,
        // Two revisions do not have the same length. The audit reads the object.
        Some(bytes) if *bytes == own.len() as u64 => is_replaced,
        Some(bytes) => {
            let there = read_setting(target, &page, *bytes);
            is_replaced || there.map_or(true, |there| FormatPage::of(keys, &there).is_due())
        }
    };
    is_due.then(|| own.into())
}

/// Returns a name for a key whose own name is taken by another key, which is not replaced.
fn renamed(file: &FileName, contents: &[u8]) -> FileName {
    let stem = file.as_str().strip_suffix(".toml").unwrap_or(file.as_str());
    let hash = to_hex(&blake3::hash(contents).as_bytes()[..8]);
    plain(&format!("{stem}-{hash}.toml"))
}

/// Refuses a target that is neither this store's replica nor empty.
pub(crate) fn check_identity(
    source: ReplicationSource<'_>,
    target: &dyn Target,
    listing: &ReplicaListing,
    replace: &BTreeSet<FileName>,
) -> Result<(), ReplicateError> {
    let ours = to_hex(&source.config.id);
    let foreign = |theirs: String| ReplicateError::ForeignStore { theirs, ours: ours.clone() };
    let is_replaced = |name| replace.contains(&plain(name));
    // A replaced file may be damaged. But one of the two must identify the replica.
    let (skips_config, skips_mark) = (is_replaced(CONFIG), is_replaced(MARK) && !is_replaced(CONFIG));
    let mark = if skips_mark { None } else { read_mark(target, &listing.settings)? };
    if let Some(theirs) = mark.as_ref().filter(|theirs| **theirs != ours) {
        return Err(foreign(theirs.clone()));
    }
    if skips_config && mark.is_some() {
        return Ok(());
    }
    if let Some(config) = read_config(target, &listing.settings)? {
        if config.id != source.config.id {
            return Err(foreign(to_hex(&config.id)));
        }
        if config.binding() != source.config.binding() {
            return Err(ReplicateError::ForeignConfig);
        }
    }
    // A replica gets its mark first. If there are segments and no mark, the mark was lost.
    if mark.is_none()
        && listing.arenas.is_empty()
        && let Some(object) = listing.settings.keys().chain(listing.strangers.iter().map(|o| &o.name)).next()
    {
        return Err(ReplicateError::Occupied { object: object.clone() });
    }
    Ok(())
}
