//! Makes a whole store from a replica. Each arena is written under a temporary name, checked record
//! by record as it arrives, and then renamed. `config.toml` comes last: without it the folder is
//! not a store.

use std::collections::BTreeMap;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use bytes::Bytes;
use varve_block::{has_kind, to_usize};
use varve_log::{
    ArenaEnd, ArenaId, ArenaState, ArenaWindow, FilePart, Granule, Log, OpenLogError, ReadLogError, Seal,
    Seals,
};
use varve_remote::{Observer, TargetError};
use varve_store::{OpenStoreError, Secret, Store, StoreConfig};
use varve_world::{FileName, Storage, Turn, Workers, World, read_each_with, work_in_order};

use crate::cloning::arena_arrival::ArenaArrival;
use crate::objects::listing::{ArenaAssembly, CONFIG, FORMAT_PAGE, ListedSegment, plain};
use crate::objects::object_name::SegmentEnd;
use crate::objects::record_ends::{ArenaRecords, RecordsDamage};
use crate::reading::overlaid_storage::OverlaidStorage;
use crate::reading::replica::{OpenReplicaError, Replica};

/// The bytes that are fetched at once: a whole object, as `replicate` makes it. Some servers need a
/// new connection for each request.
const FETCHED_BYTES: u64 = 16 << 20;
const AHEAD_BYTES: usize = 4 << 20;
/// The bytes of a hole that are written at once.
const HOLE_PIECE_BYTES: usize = 1 << 20;
/// After this many bytes of an arena, the disk is asked to start writing while more is fetched.
const SYNC_SOON_BYTES: u64 = 64 << 20;

/// The options of a clone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CloneOptions {
    /// Skips all checks, for a user without a key. The clone is then as trustworthy as the target.
    pub unchecked: bool,
    /// Keeps arenas that the replica has only in part, or damaged.
    pub keep_damaged: bool,
}

/// The result of a clone.
#[derive(Debug, Default)]
pub struct Cloned {
    /// The arenas in place.
    pub arena_count: u64,
    /// The total length of the arenas, in bytes.
    pub bytes: u64,
    /// The bytes that this run has fetched.
    pub fetched_bytes: u64,
    /// The arenas that are in place although the replica has them only damaged.
    pub damaged: Vec<DamagedInReplica>,
}

/// An arena that the replica does not have whole.
#[derive(Debug)]
pub struct DamagedInReplica {
    pub arena: ArenaId,
    pub reason: RecordsDamage,
}

