//! Starting a machine from an archived disk, in QEMU.
//!
//! ```text
//! snapshot ─▶ NBD on a socket ─▶ QEMU ◀─ Hardware: as the snapshot's description says, or as its disk looks
//!                                 │ └─ what the guest writes: into the export's overlay, or into a qcow2 that is kept
//!                                 └─ console, monitor ─▶ a terminal, a window, or somebody who waits for a text
//! ```
//!
//! What must always be true: the archive is never written to; QEMU ends with whoever started it; and a guest gets a network only if that
//! was asked for.

mod boot_error;
mod check;
mod command_line;
mod emulator;
mod hardware;
mod keep;
mod setting;
mod transcript;
mod window;

pub use boot_error::BootError;
pub use check::{CheckOutcome, CheckWatch, Wanted, check};
pub use emulator::Emulator;
pub use hardware::{Attached, Bus, Hardware, attached};
pub use keep::{KeepError, Kept};
pub use setting::{Accelerator, BootDisk, Screen};
