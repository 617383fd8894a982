//! The errors of booting a machine.

use std::io;
use std::path::PathBuf;

use super::keep::KeepError;
use super::setting::Accelerator;
use crate::qmp::QmpError;

/// The name of the QEMU program.
pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// The reason why a machine could not be started or used.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// QEMU is not installed.
    #[error(
        "booting needs {PROGRAM}, which is not installed: install qemu-system-x86 (or your system's package of QEMU)"
    )]
    NotInstalled,
    /// UEFI for QEMU is not installed.
    #[error(
        "the machine starts with UEFI, and UEFI for QEMU is not installed: install ovmf (or edk2-ovmf), or try --firmware bios"
    )]
    NoFirmware,
    /// QEMU was built without support for windows.
    #[error(
        "this QEMU cannot show a window: install qemu-system-gui (or your system's package of it), or use --vnc or --console"
    )]
    NoWindows,
    /// No display is available.
    #[error("QEMU cannot show a window here ({said}): use --vnc or --console")]
    NoDisplay {
        /// QEMU's complaint.
        said: String,
    },
    /// A file or socket for the machine could not be prepared.
    #[error("the machine could not be prepared")]
    Prepare(#[source] io::Error),
    /// A kept file was changed while QEMU opened it.
    #[error("{path} was changed while QEMU opened it", path = path.display())]
    KeptChanged { path: PathBuf },
    /// A file cannot be used to keep the guest's writes.
    #[error("{0}")]
    Keep(#[from] KeepError),
    /// The file for UEFI's variables is not a regular file.
    #[error("{path} is not a regular file, and cannot keep the UEFI variables: move it away", path = path.display())]
    Variables { path: PathBuf },
    /// The kept UEFI variables have another size than those of the installed firmware.
    #[error("no UEFI for QEMU that is installed here fits {path}, which has {bytes} bytes: move it away for fresh variables", path = path.display())]
    VariablesSize { path: PathBuf, bytes: u64 },
    /// QEMU did not start.
    #[error("{PROGRAM} could not be started")]
    Start(#[source] io::Error),
    /// QEMU ended before its monitor answered.
    #[error("QEMU ended at once: {said}")]
    EndedAtOnce {
        /// The last lines of its output.
        said: String,
    },
    /// The monitor does not answer.
    #[error("QEMU's monitor does not answer")]
    Monitor(#[from] QmpError),
    /// The console could not be read.
    #[error("the machine's console could not be read")]
    Console(#[source] io::Error),
}

impl BootError {
    /// Returns true if another accelerator than this one may work.
    #[must_use]
    pub fn is_of(&self, accelerator: Accelerator) -> bool {
        accelerator == Accelerator::Kvm
            && matches!(self, Self::EndedAtOnce { said } if said.to_ascii_lowercase().contains("kvm"))
    }
}
