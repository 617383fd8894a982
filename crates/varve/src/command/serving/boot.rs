//! `varve boot`

mod firmware_variables;
pub(super) mod machine_run;
mod terminal;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use varve_archive::{Snapshot, SnapshotContent, SnapshotFilter};
use varve_content::image::{CachedBlocks, ImageReader, SectorSizes};
use varve_machine::boot::{Hardware, KeptWrites, attached, sectors_of};
use varve_serve::nbd::{NbdSettings, RecordedDisk, ServedDisk, SnapshotDisks};
use varve_session::{LeaseScope, UsageError};

use self::machine_run::{BootDrive, DriveWrites, MachineStarter, bus_of};
use super::serve::MOMENTS;
use crate::arguments::BootArgs;
use crate::command::choosing::chosen_snapshots::refuse_empty;
use crate::command::keeping::profile::NewProfile;
use crate::exit_status::INTERRUPTED;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::show;

/// Size of the cache of decompressed image blocks.
const LEAVES_BYTES: u64 = 128 << 20;

pub fn run(invocation: &Invocation, args: &BootArgs) -> Result<CommandOutcome> {
    let is_cancelled = cancelled_by_signals()?;
    let reading = invocation.session.reading()?;
    let blocks = reading.blocks();
    let cached = Arc::new(CachedBlocks::with_leaves_bytes(Arc::clone(&blocks) as _, LEAVES_BYTES));
    let snapshots = SnapshotDisks::new(reading.into_leased(LeaseScope::Used), Arc::clone(&cached), MOMENTS);
    let (snapshot, disk) = chosen(args, &snapshots)?;
    let profile = args.profile.as_deref().map(|path| NewProfile::create(invocation, path)).transpose()?;
    let recorded = profile.map(|file| (file, Arc::new(RecordedDisk::new(Arc::clone(&disk)))));
    let disk = match &recorded {
        Some((_, recorded)) => Arc::clone(recorded) as Arc<dyn ServedDisk>,
        None => disk,
    };
    let hardware = hardware(args, &snapshot, &cached)?;
    let drives = drives(args, &snapshots, &snapshot, &disk, &cached)?;
    let variables = firmware_variables::choose(args, &hardware, &snapshots, &snapshot, &cached)?;
    let recording = recorded.as_ref().map(|(_, disk)| Arc::clone(disk));
    let mut starter =
        MachineStarter::new(hardware, drives, args.keep.clone(), recording, NbdSettings::default())?;
    starter.begin_with(variables);
    starter.warn_of_sectors();
    if !invocation.quiet && !invocation.json {
        starter.announce(&snapshot.name, snapshot.time);
    }
    let outcome = starter.run(invocation, &args.machine, &is_cancelled);
    invocation.session.report_lost(&blocks);
    if let Some((file, disk)) = recorded {
        file.write_recorded(&disk)?;
    }
    outcome
}

/// Returns the chosen snapshot: the named one, or the one below the kept overlay.
fn chosen(args: &BootArgs, snapshots: &SnapshotDisks) -> Result<(Snapshot, Arc<dyn ServedDisk>)> {
    let below = match &args.keep {
        Some(path) => KeptWrites::read(path)?.map(|kept| kept.snapshot),
        None => None,
    };
    let missing = || {
        let path = args.keep.as_deref().unwrap_or(Path::new("")).display();
        UsageError(format!("no snapshot is given, and {path}, which would name it, does not exist yet"))
    };
    let name = args.snapshot.as_deref().or(below.as_deref()).ok_or_else(missing)?;
    refuse_empty(name)?;
    let (snapshot, served) = snapshots.find_snapshot(name, &args.which.filter())?;
    if let Some(below) = below.as_ref().filter(|below| **below != snapshot.id.to_string()) {
        let path = args.keep.as_deref().unwrap_or(Path::new("")).display();
        bail!("{path} keeps the writes over the snapshot {below}, but {name} is {}", snapshot.id);
    }
    Ok((snapshot, served.disk))
}

