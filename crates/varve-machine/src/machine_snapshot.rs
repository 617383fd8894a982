//! Archives the disks of a running machine at one moment, while it runs.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use varve_archive::{
    Archive, LeftOutRecord, Machine, NameTaken, Snapshot, SnapshotContent, SnapshotId, SnapshotRequest,
    TakeError, TakenSnapshot,
};
use varve_block::{visible, with_causes};
use varve_content::Progress;
use varve_content::image::{
    ArchiveImageError, CachedBlocks, ContentRun, ImageCut, ImageReader, ImageSource, ReadRequest,
    ReadRequestError, SectorSizes, ServedImage, image_shape,
};
use varve_image::{FilePlaces, LeaveOut, LeftOut, Ranges, ReadAt};
use varve_store::Permission;
use varve_tree::{EarlierTree, Entry, Layout};
use varve_world::Timestamp;

use crate::agent::{Agent, AgentError};
use crate::chain::{BitmapChain, BitmapName, StoreTag, TrustedBitmap, find};
use crate::description::{describe, has_thread, sector_sizes};
use crate::drives::{DriveRole, RunningDrive, list};
use crate::held_moment::{DriveToHold, HeldMoment, HoldError, dismantle, part, prepare};
use crate::left_out::{NeverUnchanged, left_out_before};
use crate::nbd_disk::{NbdDisk, NbdDiskOptions};
use crate::qmp::{Qmp, QmpError};
use crate::records;
use crate::unarchived::unarchived;

/// The name of the snapshot of the UEFI variables, after the name of the machine.
const VARIABLES_NAME: &str = "uefi";
/// The number of connections over which a drive is read.
const CONNECTION_COUNT: usize = 4;
/// Older versions of QEMU may crash, together with the machine, when a client disconnects from an
/// NBD export of a drive with an I/O thread. Its assertion in `nbd_blockdev_client_closed` is the
/// frequent case.
const VERSION_OF_THREADS: (u64, u64, u64) = (8, 2, 1);
/// The space that must remain in the scratch folder. The snapshot is given up before the machine's
/// writes run out of space.
const SCRATCH_ROOM_MIN: u64 = 64 << 20;
/// The space is checked once in this many reads.
const READS_A_LOOK: u64 = 16;

/// The options of a snapshot of a running machine.
#[derive(Debug, Clone)]
pub struct MachineSnapshotOptions {
    /// The socket of the machine's monitor.
    pub qmp: PathBuf,
    /// The socket of the guest agent, if the guest's file systems are to be frozen at the moment of
    /// the snapshot.
    pub agent: Option<PathBuf>,
    /// The drives; all disks if empty. The variables of the firmware are archived with any of them.
    pub drives: Vec<String>,
    /// The folder for the data that the machine overwrites meanwhile.
    pub scratch: PathBuf,
    /// Read everything, including unchanged data.
    pub whole: bool,
    /// Archive swap as it is.
    pub keep_swap: bool,
    /// Cut the disks where their files begin.
    pub cut_at_files: bool,
    /// The time limit for an answer of QEMU or the agent.
    pub patience: Duration,
}

/// The extent of the read of a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadExtent {
    /// Only the changes since an earlier snapshot.
    Since {
        snapshot: SnapshotId,
        /// The moment that the snapshot shows.
        time: Timestamp,
    },
    /// Everything except holes.
    Whole { reason: String },
}

/// A drive that was archived.
#[derive(Debug, Clone)]
pub struct TakenDrive {
    /// The machine's name for it.
    pub drive: String,
    /// True if it is no disk, but the flash memory with the variables of the firmware.
    pub is_firmware: bool,
    /// Its snapshot.
    pub taken: TakenSnapshot,
    /// The extent of the read.
    pub reading: ReadExtent,
    /// The bytes that were read.
    pub read_bytes: u64,
    /// The parts that were archived as zeros instead of being read.
    pub left_out: LeftOut,
}

/// Callbacks during a snapshot.
#[derive(Clone, Copy)]
pub struct MachineSnapshotWatch<'a> {
    /// The progress of the drive that is being read.
    pub progress: &'a Progress,
    /// A drive was begun: the name of its snapshot.
    pub begun: &'a dyn Fn(&str),
    /// A drive is done.
    pub done: &'a dyn Fn(&TakenDrive),
    /// A warning; the snapshot continues.
    pub warn: &'a dyn Fn(&str),
}

