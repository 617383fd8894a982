//! QEMU itself: started, watched, and ended.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::json;
use varve_archive::Firmware;
use varve_block::visible;

use super::boot_error::{BootError, PROGRAM};
use super::command_line::{Places, command_line};
use super::hardware::Hardware;
use super::keep::Kept;
use super::setting::{Accelerator, BootDisk, Screen};
use super::window;
use crate::companion::{companion, is_there};
use crate::edge::{Deadline, sleep};
use crate::qmp::{Qmp, QmpError};

/// How long QEMU may take until its monitor answers.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take for one answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take to end.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Where the screen's text is, in the memory of a machine that shows text, and how much of it there is: 80 times 25 of two bytes.
const TEXT_SCREEN: (u64, usize) = (0xb8000, 80 * 25 * 2);

/// UEFI for QEMU: its code, and what its variables are at first. In the places where systems have them.
const FIRMWARE: [(&str, &str); 7] = [
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ("/usr/share/edk2-ovmf/x64/OVMF_CODE.fd", "/usr/share/edk2-ovmf/x64/OVMF_VARS.fd"),
    ("/usr/share/qemu/edk2-x86_64-code.fd", "/usr/share/qemu/edk2-i386-vars.fd"),
    ("/usr/share/qemu/ovmf-x86_64-code.bin", "/usr/share/qemu/ovmf-x86_64-vars.bin"),
];

/// A machine that runs. It ends when this is dropped.
pub struct Emulator {
    child: Child,
    monitor: Qmp,
    console: Option<UnixStream>,
    accelerator: Accelerator,
    folder: PathBuf,
    /// What it complains of.
    complaints: PathBuf,
}

impl Emulator {
    /// Starts a machine with these disks. `folder` is private, and empty but for what the caller has put there; sockets and other small files are made
    /// in it. UEFI's variables are kept in the file `variables`, or thrown away. With `with_console`, the first serial line can be listened to.
    ///
    /// # Errors
    /// [`BootError`]
    pub fn start(
        hardware: &Hardware,
        (disks, variables): (&[BootDisk], Option<&Path>),
        screen: &Screen,
        accelerator: Accelerator,
        folder: &Path,
        with_console: bool,
    ) -> Result<Self, BootError> {
        let prepare = BootError::Prepare;
        let (monitor, console) = (folder.join("monitor"), folder.join("console"));
        for left in [&monitor, &console] {
            match fs::remove_file(left) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(prepare(error)),
                _ => {}
            }
        }
        let firmware = match hardware.firmware {
            Firmware::Uefi => Some(uefi(folder, variables)?),
            Firmware::Bios | Firmware::Unknown => None,
        };
        let listener = if with_console { Some(UnixListener::bind(&console).map_err(prepare)?) } else { None };
        let complaints = folder.join("complaints");
        let complaint_file = File::create(&complaints).map_err(prepare)?;
        let places = Places {
            monitor: &monitor,
            console: listener.as_ref().map(|_| console.as_path()),
            firmware: firmware.as_ref().map(|(code, variables)| (code.as_path(), variables.as_path())),
            window: if *screen == Screen::Window { window::kind()? } else { "" },
        };
        let words = command_line(hardware, disks, screen, accelerator, &places);
        let child = spawn(&words, complaint_file)?;
        let mut starting = Starting { child: Some(child), complaints: &complaints };
        let mut monitor = starting.monitor(&monitor).map_err(|error| match error {
            BootError::EndedAtOnce { said } if *screen == Screen::Window && window::is_missing(&said) => {
                BootError::NoDisplay { said }
            }
            error => error,
        })?;
        let console = listener.map(|listener| starting.console(&listener)).transpose()?;
        if disks.iter().any(|disk| disk.kept.is_some()) {
            // QEMU has opened these files, and the guest has not begun: what they say now is what QEMU has gone by.
            disks.iter().try_for_each(is_still_kept)?;
            monitor.execute("cont", json!({}))?;
        }
        let child = starting.child.take().expect("it was started");
        Ok(Self {
            child,
            monitor,
            console,
            accelerator,
            folder: folder.into(),
            complaints: complaints.clone(),
        })
    }

    /// Who does its work.
    #[must_use]
    pub fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    /// Its first serial line.
    #[must_use]
    pub fn console(&self) -> Option<&UnixStream> {
        self.console.as_ref()
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Whether the guest does something that this accelerator cannot do, so that it stands still for ever: boot loaders of 16 and 32 bits
    /// do, where KVM runs inside another machine.
    pub fn has_given_up(&mut self) -> bool {
        if self.accelerator == Accelerator::Software {
            return false;
        }
        let status = self.monitor.execute("query-status", json!({}));
        let is_stuck = status.is_ok_and(|status| status["status"] == "internal-error");
        let said = self.said();
        is_stuck || said.contains("KVM internal error") || said.contains("emulation failure")
    }

    /// Whether the guest stands still because something that it writes finds no room. QEMU stops it before it would notice.
    pub fn waits_for_room(&mut self) -> bool {
        self.monitor.execute("query-status", json!({})).is_ok_and(|status| status["status"] == "io-error")
    }

    /// Lets a guest go on that waited for room: what found none is written again. Where there still is none, it waits again.
    pub fn try_again(&mut self) {
        drop(self.monitor.execute("cont", json!({})));
    }

    /// What QEMU has complained of.
    #[must_use]
    pub fn said(&self) -> String {
        last_words(&self.complaints)
    }

    /// Where its screen can be looked at with VNC.
    pub fn vnc_address(&mut self) -> Option<String> {
        let vnc = self.monitor.execute("query-vnc", json!({})).ok()?;
        Some(format!("{}:{}", vnc["host"].as_str()?, vnc["service"].as_str()?))
    }

    /// The lines of the screen, if it shows text as machines do before they show anything else.
    pub fn screen_text(&mut self) -> Vec<String> {
        let file = self.folder.join("screen");
        let arguments =
            json!({ "val": TEXT_SCREEN.0, "size": TEXT_SCREEN.1, "filename": file.to_string_lossy() });
        if self.monitor.execute("pmemsave", arguments).is_err() {
            return Vec::new();
        }
        let bytes = fs::read(&file).unwrap_or_default();
        let characters: Vec<char> = bytes.chunks(2).map(|cell| shown(cell.first().copied())).collect();
        characters.chunks(80).map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
    }

    /// Draws the screen into a PNG file.
    ///
    /// # Errors
    /// [`QmpError`]; QEMU before 7.1 cannot.
    pub fn screenshot(&mut self, file: &Path) -> Result<(), QmpError> {
        let arguments = json!({ "filename": file.to_string_lossy(), "format": "png" });
        self.monitor.execute("screendump", arguments).map(drop)
    }

    /// Ends it, with what the guest has written so far; in a bad case by force.
    pub fn end(&mut self) {
        if self.ended().is_some() {
            return;
        }
        // A monitor that does not answer is one more reason.
        drop(self.monitor.execute("quit", json!({})));
        let deadline = Deadline::after(END_PATIENCE);
        while self.ended().is_none() {
            if deadline.left().is_none() {
                drop(self.child.kill());
                drop(self.child.wait());
                return;
            }
            sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.end();
    }
}

/// A machine that is being started; killed if that fails.
struct Starting<'a> {
    child: Option<Child>,
    complaints: &'a Path,
}