/// Returns the machine's hardware: from its recorded description or a guess from the disk,
/// overridden by the arguments.
fn hardware(args: &BootArgs, snapshot: &Snapshot, blocks: &Arc<CachedBlocks>) -> Result<Hardware> {
    let SnapshotContent::Image(entry) = &snapshot.content else {
        bail!("{} is a folder: only disk images can be booted", snapshot.name);
    };
    if let Some(machine) = snapshot.firmware_of() {
        let (name, machine) = (show::name(snapshot.name.as_bytes()), show::name(machine.name.as_bytes()));
        bail!("{name} has the UEFI variables of {machine}: boot one of its disks, which starts with them");
    }
    let bytes = Arc::new(ImageReader::new(Arc::clone(blocks), entry));
    Ok(machine_run::hardware(&args.machine, args.memory, snapshot.machine.as_ref(), bytes))
}

/// Returns all drives of the machine that were archived together with the chosen one and still
/// exist in the archive.
fn drives(
    args: &BootArgs,
    snapshots: &SnapshotDisks,
    snapshot: &Snapshot,
    disk: &Arc<dyn ServedDisk>,
    blocks: &Arc<CachedBlocks>,
) -> Result<Vec<BootDrive>> {
    let machine = snapshot.machine.as_ref();
    for drive in machine.iter().flat_map(|machine| &machine.drives) {
        // A CD in a drive is no disk.
        let is_disk = !drive.device.is_empty() && !drive.device.ends_with("-cd") && !drive.is_firmware();
        if is_disk && drive.snapshot.is_none() {
            warning!("{} is not attached: it was not archived", show::name(drive.name.as_bytes()));
        }
    }
    let mut drives = Vec::new();
    for mut drive in attached(machine, snapshot.id, disk.size()) {
        if let Some(bus) = args.machine.bus {
            drive.bus = bus_of(bus);
        }
        let id = drive.snapshot.to_string();
        let is_meant = drive.snapshot == snapshot.id;
        let (sectors, disk) = if is_meant {
            (disk_sectors(snapshot, blocks), Arc::clone(disk))
        } else {
            match snapshots.find_snapshot(&id, &SnapshotFilter::default()) {
                Ok((snapshot, served)) => (disk_sectors(&snapshot, blocks), served.disk),
                Err(error) => {
                    let name = show::name(drive.name.as_bytes());
                    warning!("{name} is not attached: its snapshot {id} cannot be opened: {error}");
                    continue;
                }
            }
        };
        let path = args.keep.as_ref().map(|path| match is_meant {
            true => path.clone(),
            false => KeptWrites::beside(path, &drive.name),
        });
        let kept = path.map(|path| kept_over(&path, &id, disk.size())).transpose()?;
        drives.push(BootDrive {
            export: id,
            bus: drive.bus,
            pci_address: drive.pci_address,
            sectors,
            boot_index: drive.boot_index,
            disk,
            writes: kept.map_or(DriveWrites::Discarded, DriveWrites::InQcow2),
        });
    }
    Ok(drives)
}

/// Returns the sizes of the sectors with which the disk of a snapshot is attached.
fn disk_sectors(snapshot: &Snapshot, blocks: &Arc<CachedBlocks>) -> Option<SectorSizes> {
    let SnapshotContent::Image(entry) = &snapshot.content else { return None };
    sectors_of(snapshot.sectors, Arc::new(ImageReader::new(Arc::clone(blocks), entry)))
}

/// Returns the overlay file that keeps what is written over a snapshot. Creates the file if
/// necessary.
fn kept_over(path: &Path, id: &str, size: u64) -> Result<KeptWrites> {
    match KeptWrites::read(path)? {
        None => Ok(KeptWrites::create(path, id, size)?),
        Some(kept) if kept.snapshot == id => Ok(kept),
        Some(kept) => {
            bail!("{} keeps the writes over the snapshot {}, not over {id}", path.display(), kept.snapshot)
        }
    }
}

/// Returns a flag that the first signal to end sets. A second signal ends the program at once, and
/// QEMU with it.
fn cancelled_by_signals() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::flag;
    let is_cancelled = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // This order matters: otherwise the first signal would find the flag that it has just set.
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&is_cancelled))?;
        flag::register(signal, Arc::clone(&is_cancelled))?;
    }
    Ok(is_cancelled)
}
