//! A machine in QEMU with disks of this program: started, checked or used, and ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_archive::{Firmware, Machine};
use varve_block::with_causes;
use varve_content::image::SectorSizes;
use varve_image::ReadAt;
use varve_machine::PrivateFolder;
use varve_machine::boot::{
    Accelerator, BootDisk, BootError, BootSign, Bus, CheckWatch, Emulator, Hardware, KeptWrites, Screen,
    StartVariables, USUAL_SECTOR_BYTES, check,
};
use varve_serve::nbd::{
    Endpoint, FewDisks, NbdServer, NbdSettings, OneDisk, Overlay, RecordedDisk, ServedDisk,
};
use varve_session::Interrupted;
use varve_world::Timestamp;

use super::super::serve::unnamed_file;
use super::terminal::RawTerminal;
use crate::arguments::{BusChoice, FirmwareChoice, MachineArgs};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// KVM either fails within this time after the start of a machine, or not at all.
const GIVES_UP_WITHIN: Duration = Duration::from_secs(120);
/// Poll interval for a running machine.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Minimum interval between two checks whether the machine is paused for lack of disk space. A
/// paused machine is resumed at each check.
const ROOM_EVERY: Duration = Duration::from_secs(2);
const NO_ROOM: &str =
    "the machine is paused: there is no space for its writes; it continues as soon as there is some";
const AGAIN: &str = "KVM failed with this machine: it is restarted with software emulation, which is slower";

