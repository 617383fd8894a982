//! The QEMU process: start, observation, and end.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::json;
use varve_archive::Firmware;
use varve_block::visible;
use varve_world::one_line;

use super::boot_error::{BootError, PROGRAM};
use super::command_line::{EmulatorPaths, command_line};
use super::firmware::{self, StartVariables};
use super::hardware::Hardware;
use super::keep::KeptWrites;
use super::setting::{Accelerator, BootDisk, Screen};
use super::window;
use crate::companion::{companion, is_there};
use crate::edge::{Deadline, sleep};
use crate::qmp::{Qmp, QmpError};

/// The time limit until QEMU's monitor answers.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// The time limit for one answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time limit for its end.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// The interval between checks of its state.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The address and size of the text screen in the memory of a machine in text mode: 80 times 25
/// cells of two bytes.
const TEXT_SCREEN: (u64, usize) = (0xb8000, 80 * 25 * 2);

/// A running machine. It ends when this is dropped.
pub struct Emulator {
    child: Child,
    monitor: Qmp,
    console: Option<UnixStream>,
    accelerator: Accelerator,
    folder: PathBuf,
    /// The file with its error output.
    complaints: PathBuf,
}

impl Emulator {
    /// Starts a machine with these disks. `folder` is private, and empty except for the caller's
    /// own files; sockets and other small files are made in it. `variables` are those of UEFI.
    /// `with_console` makes the first serial line available.
    ///
    /// # Errors
    /// [`BootError`]
    pub fn start(
        hardware: &Hardware,
        disks: &[BootDisk],
        variables: &StartVariables,
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
            Firmware::Uefi => Some(firmware::prepare(folder, variables)?),
            Firmware::Bios | Firmware::Unknown => None,
        };
        let listener = if with_console { Some(UnixListener::bind(&console).map_err(prepare)?) } else { None };
        let complaints = folder.join("complaints");
        let complaint_file = File::create(&complaints).map_err(prepare)?;
        let places = EmulatorPaths {
            monitor: &monitor,
            console: listener.as_ref().map(|_| console.as_path()),
            firmware: firmware.as_ref().map(|(code, variables)| (code.as_path(), variables.as_path())),
            window: if *screen == Screen::Window { window::kind()? } else { "" },
        };
        let args = command_line(hardware, disks, screen, accelerator, &places);
        let child = spawn(&args, complaint_file)?;
        let mut starting = StartingEmulator { child: Some(child), complaints: &complaints };
        let mut monitor = starting.monitor(&monitor).map_err(|error| match error {
            BootError::EndedAtOnce { said } if *screen == Screen::Window && window::is_missing(&said) => {
                BootError::NoDisplay { said }
            }
            error => error,
        })?;
        let console = listener.map(|listener| starting.console(&listener)).transpose()?;
        if disks.iter().any(|disk| disk.kept.is_some()) {
            // QEMU has opened these files, and the guest has not started. So the present contents
            // of the files are those that QEMU uses.
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

    /// Returns its accelerator.
    #[must_use]
    pub fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    /// Returns its first serial line.
    #[must_use]
    pub fn console(&self) -> Option<&UnixStream> {
        self.console.as_ref()
    }

    /// Returns its exit status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Returns true if the guest hangs because of something that the accelerator cannot do. Boot
    /// loaders of 16 and 32 bits cause this with nested KVM.
    pub fn has_given_up(&mut self) -> bool {
        if self.accelerator == Accelerator::Software {
            return false;
        }
        let status = self.monitor.execute("query-status", json!({}));
        let is_stuck = status.is_ok_and(|status| status["status"] == "internal-error");
        let said = self.said();
        is_stuck || said.contains("KVM internal error") || said.contains("emulation failure")
    }

    /// Returns true if QEMU has stopped the guest because there is no space for its writes. The
    /// guest does not notice this.
    pub fn waits_for_room(&mut self) -> bool {
        self.monitor.execute("query-status", json!({})).is_ok_and(|status| status["status"] == "io-error")
    }

    /// Resumes a guest that waits for space. The failed writes are repeated, and it waits again if
    /// there is still no space.
    pub fn try_again(&mut self) {
        drop(self.monitor.execute("cont", json!({})));
    }

    /// Returns the error output of QEMU.
    #[must_use]
    pub fn said(&self) -> String {
        last_words(&self.complaints)
    }

    /// Returns the address of its VNC server.
    pub fn vnc_address(&mut self) -> Option<String> {
        let vnc = self.monitor.execute("query-vnc", json!({})).ok()?;
        Some(format!("{}:{}", vnc["host"].as_str()?, vnc["service"].as_str()?))
    }

    /// Returns the lines of the screen if it is in text mode, as at the beginning of a boot.
    pub(crate) fn screen_text(&mut self) -> Vec<String> {
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
    /// [`QmpError`]; QEMU before 7.1 cannot do this.
    pub fn screenshot(&mut self, file: &Path) -> Result<(), QmpError> {
        let arguments = json!({ "filename": file.to_string_lossy(), "format": "png" });
        self.monitor.execute("screendump", arguments).map(drop)
    }

    /// Ends it, with the guest's writes up to now; kills it if necessary.
    pub fn end(&mut self) {
        if self.ended().is_some() {
            return;
        }
        // A monitor that does not answer is one more reason to end it.
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

/// A machine that is being started. It is killed if that fails.
struct StartingEmulator<'a> {
    child: Option<Child>,
    complaints: &'a Path,
}

impl StartingEmulator<'_> {
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

    /// Accepts the console. QEMU connects to it at its start, before its monitor answers.
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

impl Drop for StartingEmulator<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Starts QEMU. It ends with the calling thread, if the system supports that.
fn spawn(args: &[String], complaints: File) -> Result<Child, BootError> {
    if !is_there(PROGRAM) {
        return Err(BootError::NotInstalled);
    }
    let mut command = companion(PROGRAM);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
    command.spawn().map_err(BootError::Start)
}

/// Checks that the guest's writes still go to the right file.
fn is_still_kept(disk: &BootDisk) -> Result<(), BootError> {
    let Some(path) = &disk.kept else { return Ok(()) };
    match KeptWrites::read(path)? {
        Some(kept) if kept.snapshot == disk.export => Ok(()),
        _ => Err(BootError::KeptChanged { path: path.clone() }),
    }
}

/// Returns the last output of a program, in one line.
fn last_words(file: &Path) -> String {
    const BYTES_MAX: usize = 16 << 10;
    let bytes = fs::read(file).unwrap_or_default();
    let end = bytes.get(bytes.len().saturating_sub(BYTES_MAX)..).unwrap_or_default();
    visible(&one_line(end))
}

/// Converts a cell of the screen, if it is plain text.
fn shown(cell: Option<u8>) -> char {
    match cell {
        Some(byte @ b' '..=b'~') => char::from(byte),
        _ => ' ',
    }
}