impl Starting<'_> {
    fn look(&mut self) -> Result<(), BootError> {
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(Some(_))) => Err(BootError::EndedAtOnce { said: last_words(self.complaints) }),
            Some(Err(error)) => Err(BootError::Start(error)),
            _ => Ok(()),
        }
    }

    fn monitor(&mut self, socket: &Path) -> Result<Qmp, BootError> {
        let deadline = Deadline::after(START_PATIENCE);
        loop {
            self.look()?;
            match Qmp::connect(socket, PATIENCE) {
                Ok(monitor) => return Ok(monitor),
                Err(error) if deadline.left().is_none() => return Err(error.into()),
                Err(_) => sleep(LOOK_EVERY),
            }
        }
    }

    /// QEMU connects when it starts, before its monitor answers.
    fn console(&mut self, listener: &UnixListener) -> Result<UnixStream, BootError> {
        listener.set_nonblocking(true).map_err(BootError::Console)?;
        let deadline = Deadline::after(START_PATIENCE);
        loop {
            self.look()?;
            match listener.accept() {
                Ok((console, _)) => {
                    console.set_nonblocking(false).map_err(BootError::Console)?;
                    return Ok(console);
                }
                Err(error) if deadline.left().is_none() => return Err(BootError::Console(error)),
                Err(_) => sleep(LOOK_EVERY),
            }
        }
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Starts QEMU. It ends with the thread that calls this, where the system can see to that.
fn spawn(words: &[String], complaints: File) -> Result<Child, BootError> {
    if !is_there(PROGRAM) {
        return Err(BootError::NotInstalled);
    }
    let mut command = companion(PROGRAM);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
    command.spawn().map_err(BootError::Start)
}

/// Whether what a guest writes still goes where it should.
fn is_still_kept(disk: &BootDisk) -> Result<(), BootError> {
    let Some(path) = &disk.kept else { return Ok(()) };
    match Kept::read(path)? {
        Some(kept) if kept.snapshot == disk.export => Ok(()),
        _ => Err(BootError::KeptChanged { path: path.clone() }),
    }
}

/// The code of UEFI, and a file for its variables: the one that is given, or one to be thrown away.
fn uefi(folder: &Path, variables: Option<&Path>) -> Result<(PathBuf, PathBuf), BootError> {
    let is_there =
        |(code, variables): &&(&str, &str)| Path::new(code).is_file() && Path::new(variables).is_file();
    let (code, fresh) = FIRMWARE.iter().find(is_there).ok_or(BootError::NoFirmware)?;
    let variables = variables.map_or_else(|| folder.join("variables"), Path::to_path_buf);
    // Somebody else may have laid it there: a link would lead the guest to another file.
    match fs::symlink_metadata(&variables) {
        Ok(there) if there.is_file() => {}
        Ok(_) => return Err(BootError::Variables { path: variables }),
        Err(_) => drop(fs::copy(fresh, &variables).map_err(BootError::Prepare)?),
    }
    Ok((code.into(), variables))
}

/// What a program has said last, in one line.
fn last_words(file: &Path) -> String {
    const BYTES_MAX: usize = 16 << 10;
    let bytes = fs::read(file).unwrap_or_default();
    let end = bytes.get(bytes.len().saturating_sub(BYTES_MAX)..).unwrap_or_default();
    let text = String::from_utf8_lossy(end);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(visible).collect::<Vec<_>>().join("; ")
}

/// A cell of the screen, as far as it is plain text.
fn shown(cell: Option<u8>) -> char {
    match cell {
        Some(byte @ b' '..=b'~') => char::from(byte),
        _ => ' ',
    }
}
