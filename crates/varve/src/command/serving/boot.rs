//! `varve boot`

mod terminal;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_archive::image::{CachedBlocks, ImageReader};
use varve_archive::{Firmware, Snapshot, SnapshotContent, SnapshotFilter};
use varve_block::with_causes;
use varve_machine::PrivateFolder;
use varve_machine::boot::{
    Accelerator, AttachedDrive, BootDisk, BootError, BootSign, Bus, CheckWatch, Emulator, Hardware,
    KeptWrites, Screen, attached, check,
};
use varve_serve::nbd::{
    Endpoint, FewDisks, NbdServer, NbdSettings, OneDisk, Overlay, RecordedDisk, ServedDisk, SnapshotDisks,
};
use varve_session::{Interrupted, LeaseScope, UsageError};

use self::terminal::RawTerminal;
use super::serve::{MOMENTS, unnamed_file};
use crate::arguments::{BootArgs, BusChoice, FirmwareChoice};
use crate::command::choosing::chosen_snapshots::refuse_empty;
use crate::command::keeping::profile::NewProfile;
use crate::exit_status::INTERRUPTED;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// Size of the cache of decompressed image blocks.
const LEAVES_BYTES: u64 = 128 << 20;
/// KVM either fails within this time after the start of a machine, or not at all.
const GIVES_UP_WITHIN: Duration = Duration::from_secs(120);
/// Poll interval for a running machine.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Minimum interval between two checks whether the machine is paused for lack of disk space. A
/// paused machine is resumed at each check.
const ROOM_EVERY: Duration = Duration::from_secs(2);
const NO_ROOM: &str =
    "varve: the machine is paused: there is no space for its writes; it continues as soon as there is some";
const AGAIN: &str =
    "varve: KVM failed with this machine: it is restarted with software emulation, which is slower";

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
    let drives = drives(args, &snapshots, &snapshot, &disk)?;
    let folder = PrivateFolder::create("varve-boot-").context("cannot make a temporary folder")?;
    let recording = recorded.as_ref().map(|(_, disk)| Arc::clone(disk));
    let mut starter =
        MachineStarter { hardware, drives, keep: args.keep.clone(), folder, server: None, recording };
    if !invocation.quiet && !invocation.json {
        starter.announce(&snapshot);
    }
    let outcome = match &args.check {
        Some(text) => check_machine(invocation, args, text.as_deref(), &mut starter, &is_cancelled),
        None => use_machine(invocation, args, &mut starter, &is_cancelled),
    };
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
    let bytes = Arc::new(ImageReader::new(Arc::clone(blocks), entry));
    let mut hardware = Hardware::of(snapshot.machine.as_ref(), bytes);
    if let Some(memory) = args.memory {
        hardware.memory = memory;
    }
    if let Some(count) = args.cpus {
        hardware.cpu_count = count.into();
    }
    if let Some(firmware) = args.firmware {
        hardware.firmware = match firmware {
            FirmwareChoice::Bios => Firmware::Bios,
            FirmwareChoice::Uefi => Firmware::Uefi,
        };
    }
    hardware.network = args.network;
    Ok(hardware)
}

/// A drive of the machine with its archived contents.
struct BootDrive {
    attached: AttachedDrive,
    disk: Arc<dyn ServedDisk>,
    kept: Option<KeptWrites>,
}