/// The reason why the run failed. Drives that were reported as done are archived.
#[derive(Debug, thiserror::Error)]
pub enum MachineSnapshotError {
    /// QEMU failed.
    #[error("{0}")]
    Qmp(#[from] QmpError),
    /// The name of a drive's snapshot already belongs to another source.
    #[error("{0}")]
    Name(#[from] NameTaken),
    /// The moment could not be held.
    #[error("{0}")]
    Hold(#[from] HoldError),
    /// The guest could not be frozen.
    #[error("{0}")]
    Agent(#[from] AgentError),
    #[error("the machine has no drive {wanted}; it has {}", if known.is_empty() { "none".to_owned() } else { visible(&known.join(", ")) })]
    NoDrive {
        /// The requested name.
        wanted: String,
        /// The names of all drives.
        known: Vec<String>,
    },
    /// The machine has no disks.
    #[error("the machine has no writable disks")]
    NoDisks,
    /// Reading the drive may crash the machine.
    #[error(
        "{drive} has an I/O thread, and QEMU {version} may crash when such a drive is read over NBD: use QEMU 8.2.1 or newer, or the drive without its iothread", drive = visible(drive), version = format!("{}.{}.{}", version.0, version.1, version.2)
    )]
    Thread {
        drive: String,
        /// The version of QEMU.
        version: (u64, u64, u64),
    },
    /// Neither the user nor QEMU gives a name.
    #[error("the machine has no name: give one with --name, or start QEMU with -name")]
    NoName,
    /// The drive cannot be read.
    #[error("{drive}: cannot be read from QEMU", drive = visible(drive))]
    Connect { drive: String, source: io::Error },
    /// The snapshot of the drive failed.
    #[error("{drive} was not archived", drive = visible(drive))]
    Take { drive: String, source: TakeError },
}

/// A drive of this run, and the earlier snapshot on which its new one builds.
struct PlannedDrive {
    drive: RunningDrive,
    sectors: Option<SectorSizes>,
    reading: ReadExtent,
    since: Option<(TrustedBitmap, Entry)>,
    record: BitmapName,
    is_persistent: bool,
    /// Records that become useless once this snapshot is archived.
    superseded: Vec<String>,
}

/// Archives the drives of a running machine as they are at one moment. Each drive becomes a
/// snapshot of its own, which is durable when it is reported as done. When this returns, all
/// objects that were made in QEMU are removed, except the record of changes from now on.
///
/// # Errors
/// [`MachineSnapshotError`].
pub fn archive_machine_snapshot(
    archive: &mut Archive,
    options: &MachineSnapshotOptions,
    request: &SnapshotRequest,
    watch: MachineSnapshotWatch<'_>,
) -> Result<(), MachineSnapshotError> {
    let [a, b, c, d, ..] = archive.store().config().id;
    let store = StoreTag([a, b, c, d]);
    let mut qmp = Qmp::connect(&options.qmp, options.patience)?;
    let leftovers = dismantle(&mut qmp, store)?;
    if leftovers > 0 {
        (watch.warn)("an earlier run was killed: its leftovers in QEMU were removed");
    }
    let all = list(&mut qmp)?;
    let mut machine = describe(&mut qmp, &all)?;
    let sectors = sector_sizes(&mut qmp, &all)?;
    let chosen = choose(&all, &options.drives)?;
    for drive in &chosen {
        let version = qmp.version();
        if version < VERSION_OF_THREADS && has_thread(&mut qmp, drive)? {
            return Err(MachineSnapshotError::Thread { drive: drive.name.clone(), version });
        }
    }
    let mut planned = Vec::new();
    for drive in chosen {
        let place = all.iter().position(|other| other.node == drive.node);
        let sectors = place.and_then(|place| sectors.get(place).copied().flatten());
        planned.push(PlannedDrive { sectors, ..plan(archive, options, &mut qmp, store, &machine, drive)? });
    }
    let nodes: Vec<_> = planned.iter().map(|planned| planned.drive.node.as_str()).collect();
    let beside = unarchived(&mut qmp, &all, &nodes, !options.drives.is_empty())?;
    for described in &mut machine.drives {
        let of = planned.iter().find(|planned| planned.drive.name == described.name);
        described.snapshot = of.map(|planned| planned.record.snapshot);
    }
    let mut run = MachineSnapshot {
        archive,
        options,
        request,
        watch,
        store,
        machine,
        beside,
        planned: &planned,
        archived: Vec::new(),
        scratch: Vec::new(),
    };
    let qmp = Arc::new(Mutex::new(qmp));
    let taken = run.run(&qmp);
    let MachineSnapshot { archived, scratch, .. } = run;
    match clean_up(&mut qmp.lock(), store, &planned, &archived) {
        // A paused machine keeps the files open until it continues; truncation frees their space at
        // once. If that fails, the space is freed later.
        Ok(()) => scratch.iter().for_each(|file| drop(file.set_len(0))),
        Err(error) => {
            let said = format!(
                "the objects of this run could not all be removed from QEMU; the next run tries again: {}",
                with_causes(&error)
            );
            (watch.warn)(&said);
        }
    }
    taken
}

/// Returns the selected drives: all disks, or those that the user names. The variables of the
/// firmware always come with them, because a disk may not start without. They come first, so that
/// the latest snapshot is that of a disk.
fn choose<'a>(
    all: &'a [RunningDrive],
    wanted: &[String],
) -> Result<Vec<&'a RunningDrive>, MachineSnapshotError> {
    if wanted.is_empty() {
        let disks: Vec<_> = all.iter().filter(|drive| drive.role == DriveRole::Disk).collect();
        if disks.is_empty() {
            return Err(MachineSnapshotError::NoDisks);
        }
        return Ok(variables(all).into_iter().chain(disks).collect());
    }
    let mut chosen: Vec<&RunningDrive> = variables(all).into_iter().collect();
    for word in wanted {
        let meant = all.iter().find(|drive| drive.name == *word || drive.names.contains(word));
        let meant = meant.ok_or_else(|| MachineSnapshotError::NoDrive {
            wanted: word.clone(),
            known: all.iter().map(|drive| drive.name.clone()).collect(),
        })?;
        if !chosen.iter().any(|drive| drive.node == meant.node) {
            chosen.push(meant);
        }
    }
    Ok(chosen)
}

