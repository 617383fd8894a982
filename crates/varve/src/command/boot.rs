//! `varve boot`

mod terminal;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tempfile::TempDir;
use varve_archive::{CachedBlocks, Firmware, ImageReader, Snapshot, SnapshotContent};
use varve_machine::boot::{
    Accelerator, BootDisk, BootError, Bus, CheckWatch, Emulator, Hardware, Kept, Screen, Wanted, check,
};
use varve_serve::nbd::{Disk, Endpoint, NbdServer, OneDisk, Overlay, Settings, SnapshotDisks};

use self::terminal::Terminal;
use super::Outcome;
use super::serve::{MOMENTS, unnamed_file};
use crate::arguments::{Arguments, Boot, BusChoice, FirmwareChoice, WrongWords};
use crate::{moment, session, show};

/// How much of the image is kept in memory, unpacked.
const LEAVES_BYTES: u64 = 128 << 20;
/// KVM gives up when a machine starts, or not at all.
const GIVES_UP_WITHIN: Duration = Duration::from_secs(120);
/// How often a machine is looked at that somebody uses.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const AGAIN: &str =
    "varve: KVM has given up on this machine: it is started again in software, which is slower";

pub(super) fn run(arguments: &Arguments, words: &Boot) -> Result<Outcome> {
    let is_cancelled = cancelled_by_signals()?;
    let archive = session::read(arguments)?;
    let blocks = session::healing(arguments, &archive);
    let cached = Arc::new(CachedBlocks::with_leaves_bytes(Arc::clone(&blocks) as _, LEAVES_BYTES));
    let snapshots = SnapshotDisks::new(archive.blocks(), Arc::clone(&cached), MOMENTS)?;
    let (snapshot, disk) = chosen(words, &snapshots)?;
    let hardware = hardware(words, &snapshot, &cached)?;
    let id = snapshot.id.to_string();
    let kept = match &words.keep {
        Some(path) if !path.exists() => Some(Kept::create(path, &id, disk.size())?),
        Some(path) => Kept::read(path)?,
        None => None,
    };
    let folder = tempfile::Builder::new()
        .prefix("varve-boot-")
        .tempdir()
        .context("no temporary folder can be made")?;
    let mut starter = Starter { hardware, disk, id, kept, folder, server: None };
    if !arguments.quiet && !arguments.json {
        starter.announce(&snapshot);
    }
    let outcome = match &words.check {
        Some(text) => check_machine(arguments, words, text.as_deref(), &mut starter, &is_cancelled),
        None => use_machine(words, &mut starter, &is_cancelled),
    };
    session::report_lost(arguments, &blocks);
    outcome
}

/// The snapshot that is meant: the one that is named, or that what was kept lies over.
fn chosen(words: &Boot, snapshots: &SnapshotDisks) -> Result<(Snapshot, Arc<dyn Disk>)> {
    let below = match &words.keep {
        Some(path) => Kept::read(path)?.map(|kept| kept.snapshot),
        None => None,
    };
    let missing = || {
        let path = words.keep.as_deref().unwrap_or(Path::new("")).display();
        WrongWords(format!("which snapshot? There is no {path} yet that would say it"))
    };
    let name = words.snapshot.as_deref().or(below.as_deref()).ok_or_else(missing)?;
    let (snapshot, served) = snapshots.find_snapshot(name)?;
    if let Some(below) = below.as_ref().filter(|below| **below != snapshot.id.to_string()) {
        let path = words.keep.as_deref().unwrap_or(Path::new("")).display();
        bail!("{path} keeps what was written over the snapshot {below}, and {name} is {}", snapshot.id);
    }
    Ok((snapshot, served.disk))
}