/// Returns the machine's hardware: from its recorded description or a guess from the disk,
/// overridden by the arguments.
pub(in crate::command::serving) fn hardware(
    args: &MachineArgs,
    memory: Option<u64>,
    described: Option<&Machine>,
    disk: Arc<dyn ReadAt>,
) -> Hardware {
    let mut hardware = Hardware::of(described, disk);
    if let Some(memory) = memory {
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
    hardware
}

pub(in crate::command::serving) fn bus_of(choice: BusChoice) -> Bus {
    match choice {
        BusChoice::Virtio => Bus::Virtio,
        BusChoice::Ide => Bus::Ide,
        BusChoice::Sata => Bus::Sata,
        BusChoice::Scsi => Bus::Scsi,
        BusChoice::Nvme => Bus::Nvme,
    }
}

/// A drive of the machine.
pub(in crate::command::serving) struct BootDrive {
    /// The name of its export, which a kept qcow2 names as well.
    pub(in crate::command::serving) export: String,
    pub(in crate::command::serving) bus: Bus,
    /// The place of its device on the first PCI bus, if that is known.
    pub(in crate::command::serving) pci_address: Option<u8>,
    /// The sizes of its sectors; `None` for the usual ones.
    pub(in crate::command::serving) sectors: Option<SectorSizes>,
    /// Its place in the boot order of the firmware, from 1 on.
    pub(in crate::command::serving) boot_index: u64,
    pub(in crate::command::serving) disk: Arc<dyn ServedDisk>,
    pub(in crate::command::serving) writes: DriveWrites,
}

/// The place of a drive's writes.
pub(in crate::command::serving) enum DriveWrites {
    /// They are discarded at the end, and before each start.
    Discarded,
    /// They are kept in a qcow2 over the disk.
    InQcow2(KeptWrites),
    /// The disk itself takes them.
    InDisk,
}

/// Starts the machine, again if necessary.
pub(in crate::command::serving) struct MachineStarter {
    hardware: Hardware,
    drives: Vec<BootDrive>,
    /// The file that keeps the writes of the first drive.
    kept_in: Option<PathBuf>,
    variables: StartVariables,
    /// Holds the sockets and QEMU's output.
    folder: PrivateFolder,
    settings: NbdSettings,
    server: Option<NbdServer>,
    /// The disk whose reads become a profile.
    recording: Option<Arc<RecordedDisk>>,
}

impl MachineStarter {
    pub(in crate::command::serving) fn new(
        hardware: Hardware,
        drives: Vec<BootDrive>,
        kept_in: Option<PathBuf>,
        recording: Option<Arc<RecordedDisk>>,
        settings: NbdSettings,
    ) -> Result<Self> {
        let folder = PrivateFolder::create("varve-boot-").context("cannot make a temporary folder")?;
        let kept = kept_in.as_deref().map(KeptWrites::variables);
        let kept = kept.map(std::path::absolute).transpose()?;
        let variables = StartVariables { archived: None, kept };
        Ok(Self { hardware, drives, kept_in, variables, folder, settings, server: None, recording })
    }

    /// Chooses the UEFI variables with which the machine begins. Without it, they are fresh, and
    /// kept beside the writes of the first drive.
    pub(in crate::command::serving) fn begin_with(&mut self, variables: StartVariables) {
        self.variables = variables;
    }

    /// Warns if the machine cannot find the partitions of a disk, because of the size of its
    /// sectors.
    pub(in crate::command::serving) fn warn_of_sectors(&self) {
        for drive in &self.drives {
            let bytes = drive.sectors.map_or(USUAL_SECTOR_BYTES, SectorSizes::logical);
            if !drive.bus.can_have(bytes) {
                warning!(
                    "{} has sectors of {bytes} bytes, and is attached with sectors of {USUAL_SECTOR_BYTES}: its bus has no others, and its partitions may not be found; --bus virtio has them",
                    drive.export
                );
            } else if bytes != USUAL_SECTOR_BYTES
                && drive.boot_index == 1
                && self.hardware.firmware != Firmware::Uefi
            {
                warning!(
                    "{} has sectors of {bytes} bytes, from which no BIOS starts: --firmware uefi may",
                    drive.export
                );
            }
        }
    }

    /// Says which machine is started, from a disk of this name and time.
    pub(in crate::command::serving) fn announce(&self, name: &str, time: Timestamp) {
        let firmware = match self.hardware.firmware {
            Firmware::Uefi if self.variables.archived.is_some() => "UEFI with the variables of the machine",
            Firmware::Uefi => "UEFI",
            Firmware::Bios | Firmware::Unknown => "BIOS",
        };
        let written = match &self.kept_in {
            Some(path) => format!("its writes are kept in {}", path.display()),
            None => "its writes are discarded".into(),
        };
        let network = if self.hardware.network { "with a network" } else { "no network" };
        let drives = match self.drives.len() {
            1 => String::new(),
            count => format!("{count} drives, "),
        };
        notice!(
            "{} as it was {}: {} of memory, {firmware}, {drives}{network}; {written}",
            show::name(name.as_bytes()),
            moment::show(time),
            show::bytes(self.hardware.memory),
        );
    }

    /// Runs the machine until it ends, is up (`--check`), or `is_cancelled` is set.
    pub(in crate::command::serving) fn run(
        &mut self,
        invocation: &Invocation,
        args: &MachineArgs,
        is_cancelled: &Arc<AtomicBool>,
    ) -> Result<CommandOutcome> {
        match &args.check {
            Some(text) => check_machine(invocation, args, text.as_deref(), self, is_cancelled),
            None => use_machine(invocation, args, self, is_cancelled),
        }
    }

    fn start(&mut self, screen: &Screen, accelerator: Accelerator, with_console: bool) -> Result<Emulator> {
        let socket = self.folder.path().join("disk");
        // The previous attempt has ended. Its server and its writes are dropped with it.
        self.server = None;
        self.recording.iter().for_each(|disk| disk.begin_again());
        let (mut served, mut disks) = (Vec::new(), Vec::new());
        for drive in &self.drives {
            let (disk, kept): (Arc<dyn ServedDisk>, _) = match &drive.writes {
                DriveWrites::Discarded => {
                    (Arc::new(Overlay::throw_away(Arc::clone(&drive.disk), unnamed_file()?)?), None)
                }
                DriveWrites::InQcow2(kept) => (Arc::clone(&drive.disk), Some(kept)),
                DriveWrites::InDisk => (Arc::clone(&drive.disk), None),
            };
            served.push(OneDisk::new(vec![drive.export.clone()], String::new(), disk));
            disks.push(BootDisk {
                socket: socket.clone(),
                export: drive.export.clone(),
                kept: kept.map(|kept| std::path::absolute(&kept.path)).transpose()?,
                bus: drive.bus,
                pci_address: drive.pci_address,
                sectors: drive.sectors,
                boot_index: drive.boot_index,
            });
        }
        let endpoint = Endpoint::Unix(socket);
        let server = NbdServer::start(&endpoint, Arc::new(FewDisks(served)), self.settings.clone());
        self.server = Some(server.context("the disks cannot be served to QEMU")?);
        let (variables, folder) = (&self.variables, self.folder.path());
        Ok(Emulator::start(&self.hardware, &disks, variables, screen, accelerator, folder, with_console)?)
    }
}

fn check_machine(
    invocation: &Invocation,
    args: &MachineArgs,
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
        starts_again: &|| warning!("{AGAIN}"),
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
            notice!("its last output:\n{}", checked.said);
        }
    }
    Ok(if checked.is_up { CommandOutcome::Done } else { CommandOutcome::Failed })
}

fn use_machine(
    invocation: &Invocation,
    args: &MachineArgs,
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
                warning!("{AGAIN}\r");
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
            warning!("{AGAIN}\r");
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
                    warning!("{NO_ROOM}\r");
                }
                machine.try_again();
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