fn variables(all: &[RunningDrive]) -> Option<&RunningDrive> {
    all.iter().find(|drive| drive.role == DriveRole::FirmwareVariables)
}

/// Decides on the earlier snapshot to build on, and tidies the records that earlier runs have left.
fn plan(
    archive: &Archive,
    options: &MachineSnapshotOptions,
    qmp: &mut Qmp,
    store: StoreTag,
    machine: &Machine,
    drive: &RunningDrive,
) -> Result<PlannedDrive, MachineSnapshotError> {
    let BitmapChain { mut since, useless } =
        find(store, &drive.bitmaps, &|id| rank(archive, options, machine, drive, id));
    let mut superseded = Vec::new();
    if let Err(reason) = may_build(archive, options) {
        // If this snapshot fails, the next one may still use the present records.
        let known = since.into_iter().flat_map(|since| [Some(since.record), since.goes_on]);
        superseded = known.flatten().chain(useless).collect();
        since = Err(reason);
    } else {
        for name in &useless {
            records::remove(qmp, drive, name)?;
        }
    }
    if let Ok(TrustedBitmap { record, goes_on, .. }) = &mut since
        && let Some(goes_on) = goes_on.take()
    {
        match records::join(qmp, drive, record, &goes_on) {
            Err(QmpError::Refused { said, .. }) => {
                since = Err(format!("QEMU cannot join the records of changes: {said}"));
            }
            joined => joined?,
        }
    }
    let id = archive
        .draw_id()
        .map_err(|source| MachineSnapshotError::Take { drive: drive.name.clone(), source })?;
    let record = BitmapName { store, snapshot: id, before: since.as_ref().ok().map(|since| since.snapshot) };
    let is_persistent = records::can_persist(qmp, drive, record)?;
    let base = |since: TrustedBitmap| {
        let snapshot = find_snapshot(archive, &since.snapshot)?;
        match &snapshot.content {
            SnapshotContent::Image(entry) => Some((since, *entry, snapshot.time)),
            SnapshotContent::Folder(_) => None,
        }
    };
    let (reading, since) = match since.map(base) {
        Ok(Some((since, entry, time))) => {
            (ReadExtent::Since { snapshot: since.snapshot, time }, Some((since, entry)))
        }
        Ok(None) => {
            (ReadExtent::Whole { reason: "the previous snapshot is not in the catalog".into() }, None)
        }
        Err(reason) => (ReadExtent::Whole { reason }, None),
    };
    Ok(PlannedDrive {
        drive: drive.clone(),
        sectors: None,
        reading,
        since,
        record,
        is_persistent,
        superseded,
    })
}