/// What the description says, or the disk, and over all what the words say.
fn hardware(words: &Boot, snapshot: &Snapshot, blocks: &Arc<CachedBlocks>) -> Result<Hardware> {
    let SnapshotContent::Image(entry) = &snapshot.content else {
        bail!("{} is a folder, and only disk images can be booted", snapshot.name);
    };
    let bytes = Arc::new(ImageReader::new(Arc::clone(blocks), entry));
    let mut hardware = Hardware::of(snapshot.machine.as_ref(), snapshot.id.0, bytes);
    if let Some(memory) = words.memory {
        hardware.memory = memory;
    }
    if let Some(count) = words.cpus {
        hardware.cpu_count = count.into();
    }
    if let Some(firmware) = words.firmware {
        hardware.firmware = match firmware {
            FirmwareChoice::Bios => Firmware::Bios,
            FirmwareChoice::Uefi => Firmware::Uefi,
        };
    }
    if let Some(bus) = words.bus {
        hardware.bus = match bus {
            BusChoice::Virtio => Bus::Virtio,
            BusChoice::Ide => Bus::Ide,
            BusChoice::Sata => Bus::Sata,
            BusChoice::Scsi => Bus::Scsi,
            BusChoice::Nvme => Bus::Nvme,
        };
    }
    hardware.network = words.network;
    Ok(hardware)
}

/// Starts the machine as often as it has to be, each time with a disk as it was archived.
struct Starter {
    hardware: Hardware,
    disk: Arc<dyn Disk>,
    id: String,
    kept: Option<Kept>,
    /// Private: sockets, and what QEMU says.
    folder: TempDir,
    server: Option<NbdServer>,
}

impl Starter {
    fn announce(&self, snapshot: &Snapshot) {
        let firmware = if self.hardware.firmware == Firmware::Uefi { "UEFI" } else { "BIOS" };
        let written = match &self.kept {
            Some(kept) => format!("what it writes is kept in {}", kept.path.display()),
            None => "what it writes is thrown away".into(),
        };
        let network = if self.hardware.network { "with a network" } else { "no network" };
        eprintln!(
            "{} as it was {}: {} of memory, {firmware}, {network}; {written}",
            snapshot.name,
            moment::show(snapshot.time),
            show::bytes(self.hardware.memory),
        );
        let drive_count = snapshot.machine.as_ref().map_or(1, |machine| machine.drives.len());
        if drive_count > 1 {
            eprintln!(
                "varve: the machine has {drive_count} drives, and only the one of this snapshot is attached"
            );
        }
    }

    fn start(&mut self, screen: &Screen, accelerator: Accelerator, with_console: bool) -> Result<Emulator> {
        let socket = self.folder.path().join("disk");
        // The one before has ended: what it was given goes with it.
        self.server = None;
        let disk: Arc<dyn Disk> = match &self.kept {
            Some(_) => Arc::clone(&self.disk),
            None => Arc::new(Overlay::throw_away(Arc::clone(&self.disk), unnamed_file()?)?),
        };
        let disks = OneDisk::new(vec![self.id.clone()], String::new(), disk);
        let endpoint = Endpoint::Unix(socket.clone());
        let server = NbdServer::start(&endpoint, Arc::new(disks), Settings::default());
        self.server = Some(server.context("the disk cannot be served to QEMU")?);
        let kept = self.kept.as_ref().map(|kept| std::path::absolute(&kept.path)).transpose()?;
        let disk = BootDisk { socket, export: self.id.clone(), kept };
        Ok(Emulator::start(&self.hardware, &disk, screen, accelerator, self.folder.path(), with_console)?)
    }
}