/// Returns all drives of the machine that were archived together with the chosen one and still
/// exist in the archive.
fn drives(
    args: &BootArgs,
    snapshots: &SnapshotDisks,
    snapshot: &Snapshot,
    disk: &Arc<dyn ServedDisk>,
) -> Result<Vec<BootDrive>> {
    let machine = snapshot.machine.as_ref();
    for drive in machine.iter().flat_map(|machine| &machine.drives) {
        // Firmware is no device of the guest, and a CD in a drive is no disk.
        let is_disk = !drive.device.is_empty() && !drive.device.ends_with("-cd");
        if is_disk && drive.snapshot.is_none() {
            remark!("varve: {} is not attached: it was not archived", show::name(drive.name.as_bytes()));
        }
    }
    let mut drives = Vec::new();
    for mut drive in attached(machine, snapshot.id, disk.size()) {
        if let Some(bus) = args.bus {
            drive.bus = bus_of(bus);
        }
        let id = drive.snapshot.to_string();
        let is_meant = drive.snapshot == snapshot.id;
        let disk = if is_meant {
            Arc::clone(disk)
        } else {
            match snapshots.find_snapshot(&id, &SnapshotFilter::default()) {
                Ok((_, served)) => served.disk,
                Err(error) => {
                    let name = show::name(drive.name.as_bytes());
                    remark!("varve: {name} is not attached: its snapshot {id} cannot be opened: {error}");
                    continue;
                }
            }
        };
        let path = args.keep.as_ref().map(|path| match is_meant {
            true => path.clone(),
            false => KeptWrites::beside(path, &drive.name),
        });
        let kept = path.map(|path| kept_over(&path, &id, disk.size())).transpose()?;
        drives.push(BootDrive { attached: drive, disk, kept });
    }
    Ok(drives)
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

fn bus_of(choice: BusChoice) -> Bus {
    match choice {
        BusChoice::Virtio => Bus::Virtio,
        BusChoice::Ide => Bus::Ide,
        BusChoice::Sata => Bus::Sata,
        BusChoice::Scsi => Bus::Scsi,
        BusChoice::Nvme => Bus::Nvme,
    }
}

/// Starts the machine, again if necessary, each time with its disks in their archived state.
struct MachineStarter {
    hardware: Hardware,
    drives: Vec<BootDrive>,
    keep: Option<PathBuf>,
    /// Holds the sockets and QEMU's output.
    folder: PrivateFolder,
    server: Option<NbdServer>,
    /// The disk whose reads become a profile.
    recording: Option<Arc<RecordedDisk>>,
}

impl MachineStarter {
    fn announce(&self, snapshot: &Snapshot) {
        let firmware = if self.hardware.firmware == Firmware::Uefi { "UEFI" } else { "BIOS" };
        let written = match &self.keep {
            Some(path) => format!("its writes are kept in {}", path.display()),
            None => "its writes are discarded".into(),
        };
        let network = if self.hardware.network { "with a network" } else { "no network" };
        let drives = match self.drives.len() {
            1 => String::new(),
            count => format!("{count} drives, "),
        };
        remark!(
            "{} as it was {}: {} of memory, {firmware}, {drives}{network}; {written}",
            snapshot.name,
            moment::show(snapshot.time),
            show::bytes(self.hardware.memory),
        );
    }

    fn start(&mut self, screen: &Screen, accelerator: Accelerator, with_console: bool) -> Result<Emulator> {
        let socket = self.folder.path().join("disk");
        // The previous attempt has ended. Its server and its writes are dropped with it.
        self.server = None;
        self.recording.iter().for_each(|disk| disk.begin_again());
        let (mut served, mut disks) = (Vec::new(), Vec::new());
        for drive in &self.drives {
            let id = drive.attached.snapshot.to_string();
            let disk: Arc<dyn ServedDisk> = match &drive.kept {
                Some(_) => Arc::clone(&drive.disk),
                None => Arc::new(Overlay::throw_away(Arc::clone(&drive.disk), unnamed_file()?)?),
            };
            served.push(OneDisk::new(vec![id.clone()], String::new(), disk));
            disks.push(BootDisk {
                socket: socket.clone(),
                export: id,
                kept: drive.kept.as_ref().map(|kept| std::path::absolute(&kept.path)).transpose()?,
                bus: drive.attached.bus,
                boot_index: drive.attached.boot_index,
            });
        }
        let endpoint = Endpoint::Unix(socket);
        let server = NbdServer::start(&endpoint, Arc::new(FewDisks(served)), NbdSettings::default());
        self.server = Some(server.context("the disks cannot be served to QEMU")?);
        let variables =
            self.keep.as_ref().map(|path| std::path::absolute(KeptWrites::variables(path))).transpose()?;
        let (variables, folder) = (variables.as_deref(), self.folder.path());
        Ok(Emulator::start(&self.hardware, &disks, variables, screen, accelerator, folder, with_console)?)
    }
}

fn check_machine(
    invocation: &Invocation,
    args: &BootArgs,
    text: Option<&str>,
    starter: &mut MachineStarter,
    is_cancelled: &Arc<AtomicBool>,
) -> Result<CommandOutcome> {
    let wanted = text.map_or(BootSign::Login, |text| BootSign::Text(text.into()));
    let screenshot = args.screenshot.as_deref().map(std::path::absolute).transpose()?;
    let watch = CheckWatch {
        timeout: args.timeout,
        screenshot: screenshot.as_deref(),
        is_cancelled: &|| is_cancelled.load(Ordering::Relaxed),
        starts_again: &|| remark!("{AGAIN}"),
    };
    let mut failure = None;
    let checked = check(&wanted, &watch, &mut |best| {
        let accelerator = if args.no_kvm { Accelerator::Software } else { best };
        starter.start(&Screen::None, accelerator, true).map_err(|error| match error.downcast::<BootError>() {
            Ok(error) => error,
            Err(error) => {
                let text = with_causes(error.as_ref());
                failure = Some(error);
                BootError::Prepare(std::io::Error::other(text))
            }
        })
    });
    if let Some(error) = failure {
        return Err(error);
    }
    let checked = checked?;
    if is_cancelled.load(Ordering::Relaxed) && !checked.is_up {
        bail!(Interrupted("interrupted before the machine was up"));
    }
    let seconds = checked.elapsed.as_secs_f64();
    if invocation.json {
        let value = json!({
            "up": checked.is_up, "seconds": seconds, "accelerator": checked.accelerator.to_string(), "said": checked.said,
            "ended": checked.ended,
        });
        say::record("boot_checked", value);
    } else if checked.is_up {
        say!("yes: it is up after {seconds:.1} s, with {}", checked.accelerator);
    } else {
        let why = checked.ended.unwrap_or_else(|| "that text did not appear".into());
        say!("no: after {seconds:.1} s, with {}: {why}", checked.accelerator);
        if !checked.said.is_empty() {
            remark!("its last output:\n{}", checked.said);
        }
    }
    Ok(if checked.is_up { CommandOutcome::Done } else { CommandOutcome::Failed })
}

fn use_machine(
    invocation: &Invocation,
    args: &BootArgs,
    starter: &mut MachineStarter,
    is_cancelled: &Arc<AtomicBool>,
) -> Result<CommandOutcome> {
    let has_windows = || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let (screen, with_console) = match &args.vnc {
        Some(address) => (Screen::Vnc(address.clone()), false),
        None if args.console || !has_windows() => (Screen::None, true),
        None => (Screen::Window, false),
    };
    let terminal = if with_console { Some(RawTerminal::take(Arc::clone(is_cancelled))?) } else { None };
    let mut accelerator = if args.no_kvm { Accelerator::Software } else { Accelerator::best() };
    loop {
        let mut machine = match starter.start(&screen, accelerator, with_console) {
            Err(error) if error.downcast_ref().is_some_and(|error: &BootError| error.is_of(accelerator)) => {
                remark!("{AGAIN}\r");
                accelerator = Accelerator::Software;
                continue;
            }
            started => started?,
        };
        if let Some(address) = machine.vnc_address().filter(|_| args.vnc.is_some()) {
            if invocation.json {
                say::record("screen", json!({ "address": address.to_string() }));
            } else {
                say!("its screen is at {address} (VNC)");
            }
        }
        if let (Some(terminal), Some(console)) = (&terminal, machine.console()) {
            terminal.connect(console)?;
        }
        if !wait_for_end(&mut machine, is_cancelled) {
            terminal.iter().for_each(RawTerminal::disconnect);
            drop(machine);
            remark!("{AGAIN}\r");
            accelerator = Accelerator::Software;
            continue;
        }
        let said = machine.said();
        let failed = machine.ended().is_some_and(|status| !status.success());
        drop(machine);
        // Show the machine's last output, and restore the terminal, before any other output.
        drop(terminal);
        if failed && !is_cancelled.load(Ordering::Relaxed) {
            bail!("QEMU has failed: {said}");
        }
        return Ok(CommandOutcome::Done);
    }
}

/// Waits until the machine ends. Returns `false` if the accelerator has failed.
#[expect(clippy::disallowed_methods, reason = "an interactive machine runs in real time")]
fn wait_for_end(machine: &mut Emulator, is_cancelled: &AtomicBool) -> bool {
    let started = Instant::now();
    let (mut asked_for_room, mut waits_for_room) = (started, false);
    loop {
        if machine.ended().is_some() || is_cancelled.load(Ordering::Relaxed) {
            return true;
        }
        if started.elapsed() < GIVES_UP_WITHIN && machine.has_given_up() {
            return false;
        }
        if asked_for_room.elapsed() >= ROOM_EVERY {
            asked_for_room = Instant::now();
            let waited = std::mem::replace(&mut waits_for_room, machine.waits_for_room());
            if waits_for_room {
                if !waited {
                    remark!("{NO_ROOM}\r");
                }
                machine.try_again();
            }
        }
        std::thread::sleep(LOOK_EVERY);
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