/// Checks that any earlier snapshot may be used at all.
fn may_build(archive: &Archive, options: &MachineSnapshotOptions) -> Result<(), String> {
    if options.whole {
        return Err("--reread was given".into());
    }
    if !archive.store().role().allows(Permission::Read) {
        return Err("the key may not read the previous snapshot".into());
    }
    if !archive.store().lost_blocks().is_empty() {
        return Err("the store has lost blocks, which a complete read may bring back".into());
    }
    Ok(())
}

fn find_snapshot<'a>(archive: &'a Archive, id: &SnapshotId) -> Option<&'a Snapshot> {
    archive.snapshots().iter().find(|snapshot| snapshot.id == *id)
}

/// The variables of the firmware have no files.
fn cuts_at_files(options: &MachineSnapshotOptions, drive: &RunningDrive) -> bool {
    options.cut_at_files && drive.role != DriveRole::FirmwareVariables
}

/// Returns the age order of an archived snapshot of this drive, or the reason why it cannot be
/// used.
fn rank(
    archive: &Archive,
    options: &MachineSnapshotOptions,
    machine: &Machine,
    drive: &RunningDrive,
    id: &SnapshotId,
) -> Result<u64, String> {
    let place = archive.snapshots().iter().position(|snapshot| snapshot.id == *id);
    let not_archived =
        "the snapshot at which the record of changes begins was not finished, or is not in the archive";
    let (Some(place), Some(snapshot)) = (place, find_snapshot(archive, id)) else {
        return Err(not_archived.into());
    };
    let SnapshotContent::Image(entry) = &snapshot.content else { return Err(not_archived.into()) };
    let shape = image_shape(archive.store().config().block_bytes);
    if !archive.believes(snapshot) {
        return Err("the previous snapshot may be of a write-only key, which is not believed".into());
    }
    if (entry.layout() == Layout::ContentCut) != cuts_at_files(options, drive) {
        return Err("the previous snapshot was cut at other places".into());
    }
    if !cuts_at_files(options, drive) && EarlierTree::new(archive.store(), entry, &shape).is_none() {
        return Err("the previous snapshot has another block size".into());
    }
    if entry.size() != drive.size {
        return Err(format!(
            "the disk had {} bytes in the previous snapshot, and has {} now",
            entry.size(),
            drive.size
        ));
    }
    let Some(before) = &snapshot.machine else {
        return Err("the previous snapshot was not taken from a machine".into());
    };
    if (&before.name, &before.uuid) != (&machine.name, &machine.uuid) {
        return Err("the previous snapshot was taken from another machine".into());
    }
    let same_drive = before
        .drives
        .iter()
        .any(|other| other.snapshot == Some(*id) && (&other.name, &other.file) == (&drive.name, &drive.file));
    if !same_drive {
        return Err("the previous snapshot was taken from another drive or file".into());
    }
    u64::try_from(place).map_err(|_| not_archived.into())
}

struct MachineSnapshot<'a> {
    archive: &'a mut Archive,
    options: &'a MachineSnapshotOptions,
    request: &'a SnapshotRequest,
    watch: MachineSnapshotWatch<'a>,
    store: StoreTag,
    machine: Machine,
    /// The parts of the machine that are not archived.
    beside: Vec<LeftOutRecord>,
    planned: &'a [PlannedDrive],
    /// The new snapshots that are in the catalog.
    archived: Vec<SnapshotId>,
    /// The scratch files, as long as QEMU uses them.
    scratch: Vec<Arc<File>>,
}