fn check_machine(
    arguments: &Arguments,
    words: &Boot,
    text: Option<&str>,
    starter: &mut Starter,
    is_cancelled: &Arc<AtomicBool>,
) -> Result<Outcome> {
    let wanted = text.map_or(Wanted::Login, |text| Wanted::Text(text.into()));
    let screenshot = words.screenshot.as_deref().map(std::path::absolute).transpose()?;
    let watch = CheckWatch {
        timeout: words.timeout,
        screenshot: screenshot.as_deref(),
        is_cancelled: &|| is_cancelled.load(Ordering::Relaxed),
        starts_again: &|| eprintln!("{AGAIN}"),
    };
    let mut failure = None;
    let checked = check(&wanted, &watch, &mut |best| {
        let accelerator = if words.no_kvm { Accelerator::Software } else { best };
        starter.start(&Screen::None, accelerator, true).map_err(|error| match error.downcast::<BootError>() {
            Ok(error) => error,
            Err(error) => {
                let text = format!("{error:#}");
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
        bail!("ended before it was known whether the machine comes up");
    }
    let seconds = checked.elapsed.as_secs_f64();
    if arguments.json {
        let value = json!({
            "up": checked.is_up, "seconds": seconds, "accelerator": checked.accelerator.to_string(), "said": checked.said,
            "ended": checked.ended,
        });
        say!("{value}");
    } else if checked.is_up {
        say!("yes: it is up after {seconds:.1} s, with {}", checked.accelerator);
    } else {
        let why = checked.ended.unwrap_or_else(|| "that did not come".into());
        say!("no: after {seconds:.1} s, with {}: {why}", checked.accelerator);
        if !checked.said.is_empty() {
            eprintln!("the last that it said:\n{}", show::lines(&checked.said));
        }
    }
    Ok(if checked.is_up { Outcome::Done } else { Outcome::Found })
}

fn use_machine(words: &Boot, starter: &mut Starter, is_cancelled: &Arc<AtomicBool>) -> Result<Outcome> {
    let has_windows = || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let (screen, with_console) = match &words.vnc {
        Some(address) => (Screen::Vnc(address.clone()), false),
        None if words.console || !has_windows() => (Screen::None, true),
        None => (Screen::Window, false),
    };
    let terminal = if with_console { Some(Terminal::take(Arc::clone(is_cancelled))?) } else { None };
    let mut accelerator = if words.no_kvm { Accelerator::Software } else { Accelerator::best() };
    loop {
        let mut machine = match starter.start(&screen, accelerator, with_console) {
            Err(error) if error.downcast_ref().is_some_and(|error: &BootError| error.is_of(accelerator)) => {
                eprintln!("{AGAIN}\r");
                accelerator = Accelerator::Software;
                continue;
            }
            started => started?,
        };
        if let Some(address) = machine.vnc_address().filter(|_| words.vnc.is_some()) {
            say!("its screen is at {address}, with VNC");
        }
        if let (Some(terminal), Some(console)) = (&terminal, machine.console()) {
            terminal.connect(console)?;
        }
        if !wait_for_end(&mut machine, is_cancelled) {
            terminal.iter().for_each(Terminal::disconnect);
            drop(machine);
            eprintln!("{AGAIN}\r");
            accelerator = Accelerator::Software;
            continue;
        }
        let said = machine.said();
        let failed = machine.ended().is_some_and(|status| !status.success());
        drop(machine);
        // Its end is to be seen before anything else is written.
        drop(terminal);
        if failed && !is_cancelled.load(Ordering::Relaxed) {
            bail!("QEMU has failed: {said}");
        }
        return Ok(Outcome::Done);
    }
}

/// `false`: the accelerator has given up.
#[expect(clippy::disallowed_methods, reason = "a machine that somebody uses lives in real time")]
fn wait_for_end(machine: &mut Emulator, is_cancelled: &AtomicBool) -> bool {
    let started = Instant::now();
    loop {
        if machine.ended().is_some() || is_cancelled.load(Ordering::Relaxed) {
            return true;
        }
        if started.elapsed() < GIVES_UP_WITHIN && machine.has_given_up() {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The first signal to end sets this; a second one ends the program at once, and QEMU with it.
fn cancelled_by_signals() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::flag;
    let is_cancelled = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // In this order: the first signal must not find the flag set by itself.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&is_cancelled))?;
        flag::register(signal, Arc::clone(&is_cancelled))?;
    }
    Ok(is_cancelled)
}