/// The reason why a clone is missing or incomplete.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// The folder already contains a store.
    #[error("a store already exists there")]
    Exists,
    /// The folder contains something else.
    #[error("the folder is not empty: it holds {file}")]
    NotEmpty {
        /// A file in the folder.
        file: FileName,
    },
    /// The replica could not be opened.
    #[error("{0}")]
    Replica(#[from] OpenReplicaError),
    /// No key opens the store.
    #[error("{0}")]
    Open(#[from] OpenStoreError),
    /// A small file could not be fetched.
    #[error("{0}")]
    Target(#[from] TargetError),
    /// An arena could not be fetched or written.
    #[error("{file}")]
    Storage { file: FileName, source: io::Error },
    /// The fetched arenas could not be listed.
    #[error("{0}")]
    List(#[from] OpenLogError),
    /// A fetched arena could not be read again.
    #[error("a fetched arena cannot be read")]
    Read(#[from] ReadLogError),
    /// The replica does not have all arenas whole. The whole ones have been cloned.
    #[error(
        "{} cannot be cloned completely; first arena {}: {}", arenas(.damaged.len()), .damaged[0].arena, .damaged[0].reason
    )]
    Damaged {
        /// The damaged arenas with reasons; at least one.
        damaged: Vec<DamagedInReplica>,
    },
    /// The caller cancelled it.
    #[error("interrupted; the same command continues where it stopped")]
    Cancelled,
}

has_kind!(CloneError: Self::Damaged { .. } => Damage);

fn arenas(count: usize) -> String {
    if count == 1 { "1 arena".into() } else { format!("{count} arenas") }
}

/// Clones the store in `replica` into the empty folder of `world`. Continues an interrupted clone.
///
/// # Errors
/// [`CloneError`]. The folder is then not a store yet.
pub fn clone_replica(
    replica: &Arc<Replica>,
    world: &World,
    secret: Option<&Secret>,
    options: CloneOptions,
    observer: &dyn Observer,
) -> Result<Cloned, CloneError> {
    let visible: Vec<_> = replica.arenas().iter().filter(|(_, arena)| arena.is_visible()).collect();
    let log_bytes = visible.iter().map(|(_, arena)| arena.bytes()).sum();
    bring_settings(replica, world, log_bytes)?;
    let storage = &world.storage;
    let config = plain(CONFIG);
    let log = if options.unchecked {
        None
    } else {
        // Uses the local copies of the settings. The keys that open the arenas now will also open
        // them later.
        let here = World { storage: under_its_name(storage, &config), ..world.clone() };
        Some(Store::unlock(&here, secret)?.1)
    };
    observer.set_total(log_bytes);
    let state = CloneState { replica, storage, log: log.as_ref(), options, observer };
    let (mut cloned, mut damaged) = bring_all(&state, world.workers.as_ref(), visible)?;
    damaged.extend(replica.empty_segments().map(|segment| {
        let (arena, offset) = (segment.name.arena, segment.name.offset);
        DamagedInReplica { arena, reason: RecordsDamage::CutShort { arena, offset } }
    }));
    if let Some(log) = &log
        && damaged.is_empty()
    {
        damaged = missing(&log.over(Arc::clone(storage)))?;
    }
    damaged.sort_by_key(|damage| damage.arena);
    if !damaged.is_empty() && !options.keep_damaged {
        return Err(CloneError::Damaged { damaged });
    }
    cloned.damaged = damaged;
    if cloned.arena_count > 0 {
        storage.sync_folder(ArenaId::FOLDER).map_err(failed(&config))?;
    }
    let finished = storage.rename(&config.unfinished(), &config).and_then(|()| storage.sync_folder(""));
    finished.map_err(failed(&config))?;
    Ok(cloned)
}

/// Writes keys and other small files. `config.toml` is written under its temporary name.
fn bring_settings(replica: &Replica, world: &World, log_bytes: u64) -> Result<(), CloneError> {
    let is_small = |file: &&FileName| {
        file.folder() == crate::objects::object_name::KEYS || [CONFIG, FORMAT_PAGE].contains(&file.as_str())
    };
    let files: Vec<_> = replica.settings().keys().filter(is_small).collect();
    let small: BTreeMap<_, _> = files.iter().copied().zip(read_all_twice(replica, world, &files)?).collect();
    let text = small.get(&plain(CONFIG)).ok_or(OpenReplicaError::NotAReplica)?;
    begin(world.storage.as_ref(), &own_config(text, log_bytes)?)?;
    for (file, contents) in small.iter().filter(|(file, _)| file.as_str() != CONFIG) {
        world.storage.replace(file, contents).map_err(failed(file))?;
    }
    Ok(())
}

/// Clones these arenas, one per worker at a time. Returns the totals and the damaged arenas.
fn bring_all(
    state: &CloneState<'_>,
    workers: &dyn Workers,
    arenas: Vec<(&ArenaId, &ArenaAssembly)>,
) -> Result<(Cloned, Vec<DamagedInReplica>), CloneError> {
    let (mut cloned, mut damaged) = (Cloned::default(), Vec::new());
    work_in_order(
        workers,
        usize::MAX,
        arenas.into_iter().map(Ok),
        |claims| {
            // An arena is made durable while the next one is fetched, so that disk and network are
            // busy at the same time.
            let mut checked: Option<(Turn<'_, '_, _, _, _>, ArenaId, FetchedArena)> = None;
            loop {
                let claimed = claims.claim();
                let brought = claimed.map(|((id, assembly), turn)| (turn, *id, state.bring(*id, assembly)));
                if let Some((turn, id, before)) = checked.take() {
                    turn.end(state.place(id, before).map(|placed| (id, placed)));
                }
                match brought {
                    Some((turn, id, Ok(brought))) => checked = Some((turn, id, brought)),
                    Some((turn, _, Err(error))) => turn.end(Err(error)),
                    None => return,
                }
            }
        },
        |(arena, FetchedArena { bytes, fetched_bytes, damage, .. })| {
            cloned.fetched_bytes += fetched_bytes;
            let is_kept = damage.is_none() || state.options.keep_damaged;
            cloned.arena_count += u64::from(is_kept);
            cloned.bytes += if is_kept { bytes } else { 0 };
            damaged.extend(damage.map(|reason| DamagedInReplica { arena, reason }));
            Ok(())
        },
    )?;
    Ok((cloned, damaged))
}

/// Makes a view of `storage` in which an unfinished file has its final name.
fn under_its_name(storage: &Arc<dyn Storage>, file: &FileName) -> Arc<dyn Storage> {
    let (below, kept_as) = (Arc::clone(storage), file.unfinished());
    Arc::new(OverlaidStorage { below, file: file.clone(), kept_as, part: FilePart::default() })
}

fn failed(file: &FileName) -> impl FnOnce(io::Error) -> CloneError + use<> {
    let file = file.clone();
    move |source| CloneError::Storage { file, source }
}

/// Reads small files, each twice: nothing else can detect a wrong transfer.
fn read_all_twice(replica: &Replica, world: &World, files: &[&FileName]) -> Result<Vec<Bytes>, CloneError> {
    let readings: Vec<_> = files.iter().flat_map(|file| [file, file]).collect();
    let mut states = vec![(); world.workers.width()];
    let read =
        read_each_with(world.workers.as_ref(), &readings, &mut states, |(), file| replica.read_setting(file));
    let read = read.into_iter().collect::<Result<Vec<_>, _>>()?;
    let pairs = files.iter().zip(read.chunks_exact(2));
    let same = pairs.map(|(file, pair)| match pair {
        [one, other] if one == other => Ok(one.clone()),
        _ => Err(failed(file)(io::Error::other("two reads of it gave different bytes"))),
    });
    same.collect()
}

/// Makes the `config.toml` of the clone: that of the replica, except for a size of the index that
/// the log does not justify. No key authenticates that size, and a store without memory for its
/// index does not open.
fn own_config(text: &Bytes, log_bytes: u64) -> Result<Bytes, OpenReplicaError> {
    // Parsed before anything is written, because this program may not be able to read it.
    let mut config = StoreConfig::from_text(&String::from_utf8_lossy(text))?;
    let disk_index = config.disk_index.for_log_of(log_bytes);
    if disk_index == config.disk_index {
        return Ok(text.clone());
    }
    config.disk_index = disk_index;
    Ok(config.to_text().into())
}

/// Marks an empty folder as the place of this clone, with its `config.toml` under the temporary
/// name.
fn begin(storage: &dyn Storage, text: &Bytes) -> Result<(), CloneError> {
    let config = plain(CONFIG);
    let begun = config.unfinished();
    let listed = storage.list("").map_err(failed(&config))?;
    if listed.contains(&config) {
        return Err(CloneError::Exists);
    }
    if storage.read_whole(&begun, 1 << 20).is_ok_and(|now| *text == now) {
        // If its writer failed, the file may be readable and not durable.
        return storage.replace(&begun, text).map_err(failed(&begun));
    }
    let folders = [ArenaId::FOLDER, crate::objects::object_name::KEYS];
    for folder in folders {
        if let Some(file) = storage.list(folder).map_err(failed(&config))?.into_iter().next() {
            return Err(CloneError::NotEmpty { file });
        }
    }
    if let Some(file) = listed.into_iter().find(|file| *file != begun) {
        return Err(CloneError::NotEmpty { file });
    }
    let written = storage.create_anew(&begun).and_then(|()| storage.append(&begun, text).map(|_| ()));
    // The name must be durable as well. If a power cut took it and kept a key, no later run would
    // continue in this folder.
    let durable = written.and_then(|()| storage.sync(&begun)).and_then(|()| storage.sync_folder(""));
    durable.map_err(failed(&begun))
}

/// The shared state of all workers.
struct CloneState<'a> {
    replica: &'a Replica,
    storage: &'a Arc<dyn Storage>,
    log: Option<&'a Log>,
    options: CloneOptions,
    observer: &'a dyn Observer,
}

/// A fetched and checked arena.
struct FetchedArena {
    bytes: u64,
    fetched_bytes: u64,
    damage: Option<RecordsDamage>,
    /// True if the file needs nothing more: an earlier run has put it in place, or nothing of it
    /// was fetched.
    is_settled: bool,
}

impl CloneState<'_> {
    /// Fetches and checks one arena, unless an earlier run has put it in place.
    fn bring(&self, id: ArenaId, assembly: &ArenaAssembly) -> Result<FetchedArena, CloneError> {
        let (file, total) = (id.file_name(), assembly.bytes());
        // The arena cannot become whole. So nothing is fetched, and no disk space is used.
        if let Some(hole) = assembly.holes().first().filter(|_| !self.options.keep_damaged) {
            self.observer.add_done(total);
            let damage = Some(RecordsDamage::Gap { arena: id, offset: hole.start });
            return Ok(FetchedArena { bytes: total, fetched_bytes: 0, damage, is_settled: true });
        }
        let new = file.unfinished();
        match self.storage.length(&file) {
            Ok(bytes) if bytes == total => {
                self.observer.add_done(total);
                return Ok(FetchedArena { bytes, fetched_bytes: 0, damage: None, is_settled: true });
            }
            // The replica has grown since.
            Ok(_) => self.storage.rename(&file, &new).map_err(failed(&file))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&file)(error)),
        }
        let present = match self.storage.length(&new) {
            Ok(present) if present <= total => present,
            Ok(_) => self.begin_again(&new)?,
            Err(_) => {
                self.storage.create(&new).map_err(failed(&new))?;
                0
            }
        };
        self.observer.add_done(present);
        let mut damage = self.fetch_and_check(id, assembly, present)?;
        let mut fetched_bytes = total - present;
        if damage.is_some() && present > 0 {
            // The file of an interrupted run may have a torn tail.
            self.begin_again(&new)?;
            damage = self.fetch_and_check(id, assembly, 0)?;
            fetched_bytes = total;
        }
        Ok(FetchedArena { bytes: total, fetched_bytes, damage, is_settled: false })
    }

    /// Syncs an arena and renames it to its final name. A damaged arena that is not to be kept
    /// stays under its temporary name.
    fn place(&self, id: ArenaId, brought: FetchedArena) -> Result<FetchedArena, CloneError> {
        if brought.is_settled {
            return Ok(brought);
        }
        let file = id.file_name();
        let new = file.unfinished();
        // A damaged arena is synced as well: a write error of this disk also looks like damage, and
        // is no fault of the replica.
        if let Err(error) = self.storage.sync(&new) {
            // After a failed sync, readable data may not be on the disk, and a later sync would not
            // write it. So the arena is fetched again.
            drop(self.storage.truncate(&new, 0));
            return Err(failed(&file)(error));
        }
        if brought.damage.is_none() || self.options.keep_damaged {
            self.storage.rename(&new, &file).map_err(failed(&file))?;
        }
        Ok(brought)
    }

    fn begin_again(&self, new: &FileName) -> Result<u64, CloneError> {
        self.storage.truncate(new, 0).map_err(failed(new))?;
        Ok(0)
    }

    fn fetch_and_check(
        &self,
        id: ArenaId,
        assembly: &ArenaAssembly,
        present: u64,
    ) -> Result<Option<RecordsDamage>, CloneError> {
        let view = under_its_name(self.storage, &id.file_name());
        let mut arrival = if present == 0 { ArenaArrival::begin() } else { ArenaArrival::default() };
        let hole = self.fetch(id, assembly, present, |piece| {
            if let Some(log) = self.log {
                arrival.take(log, &view, id, piece);
            }
        })?;
        let found = match self.log {
            Some(log) => check(&log.over(view), id, assembly, &arrival)?,
            None => None,
        };
        Ok(found.or(hole.map(|hole| RecordsDamage::Gap { arena: id, offset: hole.start })))
    }

    /// Fetches the missing bytes, and calls `arrived` with each piece after it is written. Fills
    /// holes with zeros. Returns the first hole.
    fn fetch(
        &self,
        id: ArenaId,
        assembly: &ArenaAssembly,
        present: u64,
        mut arrived: impl FnMut(Bytes),
    ) -> Result<Option<Range<u64>>, CloneError> {
        let new = id.file_name().unfinished();
        let holes = assembly.holes();
        let zeros = Bytes::from(vec![0; if holes.is_empty() { 0 } else { HOLE_PIECE_BYTES }]);
        let (mut place, mut synced) = (present, present);
        while place < assembly.bytes() {
            let start = place;
            let hole = holes.iter().find(|hole| hole.contains(&start));
            let object = assembly.part_at(start).map(ListedSegment::range);
            let known = hole.or(object.as_ref()).map_or(u64::MAX, |known| known.end);
            let end = assembly.bytes().min(start + FETCHED_BYTES).min(known);
            let mut outcome = Ok(());
            let mut take = |piece: Bytes| {
                outcome = self.keep(&new, &piece);
                if outcome.is_err() {
                    return ControlFlow::Break(());
                }
                let bytes = piece.len() as u64;
                arrived(piece);
                place += bytes;
                if place - synced >= SYNC_SOON_BYTES || place >= assembly.bytes() {
                    self.storage.sync_soon(&new);
                    synced = place;
                }
                ControlFlow::Continue(())
            };
            if hole.is_some() {
                let bytes = to_usize(end - start).min(zeros.len());
                let _ = take(zeros.slice(..bytes));
            } else {
                let fetched = self.replica.fetch_arena(id, start..end, &mut take);
                fetched.map_err(failed(&id.file_name()))?;
            }
            outcome?;
        }
        Ok(holes.into_iter().next())
    }

    /// Writes a received piece.
    fn keep(&self, new: &FileName, piece: &[u8]) -> Result<(), CloneError> {
        if self.observer.is_cancelled() {
            return Err(CloneError::Cancelled);
        }
        self.storage.append_uncached(new, piece).map_err(failed(new))?;
        self.observer.add_done(piece.len() as u64);
        Ok(())
    }
}