impl MachineSnapshot<'_> {
    fn run(&mut self, qmp: &Arc<Mutex<Qmp>>) -> Result<(), MachineSnapshotError> {
        let names = self.names()?;
        let patience = self.options.patience;
        let mut agent =
            self.options.agent.as_deref().map(|path| Agent::connect(path, patience)).transpose()?;
        let drives: Vec<_> = self.planned.iter().map(|planned| &planned.drive).collect();
        let point = prepare(&mut qmp.lock(), self.store, &drives, &self.options.scratch)?;
        self.scratch.clone_from(&point.scratch);
        let time = self.hold(&mut qmp.lock(), &point, agent.as_mut())?;
        let mut disks = Vec::new();
        for (number, planned) in self.planned.iter().enumerate() {
            disks.push(self.open(&mut qmp.lock(), &point, number, planned)?);
        }
        for ((planned, name), (disk, scratch)) in
            self.planned.iter().zip(&names).zip(disks.into_iter().zip(point.scratch))
        {
            (self.watch.begun)(name);
            let held = HeldDisk {
                disk,
                scratch,
                reads: AtomicU64::new(0),
                qmp: Arc::clone(qmp),
                store: self.store,
                drive_count: self.planned.len(),
            };
            let taken = self.take(planned, Arc::new(held), name, time)?;
            self.archived.push(planned.record.snapshot);
            (self.watch.done)(&taken);
        }
        Ok(())
    }

    /// Returns the name of each drive's snapshot.
    fn names(&self) -> Result<Vec<String>, MachineSnapshotError> {
        let given = Some(&self.request.name).filter(|name| !name.is_empty());
        let is_firmware = |planned: &PlannedDrive| planned.drive.role == DriveRole::FirmwareVariables;
        let disk_count = self.planned.iter().filter(|planned| !is_firmware(planned)).count();
        let machine = given.or(Some(&self.machine.name).filter(|name| !name.is_empty()));
        let machine = machine.ok_or(MachineSnapshotError::NoName)?;
        let has_namesake = self.planned.iter().any(|planned| planned.drive.name == VARIABLES_NAME);
        let name = |planned: &PlannedDrive| {
            let part = match is_firmware(planned) {
                false if given.is_some() && disk_count == 1 => return machine.clone(),
                true if !has_namesake => VARIABLES_NAME,
                _ => planned.drive.name.as_str(),
            };
            format!("{machine}-{part}").replace([':', '@', '/'], "-")
        };
        Ok(self.planned.iter().map(name).collect())
    }

    /// Takes the moment. The guest's file systems are frozen for its duration.
    fn hold(
        &self,
        qmp: &mut Qmp,
        point: &HeldMoment,
        agent: Option<&mut Agent>,
    ) -> Result<Timestamp, MachineSnapshotError> {
        let held: Vec<_> = self
            .planned
            .iter()
            .map(|planned| DriveToHold {
                drive: &planned.drive,
                since: planned.since.as_ref().map(|(since, _)| since),
                record: planned.record,
                is_persistent: planned.is_persistent,
            })
            .collect();
        let frozen = agent.map(Agent::freeze).transpose()?;
        let time = self.archive.store().world().clock.now();
        let done = point.hold(qmp, &held);
        // The guest is thawed first, regardless of the result.
        let thawed = frozen.map_or(Ok(()), crate::agent::FrozenGuest::thaw);
        done?;
        if let Err(error) = thawed {
            (self.watch.warn)(&format!("the guest may still be frozen: {}", with_causes(&error)));
        }
        Ok(time)
    }

    fn open(
        &self,
        qmp: &mut Qmp,
        point: &HeldMoment,
        number: usize,
        planned: &PlannedDrive,
    ) -> Result<NbdDisk, MachineSnapshotError> {
        let record = planned.since.as_ref().map(|(since, _)| since.record.as_str());
        point.export(qmp, number, record)?;
        let options = NbdDiskOptions {
            export: part(self.store, number),
            changes: record.map(|record| format!("qemu:dirty-bitmap:{record}")),
            connection_count: CONNECTION_COUNT,
            patience: self.options.patience,
        };
        let failed = |source| MachineSnapshotError::Connect { drive: planned.drive.name.clone(), source };
        let disk = NbdDisk::connect(&point.socket(), &options).map_err(failed)?;
        if disk.size() != planned.drive.size {
            let said = format!("it has {} bytes, but QEMU reported {}", disk.size(), planned.drive.size);
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, said)));
        }
        Ok(disk)
    }

    fn take(
        &mut self,
        planned: &PlannedDrive,
        held: Arc<HeldDisk>,
        name: &str,
        time: Timestamp,
    ) -> Result<TakenDrive, MachineSnapshotError> {
        let drive = planned.drive.name.clone();
        let request = SnapshotRequest {
            name: name.to_owned(),
            time: self.request.time.or(Some(time)),
            source: planned.drive.file.clone().into_bytes(),
            id: Some(planned.record.snapshot),
            machine: Some(self.machine.clone()),
            sectors: planned.sectors,
            ..self.request.clone()
        };
        self.archive.check_name(&request)?;
        let block_bytes = self.archive.store().config().block_bytes;
        let before = self.watch.progress.snapshot().bytes_read;
        let path = Path::new(&drive);
        let earlier = planned.since.as_ref().map(|(_, entry)| *entry);
        let left_out_earlier: io::Result<_> =
            earlier.map(|earlier| Ok((earlier, self.left_out_of(&earlier)?))).transpose();
        let failed = |source| MachineSnapshotError::Connect { drive: drive.clone(), source };
        let left_out = self.left_out(&held, path).map_err(failed)?;
        let request = SnapshotRequest {
            left_out: [self.beside.clone(), LeftOutRecord::list(&left_out)].concat(),
            problem_count: left_out.fast_commits().len() as u64,
            ..request
        };
        let files = match cuts_at_files(self.options, &planned.drive) {
            true => Some(self.file_places(&held, path).map_err(failed)?),
            false => None,
        };
        let cut = files.as_ref().map_or(ImageCut::Fixed(block_bytes), ImageCut::AtFiles);
        let mut archive_from = |earlier: Option<Entry>, left_out_before: Ranges| {
            let mut places = left_out_before;
            places.extend(left_out.ranges().iter());
            let disk = NeverUnchanged { disk: Arc::clone(&held), places };
            let source = ImageSource::served(Box::new(disk), path, earlier);
            let source = source.leaving_out(left_out.ranges().clone());
            self.archive.take_image(&source, cut, request.clone(), self.watch.progress)
        };
        let mut reading = planned.reading.clone();
        let mut read_whole = |damage: &dyn std::error::Error| {
            let reason = format!("the previous snapshot is damaged: {}", with_causes(damage));
            reading = ReadExtent::Whole { reason };
        };
        let taken = match left_out_earlier {
            Ok(None) => archive_from(None, Ranges::default()),
            Ok(Some((earlier, left_out_before))) => match archive_from(Some(earlier), left_out_before) {
                // The moment is still held, so the whole drive is read, and lost blocks are stored
                // again.
                Err(TakeError::Image(ArchiveImageError::Earlier(damage))) => {
                    read_whole(&damage);
                    archive_from(None, Ranges::default())
                }
                taken => taken,
            },
            Err(damage) => {
                read_whole(&damage);
                archive_from(None, Ranges::default())
            }
        };
        let taken = taken.map_err(|source| MachineSnapshotError::Take { drive: drive.clone(), source })?;
        let read_bytes = self.watch.progress.snapshot().bytes_read.saturating_sub(before);
        let is_firmware = planned.drive.role == DriveRole::FirmwareVariables;
        Ok(TakenDrive { drive, is_firmware, taken, reading, read_bytes, left_out })
    }

    /// Returns the places of the files of the disk, at the moment of the snapshot.
    fn file_places(&self, held: &Arc<HeldDisk>, path: &Path) -> io::Result<FilePlaces> {
        let places = |disk| FilePlaces::find(disk, &|| self.watch.progress.is_cancelled());
        Ok(reader(held, path)?.map(places).unwrap_or_default())
    }

    /// Returns the ranges in which a snapshot of this drive may differ from the disk.
    fn left_out_of(&self, entry: &Entry) -> io::Result<Ranges> {
        let blocks = Arc::new(CachedBlocks::new(self.archive.blocks()));
        left_out_before(ImageReader::new(blocks, entry), self.archive.store().config().block_bytes)
    }

    /// Returns the parts of the disk to leave out, at the moment of the snapshot.
    fn left_out(&self, held: &Arc<HeldDisk>, path: &Path) -> io::Result<LeftOut> {
        let wanted = LeaveOut { swap: !self.options.keep_swap, free: false };
        let found = reader(held, path)?.map(|disk| LeftOut::find(disk, wanted)).unwrap_or_default();
        for part in found.parts() {
            if let Some(reason) = &part.kept_because {
                let (what, volume) = (&part.what, &part.volume);
                (self.watch.warn)(&format!("{}: kept: {what} of {volume}: {reason}", path.display()));
            }
        }
        Ok(found)
    }
}

