//! Why a machine does not start.

use std::io;
use std::path::PathBuf;

use super::keep::KeepError;
use super::setting::Accelerator;
use crate::qmp::QmpError;

/// The program.
pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// Why a machine could not be started, or not be used.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// QEMU is not there.
    #[error(
        "{PROGRAM} is not installed, and booting needs it: install qemu-system-x86 (or your system's package of QEMU)"
    )]
    NotInstalled,
    /// UEFI is not there.
    #[error(
        "the machine starts with UEFI, and UEFI for QEMU is not installed: install ovmf (or edk2-ovmf), or try --firmware bios"
    )]
    NoFirmware,
    /// There are no windows.
    #[error(
        "this QEMU cannot show a window: install qemu-system-gui (or your system's package of it), or use --vnc or --console, which need none"
    )]
    NoWindows,
    /// There is no place for a window.
    #[error("QEMU can show no window here ({said}): --vnc and --console need none")]
    NoDisplay {
        /// What it says.
        said: String,
    },
    /// What it needs could not be prepared.
    #[error("the machine could not be prepared")]
    Prepare(#[source] io::Error),
    /// A file that is kept is another than it was.
    #[error("{path} was changed while QEMU opened it", path = path.display())]
    KeptChanged {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be used to keep what a guest writes.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// The file for UEFI's variables is none.
    #[error("{path} is a link, or no file, and UEFI's variables are not kept there: move it away", path = path.display())]
    Variables {
        /// What is no file.
        path: PathBuf,
    },
    /// It did not start.
    #[error("{PROGRAM} could not be started")]
    Start(#[source] io::Error),
    /// It has ended before it could be talked to.
    #[error("QEMU has ended at once: {said}")]
    EndedAtOnce {
        /// What it said last.
        said: String,
    },
    /// It says nothing.
    #[error("QEMU's monitor does not answer")]
    Monitor(#[from] QmpError),
    /// The console could not be read.
    #[error("the machine's console could not be read")]
    Console(#[source] io::Error),
}

impl BootError {
    /// Whether it may work with another accelerator than this one.
    #[must_use]
    pub fn is_of(&self, accelerator: Accelerator) -> bool {
        accelerator == Accelerator::Kvm
            && matches!(self, Self::EndedAtOnce { said } if said.to_ascii_lowercase().contains("kvm"))
    }
}