/// Finds arenas that the newest page has seen sealed and that are missing. Without this check, a
/// replica that has lost objects looks like one with an earlier end.
fn missing(log: &Log) -> Result<Vec<DamagedInReplica>, CloneError> {
    let ids = log.arenas()?;
    let (mut seals, mut counted, mut unsealed) = (Seals::default(), 0, Vec::new());
    for id in &ids {
        let opened = log.open_arena(*id)?;
        let is_newest = Some(id) == ids.last();
        match log.state(&opened)? {
            ArenaState::Sealed { footer, .. } => seals.insert(*id, Seal::of(opened.header(), &footer)),
            ArenaState::Unsealed if !is_newest => unsealed.push(*id),
            ArenaState::Unsealed => {}
        }
        if is_newest {
            let records = ArenaRecords::read(log, &opened)?;
            counted = records.sealed_count.unwrap_or(0);
        }
    }
    if seals.missing_count(counted) == 0 {
        return Ok(Vec::new());
    }
    let newest = ids.last().map_or(0, |id| id.0);
    let gone = (0..newest).map(ArenaId).filter(|id| ids.binary_search(id).is_err());
    let gone = gone.map(|arena| DamagedInReplica { arena, reason: RecordsDamage::Missing { arena } });
    let unsealed = unsealed
        .into_iter()
        .map(|arena| DamagedInReplica { arena, reason: RecordsDamage::SealLost { arena, offset: 0 } });
    Ok(gone.chain(unsealed).collect())
}

