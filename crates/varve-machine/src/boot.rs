//! Boots a machine from an archived disk, in QEMU.
//!
//! ```text
//! snapshot ─▶ NBD on a socket ─▶ QEMU ◀─ Hardware: from the description, or from the disk
//!                                 │ └─ the guest's writes ─▶ the export's overlay, or a kept qcow2
//!                                 └─ console, monitor ─▶ a terminal, a window, or `check`
//! ```
//!
//! Invariants: the archive is never written to; QEMU ends with the process that started it; and a
//! guest gets a network only on request.

mod boot_error;
mod check;
mod command_line;
mod emulator;
mod firmware;
mod hardware;
mod keep;
mod setting;
mod transcript;
mod window;

pub use boot_error::BootError;
pub use check::{BootSign, CheckOutcome, CheckWatch, check};
pub use emulator::Emulator;
pub use firmware::{InstalledFirmware, StartVariables, VariablesError, read_variables};
pub use hardware::{AttachedDrive, Bus, Hardware, USUAL_SECTOR_BYTES, attached, sectors_of};
pub use keep::{KeepError, KeptWrites};
pub use setting::{Accelerator, BootDisk, Screen};