/// A reader of the disk at the moment of the snapshot.
fn reader(held: &Arc<HeldDisk>, path: &Path) -> io::Result<Option<Arc<dyn ReadAt>>> {
    ImageSource::served(Box::new(Arc::clone(held)), path, None).reader()
}

/// A drive as it was at the moment, as long as QEMU holds it.
struct HeldDisk {
    disk: NbdDisk,
    scratch: Arc<File>,
    reads: AtomicU64,
    qmp: Arc<Mutex<Qmp>>,
    store: StoreTag,
    drive_count: usize,
}

impl HeldDisk {
    /// Checks the free space: the machine's writes must neither wait for us nor fail for lack of
    /// space.
    fn check_room(&self) -> io::Result<()> {
        if !self.reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(READS_A_LOOK) {
            return Ok(());
        }
        let folder = rustix::fs::fstatvfs(&self.scratch)?;
        // A file system that does not tell its size says zero.
        let has_size = folder.f_blocks > 0;
        if has_size && folder.f_bavail.saturating_mul(folder.f_frsize) < SCRATCH_ROOM_MIN {
            let said = "the scratch folder is nearly full of data that the machine has overwritten meanwhile: choose one with more space with --scratch";
            return Err(io::Error::new(io::ErrorKind::StorageFull, said));
        }
        Ok(())
    }
}