/// Checks every fetched record. Damage is a result, not an error.
fn check(
    log: &Log,
    id: ArenaId,
    assembly: &ArenaAssembly,
    arrival: &ArenaArrival,
) -> Result<Option<RecordsDamage>, ReadLogError> {
    match read_back(log, id, assembly, arrival) {
        Err(error) if error.is_damage() => Ok(Some(error.into())),
        other => other,
    }
}

/// Reads the fetched records, except those that were checked when they arrived.
fn read_back(
    log: &Log,
    id: ArenaId,
    assembly: &ArenaAssembly,
    arrival: &ArenaArrival,
) -> Result<Option<RecordsDamage>, ReadLogError> {
    let opened = log.open_arena(id)?;
    let records = ArenaRecords::read(log, &opened)?;
    let mut window = log.window(&opened, AHEAD_BYTES);
    for record in records.within(&(0..u64::MAX)) {
        let (arena, offset) = (id, record.granule.byte_offset());
        if arrival.has_checked(record.granule, &record.code) {
            continue;
        }
        if window.authenticate(record.granule)?.code != record.code {
            return Err(ReadLogError::Forged { arena, offset, what: "record" });
        }
    }
    if records.damage.is_none() && records.seal.is_none() && assembly.is_sealed() {
        return Ok(Some(RecordsDamage::SealLost { arena: id, offset: records.log_bytes() }));
    }
    // Whole records without a page may follow the last page, but nothing torn.
    if records.damage.is_none() && records.seal.is_none() && log.keys().can_read() {
        let found = log.scan(&opened)?;
        if log.end(&opened, &found)? != ArenaEnd::Whole {
            return Ok(Some(RecordsDamage::Gap { arena: id, offset: found.log_bytes }));
        }
        if let Some(last) = assembly.parts.last()
            && !ends_as_named(&mut window, &records, last)?
        {
            return Ok(Some(RecordsDamage::CutShort { arena: id, offset: last.name.offset }));
        }
    }
    Ok(records.damage)
}

/// Returns true if the last segment of an arena without a seal ends with the record that its name
/// gives. An interrupted upload may leave records at the end that no page names yet.
fn ends_as_named(
    window: &mut ArenaWindow<'_>,
    records: &ArenaRecords,
    last: &ListedSegment,
) -> Result<bool, ReadLogError> {
    let SegmentEnd::Record(code) = last.name.end else { return Ok(false) };
    let (mut end, mut place) = (records.end_of(&code), records.log_bytes());
    while end.is_none() && place < last.range().end {
        let Some(granule) = Granule::at_or_after(place) else { break };
        let header = window.authenticate(granule)?;
        let Some(next) = header.next() else { break };
        place = next.byte_offset();
        end = (header.code == code).then_some(place);
    }
    Ok(end == Some(last.range().end))
}