impl ServedImage for HeldDisk {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn content_at(&self, offset: u64) -> io::Result<ContentRun> {
        self.disk.content_at(offset)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.check_room()?;
        self.disk.read_at(offset, into)
    }

    fn read_all(&self, places: &mut [ReadRequest<'_>]) -> Result<(), ReadRequestError> {
        let first = places.first().map_or(0, |place| place.offset);
        self.check_room().map_err(|source| ReadRequestError { offset: first, source })?;
        self.disk.read_all(places)
    }

    fn held_still(&self) -> io::Result<bool> {
        let is_held = HeldMoment::is_held(self.store, &mut self.qmp.lock(), self.drive_count)
            .map_err(io::Error::other)?;
        if is_held {
            return Ok(true);
        }
        Err(io::Error::other(
            "QEMU lost the frozen state of the disk before it was read completely: the data may mix two moments",
        ))
    }
}

/// Removes all objects of this run from QEMU, and leaves on each drive the one record that the next
/// run needs.
fn clean_up(
    qmp: &mut Qmp,
    store: StoreTag,
    planned: &[PlannedDrive],
    archived: &[SnapshotId],
) -> Result<(), QmpError> {
    if qmp.is_lost() {
        qmp.again()?;
    }
    dismantle(qmp, store)?;
    let drives = list(qmp)?;
    for PlannedDrive { drive, since, record, superseded, .. } in planned {
        // If the moment was never taken, there is no new record, and the old one was not stopped.
        let has_new = drives.iter().any(|now| {
            now.node == drive.node && now.bitmaps.iter().any(|bitmap| bitmap.name == record.to_string())
        });
        if has_new {
            let since = since.as_ref().map(|(since, _)| since);
            let is_archived = archived.contains(&record.snapshot);
            records::settle(qmp, drive, since, *record, is_archived)?;
            for name in superseded.iter().filter(|_| is_archived) {
                records::remove(qmp, drive, name)?;
            }
        }
    }
    Ok(())
}
